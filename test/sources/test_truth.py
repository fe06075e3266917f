"""The truth of a recording: from the bag, from a file, and what is wrong with either."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed")

from bag_tools import START_NS, image, make_bag

from vlm_decisions.frames import NS
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question
from vlm_decisions.sources.bag_writer import BagWriter
from vlm_decisions.sources.bags import STRING, Bag, BagError
from vlm_decisions.sources.messages import IMAGE
from vlm_decisions.sources.recording import open_recording
from vlm_decisions.sources.truth import (
    Span,
    Truth,
    TruthError,
    TruthRow,
    read_row,
    read_truth,
    truth_of_bag,
    truth_of_labels,
    truth_of_rows,
    truth_of_world,
)

BOOK = QuestionBook.loads("""
- {id: person, text: "Is a person present?"}
- {id: activity, text: "What?", kind: choice, options: [typing, idle]}
""")
FILE = """
segments:
  - {start_s: 0.0, end_s: 2.5, facts: {person: yes, activity: typing}}
  - {start_s: 2.5, end_s: 4.0, facts: {person: no}}
"""


def spans(truth: Truth, question: str = "person") -> list[tuple]:
    return [((s.start_ns - START_NS) / NS, (s.end_ns - START_NS) / NS, s.answer, s.scene)
            for s in truth.spans[question]]


def test_images_that_tell_the_same_make_one_span(tmp_path):
    bag = make_bag(tmp_path / "bag", 8, truth=lambda k: {"person": "yes" if k < 4 else "no"})
    with Bag(bag) as opened:
        truth = truth_of_bag(opened)
    assert spans(truth) == [(0.0, 0.5, "yes", 0), (0.5, 1.0, "no", 1)]
    assert truth.ids == ("person",) and truth.duration_s == 1.0


def test_segments_are_kept_where_they_are_told(tmp_path):
    bag = make_bag(tmp_path / "bag", 8, truth=lambda k: ({"person": "yes"}, k // 4))
    with Bag(bag) as opened:
        truth = truth_of_bag(opened)
    assert truth.scenes == (0, 1) and len(truth.spans["person"]) == 2
    # To a question they are one run: nothing happened between them.
    (run,) = truth.runs("person")
    assert (run.start_ns, run.end_ns) == (START_NS, START_NS + NS)


def test_a_gap_between_images_is_not_known(tmp_path):
    rows = [(0.0, "yes"), (0.1, "yes"), (5.0, "yes"), (5.1, "no")]
    with BagWriter(tmp_path / "bag") as bag:
        for t_s, answer in rows:
            stamp_ns = START_NS + round(t_s * NS)
            text = json.dumps({"stamp_ns": stamp_ns, "facts": {"person": answer}})
            bag.write("/camera/truth", STRING, stamp_ns, {"data": text})
    with Bag(tmp_path / "bag") as opened:
        truth = truth_of_bag(opened)
    assert [(a, b) for a, b, *_ in spans(truth)] == [(0.0, 0.6), (5.0, 5.1), (5.1, 5.2)]


def test_a_file_of_segments(tmp_path):
    path = tmp_path / "truth.yaml"
    path.write_text(FILE)
    truth = read_truth(path, START_NS)
    assert spans(truth) == [(0.0, 2.5, "yes", 0), (2.5, 4.0, "no", 1)]
    assert spans(truth, "activity") == [(0.0, 2.5, "typing", 0)]
    assert truth.duration_s == 4.0 and truth.scenes == (0, 1)
    truth.check(BOOK)
    path.write_text(json.dumps({"segments": [
        {"start_s": 0, "end_s": 1, "facts": {"person": "yes"}}]}))  # JSON is YAML
    assert spans(read_truth(path, START_NS)) == [(0.0, 1.0, "yes", 0)]


BAD_FILES = [
    ("start_s: 2.5", "start_s: 2.0", ":4: this segment begins at 2 s, before the one of line 3 e"),
    ("end_s: 4.0", "end_s: 2.5", ":4: a segment must end after it begins, not at 2.5 s"),
    ("start_s: 0.0, ", "", ":3: a segment needs the key 'start_s'"),
    ("start_s: 0.0", "start_s: -1", ":3: start_s must be seconds from 0 on, not -1"),
    ("start_s: 0.0", "start_s: soon", ":3: start_s must be seconds from 0 on, not 'soon'"),
    ("end_s: 4.0", "end_s: .inf", ":4: end_s must be seconds from 0 on, not inf"),
    ("facts: {person: no}", "facts: {}", ":4: a segment needs at least one fact"),
    ("facts: {person: no}", "facts: no", ":4: expected a mapping here"),
    ("start_s", "begin_s", ":3: unknown key 'begin_s'"),
    ("segments:", "segment:", ":2: unknown key 'segment'"),
    (FILE, "segments:\n- start_s: 0\n  end_s: 1  # s\n  facts:\n    at: shelf #3\n",
     ":5: YAML reads only 'shelf' and takes '#3' for a comment: quote the text"),
    (FILE, "segments: []", ": holds no segment"),
    (FILE, "segments: [", ":1: not valid YAML"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD_FILES)
def test_files_that_are_wrong_are_named_with_the_line(tmp_path, old, new, message):
    path = tmp_path / "truth.yaml"
    path.write_text(FILE.replace(old, new, 1))
    with pytest.raises(TruthError) as caught:
        read_truth(path, START_NS)
    assert str(caught.value).startswith(f"{path}{message}"), caught.value


def test_answers_are_told_in_their_composed_form(tmp_path):
    book = QuestionBook.loads("- {id: at, text: Q, kind: choice, options: [caf\u00e9, bar]}")
    path = tmp_path / "truth.yaml"
    path.write_text("segments:\n- {start_s: 0, end_s: 1, facts: {at: cafe\u0301}}\n")
    assert read_truth(path, 0).check(book).spans["at"][0].answer == "caf\u00e9"
    bag = make_bag(tmp_path / "bag", 4, truth=lambda k: {"at": "cafe\u0301"})
    with Bag(bag) as opened:
        assert truth_of_bag(opened).check(book).spans["at"][0].answer == "caf\u00e9"


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TruthError, match="No such file"):
        read_truth(tmp_path / "none.yaml", 0)


def test_overlapping_spans_are_refused():
    with pytest.raises(TruthError, match="overlap: 'a' is 'yes' until 2.000 s and 'no' from 1.000"):
        Truth({"a": [Span(0, 2 * NS, "yes", 0), Span(NS, 3 * NS, "no", 1)]})
    with pytest.raises(TruthError, match="holds no segment"):
        Truth({"a": []})


def test_what_is_true_at_a_time():
    truth = Truth({"a": [Span(2 * NS, 4 * NS, "yes", 0), Span(4 * NS, 5 * NS, "no", 0),
                         Span(7 * NS, 9 * NS, "no", 1)], "b": [Span(0, 2 * NS, "x", 0)]})
    assert [truth.answer("a", t * NS) for t in range(1, 10)] == [
        None, "yes", "yes", "no", None, None, "no", "no", None]
    assert truth.answer("c", 0) is None
    assert truth.covering("a", 2 * NS, 4 * NS).answer == "yes"
    assert truth.covering("a", 3 * NS, 5 * NS) is None
    assert [(run.start_s, run.end_s) for run in truth.runs("a", over_gaps=True)] == [(2, 4), (4, 9)]
    assert truth.duration_s == 7.0 and (truth.start_ns, truth.end_ns) == (0, 9 * NS)
    assert truth.before("a", 6 * NS).end_s == 5.0 and truth.before("a", 0).start_s == 2.0


def test_an_answer_is_settled_a_while_after_it_began():
    truth = Truth({"a": [Span(0, NS, "yes", 0), Span(NS, 4 * NS, "yes", 1),
                         Span(4 * NS, 6 * NS, "no", 1)], "b": [Span(2 * NS, 6 * NS, "x", 1)]})
    settled = [truth.settled("a", round(t * NS), 0.5) for t in (0.1, 1.2, 3.9, 4.2, 4.5, 5.9, 6.5)]
    assert settled == [True, True, True, False, True, True, False]
    assert not truth.settled("a", round(3.7 * NS), 0.5, 0.5)
    assert truth.settled("a", round(5.9 * NS), 0.5, 0.5)  # after the end nothing needs to be known
    assert not truth.settled("b", round(2.2 * NS), 0.5)  # it was not known what it was before


def test_the_simulated_desk_tells_its_truth():
    from vlm_decisions.sim.script import Script
    from vlm_decisions.sim.world import World

    world = World(3, Script.random(3, 8.0))
    truth = truth_of_world(world, [k / 8 for k in range(64)], "desk_3")
    assert truth.scenes == ("desk_3",) and set(truth.ids) == set(world.truth(0.0))
    for k in range(64):
        facts = {name: truth.answer(name, round(k / 8 * NS)) for name in truth.ids}
        assert facts == world.truth(k / 8)
    with pytest.raises(TruthError, match="holds no segment"):
        truth_of_rows([])
    (one,) = truth_of_rows([TruthRow(0, {"a": "yes"}), TruthRow(0, {"a": "yes"}),
                            TruthRow(NS // 4, {"a": "yes"})]).spans["a"]
    assert (one.start_ns, one.end_ns) == (0, NS // 2)


def test_truth_about_other_questions():
    truth = Truth({name: [Span(0, NS, "yes", 0)] for name in ("person", "cat", "dog")})
    with pytest.raises(TruthError, match=r"not asked: cat, dog \(asked: person, activity\)"):
        truth.check(BOOK)
    assert truth.check(BOOK, ignore_unknown=True).ids == ("person",)
    stranger = Truth({"cat": [Span(0, NS, "no", 0)]})
    with pytest.raises(TruthError, match=r"none of the questions asked \(person, activity\); it "
                                         r"is about: cat"):
        stranger.check(BOOK, ignore_unknown=True)
    maybe = Truth({"person": [Span(0, NS, "maybe", 0)]})
    with pytest.raises(TruthError, match=r"says 'maybe' of 'person' at 0.000 s, which never"):
        maybe.check(BOOK)


def test_bags_that_tell_no_truth_list_what_they_hold(tmp_path):
    with Bag(make_bag(tmp_path / "none", 2)) as bag:
        with pytest.raises(TruthError, match=r"no topic of truth; topics of strings: none \(or gi"):
            truth_of_bag(bag)
        with pytest.raises(BagError, match="there is no topic /told; there are: /image"):
            truth_of_bag(bag, "/told")
        with pytest.raises(TruthError, match="/image is of sensor_msgs/msg/Image, truth must be "):
            truth_of_bag(bag, "/image")
    with BagWriter(tmp_path / "two") as bag:
        for name in ("/left/truth", "/right/truth"):
            bag.write(name, STRING, START_NS, {"data": "{}"})
    with Bag(tmp_path / "two") as bag:
        with pytest.raises(TruthError, match="several topics of truth; topics of strings: /left"):
            truth_of_bag(bag)
        with pytest.raises(TruthError, match=r"message 1 of /left/truth is not \{\"stamp_ns\""):
            truth_of_bag(bag, "/left/truth")


@pytest.mark.parametrize("text", ["", "[]", "7", '{"stamp_ns": 1.5, "facts": {"a": "b"}}',
                                  '{"stamp_ns": 1, "facts": {"a": 1}}',
                                  '{"stamp_ns": 1, "facts": {}}',
                                  '{"stamp_ns": 1, "facts": {"a": "b"}, "segment": "x"}'])
def test_rows_that_are_none(tmp_path, text):
    with BagWriter(tmp_path / "bag") as bag:
        bag.write("/truth", STRING, START_NS, {"data": text})
    with Bag(tmp_path / "bag") as bag:
        with pytest.raises(TruthError, match="message 1 of /truth is not"):
            truth_of_bag(bag)


def test_a_recording_is_opened_with_its_truth(tmp_path):
    bag = make_bag(tmp_path / "bag", 32, truth=lambda k: ({"person": "yes"}, k // 8))
    with open_recording(bag, None, BOOK) as recording:
        assert recording.topic == "/image" and len(list(recording.frames())) == 32
        assert len(list(recording.frames())) == 32  # again
    with open_recording(bag, None, BOOK, limit_s=2.5) as recording:
        assert len(recording.truth.scenes) == 2 and len(list(recording.frames())) == 16
    path = tmp_path / "truth.yaml"
    path.write_text(FILE)
    with open_recording(bag, str(path), BOOK) as recording:
        assert recording.truth.start_ns == START_NS
    for given, error, message in [
            ("none.yaml", TruthError, "there is no such file; a topic of the bag begins with /"),
            ("/told", BagError, "there is no topic /told")]:
        with pytest.raises(error, match=message), open_recording(bag, given, BOOK):
            pass
    with pytest.raises(TruthError, match="no segment of the truth ends within 0.5 s"):
        with open_recording(bag, None, BOOK, limit_s=0.5):
            pass
    with pytest.raises(BagError, match="there is no such bag or video file"):
        with open_recording(tmp_path / "none", None, BOOK):
            pass


UPTIME_NS = 500 * NS
"""Seconds since the camera's start, where the truth must be on wall time."""


def bag_of_two_clocks(path, *, image_ns: int, truth_ns: int, log_ns: int, images: int = 16):
    with BagWriter(path) as bag:
        for k in range(images):
            at = k * NS // 8
            bag.write("/image", IMAGE, log_ns + at, image(k, image_ns + at))
            text = json.dumps({"stamp_ns": truth_ns + at, "facts": {"person": "yes"}})
            bag.write("/truth", STRING, log_ns + at, {"data": text})
    return path


def test_truth_and_images_on_different_clocks(tmp_path):
    bag = bag_of_two_clocks(tmp_path / "a", image_ns=UPTIME_NS, truth_ns=START_NS, log_ns=START_NS)
    with pytest.raises(TruthError, match=r"/image \(header stamps\): the truth is about 17000000"
                                         r"00.0 .*from 500.0 to 502.0 s.*clocks; --stamps arr"):
        with open_recording(bag, None, BOOK):
            pass
    with open_recording(bag, None, BOOK, stamps="arrival") as recording:
        assert len(list(recording.frames())) == 16
    # The other way round: the truth is on the camera's clock.
    bag = bag_of_two_clocks(tmp_path / "b", image_ns=UPTIME_NS, truth_ns=UPTIME_NS,
                            log_ns=START_NS)
    with open_recording(bag, None, BOOK) as recording:
        assert len(list(recording.frames())) == 16
    with pytest.raises(TruthError, match="different clocks; --stamps header puts them on one"):
        with open_recording(bag, None, BOOK, stamps="arrival"):
            pass
    # Neither helps.
    bag = bag_of_two_clocks(tmp_path / "c", image_ns=START_NS, truth_ns=UPTIME_NS, log_ns=START_NS)
    with pytest.raises(TruthError, match="different clocks; give the truth as a file of segments"):
        with open_recording(bag, None, BOOK):
            pass


@pytest.mark.parametrize("offset_s", [-0.5, 0.5])
def test_truth_that_begins_earlier_or_later_is_about_the_same_time(tmp_path, offset_s):
    bag = bag_of_two_clocks(tmp_path / "a", image_ns=START_NS, log_ns=START_NS,
                            truth_ns=START_NS + round(offset_s * NS))
    with open_recording(bag, None, BOOK) as recording:
        assert len(list(recording.frames())) == 16
        assert "75% of the truth counts" in recording.note


@pytest.mark.parametrize("offset_s", [-1.5, 1.5])
def test_truth_mostly_beside_the_images_is_refused(tmp_path, offset_s):
    bag = bag_of_two_clocks(tmp_path / "a", image_ns=START_NS, log_ns=START_NS,
                            truth_ns=START_NS + round(offset_s * NS))
    begin_s = 1700000000.0 + offset_s
    with pytest.raises(TruthError, match=rf"truth is about {begin_s} to {begin_s + 2}.* images are "
                                         r"from 1700000000.0 to 1700000002.0 .*25% of the shorter"):
        with open_recording(bag, None, BOOK):
            pass


SHARES = [
    ("{start_s: 0, end_s: 4, facts: {person: yes}}", ""),
    ("{start_s: 1, end_s: 1.2, facts: {person: yes}}", ""),  # little is told, all within
    ("{start_s: 0, end_s: 40, facts: {person: yes}}", "10% of the truth counts"),  # a part played
    ("{start_s: 3, end_s: 5, facts: {person: yes}}", "50% of the truth counts"),
    ("{start_s: 3.1, end_s: 5, facts: {person: yes}}", TruthError),
    ("{start_s: 40, end_s: 50, facts: {person: yes}}", TruthError),
    ("{start_s: 0, end_s: 4, facts: {person: yes}}\n- {start_s: 9, end_s: 9.01, facts: "
     "{activity: idle}}", "nothing within is about activity"),
]


@pytest.mark.parametrize(("segments", "said"), SHARES)
def test_a_file_of_truth_about_another_time(tmp_path, segments, said):
    bag = make_bag(tmp_path / "bag", 32)
    path = tmp_path / "truth.yaml"
    path.write_text(f"segments:\n- {segments}\n")
    if said is TruthError:
        with pytest.raises(TruthError, match="images are from 0.0 to 4.0 s.* since the first ima"):
            with open_recording(bag, str(path), BOOK):
                pass
        return
    with open_recording(bag, str(path), BOOK) as recording:
        assert said in recording.note and bool(said) == bool(recording.note)


def test_the_time_of_a_bag_is_read_from_its_ends(tmp_path, monkeypatch):
    """Of 64 images at most the first chunk and the last are read."""
    bag = make_bag(tmp_path / "bag", 64, fps=8.0)
    with Bag(bag) as opened:
        decoded = []
        monkeypatch.setattr(opened, "decode", lambda raw, number, decode=opened.decode: (
            decoded.append(number), decode(raw, number))[1])
        for stamps in ("header", "arrival"):
            assert opened.extent(stamps=stamps) == (START_NS, START_NS + 8 * NS)
        assert decoded == [1, 64, 1, 64]


def test_a_video_with_a_file_of_truth(tmp_path):
    import cv2
    from bag_tools import SIZE, picture

    from vlm_decisions.sources.recording import VIDEO_FIRST_NS

    film = tmp_path / "film.mp4"
    writer = cv2.VideoWriter(str(film), cv2.VideoWriter_fourcc(*"mp4v"), 8.0, SIZE[::-1])
    if not writer.isOpened():
        pytest.skip("OpenCV cannot write a video here")
    for k in range(16):
        writer.write(picture(k))
    writer.release()
    path = tmp_path / "truth.yaml"
    path.write_text("segments:\n  - {start_s: 0.5, end_s: 1.5, facts: {person: yes}}\n")
    with open_recording(film, str(path), BOOK) as recording:
        frames = list(recording.frames())
        (one,) = recording.truth.spans["person"]
    assert len(frames) == 16 and frames[0].stamp_ns == VIDEO_FIRST_NS
    assert frames[8].stamp_ns - VIDEO_FIRST_NS == pytest.approx(NS, abs=NS / 100)
    assert one.start_ns == VIDEO_FIRST_NS + NS // 2


KINDS = QuestionBook([
    Question("people", "How many?", kind="score", options=("none", "one", "two")),
    Question("on_desk", "Is there a {}?", kind="any_of", options=("cup", "pen"))])


def test_labels_of_an_any_of_are_a_list_or_a_text(tmp_path):
    path = tmp_path / "truth.yaml"
    path.write_text("segments:\n"
                    "- {start_s: 0, end_s: 1, facts: {people: one, on_desk: [pen, cup]}}\n"
                    "- {start_s: 1, end_s: 2, facts: {people: two, on_desk: []}}\n"
                    "- {start_s: 2, end_s: 3, facts: {people: none, on_desk: \"pen,cup\"}}\n"
                    "- {start_s: 3, end_s: 4, facts: {on_desk: none}}\n")
    truth = read_truth(path, 0).check(KINDS)
    assert [truth.answer("on_desk", k * NS) for k in range(4)] == [
        "cup, pen", "none", "cup, pen", "none"]
    assert truth.answer("people", NS) == "two"
    apart = truth_of_labels(KINDS.get("on_desk"), truth)
    assert [apart.answer("on_desk[pen]", k * NS) for k in range(4)] == ["yes", "no", "yes", "no"]


@pytest.mark.parametrize(("fact", "message"), [
    ("people: [one, two]", r"0.000 s \(line 2\), which never answers 'one, two' \(its"),
    ("people: three", "never answers 'three'"),
    ("on_desk: [cup, hat]", "has no label 'hat' \\(its labels: cup, pen; or 'none'"),
])
def test_answers_that_a_kind_does_not_give(tmp_path, fact, message):
    path = tmp_path / "truth.yaml"
    path.write_text(f"segments:\n- {{start_s: 0, end_s: 1, facts: {{{fact}}}}}\n")
    with pytest.raises(TruthError, match=message):
        read_truth(path, 0).check(KINDS)


def test_a_topic_of_truth_may_list_labels():
    row = read_row('{"stamp_ns": 1, "facts": {"on_desk": ["cup"], "people": "one"}}', "message 1")
    assert row.facts == {"on_desk": "cup", "people": "one"}
    with pytest.raises(TruthError, match="message 2 is not"):
        read_row('{"stamp_ns": 1, "facts": {"on_desk": [1]}}', "message 2")
