"""The answers of a model and of heads to questions about clips of the desk, beside the truth."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...question_book import QuestionBook, questions_path
from ...questions import Question
from ...runtime.heads import Head
from ...runtime.smoothing import calibrated
from ...sim.clips import MOTION, TIMES_S

FAMILIES = {
    "presence": ("person", "second_person", "cup", "phone", "laptop", "pen", "door_open"),
    "holding": ("holding_cup", "holding_phone"),
    "relation": ("cup_left_of_laptop", "phone_right_of_laptop"),
    "motion": MOTION,
}


class StudyError(ValueError):
    """A study that is not possible with what was given. The message says what to change."""


@dataclass
class ClipAnswers:
    """Answers about clips, in the order of the clips.

    Attributes:
        p: P(yes) by yes/no question.
        picked: chosen option by choice question.
        heads: P(yes) by head.
        truth: facts of each clip.
    """

    p: dict[str, list[float]] = field(default_factory=dict)
    picked: dict[str, list[str]] = field(default_factory=dict)
    heads: dict[str, list[float]] = field(default_factory=dict)
    truth: list[dict[str, str]] = field(default_factory=list)

    def told(self, question: str) -> np.ndarray:
        """Return whether yes was right for a question, bool (clips,)."""
        return np.array([truth[question] == "yes" for truth in self.truth])


def desk_questions(questions: str = "desk") -> list[Question]:
    """Return a set of questions about the desk. Raises StudyError for any other question."""
    from ...sim.script import State
    from ...sim.world import truth_of

    book = list(QuestionBook.load(questions_path(questions)))
    strange = [q.id for q in book if q.id not in truth_of(State(), 0.5)]
    if strange:
        raise StudyError(f"{questions}: no facts of the simulated desk: {', '.join(strange)}")
    # A study is of the model: at full depth, where an answer of the runtime may stop earlier.
    return [replace(q, depth=None) if q.early else q for q in book]


def ask_clip(engine: Any, groups: Sequence[Any], questions: Sequence[Question],
             truth: dict[str, str], into: ClipAnswers,
             times_s: Sequence[float] | None = None) -> None:
    """Ask all questions about a window of groups and append the answers."""
    times = TIMES_S[:len(groups)] if times_s is None else times_s
    into.truth.append(truth)
    for question, readout in zip(questions, engine.window(groups, times).ask(questions),
                                 strict=True):
        if question.options:
            picked = question.options[int(np.argmax(readout.probabilities))]
            into.picked.setdefault(question.id, []).append(picked)
        else:
            p_yes = calibrated(question, readout.logits)[0]
            into.p.setdefault(question.id, []).append(float(p_yes))


def read_heads(heads: Sequence[Head], groups: Sequence[Any], into: ClipAnswers) -> None:
    """Append the predictions of heads on the end of a window of groups."""
    for head in heads:
        into.heads.setdefault(head.name, []).append(head.predict(groups[-head.window_groups:]))


def family_of(question: str) -> str:
    """Return the family of a question about the desk, "other" if it has none."""
    return next((name for name, ids in FAMILIES.items() if question in ids), "other")


def progress(items: Iterable[int], total: int, name: str) -> Any:
    """Iterate over clips with a progress bar."""
    from tqdm import tqdm

    return tqdm(items, total=total, desc=name, unit="clip", disable=None)
