"""Bags as a camera: images and the truth of a recording, from every kind of bag.

    for frame in read_images("my_bag"): ...

Reads rosbag2 folders (mcap and sqlite3, split, with message or file compression, with or without
metadata.yaml), single storage files, and ROS 1 bags. Anything that cannot be read whole is a
BagError; nothing yields less than the bag declares without an error.
"""

from __future__ import annotations

import io
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml

from ..files.listing import listed, nearest
from ..frames import Frame
from .bag_files import (
    ZSTD,
    BagError,
    Raw,
    StorageFile,
    Topic,
    check_count,
    faults,
    file_kind,
    merged,
    open_file,
    unpack,
)
from .images import FULL_RANGE, ImageError
from .messages import DEFINITIONS, TRANSPORT_BY_TYPE, PictureReader, head_of

__all__ = ["Bag", "BagError", "Topic", "read_images"]

IMAGES = tuple(TRANSPORT_BY_TYPE)
STRING = "std_msgs/msg/String"
MAX_DELAY = 64
"""A video's packets after which its picture has come; B frames need about three."""

SUFFIXES = (".mcap", ".db3", ".mcap.zstd", ".db3.zstd")


class Bag:
    """A bag, open for reading. Close it, or use it in a `with` (file compression unpacks to disk).

    `topics` lists what is there. Raises BagError.
    """

    def __init__(self, path: str | Path, *, partial: bool = False) -> None:
        """Find and open the files of the bag.

        `path`: a folder with rosbag2 storage files, one such file, or a ROS 1 bag. `partial`:
        read what is whole of a file that is cut off, and of a bag that misses some.
        """
        self.path = Path(path)
        self._partial = partial
        self._unpacked: tempfile.TemporaryDirectory | None = None
        self._metadata: dict[str, Any] | None = None
        if not self.path.exists():
            raise BagError(f"{self.path}: there is no such bag")
        try:
            self._files = [self._open(file) for file in self._storage()]
            self.topics = merged([file.topics() for file in self._files])
        except BaseException:
            self.close()
            raise
        if not self.topics and not self._declared():
            raise BagError(f"{self.path}: the bag is empty: it holds no topic")

    def messages(self, topics: Collection[str]) -> Iterator[Raw]:
        """Yield the undecoded messages of these topics, file after file.

        Raises BagError: also at the end, if fewer were read than the bag declares, and where the
        messages of a topic are not those of ROS.
        """
        for name in topics:
            encoding = self.topic(name).encoding
            if encoding not in ("cdr", "ros1"):
                raise BagError(f"{self.path}: {name} is serialized as {encoding!r}; only ROS "
                               "messages (cdr, ros1) can be read")
        counts: Counter[str] = Counter()
        for file in self._files:
            for raw in file.messages(topics):
                counts[raw.topic] += 1
                if raw.data.startswith(ZSTD) and self.topic(raw.topic).encoding == "cdr":
                    # No CDR message begins so: it is compressed by itself.
                    raw = Raw(raw.topic, raw.log_ns, self._decompressed(raw, counts[raw.topic]))
                yield raw
        for name, declared in self._declared().items():
            if name in topics and not self._partial:
                check_count(self.path, f"metadata.yaml: {name}", declared, counts[name])

    def decode(self, raw: Raw, number: int) -> Any:
        """Return a message's fields; `number` (from 1) names it in errors. Raises BagError."""
        topic = self.topic(raw.topic)
        try:
            store = _typestore(topic.encoding)
            if topic.encoding == "ros1":
                return store.deserialize_ros1(raw.data, topic.type)
            return store.deserialize_cdr(raw.data, topic.type)
        except Exception as error:  # damaged data makes it raise anything
            raise BagError(f"{self.path}: message {number} of {topic.name} is damaged: "
                           f"{str(error) or type(error).__name__}") from error

    def to_cdr(self, raw: Raw) -> bytes:
        """Return a message as ROS 2 serializes it. Raises BagError."""
        topic = self.topic(raw.topic)
        if topic.encoding == "cdr":
            return raw.data
        with faults(self.path):
            # By ROS 2's definitions: their headers have no `seq`.
            return bytes(_typestore("cdr").ros1_to_cdr(raw.data, topic.type))

    def topic(self, name: str) -> Topic:
        """Return a topic. Raises BagError that lists those there are."""
        for topic in self.topics:
            if topic.name == name:
                return topic
        near = nearest(name, [topic.name for topic in self.topics])
        meant = f" (did you mean {near}?)" if near else ""
        raise BagError(f"{self.path}: there is no topic {name}{meant}; there are: {self._listed()}")

    def image_topic(self, name: str | None = None) -> Topic:
        """Return the topic of images, `name` where there are several. Raises BagError."""
        if name is not None:
            topic = self.topic(name)
            if topic.type not in IMAGES:
                raise BagError(f"{self.path}: {name} holds no images but {topic.type}; image "
                               f"topics: {self._listed(IMAGES)}")
            return topic
        found = [topic for topic in self.topics if topic.type in IMAGES]
        if not found:
            raise BagError(f"{self.path}: the bag holds no images; its topics: {self._listed()}")
        filled = [topic for topic in found if topic.count != 0]
        if len(filled) > 1:
            raise BagError(f"{self.path}: the bag holds several image topics, choose one: "
                           f"{self._listed(IMAGES)}")
        return filled[0] if filled else found[0]

    def images(self, topic: str | None = None, *, stamps: str = "header",
               value_range: tuple[int, int] = FULL_RANGE) -> Iterator[Frame]:
        """Yield the images as frames, `received_ns` being their time of recording.

        `stamps`: `header`, or `arrival` for the time of recording. `value_range`: of 16-bit images,
        the values that become 0 and 255. Of a video, pictures that miss what they refer to (before
        the first keyframe, after a lost packet) are left out. Raises BagError for the first image
        that cannot be decoded, and if there is none at all.
        """
        if stamps not in ("header", "arrival"):
            raise ValueError(f"stamps must be header or arrival, not {stamps!r}")
        chosen = self.image_topic(topic)
        reader, shown, left_out = PictureReader(value_range=value_range), 0, ""
        heads: dict[int, tuple[str, int]] = {}  # frame id and time of recording, by stamp
        for number, (raw, msg, stamp_ns) in enumerate(self._stamped(chosen, stamps), 1):
            heads[stamp_ns] = head_of(msg)[1], raw.log_ns
            try:
                pictures = reader.read(msg, stamp_ns)
            except ImageError as error:
                if error.cause == "video":
                    left_out = str(error)
                    continue
                raise BagError(f"{self.path}: image {number} of {chosen.name}: {error}") from error
            for rgb, of_ns in pictures:
                shown += 1
                yield Frame(rgb, of_ns, *heads[of_ns])
            if len(heads) > MAX_DELAY:
                del heads[next(iter(heads))]
        try:
            pictures = reader.rest()
        except ImageError as error:
            pictures, left_out = [], str(error)
        for rgb, of_ns in pictures:
            shown += 1
            yield Frame(rgb, of_ns, *heads[of_ns])
        if not shown:
            raise BagError(f"{self.path}: {chosen.name} holds no picture that can be decoded: "
                           f"{left_out}")

    def stamps(self, topic: str | None = None, *, stamps: str = "header") -> Iterator[int]:
        """Yield the images' times alone, in nanoseconds, without decoding them. See images."""
        for _, _, stamp_ns in self._stamped(self.image_topic(topic), stamps):
            yield stamp_ns

    def extent(self, topic: str | None = None, *, stamps: str = "header") -> tuple[int, int]:
        """Return when the images begin and end, in nanoseconds, from the first and last alone.

        An image lasts until the next one would come. Files without an index are read to their end.
        See images.
        """
        chosen = self.image_topic(topic)
        first_ns = next(self.stamps(chosen.name, stamps=stamps))
        found = [raw for file in self._files if (raw := file.last(chosen.name)) is not None]
        last = max(found, key=attrgetter("log_ns"))
        last_ns = max(first_ns, self._stamp_of(last, self.decode(last, chosen.count or 1), stamps))
        between = (chosen.count or 1) - 1
        return first_ns, last_ns + ((last_ns - first_ns) // between if between else 1)

    @staticmethod
    def _stamp_of(raw: Raw, msg: Any, stamps: str) -> int:
        """Return when an image was taken: of its header 0 where that has no stamp."""
        stamp, _ = head_of(msg)
        return raw.log_ns if stamps == "arrival" else stamp.sec * 1_000_000_000 + stamp.nanosec

    def _stamped(self, topic: Topic, stamps: str) -> Iterator[tuple[Raw, Any, int]]:
        """Yield the messages of a topic of images, as stored and with their fields and times."""
        number = 0
        for number, raw in enumerate(self.messages([topic.name]), 1):  # noqa: B007
            msg = self.decode(raw, number)
            stamp_ns = self._stamp_of(raw, msg, stamps)
            if stamp_ns == 0 and stamps == "header":
                raise BagError(f"{self.path}: image {number} of {topic.name} has no stamp in its "
                               "header; its time of recording can be taken (stamps: arrival)")
            yield raw, msg, stamp_ns
        if number == 0:
            raise BagError(f"{self.path}: {topic.name} holds no image; topics: {self._listed()}")

    def close(self) -> None:
        """Remove what was unpacked."""
        if self._unpacked is not None:
            self._unpacked.cleanup()
            self._unpacked = None

    def __enter__(self) -> Bag:
        """Return the bag."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it."""
        self.close()

    # -- files -----------------------------------------------------------------------------------

    def _storage(self) -> list[Path]:
        if self.path.is_file():
            return [self.path]
        metadata = self.path / "metadata.yaml"
        if metadata.exists():
            self._metadata = _metadata(metadata)
            names = [Path(name).name for name in self._metadata["relative_file_paths"]]
            missing = [name for name in names if not (self.path / name).exists()]
            if missing and not self._partial:
                raise BagError(f"{self.path}: {len(missing)} of {len(names)} files that "
                               f"metadata.yaml lists are missing: {', '.join(missing[:5])}")
            files = [self.path / name for name in names if name not in missing]
        else:
            files = sorted((file for file in self.path.iterdir()
                            if file.name.endswith(SUFFIXES)), key=_by_number)
        if not files:
            raise BagError(f"{self.path}: the folder holds no bag files ({', '.join(SUFFIXES)})")
        return files

    def _open(self, path: Path) -> StorageFile:
        if file_kind(path) != "zstd":
            return open_file(path, partial=self._partial)
        if self._unpacked is None:
            self._unpacked = tempfile.TemporaryDirectory(prefix="vlm_decisions_bag_")
        target = Path(self._unpacked.name) / path.name.removesuffix(".zstd")
        with faults(path), open(path, "rb") as packed, open(target, "wb") as unpacked:
            whole = unpack(packed, unpacked)
        if not whole and not self._partial:
            raise BagError(f"{path}: cut off at byte {path.stat().st_size}: its zstd compression "
                           "does not end (run --partial plays what comes before it)")
        return open_file(target, partial=self._partial, shown=path)

    def _declared(self) -> dict[str, int]:
        """Return the messages that the metadata declares, by topic."""
        if self._metadata is None:
            return {}
        return {one["topic_metadata"]["name"]: int(one["message_count"])
                for one in self._metadata["topics_with_message_count"]}

    def _decompressed(self, raw: Raw, number: int) -> bytes:
        import zstandard

        unpacked = io.BytesIO()
        try:
            whole = unpack(io.BytesIO(raw.data), unpacked)
        except zstandard.ZstdError as error:
            raise BagError(f"{self.path}: message {number} of {raw.topic} cannot be "
                           f"decompressed: {error}") from error
        if not whole:
            raise BagError(f"{self.path}: message {number} of {raw.topic} is cut off")
        return unpacked.getvalue()

    def _listed(self, types: Collection[str] = ()) -> str:
        return listed(topic for topic in self.topics if not types or topic.type in types)


def read_images(
    path: str | Path, topic: str | None = None, *, stamps: str = "header", partial: bool = False,
    value_range: tuple[int, int] = FULL_RANGE,
) -> Iterator[Frame]:
    """Yield the images of a bag as frames, in the bag's order. See Bag; raises BagError."""
    with Bag(path, partial=partial) as bag:
        yield from bag.images(topic, stamps=stamps, value_range=value_range)


@lru_cache(maxsize=2)
def _typestore(encoding: str) -> Any:
    """Message types: those of images and strings are the same in all distributions."""
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    if encoding == "ros1":
        return get_typestore(Stores.ROS1_NOETIC)
    store = get_typestore(Stores.ROS2_HUMBLE)
    for name, definition in DEFINITIONS.items():
        store.register(get_types_from_msg(definition, name))
    return store


def _metadata(path: Path) -> dict[str, Any]:
    """Read metadata.yaml of a rosbag2 folder. Raises BagError."""
    with faults(path):
        content = yaml.safe_load(path.read_text())
    info = content.get("rosbag2_bagfile_information") if isinstance(content, dict) else None
    if not isinstance(info, dict):
        raise BagError(f"{path}: holds no rosbag2_bagfile_information")
    for key in ("relative_file_paths", "topics_with_message_count"):
        if not isinstance(info.get(key), list):
            raise BagError(f"{path}: lacks the list '{key}'")
    try:
        _ = [(str(one["topic_metadata"]["name"]), int(one["message_count"]))
             for one in info["topics_with_message_count"]]
    except (KeyError, TypeError, ValueError) as error:
        raise BagError(f"{path}: a topic lacks its name or message_count: {error}") from error
    return info


def _by_number(path: Path) -> list[Any]:
    """Order split files as they were written: _2 before _10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", path.name)]
