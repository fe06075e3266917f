"""The engine against transformers (PyTorch), for every family: numbers of test/golden/families.py.

The checkpoint that is loaded has config.json and tensor names as transformers 5 saves them.
"""

import importlib.util
import json
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from tiny import small_tokenizer

from vlm_decisions.engine import Engine, Query

HERE = Path(__file__).parents[1] / "golden"
_spec = importlib.util.spec_from_file_location("golden_families", HERE / "families.py")
families = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(families)
QUERIES = [Query(text, options) for text, options in families.QUESTIONS]


def write(folder, family):
    """Write the family's small checkpoint; return its golden numbers and weights."""
    with np.load(HERE / f"{family}.npz") as file:
        golden = dict(file)
    (folder / "config.json").write_text(str(golden["config"]))
    shapes = json.loads(str(golden["shapes"]))
    weights = {
        name: mx.array(families.weight(name, tuple(shape))) for name, shape in shapes.items()
    }
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    small_tokenizer().save_pretrained(folder)
    pixels = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "patch_size": 16}
    (folder / "preprocessor_config.json").write_text(json.dumps(pixels))
    return golden, weights


@pytest.fixture(scope="module", params=sorted(families.CONFIGS))
def case(request, tmp_path_factory):
    """Return the golden numbers of a family, the engine and its answers."""
    folder = tmp_path_factory.mktemp(request.param)
    golden, _ = write(folder, request.param)
    engine = Engine.load(str(folder), pixel_budget=1 << 20, warm=False)
    groups = [engine.encode(pair) for pair in families.frames()]
    readouts = engine.window(groups, families.times_s()).ask(QUERIES, hidden=True)
    return golden, engine, groups, readouts


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def test_vision(case):
    golden, _, groups, _ = case
    want = golden["vision"]
    assert np.abs(np.array(groups[0].features) - want).max() < 1e-4 * np.abs(want).max()


@pytest.mark.parametrize("k", range(len(QUERIES)))
def test_every_layer_and_the_answer(case, k):
    golden, _, _, readouts = case
    for layer, want in enumerate(golden[f"layers_{k}"]):
        assert cosine(readouts[k].hidden[layer], want) > 0.99999
    assert np.abs(readouts[k].logits - golden[f"logits_{k}"]).max() < 2e-3


@pytest.mark.parametrize("k", range(len(QUERIES)))
def test_the_token_ids_are_the_same(case, k):
    golden, engine, groups, _ = case
    template = engine.template("video")
    ids = list(template.header_ids)
    for group, t_s in zip(groups, families.times_s(), strict=True):
        ids += template.group_ids(t_s, group.n_tokens)
    assert ids + engine.question(QUERIES[k]).ids == golden[f"ids_{k}"].tolist()


def test_control_another_question_is_far(case):
    golden, _, _, readouts = case
    last = readouts[0].hidden[2]
    assert cosine(last, golden["layers_1"][2]) < 0.999
    assert np.abs(readouts[0].logits - golden["logits_1"]).max() > 0.02


def test_experts_in_the_older_order_of_axes(tmp_path):
    """What transformers 4 saved, and hubs hold: (experts, in, out)."""
    golden, weights = write(tmp_path, "qwen3_vl_moe")
    older = {name: mx.contiguous(value.swapaxes(1, 2)) if ".experts." in name else value
             for name, value in weights.items()}  # fmt: skip
    mx.save_safetensors(str(tmp_path / "model.safetensors"), older)
    engine = Engine.load(str(tmp_path), pixel_budget=1 << 20, warm=False)
    groups = [engine.encode(pair) for pair in families.frames()]
    readout = engine.window(groups, families.times_s()).ask(QUERIES[:1])[0]
    assert np.abs(readout.logits - golden["logits_0"]).max() < 2e-3
