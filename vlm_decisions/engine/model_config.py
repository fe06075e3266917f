"""A checkpoint's config.json as mlx-vlm's model classes take it, or a refusal by name.

Checkpoints state the same thing in several forms (what transformers 4 and 5 write differs), and a
model class silently ignores what it does not know. So the forms are brought to one, and a stated
value that changes the model and is not implemented is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .errors import CheckpointError
from .families import FAMILIES, Family, family_of
from .json_object import read_json

PLAIN_ROPE: Final = ("default", "mrope")
MODES: Final = {"affine": (2, 3, 4, 5, 6, 8), "mxfp4": (4,), "nvfp4": (4,), "mxfp8": (8,)}
_OFF: Final = (None, False, 0, 0.0, [], {})
# Stated values that every family's layers are built for; what is not stated is one of them.
_TEXT: Final[Mapping[str, tuple]] = {
    "hidden_act": ("silu",),
    "use_sliding_window": _OFF,
    "attn_logit_softcapping": _OFF,
    "final_logit_softcapping": _OFF,
    "mlp_bias": _OFF,
    "use_final_norm": (True,),
    "residual_multiplier": (1, 1.0, None),
    "embedding_multiplier": (1, 1.0, None),
    "logits_scaling": (1, 1.0, None),
}
# What these count or measure is at least one.
_TEXT_COUNTS: Final = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "intermediate_size", "max_position_embeddings", "full_attention_interval",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
    "linear_value_head_dim", "linear_conv_kernel_dim",
)  # fmt: skip
_EXPERT_COUNTS: Final = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
_VISION_COUNTS: Final = (
    "depth", "hidden_size", "intermediate_size", "num_heads", "patch_size", "temporal_patch_size",
    "spatial_merge_size", "in_channels", "in_chans", "out_hidden_size", "num_position_embeddings",
    "window_size", "tokens_per_second",
)  # fmt: skip
_NOT_ROPE: Final = ("rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor")


@dataclass(frozen=True)
class ModelConfig:
    """A checkpoint's configuration.

    values: for mlx-vlm's ``ModelConfig.from_dict``. quantization: MLX's packing of the weights
    (group_size, bits, mode and exceptions by path), None for plain weights. tied: what is stated
    about the output matrix being the embedding's, None where nothing is.
    """

    family: Family
    values: dict[str, Any]
    quantization: dict[str, Any] | None
    tied: bool | None


def read_config(folder: Path) -> ModelConfig:
    """Read and check the config.json in ``folder``; raises CheckpointError, FamilyError."""
    path = folder / "config.json"
    raw = copy.deepcopy(read_json(path))
    kind = raw.get("model_type")
    if isinstance(kind, str) and kind.removesuffix("_text") != kind:
        if kind.removesuffix("_text") in FAMILIES:
            raise CheckpointError(_text_only(path))
    family = family_of(kind)
    vision = raw.get("vision_config")
    if not vision:
        raise CheckpointError(_text_only(path))
    if isinstance(vision, dict):  # null is not stated: then mlx-vlm knows what the family has
        vision = {key: value for key, value in vision.items() if value is not None}
    text = raw.get("text_config")
    if text is None and family.flat_text:
        text = {key: value for key, value in raw.items() if not isinstance(value, dict)}
        text.update({key: raw[key] for key in _NOT_ROPE if key in raw})
    for name, part in (("text_config", text), ("vision_config", vision)):
        if not isinstance(part, dict):
            raise CheckpointError(f"{path} has no {name}")
    quantization = read_quantization(folder, raw, text)
    stated = (raw.get("tie_word_embeddings"), text.get("tie_word_embeddings"))
    for one in stated:
        if not isinstance(one, bool | None):
            raise CheckpointError(f"{path} states tie_word_embeddings {one!r}: not true or false")
    _check(path, text, {**_TEXT, **family.text_values})
    _check(path, vision, {"hidden_act": (family.vision_act,), **family.vision_values})
    _check_windows(path, text, family)
    if "num_local_experts" in text:  # transformers 5's name for it
        text.setdefault("num_experts", text["num_local_experts"])
    counts = (*_TEXT_COUNTS, *(_EXPERT_COUNTS if family.experts else ()))
    _check_counts(path, "text_config", text, counts, ("num_attention_heads", "num_key_value_heads"))
    if family.experts and (text.get("num_experts_per_tok") or 0) > (text.get("num_experts") or 0):
        raise CheckpointError(f"{path} states {text['num_experts_per_tok']} experts a token of "
                              f"{text.get('num_experts')}")
    _rope(path, raw, text, family)
    _vision(path, vision, family)
    _check_counts(path, "vision_config", vision, _VISION_COUNTS, ("hidden_size", "num_heads"))
    _check_window(path, vision)
    for key, value in family.text_defaults.items():
        if text.get(key) is None:
            text[key] = value
    values = {key: value for key, value in raw.items() if "quantization" not in key}
    values.update(text_config=text, vision_config=vision, model_type=family.model_type)
    outer, inner = stated
    # Written both ways by some versions: then the weights tell.
    tied = None if outer is False and inner else inner if outer is None else outer
    return ModelConfig(family, values, quantization, tied)


def _check_window(path: Path, vision: Mapping[str, Any]) -> None:
    """Refuse windows of the vision tower that hold no visual token."""
    size, sides = vision.get("window_size"), (vision.get("patch_size"),
                                              vision.get("spatial_merge_size"))
    if size and all(sides) and size < sides[0] * sides[1]:
        raise CheckpointError(f"{path} states window_size {size}: below one visual token "
                              f"({sides[0]} x {sides[1]} pixels)")


def _text_only(path: Path) -> str:
    return (
        f"{path} describes a language model without a vision tower; "
        f"a checkpoint with one is needed ({', '.join(sorted(FAMILIES))})"
    )


def _check(path: Path, part: Mapping[str, Any], allowed: Mapping[str, tuple]) -> None:
    for key, values in allowed.items():
        if key in part and part[key] is not None and part[key] not in values:
            good = ", ".join(dict.fromkeys(repr(v) for v in values if v not in (None, [], {})))
            raise CheckpointError(
                f"{path} states {key} {part[key]!r}, which is not implemented"
                + (f" (implemented: {good})" if good else "")
            )


def _check_counts(
    path: Path, name: str, part: Mapping[str, Any], keys: Sequence[str], divided: tuple[str, str]
) -> None:
    """Refuse counts that are none, and a first one of ``divided`` that is no multiple."""
    for key in keys:
        value = part.get(key)
        if value is not None and (type(value) is not int or value < 1):
            raise CheckpointError(
                f"{path} states {key} {value!r} in {name}: not a whole number above 0"
            )
    whole, parts = (part.get(key) for key in divided)
    if whole and parts and whole % parts:
        raise CheckpointError(
            f"{path} states {divided[0]} {whole} and {divided[1]} {parts} in {name}: the first "
            "must be a multiple of the second"
        )


def _check_windows(path: Path, text: dict[str, Any], family: Family) -> None:
    """Refuse attention that does not see the whole sequence, and other patterns of layers."""
    if text.get("sliding_window") and text.get("use_sliding_window") is not False:
        raise CheckpointError(
            f"{path} states sliding_window {text['sliding_window']}, which is not implemented: "
            "every layer sees the whole sequence"
        )
    kinds = text.get("layer_types")
    if kinds is None:
        return
    if not isinstance(kinds, list):
        raise CheckpointError(f"{path} states layer_types {kinds!r}: not a list")
    known = family.layer_types
    other = sorted({str(kind) for kind in kinds} - set(known))
    if other:
        raise CheckpointError(
            f"{path} states layer_types {', '.join(other)}, which are not implemented "
            f"(implemented: {', '.join(known)})"
        )
    if len(kinds) != text.get("num_hidden_layers"):
        raise CheckpointError(
            f"{path} states {len(kinds)} layer_types for {text.get('num_hidden_layers')} layers"
        )
    if len(known) == 1:
        return
    if "full_attention" not in kinds:
        raise CheckpointError(f"{path} has no full-attention layer, so it has no positions")
    every = kinds.index("full_attention") + 1
    regular = [known[(i + 1) % every == 0] for i in range(len(kinds))]
    if list(kinds) != regular or text.get("full_attention_interval", every) != every:
        raise CheckpointError(
            f"{path} states layer_types that are not one full-attention layer in every "
            f"{text.get('full_attention_interval', every)}, which is not implemented"
        )
    text["full_attention_interval"] = every


def _rope(path: Path, raw: dict[str, Any], text: dict[str, Any], family: Family) -> None:
    """Bring the forms of the rotary positions to the one that the family's module reads."""
    stated = [part.get(key) for part in (text, raw) for key in ("rope_parameters", "rope_scaling")]
    for part in stated:
        if part is not None and not isinstance(part, dict):
            raise CheckpointError(f"{path} states rotary positions {part!r}: not an object")
        for kind in ((part or {}).get(key, "default") for key in ("rope_type", "type")):
            if kind not in PLAIN_ROPE:  # wherever it is stated, also where nothing reads it
                raise CheckpointError(
                    f"{path} states the rope type {kind!r}, which is not implemented "
                    f"(implemented: {', '.join(PLAIN_ROPE)})"
                )
    rope: dict[str, Any] = {}
    for part in stated[:2]:
        rope.update({key: value for key, value in (part or {}).items() if key not in rope})
    if any(isinstance(value, dict) for value in rope.values()):
        raise CheckpointError(f"{path} states rotary positions by layer: not implemented")
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in text and rope.setdefault(key, text[key]) != text[key]:
            raise CheckpointError(f"{path} states {key} {text[key]!r} and {rope[key]!r}")
    if rope.get("rope_theta") is None:
        raise CheckpointError(f"{path} states no rope_theta")
    if rope.setdefault("mrope_interleaved", family.interleaved) != family.interleaved:
        raise CheckpointError(
            f"{path} states mrope_interleaved {rope['mrope_interleaved']!r}, which is not "
            f"implemented for {family.model_type}"
        )
    factor = rope.setdefault("partial_rotary_factor", family.partial_rotary)
    if type(factor) not in (int, float) or not 0 < factor <= 1:
        raise CheckpointError(
            f"{path} states partial_rotary_factor {factor!r}: not a share between 0 and 1"
        )
    if not family.rope_in_parameters and factor != 1.0:
        raise CheckpointError(
            f"{path} states partial_rotary_factor {factor!r}, which is not implemented for "
            f"{family.model_type}"
        )
    section = rope.get("mrope_section")
    head = text.get("head_dim") or family.text_defaults.get("head_dim") or (
        text.get("hidden_size", 0) // (text.get("num_attention_heads") or 1)
    )
    counts = isinstance(section, list) and all(type(n) is int and n >= 0 for n in section)
    if not counts or len(section) != 3 or 2 * sum(section) != int(head * factor):
        raise CheckpointError(
            f"{path} states mrope_section {section!r}, which must be three whole numbers (time, "
            f"rows, columns) that add up to half the rotated dimensions of a head "
            f"({int(head * factor)})"
        )
    rope["type"] = "default"
    rope.pop("rope_type", None)
    for key in _NOT_ROPE:
        text.pop(key, None)
    if family.rope_in_parameters:
        text["rope_parameters"] = rope
    else:
        text["rope_theta"], text["rope_scaling"] = rope["rope_theta"], rope


def _vision(path: Path, vision: dict[str, Any], family: Family) -> None:
    kind = vision.get("model_type", family.model_type)
    if kind not in family.vision_types:
        raise CheckpointError(
            f"{path} states a vision tower of the type {kind!r}; {family.model_type} has "
            f"{', '.join(family.vision_types)}"
        )
    vision["model_type"] = family.model_type
    for key in ("patch_size", "temporal_patch_size"):
        if isinstance(vision.get(key), list) and len(set(vision[key])) == 1:
            vision[key] = vision[key][0]
    blocks, depth = vision.get("fullatt_block_indexes", []), vision.get("depth")
    if not isinstance(blocks, list) or not all(
            type(one) is int and 0 <= one < (depth or one + 1) for one in blocks):
        raise CheckpointError(f"{path} states fullatt_block_indexes {blocks!r} for a vision tower "
                              f"of {depth} layers: not a list of its layers")
    rope = vision.get("rope_parameters", {})
    if not isinstance(rope, dict):
        raise CheckpointError(f"{path} states rotary positions {rope!r} for the vision tower: not "
                              "an object")
    kind, theta = rope.get("rope_type", "axial"), rope.get("rope_theta", 10000)
    if kind not in ("axial", "default") or theta != 10000:
        raise CheckpointError(
            f"{path} states rotary positions {kind!r} with theta {theta!r} for the vision tower, "
            "which are not implemented (implemented: 'axial' with 10000)"
        )


def read_quantization(
    folder: Path, raw: Mapping[str, Any], text: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return MLX's packing, None where there is none; raises CheckpointError for another.

    raw: the config.json of ``folder``; text: its language model's settings.
    """
    path, keys = folder / "config.json", ("quantization", "quantization_config")
    stated = [part[key] for part in (raw, text) for key in keys if part.get(key) not in (None, {})]
    other = folder / "hf_quant_config.json"
    if not stated and other.exists():
        stated = [{"quant_method": "modelopt", **read_json(other)}]
    if not stated:
        return None
    packing = stated[0]
    if not isinstance(packing, dict):
        raise CheckpointError(f"{path} states a quantisation {packing!r}: not an object")
    if "group_size" not in packing or "bits" not in packing:
        method = packing.get("quant_method", "unknown")
        raise CheckpointError(
            f"{path} states quantisation by {method!r}, which is not implemented "
            f"(implemented: MLX's own, as mlx_vlm.convert writes it: {', '.join(MODES)})"
        )
    for name, one in (("", packing), *packing.items()):
        if isinstance(one, dict):
            where = f" of {name}" if name else ""
            for key in ("group_size", "bits"):
                if one.get(key) is not None and type(one[key]) is not int:
                    raise CheckpointError(f"{path} states the {key} {one[key]!r} of its "
                                          f"quantisation{where}: not a whole number")
            mode, bits = str(one.get("mode", packing.get("mode", "affine"))), one.get("bits")
            if mode not in MODES or bits is not None and bits not in MODES[mode]:
                raise CheckpointError(
                    f"{path} states {bits}-bit quantisation{where} in the mode {mode!r}, which is "
                    f"not implemented (implemented: "
                    f"{'; '.join(f'{m} {b}' for m, b in MODES.items())})"
                )
    return packing
