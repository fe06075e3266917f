"""Golden numbers of small random models of each family, from transformers (PyTorch).

    python test/golden/families.py          # writes test/golden/FAMILY.npz

needs torch and transformers 5.24 beside this package's own requirements. A model of small shapes
gets weights that follow from its tensors' names, so that only names and shapes are stored beside
its config.json, as transformers saves both. Stored are also the token ids, the vision features of
the first group, and at the answer position the hidden state after every layer and the logits of
the answers. `test/engine/test_golden_families.py` holds the engine to them.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from tiny import moving_frames, small_tokenizer  # noqa: E402

from vlm_decisions.engine.pixels import PixelSettings, patches  # noqa: E402
from vlm_decisions.engine.prompt import PromptTemplate  # noqa: E402

GROUPS, FPS, SIZE = 3, 8, (96, 128)
QUESTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Is a person present?", ()),
    ("Is the cup to the left of the laptop on the desk?", ()),
    ("What is the person mainly doing?", ("typing", "on the phone", "reading")),
)
TEXT = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512, "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 48}
DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 32,
    "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention"] * 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [3, 3, 2],
                        "mrope_interleaved": True, "partial_rotary_factor": 0.5},
}  # fmt: skip
FULL = {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                            "mrope_section": [6, 5, 5], "mrope_interleaved": True}}  # fmt: skip
VISION = {
    "depth": 3, "hidden_size": 64, "intermediate_size": 96, "num_heads": 4, "patch_size": 16,
    "temporal_patch_size": 2, "spatial_merge_size": 2, "out_hidden_size": 64,
    "num_position_embeddings": 64,
}  # fmt: skip
DEEP = {**VISION, "deepstack_visual_indexes": [0, 2]}
WINDOWED = {**{k: v for k, v in VISION.items() if k != "num_position_embeddings"},
            "window_size": 64, "fullatt_block_indexes": [1], "tokens_per_second": 2}
CONFIGS = {
    "qwen2_5_vl": ({**{k: v for k, v in TEXT.items() if k != "head_dim"}, "hidden_size": 128,
                    "use_sliding_window": False,
                    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4,
                                        "mrope_section": [6, 5, 5]}},
                   {**WINDOWED, "out_hidden_size": 128}, False),
    "qwen3_5": ({**TEXT, **DELTA}, VISION, False),
    "qwen3_5_moe": ({**TEXT, **DELTA, **EXPERTS, "shared_expert_intermediate_size": 32},
                    VISION, True),
    "qwen3_vl": ({**TEXT, **FULL}, DEEP, True),
    "qwen3_vl_moe": ({**TEXT, **FULL, **EXPERTS, "decoder_sparse_step": 2, "mlp_only_layers": []},
                     DEEP, False),
}  # fmt: skip


def weight(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return the float32 weights of a tensor, which follow from its name."""
    seed = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    rng = np.random.default_rng(seed)
    if name.endswith("A_log"):
        return np.log(rng.uniform(0.01, 0.5, shape)).astype(np.float32)
    draw = rng.standard_normal(shape).astype(np.float32)
    if name.endswith("dt_bias"):
        return draw - 1.0
    if len(shape) > 1:
        fan_in = shape[-1] if "experts" in name else int(np.prod(shape[1:]))
        return draw * np.float32(0.25 if "embed" in name else 1.6 / np.sqrt(fan_in))
    zero_centred = name.endswith("bias") or "norm" not in name
    return draw * np.float32(0.1) + np.float32(0.0 if zero_centred else 1.0)


def frames() -> list[list[np.ndarray]]:
    """Return the fixed groups of two uint8 frames."""
    shown = moving_frames(2 * GROUPS, *SIZE)
    return [shown[2 * i : 2 * i + 2] for i in range(GROUPS)]


def times_s() -> list[float]:
    """Return the groups' times in seconds since the first frame."""
    return [(2 * i + 0.5) / FPS for i in range(GROUPS)]


def config_of(family: str) -> dict:
    """Return what makes the family's small config."""
    text, vision, tied = CONFIGS[family]
    tok = small_tokenizer()
    ids = {f"{name}_token_id": tok.convert_tokens_to_ids(f"<|{word}|>")
           for name, word in (("image", "image_pad"), ("video", "video_pad"),
                              ("vision_start", "vision_start"), ("vision_end", "vision_end"))}
    return {"text_config": {**text, "tie_word_embeddings": tied}, "vision_config": vision,
            "tie_word_embeddings": tied, **ids}


def make(family: str, out: Path) -> None:
    """Compute and store the golden numbers of one family."""
    import torch
    import transformers
    from safetensors import safe_open
    from safetensors.numpy import save_file

    kind = {"qwen3_5": "Qwen3_5", "qwen3_5_moe": "Qwen3_5Moe", "qwen3_vl": "Qwen3VL",
            "qwen3_vl_moe": "Qwen3VLMoe", "qwen2_5_vl": "Qwen2_5_VL"}[family]
    config = getattr(transformers, f"{kind}Config")(**config_of(family))
    model_class = getattr(transformers, f"{kind}ForConditionalGeneration")
    with tempfile.TemporaryDirectory() as folder:
        model_class(config).float().save_pretrained(folder)
        saved = json.loads((Path(folder) / "config.json").read_text())
        with safe_open(f"{folder}/model.safetensors", "np") as file:
            shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}
        held = {name: weight(name, tuple(shape)) for name, shape in shapes.items()}
        save_file(held, f"{folder}/model.safetensors", {"format": "pt"})
        model = model_class.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager"
        ).eval()
    stored = {"config": np.array(json.dumps(saved)), "shapes": np.array(json.dumps(shapes))}
    times = {} if family != "qwen2_5_vl" else {"second_per_grid_ts": torch.tensor([2 / FPS])}
    settings = PixelSettings(patch=config.vision_config.patch_size, pixel_budget=1 << 20)
    cut = [patches(group, settings) for group in frames()]
    pixels = torch.from_numpy(np.stack([one for one, _ in cut]))
    rows, columns = cut[0][1]
    grid = torch.tensor([[GROUPS, rows, columns]])
    template = PromptTemplate(small_tokenizer(), one_block=family == "qwen2_5_vl")
    head = list(template.header_ids)
    for t in times_s():
        head += template.group_ids(t, rows * columns // 4)
    with torch.no_grad():
        first = model.model.visual(pixels[0], grid.new_tensor([[1, rows, columns]]))
        stored["vision"] = first.pooler_output.numpy()
        for k, (text, options) in enumerate(QUESTIONS):
            question = template.question(text, options)
            ids = torch.tensor([head + question.ids])
            kinds = torch.where(ids == template.pad_id, 2, 0)
            result = model(input_ids=ids, pixel_values_videos=pixels.flatten(0, 1),
                           video_grid_thw=grid, mm_token_type_ids=kinds,
                           output_hidden_states=True, **times)
            # The last of transformers' states has the final norm applied.
            stored[f"layers_{k}"] = np.stack([h[0, -1].numpy() for h in result.hidden_states[1:-1]])
            stored[f"ids_{k}"] = ids[0].numpy().astype(np.int32)
            stored[f"logits_{k}"] = result.logits[0, -1, question.answer_ids].numpy()
    np.savez_compressed(out, **stored)
    print(out, {k: stored[f"logits_{k}"].round(2).tolist() for k in range(len(QUESTIONS))})


if __name__ == "__main__":
    for which in sys.argv[1:] or CONFIGS:
        make(which, HERE / f"{which}.npz")
