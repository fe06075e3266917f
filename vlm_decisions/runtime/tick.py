"""One group of a view through the engine: Tier 1, append, Tier 2, in this order.

Each step is a call that returns what it found; the caller gates and publishes it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ..decision import TIER_HEADS, TIER_VLM
from ..frames import NS, Group
from ..kinds import kind_of, sigmoid
from ..questions import WINDOW, Question
from .answerers import Answerers
from .costs import AskingCosts, Cost
from .engine_protocol import EngineLike, ReadoutLike, TimedGroup
from .evidence import Evidence, Result
from .heads import Coloured, Head, HeadError, Pooled, colours_of, reads_colours
from .learned import LEARNED, Learned, LearnedError, shipped_logits
from .settings import RuntimeSettings
from .smoothing import checked, probabilities_of
from .standing_answers import REUSE, StandingAnswers, cosine_distance
from .statistics import Meter

#: A batch is so large that its answers come before the evidence is this share of max_age_s old.
AGED_SHARE = 0.75

#: The longer history of a second look (`unsure: window`), in windows.
LONG_WINDOWS = 3

#: Each time that there is no time for a second look, what it takes is thought to be so much less.
FORGET = 0.98

#: Groups that show what the one before showed and are still appended and asked about.
SHOWN_AGAIN = 1

@dataclass(frozen=True, eq=False)
class Encoded:
    """A group after vision: its features, or the fault that left none, and its place in time.

    `scene_change`: the picture has changed much since the group before. `still`: it has not changed
    at all, and the last answers stand for it.
    """

    features: Pooled | None
    t_start_ns: int
    t_end_ns: int
    frame_id: str
    scene_change: bool = False
    fault: str = ""
    still: bool = False

    @property
    def group(self) -> Pooled | None:
        """The features, as a group in a stream has them."""
        return self.features


@dataclass(frozen=True)
class Work:
    """A part of a group's work that is done.

    `results`; `faults`: messages for the operator; `put_off`: questions due that were not asked.
    """

    results: tuple[Result, ...] = ()
    faults: tuple[str, ...] = ()
    put_off: int = 0


class Processor:
    """Takes groups through an engine, one by one. Belongs to the engine's thread.

    Nothing here raises for what an engine does: a fault ends as results without an answer for the
    questions it hit and one message; a state that it may have spoilt is computed anew.
    `answerers`: who answers which question. `asks_model`: the language model answers a standing
    question. `overloaded`: at the last group, not all that was due could be answered in time.
    """

    def __init__(
        self, engine: EngineLike, heads: Sequence[Head], settings: RuntimeSettings, meter: Meter,
        refresh: float = 1.0,
    ) -> None:
        """Open a stream on the engine; raises what the engine raises.

        `refresh`: share of `refresh_s` after which an answer stands no longer.
        """
        self.answerers = Answerers(engine, heads)
        self._engine = engine
        self._settings = settings
        self._meter = meter
        self._costs = AskingCosts(engine)
        slide = {"slide": settings.window_refresh} if settings.window_refresh > 1 else {}
        self._stream = engine.stream(
            window_groups=settings.window_groups, mode=settings.mode, **slide
        )
        self._still: deque[Encoded] = deque(maxlen=settings.window_groups)  # not appended
        self._shown = 0  # groups in a row that showed what the one before did
        self._last: tuple[int, int] | None = None  # segment and index of the group before
        self._frame_id = ""
        self._image: np.ndarray | None = None  # of the newest frame of the group before
        self._cut_ns = 0  # where the window, or what it shows, begins
        self._newest_cut_ns = 0
        self._standing = StandingAnswers(refresh)
        self._past: deque[TimedGroup] | None = None  # kept while a question looks back over it
        self._unsure: list[Question] = []  # to be asked again: their last look left them open
        self._look_s = 0.0  # what the last second look took, for each group
        self._must_reset = False  # the stream's groups are of another window
        self._must_start_over = False  # its state may be spoilt
        self._faulty: set[Question] = set()  # failed when last asked: kept out of the batch
        self.unseen = ""  # why the newest group could not be seen
        self.asks_model = False  # a question stands that the language model answers
        self.overloaded = False  # not all that was due could be asked in time

    @property
    def n_frames(self) -> int:
        """Frames of a group that the model sees."""
        return self._engine.n_frames

    @property
    def newest_ns(self) -> int | None:
        """Stamp of the newest frame that can be asked about, None before the first."""
        window = self._window()
        return window[-1].t_end_ns if window else None

    def use(self, learned: Mapping[str, Learned]) -> None:
        """Answer from now on with what was learned of these questions, by id."""
        for name in self.answerers.use(learned):
            self._standing.drop(name)  # it is of before

    def restart(self) -> None:
        """Begin a new window: what comes next is not contiguous with what was."""
        self._still.clear()
        self._shown = 0
        self._standing.clear()
        self._unsure.clear()
        self._last = None
        self._must_reset = True

    def costs(self, questions: Sequence[Question]) -> dict[str, Cost]:
        """Return what each costs the language model by its id; 0 tokens where a head answers it."""
        found = {question.id: Cost(0, 0.0) for question in questions}
        return found | self._costs.of([one for one in questions if self.answerers.is_models(one)])

    def total_ms(self, questions: Sequence[Question]) -> float:
        """Return what asking all that the language model answers takes; NaN before it is known."""
        return self._costs.total_ms([one for one in questions if self.answerers.is_models(one)])

    # -- the steps of a group --------------------------------------------------------------------

    def seen_s(self, encoded: Encoded) -> float:
        """Return how long the picture has been seen without a cut or a scene change."""
        return (encoded.t_end_ns - self._cut_ns) / NS

    def withhold(self, encoded: Encoded, question: Question, status: str, reason: str) -> Result:
        """Return that a question is not asked about a group, and why."""
        return replace(
            self._nothing(encoded, question, self.answerers.tier(question), reason), status=status
        )

    def take(self, group: Group, seen: Pooled | Exception, cut_ns: int = 0) -> Encoded:
        """Take the next group after vision: its features, or what the engine raised.

        `cut_ns`: stamp of the first frame after the newest cut, 0 for none.
        """
        if self._last != (group.segment, group.index - 1):
            self.restart()
            self._meter.count("segments")
        self._last = group.segment, group.index
        self._frame_id, self._image = group.frames[1].frame_id, group.frames[1].image
        frames = group.frames[-self._engine.n_frames :]
        place = frames[0].stamp_ns, frames[-1].stamp_ns, self._frame_id
        if self._must_reset:
            self._cut_ns = group.t_start_ns
        self._newest_cut_ns, self._cut_ns = cut_ns, max(self._cut_ns, cut_ns)
        self.unseen = f"vision: {_text(seen)}" if isinstance(seen, Exception) else ""
        if isinstance(seen, Exception):
            self.restart()
            return Encoded(None, *place, fault=self.unseen)
        jumped = self._jumped(seen, group.t_start_ns)
        return Encoded(seen, *place, jumped, still=self._stands_still(seen))

    def tier1(self, encoded: Encoded, due: Sequence[Question]) -> Work:
        """Answer what heads answer, and refuse what demands a head that is not loaded.

        A question whose head needs a longer window has no result: it stays due until there is one.
        """
        if encoded.fault:
            results = [
                self._nothing(encoded, question, self.answerers.tier(question), encoded.fault)
                for question in due
            ]
            return Work(tuple(results), (f"engine, {encoded.fault}",))
        results, faults = [], []
        window = [*self._window(), encoded][-self._settings.window_groups :]
        with self._meter.modelling("heads"):
            for question in due:
                try:
                    head = self.answerers.head(question)
                    if isinstance(head, Learned) or head and len(window) >= head.min_groups:
                        results.append(self._predict(head, question, window))
                        self._faulty.discard(question)
                except (HeadError, LearnedError) as error:
                    faults += self._fault(question, _text(error))
                    results.append(self._nothing(encoded, question, TIER_HEADS, _text(error)))
        return Work(tuple(results), tuple(faults))

    def tier2(
        self,
        encoded: Encoded,
        questions: Sequence[Question],
        due: Sequence[Question],
        *,
        age_s: float,
        skip: bool,
    ) -> Iterator[Work]:
        """Append the group and answer what the language model answers, part by part.

        `questions` are the standing ones. `age_s`: of the group's newest frame. With `skip`, the
        group is appended and nothing asked. No more is asked than fits into the budget and can be
        answered while the evidence counts.
        """
        began = self._meter.timer()
        self._faulty.intersection_update(questions)
        self._standing.retain(question.id for question in questions)
        self.asks_model = any(self.answerers.is_models(question) for question in questions)
        self._unsure.clear()
        self._keep_past(any(question.unsure == WINDOW for question in questions))
        due = [question for question in due if self.answerers.is_models(question)]
        if encoded.fault:
            return
        try:
            if encoded.still:
                self._still.append(encoded)
                self._meter.count("still")
            else:
                with self._meter.modelling("append"):
                    self._append(encoded)
        except Exception as error:
            # What failed once may fail again: go on with what comes next, not with this window.
            self.restart()
            reason = f"append: {_text(error)}"
            results = [self._nothing(encoded, question, TIER_VLM, reason) for question in due]
            yield Work(tuple(results), (f"engine, {reason}",))
            return
        standing = self._unchanged(encoded, due)
        if standing:
            self._meter.count("reused", len(standing))
            yield Work(tuple(standing))
            stood = {result.question.id for result in standing}
            due = [question for question in due if question.id not in stood]
        asked = [] if skip else self._affordable(due, self._meter.timer() - began, age_s)
        self.overloaded = len(asked) < len(due) and not skip
        yield Work(put_off=len(due) - len(asked))
        if asked:
            self._meter.count("asked", len(asked))
            for work in self._ask(encoded, asked):
                self._keep(work, encoded)
                yield work

    # -- beside the groups -----------------------------------------------------------------------

    def ask_now(self, question: Question) -> Result:
        """Answer one question about the newest group, of which there must be one."""
        newest = self._window()[-1]
        tier = self.answerers.tier(question)
        try:
            head = self.answerers.head(question)
            if head is not None:
                return self._predict(head, question, self._window())
            self._mend()
            return self._read(question, self._stream.ask(self.answerers.queries([question]))[0])
        except Exception as error:
            return self._nothing(newest, question, tier, _text(error))

    def rest(self) -> None:
        """Let the state go, of a view that is silent; it is computed anew when it is asked."""
        self._must_start_over = True
        self._mend()

    def idle(self) -> tuple[bool, Work]:
        """Let the stream use dead time; return whether there may be more to do, and faults."""
        if self._must_reset or self._must_start_over or not self.asks_model:
            return False, Work()
        try:
            if self._stream.idle():
                return True, Work()
        except Exception as error:
            self._must_start_over = True
            return False, Work(faults=(f"engine, idle: {_text(error)}",))
        return False, Work()

    def advance(self) -> Work:
        """Do one piece of a rebuild that is due, also where there is no dead time.

        Else the stream would do all of it at once, a few groups later.
        """
        due = len(self._stream.history) >= 2 * self._settings.window_groups
        return self.idle()[1] if due else Work()

    @property
    def unsure(self) -> tuple[str, ...]:
        """Where to look again at what the last group left uncertain: `Question.unsure`, each once.

        That is over with the next group, and once it was looked at.
        """
        return tuple(dict.fromkeys(question.unsure for question in self._unsure))

    def look_again(self, where: str, before: Sequence[TimedGroup], left_s: float) -> Work:
        """Ask once more what the last group left uncertain, about the window and what was `before`.

        Of `before` the groups count that end before the window begins: so the newest frames are the
        same as in the first look, and its answer is as fresh. None of what comes out is looked at
        again. Where there is nothing that the first look had not seen, nothing is asked, nor where
        it would take more than `left_s`, judged by the one before.
        """
        unsure = [question for question in self._unsure if question.unsure == where]
        self._unsure = [question for question in self._unsure if question.unsure != where]
        seen = () if self._must_reset else self._stream.history
        window = seen[-self._settings.window_groups :]
        past = [one for one in before if seen and one.t_end_ns < window[0].t_start_ns]
        groups = [*past, *window]
        if not unsure or not seen or groups[0].t_start_ns >= seen[0].t_start_ns:
            return Work()
        if left_s <= 0 or self._look_s * len(groups) > left_s:
            self._look_s *= FORGET
            return Work()
        began_s = self._meter.timer()
        self._meter.count("asked_again", len(unsure))
        try:
            stream = self._engine.stream(len(groups), "window")
            for one, left_out_ns in zip(groups, _left_out_ns(past, window, where), strict=True):
                stamps_ns = one.t_start_ns, one.t_end_ns
                stream.append(one.group, stamps_ns, left_out_ns=left_out_ns)
            readouts = stream.ask(self.answerers.queries(unsure))
        except Exception as error:
            return Work(faults=(f"engine, asked again: {_text(error)}",))
        finally:
            self._look_s = (self._meter.timer() - began_s) / len(groups)
        found = []
        for question, readout in zip(unsure, readouts, strict=True):
            result = self._read(question, readout, groups, f"+{where}")
            if result.probabilities:
                found.append(result)
                self._standing.correct(result)
        return Work(tuple(found))

    @property
    def past(self) -> Sequence[TimedGroup]:
        """Return the groups since the last cut in time that are still there, oldest first.

        Those of the stream; LONG_WINDOWS windows where one of its questions looks back further.
        """
        if self._must_reset:
            return ()
        return tuple(max(self._past or (), self._stream.history, key=len))

    def _keep_past(self, wanted: bool) -> None:
        if not wanted:
            self._past = None
        elif self._past is None:
            self._past = deque(maxlen=LONG_WINDOWS * self._settings.window_groups)

    # -- vision and heads ------------------------------------------------------------------------

    def _window(self) -> Sequence[TimedGroup]:
        """Return the window's groups, oldest first: in the stream, then those like its last."""
        if self._must_reset:
            return ()
        return [*self._stream.history, *self._still][-self._settings.window_groups :]

    def _stands_still(self, features: Pooled) -> bool:
        """Return whether a group shows what the groups before it did and need not be asked about.

        Features that a refresh made anew are another group's, whatever the picture.
        """
        window = self._window()
        same = bool(window) and features.mean is window[-1].group.mean
        self._shown = self._shown + 1 if same else 0
        reuse = self._settings.reuse
        return reuse.on and reuse.skip_still and self._shown > SHOWN_AGAIN

    def _jumped(self, features: Pooled, start_ns: int) -> bool:
        window, limit = self._window(), self._settings.scene_change
        if limit is None or not window:
            return False
        jump = cosine_distance(window[-1].group.mean, features.mean) > limit
        if jump:
            self._cut_ns = start_ns
            self._meter.count("scene_changes")
        return jump

    def _predict(
        self, head: Head | Learned, question: Question, window: Sequence[TimedGroup | Encoded]
    ) -> Result:
        """Return what a head says. Raises HeadError or LearnedError."""
        window = window[-1 if isinstance(head, Learned) else -head.window_groups :]
        features = [one.features if isinstance(one, Encoded) else one.group for one in window]
        features[-1] = self._for(head, features[-1])
        if isinstance(head, Learned):
            z, learned, name = math.nan, head, head.question_id
        else:  # it has a temperature: scale, bias are not for it
            z, learned, name = head.logit(features), self.answerers.learned(question), head.name
        if learned is None:
            p_yes = sigmoid(z)
        else:
            p_yes = learned.probabilities(question, [z], self._for(learned, features[-1]))[0]
        evidence = Evidence(
            tier=TIER_HEADS,
            t_start_ns=window[0].t_start_ns,
            t_end_ns=window[-1].t_end_ns,
            frame_id=self._frame_id,
            model=self._named(f"{self._engine.name}/{name}{LEARNED if learned else ''}", features),
            cut_ns=self._newest_cut_ns,
        )
        return Result(question, evidence, (p_yes, 1.0 - p_yes), logits=(float(z), 0.0))

    def _for(self, reader: Head | Learned, newest: Pooled) -> Pooled:
        """Return the newest group as it is read: with the colours of its frame where they are."""
        if not reads_colours(reader.pooling):
            return newest
        return Coloured(newest.mean, newest.max, colours_of(self._image))

    # -- language model --------------------------------------------------------------------------

    def _append(self, encoded: Encoded) -> None:
        if self._must_reset:
            self._stream.reset()
            if self._past:
                self._past.clear()
            self._must_reset = self._must_start_over = False
        self._mend()
        left_out_ns = 0
        if self._still:  # a model knows groups at a steady rate only
            left_out_ns = self._still[-1].t_end_ns - self._stream.history[-1].t_end_ns
        self._still.clear()
        stamps_ns = encoded.t_start_ns, encoded.t_end_ns
        self._stream.append(encoded.features, stamps_ns, left_out_ns=left_out_ns)
        if self._past is not None:
            self._past.append(self._stream.history[-1])

    def _keep(self, work: Work, encoded: Encoded) -> None:
        """Remember answers that may stand while the picture does not change."""
        for result in work.results:
            question = result.question
            if question.unsure and result.probabilities and not kind_of(question).settles(
                self.answerers.deciding(question), result.probabilities
            ):
                self._unsure.append(question)
            self._standing.drop(question.id)
            reuse = self._settings.reuse.on
            if result.probabilities and (reuse or question.ask == "on_change"):
                self._standing.keep(result, encoded.features.mean)

    def _unchanged(self, encoded: Encoded, due: Sequence[Question]) -> list[Result]:
        """Return the earlier answers that stand for this group, too."""
        since_ns = self._stream.history[-1].t_end_ns if encoded.still else None
        mean, t_end_ns = encoded.features.mean, encoded.t_end_ns
        found = (self._standing.at(question, mean, t_end_ns, since_ns, self._newest_cut_ns)
                 for question in due)
        return [result for result in found if result is not None]

    def _named(self, model: str, groups: Sequence[Pooled]) -> str:
        """Return a model's name, with a mark where some of what it saw was reused."""
        reused = self._settings.reuse.on and any(group.encoded < 1 for group in groups)
        return model + REUSE if reused else model

    def _model_name(self, history: Sequence[TimedGroup], mark: str) -> str:
        name = self._engine.name + mark
        if self._settings.window_refresh > 1:  # keys that were told of groups that have left
            return name + REUSE
        return self._named(name, [timed.group for timed in history])

    def _mend(self) -> None:
        if self._must_start_over:
            self._stream.start_over()
            self._must_start_over = False

    def _affordable(
        self, due: Sequence[Question], spent_s: float, age_s: float
    ) -> Sequence[Question]:
        settings = self._settings
        if settings.tier2_budget_s is None and not self._costs.known:
            return due
        budget_s = AGED_SHARE * settings.max_age_s - age_s
        if settings.tier2_budget_s is not None:
            budget_s = min(budget_s, settings.tier2_budget_s - spent_s)
        return self._costs.fitting(due, budget_s)

    def _ask(self, encoded: Encoded, questions: Sequence[Question]) -> Iterator[Work]:
        """Ask in one batch; one question that cannot be asked does not stop the others."""
        sound = [question for question in questions if question not in self._faulty]
        alone = [question for question in questions if question in self._faulty]
        if sound:
            began = self._meter.timer()
            try:
                with self._meter.modelling("ask"):
                    readouts = self._stream.ask(self.answerers.queries(sound))
            except Exception:
                alone = sound + alone  # the one at fault is told when asked by itself
            else:
                self._costs.note(sound, self._meter.timer() - began)
                yield self._delivered(
                    [self._read(*pair) for pair in zip(sound, readouts, strict=True)]
                )
        raised = 0
        for question in alone:
            try:
                with self._meter.modelling("ask"):
                    readout = self._stream.ask(self.answerers.queries([question]))[0]
            except Exception as error:
                raised += 1
                result = self._nothing(encoded, question, TIER_VLM, _text(error))
            else:
                result = self._read(question, readout)
            yield self._delivered([result])
        if raised == len(questions):
            self._must_start_over = True  # no question works: perhaps it is the state

    def _read(
        self,
        question: Question,
        readout: ReadoutLike,
        history: Sequence[TimedGroup] = (),
        mark: str = "",
    ) -> Result:
        """Return what the model's output says, or why it says nothing.

        `history`: what it was asked about, if not the stream; `mark` comes behind the model's name.
        """
        history = history or self._stream.history
        learned, labels = self.answerers.learned(question), self.answerers.of_labels(question)
        mark += LEARNED if learned or labels else ""
        evidence = Evidence(
            tier=TIER_VLM,
            t_start_ns=history[0].t_start_ns,
            t_end_ns=self._window()[-1].t_end_ns,
            depth=int(readout.depth),
            frame_id=self._frame_id,
            model=self._model_name(history, mark),
            t_asked_ns=history[-1].t_end_ns if self._still else 0,
            cut_ns=self._newest_cut_ns,
        )
        try:
            probabilities = probabilities_of(question, readout)
            if learned or labels:
                z = shipped_logits(question, np.ravel(readout.logits), int(readout.depth))
            if learned is not None:
                group = self._for(learned, history[-1].group)
                probabilities = learned.probabilities(question, z, group)
            for place, one in labels.items():
                group = self._for(one, history[-1].group)
                p_yes = one.probabilities(question, z[place : place + 1], group)[0]
                probabilities = *probabilities[:place], p_yes, *probabilities[place + 1 :]
        except (TypeError, ValueError) as error:
            return Result(question, evidence, reason=f"the model's output is not valid: {error}")
        if not all(map(math.isfinite, probabilities)):
            return Result(question, evidence, reason="the model's output is not finite")
        try:
            logits = tuple(np.asarray(readout.logits, float).ravel().tolist())
            return Result(question, evidence, checked(question, probabilities), logits=logits)
        except ValueError as error:
            return Result(question, evidence, reason=str(error))

    def _delivered(self, results: Sequence[Result]) -> Work:
        faults: list[str] = []
        for result in results:
            if result.reason:
                faults += self._fault(result.question, result.reason)
            else:
                self._faulty.discard(result.question)
        return Work(tuple(results), tuple(faults))

    # -- faults ----------------------------------------------------------------------------------

    def _fault(self, question: Question, reason: str) -> list[str]:
        """Return what to tell the operator: once, not each time, until it works again."""
        if question in self._faulty:
            return []
        self._faulty.add(question)
        return [f"question '{question.id}': {reason}"]

    def _nothing(
        self, place: Encoded | TimedGroup, question: Question, tier: int, reason: str
    ) -> Result:
        evidence = Evidence(
            tier=tier,
            t_start_ns=place.t_start_ns,
            t_end_ns=place.t_end_ns,
            frame_id=self._frame_id,
            model=self._engine.name,
        )
        return Result(question, evidence, reason=reason)


def _left_out_ns(
    past: Sequence[TimedGroup], window: Sequence[TimedGroup], where: str
) -> list[int]:
    """Return how much of the time before each group of a second look the model is not told.

    It is that of groups which were left out since nothing changed. Where another view's past meets
    the window, it is all beyond that view's step from group to group.
    """
    groups = [*past, *window]
    found = [0, *(one.left_out_ns - last.left_out_ns for last, one in pairwise(groups))]
    if past and where != WINDOW:
        last, first = past[-1], window[0]
        step_ns = 2 * (last.t_end_ns - last.t_start_ns)
        found[len(past)] = max(0, first.t_start_ns - last.t_end_ns - step_ns)
    return found


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
