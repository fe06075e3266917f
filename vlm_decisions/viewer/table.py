"""Decisions in the terminal: a table drawn in place, or where there is none a line a change.

What the terminal cannot show is replaced; where it is gone, nothing more is shown. A display never
stops what it shows.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

from ..decision import TIER_HEALTH, UNKNOWN, Decision
from ..files.columns import cells, cut, padded
from ..frames import NS
from ..texts import without_numbers
from ..views import address

REDRAW_S = 0.25

REASONS = 3
"""So many of the reasons for unknown answers are shown below the table."""

#: Columns and their widths, in the order in which a narrow terminal keeps them.
_COLUMNS = {"question": 24, "answer": 10, "p": 5, "age": 8, "truth": 12, "rate": 7, "tier": 4,
            "began": 14}
_LEFT = ("question", "answer", "truth")
_ORDER = ("question", "answer", "p", "tier", "age", "rate", "began", "truth")
_LONGEST_ANSWER = 28
_SHORTEST = {"question": 8, "answer": 7}

Truth = Callable[[str, int], "str | None"]


class Table:
    """Shows the newest decision of each question."""

    def __init__(self, out: TextIO, quiet: bool = False) -> None:
        """Draw on `out`; nothing at all if `quiet`."""
        self._out = out
        self._quiet = quiet
        self._in_place = out.isatty()
        self._drawn = 0
        self._shown = 0.0
        self._told: dict[str, tuple[str, str]] = {}  # answer and kind of reason

    def show(self, decisions: Iterable[Decision], truth: Truth | None,
             rates_hz: Mapping[str, float], left_s: float | None = None) -> None:
        """Draw the table if it is time to, or tell the answers that have changed.

        `truth`, where there is one, returns the right answer to a question at a frame time (ns).
        """
        now = time.monotonic()
        if self._quiet or now - self._shown < REDRAW_S:
            return
        self._shown = now
        decisions = sorted(decisions, key=lambda d: (d.tier == TIER_HEALTH, d.view, d.question_id))
        if not self._in_place:
            self._write("".join(f"{line}\n" for line in self._changes(decisions)))
            return
        size = shutil.get_terminal_size()
        lines = table_lines(decisions, truth, rates_hz, size.columns - 1)
        lines += [cut(line, size.columns - 1) for line in _reasons(decisions)]
        if left_s is not None:
            lines.append(f"{left_s:.0f} s left")
        if len(lines) >= size.lines:  # what scrolls away cannot be drawn over
            lines = [*lines[:size.lines - 2], f"+ {len(lines) - size.lines + 2} more"]
        back = f"\x1b[{self._drawn}F\x1b[0J" if self._drawn else ""
        self._write(back + "\n".join(lines) + "\n")
        self._drawn = len(lines)

    def done(self) -> None:
        """Leave the last table standing."""
        self._drawn = 0

    def _changes(self, decisions: Iterable[Decision]) -> list[str]:
        lines = []
        for d in decisions:
            unknown = d.answer == UNKNOWN
            name = address(d.view, d.question_id)
            before, now = self._told.get(name), (
                d.answer, without_numbers(d.reason) if unknown else "")
            if now != before:
                self._told[name] = now
                was = f"  (was {before[0]})" if before and before[0] != d.answer else ""
                why = f"  ({d.reason})" if d.reason else ""
                value = why if unknown else f"  p {d.p:.2f}"
                if d.t_onset_ns:
                    was += f"  began {_began(d)} ago"
                lines.append(f"{name}: {d.said}{value}{was}")
        return lines

    def _write(self, text: str) -> None:
        encoding = self._out.encoding or "utf-8"
        try:
            self._out.write(text.encode(encoding, "replace").decode(encoding))
            self._out.flush()
        except (OSError, ValueError):  # nobody reads it any more
            self._quiet = True


def table_lines(decisions: Iterable[Decision], truth: Truth | None,
                rates_hz: Mapping[str, float], width: int) -> list[str]:
    """Return the rows of the table, none longer than `width` characters."""
    rows = []
    for d in decisions:
        answered, name = d.answer != UNKNOWN, address(d.view, d.question_id)
        real = truth(d.question_id, d.t_end_ns) or "-" if truth and d.tier != TIER_HEALTH else ""
        rows.append({
            "question": name, "answer": d.said,
            "p": f"{d.p:.2f}" if answered else "-", "tier": str(d.tier),
            "age": f"{d.age_s * 1e3:.0f} ms" if answered else "-",
            "rate": f"{rates_hz.get(name, 0.0) if answered else 0.0:.1f} Hz",
            "began": _began(d),
            "truth": real + ("" if real in ("", "-", d.answer) else "  <-")})
    longest = max((cells(row["answer"]) for row in rows), default=0)
    wanted = {**_COLUMNS, "answer": min(max(_COLUMNS["answer"], longest), _LONGEST_ANSWER)}
    widths = _fitted({name: wide for name, wide in wanted.items()
                      if name != "truth" or truth is not None}, width)
    return [" ".join(padded(row[name], widths[name], name in _LEFT) for name in _ORDER
                     if name in widths).rstrip()
            for row in ({name: name for name in _ORDER}, *rows)]


def _reasons(decisions: Iterable[Decision]) -> list[str]:
    """Return why answers are unknown, the commonest reasons first."""
    kinds: dict[str, list[str]] = {}
    for d in decisions:
        if d.answer == UNKNOWN and d.reason:
            kinds.setdefault(without_numbers(d.reason), []).append(d.reason)
    most = sorted(kinds.values(), key=len, reverse=True)[:REASONS]
    return [f"{len(reasons)} unknown: {reasons[-1]}" for reasons in most]


def _began(decision: Decision) -> str:
    """Return how long ago the answer began in the picture, empty where that was not seen."""
    if not decision.t_onset_ns:
        return ""
    ago_s = (decision.t_decided_ns - decision.t_onset_ns) / NS
    return f"{ago_s:.1f} s +-{decision.t_onset_sd_s:.1f}"


def _fitted(widths: dict[str, int], width: int) -> dict[str, int]:
    """Drop the last columns, and then narrow the first ones, until they fit."""
    def over() -> int:
        return sum(widths.values()) + len(widths) - 1 - width

    while over() > 0 and len(widths) > 2:
        name, wide = next(reversed(widths.items()))
        spare = sum(max(0, widths[n] - least) for n, least in _SHORTEST.items())
        if name == "age" and over() <= spare:
            break
        del widths[name]
    for name, least in _SHORTEST.items():
        widths[name] -= max(0, min(over(), widths[name] - least))
    return widths
