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
    """Return the lines of a table of texts, the first row its headings.

    Args:
        rows: as many cells each; the first cell names the row.
        left: which columns are aligned to the left.
        width: cells that a line may have; None for the terminal's, unbounded where there is none.

    Where the terminal is too narrow, names are cut, and where that is not enough each stands on a
    line above its row.
    """
    if width is None:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    rest = sum(widths[1:]) + len(widths) - 1
    above = rest + min(widths[0], LEAST) > width
    widths[0] = 1 if above else min(widths[0], width - rest)
    lines = []
    for name, *others in rows:
        if above:
            lines.append(cut(name, width))
        row = zip([" " if above else name, *others], widths, range(len(widths)), strict=True)
        lines.append(" ".join(padded(text, wide, index in left)
                              for text, wide, index in row).rstrip())
    return lines


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
