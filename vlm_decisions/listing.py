"""Lists of names in messages, short however many there are."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 12
"""Names that a message lists before it counts the rest."""


def listed(names: Iterable[object], most: int = MOST) -> str:
    """Return `a, b, c`, of more than `most` names `a, b, c and 5 more`, of none `none`."""
    texts = [str(name) for name in names]
    more = len(texts) - most
    return (", ".join(texts[:most]) or "none") + (f" and {more} more" if more > 0 else "")
