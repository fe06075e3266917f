"""What was learned of a question at one view, from spans that a person labelled there.

It changes the logits: `scale * z + weight . x + bias`, where z are the logits that the question
would be answered with otherwise (see `shipped_logits`) and x are features of the newest group, or
colours of its newest frame (see Head). Of yes/no there is one, that of yes; of a choice or score
one for each option. Of an any_of something is learned of each label by itself, as of yes/no. With a
scale of 0 z is not needed: it is a head, of yes/no, and answers at Tier 1.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from ..decision import label_name
from ..files.atomic import replacing
from ..files.listing import listed
from ..kinds import kind_of, sigmoid
from ..questions import Question
from .heads import COLOURS, MEAN_MAX_COLOURS, Head, Pooled, pooled

#: Ends the model's name where an answer rests on what was learned.
LEARNED = "+learned"

FORMAT = 2


class LearnedError(ValueError):
    """What was learned cannot be used; the message says why."""


@dataclass(frozen=True)
class HeldOut:
    """How good P(yes) is on held-out spans, of which yes and no weigh the same."""

    log_loss: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class Learned:
    """What was learned of one question at one view, of K logits. Raises LearnedError.

    `text`, `options`, `shipped`: of the question, the latter its scale and bias, that it was
    learned beside. `label`: of an any_of, of whose text and options only what is asked of it
    counts; empty for the other kinds. `scale`, `bias` (K), `weight`, `pooling`: see the module;
    weight is float32, of what `heads.pooled` returns, (K, 0) for none. `fingerprint`,
    `pixel_budget`, `language`: of the model. `spans`: from how many, `counts`: by answer. `before`,
    `after`: on held-out spans, without it and with it. `thresholds`: enter and exit to decide with,
    as long as the question's own are `instead_of`; None where its own count.
    """

    question_id: str
    view: str
    text: str
    options: tuple[str, ...]
    shipped: tuple[float, float]
    scale: float
    bias: tuple[float, ...]
    weight: np.ndarray
    pooling: str
    fingerprint: str
    pixel_budget: int
    language: str
    spans: int
    counts: Mapping[str, int]
    before: HeldOut
    after: HeldOut
    thresholds: tuple[float, float] | None = None
    instead_of: tuple[float, float] | None = None
    label: str = ""

    def __post_init__(self) -> None:
        """Check all parts, so that answering cannot fail on them."""
        weight, count = self.weight, len(self.options) or 1
        if (weight.ndim != 2 or len(weight) != count or weight.dtype != np.float32
                or not np.isfinite(weight).all()):
            raise LearnedError(f"its weight must be finite float32 ({count}, D)")
        known = ("mean", "mean_max", COLOURS, MEAN_MAX_COLOURS) if weight.size else ("",)
        if self.pooling not in known:
            raise LearnedError(f"pooling {self.pooling!r} does not go with {weight.size} weights")
        if not (math.isfinite(self.scale) and self.scale >= 0 and len(self.bias) == count
                and all(map(math.isfinite, self.bias))):
            raise LearnedError(f"scale {self.scale:g} must be finite and 0 or more, bias "
                               f"{self.bias} {count} finite")
        if not self.scale and not weight.size:
            raise LearnedError("neither the answer nor the picture counts: scale 0, no weight")
        if self.thresholds and not 0 <= self.thresholds[1] < self.thresholds[0] <= 1:
            raise LearnedError(f"thresholds {self.thresholds} must be 0 <= exit < enter <= 1")
        if self.label and (self.options or self.is_head or self.thresholds):
            raise LearnedError(f"of the label '{self.label}' a yes/no answer is changed: no "
                               "options, no head, no thresholds of its own")
        if not self.scale and self.options:
            raise LearnedError("a head answers yes or no only: scale 0, and there are options")

    @property
    def name(self) -> str:
        """Return the question's id, or the name of the label, as `on_desk[cup]`."""
        return label_name(self.question_id, self.label) if self.label else self.question_id

    @property
    def key(self) -> tuple[str, str]:
        """Return view and name."""
        return self.view, self.name

    @property
    def what(self) -> str:
        """Say what was learned: `calibration`, `correction` (with features), or `head`."""
        return "head" if not self.scale else "correction" if self.weight.size else "calibration"

    @property
    def is_head(self) -> bool:
        """Tell whether it answers by itself."""
        return not self.scale

    def __str__(self) -> str:
        """Say in words where it comes from, and what it brings."""
        decides = ("; yes from {:g}, no up to {:g}".format(*self.thresholds) if self.thresholds
                   else "")
        return (f"learned on this camera, from {self.spans} spans ({self.what}): log loss "
                f"{self.before.log_loss:.2f} before, {self.after.log_loss:.2f} after; right "
                f"{100 * self.before.accuracy:.0f}% before, {100 * self.after.accuracy:.0f}% after"
                f"{decides}")

    def summary(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"question": self.name, "view": self.view, "what": self.what,
                "spans": self.spans, "counts": dict(self.counts), "before": asdict(self.before),
                "after": asdict(self.after), "thresholds": self.thresholds, "words": str(self)}

    def is_of(self, question: Question) -> bool:
        """Tell whether it was learned of what the question asks now."""
        asked = ((question.text, question.options) if kind_of(question).exclusive
                 else (texts_of_labels(question).get(self.label), ()))
        return (asked == (self.text, self.options)
                and (question.scale, question.bias) == self.shipped
                and not (self.is_head and question.tier == "vlm"))

    def deciding(self, question: Question) -> Question:
        """Return the question with the thresholds to decide with; those set since then count."""
        if self.thresholds is None or (question.enter, question.exit) != self.instead_of:
            return question
        return replace(question, enter=self.thresholds[0], exit=self.thresholds[1])

    def check(self, question: Question, fingerprint: str, pixel_budget: int, language: str) -> None:
        """Raise LearnedError, naming both, unless it is of this question and model."""
        where = f"what was learned of '{self.name}'"
        if self.fingerprint != fingerprint or (self.language != language and not self.is_head):
            raise LearnedError(
                f"{where} is of the model {self.fingerprint} {self.language}, this one is "
                f"{fingerprint} {language}")
        if self.pixel_budget != pixel_budget:
            raise LearnedError(f"{where} is of a pixel budget of {self.pixel_budget}, this runs at "
                               f"{pixel_budget}")
        if not self.is_of(question):
            raise LearnedError(
                f"{where} is of {_asked(self.text, self.options)} with scale, bias {self.shipped}, "
                f"which is now {_asked(question.text, question.options)} (kind {question.kind}, "
                f"tier {question.tier}) with {(question.scale, question.bias)}")

    def logits(self, z: np.ndarray, mean: np.ndarray, peak: np.ndarray,
               colours: np.ndarray | None = None) -> np.ndarray:
        """Return the logits (..., K), for z (..., K) and features (..., D).

        Raises LearnedError on features of another width.
        """
        logits = np.array(self.bias) if self.is_head else self.scale * z + self.bias
        if not self.weight.size:
            return logits
        x = pooled(self.pooling, mean, peak, colours)
        if x.shape[-1] != self.weight.shape[1]:
            raise LearnedError(f"what was learned of '{self.question_id}' reads "
                               f"{self.weight.shape[1]} numbers, got {x.shape[-1]}")
        return logits + x @ self.weight.T

    def probabilities(self, question: Question, z: Sequence[float], group: Pooled
                      ) -> tuple[float, ...]:
        """Return the probabilities at a group, as the question's kind has them.

        Of a label: of yes and no.
        """
        logits = self.logits(np.array(z), group.mean, group.max, getattr(group, COLOURS, None))
        if self.label:
            return sigmoid(float(logits[0])), sigmoid(-float(logits[0]))
        yes = [0.0] if not self.options else []
        return kind_of(question).probabilities([*logits.tolist(), *yes])

    def as_head(self) -> Head:
        """Return the head that it is. Raises LearnedError where it is none."""
        if not self.is_head:
            raise LearnedError(f"a {self.what} is no head: it changes another answer")
        return Head(
            name=self.question_id, question=self.question_id, pooling=self.pooling,
            weight=self.weight[0], bias=self.bias[0], temperature=1.0,
            fingerprint=self.fingerprint,
            pixel_budget=self.pixel_budget, trained_on=f"{self.spans} spans of one camera",
            metrics={**asdict(self.after), "spans": self.spans})


def texts_of_labels(question: Question) -> dict[str, str]:
    """Return what is asked of each label of an any_of."""
    forks = kind_of(question).forks(question.text, question.options)
    return {label: text for label, (text, _) in zip(question.options, forks, strict=True)}


def _asked(text: str, options: Sequence[str]) -> str:
    return f"'{text}' of {listed(options)}" if options else f"'{text}'"


def shipped_logits(question: Question, logits: Sequence[float], depth: int) -> np.ndarray:
    """Return the logits (K,) that a look's logits are answered with, without learning.

    Of yes/no that is one, of yes, made of two; of an any_of the same for each label; else one for
    each option.
    depth: language-model layers used. A head (0) and an early exit have a calibration of their own.
    """
    z, kind = np.asarray(logits, float), kind_of(question)
    if not (kind.exclusive and question.options):
        z = z[0::2] - z[1::2]
    if not depth or (question.early is not None and depth == question.early.depth):
        return z
    return question.scale * z + (question.bias if kind.has_bias else 0.0)


def write_learned(path: str | os.PathLike, learned: Learned) -> None:
    """Write a file that read_learned reads, replacing it at once. Raises OSError."""
    header = {**asdict(learned), "format": FORMAT}
    weight = header.pop("weight")
    with replacing(path) as file:
        np.savez(file, header=np.array(json.dumps(header, ensure_ascii=False)), weight=weight)


def read_learned(path: str | os.PathLike) -> Learned:
    """Read what write_learned wrote, without pickle. Raises LearnedError naming the file."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            header = json.loads(str(arrays["header"][()]))
            weight = arrays["weight"]
        if header.pop("format") != FORMAT:
            raise LearnedError("is of another version of this program")
        for name in ("before", "after"):
            header[name] = HeldOut(**{key: float(value) for key, value in header[name].items()})
        header["shipped"] = tuple(map(float, header["shipped"]))
        header["bias"] = tuple(map(float, header["bias"]))
        for name in ("thresholds", "instead_of"):
            if header[name] is not None:
                enter, leave = map(float, header[name])
                header[name] = enter, leave
        header.setdefault("label", "")
        header["options"] = tuple(map(str, header["options"]))
        header["counts"] = {str(name): int(count) for name, count in header["counts"].items()}
        for name, kind in _TYPES.items():
            if not isinstance(header[name], kind) or isinstance(header[name], bool):
                raise LearnedError(f"{name} must be {kind}, not {header[name]!r}")
        return Learned(weight=weight, **header)
    except (OSError, AttributeError, EOFError, KeyError, TypeError, ValueError,
            zipfile.BadZipFile) as error:
        raise LearnedError(f"{path}: not usable: {error}") from error


_TYPES: dict[str, Any] = {
    "question_id": str, "label": str, "view": str, "text": str, "pooling": str, "fingerprint": str,
    "language": str, "pixel_budget": int, "spans": int, "scale": float | int}
