"""The truth of a recording over frame time, from every source.

- In a bag, a topic of std_msgs/String gives it for each image, as the simulated camera does:
  `{"stamp_ns": int, "facts": {question id: answer}, "segment": int}`. `segment`, the number of the
  scene, is optional.
- A file (YAML or JSON) gives it by segments, in seconds since the first image:

      segments:
        - {start_s: 0.0, end_s: 12.5, facts: {person: yes, activity: typing, on_desk: [cup, pen]}}

- A CSV file of labels gives it for many recordings (see labels.py).
- The simulated desk gives it for any time.

The answer of an any_of are its labels that are so: a list of them, a text with commas, or `none`.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..decision import label_name
from ..files.listing import listed
from ..files.yaml_records import Record, Shape, YamlRecordError, read_sections
from ..frames import NS
from ..kinds import KindError, joined, kind_of
from ..questions import Question
from ..texts import normal

if TYPE_CHECKING:
    from ..sim.world import World
    from .bags import Bag

_SHAPE = Shape(known=("start_s", "end_s", "facts"), tables=("facts",))
MAX_BYTES = 20_000_000

#: Truth that is given for an image is valid until the next image, but at most for so long.
MAX_HOLD_NS = NS // 2

#: Truth and images belong together if they have so much of the shorter of the two in common.
LEAST_OVERLAP = 0.5
#: Truth counts as told of the images alone from this share within their time.
WHOLE = 0.98

#: What may be wrong with a file of truth that is about another time.
RELATIVE = "times in a file are seconds since the first image"

#: End of a span that lasts until the recording ends.
OPEN_NS = 1 << 62


class TruthError(ValueError):
    """Truth that cannot be used. The message says what is wrong and what there is."""


@dataclass(frozen=True)
class Span:
    """One answer to one question is true in [start_ns, end_ns) of frame time.

    Attributes:
        start_ns: frame time at which it begins.
        end_ns: frame time at which it ends; OPEN_NS for the end of the recording.
        answer: the right answer.
        scene: what it is a part of. Samples of one scene are never split between fitting and
            testing, and a bootstrap draws whole scenes.
        line: line of the file that it was read from, 0 for none.
    """

    start_ns: int
    end_ns: int
    answer: str
    scene: int | str
    line: int = 0

    @property
    def start_s(self) -> float:
        """Seconds of frame time at which it begins."""
        return self.start_ns / NS

    @property
    def end_s(self) -> float:
        """Seconds of frame time at which it ends; inf for the end of the recording."""
        return math.inf if self.end_ns == OPEN_NS else self.end_ns / NS


@dataclass(frozen=True)
class TruthRow:
    """What is true at one stamp.

    Attributes:
        stamp_ns: frame time.
        facts: answers by question id.
        scene: None begins a new scene whenever the facts change.
    """

    stamp_ns: int
    facts: Mapping[str, str]
    scene: int | str | None = None


class Truth:
    """Spans by question, in order of time, without overlap."""

    def __init__(self, spans: Mapping[str, Iterable[Span]], start_ns: int | None = None) -> None:
        """Store the spans.

        Args:
            spans: by question id.
            start_ns: when the recording begins; by default when the first span does.

        Raises:
            TruthError: there is no span, or two of a question overlap.
        """
        self.spans = {name: tuple(sorted(own, key=lambda span: span.start_ns))
                      for name, own in spans.items()}
        everything = [span for own in self.spans.values() for span in own]
        if not everything:
            raise TruthError("the truth holds no segment")
        for name, own in self.spans.items():
            for one, other in zip(own, own[1:]):
                if other.start_ns < one.end_ns:
                    raise TruthError(
                        f"segments overlap: '{name}' is '{one.answer}' until "
                        f"{one.end_ns / NS:.3f} s and '{other.answer}' from "
                        f"{other.start_ns / NS:.3f} s on")
        self.start_ns = min(one.start_ns for one in everything) if start_ns is None else start_ns
        self.end_ns = max(one.end_ns for one in everything)
        self._starts = {name: [span.start_ns for span in own] for name, own in self.spans.items()}

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the questions that it answers."""
        return tuple(self.spans)

    @property
    def scenes(self) -> tuple[int | str, ...]:
        """The scenes, in order of their beginning."""
        spans = sorted((span for own in self.spans.values() for span in own),
                       key=lambda span: span.start_ns)
        return tuple(dict.fromkeys(span.scene for span in spans))

    @property
    def duration_s(self) -> float:
        """Seconds for which the answer to a question is known."""
        return self.known_ns(self.start_ns, self.end_ns) / NS

    def known_ns(self, begin_ns: int, end_ns: int) -> int:
        """Return for how long in [begin_ns, end_ns) the answer to any question is known."""
        total, until = 0, begin_ns
        for start, end in sorted((span.start_ns, min(span.end_ns, end_ns))
                                 for own in self.spans.values() for span in own):
            total += max(0, end - max(start, until))
            until = max(until, end)
        return total

    def at(self, question_id: str, t_ns: int) -> Span | None:
        """Return the span of a question at `t_ns`, or None if the answer is not known there."""
        index = bisect_right(self._starts.get(question_id, ()), t_ns) - 1
        span = self.spans[question_id][index] if index >= 0 else None
        return span if span is not None and t_ns < span.end_ns else None

    def before(self, question_id: str, t_ns: int) -> Span:
        """Return the last span of a question that begins by `t_ns`, or else the first one."""
        return self.spans[question_id][max(0, bisect_right(self._starts[question_id], t_ns) - 1)]

    def answer(self, question_id: str, t_ns: int) -> str | None:
        """Return the right answer to a question at `t_ns`, or None if it is not known."""
        span = self.at(question_id, t_ns)
        return None if span is None else span.answer

    def facts(self, t_ns: int) -> dict[str, str]:
        """Return the right answers that are known at `t_ns`, by question."""
        answers = {name: self.answer(name, t_ns) for name in self.spans}
        return {name: answer for name, answer in answers.items() if answer is not None}

    def covering(self, question_id: str, start_ns: int, end_ns: int) -> Span | None:
        """Return the span of a question that contains start_ns to end_ns, or None."""
        span = self.at(question_id, start_ns)
        return span if span is not None and end_ns <= span.end_ns else None

    def settled(self, question_id: str, t_ns: int, before_s: float, after_s: float = 0.0) -> bool:
        """Return whether a question's answer is known and constant around `t_ns`.

        The time from `before_s` before to `after_s` after `t_ns` counts, as far as it lies between
        the beginning of the recording and the end of the truth.
        """
        first_ns = max(self.start_ns, t_ns - round(before_s * NS))
        last_ns = max(first_ns, min(self.end_ns - 1, t_ns + round(after_s * NS)))
        answer = self.answer(question_id, t_ns)
        at_ns = first_ns
        while answer is not None:
            span = self.at(question_id, at_ns)
            if span is None or span.answer != answer:
                return False
            if span.end_ns > last_ns:
                return True
            at_ns = span.end_ns
        return False

    def runs(self, question_id: str, *, over_gaps: bool = False) -> list[Span]:
        """Return spans joined where the answer stays the same.

        Args:
            question_id: of the question.
            over_gaps: also join over times for which the answer is not known.
        """
        found: list[Span] = []
        for span in self.spans.get(question_id, ()):
            last = found[-1] if found else None
            if last and last.answer == span.answer and (over_gaps or last.end_ns == span.start_ns):
                found[-1] = Span(last.start_ns, span.end_ns, last.answer, last.scene, last.line)
            else:
                found.append(span)
        return found

    def shifted(self, by_ns: int) -> Truth:
        """Return the same about a recording that begins `by_ns` later."""
        return Truth({name: [replace(span, start_ns=span.start_ns + by_ns,
                                     end_ns=span.end_ns + by_ns) for span in own]
                      for name, own in self.spans.items()}, self.start_ns + by_ns)

    def until(self, end_ns: int) -> Truth:
        """Return the scenes that end by `end_ns`. Raises TruthError if there is none."""
        late = {span.scene for own in self.spans.values() for span in own if span.end_ns > end_ns}
        kept = {name: [span for span in own if span.scene not in late]
                for name, own in self.spans.items()}
        if not any(kept.values()):
            raise TruthError("no segment of the truth ends within "
                             f"{(end_ns - self.start_ns) / NS:g} s")
        return Truth({name: own for name, own in kept.items() if own}, self.start_ns)

    def check(self, questions: Iterable[Question], *, ignore_unknown: bool = False) -> Truth:
        """Return the truth about these questions.

        Args:
            questions: those that are asked.
            ignore_unknown: leave out facts about questions that are not asked, instead of refusing
                them.

        Raises:
            TruthError: facts about other questions, or answers that a question does not have.
        """
        asked = {question.id: question for question in questions}
        unknown = [name for name in self.ids if name not in asked]
        if unknown and not ignore_unknown:
            raise TruthError(f"the truth names questions that are not asked: {listed(unknown)} "
                             f"(asked: {listed(asked)})")
        if len(unknown) == len(self.ids):
            raise TruthError(f"the truth is about none of the questions asked "
                             f"({listed(asked)}); it is about: {listed(self.ids)}")
        kept: dict[str, list[Span]] = {}
        for name, own in self.spans.items():
            if name in asked:
                kept[name] = [replace(span, answer=_canonical(asked[name], span)) for span in own]
        return Truth(kept, self.start_ns)


def check_times(truth: Truth, begin_ns: int, end_ns: int, what: str, hint: str) -> str:
    """Compare the times of truth and images; return what to say of truth beside the images.

    Args:
        truth: spans that last until the recording ends do so at its end.
        begin_ns: of the recording, as the truth counts time.
        end_ns: of the recording.
        what: the recording, for messages.
        hint: what may be wrong where they do not belong together.

    Returns:
        Empty where all of the truth is about the images.

    Raises:
        TruthError: less than LEAST_OVERLAP of the shorter of the two lies within the other.
    """
    end_ns = max(end_ns, begin_ns + 1)  # a picture is a moment
    first_ns = min(span.start_ns for own in truth.spans.values() for span in own)
    last_ns = max(first_ns, end_ns if truth.end_ns == OPEN_NS else truth.end_ns)
    told_ns = truth.known_ns(first_ns, last_ns)
    common_ns = truth.known_ns(begin_ns, end_ns)
    times = (f"the truth is about {first_ns / NS:.1f} to {last_ns / NS:.1f} s, the images are from "
             f"{begin_ns / NS:.1f} to {end_ns / NS:.1f} s")
    shorter_ns = min(told_ns, end_ns - begin_ns)
    if common_ns < LEAST_OVERLAP * shorter_ns or not common_ns:
        share = common_ns / shorter_ns if shorter_ns > 0 else 0.0
        raise TruthError(f"{what}: {times}: they have {share:.0%} of the shorter in common, at "
                         f"least {LEAST_OVERLAP:.0%} are needed; {hint}")
    beside = [name for name, own in truth.spans.items()
              if not any(span.start_ns < end_ns and span.end_ns > begin_ns for span in own)]
    only = f"; nothing within is about {listed(beside)}" if beside else ""
    if common_ns < WHOLE * told_ns or only:
        return f"{what}: {times}: {common_ns / told_ns:.0%} of the truth counts{only}"
    return ""


def truth_of_labels(question: Question, truth: Truth) -> Truth:
    """Return the truth about each label of an any_of by its name, from that about the whole.

    Raises TruthError where there is none about it.
    """
    found: dict[str, list[Span]] = {}
    for span in truth.spans.get(question.id, ()):
        parts = kind_of(question).parts(question, span.answer)
        for label, answer in zip(question.options, parts, strict=True):
            name = label_name(question.id, label)
            found.setdefault(name, []).append(replace(span, answer=answer))
    return Truth(found, truth.start_ns)


def _canonical(question: Question, span: Span) -> str:
    """Return the answer of a span as the question gives it. Raises TruthError."""
    try:
        return kind_of(question).canonical(question, span.answer)
    except KindError as error:
        line = f" (line {span.line})" if span.line else ""
        raise TruthError(f"the truth says '{span.answer}' of '{question.id}' at "
                         f"{span.start_ns / NS:.3f} s{line}, which {error}") from error


def truth_of_rows(rows: Iterable[TruthRow]) -> Truth:
    """Return the truth that is given at single stamps.

    A row is true until the next one, but at most for MAX_HOLD_NS; the last one for as long as the
    one before it. Raises TruthError if there is no row.
    """
    told = sorted(rows, key=lambda row: row.stamp_ns)
    spans: dict[str, list[Span]] = {}
    begun, facts, until_ns = 0, None, None
    for number, row in enumerate(told):
        if number + 1 < len(told):
            end_ns = told[number + 1].stamp_ns
        else:
            end_ns = row.stamp_ns + (row.stamp_ns - told[number - 1].stamp_ns if number else 1)
        end_ns = min(end_ns, row.stamp_ns + MAX_HOLD_NS)
        if end_ns <= row.stamp_ns:
            continue  # a stamp that was given twice
        if facts is not None and (row.facts != facts or row.stamp_ns != until_ns):
            begun += 1
        facts, until_ns = row.facts, end_ns
        scene = begun if row.scene is None else row.scene
        for name, answer in row.facts.items():
            own = spans.setdefault(name, [])
            last = own[-1] if own else None
            if last and (last.answer, last.scene, last.end_ns) == (answer, scene, row.stamp_ns):
                own[-1] = Span(last.start_ns, end_ns, answer, scene)
            else:
                own.append(Span(row.stamp_ns, end_ns, answer, scene))
    return Truth(spans)


def truth_of_world(world: World, times_s: Iterable[float], scene: int | str) -> Truth:
    """Return the truth of a simulated desk at some times, all of it one scene."""
    return truth_of_rows(TruthRow(round(t_s * NS), world.truth(t_s), scene) for t_s in times_s)


def truth_of_bag(bag: Bag, topic: str | None = None) -> Truth:
    """Read the truth from a topic of strings of a bag.

    Args:
        bag: the bag.
        topic: its name; by default the topic called `truth` (in any namespace).

    Raises:
        TruthError, BagError: no such topic, or messages that are not valid.
    """
    from .bags import STRING  # needs rosbags

    strings = [one.name for one in bag.topics if one.type == STRING]
    if topic is None:
        named = [name for name in strings if name.rpartition("/")[2] == "truth"]
        if len(named) != 1:
            what = "several topics of truth" if named else "no topic of truth"
            raise TruthError(f"{bag.path}: {what}; topics of strings: "
                             f"{listed(strings)} (or give a file of truth)")
        topic = named[0]
    elif bag.topic(topic).type != STRING:
        raise TruthError(f"{bag.path}: {topic} is of {bag.topic(topic).type}, truth must be "
                         f"{STRING}; topics of strings: {listed(strings)}")
    rows = [read_row(bag.decode(raw, number).data, f"{bag.path}: message {number} of {topic}")
            for number, raw in enumerate(bag.messages([topic]), 1)]
    if not rows:
        raise TruthError(f"{bag.path}: {topic} holds no message")
    return truth_of_rows(rows)


def read_row(text: str, what: str) -> TruthRow:
    """Parse one message of a topic of truth; `what` names it in errors. Raises TruthError."""
    try:
        row = json.loads(text)
        stamp_ns, facts, scene = row["stamp_ns"], row["facts"], row.get("segment")
        sound = (isinstance(stamp_ns, int) and isinstance(facts, dict) and facts
                 and all(_is_answer(value) for value in facts.values())
                 and (scene is None or isinstance(scene, int)))
    except (ValueError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise TruthError(f'{what} is not {{"stamp_ns": int, "facts": {{id: answer}}}}: '
                         f"{text[:80]!r}")
    return TruthRow(stamp_ns, {name: _written(answer) for name, answer in facts.items()}, scene)


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
    except YamlRecordError as error:
        raise TruthError(str(error)) from error
    if not records:
        raise TruthError(f"{path}: holds no segment")
    segments = sorted(((*_times(one, path), one) for one in records), key=lambda one: one[:2])
    for (_, end_s, one), (start_s, _, other) in zip(segments, segments[1:]):
        if start_s < end_s:
            raise TruthError(f"{path}:{other.line}: this segment begins at {start_s:g} s, before "
                             f"the one of line {one.line} ends at {end_s:g} s")
    spans: dict[str, list[Span]] = {}
    for number, (start_s, end_s, one) in enumerate(segments):
        start_ns, end_ns = first_ns + round(start_s * NS), first_ns + round(end_s * NS)
        for name, answer in one.values["facts"].items():
            spans.setdefault(name, []).append(
                Span(start_ns, end_ns, _written(answer), number, one.line))
    return Truth(spans)


def _is_answer(value: Any) -> bool:
    listed = isinstance(value, list) and all(isinstance(one, str) for one in value)
    return isinstance(value, str) or listed


def _written(answer: str | Sequence[str]) -> str:
    """Return an answer of a file as one text; a list are labels."""
    return normal(answer) if isinstance(answer, str) else joined([normal(one) for one in answer])


def _times(record: Record, path: Path) -> tuple[float, float]:
    at = f"{path}:{record.line}"
    for key in _SHAPE.known:
        if key not in record.values:
            raise TruthError(f"{at}: a segment needs the key '{key}'")
    if not record.values["facts"]:
        raise TruthError(f"{at}: a segment needs at least one fact")
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
