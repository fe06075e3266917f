"""One model for several modes: what it was asked once about a recording is not computed again.

Modes that differ only in what is asked when, and in how answers are smoothed, see the same groups
in the same running state. What a question is answered does not depend on which others are asked
beside it. So an answer that one mode got is kept for the next; only what is new goes through the
model. Time stays honest: what is taken from memory costs the seconds that it cost when it was
computed (of a batch, an equal part for each question).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...questions import Question
from ...runtime.engine_protocol import EngineLike, ReadoutLike, StreamLike, TimedGroup
from .engines import KeptGroup

#: What an engine reads of a question.
_READ = ("text", "kind", "options", "depth", "early")


class SharedReadouts:
    """An engine with a memory, for playing one recording several times in the same window mode.

    Attributes:
        timer: seconds, for durations and clocks: what memory saves is added.
        computed: readouts that the engine itself computed.
    """

    def __init__(self, engine: EngineLike) -> None:
        """Start with an empty memory."""
        self.engine = engine
        self.name, self.fingerprint = engine.name, engine.fingerprint
        self.pixel_budget = engine.pixel_budget
        self.computed = 0
        self._saved_s = 0.0
        self._groups: dict[bytes, tuple[Any, float]] = {}
        self.lengths: dict[tuple, int] = {}
        self.readouts: dict[tuple, tuple[ReadoutLike, float]] = {}

    def __getattr__(self, name: str) -> Any:
        """Return any other attribute (n_layers, tokens, ...) of the engine."""
        return getattr(self.engine, name)

    def timer(self) -> float:
        """Return seconds that never go back."""
        return time.perf_counter() + self._saved_s

    def charge(self, seconds: float) -> None:
        """Let so many seconds pass, that something from memory took when it was computed."""
        self._saved_s += seconds

    def encode(self, frames: Sequence[np.ndarray]) -> Any:
        """Encode a group, or return what it was before, told by its pixels."""
        digest = hashlib.sha256()
        for frame in frames:
            digest.update(np.ascontiguousarray(frame))
        key = digest.digest()
        if key in self._groups:
            group, seconds = self._groups[key]
            self.charge(seconds)
            return group
        began_s = time.perf_counter()
        group = self.engine.encode(frames)
        self._groups[key] = group, time.perf_counter() - began_s
        return group

    def stream(self, window_groups: int = 8, mode: str = "stream") -> SharedStream:
        """Return a stream that asks the memory first."""
        return SharedStream(self, self.engine.stream(window_groups, mode), (window_groups, mode))


class SharedStream:
    """A stream over a real one, which gets the groups only where something new is asked."""

    def __init__(self, shared: SharedReadouts, stream: StreamLike, made: tuple[int, str]) -> None:
        """Start without groups; `made`: how the stream was."""
        self._shared, self._stream, self._made = shared, stream, made
        self._groups: list[KeptGroup] = []
        self._fed = 0  # groups that the real stream has
        self._turns = 0  # times that the state was dropped: what comes after is of its own

    @property
    def history(self) -> Sequence[TimedGroup]:
        """Return the groups that the next questions see, oldest first."""
        if not self._groups:
            return ()
        return tuple(self._groups[-self._shared.lengths[self._key()]:])

    def append(
        self, group: Any, stamps_ns: tuple[int, int], *, left_out_ns: int = 0
    ) -> None:
        """Append a group."""
        self._groups.append(KeptGroup(group, *stamps_ns, left_out_ns))
        if self._key() not in self._shared.lengths:
            try:
                self._feed()
            except Exception:
                self._groups.pop()
                raise
            self._shared.lengths[self._key()] = len(self._stream.history)

    def ask(self, queries: Sequence[Question]) -> Sequence[ReadoutLike]:
        """Answer all: from memory what is there, the others by the engine in one batch."""
        memory, where = self._shared.readouts, self._key()
        keys = [(where, *_read(query)) for query in queries]
        new = {key: query for key, query in zip(keys, queries) if key not in memory}
        self._shared.charge(sum(memory[key][1] for key in keys if key in memory))
        if new:
            self._feed()
            began_s = time.perf_counter()
            readouts = self._stream.ask(list(new.values()))
            each_s = (time.perf_counter() - began_s) / len(new)
            memory.update((key, (one, each_s)) for key, one in zip(new, readouts, strict=True))
            self._shared.computed += len(new)
        return [memory[key][0] for key in keys]

    def reset(self) -> None:
        """Drop all groups."""
        self._groups, self._fed = [], 0
        self._stream.reset()

    def start_over(self) -> None:
        """Drop the state."""
        self._feed()
        self._stream.start_over()
        self._turns += 1

    def idle(self) -> bool:
        """Use dead time, where the real stream is up to date."""
        return self._fed == len(self._groups) and self._stream.idle()

    def _feed(self) -> None:
        """Bring the real stream up to date, with the dead-time work that it would have had."""
        while self._fed < len(self._groups):
            while self._fed and self._stream.idle():
                pass
            group, *stamps_ns, left_out_ns = self._groups[self._fed]
            self._stream.append(group, tuple(stamps_ns), left_out_ns=left_out_ns)
            self._fed += 1

    def _key(self) -> tuple:
        count, first, last = len(self._groups), self._groups[0], self._groups[-1]
        return *self._made, self._turns, count, first.t_start_ns, last.t_end_ns


def _read(query: Question) -> tuple:
    return tuple(getattr(query, name, None) for name in _READ)
