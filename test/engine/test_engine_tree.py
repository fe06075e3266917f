"""The prefix tree: each distinct path once, and every question found again in it."""

import numpy as np
import pytest

from vlm_decisions.engine.layout import make_layout
from vlm_decisions.engine.tree import build_tree


def check(sequences):
    tree = build_tree(sequences)
    prefixes = {tuple(s[: i + 1]) for s in sequences for i in range(len(s))}
    assert len(tree.ids) == len(prefixes)
    for sequence, path, last in zip(sequences, tree.paths, tree.last, strict=True):
        assert tree.ids[path].tolist() == list(sequence)
        assert tree.offsets[path].tolist() == list(range(len(sequence)))
        assert last == path[-1]
        assert path[: tree.n_trunk].tolist() == list(range(tree.n_trunk))
    flat = [bucket.index.reshape(-1) for bucket in tree.buckets]
    if tree.n_leaf:
        assert np.concatenate(flat)[tree.back].tolist() == list(range(tree.n_leaf))
    # a token read back stands at its own depth of a row, never in the padding
    start = 0
    for bucket in tree.buckets:
        n, length = bucket.shape
        for place, token in enumerate(bucket.index.reshape(-1)):
            if start + place in tree.back:
                assert tree.offsets[tree.n_trunk + token] == tree.n_trunk + place % length
        start += n * length
    return tree


def test_trunk_and_leaves():
    tree = check([[1, 2, 3, 9], [1, 2, 4, 9], [1, 2, 4, 8, 9]])
    assert tree.n_trunk == 2
    assert tree.n_leaf == 6  # 3 9, then 4 once, and behind it 9 and 8 9
    assert tree.longest == 5


def test_one_question_is_all_trunk():
    tree = check([[1, 2, 3]])
    assert (tree.n_trunk, tree.n_leaf, tree.buckets) == (3, 0, ())


def test_the_same_question_twice_is_run_once():
    tree = check([[1, 2, 3], [1, 2, 3]])
    assert len(tree.ids) == 3
    assert tree.last.tolist() == [2, 2]


def test_a_question_that_begins_another():
    tree = check([[1, 2], [1, 2, 3, 4], [1, 2, 3]])
    assert tree.n_trunk == 2
    assert tree.last.tolist() == [1, 3, 2]


def test_none():
    tree = build_tree([])
    assert (len(tree.ids), tree.n_trunk, tree.longest) == (0, 0, 0)


def test_a_long_question_does_not_pad_the_short_ones():
    short = [[0, i, 7, 7, 7, 7] for i in range(1, 9)]
    tree = check([*short, [0, 99, *range(100, 180)]])
    assert [bucket.shape[1] for bucket in tree.buckets] == [5, 81]


@pytest.mark.parametrize("seed", range(8))
def test_random_sets(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    sequences = [[5, *rng.integers(0, 3, rng.integers(1, 30)).tolist(), 6] for _ in range(n)]
    tree = check(sequences)
    keep = sorted(rng.choice(n, size=int(rng.integers(0, n)), replace=False).tolist())
    smaller, select = tree.restrict(keep)
    assert tree.ids[select].tolist() == smaller.ids.tolist()
    assert tree.offsets[select].tolist() == smaller.offsets.tolist()
    for path, j in zip(smaller.paths, keep, strict=True):
        assert smaller.ids[path].tolist() == sequences[j]


def test_what_each_token_has_before_it():
    """Along its own path: from the question into the main line and its older tokens."""
    sequences = [[5, 6, 1, 2, 3], [5, 6, 1, 2, 4], [5, 6, 7], [5, 6]]
    tree = build_tree(sequences)
    for n_commit in (0, 1, 4):
        n = n_commit + len(tree.ids)
        table = np.zeros((n, 1), np.float32)
        index = make_layout(tree, 10, n_commit, table, table).before(4)
        assert index.shape == (n, 4) and (index[:, -1] == np.arange(n) + 3).all()
        line = list(range(n_commit + 3))  # three older tokens, then those committed
        for path in tree.paths:
            along = [*line, *(n_commit + 3 + path)]
            for k, token in enumerate(n_commit + path):
                assert index[token].tolist() == along[len(line) + k - 3:len(line) + k + 1]


def test_only_the_last_tables_are_kept():
    tree = build_tree([[1, 2, 3], [1, 2, 4]])
    for n in range(20):
        tree.kept(n)["mask"] = n
    assert len(tree.tables) <= 4
    assert tree.kept(19) == {"mask": 19}
    assert tree.restrict([0])[0] is tree.restrict([0])[0]
