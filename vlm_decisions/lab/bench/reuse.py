"""What a group and a tick cost where only some of the visual tokens changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ...engine.change import ChangeTracker
from ...engine.engine import Engine
from ...engine.pixels import resize
from ...engine.self_check import moving_square
from ...reuse import ReuseSettings
from ..shapes import random_engine
from .engine import N_GROUPS, questions
from .flops import sequence_flops, vision_flops, work_of

SHARES: Final = (1.0, 0.5, 0.25, 0.1)
SIZES: Final = (224, 448)
COUNTED: Final = "2b"  # shape whose operations are counted
CAMERA: Final = (480, 640)
SEEN: Final = ((192, 256), (384, 512), CAMERA)
MAPS: Final = 200  # runs of the change map


def bench_reuse(
    shape: str = "0.8b",
    sizes: Sequence[int] = SIZES,
    shares: Sequence[float] = SHARES,
    *,
    n_questions: int = 6,
    repeat: int = 3,
    layers: int | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Encode groups of which a share of the tokens changed, and ask about them.

    The shares take turns in each of ``repeat`` rounds after one that warms up; medians. The share 1
    is a full pass. Under ``results``, for each size (pixels along a side) and share: ``vision_s``
    and ``tick_s`` (vision, append, questions); ``vision_ratio`` and ``tick_ratio``, CPU time of all
    threads as a share of the full pass's, which other programs disturb less; ``vision_flops`` and
    ``tick_flops``, the same of operations. ``map_ms``: see `change_maps`. ``flops``: the
    shares for the 2b shape.
    """
    engine = random_engine(shape, layers=layers)
    results = []
    for size in sizes:
        rows = _size(engine, size, shares, n_questions, repeat)
        for row in rows:
            say(f"{shape} {size}x{size}, {row['share']:4.0%} changed: vision "
                f"{1e3 * row['vision_s']:7.1f} ms ({row['vision_ratio']:.2f}), tick "
                f"{1e3 * row['tick_s']:7.1f} ms ({row['tick_ratio']:.2f}); operations "
                f"{row['vision_flops']:.2f}, {row['tick_flops']:.2f}")
        results += rows
    maps = change_maps(engine)
    for name, ms in maps.items():
        what = "resize to the first size" if name == "resize" else f"change map seen at {name}"
        say(f"{what}: {ms:.3f} ms a frame of {CAMERA[1]}x{CAMERA[0]}")
    counted = random_engine(COUNTED, draw=False)
    flops = [{"size": size, **_operations(counted, size, share, n_questions)}
             for size in sizes for share in shares]
    for row in flops:
        say(f"{COUNTED} {row['size']}x{row['size']}, {row['share']:4.0%} changed: operations of "
            f"vision {row['vision_flops']:.2f}, of a tick {row['tick_flops']:.2f}")
    return {"shape": shape, "layers": engine.n_layers, "dtype": engine.dtype,
            "questions": n_questions, "rounds": repeat, "results": results, "map_ms": maps,
            "flops": flops}


def change_maps(engine: Engine) -> dict[str, float]:
    """CPU milliseconds a frame of 640x480 takes for the change map, by the size the model sees.

    The fastest of MAPS runs, with a light that is never quite the same. `resize`: what the frame
    takes to be resized to the first of these sizes, which the map spares where nothing changed.
    """
    side, out, threshold = engine.settings.factor, {}, ReuseSettings().threshold
    rng = np.random.default_rng(0)
    frames = np.stack(moving_square(*CAMERA, 4, 0))

    def fastest(run: Callable[[list[np.ndarray]], Any]) -> float:
        taken = []
        for i in range(MAPS):
            light = rng.integers(0, 8, dtype=np.uint8)
            pair = [frame // 8 * 8 + light for frame in (frames[2:] if i % 2 else frames[:2])]
            began = time.process_time()
            run(pair)
            taken.append(time.process_time() - began)
        return 1e3 * min(taken) / 2

    for height, width in SEEN:
        size = height // side * side, width // side * side
        tracker = ChangeTracker(side)
        tracker.encoded(frames[:2], None, size)

        def look(pair: list[np.ndarray], tracker: ChangeTracker = tracker) -> None:
            changed = tracker.compare(pair).score >= threshold
            tracker.encoded(pair, np.flatnonzero(changed))

        out[f"{size[1]}x{size[0]}"] = fastest(look)
    out["resize"] = fastest(lambda pair: [resize(frame, *SEEN[0]) for frame in pair])
    return out


def _size(
    engine: Engine, size: int, shares: Sequence[float], n_questions: int, repeat: int
) -> list[dict[str, Any]]:
    settings = ReuseSettings("pixels", full_above=1.0, refresh_groups=0)
    encoder = engine.reusing(settings, pixel_budget=size * size)
    frames = moving_square(size, size, 2 * N_GROUPS, 0)
    first = encoder.encode(frames[:2])
    rows, columns = first.grid
    rng = np.random.default_rng(0)
    order = rng.permutation(rows * columns)
    stream, queries = engine.stream(N_GROUPS), questions(n_questions)
    for i in range(N_GROUPS):
        stream.append(first, 0.0625 + 0.25 * i)
    stream.ask(queries)
    vision: dict[float, list[tuple[float, float]]] = {share: [] for share in shares}
    ticks: dict[float, list[tuple[float, float]]] = {share: [] for share in shares}
    count = N_GROUPS
    for i in range(repeat + 1):
        pair = frames[2 * (i % N_GROUPS) : 2 * (i % N_GROUPS) + 2]
        for share in shares:
            changed = np.zeros(rows * columns, bool)
            changed[order[: round(share * len(order))]] = True
            began = _now()
            if share == 1.0:
                encoder.lost()  # a full pass
            group = encoder.encode(pair, changed.reshape(rows, columns))
            seen = _now()
            stream.append(group, 0.0625 + 0.25 * count)
            stream.ask(queries)
            done = _now()
            count += 1
            if i:
                vision[share].append((seen[0] - began[0], seen[1] - began[1]))
                ticks[share].append((done[0] - began[0], done[1] - began[1]))
            while stream.idle():
                pass
    seconds = {share: [*np.median(vision[share], axis=0), *np.median(ticks[share], axis=0)]
               for share in shares}  # of the clock and of the CPU, each of vision and of the tick
    full = seconds[shares[0]]
    return [
        {
            "size": size,
            **_operations(engine, size, share, n_questions),
            "vision_s": float(seconds[share][0]),
            "vision_ratio": float(seconds[share][1] / full[1]),
            "tick_s": float(seconds[share][2]),
            "tick_ratio": float(seconds[share][3] / full[3]),
        }
        for share in shares
    ]


def _now() -> tuple[float, float]:
    """Seconds of the clock, and of the CPU in all threads."""
    return time.perf_counter(), time.process_time()


def _operations(engine: Engine, size: int, share: float, n_questions: int) -> dict[str, float]:
    """Shares of the operations of a full pass, and of a tick with it."""
    patches = (size // engine.settings.patch) ** 2
    tokens = patches // engine.settings.merge**2
    encoded = round(share * tokens) * engine.settings.merge**2
    queries = questions(n_questions)
    lengths = [engine.tokens(query) for query in queries]
    prefix = N_GROUPS * (tokens + 8)  # eight tokens of time stamp and vision tokens a group
    asked = work_of(engine, prefix, lengths, queries).flops["shared"]
    asked -= sequence_flops(engine, 0, prefix) - sequence_flops(engine, prefix - tokens - 8,
                                                                tokens + 8)  # fmt: skip
    full, some = (vision_flops(engine, patches, n) for n in (patches, encoded))
    return {"share": share, "vision_flops": some / full,
            "tick_flops": (some + asked) / (full + asked)}  # fmt: skip
