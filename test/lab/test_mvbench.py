"""MVBench: the loader on a fixture of two clips made here, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pixel_model import square, write_video
from tiny import tiny_engine

from vlm_decisions import cli
from vlm_decisions.lab.studies.clip_answers import StudyError
from vlm_decisions.lab.studies.mvbench import load, mvbench, print_mvbench, sample

ENTRIES = [
    {"video": "one.mp4", "question": "Which way does the square move?",
     "candidates": ["To the left.", "To the right.", "It stays where it is."],
     "answer": "To the right."},
    {"video": "two.mp4", "question": "What is seen?", "candidates": ["a square", "nothing"],
     "answer": "nothing", "start": 1.0, "end": 3.0},
]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mvbench")
    write_video(folder / "one.mp4", [square(0.2 + 0.02 * k, seed=k) for k in range(30)], fps=10)
    write_video(folder / "two.mp4", [square(None, seed=k) for k in range(40)], fps=10)
    (folder / "moving_direction.json").write_text(json.dumps(ENTRIES))
    return folder


def test_two_clips(data, capsys):
    items = load(data / "moving_direction.json", data)
    assert [(i.task, i.answer, i.start_s, i.end_s) for i in items] == [
        ("moving_direction", 1, 0.0, None), ("moving_direction", 1, 1.0, 3.0)]
    result = json.loads(json.dumps(mvbench(tiny_engine(), items)))
    row = result["tasks"]["moving_direction"]
    assert row["questions"] == 2 and row["chance"] == pytest.approx((1 / 3 + 1 / 2) / 2)
    assert row["temporal_gain"] == row["full"] - row["single"]
    assert result["all"] == row
    print_mvbench(result)
    assert "moving_direction" in capsys.readouterr().out


def test_frames_are_taken_evenly_with_their_times(data):
    one, two = load(data / "moving_direction.json", data)
    frames, times = sample(one)
    assert len(frames) == 16 and times[0] == 0.0 and np.all(np.diff(times) > 0)
    assert times[-1] == pytest.approx(2.8, abs=0.15)
    places = [np.flatnonzero(frame[32].mean(axis=1) > 120).mean() for frame in frames]
    assert np.all(np.diff(places) > 0) and places[-1] > places[0] + 40
    _, part = sample(two, 4)
    assert part == pytest.approx([0.0, 0.5, 1.0, 1.5], abs=0.11)
    short, _ = sample(two.__class__("t", two.video, "?", ("a", "b"), 0, 0.0, 0.25), 16)
    assert len(short) == 2


def write(tmp_path, value):
    path = tmp_path / "task.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


@pytest.mark.parametrize(("value", "named"), [
    ("{", "not JSON"), ("{}", "must hold a list"), ("[]", "must hold a list"),
    (["x"], "entry 0: must be an object"),
    ([{"video": "one.mp4"}], "lacks question, candidates, answer"),
    ([ENTRIES[0], {**ENTRIES[0], "candidates": ["a"]}], "entry 1: candidates must be a list of 2"),
    ([{**ENTRIES[0], "candidates": [1, 2]}], "candidates must be a list"),
    ([{**ENTRIES[0], "answer": "up"}], "the answer 'up' must be one of the candidates"),
    ([{**ENTRIES[0], "video": "gone.mp4"}], "there is no video"),
    ([{**ENTRIES[0], "start": "x"}], "start and end must be seconds"),
    ([{**ENTRIES[0], "start": 3, "end": 2}], "end must come after start"),
])
def test_annotations_that_cannot_be_used(data, tmp_path, value, named):
    with pytest.raises(StudyError, match=named) as error:
        load(write(tmp_path, value), data)
    assert "task.json" in str(error.value)


def test_what_is_not_there(data, tmp_path, capfd):
    with pytest.raises(StudyError, match="No such file"):
        load(tmp_path / "absent.json", data)
    with pytest.raises(StudyError, match="not a folder"):
        load(data / "moving_direction.json", tmp_path / "nowhere")
    late = load(write(tmp_path, [{**ENTRIES[0], "start": 50.0}]), data)
    with pytest.raises(StudyError, match="0 frames from 50 s"):
        sample(late[0])
    assert cli.main(["study", "mvbench", "--annotations", str(tmp_path / "absent.json"),
                     "--videos", str(data)]) == 1
    assert "absent.json" in capfd.readouterr().err
