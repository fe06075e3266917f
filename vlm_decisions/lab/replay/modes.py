"""The modes that a benchmark compares: other settings, questions or engines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...files.listing import there_are
from ...question_book import QuestionBook
from ...questions import WINDOW, Question
from ...runtime.engine_protocol import EngineLike
from ...runtime.settings import RuntimeSettings
from .engines import RecentFrames

RECENT = 4


class ReplayModeError(ValueError):
    """A mode that does not exist, or cannot be run here. The message says why."""


@dataclass(frozen=True)
class Mode:
    """One way to answer.

    Attributes:
        name: as on the command line.
        about: one line for a report.
        settings: changes the runtime's settings.
        questions: changes the questions; it also gets the ids of those that have a head.
        engine: changes the engine.
        uses_heads: whether heads are loaded.
        shares: whether the model's answers are those of other such modes, asked when they may be.
    """

    name: str
    about: str
    settings: Callable[[RuntimeSettings], RuntimeSettings]
    questions: Callable[[QuestionBook, frozenset[str]], QuestionBook]
    engine: Callable[[Any], EngineLike]
    uses_heads: bool = True
    shares: bool = True


def same(value: Any, *_: Any) -> Any:
    """Return the value as it is."""
    return value


def _changed(book: QuestionBook, change: Callable[[Question], Question | None]) -> QuestionBook:
    """Return the changed questions, without those changed to None and the events that use them."""
    kept = [new for question in book if (new := change(question)) is not None]
    ids = {question.id for question in kept}
    return QuestionBook(kept, [e for e in book.events if ids.issuperset(
        name for name in e.questions if name in book)])


def _only_heads(book: QuestionBook, heads: frozenset[str]) -> QuestionBook:
    def change(question: Question) -> Question | None:
        return dataclasses.replace(question, tier="heads") if question.id in heads else None

    found = _changed(book, change)
    if not len(found):
        raise ReplayModeError("no question has a head that fits the model")
    return found


def _only_vlm(book: QuestionBook, heads: frozenset[str]) -> QuestionBook:
    return _changed(book, lambda q: dataclasses.replace(q, tier="vlm", head=None))


def _no_hysteresis(book: QuestionBook, heads: frozenset[str]) -> QuestionBook:
    just_below = math.nextafter(0.5, 0.0)
    return _changed(book, lambda q: dataclasses.replace(q, enter=0.5, exit=just_below))


def _always(book: QuestionBook, heads: frozenset[str]) -> QuestionBook:
    return _changed(book, lambda q: dataclasses.replace(
        q, ask="always", when=None, needs=None, min_evidence_s=0.0))


def _set(**changes: Any) -> Callable[[QuestionBook, frozenset[str]], QuestionBook]:
    return lambda book, heads: _changed(book, lambda q: dataclasses.replace(q, **changes))


def _windowed(settings: RuntimeSettings) -> RuntimeSettings:
    return dataclasses.replace(settings, mode="window")


def _without_cuts(settings: RuntimeSettings) -> RuntimeSettings:
    return dataclasses.replace(settings, cut=None)


def all_modes(recent: int = RECENT) -> dict[str, Mode]:
    """Return the modes by name; `recent` is the number of frames of the mode recentN."""
    modes = (
        Mode("stream", "running state, heads where there are any", same, same, same),
        Mode("window", "the last window computed anew for each group", _windowed, same, same,
             shares=False),
        Mode(f"recent{recent}", f"the last {recent} single frames, one a second, language model "
             "only", same, _only_vlm, lambda engine: RecentFrames(engine, recent), False, False),
        Mode("tier1", "heads only, the questions that have one", same, _only_heads, same),
        Mode("tier2", "language model only", same, _only_vlm, same, False),
        Mode("always", "as stream, every question asked at its rate", same, _always, same),
        Mode("on_change", "as stream, asked where the picture has changed", same,
             _set(ask="on_change"), same),
        Mode("ema", "as stream, smoothed by an exponential average", same, _set(smoothing="ema"),
             same),
        Mode("filter", "as stream, smoothed by a forward filter", same, _set(smoothing="filter"),
             same),
        Mode("depth_auto", "as stream, at a shallow exit where the answer is clear there", same,
             _set(depth="auto"), same),
        Mode("unsure", "as stream, uncertain answers asked again about three windows", same,
             _set(unsure=WINDOW), same),
        Mode("no_cuts", "as stream, groups across a cut asked about and averaged like others",
             _without_cuts, same, same),
        Mode("no_hysteresis", "as stream, yes above 0.5, no below", same, _no_hysteresis, same),
    )
    return {mode.name: mode for mode in modes}


def chosen(names: str, recent: int = RECENT) -> list[Mode]:
    """Return the modes of a comma-separated list, or of `all`. Raises ReplayModeError."""
    modes = all_modes(recent)
    if names == "all":
        return list(modes.values())
    found = []
    for name in dict.fromkeys(part.strip() for part in names.split(",") if part.strip()):
        if name not in modes:
            raise ReplayModeError(
                f"there is no mode '{name}' ({there_are([*modes, 'all'], name)})")
        found.append(modes[name])
    if not found:
        raise ReplayModeError(f"no mode is named ({there_are([*modes, 'all'])})")
    return found
