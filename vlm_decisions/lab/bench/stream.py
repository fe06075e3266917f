"""What a tick costs with a running state, and with a window made anew each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ...engine.engine import Engine
from ...engine.stream import Stream
from ..exactness import test_frames
from .engine import N_GROUPS, gemm_peak, questions, window
from .flops import asked_flops

WAYS: Final = {
    "window": {"mode": "window"},
    "stream": {},
    "stream_inline_rebuild": {"rebuild": "inline"},
}
LARGE: Final = 512  # hidden size from which a tick takes about a second on a CPU


def bench_stream(
    engine: Engine,
    *,
    n_questions: int = 6,
    ticks: int | None = None,
    window_groups: int = N_GROUPS,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Window tick against stream tick, with the rebuild between ticks and inside them.

    A tick is append and ask; encoding the group costs the same in all three and is given apart
    (``vision_ms``). ``idle`` runs between ticks and is not part of one (its longest piece is
    reported, since it must fit in the dead time). The three take turns, tick by tick, once all
    hold a window. ticks: None is 256 (of fewer, p99 would be the longest tick), for a large model
    32, of which the window, whose ticks are all alike, then makes every fourth.

    Each way has ``peak_fraction``, its operations a second as a share of ``gemm_peak``, that of a
    square product in the same run, and two spreads, p99 over p50: of the ticks, and of the time
    that this thread computed in them. Where the first is larger than the second, ticks waited for
    the machine, not for work. ``history_ms`` is the stream's p50 by the number of groups in its
    history, which is what its work depends on.
    """
    large = engine.decoder.hidden >= LARGE
    ticks, every = ticks or (32 if large else 256), 4 if large else 1
    groups, _ = window(engine)
    queries = questions(n_questions)
    streams = {way: engine.stream(window_groups, **how) for way, how in WAYS.items()}
    tree = engine.questions(queries).tree
    seconds: dict[str, list[float]] = {way: [] for way in streams}
    own: dict[str, list[float]] = {way: [] for way in streams}  # of which this thread computed
    work: dict[str, list[float]] = {way: [] for way in streams}  # operations
    histories: list[int] = []  # groups that the stream's questions saw
    longest = dict.fromkeys(streams, 0.0)
    # Each way meets all of its shapes before it is timed; for a large model they matter less.
    warm = window_groups + (2 if large else 3 * window_groups)
    started = time.perf_counter()
    for i in range(warm + ticks):
        for way, stream in streams.items():
            start, computed = time.perf_counter(), time.thread_time()
            stream.append(groups[i % len(groups)], 0.0625 + 0.25 * i)
            before = 0 if way == "window" else stream.state.length
            if i >= window_groups and (way != "window" or i % every == 0):
                stream.ask(queries)
                if i >= warm:
                    seconds[way].append(time.perf_counter() - start)
                    own[way].append(time.thread_time() - computed)
                    after = _tokens(engine, stream)
                    work[way].append(asked_flops(engine, before, after - before, tree))
                    if way == "stream":
                        histories.append(stream.n_groups)
            more = True
            while more:
                start = time.perf_counter()
                more = stream.idle()
                if i >= warm:
                    longest[way] = max(longest[way], time.perf_counter() - start)
        if large and i % window_groups == 0:
            say(f"tick {i} of {warm + ticks}: {time.perf_counter() - started:.0f} s")
    out: dict[str, Any] = {
        "model": engine.name,
        "questions": n_questions,
        "ticks": ticks,
        "vision_ms": _vision_ms(engine),
    }
    out["gemm_peak"] = peak = gemm_peak(engine)
    for way, values in seconds.items():
        p50, p95, p99 = (float(v) * 1e3 for v in np.percentile(values, [50, 95, 99]))
        out[way] = {
            "p50_ms": p50,
            "p95_ms": p95,
            "p99_ms": p99,
            "idle_ms": longest[way] * 1e3,
            "peak_fraction": float(np.median(np.divide(work[way], values)) / peak),
            "spread": p99 / p50,
            "own_spread": float(np.percentile(own[way], 99) / np.median(own[way])),
        }
        say(f"{way:<22} p50 {p50:.1f}  p95 {p95:.1f}  p99 {p99:.1f} ms  of the GEMM peak "
            f"{out[way]['peak_fraction']:.2f}  p99/p50 {p99 / p50:.2f}, of its own thread's time "
            f"{out[way]['own_spread']:.2f}")
    out["ratio"] = out["stream"]["p50_ms"] / out["window"]["p50_ms"]
    out["history_ms"] = {
        str(n): float(np.median([s for s, h in zip(seconds["stream"], histories, strict=True)
                                 if h == n])) * 1e3
        for n in sorted(set(histories))
    }
    say(f"stream / window {out['ratio']:.2f}; encoding a group {out['vision_ms']:.1f} ms more")
    return out


def _tokens(engine: Engine, stream: Stream) -> int:
    """Tokens of a stream's groups and what stands before them."""
    template = engine.template("video")
    groups = zip(stream.groups, stream.times_s, strict=True)
    lengths = (len(template.group_ids(t_s, group.n_tokens)) for group, t_s in groups)
    return len(template.header_ids) + sum(lengths)


def _vision_ms(engine: Engine, repeat: int = 7) -> float:
    frames = test_frames(engine, 2)
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        engine.encode(frames)
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds)) * 1e3
