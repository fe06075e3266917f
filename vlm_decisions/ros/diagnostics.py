"""What the node says on /diagnostics: five statuses with levels a person would agree with."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue

from ..frames import MAX_INTERVAL_S
from ..runtime.settings import RuntimeSettings
from ..runtime.statistics import Percentiles, RuntimeStats, ViewStats, percentiles
from ..runtime.system import Status, System
from ..views import address
from .matching import Link

SLOWEST_HZ = 0.95 / MAX_INTERVAL_S
"""Below this rate of images no two of them make a group."""

STAGES = {"health": "tier 0", "tier_1": "tier 1", "tier_2": "tier 2"}
"""What the runtime's stages are called here."""

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR


@dataclass(frozen=True)
class SeenView:
    """One view as it is now.

    ``stats``: its numbers in the runtime. ``max_age_s``: images older than this make its answers
    unknown. ``topic``: of its images, ``frame_id``: of the newest, None before the first.
    ``received``: images that arrived; ``refused``: of these, by cause, with ``last_refusal`` the
    newest reason. ``stamp_offset_s``: clock minus the newest header stamp. ``link``: how the topic
    is received. ``trouble``: why images do not come as they should. ``remark``: what a user should
    change though they come. ``by_arrival``: frames are stamped on arrival, not by the header.
    ``conditions``: the camera_* ids that hold. ``unknown``: its questions whose newest answer is
    that, with the reason. ``converted_ms``: from image message to frame; ``handled_ms``: to the end
    of the runtime's part.
    """

    stats: ViewStats
    max_age_s: float = 2.0
    topic: str = ""
    frame_id: str | None = None
    link: Link | None = None
    trouble: str = ""
    remark: str = ""
    received: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    last_refusal: str = ""
    stamp_offset_s: float = 0.0
    by_arrival: bool = False
    conditions: tuple[str, ...] = ()
    unknown: Mapping[str, str] = field(default_factory=dict)
    converted_ms: Percentiles = percentiles([])
    handled_ms: Percentiles = percentiles([])


@dataclass(frozen=True)
class NodeState:
    """The node as it is now.

    ``state``: lifecycle label. ``failure``: why the last configure failed, or empty. ``mark``: what
    pictures are marked with, or empty. ``runtime``: its snapshot, None while not configured.
    ``wanted_hz``: rate by question (``view/question`` where views have names). ``clock_ns``: the
    clock, 0 where ``use_sim_time`` is set and nobody publishes ``/clock``. ``engine``: what the
    engine says of itself (device, dtype). ``corrections``: they are kept. ``learning``: see
    Learner.state; empty where nothing is learned. ``views``: by name.
    """

    state: str
    failure: str = ""
    mark: str = ""
    clock_ns: int = 1
    runtime: RuntimeStats | None = None
    wanted_hz: Mapping[str, float] = field(default_factory=dict)
    engine: Mapping[str, str] = field(default_factory=dict)
    corrections: bool = False
    learning: Mapping[str, Any] = field(default_factory=dict)
    views: Mapping[str, SeenView] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        """The topic of the images, of the first view where there are several."""
        return next((view.topic for view in self.views.values()), "")

    @property
    def refused(self) -> dict[str, int]:
        """Images refused, by cause; each camera counts once."""
        total: Counter[str] = Counter()
        for refused in {view.topic: view.refused for view in self.views.values()}.values():
            total.update(refused)
        return dict(total)

    def able(self, view: str) -> bool:
        """Return whether questions about a view can be answered."""
        return (self.state == "active" and view in self.views
                and not self.views[view].stats.condition)


PROVEN_TICKS = 100
"""Groups without overload after which a start that looked too slow is not warned of any more."""


class Diagnostics:
    """Turns states into statuses; keeps the last one to tell what is new since then.

    ``node_name`` is the fully qualified one. ``hardware_id`` names the camera until the topic of
    its images, which does so afterwards, is known.
    """

    def __init__(self, node_name: str, hardware_id: str = "") -> None:
        self._node_name, self._hardware_id = node_name, hardware_id
        self._last: NodeState | None = None
        self._low: dict[str, int] = {}

    def report(self, now: NodeState) -> list[DiagnosticStatus]:
        """Return the statuses for one message. Call at 1 Hz."""
        last, self._last = self._last, now
        self._hardware_id = now.topic or self._hardware_id
        statuses = [self._model(now)]
        if now.runtime is not None:
            several = len(now.views) > 1
            for name, view in now.views.items():
                before = last.views.get(name) if last else None
                prefix = f"{name} " if several else ""
                statuses += [self._image(f"{prefix}image", view, before, now, last),
                             self._camera(f"{prefix}camera", view, now)]
            statuses += [self._runtime(now.runtime, last.runtime if last else None),
                         self._questions(now, last)]
        return statuses

    def _status(self, what: str, level: bytes, message: str,
                values: Mapping[str, object]) -> DiagnosticStatus:
        return DiagnosticStatus(
            name=f"{self._node_name}: {what}", level=level, message=message,
            hardware_id=self._hardware_id,
            values=[KeyValue(key=key, value=_text(value)) for key, value in values.items()])

    def _model(self, now: NodeState) -> DiagnosticStatus:
        runtime = now.runtime
        values: dict[str, object] = {"state": now.state, **now.engine}
        level, message = OK, now.state
        if runtime is not None:
            values |= {"model": runtime.model, "heads": ", ".join(runtime.heads)}
            message = f"{runtime.model} {now.state}".strip()
            for view, refused in runtime.heads_refused.items():
                where = f" in view '{view}'" if view else ""
                values |= {f"refused head {path}{where}": why for path, why in refused.items()}
                level = WARN
                message += f", {len(refused)} head{'s' * (len(refused) > 1)} refused{where}"
        notes = [now.engine.get("notes")]
        if runtime is None or runtime.overload or runtime.ticks < PROVEN_TICKS:
            notes.append(now.engine.get("measured at start"))  # the robot was perhaps busy then
        if any(notes):
            level, message = WARN, f"{message}: {'; '.join(filter(None, notes))}"
        if now.failure:
            level, message = ERROR, now.failure
        values["memory"] = f"{rss_mb():.0f} MB"
        if (model_mb := model_memory_mb()) is not None:
            values["model memory"] = f"{model_mb:.0f} MB"
        return self._status("model", level, message, values)

    def _image(self, what: str, now: SeenView, last: SeenView | None, node: NodeState,
               before: NodeState | None) -> DiagnosticStatus:
        seen = now.stats
        refused = sum(now.refused.values())
        fresh_refused = refused - (sum(last.refused.values()) if last else 0)
        fresh_good = now.received - (last.received if last else 0) - fresh_refused
        gone = seen.image_age_s > now.max_age_s
        rate_hz = seen.image_rate_hz
        values = {"topic": now.topic, "frame id": now.frame_id or "", "received": now.received,
                  "rate": f"{_number(rate_hz)} Hz",
                  "age": f"{_number(seen.image_age_s)} s",
                  "stamp offset": f"{_number(now.stamp_offset_s)} s",
                  "message to runtime": f"p50 {_number(now.handled_ms.p50)} ms, "
                                        f"p95 {_number(now.handled_ms.p95)} ms",
                  **{f"refused, {cause}": count for cause, count in now.refused.items()}}
        if now.link is not None:
            values |= {"publishers": now.link.publishers, "lost on the way": now.link.lost,
                       "reliability": "reliable" if now.link.reliable else "best effort"}
        level, message = OK, f"{_number(rate_hz)} Hz"
        if node.state != "active":
            message = "not subscribed"
        elif node.clock_ns == 0:
            level, message = ERROR, "use_sim_time is set, but nothing publishes /clock"
        elif before is not None and before.state == "active" and before.clock_ns == node.clock_ns:
            level, message = WARN, "the clock stands: /clock is paused or has ended"
        elif fresh_refused > 0:
            # Now and then a bad image between good ones stops nothing.
            level = WARN if fresh_good > 0 else ERROR
            message = f"refused {fresh_refused}: {now.last_refusal}"
        elif math.isinf(seen.image_age_s):
            level, message = ERROR, _because(f"no image yet on {now.topic}", now.trouble)
        elif gone:
            level, message = ERROR, _because(f"no image for {_number(seen.image_age_s)} s",
                                             now.trouble)
        elif seen.mixture:
            level, message = WARN, seen.mixture
        elif now.trouble:
            level, message = WARN, now.trouble
        elif abs(now.stamp_offset_s) > now.max_age_s and not now.by_arrival:
            side = "behind" if now.stamp_offset_s > 0 else "ahead of"
            level = WARN
            message = (f"header stamps are {_number(abs(now.stamp_offset_s))} s {side} the clock "
                       "(see stamp_source and use_sim_time)")
        elif seen.silent:
            level, message = WARN, f"no image for {_number(seen.image_age_s)} s"
        elif 0 < rate_hz < SLOWEST_HZ:
            level = WARN
            message = (f"{_number(rate_hz)} Hz is too slow: images more than "
                       f"{MAX_INTERVAL_S:g} s apart show no motion and are not asked about")
        elif now.remark:
            level, message = WARN, now.remark
        return self._status(what, level, message, values)

    def _camera(self, what: str, now: SeenView, node: NodeState) -> DiagnosticStatus:
        condition = now.stats.condition if node.state == "active" else ""
        level, message = OK, "good"
        if condition:
            level, message = ERROR, f"answers are unknown: {condition}"
        elif now.conditions:
            level, message = WARN, ", ".join(c.removeprefix("camera_") for c in now.conditions)
        elif node.state != "active" or math.isinf(now.stats.image_age_s):
            message = "not seen yet"
        return self._status(what, level, message,
                            {"condition": condition, "active": ", ".join(now.conditions)})

    def _runtime(self, now: RuntimeStats, last: RuntimeStats | None) -> DiagnosticStatus:
        values: dict[str, object] = {
            "frames": now.frames, "groups": now.groups, "ticks": now.ticks,
            "decisions": now.decisions, "queue": now.queue, "windows": now.segments,
            "scene changes": now.scene_changes, "cuts": now.cuts,
            "put off": now.skipped, "asked": now.asked,
            "answers that stood": now.reused, "asked again": now.asked_again,
            "errors": now.errors,
            "last error": now.last_error}
        values |= {f"windows broken off, {cause}": count for cause, count in now.breaks.items()}
        values |= {f"dropped, {cause}": count for cause, count in sorted(now.dropped.items())}
        values |= {f"tick {STAGES.get(stage, stage)}":
                   f"p50 {_number(ms.p50)} ms, p95 {_number(ms.p95)} ms"
                   for stage, ms in now.tick_ms.items()}
        values |= {f"decision age, tier {tier}":
                   f"p50 {_number(ms.p50)} ms, p95 {_number(ms.p95)} ms"
                   for tier, ms in sorted(now.age_ms.items())}
        if now.reuse is not None:
            values |= {"reuse, share of tokens encoded": now.reuse.share,
                       "reuse, still groups": now.still,
                       "reuse, refreshes": f"{now.reuse.refreshes}, {now.reuse.in_dead_time} of "
                                           "them in dead time",
                       "reuse, drift": _drift(now.reuse.drift, now.reuse.worst_drift)}
            values |= {f"reuse, groups, {why}": count for why, count in now.reuse.groups.items()}
        if len(now.views) > 1:
            values |= {f"view {name}": _work(view) for name, view in now.views.items()}
            values["batch gain"] = f"{_number(now.batch_gain)} times"
        lost = _overrun(now) - (_overrun(last) if last else 0)
        errors = now.errors - (last.errors if last else 0)
        total = now.tick_ms.get("total")
        level = OK
        message = f"tick p95 {_number(total.p95)} ms" if total else "no tick yet"
        if errors > 0:
            level, message = ERROR, now.last_error
        elif lost > 0:
            level, message = WARN, f"too slow: {lost} groups dropped in the last second"
        return self._status("runtime", level, message, values)

    def _questions(self, now: NodeState, last: NodeState | None) -> DiagnosticStatus:
        slow = []
        values = {}
        # A rate is judged on a few seconds in a row: a window has to begin, a rate to be measured.
        for question_id, wanted_hz in now.wanted_hz.items():
            able = now.able(question_id.rpartition("/")[0])
            rate_hz = now.runtime.rates_hz.get(question_id, 0.0) if able else 0.0
            cost = now.runtime.costs.get(question_id)
            values[question_id] = (f"{_number(rate_hz)} of {_number(wanted_hz)} Hz"
                                   + (f", {cost}" if cost and cost.tokens else ""))
            if times := now.runtime.contradictions.get(question_id):
                values[question_id] += f", contradicted {times} times"
            low = able and rate_hz < wanted_hz / 2
            self._low[question_id] = self._low.get(question_id, 0) + 1 if low else 0
            if self._low[question_id] > 5:
                slow.append(question_id)
        self._low = {name: n for name, n in self._low.items() if name in now.wanted_hz}
        values |= {f"learned, {name}": str(one) for name, one in now.runtime.learned.items()}
        values |= {f"not learned, {name}": why
                   for what in ("waiting", "refused")
                   for name, why in now.learning.get(what, {}).items()}
        count = len(now.wanted_hz)
        level, message = OK, f"{count} question{'' if count == 1 else 's'}"
        if now.runtime.overload:
            level, message = WARN, now.runtime.overload
        elif slow:
            level, message = WARN, f"below half their rate: {', '.join(slow)}"
        # With nothing wrong with the camera for a second, it is the question or the model.
        unknown = {address(name, question): reason for name, view in now.views.items()
                   if now.able(name) and last is not None and last.able(name)
                   for question, reason in view.unknown.items()}
        if unknown:
            name, reason = next(iter(unknown.items()))
            level, message = WARN, f"unknown: {', '.join(unknown)} ({name}: {reason})"
        return self._status("questions", level, message, values)


def system_of(node: str, now: NodeState, statuses: Sequence[DiagnosticStatus],
              settings: RuntimeSettings) -> System:
    """Return the state of the node of that fully qualified name, for ``~/statistics``."""
    fields = {
        "node": node, "state": now.state, "failure": now.failure, "topic": now.topic,
        "mark": now.mark, "corrections": now.corrections,
        "device": now.engine.get("device", ""), "memory_mb": rss_mb(),
        "statuses": tuple(Status(status.name.partition(": ")[2], _level(status), status.message)
                          for status in statuses)}
    if now.runtime is None:
        return System(max_age_s=settings.max_age_s, **fields)
    if len(now.views) > 1:
        fields["views"] = {name: {"topic": view.topic, "condition": view.stats.condition}
                           for name, view in now.views.items()}
    refused = {f"image: {cause}": count for cause, count in now.refused.items()}
    return System.of(now.runtime, settings, **fields, dropped=now.runtime.dropped | refused)


def _level(status: DiagnosticStatus) -> int:
    return status.level[0] if isinstance(status.level, bytes) else int(status.level)


def rss_mb() -> float:
    """Return this process's resident memory, megabytes (its peak, where that is all there is)."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def model_memory_mb() -> float | None:
    """Return what MLX holds for its arrays (on a GPU: there), megabytes; None without MLX."""
    measure = getattr(sys.modules.get("mlx.core"), "get_active_memory", None)
    return None if measure is None else measure() / 1e6


def _overrun(stats: RuntimeStats) -> int:
    """Return the groups dropped because the model was too slow."""
    return stats.dropped.get("queue", 0) + stats.dropped.get("catch_up", 0)


def _drift(newest: float | None, worst: float | None) -> str:
    if newest is None:
        return "no refresh yet"
    return f"{newest:.2g} at the last refresh, {worst:.2g} at most"


def _work(view: ViewStats) -> str:
    """Return what a view costs: milliseconds a tick, and how much of it was put off or dropped."""
    total = view.tick_ms.get("total")
    tick = f"tick p50 {_number(total.p50)} ms, p95 {_number(total.p95)} ms" if total else "no tick"
    lost = view.dropped.get("queue", 0) + view.dropped.get("catch_up", 0)
    return f"{tick}, {view.ticks} of {view.groups} groups, put off {view.skipped}, dropped {lost}"


def _because(what: str, why: str) -> str:
    return f"{what}: {why}" if why else what


def _number(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else "none"


def _text(value: object) -> str:
    return _number(value) if isinstance(value, float) else str(value)
