"""All that is kept of one view, and the way of its groups from the queue to Tier 2.

A group's way has two parts: `see` (after vision: Tier 1) and `ask` (Tier 2), so that the engine's
thread can see to all views before it asks about any. Both return work to be published.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..decision import OK
from ..frames import NS, Frame, Group
from ..questions import Question
from ..views import View, ViewError
from .contradictions import Contradictions
from .costs import Cost
from .cuts import CutFinder
from .engine_protocol import EngineLike
from .gate import Gate
from .heads import Head, Pooled
from .intake import Intake
from .learned import Learned
from .scheduler import Scheduler
from .settings import RuntimeSettings
from .statistics import Meter, ViewStats
from .tick import Encoded, Processor, Work
from .withhold import withheld

#: A lack of time is told for so long, seconds.
OVERLOAD_S = 5.0

#: Backlogs within OVERLOAD_S from which on the machine is too slow.
BACKLOGS = 3

#: A view that has had no group for so long lets its state go, seconds.
REST_S = 10.0

#: Largest share of `refresh_s` by which views ask earlier, so that they ask in turn; multiples of
#: the golden ratio's fraction lie evenly within it, however many views there are.
SPREAD = 0.3
GOLDEN = 0.618034

#: Weight of the newest measurement of what a view's Tier 2 takes.
NEWEST = 0.2


@dataclass(eq=False)
class Turn:
    """A group in work: `backlog` says that others waited behind it when it was taken."""

    group: Group
    generation: int
    backlog: bool
    began_s: float
    model_s: float  # what the model had taken in all when it began
    questions: tuple[Question, ...]  # that stood then, later those that are asked
    spent_s: float = 0.0
    across_cut: bool = False  # it shows two pictures and is not asked about
    encoded: Encoded | None = None
    due: tuple[Question, ...] = ()
    shown: Frame | None = None  # what watchers are shown of it, once they are


class ViewState:
    """One view: its queue of groups, its stream, what is due, what may be published.

    `fault`: why the engine could not open it, empty while that is not so.
    `turn`: the group that has been taken and not been asked about yet. `passed_over`: groups that
    wait were not taken, since there was no time. `questions`: those standing that are asked of it.
    `learned`: what was learned of them here, by id; it counts from the next group on, and is
    replaced as a whole. The gate, the questions and what was learned are guarded by the owner's
    lock; the rest but the queue belongs to the engine's thread.
    """

    def __init__(
        self, view: View, settings: RuntimeSettings, intake: Intake, meter: Meter
    ) -> None:
        """Sample what `intake` takes in."""
        self.view, self.name, self.intake = view, view.name, intake
        self.settings = settings.of(view)
        self.meter = Meter(meter.timer, meter)
        self._whole = meter
        self.queue = intake.open(self.settings, self.meter)
        self.gate = Gate(self.settings)
        self.contradictions = Contradictions()
        self.scheduler = Scheduler(self.settings.tolerance_s)
        self._cuts = CutFinder(self.settings.cut)
        self._place: tuple[int, int] | None = None  # segment and index of the group taken last
        self._across_cut = False  # that group was
        self.questions: tuple[Question, ...] = ()
        self.learned: Mapping[str, Learned] = {}
        self.processor: Processor | None = None
        self.fault = ""
        self.turn: Turn | None = None
        self.passed_over = False
        self.generation = 0  # of frame time, that the processor's window belongs to
        self._put_off = False
        self._overloaded_ns: int | None = None  # t_end of the last group not all was asked about
        self._backlogs: deque[int] = deque(maxlen=BACKLOGS)  # t_end where each of the last began
        self._asked_ns = 0  # t_end of the last group whose Tier 2 was not put off
        self._seen_ns = 0  # t_end of the last group that went all the way
        self._asked_about_ns = 0  # t_end of the last group that questions were due at
        self._ask_s = 0.0  # what Tier 2 takes
        self._size: tuple[int, int] | None = None  # of its camera's pictures, and before
        self._before: tuple[int, int] | None = None
        self._taken_s: float | None = None  # when the last group was taken; None: at rest

    def check_budget(self, engine: EngineLike) -> None:
        """Raise ViewError for a pixel budget below one visual token of the engine."""
        budget, token = self.view.pixel_budget, engine.token_pixels
        if budget is not None and budget < token * token:
            raise ViewError(f"view '{self.name}': pixel_budget {budget} is below one visual token, "
                            f"which has {token} by {token} pixels", "pixel_budget")

    def begin(self, engine: EngineLike, heads: Sequence[Head], number: int) -> None:
        """Open a stream on the engine; raises what the engine raises.

        `number`: of views before it. Each is refreshed at times of its own: views that began
        together would all have to be asked at once, again and again.
        """
        early = SPREAD * (number * GOLDEN % 1.0)
        self.processor = Processor(engine, heads, self.settings, self.meter, 1.0 - early)

    @property
    def opened(self) -> bool:
        """Whether the engine has opened it, or could not."""
        return self.processor is not None or bool(self.fault)

    # -- the way of a group ----------------------------------------------------------------------

    def take(self, now_ns: int) -> bool:
        """Take the next group from the queue, if one waits; return whether there was one."""
        began_s, model_s = self.meter.timer(), self._whole.model_s
        group, generation, backlog = self.queue.take(
            newest_only=self.passed_over or self._put_off and self.starves(now_ns)
        )
        self.passed_over = False
        if group is None:
            return False
        self._taken_s = began_s
        self.processor.use(self.learned)
        self._before, self._size = self._size, group.frames[-1].size
        self.turn = Turn(group, generation, backlog, began_s, model_s, self.questions)
        if generation != self.generation:
            self.generation, self._asked_ns = generation, 0
            self.scheduler.reset()
            self.processor.restart()
        self._find_cut(self.turn)
        return True

    def _find_cut(self, turn: Turn) -> None:
        """Find out whether the group lies across a cut; of two in a row the second is judged."""
        group = turn.group
        if self._place != (group.segment, group.index - 1):
            self._cuts.forget()
        self._place = group.segment, group.index
        parted = self._cuts.look([self.view.cut(frame.image) for frame in group.frames],
                                 [frame.stamp_ns for frame in group.frames])
        shows_both = parted and self.processor.n_frames > 1
        turn.across_cut = self._across_cut = shows_both and not self._across_cut
        if parted:
            self.meter.count("cuts")

    def resized(self) -> str:
        """Return what to say where the group taken is of another size than the one before."""
        if not self.name or self._before in (None, self._size):
            return ""
        (high, wide), (height, width) = self._before, self._size
        region = ", of which it sees the same shares" if self.view.region else ""
        return (f"view '{self.name}': the pictures of its camera are {width}x{height} now and were "
                f"{wide}x{high}{region}; its window begins anew")

    def see(
        self, seen: Pooled | Exception, answers: Mapping[str, str],
        standing: Mapping[str, Question], interrupted: Collection[str],
    ) -> Iterator[Work]:
        """Answer Tier 1 about the group taken, which vision has made `seen` of.

        `answers`: the present ones that conditions may name; `standing`: all questions, of other
        views too, by id; `interrupted`: questions that should
        not wait. Where nothing may be made of the group, there is no turn any more.
        """
        turn, processor, began_s = self.turn, self.processor, self.meter.timer()
        after_cut = self._cuts.cut_ns > self._asked_about_ns
        encoded = turn.encoded = processor.take(turn.group, seen, self._cuts.cut_ns)
        # A group is encoded while Tier 0 looks at it, but nothing is made of it before.
        if not encoded.fault and not self.queue.fit(turn.group):
            self.meter.drop("unusable")
            processor.restart()
            self.end_turn(self.meter.timer() - began_s)
            return
        t_ns = turn.group.t_end_ns
        if encoded.scene_change or after_cut:
            self.scheduler.hasten(t_ns)
        elif interrupted:
            self.scheduler.hasten(t_ns, interrupted)
        asked, results = [], []
        for question in turn.questions:
            status, reason = withheld(question, answers, standing, processor.seen_s(encoded))
            if status == OK:
                asked.append(question)
            else:
                results.append(processor.withhold(encoded, question, status, reason))
        yield Work(tuple(results))
        turn.questions = tuple(asked)
        due = tuple(self.scheduler.due(asked, t_ns))
        if not turn.across_cut:
            turn.due, self._asked_about_ns = due, t_ns
        yield self._answered(processor.tier1(encoded, turn.due))
        now_s = self.meter.timer()
        self.meter.note("tier_1", now_s - turn.began_s)
        turn.spent_s += now_s - began_s

    def ask(self, now_ns: int, skip: bool = False) -> Iterator[Work]:
        """Answer Tier 2 about the group seen, and end its turn; with `skip`, ask nothing."""
        turn, processor, meter = self.turn, self.processor, self.meter
        skip = skip or turn.backlog
        began_s, was_put_off, self._put_off = meter.timer(), self._put_off, False
        t_ns = self._seen_ns = turn.group.t_end_ns
        for work in processor.tier2(
            turn.encoded, turn.questions, turn.due, age_s=(now_ns - t_ns) / NS, skip=skip
        ):
            yield self._answered(work)
            meter.count("skipped", work.put_off)
            self._put_off |= skip and work.put_off > 0
        if self._put_off and not was_put_off:
            self._backlogs.append(t_ns)
        spent_s = meter.timer() - began_s
        if processor.asks_model:
            meter.note("tier_2", spent_s)
        if not self._put_off:
            self._asked_ns = t_ns
            self._ask_s = NEWEST * spent_s + (1 - NEWEST) * self._ask_s
        self.end_turn(spent_s)

    def end_turn(self, spent_s: float = 0.0) -> None:
        """Be done with the group taken, the last step of which took `spent_s`."""
        self.meter.note("total", self.turn.spent_s + spent_s)
        self.meter.count("ticks")
        self.turn = None

    @property
    def unseen(self) -> str:
        """Why its newest group could not be seen, or the view not be opened; empty if it could."""
        return self.fault or (self.processor.unseen if self.processor else "")

    def abandon(self) -> None:
        """Begin afresh with the next group, after a fault of this program."""
        self.processor.restart()
        if self.turn is not None:
            self.end_turn()

    def shown(self) -> Frame:
        """Return the newest frame of the group taken, as this view sees it."""
        turn = self.turn
        if turn.shown is None:
            frame = turn.group.frames[1]
            cut = self.view.cut(frame.image)
            turn.shown = frame if cut is frame.image else replace(frame, image=cut)
        return turn.shown

    def note_outside(self) -> None:
        """Note what of the time since the group's turn began was not the model's."""
        if self.turn is not None:
            spent_s = self.meter.timer() - self.turn.began_s
            self.meter.note("outside", spent_s - (self._whole.model_s - self.turn.model_s))

    def _answered(self, work: Work) -> Work:
        for result in work.results:
            self.scheduler.asked(result.question, self.turn.group.t_end_ns)
        return work

    def fresh(self, now_ns: int) -> bool:
        """Return whether there is a newest group that can be asked about now."""
        newest_ns = self.processor.newest_ns if self.processor else None
        return (
            newest_ns is not None
            and self.generation == self.intake.generation
            and now_ns - newest_ns <= self.settings.max_age_s * NS
        )

    # -- what comes next -------------------------------------------------------------------------

    def starves(self, now_ns: int) -> bool:
        """Return whether half of what an answer may age has passed since Tier 2 was asked."""
        return now_ns - self._asked_ns > self.settings.max_age_s * NS / 2

    def urgency(self, now_ns: int) -> float:
        """Return how old its answers will be when Tier 2 is done, by max_age_s and priority."""
        old_s = (now_ns - self._asked_ns) / NS + self._ask_s
        return old_s / self.settings.max_age_s * self.view.priority

    def left_s(self) -> float:
        """Return seconds until its next group is due, below 0 where that is late; inf at rest."""
        if self._taken_s is None:
            return math.inf
        return self._taken_s + 2.0 / self.settings.fps - self.meter.timer()

    def idle(self) -> tuple[bool, Work]:
        """Use dead time; return whether there may be more to do, and faults."""
        if self._taken_s is not None and self.meter.timer() - self._taken_s > REST_S:
            self._taken_s = None
            self.processor.rest()
            return False, Work()
        return self.processor.idle()

    # -- how it does -----------------------------------------------------------------------------

    def stats(self, now_ns: int) -> ViewStats:
        """Return a snapshot; under the owner's lock."""
        meter, age_s = self.meter, self.gate.image_age_s(now_ns)
        frame_ns = self.gate.frame_time_ns(now_ns)
        silent = bool(frame_ns) and self.intake.silent(age_s)
        return ViewStats(
            priority=self.view.priority,
            image_rate_hz=self.intake.image_rate_hz(age_s) if frame_ns else 0.0,
            image_age_s=age_s,
            condition=self.gate.condition(now_ns),
            silent=silent,
            mixture="" if silent else self.intake.mixture(),
            overload=self.overload(now_ns),
            queue=len(self.queue),
            groups=meter.total("groups"),
            ticks=meter.total("ticks"),
            skipped=meter.total("skipped"),
            dropped=meter.dropped(),
            breaks=self.queue.breaks(),
            tick_ms=meter.tick_ms(),
            age_ms=meter.age_ms(),
            rates_hz=self.scheduler.rates(frame_ns),
            costs=self.costs(),
            contradictions=dict(self.contradictions.counts),
        )

    def costs(self) -> dict[str, Cost]:
        """Return what its questions cost; empty before the model is loaded."""
        if self.processor is None:
            return {}
        return self.processor.costs(self.questions)

    def note_overload(self) -> str:
        """Note whether Tier 2 was too slow at the last group; return the message where it is new.

        Groups that queue up again and again are too many: once may be a hiccup.
        """
        t_ns, began = self._seen_ns, self._backlogs
        lasts = len(began) == BACKLOGS and 0 <= t_ns - began[0] < OVERLOAD_S * NS
        if not self.processor.overloaded and not (self._put_off and lasts):
            return ""
        new = not self.overload(t_ns)
        self._overloaded_ns = t_ns
        return self.overload(t_ns) if new else ""

    def overload(self, now_ns: int) -> str:
        """Return what to say where lately not all questions could be asked in time, else empty."""
        if self._overloaded_ns is None or not 0 <= now_ns - self._overloaded_ns < OVERLOAD_S * NS:
            return ""
        costs = {name: cost for name, cost in self.costs().items() if cost.tokens}
        if not costs:
            return ""
        name, dearest = max(costs.items(), key=lambda item: (item[1].ms, item[1].tokens))
        total_ms = self.processor.total_ms(self.questions)
        whose = f" of view '{self.name}'" if self.name else ""
        what = "1 question" if len(costs) == 1 else f"{len(costs)} questions"
        take = "takes" if len(costs) == 1 else "take"
        text = f"too slow for all rates, which are lowered: {what}{whose} {take} {total_ms:.0f} ms"
        # Before questions were asked in different company nobody knows what each costs.
        return text + (f", the dearest is '{name}' ({dearest})" if dearest.ms > 0.0 else "")
