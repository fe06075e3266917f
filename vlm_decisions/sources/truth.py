"""
What is true in a recording, over frame time: read from the bag itself or from a file.

In a bag, a topic of std_msgs/String tells it image by image, as the simulated camera does:
`{"stamp_ns": int, "facts": {question id: answer}, "segment": int}`; `segment`, the number of the
scene, may be left out. A file (YAML or JSON) tells it by stretches, in seconds since the first
image:

    segments:
      - {start_s: 0.0, end_s: 12.5, facts: {person: yes, activity: typing}}
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..decision import NO, YES
from ..files.yaml_records import Record, RecordError, Shape, read_sections
from ..frames import NS
from ..listing import listed
from ..questions import Question
from ..texts import normal
from .bags import STRING, Bag

_SHAPE = Shape(known=("start_s", "end_s", "facts"), tables=("facts",))
MAX_BYTES = 20_000_000

#: Truth told image by image holds until the next image, or so long.
MAX_HOLD_NS = NS // 2


class TruthError(ValueError):
    """Truth that cannot be used; the message says what is wrong and what there is."""


@dataclass(frozen=True)
class Span:
    """One answer being true from `start_s` to `end_s`."""

    start_s: float
    end_s: float
    answer: str
    segment: int = 0


@dataclass(frozen=True)
class Stretch:
    """A stretch of frame time [start_ns, end_ns) with the same facts, of scene `segment`."""

    start_ns: int
    end_ns: int
    facts: Mapping[str, str]
    segment: int


class Truth:
    """Stretches in order of time, without overlap."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        """Take the stretches. Raises TruthError if there is none, or two overlap."""
        if not stretches:
            raise TruthError("the truth holds no segment")
        self.stretches = tuple(sorted(stretches, key=lambda one: one.start_ns))
        for one, other in zip(self.stretches, self.stretches[1:]):
            if other.start_ns < one.end_ns:
                raise TruthError(f"segments overlap: one ends at {one.end_ns / NS:.3f} s, the next "
                                 f"begins at {other.start_ns / NS:.3f} s")

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the questions that it answers."""
        return tuple(dict.fromkeys(name for one in self.stretches for name in one.facts))

    @property
    def duration_s(self) -> float:
        """Seconds for which something is known to be true."""
        return sum(one.end_ns - one.start_ns for one in self.stretches) / NS

    def check(self, questions: Iterable[Question], *, ignore_unknown: bool = False) -> Truth:
        """
        Return the truth about these questions. Raises TruthError.

        Facts about questions that are not asked are an error, or left out with `ignore_unknown`.
        """
        asked = {question.id: question for question in questions}
        unknown = [name for name in self.ids if name not in asked]
        if unknown and not ignore_unknown:
            raise TruthError(f"the truth names questions that are not asked: {listed(unknown)} "
                             f"(asked: {listed(asked)})")
        if len(unknown) == len(self.ids):
            raise TruthError(f"the truth says nothing of the questions asked "
                             f"({listed(asked)}); it is about: {listed(self.ids)}")
        for one in self.stretches:
            for name, answer in one.facts.items():
                possible = asked[name].options or (YES, NO) if name in asked else (answer,)
                if answer not in possible:
                    raise TruthError(f"the truth says '{answer}' of '{name}' at "
                                     f"{one.start_ns / NS:.3f} s, which answers "
                                     f"{', '.join(possible)}")
        return Truth([Stretch(one.start_ns, one.end_ns,
                              {k: v for k, v in one.facts.items() if k in asked}, one.segment)
                      for one in self.stretches])

    def runs(self, question_id: str, origin_ns: int) -> list[Span]:
        """Return the runs of a question's answer, seconds since `origin_ns`; gaps end none."""
        found: list[Span] = []
        for one in self.stretches:
            answer = one.facts.get(question_id)
            if answer is None:
                continue
            start_s, end_s = (one.start_ns - origin_ns) / NS, (one.end_ns - origin_ns) / NS
            if found and found[-1].answer == answer:
                last = found.pop()
                found.append(Span(last.start_s, end_s, answer, last.segment))
            else:
                found.append(Span(start_s, end_s, answer, one.segment))
        return found


def truth_of_bag(bag: Bag, topic: str | None = None) -> Truth:
    """
    Read the truth that a bag tells on a topic of strings.

    Without `topic`, the one called `truth` (in any namespace). Raises TruthError, BagError.
    """
    strings = [one.name for one in bag.topics if one.type == STRING]
    if topic is None:
        named = [name for name in strings if name.rpartition("/")[2] == "truth"]
        if len(named) != 1:
            what = "several topics of truth" if named else "no topic of truth"
            raise TruthError(f"{bag.path}: {what}; topics of strings: "
                             f"{listed(strings)} (or give a file of truth)")
        topic = named[0]
    elif bag.topic(topic).type != STRING:
        raise TruthError(f"{bag.path}: {topic} is of {bag.topic(topic).type}, truth is told as "
                         f"{STRING}; topics of strings: {listed(strings)}")
    rows: list[tuple[int, Mapping[str, str], int | None]] = []
    for number, raw in enumerate(bag.messages([topic]), 1):
        rows.append(_row(f"{bag.path}: message {number} of {topic}",
                         bag.decode(raw, number).data))
    if not rows:
        raise TruthError(f"{bag.path}: {topic} holds no message")
    return Truth(_stretches(sorted(rows, key=lambda row: row[0])))


def read_truth(path: str | Path, first_ns: int) -> Truth:
    """Read a file of truth; `first_ns` is the stamp of the first image. Raises TruthError."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise TruthError(f"{path}: larger than {MAX_BYTES} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise TruthError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TruthError(f"{path}: not UTF-8 text ({error.reason})") from error
    try:
        records = read_sections(text, str(path), {"segments": _SHAPE})["segments"]
    except RecordError as error:
        raise TruthError(str(error)) from error
    if not records:
        raise TruthError(f"{path}: holds no segment")
    spans = sorted(((*_span(one, path), one) for one in records), key=lambda span: span[:2])
    for (_, end_s, one), (start_s, _, other) in zip(spans, spans[1:]):
        if start_s < end_s:
            raise TruthError(f"{path}:{other.line}: this segment begins at {start_s:g} s, before "
                             f"the one of line {one.line} ends at {end_s:g} s")
    return Truth([Stretch(first_ns + round(start_s * NS), first_ns + round(end_s * NS),
                          {k: normal(v) for k, v in one.values["facts"].items()}, number)
                  for number, (start_s, end_s, one) in enumerate(spans)])


def _span(record: Record, path: Path) -> tuple[float, float]:
    at = f"{path}:{record.line}"
    for key in _SHAPE.known:
        if key not in record.values:
            raise TruthError(f"{at}: a segment needs the key '{key}'")
    if not record.values["facts"]:
        raise TruthError(f"{at}: a segment needs at least one fact")
    for name, answer in record.values["facts"].items():
        if not isinstance(answer, str):
            raise TruthError(f"{at}: '{name}' needs one answer, not a list")
    values = []
    for key in ("start_s", "end_s"):
        value = record.values[key]
        good = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not good or not math.isfinite(value) or value < 0:
            raise TruthError(f"{path}:{record.lines[key]}: {key} must be seconds from 0 on, "
                             f"not {value!r}")
        values.append(float(value))
    if values[1] <= values[0]:
        raise TruthError(f"{at}: a segment must end after it begins, not at {values[1]:g} s")
    return values[0], values[1]


def _row(what: str, text: str) -> tuple[int, Mapping[str, str], int | None]:
    try:
        row = json.loads(text)
        stamp_ns, facts = row["stamp_ns"], row["facts"]
        segment = row.get("segment")
        sound = (isinstance(stamp_ns, int) and isinstance(facts, dict) and facts
                 and all(isinstance(value, str) for value in facts.values())
                 and (segment is None or isinstance(segment, int)))
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise TruthError(f'{what} is not {{"stamp_ns": int, "facts": {{id: answer}}}}: '
                         f"{text[:80]!r}")
    return stamp_ns, {name: normal(answer) for name, answer in facts.items()}, segment


def _stretches(rows: Sequence[tuple[int, Mapping[str, str], int | None]]) -> list[Stretch]:
    """Join the images that tell the same; without segment numbers, each change begins one."""
    found: list[Stretch] = []
    for number, (stamp_ns, facts, segment) in enumerate(rows):
        if number + 1 < len(rows):
            end_ns = min(rows[number + 1][0], stamp_ns + MAX_HOLD_NS)
        else:
            end_ns = stamp_ns + (stamp_ns - rows[number - 1][0] if number else 1)
            end_ns = min(end_ns, stamp_ns + MAX_HOLD_NS)
        if end_ns <= stamp_ns:
            continue  # told twice for one stamp
        last = found[-1] if found else None
        same = last is not None and last.facts == facts and last.end_ns == stamp_ns
        if segment is None:
            segment = last.segment if same else (last.segment + 1 if last else 0)
        if same and segment == last.segment:
            found[-1] = Stretch(last.start_ns, end_ns, facts, segment)
        else:
            found.append(Stretch(stamp_ns, end_ns, facts, segment))
    return found
