"""Ways of asking, compared: on a model that sees brightness, whose answers are known."""

from __future__ import annotations

import numpy as np
import pytest
from pixel_model import PixelModel, presence_video

from vlm_decisions import cli
from vlm_decisions.lab.studies.clip_answers import StudyError
from vlm_decisions.lab.studies.variants import (
    ablations,
    compare,
    print_comparison,
    read_texts,
    recents,
    wordings,
)
from vlm_decisions.learn.predictions import labelled
from vlm_decisions.learn.recordings import find_recordings
from vlm_decisions.questions import Question
from vlm_decisions.sources.labels import read_labels

SQUARE = Question("square", "Is there a square?")
CHOICE = Question("what", "What?", kind="choice", options=("a", "b", "c"))


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    rows = ["source,start_s,end_s,question,label\n"]
    for k in range(6):
        presence_video(folder / f"v{k}.mp4", k, (k % 2 == 0, k % 2 == 1), seconds=2.5)
        rows += [f"v{k}.mp4,{start},{start + 2.5},square,{'yes' if there else 'no'}\n"
                 for start, there in ((0, k % 2 == 0), (2.5, k % 2 == 1))]
    (folder / "labels.csv").write_text("".join(rows))
    return labelled(find_recordings([folder]), read_labels(folder / "labels.csv"))


@pytest.mark.slow
def test_the_best_wording_is_found_with_intervals(known, capsys):
    ways = wordings(PixelModel(), [Question("square", "Is it constant?")],
                    {"square": ["Is there a square?", "Is it upside down?"]})
    result = compare(ways, known, rounds=50)
    assert list(result["ways"]) == ["as it is", "1", "2"]
    right, wrong = (result["ways"][name]["square"] for name in ("1", "2"))
    assert right["accuracy"] == 1.0 == right["auroc"] and wrong["accuracy"] == 0.0
    base = result["ways"]["as it is"]["square"]
    assert 0.3 < base["accuracy"] < 0.7 and base["gain"] is None
    assert right["gain"] == pytest.approx(1.0 - base["accuracy"])
    assert right["gain_ci"][0] > 0 > wrong["gain_ci"][1]
    assert result["best"] == {"square": "1"} and result["scenes"] == 6
    print_comparison(result, by_question=True)
    assert "best of square: 1: Is there a square?" in capsys.readouterr().out


def test_options_are_asked_in_other_orders():
    ways = wordings(PixelModel(), [CHOICE, SQUARE], {})
    assert [way.questions["what"].options for way in ways] == [
        ("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")]
    assert all(list(way.questions) == ["what"] for way in ways)


def test_windows_and_rates_and_recent_frames():
    ways = ablations(PixelModel(), [SQUARE])
    assert [way.name for way in ways] == ["4 s at 8/s", "2 s at 8/s", "1 s at 8/s", "4 s at 4/s",
                                          "2 s at 4/s", "1 s at 4/s"]
    assert [way.window_groups for way in ways] == [16, 8, 4, 8, 4, 2]
    assert {way.mode for way in ways} == {"window"}
    names = [way.name for way in recents(PixelModel(), [SQUARE])]
    assert names == ["stream", "last 2", "last 4", "last 8", "last 16"]


@pytest.mark.slow
def test_each_rate_is_sampled_and_the_same_samples_are_judged(known):
    result = compare(ablations(PixelModel(), [SQUARE]), known, rounds=20)
    counts = {name: table["square"]["n"] for name, table in result["ways"].items()}
    assert counts["4 s at 8/s"] == counts["1 s at 8/s"] > 1.6 * counts["4 s at 4/s"]
    assert all(table["all"]["accuracy"] == 1.0 for table in result["ways"].values())


@pytest.mark.slow
def test_recent_frames_of_the_tiny_model(known):
    from tiny import tiny_engine

    result = compare(recents(tiny_engine(), [SQUARE])[:3], known[:2], rounds=20)
    rows = [table["square"] for table in result["ways"].values()]
    assert len({row["n"] for row in rows}) == 1
    assert all(np.isfinite(row["accuracy"]) for row in rows)


def test_what_cannot_be_compared_is_named(tmp_path, capsys):
    with pytest.raises(StudyError, match="no question 'nose' .there are: square"):
        wordings(PixelModel(), [SQUARE], {"nose": ["x"]})
    with pytest.raises(StudyError, match="nothing to compare"):
        wordings(PixelModel(), [SQUARE], {})
    for text in ("- a\n", "square: x\n", "square: [1]\n", "square: []\n", ": ["):
        (tmp_path / "texts.yaml").write_text(text)
        with pytest.raises(StudyError, match="texts.yaml:"):
            read_texts(tmp_path / "texts.yaml")
    for text, told in (("a: [x, '']", "'a': number 2 is no text: ''"), ("a: x", "'a': 'x'"),
                       ("b: [x]\nyes: [x]", "True: ")):
        (tmp_path / "texts.yaml").write_text(text)
        with pytest.raises(StudyError, match=told):
            read_texts(tmp_path / "texts.yaml")
    (tmp_path / "texts.yaml").write_text("square: [Is there one?, Is one there?]\n")
    with pytest.raises(StudyError, match="texts.yaml:1: not valid YAML: .* quote the text"):
        read_texts(tmp_path / "texts.yaml")
    (tmp_path / "texts.yaml").write_text("square: ['Is there one?']\n")
    assert read_texts(tmp_path / "texts.yaml") == {"square": ["Is there one?"]}
    (tmp_path / "q.yaml").write_text("- {id: nose, text: x}\n")
    assert cli.main(["study", "recent", "--clips", "2", "--questions",
                     str(tmp_path / "q.yaml")]) == 1
    assert "none of its questions has truth" in capsys.readouterr().err
