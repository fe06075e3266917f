"""The fused elementwise functions against float64, over the range that layers see and beyond."""

import math

import mlx.core as mx
import numpy as np
import pytest

from vlm_decisions.engine import fastmath

X = np.concatenate([np.linspace(-100, 100, 20001), np.linspace(-1, 1, 2001)]).astype(np.float32)
WIDE = X.astype(np.float64)
SIGMOID = np.where(WIDE > 0, 1 / (1 + np.exp(-np.abs(WIDE))), np.exp(-np.abs(WIDE)))
SIGMOID = np.where(WIDE > 0, SIGMOID, SIGMOID / (1 + np.exp(-np.abs(WIDE))))


def run(f, *args):
    return np.array(f(*(mx.array(a) for a in args))).astype(np.float64)


def test_exp_is_relatively_exact():
    x = X[(X > -50) & (X < 88)]
    for few_or_many in (x[::20], np.tile(x, 2)):  # MLX's own (5e-6), and NumPy's
        want = np.exp(few_or_many.astype(np.float64))
        assert np.abs(run(fastmath.exp, few_or_many) / want - 1).max() < 2e-5
    assert x.size * 2 > fastmath.LAZY > x[::20].size


def test_exp_gives_no_denormals():
    """A softmax or decay that underflows must not slow the products after it down a hundredfold."""
    got = run(fastmath.exp, np.array([-np.inf, -1e30, -500, -88, -87.8], np.float32))
    assert (got == 0).all()
    got = run(fastmath.exp, np.full(fastmath.LAZY + 1, -88, np.float32))
    assert (got == 0).all()


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


@pytest.mark.parametrize(("n", "channels"), [(1, 3), (200, 400), (60, 170), (20, 7)])
def test_conv_silu(n, channels):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n + 3, channels)).astype(np.float32) * 3
    taps = rng.normal(size=(4, channels)).astype(np.float32)
    index = rng.integers(n + 3, size=(n, 4)).astype(np.int32)
    y = (x[index].astype(np.float64) * taps).sum(axis=1)
    got = fastmath.conv_silu(mx.array(x), mx.array(taps), index)
    assert np.abs(np.array(got) - y / (1 + np.exp(-y))).max() < 1e-5


@pytest.mark.parametrize(("rows", "columns", "masked"), [(3, 5, 5), (200, 300, 40), (7, 900, 7)])
def test_softmax(rows, columns, masked):
    rng = np.random.default_rng(3)
    scores = rng.normal(size=(4, rows, columns)).astype(np.float32) * 10
    mask = np.where(rng.random((rows, masked)) < 0.5, -1e30, 0).astype(np.float32)
    mask[:, 0] = 0
    wide = scores.astype(np.float64)
    wide[..., columns - masked :] += mask
    weight = np.exp(wide - wide.max(axis=-1, keepdims=True))
    want = weight / weight.sum(axis=-1, keepdims=True)
    assert np.abs(run(fastmath.softmax, scores, mask) - want).max() < 1e-5
    assert (want == 0).any()


def test_several_threads_give_the_same(monkeypatch):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(1200, 512)).astype(np.float32)
    taps, mask = rng.normal(size=(4, 512)).astype(np.float32), np.zeros((1200, 1), np.float32)
    index = rng.integers(1200, size=(1200, 4)).astype(np.int32)

    def conv(x, taps):
        return fastmath.conv_silu(x, taps, index)

    alone = {}
    for n in (1, 3):
        monkeypatch.setattr(fastmath.blas, "threads", lambda n=n: n)
        fastmath._pool.cache_clear()
        for f, args in ((fastmath.swiglu, (x, x)), (conv, (x, taps)),
                        (fastmath.softmax, (x[None], mask))):
            got = run(f, *args)
            assert np.array_equal(alone.setdefault(f, got), got)
    fastmath._pool.cache_clear()


def test_views_and_blocks():
    """Inputs that are views of other arrays, longer than a block."""
    x = np.random.default_rng(1).normal(size=(300, 512)).astype(np.float32)
    assert x.size > 3 * fastmath.BLOCK
    a = mx.array(x)
    want = 1 / (1 + np.exp(-x.astype(np.float64)))
    got = np.array(fastmath.sigmoid(a.T[3:, ::2]))
    assert np.abs(got - want.T[3:, ::2]).max() < 5e-7
    assert np.array_equal(np.array(a), x)  # and the input is left as it was


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16])
def test_half_precision_uses_mlx_s_own(dtype):
    x = mx.array(np.linspace(-5, 5, 101).astype(np.float32)).astype(dtype)
    assert fastmath.silu(x).dtype == dtype
    assert mx.abs(fastmath.exp(x) - mx.exp(x)).max().item() == 0


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_half_precision_convolution_adds_up_in_float32(dtype):
    """Its error is that of its rounded input and output, not of every partial sum."""
    rng = np.random.default_rng(0)
    x = mx.array(rng.normal(size=(300, 96)).astype(np.float32)).astype(getattr(mx, dtype))
    taps = mx.array(rng.normal(size=(4, 96)).astype(np.float32)).astype(getattr(mx, dtype))
    index = np.arange(297, dtype=np.int32)[:, None] + np.arange(4, dtype=np.int32)
    got = fastmath.conv_silu(x, taps, index)
    assert got.dtype == x.dtype
    wide = fastmath.conv_silu(x.astype(mx.float32), taps.astype(mx.float32), index)
    assert mx.array_equal(got, wide.astype(x.dtype)) or (
        float(mx.abs(got.astype(mx.float32) - wide).max())
        <= float(mx.abs(wide.astype(x.dtype).astype(mx.float32) - wide).max()) * 1.01
    )
