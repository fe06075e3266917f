"""mlx-vlm's decision models: how each sees one image and answers typed questions about it.

They are driven by mlx-vlm's own modules and prompts, so their answers are mlx-vlm's own. What is
different here: the image is encoded once, whatever asks; a question's text cannot become a control
token; probabilities are not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import mlx.core as mx
import numpy as np

from ..kinds import plain_kind
from ..questions import AUTO
from .errors import CheckpointError, ContextError, QueryError
from .prompt import clean, plain_tokenizer

#: Decision models of mlx-vlm that cannot be used, and why.
REFUSED: Final[Mapping[str, str]] = {
    "decider2": "reads text only: it has no vision tower",
    "laya": "reads text only: it has no vision tower",
    "clef": "answers all questions jointly, so that each changes the others' answers",
}


@dataclass(frozen=True)
class Seen:
    """An image in a decision model.

    features: (T, D) as its language model takes them. trunk: token ids that stand before each
    question; empty where a question's tokens are a sequence of their own.
    """

    features: mx.array
    trunk: tuple[int, ...] = ()


class DecisionModel(Protocol):
    """One family: sees an image, and reads the answers' probabilities off the model."""

    pixel_budget: int  # most pixels of an image that count

    def vision_modules(self) -> Mapping[str, Any]:
        """Return the modules that make an image's features, by name."""

    def see(self, image: Any) -> Seen:
        """Encode a PIL image."""

    def tokens(self, query: Any) -> int:
        """Return how many tokens a question has; raises QueryError."""

    def ask(self, seen: Seen, queries: Sequence[Any]) -> list[np.ndarray]:
        """Probabilities (yes, no) or of the options, float64, of each question."""


class D1:
    """`d1`: LFM2-VL, read at the answer slot behind the image and one question."""

    def __init__(self, model: Any, folder: Path) -> None:
        """Take the loaded model; reads the tokenizer and the image processor in ``folder``."""
        from mlx_vlm.models.d1 import prompt  # it also installs what the processor needs
        from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor

        self._prompt, self._model = prompt, model
        self._processor = _read(Lfm2VlProcessor, folder)
        self._tokenizer = self._processor.tokenizer
        self._plain = plain_tokenizer(self._tokenizer)
        self._controls = frozenset(self._tokenizer.added_tokens_decoder)
        self._branches: dict[tuple, tuple[int, ...]] = {}
        self.pixel_budget = prompt.VISION_MAX_PIXELS
        try:
            prompt.image_markup(self._processor, 1)
            prompt.readout_ids(self._tokenizer, {"type": "noul"})
        except Exception as error:  # a chat template of another shape fails in many ways
            raise CheckpointError(f"{folder}: the tokenizer is not d1's: {error}") from error

    def vision_modules(self) -> Mapping[str, Any]:
        """Return the modules that make an image's features, by name."""
        model = self._model
        return {"vision_tower": model.vision_tower, "projector": model.multi_modal_projector}

    def see(self, image: Any) -> Seen:
        """Encode a PIL image."""
        trunk, _, inputs = self._model.decision_inputs(self._processor, None, (), [image])
        features = mx.concatenate(self._model.encode_images(**inputs), axis=0)
        mx.eval(features)
        return Seen(features, tuple(trunk))

    def tokens(self, query: Any) -> int:
        """Return how many tokens a question has; raises QueryError."""
        return len(self._branch(query))

    def ask(self, seen: Seen, queries: Sequence[Any]) -> list[np.ndarray]:
        """Probabilities (yes, no) or of the options, float64, of each question."""
        trunk, branches = list(seen.trunk), [list(self._branch(query)) for query in queries]
        if len(branches) == 1:  # one is read in a single pass
            trunk, branches = trunk + branches[0], []
        image = {"pixel_values": seen.features, "cached_image_features": seen.features}
        logz = self._model.answer_logprobs(trunk, branches, image)
        return [
            np.array(self._prompt.readout(self._tokenizer, self._typed(query), one))
            for query, one in zip(queries, logz, strict=True)
        ]

    def _typed(self, query: Any) -> dict[str, Any]:
        return self._prompt.as_question(typed(query))

    def _branch(self, query: Any) -> tuple[int, ...]:
        """Token ids of one question: its text as plain text, then the assistant's header."""
        question = self._typed(query)
        key = (question["type"], question["instructions"], tuple(question["criteria"] or ()))
        if key not in self._branches:
            try:
                block = self._prompt.question_block(self._tokenizer, question)
            except ValueError as error:  # more options than single tokens
                raise QueryError(str(error)) from error
            whole = self._prompt.suffix_text(self._tokenizer, question)
            header = self._tokenizer.encode(
                whole.removeprefix(block), add_special_tokens=False
            )
            text = self._plain.encode(block, add_special_tokens=False).ids
            if not self._controls.isdisjoint(text):
                raise QueryError(f"a question's text became a control token: {block!r}")
            if len(self._branches) >= 4096:
                self._branches.clear()
            self._branches[key] = (*text, *header)
        return self._branches[key]


class D1Omni:
    """`d1_omni`: a bidirectional trunk that scores each option behind the image."""

    pixel_budget = 10 * 512 * 512  # ten tiles

    def __init__(self, model: Any, folder: Path) -> None:
        """Take the loaded model; reads the tokenizer in ``folder``."""
        from mlx_vlm.models.d1_omni import prompt
        from mlx_vlm.models.d1_omni.d1_omni import YES_NO
        from mlx_vlm.models.d1_omni.processing import D1OmniProcessor

        self._prompt, self._model, self._yes_no = prompt, model, YES_NO
        self._tokenizer = _read(D1OmniProcessor, folder)
        known = self._tokenizer.get_vocab()
        lacking = [one for one in (*prompt.DELIM.values(), prompt.MARKER) if one not in known]
        if lacking:
            raise CheckpointError(f"{folder}: the tokenizer lacks {', '.join(lacking)}")

    def vision_modules(self) -> Mapping[str, Any]:
        """Return the modules that make an image's features, by name."""
        return {"vision": self._model.vision}

    def see(self, image: Any) -> Seen:
        """Encode a PIL image."""
        features = self._model.vision([image])
        mx.eval(features)
        return Seen(features)

    def tokens(self, query: Any) -> int:
        """Return how many tokens a question has; raises QueryError."""
        return len(self._row(query, 0)[0])

    def ask(self, seen: Seen, queries: Sequence[Any]) -> list[np.ndarray]:
        """Probabilities (yes, no) or of the options, float64, of each question."""
        rows = []
        for query in queries:
            ids, marks, question = self._row(query, seen.features.shape[0])
            # Its temperatures are for text alone: mlx-vlm does not use them behind an image.
            rows.append((seen.features, ids, marks, question, False))
        out = []
        for row, answer in zip(rows, self._model._run(rows), strict=True):
            kind = row[3][0]
            out.append(np.array(answer[::-1] if kind == "noul" else answer))  # [false, true]
        return out

    def _row(self, query: Any, before: int) -> tuple[list[int], list[int], tuple]:
        """Token ids of a question behind ``before`` of the image, its options' marks, its type."""
        config, question = self._model.config, self._prompt.as_question(typed(query))
        room = min(config.image_text_length, config.max_length - before)
        if room < 64:
            raise ContextError(f"the image takes {before} of the {config.max_length} tokens there "
                               "are: set a smaller pixel_budget")
        try:
            ids, marks = self._prompt.encode(self._tokenizer, "", question, room, self._yes_no)
        except ValueError as error:  # the options do not fit
            raise QueryError(str(error)) from error
        return ids, marks, question


FAMILIES: Final[Mapping[str, Any]] = {"d1": D1, "d1_omni": D1Omni}


def family_name(config: Mapping[str, Any]) -> str | None:
    """Return which decision model a config.json describes, None for another kind of model.

    Raises CheckpointError for one that cannot be used.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str):
        return None  # who loads it names it
    if kind == "lfm2_vl" and "auto_map" in config or kind in FAMILIES or kind in REFUSED:
        from mlx_vlm.utils import get_model_type  # slow to import, and knows d1 as published

        kind = get_model_type(dict(config))
    if kind in REFUSED:
        raise CheckpointError(
            f"the decision model {kind!r} {REFUSED[kind]}; those that can be used are "
            f"{', '.join(FAMILIES)}"
        )
    return kind if kind in FAMILIES else None


def typed(query: Any) -> dict[str, Any]:
    """Return a question as mlx-vlm's decision models take it; raises QueryError."""
    if not isinstance(getattr(query, "text", None), str):
        raise QueryError(f"a question must be a Query, not {type(query).__name__}")
    if getattr(query, "depth", None) not in (None, AUTO):  # auto: as many as needed, here all
        raise QueryError("a decision model answers from its last layer: it has no depth to choose")
    text, options = clean(query.text), [clean(option) for option in query.options or ()]
    kind = getattr(query, "kind", "") or plain_kind(options)
    if not text:
        raise QueryError("the question is empty")
    if kind == "yes_no":
        return {"type": "bool", "instructions": text}
    if kind not in ("choice", "score"):
        raise QueryError(f"a decision model answers no question of the kind {kind}")
    if len(options) < 2 or len(set(options)) != len(options) or not all(options):
        raise QueryError(f"a choice needs at least two options, all different: {options}")
    return {"type": kind, "instructions": text, "criteria": options}


def logits(probabilities: np.ndarray) -> np.ndarray:
    """Return logits whose softmax the probabilities are."""
    return np.log(np.maximum(probabilities, math.ulp(0.0)))


def _read(processor: Any, folder: Path) -> Any:
    """Read a tokenizer or processor; raises CheckpointError."""
    try:
        return processor.from_pretrained(folder)
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"{folder} has no usable tokenizer: {error}") from error
