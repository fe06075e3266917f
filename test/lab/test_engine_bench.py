"""The benchmarks: what they count is right, and all ways they time give the same answers."""

import json

import pytest

from vlm_decisions.engine import Query
from vlm_decisions.lab.bench.engine import WAYS, bench_engine, questions
from vlm_decisions.lab.bench.flops import (
    asked_flops,
    sequence_flops,
    work_of,
)
from vlm_decisions.lab.bench.stream import bench_stream
from vlm_decisions.lab.shapes import random_engine


@pytest.fixture(scope="module")
def engine():
    return random_engine("tiny", layers=2)


@pytest.mark.slow
def test_rows_hold_what_the_documentation_names():
    said = []
    out = bench_engine("tiny", (1, 3), repeat=1, layers=2, with_blas=False, say=said.append)
    assert any("3 questions" in line for line in said)
    assert json.loads(json.dumps(out))["shape"] == "tiny"
    one, three = out["results"]
    assert three["questions"] == 3
    for key in ("seconds", "speedups", "peak_bytes", "tokens", "flops", "peak_fraction"):
        assert set(three[key]) == set(WAYS), key
        assert all(value > 0 for value in three[key].values()), key
    assert set(three["extra_bytes"]) == {"copies", "shared"}
    assert three["extra_bytes"]["copies"] > three["extra_bytes"]["shared"] > 0
    assert three["speedup"] == three["seconds"]["independent"] / three["seconds"]["shared"]
    assert three["bound_fraction"] == pytest.approx(three["speedup"] / three["flop_bound"])
    assert three["tick_speedup"] == pytest.approx(
        three["seconds"]["independent"] / three["tick_seconds"]
    )
    assert one["flop_bound"] == pytest.approx(1.0)
    assert 1.0 < three["flop_bound"] < 3.0
    assert three["peak_fraction"]["shared"] == pytest.approx(
        three["flops"]["shared"] / three["seconds"]["shared"] / out["gemm_peak"]
    )


def test_ways_that_disagree_are_not_timed(monkeypatch):
    from vlm_decisions.lab.bench import baselines

    right = baselines.copies

    def wrong(case, caches, position):
        return right(case, caches, position)[::-1]  # each question gets the other's answer

    monkeypatch.setattr(baselines, "copies", wrong)
    with pytest.raises(RuntimeError, match="disagree"):
        bench_engine("tiny", (2,), repeat=1, layers=2, with_blas=False, say=print)


@pytest.mark.slow
def test_stream_rows(engine):
    out = bench_stream(engine, n_questions=2, ticks=4, window_groups=2, say=lambda line: None)
    assert json.loads(json.dumps(out))["questions"] == 2
    for way in ("window", "stream", "stream_inline_rebuild"):
        assert 0 < out[way]["p50_ms"] <= out[way]["p95_ms"] <= out[way]["p99_ms"]
        assert out[way]["spread"] == out[way]["p99_ms"] / out[way]["p50_ms"]
        assert out[way]["own_spread"] >= 1 and out[way]["peak_fraction"] > 0
    assert out["gemm_peak"] > 0
    assert set(out["history_ms"]) <= {"2", "3", "4", "5"}  # one to two windows, and a rebuild's


def test_a_pass_is_counted_by_what_it_appends(engine):
    tree = engine.questions([Query("Is a cup there?"), Query("Is a phone there?")]).tree
    window, tick = asked_flops(engine, 0, 128, tree), asked_flops(engine, 112, 16, tree)
    before = sequence_flops(engine, 0, 112)
    assert window == pytest.approx(before + tick, rel=0.02)
    assert asked_flops(engine, 500, 16, tree) > tick  # a longer history is read


def test_flops_grow_with_tokens_and_context(engine):
    weights = 2 * sum(
        value.size
        for layer in engine.model.language_model.model.layers
        for name, value in _flat(layer)
        if value.ndim == 2 and name.endswith("weight")
    )
    one = sequence_flops(engine, 0, 1)
    assert one > weights
    assert one < 1.3 * weights
    assert sequence_flops(engine, 0, 64) > 64 * weights
    assert sequence_flops(engine, 1000, 1) > one


def _flat(module):
    from mlx.utils import tree_flatten

    return tree_flatten(module.parameters())


def test_work_counts_shared_tokens_once(engine):
    queries = [Query("Is a cup there?"), Query("Is a phone there?")]
    suffixes = [len(engine.question(query).ids) for query in queries]
    work = work_of(engine, 100, suffixes, queries)
    tree = engine.questions(queries).tree
    assert work.tokens == {
        "independent": 200 + sum(suffixes),
        "mlx_vlm": 202 + sum(suffixes),
        "copies": 100 + 2 * max(suffixes),
        "serial": 100 + sum(suffixes),
        "shared": 100 + len(tree.ids),
    }
    assert work.flops["shared"] < work.flops["serial"] <= work.flops["copies"]
    assert work.flops["copies"] < work.flops["independent"] < work.flops["mlx_vlm"]
    assert work.tokens["shared"] < 100 + sum(suffixes)
    assert 1 < work.bound < 2


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="0.8b"):
        random_engine("huge")
    with pytest.raises(ValueError, match="at most"):
        questions(2000)
