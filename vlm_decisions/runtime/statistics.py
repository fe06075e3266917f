"""Counters and latencies of a running system, and a snapshot of them for diagnostics."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

from ..reuse import ReuseStats
from ..views import address
from .costs import Cost
from .learned import Learned

#: Latencies and ages are summarised over the last so many values.
MEMORY = 512


@dataclass(frozen=True)
class Percentiles:
    """Median and 95th percentile of `count` recent values; NaN where there are none."""

    p50: float
    p95: float
    count: int


@dataclass(frozen=True)
class ViewStats:
    """A snapshot of one view; the fields are those of RuntimeStats for it alone.

    `priority`: as described. Questions go by their ids. `silent`: images have come, and have
    stopped.
    """

    priority: float
    image_rate_hz: float
    image_age_s: float
    condition: str
    mixture: str
    overload: str
    queue: int
    groups: int
    ticks: int
    skipped: int
    dropped: dict[str, int]
    breaks: dict[str, int]
    tick_ms: dict[str, Percentiles]
    age_ms: dict[int, Percentiles]
    rates_hz: dict[str, float]
    costs: dict[str, Cost]
    contradictions: dict[str, int] = field(default_factory=dict)
    silent: bool = False


@dataclass(frozen=True)
class RuntimeStats:
    """A snapshot of a runtime.

    - `frames`, `groups`, `ticks` (groups processed), `decisions`, `scene_changes`, `errors`,
      `segments` (windows begun): totals.
    - `cuts`: groups that lay across a cut.
    - `skipped`: questions due for the language model that a backlog or the budget put off.
    - `dropped`: by cause: groups `queue` (overflow), `catch_up`, `unusable` (camera), `reset`;
      frames `late` (after a newer one) and `ahead` (a stamp that the next did not confirm);
      decisions `outdated` (superseded before they were published).
    - `breaks`: windows that the images broke off, by cause: `gaps` in time, `resized`, `switched`
      (another frame_id), `rewinds`. `mixture`: what is wrong where images of several cameras or
      sizes come in turn, or empty.
    - `queue`: groups waiting. `tick_ms`: milliseconds by stage. Of a frame: `health` (Tier 0). Of a
      group: `intake` (from its last frame until it is queued), `wait` (in the queue), the model's
      `vision`, `heads`, `append` and `ask`; `tier_1` (its turn until Tier 1 is published), `tier_2`
      (append, ask, publish) and `total`. Of a decision: `outside`, what of the time since its
      group's turn was not the model's.
    - `age_ms`: age of decisions by tier. `rates_hz`: achieved, by question, on frame time. It and
      `image_rate_hz` fall while nothing comes.
    - `image_rate_hz` on frame time, `image_age_s` since the last arrival (inf: none yet).
    - `condition`: why answers are unknown just now, or empty. `last_error`: the newest message.
    - `asked`, `reused`: questions asked of the language model, and answers of it that stood for a
      further group because the picture had not changed (`ask: on_change`). `asked_again`: those
      that were asked once more, about more of the past (`unsure`).
    - `contradictions`: by question, how often its yes began to contradict what it implies.
    - `reuse`: what of the vision was taken from earlier groups, None where reuse is off; `still`:
      groups that were neither appended nor asked about, since nothing had changed.
    - `costs`: tokens and milliseconds by question, 0 where a head answers it; `overload`: what is
      too dear where rates had to be lowered within the last seconds, or empty.
    - `heads`: names of those in use; `heads_refused`: file to reason, by view of a pixel budget of
      its own (empty: the others). `model`: empty until loaded.
    - `learned`: what was learned of questions and is in use.
    - `views`: the same of each view by name. `batch_gain`: how many times as fast a group is
      encoded among others of other views as by itself.

    Questions of a view with a name are named `view/question`. With several views, `image_rate_hz`
    and `image_age_s` are of the view that is worst off, and there is a `condition` only where all
    views have one.
    """

    frames: int
    groups: int
    ticks: int
    decisions: int
    segments: int
    scene_changes: int
    skipped: int
    errors: int
    dropped: dict[str, int]
    queue: int
    tick_ms: dict[str, Percentiles]
    age_ms: dict[int, Percentiles]
    rates_hz: dict[str, float]
    image_rate_hz: float
    image_age_s: float
    condition: str
    last_error: str
    model: str
    breaks: dict[str, int] = field(default_factory=dict)
    mixture: str = ""
    overload: str = ""
    cuts: int = 0
    asked: int = 0
    reused: int = 0
    asked_again: int = 0
    contradictions: dict[str, int] = field(default_factory=dict)
    still: int = 0
    reuse: ReuseStats | None = None
    costs: dict[str, Cost] = field(default_factory=dict)
    heads: tuple[str, ...] = ()
    heads_refused: dict[str, dict[str, str]] = field(default_factory=dict)
    learned: dict[str, Learned] = field(default_factory=dict)
    views: dict[str, ViewStats] = field(default_factory=dict)
    batch_gain: float = 1.0

    @classmethod
    def of(cls, meter: Meter, views: dict[str, ViewStats], **more: Any) -> RuntimeStats:
        """Return the snapshot that a meter and those of all views make; `more`: other fields."""
        def by_question(field: str) -> dict[str, Any]:
            return {address(name, key): value for name, one in views.items()
                    for key, value in getattr(one, field).items()}

        breaks: Counter[str] = Counter()
        for one in views.values():
            breaks.update(one.breaks)
        conditions = [one.condition for one in views.values()]
        totals = ("frames", "groups", "ticks", "decisions", "segments", "scene_changes", "cuts",
                  "skipped", "errors", "asked", "reused", "asked_again", "still")
        return cls(
            **{name: meter.total(name) for name in totals},
            dropped=meter.dropped(),
            breaks=dict(breaks),
            mixture=next((one.mixture for one in views.values() if one.mixture), ""),
            overload=next((one.overload for one in views.values() if one.overload), ""),
            contradictions=by_question("contradictions"),
            costs=by_question("costs"),
            queue=sum(one.queue for one in views.values()),
            tick_ms=meter.tick_ms(),
            age_ms=meter.age_ms(),
            rates_hz=by_question("rates_hz"),
            image_rate_hz=min(one.image_rate_hz for one in views.values()),
            image_age_s=max(one.image_age_s for one in views.values()),
            condition=conditions[0] if all(conditions) else "",
            last_error=meter.last_error,
            views=views,
            **more,
        )


class Meter:
    """Thread-safe counters and recent durations. `timer` returns seconds and never goes back.

    What is noted in a part's meter is noted in the whole's, too. `model_s`: seconds that engine
    and heads have taken.
    """

    def __init__(self, timer: Callable[[], float], whole: Meter | None = None) -> None:
        """Start at zero."""
        self.timer = timer
        self.last_error = ""
        self.model_s = 0.0
        self._whole = whole
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._dropped: Counter[str] = Counter()
        self._stages: dict[str, deque[float]] = {}
        self._ages: dict[int, deque[float]] = {}

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        with self._lock:
            self._counts[name] += by
        if self._whole is not None:
            self._whole.count(name, by)

    def drop(self, cause: str, by: int = 1) -> None:
        """Add to the drops of a cause."""
        if by:
            with self._lock:
                self._dropped[cause] += by
            if self._whole is not None:
                self._whole.drop(cause, by)

    def error(self, message: str) -> None:
        """Count an error and keep its message."""
        with self._lock:
            self._counts["errors"] += 1
            self.last_error = message

    def published(self, tier: int, age_s: float | None) -> None:
        """Note a published decision, and its age where it is an answer."""
        with self._lock:
            self._counts["decisions"] += 1
            if age_s is not None:
                self._ages.setdefault(tier, deque(maxlen=MEMORY)).append(age_s * 1e3)
        if self._whole is not None:
            self._whole.published(tier, age_s)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time what happens inside, also when it raises."""
        began = self.timer()
        try:
            yield
        finally:
            self.note(name, self.timer() - began)

    @contextmanager
    def modelling(self, name: str, groups: int = 1) -> Iterator[None]:
        """Time a stage that is the model's, not this program's; of several groups, each's share."""
        began = self.timer()
        try:
            yield
        finally:
            spent_s = self.timer() - began
            self._modelled(spent_s)
            for _ in range(groups):
                self.note(name, spent_s / groups)

    def _modelled(self, seconds: float) -> None:
        self.model_s += seconds  # by the engine's thread alone
        if self._whole is not None:
            self._whole._modelled(seconds)

    def note(self, name: str, seconds: float) -> None:
        """Note how long something took."""
        with self._lock:
            self._stages.setdefault(name, deque(maxlen=MEMORY)).append(seconds * 1e3)
        if self._whole is not None:
            self._whole.note(name, seconds)

    def total(self, name: str) -> int:
        """Return a counter."""
        with self._lock:
            return self._counts[name]

    def dropped(self) -> dict[str, int]:
        """Return the drops by cause."""
        with self._lock:
            return dict(self._dropped)

    def tick_ms(self) -> dict[str, Percentiles]:
        """Return milliseconds by stage."""
        return self._summaries(self._stages)

    def age_ms(self) -> dict[int, Percentiles]:
        """Return decision ages in milliseconds by tier."""
        return self._summaries(self._ages)

    def _summaries(self, values: dict) -> dict:
        with self._lock:
            copies = {name: list(numbers) for name, numbers in values.items()}
        return {name: percentiles(numbers) for name, numbers in copies.items()}


def percentiles(values: list[float]) -> Percentiles:
    """Summarise values (any order)."""
    if len(values) < 2:
        one = float(values[0]) if values else float("nan")
        return Percentiles(one, one, len(values))
    # 5 to 20 times as fast as NumPy for up to MEMORY values, and computed by the dozen.
    twentieths = quantiles(values, n=20, method="inclusive")
    return Percentiles(twentieths[9], twentieths[18], len(values))
