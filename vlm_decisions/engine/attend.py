"""Full attention of a packed pass: the prefix keys and values exist once, whatever asks.

Main-line tokens attend causally to the state and to themselves. A leaf token attends to the same
one buffer (state, new tokens, trunk) and to its own question's tokens. Few leaf tokens are folded:
all are put behind that buffer, and a mask hides the other questions' tokens. With many that would
waste more than it saves: the two softmaxes are then kept as (maximum, sum, weighted values) and
merged exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import mlx.core as mx
import numpy as np

from . import fastmath
from .arrays import Array, cast, evaluate, joined, module_of, wide
from .layout import Layout, Rows, Want
from .state import KVState

SCORE_LIMIT: Final = 1 << 21  # scores computed at once; larger leaf batches go in pieces
FEW: Final = 64  # leaf tokens up to which NumPy, whose calls cost little, folds them


class FullAttention:
    """One full-attention mixer, driven on packed tokens with the weights of an mlx-vlm module.

    module: has q_proj, k_proj, v_proj, o_proj, and perhaps q_norm and k_norm. gated: whether q_proj
    also gives an output gate, as in Qwen3.5.
    """

    def __init__(self, module: Any, *, n_heads: int, n_kv: int, head_dim: int, gated: bool) -> None:
        """Keep the module's weights and shapes."""
        self.module = module
        self.n_heads, self.n_kv, self.head_dim, self.gated = n_heads, n_kv, head_dim, gated
        self.scale = head_dim**-0.5
        self.q_norm, self.k_norm = (
            getattr(module, name, lambda x: x) for name in ("q_norm", "k_norm")
        )

    def fresh(self) -> KVState:
        """Return an empty state; its arrays tell the shapes."""
        empty = np.zeros((self.n_kv, 0, self.head_dim), np.float32)
        return KVState(empty, empty)

    def __call__(self, x: Array, layout: Layout, state: KVState, want: Want) -> Array:
        """Mix the normed tokens ``x`` (M, D), append the committed ones to ``state``.

        Returns the wanted rows. Where only the decisions are, queries are computed and attend for
        those alone.
        """
        m, line, n = self.module, layout.n_line, x.shape[0]
        k = self.k_norm(m.k_proj(x).reshape(n, self.n_kv, -1))
        v = m.v_proj(x).reshape(n, self.n_kv, -1)
        k = rotate(k, layout.cos, layout.sin)
        keys, values = state.write(
            k[:line].transpose(1, 0, 2), v[:line].transpose(1, 0, 2), layout.n_commit
        )
        if want is Want.NOTHING:
            return x[:0]
        if want is Want.DECISIONS:
            rows = layout.decisions()
            q, gate = self._queries(x[rows], layout.cos[rows], layout.sin[rows])
            out = cast(self._decisions(q, k[line:], v[line:], keys, values, layout), x.dtype)
        else:
            q, gate = self._queries(x, layout.cos, layout.sin)
            parts = []
            if line:
                mask = layout.causal(line)
                parts.append(self._dense(q[:line], keys, values, mask, layout.padded))
            if layout.n_leaf:
                leaf = (q[line:], k[line:], v[line:], keys, values, layout)
                few = layout.n_leaf <= (FEW if layout.xp is np else keys.shape[1])
                parts.append(self._folded(*leaf) if few else cast(self._leaves(*leaf), x.dtype))
            out = joined(parts)
        out = out.reshape(out.shape[0], -1)
        if gate is not None:
            out = fastmath.gated(out, gate.reshape(out.shape))
        return m.o_proj(out)

    def insert(
        self,
        x: Array,
        cos: Array,
        sin: Array,
        index: Array,
        keys: Array,
        values: Array,
        mask: Array,
        *,
        last: bool = False,
    ) -> Array | None:
        """Put the keys and values of x (C, D) at ``index`` among others', and attend to all.

        keys, values: (kv, T, dim), changed in place. mask: (C, T). last: only put them there.
        """
        m, n = self.module, x.shape[0]
        k = self.k_norm(m.k_proj(x).reshape(n, self.n_kv, -1))
        keys[:, index] = rotate(k, cos, sin).transpose(1, 0, 2)
        values[:, index] = m.v_proj(x).reshape(n, self.n_kv, -1).transpose(1, 0, 2)
        if last:
            return None
        q, gate = self._queries(x, cos, sin)
        out = self._dense(q, keys, values, mask, {}).reshape(n, -1)
        return m.o_proj(out if gate is None else fastmath.gated(out, gate.reshape(out.shape)))

    def _queries(
        self, x: Array, cos: Array, sin: Array
    ) -> tuple[Array, Array | None]:
        """Rotated queries (n, heads, dim) of the tokens x (n, D), and their output gates."""
        q, gate = self.module.q_proj(x).reshape(x.shape[0], self.n_heads, -1), None
        if self.gated:
            q, gate = module_of(q).split(q, 2, axis=-1)
        return rotate(self.q_norm(q), cos, sin), gate

    def _dense(
        self, q: Array, keys: Array, values: Array, mask: Array, padded: dict
    ) -> Array:
        """Attention of q (n, heads, dim) to keys (kv, T, dim); mask: (n, C), of the last C keys.

        padded: keeps masks that were made as wide as the keys.
        """
        n, total = q.shape[0], keys.shape[1]
        if not fastmath.ON_CPU:
            key = (id(mask), total, q.dtype)  # the layout keeps its masks
            if key not in padded:
                wider = mx.pad(mask, [(0, 0), (total - mask.shape[1], 0)])
                padded[key] = wider.astype(q.dtype)
            mask = padded[key]
            out = mx.fast.scaled_dot_product_attention(
                q[None].transpose(0, 2, 1, 3), keys[None], values[None], scale=self.scale, mask=mask
            )
            return out[0].transpose(1, 0, 2)
        step = max(1, SCORE_LIMIT // (self.n_heads * total))
        parts = []
        for i in range(0, n, step):
            some = (q[i : i + step] * self.scale).transpose(1, 0, 2)
            some = some.reshape(self.n_kv, -1, self.head_dim)
            out = fastmath.attend(some, keys, values, mask[i : i + step])
            parts.append(out.reshape(self.n_heads, -1, self.head_dim).transpose(1, 0, 2))
            if step < n:
                evaluate(parts[-1])  # so that only one piece's scores exist at a time
        return joined(parts)

    def _folded(
        self,
        q: Array,
        k: Array,
        v: Array,
        keys: Array,
        values: Array,
        layout: Layout,
    ) -> Array:
        """Return the leaf tokens' outputs, (n_leaf, heads, dim), all of them in one softmax."""
        keys = joined([keys, k.transpose(1, 0, 2)], axis=1)
        values = joined([values, v.transpose(1, 0, 2)], axis=1)
        return self._dense(q, keys, values, layout.fold(), layout.padded)

    def _wide(
        self, q: Array, k: Array, v: Array, keys: Array, values: Array
    ) -> tuple[Array, Array, Array, Array, Array]:
        """All in float32, q scaled and grouped by the key head it reads (n, kv, group, dim)."""
        q = (wide(q) * self.scale).reshape(q.shape[0], self.n_kv, -1, self.head_dim)
        return q, *(wide(a) for a in (k, v, keys, values))

    def _decisions(
        self,
        q: Array,
        k: Array,
        v: Array,
        keys: Array,
        values: Array,
        layout: Layout,
    ) -> Array:
        """Return the decision tokens' outputs, (N, heads, dim) float32.

        Each sees the whole main line (a question that ends in the trunk ends it) and its own path.
        """
        q, k, v, keys, values = self._wide(q, k, v, keys, values)
        shared = self._context(q, keys, values)
        if layout.n_leaf:
            index, mask = layout.ends()
            n, length = index.shape
            shape = (n, length, self.n_kv, self.head_dim)
            k = k[index.reshape(-1)].reshape(shape).transpose(0, 2, 3, 1)
            v = v[index.reshape(-1)].reshape(shape).transpose(0, 2, 1, 3)
            out = _merge(shared, _partial(q @ k + mask[:, None, None], v))
        else:
            out = shared[2] / shared[1]
        return out.reshape(q.shape[0], self.n_heads, self.head_dim)

    def _leaves(
        self,
        q: Array,
        k: Array,
        v: Array,
        keys: Array,
        values: Array,
        layout: Layout,
    ) -> Array:
        """Return the leaf tokens' outputs, (n_leaf, heads, dim) float32."""
        q, k, v, keys, values = self._wide(q, k, v, keys, values)
        shared = self._context(q, keys, values)
        own = [self._own(q, k, v, rows, layout) for rows in layout.rows]
        out = _merge(
            shared,
            [joined(list(parts))[layout.back] for parts in zip(*own, strict=True)],
        )
        return out.reshape(q.shape[0], self.n_heads, self.head_dim)

    def _context(self, q: Array, keys: Array, values: Array) -> list[Array]:
        """Unnormalised attention of q (n, kv, group, dim) to the shared keys (kv, T, dim)."""
        n, kv, group, dim = q.shape
        step = max(1, SCORE_LIMIT // max(1, self.n_heads * keys.shape[1]))
        pieces = []
        for i in range(0, n, step):
            some = q[i : i + step].transpose(1, 2, 0, 3).reshape(kv, -1, dim)
            piece = _partial(some @ keys.swapaxes(1, 2), values)
            shape = (kv, group, some.shape[1] // group, -1)
            pieces.append([part.reshape(shape).transpose(2, 0, 1, 3) for part in piece])
            if step < n:
                evaluate(*pieces[-1])  # so that only one piece's scores exist at a time
        return [joined(list(parts)) for parts in zip(*pieces, strict=True)]

    def _own(
        self, q: Array, k: Array, v: Array, rows: Rows, layout: Layout
    ) -> tuple[Array, Array, Array]:
        """Unnormalised attention of leaf tokens to their own question's, (n*L, kv, group, .)."""
        n, length = rows.n, rows.length
        _, kv, group, dim = q.shape
        q = q[rows.index].reshape(n, length, kv, group, dim)
        q = q.transpose(0, 2, 3, 1, 4).reshape(n, kv, group * length, dim)
        k = k[rows.index].reshape(n, length, kv, dim).transpose(0, 2, 3, 1)
        v = v[rows.index].reshape(n, length, kv, dim).transpose(0, 2, 1, 3)
        scores = (q @ k).reshape(n, kv, group, length, length) + layout.causal(length)
        top, total, out = _partial(scores.reshape(n, kv, group * length, length), v)
        return tuple(
            part.reshape(n, kv, group, length, -1)
            .transpose(0, 3, 1, 2, 4)
            .reshape(n * length, kv, group, -1)
            for part in (top, total, out)
        )


def _partial(scores: Array, values: Array) -> tuple[Array, Array, Array]:
    """Maximum, sum of exponentials and weighted values of scores (..., q, t)."""
    top = scores.max(axis=-1, keepdims=True)
    weight = fastmath.exp_of_difference(scores, top)
    return top, weight.sum(axis=-1, keepdims=True), weight @ values


def _merge(a: Sequence[Array], b: Sequence[Array]) -> Array:
    """Attention over both parts, each a (maximum, sum, weighted values) from ``_partial``."""
    (top, total, out), (other_top, other_total, other_out) = a, b
    best = module_of(top).maximum(top, other_top)
    w, other = fastmath.exp(top - best), fastmath.exp(other_top - best)
    return (w * out + other * other_out) / (w * total + other * other_total)


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Rotate the first 2F dimensions of x (M, heads, dim) by tables (M, F)."""
    half = cos.shape[-1]
    cos, sin = cast(cos[:, None], x.dtype), cast(sin[:, None], x.dtype)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    parts = [a * cos - b * sin, b * cos + a * sin]
    return joined(parts + ([rest] if rest.shape[-1] else []), axis=-1)
