"""A YAML list of flat records, each key with its line, so that errors can name it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml


class RecordError(ValueError):
    """YAML that is not a list of records; the message begins with source and line."""


@dataclass(frozen=True)
class Record:
    """One mapping: its values, and the line (from 1) of each key and of its beginning."""

    values: dict[str, Any]
    lines: dict[str, int]
    line: int


def read_records(text: str, source: str, top: str, known: Sequence[str]) -> list[Record]:
    """
    Read a list of records, or a mapping with the one key `top` that holds one.

    Values are scalars or lists of scalars, read as by safe_load. Raises RecordError for what is
    not YAML, keys that are not `known` or appear twice, and other shapes.
    """
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{mark.line + 1}: " if mark else " "
        problem = getattr(error, "problem", None) or str(error)
        raise RecordError(f"{source}:{line}not valid YAML: {problem}") from error
    return [_record(node, source, known) for node in _items(root, source, top)]


def unknown_key(name: Any, known: Sequence[str]) -> str:
    """Return what to say of a key that is not known, with the nearest one that is."""
    near = difflib.get_close_matches(str(name), known, n=1)
    hint = f", did you mean '{near[0]}'?" if near else f" (known: {', '.join(known)})"
    return f"unknown key '{name}'{hint}"


def _items(root: yaml.Node | None, source: str, top: str) -> list[yaml.Node]:
    if root is None:
        return []
    line = root.start_mark.line + 1
    if isinstance(root, yaml.MappingNode):
        content = None
        for key, value in root.value:
            if key.value != top:
                at = key.start_mark.line + 1
                raise RecordError(
                    f"{source}:{at}: unknown key '{key.value}' (the file holds a list, or the key "
                    f"'{top}' with one)"
                )
            content = value
        root = content
    if isinstance(root, yaml.ScalarNode) and root.tag == "tag:yaml.org,2002:null":
        return []
    if not isinstance(root, yaml.SequenceNode):
        raise RecordError(f"{source}:{line}: must hold a list of {top}")
    return root.value


def _record(node: yaml.Node, source: str, known: Sequence[str]) -> Record:
    first = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        raise RecordError(f"{source}:{first}: expected a mapping ({', '.join(known[:2])}, ...)")
    values: dict[str, Any] = {}
    lines: dict[str, int] = {}
    for key, value in node.value:
        line, name = key.start_mark.line + 1, key.value
        if not isinstance(name, str) or name not in known:
            raise RecordError(f"{source}:{line}: {unknown_key(name, known)}")
        if name in values:
            raise RecordError(f"{source}:{line}: key '{name}' appears twice")
        if isinstance(value, yaml.SequenceNode):
            values[name] = [_scalar(item, source) for item in value.value]
        else:
            values[name] = _scalar(value, source)
        lines[name] = line
    return Record(values, lines, first)


def _scalar(node: yaml.Node, source: str) -> Any:
    line = node.start_mark.line + 1
    if not isinstance(node, yaml.ScalarNode):
        raise RecordError(f"{source}:{line}: expected a plain value here")
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        problem = getattr(error, "problem", None) or str(error)
        raise RecordError(f"{source}:{line}: {problem}") from error
    finally:
        loader.dispose()
