"""A check that the shared pass is right on this device with this checkpoint, at load.

Two groups go through a stream with the engine's own vision encoder, questions behind them, and
through mlx-vlm's own modules as ordinary sequences. In float32 both must agree within fixed
limits. In half precision nothing agrees to the last digit: there both are compared with a run of
the same weights in float32, and the shared pass may be no farther from it than the ordinary
forward is (plus the standard error of that distance, which comes from few questions). The controls
break one thing on purpose and must be beyond the limit, or the check would prove nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from ..frames import FPS
from . import plain
from .readout import Query, Readout

QUERIES: Final = (
    Query("Is something moving to the right?"),  # what it shows: an answer that a group can turn
    Query("Is the person holding a phone in front of the open laptop?"),
    Query("What is it?", ("one of these", "another thing", "none of them")),
)


@dataclass(frozen=True)
class Distance:
    """How far answers are from a reference.

    state: root mean square over questions and layers of the relative error of the decision token's
    state. probability: largest difference of a probability; as a limit None where it follows from
    the state's.
    """

    state: float
    probability: float | None

    def within(self, limit: Distance) -> bool:
        """Whether no larger than ``limit`` (written so that a NaN never is)."""
        probability = math.inf if limit.probability is None else limit.probability
        return self.state <= limit.state and self.probability <= probability

    def beyond(self, limit: Distance) -> bool:
        """Whether larger than ``limit`` in all it limits."""
        free = limit.probability is None
        return self.state > limit.state and (free or self.probability > limit.probability)

    def __str__(self) -> str:
        """Name the numbers there are."""
        change = "" if self.probability is None else f", |dP| {self.probability:.1e}"
        return f"state {self.state:.1e}{change}"


FLOAT32: Final = Distance(4.5e-3, 1e-4)  # a cosine of 0.99999


def distance(got: Sequence[Readout], want: Sequence[Readout]) -> Distance:
    """Compare readouts that hold their states; one of an early depth up to there."""
    errors, worst = [], [0.0]
    for a, b in zip(got, want, strict=True):
        x, y = a.hidden.astype(np.float64), b.hidden[: a.depth].astype(np.float64)
        with np.errstate(all="ignore"):  # what is not finite is told by the result
            errors.append(np.linalg.norm(x - y, axis=1) / np.linalg.norm(y, axis=1))
        if a.depth == b.depth:
            worst.append(np.abs(a.probabilities - b.probabilities).max())
    state = np.sqrt(np.mean(np.concatenate(errors) ** 2))
    return Distance(float(state), float(np.max(worst)))  # NumPy's max: a NaN stays one


def half_limit(plain_readouts: Sequence[Readout], reference: Sequence[Readout]) -> Distance:
    """Return how far the ordinary forward is from its run in float32, plus a standard error.

    That of a root mean square of n values is 1 / sqrt(2 n) of it; n questions give n values, since
    the layers of one are no independent ones.
    """
    state = distance(plain_readouts, reference).state
    return Distance(state * (1 + (2 * len(reference)) ** -0.5), None)


@dataclass(frozen=True)
class SelfCheck:
    """What the check found; ok: within the limit, and every control beyond it."""

    dtype: str
    device: str
    distance: Distance
    limit: Distance
    controls: dict[str, Distance]
    seconds: float

    @property
    def missed(self) -> list[str]:
        """Controls that were not noticed."""
        return [name for name, far in self.controls.items() if not far.beyond(self.limit)]

    @property
    def ok(self) -> bool:
        """Whether the shared pass can be trusted here."""
        return self.distance.within(self.limit) and not self.missed

    def __str__(self) -> str:
        """One sentence for a log."""
        what = f"{self.distance} from the ordinary forward (limit: {self.limit})"
        where = f"{self.dtype} on the {self.device}, {self.seconds:.1f} s"
        if not self.distance.within(self.limit):
            return f"self-check FAILED: the shared pass is {what}; {where}"
        if self.missed:
            return f"self-check FAILED: it does not notice {', '.join(self.missed)}; {where}"
        return f"self-check passed: the shared pass is {what}; {where}"


def moving_square(height: int, width: int, n: int, seed: int = 0) -> list[np.ndarray]:
    """Return ``n`` textured uint8 frames (H, W, 3) with a moving square."""
    rng = np.random.default_rng(seed)
    ground = rng.integers(0, 160, (height, width, 3), dtype=np.uint8)
    side = height // 4
    frames = []
    for i in range(n):
        frame = ground.copy()
        x, y = (7 * i + 5 * seed) % (width - side), (3 * i) % (height - side)
        frame[y : y + side, x : x + side] = (250, (40 + 5 * i) % 256, 90)
        frames.append(frame)
    return frames


def spacing_s(engine: Any) -> float:
    """Return how far apart the check's groups are, in seconds.

    mlx-vlm's ordinary forward counts the groups of a block instead of reading their times.
    """
    per_s = engine.tokens_per_second
    return 2 / FPS if per_s is None else 1 / per_s


def self_check(engine: Any) -> SelfCheck:
    """Compare an Engine's shared pass with the ordinary one, and with what the controls break."""
    began = time.perf_counter()
    shown = moving_square(*engine.settings.target_size(480, 640), 4)
    pairs = [shown[:2], shown[2:]]
    times_s = (0.5 / FPS, 0.5 / FPS + spacing_s(engine))
    exact = engine.dtype == "float32"
    reference = _plain(engine, pairs, times_s, wide=not exact)
    limit = FLOAT32 if exact else half_limit(_plain(engine, pairs, times_s, wide=False), reference)
    stream = engine.stream(2)
    for pair, t_s in zip(pairs, times_s, strict=True):
        stream.append(engine.encode(pair), t_s)
        got = stream.ask(QUERIES, hidden=True)
    groups = stream.groups
    shifted = engine.window(groups, times_s)
    shifted.prefill()
    shifted.state.next_position = shifted.state.length
    broken = {
        "wrong positions": shifted,
        "a missing group": engine.window(groups[1:], times_s[1:]),
        "groups in the wrong order": engine.window(groups[::-1], times_s),
    }
    controls = {
        name: distance(prefix.ask(QUERIES, hidden=True), reference)
        for name, prefix in broken.items()
    }
    seconds = time.perf_counter() - began
    return SelfCheck(
        engine.dtype, engine.device, distance(got, reference), limit, controls, seconds
    )


def _plain(
    engine: Any, pairs: Sequence, times_s: Sequence[float], *, wide: bool
) -> list[Readout]:
    seen = plain.see(engine.model, engine.settings, pairs, wide=wide)
    return [
        plain.forward(engine, engine.model, seen, times_s, query, wide=wide) for query in QUERIES
    ]
