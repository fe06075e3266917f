"""The simulated desk as a camera whose answers are corrected from the truth, as a person would.

Frames go through the runtime as fast as it can take them; their stamps are the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ..files import resources
from ..files.listing import listed
from ..frames import FPS, NS, Frame
from ..kinds import kind_of
from ..learn.corrections import CorrectionStore, Corrector, ModelId
from ..learn.learner import Learner
from ..question_book import QuestionBook
from ..questions import Question
from ..runtime import Runtime
from ..runtime.evidence import Look
from ..runtime.heads import colours_of, language_of
from ..runtime.learned import shipped_logits
from ..sim.clips import SIZE
from ..sim.script import Script
from ..sim.world import World
from ..sources.truth import Truth, truth_of_world
from ..views import View

SCENE_S = 12.0
PAUSE_S = 2.0  # between two scenes: a new window
SETTLED_S = 0.6  # after a change: before that, either answer may be right
HISTORY_S = 1.0  # of a scene, before which nobody can tell what moves
CORRECTED_S = 0.75  # shortest span that somebody labels
START_NS = 1_700_000_000 * NS
FIRST_SEED = 870_000_000  # not used in training, nor by other studies


@dataclass(frozen=True, eq=False)
class ReadScenes:
    """What was read of questions in scenes, N looks: by question z, features and the truth.

    z: logits without learning, (N, K), see LabelledSpan; p: probabilities as published, before
    smoothing, (N, 2) of yes and no or (N, K); mean, max: pooled features (N, D); colours: of the
    picture (N, C); answer: number of the right one, int (N,); scene: number of the scene (N,).
    Looks soon after the truth changed are left out.
    """

    z: Mapping[str, np.ndarray]
    p: Mapping[str, np.ndarray]
    mean: Mapping[str, np.ndarray]
    max: Mapping[str, np.ndarray]
    colours: Mapping[str, np.ndarray]
    answer: Mapping[str, np.ndarray]
    scene: Mapping[str, np.ndarray]


class TaughtDesk:
    """A runtime that looks at one scene of a desk after another, with corrections in a folder.

    draw: makes the world of a seed and script. tell: gets what the learner says. heads: folders of
    heads, the shipped one by default.
    """

    def __init__(self, engine: Any, questions: Sequence[Question], folder: Path,
                 draw: Callable[[int, Script], World] = World,
                 tell: Callable[[str], None] = lambda message: None,
                 heads: Sequence[Path] | None = None) -> None:
        self._draw, self._now_ns, self._engine = draw, START_NS, engine
        self.questions = [one for one in questions if kind_of(one).exclusive]
        self.faults: list[str] = []
        self.runtime = Runtime(
            lambda: engine, QuestionBook(self.questions), on_error=self.faults.append,
            head_paths=[resources.share_file("heads")] if heads is None else heads,
            clock_ns=lambda: self._now_ns)
        self.corrector = Corrector(CorrectionStore(folder))
        self.corrector.model = ModelId(engine.name, engine.fingerprint, engine.pixel_budget,
                                       language_of(engine))
        self.runtime.watch(self.corrector.looks.take)
        self.learner = Learner(self.corrector, self.runtime, tell, self.faults.append, lambda: None)
        self._looks: list[Look] = []
        self.runtime.watch(self._looks.append)

    def __enter__(self) -> TaughtDesk:
        self._film(lambda t_s: World(0).render(t_s, *SIZE), 0.5)  # loads the model
        self.learner.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.learner.close()
        self.runtime.stop()

    def watch(self, seed: int) -> Truth:
        """Look at the scene of a seed; return what was true in it, on frame time."""
        self._looks.clear()
        world = self._draw(seed, Script.random(seed, SCENE_S, (1.8, 3.2)))
        began_ns = self._film(lambda t_s: world.render(t_s, *SIZE), SCENE_S)
        if self.faults:
            raise RuntimeError(self.faults[0])
        times_s = np.arange(round(SCENE_S * FPS)) / FPS
        truth = truth_of_world(world, times_s, seed)
        return Truth({name: [_later(span, began_ns) for span in spans]
                      for name, spans in truth.spans.items()})

    def _film(self, draw: Callable[[float], np.ndarray], seconds: float) -> int:
        began_ns = self._now_ns + round(PAUSE_S * NS)
        for k in range(round(seconds * FPS)):
            self._now_ns = began_ns + round(k / FPS * NS)
            self.runtime.push(Frame(draw(k / FPS), self._now_ns))
            while self.runtime.step():
                pass
        return began_ns

    def spans(self, truth: Truth, question: Question) -> Iterator[tuple[str, int, int]]:
        """Yield spans of the scene just seen that somebody could label: answer, from, to."""
        looks = [look for look in self._looks if look.result.question.id == question.id]
        for run in truth.runs(question.id):
            first_ns = max(run.start_ns + round(SETTLED_S * NS),
                           truth.start_ns + round(HISTORY_S * NS))
            inside = [look for look in looks
                      if first_ns <= look.t_start_ns and look.t_end_ns <= run.end_ns]
            if inside and inside[-1].t_end_ns - inside[0].t_start_ns >= CORRECTED_S * NS:
                yield run.answer, inside[0].t_start_ns, inside[-1].t_end_ns

    def teach(self, question: Question, count: int, seeds: Iterable[int]) -> int:
        """Correct `count` spans of scenes, as many of each answer; return how many scenes it took.

        What the runtime answers with does not change before the last one. Raises ValueError where
        the scenes do not show that many.
        """
        answers = kind_of(question).answers(question)
        left = {answer: (count + k) // len(answers) for k, answer in enumerate(reversed(answers))}
        for scenes, seed in enumerate(seeds, 1):
            for answer, start_ns, end_ns in list(self.spans(self.watch(seed), question)):
                if left[answer]:
                    left[answer] -= 1
                    self.correct(question, answer, start_ns, end_ns, learn=not any(left.values()))
            if not any(left.values()):
                return scenes
        lacking = listed(f"{number} of {answer}" for answer, number in left.items() if number)
        raise ValueError(f"these scenes lack spans: {lacking}")

    def correct(self, question: Question, answer: str, start_ns: int, end_ns: int,
                learn: bool = True) -> None:
        """Say what was right; the learner is told, or not yet."""
        correction, _ = self.corrector.correct(question, [View()], answer, {}, start_ns, end_ns)
        if learn:
            self.learner.consider(correction)

    def read(self, seeds: Sequence[int]) -> ReadScenes:
        """Look at scenes, and return what was read."""
        rows: dict[str, list[tuple[Any, Any, Any, Any, Any, int, int]]] = {
            one.id: [] for one in self.questions}
        for scene, seed in enumerate(seeds):
            truth = self.watch(seed)
            for look in self._looks:
                result, t_ns = look.result, look.t_end_ns
                name = result.question.id
                if (t_ns < truth.start_ns + round(HISTORY_S * NS)
                        or not truth.settled(name, t_ns, SETTLED_S)):
                    continue
                z = shipped_logits(result.question, result.logits, result.evidence.depth)
                answers = kind_of(result.question).answers(result.question)
                rows[name].append((z, result.probabilities, look.features.mean,
                                   look.features.max, colours_of(look.frame.image),
                                   answers.index(truth.answer(name, t_ns)), scene))
        kept = {name: list(zip(*own, strict=True)) for name, own in rows.items() if own}
        parts = [{name: np.array(own[k], kind) for name, own in kept.items()}
                 for k, kind in enumerate((float, float, *[np.float32] * 3, int, int))]
        return ReadScenes(*parts)


def _later(span: Any, by_ns: int) -> Any:
    """Return a span of truth so much later."""
    return replace(span, start_ns=span.start_ns + by_ns, end_ns=span.end_ns + by_ns)
