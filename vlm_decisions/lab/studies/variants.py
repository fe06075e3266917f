"""The same questions asked in several ways of the same recordings, compared with each other.

Three studies: `wording` (paraphrases, and orders of a choice's options), `ablation` (length of the
window and frames a second) and `recent` (the last single frames, one a second, against the running
stream). A sample is a group where the truth is settled. Intervals are bootstraps over scenes; the
distance from the first way is paired, so that what scenes have in common does not widen it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ...files.listing import there_are
from ...files.yaml_records import syntax_error
from ...frames import FPS, NS
from ...learn.features import progress
from ...learn.measures import auroc, bootstrap_sums
from ...learn.predictions import LEAST_GROUPS, SETTLED_S, WINDOW_GROUPS, LabelledRecording
from ...questions import Question
from ...runtime.smoothing import probabilities_of
from ..replay.engines import RecentFrames
from .clip_answers import StudyError

WINDOWS_S = (1.0, 2.0, 4.0)
RATES_HZ = (4.0, 8.0)
RECENT = (2, 4, 8, 16)
MOST_ORDERS = 4  # of a choice's options


@dataclass(frozen=True)
class Way:
    """One way of asking.

    Attributes:
        name: in the result.
        questions: by truth's id.
        engine: the model, or what wraps it.
        window_groups: groups of a window.
        fps: frames a second.
        mode: of the stream.
    """

    name: str
    questions: Mapping[str, Question]
    engine: Any
    window_groups: int = WINDOW_GROUPS
    fps: float = FPS
    mode: str = "stream"


def read_texts(path: Path) -> dict[str, list[str]]:
    """Read paraphrases by question id from a YAML file. Raises StudyError naming the file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise StudyError(f"{path}: {error}") from error
    except yaml.YAMLError as error:
        raise StudyError(f"{path}:{syntax_error(error)}") from error
    shape = ("must hold question ids, each with a list of texts, as "
             "person: ['Is anybody there?', 'Do you see a person?']")
    if not isinstance(values, dict):
        raise StudyError(f"{path}: {shape}")
    for name, texts in values.items():
        if not isinstance(name, str) or not isinstance(texts, list) or not texts:
            raise StudyError(f"{path}: {name!r}: {texts!r}: {shape}")
        for number, text in enumerate(texts, 1):
            if not isinstance(text, str) or not text.strip():
                raise StudyError(f"{path}: '{name}': number {number} is no text: {text!r}")
    return values


def wordings(engine: Any, questions: Sequence[Question],
             texts: Mapping[str, Sequence[str]]) -> list[Way]:
    """Return a way for each paraphrase and each order of options; the first is as it is.

    Args:
        engine: the model.
        questions: as they are; those that nothing is said about are left out.
        texts: paraphrases by id.

    Raises:
        StudyError: an id that does not exist, or nothing to compare.
    """
    by_id = {q.id: q for q in questions}
    for name in texts:
        if name not in by_id:
            raise StudyError(f"there is no question '{name}' ({there_are(by_id, name)})")
    variants = {q.id: [(text, q.options) for text in texts.get(q.id, ())]
                + [(q.text, order) for order in _orders(q)] for q in questions}
    variants = {name: found for name, found in variants.items() if found}
    if not variants:
        raise StudyError("nothing to compare: give paraphrases with --texts, or a set with a "
                         "choice")
    ways = [Way("as it is", {name: by_id[name] for name in variants}, engine)]
    for k in range(max(map(len, variants.values()))):
        ways.append(Way(f"{k + 1}", {
            name: replace(by_id[name], text=found[k][0], options=found[k][1])
            for name, found in variants.items() if k < len(found)}, engine))
    return ways


def _orders(question: Question) -> list[tuple[str, ...]]:
    """Return other orders of a choice's options: turned by one, by two, ..."""
    options = question.options if question.kind == "choice" else ()
    return [options[k:] + options[:k] for k in range(1, min(len(options), MOST_ORDERS))]


def ablations(engine: Any, questions: Sequence[Question]) -> list[Way]:
    """Return a way for each length of the window and number of frames a second."""
    asked = {q.id: q for q in questions}
    return [Way(f"{window_s:g} s at {fps:g}/s", asked, engine, round(window_s * fps / 2), fps,
                "window") for fps in reversed(RATES_HZ) for window_s in reversed(WINDOWS_S)]


def recents(engine: Any, questions: Sequence[Question]) -> list[Way]:
    """Return the stream, and a way for each number of recent single frames."""
    asked = {q.id: q for q in questions}
    return [Way("stream", asked, engine),
            *(Way(f"last {n}", asked, RecentFrames(engine, n)) for n in RECENT)]


def compare(ways: Sequence[Way], known: Sequence[LabelledRecording],
            rounds: int = 1000) -> dict[str, Any]:
    """Ask in every way and return what is right.

    Returns:
        ways: by name, `all` and each question: accuracy, its 95% interval, `gain` over the first
        way on the same samples with its interval (None of the first), auroc of yes/no questions, n,
        and the text and options where they differ from the first way's. best: by question, the way
        with the highest accuracy.
    """
    answers = [_ask(way, known) for way in ways]
    scenes = sorted({scene for one in answers for rows in one.values() for _, scene, *_ in rows})
    index = {scene: k for k, scene in enumerate(scenes)}
    first, result, sums = ways[0], {}, []
    for way, rows in zip(ways, answers):
        own = {name: _by_scene(found, index) for name, found in rows.items()}
        sums.append(own)
        base = {name: sums[0][name] for name in own}
        table = {"all": _row(sum(own.values()), sum(base.values()), way is first, rounds)}
        for name, found in rows.items():
            table[name] = _row(own[name], base[name], way is first, rounds)
            p = np.array([p for *_, p in found])
            if np.isfinite(p).all():
                table[name]["auroc"] = auroc(np.array([truth for _, _, _, truth, _ in found]), p)
            if way.questions[name] != first.questions[name]:
                table[name] |= {"text": way.questions[name].text,
                                "options": list(way.questions[name].options)}
        result[way.name] = table
    best = {name: max((way.name for way in ways if name in result[way.name]),
                      key=lambda way: result[way][name]["accuracy"]) for name in first.questions}
    return {"ways": result, "best": best, "scenes": len(scenes)}


def _ask(way: Way, known: Sequence[LabelledRecording]) -> dict[str, list[tuple]]:
    """Return by question (time, scene, right, truth is yes, P(yes) or NaN) of each sample."""
    out: dict[str, list[tuple]] = {name: [] for name in way.questions}
    queries = list(way.questions.values())
    with progress([one.recording for one in known], way.name) as bar:
        for one in known:
            stream, segment, since = way.engine.stream(way.window_groups, way.mode), None, 0
            least = 1 if one.recording.still else LEAST_GROUPS * way.fps / FPS
            for group in one.recording.groups(way.fps):
                if group.segment != segment:
                    stream.reset()
                    segment, since = group.segment, 0
                since += 1
                encoded = way.engine.encode([frame.image for frame in group.frames])
                stream.append(encoded, (group.t_start_ns, group.t_end_ns))
                if since >= least:
                    for name, question, readout in zip(way.questions, queries, stream.ask(queries)):
                        sample = _sample(one, name, question, readout, group.t_end_ns)
                        if sample is not None:
                            out[name].append(sample)
                while stream.idle():
                    pass
                bar.at(group.t_end_ns / NS)
            bar.finish(one.recording)
    return out


def _sample(one: LabelledRecording, name: str, question: Question, readout: Any,
            t_ns: int) -> tuple | None:
    span = one.truth.at(name, t_ns)
    if span is None or not one.truth.settled(name, t_ns, SETTLED_S):
        return None
    p = probabilities_of(question, readout)
    scene = f"{one.recording.name} {span.scene}"
    if question.options:
        said = question.options[int(np.argmax(p))]
        return t_ns, scene, said == span.answer, False, float("nan")
    return t_ns, scene, (p[0] >= 0.5) == (span.answer == "yes"), span.answer == "yes", p[0]


def _by_scene(rows: Sequence[tuple], index: Mapping[str, int]) -> np.ndarray:
    """Return (right, samples) of each scene, (scenes, 2)."""
    sums = np.zeros((len(index), 2))
    for _, scene, right, *_ in rows:
        sums[index[scene]] += (right, 1)
    return sums


def _row(own: np.ndarray, base: np.ndarray, is_first: bool, rounds: int) -> dict[str, Any]:
    def share(sums: np.ndarray) -> float:
        return float(sums[0] / sums[1]) if sums[1] else float("nan")

    def gain(sums: np.ndarray) -> float:
        return share(sums[:2]) - share(sums[2:])

    both = np.concatenate([own, base], axis=1)
    return {"accuracy": share(own.sum(axis=0)), "ci": bootstrap_sums(own, share, draws=rounds),
            "gain": None if is_first else gain(both.sum(axis=0)),
            "gain_ci": None if is_first else bootstrap_sums(both, gain, draws=rounds),
            "n": int(own[:, 1].sum())}


def print_comparison(result: dict[str, Any], by_question: bool) -> None:
    """Print a line for each way (and question), and the best."""
    for way, table in result["ways"].items():
        for name, row in table.items():
            if name == "all" or by_question:
                print(_line(way, name, row))
    if by_question:
        for name, way in result["best"].items():
            row = result["ways"][way][name]
            print(f"best of {name}: {way}" + (
                f": {row['text']} {' | '.join(row['options'])}".rstrip() if "text" in row else ""))
    print(f"{result['scenes']} scenes; 95% intervals over scenes; gain over the first, paired")


def _line(way: str, name: str, row: Mapping[str, Any]) -> str:
    def pair(value: Sequence[float] | None, form: Callable[[float], str]) -> str:
        return f"[{form(value[0])}, {form(value[1])}]" if value else "[-, -]"

    gain = "" if row["gain"] is None else (
        f"  {row['gain']:+.3f} {pair(row['gain_ci'], lambda x: f'{x:+.3f}')}")
    return (f"{way:<12} {name:<22} {row['accuracy']:.3f} "
            f"{pair(row['ci'], lambda x: f'{x:.3f}')}{gain}  n {row['n']}"
            + (f"  {row['text']}" if "text" in row else ""))
