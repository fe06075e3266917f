"""What the model saw lately: the material of corrections, kept for a while and then forgotten."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from ..frames import NS, Frame
from ..runtime.evidence import Look
from ..runtime.heads import colours_of

KEPT_S = 120.0
"""A group is remembered for so long, seconds of frame time."""

MAX_GROUPS = 2048
PICTURE_BYTES = 64_000_000
"""The newest groups keep their frame, as long as all frames together are no larger."""


@dataclass(frozen=True)
class Read:
    """What was read of one question at one group: see runtime.evidence.Result.

    `depth`: language-model layers used, 0 for a head.
    """

    logits: tuple[float, ...]
    depth: int
    p: tuple[float, ...]


@dataclass(eq=False)
class SeenGroup:
    """A group of one view: its time, pooled features (D,) each, newest frame, what was read.

    `colours`: of the newest frame (see runtime.heads.colours_of).
    """

    view: str
    t_start_ns: int
    t_end_ns: int
    mean: np.ndarray
    max: np.ndarray
    colours: np.ndarray
    frame: Frame | None
    reads: dict[str, Read] = field(default_factory=dict)


class Looks:
    """The groups of the last two minutes, by view. Thread-safe; `take` is a watcher of a runtime.

    Frame time that begins anew (a bag that is started again) forgets what the view showed before.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, deque[SeenGroup]] = {}
        self._generations: dict[str, int] = {}
        self._pictures: deque[SeenGroup] = deque()
        self._picture_bytes = 0

    def take(self, look: Look) -> None:
        """Remember a look."""
        result = look.result
        with self._lock:
            self._group_of(look).reads[result.question.id] = Read(
                result.logits, result.evidence.depth, result.probabilities)

    def forget(self, question_id: str) -> None:
        """Forget what was read of a question, which asks something else now."""
        with self._lock:
            for groups in self._seen.values():
                for seen in groups:
                    seen.reads.pop(question_id, None)

    def forget_view(self, view: str) -> None:
        """Forget what a view showed that is gone; another one may take its name."""
        with self._lock:
            groups = self._seen.pop(view, deque())
            self._generations.pop(view, None)
            while groups:
                self._drop_oldest(groups)

    def newest(self, question_id: str, view: str) -> list[SeenGroup]:
        """Return the newest group of a view that a question was read at; none before the first."""
        with self._lock:
            found = next((seen for seen in reversed(self._seen.get(view, ()))
                          if question_id in seen.reads), None)
            return [] if found is None else [_copy(found)]

    def between(self, question_id: str, view: str, start_ns: int, end_ns: int) -> list[SeenGroup]:
        """Return the groups within a span of frame time that a question was read at, in order."""
        with self._lock:
            return [_copy(seen) for seen in self._seen.get(view, ())
                    if question_id in seen.reads
                    and start_ns <= seen.t_start_ns and seen.t_end_ns <= end_ns]

    def span_ns(self, view: str) -> tuple[int, int] | None:
        """Return from when to when, in frame time, a view is remembered."""
        with self._lock:
            groups = self._seen.get(view)
            return (groups[0].t_start_ns, groups[-1].t_end_ns) if groups else None

    def _group_of(self, look: Look) -> SeenGroup:
        """Return the group that a look is of; under the lock."""
        groups = self._seen.setdefault(look.view, deque())
        if self._generations.get(look.view) != look.generation:
            self._generations[look.view] = look.generation
            while groups:
                self._drop_oldest(groups)
        if groups and groups[-1].t_end_ns == look.t_end_ns:
            return groups[-1]
        seen = SeenGroup(look.view, look.t_start_ns, look.t_end_ns, np.asarray(look.features.mean),
                    np.asarray(look.features.max), colours_of(look.frame.image), look.frame)
        groups.append(seen)
        while len(groups) > MAX_GROUPS or seen.t_end_ns - groups[0].t_end_ns > KEPT_S * NS:
            self._drop_oldest(groups)
        self._pictures.append(seen)
        self._picture_bytes += look.frame.image.nbytes
        while self._picture_bytes > PICTURE_BYTES and len(self._pictures) > 1:
            self._drop_picture(self._pictures.popleft())
        return seen

    def _drop_oldest(self, groups: deque[SeenGroup]) -> None:
        gone = groups.popleft()
        if gone.frame is not None:
            self._pictures.remove(gone)
            self._drop_picture(gone)

    def _drop_picture(self, seen: SeenGroup) -> None:
        self._picture_bytes -= seen.frame.image.nbytes
        seen.frame = None


def _copy(seen: SeenGroup) -> SeenGroup:
    """Return a group as it is now, for another thread."""
    return replace(seen, reads=dict(seen.reads))
