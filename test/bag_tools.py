"""Small bags for tests, and ways to damage them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import cv2
import numpy as np

from vlm_decisions.frames import NS
from vlm_decisions.sources.bag_writer import BagWriter
from vlm_decisions.sources.bags import STRING
from vlm_decisions.sources.messages import COMPRESSED, IMAGE

START_NS = 1_700_000_000 * NS
SIZE = (48, 64)


def picture(k: int) -> np.ndarray:
    """Return the `k`-th image: sharp noise, shifted."""
    noise = np.random.default_rng(3).integers(0, 256, (*SIZE, 3), dtype=np.uint8)
    return np.roll(noise, k, axis=1)


def header(stamp_ns: int) -> dict:
    return {"stamp": {"sec": stamp_ns // NS, "nanosec": stamp_ns % NS}, "frame_id": "cam"}


def image(k: int, stamp_ns: int) -> dict:
    rgb = picture(k)
    return {"header": header(stamp_ns), "height": SIZE[0], "width": SIZE[1], "encoding": "rgb8",
            "is_bigendian": 0, "step": 3 * SIZE[1], "data": rgb.reshape(-1)}


def jpeg(k: int, stamp_ns: int) -> dict:
    data = cv2.imencode(".png", picture(k)[..., ::-1])[1].reshape(-1)
    return {"header": header(stamp_ns), "format": "bgr8; png compressed bgr8", "data": data}


def make_bag(path: Path, images: int = 8, *, topic: str = "/image", compressed: bool = False,
             compression: str = "", truth=None, fps: float = 8.0, stamped: bool = True) -> Path:
    """Write a bag; `truth(k)` gives the facts of image `k`, or (facts, segment)."""
    with BagWriter(path, compression=compression) as bag:
        for k in range(images):
            t_ns = START_NS + round(k * NS / fps)
            stamp_ns = t_ns if stamped else 0
            if compressed:
                bag.write(topic, COMPRESSED, t_ns, jpeg(k, stamp_ns))
            else:
                bag.write(topic, IMAGE, t_ns, image(k, stamp_ns))
            if truth is not None:
                told = truth(k)
                facts, segment = told if isinstance(told, tuple) else (told, None)
                row = {"stamp_ns": t_ns, "facts": facts}
                if segment is not None:
                    row["segment"] = segment
                bag.write("/truth", STRING, t_ns, {"data": json.dumps(row)})
    return path


def storage(bag: Path) -> Path:
    """Return the bag's one storage file."""
    return next(file for file in bag.iterdir() if file.name != "metadata.yaml")


def copied(source: Path, target: Path) -> Path:
    """Copy material, writable."""
    if source.is_dir():
        shutil.copytree(source, target, copy_function=shutil.copyfile)
        for path in [target, *target.rglob("*")]:
            path.chmod(0o755)
    else:
        shutil.copyfile(source, target)
    return target
