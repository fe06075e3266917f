"""`vlm-decisions study temporal`: whether the model uses time.

Every clip is a window of 8 groups inside one segment of a random desk, with one motion (or none)
from beginning to end. Questions are asked about the clip as it is; about its middle frame alone;
with its groups in random order; with its frames in random order, paired anew; and played backwards,
where approaching and receding, left and right must swap. A model that answers from appearance does
as well on the middle frame and on random frames, and its answers do not swap. A model that sees the
motion between the two frames of a group does well on groups in any order. A model that compares
groups with each other does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...files.columns import columns, number
from ...learn.measures import auroc, balanced_accuracy, bootstrap
from ...questions import Question
from ...runtime.heads import Head
from ...sim.clips import GROUPS, MOTION, TIMES_S, Clip, draw_motion_clip
from .clip_answers import ClipAnswers, StudyError, ask_clip, desk_questions, progress, read_heads

FIRST_SEED = 820_000_000
FORMS = ("full", "single", "shuffled", "scrambled")


@dataclass
class MotionAnswers:
    """Answers about the clips in each form, and whether they swapped when played backwards.

    Attributes:
        full: about the clips as they are.
        single: about their middle frame.
        shuffled: with the groups in random order.
        scrambled: with the frames in random order.
        turned: (clip, question, right) of the language model, for clips played backwards.
        heads_turned: the same of the heads.
    """

    full: ClipAnswers = field(default_factory=ClipAnswers)
    single: ClipAnswers = field(default_factory=ClipAnswers)
    shuffled: ClipAnswers = field(default_factory=ClipAnswers)
    scrambled: ClipAnswers = field(default_factory=ClipAnswers)
    turned: list[tuple[int, str, bool]] = field(default_factory=list)
    heads_turned: list[tuple[int, str, bool]] = field(default_factory=list)


def watch(engine: Any, questions: Sequence[Question], heads: Sequence[Head],
          clips: int) -> MotionAnswers:
    """Ask the motion questions about `clips` clips in every form.

    Raises:
        StudyError: the set has no question about motion.
    """
    asked = [q for q in questions if q.id in MOTION]
    if not asked:
        raise StudyError(f"the set has none of the questions about motion: {', '.join(MOTION)}")
    out = MotionAnswers()
    rng, scramble = np.random.default_rng(13), np.random.default_rng(14)
    for k in progress(range(clips), clips, "motion"):
        clip = draw_motion_clip(FIRST_SEED + k)
        groups = engine.encode_many(clip.pairs)
        ask_clip(engine, groups, asked, clip.truth, out.full)
        read_heads(heads, groups, out.full)
        middle = clip.frames[len(clip.frames) // 2]
        still = engine.encode([middle, middle])
        ask_clip(engine, [still], asked, clip.truth, out.single, TIMES_S[:1])
        order = rng.permutation(GROUPS)
        ask_clip(engine, [groups[i] for i in order], asked, clip.truth, out.shuffled)
        frames = [clip.frames[i] for i in scramble.permutation(len(clip.frames))]
        mixed = engine.encode_many(list(zip(frames[::2], frames[1::2], strict=True)))
        ask_clip(engine, mixed, asked, clip.truth, out.scrambled)
        if clip.moves:
            groups = engine.encode_many([pair[::-1] for pair in clip.pairs[::-1]])
            back = ClipAnswers()
            ask_clip(engine, groups, asked, clip.truth, back)
            read_heads(heads, groups, back)
            out.turned += _turned(k, out.full.p, back.p, {q.id: q.id for q in asked}, clip)
            out.heads_turned += _turned(k, out.full.heads, back.heads,
                                        {head.name: head.question for head in heads}, clip)
    return out


def summary(watched: MotionAnswers) -> dict[str, Any]:
    """Return what `watch` found.

    Returns:
        accuracy: {form: balanced accuracy at 0.5, mean over motion questions}. auroc: {form:
        {question: x}}. temporal_gain, shuffled_gain, scrambled_gain: a form less single, with `ci`
        (95%, bootstrap over clips). reversal_consistency: share of moving clips and questions of
        their axis whose P(yes) moved the right way when played backwards; heads_...: of heads.
        heads: {name: auroc on the full clips}. clips.
    """
    count = len(watched.full.truth)
    forms = {name: getattr(watched, name) for name in FORMS}
    everything = np.arange(count)
    accuracy = {name: _accuracy(answers, everything) for name, answers in forms.items()}
    rng = np.random.default_rng(17)

    def gain(form: str, chosen: np.ndarray) -> float | None:
        one, other = _accuracy(forms[form], chosen), _accuracy(watched.single, chosen)
        return None if one is None or other is None else one - other

    return {
        "accuracy": accuracy,
        "auroc": {name: {q: auroc(answers.told(q), np.array(p)) for q, p in answers.p.items()}
                  for name, answers in forms.items()},
        "temporal_gain": gain("full", everything),
        "shuffled_gain": gain("shuffled", everything),
        "scrambled_gain": gain("scrambled", everything),
        "ci": {"temporal_gain": bootstrap(lambda i: gain("full", i), count, rng),
               "shuffled_gain": bootstrap(lambda i: gain("shuffled", i), count, rng),
               "scrambled_gain": bootstrap(lambda i: gain("scrambled", i), count, rng),
               "reversal_consistency": _interval_turned(watched.turned, rng)},
        "reversal_consistency": _share(watched.turned),
        "heads_reversal_consistency": _share(watched.heads_turned),
        "heads": {name: auroc(watched.full.told(name), np.array(p))
                  for name, p in watched.full.heads.items() if name in MOTION},
        "clips": count,
    }


def temporal(model: str = "sim_desk", clips: int = 200, questions: str = "desk",
             heads: Sequence[Head] = (), engine: Any = None) -> dict[str, Any]:
    """Run the study; see `watch` and `summary`."""
    if engine is None:
        from ...engine.engine import Engine

        engine = Engine.load(model)
    read = [head for head in heads if head.question in MOTION]
    return summary(watch(engine, desk_questions(questions), read, clips))


def print_temporal(result: dict[str, Any]) -> None:
    """Print the table."""
    print(*columns([("AUROC", *FORMS), *(
        (name, *(number(result["auroc"][form][name]) for form in FORMS))
        for name in result["auroc"]["full"]),
        ("balanced accuracy", *(number(result["accuracy"][form]) for form in FORMS))]), sep="\n")
    for name in ("temporal_gain", "shuffled_gain", "scrambled_gain", "reversal_consistency",
                 "heads_reversal_consistency"):
        value, ci = result[name], result["ci"].get(name)
        print(f"{name} {number(value)}" + (f"  ({ci[0]:.3f} to {ci[1]:.3f})" if ci else ""))
    for name, value in result["heads"].items():
        print(f"head {name} {number(value)}")
    print(f"{result['clips']} clips")


def plot_temporal(result: dict[str, Any], path: str) -> None:
    """Draw AUROC by question and form."""
    from .figures import figure, save

    names = list(result["auroc"]["full"])
    drawn, axes = figure(1, "Does the model use time?")
    for k, form in enumerate(FORMS):
        values = [result["auroc"][form][name] or np.nan for name in names]
        axes[0].bar(np.arange(len(names)) + 0.21 * (k - 1.5), values, 0.2, label=form)
    axes[0].axhline(0.5, color="black", linewidth=0.8)
    axes[0].set(ylabel="AUROC", ylim=(0.3, 1.0), xticks=range(len(names)), xticklabels=names)
    axes[0].legend()
    save(drawn, path)


def _turned(k: int, forward: dict[str, list[float]], back: dict[str, list[float]],
            question_of: dict[str, str], clip: Clip) -> list[tuple[int, str, bool]]:
    """Return whether each P(yes) about the clip's axis moved the right way, played backwards."""
    depth = clip.truth["approaching"] == "yes" or clip.truth["receding"] == "yes"
    axis = MOTION[:2] if depth else MOTION[2:]
    moved = []
    for name, question_id in question_of.items():
        if question_id in axis:
            change = back[name][-1] - forward[name][-1]
            right = change < 0 if clip.truth[question_id] == "yes" else change > 0
            moved.append((k, name, bool(right)))
    return moved


def _accuracy(answers: ClipAnswers, chosen: np.ndarray) -> float | None:
    found = [balanced_accuracy(answers.told(name)[chosen], np.array(p)[chosen] > 0.5)
             for name, p in answers.p.items()]
    known = [value for value in found if value is not None]
    return float(np.mean(known)) if known else None


def _share(turned: Sequence[tuple[int, str, bool]]) -> float | None:
    return float(np.mean([right for _, _, right in turned])) if turned else None


def _interval_turned(turned: Sequence[tuple[int, str, bool]],
                     rng: np.random.Generator) -> list[float] | None:
    """Return the interval over clips: the questions about a clip are not independent."""
    by_clip: dict[int, list[bool]] = {}
    for clip, _, right in turned:
        by_clip.setdefault(clip, []).append(right)
    rows = list(by_clip.values())
    if not rows:
        return None
    return bootstrap(lambda i: float(np.mean(np.concatenate([rows[j] for j in i]))), len(rows), rng)
