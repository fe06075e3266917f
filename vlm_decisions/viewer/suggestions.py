"""Questions that the page offers to whoever types one: what is known that the model understands.

The embedded model has a list of such questions beside its weights; of other models nothing is
known.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..files import resources
from ..model_scope import SIMULATED_DESK

FILE = "suggestions.json"
WORD = re.compile(r"[\w'-]+")


@dataclass(frozen=True)
class Suggestion:
    """A question, its options where it has some, and the kind of what it asks."""

    text: str
    options: tuple[str, ...]
    kind: str


def suggest(model: str, typed: str, count: int = 6) -> list[Suggestion]:
    """Return questions that go on from what was typed, or have all its words.

    Args:
        model: that would be asked.
        typed: the beginning of a question, or some words of it; the last may be incomplete.
        count: how many at most.

    Returns:
        The best first: short ones, each of another kind as far as there are kinds. One that is
        typed already is left out, unless it has options to offer.
    """
    wanted = WORD.findall(typed.lower())
    begun = " ".join(typed.lower().split())
    found = [s for s in known(model) if _matches(s.text.lower(), wanted)
             and (s.options or s.text.lower().rstrip("?") != begun.rstrip("?"))]
    found.sort(key=lambda s: (not s.text.lower().startswith(begun), len(s.text), s.text))
    chosen: list[Suggestion] = []
    while found and len(chosen) < count:
        kinds: set[str] = set()
        for suggestion in tuple(found):
            if suggestion.kind not in kinds and len(chosen) < count:
                kinds.add(suggestion.kind)
                chosen.append(suggestion)
                found.remove(suggestion)
    return chosen


@functools.lru_cache(1)
def known(model: str) -> tuple[Suggestion, ...]:
    """Return every question that a model is known to understand."""
    if model != SIMULATED_DESK:
        return ()
    path = resources.package_dir() / "models" / SIMULATED_DESK / FILE
    return tuple(Suggestion(one["text"], tuple(one["options"]), one["kind"])
                 for one in json.loads(path.read_text("utf-8"))["suggestions"])


def _matches(text: str, wanted: Sequence[str]) -> bool:
    words = WORD.findall(text)
    return all(word in words for word in wanted[:-1]) and (
        not wanted or any(word.startswith(wanted[-1]) for word in words))
