"""`vlm-decisions calibrate`: fit each question's scale and bias to the simulated desk.

Training asks every question with both answers equally often, so a probability says "yes" too often
where yes is rare. Platt scaling on the yes/no logit difference puts that right: P(yes) becomes
sigmoid(scale * difference + bias), fitted on desks that neither training nor the study has seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..questions import QuestionBook
from ..sim.clips import FPS, GROUPS, draw_clip

FIRST_SEED = 850_000_000


def calibrate(model: str, questions: Path, clips: int, skip: Sequence[str] = ()) -> QuestionBook:
    """Return the questions of a file with fitted `scale` and `bias`.

    Args:
        model: embedded name, local path or hub name.
        questions: YAML file whose ids are facts of the desk.
        clips: how many held-out clips to ask about.
        skip: ids to leave as they are (answered by a head, which has a temperature of its own).

    Raises:
        ValueError: a question is no fact of the desk, or the clips show only one answer to it.
    """
    from sklearn.linear_model import LogisticRegression
    from tqdm import tqdm

    from ..engine.engine import Engine

    book = QuestionBook.load(questions)
    asked = [q for q in book if not q.options and q.id not in skip]
    engine = Engine.load(model)
    difference: dict[str, list[float]] = {q.id: [] for q in asked}
    answer: dict[str, list[bool]] = {q.id: [] for q in asked}
    times = [(2 * i + 0.5) / FPS for i in range(GROUPS)]
    for k in tqdm(range(clips), desc="clips", unit="clip", disable=None):
        clip = draw_clip(FIRST_SEED + k)
        unknown = [q.id for q in asked if q.id not in clip.truth]
        if unknown:
            raise ValueError(f"no facts of the simulated desk: {', '.join(unknown)}")
        groups = engine.encode_many([clip.frames[2 * i:2 * i + 2] for i in range(GROUPS)])
        for question, readout in zip(asked, engine.window(groups, times).ask(asked), strict=True):
            yes, no = readout.logits
            difference[question.id].append(float(yes - no))
            answer[question.id].append(clip.truth[question.id] == "yes")
    for question in asked:
        truth = np.array(answer[question.id])
        if truth.all() or not truth.any():
            only = "yes" if truth.all() else "no"
            raise ValueError(f"question {question.id!r}: all {clips} clips say {only}; both "
                             "answers are needed, which more clips may show")
        fit = LogisticRegression(C=10.0).fit(np.array(difference[question.id])[:, None], truth)
        scale = max(0.05, float(fit.coef_[0, 0]))
        book.replace(question.id, scale=round(scale, 3), bias=round(float(fit.intercept_[0]), 3))
    return book
