"""A table of decisions in the terminal: drawn in place on one, printed now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

from ..decision import TIER_HEALTH, UNKNOWN, Decision

REDRAW_S, REPRINT_S = 0.25, 5.0


class Table:
    """Shows the newest decision of each question."""

    def __init__(self, out: TextIO, quiet: bool = False) -> None:
        """Draw on `out`; nothing at all if `quiet`."""
        self._out = out
        self._quiet = quiet
        self._in_place = out.isatty()
        self._drawn = 0
        self._shown = 0.0

    def show(self, decisions: Iterable[Decision], truth: Callable[[str, int], str | None] | None,
             rates_hz: Mapping[str, float], left_s: float | None = None) -> None:
        """Draw the table if it is time to.

        `truth`, where there is one, returns the right answer to a question at a frame time (ns).
        """
        now = time.monotonic()
        if self._quiet or now - self._shown < (REDRAW_S if self._in_place else REPRINT_S):
            return
        self._shown = now
        lines = self._lines(decisions, truth, rates_hz)
        if left_s is not None:
            lines.append(f"{left_s:.0f} s left")
        if self._in_place and self._drawn:
            self._out.write(f"\x1b[{self._drawn}F\x1b[0J")
        self._out.write("\n".join(lines) + "\n")
        self._out.flush()
        self._drawn = len(lines)

    def done(self) -> None:
        """Leave the last table standing."""
        self._drawn = 0

    def _lines(self, decisions: Iterable[Decision], truth: Callable[[str, int], str | None] | None,
               rates_hz: Mapping[str, float]) -> list[str]:
        told = truth is not None
        head = f"{'question':<24} {'answer':<10} {'p':>5} {'tier':>4} {'age':>8} {'rate':>7}"
        lines = [head + ("  truth" if told else "")]
        for d in sorted(decisions, key=lambda d: (d.tier == TIER_HEALTH, d.question_id)):
            answered = d.answer != UNKNOWN
            probability = f"{d.p:5.2f}" if answered else "    -"
            age = f"{d.age_s * 1e3:5.0f} ms" if answered else "       -"
            line = (f"{d.question_id:<24} {d.answer:<10} {probability} {d.tier:>4} {age:>8} "
                    f"{rates_hz.get(d.question_id, 0.0):4.1f} Hz")
            if truth is not None and d.tier != TIER_HEALTH:
                real = truth(d.question_id, d.t_end_ns) or "-"
                line += f"  {real}{'' if real in ('-', d.answer) else '  <-'}"
            lines.append(line)
        return lines
