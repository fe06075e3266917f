"""Elementwise functions of the layers, fused, and on the CPU about five times MLX's speed.

MLX's CPU exp and sigmoid take 13 to 18 ns an element, so in a layer they cost as much as the matrix
products. Here they are polynomials of multiplications and additions only, which ``mx.compile``
turns into one loop that the C++ compiler vectorises. Where there is no compiler (then MLX runs
each operation by itself) or on a GPU, MLX's own functions are used.

Errors measured against float64: exp 1e-7 relative, sigmoid 2e-7 absolute; MLX's own have 9e-7 and
9e-8.
"""

from __future__ import annotations

import shutil
from typing import Final

from vlm_decisions.engine import blas

blas.ensure()

import mlx.core as mx  # noqa: E402

POLYNOMIALS: Final = mx.default_device() == mx.Device(mx.cpu) and shutil.which("g++") is not None

# tanh(x) = x P(x^2) / Q(x^2), the rational approximation used by Eigen; beyond the clip it is 1.
_TANH_CLIP: Final = 7.90531110763549805
_TANH_P: Final = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_Q: Final = (
    1.19825839466702e-06,
    1.18534705686654e-04,
    2.26843463243900e-03,
    4.89352518554385e-03,
)
# exp(x) = 2^n exp(f), f = x - n ln 2 in two parts, exp(f) by Cephes' polynomial.
_LN2: Final = (0.693359375, -2.12194440e-4)
_EXP_P: Final = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
_ROUND: Final = 12582912.0  # 1.5 * 2^23: adding and taking it away rounds to an integer


def _sigmoid(x: mx.array) -> mx.array:
    if not POLYNOMIALS or x.dtype != mx.float32:
        return mx.sigmoid(x)
    x = mx.clip(0.5 * x, -_TANH_CLIP, _TANH_CLIP)
    square = x * x
    top, bottom = _TANH_P[0], _TANH_Q[0]
    for factor in _TANH_P[1:]:
        top = top * square + factor
    for factor in _TANH_Q[1:]:
        bottom = bottom * square + factor
    return 0.5 + 0.5 * (x * top / bottom)


@mx.compile
def _exp_parts(x: mx.array) -> tuple[mx.array, mx.array]:
    """Mantissa exp(f) and the bits of 2^n."""
    x = mx.clip(x, -88.0, 88.0)  # at -88 n is -127, whose bits are those of 0
    n = (x * 1.44269504088896341 + _ROUND) - _ROUND
    f = x - n * _LN2[0] - n * _LN2[1]
    p = _EXP_P[0]
    for factor in _EXP_P[1:]:
        p = p * f + factor
    p = p * f * f + f + 1.0
    return p, ((n + 127.0) * 8388608.0).astype(mx.int32)


def exp(x: mx.array) -> mx.array:
    """Return e to the x, 0 where that would be denormal (such numbers make products slow)."""
    if not POLYNOMIALS or x.dtype != mx.float32:
        return mx.exp(x)
    p, bits = _exp_parts(x)
    return p * mx.view(bits, mx.float32)


@mx.compile
def sigmoid(x: mx.array) -> mx.array:
    """1 / (1 + exp(-x))."""
    return _sigmoid(x)


@mx.compile
def gated(x: mx.array, gate: mx.array) -> mx.array:
    """Return x * sigmoid(gate)."""
    return x * _sigmoid(gate)


@mx.compile
def silu(x: mx.array) -> mx.array:
    """Return x * sigmoid(x)."""
    return x * _sigmoid(x)


@mx.compile
def swiglu(gate: mx.array, up: mx.array) -> mx.array:
    """silu(gate) * up."""
    return gate * _sigmoid(gate) * up


@mx.compile
def gelu_tanh(x: mx.array) -> mx.array:
    """GELU in its tanh form (the vision tower's)."""
    return x * _sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


@mx.compile
def gelu(x: mx.array) -> mx.array:
    """GELU with the error function."""
    return x * (1 + mx.erf(x * 0.7071067811865476)) * 0.5


@mx.compile
def weighted_sum(*pairs: mx.array) -> mx.array:
    """x0 * w0 + x1 * w1 + ...: all the x first, then all the w."""
    half = len(pairs) // 2
    out = pairs[0] * pairs[half]
    for x, w in zip(pairs[1:half], pairs[half + 1 :], strict=True):
        out = out + x * w
    return out
