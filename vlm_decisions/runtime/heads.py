"""Linear heads, one npz file each: on pooled vision features (Tier 1), or on the decision token.

A head is only right on the features it was trained on, so its file names them (fingerprint of
the vision weights, pixel budget, feature path) and a head made for others is refused. One on the
decision token reads the language model's state after some layers: it is of that depth, of a text,
and of a language model (its fingerprint). It answers where a question of `depth: auto` may stop.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..files.atomic import replacing
from ..files.listing import listed
from ..kinds import kind_of, sigmoid
from ..questions import EarlyExit, Question

DECISION = "decision"
#: Not the vision encoder's: the colours of the picture in cells (see `colours_of`).
COLOURS = "colours"
CELLS = 8, 6
#: Both beside each other.
MEAN_MAX_COLOURS = "mean_max_colours"
POOLINGS = ("mean", "mean_max", "motion", DECISION, COLOURS, MEAN_MAX_COLOURS)
#: The one path heads are trained on and run on: pooled features of a 2-frame video group.
FEATURE_PATH = "video_group"
#: The path of heads on the decision token.
DECISION_PATH = "decision_token"
MAX_HEAD_BYTES = 64_000_000
_ARRAYS = ("weight", "bias", "temperature", "header")


class HeadError(ValueError):
    """A head file that cannot be used: unreadable, malformed, or made for other features.

    `head`: its name, and `cause`: what is wrong with it, where both are known.
    """

    def __init__(self, message: str, head: str = "", cause: str = "") -> None:
        """Store what `by_cause` puts together."""
        super().__init__(message)
        self.head, self.cause = head, cause


class Pooled(Protocol):
    """What a head reads of a vision group: mean and maximum over its tokens, float (D,) each."""

    mean: np.ndarray
    max: np.ndarray


@dataclass(frozen=True, eq=False)
class Head:
    """One yes/no probe: p = sigmoid((weight . x + bias) / temperature).

    x is, by `pooling`: `mean` of the newest group (D,), `mean_max` of the newest group (2D,), or
    `motion`, newest minus oldest mean and the mean of all, over `window_groups` groups (2D,); or
    `colours` of the newest frame (see `colours_of`; C), for a camera that does not move; or
    `mean_max_colours` (2D + C).
    Of pooling `decision` it is the decision token's state (D,) after `depth` layers of the language
    model with the fingerprint `language`, behind the question `text`.
    `question` is the id of the question that it answers, `metrics` and `trained_on` are its
    maker's account. Raises HeadError where the parts do not fit.
    """

    name: str
    question: str
    pooling: str
    weight: np.ndarray
    bias: float
    temperature: float
    fingerprint: str
    pixel_budget: int
    window_groups: int = 1
    feature_path: str = FEATURE_PATH
    metrics: Mapping[str, Any] = field(default_factory=dict)
    trained_on: str = ""
    source: str = ""
    depth: int = 0
    text: str = ""
    language: str = ""

    def __post_init__(self) -> None:
        """Check all parts, so that predicting cannot fail on them."""
        for key in ("name", "question", "pooling", "fingerprint", "feature_path", "trained_on",
                    "text", "language"):
            if not isinstance(getattr(self, key), str):
                raise self._error(f"{key} must be text, not {getattr(self, key)!r}")
        if not self.name or not self.question:
            raise self._error("needs a name and the id of the question it answers")
        if self.pooling not in POOLINGS:
            raise self._error(f"pooling must be one of {', '.join(POOLINGS)}, not {self.pooling!r}")
        for key in ("pixel_budget", "window_groups"):
            value = getattr(self, key)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise self._error(f"{key} must be a whole number above 0, not {value!r}")
        decides = self.pooling == DECISION
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or self.depth < decides:
            raise self._error(f"depth must be a whole number of layers, not {self.depth!r}")
        if decides and not (self.text and self.language):
            raise self._error("needs the text of its question and the language model's fingerprint")
        if self.pooling == "motion" and self.window_groups < 2:
            raise self._error("motion needs a window_groups of 2 or more")
        weight = self.weight
        if weight.ndim != 1 or not weight.size or weight.dtype.kind != "f":
            raise self._error(f"weight must be float (D,), not {weight.dtype} {weight.shape}")
        if self.pooling in ("mean_max", "motion") and weight.size % 2:
            raise self._error(f"{self.pooling} needs an even number of weights, not {weight.size}")
        if not np.isfinite(weight).all() or not math.isfinite(self.bias):
            raise self._error("weight or bias is not finite")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise self._error(f"temperature must be above 0, not {self.temperature}")

    @classmethod
    def load(cls, path: str | os.PathLike) -> Head:
        """Read a head's npz file, without pickle. Raises HeadError naming the file."""
        arrays = _read_arrays(path)
        try:
            header = json.loads(str(arrays["header"][()]))
        except ValueError as error:
            raise HeadError(f"{path}: header is not JSON: {error}") from error
        if not isinstance(header, dict):
            raise HeadError(f"{path}: header must be a JSON object")
        known = ("name", "question", "pooling", "fingerprint", "pixel_budget", "window_groups",
                 "feature_path", "metrics", "trained_on", "depth", "text", "language")  # fmt: skip
        missing = [key for key in known[:5] if key not in header]
        if missing:
            raise HeadError(f"{path}: header lacks {', '.join(missing)}")
        fields = {key: header[key] for key in known if key in header}
        try:
            return cls(
                weight=arrays["weight"],
                bias=float(arrays["bias"].reshape(())),
                temperature=float(arrays["temperature"].reshape(())),
                source=str(path),
                **fields,
            )
        except HeadError:
            raise
        except (TypeError, ValueError) as error:
            raise HeadError(f"{path}: {error}") from error

    @property
    def dim(self) -> int:
        """Width D of the vision features that it reads."""
        if self.pooling in ("mean", DECISION, COLOURS):
            return self.weight.size
        colours = 3 * math.prod(CELLS) if self.pooling == MEAN_MAX_COLOURS else 0
        return (self.weight.size - colours) // 2

    @property
    def min_groups(self) -> int:
        """Fewest contiguous groups it answers on: half of its window, for motion."""
        return max(2, self.window_groups // 2) if self.pooling == "motion" else 1

    def check(
        self, fingerprint: str, pixel_budget: int | None = None, language: str = ""
    ) -> None:
        """Raise HeadError, naming both, unless made for these features.

        `language`: fingerprint of the language model, for a head on its decision token.
        """
        if self.fingerprint != fingerprint:
            raise self._error(
                f"was made for vision weights {self.fingerprint}, the model has {fingerprint}"
            )
        if pixel_budget is not None and self.pixel_budget != pixel_budget:
            raise self._error(
                f"was made for a pixel budget of {self.pixel_budget}, this runs at {pixel_budget}"
            )
        path = DECISION_PATH if self.pooling == DECISION else FEATURE_PATH
        if self.feature_path != path:
            raise self._error(
                f"was made on feature path '{self.feature_path}', this one is '{path}'"
            )
        if self.pooling == DECISION and self.language != language:
            raise self._error(f"was made for language model {self.language}, this one is "
                              f"{language or 'of another kind'}")

    def logit(self, window: Sequence[Pooled]) -> float:
        """Return the scaled logit on contiguous groups, oldest first.

        Raises HeadError on features of another width, or fewer groups than `min_groups`.
        """
        if len(window) < self.min_groups:
            raise self._error(f"needs {self.min_groups} groups, got {len(window)}")
        x = self._features(window)
        if x.size != self.weight.size:
            raise self._error(f"reads features of width {self.dim}, got {window[-1].mean.size}")
        return float((np.dot(self.weight, x) + self.bias) / self.temperature)

    def predict(self, window: Sequence[Pooled]) -> float:
        """Return P(yes) on contiguous groups, oldest first. Raises as logit()."""
        return sigmoid(self.logit(window))

    def _features(self, window: Sequence[Pooled]) -> np.ndarray:
        if self.pooling == "motion":
            means = np.stack([group.mean for group in window[-self.window_groups :]])
            return motion_row(means).astype(np.float32)
        newest = window[-1]
        colours = getattr(newest, COLOURS, None)
        if colours is None and reads_colours(self.pooling):
            raise self._error("reads the colours of the picture, which are not at hand here")
        return pooled(self.pooling, newest.mean, newest.max, colours)

    def _error(self, message: str) -> HeadError:
        where = f"{self.source}: " if self.source else ""
        return HeadError(f"{where}head '{self.name}' {message}", self.name, message)


@dataclass(frozen=True, eq=False)
class Coloured:
    """A group with the colours of its newest frame."""

    mean: np.ndarray
    max: np.ndarray
    colours: np.ndarray


def colours_of(image: np.ndarray) -> np.ndarray:
    """Return the mean colours of CELLS of an image, as shares of its mean: float32 (8 * 6 * 3,).

    What is large and stands still in a picture shows in them, also where the vision encoder, which
    looks for what it was taught, has no place for it; how bright the whole is does not.
    """
    import cv2

    cells = cv2.resize(image, CELLS, interpolation=cv2.INTER_AREA).astype(np.float32)
    return (cells / max(1.0, float(cells.mean()))).ravel()


def reads_colours(pooling: str) -> bool:
    """Tell whether the colours of the picture are read."""
    return pooling in (COLOURS, MEAN_MAX_COLOURS)


def pooled(pooling: str, mean: np.ndarray, peak: np.ndarray, colours: np.ndarray | None
           ) -> np.ndarray:
    """Return what is read of features (..., D) and colours (..., C), of one group each.

    That is float32 (..., D) for `mean`, (..., 2D) for `mean_max`, (..., C) for `colours`, (..., 2D
    + C) for `mean_max_colours`. Without colours C is 0.
    """
    if pooling == "mean":
        return np.asarray(mean, np.float32)
    parts = [] if pooling == COLOURS else [mean, peak]
    if reads_colours(pooling) and colours is not None:
        parts.append(colours)
    return (np.concatenate(parts, axis=-1).astype(np.float32) if parts
            else np.zeros((*mean.shape[:-1], 0), np.float32))


def motion_row(means: np.ndarray) -> np.ndarray:
    """Return what a motion head reads of a window's pooled features (n, D), oldest first: (2D,)."""
    return np.concatenate([means[-1] - means[0], means.mean(axis=0)])


def language_of(engine: Any) -> str:
    """Return the fingerprint of an engine's language model, empty where it has none."""
    return getattr(engine, "language_fingerprint", "")


def load_heads(
    paths: Sequence[str | os.PathLike], fingerprint: str, pixel_budget: int, language: str = ""
) -> tuple[list[Head], dict[str, HeadError]]:
    """Load the heads made for these features from files, or folders of them.

    `language`: see Head.check. Returns the heads, and for each file that was refused the reason. Of
    two heads of one name the first counts.
    """
    heads: dict[str, Head] = {}
    refused: dict[str, HeadError] = {}
    for path in map(Path, paths):
        for file in sorted(path.glob("*.npz")) if path.is_dir() else [path]:
            try:
                head = Head.load(file)
                head.check(fingerprint, pixel_budget, language)
                if head.name in heads:
                    raise HeadError(f"{file}: there is a head '{head.name}' already")
            except HeadError as error:
                refused[str(file)] = error
            else:
                heads[head.name] = head
    return list(heads.values()), refused


def by_cause(refused: Mapping[str, HeadError]) -> list[str]:
    """Return what to say of the heads that load_heads refused: a line for each cause."""
    causes: dict[str, list[HeadError]] = {}
    for error in refused.values():
        causes.setdefault(error.cause or str(error), []).append(error)
    return [str(errors[0]) if len(errors) == 1 else
            f"{len(errors)} heads are not used, each {cause}: {listed(e.head for e in errors)}"
            for cause, errors in causes.items()]


def require_heads(
    paths: Sequence[str | os.PathLike], fingerprint: str, pixel_budget: int, language: str = ""
) -> list[Head]:
    """Load heads as load_heads does; raise HeadError for the first that is refused, or for none."""
    heads, refused = load_heads(paths, fingerprint, pixel_budget, language)
    if refused:
        raise next(iter(refused.values()))
    if not heads:
        raise HeadError(f"there is no head (*.npz) in {', '.join(map(str, paths))}")
    return heads


def answering_head(question: Question, heads: Sequence[Head]) -> Head | None:
    """Return the head that answers a question at Tier 1, None where there is none for it."""
    if question.tier == "vlm" or not kind_of(question).has_heads:
        return None
    heads = [head for head in heads if head.pooling != DECISION]
    if question.head is not None:
        return next((head for head in heads if head.name == question.head), None)
    return next((head for head in heads if head.question == question.id), None)


def deciding_head(question: Question, heads: Sequence[Head]) -> Head | None:
    """Return the head that answers at a question's early exit, None where there is none for it.

    It is the one that the question names, else one made for its id, of that depth and text. Raises
    HeadError where the one named is for another depth, or another text.
    """
    if question.early is None or not kind_of(question).has_heads:
        return None
    mine = [head for head in heads if head.pooling == DECISION
            and (head.name if question.head else head.question) == (question.head or question.id)]
    fitting = [head for head in mine if head.depth == question.shallow_depth
               and head.text == question.text]
    if question.head and mine and not fitting:
        raise mine[0]._error(
            f"reads layer {mine[0].depth} behind '{mine[0].text}': question '{question.id}' may "
            f"stop at layer {question.shallow_depth} behind '{question.text}'")
    return fitting[0] if fitting else None


@dataclass(frozen=True)
class HeadQuery:
    """What an engine reads of a question whose early exit has a head."""

    text: str
    kind: str
    options: tuple[str, ...]
    depth: int | None
    early: EarlyExit


@lru_cache(maxsize=256)
def query_with(question: Question, head: Head) -> HeadQuery:
    """Return a question as it is asked with a head at its early exit."""
    scale = 1.0 / head.temperature
    early = EarlyExit(head.depth, question.shallow_margin, scale, head.bias * scale,
                      tuple(map(float, head.weight)))
    return HeadQuery(question.text, question.kind, question.options, None, early)


def write_head(path: str | os.PathLike, head: Head) -> None:
    """Write a head as the npz file that Head.load reads, replacing the file at once."""
    header = {
        "name": head.name,
        "question": head.question,
        "pooling": head.pooling,
        "fingerprint": head.fingerprint,
        "pixel_budget": head.pixel_budget,
        "window_groups": head.window_groups,
        "feature_path": head.feature_path,
        "metrics": dict(head.metrics),
        "trained_on": head.trained_on,
    }
    if head.pooling == DECISION:
        header |= {"depth": head.depth, "text": head.text, "language": head.language}
    with replacing(path) as file:
        np.savez(
            file,
            weight=head.weight.astype(np.float32),
            bias=np.float32(head.bias),
            temperature=np.float32(head.temperature),
            header=np.array(json.dumps(header)),
        )


def _read_arrays(path: str | os.PathLike) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path) as archive:
            # What it unpacks to, before unpacking any of it.
            if sum(info.file_size for info in archive.infolist()) > MAX_HEAD_BYTES:
                raise HeadError(f"{path}: unpacks to more than {MAX_HEAD_BYTES} bytes")
        with np.load(path, allow_pickle=False) as file:
            missing = [name for name in _ARRAYS if name not in file]
            if missing:
                raise HeadError(f"{path}: lacks {', '.join(missing)}")
            arrays = {name: file[name] for name in _ARRAYS}
    except HeadError:
        raise
    except OSError as error:
        raise HeadError(f"{path}: {error.strerror or error}") from error
    except (ValueError, zipfile.BadZipFile, EOFError, KeyError, MemoryError, RuntimeError) as error:
        raise HeadError(f"{path}: not a head file: {error}") from error
    if arrays["header"].dtype.kind != "U" or arrays["header"].ndim != 0:
        raise HeadError(f"{path}: header must be a JSON string")
    for name in ("bias", "temperature"):
        if arrays[name].size != 1 or arrays[name].dtype.kind not in "fiu":
            raise HeadError(f"{path}: {name} must be one number")
    return arrays
