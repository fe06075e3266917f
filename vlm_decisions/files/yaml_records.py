"""Read sections of records from YAML, with the line of each key, so that errors can name it.

YAML cuts an unquoted text at " #", ends it at a comma inside braces, and reads 12:30 as 750. Texts
that it would change are refused here, with the line and the advice to quote them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from .listing import nearest

#: The advice at the end of each error about a text that YAML changes.
QUOTE = "quote the text"

#: A number to its writer that is a text to YAML 1.1, which wants a point and a sign: 1.0e+5.
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+")

_REST_OF_LINE = re.compile(r"[^\r\n\x85\u2028\u2029]*")
#: A line of its own that begins as the second half of "shelf #3" does: its indentation, the rest.
_LINE_BELOW = re.compile(r"[ \t]*\r?\n([ \t]*)(#[^\s#][^\r\n]*)")

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
#: What YAML takes for the end of a line beside the usual ones.
_BREAKS = re.compile("[\x85\u2028\u2029]")


class YamlRecordError(ValueError):
    """YAML that does not hold the wanted records. The message begins with source and line."""


@dataclass(frozen=True)
class Shape:
    """What a record may hold. Values are scalars or lists of scalars, read as by safe_load.

    Attributes:
        known: every key.
        texts: keys of free text. It must also be text for YAML, without a comment after it on its
            line.
        strings: keys that must be text for YAML, such as ids.
        literals: keys whose scalars are taken as they are written: a bare `yes` or `on` is that
            word.
        tables: keys that hold a mapping of names to literals, or to lists of them.
        nested: keys that hold a list of records of their own.
        single: as a section, it is one record instead of a list of them.
        name: key that a section may give as a mapping's key, so of names to records; empty: none.
    """

    known: tuple[str, ...]
    texts: tuple[str, ...] = ()
    strings: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    nested: Mapping[str, Shape] = field(default_factory=dict)
    single: bool = False
    name: str = ""


@dataclass(frozen=True)
class Record:
    """One mapping.

    Attributes:
        values: by key.
        lines: the line of each key, from 1.
        line: the line at which the mapping begins.
    """

    values: dict[str, Any]
    lines: dict[str, int]
    line: int


def read_sections(
    text: str, source: str, shapes: Mapping[str, Shape]
) -> dict[str, list[Record]]:
    """Read a mapping of sections to lists of records; a bare list is the first section.

    Args:
        text: the YAML text.
        source: its name in errors.
        shapes: of the records, by section.

    Returns:
        Records by section; every section of `shapes` is there, that of a single record empty where
        there is none.

    Raises:
        YamlRecordError: text that is not YAML, keys that are unknown or appear twice, other types.
    """
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.reader.ReaderError as error:
        raise YamlRecordError(f"{source}:{_unreadable(text, error)}") from error
    except (yaml.YAMLError, RecursionError) as error:
        found, ends = _BREAKS.search(text), ""
        if found:
            line = text.count("\n", 0, found.start()) + 1
            ends = f"; line {line} holds U+{ord(found[0]):04X}, which ends a line for YAML"
        raise YamlRecordError(f"{source}:{syntax_error(error)}{ends}") from error
    reader = _RecordReader(text, source)
    nodes = reader.sections(root, shapes)
    return {
        name: reader.section(nodes.get(name), name, shape) for name, shape in shapes.items()
    }


def unknown_key(name: Any, known: Sequence[str]) -> str:
    """Return the message about an unknown key, with the nearest known one."""
    near = nearest(name, known)
    hint = f", did you mean '{near}'?" if near else f" (known: {', '.join(known)})"
    return f"unknown key '{name}'{hint}"


class _Loader(yaml.SafeLoader):
    """Takes the two escaped halves that JSON writes for one character as that character."""

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        node = super().compose_scalar_node(anchor)
        node.value = _PAIR.sub(
            lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), node.value)
        return node


def _unreadable(text: str, error: yaml.reader.ReaderError) -> str:
    """Return where a character stands that YAML does not allow, and how to write it."""
    character = ord(text[error.position])
    line = text.count("\n", 0, error.position) + 1
    return (f"{line}: not valid YAML: the character U+{character:04X} may not stand in it: take "
            "it out")


def syntax_error(error: Exception) -> str:
    """Return where and why a text is not YAML, behind the file's name and a colon."""
    mark, begun = (getattr(error, name, None) for name in ("problem_mark", "context_mark"))
    line = f"{mark.line + 1}: " if mark else " "
    problem = getattr(error, "problem", None) or str(error)
    if mark and begun and begun.line != mark.line:
        problem += f" {getattr(error, 'context', None) or ''} begun on line {begun.line + 1}"
    return f"{line}not valid YAML: {problem} (a text that holds : # , ? or brackets: {QUOTE})"


class _RecordReader:
    """Turns the nodes of one YAML text into records."""

    def __init__(self, text: str, source: str) -> None:
        self._text, self._source = text, source
        self._inside = ""  # whose record is read, where it has a name

    def sections(
        self, root: yaml.Node | None, shapes: Mapping[str, Shape]
    ) -> dict[str, yaml.Node]:
        names = tuple(shapes)
        if root is None or _is_null(root):
            return {}
        if not isinstance(root, yaml.MappingNode):
            return {names[0]: root}
        found: dict[str, yaml.Node] = {}
        for key, value in root.value:
            if key.value not in names:
                lists = [name for name in names if not shapes[name].single]
                others = "".join(f", and '{name}' with keys of its own" for name in names
                                 if shapes[name].single)
                keys = " and ".join(f"'{name}'" for name in lists)
                plural = "s" if len(lists) > 1 else ""
                raise self._error(
                    key,
                    f"unknown key '{key.value}' (the file holds a list of {names[0]}, or the "
                    f"key{plural} {keys} with one{' each' if plural else ''}{others})",
                )
            if key.value in found:
                raise self._error(key, f"key '{key.value}' appears twice")
            found[key.value] = value
        return found

    def section(self, node: yaml.Node | None, what: str, shape: Shape) -> list[Record]:
        if shape.single:
            return [] if node is None or _is_null(node) else [self.record(node, shape)]
        if not shape.name or not isinstance(node, yaml.MappingNode):
            return [self.record(item, shape) for item in self.items(node, what)]
        records = []
        for key, value in node.value:
            inner = yaml.MappingNode(value.tag, [], value.start_mark) if _is_null(value) else value
            self._inside = f"{what} '{key.value}': "
            record = self.record(inner, shape)
            if shape.name in record.values:
                raise self._error(value, f"it has a {shape.name} already: its key")
            self._inside = ""
            record.values[shape.name] = self._value(key, shape.name, shape, 0)
            record.lines[shape.name] = _line(key.start_mark)
            records.append(Record(record.values, record.lines, _line(key.start_mark)))
        return records

    def items(self, node: yaml.Node | None, what: str) -> list[yaml.Node]:
        if node is None or _is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(node, f"must hold a list of {what}")
        return node.value

    def record(self, node: yaml.Node, shape: Shape) -> Record:
        if not isinstance(node, yaml.MappingNode):
            some = ", ".join(shape.known[:2])
            raise self._error(node, f"expected a mapping ({some}, ...)")
        values: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = key.value
            if not isinstance(name, str) or name not in shape.known:
                cut = node.flow_style and isinstance(value, yaml.ScalarNode) and not value.value
                hint = f"; a comma ends an unquoted text here: {QUOTE}" if cut else ""
                raise self._error(key, unknown_key(name, shape.known) + hint)
            if name in values:
                raise self._error(key, f"key '{name}' appears twice")
            if name in shape.nested:
                inner = shape.nested[name]
                values[name] = [self.record(item, inner) for item in self.items(value, name)]
            elif name in shape.tables:
                values[name] = self._table(value)
            else:
                values[name] = self._value(value, name, shape, key.start_mark.column)
            lines[name] = _line(key.start_mark)
        return Record(values, lines, _line(node.start_mark))

    def _table(self, node: yaml.Node) -> dict[str, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, "expected a mapping here")
        values: dict[str, Any] = {}
        for key, value in node.value:
            name = self._literal(key)
            if name in values:
                raise self._error(key, f"key '{name}' appears twice")
            if isinstance(value, yaml.SequenceNode):
                values[name] = [self._literal(item) for item in value.value]
            else:
                values[name] = self._literal(value)
        return values

    def _value(self, node: yaml.Node, name: str, shape: Shape, indent: int) -> Any:
        if isinstance(node, yaml.SequenceNode):
            if not node.flow_style:
                indent = node.start_mark.column
            return [self._scalar(item, name, shape, indent) for item in node.value]
        return self._scalar(node, name, shape, indent)

    def _scalar(self, node: yaml.Node, name: str, shape: Shape, indent: int) -> Any:
        if name in shape.literals:
            return self._literal(node)
        free = name in shape.texts
        if free or name in shape.strings:
            self._refuse_cut(node, free, indent)
        value = self._constructed(node)
        if free and not isinstance(value, str) or (
            name in shape.strings and not isinstance(value, (str, type(None)))
        ):
            raise self._error(
                node, f"{name} must be text, not {value!r}, as YAML reads '{node.value}': {QUOTE}"
            )
        number = isinstance(value, str) and node.style is None and _NUMBER.fullmatch(value)
        if number and not free and name not in shape.strings:
            raise self._error(node, f"{name}: YAML reads {value} as a text: write all digits, or "
                                    f"a point and a sign ({float(value):.3e})")
        return value

    def _literal(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, "expected a plain value here")
        self._refuse_cut(node, False)
        return node.value

    def _refuse_cut(self, node: yaml.Node, free: bool, indent: int = 0) -> None:
        """Refuse an unquoted text of which YAML has taken a part for a comment, a tag or an anchor.

        A comment after a single word is usual. Only one without a space after the # ("shelf #3") is
        taken for a part of the word. The same on the line below, where it stands further in than
        `indent`, the column of the key or of the list: there a text would go on.
        """
        if not isinstance(node, yaml.ScalarNode) or node.style is not None:
            return
        rest = _REST_OF_LINE.match(self._text, node.end_mark.index)[0].strip()
        below = _LINE_BELOW.match(self._text, node.end_mark.index) if free else None
        if below and len(below[1]) > indent:
            rest = below[2].strip()
        if rest.startswith("#") and (free or rest[1:2].strip(" \t#")):
            raise self._error(
                node,
                f"YAML reads only '{node.value}' and takes '{rest}' for a comment: {QUOTE}, or "
                "put the comment on a line of its own",
                node.end_mark,
            )
        for mark, what in (("!", "a tag"), ("&", "an anchor")):
            if free and self._text.startswith(mark, node.start_mark.index):
                raise self._error(
                    node, f"YAML takes the {mark} for the beginning of {what}: {QUOTE}"
                )

    def _error(
        self, node: yaml.Node, message: str, mark: yaml.Mark | None = None
    ) -> YamlRecordError:
        return YamlRecordError(
            f"{self._source}:{_line(mark or node.start_mark)}: {self._inside}{message}")

    def _constructed(self, node: yaml.Node) -> Any:
        if isinstance(node, yaml.SequenceNode):
            raise self._error(node, "expected a plain value here, not a list in a list: write the "
                                    "values one after the other")
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, f"expected a plain value here (if it is a text: {QUOTE})")
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            problem = getattr(error, "problem", None) or str(error)
            raise self._error(node, f"{problem} (if it is a text: {QUOTE})") from error
        finally:
            loader.dispose()


def _line(mark: yaml.Mark) -> int:
    return mark.line + 1


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
