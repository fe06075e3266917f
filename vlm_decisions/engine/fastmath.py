"""Elementwise functions of the layers; on the CPU five to ten times MLX's speed.

MLX's CPU exp and sigmoid take 13 to 18 ns an element, so in a layer they cost as much as the matrix
products. NumPy's exp is vectorised (about 1 ns), and MLX arrays and NumPy share memory, so on the
CPU these functions evaluate their input and compute in NumPy, in blocks that stay in the cache, on
as many threads as the matrix products use. They are then eager, not lazy. For few elements, on a
GPU, or in half precision, they are MLX's own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Final

import mlx.core as mx
import numpy as np

from . import blas
from .arrays import Array

ON_CPU: Final = mx.default_device() == mx.Device(mx.cpu)
BLOCK: Final = 1 << 15  # elements: 128 KiB of float32
PARALLEL: Final = 8  # blocks from which on several threads share them
LAZY: Final = 1 << 11  # elements up to which evaluating costs more than it saves
# Exponentials below this become 0: denormal numbers make the products after them very slow.
TINY: Final = np.float32(1e-30)
LOG_TINY: Final = np.float32(np.log(1e-30))


def exp(x: Array) -> Array:
    """Return e to the x, and in float32 0 where that is below 1e-30."""

    def block(out: np.ndarray, x: np.ndarray) -> None:
        np.exp(x, out=out)
        np.subtract(out, TINY, out=out)
        np.maximum(out, 0, out=out)

    if _cpu(x):
        return _blocks(block, x)
    return mx.maximum(mx.exp(x) - TINY.item(), 0) if x.dtype == mx.float32 else mx.exp(x)


def exp_of_difference(x: Array, top: Array) -> Array:
    """Return exp(x - top), at least 1e-30; in place where x is NumPy's."""
    if not isinstance(x, np.ndarray):
        return exp(x - top)
    x -= top
    np.maximum(x, LOG_TINY, out=x)
    return np.exp(x, out=x)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x))."""
    return _blocks(_sigmoid, x) if _cpu(x) else mx.sigmoid(x)


def gated(x: Array, gate: Array) -> Array:
    """Return x * sigmoid(gate)."""

    def block(out: np.ndarray, x: np.ndarray, gate: np.ndarray) -> None:
        _one_plus_exp(out, gate)
        np.divide(x, out, out=out)

    return _blocks(block, x, gate) if _cpu(x, gate) else _gated(x, gate)


def silu(x: Array) -> Array:
    """Return x * sigmoid(x)."""
    return _blocks(_silu, x) if _cpu(x) else _gated(x, x)


def swiglu(gate: Array, up: Array) -> Array:
    """Return silu(gate) * up."""

    def block(out: np.ndarray, gate: np.ndarray, up: np.ndarray) -> None:
        _silu(out, gate)
        np.multiply(out, up, out=out)

    return _blocks(block, gate, up) if _cpu(gate, up) else _swiglu(gate, up)


def gelu_tanh(x: Array) -> Array:
    """GELU in its tanh form (the vision tower's)."""

    def block(out: np.ndarray, x: np.ndarray) -> None:
        np.multiply(x, x, out=out)
        np.multiply(out, np.float32(-1.5957691216057308 * 0.044715), out=out)
        np.subtract(out, np.float32(1.5957691216057308), out=out)
        np.multiply(out, x, out=out)
        np.exp(out, out=out)
        np.add(out, 1, out=out)
        np.divide(x, out, out=out)

    return _blocks(block, x) if _cpu(x) else _gelu_tanh(x)


def gelu(x: Array) -> Array:
    """GELU with the error function."""

    def block(out: np.ndarray, x: np.ndarray) -> None:
        # NumPy has no error function. With a = |x| / sqrt(2) and t = 1 / (1 + 0.3275911 a),
        # erfc(a) = exp(-a^2) p(t) within 1.5e-7 (Abramowitz and Stegun, 7.1.26), which is about
        # what float32 can tell; half of it is the normal distribution's tail beyond |x|.
        t = np.abs(x)
        np.multiply(t, np.float32(0.3275911 * 0.7071067811865476), out=t)
        np.add(t, 1, out=t)
        np.reciprocal(t, out=t)
        np.multiply(t, _TAIL[0], out=out)
        for factor in _TAIL[1:]:
            np.add(out, factor, out=out)
            np.multiply(out, t, out=out)
        np.multiply(x, x, out=t)
        np.multiply(t, np.float32(-0.5), out=t)
        np.exp(t, out=t)
        np.multiply(out, t, out=out)
        np.abs(x, out=t)
        np.multiply(out, t, out=t)
        np.maximum(x, 0, out=out)
        np.subtract(out, t, out=out)

    return _blocks(block, x) if _cpu(x) else x * (1 + mx.erf(x * 0.7071067811865476)) * 0.5


# Half of the polynomial p, highest power first.
_TAIL: Final = tuple(
    np.float32(0.5 * one)
    for one in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
)


def softmax(scores: Array, mask: Array | None = None) -> Array:
    """Softmax over the last axis, ``mask`` added to its last columns first.

    scores: (..., R, T). mask: float32 (R, C) with C at most T. On the CPU a weight below 1e-30
    times the largest is raised to that.
    """
    if not _cpu(scores, *(() if mask is None else (mask,))):
        if mask is not None:
            width = scores.shape[-1] - mask.shape[-1]
            last = scores[..., width:] + mask
            scores = mx.concatenate([scores[..., :width], last], axis=-1)
        return mx.softmax(scores, axis=-1, precise=True)
    (whole,), (hide,) = _in_numpy(scores), [None] if mask is None else _in_numpy(mask)
    out = whole if whole is scores else whole.copy()  # MLX's memory is not ours to change
    return _as(_softmax(out, hide), scores)


def attend(q: Array, keys: Array, values: Array, mask: Array) -> Array:
    """Softmax of q @ keys, with ``mask`` added to the last columns, times values.

    q: (kv, G * R, D), scaled: G heads of R tokens read one key head. keys, values: (kv, T, D).
    mask: float32 (R, C) with C at most T. Returns (kv, G * R, D).
    """
    scores = q @ keys.swapaxes(1, 2)
    shape = (-1, mask.shape[0], keys.shape[1])
    if not isinstance(q, np.ndarray):
        return softmax(scores.reshape(shape), mask).reshape(scores.shape) @ values
    _softmax(scores.reshape(shape), mask, norm=False)
    out = scores @ values
    out /= scores.sum(axis=-1, keepdims=True)
    return out


def _softmax(y: np.ndarray, hide: np.ndarray | None, *, norm: bool = True) -> np.ndarray:
    """Softmax of (..., R, T) in place; without ``norm`` the weights do not add up to 1."""
    rows, columns = y.shape[-2:]
    parts = y.reshape(-1, rows, columns)
    width = columns - (0 if hide is None else hide.shape[-1])
    step = max(1, BLOCK // (columns * len(parts)))

    def some(starts: Sequence[int]) -> None:
        for start in starts:
            part = parts[:, start : start + step]
            if hide is not None:
                part[..., width:] += hide[start : start + step]
            part -= part.max(axis=-1, keepdims=True)
            np.maximum(part, LOG_TINY, out=part)
            np.exp(part, out=part)
            if norm:
                part *= 1 / part.sum(axis=-1, keepdims=True)

    _share(some, range(0, rows, step))
    return y


def conv_silu(x: Array, taps: Array, index: np.ndarray) -> Array:
    """Causal depthwise convolution along paths, then SiLU.

    x: (N, C). taps: (K, C). index: int32 (M, K), the rows of x that each output sees, its own
    last. Returns (M, C), added up in float32 whatever the dtype of x.
    """
    kernel = taps.shape[0]
    if not _cpu(x, taps):
        seen, wide = mx.array(index), taps.astype(mx.float32)
        total = sum(mx.take(x, seen[:, j], axis=0) * wide[j] for j in range(kernel))
        return silu(total).astype(x.dtype)
    inputs, weights = _in_numpy(x, taps)
    out = np.empty((len(index), x.shape[1]), np.float32)
    step = max(1, BLOCK // out.shape[1])

    def some(starts: Sequence[int]) -> None:
        scratch = np.empty((2, min(step, len(out)), out.shape[1]), np.float32)
        for start in starts:
            part = index[start : start + step]
            total, term = scratch[:, : len(part)]
            np.take(inputs, part[:, 0], axis=0, out=total, mode="clip")  # "raise" would copy
            np.multiply(total, weights[0], out=total)
            for j in range(1, kernel):
                np.take(inputs, part[:, j], axis=0, out=term, mode="clip")
                np.multiply(term, weights[j], out=term)
                np.add(total, term, out=total)
            _silu(out[start : start + step], total)

    _share(some, range(0, len(out), step))
    return _as(out, x)


# ---- NumPy blocks ------------------------------------------------------------------------------


def _cpu(*arrays: Array) -> bool:
    """Whether to compute in NumPy."""
    return isinstance(arrays[0], np.ndarray) or (
        ON_CPU
        and arrays[0].size > LAZY
        and all(array.dtype == mx.float32 for array in arrays)
    )


def _in_numpy(*arrays: Array) -> list[np.ndarray]:
    """Return the arrays as NumPy's, in order, on the same memory."""
    if isinstance(arrays[0], np.ndarray):
        return [np.ascontiguousarray(array) for array in arrays]
    arrays = tuple(mx.contiguous(array) for array in arrays)
    mx.eval(arrays)
    return [np.asarray(array) for array in arrays]


def _as(out: np.ndarray, like: Array) -> Array:
    return out if isinstance(like, np.ndarray) else mx.array(out)


def _blocks(function: Callable[..., None], *arrays: Array) -> Array:
    """Run ``function(out, *inputs)`` over blocks of arrays of one shape."""
    inputs = _in_numpy(*arrays)
    out = np.empty(arrays[0].shape, np.float32)
    if out.size <= BLOCK:
        with np.errstate(over="ignore", invalid="ignore"):
            function(out, *inputs)
        return _as(out, arrays[0])
    flat = [array.reshape(-1) for array in inputs]
    target = out.reshape(-1)

    def some(starts: Sequence[int]) -> None:
        for start in starts:
            part = slice(start, start + BLOCK)
            function(target[part], *(array[part] for array in flat))

    _share(some, range(0, target.size, BLOCK))
    return _as(out, arrays[0])


def _share(run: Callable[[Sequence], None], parts: Sequence) -> None:
    """Call ``run`` on all of ``parts``, dealt out to threads (NumPy's loops hold no lock)."""

    def quiet(some: Sequence) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # a thread has its own
            run(some)

    n = blas.threads() if len(parts) >= PARALLEL else 1
    if n == 1:
        quiet(parts)
        return
    size = -(-len(parts) // n)
    mine, *others = (parts[i : i + size] for i in range(0, len(parts), size))
    waiting = [_pool().submit(quiet, some) for some in others]
    quiet(mine)
    for one in waiting:
        one.result()


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(blas.threads(), thread_name_prefix="fastmath")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a child has no thread but its own


def _one_plus_exp(out: np.ndarray, x: np.ndarray) -> None:
    np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)


def _sigmoid(out: np.ndarray, x: np.ndarray) -> None:
    _one_plus_exp(out, x)
    np.reciprocal(out, out=out)


def _silu(out: np.ndarray, x: np.ndarray) -> None:
    _one_plus_exp(out, x)
    np.divide(x, out, out=out)


# ---- MLX's own, fused on a GPU -----------------------------------------------------------------
# On the CPU fusing would call a C++ compiler the first time, for seconds, or do nothing without.


def _fused(function: Callable[..., mx.array]) -> Callable[..., mx.array]:
    return function if ON_CPU else mx.compile(function)


@_fused
def _gated(x: mx.array, gate: mx.array) -> mx.array:
    return x * mx.sigmoid(gate)


@_fused
def _swiglu(gate: mx.array, up: mx.array) -> mx.array:
    return gate * mx.sigmoid(gate) * up


@_fused
def _gelu_tanh(x: mx.array) -> mx.array:
    return x * mx.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
