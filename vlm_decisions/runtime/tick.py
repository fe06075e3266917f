"""
One group through the engine: vision, Tier 1, append, Tier 2, in this order.

The worker belongs to the engine thread: it owns the engine's state and knows nothing of threads,
queues or publishing.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ..decision import TIER_HEADS, TIER_VLM
from ..frames import NS, Group
from ..questions import Question
from .engine_protocol import EngineLike, ReadoutLike, Sink
from .heads import Head, HeadError, Pooled, sigmoid
from .scheduler import CostModel, Scheduler, within_budget
from .smoothing import Evidence, calibrated
from .statistics import Meter
from .window import Item, Seen, cosine_distance


class Worker:
    """
    Process groups one by one. Not thread-safe; nothing here raises for what an engine does.

    A fault of the engine ends as `failed` for the questions it hit and one `error`; the state it
    may have spoilt is rebuilt from the window's cached features before it is used again.
    """

    def __init__(
        self,
        engine: EngineLike,
        heads: Sequence[Head],
        scheduler: Scheduler,
        meter: Meter,
        *,
        window_groups: int,
        mode: str,
        scene_change: float | None,
        budget_s: float | None,
    ) -> None:
        """
        Open a stream on the engine; raises what the engine raises.

        `scene_change`: cosine distance of pooled features that counts as one, None for never;
        `budget_s`: seconds per group for the language model, None for no limit.
        """
        self.engine = engine
        self._heads = {head.name: head for head in heads}
        self._head_of = {head.question: head for head in reversed(heads)}
        self._scheduler = scheduler
        self._meter = meter
        self._scene_change = scene_change
        self._budget_s = budget_s
        self._cost = CostModel()
        self._stream = engine.stream(window_groups=window_groups, mode=mode)
        self._window: deque[Item] = deque(maxlen=window_groups)
        self._pending: deque[Item] = deque()  # encoded, not yet appended
        self._starts_ns: deque[int] = deque(maxlen=4 * window_groups)
        self._must_reset = False
        self._last: Seen | None = None
        self._origin_ns = 0
        self._faulty: set[Question] = set()  # failed when last asked: kept out of the batch
        self._began_s = 0.0  # the group's turn, on the meter's timer
        self._model_s = 0.0  # of the time since then, what engine and heads took

    @property
    def newest(self) -> Seen | None:
        """The newest group that questions can be asked about, None before the first."""
        return self._window[-1].group if self._window else None

    def restart(self) -> None:
        """Begin a new window: what comes next is not contiguous with what was."""
        self._last = None
        self._window.clear()
        self._pending.clear()
        self._starts_ns.clear()
        self._must_reset = True

    def process(
        self,
        group: Group,
        questions: Sequence[Question],
        sink: Sink,
        *,
        fit: Callable[[Group], bool],
        backlog: bool,
    ) -> bool | None:
        """
        Take the next group and answer what is due; with a backlog, Tier 1 only.

        `fit` waits for Tier 0's word on the group: where it is no, nothing is made of the group.
        Returns whether Tier 2 questions were put off because of the backlog, None for such a group.
        """
        self._began_s, self._model_s = self._meter.timer(), 0.0
        with self._meter.stage("total"):
            return self._process(group, questions, sink, fit, backlog)

    def ask(self, question: Question) -> tuple[tuple[float, ...], Evidence]:
        """Answer one question about the newest group. Raises what the engine raises."""
        head = self._head(question)
        if head is not None:
            return self._predict(head, question)
        if question.tier == "heads":
            raise HeadError(self._headless(question))
        self._catch_up()
        readout = self._stream.ask([question])[0]
        return calibrated(question, readout.logits), self._evidence_vlm(readout.depth)

    def idle(self, report: Callable[[str], None]) -> bool:
        """Let the stream use dead time; return whether there may be more to do."""
        if self._must_reset or self._pending:
            return False
        try:
            return self._stream.idle()
        except Exception as error:
            self._must_reset = True
            report(f"engine, idle: {_text(error)}")
            return False

    def _process(
        self,
        taken: Group,
        questions: Sequence[Question],
        sink: Sink,
        fit: Callable[[Group], bool],
        backlog: bool,
    ) -> bool | None:
        last, group = self._last, Seen.of(taken)
        if last is None or group.segment != last.segment or group.index != last.index + 1:
            self.restart()
            self._origin_ns = group.t_start_ns
            self._meter.count("segments")
        self._last = group
        try:
            with self._modelling("vision"):
                features = self.engine.encode([frame.image for frame in taken.frames])
            if not fit(taken):
                self._meter.drop("unusable")
                self.restart()
                return None
            jump = self._jumped(features)
        except Exception as error:
            self._vision_failed(group, questions, sink, error)
            return False
        t_s = (group.t_start_ns + group.t_end_ns - 2 * self._origin_ns) / (2 * NS)
        item = Item(group, features, t_s)
        self._window.append(item)
        self._pending.append(item)
        self._starts_ns.append(group.t_start_ns)
        if jump:
            self._scheduler.hasten(group.t_end_ns)
        due = self._scheduler.due(questions, group.t_end_ns)
        self._faulty.intersection_update(questions)
        self._tier1(due, sink)
        self._meter.note("tier_1", self._meter.timer() - self._began_s)
        vlm = [question for question in due if self._head(question) is None]
        vlm = self._refuse_headless(vlm, sink)
        if not any(self._is_vlm(question) for question in questions):
            # Nobody to ask: the newest window is kept, to be appended when there is.
            while len(self._pending) > self._window.maxlen:
                self._pending.popleft()
                self._must_reset = True
            return False
        with self._meter.stage("tier_2"):
            return self._tier2(vlm, sink, backlog)

    @contextmanager
    def _modelling(self, stage: str) -> Iterator[None]:
        """Time a stage that is the model's, not this program's."""
        began = self._meter.timer()
        try:
            with self._meter.stage(stage):
                yield
        finally:
            self._model_s += self._meter.timer() - began

    def _vision_failed(
        self, group: Seen, questions: Sequence[Question], sink: Sink, error: Exception
    ) -> None:
        self.restart()
        message = f"vision: {_text(error)}"
        sink.error(f"engine, {message}")
        for question in self._scheduler.due(questions, group.t_end_ns):
            self._scheduler.asked(question, group.t_end_ns)
            tier = TIER_VLM if self._head(question) is None else TIER_HEADS
            sink.failed(question, message, self._evidence(group, tier))

    def _jumped(self, features: Pooled) -> bool:
        if self._scene_change is None or not self._window:
            return False
        jump = cosine_distance(self._window[-1].features.mean, features.mean) > self._scene_change
        if jump:
            self._meter.count("scene_changes")
        return jump

    # -- Tier 1 ----------------------------------------------------------------------------------

    def _head(self, question: Question) -> Head | None:
        """Return the head that answers a question, None where the language model does."""
        if question.tier == "vlm" or question.kind == "choice":
            return None
        if question.head is not None:
            return self._heads.get(question.head)
        return self._head_of.get(question.id)

    @staticmethod
    def _headless(question: Question) -> str:
        return f"no head '{question.head or question.id}' is loaded for this model"

    def _is_vlm(self, question: Question) -> bool:
        return question.tier != "heads" and self._head(question) is None

    def _tier1(self, due: Sequence[Question], sink: Sink) -> None:
        group = self._window[-1].group
        # A window that has just begun is too short for a motion head: due until it is not.
        heads = [
            (question, head)
            for question in due
            if (head := self._head(question)) and len(self._window) >= head.min_groups
        ]
        answers: list[tuple[tuple[float, ...], Evidence] | HeadError] = []
        with self._modelling("heads"):
            for question, head in heads:
                try:
                    answers.append(self._predict(head, question))
                except HeadError as error:
                    answers.append(error)
        for (question, _), answer in zip(heads, answers, strict=True):
            self._scheduler.asked(question, group.t_end_ns)
            if isinstance(answer, HeadError):
                self._fault(question, _text(answer), self._evidence(group, TIER_HEADS), sink)
            else:
                self._answered(question, *answer, sink)

    def _predict(self, head: Head, question: Question) -> tuple[tuple[float, ...], Evidence]:
        window = list(self._window)[-head.window_groups :]
        logit = head.logit([item.features for item in window])
        evidence = Evidence(
            tier=TIER_HEADS,
            t_start_ns=window[0].group.t_start_ns,
            t_end_ns=window[-1].group.t_end_ns,
            frame_id=window[-1].group.frame_id,
            model=f"{self.engine.name}/{head.name}",
        )
        p_yes = sigmoid(logit)  # a head has a temperature of its own: scale, bias are not for it
        return (p_yes, 1.0 - p_yes), evidence

    def _refuse_headless(self, due: list[Question], sink: Sink) -> list[Question]:
        """Answer `unknown` where a head is demanded that is not loaded; return the others."""
        group = self._window[-1].group
        for question in due:
            if question.tier == "heads":
                self._scheduler.asked(question, group.t_end_ns)
                reason = self._headless(question)
                self._fault(question, reason, self._evidence(group, TIER_HEADS), sink)
        return [question for question in due if question.tier != "heads"]

    # -- Tier 2 ----------------------------------------------------------------------------------

    def _tier2(self, due: list[Question], sink: Sink, backlog: bool) -> bool:
        group = self._window[-1].group
        began = self._meter.timer()
        try:
            with self._modelling("append"):
                self._catch_up()
        except Exception as error:
            message = f"append: {_text(error)}"
            sink.error(f"engine, {message}")
            for question in due:
                self._scheduler.asked(question, group.t_end_ns)
                sink.failed(question, message, self._evidence(group, TIER_VLM))
            return False
        if backlog:
            self._meter.count("skipped", len(due))
            return bool(due)
        budget_s = self._budget_s
        if budget_s is not None:
            budget_s -= self._meter.timer() - began
        asked = within_budget(due, budget_s, self._cost)
        self._meter.count("skipped", len(due) - len(asked))
        if asked:
            for question in asked:
                self._scheduler.asked(question, group.t_end_ns)
            self._ask_batch(asked, sink)
        return False

    def _ask_batch(self, questions: list[Question], sink: Sink) -> None:
        """Ask in one batch; one question that cannot be asked does not stop the others."""
        sound = [question for question in questions if question not in self._faulty]
        alone = [question for question in questions if question in self._faulty]
        if sound:
            began = self._meter.timer()
            try:
                with self._modelling("ask"):
                    readouts = self._stream.ask(sound)
            except Exception:
                alone = sound + alone  # the one at fault is told when asked by itself
            else:
                self._cost.note(len(sound), self._meter.timer() - began)
                for question, readout in zip(sound, readouts, strict=True):
                    self._deliver(question, readout, sink)
        answered = [self._ask_alone(question, sink) for question in alone]
        if alone and not any(answered) and len(alone) == len(questions):
            self._must_reset = True  # no question works: perhaps it is the state

    def _ask_alone(self, question: Question, sink: Sink) -> bool:
        try:
            with self._modelling("ask"):
                readout = self._stream.ask([question])[0]
        except Exception as error:
            evidence = self._evidence(self._window[-1].group, TIER_VLM)
            self._fault(question, _text(error), evidence, sink)
            return False
        self._deliver(question, readout, sink)
        return True

    def _fault(self, question: Question, reason: str, evidence: Evidence, sink: Sink) -> None:
        """Answer `unknown`; tell the operator once, not each time, until it works again."""
        if question not in self._faulty:
            self._faulty.add(question)
            sink.error(f"question '{question.id}': {reason}")
        sink.failed(question, reason, evidence)

    def _deliver(self, question: Question, readout: ReadoutLike, sink: Sink) -> None:
        evidence = self._evidence_vlm(readout.depth)
        try:
            probabilities = calibrated(question, readout.logits)
        except (TypeError, ValueError) as error:
            self._fault(question, f"the model's output is no numbers: {error}", evidence, sink)
            return
        if all(map(math.isfinite, probabilities)):
            self._answered(question, probabilities, evidence, sink)
        else:
            self._fault(question, "the model's output is not finite", evidence, sink)

    def _answered(
        self, question: Question, probabilities: Sequence[float], evidence: Evidence, sink: Sink
    ) -> None:
        self._faulty.discard(question)
        sink.answered(question, probabilities, evidence)
        self._meter.note("outside", self._meter.timer() - self._began_s - self._model_s)

    def _catch_up(self) -> None:
        """Append what the stream lacks; from the window, where its state is spoilt."""
        if self._must_reset:
            self._stream.reset()
            self._pending = deque(self._window)
            self._must_reset = False
        try:
            while self._pending:
                item = self._pending[0]
                self._stream.append(item.features, item.t_s)
                self._pending.popleft()
        except Exception:
            # What failed once may fail again: go on with what comes next, not with this window.
            self._must_reset = True
            self._window.clear()
            self._pending.clear()
            self._starts_ns.clear()
            raise

    def _evidence(self, group: Seen, tier: int) -> Evidence:
        return Evidence(
            tier=tier,
            t_start_ns=group.t_start_ns,
            t_end_ns=group.t_end_ns,
            frame_id=group.frame_id,
            model=self.engine.name,
        )

    def _evidence_vlm(self, depth: int) -> Evidence:
        group = self._window[-1].group
        held = min(self._stream.n_groups, len(self._starts_ns))
        return Evidence(
            tier=TIER_VLM,
            t_start_ns=self._starts_ns[-held] if held else group.t_start_ns,
            t_end_ns=group.t_end_ns,
            depth=int(depth),
            frame_id=group.frame_id,
            model=self.engine.name,
        )


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
