"""Conditions over the answers of other questions: `person and not (activity == "on phone")`.

A name is a question's id (or one of the camera's health), or a label of an any_of in brackets, as
`on_desk[cup]` or `on_desk["toy car"]`: it holds where the answer is yes. With several views it may
say whose answer counts: `door.person`, `door.on_desk[cup]`. `==` and `!=` compare an answer with
one of its question's, `in` with several: `people in (one, two)`. `<`, `<=`, `>` and `>=` compare a
score with one of its levels, as `crowd >= medium`; where all levels are numbers with any number, as
`people > 2`. An answer that is `unknown` or `uncertain` leaves open whatever depends on it, and
what is open does not hold. Nothing is ever executed: the text is parsed, and all but the above
refused.
"""

from __future__ import annotations

import ast
import keyword
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from .decision import NO, UNCERTAIN, UNKNOWN, YES, label_name
from .files.listing import listed, there_are
from .kinds import (
    QuestionLike,
    are_numbers,
    in_view,
    kind_of,
    level_values,
    names_of,
    question_of,
    view_of,
    without_view,
)
from .texts import what_cannot_stand

MAX_CONDITION = 500

#: The words of conditions themselves: no question and no view can have such a name.
WORDS = ("and", "or", "not", "in")
#: Python's other words, which may be names here. Text in quotes is no word.
_KEYWORDS = frozenset(keyword.kwlist) - {*WORDS}
_TOKEN = re.compile(r""" "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | \b[A-Za-z]\w*\b """, re.VERBOSE)

_ORDERS: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge}

_NONE: Mapping[str, QuestionLike] = MappingProxyType({})


class ConditionError(ValueError):
    """A condition that cannot be read, or that asks for what there is not."""


@dataclass(frozen=True)
class Condition:
    """A condition that was read.

    `bare`: names that must be answered yes; `compared`: (name, answer) pairs; `ordered`: (name,
    level or number) pairs. A name is a question's id, or `id[label]`; either may stand behind the
    name of a view and a dot.
    """

    text: str
    bare: tuple[str, ...]
    compared: tuple[tuple[str, str], ...]
    ordered: tuple[tuple[str, str | float], ...]
    _tree: ast.expr

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the answers that it depends on."""
        pairs = (*self.compared, *self.ordered)
        return tuple(dict.fromkeys([*self.bare, *(name for name, _ in pairs)]))

    @property
    def questions(self) -> tuple[str, ...]:
        """Ids of the questions that it depends on."""
        return tuple(dict.fromkeys(map(question_of, self.names)))

    @property
    def views(self) -> tuple[str, ...]:
        """Names of the views that it says."""
        return tuple(dict.fromkeys(filter(None, map(view_of, self.names))))

    def check(
        self, questions: Mapping[str, QuestionLike], views: Iterable[str] = ("",)
    ) -> None:
        """Raise ConditionError unless every question exists and can give the answer named.

        `views`: the names of those there are, each question of which a condition may name.
        """
        there = names_of(questions)
        for name in self.names:
            if without_view(name) not in there:
                raise ConditionError(not_there(without_view(name), there, questions))
            check_view(view_of(name), questions.get(question_of(name)), question_of(name), views)
        for name in self.bare:
            possible = there[without_view(name)]
            if possible != (YES, NO):
                noun = kind_of(questions[question_of(name)]).noun
                raise ConditionError(
                    f"'{name}' is {noun}: compare it, as in {name} == \"{possible[0]}\"")
        for name, answer in self.compared:
            possible = there[without_view(name)]
            if answer not in possible:
                raise ConditionError(
                    f"'{name}' never answers '{answer}' (its answers: {listed(possible)})"
                )
        for name, bound in self.ordered:
            _check_order(name, bound, questions)

    def holds(
        self, answers: Mapping[str, str], questions: Mapping[str, QuestionLike] = _NONE
    ) -> bool | None:
        """Return whether it holds with these answers by name; None where they leave that open.

        `questions`: those standing, by id, of which the levels are taken that `<` and `>` compare.
        """
        return _holds(self._tree, answers, questions)


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises ConditionError saying what is not understood."""
    if not isinstance(text, str) or not text.strip():
        raise ConditionError(f"must be a condition such as 'person and not away', not {text!r}")
    if len(text) > MAX_CONDITION:
        raise ConditionError(f"has {len(text)} characters, the limit is {MAX_CONDITION}")
    if odd := what_cannot_stand(text):
        raise ConditionError(f"holds {odd}")
    try:
        tree = _parsed(text.strip())
        found = _Found([], [], [])
        _collect(tree, found)
    except SyntaxError as error:
        raise ConditionError(_unreadable(text.strip(), error.offset or 0)) from error
    except (RecursionError, MemoryError, ValueError) as error:
        if isinstance(error, ConditionError):
            raise
        raise ConditionError("is nested too deeply or holds odd characters") from error
    return Condition(text.strip(), *map(tuple, found), tree)


def _parsed(text: str) -> ast.expr:
    """Parse a condition in which Python's keywords are names like others. Raises SyntaxError."""
    ends: list[int] = []  # of what is put before each: a _, with which no id begins

    def named(found: re.Match[str]) -> str:
        if found[0] not in _KEYWORDS:
            return found[0]
        ends.append(found.start() + len(ends) + 1)
        return f"_{found[0]}"

    # What Python would pass over in silence: comments, and lines that go on.
    bare = _TOKEN.sub(lambda found: "." * len(found[0]), text)
    if passed_over := re.search(r"[#\\]", bare):
        raise SyntaxError("", ("", 1, passed_over.start() + 1, text))
    try:
        tree = ast.parse(_TOKEN.sub(named, text), mode="eval").body
    except SyntaxError as error:
        with suppress(SyntaxError):
            return ast.parse(text, mode="eval").body  # an expression of Python's: refused by name
        if error.offset:
            error.offset -= sum(end < error.offset for end in ends)
        raise
    for node in ast.walk(tree):
        for field in ("id", "attr"):
            name = getattr(node, field, "")
            if name[1:] in _KEYWORDS and name.startswith("_"):
                setattr(node, field, name[1:])
    return tree


def _unreadable(text: str, column: int) -> str:
    """Return what to say of a condition that cannot be read; its columns count from 1."""
    if not 1 <= column <= len(text):
        return f"cannot be read, it ends too early: {text}"
    hint = ", answers are compared by ==" if re.search(r"(?<![=!<>])=(?!=)", text) else ""
    return f"cannot be read at column {column}{hint}: {text}"


class _Found(NamedTuple):
    """The fields of a condition's that its tree tells."""

    bare: list[str]
    compared: list[tuple[str, str]]
    ordered: list[tuple[str, str | float]]


def _collect(node: ast.expr, found: _Found) -> None:
    """Add the names and comparisons of a tree; refuse whatever else it holds."""
    if _is_name(node):
        found.bare.append(_name(node))
    elif isinstance(node, ast.BoolOp):
        for part in node.values:
            _collect(part, found)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        _collect(node.operand, found)
    elif isinstance(node, ast.Compare):
        values = _compared_with(node)
        if len(node.ops) > 1 or not _is_name(node.left) or None in values or not values:
            raise ConditionError(
                "compares a question with one of its answers by == or !=, a score by <, <=, > or "
                ">=, or any by `in` with several in brackets: the question comes first")
        name = _name(node.left)
        if type(node.ops[0]) in _ORDERS:
            found.ordered.append((name, values[0]))
        else:
            found.compared.extend((name, str(value)) for value in values)
    else:
        over = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
        hint = "; of a view's answer the name is view.question" if over else ""
        raise ConditionError(
            "may hold question ids, and, or, not, ==, !=, <, <=, >, >=, in and brackets, not "
            f"{ast.unparse(node)!r}{hint}"
        )


def _compared_with(node: ast.Compare) -> list[str | float | None]:
    """Return what a comparison compares with: texts and numbers, None for what is neither."""
    right = node.comparators[0]
    if isinstance(node.ops[0], (ast.In, ast.NotIn)):
        several = isinstance(right, (ast.Tuple, ast.List, ast.Set))
        return [_value(one) for one in (right.elts if several else [right])]
    sound = isinstance(node.ops[0], (ast.Eq, ast.NotEq)) or type(node.ops[0]) in _ORDERS
    return [_value(right)] if sound else []


def _value(node: ast.expr) -> str | float | None:
    """Return the text or the number that a node is, None where it is neither."""
    if isinstance(node, ast.Name) or _is_text(node):
        return _text(node)
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    number = node.operand if negative else node
    if not isinstance(number, ast.Constant) or type(number.value) not in (int, float):
        return None
    return -number.value if negative else number.value


def _check_order(name: str, bound: str | float, questions: Mapping[str, QuestionLike]) -> None:
    """Raise ConditionError unless a question has levels in an order and the bound is on it."""
    question = questions.get(question_of(name))
    if question is None or not kind_of(question).is_ordered:
        noun = kind_of(question).noun if question else "of the camera's health"
        raise ConditionError(f"'{name}' is {noun}: only the levels of a score have an order, by "
                             "which <, <=, > and >= compare")
    levels = listed(question.options)
    if isinstance(bound, str):
        if bound not in question.options:
            raise ConditionError(f"'{name}' never answers '{bound}' (its levels: {levels})")
    elif not are_numbers(question.options):
        raise ConditionError(f"'{name}' has no numbers for levels: compare it with one of {levels}")
    elif not math.isfinite(bound):
        raise ConditionError(f"'{name}' is compared with a number that is not finite")


def _holds(
    node: ast.expr, answers: Mapping[str, str], questions: Mapping[str, QuestionLike]
) -> bool | None:
    if isinstance(node, ast.BoolOp):
        parts = [_holds(part, answers, questions) for part in node.values]
        decisive = isinstance(node.op, ast.Or)  # one such part decides
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    if isinstance(node, ast.UnaryOp):
        held = _holds(node.operand, answers, questions)
        return None if held is None else not held
    compares = isinstance(node, ast.Compare)
    name = _name(node.left if compares else node)
    answer = answers.get(name, UNKNOWN)
    if answer in (UNKNOWN, UNCERTAIN):
        return None
    if not compares:
        return answer == YES
    values = _compared_with(node)
    if type(node.ops[0]) in _ORDERS:
        question = questions.get(question_of(name))
        if question is None:
            return None
        levels = question.options
        places = dict(zip(levels, level_values(levels), strict=True))
        bound = places.get(values[0]) if isinstance(values[0], str) else values[0]
        if answer not in places or bound is None:  # of the question as it was before
            return None
        return _ORDERS[type(node.ops[0])](places[answer], bound)
    among = answer in map(str, values)
    return among != isinstance(node.ops[0], (ast.NotEq, ast.NotIn))


def not_there(
    name: str, there: Mapping[str, tuple[str, ...]], questions: Mapping[str, QuestionLike]
) -> str:
    """Return what to say of a name that none of the answers `there` has."""
    question = questions.get(question_of(name))
    if question is None:
        return f"there is no question '{name}' ({there_are(there, name)})"
    names = kind_of(question).names(question)
    if name == question.id:
        return f"'{name}' is {kind_of(question).noun}: name one of its labels ({listed(names)})"
    return f"there is no '{name}' ({there_are(names, name)})"


def check_view(
    view: str, question: QuestionLike | None, question_id: str, views: Iterable[str]
) -> None:
    """Raise ConditionError where a name says a view that is not there, or not asked that question.

    `view`: empty where the name says none.
    """
    if not view:
        return
    there = [name for name in views if name]
    if view not in there:
        known = there_are(there, view, "one, without a name")
        raise ConditionError(f"there is no view '{view}' ({known})")
    if question is not None and not question.is_of(view):
        raise ConditionError(
            f"'{question_id}' is not asked of view '{view}' (it is of: {question.view})")


def _is_name(node: ast.expr) -> bool:
    """Tell whether a node is a question's id, of a view or not, or one with a label in brackets."""
    if isinstance(node, ast.Subscript):
        label = node.slice
        return _is_id(node.value) and (isinstance(label, ast.Name) or _is_text(label))
    return _is_id(node)


def _is_id(node: ast.expr) -> bool:
    return isinstance(node.value if isinstance(node, ast.Attribute) else node, ast.Name)


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Subscript):
        return label_name(_name(node.value), _text(node.slice))
    if isinstance(node, ast.Attribute):
        return in_view(node.value.id, node.attr)
    return node.id


def _text(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.value


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
