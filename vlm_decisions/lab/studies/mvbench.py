"""`vlm-decisions study mvbench`: questions of MVBench, if its data is on this machine.

MVBench (Li et al., arXiv:2311.17005) asks multiple-choice questions about short videos. A task is a
JSON file, a list of {"video", "question", "candidates", "answer"} (with "start" and "end" in
seconds if the question is about a part of the video), and a folder of videos. 16 frames are sampled
evenly and paired into groups with their real times. The answer is the most probable option. As in
`study temporal`, each clip is asked about as it is, as its middle frame alone, and with its groups
in random order.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...engine.prompt import LETTERS
from ...files.columns import columns, number
from ...sources.video import VideoFile
from .clip_answers import StudyError, progress

FRAMES = 16
FORMS = ("full", "single", "shuffled")


@dataclass(frozen=True)
class MvbenchQuestion:
    """One question.

    Attributes:
        task: name of the task.
        video: file.
        question: its text.
        options: the candidates.
        answer: index of the right one.
        start_s: beginning of the part of the video that the question is about.
        end_s: end of that part, None for the end of the video.
    """

    task: str
    video: Path
    question: str
    options: tuple[str, ...]
    answer: int
    start_s: float = 0.0
    end_s: float | None = None


def load(annotations: Path, videos: Path) -> list[MvbenchQuestion]:
    """Read a task's JSON file. Raises StudyError that names the file and the entry at fault."""
    try:
        entries = json.loads(annotations.read_text(encoding="utf-8"))
    except OSError as error:
        raise StudyError(f"{annotations}: {error.strerror or error}") from error
    except ValueError as error:
        raise StudyError(f"{annotations}: not JSON: {error}") from error
    if not isinstance(entries, list) or not entries:
        raise StudyError(f"{annotations}: must hold a list of questions")
    if not videos.is_dir():
        raise StudyError(f"{videos} is not a folder of videos")
    return [_item(f"{annotations}: entry {k}", entry, annotations.stem, videos)
            for k, entry in enumerate(entries)]


def sample(item: MvbenchQuestion, count: int = FRAMES) -> tuple[list[np.ndarray], list[float]]:
    """Return `count` frames taken evenly, and their times since the first in seconds.

    Raises:
        StudyError: the video is damaged, or the part that is meant has fewer than two frames.
    """
    video = VideoFile(item.video)
    times = [t_s for _, t_s in video]
    if video.shortfall:
        raise StudyError(video.shortfall)
    here = [k for k, t in enumerate(times)
            if t >= item.start_s and (item.end_s is None or t <= item.end_s)]
    if len(here) < 2:
        raise StudyError(f"{item.video}: {len(here)} frames from {item.start_s:g} s to "
                         f"{'its end' if item.end_s is None else f'{item.end_s:g} s'} (it has "
                         f"{len(times)}, to {times[-1]:.1f} s)")
    # The middles of equal parts. A short video gives fewer frames, always whole groups of two.
    count = min(count, len(here) // 2 * 2)
    chosen = [here[int(k)] for k in (np.arange(count) + 0.5) * len(here) / count]
    video.rewind()
    frames, wanted = [], set(chosen)
    for k in range(chosen[-1] + 1):
        taken = video.next()
        if taken is None:
            raise StudyError(f"{item.video}: frame {k} cannot be decoded a second time")
        if k in wanted:
            frames.append(taken[0])
    return frames, [times[k] - times[chosen[0]] for k in chosen]


def mvbench(engine: Any, items: Sequence[MvbenchQuestion], frames: int = FRAMES) -> dict[str, Any]:
    """Ask every question in every form.

    Returns:
        tasks: {name: {full, single, shuffled (accuracy), chance, temporal_gain, questions}}; and
            the
        same over all questions as `all`.
    """
    from ...engine.readout import Query

    if not items:
        raise StudyError("no questions")
    right: dict[str, list[list[bool]]] = {}
    chance: dict[str, list[float]] = {}
    rng = np.random.default_rng(5)
    for k in progress(range(len(items)), len(items), "mvbench"):
        item = items[k]
        images, times = sample(item, frames)
        pairs = [images[i:i + 2] for i in range(0, len(images), 2)]
        groups = engine.encode_many(pairs)
        at = [(times[i] + times[i + 1]) / 2 for i in range(0, len(times), 2)]
        middle = images[len(images) // 2]
        order = rng.permutation(len(groups))
        query = [Query(item.question, item.options)]
        said = [
            engine.window(seen, seconds).ask(query)[0].probabilities
            for seen, seconds in ((groups, at), ([engine.encode([middle, middle])], at[:1]),
                                  ([groups[i] for i in order], at))]
        right.setdefault(item.task, []).append([int(np.argmax(p)) == item.answer for p in said])
        chance.setdefault(item.task, []).append(1 / len(item.options))
    tasks = {name: _row(rows, chance[name]) for name, rows in right.items()}
    return {"model": engine.name, "frames": frames, "tasks": tasks,
            "all": _row(sum(right.values(), []), sum(chance.values(), []))}


def print_mvbench(result: dict[str, Any]) -> None:
    """Print the table."""
    measures = (*FORMS, "chance", "temporal_gain")
    print(*columns([("task", *measures, "questions"), *(
        (name, *(number(row[one]) for one in measures), str(row["questions"]))
        for name, row in (*result["tasks"].items(), ("all", result["all"])))]), sep="\n")


def plot_mvbench(result: dict[str, Any], path: str) -> None:
    """Draw accuracy by task and form."""
    from .figures import figure, save

    drawn, (axis,) = figure(1, f"MVBench, {result['model']}")
    names = list(result["tasks"])
    for k, form in enumerate((*FORMS, "chance")):
        axis.barh(np.arange(len(names)) + 0.2 * k, [result["tasks"][n][form] for n in names], 0.2,
                  label=form)
    axis.set(xlabel="accuracy", yticks=np.arange(len(names)) + 0.3, yticklabels=names)
    axis.invert_yaxis()
    axis.legend()
    save(drawn, path)


def _item(where: str, entry: Any, task: str, videos: Path) -> MvbenchQuestion:
    if not isinstance(entry, dict):
        raise StudyError(f"{where}: must be an object")
    missing = [key for key in ("video", "question", "candidates", "answer") if key not in entry]
    if missing:
        raise StudyError(f"{where}: lacks {', '.join(missing)}")
    options = entry["candidates"]
    if not (isinstance(options, list) and 2 <= len(options) <= len(LETTERS)
            and all(isinstance(option, str) for option in options)):
        raise StudyError(f"{where}: candidates must be a list of 2 to {len(LETTERS)} texts")
    if options.count(entry["answer"]) != 1:
        raise StudyError(f"{where}: the answer {entry['answer']!r} must be one of the candidates")
    video = videos / str(entry["video"])
    if not video.is_file():
        raise StudyError(f"{where}: there is no video {video}")
    start, end = entry.get("start", 0.0), entry.get("end")
    for value in (start, end):
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise StudyError(f"{where}: start and end must be seconds, not {value!r}")
    if end is not None and not start < end:
        raise StudyError(f"{where}: end must come after start: {start} to {end}")
    return MvbenchQuestion(task, video, str(entry["question"]), tuple(options),
                options.index(entry["answer"]), float(start), None if end is None else float(end))


def _row(rows: Sequence[Sequence[bool]], chance: Sequence[float]) -> dict[str, Any]:
    share = np.array(rows, float).mean(axis=0)
    return {**{form: float(x) for form, x in zip(FORMS, share)}, "chance": float(np.mean(chance)),
            "temporal_gain": float(share[0] - share[1]), "questions": len(rows)}
