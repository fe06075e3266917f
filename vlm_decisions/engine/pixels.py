"""Frames to patches, exactly as mlx-vlm's own Qwen-VL processors do it, for one 2-frame group.

Resize (PIL bicubic) to a size that is a multiple of patch x merge and at most ``pixel_budget``
pixels a frame, normalise with the checkpoint's mean and standard deviation, cut into patches
ordered by merged token. A table of 256 values does the arithmetic per channel: bit for bit the
same float32 numbers, without the passes over the image.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from .errors import CheckpointError, FrameError
from .json_object import read_json

DEFAULT_PIXEL_BUDGET: Final = 224 * 224
MAX_ASPECT: Final = 200  # as in the reference processor


@dataclass(frozen=True)
class PixelSettings:
    """How a checkpoint wants its pixels.

    pixel_budget: most pixels of a resized frame. min_pixels: a smaller frame is enlarged to these.
    source: the files these come from, "" where the checkpoint has none and they are assumed.
    """

    patch: int = 16
    merge: int = 2
    temporal: int = 2
    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    rescale: float = 1 / 255.0
    pixel_budget: int = DEFAULT_PIXEL_BUDGET
    min_pixels: int = 0
    source: str = ""

    def __post_init__(self) -> None:
        """Refuse sizes that no frame could meet."""
        if self.temporal != 2:
            raise CheckpointError(f"groups of {self.temporal} frames are not supported, only of 2")
        if self.pixel_budget < self.factor**2:
            raise CheckpointError(
                f"a pixel budget of {self.pixel_budget} is below one token "
                f"({self.factor} x {self.factor} pixels)"
            )

    @property
    def factor(self) -> int:
        """Pixels along one side of a merged visual token."""
        return self.patch * self.merge

    @cached_property
    def table(self) -> np.ndarray:
        """(3, 256) float32: the normalised value of each channel's byte."""
        value = np.arange(256, dtype=np.uint8).astype(np.float32) * self.rescale
        mean = np.array(self.mean, dtype=np.float32)[:, None]
        std = np.array(self.std, dtype=np.float32)[:, None]
        return ((value[None] - mean) / std).astype(np.float32)

    def target_size(self, height: int, width: int) -> tuple[int, int]:
        """(height, width) a frame is resized to; raises FrameError for unusable shapes."""
        if height < 1 or width < 1:
            raise FrameError(f"a frame of {width} x {height} pixels is empty")
        if max(height, width) / min(height, width) > MAX_ASPECT:
            raise FrameError(f"a frame of {width} x {height} pixels is too narrow")
        factor = self.factor
        h = max(factor, round(height / factor) * factor)
        w = max(factor, round(width / factor) * factor)
        if h * w < self.min_pixels:
            beta = math.sqrt(self.min_pixels / (height * width))
            h = math.ceil(height * beta / factor) * factor
            w = math.ceil(width * beta / factor) * factor
        if h * w > self.pixel_budget:
            beta = math.sqrt(height * width / self.pixel_budget)
            h = max(factor, math.floor(height / beta / factor) * factor)
            w = max(factor, math.floor(width / beta / factor) * factor)
        while h * w > self.pixel_budget:  # one side was held up at the factor
            h, w = (h, w - factor) if w >= h else (h - factor, w)
        return h, w


SETTINGS_FILES: Final = (
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
)
_FIXED: Final = {  # what the steps here are, where a file states them
    "do_resize": (True,),
    "do_rescale": (True,),
    "do_normalize": (True,),
    "do_center_crop": (False,),
    "do_pad": (False,),
    "resample": (3, "bicubic"),
}

_NUMBERS = ("longest_edge", "shortest_edge", "max_pixels", "min_pixels", "patch_size", "merge_size",
            "temporal_patch_size", "rescale_factor")
_MAY_BE_ZERO = ("shortest_edge", "min_pixels")


def read_settings(
    folder: Path,
    vision: Any,
    pixel_budget: int | None = None,
    *,
    mean: Sequence[float] = (0.5, 0.5, 0.5),
    std: Sequence[float] = (0.5, 0.5, 0.5),
) -> PixelSettings:
    """Read the settings of the checkpoint in ``folder``; ``vision`` is its vision config.

    They lie in ``preprocessor_config.json`` and ``video_preprocessor_config.json``, or as
    ``image_processor`` and ``video_processor`` in ``processor_config.json``, which then counts.
    The video's win over the image's. A ``size`` there gives the fewest and most pixels of a frame
    (``shortest_edge``, ``longest_edge``); without an explicit budget the latter counts only below
    DEFAULT_PIXEL_BUDGET, since Qwen's own checkpoints allow 16 million pixels, and the former only
    within the budget. mean, std: of the family, where none are stated. Raises CheckpointError.
    """
    raw, source = _stated_settings(folder)
    for key, values in _FIXED.items():
        if raw.get(key) is not None and raw[key] not in values:
            raise CheckpointError(
                f"{source} states {key} {raw[key]!r}, which is not implemented "
                f"(implemented: {values[0]!r})"
            )
    size = raw.get("size", {})
    if not isinstance(size, dict) or {"height", "width"} & set(size):
        raise CheckpointError(f"{source} states the size {size!r}: not a range of pixels")
    size = {key: value for key, value in size.items() if value is not None}
    _check_numbers(raw, size, source)
    most = size.get("longest_edge", raw.get("max_pixels", DEFAULT_PIXEL_BUDGET))
    least = size.get("shortest_edge", raw.get("min_pixels", 0))
    budget = min(most, DEFAULT_PIXEL_BUDGET) if pixel_budget is None else pixel_budget
    settings = PixelSettings(
        patch=raw.get("patch_size", vision.patch_size),
        merge=raw.get("merge_size", vision.spatial_merge_size),
        temporal=raw.get("temporal_patch_size", vision.temporal_patch_size),
        mean=tuple(raw.get("image_mean", mean)),
        std=tuple(raw.get("image_std", std)),
        rescale=raw.get("rescale_factor", 1 / 255.0),
        pixel_budget=int(budget),
        min_pixels=int(least) if least <= budget else 0,
        source=source,
    )
    if (settings.patch, settings.merge, settings.temporal) != (
        vision.patch_size,
        vision.spatial_merge_size,
        vision.temporal_patch_size,
    ):
        raise CheckpointError(f"{folder}: the preprocessor's patch sizes differ from the model's")
    return settings


def _check_numbers(raw: dict[str, Any], size: dict[str, Any], source: str) -> None:
    """Refuse what is stated but cannot be computed with. Raises CheckpointError."""
    for key in ("image_mean", "image_std"):
        value = raw.get(key)
        if key in raw and not (isinstance(value, list) and len(value) == 3 and all(
            _is_number(one) for one in value) and (key == "image_mean" or min(value) > 0)):
            raise CheckpointError(f"{source} states {key} {value!r}: not one number for each of "
                                  "red, green and blue")
    for key, value in {**raw, **size}.items():
        if key in _NUMBERS and not (
            _is_number(value) and (value > 0 or value == 0 and key in _MAY_BE_ZERO)
        ):
            raise CheckpointError(f"{source} states {key} {value!r}: not a number above 0")


def _is_number(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)


def _stated_settings(folder: Path) -> tuple[dict[str, Any], str]:
    """Return all stated settings, the video's over the image's, and the files they are from.

    What is null is not stated.
    """
    files = {name: read_json(folder / name) for name in SETTINGS_FILES if (folder / name).exists()}
    nested = files.get(SETTINGS_FILES[0], {})
    bare = {"image_mean", "image_std"} & set(nested)
    if bare:
        raise CheckpointError(f"{folder / SETTINGS_FILES[0]} states {min(bare)} by itself: there, "
                              "settings stand below image_processor and video_processor")
    raw: dict[str, Any] = {}
    used = []
    for key, name in zip(("image_processor", "video_processor"), SETTINGS_FILES[1:], strict=True):
        part, origin = nested.get(key), SETTINGS_FILES[0]
        if part is not None and not isinstance(part, dict):
            raise CheckpointError(f"{folder / origin} states {key} {part!r}: not an object")
        if part is None:
            part, origin = files.get(name), name
            misplaced = {"image_processor", "video_processor"} & set(part or ())
            if misplaced:
                raise CheckpointError(
                    f"{folder / name} states {min(misplaced)}: only {SETTINGS_FILES[0]} holds "
                    f"settings below that key, {name} holds them itself")
        if part:
            raw.update({name: value for name, value in part.items() if value is not None})
            used.append(str(folder / origin))
    return raw, " and ".join(dict.fromkeys(used))


def resize(frame: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bicubic resize of a uint8 (H, W, 3) frame; the frame itself where the size is right."""
    if frame.shape[:2] == (height, width):
        return frame
    from PIL import Image

    image = Image.fromarray(np.ascontiguousarray(frame))
    return np.asarray(image.resize((width, height), resample=Image.Resampling.BICUBIC))


def _resized(
    first: np.ndarray, second: np.ndarray, height: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Resize both frames of a group, one beside the other: PIL lets other threads run meanwhile."""
    if first.shape[:2] == (height, width):
        return first, second
    try:
        other = _beside().submit(resize, first, height, width)
    except RuntimeError:  # the interpreter is ending and starts nothing any more
        return resize(first, height, width), resize(second, height, width)
    newest = resize(second, height, width)
    return other.result(), newest


@lru_cache(maxsize=1)
def _beside() -> ThreadPoolExecutor:
    """Return the thread that resizes one frame of a group while the caller resizes the other."""
    return ThreadPoolExecutor(1, thread_name_prefix="resize")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_beside.cache_clear)  # a child has no thread but its own


def check_frame(frame: Any) -> np.ndarray:
    """Return ``frame`` if it is a uint8 (H, W, 3) array, else raise FrameError."""
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8:
        kind = frame.dtype if isinstance(frame, np.ndarray) else type(frame).__name__
        raise FrameError(f"a frame must be a uint8 array, not {kind}")
    if frame.ndim != 3 or frame.shape[2] != 3:
        raise FrameError(f"a frame must have the shape (H, W, 3), not {frame.shape}")
    return frame


def patches(
    frames: Sequence[np.ndarray], settings: PixelSettings
) -> tuple[np.ndarray, tuple[int, int]]:
    """Patches of one group of two frames of the same size.

    frames: two uint8 (H, W, 3) RGB arrays. Returns float32 (h*w, 3*2*patch*patch) with the
    merged token's patches side by side, and the patch grid (h, w). Raises FrameError.
    """
    return cut(resized(frames, settings), settings)


def resized(frames: Sequence[np.ndarray], settings: PixelSettings) -> np.ndarray:
    """Two frames at the size the model sees them, uint8 (2, height, width, 3).

    frames: two uint8 (H, W, 3) RGB arrays. Raises FrameError.
    """
    return np.stack(_resized(*frames, *resized_size(frames, settings)))


def resized_size(frames: Sequence[np.ndarray], settings: PixelSettings) -> tuple[int, int]:
    """Return the (height, width) at which the model sees two frames; raises FrameError."""
    if len(frames) != settings.temporal:
        raise FrameError(f"a group has {settings.temporal} frames, not {len(frames)}")
    first, second = (check_frame(frame) for frame in frames)
    if first.shape != second.shape:
        raise FrameError(f"the frames of a group differ in size: {first.shape}, {second.shape}")
    return settings.target_size(*first.shape[:2])


def cut(pair: np.ndarray, settings: PixelSettings) -> tuple[np.ndarray, tuple[int, int]]:
    """Patches of two resized frames, and the patch grid, as ``patches`` gives them."""
    p, m = settings.patch, settings.merge
    h, w = pair.shape[1] // p, pair.shape[2] // p
    tiles = pair.reshape(2, h // m, m, p, w // m, m, p, 3)
    # -> (h/m, w/m, m, m, channel, time, p, p), while still bytes
    tiles = np.ascontiguousarray(tiles.transpose(1, 4, 2, 5, 7, 0, 3, 6)).reshape(h * w, 3, -1)
    out = np.empty(tiles.shape, dtype=np.float32)
    for channel in range(3):
        np.take(settings.table[channel], tiles[:, channel], out=out[:, channel], mode="clip")
    return out.reshape(h * w, -1), (h, w)
