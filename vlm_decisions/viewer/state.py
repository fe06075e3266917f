"""What the page says of the whole system: one label, why, and what would help."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..runtime.gate import LATE
from ..runtime.system import System
from ..texts import without_numbers

STRAIN_S = 5.0
"""Groups that were dropped, or questions put off, count as overload for this long, seconds."""

DEAREST = 3
"""So many of the questions that cost most are named."""

LIVE, LOADING, STOPPED, FAILED = "live", "loading", "stopped", "failed"
NO_NODE, NO_CAMERA, UNUSABLE = "no_node", "no_camera", "unusable"
OVERLOADED, UNKNOWN, ENDED = "overloaded", "unknown", "ended"

_DROPPED = ("queue", "catch_up")


@dataclass(frozen=True)
class PageState:
    """The state in words.

    `kind` is for the page's colours, `label` a few words, `message` the reason. `remedy` is what
    a person can do, or empty.
    """

    kind: str
    label: str
    message: str = ""
    remedy: str = ""

    def to_dict(self) -> dict[str, str]:
        """Return plain values for JSON."""
        return asdict(self)


class Strain:
    """Keeps whether the system had to drop work recently. `now_s`: seconds, never going back."""

    def __init__(self) -> None:
        self._last: System | None = None
        self._dropped_s = self._put_off_s = -math.inf

    def note(self, system: System, now_s: float) -> None:
        """Take the newest totals."""
        last, self._last = self._last, system
        if last is None or last.node != system.node or not last.counts:
            return  # totals of another run
        if any(system.dropped.get(cause, 0) > last.dropped.get(cause, 0) for cause in _DROPPED):
            self._dropped_s = now_s
        if system.counts.get("skipped", 0) > last.counts.get("skipped", 0):
            self._put_off_s = now_s

    def dropped(self, now_s: float) -> bool:
        """Tell whether groups were dropped because the model was too slow."""
        return now_s - self._dropped_s < STRAIN_S

    def put_off(self, now_s: float) -> bool:
        """Tell whether questions were put off because groups waited."""
        return now_s - self._put_off_s < STRAIN_S


def state_of(link: Mapping[str, Any], system: System, reasons: Mapping[str, str],
             waiting: Collection[str], count: int, *, dropped: bool = False,
             put_off: bool = False) -> PageState:
    """Return the state of a system.

    `link`: {ok, message}. `reasons`: why, by question that is unknown or stale. `waiting`: the
    questions without any decision yet. `count`: all standing questions. `dropped`, `put_off`: what
    Strain tells.
    """
    if not link["ok"]:
        return PageState(NO_NODE, "No node", link["message"],
                     "Start the node, or name another one in the viewer's parameter 'node'.")
    if system.state in ("loading", "configuring", ""):
        return PageState(LOADING, "Loading", "The model is being loaded." if system.state else
                     "Waiting for the node's first report.")
    if system.state == ENDED:
        return PageState(ENDED, "Recording ended",
                         "It was played to its end: nothing more is seen.",
                         "The timeline, the events and Save have what was answered. Start the "
                         "command again to play it once more.")
    if system.state != "active":
        return _not_active(system)
    total = system.tick_ms.get("total")
    unknown = f"{len(reasons)} of {count} unknown"
    if system.condition:
        why = _sentence(system.condition)
        if not math.isfinite(system.image_age_s) or system.image_age_s > system.max_age_s:
            return PageState(NO_CAMERA, "No camera", why, _camera_remedy(system))
        if system.condition.startswith(LATE):
            tell = f" (ros2 topic delay {system.topic})" if system.topic else ""
            return PageState(UNUSABLE, "Images late", why, "The machine is too busy to take them "
                             f"in time, or the camera's clock is behind this machine's{tell}.")
        return PageState(UNUSABLE, "Camera unusable", why,
                     _reported(system, "camera") or "Look at the picture: the camera's view, its "
                     "light and its lens, or its clock.")
    slow = total is not None and total.p50 > system.group_ms
    if system.overload or dropped or (reasons and (put_off or slow)):
        label = f"Overloaded, {unknown}" if reasons else "Overloaded"
        return PageState(OVERLOADED, label, _sentence(system.overload) if system.overload
                     else _work(system), _lighter(system))
    if reasons:
        which = "" if len(reasons) == count else "Choose 'Unknown first' to see which: "
        return PageState(UNKNOWN, unknown, _why(list(reasons.values())),
                     _sentence(f"{which}each row says why"))
    if waiting:
        return PageState(LOADING, "Starting",
                     f"Waiting for the first answers to {len(waiting)} of {count} questions.")
    return PageState(LIVE, "Live")


def _why(reasons: Collection[str]) -> str:
    """Return the commonest reason; those that differ by a number only are the same."""
    kinds = Counter(map(without_numbers, reasons))
    kind, n = kinds.most_common(1)[0]
    example = next(reason for reason in reasons if without_numbers(reason) == kind)
    return _sentence((example or "no reason given")
                     + ("" if n == kinds.total() else f" ({n} of {kinds.total()})"))


def _not_active(system: System) -> PageState:
    command = f"ros2 lifecycle set {system.node}"
    if system.failure:
        return PageState(FAILED, "Not configured", _sentence(system.failure),
                     f"Correct it, then: {command} configure")
    if system.state == "unconfigured":
        return PageState(STOPPED, "Not configured", "The node has not loaded a model.",
                     f"{command} configure")
    if system.state == "inactive":
        return PageState(STOPPED, "Inactive", "The node does not read the camera.",
                     f"{command} activate")
    return PageState(STOPPED, "Not active", f"The node is {system.state}.", "Start the node anew.")


def _camera_remedy(system: System) -> str:
    said = _reported(system, "image")
    if said and without_numbers(_sentence(system.condition)) != without_numbers(said):
        return said
    if not system.topic:
        return "Look whether the camera is connected and delivers images."
    return (f"Look whether the camera's driver runs (ros2 topic hz {system.topic}), and whether "
            "its topic is the one that the node reads (remap image:=...).")


def _work(system: System) -> str:
    total = system.tick_ms.get("total")
    if total is None or not math.isfinite(total.p50 + system.group_ms):
        return "The machine cannot keep up with the questions."
    at_times = "" if total.p50 > system.group_ms else "At times the machine cannot keep up. "
    return (f"{at_times}One group of images takes {total.p50:.0f} ms (95%: {total.p95:.0f} ms); "
            f"a new one comes every {system.group_ms:.0f} ms.")


def _lighter(system: System) -> str:
    ms = {name: system.tick_ms[name].p50 for name in ("vision", "append", "ask")
          if name in system.tick_ms}
    if ms and max(ms, key=ms.get) == "vision" and not system.overload:
        return ("The vision encoder takes most of it: use a smaller pixel_budget or a lower "
                "sample_hz.")
    dearest = sorted(((ms, tokens, name) for name, (tokens, ms) in system.costs.items()
                      if ms > 0), reverse=True)[:DEAREST]
    named = ", ".join(f"{name} ({tokens} tokens, {ms:.0f} ms)" for ms, tokens, name in dearest)
    return ("Lower the questions' rates, ask fewer or shorter ones, or choose a lower sample_hz."
            + (f" The dearest: {named}." if named else ""))


def _reported(system: System, name: str) -> str:
    """Return what diagnostics say under a name, where it is a warning or an error."""
    return next((_sentence(status.message) for status in system.statuses
                 if status.name == name and status.level > 0), "")


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
