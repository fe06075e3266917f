"""`vlm-decisions teach`: a question that the model was never taught becomes a head.

The simulated desk has a lamp here, which the embedded model has never seen. It is one desk, seen by
one camera in one episode after another. What a person would do on the page is done from the truth:
some spans are labelled, and what the node learns with learns.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from ..learn.measures import auroc, balanced_accuracy
from ..questions import Question, QuestionError
from ..runtime.heads import write_head
from ..sim.script import Script
from ..sim.world import World
from .taught_desk import FIRST_SEED, ReadScenes, TaughtDesk

HELD_SEED = FIRST_SEED + 100_000
MOST_SCENES = 60
"""Episodes that spans are looked for in."""


class TeachError(RuntimeError):
    """A question that cannot be taught; the message says why."""


def teach(engine: Any, question_id: str, text: str, *, spans: int = 12, scenes: int = 12,
          seed: int = 0, out: Path | None = None) -> dict[str, Any]:
    """Teach a question on a simulated desk, and measure it on episodes that were not used.

    Args:
        engine: the model.
        question_id: a fact of the desk with a lamp: `lamp`, or one of the usual ones.
        text: what is asked.
        spans: how many are labelled, yes and no by turns.
        scenes: held-out episodes that it is measured on.
        seed: of the desk.
        out: file for the head, None for none; not written where no head was learned.

    Returns:
        before, after: auroc and balanced_accuracy of P(yes) on the held-out episodes. learned: see
        Learned.summary, None where nothing was (`refusal`: why). seconds: from the last correction
        until it was in use. scenes: seen for the spans.

    Raises:
        QuestionError: no fact of the desk has this id. TeachError: there are too few spans.
    """
    def draw(_: int, script: Script) -> World:
        return World(seed, script, lamp=True)

    facts = [name for name, answer in World(0, lamp=True).truth(0.0).items()
             if answer in ("yes", "no")]
    if question_id not in facts:
        raise QuestionError(f"the desk has no fact '{question_id}' (it has: {', '.join(facts)})",
                            "id")
    question = Question(question_id, text)
    said: list[str] = []
    held = range(HELD_SEED, HELD_SEED + scenes)
    with tempfile.TemporaryDirectory() as folder, TaughtDesk(
            engine, [question], Path(folder), draw, said.append, heads=()) as desk:
        before = desk.read(held)
        try:
            seen = desk.teach(question, spans, range(FIRST_SEED, FIRST_SEED + MOST_SCENES))
        except ValueError as error:
            raise TeachError(f"{MOST_SCENES} episodes are too few for {spans} spans of "
                             f"'{question_id}': {error}") from error
        began_s = time.perf_counter()
        desk.learner.wait_idle()
        seconds = time.perf_counter() - began_s
        found = desk.runtime.learned()
        learned = found[0] if found else None
        refusal = "" if found else desk.learner.state()["waiting"].get(question_id, "")
        after = desk.read(held) if found else before
    if out is not None and learned is not None and learned.is_head:
        write_head(out, learned.as_head())
    return {"question": question_id, "learned": learned.summary() if learned else None,
            "refusal": refusal, "scenes": seen, "seconds": round(seconds, 3),
            "before": _measured(before, question_id), "after": _measured(after, question_id)}


def _measured(read: ReadScenes, name: str) -> dict[str, float | None]:
    truth, p = read.answer[name] == 0, read.p[name][:, 0]
    return {"auroc": auroc(truth, p), "balanced_accuracy": balanced_accuracy(truth, p > 0.5),
            "looks": len(p)}
