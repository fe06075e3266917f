"""Questions as the engine takes them, and what it reads from a decision token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ..questions import EarlyExit
from .arrays import Array, evaluate, wide
from .decoder import Decoder
from .errors import CheckpointError


@dataclass(frozen=True)
class Query:
    """A question to ask; ``depth`` None is full depth.

    early: an exit before that, taken where the answer is clear enough there. kind: of kinds.KINDS;
    where it is empty, yes/no without options, else a choice.
    """

    text: str
    options: tuple[str, ...] = ()
    depth: int | None = None
    early: EarlyExit | None = None
    kind: str = ""


@dataclass(frozen=True)
class Readout:
    """What the model answers.

    probabilities, logits: float64 (k,), ordered (yes, no) or as the options; the probabilities are
    the softmax over these answers' logits. Of an any_of with k labels: logits (k, 2), each (yes,
    no), and probabilities (k,) of yes. depth: language-model layers used. hidden: float32 (depth,
    D), the decision token after each layer, where it was asked for; of an any_of (k, depth, D).
    calibrated: the logits are those of an early exit, with its calibration.
    """

    probabilities: np.ndarray
    logits: np.ndarray
    depth: int
    hidden: np.ndarray | None = field(default=None, repr=False)
    calibrated: bool = False

    @property
    def p(self) -> float:
        """Probability of the first answer: of "yes" for a yes/no question."""
        return float(self.probabilities[0])


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax of a vector in float64."""
    weight = np.exp(logits - logits.max())
    return weight / weight.sum()


def check_answers(model: str, readouts: Sequence[Readout]) -> None:
    """Raise CheckpointError where answers of ``model`` about a blank picture are not finite."""
    if not all(np.isfinite(one.probabilities).all() for one in readouts):
        raise CheckpointError(f"{model}: the answers about a blank picture are not finite")


def read(
    decoder: Decoder,
    hidden: Array,
    answers: Sequence[Sequence[int]],
    depths: Sequence[int],
    traces: Sequence[Array] | None,
    state: Sequence[Array] = (),
) -> list[Readout]:
    """Read each question's answers from its decision state: hidden (N, D).

    state: arrays that the same pass has made, evaluated together with the answers.
    """
    width = max(len(ids) for ids in answers)
    padded = np.array([[*ids, *[ids[-1]] * (width - len(ids))] for ids in answers], np.int32)
    answered = decoder.answer_logits(hidden, padded)
    evaluate(answered, *(traces or ()), *state)
    logits = np.array(answered).astype(np.float64)
    out = []
    for i, ids in enumerate(answers):
        row = logits[i, : len(ids)]
        trace = np.array(wide(traces[i])) if traces is not None else None
        out.append(Readout(softmax(row), row, depths[i], trace))
    return out


def early_logits(
    decoder: Decoder,
    states: Array,
    answers: Sequence[Sequence[int]],
    early: Sequence[EarlyExit],
) -> list[np.ndarray]:
    """Return the calibrated logits at early exits, float64 (k,) each, of states (n, D).

    Of yes/no (and of a head) they are (x, 0) with P(yes) = sigmoid(x).
    """
    read_out = read(decoder, states, answers, [one.depth for one in early], None)
    rows = np.array(wide(states)).astype(np.float64)
    found = []
    for one, readout, row in zip(early, read_out, rows, strict=True):
        if one.weight is not None:
            found.append(np.array([one.scale * float(np.dot(one.weight, row)) + one.bias, 0.0]))
        elif len(readout.logits) == 2:
            difference = float(readout.logits[0] - readout.logits[1])
            found.append(np.array([one.scale * difference + one.bias, 0.0]))
        else:
            found.append(one.scale * readout.logits)
    return found


def margin(logits: np.ndarray) -> float:
    """Return by how much the highest logit leads the next."""
    second, first = np.sort(logits)[-2:]
    return float(first - second)
