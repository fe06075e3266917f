"""Corrections: what a person said is right, with what the model saw and read there.

Each is a file of its own, `<id>.npz`, in a folder: what is taken back is gone, and a killed process
leaves whole files only. The folder is bounded; the oldest gives way.
"""

from __future__ import annotations

import json
import re
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..files.atomic import replacing, write_text
from ..frames import NS
from ..kinds import KindError, kind_of
from ..questions import Question
from ..sources.labels import COLUMNS
from ..views import View, address
from .looks import Looks, SeenGroup

MAX_CORRECTIONS = 1000
"""Corrections kept by default; one more makes the oldest give way."""

MAX_LOOKS = 64
"""Looks kept of a correction, evenly spread, so that a long span costs no more than that."""

PICTURE_PX = 640
"""Longest side of the picture kept, pixels."""

_FILE = re.compile(r"(\d{6,10})\.npz")


class CorrectionError(ValueError):
    """A correction that cannot be taken; the message says what would be right."""


@dataclass(frozen=True)
class ModelId:
    """Which model looked: a look of another one cannot be learned from."""

    name: str
    fingerprint: str
    pixel_budget: int
    language: str = ""


@dataclass(frozen=True)
class Correction:
    """One correction, without its looks.

    `said`: what had been answered at the end of the span. `t_start_ns`, `t_end_ns`: frame time of
    the first and last look in it. `looks`: how many lie in it, of which at most MAX_LOOKS are kept.
    `options`: of the question, in the order of `logits` (see CorrectionLooks).
    """

    id: int
    question_id: str
    text: str
    kind: str
    options: tuple[str, ...]
    view: str
    answer: str
    said: str
    t_start_ns: int
    t_end_ns: int
    looks: int
    model: str
    fingerprint: str
    pixel_budget: int
    language: str = ""

    def __str__(self) -> str:
        """Return it in words."""
        seconds = (self.t_end_ns - self.t_start_ns) / NS
        name = address(self.view, self.question_id)
        return f"number {self.id}: {name} is {self.answer} for {seconds:.2f} s"

    def is_of(self, question: Question) -> bool:
        """Tell whether it is of what the question asks now."""
        return ((self.question_id, self.text, self.kind, self.options)
                == (question.id, question.text, question.kind, question.options))

    def is_by(self, model: ModelId) -> bool:
        """Tell whether this model looked."""
        return all(getattr(self, name) == value for name, value in _of_model(model).items()
                   if name != "model")


@dataclass(frozen=True, eq=False)
class CorrectionLooks:
    """What was kept of a correction's looks, N of them.

    `start_ns`, `end_ns`: int64 (N,); `mean`, `max`: pooled vision features, float32 (N, D);
    `colours`: see runtime.heads.colours_of, float32 (N, C);
    `logits`: float32 (N, K), before the question's scale and bias and what was learned, NaN where a
    learned head answered; `depth`: language-model layers used, 0 for a head, int (N,). `picture`: a
    JPEG of the last one's newest frame, empty if it was too long ago.
    """

    start_ns: np.ndarray
    end_ns: np.ndarray
    mean: np.ndarray
    max: np.ndarray
    colours: np.ndarray
    logits: np.ndarray
    depth: np.ndarray
    picture: bytes


class CorrectionStore:
    """The corrections in a folder, oldest first. Thread-safe. One process at a time writes to it.

    Files that cannot be read are left alone and named by `unreadable`.
    """

    def __init__(self, folder: Path, keep: int = MAX_CORRECTIONS) -> None:
        """Make the folder, or read what is in it. Raises OSError."""
        if keep < 1:
            raise ValueError(f"keep must be 1 or more, not {keep}")
        self.folder, self._keep = folder, keep
        self._lock = threading.RLock()
        self.unreadable: dict[str, str] = {}
        folder.mkdir(parents=True, exist_ok=True)
        self._kept: dict[int, Correction] = {}
        self._last = 0
        for path in sorted(folder.iterdir()):
            if match := _FILE.fullmatch(path.name):
                self._last = max(self._last, int(match[1]))
                try:
                    correction = _read_header(path)
                except CorrectionError as error:
                    self.unreadable[path.name] = str(error)
                else:
                    self._kept[correction.id] = correction
        self._last = max(self._last, _read_last(folder))

    def corrections(self, question_id: str = "", view: str = "") -> list[Correction]:
        """Return those of a question and of a view, or of all, oldest first."""
        with self._lock:
            return [one for one in self._kept.values()
                    if question_id in ("", one.question_id) and view in ("", one.view)]

    def add(
        self, question: Question, view: str, answer: str, said: str, groups: Sequence[SeenGroup],
        model: ModelId,
    ) -> tuple[Correction, str]:
        """Keep a correction of these groups; return it, and what to tell beside.

        Raises CorrectionError where an earlier one says otherwise of the same time, and OSError.
        """
        start_ns, end_ns = groups[0].t_start_ns, groups[-1].t_end_ns
        with self._lock:
            for other in self.corrections(question.id):
                if (other.view == view and other.answer != answer and other.is_of(question)
                        and other.t_start_ns < end_ns and start_ns < other.t_end_ns):
                    raise CorrectionError(f"contradicts {other}: take that one back first")
            told = ""
            correction = Correction(
                self._last + 1, question.id, question.text, question.kind, question.options, view,
                answer, said, start_ns, end_ns, len(groups), **_of_model(model))
            _write(self._path(correction.id), correction, _spread(groups), question.id)
            self._last = correction.id
            _write_last(self.folder, self._last)
            self._kept[correction.id] = correction
            while len(self._kept) > self._keep:
                oldest = next(iter(self._kept))
                self.remove(oldest)
                told = f"; number {oldest} gave way, {self._keep} are kept"
        return correction, told

    def remove(self, number: int = 0) -> Correction:
        """Take a correction back, the newest for 0. Raises CorrectionError and OSError."""
        with self._lock:
            if not self._kept:
                raise CorrectionError("there are no corrections")
            number = number or next(reversed(self._kept))
            if number not in self._kept:
                there = f"{next(iter(self._kept))} to {next(reversed(self._kept))}"
                raise CorrectionError(f"there is no correction number {number} (there are {there})")
            self._path(number).unlink(missing_ok=True)
            return self._kept.pop(number)

    def looks(self, number: int) -> CorrectionLooks:
        """Return what was kept of a correction's looks. Raises CorrectionError."""
        path = self._path(number)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                found = {name: arrays[name] for name in
                         ("start_ns", "end_ns", "mean", "max", "colours", "logits", "depth")}
                return CorrectionLooks(**found, picture=arrays["picture"].tobytes())
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise CorrectionError(f"{path}: {error}") from error

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.npz"


class Corrector:
    """Takes corrections of the questions of a runtime, of which `looks` is a watcher."""

    def __init__(self, store: CorrectionStore) -> None:
        self.store, self.looks = store, Looks()
        self.model: ModelId | None = None

    def model_of(self, view: View | None) -> ModelId | None:
        """Return which model looks at a view; None before it is loaded, or for no view."""
        if self.model is None or view is None:
            return None
        return replace(self.model, pixel_budget=view.pixel_budget or self.model.pixel_budget)

    def correct(self, question: Question, views: Sequence[View], answer: str,
                said: Mapping[str, str], start_ns: int = 0, end_ns: int = 0,
                newest_from_ns: int = 0) -> tuple[Correction, str]:
        """Keep that `answer` is right from `start_ns` to `end_ns`, both 0: at the newest look.

        `views`: that the question is asked of, of which there must be one. `said`: the present
        answers by view. `newest_from_ns`: an older newest look is not "now". Returns the correction
        and what to tell. Raises CorrectionError and OSError.
        """
        if len(views) != 1:
            raise CorrectionError(f"'{question.id}' is asked of several views, name one: "
                                  f"{', '.join(one.name for one in views)}")
        view, model = views[0].name, self.model_of(views[0])
        try:
            answer = kind_of(question).canonical(question, answer)
        except KindError as error:
            raise CorrectionError(f"'{question.id}' {error}") from error
        if start_ns == end_ns == 0:
            groups = self.looks.newest(question.id, view)
            if not groups or groups[0].t_end_ns < newest_from_ns:
                raise CorrectionError(f"'{question.id}' has not been answered lately: there is "
                                      "nothing to correct")
        else:
            groups = self._between(question, view, start_ns, end_ns)
        correction, told = self.store.add(question, view, answer, said.get(view, ""), groups, model)
        return correction, f"kept {correction}, {_looks(len(groups))}{told}"

    def _between(
        self, question: Question, view: str, start_ns: int, end_ns: int
    ) -> list[SeenGroup]:
        if not 0 < start_ns < end_ns:
            raise CorrectionError("t_end must come after t_start, and both be above 0 (both 0: "
                                  "what is seen now)")
        groups = self.looks.between(question.id, view, start_ns, end_ns)
        if not groups:
            kept = self.looks.span_ns(view)
            known = ("nothing has been seen yet" if kept is None else
                     f"what was seen is known from {kept[0] / NS:.2f} to {kept[1] / NS:.2f}")
            raise CorrectionError(f"'{question.id}' was not answered between {start_ns / NS:.2f} "
                                  f"and {end_ns / NS:.2f}: {known}")
        return groups


def export_labels(store: CorrectionStore, folder: Path, question_ids: Iterable[str] = ()
                  ) -> dict[str, int]:
    """Write pictures and `labels.csv` for `train heads --dir`; return how many by question.

    One picture of each correction that has one: the end of its span. Raises CorrectionError and
    OSError.
    """
    wanted = set(question_ids)
    folder.mkdir(parents=True, exist_ok=True)
    rows, counts = [",".join(COLUMNS)], {}
    for correction in store.corrections():
        if wanted and correction.question_id not in wanted:
            continue
        picture = store.looks(correction.id).picture
        if not picture:
            continue
        name = f"{correction.id:06d}.jpg"
        with replacing(folder / name) as file:
            file.write(picture)
        rows.append(f'{name},,,{correction.question_id},"{correction.answer}"')
        counts[correction.question_id] = counts.get(correction.question_id, 0) + 1
    if not counts:
        raise CorrectionError(f"{store.folder} holds no corrections with a picture"
                              + (f" of {', '.join(sorted(wanted))}" if wanted else ""))
    write_text(folder / "labels.csv", "\n".join(rows) + "\n")
    return counts


def _of_model(model: ModelId) -> dict[str, Any]:
    return {"model": model.name, "fingerprint": model.fingerprint,
            "pixel_budget": model.pixel_budget, "language": model.language}


def _spread(groups: Sequence[SeenGroup]) -> Sequence[SeenGroup]:
    """Return at most MAX_LOOKS of the groups, evenly spread, the last among them."""
    if len(groups) <= MAX_LOOKS:
        return groups
    return [groups[i] for i in np.linspace(0, len(groups) - 1, MAX_LOOKS).round().astype(int)]


def _write(
    path: Path, correction: Correction, groups: Sequence[SeenGroup], question_id: str
) -> None:
    reads = [seen.reads[question_id] for seen in groups]
    with replacing(path) as file:
        np.savez(
            file,
            header=np.array(json.dumps(asdict(correction), ensure_ascii=False)),
            start_ns=np.array([seen.t_start_ns for seen in groups], np.int64),
            end_ns=np.array([seen.t_end_ns for seen in groups], np.int64),
            mean=np.stack([seen.mean for seen in groups]).astype(np.float32),
            max=np.stack([seen.max for seen in groups]).astype(np.float32),
            colours=np.stack([seen.colours for seen in groups]),
            logits=np.array([read.logits for read in reads], np.float32),
            depth=np.array([read.depth for read in reads], np.int32),
            picture=np.frombuffer(_picture(groups[-1]), np.uint8),
        )


def _picture(seen: SeenGroup) -> bytes:
    """Return the frame as JPEG, no larger than PICTURE_PX; empty where it is not kept any more."""
    import cv2

    if seen.frame is None:
        return b""
    image = seen.frame.image
    share = min(1.0, PICTURE_PX / max(image.shape[:2]))
    if share < 1.0:
        size = (max(1, round(image.shape[1] * share)), max(1, round(image.shape[0] * share)))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    bgr = np.ascontiguousarray(image[..., ::-1])
    return cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()


def _read_header(path: Path) -> Correction:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            fields = json.loads(str(arrays["header"][()]))
        fields["options"] = tuple(fields["options"])
        correction = Correction(**fields)
    except (OSError, KeyError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise CorrectionError(f"{path}: not a correction: {error}") from error
    if f"{correction.id:06d}.npz" != path.name:
        raise CorrectionError(f"{path}: holds number {correction.id}")
    return correction


#: Where the last number given away stands, so that what was taken back leaves its number unused.
_LAST = "last"


def _read_last(folder: Path) -> int:
    try:
        return int((folder / _LAST).read_text())
    except (OSError, ValueError):
        return 0


def _write_last(folder: Path, number: int) -> None:
    write_text(folder / _LAST, f"{number}\n")


def summaries(corrections: Iterable[Correction]) -> Iterator[str]:
    """Yield a line of each correction for people."""
    for one in corrections:
        yield f"{one}, {_looks(one.looks)} (said: {one.said or 'nothing'})"


def _looks(count: int) -> str:
    return f"{count} look{'' if count == 1 else 's'}"
