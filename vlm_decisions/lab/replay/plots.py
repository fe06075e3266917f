"""Plots as SVG text, for a page that works without any other file.

They are drawn here and not with matplotlib for three reasons. Every band and bar has a tooltip with
its answer and times. A timeline is as wide as the recording is long, and scrolls. And a report
needs no package beyond those that the benchmark itself needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np

from ...decision import NO, UNCERTAIN, YES

PALETTE = ("#2f6fb0", "#d9822b", "#3f8f5f", "#b04a5a", "#7a5ca8", "#8a6d3b", "#4aa3a3", "#9a9a32",
           "#c26fa6", "#55606e")
_ANSWERS = {YES: "#3f8f5f", NO: "#c9ced6", UNCERTAIN: "#e3c35a"}
_LEFT, _RIGHT = 58, 12


def colour_of(answer: str, options: Sequence[str] = ()) -> str:
    """Return the colour of an answer; options have the colours of the palette, in their order."""
    if answer in _ANSWERS:
        return _ANSWERS[answer]
    return PALETTE[list(options).index(answer) % len(PALETTE)] if answer in options else "#888"


def timeline(
    truth: Sequence[Sequence], line: Sequence[Sequence], seconds: float,
    options: Sequence[str] = (), thresholds: Sequence[float] = (),
) -> str:
    """Draw a question over time: truth and answer as bands, and p as a line below them.

    Args:
        truth: [start, end, answer], seconds.
        line: [t, p, answer, ...], seconds.
        seconds: length of the time axis.
        options: of a choice, for the colours.
        thresholds: drawn as dashed lines.
    """
    width = int(min(6000, max(860, seconds * 9))) + _LEFT + _RIGHT
    scale = (width - _LEFT - _RIGHT) / max(seconds, 1e-9)
    top, bottom = 44, 112

    def x(t_s: float) -> float:
        return round(_LEFT + t_s * scale, 1)

    def y(p: float) -> float:
        return round(bottom - p * (bottom - top), 1)

    parts = [_text(4, 15, "truth"), _text(4, 33, "answer"), _text(4, 48, "p 1"),
             _text(4, bottom, "p 0")]
    for start, end, answer in truth:
        parts.append(_band(x(start), 4, x(end) - x(start), colour_of(answer, options),
                           f"truth {answer}, {start:.2f} to {end:.2f} s"))
    for start, end, answer in _held(line, seconds):
        parts.append(_band(x(start), 22, max(0.5, x(end) - x(start)), colour_of(answer, options),
                           f"answer {answer}, {start:.2f} to {end:.2f} s"))
    for p in (0.0, 1.0, *thresholds):
        dashes = ' stroke-dasharray="4 4"' if p in thresholds else ""
        parts.append(f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{y(p)}" y2="{y(p)}" '
                     f'class="grid"{dashes}/>')
    strokes: list[list[str]] = [[]]
    for index, (t_s, p, *_) in enumerate(line):
        if index and t_s - line[index - 1][0] > 1.5:
            strokes.append([])
        strokes[-1].append(f"{x(t_s)},{y(p)}")
    parts += [f'<polyline class="p" points="{" ".join(points)}"/>' for points in strokes if points]
    step = next(s for s in (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 3600) if s * scale >= 50)
    for t_s in range(0, int(seconds) + 1, step):
        parts.append(f'<line x1="{x(t_s)}" x2="{x(t_s)}" y1="{bottom}" y2="{bottom + 4}" '
                     'class="axis"/>')
        parts.append(_text(x(t_s), bottom + 16, f"{t_s} s", "middle"))
    return _svg(width, bottom + 22, parts)


def histogram(groups: Mapping[str, Sequence[float]], unit: str, bins: int = 40) -> str:
    """Draw histograms of several sets of values over the same axis, one above the other."""
    filled = {name: values for name, values in groups.items() if len(values)}
    if not filled:
        return "<p>no values</p>"
    most = float(np.percentile(np.concatenate([np.asarray(v) for v in filled.values()]), 99.5))
    edges = np.linspace(0.0, max(most, 1e-9), bins + 1)
    width, height = 640, 90
    parts, y0 = [], 0
    for number, (name, values) in enumerate(filled.items()):
        counts, _ = np.histogram(np.clip(values, 0.0, edges[-1]), edges)
        tallest = max(1, counts.max())
        base = y0 + height - 22
        step = (width - _LEFT - _RIGHT) / bins
        for k, count in enumerate(counts):
            if count:
                high = 60 * count / tallest
                parts.append(f'<rect x="{_LEFT + k * step:.1f}" y="{base - high:.1f}" '
                             f'width="{step - 1:.1f}" height="{high:.1f}" fill="{PALETTE[number]}">'
                             f"<title>{edges[k]:.0f} to {edges[k + 1]:.0f} {escape(unit)}: {count}"
                             "</title></rect>")
        p50, p95 = np.percentile(values, (50, 95))
        parts.append(_text(4, base - 40, name))
        parts.append(_text(width - _RIGHT, y0 + 12, f"p50 {p50:.0f}, p95 {p95:.0f} {unit}, "
                           f"{len(values)} values", "end"))
        parts.append(f'<line x1="{_LEFT}" x2="{width - _RIGHT}" y1="{base}" y2="{base}" '
                     'class="axis"/>')
        y0 += height
    for k in range(0, bins + 1, 10):
        at = _LEFT + k * (width - _LEFT - _RIGHT) / bins
        parts.append(_text(at, y0 - 8, f"{edges[k]:.0f}", "middle"))
    return _svg(width, y0 + 2, parts)


def stacked(rows: Mapping[str, Mapping[str, float]], unit: str) -> str:
    """Draw one bar per row, made of its parts one after the other."""
    names = list(dict.fromkeys(name for parts in rows.values() for name in parts))
    most = max((sum(parts.values()) for parts in rows.values()), default=0.0) or 1.0
    width, left = 760, 130
    scale = (width - left - 90) / most
    drawn = []
    for number, (row, values) in enumerate(rows.items()):
        at, y0 = float(left), 8 + 26 * number
        drawn.append(_text(4, y0 + 14, row))
        for name, value in values.items():
            colour = PALETTE[names.index(name) % len(PALETTE)]
            drawn.append(f'<rect x="{at:.1f}" y="{y0}" width="{value * scale:.1f}" height="18" '
                         f'fill="{colour}"><title>{escape(name)} {value:.1f} {escape(unit)}'
                         "</title></rect>")
            at += value * scale
        drawn.append(_text(at + 5, y0 + 14, f"{sum(values.values()):.1f} {unit}"))
    y0 = 8 + 26 * len(rows) + 10
    at = float(left)
    for index, name in enumerate(names):
        drawn.append(f'<rect x="{at:.0f}" y="{y0}" width="10" height="10" '
                     f'fill="{PALETTE[index % len(PALETTE)]}"/>')
        drawn.append(_text(at + 14, y0 + 9, name))
        at += 30 + 7 * len(name)
    return _svg(width, y0 + 16, drawn)


def calibration(bins: Sequence[Sequence], title: str, side: int = 130) -> str:
    """Draw (mean p, share true, count) of bins as a curve, with the diagonal."""
    left, top = 26, 18
    parts = [f'<rect x="{left}" y="{top}" width="{side}" height="{side}" class="frame"/>',
             f'<line x1="{left}" y1="{top + side}" x2="{left + side}" y2="{top}" class="axis" '
             'stroke-dasharray="3 4"/>',
             _text(left, top - 6, title)]
    for k in (0.0, 0.5, 1.0):
        parts.append(_text(left + k * side, top + side + 14, f"{k:g}", "middle"))
        parts.append(_text(left - 5, top + side - k * side + 4, f"{k:g}", "end"))
    points = [(left + p * side, top + side - share * side, count) for p, share, count in bins]
    line = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in points)
    most = max((count for *_, count in points), default=1)
    parts.append(f'<polyline points="{line}" class="p"/>')
    parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{1.5 + 1.5 * count / most:.1f}" '
              f'fill="{PALETTE[0]}"><title>{count} answers</title></circle>'
              for a, b, count in points]
    return _svg(left + side + 14, top + side + 20, parts)


def _held(line: Sequence[Sequence], seconds: float) -> list[list]:
    """Return [start, end, answer] of the answers given; each is valid for at most a second."""
    held: list[list] = []
    for index, (t_s, _, answer, *_) in enumerate(line):
        end = line[index + 1][0] if index + 1 < len(line) else min(t_s + 0.25, seconds)
        end = min(end, t_s + 1.0)
        if held and held[-1][2] == answer and held[-1][1] >= t_s - 1e-6:
            held[-1][1] = end
        else:
            held.append([t_s, end, answer])
    return held


def _band(x: float, y: float, width: float, colour: str, title: str) -> str:
    return (f'<rect x="{x}" y="{y}" width="{width:.1f}" height="14" fill="{colour}">'
            f"<title>{escape(title)}</title></rect>")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(str(text))}</text>'


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return (f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
            f'height="{height:.0f}" role="img">{"".join(parts)}</svg>')
