"""Settings of the runtime, validated together."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

from ..frames import FPS, MODES
from ..reuse import ReuseSettings
from ..views import View

#: Lowest and highest value of each number, for parameter descriptors and the check below.
RANGES: dict[str, tuple[float, float]] = {
    "fps": (0.5, 60.0),
    "jitter_s": (0.0, 1.0),
    "window_groups": (1, 64),
    "window_refresh": (1, 10_000),
    "queue_groups": (1, 64),
    "max_age_s": (0.1, 3600.0),
    "scene_change": (0.0, 2.0),
    "cut": (0.0, 1.0),
    "tier2_budget_s": (0.001, 60.0),
    "tolerance_s": (0.0, 1.0),
    "health_period_s": (0.05, 60.0),
    "unknown_period_s": (0.05, 60.0),
}


@dataclass(frozen=True)
class RuntimeSettings:
    """How a runtime samples, remembers and gives up. Raises ValueError naming the setting.

    - `fps`: frames sampled per second of frame time, two to a group; `jitter_s`: how far frames
      may be off before it counts as a gap; `tolerance_s`: how early a group may be for a
      question's rate.
    - `window_groups`: groups that a question sees at least (once there are so many); `mode`:
      `stream` (a running state, rebuilt now and then), `window` (the last groups anew), `image`
      (the newest frame alone, which is what decision models do) or `auto` (image for such a
      model, else stream).
    - `window_refresh`: in mode `window`, groups after which the window is computed anew; in between
      it is moved on, which is an approximation and needs full attention in all layers of the model.
    - `queue_groups`: groups that may wait; the oldest is dropped beyond.
    - `max_age_s`: images or evidence older than this make answers `unknown`.
    - `scene_change`: cosine distance between the pooled features of successive groups that makes
      every question due at once; None for never.
    - `cut`: share of the picture that a cut changes at least from one frame to the next (and more
      than the frames before it); a group across a cut is not asked about, and smoothing begins
      anew after it. None for never.
    - `tier2_budget_s`: seconds per group for the language model; None for no limit.
    - `health_period_s`, `unknown_period_s`: seconds between repeats of an unchanged camera
      health, and of an `unknown` that lasts.
    - `reuse`: what of a group's vision is taken from the groups before it.
    """

    fps: float = FPS
    jitter_s: float = 0.05
    window_groups: int = 8
    window_refresh: int = 1
    mode: str = "auto"
    queue_groups: int = 4
    max_age_s: float = 2.0
    scene_change: float | None = 0.08
    cut: float | None = 0.1
    tier2_budget_s: float | None = None
    tolerance_s: float = 0.05
    health_period_s: float = 1.0
    unknown_period_s: float = 1.0
    reuse: ReuseSettings = ReuseSettings()

    def __post_init__(self) -> None:
        """Check every value."""
        if self.mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not {self.mode!r}")
        for field in fields(self):
            if field.name not in RANGES:
                continue
            value = getattr(self, field.name)
            if value is None and "None" in field.type:
                continue
            low, high = RANGES[field.name]
            whole = field.type == "int"
            kinds = (int,) if whole else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds):
                what = "a whole number" if whole else "a number"
                raise ValueError(f"{field.name} must be {what}, not {value!r}")
            if not (math.isfinite(value) and low <= value <= high):
                raise ValueError(f"{field.name} must be {low:g} to {high:g}, not {value!r}")

        if self.window_refresh > 1 and self.mode != "window":
            raise ValueError(
                f"window_refresh ({self.window_refresh}) is for mode 'window', not {self.mode!r}"
            )

    def of(self, view: View) -> RuntimeSettings:
        """Return the settings for a view: its own where it has some."""
        own = {"fps": view.sample_hz, "window_groups": view.window_groups,
               "max_age_s": view.max_age_s}
        return replace(self, **{name: value for name, value in own.items() if value is not None})
