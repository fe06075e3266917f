"""What exists between configure and cleanup: the runtime, the standing questions and their log.

All methods but ``ask`` are called from the executor's thread; decisions come from any.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rclpy.node import Node

from ..decision import Decision
from ..events import EventBook
from ..files import resources
from ..files.listing import there_are
from ..frames import NS
from ..learn.corrections import Correction, CorrectionError, CorrectionStore, Corrector, ModelId
from ..learn.learner import Learner
from ..question_book import QuestionBook
from ..questions import Question, QuestionError
from ..reuse import VECTORS, measured_text
from ..runtime import NotReadyError, Runtime
from ..runtime.costs import Cost
from ..runtime.engine_protocol import EngineLike
from ..runtime.evidence_files import EvidenceRecorder, EvidenceSettings, check_clips
from ..runtime.heads import language_of
from ..runtime.health import HEALTH_IDS
from ..runtime.log import DecisionLog
from ..runtime.statistics import RuntimeStats
from ..runtime.throttle import Throttle
from ..views import View, load_views
from .cameras import check_foreign, located
from .parameters import ParameterError, ParameterGate, runtime_settings
from .publishers import Outlets
from .question_store import Keeper
from .services import Refused

EngineFactory = Callable[[str, "int | None"], EngineLike]
"""Loads a model by name within a pixel budget (None: its own), in the engine's thread."""

REPORT_S = 60.0
"""A message of the runtime that repeats is logged at most this often; diagnostics keep it."""


class ConfigureError(RuntimeError):
    """The node cannot be configured; the message says why."""


class Session:
    """Builds and starts a runtime from parameter values. Raises ConfigureError."""

    def __init__(self, node: Node, gate: ParameterGate, outlets: Outlets,
                 values: Mapping[str, Any], engine_factory: EngineFactory | None) -> None:
        self._node, self._gate, self._outlets = node, gate, outlets
        self._model, self._transport = values["model"], values["image_transport"]
        self._load_timeout_s = values["load_timeout_s"]
        self._reports = Throttle(REPORT_S)
        self._log: DecisionLog | None = None
        self._recorder: EvidenceRecorder | None = None
        self._unlisten: Callable[[], None] = lambda: None
        self.engine: dict[str, str] = {}
        make = engine_factory or partial(
            load_engine, dtype=None if values["dtype"] == "auto" else values["dtype"],
            self_check=values["self_check"], outer_vision_tokens=values["outer_vision_tokens"])
        try:
            settings = runtime_settings(values)
            self._reuse = settings.reuse
            self._keeper = Keeper(values["questions_file"], values["questions_save_file"],
                                  values["save_dir"])
            book = self._keeper.load(load_views(values["views_file"]) if values["views_file"]
                                     else ())
            views = [self._located(view) for view in book.views]
            check_foreign(node, views)
            self.runtime = Runtime(
                lambda: self._loaded(make(values["model"], values["pixel_budget"] or None)),
                QuestionBook([gate.resolve(question) for question in book], book.events,
                             views),
                on_error=self._report, head_paths=head_folders(values["heads_dir"]),
                settings=settings, clock_ns=self._now_ns)
            self._keeper.begin(self.runtime.save_questions)
            self.runtime.listen(outlets.decision)
            self._events = EventBook(book.events, book.placed)
            if book.events:
                self.runtime.listen(self._follow_events)
            self.corrector: Corrector | None = None
            self._learner: Learner | None = None
            if values["learn_dir"]:
                folder = Path(values["learn_dir"]).expanduser()
                store = CorrectionStore(folder, values["learn_keep"])
                for reason in store.unreadable.values():
                    node.get_logger().warning(reason)
                self.corrector = Corrector(store)
                self.runtime.watch(self.corrector.looks.take)
                if values["learn"] == "on":
                    self._learner = Learner(
                        self.corrector, self.runtime, node.get_logger().info,
                        node.get_logger().warning,
                        lambda: outlets.learned(self.learning()))
            if values["log_file"]:
                self._log = DecisionLog(values["log_file"], keep=values["log_keep"],
                                        max_bytes=round(values["log_max_mb"] * 1e6))
                self._unlisten = self.runtime.listen(self._log.write)
            if values["evidence_dir"]:
                if book.events:
                    check_clips()
                kept = EvidenceSettings(
                    Path(values["evidence_dir"]).expanduser(),
                    round(values["evidence_max_mb"] * 1e6),
                    values["clip_before_s"], values["clip_after_s"])
                self._recorder = EvidenceRecorder(kept, outlets.evidence, self._report)
                self.runtime.watch(self._recorder.look)
                self.runtime.listen(self._recorder.decision)
        except (OSError, ValueError) as error:  # of questions, parameters, resources, folders, log
            self._end_records()
            raise ConfigureError(str(error)) from error
        try:
            several = len(book.views) > 1
            for view in book.views:
                outlets.open(view.name, own_topics=several)
                for name in HEALTH_IDS:
                    outlets.offer(name, view.name)
            for question in self.questions():
                self._begin(question)
            self._announce()
            self.runtime.start()
        except BaseException:
            self.close(0.0)  # or the next try would find the log and the parameters taken
            raise

    def wait_loaded(self, cancelled: Callable[[], bool]) -> None:
        """Wait until the model is loaded. Raises ConfigureError."""
        deadline_s = time.monotonic() + self._load_timeout_s
        while True:
            try:
                self.runtime.wait_ready(0.1)
                self._tell_speed()
                if self._learner is not None:
                    self._learner.start()
                return
            except NotReadyError as error:
                if cancelled():
                    raise ConfigureError("the node is shutting down") from error
                if time.monotonic() > deadline_s:
                    raise ConfigureError(f"model '{self._model}' was not loaded within "
                                         f"{self._load_timeout_s:g} s") from error
            except QuestionError as error:  # one that this model can never answer
                raise ConfigureError(str(error)) from error
            except BaseException as error:  # whatever a loader raises
                text = str(error) or type(error).__name__
                raise ConfigureError(f"model '{self._model}' cannot be loaded: {text}") from error

    def close(self, timeout_s: float) -> None:
        """End the runtime and take back what it offered; waits for the group in work."""
        if self._learner is not None:
            self._learner.close()
        if not self.runtime.stop(timeout_s):
            self._node.get_logger().warning(f"the model did not stop within {timeout_s:g} s")
        for question in self.questions():
            self._gate.undeclare(question.id)
        self._outlets.close_all()
        self._end_records()

    def _end_records(self) -> None:
        """Close the files that decisions are written to."""
        if self._recorder is not None:
            self._recorder.close()
            if self._recorder.dropped:
                self._node.get_logger().error(
                    f"{self._recorder.dropped} entries of evidence were dropped: the disk is slow")
        if self._log is not None:
            self._unlisten()  # a model that did not stop may still answer
            self._log.close()
            if self._log.missing:
                self._node.get_logger().error(
                    f"{self._log.missing} decisions are missing in {self._log.path}")

    def stats(self) -> RuntimeStats:
        """Return the runtime's numbers."""
        return self.runtime.stats()

    # -- questions -------------------------------------------------------------------------------

    def questions(self) -> Sequence[Question]:
        """Return the standing questions in order."""
        return self.runtime.questions()

    def find(self, question_id: str) -> Question:
        """Return a standing question. Raises QuestionError."""
        for question in self.questions():
            if question.id == question_id:
                return question
        there = there_are((question.id for question in self.questions()), question_id)
        raise QuestionError(f"there is no question '{question_id}' ({there})", "id")

    def add_question(self, question: Question, replace: bool) -> str:
        """Add a standing question. Raises QuestionError."""
        exists = any(question.id == other.id for other in self.questions())
        if exists and replace:
            for view in self._views_of(self.find(question.id)):
                if not question.is_of(view.name):
                    self._outlets.withdraw(question.id, view.name)
            said = self._replace(question)
            self._gate.follow(question)
            return f"replaced '{question.id}'{said}"
        self.runtime.add_question(question)
        self._begin(question)
        return f"added '{question.id}'{self._changed()}"

    def check_question(self, question: Question, replace: bool) -> str:
        """Return that a question could be added. Raises QuestionError."""
        self.runtime.check_question(question, replace)
        return f"'{question.id}' can be added"

    def cost(self, question: Question) -> Cost | None:
        """Return what a question costs, None before the model is loaded."""
        return self.runtime.cost(question)

    def remove_question(self, question_id: str) -> str:
        """Remove a standing question; return what was done. Raises QuestionError."""
        question = self.runtime.remove_question(question_id)
        for view in self._views_of(question):
            self._outlets.withdraw(question_id, view.name)
        self._gate.undeclare(question_id)
        return f"removed '{question_id}'{self._changed()}"

    def apply(self, question: Question) -> None:
        """Replace a standing question by a changed one. Raises QuestionError."""
        self._replace(question)

    def save_questions(self, path: str) -> str:
        """Write the questions; return the file. Raises Refused or QuestionError."""
        target = self._keeper.target(path)
        self.runtime.save_questions(target)
        return target

    def ask(self, question: Question, timeout_s: float) -> list[Decision]:
        """Answer a question about now, of each view that it is of; blocks its caller."""
        return self.runtime.ask_each(question, timeout_s)

    # -- views -----------------------------------------------------------------------------------

    def add_view(self, view: View) -> str:
        """Add a view; return what was done. Raises QuestionError and ViewError."""
        added = self._located(view)
        check_foreign(self._node, (*self.runtime.views(), added))
        self.runtime.add_view(added)
        self._outlets.open(view.name, own_topics=True)
        for name in (*HEALTH_IDS, *(one.id for one in self.questions() if one.is_of(view.name))):
            self._outlets.offer(name, view.name)
        return f"added view '{view.name}'{self._changed()}"

    def remove_view(self, name: str) -> str:
        """Remove a view; return what was done. Raises QuestionError."""
        self.runtime.remove_view(name)
        self._outlets.close(name)
        if self.corrector is not None:
            self.corrector.looks.forget_view(name)
        return f"removed view '{name}'{self._changed()}"

    def _located(self, view: View) -> View:
        found = located(self._node, view, self._transport)
        if self._reuse.mode == VECTORS and found.camera[1] == "raw":
            whose = f"view '{view.name}': " if view.name else ""
            raise QuestionError(f"{whose}reuse: vectors needs a video in H.264 (image_transport "
                                "ffmpeg, foxglove or compressed); raw images have no motion "
                                "vectors: take pixels", "transport")
        return found

    def _views_of(self, question: Question) -> list[View]:
        return [view for view in self.runtime.views() if question.is_of(view.name)]

    # -- corrections -----------------------------------------------------------------------------

    def correct(self, question_id: str, view: str, answer: str, start_ns: int, end_ns: int
                ) -> tuple[Correction, str]:
        """Keep what is right; return it and what to say. Raises ValueErrors and Refused."""
        corrector, question = self._taught(), self.find(question_id)
        views = self._views_of(question)
        names = [one.name for one in views]
        if view and view not in names:
            raise CorrectionError(f"'{question_id}' is not asked of a view '{view}' (it is of: "
                                  f"{', '.join(filter(None, names)) or 'the only one'})")
        views = [one for one in views if view in ("", one.name)]
        latest = {one.name: self._outlets.latest(one.name).get(question_id) for one in views}
        said = {name: one.answer for name, one in latest.items() if one is not None}
        correction, told = corrector.correct(
            question, views, answer, said, start_ns, end_ns,
            newest_from_ns=self._now_ns() - round(self.runtime.settings.max_age_s * NS))
        if self._learner is not None:
            self._learner.consider(correction)
        return correction, told

    def corrections(self, question_id: str, view: str) -> list[Correction]:
        """Return what was corrected. Raises Refused."""
        return self._taught().store.corrections(question_id, view)

    def undo_correction(self, number: int) -> Correction:
        """Take a correction back, the newest for 0. Raises CorrectionError and Refused."""
        gone = self._taught().store.remove(number)
        if self._learner is not None:
            self._learner.consider(gone)
        return gone

    def undo_learning(self, question_id: str, view: str) -> str:
        """Answer as before anything was learned; return what was done.

        Raises QuestionError, LearnedError, Refused and OSError.
        """
        self._taught()
        if self._learner is None:
            raise Refused("nothing is learned: set the parameter learn to on")
        views = [one.name for one in self._views_of(self.find(question_id))]
        if not view and len(views) == 1:
            view = views[0]
        return self._learner.undo(question_id, view)

    def learning(self) -> dict[str, Any]:
        """Return what is learned, for JSON (see Learner.state); empty where nothing is."""
        return self._learner.state() if self._learner is not None else {}

    def _taught(self) -> Corrector:
        if self.corrector is None:
            raise Refused("corrections are not kept: set the parameter learn_dir to a folder")
        return self.corrector

    # -- inside ----------------------------------------------------------------------------------

    def _begin(self, question: Question) -> None:
        self._offer(question)
        self._gate.declare(question)

    def _offer(self, question: Question) -> None:
        for view in self._views_of(question):
            self._outlets.offer(question.id, view.name)

    def _replace(self, question: Question) -> str:
        changes = {name: getattr(question, name) for name in question.__dataclass_fields__}
        old = self.find(question.id)
        self.runtime.replace_question(question.id, **changes)
        self._offer(question)
        if not question.asks_the_same(old):
            self._outlets.forget(question.id)
            if self.corrector is not None:
                self.corrector.looks.forget(question.id)
        return self._changed()

    def _announce(self) -> None:
        self._outlets.questions(self.questions(), self.runtime.views(), self._now_ns())

    def _changed(self) -> str:
        """Announce the questions and keep them; return what to add to a reply."""
        self._announce()
        try:
            self._keeper.changed(self.runtime.save_questions)
        except QuestionError as error:
            self._report(str(error))
            return f", but it will not last: {error}"
        return ""

    def _now_ns(self) -> int:
        return self._node.get_clock().now().nanoseconds

    def _loaded(self, engine: EngineLike) -> EngineLike:
        """Store the engine's facts for diagnostics; log what a user should know about it."""
        told = {name: getattr(engine, name, None) for name in ("device", "dtype", "checked")}
        self.engine = {name: str(value) for name, value in told.items() if value is not None}
        if self.corrector is not None:
            self.corrector.model = ModelId(engine.name, engine.fingerprint, engine.pixel_budget,
                                           language_of(engine))
        if self._reuse.on:
            measured = getattr(engine, "reuse_measured", None)
            self.engine["reuse"] = measured_text(measured, self._reuse)
        notes = list(getattr(engine, "remarks", ()))
        for note in notes:
            self._node.get_logger().warning(note)
        if "checked" in self.engine and self.engine["checked"] not in notes:  # it passed
            self._node.get_logger().info(self.engine["checked"])
        if notes:
            self.engine["notes"] = "; ".join(notes)
        return engine

    def _tell_speed(self) -> None:
        """Log what this machine can hold, and keep it for diagnostics where it is too little."""
        speed = self.runtime.speed
        if speed is None or not speed.ticks:
            return
        self.engine["load"] = f"{100 * speed.load:.0f}%"
        if speed.load <= 1.0:
            self._node.get_logger().info(str(speed))
            return
        self._node.get_logger().warning(str(speed))
        self.engine["measured at start"] = str(speed)

    def _follow_events(self, decision: Decision) -> None:
        for event in self._events.update(decision):
            self._outlets.event(event)
            if self._recorder is not None:
                self._recorder.event(event)

    def _report(self, message: str) -> None:
        if self._reports.passes(message):
            self._node.get_logger().error(message)


def load_engine(model: str, pixel_budget: int | None, **settings: Any) -> EngineLike:
    """Load the engine that a checkpoint is for; imports MLX. settings: see engine.loading.load."""
    from ..engine import remarks
    from ..engine.loading import load

    remarks.LOG.addHandler(logging.NullHandler())  # the session tells them
    return load(model, pixel_budget, **settings)


def head_folders(name: str) -> list[Path]:
    """Return the folders of heads: the shipped one for an empty name, none for ``none``."""
    if name == "none":
        return []
    folder = Path(name).expanduser() if name else resources.share_file("heads")
    if not folder.is_dir():
        raise ParameterError(f"heads_dir: there is no folder '{folder}'")
    return [folder]
