"""Weights that are not finite are refused by name, those that are zero throughout are named."""

import mlx.core as mx
import mlx.nn as nn
import pytest
from tiny import write_checkpoint

from vlm_decisions.engine import CheckpointError, Engine, fastmath
from vlm_decisions.engine.weight_values import check_values


class Model(nn.Module):
    """Two layers and a norm, with what may be found in real ones: large, small and negative."""

    def __init__(self, dtype=mx.float32):
        super().__init__()
        self.layers = [nn.Linear(64, 32), nn.Linear(32, 64)]
        self.norm = nn.RMSNorm(64)
        for layer in self.layers:
            layer.weight[0, :4] = mx.array([65504.0, -65504.0, 0.0, 6e-8])
            layer.bias = mx.zeros_like(layer.bias)
        self.set_dtype(dtype)


@pytest.fixture(params=[True, False], ids=["cpu", "gpu"], autouse=True)
def on_cpu(request, monkeypatch):
    """Both ways of looking, the GPU's on the CPU."""
    monkeypatch.setattr(fastmath, "ON_CPU", request.param)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_finite_weights_pass(dtype):
    assert check_values(Model(getattr(mx, dtype)), "here") == ()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("value", [float("nan"), -float("nan"), float("inf"), -float("inf")])
def test_one_value_that_is_not_finite(dtype, value):
    model = Model(getattr(mx, dtype))
    model.layers[1].weight[-1, -1] = value
    with pytest.raises(CheckpointError, match=rf"here .*not finite \({dtype}\): layers.1.weight$"):
        check_values(model, "here")
    model.norm.weight[3] = value
    with pytest.raises(CheckpointError, match=r"layers.1.weight, norm.weight$"):
        check_values(model, "here")


def test_what_is_zero_throughout():
    model = Model()
    model.layers[0].weight = mx.zeros_like(model.layers[0].weight)
    assert check_values(model, "here") == (
        "all values are zero in layers.0.weight: were they downloaded in whole?",)  # not a bias
    nn.quantize(model, 32, 8)
    model.layers[0].scales = mx.zeros_like(model.layers[0].scales)
    assert "zero in layers.0:" in " ".join(check_values(model, "here"))


def test_an_expert_that_is_zero_throughout():
    model = Model()
    model.layers[0].switch_mlp = nn.Module()
    model.layers[0].switch_mlp.up_proj = nn.Linear(4, 4)
    stack = mx.random.normal((3, 600, 200))
    stack[1] = 0
    model.layers[0].switch_mlp.up_proj.weight = stack
    assert "switch_mlp.up_proj.weight (expert 1):" in " ".join(check_values(model, "here"))
    stack[2, -1, -1] = mx.nan
    with pytest.raises(CheckpointError, match=r"layers.0.switch_mlp.up_proj.weight$"):
        check_values(model, "here")


@pytest.mark.parametrize(("mode", "size", "scale", "good"), [
    ("mxfp4", 32, 255, 127), ("mxfp8", 32, 255, 127), ("nvfp4", 16, 255, 126),
    ("nvfp4", 16, 127, 126),
])  # fmt: skip
def test_a_packed_scale_that_is_no_number(mode, size, scale, good):
    model = Model()
    nn.quantize(model, size, 8 if mode == "mxfp8" else 4, mode=mode)
    model.layers[1].scales[0, 0] = good
    assert check_values(model, "here") == ()
    model.layers[1].scales[0, 0] = scale
    with pytest.raises(CheckpointError, match=r"\(uint8\): layers.1.scales"):
        check_values(model, "here")


def test_a_checkpoint_is_looked_at_when_it_is_loaded(tmp_path, caplog):
    folder = write_checkpoint(tmp_path, num_hidden_layers=2)
    path, name = str(folder / "model.safetensors"), "language_model.model.norm.weight"
    weights = dict(mx.load(path))
    mx.eval(weights)
    mx.save_safetensors(path, {**weights, name: weights[name] * 0})
    assert Engine.load(str(folder), warm=False).remarks == [
        f"all values are zero in {name}: were they downloaded in whole?"]
    assert caplog.text.count("all values are zero") == 1
    mx.save_safetensors(path, {**weights, name: weights[name] + 1e6})  # in float16 too large
    assert Engine.load(str(folder), warm=False).remarks == []
    with pytest.raises(CheckpointError, match=rf"not finite \(float16\): {name}"):
        Engine.load(str(folder), dtype="float16", warm=False)
