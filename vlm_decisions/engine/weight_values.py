"""The values of a loaded model's weights: not finite ones are refused, zero matrices are named.

The bits of a number without its sign are ordered as its size is. So their largest tells both at
once, in any number type, without an overflow of its own: beyond infinity's a value is not finite,
at 0 all are zero. That costs a third to half a nanosecond a value on a CPU.
"""

from __future__ import annotations

from typing import Final

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from ..files.listing import listed
from . import fastmath
from .errors import CheckpointError

_BITS: Final = {2: mx.uint16, 4: mx.uint32}
_INFINITY: Final = {mx.float32: 0x7F800000, mx.bfloat16: 0x7F80, mx.float16: 0x7C00}
_BLOCK: Final = {True: 1 << 16, False: 1 << 26}  # values at a time, on a CPU and on a GPU
NAMED: Final = 3  # names in one message


def check_values(model: nn.Module, source: object) -> tuple[str, ...]:
    """Look at each value of ``model`` once; raises CheckpointError where one is not finite.

    source: where the weights come from, for the message. Returns sentences about weights that are
    zero throughout (biases may be).
    """
    broken, zero = [], []
    for name, value in tree_flatten(model.parameters()):
        if value.dtype not in _INFINITY:
            continue
        largest = _largest_bits(value, stacked=".switch_mlp." in name)
        path, _, part = name.rpartition(".")
        named = path if part == "scales" else name
        if largest.max() >= 2 * _INFINITY[value.dtype]:
            broken.append(name)
        elif largest.max() == 0 and part in ("weight", "scales"):
            zero.append(named)
        elif part in ("weight", "scales"):
            zero += [f"{named} (expert {i})" for i in np.flatnonzero(largest == 0)]
    broken += [
        f"{path}.scales" for path, module in model.named_modules() if _holds_no_number(module)
    ]
    if broken:
        kinds = {str(v.dtype).removeprefix("mlx.core.") for k, v in tree_flatten(model.parameters())
                 if k in broken}  # fmt: skip
        raise CheckpointError(
            f"the weights in {source} hold values that are not finite "
            f"({', '.join(sorted(kinds))}): {listed(broken, NAMED)}"
        )
    if not zero:
        return ()
    return (f"all values are zero in {listed(zero, NAMED)}: were they downloaded in whole?",)


def _largest_bits(value: mx.array, *, stacked: bool) -> np.ndarray:
    """Return twice the bits of the largest absolute value, a NaN counting as the largest.

    stacked: of each matrix of a stack, else of all, (1,).
    """
    rows = value.view(_BITS[value.dtype.size]).reshape(value.shape[0] if stacked else 1, -1)
    bits = np.asarray(rows) if fastmath.ON_CPU else rows
    step = max(1, _BLOCK[fastmath.ON_CPU] // len(bits))
    return np.max([np.array((bits[:, at : at + step] << 1).max(axis=1))
                   for at in range(0, bits.shape[1], step)], axis=0)  # fmt: skip


def _holds_no_number(module: nn.Module) -> bool:
    """Whether a packed module has a scale that stands for no number."""
    scales = module.get("scales")
    if scales is None or scales.dtype != mx.uint8:
        return False
    wrong = scales == 255
    if module.mode == "nvfp4":  # its scales have a sign
        wrong = wrong | (scales == 127)
    return bool(wrong.any().item())
