"""Labels of a user's own recordings: a CSV file of who says what is true when.

    source,start_s,end_s,question,label
    kitchen_1.mp4,0,12.5,person,yes
    kitchen_1.mp4,12.5,20,person,no
    mug.jpg,,,cup,yes

`source` is the recording's name as the command lists it, times are seconds since its first image
(empty: its beginning, its end), `question` is the id of the question (or head), `label` is yes or
no. A sixth column `clip` is optional: labels with the same clip name are kept on one side of every
split; without it a whole source is. Lines that are empty or begin with # are skipped.
"""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..listing import listed
from ..questions import QuestionError, check_id
from ..texts import comparable, is_visible, normal

COLUMNS = ("source", "start_s", "end_s", "question", "label")
OPTIONAL = ("clip",)
_ANSWERS = {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}


class LabelError(ValueError):
    """Labels that cannot be used; the message names file and line, and what would be right."""


@dataclass(frozen=True)
class Label:
    """One answer: `question` is `answer` in `source` from `start_s` to `end_s`.

    clip: what must stay on one side of a split. line: of the file, for messages.
    """

    source: str
    start_s: float
    end_s: float
    question: str
    answer: bool
    clip: str
    line: int = 0


def read_labels(path: Path) -> list[Label]:
    """Read a label file; raises LabelError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise LabelError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise LabelError(f"{path}: not UTF-8 text ({error.reason})") from error
    rows = [(number, row) for number, row in enumerate(csv.reader(text.splitlines()), 1)
            if any(cell.strip() for cell in row) and not row[0].lstrip().startswith("#")]
    if not rows:
        raise LabelError(f"{path}: holds no labels; its first line must be {','.join(COLUMNS)}")
    (line, head), *rest = rows
    columns = [comparable(cell) for cell in head]
    _check_columns(f"{path}:{line}", columns)
    labels = []
    for line, row in rest:
        if len(row) != len(columns):
            raise LabelError(f"{path}:{line}: {len(row)} cells, the header has {len(columns)}")
        cells = dict(zip(columns, map(normal, row), strict=True))
        labels.append(_label(f"{path}:{line}", cells, line))
    if not labels:
        raise LabelError(f"{path}: holds a header and no labels")
    _check_contradictions(path, labels)
    return labels


def check_sources(labels: Sequence[Label], names: Sequence[str], *,
                  skip_unlabelled: bool = False) -> None:
    """Raise LabelError unless labels and recordings name each other.

    skip_unlabelled: recordings without any label are allowed (and left out).
    """
    absent = sorted({label.source for label in labels} - set(names))
    if absent:
        line = min(label.line for label in labels if label.source == absent[0])
        near = difflib.get_close_matches(absent[0], names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {listed(sorted(names), 5)}"
        raise LabelError(f"line {line}: no recording is called {absent[0]!r} ({len(absent)} such "
                         f"names); {hint}")
    silent = sorted(set(names) - {label.source for label in labels})
    if silent and not skip_unlabelled:
        raise LabelError(f"no label names {listed(silent, 5)}: label them, take them out, or say "
                         "--skip-unlabelled")


def answer_at(labels: Iterable[Label], start_s: float, end_s: float) -> bool | None:
    """Return the answer of the label that covers start_s to end_s, None where none does."""
    for label in labels:
        if label.start_s <= start_s and end_s <= label.end_s:
            return label.answer
    return None


def _check_columns(where: str, columns: Sequence[str]) -> None:
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise LabelError(f"{where}: the header lacks {', '.join(missing)}; it must be "
                         f"{','.join(COLUMNS)}")
    for name in columns:
        if name not in COLUMNS + OPTIONAL:
            raise LabelError(f"{where}: unknown column {name!r} (known: "
                             f"{', '.join(COLUMNS + OPTIONAL)})")
    if len(set(columns)) != len(columns):
        raise LabelError(f"{where}: a column appears twice")


def _label(where: str, cells: dict[str, str], line: int) -> Label:
    if not is_visible(cells["source"]):
        raise LabelError(f"{where}: source is empty")
    try:
        question = check_id(cells["question"])
    except QuestionError as error:
        raise LabelError(f"{where}: {error}") from error
    start_s = _seconds(where, "start_s", cells["start_s"], 0.0)
    end_s = _seconds(where, "end_s", cells["end_s"], math.inf)
    if not start_s < end_s:
        raise LabelError(f"{where}: end_s must come after start_s: {start_s:g} to {end_s:g}")
    answer = _ANSWERS.get(comparable(cells["label"]))
    if answer is None:
        raise LabelError(f"{where}: label must be yes or no, not {cells['label']!r}")
    source, clip = cells["source"], cells.get("clip", "")
    if not is_visible(clip):
        clip = source
    return Label(source, start_s, end_s, question, answer, clip, line)


def _seconds(where: str, name: str, text: str, default: float) -> float:
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise LabelError(f"{where}: {name} must be seconds from 0 on, not {text!r}")
    return value


def _check_contradictions(path: Path, labels: Sequence[Label]) -> None:
    """Two labels of a question must not overlap with opposite answers."""
    last: dict[tuple[str, str], Label] = {}
    for label in sorted(labels, key=lambda label: label.start_s):
        key = label.source, label.question
        before = last.get(key)
        if before and label.start_s < before.end_s and label.answer != before.answer:
            raise LabelError(f"{path}:{label.line}: contradicts line {before.line}: "
                             f"{label.question!r} of {label.source!r} is both yes and no at "
                             f"{label.start_s:g} s")
        if before is None or label.end_s > before.end_s:
            last[key] = label
