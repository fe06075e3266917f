"""What this machine can hold: one group of each view, with all its questions, measured at start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from .engine_protocol import EngineLike
from .view_state import ViewState

#: Size of the blank picture that is measured on, (height, width) in pixels.
SIZE = 480, 640


@dataclass(frozen=True)
class Tick:
    """What a group of one view takes with all its questions, and the time between two groups.

    Both in seconds. `questions`: those that the language model answers.
    """

    view: str
    tick_s: float
    group_s: float
    questions: int


@dataclass(frozen=True)
class Speed:
    """What the ticks of all views take together."""

    ticks: tuple[Tick, ...]

    @property
    def load(self) -> float:
        """Share of the engine's time that all groups and questions need; above 1 is too much."""
        return sum(tick.tick_s / tick.group_s for tick in self.ticks)

    def __str__(self) -> str:
        """Return it for the log: what it takes, and what rate can be held where it is too much."""
        per_s = sum(1.0 / tick.group_s for tick in self.ticks)
        questions = sum(tick.questions for tick in self.ticks)
        mean_ms = 1e3 * self.load / per_s
        what = f"{questions} question{'' if questions == 1 else 's'}"
        if len(self.ticks) > 1:
            what += f" of {len(self.ticks)} views"
        text = (f"a group of images with {what} takes {mean_ms:.0f} ms, and {per_s:.3g} come a "
                f"second: {100 * self.load:.0f}% of the time")
        if self.load <= 1.0:
            return text
        return (f"the machine cannot keep up: {text}. It can hold {per_s / self.load:.2g} groups "
                "a second with these questions")


def measure(
    engine: EngineLike, views: Iterable[ViewState], timer: Callable[[], float] = time.perf_counter
) -> Speed:
    """Take a blank group of each view through the engine, with the questions that stand.

    Belongs to the engine's thread. A question that cannot be asked is left out: it is told when it
    is asked.
    """
    blank = np.zeros((*SIZE, 3), np.uint8)
    ticks = []
    for view in views:
        questions = [one for one in view.questions if view.processor.answerers.is_models(one)]
        sized = {"pixel_budget": view.view.pixel_budget} if view.view.pixel_budget else {}
        images = [view.view.cut(blank)] * engine.n_frames
        stream = engine.stream(
            window_groups=view.settings.window_groups, mode=view.settings.mode
        )
        taken_s = []
        for number in range(2 if not ticks else 1):  # the first pass of a shape may compile
            began_s = timer()
            stamp_ns = round((0.1 + number * 2 / view.settings.fps) * 1e9)
            try:
                stream.append(engine.encode(images, **sized), (stamp_ns, stamp_ns))
                if questions:
                    stream.ask(questions)
            except Exception:
                break
            taken_s.append(timer() - began_s)
        if taken_s:
            ticks.append(Tick(view.name, min(taken_s), 2.0 / view.settings.fps, len(questions)))
    return Speed(tuple(ticks))
