"""`vlm-decisions bench replay`: a recording through the runtime in several modes, scored.

The result has the figures of the first mode (see `summary`), and under `modes` those of every mode,
without what only plots need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ...decision import TIER_HEALTH, TIER_VLM, UNKNOWN, Decision
from ...engine.errors import ModeError
from ...events import EventBook
from ...frames import NS
from ...kinds import kind_of
from ...question_book import QuestionBook
from ...questions import Question, QuestionError
from ...runtime.engine_protocol import EngineLike
from ...runtime.heads import answering_head, language_of, load_heads
from ...runtime.settings import RuntimeSettings
from ...runtime.statistics import Percentiles, percentiles
from ...sources.recording import ReplaySource
from ...sources.truth import Truth
from .modes import Mode, ReplayModeError
from .playback import Playback, play_fast
from .score import ROUNDS, Effort, Scorer, truth_line
from .shared import SharedReadouts

LATENCY_MODELS = {
    "measured": "fast: each group was processed when complete; decision times are frame time plus "
                "the seconds measured on this machine",
    "none": "fast: each group was processed when complete; decision times are frame time, as if "
            "computing took none",
    "realtime": "real time: the images were published over DDS at their own pace, decision times "
                "are those of the node's clock",
}

PLOTTED = ("lines", "ages_by_tier")

#: The mode whose askings the others' are compared with.
ALWAYS = "always"

Player = Callable[[Mode, QuestionBook], Playback]


def bench_replay(
    recording: ReplaySource,
    book: QuestionBook,
    modes: Sequence[Mode],
    play: Player,
    heads: frozenset[str],
    *,
    latency: str,
    rounds: int = ROUNDS,
    tell: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Play the recording in every mode and return the result.

    A mode that cannot be run here is left out, with the reason under its name. `layer_share`: of
    the language model's layers, those that askings used; `asked_share`: of the askings of the mode
    `always`, those of this one, where both were run.

    Args:
        recording: with its truth.
        book: the questions.
        modes: how to answer.
        play: runs one mode.
        heads: ids of the questions that have a head.
        latency: key of LATENCY_MODELS.
        rounds: draws of the bootstrap.
        tell: gets a line of text after each mode.

    Raises:
        ReplayModeError: no mode can be run.
    """
    scorer = Scorer(recording.truth, rounds=rounds)
    done: dict[str, Any] = {}
    first: dict[str, Any] | None = None
    efforts: dict[str, Effort] = {}
    model = ""
    for mode in modes:
        try:
            asked = mode.questions(book, heads)
            outcome = play(mode, asked)
        except (ReplayModeError, ModeError, QuestionError) as error:  # what this model cannot do
            tell(f"{mode.name}: left out: {error}")
            done[mode.name] = {"about": mode.about, "left_out": str(error)}
            continue
        model = outcome.model
        figures = summary(mode, asked, outcome, scorer, recording.truth)
        efforts[mode.name] = scorer.effort(outcome.decisions, list(asked))
        figures |= efforts[mode.name].layers(outcome.n_layers)
        first = first or figures
        done[mode.name] = {key: value for key, value in figures.items() if key not in PLOTTED}
        tell(f"{mode.name}: {_headline(done[mode.name])}")
    if first is None:
        raise ReplayModeError("; ".join(f"{name}: {one['left_out']}" for name, one in done.items()))
    if ALWAYS in efforts:
        for name, effort in efforts.items():
            done[name] |= effort.share(efforts[ALWAYS])
        first |= efforts[next(iter(efforts))].share(efforts[ALWAYS])
        tell("asked, of what is asked by always: " + ", ".join(
            f"{name} {_shown(done[name]['asked_share'])}" for name in efforts))
    return {
        "source": recording.name,
        "topic": recording.topic,
        "model": model,
        "latency_model": LATENCY_MODELS[latency],
        "segments": scorer.segments,
        "duration_s": round(recording.truth.duration_s, 3),
        **first,
        "modes": done,
        "truth": {name: truth_line(recording.truth, name) for name in recording.truth.ids},
    }


def fast_player(
    recording: ReplaySource,
    engine: EngineLike,
    settings: RuntimeSettings,
    head_paths: Sequence[Any],
    latency: str,
    progress: Callable[[str, float], None] | None = None,
) -> Player:
    """Return a player that runs in this thread; `progress` gets the mode and seconds played.

    Modes that share the model's answers compute each of them once.
    """
    shared = SharedReadouts(engine)

    def play(mode: Mode, book: QuestionBook) -> Playback:
        told = (lambda seconds: progress(mode.name, seconds)) if progress else None
        return play_fast(recording.frames(), shared if mode.shares else mode.engine(engine), book,
                         settings=mode.settings(settings),
                         head_paths=head_paths if mode.uses_heads else (), latency=latency,
                         timer=shared.timer, progress=told)

    return play


def questions_with_head(engine: EngineLike, book: QuestionBook,
                        head_paths: Sequence[Any]) -> frozenset[str]:
    """Return the ids of the questions that a head which fits the engine answers."""
    heads, _ = load_heads(head_paths, engine.fingerprint, engine.pixel_budget,
                          language_of(engine))
    return frozenset(question.id for question in book if answering_head(question, heads))


def summary(mode: Mode, book: QuestionBook, outcome: Playback, scorer: Scorer,
            truth: Truth) -> dict[str, Any]:
    """Return the figures of one mode.

    Returns:
        The scores, and `tiers`: age of answers by tier, and under `stages_ms` the time of the
            engine's
        calls. `drops`: by cause. `dead_time`: time in the periods of groups in which no group was
        processed, and how much of it the engine used to prepare the next. `events`: counts of the
        state machines, beside those of the truth. `lines` ([t_end, p, answer, age_ms] of every
            answer)
        and `ages_by_tier` are for plots.
    """
    questions = list(book)
    result = {"about": mode.about, **scorer.score(outcome.decisions, questions)}
    result["tiers"] = _tiers(outcome)
    result["drops"] = dict(outcome.dropped)
    result["dead_time"] = _dead_time(outcome)
    result["tick_ms"] = _spread(percentiles([s * 1e3 for s, _ in outcome.turns_s]))
    result["frames"], result["groups"] = outcome.frames, outcome.groups
    result["overruns"] = outcome.overruns
    result["errors"] = sorted(set(outcome.errors))[:20]
    result["events"] = _events(book, outcome, truth)
    result["wall_s"] = round(outcome.wall_s, 2)
    result["ages_by_tier"] = {
        str(tier): [round(d.age_s * 1e3, 1) for d in outcome.decisions if d.tier == tier
                    and d.answer != UNKNOWN and math.isfinite(d.age_s)]
        for tier in range(TIER_HEALTH, TIER_VLM + 1)}
    origin_ns = truth.start_ns
    result["lines"] = {
        question.id: [
            [round((d.t_end_ns - origin_ns) / NS, 3), round(d.p, 4), d.answer,
             round(d.age_s * 1e3, 1)]
            for d in outcome.decisions
            if d.question_id == question.id and d.answer != UNKNOWN]
        for question in questions}
    return result


def _tiers(outcome: Playback) -> dict[str, Any]:
    tiers: dict[str, Any] = {}
    for tier in range(TIER_HEALTH, TIER_VLM + 1):
        ages = [d.age_s * 1e3 for d in outcome.decisions
                if d.tier == tier and d.answer != UNKNOWN and math.isfinite(d.age_s)]
        tiers[str(tier)] = {"answers": len(ages), "age_ms": _spread(percentiles(ages))}
    tiers["stages_ms"] = {name: _spread(percentiles([s * 1e3 for s in seconds]))
                          for name, seconds in outcome.stage_s.items()}
    return tiers


def _dead_time(outcome: Playback) -> dict[str, Any]:
    period_s = outcome.period_s
    total_s = period_s * len(outcome.turns_s)
    dead_s = sum(max(0.0, period_s - busy_s) for busy_s, _ in outcome.turns_s)
    used_s = sum(min(idle_s, max(0.0, period_s - busy_s)) for busy_s, idle_s in outcome.turns_s)
    return {
        "period_ms": period_s * 1e3,
        "dead_s": round(dead_s, 3),
        "dead_share": round(dead_s / total_s, 4) if total_s else None,
        "used_s": round(used_s, 3),
        "used_share": round(used_s / dead_s, 4) if dead_s else None,
    }


def _events(book: QuestionBook, outcome: Playback, truth: Truth) -> dict[str, Any]:
    """Count the events of the answers, and those that the truth would have given."""
    given, true = EventBook(book.events), EventBook(book.events)
    for decision in outcome.decisions:
        given.update(decision)
    truly = [event for decision in true_decisions(truth, book) for event in true.update(decision)]
    return {
        spec.id: {
            "changes": sum(event.event_id == spec.id for event in outcome.events),
            "changes_true": sum(event.event_id == spec.id for event in truly),
            "counters": given.counters()[spec.id],
            "counters_true": true.counters()[spec.id],
        }
        for spec in book.events}


def true_decisions(
    truth: Truth, questions: Iterable[Question] = (), period_s: float = 0.25
) -> list[Decision]:
    """Return decisions that give the truth, every `period_s` of frame time.

    Those about an any_of of `questions` give the answers of its labels as well.
    """
    step_ns = round(period_s * NS)
    options = {question.id: question for question in questions if question.options}
    told = sorted((t_ns, name, span.answer) for name, spans in truth.spans.items()
                  for span in spans for t_ns in range(span.start_ns, span.end_ns, step_ns))
    found = []
    for t_ns, name, answer in told:
        question = options.get(name)
        found.append(Decision(
            name, answer, 1.0, 1.0, question.options if question else (), (), TIER_VLM, 0, t_ns,
            t_ns, t_ns, False, t_ns, "truth",
            answers=kind_of(question).parts(question, answer) if question else ()))
    return found


def _spread(values: Percentiles) -> dict[str, Any]:
    known = values.count > 0
    return {"p50": round(values.p50, 3) if known else None,
            "p95": round(values.p95, 3) if known else None, "count": values.count}


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _headline(result: dict[str, Any]) -> str:
    def shown(name: str) -> str:
        value, ci = result[name], result[f"{name}_ci"]
        return f"{name} {_shown(value)}" + (f" [{ci[0]:.3f}, {ci[1]:.3f}]" if ci else "")

    names = ("event_accuracy", "accuracy", "timeliness_f1", "timeliness_f1_at1", "ars",
             "onset_error_s", "layer_share")
    drops = sum(result["drops"].values())
    return ", ".join([*(shown(name) for name in names), f"tick p50 {result['tick_ms']['p50']} ms",
                      f"drops {drops}", f"overruns {result['overruns']}",
                      f"{result['wall_s']:.0f} s"])
