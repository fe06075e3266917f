"""What the layers need of an array beyond its own methods, for MLX's arrays and NumPy's alike.

A small model on a CPU runs on NumPy arrays: its products are over before MLX has scheduled them.
Everything else runs on MLX's. The layers are written once, over whichever they are given.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import mlx.core as mx
import numpy as np

Array = Any  # an mx.array or a np.ndarray


def module_of(array: Array) -> Any:
    """Return numpy or mlx.core, whichever ``array`` belongs to."""
    return np if isinstance(array, np.ndarray) else mx


def cast(array: Array, dtype: Any) -> Array:
    """``array`` in ``dtype``; itself where it is."""
    return array if array.dtype == dtype else array.astype(dtype)


def wide(array: Array) -> Array:
    """``array`` as float32."""
    return cast(array, module_of(array).float32)


def contiguous(array: Array) -> Array:
    """``array`` with a memory of its own, in order."""
    return array.copy() if isinstance(array, np.ndarray) else mx.contiguous(array)


def joined(parts: list[Array], axis: int = 0) -> Array:
    """Concatenate; a single part is returned itself."""
    return parts[0] if len(parts) == 1 else module_of(parts[0]).concatenate(parts, axis=axis)


def evaluate(*arrays: Any) -> None:
    """Compute MLX's arrays (or lists of them) now; NumPy's are."""
    mx.eval([one for one in arrays if not isinstance(one, np.ndarray)])


def rms_norm(x: Array, weight: Array, eps: float) -> Array:
    """``x`` divided by the root mean square of its last axis, times ``weight``.

    In NumPy the weight may be one number.
    """
    if not isinstance(x, np.ndarray):
        return mx.fast.rms_norm(x, weight, eps)
    rows = x.reshape(-1, x.shape[-1])
    out = rows * rows
    factor = np.dot(out, _averaging(rows.shape[1]))
    factor += eps
    np.sqrt(factor, out=factor)
    np.reciprocal(factor, out=factor)
    one = np.ndim(weight) == 0
    if one:
        factor *= weight
    np.multiply(rows, factor[:, None], out=out)
    if not one:
        out *= weight
    return out.reshape(x.shape)


@lru_cache(maxsize=16)
def _averaging(n: int) -> np.ndarray:
    """Weights (n,) of a mean: BLAS adds up faster than NumPy."""
    return np.full(n, 1 / n, np.float32)
