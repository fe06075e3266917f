"""How a running system does, as one value: written by the node, read by the viewer, sent as JSON.

The JSON is one object with the fields of System by name. Percentiles are [median, 95th], in
milliseconds; null stands for a number that is not known.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .settings import RuntimeSettings
from .statistics import Percentiles, RuntimeStats

COUNTS = ("frames", "groups", "ticks", "decisions", "segments", "scene_changes", "skipped",
          "errors")
"""The totals of RuntimeStats that `counts` holds, under their names there."""


@dataclass(frozen=True)
class Status:
    """One line of diagnostics; `level` 0 good, 1 warning, 2 error, 3 no news."""

    name: str
    level: int
    message: str


@dataclass(frozen=True)
class System:
    """How the running system does.

    - `node`: fully qualified name of the node, empty without ROS. `state`: its lifecycle label, or
      `loading`, `active` and `ended` (a recording was played to its end) without ROS.
      `failure`: why it could not be configured, or empty.
    - `model`, `device`: what answers, and where. `topic`: of the images.
    - `image_rate_hz`, `image_age_s`: of the images; the age is NaN before the first.
    - `queue`: groups that wait. `counts`: totals by name (COUNTS); `dropped`, `breaks`: by cause.
    - `tick_ms`, `age_ms`: by stage (see RuntimeStats) and by tier. `group_ms`: time between two
      groups; where `tick_ms["total"]` is longer, the machine cannot keep up.
    - `costs`: by question, its tokens and the milliseconds of an asking (0 tokens: a head answers);
      `overload`: what is too dear where not all rates hold, or empty.
    - `rates_hz`: achieved rate by question. `memory_mb`: of the process.
    - `learned`: what was learned of a question and is in use, by question (see Learned.summary).
    - `corrections`: whether what is corrected is kept.
    - `condition`: why no question can be answered now, or empty. `last_error`: newest message.
    - `max_age_s`: an answer older than that is stale. `statuses`: the lines of diagnostics.
    - `views`: where there are several, by name: `topic` of the images, and `condition` (why none of
      its questions can be answered now, or empty).
    - `mark`: what a picture must be marked with, or empty: that the model cannot know it, say.

    NaN stands for a number that is not known.
    """

    node: str = ""
    state: str = ""
    failure: str = ""
    model: str = ""
    device: str = ""
    topic: str = ""
    image_rate_hz: float = math.nan
    image_age_s: float = math.nan
    queue: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    breaks: Mapping[str, int] = field(default_factory=dict)
    tick_ms: Mapping[str, Percentiles] = field(default_factory=dict)
    age_ms: Mapping[str, Percentiles] = field(default_factory=dict)
    group_ms: float = math.nan
    rates_hz: Mapping[str, float] = field(default_factory=dict)
    costs: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    overload: str = ""
    learned: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    corrections: bool = False
    memory_mb: float = math.nan
    condition: str = ""
    last_error: str = ""
    max_age_s: float = 2.0
    views: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    mark: str = ""
    statuses: tuple[Status, ...] = ()

    @classmethod
    def of(cls, stats: RuntimeStats, settings: RuntimeSettings, **more: Any) -> System:
        """Return what `stats` say of a runtime with these settings; `more`: further fields."""
        return cls(**{
            "state": "active" if stats.model else "loading", "model": stats.model,
            "image_rate_hz": stats.image_rate_hz,
            "image_age_s": stats.image_age_s if math.isfinite(stats.image_age_s) else math.nan,
            "queue": stats.queue,
            "counts": {name: getattr(stats, name) for name in COUNTS},
            "dropped": dict(stats.dropped), "breaks": dict(stats.breaks),
            "tick_ms": dict(stats.tick_ms),
            "age_ms": {str(tier): ms for tier, ms in sorted(stats.age_ms.items())},
            "costs": {name: (cost.tokens, cost.ms) for name, cost in stats.costs.items()},
            "overload": stats.overload, "group_ms": 2e3 / settings.fps,
            "rates_hz": dict(stats.rates_hz),
            "learned": {name: one.summary() for name, one in stats.learned.items()},
            "condition": stats.condition, "last_error": stats.last_error,
            "max_age_s": settings.max_age_s,
            "statuses": (Status("image", 1, stats.mixture),) if stats.mixture else (), **more})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        values = {name: finite(value) if isinstance(value, float) else value
                  for name, value in self.__dict__.items()}
        for name in ("tick_ms", "age_ms"):
            values[name] = {key: [finite(ms.p50), finite(ms.p95)]
                            for key, ms in values[name].items()}
        values["costs"] = {name: [tokens, finite(ms)] for name, (tokens, ms) in self.costs.items()}
        for name in ("counts", "dropped", "breaks"):
            values[name] = dict(values[name])
        values["rates_hz"] = {name: finite(hz) for name, hz in self.rates_hz.items()}
        values["learned"] = {name: dict(one) for name, one in self.learned.items()}
        values["views"] = {name: dict(view) for name, view in self.views.items()}
        values["statuses"] = [dict(status.__dict__) for status in self.statuses]
        return values

    def to_json(self) -> str:
        """Return one line of strict JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> System:
        """Return what `to_json` wrote; unknown fields are left out. Raises ValueError."""
        try:
            values = json.loads(text)
            if not isinstance(values, dict):
                raise ValueError("it is not an object")
            fields = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
            for name, value in fields.items():
                fields[name] = _READ.get(name, _same_type(getattr(cls, name, None)))(value)
            return cls(**fields)
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"statistics that cannot be read: {error}") from error


def finite(value: float) -> float | None:
    """Return a number that JSON can hold: None for what is not finite."""
    return round(float(value), 4) if math.isfinite(value) else None


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _same_type(default: Any) -> Any:
    return _number if isinstance(default, float) else type(default)


def _by_name(read: Any) -> Any:
    return lambda values: {str(name): read(value) for name, value in values.items()}


_READ = {
    "costs": _by_name(lambda pair: (int(pair[0]), _number(pair[1]))),
    "counts": _by_name(int), "dropped": _by_name(int), "breaks": _by_name(int),
    "rates_hz": _by_name(_number), "views": _by_name(_by_name(str)),
    "learned": _by_name(dict),
    "tick_ms": _by_name(lambda pair: Percentiles(_number(pair[0]), _number(pair[1]), 0)),
    "age_ms": _by_name(lambda pair: Percentiles(_number(pair[0]), _number(pair[1]), 0)),
    "statuses": lambda lines: tuple(
        Status(str(line["name"]), int(line["level"]), str(line["message"])) for line in lines),
}
