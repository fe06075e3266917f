"""What the page shows, kept up to date from any thread and read as changes since a version.

A reader that is slow loses nothing but the steps in between: it gets the newest of each row. All
that is kept is bounded: a minute of history in half-second steps, and the last events.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..decision import NOT_ASKED, TIER_HEALTH, UNKNOWN, YES, Decision
from ..events import Event
from ..frames import NS
from ..kinds import Score, kind_of, level_values
from ..question_book import MAX_QUESTIONS
from ..questions import RESERVED_PREFIX, Question
from ..runtime.system import System, finite
from ..sources.truth import TruthRow
from ..views import View, address
from .source import CHANNELS
from .state import PageState, Strain, state_of
from .truth import RecentTruth, answer_of

HISTORY_S, STEP_S = 60.0, 0.5
"""A row's history: how far back, and the width of one step, seconds."""

EVENTS = 200
"""Events kept for a page that is opened later."""

DECISIONS = 20_000
"""Decisions kept to be saved: about five minutes of 16 questions at 4 Hz."""

BAND = 1000
"""Steps kept of each question's timeline: one for a new answer, and one a minute."""

BAND_S, BAND_P = 60.0, 0.2
"""A new step also begins after this long, or, five seconds after the last, with p so far off."""

TRUTH_S = 2.0
"""Truth that is not told again for so long is not known any more."""

MERGE_S = 1.0
"""Questions that become unknown within this time are one event: the camera stopped, say."""

MEMO_S = 0.1
"""Readers that ask within this time for the same changes get the same text."""

HELD_S = 0.5
"""A correction that was held down for less is of what is seen now, seconds."""

ORPHAN_S = 2.0
"""A decision may come before the news of its question by this much."""

FLAP_S, FLAPS = 10.0, 3
"""A question whose answer has changed more often than that within this time is flapping."""


@dataclass
class _Row:
    version: int = 0
    decision: Decision | None = None
    arrived_s: float = 0.0
    elapsed_s: float = 0.0
    ends_ns: deque[int] = field(default_factory=lambda: deque(maxlen=12))
    ended_s: float = 0.0
    history: deque[list] = field(
        default_factory=lambda: deque(maxlen=round(HISTORY_S / STEP_S)))
    band: deque[tuple[float, str, float | None]] = field(
        default_factory=lambda: deque(maxlen=BAND))


@dataclass
class _Score:
    """What was true of `question`, [t, answer], and how many of its answers were right."""

    question: Question
    band: deque[tuple[float, str]] = field(default_factory=lambda: deque(maxlen=BAND))
    told_s: float = 0.0
    right: int = 0
    judged: int = 0


class Board:
    """The newest of everything. Thread-safe; `clock` returns seconds and never goes back."""

    def __init__(self, clock: Callable[[], float] = time.monotonic,
                 wall: Callable[[], float] = time.time) -> None:
        self._clock, self._wall = clock, wall
        self._lock = threading.Lock()
        self._version = 0
        self._questions: dict[str, Question] = {}
        self._questions_version = 0
        self._views: tuple[View, ...] = ()
        self._rows: dict[str, _Row] = {}
        self._system = System()
        self._system_version = 0
        self._link: dict[str, Any] = {"ok": False, "message": "starting"}
        self._link_version = 0
        self._strain = Strain()
        self._state: PageState | None = None
        self._state_version, self._judged_s = 0, -MEMO_S
        self._changed_s: dict[str, deque[float]] = {}  # when each answer changed lately
        self._flapping: dict[str, dict[str, Any]] = {}  # the event that takes further changes
        self._decisions: deque[tuple[float, Decision]] = deque(maxlen=DECISIONS)
        self._truths: dict[str, RecentTruth] = {}  # by view
        self._scores: dict[str, _Score] = {}
        self._events: deque[dict[str, Any]] = deque(maxlen=EVENTS)
        self._event_count = 0
        self._memo: dict[tuple[int, int], tuple[float, str]] = {}

    # -- what happens ----------------------------------------------------------------------------

    def decision(self, decision: Decision, elapsed_s: float = 0.0) -> None:
        """Take a decision that was made `elapsed_s` ago."""
        with self._lock:
            name = address(decision.view, decision.question_id)
            row = self._rows.get(name)
            if row is None:
                if len(self._rows) >= 2 * MAX_QUESTIONS:
                    return
                row = self._rows[name] = _Row()
            before, now_s = row.decision, self._clock()
            self._decisions.append((self._wall() - max(0.0, elapsed_s), decision))
            self._judge_answer(name, decision)
            row.decision, row.arrived_s, row.elapsed_s = decision, now_s, max(0.0, elapsed_s)
            row.version = self._next()
            if decision.answer != UNKNOWN:
                if row.ends_ns and decision.t_end_ns < row.ends_ns[-1]:
                    row.ends_ns.clear()  # frame time went backwards
                if not row.ends_ns or decision.t_end_ns > row.ends_ns[-1]:
                    row.ends_ns.append(decision.t_end_ns)
                    row.ended_s = now_s
            p = finite(decision.p)
            _note(row.history, now_s - row.elapsed_s, drawn(decision))
            _step(row.band, round(self._wall() - row.elapsed_s, 2), decision.answer, p)
            if before is not None and before.answer != decision.answer:
                self._answer_event(before, decision)

    def questions(self, questions: Iterable[Question], views: Sequence[str] = ("",)) -> None:
        """Take the questions that stand now, in order, and the names of the views."""
        questions = list(questions)
        with self._lock:
            old, self._questions = self._questions, {
                address(view, q.id): q for view in views for q in questions if q.is_of(view)}
            now_s = self._clock()
            kept = {}
            for name, row in self._rows.items():
                question, before = self._questions.get(name), old.get(name)
                if _is_health(name):
                    kept[name] = row
                elif question is not None:
                    if before is None:
                        keep = now_s - row.arrived_s < ORPHAN_S
                    else:
                        keep = question.asks_the_same(before)
                    if keep:
                        kept[name] = row
                elif before is None and now_s - row.arrived_s < ORPHAN_S:
                    kept[name] = row
            self._rows = kept
            self._changed_s = {k: v for k, v in self._changed_s.items() if k in self._questions}
            self._flapping = {k: v for k, v in self._flapping.items()
                              if not k or k in self._questions}
            self._questions_version = self._next()

    def views(self, views: Iterable[View]) -> None:
        """Take what the views show, for a file of questions."""
        with self._lock:
            self._views = tuple(views)

    @property
    def model(self) -> str:
        """Name of the model that answers; empty until it is loaded."""
        with self._lock:
            return self._system.model

    def system(self, system: System) -> None:
        """Take how the system does."""
        with self._lock:
            self._system = system
            self._strain.note(system, self._clock())
            self._system_version = self._next()

    def truth(self, row: TruthRow, views: Sequence[str] = ("",)) -> None:
        """Take what is true of a camera that these views show whole."""
        with self._lock:
            now_s = self._wall()
            for view in views:
                self._truths.setdefault(view, RecentTruth()).take(row)
            for name, question in self._questions.items():
                view = name.rpartition("/")[0]
                answer = answer_of(question, row) if view in views else None
                if answer is None:
                    continue
                score = self._scores.setdefault(name, _Score(question))
                if not score.question.asks_the_same(question):
                    continue  # it was edited: the truth is of what it asked before
                if score.band and now_s - score.told_s > TRUTH_S:
                    score.band.append((score.told_s, UNKNOWN))
                score.told_s = now_s
                if not score.band or score.band[-1][1] != answer:
                    score.band.append((now_s, answer))

    def link(self, ok: bool, message: str) -> None:
        """Record whether the system can be reached, and the message about it."""
        with self._lock:
            link = {"ok": ok, "message": message}
            if link != self._link:
                self._link, self._link_version = link, self._next()

    def event(self, kind: str, name: str, text: str, level: str = "info") -> None:
        """Add an event; `level` is info, good or warn."""
        with self._lock:
            self._add_event(kind, name, text, level)

    def machine_event(self, event: Event) -> None:
        """Add an event of a state machine over decisions."""
        counted = f", {event.counter} {event.count}" if event.counter else ""
        self.event("event", event.event_id, f"{event.from_state} → {event.to_state}{counted}",
                   "good" if event.counter else "info")

    # -- what is read ----------------------------------------------------------------------------

    def question(self, name: str) -> Question | None:
        """Return a standing question by the name of its row: its id, or `view/id`."""
        with self._lock:
            return self._questions.get(name)

    def span(self, name: str, held_s: float) -> tuple[int, int]:
        """Return from when to when, in frame time, the last `held_s` seconds of a row were.

        Up to the newest evidence of its answer. Both are 0 for what is seen now: where `held_s` is
        too short to hold more than one look.
        """
        with self._lock:
            row = self._rows.get(name)
            end_ns = row.ends_ns[-1] if row is not None and row.ends_ns else 0
        if held_s < HELD_S or not end_ns:
            return 0, 0
        return max(1, end_ns - round(held_s * NS)), end_ns

    def ids(self) -> frozenset[str]:
        """Return the ids of the standing questions."""
        with self._lock:
            return frozenset(question.id for question in self._questions.values())

    def channels(self) -> tuple[str, ...]:
        """Return the channels of pictures that there are: of all, and of each of several views."""
        with self._lock:
            views = tuple(self._system.views)
        return (*CHANNELS, *(f"{channel}/{view}" for channel in CHANNELS for view in views))

    def standing(self) -> tuple[Question, ...]:
        """Return the standing questions in order."""
        with self._lock:
            return tuple({question.id: question for question in self._questions.values()}.values())

    def described(self) -> tuple[View, ...]:
        """Return the views that have names."""
        with self._lock:
            return tuple(view for view in self._views if view.name)

    def decisions(self) -> tuple[Decision, ...]:
        """Return the last decisions, oldest first."""
        with self._lock:
            return tuple(decision for _, decision in self._decisions)

    def events(self) -> list[dict[str, Any]]:
        """Return the last events, oldest first: {n, t (epoch, s), kind, ids, text, level}."""
        with self._lock:
            return [_event(event) for event in self._events]

    def timeline(self) -> dict[str, Any]:
        """Return the answers of the last hours: {now, bands: {id: [[t, answer, p], ...]}}.

        Each answer holds from its `t` (epoch, seconds) until the next one's. Where truth is told:
        `truth`: {id: [[t, answer], ...]}, `scores`: {id: [right answers, answers judged]}.
        """
        with self._lock:
            now_s = self._wall()
            return {"now": now_s, "bands": {
                name: list(self._rows[name].band) if name in self._rows else []
                for name in self._questions},
                "truth": {name: [*score.band, (score.told_s, UNKNOWN)]
                          if now_s - score.told_s > TRUTH_S else list(score.band)
                          for name, score in self._shown_scores()},
                "scores": {name: [score.right, score.judged]
                           for name, score in self._shown_scores()}}

    def moment(self, t_s: float) -> list[dict[str, Any]]:
        """Return what was answered to each question at a time (epoch, seconds).

        {id, text, answer, p, truth}, and of a decision that is still kept also {p_raw, tier, age,
        reason, options, probabilities, value}. `answer` is None where there was none yet.
        """
        with self._lock:
            newest: dict[str, Decision] = {}
            missing = set(self._questions)
            for at_s, decision in reversed(self._decisions):
                name = address(decision.view, decision.question_id)
                if at_s <= t_s and name in missing:
                    missing.remove(name)
                    newest[name] = decision
                if not missing:
                    break
            scores = dict(self._shown_scores())
            out = []
            for name, question in self._questions.items():
                band = self._rows[name].band if name in self._rows else ()
                _, answer, p = _at(band, t_s) or (t_s, None, None)
                truth = _at(scores[name].band, t_s) if name in scores else None
                said = {"id": name, "text": question.text, "answer": answer, "p": p,
                        "truth": truth[1] if truth and truth[1] != UNKNOWN else None}
                if answer is not None and name in newest:
                    said |= _numbers(newest[name])
                out.append(said)
            return out

    def _shown_scores(self) -> list[tuple[str, _Score]]:
        return [(name, score) for name, score in self._scores.items()
                if name in self._questions and score.question.asks_the_same(self._questions[name])]

    def _judge_answer(self, name: str, decision: Decision) -> None:
        """Count an answer that the truth is known of; what is unknown is not judged."""
        score, question = self._scores.get(name), self._questions.get(name)
        if (score is None or question is None or decision.answer == UNKNOWN
                or not score.question.asks_the_same(question)):
            return
        right = self._truths[decision.view].answer(question, decision.t_end_ns)
        if right is not None:
            score.judged += 1
            score.right += decision.answer == right

    def changes(self, since: int) -> tuple[int, str]:
        """Return (version, JSON text) of what changed after version `since`, empty for nothing.

        0 asks for everything, with the history. The next call passes the version returned.
        """
        with self._lock:
            now_s = self._clock()
            if now_s - self._judged_s >= MEMO_S or not since:
                self._judge(now_s)
            if since >= self._version:
                return self._version, ""
            key = (since, self._version)
            made_s, text = self._memo.get(key, (-MEMO_S, ""))
            if now_s - made_s >= MEMO_S:
                text = json.dumps(self._message(since, now_s), ensure_ascii=False,
                                  allow_nan=False, separators=(",", ":"))
                self._memo = {k: v for k, v in self._memo.items() if k[1] == self._version}
                self._memo[key] = (now_s, text)
            return self._version, text

    def _message(self, since: int, now_s: float) -> dict[str, Any]:
        message: dict[str, Any] = {"type": "state", "version": self._version}
        if self._questions_version > since:
            message["questions"] = [_question(name, q) for name, q in self._questions.items()]
        if self._system_version > since:
            message["system"] = self._system.to_dict()
        if self._link_version > since or since == 0:
            message["link"] = self._link
        if self._state_version > since:
            message["state"] = self._state.to_dict()
        shown = {name: row for name, row in self._rows.items()
                 if name in self._questions or _is_health(name)}
        # Rows that were held back until their question was known come with the question.
        fresh = self._questions_version > since
        rows = [self._row(name, row, now_s) for name, row in shown.items()
                if row.version > since or fresh]
        if rows:
            message["rows"] = rows
        if since == 0:
            message["history"] = {
                name: [[round(t - now_s, 2), p] for t, p in row.history if now_s - t < HISTORY_S]
                for name, row in shown.items() if not _is_health(name)}
        events = [_event(event) for event in self._events if event["version"] > since]
        if events:
            message["events"] = events
        return message

    def _judge(self, now_s: float) -> None:
        """Bring the state of the whole up to date: it also changes by time alone."""
        self._judged_s = now_s
        reasons, waiting = {}, []
        for name, question in self._questions.items():
            row = self._rows.get(name)
            if row is None or row.decision is None:
                waiting.append(name)
                continue
            age_s = row.decision.age_s + now_s - row.arrived_s + row.elapsed_s
            if row.decision.status == NOT_ASKED:
                continue  # as its condition wants it
            if row.decision.answer == UNKNOWN:
                reasons[name] = row.decision.reason
            elif age_s > max(self._system.max_age_s, 2 / question.rate_hz):
                reasons[name] = "no answer lately"
        state = state_of(self._link, self._system, reasons, waiting, len(self._questions),
                         dropped=self._strain.dropped(now_s), put_off=self._strain.put_off(now_s))
        if state != self._state:
            self._state, self._state_version = state, self._next()

    def _row(self, name: str, row: _Row, now_s: float) -> dict[str, Any]:
        d = row.decision
        later_s = now_s - row.arrived_s + row.elapsed_s
        ends, rate_hz = row.ends_ns, 0.0
        if len(ends) > 1:
            step_s = (ends[-1] - ends[0]) / NS / (len(ends) - 1)
            if now_s - row.ended_s < max(3.0, 3 * step_s):
                rate_hz = 1 / step_s
        return {
            "id": name, "answer": d.answer, "p": finite(d.p), "p_raw": finite(d.p_raw),
            "probabilities": [finite(p) for p in d.probabilities],
            "value": finite(d.value), "answers": list(d.answers), "drawn": drawn(d),
            "tier": d.tier,
            "depth": d.depth, "age": finite(d.age_s + later_s),
            "held": finite((d.t_decided_ns - d.since_ns) / NS + later_s) if d.since_ns else None,
            "began": (finite((d.t_decided_ns - d.t_onset_ns) / NS + later_s)
                      if d.t_onset_ns else None),
            "began_sd": d.t_onset_sd_s, "rate": round(rate_hz, 2), "model": d.model,
            "reason": d.reason, "status": d.status, "contradicts": list(d.contradicts)}

    # -- events ----------------------------------------------------------------------------------

    def _answer_event(self, before: Decision, now: Decision) -> None:
        name = address(now.view, now.question_id)
        if now.tier == TIER_HEALTH and _is_health(name):
            if UNKNOWN not in (before.answer, now.answer):  # that is shown by the questions
                bad = now.answer == YES
                self._add_event("camera", name, "began" if bad else "ended",
                                "warn" if bad else "good")
        elif NOT_ASKED in (before.status, now.status):
            if now.status == NOT_ASKED:
                self._merge_event("not asked", name, f"not asked: {now.reason}", "info")
            else:
                self._merge_event("answered", name, "answered", "info")
        elif self._flaps(name, before.answer, now.answer):
            pass
        elif now.answer == UNKNOWN:
            self._merge_event("unknown", name, f"unknown: {now.reason}", "warn")
        elif before.answer == UNKNOWN:
            self._merge_event("answered", name, "answered", "good")
        else:
            self._add_event("answer", name, f"{before.answer} → {now.answer}", "info")

    def _flaps(self, name: str, before: str, now: str) -> bool:
        """Put a change of an answer that flaps into the line of its flapping; tell whether so."""
        wall_s, now_s = self._wall(), self._clock()
        times = self._changed_s.setdefault(name, deque(maxlen=FLAPS + 1))
        times.append(now_s)
        # Questions that come and go together, on a machine that is too slow, share a line.
        shared = UNKNOWN in (before, now)
        key = "" if shared else name
        line = self._flapping.get(key)
        if line is not None and (now_s - line["last_s"] >= FLAP_S
                                 or line["n"] < self._events[0]["n"]):
            del self._flapping[key]
            line = None
        if len(times) <= FLAPS or now_s - times[0] >= FLAP_S:
            if line is None or name not in line["ids"] or now_s - times[-2] >= FLAP_S:
                return False
        if line is None:
            self._add_event("flapping", name, "", "warn")
            line = self._flapping[key] = self._events[-1]
            line |= {"began_s": wall_s - (now_s - times[0]), "changes": FLAPS}
        if name not in line["ids"]:
            line["ids"] = [*line["ids"], name]
        lasted_s = max(1, round(wall_s - line["began_s"]))
        line |= {"last_s": now_s, "changes": line["changes"] + 1, "version": self._next()}
        what = "known and unknown by turns" if shared else f"flaps: {before} ↔ {now}"
        line["text"] = (f"{what}, {line['changes']} changes in "
                        + (f"{lasted_s} s" if lasted_s < 120 else f"{round(lasted_s / 60)} min"))
        return True

    def _merge_event(self, kind: str, name: str, text: str, level: str) -> None:
        last = self._events[-1] if self._events else None
        if last and last["kind"] == kind and self._wall() - last["t"] < MERGE_S:
            if name not in last["ids"]:
                last["ids"] = [*last["ids"], name]
            last["version"] = self._next()
        else:
            self._add_event(kind, name, text, level)

    def _add_event(self, kind: str, name: str, text: str, level: str) -> None:
        self._event_count += 1
        self._events.append({"n": self._event_count, "t": self._wall(), "kind": kind,
                             "ids": [name], "text": text, "level": level,
                             "version": self._next()})

    def _next(self) -> int:
        self._version += 1
        return self._version


def _at(band: Iterable[tuple], t_s: float) -> tuple | None:
    """Return the step of a band that holds at a time, None before the first."""
    found = None
    for step in band:
        if step[0] > t_s:
            break
        found = step
    return found


def _numbers(d: Decision) -> dict[str, Any]:
    return {"answer": d.answer, "p": finite(d.p), "p_raw": finite(d.p_raw), "tier": d.tier,
            "age": finite(d.age_s), "reason": d.reason, "options": list(d.options),
            "probabilities": [finite(p) for p in d.probabilities], "value": finite(d.value)}


def _is_health(name: str) -> bool:
    """Tell whether a row is of the camera's health."""
    return name.rpartition("/")[2].startswith(RESERVED_PREFIX)


def _question(name: str, question: Question) -> dict[str, Any]:
    return {"id": name, "view": name.rpartition("/")[0], "entry": question.to_dict(),
            "text": question.text, "kind": question.kind,
            "options": list(question.options), "tier": question.tier,
            "head": question.head, "rate_hz": question.rate_hz, "enter": question.enter,
            "exit": question.exit, "ema": question.ema,
            "thresholds": list(question.thresholds), "bands": _bands(question),
            "values": list(level_values(question.options))
            if isinstance(kind_of(question), Score) else []}


def _bands(question: Question) -> list[tuple[float, float]]:
    """Return (down, up) of each threshold of a score as shares of its range, as `drawn` is."""
    kind = kind_of(question)
    if not isinstance(kind, Score):
        return []
    return [tuple(_share(question.options, at) for at in band) for band in kind.bands(question)]


def _share(levels: Sequence[str], value: float) -> float:
    low, *_, high = level_values(levels)
    return min(1.0, max(0.0, (value - low) / (high - low)))


def drawn(decision: Decision) -> float | None:
    """Return what is drawn of a decision, 0 to 1: p; of a score where its value is in its range."""
    if math.isfinite(decision.value):
        return _share(decision.options, decision.value)
    return finite(decision.p)


def _event(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: event[name] for name in ("n", "t", "kind", "ids", "text", "level")}


def _note(history: deque[list], t_s: float, p: float | None) -> None:
    """Put a value into its step; a step that holds one keeps the newest."""
    if history and t_s - history[-1][0] < STEP_S and (history[-1][1] is None) == (p is None):
        history[-1][1] = p
    elif not history or t_s >= history[-1][0]:
        history.append([t_s, p])


def _step(band: deque[tuple[float, str, float | None]], t_s: float, answer: str,
          p: float | None) -> None:
    """Add a step to a timeline, where it says more than the last one."""
    if band:
        last_s, last, last_p = band[-1]
        if t_s < last_s:
            return
        moved = p is not None and last_p is not None and abs(p - last_p) >= BAND_P
        if answer == last and t_s - last_s < (5.0 if moved else BAND_S):
            return
    band.append((t_s, answer, p))
