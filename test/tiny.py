"""A small tokenizer and small random checkpoints in the shapes of the embedded model."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}{{- message.content -}}
{%- else -%}
{%- for item in message.content -%}
{%- if item.type == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- elif item.type == 'video' -%}{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- else -%}{{- item.text -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{- '<|im_start|>assistant\\n' -}}
{%- if enable_thinking is defined and enable_thinking is false -%}
{{- '<think>\\n\\n</think>\\n\\n' -}}
{%- else -%}{{- '<think>\\n' -}}
{%- endif -%}
{%- endif -%}
"""

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
NOT_MARKED_SPECIAL = ("<think>", "</think>")  # added but not special, as in Qwen's own tokenizer
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CORPUS = """
Answer the question about the video with one word or letter:
Answer the question about the image with one word or letter:
Is a person present? Is there a second person? Is there a cup on the desk? Is the phone there?
Is the laptop open? Is the door open? Is the person holding a cup? Is the person holding a phone?
Is the cup left of the laptop? Is the person approaching? Is the person moving left? Yes No
What is the person mainly doing? Options: typing, drinking, reading, idle, away, on phone
user assistant seconds A B C D E F G H I J
typing
drinking
reading
idle
away
Yes
No
A
B
C
D
""" * 4


@lru_cache(maxsize=1)
def small_tokenizer():
    """Return a byte-level BPE PreTrainedTokenizerFast of about 450 tokens with Qwen's specials."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
    from tokenizers import pre_tokenizers as pre
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre.Sequence(
        [
            pre.Split(Regex(SPLIT), behavior="isolated"),
            pre.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    alphabet = pre.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(CORPUS.splitlines(keepends=True), trainer)
    backend.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    backend.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token in NOT_MARKED_SPECIAL]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


VISION = {
    "depth": 4,
    "hidden_size": 128,
    "intermediate_size": 256,
    "out_hidden_size": 128,
    "num_heads": 4,
    "patch_size": 16,
    "temporal_patch_size": 2,
    "spatial_merge_size": 2,
    "in_channels": 3,
    "num_position_embeddings": 64,
    "deepstack_visual_indexes": [],
}
TEXT = {
    "hidden_size": 128,
    "intermediate_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "rms_norm_eps": 1e-6,
    "vocab_size": 512,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
QWEN3_5 = {
    **TEXT,
    "model_type": "qwen3_5_text",
    "full_attention_interval": 2,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "rope_parameters": {
        "type": "default",
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
        "rope_theta": 10000,
        "partial_rotary_factor": 0.5,
    },
}
QWEN3_VL = {
    **TEXT,
    "model_type": "qwen3_vl_text",
    "rope_theta": 10000,
    "rope_scaling": {"type": "default", "mrope_section": [6, 5, 5], "mrope_interleaved": True},
}


EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 96,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
QWEN2_5_VL = {
    **TEXT,
    "hidden_size": 128,
    "model_type": "qwen2_5_vl_text",
    "rope_theta": 10000,
    "rope_scaling": {"type": "mrope", "mrope_section": [6, 5, 5]},
}
FAMILIES = {
    "qwen2_5_vl": QWEN2_5_VL,
    "qwen3_5": QWEN3_5,
    "qwen3_5_moe": {**QWEN3_5, **EXPERTS, "model_type": "qwen3_5_moe_text"},
    "qwen3_vl": QWEN3_VL,
    "qwen3_vl_moe": {**QWEN3_VL, **EXPERTS, "model_type": "qwen3_vl_moe_text"},
}


def config(family: str = "qwen3_5", **text) -> dict:
    """Return the config.json of a small checkpoint; ``text`` overrides its language model."""
    tok = small_tokenizer()
    ids = {name: tok.convert_tokens_to_ids(f"<|{name}|>") for name in ("image_pad", "video_pad")}
    vision = dict(VISION, model_type=family)
    if family.startswith("qwen3_vl"):
        vision["deepstack_visual_indexes"] = [1, 2]
    if family == "qwen2_5_vl":
        vision |= {"window_size": 64, "fullatt_block_indexes": [1, 3], "tokens_per_second": 4,
                   "hidden_act": "silu"}  # fmt: skip
    return {
        "model_type": family,
        "vision_config": vision,
        "text_config": {**FAMILIES[family], **text},
        "image_token_id": ids["image_pad"],
        "video_token_id": ids["video_pad"],
        "vision_start_token_id": tok.convert_tokens_to_ids("<|vision_start|>"),
        "vision_end_token_id": tok.convert_tokens_to_ids("<|vision_end|>"),
        "vocab_size": TEXT["vocab_size"],
        "tie_word_embeddings": True,
    }


def vision_of(settings: dict) -> dict:
    """Return the vision tower's settings under mlx-vlm's name for its type."""
    return {**settings["vision_config"], "model_type": settings["model_type"]}


def randomise(model, seed: int = 7, gain: float = 1.6) -> None:
    """Draw weights large enough that each token, position and state visibly matters."""
    import mlx.core as mx
    from mlx.utils import tree_flatten, tree_unflatten

    mx.random.seed(seed)
    new = []
    for key, value in tree_flatten(model.parameters()):
        if value.ndim >= 2:
            fan_in = value.size // value.shape[0]
            scale = 0.25 if "embed" in key else gain / fan_in**0.5
            draw = mx.random.normal(value.shape) * scale
        elif key.endswith("A_log"):
            draw = mx.log(mx.random.uniform(0.01, 0.5, value.shape))
        elif key.endswith("dt_bias"):
            draw = mx.random.uniform(-2.0, 0.0, value.shape)
        elif key.endswith("bias"):
            draw = mx.random.normal(value.shape) * 0.1
        else:
            draw = 1.0 + 0.2 * mx.random.normal(value.shape)
        new.append((key, draw.astype(value.dtype)))
    model.update(tree_unflatten(new))
    mx.eval(model.parameters())


def write_checkpoint(folder: Path, family: str = "qwen3_5", seed: int = 7, **text) -> Path:
    """Write a random checkpoint of ``family`` with its tokenizer into ``folder``."""
    from importlib import import_module

    import mlx.core as mx
    from mlx.utils import tree_flatten

    module = import_module(f"mlx_vlm.models.{family}")
    settings = config(family, **text)
    parsed = module.ModelConfig.from_dict(json.loads(json.dumps(settings)))
    parsed.text_config = module.TextConfig.from_dict(settings["text_config"])
    parsed.vision_config = module.VisionConfig.from_dict(vision_of(settings))
    model = module.Model(parsed)
    randomise(model, seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "preprocessor_config.json").write_text(
        json.dumps({"patch_size": 16, "temporal_patch_size": 2, "merge_size": 2,
                    "size": {"shortest_edge": 1024, "longest_edge": 96 * 128}})
    )
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    small_tokenizer().save_pretrained(folder)
    return folder


def moving_frames(n: int, height: int = 96, width: int = 128, seed: int = 0):
    """Return ``n`` uint8 RGB frames of a bright square moving over a textured background."""
    import numpy as np

    rng = np.random.default_rng(seed)
    ground = rng.integers(0, 160, (height, width, 3), dtype=np.uint8)
    frames = []
    for i in range(n):
        frame = ground.copy()
        x = (7 * i + 5 * seed) % (width - 24)
        y = (3 * i) % (height - 24)
        frame[y : y + 24, x : x + 24] = (250, 40 + 5 * i % 200, 90)
        frames.append(frame)
    return frames


@lru_cache(maxsize=16)
def tiny_engine(family: str = "qwen3_5", seed: int = 7, in_numpy: bool = True):
    """Return an Engine on a small random checkpoint of ``family``, loaded from a folder.

    in_numpy: as an engine of this size computes on a CPU; else as larger ones and a GPU's do.
    """
    import tempfile

    from vlm_decisions.engine import Engine
    from vlm_decisions.engine.checkpoint import load

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = load(str(write_checkpoint(Path(folder) / "tiny", family, seed)))
        return Engine(checkpoint, 96 * 128, in_numpy=in_numpy)


def encoded(engine, n: int, seed: int = 0, height: int = 96, width: int = 128):
    """Return ``n`` encoded groups and their times in seconds."""
    frames = moving_frames(2 * n, height, width, seed)
    groups = [engine.encode(frames[2 * i : 2 * i + 2]) for i in range(n)]
    return groups, [0.0625 + 0.25 * i for i in range(n)]
