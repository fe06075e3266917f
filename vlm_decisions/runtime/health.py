"""Tier 0: can questions about the camera's images be answered? Checked on every frame, first.

A monitor keeps the camera's state, a reporter makes decisions of it: on each change, and at a
modest rate in between. Each measure is content-independent as far as one image allows, works on a
copy of at most 320 pixels (what a model sees, too), and becomes a probability through a logistic
curve whose middle and width were set on photographs, videos and drawings of both kinds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np

from ..decision import HEALTH_IDS, NO, NO_IMAGE, OK, TIER_HEALTH, UNKNOWN, YES, Decision
from ..frames import NS, Frame

DARK, BRIGHT, BLURRED, FROZEN, OCCLUDED = HEALTH_IDS

#: A condition begins at ENTER and ends at EXIT (smoothed probability), as for any question.
ENTER, EXIT = 0.65, 0.35

#: Smoothed probability from which, and down to which, a condition makes the camera unusable.
#: A dark or blurred image is reported (`yes`) well before it is unusable.
UNUSABLE_ENTER = {DARK: 0.997, BRIGHT: 0.9, BLURRED: 0.97, FROZEN: ENTER, OCCLUDED: 0.9}
UNUSABLE_EXIT = {DARK: 0.99, BRIGHT: 0.8, BLURRED: 0.9, FROZEN: EXIT, OCCLUDED: 0.7}

WIDTH = 320

_ROW = np.ones((1, 9), np.uint8)
_DIAGONAL = np.eye(7, dtype=np.uint8)
#: Window along a direction, the step in it, and how much longer the step is than a pixel
#: (measured on blurred edges: a diagonal step is 1.2 times as sharp).
_DIRECTIONS = (
    (_ROW, (0, 1), 1.0),
    (_ROW.T.copy(), (1, 0), 1.0),
    (_DIAGONAL, (1, 1), 1.2),
    (_DIAGONAL[::-1].copy(), (-1, 1), 1.2),
)
_EDGE_CONTRAST = 32
_MIN_EDGE_SHARE = 4e-4
_DETAIL_KERNEL = np.ones((5, 5), np.uint8)


@dataclass(frozen=True)
class HealthState:
    """What is known of the camera after a frame.

    `p_raw`: that frame's probabilities by id, `p`: smoothed, `active`: the ids whose condition
    holds, `reason`: why the camera is unusable, empty where it is usable.
    """

    p_raw: Mapping[str, float]
    p: Mapping[str, float]
    active: frozenset[str]
    reason: str


class HealthMonitor:
    """Watch frames for dark, bright, blurred, frozen and occluded, smoothed over frame time.

    `tau_s` is the time constant of the smoothing: one bad frame among good ones is no condition.
    `frozen_s` is how long frames must be identical to the bit: real sensors have noise, so a
    still scene is never that. After `update`: `p` (smoothed), `active` (the ids whose condition
    holds, with hysteresis), `usable` and `reason`. Not thread-safe.
    """

    def __init__(self, tau_s: float = 0.25, frozen_s: float = 1.0) -> None:
        """Both in seconds of frame time, above 0."""
        if not tau_s > 0 or not frozen_s > 0:
            raise ValueError("tau_s and frozen_s must be above 0")
        self.tau_s = tau_s
        self.frozen_s = frozen_s
        self.reset()

    def reset(self) -> None:
        """Forget what was seen; the next frame counts by itself."""
        self.p: dict[str, float] = {}
        self.active: set[str] = set()
        self.unusable: set[str] = set()
        self._raw: dict[str, float] = {}
        self._last: Frame | None = None
        self._same_since_ns = 0

    def state(self) -> HealthState:
        """Return what is known after the last frame."""
        return HealthState(dict(self._raw), dict(self.p), frozenset(self.active), self.reason)

    @property
    def usable(self) -> bool:
        """False if answers about these frames would have no meaning."""
        return not self.unusable

    @property
    def reason(self) -> str:
        """Why the camera is unusable, empty where it is usable."""
        names = [name.removeprefix("camera_") for name in HEALTH_IDS if name in self.unusable]
        return f"camera {' and '.join(names)}" if names else ""

    def update(self, frame: Frame) -> dict[str, float]:
        """Take the next frame and return this frame's probability for each id of HEALTH_IDS.

        Frames must come in order of stamps; call reset() where time goes backwards.
        """
        raw = image_health(frame.image)
        raw[FROZEN] = self._frozen(frame)
        keep = 0.0
        if self._last is not None and self.p:
            dt_s = max(0.0, (frame.stamp_ns - self._last.stamp_ns) / 1e9)
            keep = math.exp(-dt_s / self.tau_s)
        self._last, self._raw = frame, raw
        for name, value in raw.items():
            # Frozen measures a duration itself: smoothing would only delay it.
            weight = 0.0 if name == FROZEN else keep
            self.p[name] = smoothed = weight * self.p.get(name, value) + (1 - weight) * value
            _switch(self.active, name, smoothed, ENTER, EXIT)
            _switch(self.unusable, name, smoothed, UNUSABLE_ENTER[name], UNUSABLE_EXIT[name])
        return raw

    def _frozen(self, frame: Frame) -> float:
        """Rise from 0 with the time the image has been the same, through ENTER at `frozen_s`."""
        if self._last is None or not same_image(self._last.image, frame.image):
            self._same_since_ns = frame.stamp_ns
            return 0.0
        same_s = (frame.stamp_ns - self._same_since_ns) / 1e9
        return min(1.0, ENTER * same_s / self.frozen_s)


class HealthReporter:
    """Turn the camera's state into decisions. Not thread-safe: the owner serialises the calls."""

    def __init__(self, period_s: float = 1.0) -> None:
        """`period_s`: seconds of frame time between reports of an unchanged condition."""
        self._period_ns = round(period_s * NS)
        self.answers: dict[str, str] = {}
        self._since_ns: dict[str, int] = {}
        self._reported_ns: dict[str, int] = {}
        self._last: Frame | None = None

    def reset(self) -> None:
        """Report everything at the next frame (frame time started anew)."""
        self._reported_ns.clear()

    def report(self, frame: Frame, health: HealthState, now_ns: int) -> list[Decision]:
        """Return the decisions due after `frame`."""
        self._last = frame
        out = []
        for name in HEALTH_IDS:
            answer = YES if name in health.active else NO
            reported_ns = self._reported_ns.get(name)
            waited = reported_ns is None or frame.stamp_ns - reported_ns >= self._period_ns
            if answer != self.answers.get(name) or waited:
                self._reported_ns[name] = frame.stamp_ns
                out.append(
                    self._decision(
                        name, answer, health.p[name], health.p_raw[name], frame.stamp_ns, now_ns
                    )
                )
        return out

    def unknown(self, reason: str, now_ns: int, status: str = NO_IMAGE) -> list[Decision]:
        """Return that nothing is known of the camera any more, for `reason`."""
        self._reported_ns.clear()
        return [
            self._decision(name, UNKNOWN, math.nan, math.nan, now_ns, now_ns, reason, status)
            for name in HEALTH_IDS
        ]

    def _decision(
        self,
        name: str,
        answer: str,
        p: float,
        p_raw: float,
        began_ns: int,
        now_ns: int,
        reason: str = "",
        status: str = OK,
    ) -> Decision:
        changed = answer != self.answers.get(name)
        if changed:
            self.answers[name], self._since_ns[name] = answer, began_ns
        stamp_ns = self._last.stamp_ns if self._last else 0
        return Decision(
            question_id=name,
            answer=answer,
            p=p,
            p_raw=p_raw,
            options=(),
            probabilities=(),
            tier=TIER_HEALTH,
            depth=0,
            t_start_ns=stamp_ns,
            t_end_ns=stamp_ns,
            t_decided_ns=now_ns,
            changed=changed,
            since_ns=self._since_ns[name],
            model="",
            frame_id=self._last.frame_id if self._last else "",
            reason=reason,
            status=status,
            t_asked_ns=0 if answer == UNKNOWN else stamp_ns,
        )


def image_health(image: np.ndarray) -> dict[str, float]:
    """Return what one uint8 (H, W, 3) image shows: probabilities of all but frozen."""
    grey = grey_copy(image)
    p10, p50, p90, saturated = _levels(grey)
    bright = max(
        _logistic((p10 + p50) / 2, 225.0, 6.0),
        _logistic(saturated, 0.6, 0.06),
    )
    return {
        DARK: _logistic((p50 + p90) / 2, 83.0, -10.0),
        BRIGHT: bright,
        BLURRED: _blurred(grey),
        OCCLUDED: _logistic(detail_share(grey), 0.01, -0.002),
    }


def grey_copy(image: np.ndarray) -> np.ndarray:
    """Return uint8 (h, w), the longer side at most WIDTH, area-averaged."""
    height, width = image.shape[:2]
    scale = WIDTH / max(height, width)
    grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)  # first: one channel to average, not three
    if scale < 1:
        size = (max(1, round(width * scale)), max(1, round(height * scale)))
        grey = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    return grey


def same_image(one: np.ndarray, other: np.ndarray) -> bool:
    """Tell whether two images are identical to the bit."""
    if one.shape != other.shape:
        return False
    if not np.array_equal(one[::16, ::16], other[::16, ::16]):  # the usual case, in microseconds
        return False
    return np.array_equal(one, other)


def edge_sharpness(grey: np.ndarray) -> float:
    """Return how sharp the sharpest edges are, in the direction where that is least.

    An edge's largest step from pixel to pixel, over the contrast it rises by within the window:
    0.83 for a perfect step (seen diagonally), 0.4 / sigma after a Gaussian blur of sigma pixels,
    whatever the contrast, so plain drawings and rich photographs compare. Motion blurs one
    direction only, hence four are looked at. NaN where none has edges enough to tell.
    """
    worst = math.nan
    for window, step, length in _DIRECTIONS:
        contrast = cv2.subtract(cv2.dilate(grey, window), cv2.erode(grey, window))
        difference = _difference(grey, step)
        edges = (contrast > _EDGE_CONTRAST) & (difference == cv2.dilate(difference, window))
        index = np.flatnonzero(edges)
        if len(index) < max(8, _MIN_EDGE_SHARE * grey.size):
            continue
        ratio = difference.ravel()[index].astype(np.float32) / contrast.ravel()[index]
        rank = int(0.95 * (len(ratio) - 1))
        worst = np.fmin(worst, np.partition(ratio, rank)[rank] / length)
    return float(worst)


def detail_share(grey: np.ndarray) -> float:
    """Return the share of the image near which anything at all stands out, 0 to 1."""
    size = (max(1, grey.shape[1] // 2), max(1, grey.shape[0] // 2))
    half = cv2.resize(grey, size, interpolation=cv2.INTER_AREA)
    half = cv2.blur(half, (3, 3))  # sensor noise in the dark is no detail
    contrast = cv2.subtract(cv2.dilate(half, _DETAIL_KERNEL), cv2.erode(half, _DETAIL_KERNEL))
    return float(np.count_nonzero(contrast > 20) / contrast.size)


def _blurred(grey: np.ndarray) -> float:
    sharpness = edge_sharpness(grey)
    # No edges to judge by: then it is occluded or dark, and those say so.
    return 0.0 if math.isnan(sharpness) else _logistic(sharpness, 0.33, -0.02)


def _difference(grey: np.ndarray, step: tuple[int, int]) -> np.ndarray:
    dy, dx = step
    height, width = grey.shape
    out = np.zeros_like(grey)
    if height <= abs(dy) or width <= dx:
        return out
    here = (slice(max(0, -dy), height - max(0, dy)), slice(0, width - dx))
    there = (slice(max(0, dy), height - max(0, -dy)), slice(dx, width))
    out[here] = cv2.absdiff(grey[here], grey[there])
    return out


def _levels(grey: np.ndarray) -> tuple[int, int, int, float]:
    """Return the 10th, 50th and 90th percentile, and the share of pixels at 250 or above."""
    share = np.cumsum(cv2.calcHist([grey], [0], None, [256], [0, 256])) / grey.size
    p10, p50, p90 = np.searchsorted(share, (0.1, 0.5, 0.9))
    return int(p10), int(p50), int(p90), float(1.0 - share[249])


def _logistic(value: float, middle: float, width: float) -> float:
    """Return 1/2 at `middle`, towards 1 above it (below it where `width` is negative)."""
    x = (value - middle) / width
    return 1.0 / (1.0 + math.exp(-max(-60.0, min(60.0, x))))


def _switch(names: set[str], name: str, value: float, enter: float, exit_: float) -> None:
    if value >= enter:
        names.add(name)
    elif value <= exit_:
        names.discard(name)
