"""The comparison with mlx-vlm: all peers answer the same, and a wrong one is not timed."""

import json

import pytest

from vlm_decisions.engine import CheckpointError
from vlm_decisions.lab.bench import peers
from vlm_decisions.lab.shapes import random_engine, weights_bytes

FEW = {"n_questions": 2, "n_groups": 2, "repeat": 1}


def quiet(line):
    pass


@pytest.mark.slow
def test_rows_hold_what_the_documentation_names():
    said = []
    out = peers.bench_peers(["tiny"], layers=2, say=said.append, **FEW)
    row = json.loads(json.dumps(out))["models"]["tiny"]
    for key in ("seconds", "times_as_fast", "peak_fraction", "peak_bytes", "answers", "agreement"):
        assert set(row[key]) == set(peers.PEERS), key
    assert all(value > 0 for value in row["seconds"].values())
    assert row["times_as_fast"]["generate"] == 1.0
    assert len(row["questions"]) == len(row["answers"]["here"]) == 2
    assert set(row["cached_tokens"]) == {"generate", "generate_cached"}
    for peer in peers.PEERS:
        assert row["agreement"][peer]["largest_difference"] < 1e-4
        assert row["agreement"][peer]["same_answer"] == 1.0
        assert any(peer in line for line in said)


def test_the_prefix_cache_of_mlx_vlm_is_on():
    """It holds nothing for another question, but nearly all of the same one asked again."""
    window = peers._window(random_engine("tiny", layers=2), "tiny", 2, 2)
    peers._generate_cached(window)
    assert window.cached_tokens["generate_cached"] == [0, 0]
    window.case.questions = [window.case.questions[0]] * 2
    peers._generate_cached(window)
    length = len(window.case.prefix_ids) + len(window.case.questions[0].ids)
    assert window.cached_tokens["generate_cached"] == [0, length - 1]


@pytest.mark.slow
def test_the_embedded_model_is_asked_about_its_own_desk():
    row = peers.bench_peers(["sim_desk"], say=quiet, **FEW)["models"]["sim_desk"]
    assert row["questions"][0].startswith("Is ") and row["dtype"] == "float32"
    assert row["agreement"]["here_tick"]["largest_difference"] < 1e-4


@pytest.mark.slow
def test_answers_that_differ_are_an_error(monkeypatch):
    right = peers._here
    monkeypatch.setattr(peers, "_here", lambda window: right(window)[::-1])
    with pytest.raises(RuntimeError, match="the answers differ from mlx-vlm's by"):
        peers.bench_peers(["tiny"], layers=2, say=quiet, **FEW)


def test_a_shape_that_memory_does_not_hold_is_left_out_before_it_is_made(monkeypatch):
    made, said = [], []
    monkeypatch.setattr(peers, "free_bytes", lambda: 10**6)
    monkeypatch.setattr(peers, "random_engine", lambda *names, **more: made.append(names))
    out = peers.bench_peers(["2b"], say=said.append, **FEW)
    assert out["models"]["2b"]["left_out"].endswith("and 0.0 GB are free")
    assert made == [] and "2b: left out: it needs" in said[0]


def test_weights_are_counted_without_making_them():
    engine = random_engine("tiny", layers=2)
    from mlx.utils import tree_flatten

    held = sum(value.nbytes for _, value in tree_flatten(engine.model.parameters()))
    assert weights_bytes("tiny", layers=2) == held
    assert 7e9 < weights_bytes("2b") < 12e9


def test_what_cannot_be_compared_is_named(tmp_path):
    from tiny import write_checkpoint

    with pytest.raises(ValueError, match="at most 16 questions"):
        peers.bench_peers(["sim_desk"], n_questions=99, say=quiet)
    with pytest.raises(CheckpointError, match="no checkpoint 'nothing'"):
        peers.bench_peers(["nothing"], say=quiet)
    other = str(write_checkpoint(tmp_path / "other", "qwen3_vl", num_hidden_layers=2))
    with pytest.raises(CheckpointError, match="is a qwen3_vl: peers are compared on"):
        peers.bench_peers([other], say=quiet)
