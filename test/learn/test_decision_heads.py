"""Heads on the decision token: trained, loaded, refused, and asked where an answer may stop."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from pixel_model import presence_video
from tiny import tiny_engine

from vlm_decisions import cli
from vlm_decisions.engine.readout import Query
from vlm_decisions.frames import Frame
from vlm_decisions.kinds import sigmoid
from vlm_decisions.learn.decision_heads import DepthError, train_decision_heads
from vlm_decisions.learn.predictions import labelled
from vlm_decisions.learn.recordings import find_recordings
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.runtime import Runtime
from vlm_decisions.runtime.heads import (
    Head,
    HeadError,
    answering_head,
    deciding_head,
    load_heads,
)
from vlm_decisions.sources.labels import LabelError, read_labels

SQUARE = Question("square", "Is there a cup?", depth="auto", shallow_margin=0.0)


@pytest.fixture(scope="module")
def engine():
    return tiny_engine()


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    rows = ["source,start_s,end_s,question,label\n"]
    for k in range(10):
        presence_video(folder / f"v{k}.mp4", k, (k % 2 == 0, k % 2 == 1), seconds=2.5)
        rows += [f"v{k}.mp4,{start},{start + 2.5},square,{'yes' if there else 'no'}\n"
                 for start, there in ((0, k % 2 == 0), (2.5, k % 2 == 1))]
    (folder / "labels.csv").write_text("".join(rows))
    return labelled(find_recordings([folder]), read_labels(folder / "labels.csv"))


@pytest.fixture(scope="module")
def trained(engine, known, tmp_path_factory):
    out = tmp_path_factory.mktemp("heads")
    return out, train_decision_heads(engine, out, known, [SQUARE], [2, 4], trained_on="10 videos")


@pytest.mark.slow
def test_a_head_for_each_depth_is_written_with_what_it_is_for(engine, trained):
    out, heads = trained
    assert sorted(path.name for path in out.iterdir()) == ["square_at2.npz", "square_at4.npz"]
    loaded, refused = load_heads([out], engine.fingerprint, engine.pixel_budget,
                                 engine.language_fingerprint)
    assert not refused and [head.name for head in loaded] == ["square_at2", "square_at4"]
    two = loaded[0]
    assert (two.depth, two.question, two.text) == (2, "square", "Is there a cup?")
    assert two.dim == engine.decoder.hidden and two.metrics["auroc"] > 0.7  # the model is random
    assert answering_head(SQUARE, loaded) is None  # it is none of Tier 1
    assert deciding_head(SQUARE, loaded) is two


@pytest.mark.slow
def test_heads_for_other_models_texts_and_depths(engine, trained):
    out, _ = trained
    heads, refused = load_heads([out], engine.fingerprint, engine.pixel_budget, "another")
    assert not heads and all("was made for language model" in str(why) for why in refused.values())
    assert tiny_engine(seed=1).language_fingerprint != engine.language_fingerprint
    heads, _ = load_heads([out], engine.fingerprint, engine.pixel_budget,
                          engine.language_fingerprint)
    other = dataclasses.replace(SQUARE, text="Is there a square?")
    assert deciding_head(other, heads) is None  # its own logits answer then
    assert deciding_head(dataclasses.replace(SQUARE, depth=None), heads) is None
    assert deciding_head(dataclasses.replace(SQUARE, shallow_depth=3), heads) is None
    with pytest.raises(HeadError, match="'square_at4' reads layer 4 .* may stop at layer 2"):
        deciding_head(dataclasses.replace(SQUARE, head="square_at4"), heads)


def play(engine, out, yaml):
    from pixel_model import square

    decisions, clock = [], [10**9]
    runtime = Runtime(lambda: engine, QuestionBook.loads(yaml), on_decision=decisions.append,
                      clock_ns=lambda: clock[0], head_paths=[out])
    images = [square(0.5, seed=k) for k in range(12)]
    for k, image in enumerate(images):
        clock[0] = 10**9 + k * 125_000_000
        runtime.push(Frame(image, clock[0]))
        while runtime.step():
            pass
    return images, {d.question_id: d for d in decisions if d.tier == 2}


@pytest.mark.slow
def test_the_runtime_stops_at_the_head_and_goes_on_where_it_is_not_sure(engine, trained):
    out, heads = trained
    yaml = ('- {id: square, text: "Is there a cup?", depth: auto, shallow_margin: 0}\n'
            '- {id: never, text: "Is there a cup?", depth: auto, shallow_margin: 900,'
            ' head: square_at2}\n'
            '- {id: plain, text: "Is there a cup?"}\n')
    images, last = play(engine, out, yaml)
    groups = [engine.encode(images[k:k + 2]) for k in range(0, 12, 2)]
    times = [0.0625 + 0.25 * k for k in range(6)]
    state = engine.window(groups, times).ask([Query("Is there a cup?")], hidden=True)[0].hidden[1]
    logit = float(heads[0].weight @ state + heads[0].bias) / heads[0].temperature
    assert last["square"].depth == 2
    assert last["square"].p_raw == pytest.approx(sigmoid(logit), abs=1e-3)
    assert last["never"].depth == last["plain"].depth == engine.n_layers
    assert last["never"].p_raw == pytest.approx(last["plain"].p_raw, abs=1e-4)
    # The control: the model's own logits say something else.
    assert abs(last["square"].p_raw - last["plain"].p_raw) > 1e-2


@pytest.mark.slow
def test_a_named_head_of_another_depth_is_refused_by_name(engine, trained):
    out, _ = trained
    for name, message in (("square_at4", "'square': .*'square_at4' reads layer 4"),
                          ("nose", "'square': no head 'nose' is loaded")):
        with pytest.raises(QuestionError, match=message):
            play(engine, out, f'- {{id: square, text: "Is there a cup?", depth: auto, '
                              f'head: {name}}}\n')


def test_what_cannot_be_trained_is_named(engine, known, tmp_path):
    with pytest.raises(DepthError, match="depth 6: .* layers 1 to 6, and an early exit is before"):
        train_decision_heads(engine, tmp_path, known, [SQUARE], [2, 6], trained_on="")
    with pytest.raises(LabelError, match="no yes_no question with truth"):
        train_decision_heads(engine, tmp_path, known, [Question("nose", "x")], [2], trained_on="")


@pytest.mark.parametrize(("changes", "message"), [
    ({"depth": 0}, "depth must be a whole number"),
    ({"text": ""}, "needs the text of its question"),
    ({"language": ""}, "needs the text of its question and the language model's fingerprint"),
])
def test_a_file_without_what_it_is_for_is_refused(changes, message):
    fields = {"name": "a", "question": "a", "pooling": "decision", "bias": 0.0, "temperature": 1.0,
              "weight": np.ones(3, np.float32), "fingerprint": "f", "pixel_budget": 1,
              "feature_path": "decision_token", "depth": 2, "text": "x", "language": "l"}
    Head(**fields)
    with pytest.raises(HeadError, match=message):
        Head(**fields | changes)


def test_the_command_says_what_is_wrong(capsys, tmp_path):
    assert cli.main(["train", "heads", "--at", "decision", "--depths", "9", "--clips", "20",
                     "--out", str(tmp_path)]) == 1
    assert "depth 9: 'sim_desk' has layers 1 to 6" in capsys.readouterr().err
