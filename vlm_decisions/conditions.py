"""Conditions over the answers of other questions: `person and not (activity == "on phone")`.

A name is a question's id (or one of the camera's health), or a label of an any_of in brackets, as
`on_desk[cup]` or `on_desk["toy car"]`: it holds where the answer is yes. With several views it may
say whose answer counts: `door.person`, `door.on_desk[cup]`. `==` and `!=` compare an
answer with one of its question's, `in` with several: `people in (one, two)`. An answer that is
`unknown` or `uncertain` leaves open whatever depends on it, and what is open does not hold. Nothing
is ever executed: the text is parsed, and all but the above refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .decision import NO, UNCERTAIN, UNKNOWN, YES, label_name
from .kinds import (
    QuestionLike,
    in_view,
    kind_of,
    names_of,
    question_of,
    view_of,
    without_view,
)
from .texts import what_cannot_stand

MAX_CONDITION = 500


class ConditionError(ValueError):
    """A condition that cannot be read, or that asks for what there is not."""


@dataclass(frozen=True)
class Condition:
    """A condition that was read.

    `bare`: names that must be answered yes; `compared`: (name, answer) pairs. A name is a
    question's id, or `id[label]`; either may stand behind the name of a view and a dot.
    """

    text: str
    bare: tuple[str, ...]
    compared: tuple[tuple[str, str], ...]
    _tree: ast.expr

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the answers that it depends on."""
        return tuple(dict.fromkeys([*self.bare, *(name for name, _ in self.compared)]))

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
                raise ConditionError(_not_there(without_view(name), there, questions))
            if view := view_of(name):
                _check_view(view, questions.get(question_of(name)), question_of(name), views)
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
                    f"'{name}' never answers '{answer}' (its answers: {', '.join(possible)})"
                )

    def holds(self, answers: Mapping[str, str]) -> bool | None:
        """Return whether it holds with these answers by name; None where they leave that open."""
        return _holds(self._tree, answers)


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises ConditionError saying what is not understood."""
    if not isinstance(text, str) or not text.strip():
        raise ConditionError(f"must be a condition such as 'person and not away', not {text!r}")
    if len(text) > MAX_CONDITION:
        raise ConditionError(f"has {len(text)} characters, the limit is {MAX_CONDITION}")
    if odd := what_cannot_stand(text):
        raise ConditionError(f"holds {odd}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        bare, compared = _names(tree)
    except SyntaxError as error:
        raise ConditionError(f"cannot be read at column {error.offset}: {text.strip()}") from error
    except (RecursionError, MemoryError, ValueError) as error:
        if isinstance(error, ConditionError):
            raise
        raise ConditionError("is nested too deeply or holds odd characters") from error
    return Condition(text.strip(), tuple(bare), tuple(compared), tree)


def _names(node: ast.expr) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the bare names and the comparisons of a tree; refuse whatever else it holds."""
    if _is_name(node):
        return [_name(node)], []
    if isinstance(node, ast.BoolOp):
        parts = [_names(part) for part in node.values]
        return sum((bare for bare, _ in parts), []), sum((pairs for _, pairs in parts), [])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _names(node.operand)
    if isinstance(node, ast.Compare):
        if len(node.ops) == 1 and _is_name(node.left):
            texts = _compared_with(node)
            if texts and all(isinstance(text, ast.Name) or _is_text(text) for text in texts):
                return [], [(_name(node.left), _text(text)) for text in texts]
        raise ConditionError("compares a question with one of its answers by == or !=, or by `in` "
                             "with several in brackets")
    raise ConditionError(
        "may hold question ids, and, or, not, ==, !=, in and brackets, not "
        f"{ast.unparse(node)!r}"
    )


def _compared_with(node: ast.Compare) -> list[ast.expr]:
    """Return what a comparison compares with; nothing where it is none that there is."""
    right = node.comparators[0]
    if isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return right.elts if isinstance(right, (ast.Tuple, ast.List, ast.Set)) else []
    return [right] if isinstance(node.ops[0], (ast.Eq, ast.NotEq)) else []


def _holds(node: ast.expr, answers: Mapping[str, str]) -> bool | None:
    if isinstance(node, ast.BoolOp):
        parts = [_holds(part, answers) for part in node.values]
        decisive = isinstance(node.op, ast.Or)  # one such part decides
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    if isinstance(node, ast.UnaryOp):
        held = _holds(node.operand, answers)
        return None if held is None else not held
    compares = isinstance(node, ast.Compare)
    answer = answers.get(_name(node.left if compares else node), UNKNOWN)
    if answer in (UNKNOWN, UNCERTAIN):
        return None
    if not compares:
        return answer == YES
    among = answer in map(_text, _compared_with(node))
    return among != isinstance(node.ops[0], (ast.NotEq, ast.NotIn))


def _check_view(
    view: str, question: QuestionLike | None, question_id: str, views: Iterable[str]
) -> None:
    there = [name for name in views if name]
    if view not in there:
        known = ", ".join(there) or "one, without a name"
        raise ConditionError(f"there is no view '{view}' (there are: {known})")
    if question is not None and not question.is_of(view):
        raise ConditionError(
            f"'{question_id}' is not asked of view '{view}' (it is of: {question.view})")


def _not_there(
    name: str, there: Mapping[str, tuple[str, ...]], questions: Mapping[str, QuestionLike]
) -> str:
    question = questions.get(question_of(name))
    if question is None:
        return f"there is no question '{name}' (there are: {', '.join(there)})"
    names = ", ".join(kind_of(question).names(question))
    if name == question.id:
        return f"'{name}' is {kind_of(question).noun}: name one of its labels ({names})"
    return f"there is no '{name}' (there are: {names})"


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
