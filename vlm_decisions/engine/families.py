"""Model families: the one place that knows how each names and arranges its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

from . import fastmath
from .attend import FullAttention
from .decoder import Decoder, Layer
from .delta import DeltaNet
from .errors import FamilyError
from .positions import Rotary


@dataclass(frozen=True)
class Family:
    """One model family: mlx-vlm's module for it, and how to drive its language model."""

    model_type: str
    module: str
    decoder: Callable[[Any], Decoder]

    def modules(self) -> Any:
        """Return mlx-vlm's package for the family (``Model``, ``ModelConfig``)."""
        return import_module(self.module)


def _mlp(module: Any) -> Callable:
    def run(x: Any) -> Any:
        return module.down_proj(fastmath.swiglu(module.gate_proj(x), module.up_proj(x)))

    return run


def _rotary(embedding: Any) -> Rotary:
    import numpy as np

    return Rotary(np.array(embedding.inv_freq), np.array(embedding.position_selector))


def _qwen3_5(model: Any) -> Decoder:
    language = model.language_model
    args = language.args
    layers, rotary = [], None
    for layer in language.model.layers:
        if layer.is_linear:
            mixer = DeltaNet(layer.linear_attn)
        else:
            attn = layer.self_attn
            mixer = FullAttention(
                attn,
                n_heads=attn.num_attention_heads,
                n_kv=attn.num_key_value_heads,
                head_dim=attn.head_dim,
                gated=True,
            )
            rotary = rotary or _rotary(attn.rotary_emb)
        layers.append(
            Layer(layer.input_layernorm, mixer, layer.post_attention_layernorm, _mlp(layer.mlp))
        )
    if rotary is None:
        raise FamilyError("the checkpoint has no full-attention layer, so it has no positions")
    return Decoder(
        language,
        layers,
        rotary,
        max_tokens=args.max_position_embeddings,
        tied=args.tie_word_embeddings,
    )


def _qwen3_vl(model: Any) -> Decoder:
    language = model.language_model
    args = language.args
    layers = []
    for layer in language.model.layers:
        attn = layer.self_attn
        mixer = FullAttention(
            attn, n_heads=attn.n_heads, n_kv=attn.n_kv_heads, head_dim=attn.head_dim, gated=False
        )
        layers.append(
            Layer(layer.input_layernorm, mixer, layer.post_attention_layernorm, _mlp(layer.mlp))
        )
    return Decoder(
        language,
        layers,
        _rotary(language.model.layers[0].self_attn.rotary_emb),
        max_tokens=args.max_position_embeddings,
        tied=args.tie_word_embeddings,
    )


FAMILIES: Final = {
    family.model_type: family
    for family in (
        Family("qwen3_5", "mlx_vlm.models.qwen3_5", _qwen3_5),
        Family("qwen3_vl", "mlx_vlm.models.qwen3_vl", _qwen3_vl),
    )
}


def family_of(model_type: object) -> Family:
    """Return the family named by a checkpoint's ``model_type``; raises FamilyError."""
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if family is None:
        raise FamilyError(
            f"model family {model_type!r} is not supported; the supported ones are "
            f"{', '.join(sorted(FAMILIES))}"
        )
    return family
