"""`vlm-decisions bench soak`: the whole node under random faults, as fast as the machine allows.

A driver sets the clock, delivers images one by one, and waits for the engine after each. So an
answer that is missing was lost by the program, not by a slow machine. Every few seconds of frame
time the driver causes one fault of a camera, a clock, a user or an engine. A judge (soak_judge.py)
gets every decision.
"""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from ...decision import Decision
from ...frames import FPS, NS
from ...questions import Question
from ...sim.script import Script
from ...sim.world import World
from .soak_judge import Judge

START_NS = 1_000_000 * NS
WEIGH_S = 30.0
"""Minimum time between measurements of memory."""
SIZES = ((160, 120), (320, 240), (640, 480), (644, 363), (1280, 720))
"""Width and height, pixels; one of them with rows that are no multiple of anything."""

POOL = 12
"""Images drawn of each size."""

CALM_S = 5.0
"""Undisturbed seconds of frame time after each fault, at least."""

RATES_HZ = (4.0, 2.0, 1.0, 0.5)

#: Of the questions added, by the remainder of their number; the others are yes/no.
_KINDS = {0: "choice", 1: "score", 2: "any_of"}


class Rig(Protocol):
    """The program under test, on a clock that the driver sets."""

    max_age_s: float
    bad_images: Sequence[str]
    encodings: Sequence[str]

    def time(self, now_ns: int) -> None:
        """Set the clock."""

    def image(self, rgb: np.ndarray, stamp_ns: int, encoding: str, padding: int) -> None:
        """Deliver a good image message with `padding` bytes after each row."""

    def bad_image(self, kind: str, stamp_ns: int) -> None:
        """Deliver one of `bad_images`. Raises AssertionError if it is not refused."""

    def settle(self) -> None:
        """Wait until the engine has finished its work."""

    def check(self) -> None:
        """Let the program check freshness, and do its periodic work."""

    def listen(self, listener: Callable[[Decision], None]) -> None:
        """Register a function that gets every decision, from any thread."""

    def questions(self) -> Sequence[Question]:
        """Return the standing questions."""

    def add(self, question: Question) -> None:
        """Add a question. Raises AssertionError if that is refused."""

    def remove(self, question_id: str) -> None:
        """Remove a question. Raises AssertionError if that is refused."""

    def bad_request(self, number: int) -> None:
        """Send a request that is not valid. Raises AssertionError if it is not refused."""

    def ask(self, text: str) -> None:
        """Ask one question about now. Raises AssertionError if there is no answer."""

    def hold(self, held: bool) -> None:
        """Let the engine block in its next call, or continue."""

    def fail(self, calls: int) -> None:
        """Let the next calls of the engine raise."""

    def reactivate(self) -> None:
        """Deactivate and activate."""

    def ticks(self) -> int:
        """Return the number of processed groups."""

    def rss_mb(self) -> float:
        """Return the resident memory of the process without free blocks, megabytes."""

    def tracebacks(self) -> int:
        """Return the tracebacks printed so far."""


class Soak:
    """One soak test: `run` it, then read `result` and `judge`."""

    def __init__(self, rig: Rig, seed: int = 0) -> None:
        """Draw the camera's images."""
        self.rig = rig
        self.judge = Judge(rig.max_age_s)
        self.faults: Counter[str] = Counter()
        self.frame_s = 0.0
        self._random = random.Random(seed)
        self.kinds = sorted(name.removeprefix("do_") for name in dir(self)
                            if name.startswith("do_"))
        self._images = {size: _draw(seed, size) for size in SIZES}
        self._size = SIZES[2]
        self._encoding = "rgb8"
        self._now_ns = START_NS
        self._sent_ns = 0
        self._shots = 0
        self._names = iter(range(10**9))
        self._rss: list[float] = []
        self._weighed_s = -WEIGH_S
        rig.listen(lambda decision: self.judge.decided(decision, self._now_ns))

    def run(self, going: Callable[[], bool], only: Sequence[str] = ()) -> dict[str, Any]:
        """Run while `going()`, with all kinds of faults or with `only` these; return `result()`."""
        known = [kind for kind in self.kinds if kind in only] if only else self.kinds
        self.rig.time(self._now_ns)
        self._tell()
        self._weigh()  # memory is compared after each size was used once
        self.frame_s = 0.0
        self._film(CALM_S)
        kinds: list[str] = []
        while going():
            if not kinds:  # every kind once before any is repeated
                kinds = self._random.sample(known, len(known))
                if time.monotonic() - self._weighed_s >= WEIGH_S:
                    self._weigh()
            kind = kinds.pop()
            self.faults[kind] += 1
            calm_s = CALM_S + self._random.uniform(0.0, 3.0)
            for action in (getattr(self, f"do_{kind}"), lambda s=calm_s: self._film(s)):
                try:
                    action()
                except Exception:
                    traceback.print_exc()  # it is counted, and the soak test continues
        self._weigh()
        self.judge.disturbed()
        return self.result()

    def result(self) -> dict[str, Any]:
        """Return the counts, and the memory at the start, in the middle and at the end."""
        n, rss = len(self._rss), self._rss
        few = max(1, n // 6)
        return {
            "rss_mb": {name: round(float(np.median(rss[begin:begin + few])), 1) for name, begin in
                       (("start", min(1, n - 1)), ("middle", (n - few) // 2), ("end", n - few))},
            "ticks": self.rig.ticks(),
            "faults": dict(sorted(self.faults.items())),
            "missed": self.judge.missed,
            "stale_as_fresh": self.judge.stale_as_fresh,
            "tracebacks": self.rig.tracebacks(),
        }

    # -- time -----------------------------------------------------------------------------

    def _film(self, seconds: float, *, images: bool = True, offset_s: float = 0.0,
              cover: bool = False, settle: bool = True) -> None:
        """Advance frame time, with an image at each step."""
        for _ in range(round(seconds * FPS)):
            self._now_ns += round(NS / FPS)
            self.rig.time(self._now_ns)
            if images:
                self._shoot(self._now_ns + round(offset_s * NS), cover)
            if settle:
                self.rig.settle()
            self.rig.check()
            self.judge.tick(self._now_ns)
            self.frame_s += 1.0 / FPS

    def _shoot(self, stamp_ns: int, cover: bool = False) -> None:
        pool = self._images[self._size]
        self._shots += 1
        image = pool[self._shots // 4 % len(pool)].copy()
        if cover:
            image[:] = 0
        # Real images of a camera always differ.
        y, x = (self._random.randrange(side) for side in image.shape[:2])
        image[y, x] ^= 1
        self.judge.sent(stamp_ns)
        self._sent_ns = stamp_ns
        self.rig.image(image, stamp_ns, self._encoding, self._random.choice((0, 0, 1, 13)))

    def _weigh(self) -> None:
        """Measure memory with images of every size: a size change must not look like a leak."""
        before, found = self._size, []
        for self._size in SIZES:
            self._disturb(lambda: self._film(1.0, settle=False))
            self.rig.settle()
            found.append(self.rig.rss_mb())
        self._rss.append(float(np.mean(found)))
        self._weighed_s = time.monotonic()

        def back() -> None:
            self._size = before

        self._disturb(back)

    def _tell(self) -> None:
        questions = {question.id: question for question in self.rig.questions()}
        self.judge.standing(questions, self._now_ns)

    # -- faults -------------------------------------------------------------------------

    def do_drop(self) -> None:
        """Lose some images."""
        self._disturb(lambda: self._film(self._random.uniform(0.25, 1.5), images=False))

    def do_stall(self) -> None:
        """Stop the camera for longer than answers are valid."""
        self._disturb(lambda: self._film(self._random.uniform(3.0, 8.0), images=False))

    def do_jump_back(self) -> None:
        """Let clock and images jump back together: a bag loop, or a simulation reset."""
        self._jump(-self._random.choice((0.7, 5.0, 3600.0)))

    def do_jump_ahead(self) -> None:
        """Let clock and images jump ahead."""
        self._jump(self._random.choice((0.7, 5.0, 3600.0)))

    def do_wrong_stamps(self) -> None:
        """Let the stamps of the images differ from the clock for a while."""
        offset_s = self._random.choice((-60.0, -3.0, 3.0, 60.0))
        self._disturb(lambda: self._film(3.0, offset_s=offset_s))

    def do_late_image(self) -> None:
        """Deliver an image twice, and one that is older than the last: neither counts."""
        for late_s in (0.0, 0.03):
            stamp_ns = self._sent_ns - round(late_s * NS)
            image = self._images[self._size][0]
            self.rig.image(image, stamp_ns, self._encoding, 0)

    def do_bad_image(self) -> None:
        """Deliver every kind of bad image between good ones."""
        for kind in self.rig.bad_images:
            self.rig.bad_image(kind, self._now_ns)
            self._film(1.0 / FPS)

    def do_cover(self) -> None:
        """Cover the camera."""
        def cover() -> None:
            self.judge.covered(self._now_ns)
            self._film(4.0, cover=True)
        self._disturb(cover)

    def do_resize(self) -> None:
        """Change size and encoding of the images."""
        def resize() -> None:
            self._size = self._random.choice([size for size in SIZES if size != self._size])
            self._encoding = self._random.choice(self.rig.encodings)
        self._disturb(resize)

    def do_engine_stall(self) -> None:
        """Let the engine block during a group while images arrive."""
        def stall() -> None:
            self.rig.hold(True)
            try:
                self._film(self._random.uniform(1.0, 6.0), settle=False)
            finally:
                self.rig.hold(False)
            self.rig.settle()
        self._disturb(stall)

    def do_engine_error(self) -> None:
        """Let the engine raise sometimes."""
        def fail() -> None:
            self.rig.fail(self._random.randint(1, 5))
            self._film(2.0)
            self.rig.fail(0)
        self._disturb(fail)

    def do_add(self) -> None:
        """Add questions, more than are removed."""
        for _ in range(3):
            number = next(self._names)
            question = Question(f"q{number}", f"Is there a thing of kind {number % 50}?",
                                rate_hz=self._random.choice(RATES_HZ))
            if number % 5 in _KINDS:
                question = Question(f"q{number}", "What is it?", kind=_KINDS[number % 5],
                                    options=("a cup", "a phone", f"thing {number % 50}"))
            self.rig.add(question)
            self._tell()
            self._film(self._random.choice((0.0, 1.0)))

    def do_remove(self) -> None:
        """Remove most of the added questions."""
        added = [question.id for question in self.rig.questions()
                 if question.id.removeprefix("q").isdigit()]
        for question_id in added[:-2]:
            self.rig.remove(question_id)
            self._tell()

    def do_bad_request(self) -> None:
        """Send requests that are not valid."""
        for number in range(6):
            self.rig.bad_request(number)

    def do_ask(self) -> None:
        """Ask a question about now."""
        for number in range(3):
            self.rig.ask(f"Is there a thing of kind {number}?")
            self._film(1.0 / FPS)

    def do_reactivate(self) -> None:
        """Deactivate and activate."""
        def again() -> None:
            self.rig.reactivate()
            self.judge.rewound(self._now_ns)
        self._disturb(again)

    def _jump(self, seconds: float) -> None:
        def jump() -> None:
            self._now_ns += round(seconds * NS)
            if seconds < 0:
                self.judge.rewound(self._now_ns)
            self.rig.time(self._now_ns)
        self._disturb(jump)

    def _disturb(self, action: Callable[[], None]) -> None:
        self.judge.disturbed()
        try:
            action()
        finally:
            self.judge.covered(None)
            self.judge.calm(self._now_ns)


def _draw(seed: int, size: tuple[int, int]) -> list[np.ndarray]:
    world = World(seed, Script.demo(seed))
    return [world.render(n * world.duration_s / POOL, *size) for n in range(POOL)]
