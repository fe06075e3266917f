"""A prefix tree over the token ids of several questions, packed into one row of tokens.

Each distinct token path is stored once: first the trunk that all questions share, then the tokens
beyond it. Dense layers run over that one row without padding. Only what looks along a path (the
attention to a question's own tokens, the gated delta rule) works on padded rows, one per leaf,
gathered from the packed tokens; since every layer is causal, a shared token has the same value in
each row that passes through it, so one of them is read back.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

TABLES_KEPT: Final = 4  # a mask of a long append takes megabytes


@dataclass(frozen=True)
class Bucket:
    """Leaf paths of similar length.

    index: int32 (n, L), leaf tokens of each path counted from the end of the trunk; a path shorter
    than L repeats its last token, which nothing before it can see.
    """

    index: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, length)."""
        return self.index.shape


@dataclass(frozen=True)
class Tree:
    """Several token sequences, packed.

    ids: int (R + M,) distinct tokens, trunk first. offsets: int (R + M,) distance of each from the
    start of its sequence. n_trunk: R. last: packed index of each sequence's last token.
    paths: packed indices of each sequence's tokens. buckets: the leaf rows.
    back: int32 (M,), where each leaf token is found in the concatenated flattened buckets.
    tables: what the last passes made of it, by what they need beside it, to be used again.
    """

    ids: np.ndarray
    offsets: np.ndarray
    n_trunk: int
    last: np.ndarray
    paths: tuple[np.ndarray, ...]
    buckets: tuple[Bucket, ...]
    back: np.ndarray
    tables: dict = field(default_factory=dict, compare=False, repr=False)

    @property
    def n_leaf(self) -> int:
        """Tokens beyond the trunk."""
        return len(self.ids) - self.n_trunk

    @property
    def longest(self) -> int:
        """Length of the longest sequence in tokens."""
        return int(self.offsets.max()) + 1 if len(self.ids) else 0

    @cached_property
    def sees(self) -> np.ndarray:
        """Bool (M, M): which leaf tokens each leaf token attends to, those on its path up to it."""
        seen = np.zeros((self.n_leaf, self.n_leaf), dtype=bool)
        for path in self.paths:
            own = path[self.n_trunk :] - self.n_trunk
            for i, token in enumerate(own):
                seen[token, own[: i + 1]] = True
        return seen

    def restrict(self, keep: Sequence[int]) -> tuple[Tree, np.ndarray]:
        """Tree of the sequences ``keep`` alone, and each of its tokens' index in this one."""
        tables = self.kept(tuple(keep))
        if "restricted" in tables:
            return tables["restricted"]
        tree = build_tree([self.ids[self.paths[j]].tolist() for j in keep])
        select = np.zeros(len(tree.ids), dtype=np.int32)
        for new, j in enumerate(keep):
            select[tree.paths[new]] = self.paths[j]
        tables["restricted"] = tree, select
        return tree, select

    def kept(self, key: Hashable) -> dict:
        """Return the tables kept under ``key``, to be read and added to; only the last few are."""
        if key not in self.tables:
            while len(self.tables) >= TABLES_KEPT:
                self.tables.pop(next(iter(self.tables)))
            self.tables[key] = {}
        return self.tables[key]


def build_tree(sequences: Sequence[Sequence[int]]) -> Tree:
    """Pack ``sequences`` (each at least one token) into a Tree; none gives an empty one."""
    n_trunk = _common_prefix(sequences)
    ids: list[int] = []
    offsets: list[int] = []
    children: dict[tuple[int, int], int] = {}
    has_child: set[int] = set()
    paths = []
    for sequence in sequences:
        parent, path = -1, []
        for depth, token in enumerate(sequence):
            node = children.get((parent, token))
            if node is None:
                node = children[parent, token] = len(ids)
                ids.append(token)
                offsets.append(depth)
                has_child.add(parent)
            path.append(node)
            parent = node
        paths.append(np.array(path, dtype=np.int32))
    leaves = {int(p[-1]): p[n_trunk:] - n_trunk for p in paths if p[-1] not in has_child}
    rows = [row for row in leaves.values() if len(row)]
    buckets = _buckets(rows)
    return Tree(
        ids=np.array(ids, dtype=np.int32),
        offsets=np.array(offsets, dtype=np.int32),
        n_trunk=n_trunk,
        last=np.array([p[-1] for p in paths], dtype=np.int32),
        paths=tuple(paths),
        buckets=buckets,
        back=_read_back(buckets, len(ids) - n_trunk),
    )


def _common_prefix(sequences: Sequence[Sequence[int]]) -> int:
    if not sequences:
        return 0
    low, high = min(sequences), max(sequences)
    n = 0
    for a, b in zip(low, high, strict=False):
        if a != b:
            break
        n += 1
    return n


def _buckets(rows: list[np.ndarray]) -> tuple[Bucket, ...]:
    """Group rows of similar length, so that one long question does not pad all the others."""
    groups: list[list[np.ndarray]] = []
    for row in sorted(rows, key=len):
        if groups and len(row) <= 1.5 * len(groups[-1][0]) + 8:
            groups[-1].append(row)
        else:
            groups.append([row])
    out = []
    for group in groups:
        index = np.empty((len(group), len(group[-1])), dtype=np.int32)
        for line, row in zip(index, group, strict=True):
            line[: len(row)] = row
            line[len(row) :] = row[-1]
        out.append(Bucket(index))
    return tuple(out)


def _read_back(buckets: tuple[Bucket, ...], n_leaf: int) -> np.ndarray:
    back = np.full(n_leaf, -1, dtype=np.int32)
    start = 0
    for bucket in buckets:
        n, length = bucket.shape
        # Backwards, so that the first (unpadded, smallest) place of each token is the one kept.
        flat = bucket.index.reshape(-1)[::-1]
        back[flat] = np.arange(start + n * length - 1, start - 1, -1, dtype=np.int32)
        start += n * length
    if n_leaf and back.min() < 0:
        raise AssertionError("a leaf token lies on no path")
    return back
