"""Set numbers in a question file without changing any other character."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from ..question_book import QuestionBook
from ..questions import QuestionError

#: What can be set: a number, or a list of them.
Value = float | Sequence[float]


def rewrite(text: str, changes: Mapping[str, Mapping[str, Value]],
            source: str = "questions") -> str:
    """Return the YAML text of a question file with fields of its questions set.

    Comments, order, quoting and layout stay. A field that is there is replaced, another one is
    added below the question's last field.

    Args:
        text: content of the file.
        changes: by question id, field to number or list of numbers.
        source: name of the file in errors.

    Raises:
        QuestionError: the text is not a question file, lacks a question, or a value is not valid.
    """
    book = QuestionBook.loads(text, source)
    for name, fields in changes.items():
        book.replace(name, **fields)  # raises for values that are not valid, before any change
    edits: list[tuple[int, int, str]] = []
    for node in _questions(yaml.compose(text, Loader=yaml.SafeLoader)):
        keys = {key.value: (key, value) for key, value in node.value}
        fields = changes.get(keys["id"][1].value, {})
        missing = {}
        for field, number in fields.items():
            if field in keys:
                value = keys[field][1]
                edits.append((value.start_mark.index, _end(value), _text(number)))
            else:
                missing[field] = number
        if missing:
            edits.append(_added(text, node, missing))
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    if [q.to_dict() for q in QuestionBook.loads(text, source)] != [q.to_dict() for q in book]:
        raise QuestionError(f"{source}: its layout is too unusual to be changed in place (anchors, "
                            "tags or merged keys): write the questions in plain YAML")
    return text


def _questions(root: Any) -> list[Any]:
    if isinstance(root, yaml.MappingNode):
        root = next(value for key, value in root.value if key.value == "questions")
    return [node for node in root.value if isinstance(node, yaml.MappingNode)]


def _added(text: str, node: Any, fields: Mapping[str, Value]) -> tuple[int, int, str]:
    """Return the edit that adds fields after the last key of a mapping."""
    last = _end(node.value[-1][1])
    if node.flow_style:
        new = "".join(f", {name}: {_text(number)}" for name, number in fields.items())
        return last, last, new
    # A block scalar's node ends at the beginning of a later line: step back to its own text.
    end = len(text[:last].rstrip())
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    indent = " " * node.value[0][0].start_mark.column
    new = "".join(f"\n{indent}{name}: {_text(number)}" for name, number in fields.items())
    return line_end, line_end, new


def _text(value: Value) -> str:
    return f"[{', '.join(map(_text, value))}]" if isinstance(value, Sequence) else f"{value:g}"


def _end(node: Any) -> int:
    """Return where a node's own text ends. The end mark of a block is after comments below it."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return node.end_mark.index
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)
