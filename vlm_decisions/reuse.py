"""Reuse: what of a group's vision is taken from the groups before it; its settings and counts."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

FIRST, PIXELS, VECTORS = "first", "pixels", "vectors"
LARGE, DUE, RESIZED, LOSS = "large change", "due", "resized", "loss"
#: Why a group was encoded as it was: the first; its changed tokens, told by pixels or by motion
#: vectors; all, since much changed, since it was due, for frames of another size, after a loss.
REASONS: Final = (FIRST, PIXELS, VECTORS, LARGE, DUE, RESIZED, LOSS)

#: What tells that a visual token changed: nothing (all are encoded anew), the pixels, or the
#: motion vectors of the compressed video.
REUSE_MODES: Final = ("off", PIXELS, VECTORS)

#: Lowest and highest value of each number, for parameter descriptors and the check below.
REUSE_RANGES: Final[dict[str, tuple[float, float]]] = {
    "threshold": (0.0, 255.0),
    "full_above": (0.0, 1.0),
    "refresh_groups": (0, 10_000),
}


@dataclass(frozen=True)
class ReuseSettings:
    """When a visual token is encoded anew. Raises ValueError naming the setting.

    - `mode`: of REUSE_MODES.
    - `threshold`: mean absolute difference of a cell of 8 x 8 pixels, grey levels, from which on a
      token has changed. Of each 4 x 4 pixels the mean is compared: noise counts little.
    - `brightness`: divide out one brightness ratio per image first (flicker, exposure).
    - `full_above`: share of changed tokens above which all are encoded.
    - `refresh_groups`: all are encoded at the latest so many groups after the last time, if any
      was taken from an older group since; 0: never.
    - `skip_still`: whether a group in which nothing changed, after another such, is neither
      appended nor asked about: the last answers stand for it.
    """

    mode: str = "off"
    threshold: float = 9.0
    brightness: bool = True
    full_above: float = 0.4
    refresh_groups: int = 16
    skip_still: bool = True

    def __post_init__(self) -> None:
        """Check every value."""
        if self.mode not in REUSE_MODES:
            raise ValueError(f"reuse must be one of {', '.join(REUSE_MODES)}, not {self.mode!r}")
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.type == "bool" and not isinstance(value, bool):
                raise ValueError(f"reuse_{setting.name} must be true or false, not {value!r}")
            if setting.name not in REUSE_RANGES:
                continue
            low, high = REUSE_RANGES[setting.name]
            kinds = (int,) if setting.type == "int" else (int, float)
            if isinstance(value, bool) or not isinstance(value, kinds):
                what = "a whole number" if setting.type == "int" else "a number"
                raise ValueError(f"reuse_{setting.name} must be {what}, not {value!r}")
            if not (math.isfinite(value) and low <= value <= high):
                raise ValueError(
                    f"reuse_{setting.name} must be {low:g} to {high:g}, not {value!r}"
                )

    @property
    def on(self) -> bool:
        """Whether anything is reused."""
        return self.mode != "off"

    def values(self) -> dict[str, Any]:
        """Return the settings by name."""
        return {setting.name: getattr(self, setting.name) for setting in fields(self)}


MEASURED: Final = "reuse.json"
"""File in a checkpoint's folder that holds what `vlm-decisions study reuse --keep` measured."""


def read_measured(
    folder: Path, fingerprint: str, language: Callable[[], str]
) -> Mapping[str, Any] | None:
    """Return what was measured of reuse with a checkpoint of these weights, if anything.

    fingerprint: of the vision weights. language: gives that of the language model, and is called
    where something was measured.
    """
    try:
        found = json.loads((folder / MEASURED).read_text(encoding="utf-8"))
        same = found["fingerprint"] == fingerprint and found["language"] == language()
        return found if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def measured_text(measured: Mapping[str, Any] | None, settings: ReuseSettings) -> str:
    """Return in one line how far answers with reuse are from those without."""
    if measured is None:
        return "not measured for this model: vlm-decisions study reuse --keep"
    text = (f"{measured['equal']:.4f} of answers as without, worst scene "
            f"{measured['worst_scene']:.4f} ({measured['scenes']} scenes)")
    same = measured.get("settings") == settings.values()
    return text if same else f"{text}, measured with other settings"


@dataclass
class ReuseStats:
    """What an encoder has done so far.

    groups: by reason. tokens: of all groups; encoded: those that went through the tower, in dead
    time as well. refreshes: full passes that were due, in_dead_time: of these, in dead time.
    drift: cosine distance of the reused features from those of the last refresh that was due, mean
    over the tokens that did not change; worst_drift: the largest so far.
    """

    groups: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    encoded: int = 0
    refreshes: int = 0
    in_dead_time: int = 0
    drift: float | None = None
    worst_drift: float | None = None

    @classmethod
    def of(cls, parts: Sequence[ReuseStats]) -> ReuseStats:
        """Return the sums over encoders, with the largest drifts."""
        total = cls()
        for part in parts:
            total.groups.update(dict(part.groups))  # a copy: it may be growing
            for name in ("tokens", "encoded", "refreshes", "in_dead_time"):
                setattr(total, name, getattr(total, name) + getattr(part, name))
            for name in ("drift", "worst_drift"):
                known = [one for one in (getattr(total, name), getattr(part, name))
                         if one is not None]  # fmt: skip
                setattr(total, name, max(known, default=None))
        return total

    @property
    def share(self) -> float:
        """Share of the tokens that went through the tower."""
        return self.encoded / self.tokens if self.tokens else 1.0
