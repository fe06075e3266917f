"""What every layer of one packed pass needs to know about its tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from vlm_decisions.engine import blas

blas.ensure()

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402

from vlm_decisions.engine.tree import Tree  # noqa: E402


@dataclass(frozen=True)
class Rows:
    """One bucket of leaf paths: ``index`` (n*L,) leaf tokens, flattened rows of length L."""

    n: int
    length: int
    index: mx.array


@dataclass(frozen=True)
class Layout:
    """The packed row of one pass: ``[commit | trunk | leaves]``.

    n_commit: tokens that become part of the state. n_trunk: tokens all questions share.
    n_leaf: the questions' own tokens. n_past: tokens already in the state.
    rows, back: see Tree. cos, sin: (M, F) rotary tables in float32.
    """

    n_past: int
    n_commit: int
    n_trunk: int
    n_leaf: int
    rows: tuple[Rows, ...]
    back: mx.array | None
    cos: mx.array
    sin: mx.array
    cache: dict = field(default_factory=dict)

    @property
    def n_line(self) -> int:
        """Tokens on the main line: those committed, then the trunk."""
        return self.n_commit + self.n_trunk

    @property
    def n_tokens(self) -> int:
        """All tokens of the pass."""
        return self.n_line + self.n_leaf

    def behind(self, rows: Rows, n_before: int) -> mx.array:
        """Index (n * (n_before + L),) of each leaf row with the ``n_before`` tokens before it.

        Counted in the packed row of this pass with ``n_before`` older tokens put in front.
        """
        key = ("behind", id(rows), n_before)
        if key not in self.cache:
            index = np.array(rows.index).reshape(rows.n, rows.length) + self.n_line + n_before
            before = np.arange(self.n_line, self.n_line + n_before)
            before = np.broadcast_to(before, (rows.n, n_before))
            self.cache[key] = mx.array(np.concatenate([before, index], axis=1).reshape(-1))
        return self.cache[key]

    def causal(self, length: int) -> mx.array:
        """Additive (L, L) mask that hides what comes later."""
        key = ("causal", length)
        if key not in self.cache:
            mask = np.triu(np.full((length, length), -np.inf, dtype=np.float32), 1)
            self.cache[key] = mx.array(mask)
        return self.cache[key]


def make_layout(
    tree: Tree, n_past: int, n_commit: int, cos: np.ndarray, sin: np.ndarray
) -> Layout:
    """Build the layout of ``tree`` behind ``n_commit`` new tokens and ``n_past`` old ones."""
    rows = tuple(
        Rows(*bucket.shape, mx.array(bucket.index.reshape(-1))) for bucket in tree.buckets
    )
    return Layout(
        n_past=n_past,
        n_commit=n_commit,
        n_trunk=tree.n_trunk,
        n_leaf=tree.n_leaf,
        rows=rows,
        back=mx.array(tree.back) if tree.n_leaf else None,
        cos=mx.array(cos),
        sin=mx.array(sin),
    )
