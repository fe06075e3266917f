"""Small random checkpoints of mlx-vlm's decision models, with tokenizers of their own."""

from __future__ import annotations

import json
from pathlib import Path

import mlx.core as mx
from mlx.utils import tree_flatten
from tiny import randomise

CHAT_TEMPLATE = """\
{{- bos_token -}}
{%- for message in messages -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- for item in message.content -%}
{%- if item.type == 'image' -%}{{- '<image>' -}}{%- else -%}{{- item.text -}}{%- endif -%}
{%- endfor -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
"""
D1_TOKENS = ("<|im_start|>", "<|im_end|>", "<image>", "<|image_start|>", "<|image_end|>",
             "<|img_thumbnail|>")
OMNI_TOKENS = (*(f"<|reserved_{i}|>" for i in range(7, 12)), "<|mask|>")
WORDS = """
Is a person present? Is the door open? Which colour is it? How full is it?
Reply with yes or no only. Reply with the option code only. Options: A red B green C blue
yes Yes YES no No NO user assistant image the statement holds true false does not hold
""" * 4
TEXT = {
    "model_type": "lfm2", "hidden_size": 64, "intermediate_size": 96, "block_ff_dim": 96,
    "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "norm_eps": 1e-5,
    "layer_types": ["conv", "full_attention", "conv", "full_attention"], "conv_L_cache": 3,
    "conv_bias": False, "block_dim": 64, "block_multiple_of": 16, "block_ffn_dim_multiplier": 1.0,
    "block_auto_adjust_ff_dim": True, "vocab_size": 640, "max_position_embeddings": 4096,
    "rope_theta": 10000.0, "tie_word_embeddings": True,
}  # fmt: skip
VISION = {
    "model_type": "lfm2_vl", "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_channels": 3, "image_size": 224, "patch_size": 16,
    "num_patches": 256,
}  # fmt: skip


def tokenizer(special: tuple[str, ...]):
    """Return a byte-level BPE tokenizer with these control tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(WORDS.splitlines(keepends=True), trainer)
    names = ("<|pad|>", "<|startoftext|>", *special)
    backend.add_special_tokens([AddedToken(name, special=True) for name in names])
    out = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|startoftext|>", pad_token="<|pad|>",
        eos_token="<|im_end|>" if "<|im_end|>" in special else "<|pad|>",
    )  # fmt: skip
    out.chat_template = CHAT_TEMPLATE
    return out


def write_d1(folder: Path, seed: int = 3, *, published: bool = False) -> Path:
    """Write a `d1`. published: named as LiquidAI's checkpoints are, an LFM2-VL with an auto_map."""
    from mlx_vlm.models import d1

    tok = tokenizer(D1_TOKENS)
    settings = {
        "model_type": "lfm2_vl" if published else "d1", "text_config": TEXT,
        "vision_config": VISION, "projector_hidden_size": 96, "projector_use_layernorm": False,
        "image_token_id": tok.convert_tokens_to_ids("<image>"), "downsample_factor": 2,
    }  # fmt: skip
    if published:
        settings["auto_map"] = {"AutoModel": "modeling_d1.D1Model"}
    _write(folder, settings, d1, tok, seed)
    (folder / "preprocessor_config.json").write_text(json.dumps({
        "patch_size": 16, "min_image_tokens": 4, "max_image_tokens": 16, "tile_size": 128,
    }))  # fmt: skip
    return folder


def write_d1_omni(folder: Path, seed: int = 3) -> Path:
    """Write a `d1_omni`."""
    from mlx_vlm.models import d1_omni

    audio = {"feat_in": 16, "n_layers": 1, "d_model": 32, "subsampling_conv_channels": 16,
             "n_heads": 4, "residual_width": 32}  # fmt: skip
    settings = {
        "model_type": "d1_omni", "text_config": TEXT, "vision_config": VISION,
        "audio_config": audio, "projector_hidden_size": 96, "head_layers": 1, "max_length": 4096,
        "image_text_length": 896, "temperatures": {"noul:2": 2.0},
    }  # fmt: skip
    _write(folder, settings, d1_omni, tokenizer(OMNI_TOKENS), seed)
    return folder


WRITERS = {"d1": write_d1, "d1_omni": write_d1_omni}


def _write(folder: Path, settings: dict, module, tok, seed: int) -> None:
    model = module.Model(module.ModelConfig.from_dict(_parsed(settings, module)))
    randomise(model, seed)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(settings))
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    tok.save_pretrained(folder)


def _parsed(settings: dict, module) -> dict:
    if not hasattr(module, "TextConfig"):
        return json.loads(json.dumps(settings))
    return {
        **settings,
        "text_config": module.TextConfig.from_dict(settings["text_config"]),
        "vision_config": module.VisionConfig.from_dict(settings["vision_config"]),
    }
