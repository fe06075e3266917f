"""The fused elementwise functions against float64, over the range that layers see and beyond."""

import math

import numpy as np
import pytest

from vlm_decisions.engine import blas

blas.ensure()

import mlx.core as mx  # noqa: E402

from vlm_decisions.engine import fastmath  # noqa: E402

X = np.concatenate([np.linspace(-100, 100, 20001), np.linspace(-1, 1, 2001)]).astype(np.float32)
WIDE = X.astype(np.float64)
SIGMOID = np.where(WIDE > 0, 1 / (1 + np.exp(-np.abs(WIDE))), np.exp(-np.abs(WIDE)))
SIGMOID = np.where(WIDE > 0, SIGMOID, SIGMOID / (1 + np.exp(-np.abs(WIDE))))


def run(f, *args):
    return np.array(f(*(mx.array(a) for a in args))).astype(np.float64)


def test_exp_is_relatively_exact():
    x = X[(X > -87) & (X < 88)]
    want = np.exp(x.astype(np.float64))
    assert np.abs(run(fastmath.exp, x) / want - 1).max() < 1e-6


def test_exp_gives_no_denormals():
    """A softmax or decay that underflows must not slow the products after it down a hundredfold."""
    got = run(fastmath.exp, np.array([-np.inf, -1e30, -500, -88, -87.8], np.float32))
    assert (got < 1e-37).all()
    if fastmath.POLYNOMIALS:
        assert (got == 0).all()


def test_exp_overflow_stays_an_upper_bound():
    assert run(fastmath.exp, np.array([88.5], np.float32))[0] > 1e38


@pytest.mark.parametrize(
    ("f", "want"),
    [
        (fastmath.sigmoid, SIGMOID),
        (fastmath.silu, WIDE * SIGMOID),
        (
            fastmath.gelu_tanh,
            0.5 * WIDE * (1 + np.tanh(math.sqrt(2 / math.pi) * (WIDE + 0.044715 * WIDE**3))),
        ),
        (fastmath.gelu, np.array([0.5 * x * (1 + math.erf(x / math.sqrt(2))) for x in WIDE])),
    ],
)
def test_activations(f, want):
    assert (np.abs(run(f, X) - want) / np.maximum(1, np.abs(WIDE))).max() < 5e-7


def test_gates():
    other = np.cos(X).astype(np.float32)
    assert np.abs(run(fastmath.gated, other, X) - other * SIGMOID).max() < 5e-7
    got = run(fastmath.swiglu, X, other)
    assert (np.abs(got - WIDE * SIGMOID * other) / np.maximum(1, np.abs(WIDE))).max() < 5e-7


def test_weighted_sum():
    x = [np.sin(X + i).astype(np.float32).reshape(-1, 2) for i in range(4)]
    w = [np.array([i + 1, -i], np.float32) for i in range(4)]
    want = sum(a.astype(np.float64) * b for a, b in zip(x, w, strict=True))
    assert np.abs(run(fastmath.weighted_sum, *x, *w) - want).max() < 5e-6


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
def test_half_precision_uses_mlx_s_own(dtype):
    x = mx.array(np.linspace(-5, 5, 101).astype(np.float32)).astype(dtype)
    assert fastmath.silu(x).dtype == dtype
    assert mx.abs(fastmath.exp(x) - mx.exp(x)).max().item() == 0
