"""Labels of a user's own recordings: a CSV file that says what is true when.

    source,start_s,end_s,question,label
    kitchen_1.mp4,0,12.5,person,yes
    kitchen_1.mp4,12.5,20,person,no
    mug.jpg,,,cup,yes

`source` is the recording's name as the command lists it. Times are seconds since its first image;
an empty one is its beginning or end. `question` is the id of the question (or head), `label` is yes
or no; of a choice or score its answer, of an any_of the labels that are so, as "cup, phone" in
quotes, or none. A sixth column `clip` is optional: labels with the same clip name are kept on one
side of every split; without it a whole source is. Empty lines and lines that begin with # are
ignored.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..decision import NO, YES
from ..files.listing import listed, there_are
from ..frames import NS
from ..kinds import KindError, kind_of
from ..questions import Question, QuestionError, check_id
from ..texts import comparable, is_visible, normal
from .truth import OPEN_NS, RELATIVE, Span, Truth, TruthError, check_times

COLUMNS = ("source", "start_s", "end_s", "question", "label")
OPTIONAL = ("clip",)
_ANSWERS = {"yes": YES, "no": NO, "true": YES, "false": NO, "1": YES, "0": NO}

#: Truth by the name of the recording.
Labels = dict[str, Truth]


class LabelError(TruthError):
    """Labels that cannot be used. The message names file and line, and what would be right."""


def read_labels(path: Path, questions: Iterable[Question] = ()) -> Labels:
    """Read a label file: the truth by recording, with clips as scenes. Raises LabelError.

    What is labelled is answered yes or no, unless it is one of `questions` and of another kind.
    """
    known = {question.id: question for question in questions}
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
    told: dict[str, dict[str, list[Span]]] = {}
    for line, row in rest:
        if len(row) != len(columns):
            raise LabelError(f"{path}:{line}: {len(row)} cells, the header has {len(columns)}")
        cells = dict(zip(columns, map(normal, row), strict=True))
        question, span = _label(f"{path}:{line}", cells, line, known)
        told.setdefault(cells["source"], {}).setdefault(question, []).append(span)
    if not told:
        raise LabelError(f"{path}: holds a header and no labels")
    return {source: Truth({question: _joined(f"{path}", source, question, spans)
                           for question, spans in own.items()}, start_ns=0)
            for source, own in told.items()}


def questions_of(labels: Labels) -> list[str]:
    """Return the ids of the questions that are labelled, in the order of the file."""
    first: dict[str, int] = {}
    for truth in labels.values():
        for question, spans in truth.spans.items():
            line = min(span.line for span in spans)
            first[question] = min(first.get(question, line), line)
    return sorted(first, key=first.__getitem__)


def check_sources(labels: Labels, lengths: Mapping[str, float], *,
                  skip_unlabelled: bool = False) -> list[str]:
    """Check that labels and recordings belong together.

    Args:
        labels: by recording.
        lengths: of the recordings by name, in seconds; 0 of a picture.
        skip_unlabelled: allow recordings without labels.

    Returns:
        What to say of recordings whose labels are partly about times at which they have no images.

    Raises:
        LabelError: a label of an unknown recording, a recording without labels, or labels mostly of
            times at which it has no images.
    """
    names = tuple(lengths)
    absent = sorted(set(labels) - set(names))
    if absent:
        line = min(span.line for own in labels[absent[0]].spans.values() for span in own)
        hint = there_are(sorted(names), absent[0])
        raise LabelError(f"line {line}: no recording is called {absent[0]!r} ({len(absent)} such "
                         f"names); {hint}")
    silent = sorted(set(names) - set(labels))
    if silent and not skip_unlabelled:
        raise LabelError(f"no label names {listed(silent, 5)}: label them, remove them, or use "
                         "--skip-unlabelled")
    notes = []
    for name, truth in labels.items():
        try:
            note = check_times(truth, 0, round(lengths[name] * NS), f"labels of {name!r}", RELATIVE)
        except TruthError as error:
            line = min(span.line for own in truth.spans.values() for span in own)
            raise LabelError(f"line {line}: {error}") from error
        notes += [note] * bool(note)
    return notes


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


def _label(where: str, cells: dict[str, str], line: int,
           known: Mapping[str, Question]) -> tuple[str, Span]:
    if not is_visible(cells["source"]):
        raise LabelError(f"{where}: source is empty")
    try:
        question = check_id(cells["question"])
    except QuestionError as error:
        raise LabelError(f"{where}: {error}") from error
    start_ns = _nanoseconds(where, "start_s", cells["start_s"], 0)
    end_ns = _nanoseconds(where, "end_s", cells["end_s"], OPEN_NS)
    answer = _answer(where, cells["label"], known.get(question))
    clip = cells.get("clip", "")
    span = Span(start_ns, end_ns, answer, clip if is_visible(clip) else cells["source"], line)
    if not start_ns < end_ns:
        raise LabelError(f"{where}: end_s must come after start_s: {span.start_s:g} to "
                         f"{span.end_s:g}")
    return question, span


def _answer(where: str, label: str, question: Question | None) -> str:
    if question is not None and question.options:
        try:
            return kind_of(question).canonical(question, label)
        except KindError as error:
            raise LabelError(f"{where}: '{question.id}' {error}") from error
    answer = _ANSWERS.get(comparable(label))
    if answer is None:
        raise LabelError(f"{where}: label must be yes or no, not {label!r}")
    return answer


def _nanoseconds(where: str, name: str, text: str, default: int) -> int:
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise LabelError(f"{where}: {name} must be seconds from 0 on, not {text!r}")
    return min(round(value * NS), OPEN_NS)


def _joined(path: str, source: str, question: str, spans: Sequence[Span]) -> list[Span]:
    """Join labels that overlap. Raises LabelError if they differ in answer or clip."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda span: span.start_ns):
        last = found[-1] if found else None
        if last is None or span.start_ns >= last.end_ns:
            found.append(span)
            continue
        if span.answer != last.answer:
            raise LabelError(f"{path}:{span.line}: contradicts line {last.line}: {question!r} of "
                             f"{source!r} is both {last.answer} and {span.answer} at "
                             f"{span.start_s:g} s")
        if span.scene != last.scene:
            raise LabelError(f"{path}:{span.line}: overlaps line {last.line}, which is of another "
                             f"clip: {last.scene!r}, not {span.scene!r}")
        end_ns = max(last.end_ns, span.end_ns)
        found[-1] = Span(last.start_ns, end_ns, last.answer, last.scene, last.line)
    return found
