"""The simulated desk as a bag: scenes, stamps and the truth inside."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed")

from vlm_decisions import cli
from vlm_decisions.frames import NS
from vlm_decisions.lab.replay.record_sim import PER_DESK, desk, record_sim
from vlm_decisions.question_book import QuestionBook, questions_path
from vlm_decisions.sources.bags import Bag, BagError
from vlm_decisions.sources.recording import open_recording
from vlm_decisions.sources.truth import truth_of_bag

SMALL = {"width": 96, "height": 96, "fps": 4.0}


def facts_at(truth, t_ns):
    return {name: truth.answer(name, t_ns) for name in truth.ids}


def test_scenes_images_and_truth_agree(tmp_path):
    made = record_sim(tmp_path / "bag", 12, **SMALL)
    assert made["segments"] == 12 and made["desks"] == 2
    with Bag(tmp_path / "bag") as bag:
        frames = list(bag.images())
        truth = truth_of_bag(bag)
    assert len(frames) == made["images"]
    assert truth.scenes == tuple(range(12))
    # Another desk after ten scenes: a second without images between them.
    gaps = np.diff([f.stamp_ns for f in frames]) / NS
    assert np.sum(gaps > 0.3) == 1 and gaps.max() == pytest.approx(1.25)
    first, second = desk(0, 0, PER_DESK), desk(0, 1, 2)
    assert facts_at(truth, truth.start_ns) == first.truth(0.0)
    assert np.abs(frames[0].image.astype(int) - first.render(0.0, 96, 96)).mean() < 6  # JPEG
    began = next(one for one in truth.spans["person"] if one.scene == PER_DESK)
    assert facts_at(truth, began.start_ns) == second.truth(0.0)


def test_the_same_seed_gives_the_same_recording(tmp_path):
    bags = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        record_sim(tmp_path / name, 2, seed=seed, compressed=False, **SMALL)
        with Bag(tmp_path / name) as bag:
            bags.append([(f.stamp_ns, f.image.tobytes()) for f in bag.images()])
    assert bags[0] == bags[1] != bags[2]


def test_the_command_records_what_the_benchmark_finds(tmp_path, capsys):
    out = str(tmp_path / "bag")
    arguments = ["record", "--sim", "--segments", "3", "--size", "96x96", "--fps", "4"]
    arguments += ["--out", out]
    assert cli.main(arguments) == 0
    assert "3 scenes at 1 desks" in capsys.readouterr().out

    book = QuestionBook.load(questions_path("desk"))
    with open_recording(out, None, book) as recording:  # only what the questions ask is told
        assert set(recording.truth.ids) == {question.id for question in book}
    assert cli.main(arguments) == 1
    assert "exists already" in capsys.readouterr().err


BAD = [({"segments": 0}, "segments must be 1 to 10000, not 0"),
       ({"fps": 0.5}, "fps must be 1 to 60, not 0.5"),
       ({"facts": ("person", "cat")}, "has no fact 'cat' .it has: person, "),
       ({"width": 40}, "image size 40x96")]


@pytest.mark.parametrize(("change", "message"), BAD)
def test_what_cannot_be_recorded(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        record_sim(tmp_path / "bag", **{"segments": 1, **SMALL, **change})


def test_bad_arguments_of_the_command(tmp_path, capsys):
    out = ["--out", str(tmp_path / "bag")]
    with pytest.raises(SystemExit, match="2"):
        cli.main(["record", "--sim", "--size", "big", *out])
    assert "argument --size: 'big' is not WIDTHxHEIGHT in pixels" in capsys.readouterr().err
    for arguments in (["record", *out], ["record", "--sim", "--topics", "/image", *out]):
        with pytest.raises(SystemExit, match="2"):
            cli.main(arguments)


def test_a_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(BagError, match="cannot be written"):
        record_sim(tmp_path / "file" / "bag", 1, **SMALL)
