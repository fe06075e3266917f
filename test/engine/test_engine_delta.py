"""The gated delta rule by chunks against the recurrence, one token after the other."""

import mlx.core as mx
import numpy as np
import pytest

from vlm_decisions.engine import delta
from vlm_decisions.engine.delta import invert_unit_lower, scan

H, K, V = 2, 8, 6


@pytest.fixture(params=["numpy", "mlx"], autouse=True)
def arrays(request, monkeypatch):
    """Everything twice: as small passes are computed, and as large ones are."""
    if request.param == "mlx":
        monkeypatch.setattr(delta, "SMALL", 0)


def inputs(b, t, seed=0):
    rng = np.random.default_rng(seed)
    q, k = rng.normal(size=(2, b, t, H, K)) / K**0.5
    v = rng.normal(size=(b, t, H, V))
    decay = -rng.exponential(0.3, size=(b, t, H))
    strength = rng.uniform(0.1, 0.95, size=(b, t, H))
    memory = rng.normal(size=(H, V, K))
    return q, k, v, decay, strength, memory


def recurrence(q, k, v, decay, strength, memory):
    ys = np.zeros((*v.shape[:3], V))
    states = []
    for row in range(q.shape[0]):
        state = np.zeros((H, V, K)) if memory is None else memory.copy()
        for t in range(q.shape[1]):
            state = state * np.exp(decay[row, t])[:, None, None]
            seen = np.einsum("hvk,hk->hv", state, k[row, t])
            wrote = (v[row, t] - seen) * strength[row, t][:, None]
            state = state + wrote[..., None] * k[row, t][:, None]
            ys[row, t] = np.einsum("hvk,hk->hv", state, q[row, t])
        states.append(state)
    return ys, states


def as_mx(*arrays):
    return [None if a is None else mx.array(a.astype(np.float32)) for a in arrays]


@pytest.mark.parametrize("t", [1, 2, 3, 17, 63, 64, 65, 128, 130])
@pytest.mark.parametrize("start", ["zero", "given"])
def test_line(t, start):
    q, k, v, decay, strength, memory = inputs(1, t)
    memory = memory if start == "given" else None
    want, states = recurrence(q, k, v, decay, strength, memory)
    y, (state,) = scan(*as_mx(q, k, v, decay, strength, memory), chunk=64, ends=[t])
    assert np.abs(np.array(y) - want).max() < 2e-5
    assert np.abs(np.array(state) - states[0]).max() < 2e-5


@pytest.mark.parametrize("t", [1, 5, 20, 70])
def test_rows_start_from_one_memory(t):
    q, k, v, decay, strength, memory = inputs(5, t)
    want, _ = recurrence(q, k, v, decay, strength, memory)
    y, states = scan(*as_mx(q, k, v, decay, strength, memory), chunk=32)
    assert states == []
    assert np.abs(np.array(y) - want).max() < 2e-5
    lost, _ = scan(*as_mx(q, k, v, decay, strength, None), chunk=32)
    assert np.abs(np.array(lost) - want).max() > 0.1  # the memory matters


def test_a_cut_changes_nothing():
    q, k, v, decay, strength, memory = inputs(1, 100)
    whole, _ = scan(*as_mx(q, k, v, decay, strength, memory), chunk=64)
    for cut in (1, 36, 64, 99):
        first = as_mx(*(a[:, :cut] for a in (q, k, v, decay, strength)), memory)
        _, (state,) = scan(*first, chunk=64, ends=[cut])
        rest = [a[:, cut:] for a in (q, k, v, decay, strength)]
        y, _ = scan(*as_mx(*rest), state, chunk=64)
        assert np.abs(np.array(y) - np.array(whole)[:, cut:]).max() < 2e-5


@pytest.mark.parametrize("ends", [[1], [1, 64], [40, 100], [63, 64, 65], [99, 130]])
@pytest.mark.parametrize("start", ["zero", "given"])
def test_the_memory_at_any_place(ends, start):
    """A group's state is read off inside a chunk that goes on with the questions' trunk."""
    q, k, v, decay, strength, memory = inputs(1, 130)
    memory = memory if start == "given" else None
    _, got = scan(*as_mx(q, k, v, decay, strength, memory), chunk=64, ends=ends)
    for end, state in zip(ends, got, strict=True):
        cut = (a[:, :end] for a in (q, k, v, decay, strength))
        _, states = recurrence(*cut, memory)
        assert state.shape == (H, V, K)
        assert np.abs(np.array(state) - states[0]).max() < 2e-5


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 17, 33, 64])
def test_inverse(size):
    rng = np.random.default_rng(size)
    lower = rng.normal(size=(3, 2, size, size)) * 0.6
    want = np.linalg.inv(np.eye(size) + np.tril(lower, -1))
    for halves_only in (False, True):  # the CPU's way and the GPU's
        got = invert_unit_lower(mx.array(lower.astype(np.float32)), halves_only=halves_only)
        assert np.abs(np.array(got) - want).max() < 1e-4 * np.abs(want).max()


def test_strong_decay_does_not_overflow():
    q, k, v, _, strength, memory = inputs(1, 64)
    decay = np.full((1, 64, H), -40.0)
    want, _ = recurrence(q, k, v, decay, strength, memory)
    y, (state,) = scan(*as_mx(q, k, v, decay, strength, memory), chunk=64, ends=[64])
    assert np.isfinite(np.array(y)).all()
    assert np.isfinite(np.array(state)).all()
    assert np.abs(np.array(y) - want).max() < 2e-5


def test_no_large_matrix_goes_to_numpy(monkeypatch):
    """Its threads make one of 119 dearer than two of 60 by far, where other processes run."""
    sizes, inverse = [], delta._inverse
    monkeypatch.setattr(delta, "_inverse", lambda lower: (
        sizes.append(lower.shape[-1]) if isinstance(lower, np.ndarray) else None,
        inverse(lower))[1])
    for t in (17, 64, 65, 119, 308):
        given = [mx.array(a.astype(np.float32)) for a in inputs(1, t)]
        y, _ = scan(*given, chunk=delta.LEAF_CHUNK)
        want, _ = recurrence(*inputs(1, t))
        assert np.abs(np.asarray(y) - want).max() < 1e-4
    assert all(size <= delta.SMALL_CHUNK for size in sizes)
    assert len(sizes) == (5 if delta.SMALL else 0)
