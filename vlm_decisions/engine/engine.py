"""The engine: a checkpoint, its vision encoder and decoder, and the ways to ask it."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Final

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from ..reuse import ReuseSettings, read_measured
from . import allocator, blas, fastmath, numpy_modules
from . import checkpoint as checkpoints
from .asking import Asking, Prefix, Questions
from .errors import CheckpointError, ContextError, FrameError, GroupError
from .families import as_it_is
from .pixels import check_frame, read_settings
from .prompt import PromptError
from .readout import Query, Readout, check_answers
from .remarks import LOG, tell
from .reusing import ReusingEncoder
from .self_check import SelfCheck
from .self_check import self_check as check_engine
from .stream import Stream
from .vision import VisionGroup

# Hidden size below which a pass is mostly not arithmetic: then NumPy is faster than MLX on a CPU,
# and one BLAS thread than several.
SMALL: Final = 512
DTYPES: Final = ("float32", "bfloat16", "float16")
FINGERPRINT_VALUES: Final = 4096  # of each tensor of the language model
SELF_CHECKS: Final = ("refuse", "warn", "off")


class Engine(Asking):
    """A loaded model. Load it and use it in one and the same thread (MLX streams are per thread).

    name, folder (of the checkpoint), fingerprint (of the vision weights), n_layers, pixel_budget
    (pixels a frame), dtype (what it computes in), device ("cpu" or "gpu"). remarks: sentences that
    a user should read: what was assumed, what makes it slow. tick_s: seconds that a group with
    three questions took when it was warmed up, None where it was not: a model for which this
    exceeds the time between two groups cannot keep up. checked: the last self-check.
    reuse_measured: what the study of reuse found with this checkpoint, None where it was not kept.
    """

    n_frames = 2  # of a group, that it sees

    def __init__(
        self,
        checkpoint: checkpoints.Checkpoint,
        pixel_budget: int | None = None,
        *,
        outer_vision_tokens: bool = False,
        in_numpy: bool | None = None,
    ) -> None:
        """Drive ``checkpoint``; use ``Engine.load`` to get one by name.

        in_numpy: whether to compute with NumPy instead of MLX (None: if small, and on a CPU).
        """
        self.checkpoint, self.name, self.folder = checkpoint, checkpoint.name, checkpoint.folder
        self.model = checkpoint.model
        family = checkpoint.family
        allocator.keep_freed_memory()
        small = checkpoint.model.language_model.args.hidden_size < SMALL
        if small:
            blas.use_threads(1)
        if in_numpy is None:
            in_numpy = small and fastmath.ON_CPU
        view = numpy_modules.in_numpy if in_numpy and numpy_modules.can(self.model) else as_it_is
        super().__init__(
            family.decoder(self.model, view),
            checkpoint.tokenizer,
            checkpoint.fingerprint,
            outer_vision_tokens=outer_vision_tokens,
            tokens_per_second=(
                self.model.config.vision_config.tokens_per_second if family.one_block else None
            ),
        )
        self.settings = read_settings(
            checkpoint.folder,
            self.model.config.vision_config,
            pixel_budget,
            mean=family.pixel_mean,
            std=family.pixel_std,
        )
        self.pixel_budget = self.settings.pixel_budget
        self.vision = family.vision(
            self.model.vision_tower, self.settings, self.fingerprint, view
        )
        self.dtype = str(self.decoder.dtype).removeprefix("mlx.core.")
        self.device = "cpu" if mx.default_device() == mx.cpu else "gpu"
        self.tick_s: float | None = None
        self.checked: SelfCheck | None = None
        self.reuse_measured = read_measured(
            checkpoint.folder, checkpoint.fingerprint, lambda: self.language_fingerprint)
        self.remarks = list(checkpoint.remarks)
        if not self.settings.source:
            self.remarks.append(
                "the checkpoint states no pixel settings (processor_config.json, "
                "preprocessor_config.json, video_preprocessor_config.json): mean "
                f"{self.settings.mean}, standard deviation {self.settings.std} and at most "
                f"{self.pixel_budget} pixels of a frame are assumed"
            )
        if self.device == "cpu" and self.dtype != "float32":
            self.remarks.append(f"{self.dtype} is many times slower than float32 on a CPU")

    @classmethod
    def load(
        cls,
        model: str = "sim_desk",
        *,
        pixel_budget: int | None = None,
        dtype: str | None = None,
        outer_vision_tokens: bool = False,
        self_check: str = "off",
        warm: bool = True,
    ) -> Engine:
        """Load an embedded model, a local folder or a hub checkpoint; raises CheckpointError.

        pixel_budget: most pixels of a frame (None: the checkpoint's). dtype: "float32", "bfloat16"
        or "float16" (None: float32 on the CPU, bfloat16 on a GPU). outer_vision_tokens: whether
        all groups of a video stand between vision tokens of their own, see PromptTemplate.
        self_check: "refuse" or "warn" where the shared pass is wrong here, "off" not to look.
        warm: run on a blank group, so that the first real one does not wait for kernels to be
        compiled.
        """
        if self_check not in SELF_CHECKS:
            raise ValueError(f"self_check must be one of {SELF_CHECKS}, not {self_check!r}")
        if dtype is not None and dtype not in DTYPES:
            raise CheckpointError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
        loaded = checkpoints.load(model, getattr(mx, dtype) if dtype else None)
        engine = cls(loaded, pixel_budget, outer_vision_tokens=outer_vision_tokens)
        tell(model, engine.remarks)
        try:
            engine.template("video")
            if self_check != "off":
                engine.self_check(refuse=self_check == "refuse")
            if warm:
                engine.warm_up()
        except (PromptError, ContextError) as error:  # what no question could be asked with
            raise CheckpointError(f"{model}: {error}") from error
        return engine

    @cached_property
    def language_fingerprint(self) -> str:
        """Identify the language model's weights, whatever their dtype: 16 hex digits.

        A hash over names, shapes and the first values of each: what decision heads were made for.
        """
        return checkpoints.fingerprint_of({
            f"{name} {value.shape}": value.reshape(-1)[:FINGERPRINT_VALUES].astype(mx.bfloat16)
            for name, value in tree_flatten(self.model.language_model.parameters())
        })

    def self_check(self, *, refuse: bool = False) -> SelfCheck:
        """Check the shared pass against the ordinary one, here and now: about a second.

        The result is kept as ``checked`` and logged. A failure is a remark; with ``refuse`` it
        raises CheckpointError.
        """
        self.checked = check_engine(self)
        LOG.log(logging.INFO if self.checked.ok else logging.WARNING, "%s", self.checked)
        if not self.checked.ok:
            self.remarks.append(str(self.checked))
            if refuse:
                raise CheckpointError(f"{self.name}: {self.checked}")
        return self.checked

    def warm_up(self) -> None:
        """Encode a blank group and ask about it, twice; the second time sets ``tick_s``.

        Raises CheckpointError where the answers are not finite.
        """
        blank = np.zeros((*self.settings.target_size(480, 640), 3), np.uint8)
        stream = self.stream(2)
        queries = [Query("Is a person present?"), Query("Is the door open?"), Query("Is it dark?")]
        for t_s in (0.1, 0.3):
            began = time.perf_counter()
            stream.append(self.encode([blank, blank]), t_s)
            answers = stream.ask(queries)
            self.tick_s = time.perf_counter() - began
            stream.ask(queries[:1])
        check_answers(f"{self.name} in {self.dtype}", answers)

    # ---- seeing --------------------------------------------------------------------------------

    @property
    def token_pixels(self) -> int:
        """Pixels along one side of a visual token."""
        return self.settings.factor

    def encode(
        self, frames: Sequence[np.ndarray], *, pixel_budget: int | None = None
    ) -> VisionGroup:
        """Encode one group of two uint8 RGB frames (H, W, 3) of one size; raises FrameError.

        pixel_budget: most pixels of a frame (None: the engine's). Below one token: CheckpointError.
        """
        return self.encode_many([frames], pixel_budget=pixel_budget)[0]

    def encode_many(
        self, groups: Sequence[Sequence[np.ndarray]], *, pixel_budget: int | None = None
    ) -> list[VisionGroup]:
        """Encode several groups of the same frame size in one batch."""
        if pixel_budget is None:
            return self.vision.encode(groups)
        return self.vision.encode(groups, replace(self.settings, pixel_budget=pixel_budget))

    def reusing(
        self, settings: ReuseSettings, *, pixel_budget: int | None = None
    ) -> ReusingEncoder:
        """Return an encoder for the groups of one stream that encodes only what changed.

        pixel_budget: most pixels of a frame (None: the engine's).
        """
        pixels = self.settings
        if pixel_budget is not None:
            pixels = replace(pixels, pixel_budget=pixel_budget)
        return ReusingEncoder(self.vision, settings, pixels)

    def stream(
        self,
        window_groups: int = 8,
        mode: str = "stream",
        *,
        rebuild: str = "idle",
        depth: int | None = None,
        slide: int = 1,
    ) -> Stream:
        """Start a stream; see Stream for the settings. mode ``auto`` is ``stream``."""
        mode = "stream" if mode == "auto" else mode
        return Stream(self, window_groups, mode, rebuild=rebuild, depth=depth, slide=slide)

    def window(self, groups: Sequence[VisionGroup], times_s: Sequence[float]) -> Prefix:
        """Prefix of one window: groups and their times in seconds since its first frame.

        Raises GroupError where times and groups do not match or a time does not grow.
        """
        if not groups or len(groups) != len(times_s):
            raise GroupError(f"{len(groups)} groups with {len(times_s)} times")
        if not all(a < b for a, b in pairwise((-math.inf, *times_s, math.inf))):
            told = ", ".join(f"{t_s:g}" for t_s in times_s)
            raise GroupError(f"group times must be finite and grow, these are {told} s")
        self.check_groups(groups)
        lines = [self.header_line("video")]
        position = lines[0].advance
        for group, t_s in zip(groups, times_s, strict=True):
            lines.append(self.group_line(group, t_s, position, first_s=times_s[0]))
            position += lines[-1].advance
        return Prefix(self, lines, "video")

    def image(self, image: np.ndarray | VisionGroup) -> Prefix:
        """Prefix of one still image: uint8 RGB (H, W, 3), or a group encoded from it twice."""
        group = image
        if not isinstance(image, VisionGroup):
            check_frame(image)
            group = self.encode([image, image])
        self.check_groups([group])
        header = self.header_line("image")
        return Prefix(
            self, [header, self.group_line(group, 0.0, header.advance, "image")], "image"
        )


__all__ = ["Engine", "FrameError", "Prefix", "Query", "Questions", "Readout", "VisionGroup"]
