"""config.json: its forms are brought to one, and what is not implemented is refused by name."""

import json

import numpy as np
import pytest
from tiny import config, encoded, write_checkpoint

from vlm_decisions.engine import CheckpointError, Engine, FamilyError, Query
from vlm_decisions.engine.decision_models import family_name
from vlm_decisions.engine.families import FAMILIES
from vlm_decisions.engine.model_config import read_config

ASK = [Query("Is a person present?"), Query("Which?", ("cup", "phone on a desk"))]


def write(folder, values):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def changed(family="qwen3_5", part="text_config", **values):
    """Return a small checkpoint's config.json with values of one part changed; None removes."""
    whole = json.loads(json.dumps(config(family)))
    target = whole[part] if part else whole
    for key, value in values.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = value
    return whole


ROPE = {"mrope_section": [3, 3, 2], "rope_theta": 1e4, "partial_rotary_factor": 0.5}
FULL = {"mrope_section": [6, 5, 5], "rope_theta": 1e4}


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (changed(rope_parameters={**ROPE, "rope_type": "yarn", "factor": 4.0}), "rope type 'yarn'"),
        (changed(rope_parameters={**ROPE, "type": "linear", "factor": 2.0}), "rope type 'linear'"),
        (changed(rope_parameters={**ROPE, "rope_type": "llama3"}), "rope type 'llama3'"),
        (changed("qwen3_vl", rope_scaling={**FULL, "type": "dynamic"}), "rope type 'dynamic'"),
        (changed("qwen3_vl", rope_scaling=None, rope_parameters={**FULL, "rope_type": "longrope"}),
         "rope type 'longrope'"),
        (changed(rope_scaling={"rope_type": "yarn", "factor": 2.0}), "rope type 'yarn'"),
        (changed(part=None, rope_scaling={"type": "yarn", "factor": 2.0}), "rope type 'yarn'"),
        (changed(part=None, rope_scaling="yarn"), "rotary positions 'yarn': not an object"),
        (changed(rope_parameters={"full_attention": ROPE}), "by layer"),
        (changed(rope_parameters={**ROPE, "mrope_interleaved": False}), "mrope_interleaved False"),
        (changed(rope_parameters={**ROPE, "mrope_section": [4, 4, 4]}), "mrope_section"),
        (changed(rope_parameters={**ROPE, "rope_theta": None}), "no rope_theta"),
        (changed("qwen3_vl", partial_rotary_factor=0.5), "partial_rotary_factor 0.5"),
        (changed(hidden_act="gelu"), "hidden_act 'gelu'.*implemented: 'silu'"),
        (changed(part="vision_config", hidden_act="quick_gelu"), "hidden_act 'quick_gelu'"),
        (changed(part="vision_config", model_type="siglip"), "type 'siglip'"),
        (changed(part="vision_config", rope_parameters={"rope_theta": 500.0}), "theta 500.0"),
        (changed("qwen3_vl", sliding_window=4096), "sliding_window 4096"),
        (changed("qwen3_vl", use_sliding_window=True), "use_sliding_window True"),
        (changed("qwen3_vl", layer_types=["full_attention", "sliding_attention"] * 3),
         "sliding_attention"),
        (changed(layer_types=["full_attention"] * 3 + ["linear_attention"] * 3), "layer_types"),
        (changed(layer_types=["linear_attention"] * 6), "no full-attention layer"),
        (changed(layer_types=["linear_attention", "full_attention"]), "2 layer_types for 6"),
        (changed(attn_output_gate=False), "attn_output_gate False"),
        (changed("qwen3_vl", attention_bias=True), "attention_bias True"),
        (changed(final_logit_softcapping=30.0), "final_logit_softcapping 30.0"),
        (changed(part=None, quantization_config={"quant_method": "gptq", "bits": 4}), "'gptq'"),
        (changed(part=None, quantization_config={"quant_method": "awq"}), "'awq'.*MLX's own"),
        (changed(quantization_config={"quant_method": "fp8"}), "'fp8'"),
        (changed(part=None, quantization={"group_size": 64, "bits": 1}), "1-bit"),
        (changed(part=None, quantization={"group_size": 64, "bits": 4, "mode": "nf4"}), "'nf4'"),
        (changed(part=None, quantization={"group_size": 64, "bits": 4, "mode": "affine",
                                          "lm_head": {"group_size": 32, "bits": 7}}),
         "7-bit quantisation of lm_head"),
        (changed(part=None, quantization={"group_size": "32", "bits": 4}),
         "group_size '32' of its quantisation: not a whole number"),
        (changed(part=None, quantization={"group_size": 32, "bits": "4"}), "bits '4' of its quan"),
        (changed(part=None, quantization={"group_size": 32, "bits": True}), "bits True of its"),
        (changed(part=None, quantization={"group_size": 32, "bits": 4, "mode": ["affine"]}),
         "mode .*affine.*not implemented"),
        (changed(part=None, quantization={"group_size": 32, "bits": 4,
                                          "lm_head": {"group_size": 32.5}}),
         "group_size 32.5 of its quantisation of lm_head"),
        (changed(part=None, tie_word_embeddings="no"), "tie_word_embeddings 'no': not true or"),
        (changed(tie_word_embeddings=0), "tie_word_embeddings 0: not true or false"),
        (changed(part=None, quantization=[]), r"a quantisation \[\]: not an object"),
        (changed(layer_types=0), "layer_types 0: not a list"),
        (changed(max_position_embeddings=0), "max_position_embeddings 0 in text_config: not a wh"),
        (changed(hidden_size="128"), "hidden_size '128' in text_config: not a whole number"),
        (changed(head_dim=0), "head_dim 0 in text_config"),
        (changed(num_key_value_heads=3), "num_attention_heads 4 and num_key_value_heads 3"),
        (changed("qwen3_vl_moe", num_experts_per_tok=0), "num_experts_per_tok 0 in text_config"),
        (changed("qwen3_5_moe", num_experts_per_tok=9), "9 experts a token of 8"),
        (changed("qwen2_5_vl", rope_scaling={"rope_type": "mrope", "mrope_section": [16]}),
         "must be three whole numbers"),
        (changed(rope_parameters={**ROPE, "mrope_section": [3, 3, "2"]}), "three whole numbers"),
        (changed(rope_parameters={**ROPE, "partial_rotary_factor": "a"}), "'a': not a share"),
        (changed("qwen2_5_vl", "vision_config", fullatt_block_indexes=[9]), r"\[9\] for a vision"),
        (changed("qwen2_5_vl", "vision_config", fullatt_block_indexes="x"), "'x' for a vision"),
        (changed("qwen2_5_vl", "vision_config", window_size=10), "window_size 10: below one vis"),
        (changed(part="vision_config", num_heads=3), "hidden_size 128 and num_heads 3 in vision"),
        (changed(part="vision_config", depth=True), "depth True in vision_config"),
        (changed(part="vision_config", rope_parameters=[]), r"\[\] for the vision tower: not an"),
        (changed("qwen3_vl", rope_scaling=0), "rotary positions 0: not an object"),
        (changed(part=None, vision_config=None), "without a vision tower"),
        (changed(part=None, model_type="qwen3_5_text"), "without a vision tower"),
        (changed(part=None, text_config=None), "no text_config"),
    ],
)  # fmt: skip
def test_what_is_not_implemented_is_refused_by_name(tmp_path, values, match):
    with pytest.raises(CheckpointError, match=match):
        read_config(write(tmp_path, values))


def test_a_quantisation_that_only_a_file_beside_states(tmp_path):
    folder = write(tmp_path, config())
    (folder / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "NVFP4"}}')
    with pytest.raises(CheckpointError, match="modelopt"):
        read_config(folder)


@pytest.mark.parametrize("family", ["llava", "qwen2_vl", "gemma3", None, 3, ["qwen3_5"]])
def test_other_families_are_told_which_there_are(tmp_path, family):
    with pytest.raises(FamilyError, match=", ".join(sorted(FAMILIES))):
        read_config(write(tmp_path, {**config(), "model_type": family}))
    assert family_name({"model_type": family}) is None


@pytest.mark.parametrize(
    "values",
    [
        changed(rope_parameters={**ROPE, "rope_type": "default"}),
        changed(rope_parameters={"mrope_section": [3, 3, 2], "rope_theta": 1e4},
                partial_rotary_factor=0.5),
        changed(layer_types=["linear_attention", "full_attention"] * 3,
                full_attention_interval=None),
        changed(sliding_window=32768, use_sliding_window=False, hidden_act="silu"),
        changed(part="vision_config", model_type="qwen3_5_vision", patch_size=[16, 16],
                rope_parameters={"rope_type": "axial", "rope_theta": 10000.0}),
    ],
)  # fmt: skip
def test_other_forms_of_the_same(tmp_path, values):
    got = read_config(write(tmp_path / "a", values)).values
    want = read_config(write(tmp_path / "b", config())).values
    for part, keys in (("text_config", ("rope_parameters", "full_attention_interval")),
                       ("vision_config", ("model_type", "patch_size"))):  # fmt: skip
        for key in keys:
            assert got[part][key] == want[part][key]


def test_a_qwen3_vl_as_transformers_5_saves_it(tmp_path):
    """Rotary positions in one object, other type names: the same answers as the older form."""
    old = write_checkpoint(tmp_path / "old", "qwen3_vl")
    new = tmp_path / "new"
    new.mkdir()
    for path in old.iterdir():
        (new / path.name).write_bytes(path.read_bytes())
    values = json.loads((old / "config.json").read_text())
    text = values["text_config"]
    rope = {**text.pop("rope_scaling"), "rope_theta": text.pop("rope_theta")}
    rope["rope_type"] = rope.pop("type")
    text.update(rope_parameters=rope, layer_types=["full_attention"] * 6, sliding_window=None)
    values["vision_config"]["model_type"] = "qwen3_vl_vision"
    write(new, values)
    a, b = (Engine.load(str(folder), warm=False) for folder in (old, new))
    groups, times_s = encoded(a, 2)
    for x, y in zip(a.window(groups, times_s).ask(ASK), b.window(groups, times_s).ask(ASK)):
        assert np.array_equal(x.probabilities, y.probabilities)


def test_what_is_null_of_the_vision_tower_is_not_stated(tmp_path):
    values = config("qwen2_5_vl")
    values["vision_config"] |= {"tokens_per_second": None, "fullatt_block_indexes": None}
    assert not {"tokens_per_second", "fullatt_block_indexes"} & set(
        read_config(write(tmp_path, values)).values["vision_config"])


@pytest.mark.parametrize(
    ("outer", "inner", "tied"),
    [(True, False, True), (False, True, None), (None, True, True), (None, None, None),
     (False, None, False)],
)  # fmt: skip
def test_whether_the_output_is_tied(tmp_path, outer, inner, tied):
    values = changed(tie_word_embeddings=inner)
    values.pop("tie_word_embeddings")
    if outer is not None:
        values["tie_word_embeddings"] = outer
    assert read_config(write(tmp_path, values)).tied is tied


def test_a_qwen2_5_vl_with_the_language_models_settings_at_the_top(tmp_path):
    """The form that hubs hold; transformers 5 puts them into text_config."""
    nested = config("qwen2_5_vl")
    flat = {**nested, **{k: v for k, v in nested["text_config"].items() if k != "model_type"}}
    del flat["text_config"]
    flat |= {"sliding_window": 32768, "use_sliding_window": False, "max_window_layers": 6}
    got = read_config(write(tmp_path / "a", flat)).values["text_config"]
    want = read_config(write(tmp_path / "b", nested)).values["text_config"]
    assert {key: got[key] for key in want if key != "model_type"} == {
        key: value for key, value in want.items() if key != "model_type"
    }
