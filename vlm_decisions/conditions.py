"""Conditions over the answers of other questions: `person and not (activity == "on phone")`.

A name is a question's id (or one of the camera's health): it holds where the answer is yes. `==`
and `!=` compare an answer with one of its question's. An answer that is `unknown` or `uncertain`
leaves open whatever depends on it, and what is open does not hold. Nothing is ever executed: the
text is parsed, and all but the above refused.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from .decision import HEALTH_IDS, NO, UNCERTAIN, UNKNOWN, YES

MAX_CONDITION = 500


class ConditionError(ValueError):
    """A condition that cannot be read, or that asks for what there is not."""


class QuestionLike(Protocol):
    """What a condition needs to know of a question."""

    kind: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class Condition:
    """A condition that was read.

    `bare`: ids that must be answered yes; `compared`: (id, answer) pairs.
    """

    text: str
    bare: tuple[str, ...]
    compared: tuple[tuple[str, str], ...]
    _tree: ast.expr

    @property
    def questions(self) -> tuple[str, ...]:
        """Ids of the questions that it depends on."""
        return tuple(dict.fromkeys([*self.bare, *(name for name, _ in self.compared)]))

    def check(self, questions: Mapping[str, QuestionLike]) -> None:
        """Raise ConditionError unless every question exists and can give the answer named."""
        for name in self.questions:
            if name not in questions and name not in HEALTH_IDS:
                there = ", ".join([*questions, *HEALTH_IDS])
                raise ConditionError(f"there is no question '{name}' (there are: {there})")
        for name in self.bare:
            possible = _answers(name, questions)
            if possible != (YES, NO):
                raise ConditionError(
                    f"'{name}' is a choice: compare it, as in {name} == \"{possible[0]}\""
                )
        for name, answer in self.compared:
            possible = _answers(name, questions)
            if answer not in possible:
                raise ConditionError(
                    f"'{name}' never answers '{answer}' (its answers: {', '.join(possible)})"
                )

    def holds(self, answers: Mapping[str, str]) -> bool | None:
        """Return whether it holds with these answers by id; None where they leave that open."""
        return _holds(self._tree, answers)


def parse_condition(text: str) -> Condition:
    """Read a condition. Raises ConditionError saying what is not understood."""
    if not isinstance(text, str) or not text.strip():
        raise ConditionError(f"must be a condition such as 'person and not away', not {text!r}")
    if len(text) > MAX_CONDITION:
        raise ConditionError(f"has {len(text)} characters, the limit is {MAX_CONDITION}")
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
    """Return the bare ids and the comparisons of a tree; refuse whatever else it holds."""
    if isinstance(node, ast.Name):
        return [node.id], []
    if isinstance(node, ast.BoolOp):
        parts = [_names(part) for part in node.values]
        return sum((bare for bare, _ in parts), []), sum((pairs for _, pairs in parts), [])
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return _names(node.operand)
    if isinstance(node, ast.Compare):
        right = node.comparators[0]
        if (
            len(node.ops) == 1
            and isinstance(node.ops[0], (ast.Eq, ast.NotEq))
            and isinstance(node.left, ast.Name)
            and (isinstance(right, ast.Name) or _is_text(right))
        ):
            return [], [(node.left.id, _text(right))]
        raise ConditionError("compares a question with one of its answers by == or !=")
    raise ConditionError(
        f"may hold question ids, and, or, not, ==, != and brackets, not {ast.unparse(node)!r}"
    )


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
    wanted = YES if isinstance(node, ast.Name) else _text(node.comparators[0])
    answer = answers.get(node.id if isinstance(node, ast.Name) else node.left.id, UNKNOWN)
    if answer in (UNKNOWN, UNCERTAIN):
        return None
    unequal = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.NotEq)
    return (answer == wanted) != unequal


def _answers(question_id: str, questions: Mapping[str, QuestionLike]) -> tuple[str, ...]:
    question = questions.get(question_id)
    return question.options if question and question.kind == "choice" else (YES, NO)


def _text(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.value


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
