"""Quantised checkpoints: exact against mlx-vlm's own packed forward, in the dtype that is asked."""

import json

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_map
from tiny import encoded, write_checkpoint

from vlm_decisions.engine import CheckpointError, Engine, Query, fastmath, memory, packing
from vlm_decisions.lab.exactness import check
from vlm_decisions.lab.reference import full_sequence

ASK = [Query("Is a person present?"), Query("Which?", ("cup", "phone on a desk")),
       Query("Is the person holding a phone?")]  # fmt: skip
MODES = {
    "4-bit": {"group_size": 64, "bits": 4, "mode": "affine"},
    "8-bit": {"group_size": 64, "bits": 8, "mode": "affine"},
    "3-bit": {"group_size": 32, "bits": 3, "mode": "affine"},
    "mxfp4": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    "nvfp4": {"group_size": 16, "bits": 4, "mode": "nvfp4"},
    "mxfp8": {"group_size": 32, "bits": 8, "mode": "mxfp8"},
    "mixed": {"group_size": 64, "bits": 4, "mode": "affine"},
}


def quantised(folder, mode, family="qwen3_5", dtype=mx.bfloat16, vision=False):
    """Write a small checkpoint as mlx_vlm.convert does: packed layers, bfloat16 for the rest."""
    source = write_checkpoint(folder, family, num_hidden_layers=2)
    model = Engine.load(str(source), warm=False).model
    how = MODES[mode]
    wider = {"group_size": 32, "bits": 8, "mode": "affine"}
    stated = dict(how)

    def choose(path, module):
        if not hasattr(module, "to_quantized") or "vision" in path and not (
                vision and module.weight.shape[-1] % how["group_size"] == 0):
            return False
        if mode == "mixed" and ("down_proj" in path or "embed_tokens" in path):
            stated[path] = wider
            return wider
        return how

    model.update(tree_map(lambda value: value.astype(dtype), model.parameters()))
    nn.quantize(model, class_predicate=choose)
    mx.save_safetensors(
        str(folder / "model.safetensors"), dict(tree_flatten(model.parameters()))
    )
    values = json.loads((folder / "config.json").read_text())
    values["quantization"] = values["quantization_config"] = stated
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def packed_model(folder):
    """mlx-vlm's own model of the same packed weights, with float32 for what is not packed."""
    from mlx_vlm.utils import load_model

    def wide(value):
        return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value

    model = load_model(folder)
    model.update(tree_map(wide, model.parameters()))
    return model


def worst(a, b):
    return max(np.abs(x - y).max() for x, y in zip(a, b, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_exact_against_the_packed_forward_of_mlx_vlm(tmp_path, mode):
    folder = quantised(tmp_path, mode)
    engine = Engine.load(str(folder), warm=False)
    assert engine.dtype == "float32"
    groups, times_s = encoded(engine, 2)
    got = [r.probabilities for r in engine.window(groups, times_s).ask(ASK)]
    engine.model = packed_model(folder)
    want = [full_sequence(engine, groups, times_s, query).probabilities for query in ASK]
    assert worst(got, want) < 1e-4


@pytest.mark.parametrize("mode", ["mixed", "mxfp4", "nvfp4"])
def test_packed_weights_where_memory_does_not_allow_more(tmp_path, monkeypatch, mode):
    folder = quantised(tmp_path, mode, vision=mode == "nvfp4")
    unpacked = Engine.load(str(folder), warm=False)
    assert unpacked.remarks == []
    held = sum(v.nbytes for _, v in tree_flatten(unpacked.model.parameters()))
    monkeypatch.setattr(memory, "free_bytes", lambda: (256 << 20) + held * 3 // 4)
    packed = Engine.load(str(folder), warm=False)
    assert sum(v.nbytes for _, v in tree_flatten(packed.model.parameters())) < 0.75 * held
    assert packed.dtype == "float32"
    assert packed.fingerprint == unpacked.fingerprint
    assert "unpacked anew in each pass, which is slow" in " ".join(packed.remarks)
    groups, times_s = encoded(packed, 2)
    seen, _ = encoded(unpacked, 2)
    assert worst(*([np.array(one.features) for one in each] for each in (groups, seen))) < 1e-4
    answers = [[r.probabilities for r in engine.window(groups, times_s).ask(ASK)]
               for engine in (packed, unpacked)]  # fmt: skip
    assert worst(*answers) < 1e-5
    one = [[r.probabilities for r in engine.window(groups, times_s).ask(ASK[:1])]
           for engine in (packed, unpacked)]  # fmt: skip
    assert worst(*one) < 1e-5


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_the_dtype_is_honoured_and_told(tmp_path, dtype):
    engine = Engine.load(str(quantised(tmp_path, "4-bit")), dtype=dtype, warm=False)
    assert engine.dtype == dtype
    assert str(engine.checkpoint.dtype).endswith(dtype)
    group, _ = encoded(engine, 1)
    assert str(group[0].features.dtype).endswith(dtype)
    assert any("slower than float32" in remark for remark in engine.remarks) == (
        dtype != "float32"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("family", "mode"), [("qwen3_5", "4-bit"), ("qwen3_vl_moe", "mxfp4")])
def test_a_gpu_keeps_them_packed(tmp_path, monkeypatch, family, mode):
    """Its choices, on the CPU's stream: in the dtype of a GPU, no weight unpacked, and exact."""
    folder = quantised(tmp_path, mode, family)
    monkeypatch.setattr(mx, "default_device", lambda: mx.Device(mx.gpu))
    monkeypatch.setattr(memory, "free_bytes", lambda: 1 << 40)
    monkeypatch.setattr(fastmath, "ON_CPU", False)
    engine = Engine.load(str(folder), warm=False)
    assert (engine.device, engine.dtype, engine.remarks) == ("gpu", "bfloat16", [])
    engine = Engine.load(str(folder), dtype="float32", warm=False)
    kept = [one for one in engine.model.modules() if hasattr(one, "scales")]
    assert len(kept) > 10
    assert not any(isinstance(one, packing.UnpackingLinear) for one in engine.model.modules())
    assert check(engine, n_groups=2).ok
    assert check(engine, "wrong-pos", n_groups=2).ok


def test_a_packing_that_does_not_fit_its_weights(tmp_path):
    folder = quantised(tmp_path, "4-bit")
    values = json.loads((folder / "config.json").read_text())
    values["quantization"] = {"group_size": 64, "bits": 8}
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match="stated to be packed with 8 bits in groups of 64"):
        Engine.load(str(folder))


@pytest.mark.parametrize(("packed", "stated", "match"), [
    ("mixed", "mxfp4", "mode 'mxfp4', which has scales of one byte.*floating-point with biases, "
                       "as in the mode 'affine'"),
    ("mxfp4", "affine", "mode 'affine', which has floating-point scales.*are one byte each "
                        "without biases$"),
])
def test_a_packing_of_another_mode_than_stated(tmp_path, packed, stated, match):
    folder = quantised(tmp_path, packed)
    values = json.loads((folder / "config.json").read_text())
    for one in (values["quantization"], *values["quantization"].values()):
        if isinstance(one, dict):
            one |= {"mode": stated, "group_size": 32, "bits": 4}
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.raises(CheckpointError, match=match):
        Engine.load(str(folder))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "recipe", "how"),
    [
        ("qwen3_5", None, {"q_bits": 4}),
        ("qwen3_5", None, {"q_bits": 4, "q_group_size": 32, "q_mode": "mxfp4"}),
        ("qwen3_vl", "mixed_4_8", {}),
        ("qwen3_5_moe", None, {"q_bits": 8}),
        ("qwen3_vl_moe", None, {"q_bits": 4}),
        ("qwen2_5_vl", None, {"q_bits": 4}),
    ],
)
def test_what_mlx_vlms_own_convert_writes(tmp_path, family, recipe, how):
    from mlx_vlm import convert

    source = write_checkpoint(tmp_path / "source", family, num_hidden_layers=2)
    pixels = json.loads((source / "preprocessor_config.json").read_text())
    pixels |= {"image_mean": [0.4] * 3, "image_std": [0.3] * 3}
    for name in ("preprocessor_config.json", "video_preprocessor_config.json"):
        (source / name).write_text(json.dumps(pixels))
    if family == "qwen2_5_vl":  # mlx-vlm reads this family's settings at the top only
        values = json.loads((source / "config.json").read_text())
        values |= {**values.pop("text_config"), "model_type": family}
        (source / "config.json").write_text(json.dumps(values))
    target = tmp_path / "converted"
    how |= {"quantize": True, "quant_predicate": recipe, "dtype": "bfloat16"}
    convert(str(source), str(target), **how)
    assert json.loads((target / "config.json").read_text())["quantization"]
    engine = Engine.load(str(target), self_check="refuse", warm=False)
    assert (engine.dtype, engine.remarks) == ("float32", [])
    assert engine.settings.mean == (0.4,) * 3
    groups, times_s = encoded(engine, 2)
    got = [r.probabilities for r in engine.window(groups, times_s).ask(ASK)]
    engine.model = packed_model(target)
    want = [full_sequence(engine, groups, times_s, query).probabilities for query in ASK]
    assert worst(got, want) < 1e-4
