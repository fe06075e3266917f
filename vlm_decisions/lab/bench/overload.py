"""`vlm-decisions bench overload`: more work than the engine can do, in real time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ...decision import TIER_VLM, UNKNOWN, Decision
from ...frames import NS, Frame
from ...question_book import QuestionBook
from ...questions import Question
from ...runtime import Runtime
from ...runtime.engine_protocol import EngineLike
from ...runtime.settings import RuntimeSettings
from ...sim.script import Script
from ...sim.world import World
from .faulty_engine import FaultyEngine

RATE_HZ = 8.0

THINGS = ("person", "second person", "cup", "phone", "laptop", "pen", "book", "door", "bottle",
          "chair", "lamp", "plant")


def bench_overload(load: Callable[[], EngineLike], seconds: float = 30.0, *,
                   slowness: float = 5.0, questions: int = 12,
                   warm_groups: int = 32) -> dict[str, Any]:
    """Ask `questions` at 8 Hz of an engine `slowness` times as slow as it is, for `seconds`.

    Frames come at 16 Hz, so that there are 8 groups a second. First the engine is given
    `warm_groups` one at a time, to learn what a tick that answers everything takes.

    Returns:
        tick_ms: median of such a tick. age_ms: p50 and p95 of the answers' ages under load.
        rate_hz: answers per question and second. answers: how many. unknown: decisions without an
        answer. queue: `max` seen and `bound`. dropped: by cause. ticks.
    """
    settings = RuntimeSettings(fps=2 * RATE_HZ)
    book = QuestionBook([Question(f"q{n}", f"Is there a {THINGS[n % len(THINGS)]} number {n}?",
                                  tier="vlm", rate_hz=RATE_HZ) for n in range(questions)])
    world = World(0, Script.demo(0))
    images = [world.render(n * world.duration_s / 48, 320, 240) for n in range(48)]
    decisions: list[Decision] = []
    lock = threading.Lock()

    def decided(decision: Decision) -> None:
        with lock:
            decisions.append(decision)

    camera = _Camera(images)
    runtime = Runtime(lambda: FaultyEngine(load(), slowness), book, on_decision=decided,
                      settings=settings, clock_ns=camera.now_ns)
    runtime.start()
    try:
        runtime.wait_ready()
        camera.at_leisure(runtime, warm_groups)
        first = runtime.stats()
        tick_ms = first.tick_ms["total"].p50
        decisions.clear()
        deepest = camera.play(runtime, seconds)
        runtime.wait_idle(60.0)
        last = runtime.stats()
    finally:
        runtime.stop(60.0)
    of_model = [d for d in decisions if d.question_id in book]
    ages_ms = [1e3 * d.age_s for d in of_model if d.answer != UNKNOWN and d.tier == TIER_VLM]
    if not ages_ms:
        raise RuntimeError("no answer under load: even the newest group was too late")
    p50, p95 = np.percentile(ages_ms, (50, 95))
    return {
        "tick_ms": round(tick_ms, 1),
        "age_ms": {"p50": round(float(p50), 1), "p95": round(float(p95), 1)},
        "rate_hz": round(len(ages_ms) / questions / seconds, 2),
        "answers": len(ages_ms),
        "unknown": len(of_model) - len(ages_ms),
        "queue": {"max": deepest, "bound": settings.queue_groups},
        "dropped": {cause: count - first.dropped.get(cause, 0)
                    for cause, count in last.dropped.items()},
        "ticks": last.ticks - first.ticks,
    }


class _Camera:
    """Pushes images, in real time or on a clock that waits."""

    def __init__(self, images: list[np.ndarray]) -> None:
        self._images = images
        self._shots = 0
        self._frozen_ns: int | None = None

    def now_ns(self) -> int:
        return time.time_ns() if self._frozen_ns is None else self._frozen_ns

    def at_leisure(self, runtime: Runtime, groups: int) -> None:
        """Let some groups be answered one by one, while time stands still for each."""
        self._frozen_ns = time.time_ns() - 3600 * NS
        for _ in range(2 * groups):
            self._frozen_ns += round(0.5 / RATE_HZ * NS)
            self._shoot(runtime)
            runtime.wait_idle()
        self._frozen_ns = None

    def play(self, runtime: Runtime, seconds: float) -> int:
        """Push images at their rate; return the longest queue."""
        deepest, due_s, checked_s = 0, time.monotonic(), 0.0
        end_s = due_s + seconds
        while (now_s := time.monotonic()) < end_s:
            # A camera does not repeat images that were lost while the machine was busy.
            due_s = max(due_s + 0.5 / RATE_HZ, now_s)
            time.sleep(due_s - now_s)
            self._shoot(runtime)
            deepest = max(deepest, runtime.stats().queue)
            if now_s - checked_s > 0.2:
                checked_s = now_s
                runtime.check_freshness()
        return deepest

    def _shoot(self, runtime: Runtime) -> None:
        image = self._images[self._shots // 8 % len(self._images)].copy()
        image[self._shots % len(image), 0] ^= 1  # no two are the same
        self._shots += 1
        runtime.push(Frame(image, self.now_ns(), "camera", self.now_ns()))
