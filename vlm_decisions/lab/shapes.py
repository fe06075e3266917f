"""Engines on random weights in the shapes of real checkpoints, for benchmarks and wide tests."""

from __future__ import annotations

import copy
from typing import Any, Final

import mlx.core as mx
from mlx.utils import tree_flatten, tree_unflatten

from ..engine.checkpoint import EMBEDDED, Checkpoint, default_dtype, load_tokenizer
from ..engine.engine import Engine
from ..engine.families import family_of

_ROPE: Final = {
    "type": "default",
    "mrope_section": [11, 11, 10],
    "mrope_interleaved": True,
    "rope_theta": 1e7,
    "partial_rotary_factor": 0.25,
}
_TEXT: Final = {
    "model_type": "qwen3_5_text",
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 262144,
    "tie_word_embeddings": True,
    "linear_conv_kernel_dim": 4,
}
_VISION: Final = {
    "model_type": "qwen3_5",
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "in_channels": 3,
    "deepstack_visual_indexes": [],
}


def _qwen(hidden: int, ffn: int, vision: tuple[int, int, int, int]) -> dict[str, Any]:
    depth, width, heads, vision_ffn = vision
    return {
        "text_config": {
            **_TEXT,
            "hidden_size": hidden,
            "intermediate_size": ffn,
            "num_hidden_layers": 24,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "vocab_size": 248320,
            "full_attention_interval": 4,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 16,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "rope_parameters": dict(_ROPE),
        },
        "vision_config": {
            **_VISION,
            "depth": depth,
            "hidden_size": width,
            "num_heads": heads,
            "intermediate_size": vision_ffn,
            "out_hidden_size": hidden,
            "num_position_embeddings": 2304,
        },
    }


_TINY: Final = {
    "text_config": {
        **_TEXT,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 6,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "vocab_size": 2048,
        "full_attention_interval": 2,
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 32,
        "linear_value_head_dim": 32,
        "rope_parameters": {
            **_ROPE,
            "mrope_section": [3, 3, 2],
            "rope_theta": 1e4,
            "partial_rotary_factor": 0.5,
        },
    },
    "vision_config": {
        **_VISION,
        "depth": 4,
        "hidden_size": 128,
        "num_heads": 4,
        "intermediate_size": 384,
        "out_hidden_size": 128,
        "num_position_embeddings": 64,
    },
}
_VL: Final = {  # Qwen3-VL: full attention in all layers, deepstack
    "model_type": "qwen3_vl",
    "text_config": {
        "model_type": "qwen3_vl_text",
        "hidden_size": 256,
        "intermediate_size": 768,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 64,
        "rms_norm_eps": 1e-6,
        "vocab_size": 2048,
        "max_position_embeddings": 262144,
        "tie_word_embeddings": True,
        "rope_theta": 5e6,
        "rope_scaling": {
            "type": "default",
            "mrope_section": [12, 10, 10],
            "mrope_interleaved": True,
        },
    },
    "vision_config": {
        **_VISION,
        "model_type": "qwen3_vl",
        "depth": 6,
        "hidden_size": 128,
        "num_heads": 4,
        "intermediate_size": 384,
        "out_hidden_size": 256,
        "num_position_embeddings": 64,
        "deepstack_visual_indexes": [1, 3],
    },
}
SHAPES: Final = {
    "vl": (_VL, 224 * 224),
    "tiny": (_TINY, 96 * 128),
    "0.8b": (_qwen(1024, 3584, (12, 768, 12, 3072)), 224 * 224),
    "2b": (_qwen(2048, 6144, (24, 1024, 16, 4096)), 224 * 224),
}


def weights_bytes(shape: str, *, layers: int | None = None) -> int:
    """Bytes of a shape's weights in the device's dtype; none are made."""
    model, _, _ = _model(shape, layers)
    return sum(value.size for _, value in tree_flatten(model.parameters())) * default_dtype().size


def random_engine(
    shape: str, *, layers: int | None = None, dtype: str | None = None, draw: bool = True
) -> Engine:
    """Return an engine on random weights; raises ValueError for an unknown shape.

    layers: language-model layers instead of the shape's own. The tokenizer is the embedded one.
    draw: without, there are no weights, only their shapes, to count with.
    """
    model, tokenizer, pixel_budget = _model(shape, layers)
    kind = getattr(mx, dtype) if dtype else default_dtype()
    if draw:
        _randomise(model, kind)
    checkpoint = Checkpoint(
        f"random-{shape}",
        EMBEDDED["sim_desk"] / "nowhere",
        family_of(SHAPES[shape][0].get("model_type", "qwen3_5")),
        model,
        tokenizer,
        f"random-{shape}",
        kind,
    )
    return Engine(checkpoint, pixel_budget)


def _model(shape: str, layers: int | None) -> tuple[Any, Any, int]:
    """Return mlx-vlm's model, not computed yet, the tokenizer and the pixel budget of a shape."""
    if shape not in SHAPES:
        raise ValueError(f"shape must be one of {', '.join(SHAPES)}, not {shape!r}")
    config, pixel_budget = copy.deepcopy(SHAPES[shape])
    if layers:
        config["text_config"]["num_hidden_layers"] = layers
    tokenizer = load_tokenizer(EMBEDDED["sim_desk"])
    for name in ("image_token", "video_token", "vision_start_token", "vision_end_token"):
        word = {"image_token": "image_pad", "video_token": "video_pad"}.get(name, name[:-6])
        config[f"{name}_id"] = tokenizer.convert_tokens_to_ids(f"<|{word}|>")
    modules = family_of(config.setdefault("model_type", "qwen3_5")).modules()
    return modules.Model(modules.ModelConfig.from_dict(config)), tokenizer, pixel_budget


def _randomise(model: Any, dtype: mx.Dtype, seed: int = 0) -> None:
    """Draw weights of a trained model's size: activations keep their scale through the layers."""
    mx.random.seed(seed)
    new = []
    for key, value in tree_flatten(model.parameters()):
        if value.ndim >= 2:
            scale = 0.25 if "embed" in key else (value.size // value.shape[0]) ** -0.5
            draw = mx.random.normal(value.shape) * scale
        elif key.endswith("A_log"):
            draw = mx.log(mx.random.uniform(0.01, 1.0, value.shape))
        elif key.endswith("dt_bias"):
            draw = mx.random.uniform(-2.0, 0.0, value.shape)
        elif key.endswith("bias"):
            draw = mx.zeros(value.shape)
        else:
            draw = mx.ones(value.shape)
        draw = draw.astype(mx.float32 if key.endswith("A_log") else dtype)
        mx.eval(draw)
        new.append((key, draw))
    model.update(tree_unflatten(new))
