"""Train heads on the decision token: what the language model knows after some of its layers.

The model is asked each question about each group, as in the runtime, and the state of the decision
token after each of the wanted layers is kept. A linear head on it answers at the early exit of a
question of `depth: auto` (see `runtime.heads`). Samples are those where the truth is settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..frames import FPS, NS
from ..kinds import kind_of
from ..questions import Question
from ..runtime.heads import DECISION, DECISION_PATH, Head, write_head
from ..sources.labels import LabelError
from .features import progress
from .heads import check_out, fit_head
from .predictions import LEAST_GROUPS, SETTLED_S, WINDOW_GROUPS, LabelledRecording
from .samples import Samples


class DepthError(ValueError):
    """Layers that no head can be trained for. The message says which there are."""


def train_decision_heads(engine: Any, out: Path, known: Sequence[LabelledRecording],
                         questions: Sequence[Question], depths: Sequence[int], *,
                         trained_on: str, replace: bool = False) -> list[Head]:
    """Train a head for each question and depth and write them to `out` as ID_atDEPTH.npz.

    Args:
        engine: the model.
        out: folder of heads.
        known: what is asked about, with its truth.
        questions: yes/no questions; others, and those without truth, are left out.
        depths: layers, each below the model's last.
        trained_on: description of the data, stored in the heads.
        replace: overwrite heads that were made for another model.

    Raises:
        DepthError, LabelError, FitError, HeadError: what is wrong, by name.
    """
    for depth in depths:
        if not 1 <= depth < engine.n_layers:
            raise DepthError(f"depth {depth}: '{engine.name}' has layers 1 to {engine.n_layers}, "
                             "and an early exit is before the last")
    asked = [q for q in questions if kind_of(q).has_heads
             and any(q.id in one.truth.ids for one in known)]
    if not asked:
        raise LabelError("there is no yes_no question with truth")
    names = [f"{q.id}_at{depth}" for q in asked for depth in depths]
    if not replace:
        check_out(out, names, engine)
    states, truth, source = decision_states(engine, known, asked, max(depths))
    heads = []
    for question in asked:
        settled = truth[question.id] >= 0
        answer = truth[question.id][settled] == 1
        for depth in depths:
            samples = Samples({DECISION: states[question.id][settled, depth - 1]},
                              source[settled], {question.id: answer})
            heads.append(fit_head(
                samples, question.id, engine, trained_on, name=f"{question.id}_at{depth}",
                feature_path=DECISION_PATH, depth=depth, text=question.text,
                language=engine.language_fingerprint))
    out.mkdir(parents=True, exist_ok=True)
    for head in heads:
        write_head(out / f"{head.name}.npz", head)
    return heads


def decision_states(
    engine: Any, known: Sequence[LabelledRecording], asked: Sequence[Question], depth: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray]:
    """Ask all questions about all groups.

    Returns:
        By question: the decision token's state after each layer (N, depth, D), and the truth, 1, 0
        or -1 where it is not settled (N,); and the source of each group (N,).
    """
    from ..engine.readout import Query

    queries = [Query(q.text, q.options, depth) for q in asked]
    states: dict[str, list[np.ndarray]] = {q.id: [] for q in asked}
    truth: dict[str, list[int]] = {q.id: [] for q in asked}
    source: list[int] = []
    with progress([one.recording for one in known], "asking") as bar:
        for number, one in enumerate(known):
            stream, segment, since = engine.stream(WINDOW_GROUPS, "stream"), None, 0
            for group in one.recording.groups(FPS):
                if group.segment != segment:
                    stream.reset()
                    segment, since = group.segment, 0
                since += 1
                encoded = engine.encode([frame.image for frame in group.frames])
                stream.append(encoded, (group.t_start_ns, group.t_end_ns))
                readouts = stream.ask(queries, hidden=True)
                while stream.idle():
                    pass
                for question, readout in zip(asked, readouts, strict=True):
                    states[question.id].append(readout.hidden)
                    truth[question.id].append(_truth(one, question.id, group.t_end_ns, since))
                source.append(number)
                bar.at(group.t_end_ns / NS)
            bar.finish(one.recording)
    return ({name: np.stack(rows) for name, rows in states.items()},
            {name: np.array(rows) for name, rows in truth.items()}, np.array(source))


def _truth(one: LabelledRecording, name: str, t_ns: int, since: int) -> int:
    history = one.recording.still or since >= LEAST_GROUPS
    span = one.truth.at(name, t_ns)
    if span is None or not history or not one.truth.settled(name, t_ns, SETTLED_S):
        return -1
    return int(span.answer == "yes")
