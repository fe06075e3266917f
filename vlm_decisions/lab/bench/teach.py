"""`vlm-decisions bench teach`: what corrections bring on a camera that the model does not know.

A few simulated desks are seen through a camera of another palette, lens and sensor (`sim.style`).
Of each question of the desk set, spans are labelled from the truth, as many of yes as of no where
there are, and fitted by what the node learns with. Measured are other episodes of the same desks.
"""

from __future__ import annotations

import itertools
import math
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ...decision import UNKNOWN, Decision
from ...files import resources
from ...frames import FPS, NS, Frame
from ...kinds import kind_of
from ...learn.corrections import CorrectionStore, Corrector, ModelId
from ...learn.learner import Learner, spans_of
from ...learn.measures import bootstrap_sums
from ...learn.span_fit import LabelledSpan, SpanFit, fit_spans
from ...question_book import QuestionBook, questions_path
from ...questions import Question
from ...runtime import Runtime
from ...runtime.heads import pooled
from ...runtime.health import HEALTH_IDS
from ...sim.clips import SIZE
from ...sim.script import Script
from ...sim.style import STRANGE, Style
from ...sim.world import World
from ..taught_desk import FIRST_SEED, ReadScenes, TaughtDesk
from ..teach import HELD_SEED, teach

SPANS = (5, 10, 20, 40)
BEYOND = 0.025
"""How often chance alone puts a 95% interval below 0, where nothing has changed."""

DECIDED = ("before", "after", "after_same_thresholds")
"""What is decided right: see bench_teach."""

LIVE = ("seconds_to_adopt", "adoptions", "tick_p95_ms", "tick_p95_ratio")
"""Figures of the live part."""

PHASE_S = 10.0
"""Ticks are timed with and without learning in turns of so long, seconds."""


def bench_teach(*, desks: int = 2, episodes: int = 24, held: int = 16, lamps: int = 2,
                phases: int = 3, model: str = "sim_desk") -> dict[str, Any]:
    """Measure learning from corrections.

    Args:
        desks: how many are seen; each learns for itself.
        episodes: of each desk, of 12 s, that spans are labelled in.
        held: other episodes of it that everything is measured on.
        lamps: desks with a lamp, which the model was never taught.
        phases: turns with learning, and as many without, in which ticks are timed.
        model: embedded name, local path or hub name.

    Returns:
        usual: accuracy of the shipped settings through the usual camera; before: through the
        strange one; after: by number of spans, with what was adopted. Of each question and desk the
        share of looks that are right with the most probable answer; the mean of these. recovered:
        by number of spans, the share of the loss that is won back. adopted: by number of spans, how
        many. decided: of yes/no questions the share of looks whose P(yes) lies right beyond `enter`
        or `exit`: before, with 40 spans, and with these and the thresholds of before. spans: that
        there were, of 40, the mean. worse_questions: how many were right less
        often with 40 spans than before, more so than by chance: the 95% interval over held-out
        episodes lies below 0. worse_by_chance: how many of that kind chance alone would make, of
        those that changed. worse_at_all: how many were right less often by however little, and
        `worst` by how much. unseen_question_auroc: of a lamp taught by 12 spans, the least of the
        desks. seconds_to_adopt: from a correction until it is in use, while the model answers live,
        the longest. tick_p95_ratio: from the end of a group until its last answer, while something
        is learned all the time against while nothing is. missing: by name the parts that could not
        be measured, and why; their figures are None.
    """
    from ...engine import Engine

    engine = Engine.load(model)
    questions = [one for one in QuestionBook.load(questions_path("desk"))
                 if kind_of(one).exclusive]
    missing: dict[str, str] = {}

    def part(name: str, nothing: Any, work: Callable[..., Any], *args: Any) -> Any:
        """Return what `work` measures; where it cannot, `nothing`: the other parts count still."""
        try:
            return work(*args)
        except (RuntimeError, ValueError) as error:
            missing[name] = str(error) or type(error).__name__
            return nothing

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for desk in range(desks):
            rows += part(f"desk {desk}", [], _one_desk, engine, questions, desk,
                         folder / str(desk), episodes, held)
        live = part("live", dict.fromkeys(LIVE), _live, model, questions, folder / "0", phases)
    auroc = [part(f"lamp {desk}", None, _lamp, engine, desk, max(2, held // 2))
             for desk in range(lamps)]
    known = [one for one in auroc if one is not None]
    return {
        **_summary(rows), "unseen_question_auroc": min(known, default=None), **live,
        "missing": missing,
        "of": {"desks": desks, "questions": len(rows), "episodes": episodes, "held": held},
        "questions": rows,
    }


def _summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of all questions of all desks; None where there are no questions."""
    names = ("usual", "before", "after", "recovered", "adopted", "decided", "spans",
             "worse_questions", "worse_by_chance", "worse_at_all", "worst")
    if not rows:
        return dict.fromkeys(names)
    usual, before, spans = (statistics.mean(row[name] for row in rows)
                            for name in ("usual", "before", "spans"))
    after = {n: statistics.mean(row["after"][n] for row in rows) for n in SPANS}
    changes = [row["after"][SPANS[-1]] - row["before"] for row in rows]
    return dict(zip(names, (
        usual, before, {str(n): after[n] for n in SPANS},
        {str(n): (after[n] - before) / (usual - before) if usual != before else None
         for n in SPANS},
        {str(n): sum(row["adopted"][n] for row in rows) for n in SPANS},
        {name: statistics.mean(row["decided"][name] for row in rows if row["decided"])
         for name in DECIDED}, spans,
        sum(bool(row["change_95"]) and row["change_95"][1] < 0 for row in rows),
        BEYOND * sum(change != 0 for change in changes),
        sum(change < 0 for change in changes), min(0.0, *changes)), strict=True))


def print_teach(result: dict[str, Any]) -> None:
    """Print the result of bench_teach."""
    if result["questions"]:
        print(f"right: {result['usual']:.3f} through the usual camera, {result['before']:.3f} "
              f"through the strange one ({result['of']['questions']} questions of "
              f"{result['of']['desks']} desks)")
        for n, accuracy in result["after"].items():
            print(f"with {n:>2} spans: {accuracy:.3f}, {100 * result['recovered'][n]:.0f}% of the "
                  f"loss won back; {result['adopted'][n]} adopted")
        print("right beyond the thresholds: {before:.3f} before, {after:.3f} with 40 spans "
              "({after_same_thresholds:.3f} with the thresholds of before)".format(
                  **result["decided"]))
        print(f"worse than before, more than by chance over episodes: {result['worse_questions']} "
              f"({result['worse_by_chance']:.1f} would be by chance); by however little: "
              f"{result['worse_at_all']} (by {abs(result['worst']):.3f} at most)")
    if result["unseen_question_auroc"] is not None:
        print(f"a question never taught: AUROC {result['unseen_question_auroc']:.3f}")
    if result["seconds_to_adopt"] is not None:
        print(f"in use after {result['seconds_to_adopt']:.2f} s; tick p95 "
              f"{result['tick_p95_ratio']:.3f} times as long meanwhile")
    for name, why in result["missing"].items():
        print(f"not measured: {name}: {why}")


def _lamp(engine: Any, desk: int, scenes: int) -> float | None:
    taught = teach(engine, "lamp", "Is the lamp on?", seed=desk, scenes=scenes)
    return taught["after"]["auroc"]


def _one_desk(engine: Any, questions: Sequence[Question], desk: int, folder: Path, episodes: int,
              held: int) -> list[dict[str, Any]]:
    """Return a row for each question of a desk; its corrections are kept in the folder."""
    seeds = range(HELD_SEED + 1000 * desk, HELD_SEED + 1000 * desk + held)
    with tempfile.TemporaryDirectory() as unused, _desk(engine, questions, desk, None,
                                                        Path(unused)) as plain:
        usual = plain.read(seeds)
    with _desk(engine, questions, desk, STRANGE, folder) as seen:
        left = {one.id: dict.fromkeys(kind_of(one).answers(one),
                                      SPANS[-1] // len(kind_of(one).answers(one)))
                for one in questions}
        for seed in range(FIRST_SEED + 1000 * desk, FIRST_SEED + 1000 * desk + episodes):
            truth = seen.watch(seed)
            for question in questions:
                for answer, start_ns, end_ns in list(seen.spans(truth, question)):
                    if left[question.id][answer]:
                        left[question.id][answer] -= 1
                        seen.correct(question, answer, start_ns, end_ns, learn=False)
        test = seen.read(seeds)
        store = seen.corrector.store
        found = []
        for question in questions:
            spans = _by_turns([spans_of(seen.corrector, question, one)[0]
                               for one in store.corrections(question.id)])
            if question.id not in test.z or question.id not in usual.z:
                continue
            found.append(_row(question, desk, spans, usual, test))
    return found


def _desk(engine: Any, questions: Sequence[Question], desk: int, style: Style | None,
          folder: Path) -> TaughtDesk:
    def draw(_: int, script: Script) -> World:
        return World(FIRST_SEED + desk, script, style=style)

    return TaughtDesk(engine, questions, folder, draw)


def _by_turns(spans: Sequence[LabelledSpan]) -> list[LabelledSpan]:
    """Return spans with the answers by turns, as far as there are spans of each."""
    sides = [[one for one in spans if one.answer == side]
             for side in sorted({one.answer for one in spans})]
    return [one for some in itertools.zip_longest(*sides) for one in some if one is not None]


def _row(question: Question, desk: int, spans: Sequence[LabelledSpan], usual: ReadScenes,
         test: ReadScenes) -> dict[str, Any]:
    name = question.id
    z, mean, peak, colours, answer = (getattr(test, part)[name] for part in
                                      ("z", "mean", "max", "colours", "answer"))
    after, adopted, refusal, fit, logits = {}, {}, "", None, z
    own = question.enter, question.exit
    for n in SPANS:
        new = fit_spans(spans[:n], question.options, head=question.tier != "vlm", thresholds=own,
                        kept=fit is not None)
        fit, refusal = (new, "") if not new.refusal else (None, new.refusal)
        adopted[n] = fit is not None
        logits = z if fit is None else _logits(fit, z, mean, peak, colours)
        after[n] = float(np.mean(_right(logits, answer)))
    change = _right(logits, answer).astype(float) - _right(z, answer)
    new = fit.thresholds if fit is not None and fit.thresholds else own
    scene = test.scene[name]
    parts = np.stack([np.bincount(scene, change), np.bincount(scene)], axis=1)
    return {"question": name, "desk": desk, "spans": len(spans), "looks": len(answer),
            "usual": float(np.mean(_right(usual.z[name], usual.answer[name]))),
            "before": float(np.mean(_right(z, answer))), "after": after, "adopted": adopted,
            "decided": {} if question.options else dict(zip(DECIDED, (
                _decided(one, answer, by) for one, by in ((z, own), (logits, new), (logits, own))),
                strict=True)),
            "thresholds": new, "change_95": bootstrap_sums(parts, lambda sums: sums[0] / sums[1]),
            "refusal": refusal}


def _right(logits: np.ndarray, answer: np.ndarray) -> np.ndarray:
    """Return whether the most probable answer is right, (N,), of logits (N, K)."""
    said = logits[:, 0] <= 0 if logits.shape[1] == 1 else logits.argmax(axis=1)
    return said == answer


def _decided(logits: np.ndarray, answer: np.ndarray, thresholds: tuple[float, float]) -> float:
    """Return the share of looks decided right by enter and exit, of yes/no logits (N, 1)."""
    enter, leave = (math.log(p / (1 - p)) for p in thresholds)
    return float(np.mean(np.where(answer == 0, logits[:, 0] >= enter, logits[:, 0] <= leave)))


def _logits(fit: SpanFit, z: np.ndarray, *features: np.ndarray) -> np.ndarray:
    logits = np.array(fit.bias) + (fit.scale * z if fit.scale else 0.0)
    return logits + pooled(fit.pooling, *features) @ fit.weight.T if fit.weight.size else logits


def _live(model: str, questions: Sequence[Question], folder: Path, phases: int) -> dict[str, Any]:
    """Time adoption and ticks while a camera is answered in real time."""
    from ...engine import Engine

    ends: dict[int, float] = {}  # by the end of a group, milliseconds until its last answer

    def answered(decision: Decision) -> None:
        if decision.answer != UNKNOWN and decision.question_id not in HEALTH_IDS:
            ends[decision.t_end_ns] = 1e3 * decision.age_s

    faults: list[str] = []
    runtime = Runtime(lambda: Engine.load(model), QuestionBook(questions), on_decision=answered,
                      on_error=faults.append, head_paths=[resources.share_file("heads")])
    corrector = Corrector(CorrectionStore(folder))
    runtime.start()
    runtime.wait_ready()
    learner = Learner(corrector, runtime, lambda message: None, faults.append, lambda: None)
    by_question = {one.id: corrector.store.corrections(one.id) for one in questions}
    known = next((own[0] for own in by_question.values() if own), None)
    if known is None:
        raise ValueError("there are no corrections to learn from")
    corrector.model = ModelId(known.model, known.fingerprint, known.pixel_budget, known.language)
    learner.start()
    newest = [own[-1] for own in by_question.values() if own]
    again = itertools.cycle(newest)
    took: list[float] = []
    times: dict[bool, list[float]] = {True: [], False: []}
    try:
        with _filming(runtime):
            time.sleep(PHASE_S / 2)
            for correction in newest:
                began_s = time.perf_counter()
                learner.consider(correction)
                learner.wait_idle()
                if runtime.learned():
                    took.append(time.perf_counter() - began_s)
                _undo_all(learner, runtime)
                time.sleep(0.5)
            for phase in range(2 * phases):
                learning = bool(phase % 2)
                ends.clear()
                until_s = time.monotonic() + PHASE_S
                while time.monotonic() < until_s:
                    if learning:
                        learner.consider(next(again))
                        learner.wait_idle()
                        _undo_all(learner, runtime)  # ticks are timed with the same answers
                    else:
                        time.sleep(0.1)
                times[learning] += list(ends.values())
    finally:
        learner.close()
        runtime.stop()
    if faults:
        raise RuntimeError(faults[0])
    if not all(times.values()):
        raise RuntimeError("no group was answered in time: the machine is too slow for these rates")
    p95 = {learning: float(np.percentile(values, 95)) for learning, values in times.items()}
    return dict(zip(LIVE, (max(took, default=None), len(took), p95[False], p95[True] / p95[False]),
                    strict=True))


def _undo_all(learner: Learner, runtime: Runtime) -> None:
    for one in runtime.learned():
        learner.undo(one.question_id, one.view)


@contextmanager
def _filming(runtime: Runtime) -> Any:
    """Push frames of a desk in real time, drawn beforehand, from a thread of its own."""
    script = Script.random(HELD_SEED, 12.0, (1.8, 3.2))
    world = World(FIRST_SEED, script, style=STRANGE)
    images = [world.render(k / FPS, *SIZE) for k in range(round(12.0 * FPS))]
    stop = threading.Event()

    def film() -> None:
        began_s = time.monotonic()
        for k in itertools.count():
            if stop.wait(max(0.0, began_s + k / FPS - time.monotonic())):
                return
            runtime.push(Frame(images[k % len(images)], round(time.time() * NS)))
            runtime.check_freshness()

    thread = threading.Thread(target=film, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
