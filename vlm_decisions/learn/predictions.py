"""Predictions of the model and the heads on recordings, group by group, beside the truth.

Recordings go through the sampler, the encoder, the heads and the running stream as in the runtime.
Every question is asked at every group but those across a cut, as there. The predictions are cached
on disk, so that an interrupted run continues where it stopped.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..decision import YES
from ..frames import FPS, NS, Frame
from ..kinds import kind_of
from ..questions import Question
from ..runtime.cuts import CutFinder
from ..runtime.heads import Head, answering_head, deciding_head
from ..runtime.settings import RuntimeSettings
from ..sim.clips import SIZE, drawing
from ..sim.script import Script
from ..sim.world import World
from ..sources.labels import Labels
from ..sources.truth import Truth, truth_of_labels, truth_of_world
from .features import Bar, Store, engine_key, progress
from .recordings import Recording

WINDOW_GROUPS = 8
CUT = RuntimeSettings().cut
SETTLED_S = 0.6  # after a change: before that, either answer may be right
LEAST_GROUPS = 4  # of history that a motion can be seen in
DESK_S = 12.0
FIRST_SEED = 850_000_000  # not used in training and not by `study score`


@dataclass(frozen=True)
class LabelledRecording:
    """A recording and its truth, on the time of the recording."""

    recording: Recording
    truth: Truth


@dataclass(frozen=True)
class Predictions:
    """Predictions on one recording of N groups, by question id where not said otherwise.

    An any_of has predictions of each label, by its name (`id[label]`), as a yes/no question has.

    Attributes:
        name: of the recording.
        t_s: time at which each group ends, (N,), not by question.
        fresh: whether the group begins a new window, bool (N,), not by question.
        difference: the language model's logit(yes) - logit(no), (N,).
        shallow: of `depth: auto`, at the early exit: the same, or as `logits`; where a head answers
            there, its logit.
        head_p: P(yes) of the question's head, NaN where its window is too short, (N,).
        truth: 1, 0 or -1 (not known), int8 (N,); of a choice or score the option's index, or -1.
        settled: whether the truth has been the same for SETTLED_S and there is history, bool (N,).
        scene: name of what must not be split between fitting and testing, (N,).
        logits: of a choice or score, float64 (N, options).
        anew: groups before which there was a cut, bool (N,), not by question; None for none.
    """

    name: str
    t_s: np.ndarray
    fresh: np.ndarray
    difference: dict[str, np.ndarray]
    head_p: dict[str, np.ndarray]
    truth: dict[str, np.ndarray]
    settled: dict[str, np.ndarray]
    scene: dict[str, np.ndarray]
    logits: dict[str, np.ndarray] = field(default_factory=dict)
    shallow: dict[str, np.ndarray] = field(default_factory=dict)
    anew: np.ndarray | None = None

    def of_labels(self, question: Question) -> list[Predictions]:
        """Return the predictions of each label of an any_of as if it were the question."""
        names = kind_of(question).names(question)
        whats = [what for what in ("difference", "truth", "settled", "scene", "shallow")
                 if all(name in getattr(self, what) for name in names)]
        return [replace(self, **{what: {question.id: getattr(self, what)[name]} for what in whats})
                for name in names]


def labelled(recordings: Sequence[Recording], labels: Labels) -> list[LabelledRecording]:
    """Return the recordings that have labels, with their truth."""
    return [LabelledRecording(one, labels[one.name]) for one in recordings if one.name in labels]


def simulated_desks(count: int, first_seed: int = FIRST_SEED) -> list[LabelledRecording]:
    """Return `count` simulated desks of DESK_S seconds."""
    digest = drawing()
    return [_desk(first_seed + k, digest) for k in range(count)]


def predict(engine: Any, recordings: Sequence[LabelledRecording], questions: Sequence[Question],
            heads: Sequence[Head], cache: Path | None = None) -> list[Predictions]:
    """Ask all questions about all recordings, with a progress bar.

    Args:
        engine: the model.
        recordings: what is asked about.
        questions: those of tier `heads` are answered by heads only.
        heads: the loaded ones.
        cache: cache folder, None for none.
    """
    asked = [q for q in questions if q.tier != "heads"]
    exits = {q.id: deciding_head(q, heads) for q in asked if q.early is not None}
    read = {q.id: head for q in questions if (head := answering_head(q, heads)) is not None}
    store = Store(cache, engine_key(engine), _weights(engine), FPS, WINDOW_GROUPS,
                  [(q.id, q.text, q.depth, q.kind, q.options) if q.id not in exits else
                   (q.id, q.text, q.depth, q.shallow_depth, exits[q.id] and _head_key(exits[q.id]),
                    *((q.kind, q.options) if q.options else ())) for q in asked],
                  [(name, _head_key(head)) for name, head in read.items()], CUT)
    found = []
    with progress([one.recording for one in recordings], "asking") as bar:
        for one in recordings:
            recording = one.recording
            arrays = store.read(recording.name, recording.identity)
            if arrays is None:
                arrays = _ask(engine, recording, asked, read, exits, bar)
                store.write(arrays, recording.name, recording.identity)
            bar.finish(recording)
            found.append(_with_truth(one, arrays, questions, asked, read, exits))
    return found


def _ask(engine: Any, recording: Recording, asked: Sequence[Question], read: Mapping[str, Head],
         exits: Mapping[str, Head | None], bar: Bar) -> dict[str, np.ndarray]:
    stream = engine.stream(WINDOW_GROUPS, "auto")
    window: list[Any] = []
    said: list[list[float]] = []
    heads: list[list[float]] = []
    shallow: list[list[float]] = []
    early = [q for q in asked if q.id in exits]
    queries = [replace(q, depth=None) if q.early else q for q in asked]
    queries += [replace(q, depth=q.shallow_depth) for q in early]
    hidden = {"hidden": True} if any(exits.values()) else {}
    t_s: list[float] = []
    fresh: list[bool] = []
    across: list[bool] = []  # it shows two pictures, see runtime/cuts.py
    anew: list[bool] = []
    finder, judged_ns = CutFinder(CUT), 0
    origin_ns, segment = 0, None
    for group in recording.groups(FPS):
        begins = group.segment != segment
        if begins:
            stream.reset()
            finder.forget()
            window, origin_ns, segment = [], group.t_start_ns, group.segment
        parted = finder.look([frame.image for frame in group.frames],
                             [frame.stamp_ns for frame in group.frames])
        across.append(parted and not (across and across[-1]))
        anew.append(finder.cut_ns >= judged_ns > 0)
        if not across[-1]:
            judged_ns = group.t_end_ns
        encoded = engine.encode([frame.image for frame in group.frames])
        window = [*window, encoded][-64:]
        heads.append([head.predict(window) if len(window) >= head.min_groups else np.nan
                      for head in read.values()])
        if asked:
            stream.append(encoded, (group.t_start_ns + group.t_end_ns - 2 * origin_ns) / (2 * NS))
            readouts = stream.ask(queries, **hidden)
            said.append([number for question, readout in zip(asked, readouts)
                         for number in _said(question, readout)])
            shallow.append([
                number for q, readout in zip(early, readouts[len(asked):], strict=True)
                for number in _said_early(q, readout, exits[q.id])])
            while stream.idle():
                pass
        t_s.append(group.t_end_ns / NS)
        fresh.append(begins)
        bar.at(t_s[-1])
    count = len(t_s)
    return {"t_s": np.array(t_s), "fresh": np.array(fresh, bool),
            "across": np.array(across, bool), "anew": np.array(anew, bool),
            "said": np.array(said).reshape(count, sum(map(_width, asked))),
            "shallow": np.array(shallow).reshape(count if asked else 0, sum(map(_width, early))),
            "head_p": np.array(heads).reshape(count, len(read))}


def _with_truth(one: LabelledRecording, arrays: dict[str, np.ndarray],
                questions: Sequence[Question], asked: Sequence[Question],
                read: Mapping[str, Head], exits: Mapping[str, Head | None]) -> Predictions:
    fresh = arrays["fresh"]
    since = np.zeros(len(fresh), int)  # groups before this one in its window
    for i in range(1, len(fresh)):
        since[i] = 0 if fresh[i] else since[i - 1] + 1
    judged = ~arrays["across"]
    arrays = {name: array[judged] if len(array) == len(judged) else array
              for name, array in arrays.items()}
    t_s, fresh, since = arrays["t_s"], arrays["fresh"], since[judged]
    history = np.ones(len(t_s), bool) if one.recording.still else since >= LEAST_GROUPS - 1
    truth, settled, scene = {}, {}, {}
    stamps_ns = [round(t * NS) for t in t_s]
    for question in questions:
        told, answers = one.truth, [YES]
        if not kind_of(question).exclusive:
            told = truth_of_labels(question, told)
        elif question.options:
            answers = list(question.options)
        for name in kind_of(question).names(question):
            spans = [told.at(name, t_ns) for t_ns in stamps_ns]
            right = [-1 if span is None else _place(answers, span.answer) for span in spans]
            truth[name] = np.array(right, np.int8)
            scene[name] = np.array([
                one.recording.name if span is None else str(span.scene) for span in spans])
            steady = [told.settled(name, t_ns, SETTLED_S) for t_ns in stamps_ns]
            settled[name] = np.array(steady, bool) & history
    difference, logits = _by_name(arrays["said"], asked)
    at_exit = _by_name(arrays["shallow"], [question for question in asked if question.id in exits])
    return Predictions(one.recording.name, t_s, fresh, difference,
                       {name: arrays["head_p"][:, k] for k, name in enumerate(read)},
                       truth, settled, scene, logits, at_exit[0] | at_exit[1], arrays["anew"])


def _by_name(said: np.ndarray, questions: Sequence[Question]) -> tuple[
        dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return yes against no by name, (N,) each, and logits by id, (N, options) each."""
    difference, logits, at = {}, {}, 0
    for question in questions:
        own = said[:, at:at + _width(question)]
        at += _width(question)
        if _is_distribution(question):
            logits[question.id] = own
        else:
            names = kind_of(question).names(question)
            difference |= {name: own[:, k] for k, name in enumerate(names)}
    return difference, logits


def _place(answers: Sequence[str], answer: str) -> int:
    """Return 1 or 0 for yes or no; of several answers the place."""
    return int(answer == YES) if answers == [YES] else answers.index(answer)


def _is_distribution(question: Question) -> bool:
    return kind_of(question).exclusive and bool(question.options)


def _width(question: Question) -> int:
    """Return how many numbers are kept of a readout."""
    return len(question.options) or 1


def _said(question: Question, readout: Any) -> Sequence[float]:
    """Return the logits of a choice or score; else yes against no, of each label."""
    if _is_distribution(question):
        return [float(x) for x in readout.logits]
    pairs = np.asarray(readout.logits, np.float64).reshape(-1, 2)
    return [float(yes - no) for yes, no in pairs]


def _said_early(question: Question, readout: Any, head: Head | None) -> Sequence[float]:
    """Return what `_said` does; the logit of the head where there is one."""
    if head is None:
        return _said(question, readout)
    return [float(head.weight @ readout.hidden[-1] + head.bias) / head.temperature]


def _desk(seed: int, digest: str) -> LabelledRecording:
    world = World(seed, Script.random(seed, DESK_S, (1.8, 3.2)))
    name = f"desk_{seed}"
    times_s = np.arange(int(DESK_S * FPS)) / FPS

    def frames() -> Iterator[Frame]:
        # A world of its own: it keeps its drawn backgrounds, and there are many desks.
        drawn = World(seed, world.script)
        for t_s in times_s:
            yield Frame(drawn.render(t_s, *SIZE), round(t_s * NS))

    return LabelledRecording(Recording(name, digest, frames, duration_s=DESK_S),
                             truth_of_world(world, times_s, name))


def _weights(engine: Any) -> object:
    """Return a key of the whole model: features depend on the vision weights only."""
    folder = getattr(engine, "folder", None)
    files = sorted(folder.glob("*.safetensors")) if folder else []
    return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]


def _head_key(head: Head) -> tuple[object, ...]:
    return (head.pooling, head.window_groups, head.bias, head.temperature,
            hashlib.blake2b(head.weight.tobytes(), digest_size=8).hexdigest())
