"""The engine against transformers' Qwen3.5 (PyTorch): golden numbers made by training/golden.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from vlm_decisions.engine.engine import Engine, Query
from vlm_decisions.lab.sim_desk.golden import QUESTIONS, frames, times_s

GOLDEN = Path(__file__).parents[1] / "golden" / "sim_desk.npz"


@pytest.fixture(scope="module")
def golden():
    with np.load(GOLDEN) as file:
        return dict(file)


@pytest.fixture(scope="module")
def engine():
    return Engine.load("sim_desk")


@pytest.fixture(scope="module")
def readouts(engine):
    groups = [engine.encode(list(pair)) for pair in frames()]
    queries = [Query(text, options) for text, options in QUESTIONS]
    return engine.window(groups, times_s()).ask(queries, hidden=True)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def test_vision(engine, golden):
    features = np.array(engine.encode(list(frames()[0])).features)
    assert np.abs(features - golden["vision"]).max() < 1e-4


@pytest.mark.parametrize("k", range(len(QUESTIONS)))
def test_every_layer_and_the_answer(readouts, golden, k):
    for layer, want in enumerate(golden[f"layers_{k}"]):
        assert cosine(readouts[k].hidden[layer], want) > 0.99999
        assert np.allclose(readouts[k].hidden[layer], want, rtol=1e-3, atol=2e-3)
    assert np.abs(readouts[k].logits - golden[f"logits_{k}"]).max() < 2e-3


@pytest.mark.parametrize("k", range(len(QUESTIONS)))
def test_the_token_ids_are_the_same(engine, golden, k):
    template = engine.template("video")
    ids = list(template.header_ids)
    for t in times_s():
        ids += template.group_ids(t, 20)
    assert ids + template.question(*QUESTIONS[k]).ids == golden[f"ids_{k}"].tolist()


def test_control_another_question_is_far(readouts, golden):
    """A comparison that any two states would pass proves nothing."""
    last = readouts[0].hidden[-2]
    assert cosine(last, golden["layers_3"][-1]) < 0.999
    assert np.abs(readouts[0].logits - golden["logits_1"]).max() > 0.02
