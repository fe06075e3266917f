"""One group of a view through the engine: Tier 1, append, Tier 2, in this order.

Each step is a call that returns what it found; the caller gates and publishes it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..decision import TIER_HEADS, TIER_VLM
from ..frames import NS, Group
from ..kinds import kind_of, sigmoid
from ..questions import WINDOW, Question, QuestionError
from .engine_protocol import EngineLike, ReadoutLike, TimedGroup
from .evidence import Evidence, Result
from .heads import (
    COLOURS,
    Coloured,
    Head,
    HeadError,
    HeadQuery,
    Pooled,
    answering_head,
    colours_of,
    deciding_head,
    query_with,
)
from .learned import LEARNED, Learned, LearnedError, shipped_logit
from .scheduler import Cost, CostModel
from .settings import RuntimeSettings
from .smoothing import checked, probabilities_of
from .statistics import Meter

#: A batch is so large that its answers come before the evidence is this share of max_age_s old.
AGED_SHARE = 0.75

#: The longer history of a second look (`unsure: window`), in windows.
LONG_WINDOWS = 3

#: Each time that there is no time for a second look, what it takes is thought to be so much less.
FORGET = 0.98

#: Groups that show what the one before showed and are still appended and asked about.
SHOWN_AGAIN = 1

#: Ends the model's name where an answer rests on reuse.
REUSE = "+reuse"


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
    `asks_model`: the language model answers a standing question. `overloaded`: at the last group,
    not all that was due could be answered in time.
    """

    def __init__(
        self, engine: EngineLike, heads: Sequence[Head], settings: RuntimeSettings, meter: Meter,
        refresh: float = 1.0,
    ) -> None:
        """Open a stream on the engine; raises what the engine raises.

        `refresh`: share of `refresh_s` after which an answer stands no longer.
        """
        self._refresh = refresh
        self._engine = engine
        self._heads = heads
        self._settings = settings
        self._meter = meter
        self._cost = CostModel()
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
        self._answers: dict[str, tuple[Result, np.ndarray]] = {}  # with the features asked about
        self._past: deque[TimedGroup] | None = None  # kept while a question looks back over it
        self._unsure: list[Question] = []  # to be asked again: their last look left them open
        self._look_s = 0.0  # what the last second look took, for each group
        self._must_reset = False  # the stream's groups are of another window
        self._must_start_over = False  # its state may be spoilt
        self._faulty: set[Question] = set()  # failed when last asked: kept out of the batch
        self._learned: Mapping[str, Learned] = {}
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
        if learned is not self._learned:
            self._learned = learned
            self._answers.clear()  # they are of before

    def restart(self) -> None:
        """Begin a new window: what comes next is not contiguous with what was."""
        self._still.clear()
        self._shown = 0
        self._answers.clear()
        self._unsure.clear()
        self._last = None
        self._must_reset = True

    def costs(self, questions: Sequence[Question]) -> dict[str, Cost]:
        """Return what each costs the language model by its id; 0 tokens where a head answers it."""
        models = [question for question in questions if self.is_models(question)]
        found = {question.id: Cost(0, 0.0) for question in questions}
        for question, (own, _) in zip(models, self._token_counts(models), strict=True):
            found[question.id] = self._cost.of(self._tokens(question), own)
        return found

    def total_ms(self, questions: Sequence[Question]) -> float:
        """Return what asking all that the language model answers takes; NaN before it is known."""
        models = [question for question in questions if self.is_models(question)]
        return self._cost.total_ms(sum(added for _, added in self._token_counts(models)))

    def check(self, question: Question) -> None:
        """Raise QuestionError where this model and its heads can never answer a question."""
        self._check_depth(question)
        if question.unsure and self._engine.n_frames < 2:
            raise QuestionError(
                f"question '{question.id}': unsure {question.unsure}: '{self._engine.name}' sees "
                "single frames: there is no longer history for it", "unsure")
        try:
            decides = deciding_head(question, self._heads) is not None
        except HeadError as error:
            raise QuestionError(f"question '{question.id}': {error}", "head") from error
        demanded = question.tier == "heads" or question.head is not None and not decides
        if demanded and answering_head(question, self._heads) is None:
            raise QuestionError(
                f"question '{question.id}': {self._no_head(question)}",
                "tier" if question.head is None else "head",
            )

    def _check_depth(self, question: Question) -> None:
        n_layers, early = self._engine.n_layers, question.early
        field, depth, most = "depth", question.depth, n_layers
        if early is not None and not n_layers:
            return  # it has no earlier exit: as many layers as needed are all
        if early is not None:  # full depth must be deeper
            field, depth, most = "shallow_depth", early.depth, n_layers - 1
        if depth is not None and depth > most:
            there = f"has layers 1 to {n_layers}" if n_layers else "answers from its last layer"
            before = " and one must be left" if early and n_layers else ""
            raise QuestionError(
                f"question '{question.id}': {field} {depth}: the language model "
                f"'{self._engine.name}' {there}{before}",
                field,
            )

    # -- the steps of a group --------------------------------------------------------------------

    def seen_s(self, encoded: Encoded) -> float:
        """Return how long the picture has been seen without a cut or a scene change."""
        return (encoded.t_end_ns - self._cut_ns) / NS

    def withhold(self, encoded: Encoded, question: Question, status: str, reason: str) -> Result:
        """Return that a question is not asked about a group, and why."""
        return replace(
            self._nothing(encoded, question, self._tier(question), reason), status=status
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
        if isinstance(seen, Exception):
            self.restart()
            return Encoded(None, *place, fault=f"vision: {_text(seen)}")
        jumped = self._jumped(seen, group.t_start_ns)
        return Encoded(seen, *place, jumped, still=self._stands_still(seen))

    def tier1(self, encoded: Encoded, due: Sequence[Question]) -> Work:
        """Answer what heads answer, and refuse what demands a head that is not loaded.

        A question whose head needs a longer window has no result: it stays due until there is one.
        """
        if encoded.fault:
            results = [
                self._nothing(encoded, question, self._tier(question), encoded.fault)
                for question in due
            ]
            return Work(tuple(results), (f"engine, {encoded.fault}",))
        results, faults = [], []
        window = [*self._window(), encoded][-self._settings.window_groups :]
        with self._meter.modelling("heads"):
            for question in due:
                try:
                    head = self._head(question)
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
        ids = {question.id for question in questions}
        self._answers = {name: kept for name, kept in self._answers.items() if name in ids}
        self.asks_model = any(self.is_models(question) for question in questions)
        self._unsure.clear()
        self._keep_past(any(question.unsure == WINDOW for question in questions))
        due = [question for question in due if self.is_models(question)]
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
        standing = [result for question in due if (result := self._standing(question, encoded))]
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
        tier = self._tier(question)
        try:
            head = self._head(question)
            if head is not None:
                return self._predict(head, question, self._window())
            self._mend()
            return self._read(question, self._stream.ask(self._queries([question]))[0])
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
        groups = [*(one for one in before if seen and one.t_end_ns < window[0].t_start_ns), *window]
        if not unsure or not seen or groups[0].t_start_ns >= seen[0].t_start_ns:
            return Work()
        if left_s <= 0 or self._look_s * len(groups) > left_s:
            self._look_s *= FORGET
            return Work()
        began_s = self._meter.timer()
        self._meter.count("asked_again", len(unsure))
        try:
            stream = self._engine.stream(len(groups), "window")
            for one in groups:
                stream.append(one.group, (one.t_start_ns, one.t_end_ns))
            readouts = stream.ask(self._queries(unsure))
        except Exception as error:
            return Work(faults=(f"engine, asked again: {_text(error)}",))
        finally:
            self._look_s = (self._meter.timer() - began_s) / len(groups)
        found = []
        for question, readout in zip(unsure, readouts, strict=True):
            result = self._read(question, readout, groups, f"+{where}")
            if result.probabilities:
                found.append(result)
                if question.id in self._answers:  # what stands from now on is this one
                    self._answers[question.id] = result, self._answers[question.id][1]
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

    def _learned_of(self, question: Question) -> Learned | None:
        learned = self._learned.get(question.id)
        return learned if learned is not None and learned.is_of(question) else None

    def _head(self, question: Question) -> Head | Learned | None:
        """Return the head that answers, None where the language model does. Raises HeadError.

        One that was learned comes before those that were loaded.
        """
        learned = self._learned_of(question)
        if learned is not None and learned.is_head:
            return learned
        head = answering_head(question, self._heads)
        if head is None and question.tier == "heads":
            raise HeadError(self._no_head(question))
        return head

    def _no_head(self, question: Question) -> str:
        wanted = f"'{question.head}'" if question.head else f"for question '{question.id}'"
        known = ", ".join(
            head.name if question.head else f"{head.name} for {head.question}"
            for head in self._heads
        )
        return f"no head {wanted} is loaded for this model (there are: {known or 'none'})"

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
        if head.pooling == COLOURS:
            features[-1] = Coloured(features[-1].mean, features[-1].max, colours_of(self._image))
        if isinstance(head, Learned):
            z, learned, name = math.nan, head, head.question_id
        else:  # it has a temperature: scale, bias are not for it
            z, learned, name = head.logit(features), self._learned_of(question), head.name
        logit = z if learned is None else learned.logit_of(z, features[-1])
        p_yes = sigmoid(logit)
        evidence = Evidence(
            tier=TIER_HEADS,
            t_start_ns=window[0].t_start_ns,
            t_end_ns=window[-1].t_end_ns,
            frame_id=self._frame_id,
            model=self._named(f"{self._engine.name}/{name}{LEARNED if learned else ''}", features),
            cut_ns=self._newest_cut_ns,
        )
        return Result(question, evidence, (p_yes, 1.0 - p_yes), logits=(float(z), 0.0))

    # -- language model --------------------------------------------------------------------------

    def _append(self, encoded: Encoded) -> None:
        if self._must_reset:
            self._stream.reset()
            if self._past:
                self._past.clear()
            self._must_reset = self._must_start_over = False
        self._mend()
        self._still.clear()
        stamps_ns = encoded.t_start_ns, encoded.t_end_ns
        self._stream.append(encoded.features, stamps_ns)
        if self._past is not None:
            self._past.append(self._stream.history[-1])

    def _keep(self, work: Work, encoded: Encoded) -> None:
        """Remember answers that may stand while the picture does not change."""
        for result in work.results:
            question = result.question
            if question.unsure and result.probabilities and not kind_of(question).settles(
                question, result.probabilities
            ):
                self._unsure.append(question)
            self._answers.pop(question.id, None)
            reuse = self._settings.reuse.on
            if result.probabilities and (reuse or question.ask == "on_change"):
                self._answers[result.question.id] = result, encoded.features.mean

    def _standing(self, question: Question, encoded: Encoded) -> Result | None:
        """Return the earlier answer that stands for this group, too, None where it must be asked.

        Compared is what the picture was when the question was asked, so that nothing creeps in.
        """
        if question.id not in self._answers:
            return None
        result, asked_about = self._answers[question.id]
        t_asked_ns = result.evidence.t_asked_ns or result.evidence.t_end_ns
        if question is not result.question:  # it was changed, or taken out and added
            return None
        still = encoded.still and t_asked_ns >= self._stream.history[-1].t_end_ns
        if not still and (
            question.ask != "on_change"
            or encoded.t_end_ns - t_asked_ns >= self._refresh * question.refresh_s * NS
            or cosine_distance(asked_about, encoded.features.mean) > question.change
        ):
            return None
        evidence = replace(
            result.evidence,
            t_end_ns=encoded.t_end_ns,
            t_asked_ns=t_asked_ns,
            model=result.evidence.model.removesuffix(REUSE) + REUSE,
        )
        return Result(question, evidence, result.probabilities, logits=result.logits)

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
        if settings.tier2_budget_s is None and not self._cost.known:
            return due
        budget_s = AGED_SHARE * settings.max_age_s - age_s
        if settings.tier2_budget_s is not None:
            budget_s = min(budget_s, settings.tier2_budget_s - spent_s)
        added = [more for _, more in self._token_counts(due)]
        return due[: self._cost.fitting(added, budget_s)]

    def _tokens(self, question: Question) -> int:
        try:
            return self._engine.tokens(question)
        except Exception:  # it cannot be asked: it is told when it is
            return 0

    def _token_counts(self, questions: Sequence[Question]) -> list[tuple[int, int]]:
        """Return the tokens of each alone, and added to those before; 0: not to be asked."""
        sound = [question for question in questions if self._tokens(question)]
        counts = iter(self._engine.token_counts(sound) if sound else ())
        return [next(counts) if question in sound else (0, 0) for question in questions]

    def _ask(self, encoded: Encoded, questions: Sequence[Question]) -> Iterator[Work]:
        """Ask in one batch; one question that cannot be asked does not stop the others."""
        sound = [question for question in questions if question not in self._faulty]
        alone = [question for question in questions if question in self._faulty]
        if sound:
            began = self._meter.timer()
            try:
                with self._meter.modelling("ask"):
                    readouts = self._stream.ask(self._queries(sound))
            except Exception:
                alone = sound + alone  # the one at fault is told when asked by itself
            else:
                tokens = sum(added for _, added in self._token_counts(sound))
                self._cost.note(tokens, self._meter.timer() - began)
                yield self._delivered(
                    [self._read(*pair) for pair in zip(sound, readouts, strict=True)]
                )
        raised = 0
        for question in alone:
            try:
                with self._meter.modelling("ask"):
                    readout = self._stream.ask(self._queries([question]))[0]
            except Exception as error:
                raised += 1
                result = self._nothing(encoded, question, TIER_VLM, _text(error))
            else:
                result = self._read(question, readout)
            yield self._delivered([result])
        if raised == len(questions):
            self._must_start_over = True  # no question works: perhaps it is the state

    def _queries(self, questions: Sequence[Question]) -> list[Question | HeadQuery]:
        """Return what the engine is asked: questions, with the heads of their early exits."""
        return [
            question if (head := deciding_head(question, self._heads)) is None
            else query_with(question, head)
            for question in questions
        ]

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
        learned = self._learned_of(question)
        mark += LEARNED if learned else ""
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
            if learned is not None:
                z = shipped_logit(question, np.ravel(readout.logits), int(readout.depth))
                p_yes = sigmoid(learned.logit_of(z, history[-1].group))
                probabilities = (p_yes, 1.0 - p_yes)
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

    def _tier(self, question: Question) -> int:
        return TIER_VLM if self.is_models(question) else TIER_HEADS

    def is_models(self, question: Question) -> bool:
        """Tell whether the language model answers a question."""
        learned = self._learned_of(question)
        if learned is not None and learned.is_head:
            return False
        return question.tier != "heads" and answering_head(question, self._heads) is None


def cosine_distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return 1 - cosine of two vectors, 0 where either has no length."""
    one, other = np.asarray(one, np.float32), np.asarray(other, np.float32)
    length = math.sqrt(float(np.dot(one, one)) * float(np.dot(other, other)))
    return 1.0 - float(np.dot(one, other)) / length if length > 0 else 0.0


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
