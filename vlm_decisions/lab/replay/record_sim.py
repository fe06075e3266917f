"""Record the simulated desk as a bag with its truth, as fast as it can be drawn.

Scenes (segments of a script) are independent of each other. Ten scenes are recorded at one desk.
Then there are no images for a second, and the next scene is at another desk: no camera sees a cut
as a motion.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from tqdm import tqdm

from ...frames import NS
from ...sim.script import Script, Segment, random_state
from ...sim.world import World
from ...sources.bag_writer import BagWriter
from ...sources.bags import STRING
from ...sources.messages import COMPRESSED, IMAGE

IMAGE_TOPIC = "/image"
COMPRESSED_TOPIC = "/image/compressed"
TRUTH_TOPIC = "/truth"
FRAME_ID = "camera"

PER_DESK = 10
SEGMENT_S = (2.0, 4.0)
PAUSE_S = 1.0
FIRST_NS = 1_700_000_000 * NS

#: Seeds of desks that the embedded model was not trained on.
SEEDS_FROM = 77_000_000


def record_sim(
    out: str | Path,
    segments: int = 100,
    *,
    seed: int = 0,
    facts: tuple[str, ...] | None = None,
    width: int = 640,
    height: int = 480,
    fps: float = 16.0,
    compressed: bool = True,
) -> dict[str, Any]:
    """Write a bag of `segments` scenes of 2 to 4 s, with a progress bar; return what it holds.

    Args:
        out: folder to write.
        segments: number of scenes.
        seed: of the desks.
        facts: ids of the questions whose truth is recorded; None for all.
        width: of the images.
        height: of the images.
        fps: images a second.
        compressed: JPEG images, else raw ones.

    Raises:
        ValueError, BagError: arguments that are not valid, or a folder that cannot be written.
    """
    if not 1 <= segments <= 10_000:
        raise ValueError(f"segments must be 1 to 10000, not {segments}")
    if not 1.0 <= fps <= 60.0:
        raise ValueError(f"fps must be 1 to 60, not {fps:g}")
    known = World(0, Script.demo(0)).truth(0.0)
    for name in facts or ():
        if name not in known:
            raise ValueError(f"the simulated desk has no fact '{name}' (it has: "
                             f"{', '.join(known)})")
    images, done, last_ns = 0, 0, FIRST_NS
    with BagWriter(out) as bag, tqdm(total=segments, unit="scene", disable=None) as bar:
        for number, stamp_ns, world, t_s in _frames(segments, seed, fps):
            bar.update(number - done)
            rgb = world.render(t_s, width, height)
            if compressed:
                bag.write(COMPRESSED_TOPIC, COMPRESSED, stamp_ns, _jpeg(rgb, stamp_ns))
            else:
                bag.write(IMAGE_TOPIC, IMAGE, stamp_ns, _raw(rgb, stamp_ns))
            told = {name: answer for name, answer in world.truth(t_s).items()
                    if facts is None or name in facts}
            text = json.dumps({"stamp_ns": stamp_ns, "facts": told, "segment": number})
            bag.write(TRUTH_TOPIC, STRING, stamp_ns, {"data": text})
            images, done, last_ns = images + 1, number, stamp_ns
        bar.update(segments - done)
    return {"segments": segments, "images": images, "desks": -(-segments // PER_DESK),
            "duration_s": (last_ns - FIRST_NS) / NS}


def desk(seed: int, number: int, scenes: int) -> World:
    """Return a desk of a recording by its number, with `scenes` random scenes."""
    own = SEEDS_FROM + 1000 * seed + number
    rng = np.random.default_rng([own, 9])
    found = []
    for _ in range(scenes):
        length = float(rng.uniform(*SEGMENT_S))
        found.append(Segment(length, random_state(rng, length)))
    return World(own, Script(tuple(found)))


def _frames(segments: int, seed: int, fps: float) -> Iterator[tuple[int, int, World, float]]:
    """Yield (scene, stamp, desk, time of the desk) for each image."""
    begin_ns, scene = FIRST_NS, 0
    while scene < segments:
        count = min(PER_DESK, segments - scene)
        world = desk(seed, scene // PER_DESK, count)
        # The script repeats after its end, so the last image is before it.
        images = int((world.duration_s - 1e-6) * fps) + 1
        for k in range(images):
            t_s = k / fps
            yield scene + world.script.at(t_s)[0], begin_ns + round(t_s * NS), world, t_s
        begin_ns += round((images / fps + PAUSE_S) * NS)
        scene += count


def _header(stamp_ns: int) -> dict[str, Any]:
    sec, nanosec = divmod(stamp_ns, NS)
    return {"stamp": {"sec": sec, "nanosec": nanosec}, "frame_id": FRAME_ID}


def _jpeg(rgb: np.ndarray, stamp_ns: int) -> dict[str, Any]:
    ok, data = cv2.imencode(".jpg", rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, 90])
    assert ok
    return {"header": _header(stamp_ns), "format": "rgb8; jpeg compressed bgr8",
            "data": data.reshape(-1)}


def _raw(rgb: np.ndarray, stamp_ns: int) -> dict[str, Any]:
    height, width = rgb.shape[:2]
    return {"header": _header(stamp_ns), "height": height, "width": width, "encoding": "rgb8",
            "is_bigendian": 0, "step": 3 * width, "data": np.ascontiguousarray(rgb).reshape(-1)}
