"""Play a recording through the runtime as fast as possible, with the same answers every time.

Each group is processed as soon as it is complete, before the next frame, however long it takes. So
the answers do not depend on the machine, unless they take longer than `max_age_s`. The time of a
decision is frame time plus, with `measured` latency, the seconds that this machine took since the
group was complete; with `none` it is frame time alone, and the times are the same on every machine.
Groups that took longer than their period are counted (`overruns`): in real time other groups would
have been dropped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...decision import Decision
from ...events import Event, EventBook
from ...frames import NS, Frame
from ...question_book import QuestionBook
from ...runtime import Runtime
from ...runtime.engine_protocol import EngineLike
from ...runtime.settings import RuntimeSettings
from .engines import MeteredEngine

LATENCIES = ("measured", "none")


@dataclass
class Playback:
    """The result of playing a recording. Times are the recording's frame time.

    Attributes:
        decisions: all that were made.
        events: all that occurred.
        errors: messages of the runtime.
        stage_s: seconds of every call of the engine, by stage.
        turns_s: for each group, seconds of the engine for it, and of dead-time work after it.
        frames: number of frames.
        groups: number of groups.
        dropped: number of dropped frames or groups, by cause.
        period_s: time between groups.
        first_ns: stamp of the first frame.
        last_ns: stamp of the last frame.
        wall_s: seconds that playing took.
        heads: names of the heads that were loaded.
        model: name of the model.
        n_layers: layers of its language model, 0 where that is not known.
    """

    decisions: list[Decision] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    stage_s: dict[str, list[float]] = field(default_factory=dict)
    turns_s: list[list[float]] = field(default_factory=list)
    frames: int = 0
    groups: int = 0
    dropped: dict[str, int] = field(default_factory=dict)
    period_s: float = 0.25
    first_ns: int = 0
    last_ns: int = 0
    wall_s: float = 0.0
    heads: tuple[str, ...] = ()
    model: str = ""
    n_layers: int = 0

    @property
    def overruns(self) -> int:
        """Number of groups that took longer than their period."""
        return sum(busy_s > self.period_s for busy_s, _ in self.turns_s)


class FrameClock:
    """Frame time, set by the player. If `running`, it then advances in real seconds."""

    def __init__(self, running: bool, timer: Callable[[], float] = time.perf_counter) -> None:
        """Start at 0."""
        self._running, self._timer = running, timer
        self.set(0)

    def set(self, now_ns: int) -> None:
        """Set the time to `now_ns`."""
        self._now_ns, self._since_s = now_ns, self._timer()

    def __call__(self) -> int:
        """Return the time in nanoseconds."""
        passed_s = self._timer() - self._since_s if self._running else 0.0
        return self._now_ns + round(passed_s * NS)


def play_fast(
    frames: Iterable[Frame],
    engine: EngineLike,
    book: QuestionBook,
    *,
    settings: RuntimeSettings | None = None,
    head_paths: Sequence[Any] = (),
    latency: str = "measured",
    timer: Callable[[], float] = time.perf_counter,
    progress: Callable[[float], None] | None = None,
) -> Playback:
    """Play frames through a runtime in this thread, which must be the engine's own.

    Args:
        frames: of the recording.
        engine: the model.
        book: the questions.
        settings: of the runtime.
        head_paths: files and folders of heads.
        latency: one of LATENCIES.
        timer: seconds, for durations.
        progress: gets the seconds of frame time played.

    Raises:
        ValueError: another `latency`; and the errors of the frames.
    """
    if latency not in LATENCIES:
        raise ValueError(f"latency must be one of {', '.join(LATENCIES)}, not {latency!r}")
    outcome = Playback()
    metered = MeteredEngine(engine, timer)
    clock = FrameClock(latency == "measured", timer)
    events = EventBook(book.events)

    def decided(decision: Decision) -> None:
        outcome.decisions.append(decision)
        outcome.events.extend(events.update(decision))

    runtime = Runtime(lambda: metered, book, on_decision=decided, on_error=outcome.errors.append,
                      settings=settings, head_paths=head_paths, clock_ns=clock,
                      timer=timer)
    runtime.step()  # loads the model; there is no frame yet
    began_s = time.perf_counter()
    outcome.period_s = 2.0 / runtime.settings.fps
    for frame in frames:
        if outcome.frames == 0:
            outcome.first_ns = frame.stamp_ns
        outcome.frames += 1
        outcome.last_ns = frame.stamp_ns
        clock.set(frame.stamp_ns)
        runtime.check_freshness(frame.stamp_ns)
        runtime.push(frame)
        runtime.step()
        if progress:
            progress((frame.stamp_ns - outcome.first_ns) / NS)
    stats = runtime.stats()
    outcome.wall_s = time.perf_counter() - began_s
    outcome.stage_s, outcome.turns_s = metered.spent_s, metered.turns
    outcome.groups, outcome.dropped = stats.groups, stats.dropped
    outcome.heads, outcome.model = stats.heads, stats.model
    outcome.n_layers = engine.n_layers
    return outcome
