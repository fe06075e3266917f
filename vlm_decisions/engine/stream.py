"""A live stream: one running state, one group appended at a time, all due questions behind it.

The state holds the header and between one and two windows of groups; the instruction belongs to
the questions. Appending is lazy: a group waits until the next ``ask`` (or ``idle``), and then the
group, the questions' trunk and the questions go through the model in one packed pass. When the
history has reached two windows, a fresh state is built from the last window's cached groups, piece
by piece in ``idle``, between ticks; until it is complete, questions go on to the old state. The
stream alone keeps groups and times: callers read them back from ``history``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import mlx.core as mx

from .asking import Asking
from .errors import EngineError, GroupError, ModeError
from .readout import Query, Readout
from .sliding import SlidingWindow
from .state import ModelState
from .vision import VisionGroup

MODES: Final = ("stream", "window")
REBUILDS: Final = ("idle", "inline")
FIRST_S: Final = 0.1  # stated time of a first group that is given a late one, as after a reset
NS: Final = 1_000_000_000


class StreamGroup(NamedTuple):
    """An encoded group and the stamps of its two frames, ns (equal where only a time is known).

    left_out_ns: time that the prompt leaves out between the stream's first group and this one.
    """

    group: VisionGroup
    t_start_ns: int
    t_end_ns: int
    left_out_ns: int = 0

    def after_s(self, other: StreamGroup) -> float:
        """Seconds from the other group's mean time to this one's."""
        doubled = self.t_start_ns + self.t_end_ns - other.t_start_ns - other.t_end_ns
        return doubled / (2 * NS)


@dataclass
class _Track:
    """A state and the groups that are, or are yet to be, in it."""

    state: ModelState
    groups: list[StreamGroup] = field(default_factory=list)
    done: int = 0  # how many of the groups the state holds


class Stream:
    """One camera's running state. Not thread-safe: belongs to the thread that loaded the engine.

    window_groups: groups of a window. mode: ``stream`` (running state, one to two windows of
    history) or ``window`` (always the last window, computed anew for each ask). rebuild: ``idle``
    or ``inline`` (the append that needs it pays). depth: layers to keep, None for all. slide: in
    ``window``, moves after which the window is computed anew; in between it is moved on, which is
    an approximation and needs full attention in all layers (see sliding).
    """

    def __init__(
        self,
        engine: Asking,
        window_groups: int = 8,
        mode: str = "stream",
        *,
        rebuild: str = "idle",
        depth: int | None = None,
        slide: int = 1,
    ) -> None:
        """Start with no groups; raises ValueError for unusable settings, StateError for slide."""
        if mode not in MODES:
            raise ModeError(f"mode must be one of {', '.join(MODES)}, not {mode!r} (image is for "
                            "decision models)")
        if rebuild not in REBUILDS:
            raise ValueError(f"rebuild must be one of {REBUILDS}, not {rebuild!r}")
        if window_groups < 1:
            raise ValueError(f"a window needs at least one group, not {window_groups}")
        self.engine, self.mode, self.rebuild = engine, mode, rebuild
        self.window_groups, self.depth = window_groups, engine.check_depth(depth)
        self.rebuilds = 0
        if slide > 1 and (mode != "window" or depth is not None):
            raise ValueError("only a window of all layers can be moved on")
        self.slide = slide
        self._sliding = SlidingWindow(engine, refresh=slide) if slide > 1 else None
        self._first_s = 0.0
        self._main = self._track([])
        self._next: _Track | None = None

    # ---- what is in the stream -----------------------------------------------------------------

    @property
    def n_groups(self) -> int:
        """Groups that the next questions will see."""
        return len(self._main.groups)

    @property
    def groups(self) -> tuple[VisionGroup, ...]:
        """Those groups, oldest first."""
        return tuple(timed.group for timed in self._main.groups)

    @property
    def history(self) -> tuple[StreamGroup, ...]:
        """Those groups with their stamps, oldest first."""
        return tuple(self._main.groups)

    @property
    def times_s(self) -> tuple[float, ...]:
        """Their times as the prompt states them: the first group always has the stream's first.

        A model so reads the same times whenever the stream began.
        """
        return tuple(self._time_s(self._main, timed) for timed in self._main.groups)

    @property
    def state(self) -> ModelState:
        """The running state (without groups that still wait)."""
        return self._main.state

    # ---- the tick ------------------------------------------------------------------------------

    def append(
        self, group: VisionGroup, time: float | tuple[int, int], *, left_out_ns: int = 0
    ) -> None:
        """Add the newest group; its tokens go through the model with the next questions.

        time: the stamps of its two frames in nanoseconds of any clock, or the mean of the two in
        seconds since the stream's first frame; must grow. left_out_ns: how much of the time since
        the group before the prompt does not tell: that of groups which were left out, since a model
        knows groups at a steady rate only. Raises GroupError (another frame size, another model, a
        time that does not grow) and ContextError before anything changes.
        """
        main = self._main
        timed, first_s = timed_group(group, time)
        if main.groups:
            last = main.groups[-1]
            timed = timed._replace(left_out_ns=last.left_out_ns + left_out_ns)
            if timed.after_s(last) <= 0:
                raise GroupError(f"group time {time} does not come after the group before it, "
                                 f"which ended at {last.t_end_ns / NS} s")
            self.engine.check_groups([last.group, group])
        else:
            self.engine.check_groups([group])
            self._first_s = first_s
        if self.mode == "window":
            kept = [*main.groups, timed][-self.window_groups :]
            self.engine.check_room(self._lines(self._track(kept), len(kept)))
            self._main = self._track(kept)
            return
        if len(main.groups) - main.done >= self.window_groups:
            # Nobody has asked for a window: going on would cost more than starting from here.
            self.start_over()
            main = self._main
        # Two windows are the longest history; a rebuild under way may finish within some more.
        slack = 0 if self.rebuild == "inline" else max(1, self.window_groups // 2)
        if len(main.groups) >= 2 * self.window_groups + slack:
            self._rebuild(pieces=None)
            main = self._main
        waiting = len(main.groups) - main.done
        line = self.engine.group_line(
            group, self._time_s(main, timed), 0, first_s=self._first_s
        )
        self.engine.check_room([line] * (waiting + 1), main.state)
        main.groups.append(timed)
        if self._next is not None:
            self._next.groups.append(timed)

    def ask(self, queries: Sequence[Query], *, hidden: bool = False) -> list[Readout]:
        """Answer ``queries`` about the groups so far, in one pass with the groups that wait."""
        if not self._main.groups:
            raise GroupError("the stream has no group yet")
        main = self._main
        if self._sliding is not None:
            return self._slide(queries, hidden=hidden)
        if self.mode == "window":
            main = self._track(main.groups)
        questions = self.engine.questions(queries, self.depth)
        return self._run(main, len(main.groups), questions, hidden=hidden)

    def idle(self) -> bool:
        """Do one piece of the work that can wait for dead time; whether there was any.

        Call it again while it returns True and no frame is due. A piece is at most the cost of
        appending a quarter of a window.
        """
        if self.mode == "window":
            return False
        main = self._main
        if main.done < len(main.groups):
            self._run(main, len(main.groups))
            return True
        due = len(main.groups) >= 2 * self.window_groups
        if self.rebuild == "idle" and (self._next is not None or due):
            self._rebuild(pieces=1)
            return True
        return False

    def reset(self) -> None:
        """Forget everything: the next group starts a new stream."""
        self._main, self._next, self._first_s = self._track([]), None, 0.0
        self._forget_window()

    def start_over(self) -> None:
        """Drop the state; the last window's groups stay and are computed anew when asked about."""
        self._main, self._next = self._track(self._main.groups[-self.window_groups :]), None
        self._forget_window()

    # ---- inside --------------------------------------------------------------------------------

    def _slide(self, queries: Sequence[Query], *, hidden: bool) -> list[Readout]:
        questions = self.engine.questions(queries)
        groups = [(timed.group, (timed.t_start_ns + timed.t_end_ns) // 2 - timed.left_out_ns)
                  for timed in self._main.groups]  # fmt: skip
        try:
            state = self._sliding.advance(groups)
            return self.engine.run(state, [], questions, hidden=hidden)
        except BaseException:
            self._forget_window()  # its keys may be half old, half new
            raise

    def _forget_window(self) -> None:
        if self._sliding is not None:
            self._sliding = SlidingWindow(self.engine, refresh=self.slide)

    def _track(self, groups: list[StreamGroup]) -> _Track:
        return _Track(self.engine.decoder.fresh_state(self.depth), list(groups))

    def _time_s(self, track: _Track, timed: StreamGroup) -> float:
        first = track.groups[0] if track.groups else timed
        left_out_ns = timed.left_out_ns - first.left_out_ns
        return timed.after_s(first) - left_out_ns / NS + self._first_s

    def _lines(self, track: _Track, end: int) -> list:
        """Lines that bring the track's state up to its first ``end`` groups."""
        lines, position = [], track.state.next_position
        if track.done == 0:
            lines.append(self.engine.header_line("video"))
            position += lines[-1].advance
        for timed in track.groups[track.done : end]:
            stated_s = self._time_s(track, timed)
            lines.append(
                self.engine.group_line(timed.group, stated_s, position, first_s=self._first_s)
            )
            position += lines[-1].advance
        return lines

    def _run(self, track: _Track, end: int, questions=None, *, hidden: bool = False) -> list:
        lines = self._lines(track, end)
        try:
            out = self.engine.run(track.state, lines, questions, hidden=hidden)
        except EngineError:
            raise  # refused before anything was computed
        except BaseException:
            # A pass that failed or was interrupted half way leaves layers of different length.
            track.state, track.done = self.engine.decoder.fresh_state(self.depth), 0
            raise
        track.done = end
        return out

    def _rebuild(self, pieces: int | None) -> None:
        """Advance the fresh state by ``pieces`` (None: to its end) and take it when complete."""
        if self._next is None:
            self._next = self._track(self._main.groups[-self.window_groups :])
        fresh = self._next
        piece = max(1, -(-self.window_groups // 4)) if pieces else len(fresh.groups)
        end = min(len(fresh.groups), fresh.done + piece)
        self._run(fresh, end)
        if fresh.done == len(fresh.groups):
            self._main, self._next = fresh, None
            self.rebuilds += 1
            mx.clear_cache()


def timed_group(group: VisionGroup, time: float | tuple[int, int]) -> tuple[StreamGroup, float]:
    """Return the group with its stamps, and its stated time if it is a stream's first."""
    if isinstance(time, tuple):
        start_ns, end_ns = time
        if start_ns > end_ns:
            raise GroupError(f"a group's stamps must be in order, not {time}")
        return StreamGroup(group, start_ns, end_ns), (end_ns - start_ns) / (2 * NS)
    if not math.isfinite(time) or time < 0:
        raise GroupError(f"a group's time must be finite and not negative, not {time!r} s")
    stamp_ns = round(time * NS)
    return StreamGroup(group, stamp_ns, stamp_ns), time if time <= 1.0 else FIRST_S
