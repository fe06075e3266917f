"""The embedded model's shape: Qwen3.5, small enough to train on two cores and to ship."""

from __future__ import annotations

from typing import Any

from .corpus import families, tokenizer_text
from .tokenizer import build_tokenizer

PATCH, MERGE, TEMPORAL = 16, 2, 2
PIXEL_BUDGET = 24576  # per frame: 160x128 at 4:3, 192x96 at 16:9, 128x128 square
MIN_PIXELS = 16384


def config(tokenizer: Any) -> Any:
    """Return a `transformers.Qwen3_5Config` whose ids are those of `tokenizer`."""
    from transformers import Qwen3_5Config

    ids = tokenizer.convert_tokens_to_ids
    layers = 6
    return Qwen3_5Config(
        text_config={
            "vocab_size": len(tokenizer), "hidden_size": 128, "intermediate_size": 384,
            "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2,
            "head_dim": 32, "linear_num_key_heads": 4, "linear_num_value_heads": 4,
            "linear_key_head_dim": 32, "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4,
            "layer_types": ["linear_attention", "full_attention"] * (layers // 2),
            "full_attention_interval": 2, "max_position_embeddings": 4096,
            "tie_word_embeddings": True,
            "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0,
                                "partial_rotary_factor": 0.5, "mrope_interleaved": True,
                                "mrope_section": [3, 3, 2]},
            "partial_rotary_factor": 0.5,
            "eos_token_id": ids("<|im_end|>"), "pad_token_id": ids("<|endoftext|>"),
        },
        vision_config={
            "depth": 5, "hidden_size": 160, "intermediate_size": 480, "num_heads": 5,
            "patch_size": PATCH, "spatial_merge_size": MERGE, "temporal_patch_size": TEMPORAL,
            "out_hidden_size": 128, "num_position_embeddings": 64, "deepstack_visual_indexes": [],
        },
        image_token_id=ids("<|image_pad|>"), video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"), vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=True,
    )


def preprocessor_config() -> dict[str, Any]:
    """Written as `preprocessor_config.json` beside the weights."""
    return {
        "image_processor_type": "Qwen2VLImageProcessorFast",
        "processor_class": "Qwen3VLProcessor",
        "size": {"shortest_edge": MIN_PIXELS, "longest_edge": PIXEL_BUDGET},
        "patch_size": PATCH, "temporal_patch_size": TEMPORAL, "merge_size": MERGE,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    }


def fresh_model(seed: int = 0) -> tuple[Any, Any]:
    """Return the tokenizer and an untrained model."""
    import torch
    from transformers import Qwen3_5ForConditionalGeneration

    tokenizer = build_tokenizer(tokenizer_text(families()))
    torch.manual_seed(seed)
    model = Qwen3_5ForConditionalGeneration(config(tokenizer))
    for layer in model.model.language_model.layers:
        if layer.block_type == "linear_attention":  # the stock decay forgets within a few tokens
            decay = torch.empty_like(layer.linear_attn.A_log).uniform_(-6.0, 0.0)
            layer.linear_attn.A_log.data.copy_(decay)
    return tokenizer, model
