"""A question: its text and kind, who answers it, when it is asked, and how its answer is decided.

Everything is validated here. Errors name the question and the key.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .conditions import WORDS, ConditionError, parse_condition
from .kinds import KINDS, KindError, kind_of, question_of
from .texts import comparable, is_visible, named, normal, what_cannot_stand
from .views import ALL

TIERS = ("auto", "heads", "vlm")
ASKS = ("always", "on_change")
SMOOTHINGS = ("ema", "filter")
AUTO = "auto"

#: What `unsure` says to look further back in the question's own view.
WINDOW = "window"
RESERVED_PREFIX = "camera_"

MAX_ID = 64
MAX_TEXT = 500
MAX_OPTION = 80

_ID = re.compile(r"[a-zA-Z][a-zA-Z0-9]*(_[a-zA-Z0-9]+)*")
_TIER_NUMBERS = {1: "heads", 2: "vlm"}
_RESERVED_OPTIONS = ("unknown", "uncertain")
_MEANING = ("id", "text", "kind", "options", "scale", "bias", "view")

#: What is of no effect without something else: the fields, the field that decides, whether its
#: value lets them count, and what to say. Tier first: without the model nothing of it counts.
_COUNTS: tuple[tuple[tuple[str, ...], str, Callable[[Any], bool], str], ...] = (
    (("unsure", "ask", "depth", "scale", "bias"), "tier", lambda tier: tier not in ("heads", 1),
     "is for the language model, which tier heads never asks: use tier auto or vlm"),
    (("change", "refresh_s"), "ask", lambda ask: ask == "on_change", "goes with ask: on_change"),
    (("shallow_depth", "shallow_margin", "shallow_scale", "shallow_bias"), "depth",
     lambda depth: depth == AUTO, "goes with depth: auto"),
    (("switch_hz",), "smoothing", lambda smoothing: smoothing == "filter",
     "goes with smoothing: filter"),
    (("ema",), "smoothing", lambda smoothing: smoothing != "filter",
     "goes with smoothing: ema; smoothing: filter has switch_hz"),
)


class QuestionError(ValueError):
    """A question, or a file of questions, that is not valid. `field` is the key at fault."""

    def __init__(self, message: str, field: str | None = None, question_id: str = "") -> None:
        """Store the key at fault with the message, so that the line can be found."""
        super().__init__(message)
        self.field, self.question_id = field, question_id


@dataclass(frozen=True)
class EarlyExit:
    """Where the language model may stop before its last layer, and when it does.

    Attributes:
        depth: the layer after which it may.
        margin: it stops where the highest calibrated logit leads the next by so much.
        scale: calibration there: logits are scale * logit + bias.
        bias: see scale.
        weight: of a head on the decision token's state (D,), instead of the answers' logits; None
            for none.
    """

    depth: int
    margin: float
    scale: float = 1.0
    bias: float = 0.0
    weight: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Question:
    """One standing question.

    Attributes:
        id: a ROS name token. It must not start with `camera_`: those are for the camera's health.
        text: what is asked.
        kind: `yes_no`; `choice`: one of several options; `score`: one of several ordered levels,
            with an expected value; `any_of`: several labels, each answered yes or no (see kinds.py,
            also for what follows). The text of an any_of may hold `{}` in the place of the label.
        options: 2 to 26 answers of a choice or levels of a score, the lowest first; 1 to 26 labels
            of an any_of; empty for yes_no.
        thresholds: of a score, between each two levels, on the expected value; empty for half way.
        tier: `heads` (Tier 1), `vlm` (Tier 2), or `auto`: Tier 1 if a head for it is loaded.
        head: name of the head; None for the head that was made for this id.
        rate_hz: answers per second of frame time, (0, 100].
        enter: the answer (of an any_of: a label's) becomes yes at p >= enter, 0 <= exit < enter
            <= 1. A choice changes when another option leads by (enter - exit) / 2. A score changes
            (enter - exit) / 2 of the step between two levels beyond their threshold.
        exit: the answer becomes no at p <= exit; between the two it stays.
        ema: weight of the newest value in the smoothing, (0, 1]; 1 for no smoothing.
        smoothing: `ema`, an exponential average, or `filter`, a forward filter with a state for
            each answer (see runtime/forward_filter.py).
        switch_hz: of the filter: how often the answer changes, per second, (0, 10].
        depth: language-model layers to use; None for all; `auto` for `shallow_depth`, and all where
            the answer is not clear there.
        shallow_depth: of `depth: auto`: the layers after which an answer may stand.
        shallow_margin: it does where its logit, calibrated, leads the next by so much.
        shallow_scale: the calibration of the logits there, as `scale` is of those at full depth.
        shallow_bias: see shallow_scale.
        scale: calibration of the language model: logits are scale * logit + bias before the
            softmax. (A head has a temperature of its own.)
        bias: see scale; of yes_no and any_of.
        ask: `always`, or `on_change`: the language model is asked again only when the picture has
            changed since it was asked; until then its answer stands.
        change: cosine distance of the pooled features that counts as changed.
        refresh_s: with `on_change`, ask at least this often, in seconds.
        when: a condition over the answers of other questions (see conditions.py), or None. While
            it does not hold, the question is not asked.
        needs: id of a question (or `id[label]` of an any_of) whose `no` makes this one
            meaningless, or None.
        min_evidence_s: how long the picture must have been seen without a cut, in seconds.
        implies: of a yes_no question: conditions (as for `when`) that must hold where the answer is
            yes. Where one does not, the decision says so; nothing is corrected.
        unsure: what to ask about once more, in dead time, where an answer of the language model is
            uncertain by itself: `window`, more of its own view's past, or the name of a view of the
            same picture, of which the past is taken before the window. Empty for nothing.
        view: name of the view that it is asked of; empty or `all`: of each.

    Raises:
        QuestionError: a field that is not valid.
    """

    id: str
    text: str
    kind: str = "yes_no"
    options: tuple[str, ...] = ()
    tier: str = "auto"
    head: str | None = None
    rate_hz: float = 4.0
    enter: float = 0.65
    exit: float = 0.35
    ema: float = 0.7
    depth: int | str | None = None
    scale: float = 1.0
    bias: float = 0.0
    ask: str = "always"
    change: float = 0.005
    refresh_s: float = 4.0
    when: str | None = None
    needs: str | None = None
    min_evidence_s: float = 0.0
    thresholds: tuple[float, ...] = ()
    smoothing: str = "ema"
    switch_hz: float = 0.1
    shallow_depth: int = 2
    shallow_margin: float = 3.0
    shallow_scale: float = 1.0
    shallow_bias: float = 0.0
    implies: tuple[str, ...] = ()
    unsure: str = ""
    view: str = ""

    def __post_init__(self) -> None:
        """Validate every field, and normalise those that can be written in several ways."""
        check_id(self.id)
        self._set("text", self._plain("text", self.text, MAX_TEXT))
        if not isinstance(self.kind, str):
            raise self._error("kind", f"must be one of {', '.join(KINDS)}, not {self.kind!r}")
        self._one_of("kind", tuple(KINDS))
        self._set("options", self._checked_options())
        self._set("thresholds", self._checked_thresholds())
        try:
            kind_of(self).check(self)
        except KindError as error:
            raise self._error(error.field, str(error)) from error
        self._set("tier", self._checked_tier())
        self._check_head()
        self._number("rate_hz", 0.0, 100.0, above=True)
        self._number("enter", 0.0, 1.0)
        self._number("exit", 0.0, 1.0)
        if not self.exit < self.enter:
            raise self._error(
                "enter", f"must be above exit: enter is {self.enter:g}, exit is {self.exit:g}"
            )
        self._number("ema", 0.0, 1.0, above=True)
        self._one_of("ask", ASKS)
        self._one_of("smoothing", SMOOTHINGS)
        if not isinstance(self.unsure, str):
            raise self._error("unsure", f"must be {WINDOW} or the name of a view, not "
                                        f"{self.unsure!r}")
        self._number("switch_hz", 0.0, 10.0, above=True)
        self._number("change", 0.0, 2.0)
        self._number("refresh_s", 0.0, 3600.0, above=True)
        self._number("min_evidence_s", 0.0, 600.0)
        self._check_conditions()
        if not isinstance(self.view, str):
            raise self._error("view", f"must be the name of a view, not {self.view!r}")
        self._number("scale", 0.0, 1000.0, above=True)
        self._number("bias", -1000.0, 1000.0)
        if self.bias != 0.0 and not kind_of(self).has_bias:
            raise self._error("bias", f"only {_kinds_with('has_bias')} questions have a bias")
        self._layers("depth", None, AUTO)
        self._layers("shallow_depth")
        self._number("shallow_margin", 0.0, 1000.0)
        self._number("shallow_scale", 0.0, 1000.0, above=True)
        self._number("shallow_bias", -1000.0, 1000.0)

    @property
    def early(self) -> EarlyExit | None:
        """Where the language model may stop before its last layer, None where it may not."""
        if self.depth != AUTO:
            return None
        return EarlyExit(self.shallow_depth, self.shallow_margin, self.shallow_scale,
                         self.shallow_bias)

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Ids of the questions that `when` and `needs` name."""
        named = parse_condition(self.when).questions if self.when else ()
        return tuple(dict.fromkeys([*named, *([question_of(self.needs)] if self.needs else [])]))

    @property
    def names(self) -> tuple[str, ...]:
        """Ids of the questions that any of its conditions name, implied ones included."""
        implied = [name for one in self.implies for name in parse_condition(one).questions]
        return tuple(dict.fromkeys([*self.depends_on, *implied]))

    @property
    def views_named(self) -> tuple[str, ...]:
        """Views whose answers its conditions name."""
        conditions = [*([self.when] if self.when else []), *self.implies]
        return tuple(dict.fromkeys(
            view for one in conditions for view in parse_condition(one).views))

    def is_of(self, view: str) -> bool:
        """Return whether it is asked of the view of that name."""
        return self.view in ("", ALL, view)

    def asks_the_same(self, other: Question) -> bool:
        """Return whether probabilities of both mean the same, whatever the rates and thresholds."""
        return all(getattr(self, name) == getattr(other, name) for name in _MEANING)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as in YAML."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING or value != field.default:
                values[field.name] = list(value) if isinstance(value, tuple) else value
        return values

    def check_used(self, names: Iterable[str] | None = None) -> None:
        """Raise QuestionError for a field that is set and of no effect beside the others.

        `names`: look at these fields only.
        """
        for fields, of, counts, message in _COUNTS:
            for name in fields:
                if getattr(self, name) != _DEFAULT[name] and (
                        names is None or name in names) and not counts(getattr(self, of)):
                    raise self._error(name, message)

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _error(self, field: str, message: str) -> QuestionError:
        return QuestionError(f"question '{self.id}': {field} {message}", field)

    def _plain(self, field: str, value: Any, limit: int) -> str:
        if not isinstance(value, str):
            hint = "in YAML, quote the text"
            if isinstance(value, bool):
                hint = "YAML reads a bare yes, no, on or off as a boolean: quote it"
            raise self._error(field, f"must be text, not {value!r} ({hint})")
        if fault := what_cannot_stand(value):
            raise self._error(field, f"holds {fault}")
        value = normal(value)
        if not is_visible(value):
            unseen = f": it holds only invisible characters, {named(value)}" if value else ""
            raise self._error(field, f"is empty{unseen}")
        if len(value) > limit:
            raise self._error(field, f"has {len(value)} characters, the limit is {limit}")
        return value

    def _checked_options(self) -> tuple[str, ...]:
        if isinstance(self.options, str) or not isinstance(self.options, (list, tuple)):
            raise self._error("options", f"must be a list, not {self.options!r}")
        try:
            kind_of(self).check_count(len(self.options))
        except KindError as error:
            raise self._error(error.field, str(error)) from error
        options = tuple(self._option(number, option)
                        for number, option in enumerate(self.options, 1))
        seen: set[str] = set()
        for option in options:
            key = comparable(option)
            if key in seen:
                raise self._error("options", f"name '{option}' twice")
            if key in _RESERVED_OPTIONS:
                raise self._error("options", f"cannot hold '{option}': it is an answer of its own")
            seen.add(key)
        return options

    def _checked_thresholds(self) -> tuple[float, ...]:
        if isinstance(self.thresholds, str) or not isinstance(self.thresholds, (list, tuple)):
            raise self._error("thresholds", f"must be a list of numbers, not {self.thresholds!r}")
        if self.thresholds and not kind_of(self).has_thresholds:
            raise self._error("thresholds", f"belong to kind: {_kinds_with('has_thresholds')}; "
                                            f"this one is {self.kind}, and has enter and exit")
        for value in self.thresholds:
            sound = isinstance(value, numbers.Real) and not isinstance(value, bool)
            if not sound or not math.isfinite(value):
                raise self._error("thresholds", f"must be numbers, not {value!r}")
        return tuple(map(float, self.thresholds))

    def _option(self, number: int, option: Any) -> str:
        try:
            return self._plain("options", option, MAX_OPTION)
        except QuestionError as error:
            words = str(error).replace("options ", f"options: number {number} ", 1)
            raise QuestionError(words, error.field) from error

    def _checked_tier(self) -> str:
        tier = self.tier
        if _is_int(tier):
            tier = _TIER_NUMBERS.get(int(tier), tier)
        if tier not in TIERS:
            raise self._error("tier", f"must be auto, heads (1) or vlm (2), not {self.tier!r}")
        kind = kind_of(self)
        if tier == "heads" and not kind.has_heads:
            raise self._error("tier", f"heads answers yes or no only: {kind.noun} needs vlm")
        return tier

    def _check_conditions(self) -> None:
        if self.when is not None:
            try:
                self._set("when", parse_condition(self.when).text)
            except ConditionError as error:
                raise self._error("when", str(error)) from error
        if self.needs is not None and not (isinstance(self.needs, str) and self.needs.strip()):
            raise self._error("needs", f"must be the id of a question, not {self.needs!r}")
        if self.id in self.depends_on:
            own = self.needs is not None and question_of(self.needs) == self.id
            raise self._error("needs" if own else "when", "names itself")
        self._check_implies()

    def _check_implies(self) -> None:
        given = (self.implies,) if isinstance(self.implies, str) else self.implies
        if not isinstance(given, (list, tuple)):
            raise self._error("implies", f"must be a condition or a list of them, not {given!r}")
        if given and self.kind != "yes_no":
            raise self._error("implies", f"says what a yes implies: this is {kind_of(self).noun}")
        try:
            conditions = [parse_condition(one) for one in given]
        except ConditionError as error:
            raise self._error("implies", str(error)) from error
        if any(self.id in condition.questions for condition in conditions):
            raise self._error("implies", "names itself")
        self._set("implies", tuple(condition.text for condition in conditions))

    def _check_head(self) -> None:
        if self.head is None:
            return
        if not isinstance(self.head, str) or not self.head.strip():
            raise self._error("head", f"must be a head's name, not {self.head!r}")
        unused = self.tier == "vlm" and self.depth != AUTO
        if unused or not kind_of(self).has_heads:
            raise self._error("head", "has no use here: heads answer yes_no questions of Tier 1, "
                                      "or at the early exit of depth: auto")

    def _layers(self, field: str, *others: Any) -> None:
        value = getattr(self, field)
        if value in others and not isinstance(value, bool):
            return
        if not _is_int(value) or not 1 <= value <= 1000:
            words = "".join(f", or {one}" for one in others if one)
            raise self._error(field, f"must be a whole number of layers{words}, not {value!r}")

    def _one_of(self, field: str, words: tuple[str, ...]) -> None:
        value = getattr(self, field)
        if value not in words:
            raise self._error(field, f"must be one of {', '.join(words)}, not {value!r}")

    def _number(self, field: str, low: float, high: float, above: bool = False) -> None:
        value = getattr(self, field)
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise self._error(field, f"must be a number, not {value!r}")
        try:
            value = float(value)
        except OverflowError:  # a whole number of hundreds of digits
            value = math.inf
        if not (low < value if above else low <= value) or not value <= high:
            bound = "above" if above else "from"
            to = f" and at most {high:g}" if above else f" to {high:g}"
            raise self._error(field, f"must be {bound} {low:g}{to}, not {value:g}")
        self._set(field, value)


def unnamed(question_id: str, **fields: Any) -> Question:
    """Return a question whose id was made up here: no error names it. Raises QuestionError."""
    try:
        return Question(id=question_id, **fields)
    except QuestionError as error:
        said = str(error).removeprefix(f"question '{question_id}': ")
        raise QuestionError(said, error.field) from error


FIELDS = tuple(field.name for field in dataclasses.fields(Question))
_DEFAULT = {field.name: field.default for field in dataclasses.fields(Question)}


def without_idle(defaults: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of a file that have an effect on a question that says `own`."""
    kept = dict(defaults)
    for fields, of, counts, _ in _COUNTS:
        if not counts(own.get(of, kept.get(of, _DEFAULT[of]))):
            kept = {name: value for name, value in kept.items() if name not in fields}
    return kept


def goes_with(name: str) -> str:
    """Return what a field goes with."""
    return next(message for fields, _, _, message in _COUNTS if name in fields)


def check_id(question_id: Any) -> str:
    """Return a valid question id unchanged. Raises QuestionError for another one."""
    if not isinstance(question_id, str):
        raise QuestionError(f"question id must be text, not {question_id!r}", "id")
    if len(question_id) > MAX_ID or not _ID.fullmatch(question_id):
        raise QuestionError(
            f"question id {question_id[:MAX_ID]!r} is not a ROS name: letters, digits and single "
            f"underscores, starting with a letter, at most {MAX_ID} characters",
            "id",
        )
    if question_id in WORDS:
        raise QuestionError(f"question id '{question_id}': {', '.join(WORDS)} are words of "
                            "conditions, which could not name it", "id")
    if question_id.startswith(RESERVED_PREFIX):
        raise QuestionError(
            f"question id '{question_id}': names that start with '{RESERVED_PREFIX}' are kept for "
            "the camera's health",
            "id",
        )
    return question_id


def _kinds_with(what: str) -> str:
    return " and ".join(name for name, kind in KINDS.items() if getattr(kind, what))


def _is_int(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)
