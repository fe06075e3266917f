"""MLX's packed (quantised) weights: unpacked once, unpacked in each pass, or left to MLX.

On a GPU MLX multiplies packed weights itself. On a CPU its packed product takes about a
millisecond a row for a million weights, where unpacking them all takes four and a BLAS product of
300 rows ten: so they are unpacked once where memory allows, and otherwise for each product of more
than a few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_unflatten

from .errors import CheckpointError

FEW_ROWS: Final = 8  # rows up to which MLX's packed product is no slower than unpacking
PARTS: Final = ("weight", "scales", "biases")


class Packing:
    """How each module's weights are packed: group size, bits and mode by path."""

    def __init__(self, stated: Mapping[str, Any]) -> None:
        """Take config.json's ``quantization``."""
        self._stated = stated

    def of(self, path: str) -> dict[str, Any]:
        """Return group_size, bits and mode of the module at ``path``."""
        general = {key: self._stated[key] for key in ("group_size", "bits")}
        general["mode"] = self._stated.get("mode", "affine")
        short = path.removeprefix("language_model.")
        aliases = (
            path,
            short,
            path.replace("language_model.model.", "model.language_model.", 1),
            path.replace("vision_tower.", "model.visual.", 1),
        )
        own = next((self._stated[a] for a in aliases if isinstance(self._stated.get(a), dict)), {})
        return {**general, **{key: own[key] for key in general if key in own}}

    def check(self, weights: Mapping[str, mx.array]) -> None:
        """Raise CheckpointError unless the packed arrays have the shapes that is stated."""
        for path in packed_paths(weights):
            how, weight, scales = self.of(path), *(weights[f"{path}.{p}"] for p in PARTS[:2])
            self._check_mode(path, how["mode"], scales, f"{path}.biases" in weights)
            columns = scales.shape[-1] * how["group_size"]
            if weight.dtype != mx.uint32 or 32 * weight.shape[-1] != columns * how["bits"]:
                raise CheckpointError(
                    f"{path} is stated to be packed with {how['bits']} bits in groups of "
                    f"{how['group_size']}, which does not fit weights {weight.shape} with scales "
                    f"{scales.shape}"
                )

    @staticmethod
    def _check_mode(path: str, mode: str, scales: mx.array, biased: bool) -> None:
        """Raise CheckpointError where scales and biases are those of another mode."""
        affine = scales.dtype != mx.uint8 and biased
        if affine != (mode == "affine") or biased != affine:
            kind = "one byte each" if scales.dtype == mx.uint8 else "floating-point"
            right = ("floating-point scales and biases" if mode == "affine" else
                     "scales of one byte each and no biases")
            raise CheckpointError(
                f"{path} is stated to be packed in the mode {mode!r}, which has {right}; its "
                f"scales are {kind} with{'' if biased else 'out'} biases"
                + (", as in the mode 'affine'" if affine else ""))

    def unpack(self, weights: Mapping[str, mx.array]) -> dict[str, mx.array]:
        """Return ``weights`` with all packed ones as float32."""
        out = dict(weights)
        for path in packed_paths(weights):
            out[f"{path}.weight"] = unpack(*(out.pop(f"{path}.{p}", None) for p in PARTS),
                                           **self.of(path))  # fmt: skip
        return out

    def install(self, model: nn.Module, weights: Mapping[str, mx.array]) -> None:
        """Give ``model`` modules for packed weights where ``weights`` has them."""

        def how(path: str, module: nn.Module) -> bool | dict[str, Any]:
            return f"{path}.scales" in weights and hasattr(module, "to_quantized") and self.of(path)

        nn.quantize(model, class_predicate=how)


def packed_paths(weights: Mapping[str, Any]) -> list[str]:
    """Paths of the modules whose weights are packed."""
    return sorted(key.removesuffix(".scales") for key in weights if key.endswith(".scales"))


def unpack(
    weight: mx.array, scales: mx.array, biases: mx.array | None, **how: Any
) -> mx.array:
    """Packed weights as float32."""
    if scales.dtype != mx.uint8:
        scales = scales.astype(mx.float32)
        biases = None if biases is None else biases.astype(mx.float32)
    return mx.dequantize(weight, scales, biases, **how).astype(mx.float32)


class UnpackingLinear(nn.Module):
    """A packed linear layer for the CPU, unpacked for each product of more than a few rows."""

    def __init__(self, packed: nn.QuantizedLinear) -> None:
        """Take over the weights of ``packed``."""
        super().__init__()
        self.packed = packed

    def __call__(self, x: mx.array) -> mx.array:
        """Multiply x (..., D)."""
        one = self.packed
        if x.size // x.shape[-1] <= FEW_ROWS:
            return one(x)
        weight = unpack(one.weight, one.scales, one.get("biases"), group_size=one.group_size,
                        bits=one.bits, mode=one.mode)  # fmt: skip
        y = x @ weight.astype(x.dtype).T
        return y + one.bias if "bias" in one else y


def unpack_modules(model: nn.Module, wanted: Callable[[str], bool] = lambda path: True) -> None:
    """Replace the packed layers and embeddings at ``wanted`` paths by plain ones in float32."""
    new = []
    for path, module in model.named_modules():
        if not isinstance(module, (nn.QuantizedLinear, nn.QuantizedEmbedding)) or not wanted(path):
            continue
        how = {key: getattr(module, key) for key in ("group_size", "bits", "mode")}
        weight = unpack(module.weight, module.scales, module.get("biases"), **how)
        if isinstance(module, nn.QuantizedEmbedding):
            plain = nn.Embedding(1, 1)
        else:
            plain = nn.Linear(1, 1, bias="bias" in module)
            if "bias" in module:
                plain.bias = module.bias
        plain.weight = weight
        new.append((path, plain))
    model.update_modules(tree_unflatten(new))


def unpack_in_passes(model: nn.Module) -> None:
    """Replace the packed linear layers of a model on the CPU."""
    # Position embeddings are small, and MLX gives those of some modes in bfloat16.
    unpack_modules(model, lambda path: path.endswith("pos_embed"))
    new = [
        (path, UnpackingLinear(module))
        for path, module in model.named_modules()
        if isinstance(module, nn.QuantizedLinear) and not path.endswith("lm_head")
    ]
    model.update_modules(tree_unflatten(new))
