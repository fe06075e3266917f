"""The ordered set of questions that a robot asks, with its views and events, and its file.

Questions are data: a YAML file holds a list of them, or a mapping with the key `questions` and
beside it `events` over their answers (see events.py), and `defaults`: keys of a question with the
values that they have where a question does not say otherwise. Everything is validated here. Errors
name the question, the key and the line.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from .conditions import ConditionError, not_there, parse_condition
from .decision import NO
from .events import MAX_EVENTS, EventError, EventSpec, read_event
from .events import SHAPE as EVENT_SHAPE
from .files import resources
from .files.atomic import write_text
from .files.listing import listed, there_are
from .files.yaml_records import Record, Shape, YamlRecordError, read_sections, unknown_key
from .kinds import names_of, question_of, view_of
from .questions import FIELDS, WINDOW, Question, QuestionError, goes_with, without_idle
from .views import ALL, View, ViewError, check_new, read_views, views_to_dict
from .views import SHAPE as VIEW_SHAPE

MAX_QUESTIONS = 256
MAX_FILE_BYTES = 1_000_000

#: What is of each question alone, and cannot be a default of a file.
_OWN = ("id", "text", "kind", "options", "thresholds", "head", "scale", "bias", "implies")
_DEFAULTS = tuple(name for name in FIELDS if name not in _OWN)
_SHAPES = {
    "questions": Shape(FIELDS, texts=("text", "options"), strings=("id", "kind", "head", "view")),
    "events": EVENT_SHAPE,
    "defaults": Shape(_DEFAULTS, strings=("view",), single=True),
    "views": VIEW_SHAPE,
}


def questions_path(name: str) -> Path:
    """Return the file of a shipped set of questions, or the path that `name` is.

    A name without a slash and without .yaml or .yml is a shipped set. Raises QuestionError if there
    is no such set.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        return Path(name).expanduser().absolute()
    folder = resources.share_file("config", "questions")
    shipped = folder / f"{name}.yaml"
    if not shipped.is_file():
        known = there_are(sorted(path.stem for path in folder.glob("*.yaml")), name)
        raise QuestionError(f"there is no shipped set '{name}' ({known}); "
                            "a file needs its path, or a name that ends in .yaml")
    return shipped


class QuestionBook:
    """An ordered set of questions with distinct ids, the views they are asked of, and the events.

    A question that an event or another question's condition uses can be neither removed, nor
    changed so that it cannot give the answers named; nor can a view be that a question is asked
    of. Where no view is described there is one, without a name. Not thread-safe: the owner must
    serialise access.
    """

    def __init__(
        self,
        questions: Iterable[Question] = (),
        events: Iterable[EventSpec] = (),
        views: Iterable[View] = (),
    ) -> None:
        """Create a book of these questions, events and views. Raises QuestionError."""
        self._questions: dict[str, Question] = {}
        self._events: dict[str, EventSpec] = {}
        self._views: dict[str, View] = {}
        for view in views:
            self._insert_view(view)
        if not self._views:
            self._insert_view(View())
        for question in questions:
            self._insert(question)
        self._check_links(self._questions)
        for event in events:
            try:
                event.check_questions(self._questions, self._views)
            except EventError as error:
                raise QuestionError(str(error)) from error
            self._add_event(event)

    @property
    def events(self) -> tuple[EventSpec, ...]:
        """Return the events, in the order of the file."""
        return tuple(self._events.values())

    @property
    def views(self) -> tuple[View, ...]:
        """Return the views, at least one."""
        return tuple(self._views.values())

    @property
    def placed(self) -> dict[str, str]:
        """Return the view of each question that names one."""
        return {one.id: one.view for one in self if one.view not in ("", ALL)}

    @classmethod
    def load(cls, path: str | os.PathLike, views: Iterable[View] = ()) -> QuestionBook:
        """Read a YAML file. Raises QuestionError that names the file and, if possible, the line.

        `views`: those of a file of their own; then the questions' file may not have any.
        """
        try:
            with open(path, "rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise QuestionError(f"{path}: {error.strerror or error}") from error
        if len(data) > MAX_FILE_BYTES:
            raise QuestionError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise QuestionError(f"{path}: not UTF-8 text ({error.reason})") from error
        return cls.loads(text, str(path), views)

    @classmethod
    def loads(
        cls, text: str, source: str = "questions", views: Iterable[View] = ()
    ) -> QuestionBook:
        """Read YAML text; `source` names it in errors. Raises QuestionError."""
        try:
            sections = read_sections(text, source, _SHAPES)
        except YamlRecordError as error:
            raise QuestionError(str(error)) from error
        views = tuple(views)
        if views and sections["views"]:
            line = sections["views"][0].line
            raise QuestionError(f"{source}:{line}: views are described here and in views_file: "
                                "one of the two is enough", "views")
        try:
            views = views or read_views(sections["views"], source)
        except ViewError as error:
            raise QuestionError(str(error), error.field) from error
        book = cls(views=views)
        defaults = next(iter(sections["defaults"]), Record({}, {}, 0))
        idle = set(defaults.values)
        for record in sections["questions"]:
            idle -= book._add_record(record, source, defaults)
        if idle and sections["questions"]:
            name = min(idle, key=defaults.lines.__getitem__)
            raise QuestionError(f"{source}:{defaults.lines[name]}: the default '{name}' is of no "
                                f"effect on any question: it {goes_with(name)}", name)
        lines = {str(record.values["id"]): record for record in sections["questions"]}
        try:
            book._check_links(book._questions)
        except QuestionError as error:
            record = lines[error.question_id]
            line = _line_of(error.field, record, defaults)
            raise QuestionError(f"{source}:{line}: {error}", error.field) from error
        for record in sections["events"]:
            try:
                book._add_event(read_event(record, source, book._questions, book._views),
                                source, record.line)
            except EventError as error:
                raise QuestionError(str(error), error.field) from error
        return book

    def save(self, path: str | os.PathLike) -> None:
        """Write the book as YAML. The file is replaced completely or not at all.

        Raises QuestionError if it cannot be written; the old file is then unchanged.
        """
        values: Any = [question.to_dict() for question in self]
        others: dict[str, Any] = {}
        if named := [view for view in self.views if view.name]:
            others["views"] = views_to_dict(named)
        if self._events:
            others["events"] = [event.to_dict() for event in self.events]
        if others:
            values = {"questions": values, **others}
        text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=96)
        try:
            write_text(path, text)
        except OSError as error:
            raise QuestionError(f"cannot save questions to {path}: {error.strerror}") from error

    def add(self, question: Question) -> None:
        """Add a question at the end.

        Raises QuestionError if its id is taken, the book full, a question that its conditions
        name not there, or a field of no effect.
        """
        question.check_used()
        self._check_links({**self._questions, question.id: question}, question.id)
        self._insert(question)

    def _insert(self, question: Question) -> None:
        if question.id in self._questions:
            raise QuestionError(f"question '{question.id}' exists already", "id")
        if len(self._questions) >= MAX_QUESTIONS:
            raise QuestionError(f"the book is full: at most {MAX_QUESTIONS} questions")
        self._questions[question.id] = question

    def remove(self, question_id: str) -> Question:
        """Remove a question and return it.

        Raises QuestionError if there is no such question, or if an event uses it.
        """
        question = self.get(question_id)
        for event in self.events:
            if question_id in event.questions:
                raise QuestionError(
                    f"question '{question_id}': event '{event.id}' listens to it", "id"
                )
        users = [other.id for other in self if question_id in other.names]
        if users:
            raise QuestionError(
                f"question '{question_id}': it is in a condition of {listed(users)}", "id"
            )
        del self._questions[question_id]
        return question

    def add_view(self, view: View) -> None:
        """Add a view. Raises QuestionError."""
        if not view.name:
            raise QuestionError("a view needs a name", "name")
        self._insert_view(view)
        try:
            self._check_links(self._questions)
        except QuestionError as error:
            del self._views[view.name]
            raise QuestionError(f"view '{view.name}' cannot be added: {error}",
                                error.field) from error

    def _insert_view(self, view: View) -> None:
        try:
            check_new(view, self._views.values())
        except ViewError as error:
            raise QuestionError(str(error), error.field) from error
        self._views[view.name] = view

    def remove_view(self, name: str) -> View:
        """Remove a view and return it. Raises QuestionError: it is not there, in use, the last."""
        view = self.view(name)
        users = [question.id for question in self if name in (question.view, question.unsure)]
        if users:
            raise QuestionError(f"view '{name}': {listed(users)} asked of it", "view")
        users = [question.id for question in self if name in question.views_named]
        if users:
            raise QuestionError(
                f"view '{name}': it is in a condition of {listed(users)}", "view")
        users = [event.id for event in self.events if name in event.views]
        if users:
            raise QuestionError(f"view '{name}': it is in the event {listed(users)}", "view")
        if len(self._views) == 1:
            raise QuestionError(f"view '{name}' is the only one", "view")
        del self._views[name]
        return view

    def view(self, name: str) -> View:
        """Return a view. Raises QuestionError if there is none of that name."""
        if name not in self._views:
            there = there_are(filter(None, self._views), name, "none has a name")
            raise QuestionError(f"there is no view '{name}' ({there})", "view")
        return self._views[name]

    def views_of(self, question: Question) -> tuple[View, ...]:
        """Return the views that a question is asked of."""
        return tuple(view for view in self.views if question.is_of(view.name))

    def get(self, question_id: str) -> Question:
        """Return a question. Raises QuestionError if there is no question of that id."""
        try:
            return self._questions[question_id]
        except KeyError:
            there = there_are(self._questions, question_id)
            raise QuestionError(
                f"there is no question '{question_id}' ({there})", "id") from None

    def replace(self, question_id: str, **changes: Any) -> Question:
        """Change fields of a question and return the new one.

        All changes are validated together before any is applied. Raises QuestionError; the question
        is then unchanged.
        """
        question = self._questions[question_id] = self.replaced(question_id, **changes)
        return question

    def replaced(self, question_id: str, **changes: Any) -> Question:
        """Return what `replace` would put in a question's place. Raises QuestionError."""
        question = self.get(question_id)
        for name in changes:
            if name not in FIELDS:
                raise QuestionError(f"question '{question_id}': {unknown_key(name, FIELDS)}", name)
        if changes.get("id", question_id) != question_id:
            raise QuestionError(f"question '{question_id}': an id cannot be changed", "id")
        question = dataclasses.replace(question, **changes)
        question.check_used(changes)
        self._check_links({**self._questions, question_id: question})
        for event in self.events:
            try:
                event.check_questions({**self._questions, question_id: question}, self._views)
            except EventError as error:
                raise QuestionError(f"question '{question_id}': {error}", "options") from error
        return question

    def copy(self) -> QuestionBook:
        """Return another book with the same questions and events."""
        return QuestionBook(self, self.events, self.views)

    def __iter__(self) -> Iterator[Question]:
        """Iterate over the questions in the order in which they were added."""
        return iter(self._questions.values())

    def __len__(self) -> int:
        """Return the number of questions."""
        return len(self._questions)

    def __contains__(self, question_id: object) -> bool:
        """Return whether a question of that id is in the book."""
        return question_id in self._questions

    def _check_links(
        self, questions: Mapping[str, Question], only: str | None = None
    ) -> None:
        """Raise QuestionError where conditions name what is not there, or go round in a circle."""
        for question in [questions[only]] if only else questions.values():
            if question.view not in ("", ALL, *self._views):
                there = there_are(filter(None, self._views), question.view, "none has a name")
                raise _link_error(question, "view", f"there is no '{question.view}' ({there})")
            self._check_unsure(question)
            try:
                if question.when:
                    parse_condition(question.when).check(questions, self._views)
            except ConditionError as error:
                raise _link_error(question, "when", str(error)) from error
            try:
                for one in question.implies:
                    parse_condition(one).check(questions, self._views)
            except ConditionError as error:
                raise _link_error(question, "implies", str(error)) from error
            if question.needs:
                names = names_of(questions)
                if view := view_of(question.needs):
                    raise _link_error(
                        question, "needs", f"names a question of the same view; an answer of "
                        f"the view '{view}' goes into a condition, when: {question.needs}")
                if question.needs not in names:
                    raise _link_error(
                        question, "needs", not_there(question.needs, names, questions))
                if NO not in names[question.needs]:
                    raise _link_error(
                        question, "needs", f"names '{question.needs}', which never answers no (its "
                        f"answers: {listed(names[question.needs])})"
                    )
            circle = _circle(question.id, questions)
            if circle:
                field = "needs" if question_of(question.needs or "") == circle[1] else "when"
                raise _link_error(question, field, f"goes in a circle: {' -> '.join(circle)}")

    def _check_unsure(self, question: Question) -> None:
        """Raise QuestionError where there is no such view, or one that shows something else."""
        name = question.unsure
        if name in ("", WINDOW):
            return
        if not name or name not in self._views:
            there = there_are([WINDOW, *filter(None, self._views)], name)
            raise _link_error(question, "unsure", f"there is no view '{name}' ({there})")
        if question.view == name:
            raise _link_error(question, "unsure", f"names the view '{name}' that the question is "
                                                  f"asked of: name another, or {WINDOW}")
        for view in self.views_of(question):
            if other := view.differs_from(self._views[name]):
                raise _link_error(question, "unsure", f"names the view '{name}', which shows "
                                                      f"another {other} than '{view.name}'")

    def _add_event(self, event: EventSpec, source: str = "", line: int = 0) -> None:
        at = f"{source}:{line}: " if source else ""
        if event.id in self._events:
            raise QuestionError(f"{at}event '{event.id}' exists already", "id")
        if len(self._events) >= MAX_EVENTS:
            raise QuestionError(f"{at}the book is full: at most {MAX_EVENTS} events")
        self._events[event.id] = event

    def _add_record(self, record: Record, source: str, defaults: Record) -> Collection[str]:
        """Add a question of a file; return the keys that were set, those of the defaults too."""
        for name in ("id", "text"):
            if name not in record.values:
                raise QuestionError(
                    f"{source}:{record.line}: a question needs the key '{name}'", name
                )
        values = {**without_idle(defaults.values, record.values), **record.values}
        try:
            question = Question(**values)
            question.check_used()
            self._insert(question)
        except QuestionError as error:
            line = _line_of(error.field, record, defaults)
            raise QuestionError(f"{source}:{line}: {error}", error.field) from error
        return values.keys()


def _line_of(field: str | None, record: Record, defaults: Record) -> int:
    """Return the line of what is wrong with a question: its own, or that of the file's default."""
    return record.lines.get(field, defaults.lines.get(field, record.line))


def _link_error(question: Question, field: str, message: str) -> QuestionError:
    return QuestionError(f"question '{question.id}': {field} {message}", field, question.id)


def _circle(start: str, questions: Mapping[str, Question]) -> list[str]:
    """Return the ids on a way from a question's conditions back to it, else nothing."""
    ways, seen = [[start]], set()
    while ways:
        way = ways.pop()
        for name in questions[way[-1]].depends_on:
            if name == start:
                return [*way, name]
            if name in questions and name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return []
