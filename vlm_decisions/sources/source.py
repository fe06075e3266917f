"""What `--source` names: a webcam, a network stream, a video file or a bag; of several cameras."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from ..files.listing import listed, there_are
from ..frames import NS
from .bags import STRING, Bag
from .live import is_url, open_stream, open_webcam
from .messages import TRANSPORTS, base_of, topic_of
from .recording import is_bag
from .video import SourceError, VideoFile

__all__ = ["BagImages", "Source", "SourceError", "open_source", "open_sources"]

#: What the camera is called whose views name no image.
IMAGE = "image"


class Source(Protocol):
    """Where frames come from.

    `ended`: no more will come. `shortfall`: after the end, what of it could not be read.
    """

    ended: bool
    shortfall: str

    def next(self, from_s: float = 0.0) -> tuple[np.ndarray, float] | None:
        """Return (uint8 RGB (H, W, 3), time in seconds), of a time from `from_s` on.

        Times of a file begin at 0, those of a live camera are on the steady clock. None where
        there is none: at the end, or of a live camera for now.
        """

    def __iter__(self) -> Iterator[tuple[np.ndarray, float]]:
        """Yield frames to the end."""


def open_source(source: str, *, vectors: bool = False) -> Source:
    """Open `webcam`, `webcam:N`, `/dev/videoN`, a stream's address or a video file.

    Raises SourceError.

    `vectors`: see VideoFile; other sources have none.
    """
    name, colon, index = source.partition(":")
    if source.startswith("file://"):
        raise SourceError(f"{source}: give the path by itself, {source.removeprefix('file://')}")
    if device := re.fullmatch(r"/dev/video(\d+)", source):
        return open_webcam(int(device[1]))
    if is_url(source):
        return open_stream(source)
    if name == "webcam":
        if colon and not index.isdigit():
            raise SourceError(f"{source!r}: a webcam is `webcam` or `webcam:N`, N from 0 on")
        return open_webcam(int(index or 0))
    return VideoFile(source, vectors=vectors)


class BagImages:
    """The images of one topic of a bag as a source.

    Times begin at 0 with `first_ns`, a stamp of the bag, so that topics of one bag keep theirs.
    """

    shortfall = ""

    def __init__(self, path: str | Path, topic: str, first_ns: int, partial: bool = False) -> None:
        """Open the bag; `partial`: see Bag. Raises BagError."""
        self._bag = Bag(path, partial=partial)
        self._frames = self._bag.images(topic)
        self._first_ns = first_ns
        self.ended = False
        told = f"{base_of(topic).rpartition('/')[0]}/truth"
        #: A recording of the simulated desk has its truth beside the images.
        self.simulated = any(one.name == told and one.type == STRING for one in self._bag.topics)

    def next(self, from_s: float = 0.0) -> tuple[np.ndarray, float] | None:
        """Return (uint8 RGB (H, W, 3), seconds), or None at the end. Raises BagError."""
        for frame in self._frames:
            t_s = (frame.stamp_ns - self._first_ns) / NS
            if t_s >= from_s:
                return frame.image, t_s
        self.ended = True
        return None

    def __iter__(self) -> Iterator[tuple[np.ndarray, float]]:
        """Yield what next() returns, from here to the end."""
        while (taken := self.next()) is not None:
            yield taken

    def close(self) -> None:
        """Remove what the bag unpacked."""
        self._bag.close()


def open_sources(
    given: Sequence[str], images: Sequence[str], *, vectors: bool = False,
    topic: str | None = None, partial: bool = False,
) -> dict[str, Source]:
    """Open the source of each image that views are of; `images`: their names, empty for `image`.

    `given`: `IMAGE=SOURCE` for each, or one SOURCE without a name: that of the only image, or a bag
    that holds all. `vectors`: see VideoFile. `topic`: of a bag with several image topics, for the
    image whose name is empty. `partial`: read what is whole of a bag that is cut off. Raises
    SourceError, BagError.
    """
    wanted = {image or IMAGE: image for image in images}
    named: dict[str, str] = {}
    for text in given:
        image, equals, source = text.partition("=")
        if not equals or image not in wanted:
            named_so = equals and not is_url(text) and not Path(text).exists()
            if named_so and len(given) > 1:
                raise SourceError(f"--source {text}: no view is of the image {image} "
                                  f"({there_are(wanted, image)})")
            image, source = "", text
        if image in named:
            raise SourceError(f"--source {text}: {image or 'a source without a name'} is there "
                              f"twice; each camera has one: {_usage(wanted)}")
        named[image] = source
    whole = named.pop("", None)
    missing = [image for image in wanted if image not in named]
    if whole is None and missing:
        raise SourceError(f"no --source is of the image {', '.join(missing)}: {_usage(missing)}")
    if whole is not None and not missing:
        raise SourceError(f"--source {whole}: every image has a source of its own")
    opened: dict[str, Source] = {}
    try:
        for image, source in named.items():
            opened[wanted[image]] = open_source(source, vectors=vectors)
        if whole is not None:
            opened |= _whole(whole, [wanted[image] for image in missing], vectors, topic, partial)
            topic = partial = None  # it has them
        if topic or partial:
            raise SourceError(f"{'--topic' if topic else '--partial'} goes with a bag as the only "
                              "--source")
    except BaseException:
        close(opened.values())
        raise
    return opened


def _whole(source: str, images: Sequence[str], vectors: bool, topic: str | None,
           partial: bool) -> dict[str, Source]:
    """Return the source of each image out of one that stands for all."""
    if not Path(source).exists() or not is_bag(source):
        if topic or partial:
            raise SourceError(f"--source {source} is no bag: {'--topic' if topic else '--partial'} "
                              "goes with one")
        if len(images) > 1:
            raise SourceError(f"--source {source} is one camera, and the views are of "
                              f"{len(images)}: {_usage([image or IMAGE for image in images])}")
        return {images[0]: open_source(source, vectors=vectors)}
    if topic and "" not in images:
        raise SourceError(f"--topic {topic}: the views name their topics themselves: "
                          f"{listed(images)}")
    with Bag(source, partial=partial) as bag:
        topics = {image: bag.image_topic(_sent(bag, image or topic)).name for image in images}
        first_ns = min(next(bag.stamps(name)) for name in topics.values())
    return {image: BagImages(source, name, first_ns, partial) for image, name in topics.items()}


def _sent(bag: Bag, image: str | None) -> str | None:
    """Return the topic of a bag that holds an image topic's pictures, as `/image/compressed`."""
    if image is None:
        return None
    names = {topic.name for topic in bag.topics}
    return next((name for name in (topic_of(image, sent) for sent in TRANSPORTS) if name in names),
                image)


def simulated(sources: Iterable[Source]) -> bool:
    """Tell whether all sources are recordings of the simulated desk."""
    return all(getattr(source, "simulated", False) for source in sources)


def _usage(images: Sequence[str]) -> str:
    return " ".join(f"--source {image}=..." for image in images)


def close(sources: Iterable[Source]) -> None:
    """Let live cameras and bags go."""
    for source in sources:
        end = getattr(source, "close", None)
        if end is not None:
            end()
