"""Figures of the studies: matplotlib without a display."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def figure(columns: int, title: str, rows: int = 1) -> tuple[Any, list[Any]]:
    """Return a figure and its axes, row by row. Raises ImportError without matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(6.4 * columns, 4.2 * rows), layout="constrained")
    FigureCanvasAgg(drawn)
    axes = drawn.subplots(rows, columns, squeeze=False)
    drawn.suptitle(title)
    return drawn, list(axes.flat)


def save(drawn: Any, path: str) -> None:
    """Write a figure; the ending says the format (png, svg, pdf). Raises ValueError, OSError."""
    known = sorted(drawn.canvas.get_supported_filetypes())
    ending = Path(path).suffix.lstrip(".").lower()
    if ending not in known:
        raise ValueError(f"{path!r}: a figure must end in one of {', '.join(known)}")
    drawn.savefig(path, dpi=120)
