"""`vlm-decisions study heads`: predictions of the Tier 1 heads on a camera or a file, over time.

Frames go through camera health, sampler, encoder and heads as in the runtime. If a head gives an
unexpected answer, this shows whether the frames, the features or the head is the cause.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...files.columns import columns
from ...files.listing import listed
from ...frames import NS, Frame, Sampler
from ...runtime.heads import Head
from ...runtime.health import HealthMonitor
from ...sources.source import Source
from .clip_answers import StudyError

KEPT = 64  # groups, more than any head reads


def heads_view(engine: Any, heads: Sequence[Head], source: Source,
               max_s: float | None = None) -> dict[str, Any]:
    """Run heads on a source until its end, or for `max_s` seconds.

    Returns:
        frames: {count, size [width, height], rate_hz, brightness (mean grey level)}; health
        {id: mean over frames}; features: {norm (mean length of the pooled features), change (mean
        cosine distance from group to group)}; groups; segments; t_s: when each group ends; heads:
        {name: {question, p (a number per group, null while its window is too short), mean, low,
        high, yes (share at or above 0.5)}}; missing: what of the source could not be read, or an
        empty string.

    Raises:
        StudyError: no heads, or a source without a group of two frames.
    """
    if not heads:
        raise StudyError("there is no head for this model: train some (vlm-decisions train heads), "
                         "or name them with --heads")
    sampler, monitor = Sampler(), HealthMonitor()
    health: dict[str, list[float]] = {}
    stamps: list[float] = []
    bright: list[float] = []
    rows: list[list[float | None]] = []
    t_s: list[float] = []
    norms: list[float] = []
    changes: list[float] = []
    window: list[Any] = []
    segments: set[int] = set()
    size: tuple[int, int] | None = None
    for frame in _frames(source, max_s):
        for name, p in monitor.update(frame).items():
            health.setdefault(name, []).append(p)
        stamps.append(frame.stamp_ns / NS)
        bright.append(float(frame.image[::8, ::8].mean()))
        size = frame.size[::-1]
        group = sampler.push(frame)
        if group is None:
            continue
        if group.segment not in segments:
            segments.add(group.segment)
            window = []
        encoded = engine.encode([one.image for one in group.frames])
        if window:
            before = window[-1].mean
            length = float(np.linalg.norm(before) * np.linalg.norm(encoded.mean))
            changes.append(1.0 - float(before @ encoded.mean) / length if length else 0.0)
        window = [*window, encoded][-KEPT:]
        norms.append(float(np.linalg.norm(encoded.mean)))
        rows.append([head.predict(window) if len(window) >= head.min_groups else None
                     for head in heads])
        t_s.append(group.t_end_ns / NS)
    if not rows:
        raise StudyError(f"{len(stamps)} frames and no group of two: the source is too short, or "
                         "its frames are more than a second apart")
    span_s = stamps[-1] - stamps[0]
    return {
        "frames": {"count": len(stamps), "size": list(size or ()),
                   "rate_hz": (len(stamps) - 1) / span_s if span_s > 0 else None,
                   "brightness": float(np.mean(bright))},
        "health": {name: float(np.mean(p)) for name, p in health.items()},
        "features": {"norm": float(np.mean(norms)),
                     "change": float(np.mean(changes)) if changes else None},
        "groups": len(rows), "segments": len(segments), "t_s": t_s, "missing": source.shortfall,
        "heads": {head.name: {"question": head.question, **_summary([row[k] for row in rows])}
                  for k, head in enumerate(heads)},
    }


def print_heads_view(result: dict[str, Any]) -> None:
    """Print the table."""
    frames = result["frames"]
    rate = "" if frames["rate_hz"] is None else f" at {frames['rate_hz']:.1f} Hz"
    print(f"{frames['count']} frames of {frames['size'][0]}x{frames['size'][1]}{rate}, mean "
          f"brightness {frames['brightness']:.0f} of 255; {result['groups']} groups in "
          f"{result['segments']} segments")
    if result["missing"]:
        print(f"not all of it was read: {result['missing']}")
    change = result["features"]["change"]
    print(f"features: length {result['features']['norm']:.2f}, change from group to group "
          + ("-" if change is None else f"{change:.4f}"))
    print("health: " + ", ".join(f"{name.removeprefix('camera_')} {p:.2f}"
                                 for name, p in result["health"].items()))
    rows = [(name, f"{row['mean']:.3f}", f"{row['low']:.3f}", f"{row['high']:.3f}",
             f"{100 * row['yes']:.0f}%")
            for name, row in result["heads"].items() if row["mean"] is not None]
    print(*columns([("head", "mean p", "low", "high", "yes"), *rows]), sep="\n")
    short = [name for name, row in result["heads"].items() if row["mean"] is None]
    if short:
        print(f"never a window long enough for: {listed(short)}")


def plot_heads_view(result: dict[str, Any], path: str) -> None:
    """Draw P(yes) of every head over time."""
    from .figures import figure, save

    drawn, (axis,) = figure(1, "What the heads see")
    for name, row in result["heads"].items():
        axis.plot(result["t_s"], [np.nan if p is None else p for p in row["p"]], label=name)
    axis.axhline(0.5, color="black", linewidth=0.8)
    axis.set(xlabel="seconds", ylabel="P(yes)", ylim=(-0.02, 1.02))
    axis.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    save(drawn, path)


def _frames(source: Source, max_s: float | None) -> Iterator[Frame]:
    from tqdm import tqdm

    first_s = None
    with tqdm(desc="frames", unit="frame", disable=None) as bar:
        for rgb, t_s in source:
            first_s = t_s if first_s is None else first_s
            if max_s is not None and t_s - first_s > max_s:
                return
            bar.update()
            yield Frame(rgb, round((t_s - first_s) * NS), "camera")


def _summary(p: Sequence[float | None]) -> dict[str, Any]:
    known = np.array([value for value in p if value is not None])
    if not len(known):
        return {"p": list(p), "mean": None, "low": None, "high": None, "yes": None}
    return {"p": list(p), "mean": float(known.mean()), "low": float(known.min()),
            "high": float(known.max()), "yes": float((known >= 0.5).mean())}
