"""What a batch of queries asks of a model: one thing for each, of an any_of one for each label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..kinds import KINDS, Kind, plain_kind
from .errors import QueryError
from .prompt import PromptError, PromptTemplate
from .readout import Query, Readout


@dataclass(frozen=True)
class Forks:
    """What is asked for a batch of queries.

    asked: each fork, a query with one answer. counts: of each query of the batch, how many forks it
    has, and whether it is an any_of.
    """

    asked: tuple[Any, ...]
    counts: tuple[tuple[int, bool], ...]

    @property
    def owners(self) -> list[int]:
        """The query of each fork."""
        return [k for k, (count, _) in enumerate(self.counts) for _ in range(count)]

    def joined(self, readouts: Sequence[Readout]) -> list[Readout]:
        """Return the readout of each query from those of its forks."""
        out, at = [], 0
        for count, labels in self.counts:
            own = readouts[at : at + count]
            out.append(_gathered(own) if labels else own[0])
            at += count
        return out


def forks_of(queries: Sequence[Any]) -> Forks:
    """Return what ``queries`` (or the runtime's questions) ask; raises QueryError."""
    asked: list[Any] = []
    counts = []
    for query in queries:
        # The runtime's questions have what a Query has, and more: they are as good.
        if not all(hasattr(query, name) for name in ("text", "options", "depth")):
            raise QueryError(f"a question must be a Query, not {type(query).__name__}")
        kind = _kind(query)
        own = [query] if kind.exclusive else _labels(query, kind)
        asked += own
        counts.append((len(own), not kind.exclusive))
    return Forks(tuple(asked), tuple(counts))


def _labels(query: Any, kind: Kind) -> list[Query]:
    try:
        PromptTemplate.check(query.text, query.options)
    except PromptError as error:
        raise QueryError(str(error)) from error
    early = getattr(query, "early", None)
    own = [Query(text, options, None if early else query.depth, early=early)
           for text, options in kind.forks(query.text, query.options)]
    if not own:
        raise QueryError("an any_of needs at least one label")
    return own


def _kind(query: Any) -> Kind:
    name = getattr(query, "kind", "") or plain_kind(query.options)
    if name not in KINDS:
        raise QueryError(f"a question's kind is one of {', '.join(KINDS)}, not {name!r}")
    return KINDS[name]


def _gathered(labels: Sequence[Readout]) -> Readout:
    """Return the readout of an any_of from those of its labels, each a yes/no question."""
    hidden = None
    if labels[0].hidden is not None:
        hidden = np.stack([one.hidden for one in labels])
    return Readout(
        np.array([one.p for one in labels]),
        np.stack([one.logits for one in labels]),
        labels[0].depth,
        hidden,
        labels[0].calibrated,  # they stop together
    )
