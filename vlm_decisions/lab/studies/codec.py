"""What a video encoder says about its pictures: motion vectors, key frames, prediction errors.

The rule of CodecSight: a patch is dynamic where the longest motion vector of the blocks that
overlap it reaches a threshold, or where it was dynamic before in the same group of pictures (GOP);
a key frame is dynamic as a whole and begins a new one; a visual token is kept where any of its
patches is dynamic. Residual rescue adds patches whose pixels differ from the motion-compensated
picture before: the reconstruction error stands for the residual, which decoders do not give.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import cv2
import numpy as np

from ...motion import over_patches

CELL: Final = 4  # pixels along one side of the smallest block


@dataclass(frozen=True)
class Coded:
    """One decoded frame and what its coding says.

    key: an I frame. motion: float32 (H/4, W/4, 2), each cell's vector in source pixels, 0 where
    there is none (intra blocks). image: uint8 (H, W, 3) RGB.
    """

    key: bool
    motion: np.ndarray
    image: np.ndarray

    @property
    def length(self) -> np.ndarray:
        """Length of each cell's vector, source pixels."""
        return np.sqrt((self.motion**2).sum(axis=-1))


def coded(frames: Sequence[np.ndarray], fps: float, gop: int, crf: int = 23) -> Iterator[Coded]:
    """Encode uint8 RGB frames as H.264 with one key frame in ``gop``, and decode them again."""
    import av

    data = io.BytesIO()
    height, width = frames[0].shape[:2]
    with av.open(data, "w", format="mp4") as out:
        stream = out.add_stream("libx264", rate=Fraction(fps).limit_denominator(1000))
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.options = {"preset": "veryfast", "crf": str(crf), "bf": "0", "refs": "1",
                          "g": str(gop), "keyint_min": str(gop), "sc_threshold": "0"}  # fmt: skip
        for frame in frames:
            out.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        out.mux(stream.encode(None))
    data.seek(0)
    with av.open(data) as source:
        stream = source.streams.video[0]
        stream.codec_context.options = {"flags2": "+export_mvs"}
        stream.codec_context.thread_count = 1
        for frame in source.decode(stream):
            found = frame.side_data.get("MOTION_VECTORS")
            blocks = found.to_ndarray() if found is not None else None
            yield Coded(bool(frame.key_frame), _cells(blocks, height, width),
                        frame.to_ndarray(format="rgb24"))  # fmt: skip


def _cells(blocks: np.ndarray | None, height: int, width: int) -> np.ndarray:
    """Vectors of blocks, as PyAV gives them, on a grid of cells; the longest where they overlap."""
    out = np.zeros((-(-height // CELL), -(-width // CELL), 2), np.float32)
    if blocks is None or not len(blocks):
        return out
    scale = np.maximum(blocks["motion_scale"], 1).astype(np.float32)
    vector = np.stack([blocks["motion_x"] / scale, blocks["motion_y"] / scale], axis=-1)
    order = np.argsort((vector**2).sum(axis=-1), kind="stable")  # the longest is written last
    for index in order:
        block = blocks[index]
        w, h = int(block["w"]), int(block["h"])
        x, y = int(block["dst_x"]) - w // 2, int(block["dst_y"]) - h // 2  # dst is the centre
        out[max(0, y // CELL) : -(-(y + h) // CELL), max(0, x // CELL) : -(-(x + w) // CELL)] = (
            vector[index]
        )
    return out


def prediction_error(before: np.ndarray, frame: Coded) -> np.ndarray:
    """Mean absolute difference, 0 to 1, of each cell from the motion-compensated frame before."""
    height, width = before.shape[:2]
    motion = np.repeat(np.repeat(frame.motion, CELL, 0), CELL, 1)[:height, :width]
    y, x = np.mgrid[:height, :width].astype(np.float32)
    # ffmpeg's vector points from the destination to its source.
    seen = cv2.remap(before, x + motion[..., 0], y + motion[..., 1], cv2.INTER_LINEAR,
                     borderMode=cv2.BORDER_REPLICATE)  # fmt: skip
    error = cv2.absdiff(seen, frame.image).mean(axis=-1, dtype=np.float32) / 255
    return cv2.resize(error, frame.motion.shape[1::-1], interpolation=cv2.INTER_AREA)


class GopMask:
    """Which visual tokens are dynamic, frame by frame."""

    def __init__(self, grid: tuple[int, int], merge: int, tau: float,
                 rescue: float | None = None) -> None:
        """Take the grid of visual tokens, patches along a token's side, and the thresholds.

        tau: pixels of the source. rescue: prediction error, 0 to 1, None for none.
        """
        self._patches = grid[0] * merge, grid[1] * merge
        self._merge, self._tau, self._rescue = merge, tau, rescue
        self._dynamic = np.ones(self._patches, bool)
        self._before: np.ndarray | None = None

    def push(self, frame: Coded) -> np.ndarray:
        """Take the next frame of the video; return the tokens kept of it, bool (rows, columns)."""
        if frame.key:
            self._dynamic = np.zeros(self._patches, bool)  # the I frame itself does not count
            now = np.ones(self._patches, bool)
        else:
            moved = over_patches(frame.length, self._patches) >= self._tau
            if self._rescue is not None and self._before is not None:
                error = prediction_error(self._before, frame)
                moved |= over_patches(error, self._patches) >= self._rescue
            self._dynamic |= moved
            now = self._dynamic
        self._before = frame.image
        rows, columns = (size // self._merge for size in self._patches)
        return now.reshape(rows, self._merge, columns, self._merge).any(axis=(1, 3))
