"""Elementwise functions of the layers; on the CPU five to ten times MLX's speed.

MLX's CPU exp and sigmoid take 13 to 18 ns an element, so in a layer they cost as much as the matrix
products. NumPy's exp is vectorised (about 1 ns), and MLX arrays and NumPy share memory, so on the
CPU these functions evaluate their input and compute in NumPy, in blocks that stay in the cache, on
as many threads as the matrix products use. They are then eager, not lazy. For few elements, on a
GPU, or in half precision, they are MLX's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Final

import mlx.core as mx
import numpy as np

from . import blas

ON_CPU: Final = mx.default_device() == mx.Device(mx.cpu)
BLOCK: Final = 1 << 15  # elements: 128 KiB of float32
PARALLEL: Final = 8  # blocks from which on several threads share them
LAZY: Final = 1 << 11  # elements up to which evaluating costs more than it saves
# Exponentials below this become 0: denormal numbers make the products after them very slow.
TINY: Final = np.float32(1e-30)


def exp(x: mx.array) -> mx.array:
    """Return e to the x, and in float32 0 where that is below 1e-30."""

    def block(out: np.ndarray, x: np.ndarray) -> None:
        np.exp(x, out=out)
        np.subtract(out, TINY, out=out)
        np.maximum(out, 0, out=out)

    if _cpu(x):
        return _blocks(block, x)
    return mx.maximum(mx.exp(x) - TINY.item(), 0) if x.dtype == mx.float32 else mx.exp(x)


def sigmoid(x: mx.array) -> mx.array:
    """Return 1 / (1 + exp(-x))."""
    return _blocks(_sigmoid, x) if _cpu(x) else mx.sigmoid(x)


def gated(x: mx.array, gate: mx.array) -> mx.array:
    """Return x * sigmoid(gate)."""

    def block(out: np.ndarray, x: np.ndarray, gate: np.ndarray) -> None:
        _one_plus_exp(out, gate)
        np.divide(x, out, out=out)

    return _blocks(block, x, gate) if _cpu(x, gate) else _gated(x, gate)


def silu(x: mx.array) -> mx.array:
    """Return x * sigmoid(x)."""
    return _blocks(_silu, x) if _cpu(x) else _gated(x, x)


def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """Return silu(gate) * up."""

    def block(out: np.ndarray, gate: np.ndarray, up: np.ndarray) -> None:
        _silu(out, gate)
        np.multiply(out, up, out=out)

    return _blocks(block, gate, up) if _cpu(gate, up) else _swiglu(gate, up)


def gelu_tanh(x: mx.array) -> mx.array:
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


def gelu(x: mx.array) -> mx.array:
    """GELU with the error function."""
    return x * (1 + mx.erf(x * 0.7071067811865476)) * 0.5


def softmax(scores: mx.array, mask: mx.array) -> mx.array:
    """Softmax over the last axis, ``mask`` added to its last columns first.

    scores: (..., R, T). mask: float32 (R, C) with C at most T. A weight below 1e-30 times the
    largest becomes 0.
    """
    width = scores.shape[-1] - mask.shape[-1]
    if not _cpu(scores, mask):
        hidden = mx.concatenate([scores[..., :width], scores[..., width:] + mask], axis=-1)
        return mx.softmax(hidden, axis=-1, precise=True)
    scores = mx.contiguous(scores)
    mx.eval(scores, mask)
    rows, columns = scores.shape[-2:]
    inputs, hide = np.asarray(scores).reshape(-1, rows, columns), np.asarray(mask)
    out = np.empty(inputs.shape, np.float32)
    step = max(1, BLOCK // (columns * len(inputs)))

    def some(starts: Sequence[int]) -> None:
        for start in starts:
            part = slice(start, start + step)
            y = out[:, part]
            y[..., :width] = inputs[:, part, :width]
            np.add(inputs[:, part, width:], hide[part], out=y[..., width:])
            np.subtract(y, y.max(axis=-1, keepdims=True), out=y)
            np.exp(y, out=y)
            np.subtract(y, TINY, out=y)
            np.maximum(y, 0, out=y)
            np.multiply(y, 1 / y.sum(axis=-1, keepdims=True), out=y)

    _share(some, range(0, rows, step))
    return mx.array(out).reshape(scores.shape)


def conv_silu(x: mx.array, taps: mx.array, index: np.ndarray) -> mx.array:
    """Causal depthwise convolution along paths, then SiLU.

    x: (N, C). taps: (K, C). index: int32 (M, K), the rows of x that each output sees, its own
    last. Returns (M, C), added up in float32 whatever the dtype of x.
    """
    kernel = taps.shape[0]
    if not _cpu(x, taps):
        seen, wide = mx.array(index), taps.astype(mx.float32)
        total = sum(mx.take(x, seen[:, j], axis=0) * wide[j] for j in range(kernel))
        return silu(total).astype(x.dtype)
    x, taps = mx.contiguous(x), mx.contiguous(taps)
    mx.eval(x, taps)
    inputs, weights = np.asarray(x), np.asarray(taps)
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
    return mx.array(out)


# ---- NumPy blocks ------------------------------------------------------------------------------


def _cpu(*arrays: mx.array) -> bool:
    """Whether to compute in NumPy."""
    return (
        ON_CPU
        and arrays[0].size > LAZY
        and all(array.dtype == mx.float32 for array in arrays)
    )


def _blocks(function: Callable[..., None], *arrays: mx.array) -> mx.array:
    """Run ``function(out, *inputs)`` over blocks of arrays of one shape."""
    arrays = tuple(mx.contiguous(array) for array in arrays)
    mx.eval(arrays)
    flat = [np.asarray(array).reshape(-1) for array in arrays]
    out = np.empty(arrays[0].shape, np.float32)
    target = out.reshape(-1)

    def some(starts: Sequence[int]) -> None:
        for start in starts:
            part = slice(start, start + BLOCK)
            function(target[part], *(array[part] for array in flat))

    _share(some, range(0, target.size, BLOCK))
    return mx.array(out)


def _share(run: Callable[[Sequence], None], parts: Sequence) -> None:
    """Call ``run`` on all of ``parts``, dealt out to threads (NumPy's loops hold no lock)."""

    def quiet(some: Sequence) -> None:
        with np.errstate(over="ignore"):  # a thread has its own
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
