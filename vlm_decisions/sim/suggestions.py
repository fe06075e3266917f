"""Questions of the grammar that could be offered to somebody who is about to type one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .choices import choice
from .clauses import KINDS, Clause, clause, counting
from .facts import Meaning
from .grammar import joined

EACH = 60  # clauses drawn of each kind
DENIED = 0.25  # of them say "no"


@dataclass(frozen=True)
class Candidate:
    """A yes/no question, what it means and of what kind it is."""

    text: str
    meaning: Meaning
    kind: str


def candidates(seed: int = 20) -> list[Candidate]:
    """Return yes/no questions of every kind, without a frame around them, each text once."""
    rng = np.random.default_rng(seed)
    found: dict[str, Candidate] = {}

    def offer(said: Clause, kind: str) -> None:
        text = f"{said.question[0].upper()}{said.question[1:]}?"
        found.setdefault(text, Candidate(text, said.meaning, kind))

    for kind in KINDS:
        for _ in range(EACH):
            offer(clause(rng, "no" if rng.random() < DENIED else "", kind), kind)
    for _ in range(2 * EACH):
        offer(counting(rng), "counting")
        offer(joined(rng), "joined")
    return list(found.values())


def candidate_choices(scenes: Sequence[Mapping[str, int]], each: int = 40,
                      seed: int = 21) -> dict[str, list[tuple[int, tuple[str, ...], int]]]:
    """Return questions with options: of every text the scene, options and right one, many times.

    scenes: the facts of each (`facts.facts_of`). each: questions drawn of a scene.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[tuple[int, tuple[str, ...], int]]] = {}
    for k, facts in enumerate(scenes):
        for _ in range(each):
            made = choice(rng, facts, motion=True)
            if made is not None:
                found.setdefault(made.text, []).append((k, made.options, made.answer))
    return found
