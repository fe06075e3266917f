"""The engine of a decision model: the newest image alone, without a running state.

It has what the runtime needs of an engine, so that a node with one does all that it does with
another, except what such a model cannot: no window of past groups, no heads, no early exit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NoReturn

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_map

from ..reuse import ReuseSettings
from . import allocator
from . import checkpoint as checkpoints
from .decision_models import FAMILIES, DecisionModel, Seen, logits
from .errors import CheckpointError, GroupError, ModeError, QueryError
from .forks import forks_of
from .json_object import read_json
from .model_config import read_quantization
from .packing import unpack_modules
from .pixels import check_frame
from .readout import Query, Readout, check_answers
from .remarks import tell
from .stream import StreamGroup, timed_group
from .weight_values import check_values
from .weights import check_types, list_tensors

MODES: Final = ("image",)


@dataclass(frozen=True)
class ImageGroup:
    """One encoded image. mean, max: float32 (D,) over its tokens. source: the model's weights."""

    seen: Seen
    mean: np.ndarray
    max: np.ndarray
    source: str


class ImageEngine:
    """A loaded decision model. Load it and use it in one and the same thread.

    name, folder, family, fingerprint (of the vision weights), pixel_budget, dtype, device, remarks,
    tick_s, checked: as Engine's. n_layers is 0: no question can have a depth. n_frames is 1: of a
    group it sees the newest frame.
    """

    n_frames = 1
    n_layers = 0
    token_pixels = 1  # its own processor enlarges what is small
    checked = None

    def __init__(
        self, model: Any, family: str, folder: Path, name: str, pixel_budget: int | None = None
    ) -> None:
        """Drive a loaded model; use ``engine.load`` to get one by name."""
        self.name, self.folder, self.family, self.model = name, folder, family, model
        self._decisions: DecisionModel = FAMILIES[family](model, folder)
        self.fingerprint = checkpoints.fingerprint_of(
            {
                f"{part}.{key}": value
                for part, module in self._decisions.vision_modules().items()
                for key, value in tree_flatten(module.parameters())
            }
        )
        self._budget = pixel_budget  # None: its own processor alone decides
        self.pixel_budget = min(
            pixel_budget or self._decisions.pixel_budget, self._decisions.pixel_budget
        )
        kinds = {value.dtype for _, value in tree_flatten(model.parameters())}
        self.dtype = next(
            str(one).removeprefix("mlx.core.")
            for one in (mx.float32, mx.bfloat16, mx.float16)
            if one in kinds
        )
        self.device = "cpu" if mx.default_device() == mx.Device(mx.cpu) else "gpu"
        # Of its language model; in all decision models the layers' kinds are listed.
        self.depth = len(model.config.text_config.layer_types)
        self.remarks: list[str] = []
        self.tick_s: float | None = None

    @classmethod
    def load(
        cls,
        model: str,
        family: str,
        *,
        pixel_budget: int | None = None,
        dtype: str | None = None,
        warm: bool = True,
    ) -> ImageEngine:
        """Load a local folder or a hub checkpoint of ``family``; raises CheckpointError.

        The arguments are those of Engine.load.
        """
        folder = checkpoints.find(model)
        kind = getattr(mx, dtype) if dtype else checkpoints.default_dtype()
        loaded, remarks = _load(folder, family, kind)
        allocator.keep_freed_memory()
        try:
            engine = cls(loaded, family, folder, model, pixel_budget)
            if warm:
                engine.warm_up()
        except CheckpointError:
            raise
        except Exception as error:  # settings that mlx-vlm's modules meet only when they run
            raise CheckpointError(f"{folder} holds a {family} model that cannot be run: "
                                  f"{type(error).__name__}: {error}") from error  # fmt: skip
        engine.remarks += remarks
        tell(model, remarks)
        return engine

    def warm_up(self) -> None:
        """See a blank image and ask about it, twice; the second time sets ``tick_s``.

        Raises CheckpointError where the answers are not finite.
        """
        blank = np.zeros((480, 640, 3), np.uint8)
        queries = [Query("Is a person present?"), Query("Is the door open?"), Query("Is it dark?")]
        for _ in range(2):
            began = time.perf_counter()
            answers = self.ask(self.encode([blank]), queries)
            self.tick_s = time.perf_counter() - began
        check_answers(f"{self.name} in {self.dtype}", answers)

    def encode(
        self, frames: Sequence[np.ndarray], *, pixel_budget: int | None = None
    ) -> ImageGroup:
        """Encode one image, the last of ``frames``: uint8 RGB (H, W, 3); raises FrameError.

        pixel_budget: most pixels of the image (None: the engine's, where one was given; else the
        model's own processor makes of it what it does of any).
        """
        from mlx_vlm.models.d1.prompt import cap_pixels
        from PIL import Image

        image = Image.fromarray(np.ascontiguousarray(check_frame(frames[-1])))
        budget = pixel_budget or self._budget
        seen = self._decisions.see(cap_pixels(image, budget) if budget else image)
        features = np.array(seen.features.astype(mx.float32))
        return ImageGroup(seen, features.mean(axis=0), features.max(axis=0), self.fingerprint)

    def encode_many(
        self, groups: Sequence[Sequence[np.ndarray]], *, pixel_budget: int | None = None
    ) -> list[ImageGroup]:
        """Encode several groups, one by one."""
        return [self.encode(frames, pixel_budget=pixel_budget) for frames in groups]

    def reusing(self, settings: ReuseSettings, **more: Any) -> NoReturn:
        """Refuse: raises ModeError."""
        raise ModeError(
            f"{self.name!r} is a decision model ({self.family}), whose vision is encoded anew for "
            "each image: reuse must be off"
        )

    def tokens(self, query: Any) -> int:
        """Return how many tokens a question has; raises QueryError."""
        return sum(self._decisions.tokens(fork) for fork in forks_of([query]).asked)

    def token_counts(self, queries: Sequence[Any]) -> tuple[tuple[int, int], ...]:
        """Return the tokens of each question twice: they share none. See Asking.token_counts."""
        return tuple((count, count) for count in map(self.tokens, queries))

    def ask(self, group: ImageGroup, queries: Sequence[Any]) -> list[Readout]:
        """Answer ``queries`` about an image, in one pass; raises QueryError, GroupError."""
        if not queries:
            raise QueryError("no question was given")
        if not isinstance(group, ImageGroup) or group.source != self.fingerprint:
            raise GroupError(f"the image was not encoded by this model, {self.fingerprint}")
        forks = forks_of(queries)
        answers = self._decisions.ask(group.seen, forks.asked)
        return forks.joined([Readout(one, logits(one), self.depth) for one in answers])

    def stream(
        self, window_groups: int = 1, mode: str = "image", **more: Any
    ) -> ImageStream:
        """Start a stream of one image; raises ModeError for what such a model cannot do."""
        if mode not in ("auto", *MODES):
            raise ModeError(
                f"{self.name!r} is a decision model ({self.family}) of one image, which has no "
                f"mode {mode!r}: its mode is image (auto finds it)"
            )
        return ImageStream(self)


@dataclass
class ImageStream:
    """The newest image; see engine_protocol.StreamLike."""

    engine: ImageEngine
    history: tuple[StreamGroup, ...] = field(default=())

    def append(
        self, group: ImageGroup, time: float | tuple[int, int], *, left_out_ns: int = 0
    ) -> None:
        """Take the newest image in the place of the one before; the model is told no times.

        time: see Stream.append.
        """
        newest_ns = timed_group(group, time)[0].t_end_ns
        if self.history and newest_ns <= self.history[-1].t_end_ns:
            raise GroupError(f"the image at {newest_ns} ns does not come after the one before it")
        self.history = (StreamGroup(group, newest_ns, newest_ns),)

    def ask(self, queries: Sequence[Any]) -> list[Readout]:
        """Answer ``queries`` about the newest image."""
        if not self.history:
            raise GroupError("there is no image yet")
        return self.engine.ask(self.history[-1].group, queries)

    def reset(self) -> None:
        """Forget the image."""
        self.history = ()

    def start_over(self) -> None:
        """Nothing is kept between two passes."""

    def idle(self) -> bool:
        """Nothing can be done in dead time."""
        return False


def _load(folder: Path, family: str, dtype: mx.Dtype) -> tuple[nn.Module, list[str]]:
    """Return mlx-vlm's model in ``dtype`` and remarks on it; raises CheckpointError."""
    from mlx_vlm.utils import load_model

    tensors = list_tensors(folder)  # what is missing or cut short is named before it is read
    packing = read_quantization(folder, read_json(folder / "config.json"), {})
    check_types(tensors, packed=packing is not None)
    plan = checkpoints.plan_memory(packing, tensors, dtype)
    try:
        model = load_model(folder, lazy=True)
    except Exception as error:  # a config of the wrong shape fails in many ways
        raise CheckpointError(f"{folder} does not hold a {family} model that mlx-vlm can load: "
                              f"{type(error).__name__}: {error}") from error  # fmt: skip
    if plan.unpack:
        unpack_modules(model)
    model.update(
        tree_map(
            lambda value: value.astype(dtype)
            if mx.issubdtype(value.dtype, mx.floating)
            else value,
            model.parameters(),
        )
    )
    model.eval()
    mx.eval(model.parameters())
    return model, [*plan.remarks, *check_values(model, folder)]
