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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...decision import HEALTH_IDS, UNKNOWN, Decision
from ...files import resources
from ...frames import FPS, NS, Frame
from ...question_book import QuestionBook, questions_path
from ...reuse import PIXELS, ReuseSettings
from ...runtime import Runtime
from ...runtime.settings import RuntimeSettings
from ...sim.script import Script
from ...sim.world import World
from ...views import MAX_VIEWS, View

SIZE = 320, 240
CLIP_S = 12.0
WARM_S = 3.0
COPY_S = 4.0
START_S = 300.0
GROUPS_HZ = FPS / 2
ENOUGH = 0.95  # share of the answers called for that a number of views must be given
FIRST = {"full": 8, "reuse": 28}  # views that the search begins with
GROWTH = 1.25
MODEL_STAGES = "vision", "heads", "append", "ask"
LATE_S = 1.0  # an answer that is called for may be so much later


class ViewsBenchError(RuntimeError):
    """A measurement ended without a result."""


def bench_views(counts: Sequence[int], seconds: float = 30.0, *, questions: str = "desk",
                model: str = "sim_desk", still: bool = False, reuse: bool = False,
                copied: bool = True) -> dict[str, Any]:
    """Measure one model with each count of views, and as many copies of it with one view.

    Every question is to be answered about every group. still: the pictures change in their noise
    only. reuse: vision reuses what has not changed, and questions are asked `on_change`. copied:
    whether copies are measured, too.

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


def largest_counts(seconds: float = 64.0, *, questions: str = "desk", model: str = "sim_desk",
                   say: Callable[[str], None] = print) -> dict[str, Any]:
    """Find the most views of still scenes that are given ENOUGH of their answers.

    A run of `seconds` for each count tried, ended where it cannot get there any more.

    Returns:
        full, reuse: of every question asked about every group, and of reuse with `on_change`:
        `largest`, the most views, MAX_VIEWS at most; `runs`, by count, see `measure`;
        `event_accuracy`, of the most views, over the scenes that both ways have seen. ratio: of
        reuse over full.

    Raises:
        ViewsBenchError: a process ended early, or one view is too many.
    """
    def run(way: str, count: int) -> dict[str, Any]:
        one = _result(_started({"count": count, "seconds": seconds, "questions": questions,
                                "model": model, "still": True, "reuse": way == "reuse",
                                "enough": ENOUGH}))
        say(f"{way}, {count} views: {one['answered_share']:.3f} answered"
            + (f", ended after {one['ended_s']:g} s" if one["ended_s"] else ""))
        return one

    runs: dict[str, dict[int, dict[str, Any]]] = {way: {} for way in FIRST}
    largest: dict[str, int] = {}
    for way, first in FIRST.items():
        def enough(count: int, way: str = way) -> bool:
            runs[way][count] = run(way, count)
            return runs[way][count]["answered_share"] >= ENOUGH

        largest[way] = most(enough, first)
    both = min(largest.values())
    out: dict[str, Any] = {"seconds": seconds, "questions": questions, "model": model}
    for way, number in largest.items():
        right = runs[way][number]["event_accuracy"][:both]
        out[way] = {"largest": number, "event_accuracy": round(float(np.mean(right)), 4),
                    "runs": {str(count): one for count, one in sorted(runs[way].items())}}
    out["ratio"] = round(largest["reuse"] / largest["full"], 2)
    return out


def most(enough: Callable[[int], bool], first: int, limit: int = MAX_VIEWS) -> int:
    """Return the largest number up to `limit` that is `enough`, where all smaller ones are.

    Tries `first` first. Raises ViewsBenchError where 1 is not enough.
    """
    low, high, count = 0, None, first
    while low < limit and (high is None or high - low > 1):
        if enough(count):
            low = count
        else:
            high = count
        if high is None:
            count = min(limit, max(low + 1, round(GROWTH * low)))
        elif low:
            count = (low + high) // 2
        elif high > 1:
            count = min(high - 1, round(high / GROWTH))
        else:
            raise ViewsBenchError(f"one view is not given {ENOUGH:.0%} of its answers")
    return low


def measure(count: int, seconds: float, questions: str, model: str, still: bool,
            reuse: bool = False, enough: float = 0.0) -> dict[str, Any]:
    """Run one model with `count` views in this process.

    enough: the run ends where the answered share can no longer be as large.

    Returns:
        answered_share: of the answers that the groups offered call for, those given. age_ms: p50
        and p95 of their ages. tick_ms: median of a group's vision, heads and questions.
        full_tick_ms: of a group that the language model is asked about, the sum of the medians of
        MODEL_STAGES. stages_ms: p50 and p95 of each part of a group's way
        (runtime.statistics.RuntimeStats). rss_mb: of this process. fairness: answers of the least
        served view over a fair share. dropped: groups, by cause. longest_unknown_s: that any
        question of any view had no answer, after it had one. batch_gain: of groups encoded
        together. event_accuracy: of still scenes, for each view the share of its questions whose
        last answer is right; else None. ended_s: when the run was ended before its time, or None.
    """
    from ...engine import Engine
    from ...ros.diagnostics import rss_mb

    book = QuestionBook.load(questions_path(questions))
    asked = [replace(one, ask="on_change" if reuse else "always", rate_hz=GROUPS_HZ)
             for one in book]
    names = [f"view_{number}" for number in range(count)]
    views = [View(name, f"/{name}/image") for name in names]
    taken = _Taken()
    runtime = Runtime(lambda: Engine.load(model), QuestionBook(asked, views=views),
                      settings=RuntimeSettings(reuse=ReuseSettings(PIXELS if reuse else "off")),
                      on_decision=taken.take, head_paths=[resources.share_file("heads")])
    cameras = [_DeskCamera(number, view, count, still) for number, view in enumerate(views)]
    offered = round(count * seconds * GROUPS_HZ)
    called_for = offered * len(asked)

    def hopeless(played_s: float) -> bool:
        due = count * max(0.0, played_s - LATE_S) * GROUPS_HZ * len(asked)
        return due - taken.total > (1 - enough) * called_for

    runtime.start()
    runtime.wait_ready()
    try:
        _play(runtime, cameras, WARM_S)
        before = runtime.stats()
        taken.begin()
        ended_s = _play(runtime, cameras, seconds, hopeless if enough else None)
        runtime.wait_idle(30.0)
        after = runtime.stats()
    finally:
        runtime.stop(30.0)
    answers = [taken.answers[name] for name in names]
    if ended_s is not None:
        called_for = round(called_for * ended_s / seconds)
    p50, p95 = np.percentile(taken.ages_ms or [math.nan], (50, 95))
    return {
        "answered_share": round(sum(answers) / called_for, 4),
        "age_ms": {"p50": round(float(p50), 1), "p95": round(float(p95), 1)},
        "tick_ms": round(after.tick_ms["total"].p50, 1),
        "full_tick_ms": round(sum(after.tick_ms[stage].p50 for stage in MODEL_STAGES
                                  if stage in after.tick_ms), 1),
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
        "event_accuracy": [taken.right(camera.view.name, camera.truth) for camera in cameras]
        if still else None,
        "ended_s": ended_s,
    }


class _Taken:
    """Counts answers by view, their ages, and how long questions were without one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unknown_since: dict[tuple[str, str], int] = {}
        self._last: dict[tuple[str, str], str] = {}
        self.begin()

    def begin(self) -> None:
        with self._lock:
            self.answers: dict[str, int] = defaultdict(int)
            self.ages_ms: list[float] = []
            self.total = 0
            self._longest_ns = 0

    def take(self, decision: Decision) -> None:
        if decision.question_id in HEALTH_IDS:
            return
        key = decision.view, decision.question_id
        with self._lock:
            self._last[key] = decision.answer
            if decision.answer == UNKNOWN:
                self._unknown_since.setdefault(key, decision.t_decided_ns)
                return
            began_ns = self._unknown_since.pop(key, decision.t_decided_ns)
            self._longest_ns = max(self._longest_ns, decision.t_decided_ns - began_ns)
            self.answers[decision.view] += 1
            self.total += 1
            self.ages_ms.append(1e3 * decision.age_s)

    def right(self, view: str, truth: Mapping[str, str]) -> float:
        """Return the share of a view's questions whose last answer is the true one."""
        with self._lock:
            said = {question: answer for (name, question), answer in self._last.items()
                    if name == view}
        return sum(truth[question] == answer for question, answer in said.items()) / max(
            1, len(said))

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
        self.truth = world.truth(float(times[-1]))
        self.view = view
        self.phase_s = seed / count / FPS
        self._shots = 0

    def shoot(self, runtime: Runtime) -> None:
        image = self._images[self._shots % len(self._images)].copy()
        image[self._shots % len(image), 0] ^= 1  # no two are the same to the bit
        self._shots += 1
        now_ns = time.time_ns()
        runtime.push(Frame(image, now_ns, self.view.name, now_ns), self.view.camera)


def _play(runtime: Runtime, cameras: Sequence[_DeskCamera], seconds: float,
          hopeless: Callable[[float], bool] | None = None) -> float | None:
    """Let all cameras film in real time; one that is late does not make up for it in a burst.

    hopeless: told the seconds played, whether to end. Returns them where it was so.
    """
    began_s = time.monotonic()
    due = [(began_s + camera.phase_s, number) for number, camera in enumerate(cameras)]
    checked_s = began_s
    while True:
        due_s, number = min(due)
        if due_s - began_s > seconds:
            return None
        now_s = time.monotonic()
        if due_s > now_s:
            time.sleep(due_s - now_s)
        cameras[number].shoot(runtime)
        due[number] = max(due_s, time.monotonic() - 0.5 / FPS) + 1.0 / FPS, number
        if now_s - checked_s > 0.2:
            checked_s = now_s
            runtime.check_freshness()
            if hopeless is not None and hopeless(now_s - began_s):
                return round(now_s - began_s, 1)


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
