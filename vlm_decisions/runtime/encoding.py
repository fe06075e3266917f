"""The vision encoder for all views: nothing is encoded twice, and in batches where that pays.

With reuse, each place that views look at has an encoder of its own, which encodes what changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import cv2
import numpy as np

from ..frames import Frame, Group
from ..motion import CELL, CodedMotion, over_patches
from ..reuse import VECTORS, ReuseSettings, ReuseStats
from ..views import View, ViewError
from .engine_protocol import EngineLike, ReusingLike
from .heads import Pooled
from .statistics import Meter

#: Groups of a camera's region whose features are kept for other views of it.
KEPT_GROUPS = 4

#: Of so many rounds with several groups, one goes the way that was slower so far.
RETRY_ROUNDS = 64

#: Weight of the newest measurement.
NEWEST = 0.2


class Encoding:
    """Encodes the groups of all views. Belongs to the engine's thread.

    `batch_gain`: how many times as fast a group is encoded among others as by itself on this
    device; 1 before both were measured. Groups that wait together are encoded in one batch while
    that is above 1.
    """

    def __init__(
        self, engine: EngineLike, meter: Meter, reuse: ReuseSettings | None = None
    ) -> None:
        """Measure from now on."""
        self._engine, self._meter, self._reuse = engine, meter, reuse or ReuseSettings()
        self._encoders: dict[tuple, ReusingLike] = {}  # of each place
        self._motions: dict[tuple, CodedMotion] = {}  # at the first frame of the group before
        self._kept: dict[tuple, deque[tuple[tuple[Frame, Frame], Pooled]]] = {}
        self._alone_s: float | None = None  # seconds of a group by itself, and among others
        self._together_s: float | None = None
        self._rounds = 0

    @property
    def batch_gain(self) -> float:
        """How many times as fast a group is encoded among others."""
        if not self._alone_s or not self._together_s:
            return 1.0
        return self._alone_s / self._together_s

    @property
    def reuse(self) -> ReuseStats | None:
        """What was reused so far, in all; None where reuse is off."""
        if not self._reuse.on:
            return None
        encoders = list(self._encoders.values())  # another thread may read this
        return ReuseStats.of([encoder.stats for encoder in encoders])

    def idle(self) -> bool:
        """Encode in dead time what would have to be encoded in full next; whether there was any."""
        return any(encoder.idle() for encoder in self._encoders.values())

    def encode(self, groups: Sequence[tuple[View, Group]]) -> list[Pooled | Exception]:
        """Return the features of each group, or what the engine raised for it."""
        found: list[Pooled | Exception | None] = [self._known(*one) for one in groups]
        wanted: dict[tuple, list[int]] = {}  # the same frames and region: one of them is encoded
        for index, (view, group) in enumerate(groups):
            if found[index] is None:
                wanted.setdefault((*_place(view), *map(id, group.frames)), []).append(index)
        batches: dict[tuple, list[tuple[list[int], list[np.ndarray]]]] = {}
        for indices in wanted.values():
            view, group = groups[indices[0]]
            frames = group.frames[-self._engine.n_frames :]
            try:
                images = [self._cut(view, frame) for frame in frames]
            except ViewError as error:
                for index in indices:
                    found[index] = error
                continue
            if self._reuse.on:
                found_here = self._changed(view, group, images)
                for index in indices:
                    found[index] = found_here
                if not isinstance(found_here, Exception):
                    self._keep(view, group, found_here)
            else:
                kind = images[0].shape, view.pixel_budget
                batches.setdefault(kind, []).append((indices, images))
        for (_, budget), jobs in batches.items():
            outcomes = self._run([images for _, images in jobs], budget)
            for (indices, _), outcome in zip(jobs, outcomes, strict=True):
                for index in indices:
                    found[index] = outcome
                if not isinstance(outcome, Exception):
                    self._keep(*groups[indices[0]], outcome)
        return found

    def share(self, views: Sequence[View]) -> None:
        """Note which views there are: features are kept for others of the same place only."""
        places = [_place(view) for view in views]
        self._encoders = {
            place: encoder for place, encoder in self._encoders.items() if place in places
        }
        self._motions = {place: one for place, one in self._motions.items() if place in places}
        self._kept = {
            place: self._kept.get(place, deque(maxlen=KEPT_GROUPS))
            for place in places
            if places.count(place) > 1
        }

    def _changed(
        self, view: View, group: Group, images: Sequence[np.ndarray]
    ) -> Pooled | Exception:
        """Return the features of a group of which what changed was encoded."""
        place = _place(view)
        try:
            if place not in self._encoders:
                sized = {} if view.pixel_budget is None else {"pixel_budget": view.pixel_budget}
                self._encoders[place] = self._engine.reusing(self._reuse, **sized)
            told = {}
            if self._reuse.mode == VECTORS:
                told["changed"] = self._moved(view, group, images, self._encoders[place])
            with self._meter.modelling("vision"):
                return self._encoders[place].encode(images, **told)
        except Exception as error:
            return error

    def _moved(
        self, view: View, group: Group, images: Sequence[np.ndarray], encoder: ReusingLike
    ) -> np.ndarray:
        """Return which tokens the video says changed since the group before; raises ViewError."""
        first, last = (frame.motion for frame in group.frames)
        if first is None or last is None:
            whose = f"view '{view.name}': " if view.name else ""
            raise ViewError(f"{whose}reuse: vectors needs the motion vectors of a video in H.264, "
                            "and the pictures of this camera have none: take pixels")
        place = _place(view)
        before = self._motions.get(place)
        self._motions[place] = first  # what moves within a group has changed in the next
        if before is not None and before.run != last.run:
            encoder.lost()
        x0, y0, x1, y1 = view.box(*group.frames[-1].size)
        seen = last.since(before)[y0 // CELL : -(-y1 // CELL), x0 // CELL : -(-x1 // CELL)]
        return over_patches(seen, encoder.grid(images))

    def _cut(self, view: View, frame: Frame) -> np.ndarray:
        check_region(view, frame.size, self._engine.token_pixels)
        return view.cut(frame.image)

    def _known(self, view: View, group: Group) -> Pooled | None:
        for frames, features in self._kept.get(_place(view), ()):
            if all(one is other for one, other in zip(frames, group.frames, strict=True)):
                return features
        return None

    def _keep(self, view: View, group: Group, features: Pooled) -> None:
        if _place(view) in self._kept:
            self._kept[_place(view)].append((group.frames, features))

    def _run(
        self, jobs: Sequence[Sequence[np.ndarray]], budget: int | None
    ) -> list[Pooled | Exception]:
        """Encode groups of one size, in one batch where that is faster here."""
        sized = {} if budget is None else {"pixel_budget": budget}
        if len(jobs) > 1:
            self._rounds += 1
            if (self.batch_gain >= 1.0) != (self._rounds % RETRY_ROUNDS == 0):
                try:
                    began = self._meter.timer()
                    with self._meter.modelling("vision", groups=len(jobs)):
                        out = list(self._engine.encode_many(jobs, **sized))
                    each_s = (self._meter.timer() - began) / len(jobs)
                    self._together_s = _mean(self._together_s, each_s)
                    return out
                except Exception:
                    pass  # the one at fault is told when it is encoded by itself
        out = []
        for images in jobs:
            began = self._meter.timer()
            try:
                with self._meter.modelling("vision"):
                    out.append(self._engine.encode(images, **sized))
            except Exception as error:
                out.append(error)
            else:
                self._alone_s = _mean(self._alone_s, self._meter.timer() - began)
        return out


def check_region(view: View, size: tuple[int, int], token: int) -> None:
    """Raise ViewError where a region of pictures of a size (height, width) has no visual token.

    token: pixels of a token's side.
    """
    if not view.region:
        return
    x0, y0, x1, y1 = view.box(*size)
    width, height = x1 - x0, y1 - y0
    seen, thickness = f"{width}x{height}", float(min(width, height))
    if len(view.region) > 4 and thickness >= token:  # a polygon may be a strip across its box
        corners = np.array(view.region, np.float32).reshape(-1, 2) * size[::-1]
        thickness = min(cv2.minAreaRect(corners.astype(np.float32))[1])
        seen = f"a strip of {thickness:.0f}"
    if thickness < token:
        raise ViewError(
            f"view '{view.name}': its region is {seen} pixels of a {size[1]}x{size[0]} "
            f"picture, thinner than a visual token, which is {token} pixels wide", "region")


def _place(view: View) -> tuple:
    return view.camera, view.region, view.pixel_budget


def _mean(before: float | None, new: float) -> float:
    return new if before is None else NEWEST * new + (1 - NEWEST) * before
