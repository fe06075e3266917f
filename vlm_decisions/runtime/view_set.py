"""The views that there are, and the cameras they are of."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from operator import methodcaller

from ..files.listing import listed
from ..questions import Question
from ..views import View, ViewError
from .intake import Intake
from .settings import RuntimeSettings
from .statistics import Meter
from .view_state import ViewState


class ViewSet:
    """The views in order; each camera has one intake, whichever views it feeds.

    Read without a lock: `all` is replaced as a whole. Changed under the owner's lock.
    """

    def __init__(
        self, settings: RuntimeSettings, meter: Meter, changed: threading.Condition
    ) -> None:
        """Begin with none. `changed`: told of when groups come."""
        self.all: tuple[ViewState, ...] = ()
        self._settings, self._meter, self._changed = settings, meter, changed
        self._intakes: dict[tuple[str, str], Intake] = {}  # by camera

    def add(self, view: View) -> ViewState:
        """Take in a view, the name of which is new."""
        intake = self._intakes.get(view.camera)
        if intake is None:
            intake = Intake(self._settings, self._meter, self._changed)
            self._intakes[view.camera] = intake
        added = ViewState(view, self._settings, intake, self._meter)
        self.all = (*self.all, added)
        return added

    def remove(self, name: str) -> None:
        """Take a view out that is there, and its camera with the last view of it."""
        gone = self.named(name)
        self.all = tuple(view for view in self.all if view is not gone)
        gone.intake.close(gone.queue)
        if not self.seen_by(gone.intake):
            del self._intakes[gone.view.camera]

    def named(self, name: str) -> ViewState | None:
        """Return the view of a name."""
        return next((view for view in self.all if view.name == name), None)

    def asked(self, question: Question) -> list[ViewState]:
        """Return the views that a question is asked of."""
        return [view for view in self.all if question.is_of(view.name)]

    # -- cameras ---------------------------------------------------------------------------------

    def cameras(self) -> Iterator[Intake]:
        """Go through the cameras' intakes."""
        return iter(tuple(self._intakes.values()))

    def size(self, camera: tuple[str, str]) -> tuple[int, int] | None:
        """Return height and width of what a camera shows now, if that is known."""
        intake = self._intakes.get(camera)
        return intake.size if intake else None

    def of_camera(self, camera: tuple[str, str] | None) -> tuple[Intake, list[ViewState]]:
        """Return a camera's intake, and the views of it; None is the only one. Raises ViewError."""
        if camera is None and len(self._intakes) == 1:
            camera = next(iter(self._intakes))
        if camera not in self._intakes:
            there = listed(sorted(topic or "the node's own" for topic, _ in self._intakes))
            raise ViewError(f"no view is of the camera {camera} (there are views of: {there})")
        intake = self._intakes[camera]
        return intake, self.seen_by(intake)

    def seen_by(self, intake: Intake) -> list[ViewState]:
        """Return the views of a camera, by its intake."""
        return [view for view in self.all if view.intake is intake]

    # -- what is to be done ----------------------------------------------------------------------

    @property
    def unopened(self) -> list[ViewState]:
        """Those that the engine has yet to open."""
        return [view for view in self.all if not view.opened]

    @property
    def has_groups(self) -> bool:
        """Whether a group waits or is in work."""
        return any(view.processor and (len(view.queue) or view.turn) for view in self.all)

    def to_look_at(self, now_ns: int) -> list[ViewState]:
        """Return the views that a group is to be taken of now.

        Where time to ask is scarce, that is the most urgent one alone: none is spent on what will
        not be asked about. The others are noted as passed over.
        """
        with_groups = [view for view in self.all if view.processor and len(view.queue)]
        if not any(view.turn and view.starves(now_ns) for view in self.all):
            return with_groups
        waiting = [view for view in self.all if view.turn or len(view.queue)]
        first = max(waiting, key=methodcaller("urgency", now_ns))
        for view in with_groups:
            view.passed_over |= view is not first
        return [view for view in with_groups if view is first]

    def to_ask(self, now_ns: int) -> ViewState | None:
        """Return the view whose answers would otherwise be oldest, of those with a group seen."""
        waiting = [view for view in self.all if view.turn]
        return max(waiting, key=methodcaller("urgency", now_ns), default=None)
