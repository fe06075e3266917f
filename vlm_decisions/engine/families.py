"""Model families: the one place that knows how each names and arranges its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import SimpleNamespace
from typing import Any, Final

import mlx.nn as nn
import numpy as np

from . import fastmath
from .attend import FullAttention
from .decision_models import FAMILIES as DECISION_MODELS
from .decoder import Decoder, Layer
from .delta import DeltaNet
from .errors import FamilyError
from .positions import Rotary
from .vision import VisionEncoder, WindowedEncoder

_OFF: Final = (None, False, 0, [])


@dataclass(frozen=True)
class Family:
    """One model family: mlx-vlm's module for it, how to drive its language model, what it states.

    model_type: as config.json names it, and mlx-vlm's folder. decoder: builds the language model's
    layers over modules as a view gives them (``as_it_is``, or in NumPy). text_values,
    vision_values: stated settings and the values they may have. text_defaults: what a missing one
    means. layer_types: the kinds of layers; with two, the second is every so many layers.
    interleaved, partial_rotary: of the rotary positions. rope_in_parameters: mlx-vlm's module reads
    them as ``rope_parameters``. vision_types, vision_act: of the vision tower. flat_text:
    config.json may have the language model's settings at its top. arrange: brings the tensors (with
    the language model's settings) to the form that mlx-vlm's model knows. repair: corrects what
    mlx-vlm's model does otherwise than the family. experts: has mixtures of experts. vision: drives
    the vision tower. one_block: the groups of a video are one block without time stamps.
    pixel_mean, pixel_std: where a checkpoint states none.
    """

    model_type: str
    decoder: Callable[[Any, Callable[[Any], Any]], Decoder]
    text_values: Mapping[str, tuple] = field(default_factory=dict)
    text_defaults: Mapping[str, Any] = field(default_factory=dict)
    vision_values: Mapping[str, tuple] = field(default_factory=dict)
    layer_types: tuple[str, ...] = ("full_attention",)
    interleaved: bool = True
    partial_rotary: float = 1.0
    rope_in_parameters: bool = False
    vision_types: tuple[str, ...] = ()
    vision_act: str = "gelu_pytorch_tanh"
    flat_text: bool = False
    arrange: Callable[[dict[str, Any], Mapping[str, Any]], dict[str, Any]] = (
        lambda weights, text: weights
    )
    repair: Callable[[Any], None] = lambda model: None
    experts: bool = False
    vision: Callable[..., VisionEncoder] = VisionEncoder
    one_block: bool = False
    pixel_mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    pixel_std: tuple[float, ...] = (0.5, 0.5, 0.5)

    def modules(self) -> Any:
        """Return mlx-vlm's package for the family (``Model``, ``ModelConfig``)."""
        return import_module(f"mlx_vlm.models.{self.model_type}")


def _mlp(module: Any) -> Callable:
    if not hasattr(module, "gate_proj"):
        return module  # a mixture of experts, which mlx-vlm's own module computes

    def run(x: Any) -> Any:
        return module.down_proj(fastmath.swiglu(module.gate_proj(x), module.up_proj(x)))

    return run


def _rotary(embedding: Any) -> Rotary:
    return Rotary(np.array(embedding.inv_freq), np.array(embedding.position_selector))


def _outer(model: Any, view: Callable[[Any], Any]) -> Any:
    """Return what of the language model is not its layers: its settings, norm and embedding."""
    language = model.language_model
    if view is as_it_is:
        return language
    inner = language.model
    return SimpleNamespace(
        args=language.args,
        lm_head=view(language.get("lm_head")),
        model=SimpleNamespace(embed_tokens=view(inner.embed_tokens), norm=view(inner.norm)),
    )


def as_it_is(module: Any) -> Any:
    """Return ``module``: the view of a model that computes with MLX."""
    return module


def _qwen3_5(model: Any, view: Callable[[Any], Any]) -> Decoder:
    layers, rotary = [], None
    for whole in model.language_model.model.layers:
        layer = view(whole)
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
            rotary = rotary or _rotary(whole.self_attn.rotary_emb)
        layers.append(
            Layer(layer.input_layernorm, mixer, layer.post_attention_layernorm, _mlp(layer.mlp))
        )
    if rotary is None:
        raise FamilyError("the checkpoint has no full-attention layer, so it has no positions")
    return Decoder(_outer(model, view), layers, rotary)


def _qwen3_vl(model: Any, view: Callable[[Any], Any]) -> Decoder:
    whole, layers = model.language_model.model.layers, []
    for layer in map(view, whole):
        attn = layer.self_attn
        mixer = FullAttention(
            attn, n_heads=attn.n_heads, n_kv=attn.n_kv_heads, head_dim=attn.head_dim, gated=False
        )
        layers.append(
            Layer(layer.input_layernorm, mixer, layer.post_attention_layernorm, _mlp(layer.mlp))
        )
    return Decoder(_outer(model, view), layers, _rotary(whole[0].self_attn.rotary_emb))


def _transpose_experts(weights: dict[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """Bring stacked experts to the older order of axes (experts, in, out).

    transformers 5 saves (experts, out, in). One of the two shapes tells which it is.
    """
    out = dict(weights)
    hidden, inner = text["hidden_size"], text["moe_intermediate_size"]
    for key in (k for k in weights if k.endswith(".experts.gate_up_proj")):
        down = key.replace("gate_up_proj", "down_proj")
        newer = (
            weights[down].shape[1:] == (hidden, inner)
            if hidden == 2 * inner
            else weights[key].shape[1:] == (2 * inner, hidden)
        )
        if newer:
            out.update({name: weights[name].swapaxes(1, 2) for name in (key, down)})
    return out


def _drop_prefix(weights: dict[str, Any], text: Mapping[str, Any]) -> dict[str, Any]:
    """Bring names as transformers 5 saves them to the older ones, which mlx-vlm's model knows."""
    def older(name: str) -> str:
        for new, old in (("model.visual.", "visual."), ("model.language_model.", "model.")):
            if name.startswith(new):
                return old + name.removeprefix(new)
        return name

    return {older(name): value for name, value in weights.items()}


def _swap_activations(model: Any) -> None:
    """Give the vision tower the family's activations: mlx-vlm 0.7.10 has the two exchanged."""
    tower = model.vision_tower
    for block in tower.blocks:
        block.mlp.act_fn = nn.GELU(approx="tanh")
    for merger in (tower.merger, *tower.deepstack_merger_list):
        merger.act_fn = nn.GELU()


_QWEN3_5: Final[Mapping[str, Any]] = {
    "decoder": _qwen3_5,
    "text_values": {
        "attn_output_gate": (True,),
        "mlp_only_layers": _OFF,
        "decoder_sparse_step": (1,),
        "norm_topk_prob": (True,),
    },
    "text_defaults": {"head_dim": 256, "full_attention_interval": 4},
    "layer_types": ("linear_attention", "full_attention"),
    "partial_rotary": 0.25,
    "rope_in_parameters": True,
}
_QWEN3_VL: Final[Mapping[str, Any]] = {
    "decoder": _qwen3_vl,
    "text_values": {
        "attention_bias": _OFF,
        "attn_output_gate": _OFF,
        "norm_topk_prob": (True,),
    },
    "text_defaults": {"head_dim": 128},
}
_QWEN2_5_VL: Final = Family(
    "qwen2_5_vl",
    _qwen3_vl,
    text_values={"attention_bias": (True,), "attn_output_gate": _OFF},
    vision_types=("qwen2_5_vl", "qwen2_5_vl_vision"),
    vision_act="silu",
    interleaved=False,
    flat_text=True,
    arrange=_drop_prefix,
    vision=WindowedEncoder,
    one_block=True,
    pixel_mean=(0.48145466, 0.4578275, 0.40821073),
    pixel_std=(0.26862954, 0.26130258, 0.27577711),
)
FAMILIES: Final = {
    family.model_type: family
    for family in (
        _QWEN2_5_VL,
        Family("qwen3_5", vision_types=("qwen3_5", "qwen3_5_vision"), **_QWEN3_5),
        Family(
            "qwen3_5_moe",
            vision_types=("qwen3_5_moe", "qwen3_5_moe_vision", "qwen3_5", "qwen3_5_vision"),
            experts=True,
            **_QWEN3_5,
        ),
        Family("qwen3_vl", vision_types=("qwen3_vl", "qwen3_vl_vision"), **_QWEN3_VL),
        Family(
            "qwen3_vl_moe",
            vision_types=("qwen3_vl_moe", "qwen3_vl_moe_vision", "qwen3_vl", "qwen3_vl_vision"),
            arrange=_transpose_experts,
            repair=_swap_activations,
            experts=True,
            **{
                **_QWEN3_VL,
                "text_defaults": {
                    "head_dim": 128,
                    "mlp_only_layers": [],
                    "decoder_sparse_step": 1,
                },
            },
        ),
    )
}


def family_of(model_type: object) -> Family:
    """Return the family named by a checkpoint's ``model_type``; raises FamilyError."""
    family = FAMILIES.get(model_type) if isinstance(model_type, str) else None
    if isinstance(model_type, str) and model_type in DECISION_MODELS:
        raise FamilyError(
            f"{model_type!r} is a decision model of one image, which answers in the node, in "
            "`run`, `calibrate` and `bench replay`; here one of "
            f"{', '.join(sorted(FAMILIES))} is needed"
        )
    if family is None:
        raise FamilyError(
            f"model family {model_type!r} is not supported; the supported ones are "
            f"{', '.join(sorted(FAMILIES))}"
        )
    return family
