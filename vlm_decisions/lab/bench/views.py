"""`vlm-decisions bench views`: many cameras on one model, in real time.

Each count of views runs in a process of its own, so that its memory is its own. The cameras are
simulated desks, drawn beforehand, that offer 4 groups a second each at phases of their own; the
runtime is the node's, without ROS.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...decision import HEALTH_IDS, UNKNOWN, Decision
from ...files import resources
from ...frames import FPS, NS, Frame
from ...questions import QuestionBook, questions_path
from ...reuse import PIXELS, ReuseSettings
from ...runtime import Runtime
from ...runtime.settings import RuntimeSettings
from ...sim.script import Script
from ...sim.world import World
from ...views import View

SIZE = 320, 240
CLIP_S = 12.0
WARM_S = 3.0
COPY_S = 4.0
START_S = 300.0


class ViewsBenchError(RuntimeError):
    """A measurement ended without a result."""


def bench_views(counts: Sequence[int], seconds: float = 30.0, *, questions: str = "desk",
                model: str = "sim_desk", still: bool = False, reuse: bool = False,
                copied: bool = True) -> dict[str, Any]:
    """Measure one model with each count of views, and as many copies of it with one view.

    Every question is asked about every group. still: the pictures change in their noise only.
    reuse: vision reuses what has not changed, and questions are asked `on_change`. copied: whether
    copies are measured, too.

    Returns:
        views: by count, see `measure`. copies: by count, rss_mb of that many processes with one
        view each. one_view_rss: how many times the memory of one view each count takes, where one
        was measured.

    Raises:
        ViewsBenchError: a process ended early.
    """
    options = {"seconds": seconds, "questions": questions, "model": model, "still": still,
               "reuse": reuse}
    views = {str(count): _result(_started({"count": count, **options})) for count in counts}
    copies = {}
    for count in counts if copied else ():
        running = [_started({"count": 1, **options, "seconds": COPY_S}) for _ in range(count)]
        copies[str(count)] = {"rss_mb": round(sum(_result(one)["rss_mb"] for one in running), 1)}
    result: dict[str, Any] = {"seconds": seconds, "questions": questions, "model": model,
                              "still": still, "reuse": reuse, "views": views, "copies": copies}
    if "1" in views:
        one_mb = views["1"]["rss_mb"]
        result["one_view_rss"] = {count: round(one["rss_mb"] / one_mb, 3)
                                  for count, one in views.items()}
    return result


def measure(count: int, seconds: float, questions: str, model: str, still: bool,
            reuse: bool = False) -> dict[str, Any]:
    """Run one model with `count` views in this process.

    Returns:
        answered_share: of the answers that the groups offered call for, those given. age_ms: p50
        and p95 of their ages. tick_ms: median of a group's vision, heads and questions. stages_ms:
        p50 and p95 of each part of a group's way (runtime.statistics.RuntimeStats). rss_mb: of this
        process. fairness: answers of the least served view over a fair share. dropped: groups,
        by cause. longest_unknown_s: that any question of any view had no answer, after it had one.
        batch_gain: of groups encoded together.
    """
    from ...engine import Engine
    from ...ros.diagnostics import rss_mb

    book = QuestionBook.load(questions_path(questions))
    asked = [replace(one, ask="on_change" if reuse else "always") for one in book]
    names = [f"view_{number}" for number in range(count)]
    views = [View(name, f"/{name}/image") for name in names]
    taken = _Taken()
    runtime = Runtime(lambda: Engine.load(model), QuestionBook(asked, views=views),
                      settings=RuntimeSettings(reuse=ReuseSettings(PIXELS if reuse else "off")),
                      on_decision=taken.take, head_paths=[resources.share_file("heads")])
    cameras = [_DeskCamera(number, view, count, still) for number, view in enumerate(views)]
    runtime.start()
    runtime.wait_ready()
    try:
        _play(runtime, cameras, WARM_S)
        before = runtime.stats()
        taken.begin()
        _play(runtime, cameras, seconds)
        runtime.wait_idle(30.0)
        after = runtime.stats()
    finally:
        runtime.stop(30.0)
    answers = [taken.answers[name] for name in names]
    offered = round(count * seconds * FPS / 2)
    p50, p95 = np.percentile(taken.ages_ms or [math.nan], (50, 95))
    return {
        "answered_share": round(sum(answers) / (offered * len(asked)), 4),
        "age_ms": {"p50": round(float(p50), 1), "p95": round(float(p95), 1)},
        "tick_ms": round(after.tick_ms["total"].p50, 1),
        "stages_ms": {name: [round(one.p50, 1), round(one.p95, 1)]
                      for name, one in after.tick_ms.items()},
        "rss_mb": round(rss_mb(), 1),
        "fairness": round(min(answers) / (sum(answers) / count), 4) if any(answers) else 0.0,
        "dropped": {cause: number - before.dropped.get(cause, 0)
                    for cause, number in after.dropped.items()},
        "skipped": after.skipped - before.skipped,
        "longest_unknown_s": round(taken.longest_unknown_s(), 2),
        "batch_gain": round(after.batch_gain, 2),
        "groups": offered,
    }


class _Taken:
    """Counts answers by view, their ages, and how long questions were without one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unknown_since: dict[tuple[str, str], int] = {}
        self.begin()

    def begin(self) -> None:
        with self._lock:
            self.answers: dict[str, int] = defaultdict(int)
            self.ages_ms: list[float] = []
            self._longest_ns = 0

    def take(self, decision: Decision) -> None:
        if decision.question_id in HEALTH_IDS:
            return
        key = decision.view, decision.question_id
        with self._lock:
            if decision.answer == UNKNOWN:
                self._unknown_since.setdefault(key, decision.t_decided_ns)
                return
            began_ns = self._unknown_since.pop(key, decision.t_decided_ns)
            self._longest_ns = max(self._longest_ns, decision.t_decided_ns - began_ns)
            self.answers[decision.view] += 1
            self.ages_ms.append(1e3 * decision.age_s)

    def longest_unknown_s(self) -> float:
        with self._lock:
            now_ns = time.time_ns()
            lasting = [now_ns - since_ns for since_ns in self._unknown_since.values()]
            return max([self._longest_ns, *lasting]) / NS


class _DeskCamera:
    """A desk drawn beforehand, that is filmed at FPS from a moment of its own on."""

    def __init__(self, seed: int, view: View, count: int, still: bool) -> None:
        world = World(seed, Script.demo(seed))
        times = np.arange(round(CLIP_S * FPS)) / FPS + 4.0
        if still:
            times = 6.0 + np.arange(8) / 1000
        self._images = [world.render(float(t), *SIZE) for t in times]
        self.view = view
        self.phase_s = seed / count / FPS
        self._shots = 0

    def shoot(self, runtime: Runtime) -> None:
        image = self._images[self._shots % len(self._images)].copy()
        image[self._shots % len(image), 0] ^= 1  # no two are the same to the bit
        self._shots += 1
        now_ns = time.time_ns()
        runtime.push(Frame(image, now_ns, self.view.name, now_ns), self.view.camera)


def _play(runtime: Runtime, cameras: Sequence[_DeskCamera], seconds: float) -> None:
    """Let all cameras film in real time; one that is late does not make up for it in a burst."""
    began_s = time.monotonic()
    due = [(began_s + camera.phase_s, number) for number, camera in enumerate(cameras)]
    checked_s = began_s
    while True:
        due_s, number = min(due)
        if due_s - began_s > seconds:
            return
        now_s = time.monotonic()
        if due_s > now_s:
            time.sleep(due_s - now_s)
        cameras[number].shoot(runtime)
        due[number] = max(due_s, time.monotonic() - 0.5 / FPS) + 1.0 / FPS, number
        if now_s - checked_s > 0.2:
            checked_s = now_s
            runtime.check_freshness()


def _started(options: dict[str, Any]) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", __name__, json.dumps(options)],
                            stdout=subprocess.PIPE, text=True)


def _result(process: subprocess.Popen) -> dict[str, Any]:
    out, _ = process.communicate(timeout=START_S + 600.0)
    if process.returncode:
        raise ViewsBenchError(f"a measuring process ended with {process.returncode}")
    return json.loads(out.splitlines()[-1])


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))
