"""The kinds of question: what each asks, how its answer is read, and what the answer can be.

- `yes_no`: no options; probabilities (yes, no); the answer is `yes` or `no`.
- `choice`: `options` are the answers, of which one is given; their probabilities are together 1.
- `score`: `options` are levels, the lowest first; their probabilities are together 1 and have an
  expected value; the answer is the level in whose range it lies.
- `any_of`: `options` are labels, each with its P(yes) by itself; the answer are the labels that are
  so, as `cup, phone`, or `none`.

One class holds all that is particular to a kind. Whoever handles questions asks `kind_of` and does
not compare names, so that a kind is added here alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from .decision import HEALTH_IDS, NO, UNCERTAIN, UNKNOWN, YES, label_name
from .files.listing import listed
from .texts import normal

MAX_OPTIONS = 26

#: Stands in the text of an `any_of` for the label that is asked about.
PLACE = "{}"

#: The answer of an `any_of` of which no label is so.
NONE = "none"

#: Between the labels in the answer of an `any_of`.
COMMA = ", "


class QuestionLike(Protocol):
    """What a kind needs to know of a question."""

    id: str
    kind: str
    text: str
    options: tuple[str, ...]
    thresholds: tuple[float, ...]
    enter: float
    exit: float
    view: str

    def is_of(self, view: str) -> bool:
        """Return whether it is asked of the view of that name."""


class KindError(ValueError):
    """What does not fit a kind of question. `field` is the key at fault."""

    def __init__(self, field: str, message: str) -> None:
        """Store the key at fault with the message."""
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Verdict:
    """What smoothed probabilities come to.

    Attributes:
        answer: the answer as a whole.
        answers: of each label, in the order of the options; empty for kinds without labels.
        value: expected value of a score; NaN for the other kinds.
    """

    answer: str
    answers: tuple[str, ...] = ()
    value: float = math.nan

    @property
    def held(self) -> tuple[str, ...]:
        """What the next verdict starts from: of each label, or the answer as a whole."""
        return self.answers or (self.answer,)


class Kind:
    """A kind of question. There is one object of each, see `KINDS`.

    Attributes:
        name: as in `Question.kind`.
        noun: what such a question is called in messages.
        least_options: how many there must be.
        exclusive: whether the probabilities are one distribution; else each stands by itself.
        has_heads: whether linear heads (Tier 1) can answer.
        has_bias: whether the calibration has a bias.
        has_thresholds: whether the question can have `thresholds`.
        is_ordered: whether one answer is less or more than another.
    """

    name = ""
    noun = ""
    least_options = 2
    exclusive = True
    has_heads = False
    has_bias = False
    has_thresholds = False
    is_ordered = False

    def check_count(self, count: int) -> None:
        """Raise KindError where the kind cannot have so many options."""
        if not self.least_options <= count <= MAX_OPTIONS:
            raise KindError("options", f"must be {self.least_options} to {MAX_OPTIONS} for "
                                       f"{self.noun}, not {count}")

    def check(self, question: QuestionLike) -> None:
        """Raise KindError for what the kind cannot have; the options are normal and distinct."""

    def forks(self, text: str, options: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return what the language model is asked: texts, each with its options (none: yes/no).

        All kinds but one ask a single thing.
        """
        return ((text, tuple(options)),)

    def count(self, question: QuestionLike) -> int:
        """Return how many probabilities there are."""
        return len(question.options)

    def probabilities(
        self, logits: Sequence, scale: float = 1.0, bias: float = 0.0
    ) -> tuple[float, ...]:
        """Return the calibrated probabilities of what the model says; NaN where that is not finite.

        `logits`: one per answer, (k,). Here: the softmax of scale * logits.
        """
        z = [scale * float(x) for x in logits]
        if not all(map(math.isfinite, z)):
            return (math.nan,) * len(z)
        highest = max(z)
        e = [math.exp(x - highest) for x in z]
        total = sum(e)
        return tuple(x / total for x in e)

    def verdict(
        self, question: QuestionLike, p: Sequence[float], held: Sequence[str]
    ) -> Verdict:
        """Return the answer for smoothed probabilities, with hysteresis.

        `held`: of the verdict before; empty at first and after `unknown`.
        """
        raise NotImplementedError

    def settles(self, question: QuestionLike, p: Sequence[float]) -> bool:
        """Return whether probabilities by themselves give an answer, whatever was held."""
        return self.verdict(question, p, ()).answer != UNCERTAIN

    def unknown(self, question: QuestionLike) -> Verdict:
        """Return the verdict where nothing is known."""
        return Verdict(UNKNOWN)

    def p(self, question: QuestionLike, p: Sequence[float], verdict: Verdict) -> float:
        """Return the probability that stands for a verdict (`Decision.p`)."""
        if verdict.answer in question.options:
            return p[question.options.index(verdict.answer)]
        return max(p)

    def answers(self, question: QuestionLike) -> tuple[str, ...]:
        """Return the single answers that can be given, beside `uncertain` and `unknown`."""
        return question.options

    def names(self, question: QuestionLike) -> dict[str, tuple[str, ...]]:
        """Return what conditions, events and labels may call by name, with the answers of each."""
        return {question.id: self.answers(question)}

    def parts(self, question: QuestionLike, answer: str) -> tuple[str, ...]:
        """Return the answer of each label that an answer as a whole means; none without labels."""
        return ()

    def canonical(self, question: QuestionLike, answer: str | Sequence[str]) -> str:
        """Return an answer that people wrote as the question gives it. Raises KindError."""
        if not isinstance(answer, str):
            raise KindError("answer", f"needs one answer, not a list: it is {self.noun}")
        written = normal(answer)
        if written not in self.answers(question):
            raise KindError("answer", f"never answers '{written}' (its answers: "
                                      f"{listed(self.answers(question))})")
        return written


class YesNo(Kind):
    """Yes or no, with `enter` and `exit` on P(yes)."""

    name, noun = "yes_no", "a yes/no question"
    has_heads = has_bias = True

    def check_count(self, count: int) -> None:
        """Refuse options."""
        if count:
            with_options = ", ".join(name for name in KINDS if name != self.name)
            raise KindError("options", f"belong to kind: {with_options}; this one is {self.name}")

    def count(self, question: QuestionLike) -> int:
        """Return 2: yes and no."""
        return 2

    def probabilities(
        self, logits: Sequence, scale: float = 1.0, bias: float = 0.0
    ) -> tuple[float, ...]:
        """Return (yes, no) of logits (yes, no): P(yes) = sigmoid(scale * (yes - no) + bias)."""
        yes, no = logits
        x = scale * float(yes) - scale * float(no) + bias
        p = sigmoid(x) if math.isfinite(x) else math.nan
        return p, 1.0 - p

    def verdict(
        self, question: QuestionLike, p: Sequence[float], held: Sequence[str]
    ) -> Verdict:
        """Return yes from `enter` on, no up to `exit`, and between them what was held."""
        return Verdict(_threshold(question, p[0], held[0] if held else ""))

    def p(self, question: QuestionLike, p: Sequence[float], verdict: Verdict) -> float:
        """Return P(yes), whatever the answer."""
        return p[0]

    def answers(self, question: QuestionLike) -> tuple[str, ...]:
        """Return yes and no."""
        return YES, NO


class OneOf(Kind):
    """One of several options. Another one takes over when it leads by (enter - exit) / 2."""

    name, noun = "choice", "a choice"

    def verdict(
        self, question: QuestionLike, p: Sequence[float], held: Sequence[str]
    ) -> Verdict:
        """Return the option that leads the one held (at first: the runner-up) by the margin."""
        order = sorted(range(len(p)), key=lambda i: -p[i])  # of equals the first first
        leader, margin = order[0], (question.enter - question.exit) / 2
        if held and held[0] in question.options:
            kept = question.options.index(held[0])
            return Verdict(question.options[leader if p[leader] - p[kept] >= margin else kept])
        if p[leader] - p[order[1]] >= margin:
            return Verdict(question.options[leader])
        return Verdict(UNCERTAIN)


class Score(Kind):
    """Ordered levels, the lowest first, with an expected value and thresholds on it.

    A level's value is the number that it is, where all levels are numbers; else its place: 0, 1,
    2, ... The answer is the level in whose range the expected value lies. The ranges meet at the
    thresholds. Around each there is a band of (enter - exit) / 2 of the step between the two
    levels, to both sides, within which the answer stays: with the usual 0.65 and 0.35 and a
    threshold at 1.5 the answer goes up at 1.65 and down at 1.35.
    """

    name, noun = "score", "a score"
    has_thresholds = is_ordered = True

    def check(self, question: QuestionLike) -> None:
        """Refuse levels that do not rise, and thresholds that do not part them."""
        values = level_values(question.options)
        for level, low, high in zip(question.options[1:], values, values[1:]):
            if not low < high:
                raise KindError("options", "must go from the lowest level to the highest: "
                                           f"'{level}' comes after {low:g}")
        given = question.thresholds
        if given and len(given) != len(values) - 1:
            raise KindError("thresholds", f"must be {len(values) - 1}, one between each two of the "
                                          f"{len(values)} levels, not {len(given)}")
        if any(not low < high for low, high in zip(given, given[1:])):
            raise KindError("thresholds", "must rise: " + COMMA.join(f"{t:g}" for t in given))
        for threshold in given:
            if not values[0] < threshold < values[-1]:
                raise KindError("thresholds", "must lie between the values of the levels, "
                                              f"{values[0]:g} and {values[-1]:g}, not "
                                              f"{threshold:g}")

    def value(self, question: QuestionLike, p: Sequence[float]) -> float:
        """Return the expected value of a distribution over the levels."""
        return sum(x * y for x, y in zip(level_values(question.options), p, strict=True))

    def thresholds(self, question: QuestionLike) -> tuple[float, ...]:
        """Return the thresholds between the levels: the question's, else half way."""
        values = level_values(question.options)
        return question.thresholds or tuple(
            (low + high) / 2 for low, high in zip(values, values[1:]))

    def bands(self, question: QuestionLike) -> list[tuple[float, float]]:
        """Return (down, up) of each threshold: where the answer falls below it, and rises over it.

        The same as `exit` and `enter` of a yes/no question, on the expected value.
        """
        values, half = level_values(question.options), (question.enter - question.exit) / 2
        return [(at - half * (high - low), at + half * (high - low)) for at, low, high in zip(
            self.thresholds(question), values, values[1:])]

    def verdict(
        self, question: QuestionLike, p: Sequence[float], held: Sequence[str]
    ) -> Verdict:
        """Return the level of the expected value; within a band the one held, or `uncertain`."""
        value, bands = self.value(question, p), self.bands(question)
        least = sum(value >= up for _, up in bands)
        most = sum(value > down for down, _ in bands)
        if held and held[0] in question.options:
            at = min(max(question.options.index(held[0]), least), most)
        elif least == most:
            at = least
        else:
            return Verdict(UNCERTAIN, value=value)
        return Verdict(question.options[at], value=value)


class AnyOf(Kind):
    """Several labels, each answered yes or no by itself, with `enter` and `exit` on its P(yes).

    A label is asked as a yes/no question of its own: the text with the label in the place of `{}`,
    or before `Yes or no: LABEL?` where it has no such place. What its probability is does not
    depend on the other labels. The tokens that the texts begin with are computed once.
    """

    name, noun = "any_of", "an any_of"
    least_options = 1
    exclusive = False
    has_bias = True

    def check(self, question: QuestionLike) -> None:
        """Refuse labels that could not be told apart in an answer, and two places."""
        for label in question.options:
            if "," in label:
                raise KindError("options", f"of an any_of cannot hold a comma: '{label}'")
            if label.casefold() == NONE:
                raise KindError("options", f"of an any_of cannot hold '{label}': it is the answer "
                                           "that no label is so")
        if question.text.count(PLACE) > 1:
            raise KindError("text", f"has {question.text.count(PLACE)} places {PLACE} for the "
                                    "label; it can have one")

    def forks(self, text: str, options: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return a yes/no question for each label."""
        if PLACE in text:
            return tuple((text.replace(PLACE, label), ()) for label in options)
        return tuple((f"{text} Yes or no: {label}?", ()) for label in options)

    def probabilities(
        self, logits: Sequence, scale: float = 1.0, bias: float = 0.0
    ) -> tuple[float, ...]:
        """Return P(yes) of each label, of logits (labels, 2)."""
        return tuple(_YES_NO.probabilities(pair, scale, bias)[0] for pair in logits)

    def verdict(
        self, question: QuestionLike, p: Sequence[float], held: Sequence[str]
    ) -> Verdict:
        """Return each label's answer, and as a whole the labels that are so once all are known."""
        before = held if len(held) == len(p) else [""] * len(p)
        answers = tuple(_threshold(question, one, was) for one, was in zip(p, before, strict=True))
        if UNCERTAIN in answers:
            return Verdict(UNCERTAIN, answers)
        return Verdict(joined(
            [label for label, one in zip(question.options, answers) if one == YES]), answers)

    def unknown(self, question: QuestionLike) -> Verdict:
        """Return that no label is known."""
        return Verdict(UNKNOWN, (UNKNOWN,) * len(question.options))

    def p(self, question: QuestionLike, p: Sequence[float], verdict: Verdict) -> float:
        """Return the probability of the least sure label's answer: the whole is at most as sure."""
        return min(one if answer == YES else 1.0 - one if answer == NO else max(one, 1.0 - one)
                   for one, answer in zip(p, verdict.answers, strict=True))

    def names(self, question: QuestionLike) -> dict[str, tuple[str, ...]]:
        """Return the name of each label's answer, `on_desk[cup]`."""
        return {label_name(question.id, label): (YES, NO) for label in question.options}

    def parts(self, question: QuestionLike, answer: str) -> tuple[str, ...]:
        """Return yes for the labels that an answer names, no for the others."""
        if answer in (UNKNOWN, UNCERTAIN):
            return (answer,) * len(question.options)
        named = split_labels(answer)
        return tuple(YES if label in named else NO for label in question.options)

    def canonical(self, question: QuestionLike, answer: str | Sequence[str]) -> str:
        """Return a list of labels, or a text with commas, in the order of the options."""
        parts = answer.split(",") if isinstance(answer, str) else answer
        wanted = [normal(part) for part in parts]
        if wanted in ([NONE], []):
            return NONE
        for label in wanted:
            if label not in question.options:
                raise KindError("answer", f"has no label '{label}' (its labels: "
                                          f"{listed(question.options)}; or '{NONE}')")
        return joined([label for label in question.options if label in wanted])


_YES_NO = YesNo()

#: The kinds by name.
KINDS: dict[str, Kind] = {kind.name: kind for kind in (_YES_NO, OneOf(), Score(), AnyOf())}


def kind_of(question: QuestionLike) -> Kind:
    """Return what kind a question is of."""
    return KINDS[question.kind]


def plain_kind(options: Sequence[str]) -> str:
    """Return the kind of a question that names none: a choice where there are options."""
    return OneOf.name if options else YesNo.name


def are_numbers(levels: Sequence[str]) -> bool:
    """Return whether all levels of a score are finite numbers."""
    try:
        return all(math.isfinite(float(level)) for level in levels)
    except ValueError:
        return False


def level_values(levels: Sequence[str]) -> tuple[float, ...]:
    """Return the values of a score's levels: the numbers they are, or their places from 0."""
    return tuple(map(float, levels if are_numbers(levels) else range(len(levels))))


def question_of(name: str) -> str:
    """Return the id of the question that a name is of: `on_desk` for `door.on_desk[cup]`."""
    return name.partition("[")[0].rpartition(".")[2]


def view_of(name: str) -> str:
    """Return the view that a name says: `door` for `door.on_desk[cup]`, nothing for `on_desk`."""
    return name.partition("[")[0].rpartition(".")[0]


def in_view(view: str, name: str) -> str:
    """Return the name of an answer of that view, as in conditions: `door.on_desk[cup]`."""
    return f"{view}.{name}"


def without_view(name: str) -> str:
    """Return a name as it is within its view: `on_desk[cup]` for `door.on_desk[cup]`."""
    view = view_of(name)
    return name[len(view) + 1:] if view else name


def label_of(name: str) -> str:
    """Return the label that a name is of: `cup` for `on_desk[cup]`, nothing for `on_desk`."""
    return name.partition("[")[2].removesuffix("]")


def names_of(questions: Mapping[str, QuestionLike]) -> dict[str, tuple[str, ...]]:
    """Return every name that an answer has, with the answers possible; the camera's health too."""
    found: dict[str, tuple[str, ...]] = {}
    for question in questions.values():
        found |= kind_of(question).names(question)
    return found | dict.fromkeys(HEALTH_IDS, (YES, NO))


def split_labels(answer: str) -> tuple[str, ...]:
    """Return the labels that the answer of an `any_of` names; none for `none`."""
    return () if answer == NONE else tuple(answer.split(COMMA))


def joined(labels: Sequence[str]) -> str:
    """Return the answer of an `any_of` of which these labels are so, in the question's order."""
    return COMMA.join(labels) or NONE


def _threshold(question: QuestionLike, p: float, held: str) -> str:
    if p >= question.enter:
        return YES
    if p <= question.exit:
        return NO
    return held if held in (YES, NO) else UNCERTAIN


def sigmoid(x: float) -> float:
    """Return 1 / (1 + exp(-x)) for any finite x."""
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))
