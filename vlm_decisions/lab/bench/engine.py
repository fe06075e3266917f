"""How fast many questions about one window are, against doing it in other ways, in one run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

import numpy as np

from ...engine import blas
from ...engine.arrays import evaluate
from ...engine.engine import Engine
from ...engine.readout import Query
from ...engine.stream import Stream
from ...engine.vision import VisionGroup
from ..exactness import test_frames
from ..shapes import random_engine
from . import baselines
from .clock import Clock
from .flops import work_of

N_GROUPS: Final = 8
SUBJECTS: Final = (
    "person", "cup", "phone", "laptop", "pen", "door", "second person", "chair", "lamp", "window",
)  # fmt: skip
PREDICATES: Final = (
    "present", "on the desk", "moving left", "moving right", "near the laptop", "in the hand",
    "approaching",
)  # fmt: skip
KINDS: Final = (
    "", "red ", "blue ", "green ", "black ", "white ", "grey ", "small ", "large ", "left ",
    "right ", "first ", "last ", "old ", "new ",
)  # fmt: skip
WAYS: Final = ("independent", "mlx_vlm", "copies", "serial", "shared")
Say = Callable[[str], None]


def questions(n: int) -> list[Query]:
    """Return ``n`` distinct yes/no questions of ordinary length."""
    texts = [f"Is the {k}{s} {p}?" for k in KINDS for p in PREDICATES for s in SUBJECTS]
    if n > len(texts):
        raise ValueError(f"at most {len(texts)} questions, not {n}")
    return [Query(text) for text in texts[:n]]


def window(engine: Engine) -> tuple[list, list[float]]:
    """Return the groups of one window and their times in seconds."""
    frames = test_frames(engine, 2 * N_GROUPS)
    groups = [engine.encode(frames[2 * i : 2 * i + 2]) for i in range(N_GROUPS)]
    return groups, [0.0625 + 0.25 * i for i in range(N_GROUPS)]


def bench_engine(
    shape: str = "tiny",
    counts: Sequence[int] = (1, 6, 18, 64),
    *,
    repeat: int | None = None,
    measured: int | None = None,
    layers: int | None = None,
    with_blas: bool = True,
    say: Say = print,
) -> dict[str, Any]:
    """Compare the ways for each number of questions; see the module and ``baselines``.

    All ways take turns in each of ``repeat`` rounds after one that warms up, checks that they agree
    and measures memory; medians over the rounds. The ways that run one question after the other
    (independent, mlx_vlm, serial) are timed on ``measured`` questions a round and multiplied.
    None: 5 rounds and 8 questions for tiny, 2 and 1 for larger shapes. layers: fewer
    language-model layers than the shape has. Raises RuntimeError if the ways do not agree.
    """
    small = shape == "tiny"
    repeat, measured = repeat or (5 if small else 2), measured or (8 if small else 1)
    started = time.perf_counter()
    engine = random_engine(shape, layers=layers)
    groups, times_s = window(engine)
    cases = {n: baselines.Case(engine, groups, times_s, questions(n)) for n in sorted(set(counts))}
    most = questions(max(cases))
    measured = min(measured, len(most))
    stream = engine.stream(N_GROUPS)
    for group, t_s in zip(groups, times_s, strict=True):
        stream.append(group, t_s)
    stream.idle()
    later_s = (times_s[-1] + 0.25 * i for i in count(1))
    clock = Clock()

    def ask_all(n: int, case: baselines.Case, caches: list, position: int) -> list[Sequence]:
        """Run the ways that share the prefix, and a live tick; return their answers."""
        few = baselines.Case(engine, groups, times_s, case.queries[:measured])
        copied = clock((n, "copies"), lambda: baselines.copies(case, caches, position))
        serial = clock((n, "serial"), lambda: baselines.serial(few, caches, position))
        shared = clock((n, "shared"), lambda: engine.window(groups, times_s).ask(case.queries))
        clock((n, "tick"), lambda: _tick(stream, groups[0], next(later_s), case.queries))
        while stream.idle():
            pass
        if not clock.warm:
            prefix = engine.window(groups, times_s)
            prefix.prefill()
            clock((n, "fork"), lambda: prefix.ask(case.queries))
        return [shared, copied, serial]

    for i in range(repeat + 1):
        clock.warm = i > 0
        some = [most[(i * measured + j) % len(most)] for j in range(measured)]
        caches, position, want = _one_by_one(clock, baselines.Case(engine, groups, times_s, some))
        for n, case in cases.items():
            answers = ask_all(n, case, caches, position)
            if not clock.warm:
                _agree(*answers, want)
            label = f"round {i} of {repeat}" if i else "warm-up"
            say(f"{label}, {n} questions: {time.perf_counter() - started:.0f} s since the start")
    held = baselines.cache_bytes(caches)
    peak = gemm_peak(engine)
    results = [_row(clock, case, measured, held, peak) for case in cases.values()]
    for row in results:
        say(_line(shape, row))
    out = {
        "shape": shape,
        "layers": engine.n_layers,
        "dtype": engine.dtype,
        "blas": blas.ensure().path,
        "threads": blas.threads(),
        "rounds": repeat,
        "gemm_peak": peak,
        "results": results,
    }
    if with_blas:
        out["cpu_blas_ratio"] = blas_ratio(shape, layers=layers)
        say(f"prefill against stock mlx-vlm: {out['cpu_blas_ratio']:.1f} times as fast")
    return out


def _one_by_one(clock: Clock, case: baselines.Case) -> tuple[list, int, list[np.ndarray]]:
    """Time what does not depend on the number of questions.

    Returns mlx-vlm's caches of the prefix, the position behind it, and the independent answers.
    """
    want = clock("independent", lambda: baselines.independent(case))
    clock("mlx_vlm", lambda: baselines.mlx_vlm_generate(case))
    clock("alone", lambda: baselines.engine_alone(case))
    caches, position = clock("prefill", lambda: baselines.prefill(case))
    return caches, position, want


def _tick(stream: Stream, group: VisionGroup, t_s: float, queries: Sequence[Query]) -> None:
    """One live tick: append a group to a window or more, answer all."""
    stream.append(group, t_s)
    stream.ask(queries)


def _agree(shared: Sequence, *others: Sequence) -> None:
    """Raise RuntimeError unless the first answers of all ways are those of the shared pass."""
    for other in others:
        for mine, theirs in zip(shared, other, strict=False):
            worst = float(np.abs(mine.probabilities - theirs).max())
            if not worst < 1e-3:
                raise RuntimeError(f"the ways disagree by {worst:.1e} in a probability")


def gemm_peak(engine: Engine, size: int = 1536, repeat: int = 5) -> float:
    """Return operations a second of the best of some square products, as the engine makes them."""
    xp, dtype = engine.decoder.xp, engine.decoder.dtype
    a = xp.array(np.random.default_rng(0).standard_normal((size, size)).astype(np.float32))
    a, best = a.astype(dtype), float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        evaluate(a @ a)
        best = min(best, time.perf_counter() - start)
    return 2.0 * size**3 / best


def _row(
    clock: Clock, case: baselines.Case, measured: int, held: int, peak: float
) -> dict[str, Any]:
    """One number of questions: times, memory, tokens and operations of each way.

    held: bytes of the prefix's caches. peak: operations a second of a square product.
    """
    n = len(case.queries)
    times = n / measured
    prefill_s = clock.median("prefill")
    few = min(n, measured)
    seconds = {
        "independent": clock.median("independent") * times,
        "mlx_vlm": clock.median("mlx_vlm") * times,
        "copies": prefill_s + clock.median((n, "copies")),
        "serial": prefill_s + clock.median((n, "serial")) * n / few,
        "shared": clock.median((n, "shared")),
    }
    alone_s, tick_s = clock.median("alone") * times, clock.median((n, "tick"))
    work = work_of(
        case.engine, len(case.prefix_ids), [len(q.ids) for q in case.questions], case.queries
    )
    speedup = seconds["independent"] / seconds["shared"]
    return {
        "questions": n,
        "seconds": seconds,
        "speedups": {way: seconds["independent"] / seconds[way] for way in WAYS},
        "extra_bytes": {"copies": clock.peaks[n, "copies"], "shared": clock.peaks[n, "fork"]},
        "peak_bytes": {
            "independent": clock.peaks["independent"],
            "mlx_vlm": clock.peaks["mlx_vlm"],
            "copies": max(clock.peaks["prefill"], held + clock.peaks[n, "copies"]),
            "serial": max(clock.peaks["prefill"], held + clock.peaks[n, "serial"]),
            "shared": clock.peaks[n, "shared"],
        },
        "tokens": work.tokens,
        "flops": work.flops,
        "peak_fraction": {way: work.flops[way] / seconds[way] / peak for way in work.flops},
        "speedup": speedup,
        "tick_seconds": tick_s,
        "tick_speedup": seconds["independent"] / tick_s,
        "flop_bound": work.bound,
        "bound_fraction": speedup / work.bound,
        # The same without our faster kernels: each question in a window of its own, by the engine.
        "alone_seconds": alone_s,
        "sharing_speedup": alone_s / seconds["shared"],
        "sharing_fraction": alone_s / seconds["shared"] / work.bound,
    }


def _line(shape: str, row: dict[str, Any]) -> str:
    memory = row["extra_bytes"]
    return (
        f"{shape} {row['questions']:3} questions: "
        + "  ".join(f"{key} {value:.3f} s" for key, value in row["seconds"].items())
        + f"\n    speed-up {row['speedup']:.1f} (bound {row['flop_bound']:.1f})"
        f"  of the GEMM peak {row['peak_fraction']['shared']:.2f}"
        f"  tick {row['tick_speedup']:.1f}"
        f"  by sharing alone {row['sharing_speedup']:.1f} ({row['sharing_fraction']:.2f} of the"
        f" bound)\n    extra memory {memory['shared'] / 1e6:.1f} MB,"
        f" copies {memory['copies'] / 1e6:.1f} MB"
    )


def blas_ratio(shape: str, *, layers: int | None = None) -> float:
    """How many times faster our prefill is than stock mlx-vlm's in a process of its own."""
    layers = layers or (4 if shape != "tiny" else None)
    stock = _in_process(f"stock_prefill({shape!r}, {layers!r})", VLM_DECISIONS_BLAS="none")
    ours = _in_process(f"our_prefill({shape!r}, {layers!r})")
    return stock / ours


def stock_prefill(shape: str, layers: int | None) -> float:
    """Seconds of one window prefill by mlx-vlm's own layers."""
    engine = random_engine(shape, layers=layers)
    groups, times_s = window(engine)
    case = baselines.Case(engine, groups, times_s, questions(1))
    return _seconds(lambda: baselines.prefill(case), 1)


def our_prefill(shape: str, layers: int | None) -> float:
    """Seconds of the same prefill by the engine."""
    engine = random_engine(shape, layers=layers)
    groups, times_s = window(engine)
    return _seconds(lambda: engine.window(groups, times_s).prefill(), 3)


def _seconds(run: Callable[[], Any], repeat: int) -> float:
    """Median seconds of ``repeat`` runs after one that warms up."""
    run()
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def _in_process(call: str, **env: str) -> float:
    # Its input ends with this process, however that ends, and it with its input.
    code = (
        "import os, threading\n"
        "threading.Thread(target=lambda: os._exit(len(os.read(0, 1))), daemon=True).start()\n"
        f"from vlm_decisions.lab.bench import engine as b; print(b.{call}, flush=True)"
    )
    reader, writer = os.pipe()
    try:
        out = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, **env},
            stdin=reader,
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        os.close(reader)
        os.close(writer)
    if out.returncode:
        raise RuntimeError(f"{call} failed: {out.stderr.strip().splitlines()[-1]}")
    return float(out.stdout.strip().splitlines()[-1])
