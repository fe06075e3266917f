"""Label files: what they mean, and that every fault is named with its line."""

from __future__ import annotations

import math

import pytest

from vlm_decisions.frames import NS
from vlm_decisions.questions import Question
from vlm_decisions.sources.labels import LabelError, check_sources, questions_of, read_labels
from vlm_decisions.sources.truth import OPEN_NS

HEAD = "source,start_s,end_s,question,label\n"


def write(tmp_path, text, name="labels.csv"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


def test_labels_are_read(tmp_path):
    labels = read_labels(write(tmp_path, "\ufeff# mine\n" + HEAD + "a.mp4, 0, 2.5,person,Yes\n\n"
                               "# later\na.mp4,2.5,,person,no\nb.jpg,,,cup,1\n"))
    assert list(labels) == ["a.mp4", "b.jpg"] and questions_of(labels) == ["person", "cup"]
    first, second = labels["a.mp4"].spans["person"]
    assert (first.start_s, first.end_s, first.answer, first.scene, first.line) == (
        0.0, 2.5, "yes", "a.mp4", 3)
    assert (second.start_s, second.end_s, second.answer, second.line) == (2.5, math.inf, "no", 6)
    (picture,) = labels["b.jpg"].spans["cup"]
    assert (picture.start_ns, picture.end_ns, picture.answer) == (0, OPEN_NS, "yes")
    truth = labels["a.mp4"]
    assert truth.start_ns == 0 and truth.answer("person", 100 * NS) == "no"
    assert truth.covering("person", NS // 2, NS) is first
    assert truth.covering("person", 2 * NS, 3 * NS) is None  # over the change


def test_clips_and_columns_in_any_order(tmp_path):
    labels = read_labels(write(tmp_path, "label,question,source,clip,end_s,start_s\n"
                               "no,cup,long.mp4,first,9,1\nyes,cup,long.mp4,,19,9\n"))
    first, second = labels["long.mp4"].spans["cup"]
    assert (first.scene, second.scene) == ("first", "long.mp4") and first.start_s == 1.0


def test_labels_that_overlap_and_agree_are_one(tmp_path):
    (one,) = read_labels(write(tmp_path, HEAD + "a.mp4,0,9,cup,yes\na.mp4,1,2,cup,yes\n"
                               "a.mp4,8,12,cup,yes\n"))["a.mp4"].spans["cup"]
    assert (one.start_s, one.end_s, one.line) == (0.0, 12.0, 2)


def test_names_that_look_the_same_are_the_same(tmp_path):
    """File systems decompose letters, and zero-width characters come with copied text."""
    labels = read_labels(write(tmp_path, "\u200bsource,start_s,end_s,question,label,clip\n"
                               "cafe\u0301.mp4,0,1,cup,yes\u200b,cafe\u0301\n"
                               "caf\u00e9.mp4,1,2,cup,no,caf\u00e9\n"
                               "caf\u00e9.mp4,2,3,cup,no,\u200b\n"))
    assert list(labels) == ["caf\u00e9.mp4"]
    spans = labels["caf\u00e9.mp4"].spans["cup"]
    assert [span.scene for span in spans] == ["caf\u00e9", "caf\u00e9", "caf\u00e9.mp4"]
    assert [span.answer for span in spans] == ["yes", "no", "no"]


@pytest.mark.parametrize(("text", "named"), [
    ("", "holds no labels"),
    ("# nothing\n", "holds no labels"),
    (HEAD, "a header and no labels"),
    ("a.mp4,0,1,person,yes\n", "the header lacks source"),
    ("source,start_s,end_s,label\n", "lacks question"),
    (HEAD.strip() + ",who\na.mp4,0,1,person,yes,me\n", "unknown column 'who'"),
    (HEAD.strip() + ",label\n", "appears twice"),
    (HEAD + "a.mp4,0,1,person\n", "csv:2: 4 cells, the header has 5"),
    (HEAD + ",0,1,person,yes\n", "csv:2: source is empty"),
    (HEAD + "\u200b,0,1,person,yes\n", "csv:2: source is empty"),
    (HEAD + "a.mp4,0,1,per\u200bson,yes\n", "csv:2: question id 'per\\u200bson' is not a ROS"),
    (HEAD + "a.mp4,x,1,person,yes\n", "csv:2: start_s must be seconds from 0 on, not 'x'"),
    (HEAD + "a.mp4,-1,1,person,yes\n", "start_s must be seconds"),
    (HEAD + "a.mp4,0,nan,person,yes\n", "end_s must be seconds"),
    (HEAD + "a.mp4,2,2,person,yes\n", "end_s must come after start_s"),
    (HEAD + "a.mp4,0,1,the person,yes\n", "csv:2: question id 'the person' is not a ROS name"),
    (HEAD + "a.mp4,0,1,camera_dark,yes\n", "kept for the camera's health"),
    (HEAD + "a.mp4,0,1,person,maybe\n", "csv:2: label must be yes or no, not 'maybe'"),
    (HEAD + "a.mp4,0,5,person,yes\na.mp4,1,2,cup,no\na.mp4,4,6,person,no\n",
     "csv:4: contradicts line 2: 'person' of 'a.mp4' is both yes and no at 4 s"),
    (HEAD + "a.mp4,0,9,person,yes\na.mp4,1,2,person,yes\na.mp4,8,10,person,no\n",
     "csv:4: contradicts line 2"),
    (HEAD.strip() + ",clip\na.mp4,0,5,person,yes,one\na.mp4,4,6,person,yes,two\n",
     "csv:3: overlaps line 2, which is of another clip: 'one', not 'two'"),
])
def test_what_is_wrong_is_named(tmp_path, text, named):
    with pytest.raises(LabelError) as error:
        read_labels(write(tmp_path, text))
    assert named in str(error.value) and "labels.csv" in str(error.value)


def test_files_that_are_no_text(tmp_path):
    with pytest.raises(LabelError, match="No such file"):
        read_labels(tmp_path / "absent.csv")
    (tmp_path / "bad.csv").write_bytes(b"source,\xff\xfe")
    with pytest.raises(LabelError, match="not UTF-8"):
        read_labels(tmp_path / "bad.csv")


def test_labels_and_recordings_must_name_each_other(tmp_path):
    labels = read_labels(write(tmp_path, HEAD + "kitchen_1.mp4,0,1,person,yes\n"))
    check_sources(labels, {"kitchen_1.mp4": 20.0})
    with pytest.raises(LabelError, match="line 2: no recording is called 'kitchen_1.mp4'.*did you "
                                         "mean 'kitchen_1.mkv'"):
        check_sources(labels, {"kitchen_1.mkv": 20.0})
    with pytest.raises(LabelError, match="there are: x, y"):
        check_sources(labels, {"x": 20.0, "y": 20.0})
    with pytest.raises(LabelError, match="no label names garden.mp4: label them"):
        check_sources(labels, {"kitchen_1.mp4": 20.0, "garden.mp4": 9.0})
    check_sources(labels, {"kitchen_1.mp4": 20.0, "garden.mp4": 9.0}, skip_unlabelled=True)


TIMES = [
    ("a,0,10,person,yes", 10.0, ""),
    ("a,,,person,yes", 10.0, ""),
    ("a,,,person,yes", 0.0, ""),  # a picture
    ("a,8,,person,yes", 10.0, ""),
    ("a,0,40,person,yes", 10.0, "25% of the truth counts"),
    ("a,0,10,person,yes\na,30,31,cup,yes", 10.0, "nothing within is about cup"),
    ("a,8,12,person,yes", 10.0, "50% of the truth counts"),
    ("a,9,14,person,yes", 10.0, LabelError),
    ("a,60,70,person,yes", 10.0, LabelError),
    ("a,12,,person,yes", 10.0, LabelError),
    ("a,1,2,person,yes", 0.0, LabelError),
]


@pytest.mark.parametrize(("rows", "length_s", "said"), TIMES)
def test_labels_of_times_without_images(tmp_path, rows, length_s, said):
    labels = read_labels(write(tmp_path, HEAD + rows + "\n"))
    if said is LabelError:
        with pytest.raises(LabelError, match=rf"labels of 'a': .* 0.0 to {length_s} s.*needed"):
            check_sources(labels, {"a": length_s})
    else:
        (note,) = check_sources(labels, {"a": length_s}) or ("",)
        assert said in note and bool(said) == bool(note)


def test_labels_of_other_kinds_of_question(tmp_path):
    known = [Question("people", "x", kind="score", options=("none", "one")),
             Question("on_desk", "Is there a {}?", kind="any_of", options=("cup", "pen"))]
    path = write(tmp_path, HEAD + "a.mp4,0,1,people,one\na.mp4,0,1,on_desk,\"pen, cup\"\n"
                           "a.mp4,0,1,person,yes\n")
    truth = read_labels(path, known)["a.mp4"]
    assert truth.answer("people", 0) == "one"
    assert truth.answer("on_desk", 0) == "cup, pen"
    with pytest.raises(LabelError, match="csv:2: label must be yes or no, not 'one'"):
        read_labels(path)
    with pytest.raises(LabelError, match="csv:2: 'people' never answers 'yes'"):
        read_labels(write(tmp_path, HEAD + "a.mp4,0,1,people,yes\n"), known)
    with pytest.raises(LabelError, match="'on_desk' of 'a.mp4' is both cup and none at 1 s"):
        read_labels(write(tmp_path, HEAD + "a.mp4,0,2,on_desk,cup\n"
                          "a.mp4,1,3,on_desk,none\n"), known)
