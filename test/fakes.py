"""A simulated clock, camera and engine: runtime tests take no real time and are exact."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from vlm_decisions.decision import Decision
from vlm_decisions.frames import NS, Frame
from vlm_decisions.kinds import KINDS
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.reuse import ReuseStats
from vlm_decisions.runtime import Runtime
from vlm_decisions.runtime.heads import Head, write_head
from vlm_decisions.runtime.settings import RuntimeSettings

START_NS = 1_000 * NS


class SimClock:
    """Time that passes only when told to; events due on the way happen in order."""

    def __init__(self) -> None:
        self.now_ns = START_NS
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def __call__(self) -> int:
        return self.now_ns

    def seconds(self) -> float:
        return self.now_ns / NS

    def at(self, t_s: float, event: Callable[[], None]) -> None:
        """Let `event` happen at `t_s` seconds after the start."""
        self._count += 1
        heapq.heappush(self._events, (START_NS + round(t_s * NS), self._count, event))

    def advance(self, seconds: float) -> None:
        """Let time pass, for example while an engine computes."""
        self.until_ns(self.now_ns + round(seconds * NS))

    def until(self, t_s: float) -> None:
        self.until_ns(START_NS + round(t_s * NS))

    def until_ns(self, target_ns: int) -> None:
        while self._events and self._events[0][0] <= target_ns:
            due_ns, _, event = heapq.heappop(self._events)
            self.now_ns = max(self.now_ns, due_ns)
            event()
        self.now_ns = max(self.now_ns, target_ns)

    def next_event_s(self) -> float | None:
        return (self._events[0][0] - START_NS) / NS if self._events else None


class Camera:
    """Sharp, noisy images; `shade` shifts their mean colour, which the fake engine sees."""

    def __init__(self, size: tuple[int, int] = (48, 64), seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._scene = self._rng.integers(60, 200, (*size, 1)).repeat(3, axis=2)
        self.shade = np.zeros(3)
        self.cover: int | None = None

    def image(self) -> np.ndarray:
        if self.cover is not None:
            return np.full(self._scene.shape, self.cover, np.uint8) + self._noise()
        return (self._scene + self.shade).clip(2, 250).astype(np.uint8) + self._noise()

    def frame(self, stamp_ns: int) -> Frame:
        return Frame(self.image(), stamp_ns, "camera")

    def _noise(self) -> np.ndarray:
        return self._rng.integers(0, 3, self._scene.shape).astype(np.uint8)


@dataclass
class Vision:
    """Stands for a vision group: pooled features of the mean colour."""

    mean: np.ndarray
    max: np.ndarray
    serial: int
    encoded: float = 1.0


@dataclass
class Readout:
    logits: np.ndarray
    depth: int = 4


class Overflow(ValueError):
    """What the fake engine raises for a text that holds 'overflow'."""


@dataclass
class FakeEngine:
    """An engine with set costs and answers, and a log of what was asked of it.

    `answer(text, vision)` gives the probability of yes (a choice or score: the logits; an any_of:
    P(yes) of each label). `fail` maps a call's name to the exception that it raises.
    """

    clock: SimClock | None = None
    encode_s: float = 0.0
    append_s: float = 0.0
    ask_s: float = 0.0
    each_s: float = 0.0
    answer: Callable = lambda text, vision: 0.9
    name: str = "fake"
    fingerprint: str = "f00d"
    pixel_budget: int = 4096
    n_layers: int = 4
    n_frames: int = 2
    token_pixels: int = 8
    trunk: int = 0  # tokens that all questions begin with
    log: list[tuple] = field(default_factory=list)
    fail: dict[str, Exception] = field(default_factory=dict)

    def encode_many(self, groups, **sized):
        return [self.encode(frames, **sized) for frames in groups]

    def encode(self, frames, **sized):
        self._spend("encode", self.encode_s)
        mean = frames[1].reshape(-1, 3).mean(axis=0).astype(np.float32)
        return Vision(mean, mean + 1, sum(1 for entry in self.log if entry[0] == "encode"))

    def reusing(self, settings, pixel_budget=None):
        self.log.append(("reusing", settings))
        return FakeReusing(self)

    def tokens(self, query):
        word, _, tokens = query.text.partition(" ")
        return int(tokens) if word == "tokens" else 10

    def token_counts(self, queries):
        """Return counts of questions that all begin with the same `trunk` tokens."""
        own = [self.tokens(query) - self.trunk for query in queries]
        return [(more + self.trunk * (len(own) == 1), more + self.trunk * (k == 0))
                for k, more in enumerate(own)]

    def stream(self, window_groups, mode):
        self.log.append(("stream", window_groups, mode))
        return FakeStream(self, window_groups)

    def _spend(self, what: str, seconds: float, *details) -> None:
        self.log.append((what, *details))
        if self.clock is not None and seconds:
            self.clock.advance(seconds)
        if what in self.fail:
            raise self.fail[what]

    def calls(self, what: str) -> list[tuple]:
        return [entry for entry in self.log if entry[0] == what]


class FakeReusing:
    """Gives the features of the group before, as its own, where the mean colour is the same."""

    def __init__(self, engine: FakeEngine) -> None:
        self.engine, self.stats, self.newest = engine, ReuseStats(), None
        self.refresh = False

    def encode(self, frames):
        group = self.engine.encode(frames)
        if self.newest is None or np.abs(group.mean - self.newest.mean).max() > 1:
            self.newest = group
            return group
        return replace(self.newest, encoded=0.0)

    def idle(self):
        """Encode the newest group anew, if told to."""
        if not self.refresh:
            return False
        self.refresh = False
        self.newest = replace(self.newest, mean=self.newest.mean + 0.01)
        self.engine.log.append(("refresh",))
        return True


@dataclass
class Timed:
    """A group in a stream."""

    group: Vision
    t_start_ns: int
    t_end_ns: int
    left_out_ns: int = 0


class FakeStream:
    """Holds what was appended, up to two windows. As in the engine's, appending is lazy.

    A group is logged as appended, and costs `append_s`, when it goes through the model: with the
    next questions. A fault ("append" when it is appended, "pass" in the model) leaves the groups.
    """

    def __init__(self, engine: FakeEngine, window_groups: int) -> None:
        self.engine, self.window_groups = engine, window_groups
        self.history: list[Timed] = []
        self.done = 0
        self.origin_ns = 0
        self.idles = 0

    def append(self, group, stamps_ns, *, left_out_ns=0):
        if "append" in self.engine.fail:
            raise self.engine.fail["append"]
        if self.history:
            left_out_ns += self.history[-1].left_out_ns
        timed = Timed(group, *stamps_ns, left_out_ns)
        if self.history and timed.t_end_ns <= self.history[-1].t_end_ns:
            raise ValueError("group times must grow")
        if not self.history:
            self.origin_ns = timed.t_start_ns
        if len(self.history) - self.done >= self.window_groups:
            self.history, self.done = self.history[-self.window_groups :], 0
        self.history.append(timed)
        if len(self.history) > 2 * self.window_groups:
            self.history = self.history[-self.window_groups :]
            self.done = max(0, self.done - self.window_groups - 1)

    def ask(self, queries):
        if not self.history:
            raise ValueError("no groups")
        engine = self.engine
        for timed in self.history[self.done :]:
            middle_s = (timed.t_start_ns + timed.t_end_ns - 2 * self.origin_ns) / (2 * NS)
            middle_s -= timed.left_out_ns / NS  # as the model is told
            engine._spend("pass", engine.append_s, timed.group.serial, middle_s)
        self.done = len(self.history)
        read = sum(added for _, added in engine.token_counts(queries))
        seconds = engine.ask_s + engine.each_s * read / 10
        engine._spend("ask", seconds, tuple(query.text for query in queries))
        for query in queries:
            if "overflow" in query.text:
                raise Overflow(f"'{query.text}' is too long")
        return [self._readout(query) for query in queries]

    def _readout(self, query) -> Readout:
        value = self.engine.answer(query.text, self.history[-1].group)
        if not KINDS[query.kind].exclusive:
            value = np.asarray(value, float)
            return Readout(np.stack([np.log(value) - np.log1p(-value), np.zeros(len(value))], 1))
        if query.options:
            return Readout(np.asarray(value, float))
        return Readout(np.array([np.log(value) - np.log1p(-value), 0.0]))

    def reset(self):
        self.engine._spend("reset", 0.0)
        self.history, self.done = [], 0

    def start_over(self):
        self.engine._spend("reset", 0.0)
        self.history, self.done = self.history[-self.window_groups :], 0

    def idle(self):
        self.engine.log.append(("idle",))
        self.idles += 1
        return False


class Bench:
    """A runtime on simulated time, stepped by hand, with all that came out of it."""

    def __init__(self, questions: str | QuestionBook, engine: FakeEngine | None = None, **settings):
        self.clock = SimClock()
        self.engine = engine or FakeEngine()
        self.engine.clock = self.clock
        self.camera = Camera()
        self.decisions: list[Decision] = []
        self.errors: list[str] = []
        self.head_paths: tuple = settings.pop("head_paths", ())
        book = QuestionBook.loads(questions) if isinstance(questions, str) else questions
        self.runtime = Runtime(
            lambda: self.engine,
            book,
            on_decision=self.decisions.append,
            on_error=self.errors.append,
            head_paths=self.head_paths,
            settings=RuntimeSettings(**settings),
            clock_ns=self.clock,
            timer=self.clock.seconds,
        )

    def film(
        self, begin_s: float, end_s: float, fps: float = 8.0, delay_s: float = 0.0, **frame
    ) -> None:
        """Schedule frames stamped from `begin_s` on, arriving `delay_s` after their stamps."""
        count = round((end_s - begin_s) * fps)
        for index in range(count):
            t_s = begin_s + index / fps
            self.clock.at(t_s + delay_s, lambda t_s=t_s: self.shoot(t_s, **frame))

    def shoot(self, t_s: float) -> None:
        """Push the camera's image, stamped `t_s` seconds after the start."""
        self.runtime.push(self.camera.frame(START_NS + round(t_s * NS)))

    def run(self, until_s: float, check_s: float | None = 0.1) -> None:
        """Let everything happen up to `until_s`: events, groups as they come, freshness checks."""
        if check_s is not None:
            begin = self.clock.now_ns - START_NS
            for index in range(round((until_s - begin / NS) / check_s)):
                self.clock.at(begin / NS + (index + 1) * check_s, self.runtime.check_freshness)
        while True:
            while self.runtime.step():
                pass
            due_s = self.clock.next_event_s()
            if due_s is None or due_s > until_s:
                break
            self.clock.until(due_s)
        self.clock.until(until_s)

    def of(self, question_id: str) -> list[Decision]:
        return [d for d in self.decisions if d.question_id == question_id]

    def answers(self, question_id: str) -> list[str]:
        return [d.answer for d in self.of(question_id)]

    def times(self, question_id: str) -> list[float]:
        """Frame times (newest frame of the evidence) of the known answers, s after the start."""
        return [
            round((d.t_end_ns - START_NS) / NS, 4)
            for d in self.of(question_id)
            if d.answer != "unknown"
        ]


def person_head(tmp_path, **changes):
    """Write a head for `person` that says yes where the mean red is above 130."""
    fields = {
        "name": "person_v1",
        "question": "person",
        "pooling": "mean",
        "weight": np.array([1.0, 0.0, 0.0], np.float32),
        "bias": -130.0,
        "temperature": 10.0,
        "fingerprint": "f00d",
        "pixel_budget": 4096,
    }
    path = tmp_path / f"{changes.get('name', 'person_v1')}.npz"
    write_head(path, Head(**(fields | changes)))
    return path
