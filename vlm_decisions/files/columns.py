"""Text in columns for a terminal, whatever its width."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from unicodedata import combining, east_asian_width

LEAST = 12
"""Cells to which the first column is narrowed; below, it has a line of its own."""


def columns(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,),
            width: int | None = None) -> list[str]:
    """Return the lines of a table of texts, the first row its headings. See by_row."""
    return [line for lines in by_row(rows, left=left, width=width) for line in lines]


def by_row(rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,),
           width: int | None = None) -> list[list[str]]:
    """Return the lines of each row of a table of texts, the first row its headings.

    Args:
        rows: as many cells each; the first cell names the row.
        left: which columns are aligned to the left.
        width: cells that a line may have; None for the terminal's, unbounded where there is none.

    Where the terminal is too narrow, names are cut; where that is not enough each stands on a line
    above its row, and the row goes on below where it does not fit either.
    """
    if width is None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    rest = sum(widths[1:]) + len(widths) - 1
    if rest + min(widths[0], LEAST) <= width:
        widths[0] = min(widths[0], width - rest)
        return [[_line(row, widths, range(len(widths)), left)] for row in rows]
    parts: list[list[int]] = [[]]
    for index, wide in enumerate(widths[1:], 1):
        if parts[-1] and sum(widths[i] + 1 for i in parts[-1]) + wide + 1 > width:
            parts.append([])
        parts[-1].append(index)
    return [[cut(row[0], width), *(f" {_line(row, widths, part, left)}" for part in parts)]
            for row in rows]


def _line(row: Sequence[str], widths: Sequence[int], part: Sequence[int],
          left: Sequence[int]) -> str:
    return " ".join(padded(row[i], widths[i], i in left) for i in part).rstrip()


def number(value: float | None, digits: int = 3) -> str:
    """Return a number for a table, `-` where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def padded(text: str, width: int, left: bool) -> str:
    """Return a text in exactly `width` cells, at the left or at the right of them."""
    text = cut(text, width)
    blank = " " * (width - cells(text))
    return text + blank if left else blank + text


def cut(text: str, width: int) -> str:
    """Return a text that is no wider than `width` cells, marked where it was longer."""
    if cells(text) <= width:
        return text
    while cells(text) > width - 1:
        text = text[:-1]
    return text + "~"


def cells(text: str) -> int:
    """Return the cells of a terminal that a text takes: two for a Chinese character."""
    return sum(0 if combining(one) else 1 + (east_asian_width(one) in "WF") for one in text)
