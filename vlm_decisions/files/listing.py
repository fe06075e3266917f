"""Lists of names in messages, short however many there are, and the name that was meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MOST = 12
"""Names that a message lists before it counts the rest."""


def listed(names: Iterable[object], most: int = MOST) -> str:
    """Return `a, b, c`, of more than `most` names `a, b, c and 1,197 more`, of none `none`."""
    texts = [str(name) for name in names]
    more = len(texts) - most
    return (", ".join(texts[:most]) or "none") + (f" and {more:,} more" if more > 0 else "")


def there_are(names: Iterable[object], wanted: str = "", none: str = "none") -> str:
    """Return `there are: a, b; did you mean 'b'?` to follow what says that `wanted` is not there.

    `none`: what stands in the place of the list where there are no names.
    """
    texts = [str(name) for name in names]
    near = nearest(wanted, texts)
    meant = f"; did you mean '{near}'?" if near else ""
    return f"there are: {listed(texts) if texts else none}{meant}"


def nearest(name: object, names: Iterable[str]) -> str:
    """Return which of `names` a misspelt one may mean, empty where none is like it."""
    return next(iter(get_close_matches(str(name), [*names], 1)), "")
