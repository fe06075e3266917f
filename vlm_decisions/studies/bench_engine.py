"""How fast many questions about one window are, against doing it in other ways, in one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from vlm_decisions.engine import blas

blas.ensure()

import mlx.core as mx  # noqa: E402
import numpy as np  # noqa: E402

from vlm_decisions.engine.engine import Engine  # noqa: E402
from vlm_decisions.engine.readout import Query  # noqa: E402
from vlm_decisions.studies import baselines  # noqa: E402
from vlm_decisions.studies.exactness import test_frames  # noqa: E402
from vlm_decisions.studies.flops import Work, work_of  # noqa: E402
from vlm_decisions.studies.shapes import random_engine  # noqa: E402

N_GROUPS: Final = 8
SUBJECTS: Final = (
    "person", "cup", "phone", "laptop", "pen", "door", "second person", "chair", "lamp", "window",
)  # fmt: skip
PREDICATES: Final = (
    "present", "on the desk", "moving left", "moving right", "near the laptop", "in the hand",
    "approaching",
)  # fmt: skip
Say = Callable[[str], None]


def questions(n: int) -> list[Query]:
    """Return ``n`` distinct yes/no questions of ordinary length."""
    pairs = [(s, p) for p in PREDICATES for s in SUBJECTS]
    if n > len(pairs):
        raise ValueError(f"at most {len(pairs)} questions, not {n}")
    return [Query(f"Is the {subject} {predicate}?") for subject, predicate in pairs[:n]]


def _time(run: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """Median seconds of ``repeat`` runs after one that warms up, and the last result."""
    out = run()
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        out = run()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds)), out


def _peak(run: Callable[[], Any]) -> int:
    """Bytes that ``run`` needs at its peak beyond what is held before."""
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    run()
    return max(0, mx.get_peak_memory() - before)


def _window(engine: Engine) -> tuple[list, list[float]]:
    frames = test_frames(engine, 2 * N_GROUPS)
    groups = [engine.encode(frames[2 * i : 2 * i + 2]) for i in range(N_GROUPS)]
    return groups, [0.0625 + 0.25 * i for i in range(N_GROUPS)]


def bench_engine(
    shape: str = "tiny",
    counts: Sequence[int] = (1, 6, 18, 64),
    *,
    repeat: int = 3,
    measured: int | None = None,
    layers: int | None = None,
    with_blas: bool = True,
    say: Say = print,
) -> dict[str, Any]:
    """Compare the ways for each number of questions; see the module and ``baselines``.

    measured: how many whole sequences to run at most before multiplying (None: 3 for large shapes,
    all for tiny). layers: fewer language-model layers than the shape has. Raises RuntimeError if
    the ways do not agree on the answers.
    """
    engine = random_engine(shape, layers=layers)
    measured = measured or (64 if shape == "tiny" else 3)
    groups, times_s = _window(engine)
    results = []
    for n in counts:
        row = _row(engine, groups, times_s, n, repeat, measured)
        results.append(row)
        say(
            f"{shape} {n:3} questions: "
            + "  ".join(f"{key} {value:.3f} s" for key, value in row["seconds"].items())
            + f"  speed-up {row['speedup']:.1f} (bound {row['flop_bound']:.1f})"
            f"  tick {row['tick_speedup']:.1f}"
        )
    out = {
        "shape": shape,
        "layers": engine.n_layers,
        "dtype": engine.dtype,
        "blas": blas.ensure().path,
        "results": results,
    }
    if with_blas:
        out["cpu_blas_ratio"] = blas_ratio(shape, layers=layers)
    return out


def _row(
    engine: Engine, groups: list, times_s: list[float], n: int, repeat: int, measured: int
) -> dict[str, Any]:
    queries = questions(n)
    case = baselines.Case(engine, groups, times_s, queries)
    some = min(n, measured)
    few = max(1, repeat // 2) if some > 1 else repeat
    alone_s, want = _time(lambda: baselines.independent(case, some), few)
    generate_s, _ = _time(lambda: baselines.mlx_vlm_generate(case, some), few)
    prefill_s, (caches, position) = _time(lambda: baselines.prefill(case), repeat)
    copies_s, copied = _time(lambda: baselines.copies(case, caches, position), repeat)
    serial_s, _ = _time(lambda: baselines.serial(case, caches, position), few)
    shared_s, got = _time(lambda: engine.window(groups, times_s).ask(queries), repeat)
    for mine, theirs in zip(got, copied, strict=True):
        _agree(mine.probabilities, theirs)
    for mine, theirs in zip(got, want, strict=False):
        _agree(mine.probabilities, theirs)
    prefix = engine.window(groups, times_s)
    prefix.prefill()
    extra = {
        "copies": _peak(lambda: baselines.copies(case, caches, position)),
        "shared": _peak(lambda: prefix.ask(queries)),
    }
    tick_s = _tick(engine, groups, queries, max(repeat, 3))
    seconds = {
        "independent": alone_s * n / some,
        "mlx_vlm": generate_s * n / some,
        "copies": prefill_s + copies_s,
        "serial": prefill_s + serial_s,
        "shared": shared_s,
    }
    work = work_of(engine, len(case.prefix_ids), [len(q.ids) for q in case.questions], queries)
    speedup = seconds["independent"] / shared_s
    return {
        "questions": n,
        "seconds": seconds,
        "fork_seconds": {"copies": copies_s, "serial": serial_s},
        "tick_seconds": tick_s,
        "independent_measured": some,
        "extra_bytes": extra,
        "tokens": work.tokens,
        "flops": work.flops,
        "speedup": speedup,
        "tick_speedup": seconds["independent"] / tick_s,
        "flop_bound": work.bound,
        "bound_fraction": speedup / work.bound,
    }


def _agree(mine: np.ndarray, theirs: np.ndarray) -> None:
    worst = float(np.abs(mine - theirs).max())
    if not worst < 1e-3:
        raise RuntimeError(f"the ways disagree by {worst:.1e} in a probability")


def _tick(engine: Engine, groups: list, queries: list[Query], repeat: int) -> float:
    """Median seconds of one live tick: append a group to a full window, answer all."""
    stream = engine.stream(N_GROUPS)
    for i, group in enumerate(groups):
        stream.append(group, 0.0625 + 0.25 * i)
    stream.idle()
    seconds = []
    for i in range(repeat + 1):
        start = time.perf_counter()
        stream.append(groups[i % N_GROUPS], 0.0625 + 0.25 * (N_GROUPS + i))
        stream.ask(queries)
        seconds.append(time.perf_counter() - start)
        while stream.idle():
            pass
    return float(np.median(seconds[1:]))


def bench_stream(
    engine: Engine,
    *,
    n_questions: int = 12,
    ticks: int = 64,
    window_groups: int = N_GROUPS,
    say: Say = print,
) -> dict[str, Any]:
    """Window tick against stream tick, with the rebuild between ticks and inside them.

    A tick is append and ask; ``idle`` runs between ticks and is not part of one (its longest piece
    is reported, since it must fit in the dead time). The three take turns, tick by tick.
    """
    groups, _ = _window(engine)
    queries = questions(n_questions)
    ways = {
        "window": engine.stream(window_groups, "window"),
        "stream": engine.stream(window_groups),
        "stream_inline_rebuild": engine.stream(window_groups, rebuild="inline"),
    }
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    longest = dict.fromkeys(ways, 0.0)
    warm = 4 * window_groups  # each way has met all of its shapes by then
    for i in range(warm + ticks):
        for way, stream in ways.items():
            start = time.perf_counter()
            stream.append(groups[i % len(groups)], 0.0625 + 0.25 * i)
            stream.ask(queries)
            if i >= warm:
                seconds[way].append(time.perf_counter() - start)
            more = True
            while more:
                start = time.perf_counter()
                more = stream.idle()
                if i >= warm:
                    longest[way] = max(longest[way], time.perf_counter() - start)
    out: dict[str, Any] = {"questions": n_questions, "ticks": ticks, "model": engine.name}
    for way, values in seconds.items():
        p50, p95, p99 = (float(v) * 1e3 for v in np.percentile(values, [50, 95, 99]))
        out[way] = {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "idle_ms": longest[way] * 1e3}
        say(f"{way:<22} p50 {p50:.1f}  p95 {p95:.1f}  p99 {p99:.1f} ms")
    return out


def blas_ratio(shape: str, *, layers: int | None = None) -> float:
    """How many times faster our prefill is than stock mlx-vlm's in a process of its own."""
    layers = layers or (4 if shape != "tiny" else None)
    stock = _in_process(f"stock_prefill({shape!r}, {layers!r})", VLM_DECISIONS_BLAS="none")
    ours = _in_process(f"our_prefill({shape!r}, {layers!r})")
    return stock / ours


def stock_prefill(shape: str, layers: int | None) -> float:
    """Seconds of one window prefill by mlx-vlm's own layers."""
    engine = random_engine(shape, layers=layers)
    groups, times_s = _window(engine)
    case = baselines.Case(engine, groups, times_s, questions(1))
    return _time(lambda: baselines.prefill(case), 1)[0]


def our_prefill(shape: str, layers: int | None) -> float:
    """Seconds of the same prefill by the engine."""
    engine = random_engine(shape, layers=layers)
    groups, times_s = _window(engine)
    return _time(lambda: engine.window(groups, times_s).prefill(), 3)[0]


def _in_process(call: str, **env: str) -> float:
    code = f"from vlm_decisions.studies import bench_engine as b; print(b.{call})"
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )
    if out.returncode:
        raise RuntimeError(f"{call} failed: {out.stderr.strip().splitlines()[-1]}")
    return float(out.stdout.strip().splitlines()[-1])


__all__ = ["Work", "bench_engine", "bench_stream", "blas_ratio", "json", "questions"]
