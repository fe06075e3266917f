"""The gated delta rule (Qwen3.5's linear attention) on packed tokens, forked from one state.

For one chunk of tokens with keys K, queries Q, values V, log decays g and write strengths b,
started at memory S (value dim x key dim), with c = cumulated decay and R[i,j] = c_i / c_j (j <= i):

    (I + tril(b R K K^T, -1)) U = b (V - c K S^T)          what each token writes
    Y = tril(R Q K^T) U + c Q S^T                          what each token reads
    S' = c_last S + (R_last U)^T K                         only where a state is wanted

This is the recurrence itself, rearranged, so a chunk may have any length: a question of 17 tokens
costs 17 and is not padded to 64. All questions start from the same S, which is read by broadcasting
and never written.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import mlx.core as mx
import numpy as np

from . import fastmath
from .arrays import Array, cast, contiguous, joined, module_of, rms_norm, wide
from .layout import HIDDEN, Layout, Want
from .state import DeltaState

CHUNK: Final = 64  # longest chunk of the main line
SMALL: Final = 1 << 16  # values of q up to which starting MLX's operations costs more than they do
# Longest chunk that numpy computes. From matrices of about 100 on its BLAS and LAPACK use all
# cores, and on a busy machine waiting for them takes hundreds of times as long as the work.
SMALL_CHUNK: Final = 64
LEAF_CHUNK: Final = 128  # longest chunk of a question; longer ones carry a state of their own


class DeltaNet:
    """One gated-delta mixer, driven on packed tokens with the weights of an mlx-vlm module."""

    def __init__(self, module: Any) -> None:
        """Keep the module's weights and shapes."""
        self.module = module
        self.k_heads, self.v_heads = module.num_k_heads, module.num_v_heads
        self.k_dim, self.v_dim = module.head_k_dim, module.head_v_dim
        self.kernel = module.conv_kernel_size
        self.taps = contiguous(module.conv1d.weight[:, :, 0].T)  # (kernel, channels)
        xp = module_of(self.taps)
        self.rate = xp.exp(wide(module.A_log))
        # Unit length, and 1/sqrt(dim) once more for the queries.
        scales = self.k_dim**-0.5, 1.0 / self.k_dim
        if xp is np:
            self.k_scale, self.q_scale = (np.float32(one) for one in scales)
        else:
            self.k_scale, self.q_scale = (mx.full((self.k_dim,), one) for one in scales)

    def fresh(self) -> DeltaState:
        """Return an empty state; its arrays tell the shapes."""
        return DeltaState(
            np.zeros((self.v_heads, self.v_dim, self.k_dim), np.float32),
            np.zeros((self.kernel - 1, self.module.conv_dim), np.float32),
        )

    def __call__(self, x: Array, layout: Layout, state: DeltaState, want: Want) -> Array:
        """Mix the normed tokens ``x`` (M, D), move ``state`` past the committed ones.

        Returns the wanted rows.
        """
        m, commit, line, xp = self.module, layout.n_commit, layout.n_line, module_of(x)
        raw = m.in_proj_qkv(x)
        decay = -self.rate * xp.logaddexp(wide(m.in_proj_a(x)) + m.dt_bias, 0)
        strength = fastmath.sigmoid(wide(m.in_proj_b(x)))
        window = state.window
        if window is None:
            window = xp.zeros((self.kernel - 1, raw.shape[1]), raw.dtype)
        inputs = joined([window, raw])

        mixed = fastmath.conv_silu(inputs, self.taps, layout.before(self.kernel))
        tokens = (*self._heads(mixed), decay, strength)

        memory, outputs = state.memory, []
        if line:
            ends = sorted({commit, line if layout.n_leaf else commit} - {0})
            y, memories = scan(*(a[None, :line] for a in tokens), memory, chunk=CHUNK, ends=ends)
            outputs.append(y[0])
            if commit:
                state.memory = memories[0]
                state.window = contiguous(inputs[commit : commit + self.kernel - 1])
            if memories:
                memory = memories[-1]
        if want is Want.NOTHING:
            return x[:0]
        if layout.n_leaf:
            outputs.append(self._leaves([a[line:] for a in tokens], memory, layout))
        y = joined(outputs)
        if want is Want.DECISIONS:
            y, x = y[layout.decisions()], x[layout.decisions()]
        z = m.in_proj_z(x).reshape(y.shape)
        y = rms_norm(cast(y, x.dtype), m.norm.weight, m.norm.eps)
        y = cast(fastmath.swiglu(wide(z), wide(y)), x.dtype)
        return m.out_proj(y.reshape(y.shape[0], -1))

    def _leaves(
        self, tokens: Sequence[Array], memory: Array | None, layout: Layout
    ) -> Array:
        """Return the leaf tokens' outputs, (n_leaf, value heads, value dim).

        tokens: queries, keys, values, decay and strength of the leaf tokens.
        """
        outputs = []
        for rows in layout.rows:
            own = (
                a[rows.index].reshape(rows.n, rows.length, *a.shape[1:])
                for a in tokens
            )
            y, _ = scan(*own, memory, chunk=LEAF_CHUNK)
            outputs.append(y.reshape(rows.n * rows.length, self.v_heads, self.v_dim))
        return joined(outputs)[layout.back]

    def _heads(self, x: Array) -> tuple[mx.array, mx.array, Array]:
        """Split (M, channels) into normalised q, k and v, each float32 (M, heads, dim)."""
        xp, keys = module_of(x), self.k_heads * self.k_dim
        q, k, v = xp.split(x, [keys, 2 * keys], axis=-1)
        q = q.reshape(-1, self.k_heads, self.k_dim)
        k = k.reshape(-1, self.k_heads, self.k_dim)
        v = wide(v.reshape(-1, self.v_heads, self.v_dim))
        eps = 1e-6 / self.k_dim
        q = rms_norm(wide(q), self.q_scale, eps)
        k = rms_norm(wide(k), self.k_scale, eps)
        if self.v_heads != self.k_heads:
            q, k = (xp.repeat(a, self.v_heads // self.k_heads, axis=1) for a in (q, k))
        return q, k, v


def scan(
    q: Array,
    k: Array,
    v: Array,
    decay: Array,
    strength: Array,
    memory: Array | None,
    *,
    chunk: int,
    ends: Sequence[int] = (),
) -> tuple[mx.array, list[Array]]:
    """Gated delta rule over rows that all start from the same memory.

    q, k: (B, T, H, K); v: (B, T, H, V); decay (log), strength: (B, T, H); memory: (H, V, K) or
    None for zeros. All float32. Returns y (B, T, H, V) and the memories (H, V, K) after ``ends``
    tokens (rising numbers; only where B is 1).
    """
    if isinstance(q, np.ndarray):
        return _scan(np, q, k, v, decay, strength, memory, chunk, ends)
    if not fastmath.ON_CPU or q.size > SMALL:
        return _scan(mx, q, k, v, decay, strength, memory, chunk, ends)
    given = (q, k, v, decay, strength, memory)
    mx.eval([a for a in given if a is not None])
    arrays = (None if a is None else np.asarray(a) for a in given)
    y, memories = _scan(np, *arrays, min(chunk, SMALL_CHUNK), ends)
    return mx.array(y), [mx.array(one) for one in memories]


def _scan(
    xp: Any,
    q: Any,
    k: Any,
    v: Any,
    decay: Any,
    strength: Any,
    memory: Any,
    chunk: int,
    ends: Sequence[int],
) -> tuple[Any, list]:
    """`scan` on arrays of ``xp``: mlx.core or numpy."""
    b, t, h, _ = q.shape
    n = -(-t // chunk)
    size = -(-t // n)
    if n * size > t:
        pad = [(0, 0), (0, n * size - t), (0, 0)]
        decay, strength = xp.pad(decay, pad), xp.pad(strength, pad)
        q, k, v = (xp.pad(a, [*pad, (0, 0)]) for a in (q, k, v))

    def cut(a: Any) -> Any:
        """(B, T, H, ...) -> (n, H, B, size, ...): all rows of a head meet its memory at once."""
        axes = (1, 3, 0, 2, *range(4, a.ndim + 1))
        a = a.reshape(b, n, size, *a.shape[2:]).transpose(axes)
        return contiguous(a) if xp is np or n > 1 else a

    q, k, v, decay, strength = (cut(a) for a in (q, k, v, decay, strength))
    log_c = xp.cumsum(decay, axis=-1)
    before = xp.concatenate([xp.zeros_like(log_c[..., :1]), log_c], axis=-1)  # the start's, too
    ratio = log_c[..., :, None] - before[..., None, :]
    ratio += _later(xp, size)  # hidden before exp: it would overflow
    ratio = _exp(ratio)
    c, ratio = ratio[..., :1], ratio[..., 1:]
    strength = strength[..., None]
    kt = k.swapaxes(-1, -2)
    read = ratio * (q @ kt)
    inverse = _inverse(ratio * ((strength * k) @ kt))
    ys, memories = [], []
    for i in range(n):
        values = v[i]
        if memory is not None:
            values = values - c[i] * _recall(k[i], memory)
        wrote = inverse[i] @ (strength[i] * values)
        y = read[i] @ wrote
        if memory is not None:
            y = y + c[i] * _recall(q[i], memory)
        ys.append(y)
        old, local = memory, [end - i * size for end in ends if i * size < end <= (i + 1) * size]
        more = [size] if i + 1 < n and size not in local else []
        if old is not None and old.ndim == 3:
            old = old[:, None]
        for end in (*local, *more):
            left = ratio[i][..., end - 1, :end, None]
            memory = (left * wrote[..., :end, :]).swapaxes(-1, -2) @ k[i][..., :end, :]
            if old is not None:
                memory = c[i][..., end - 1 : end, :] * old + memory
            if end in local:
                memories.append(memory[:, 0])
    y = xp.stack(ys, axis=2) if n > 1 else ys[0][:, :, None]  # (H, B, n, size, V)
    return y.transpose(1, 2, 3, 0, 4).reshape(b, n * size, h, -1)[:, :t], memories


def _recall(keys: Any, memory: Any) -> Any:
    """Read ``memory`` with keys (H, B, size, K): (H, V, K) of all rows, or (H, B, V, K) of each."""
    if memory.ndim == 4:
        return keys @ memory.swapaxes(-1, -2)
    h, b, size, _ = keys.shape
    return (keys.reshape(h, b * size, -1) @ memory.swapaxes(-1, -2)).reshape(h, b, size, -1)


def _exp(x: Any) -> Any:
    """Return e to the x; in place where it is NumPy's."""
    if not isinstance(x, np.ndarray):
        return fastmath.exp(x)
    np.maximum(x, fastmath.LOG_TINY, out=x)
    return np.exp(x, out=x)


def _inverse(lower: Any) -> Any:
    if not isinstance(lower, np.ndarray):
        return invert_unit_lower(lower)
    # Row by row: several times as fast as LAPACK's general inverse of each small matrix.
    size = lower.shape[-1]
    out = np.zeros(lower.shape, np.float32)
    out[..., range(size), range(size)] = 1
    for i in range(1, size):
        out[..., i : i + 1, :i] = -(lower[..., i : i + 1, :i] @ out[..., :i, :i])
    return out


@lru_cache(maxsize=256)
def _later(xp: Any, size: int) -> Any:
    """Additive mask (size, 1 + size) of what comes later than a token; the chunk's start does not.

    Made of data: it may outlive a thread.
    """
    return xp.array(np.triu(np.full((size, size + 1), HIDDEN, np.float32), 2))


@lru_cache(maxsize=256)
def _below(size: int) -> tuple[mx.array, Array]:
    """Ones below the diagonal, and on it."""
    ones = np.ones((size, size), np.float32)
    return mx.array(np.tril(ones, -1)), mx.array(np.eye(size, dtype=np.float32))


def invert_unit_lower(lower: mx.array, *, halves_only: bool = False) -> mx.array:
    """Inverse of I + L, L being the part of ``lower`` (..., C, C) strictly below the diagonal.

    On the CPU by LAPACK. On a GPU halves are inverted and joined: inv([[A, 0], [B, D]]) =
    [[A', 0], [-D' B A', D']]. As stable as substitution (nothing overflows, unlike powers of L),
    in log2(C) steps instead of C.
    """
    size = lower.shape[-1]
    if size == 1:
        return mx.ones_like(lower)
    if fastmath.ON_CPU and not halves_only:
        below, diagonal = _below(size)
        return mx.linalg.tri_inv(lower * below + diagonal, upper=False)
    if size % 2:
        pad = [(0, 0)] * (lower.ndim - 2) + [(0, 1), (0, 1)]
        return invert_unit_lower(mx.pad(lower, pad), halves_only=True)[..., :size, :size]
    half = size // 2
    halves = mx.stack([lower[..., :half, :half], lower[..., half:, half:]], axis=0)
    a, d = invert_unit_lower(halves, halves_only=True)
    corner = -lower[..., half:, :half]
    if half > 1:
        corner = d @ (corner @ a)
    zero = mx.zeros_like(a)
    top = mx.concatenate([a, zero], axis=-1)
    return mx.concatenate([top, mx.concatenate([corner, d], axis=-1)], axis=-2)
