"""YAML sections of records, each key with its line, so that errors can name it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml


class RecordError(ValueError):
    """YAML that does not hold the records wanted; the message begins with source and line."""


@dataclass(frozen=True)
class Shape:
    """
    What a record may hold: values are scalars or lists of scalars, read as by safe_load.

    - `known`: every key. `texts`: keys whose scalars are taken as they are written, so that a bare
      `yes` or `on` is that word. `tables`: keys that hold a mapping of names to such texts, or
      lists of them. `nested`: keys that hold a list of records of their own.
    """

    known: tuple[str, ...]
    texts: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    nested: Mapping[str, Shape] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """One mapping: its values, and the line (from 1) of each key and of its beginning."""

    values: dict[str, Any]
    lines: dict[str, int]
    line: int


def read_sections(
    text: str, source: str, shapes: Mapping[str, Shape]
) -> dict[str, list[Record]]:
    """
    Read a mapping of sections to lists of records; a bare list is the first section.

    Every section of `shapes` is in the result. Raises RecordError for what is not YAML, keys that
    are not known or appear twice, and other shapes.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{mark.line + 1}: " if mark else " "
        problem = getattr(error, "problem", None) or str(error)
        raise RecordError(f"{source}:{line}not valid YAML: {problem}") from error
    nodes = _sections(root, source, tuple(shapes))
    return {
        name: [_record(node, source, shape) for node in _items(nodes.get(name), source, name)]
        for name, shape in shapes.items()
    }


def unknown_key(name: Any, known: Sequence[str]) -> str:
    """Return what to say of a key that is not known, with the nearest one that is."""
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f", did you mean '{near[0]}'?" if near else f" (known: {', '.join(known)})"
    return f"unknown key '{name}'{hint}"


def _sections(root: yaml.Node | None, source: str, names: Sequence[str]) -> dict[str, yaml.Node]:
    if root is None or _is_null(root):
        return {}
    if not isinstance(root, yaml.MappingNode):
        return {names[0]: root}
    found: dict[str, yaml.Node] = {}
    for key, value in root.value:
        at = f"{source}:{key.start_mark.line + 1}"
        if key.value not in names:
            keys = " and ".join(f"'{name}'" for name in names)
            plural = "s" if len(names) > 1 else ""
            raise RecordError(
                f"{at}: unknown key '{key.value}' (the file holds a list of {names[0]}, or the "
                f"key{plural} {keys} with one{' each' if plural else ''})"
            )
        if key.value in found:
            raise RecordError(f"{at}: key '{key.value}' appears twice")
        found[key.value] = value
    return found


def _items(node: yaml.Node | None, source: str, what: str) -> list[yaml.Node]:
    if node is None or _is_null(node):
        return []
    if not isinstance(node, yaml.SequenceNode):
        raise RecordError(f"{source}:{node.start_mark.line + 1}: must hold a list of {what}")
    return node.value


def _record(node: yaml.Node, source: str, shape: Shape) -> Record:
    first = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        some = ", ".join(shape.known[:2])
        raise RecordError(f"{source}:{first}: expected a mapping ({some}, ...)")
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, value in node.value:
        line, name = key.start_mark.line + 1, key.value
        if not isinstance(name, str) or name not in shape.known:
            raise RecordError(f"{source}:{line}: {unknown_key(name, shape.known)}")
        if name in values:
            raise RecordError(f"{source}:{line}: key '{name}' appears twice")
        if name in shape.nested:
            values[name] = [
                _record(item, source, shape.nested[name]) for item in _items(value, source, name)
            ]
        elif name in shape.tables:
            values[name] = _table(value, source)
        else:
            values[name] = _value(value, source, name in shape.texts)
        lines[name] = line
    return Record(values, lines, first)


def _table(node: yaml.Node, source: str) -> dict[str, Any]:
    if not isinstance(node, yaml.MappingNode):
        raise RecordError(f"{source}:{node.start_mark.line + 1}: expected a mapping here")
    values: dict[str, Any] = {}
    for key, value in node.value:
        name = _scalar(key, source, True)
        if name in values:
            raise RecordError(f"{source}:{key.start_mark.line + 1}: key '{name}' appears twice")
        values[name] = _value(value, source, True)
    return values


def _value(node: yaml.Node, source: str, as_text: bool) -> Any:
    if isinstance(node, yaml.SequenceNode):
        return [_scalar(item, source, as_text) for item in node.value]
    return _scalar(node, source, as_text)


def _scalar(node: yaml.Node, source: str, as_text: bool = False) -> Any:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.ScalarNode):
        raise RecordError(f"{source}:{line}: expected a plain value here")
    if as_text:
        return node.value
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        problem = getattr(error, "problem", None) or str(error)
        raise RecordError(f"{source}:{line}: {problem}") from error
    finally:
        loader.dispose()


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
