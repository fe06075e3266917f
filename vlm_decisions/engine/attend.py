"""Full attention of a packed pass: the prefix keys and values exist once, whatever asks.

Main-line tokens attend causally to the state and to themselves. A leaf token attends to the same
one buffer (state, new tokens, trunk) and to its own question's tokens; the two softmaxes are kept
as (maximum, sum, weighted values) and merged exactly.
"""

from __future__ import annotations

from typing import Any, Final

from vlm_decisions.engine import blas

blas.ensure()

import mlx.core as mx  # noqa: E402

from vlm_decisions.engine import fastmath  # noqa: E402
from vlm_decisions.engine.layout import Layout, Rows  # noqa: E402
from vlm_decisions.engine.state import KVState  # noqa: E402

SCORE_LIMIT: Final = 1 << 21  # scores computed at once; larger leaf batches go in pieces


class FullAttention:
    """One full-attention mixer, driven on packed tokens with the weights of an mlx-vlm module.

    module: has q_proj, k_proj, v_proj, o_proj, q_norm, k_norm. gated: whether q_proj also gives
    an output gate, as in Qwen3.5.
    """

    def __init__(self, module: Any, *, n_heads: int, n_kv: int, head_dim: int, gated: bool) -> None:
        """Keep the module's weights and shapes."""
        self.module = module
        self.n_heads, self.n_kv, self.head_dim, self.gated = n_heads, n_kv, head_dim, gated
        self.scale = head_dim**-0.5

    def fresh(self, dtype: mx.Dtype) -> KVState:
        """Return an empty state; its arrays tell the shapes."""
        shape = (self.n_kv, 0, self.head_dim)
        return KVState(mx.zeros(shape, dtype), mx.zeros(shape, dtype))

    def __call__(
        self, x: mx.array, layout: Layout, state: KVState, keep: mx.array | None
    ) -> mx.array:
        """Mix the normed tokens ``x`` (M, D), append the committed ones to ``state``.

        keep: row indices whose output is wanted (None for all; empty: only the state moves).
        Returns (M or len(keep), D).
        """
        m, line = self.module, layout.n_line
        n = x.shape[0]
        q = m.q_proj(x).reshape(n, self.n_heads, -1)
        gate = None
        if self.gated:
            q, gate = mx.split(q, 2, axis=-1)
        q = m.q_norm(q)
        k = m.k_norm(m.k_proj(x).reshape(n, self.n_kv, -1))
        v = m.v_proj(x).reshape(n, self.n_kv, -1)
        q = rotate(q, layout.cos, layout.sin)
        k = rotate(k, layout.cos, layout.sin)
        keys, values = state.write(
            k[:line].transpose(1, 0, 2), v[:line].transpose(1, 0, 2), layout.n_commit
        )
        if keep is not None and keep.size == 0:
            return x[:0]
        parts = []
        if line:
            out = mx.fast.scaled_dot_product_attention(
                q[None, :line].transpose(0, 2, 1, 3),
                keys[None],
                values[None],
                scale=self.scale,
                mask="causal",
            )
            parts.append(out[0].transpose(1, 0, 2))
        if layout.n_leaf:
            leaf = self._leaves(q[line:], k[line:], v[line:], keys, values, layout)
            parts.append(leaf.astype(x.dtype))
        out = parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=0)
        if keep is not None:
            out = out[keep]
            gate = gate[keep] if gate is not None else None
        out = out.reshape(out.shape[0], -1)
        if gate is not None:
            out = fastmath.gated(out, gate.reshape(out.shape))
        return m.o_proj(out)

    def _leaves(
        self,
        q: mx.array,
        k: mx.array,
        v: mx.array,
        keys: mx.array,
        values: mx.array,
        layout: Layout,
    ) -> mx.array:
        """Return the leaf tokens' outputs, (n_leaf, heads, dim) float32."""
        group = self.n_heads // self.n_kv
        n = q.shape[0]
        q = (q.astype(mx.float32) * self.scale).reshape(n, self.n_kv, group, self.head_dim)
        k, v = k.astype(mx.float32), v.astype(mx.float32)
        keys, values = keys.astype(mx.float32), values.astype(mx.float32)
        step = max(1, SCORE_LIMIT // max(1, self.n_heads * keys.shape[1]))
        shared = []
        for i in range(0, n, step):
            shared.append(self._context(q[i : i + step], keys, values))
            if step < n:
                mx.eval(shared[-1])  # so that only one piece's scores exist at a time
        top, total, out = (
            parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=0)
            for parts in zip(*shared, strict=True)
        )
        own = [self._own(q, k, v, rows, layout) for rows in layout.rows]
        own_top, own_total, own_out = (
            mx.take(parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=0), layout.back, 0)
            for parts in zip(*own, strict=True)
        )
        best = mx.maximum(top, own_top)
        w, own_w = fastmath.exp(top - best), fastmath.exp(own_top - best)
        out = (w * out + own_w * own_out) / (w * total + own_w * own_total)
        return out.reshape(n, self.n_heads, self.head_dim)

    def _context(
        self, q: mx.array, keys: mx.array, values: mx.array
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Unnormalised attention of q (n, kv, group, dim) to the shared keys (kv, T, dim)."""
        n, kv, group, dim = q.shape
        folded = q.transpose(1, 2, 0, 3).reshape(kv, group * n, dim)
        top, total, out = _partial(folded @ keys.swapaxes(1, 2), values)
        return tuple(
            part.reshape(kv, group, n, -1).transpose(2, 0, 1, 3) for part in (top, total, out)
        )

    def _own(
        self, q: mx.array, k: mx.array, v: mx.array, rows: Rows, layout: Layout
    ) -> tuple[mx.array, mx.array, mx.array]:
        """Unnormalised attention of leaf tokens to their own question's, (n*L, kv, group, .)."""
        n, length = rows.n, rows.length
        _, kv, group, dim = q.shape
        q = mx.take(q, rows.index, axis=0).reshape(n, length, kv, group, dim)
        q = q.transpose(0, 2, 3, 1, 4).reshape(n, kv, group * length, dim)
        k = mx.take(k, rows.index, axis=0).reshape(n, length, kv, dim).transpose(0, 2, 3, 1)
        v = mx.take(v, rows.index, axis=0).reshape(n, length, kv, dim).transpose(0, 2, 1, 3)
        scores = (q @ k).reshape(n, kv, group, length, length) + layout.causal(length)
        top, total, out = _partial(scores.reshape(n, kv, group * length, length), v)
        return tuple(
            part.reshape(n, kv, group, length, -1)
            .transpose(0, 3, 1, 2, 4)
            .reshape(n * length, kv, group, -1)
            for part in (top, total, out)
        )


def _partial(scores: mx.array, values: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Maximum, sum of exponentials and weighted values of scores (..., q, t)."""
    top = scores.max(axis=-1, keepdims=True)
    weight = fastmath.exp(scores - top)
    return top, weight.sum(axis=-1, keepdims=True), weight @ values


def rotate(x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """Rotate the first 2F dimensions of x (M, heads, dim) by tables (M, F)."""
    half = cos.shape[-1]
    cos, sin = cos[:, None].astype(x.dtype), sin[:, None].astype(x.dtype)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    parts = [a * cos - b * sin, b * cos + a * sin]
    return mx.concatenate(parts + ([rest] if rest.shape[-1] else []), axis=-1)
