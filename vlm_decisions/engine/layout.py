"""What every layer of one packed pass needs to know about its tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

import mlx.core as mx
import numpy as np

from .arrays import Array
from .tree import Tree

HIDDEN: Final = -1e30  # hides a score; finite, so that a row of nothing else is no NaN


class Want(Enum):
    """Which rows of a layer's output somebody needs; the state moves in any case."""

    ALL = "all"
    DECISIONS = "decisions"  # each question's last token, in the order of the tree's sequences
    NOTHING = "nothing"


@dataclass(frozen=True)
class Rows:
    """One bucket of leaf paths: ``index`` (n*L,) leaf tokens, flattened rows of length L."""

    n: int
    length: int
    index: Array


@dataclass(frozen=True)
class Layout:
    """The packed row of one pass: ``[commit | trunk | leaves]``.

    n_commit: tokens that become part of the state. n_trunk: tokens all questions share.
    n_leaf: the questions' own tokens. n_past: tokens already in the state.
    rows, back: see Tree. cos, sin: (M, F) rotary tables in float32. xp: numpy or mlx.core, what the
    pass computes with. cache: tables that follow from the tree and ``n_commit`` alone. padded:
    masks made as wide as the keys, for all layers of this pass.
    """

    tree: Tree
    n_past: int
    n_commit: int
    n_trunk: int
    n_leaf: int
    rows: tuple[Rows, ...]
    back: Array | None
    cos: Array
    sin: Array
    xp: Any
    cache: dict = field(default_factory=dict)
    padded: dict = field(default_factory=dict)

    @property
    def n_line(self) -> int:
        """Tokens on the main line: those committed, then the trunk."""
        return self.n_commit + self.n_trunk

    @property
    def n_tokens(self) -> int:
        """All tokens of the pass."""
        return self.n_line + self.n_leaf

    def decisions(self) -> Array:
        """Rows (N,) of each question's last token."""
        if "decisions" not in self.cache:
            self.cache["decisions"] = self.xp.array(self.n_commit + self.tree.last)
        return self.cache["decisions"]

    def ends(self) -> tuple[Array, Array]:
        """Leaf tokens that each question's last token sees: index (N, L) and additive mask (N, L).

        Paths shorter than L are filled up with hidden tokens; one that ends in the trunk has only
        those.
        """
        if "ends" not in self.cache:
            paths = [path[self.n_trunk :] - self.n_trunk for path in self.tree.paths]
            longest = max(len(path) for path in paths)
            index = np.zeros((len(paths), longest), np.int32)
            mask = np.full((len(paths), longest), HIDDEN, np.float32)
            for row, hide, path in zip(index, mask, paths, strict=True):
                row[: len(path)], hide[: len(path)] = path, 0.0
            self.cache["ends"] = self.xp.array(index), self.xp.array(mask)
        return self.cache["ends"]

    def fold(self) -> Array:
        """Additive mask (n_leaf, n_leaf) that hides from a leaf token what is not on its path."""
        if "fold" not in self.cache:
            mask = np.where(self.tree.sees, 0.0, HIDDEN).astype(np.float32)
            self.cache["fold"] = self.xp.array(mask)
        return self.cache["fold"]

    def before(self, n: int) -> np.ndarray:
        """Index (M, n) of each token's last ``n`` on its path, itself the last of them.

        Counted in the packed row of this pass with n - 1 older tokens put in front.
        """
        key = ("before", n)
        if key not in self.cache:
            index = np.arange(self.n_tokens, dtype=np.int32)[:, None] + np.arange(n, dtype=np.int32)
            main = np.arange(self.n_line, self.n_line + n - 1)  # the last of the main line
            for path in self.tree.paths:
                own = path[self.n_trunk :] + self.n_commit
                if not len(own):
                    continue
                along = np.concatenate([main, own + n - 1])
                index[own] = np.lib.stride_tricks.sliding_window_view(along, n)
            self.cache[key] = index
        return self.cache[key]

    def causal(self, length: int) -> Array:
        """Additive (L, L) mask that hides what comes later."""
        key = ("causal", length)
        if key not in self.cache:
            mask = np.triu(np.full((length, length), HIDDEN, dtype=np.float32), 1)
            self.cache[key] = self.xp.array(mask)
        return self.cache[key]


def make_layout(
    tree: Tree, n_past: int, n_commit: int, cos: np.ndarray, sin: np.ndarray, xp: Any = mx
) -> Layout:
    """Build the layout of ``tree`` behind ``n_commit`` new tokens and ``n_past`` old ones.

    The tables it makes are kept with the tree, for the next pass of the same questions.
    """
    cache = tree.kept((xp.__name__, n_commit))
    if "rows" not in cache:
        cache["rows"] = tuple(
            Rows(*bucket.shape, xp.array(bucket.index.reshape(-1))) for bucket in tree.buckets
        )
        cache["back"] = xp.array(tree.back) if tree.n_leaf else None
    return Layout(
        tree=tree,
        n_past=n_past,
        n_commit=n_commit,
        n_trunk=tree.n_trunk,
        n_leaf=tree.n_leaf,
        rows=cache["rows"],
        back=cache["back"],
        cos=xp.array(cos),
        sin=xp.array(sin),
        xp=xp,
        cache=cache,
    )
