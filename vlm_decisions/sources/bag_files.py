"""
One storage file of a bag (mcap, sqlite3, ROS 1): its topics and its messages, undecoded.

What a file is, is told from its first bytes, not from its name. Every fault ends as a BagError
that names the file; a file that declares more messages than were read is one too.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

ZSTD = b"\x28\xb5\x2f\xfd"
_KINDS = {
    b"\x89MCAP0\r\n": "mcap",
    b"SQLite format 3\0": "sqlite3",
    b"#ROSBAG V2.0": "ros1",
    ZSTD: "zstd",
}


class BagError(ValueError):
    """A bag that cannot be read or written; the message names the file and the fault."""


@dataclass(frozen=True)
class Topic:
    """
    A topic of a bag: `type` as in ROS 2 (`sensor_msgs/msg/Image`).

    `count`: messages it declares to hold, None where it does not say. `encoding`: `cdr`, `ros1`,
    or what else its messages are.
    """

    name: str
    type: str
    count: int | None
    encoding: str

    def __str__(self) -> str:
        """Name, type and count, for lists in messages."""
        count = "" if self.count is None else f", {self.count}"
        return f"{self.name} ({self.type}{count})"


@dataclass(frozen=True)
class Raw:
    """A message as stored: its topic's name, time of recording (ns), and bytes."""

    topic: str
    log_ns: int
    data: bytes


class StorageFile(Protocol):
    """One file; `path` names it in errors."""

    path: Path

    def topics(self) -> list[Topic]:
        """Return its topics. Raises BagError."""

    def messages(self, topics: Collection[str]) -> Iterator[Raw]:
        """Yield the messages of these topics, in the file's order. Raises BagError."""


def open_file(path: Path, *, partial: bool = False, shown: Path | None = None) -> StorageFile:
    """
    Return a storage file by its content. Raises BagError.

    `partial`: what is whole in a file that is cut off is read, instead of refusing it. `shown`:
    the name for errors, where the file was unpacked to another place.
    """
    shown = shown or path
    kind = file_kind(path)
    if kind == "mcap":
        return McapFile(path, shown, partial)
    if kind == "sqlite3":
        return SqliteFile(path, shown)
    if kind == "ros1":
        return Ros1File(path, shown)
    raise BagError(f"{shown}: not a bag (mcap, sqlite3 or ROS 1)")


def file_kind(path: Path) -> str:
    """Return `mcap`, `sqlite3`, `ros1`, `zstd`, or an empty string. Raises BagError."""
    try:
        with open(path, "rb") as file:
            head = file.read(16)
    except OSError as error:
        raise BagError(f"{path}: {error.strerror or error}") from error
    if not head:
        raise BagError(f"{path}: the file is empty")
    return next((kind for magic, kind in _KINDS.items() if head.startswith(magic)), "")


class McapFile:
    """
    An mcap file, read from its beginning to its end, with or without an index.

    A recorder that was killed leaves no index and no footer: such a file is read whole. One that
    ends in the middle of a record is cut off, which is an error unless `partial`.
    """

    def __init__(self, path: Path, shown: Path, partial: bool) -> None:
        """Open nothing yet."""
        self._file, self.path, self._partial = path, shown, partial

    def topics(self) -> list[Topic]:
        """Return the topics, from the summary where it is complete, else by reading the file."""
        with faults(self.path):
            summary = self._summary()
            if summary is not None:
                channels, schemas, counts = summary
            else:
                channels, schemas, counts = {}, {}, Counter()
                for record in self._records():
                    _note(record, channels, schemas, counts)
            found: dict[str, Topic] = {}
            for channel in channels.values():
                if channel.schema_id and channel.schema_id not in schemas:
                    raise BagError(f"{self.path}: topic {channel.topic} has no schema")
                kind = schemas[channel.schema_id].name if channel.schema_id else "?"
                before = found.get(channel.topic)
                count = None if counts is None else counts.get(channel.id, 0)
                if before is not None and None not in (count, before.count):
                    count += before.count
                found[channel.topic] = Topic(channel.topic, _ros2_type(kind), count,
                                             channel.message_encoding or "nothing")
            return list(found.values())

    def messages(self, topics: Collection[str]) -> Iterator[Raw]:
        """Yield messages; at the end, compare the counts with those of the statistics."""
        from mcap.records import Message, Statistics

        channels: dict[int, Any] = {}
        counts: Counter[int] = Counter()
        statistics = None
        with faults(self.path):
            for record in self._records():
                _note(record, channels, {}, counts)
                if isinstance(record, Message):
                    if record.channel_id not in channels:
                        raise BagError(f"{self.path}: a message of channel {record.channel_id}, "
                                       "which is not declared")
                    topic = channels[record.channel_id].topic
                    if topic in topics:
                        yield Raw(topic, record.log_time, record.data)
                elif isinstance(record, Statistics):
                    statistics = record
            if statistics is not None:
                read = sum(counts.values())
                check_count(self.path, "the file", statistics.message_count, read)
                for number, declared in statistics.channel_message_counts.items():
                    name = channels[number].topic if number in channels else f"channel {number}"
                    check_count(self.path, name, declared, counts[number])

    def _records(self) -> Iterator[Any]:
        from mcap.exceptions import EndOfFile
        from mcap.records import Chunk
        from mcap.stream_reader import StreamReader, breakup_chunk

        size = os.path.getsize(self._file)
        with open(self._file, "rb") as file:
            whole = read = 0
            try:
                reader = StreamReader(file, emit_chunks=True, validate_crcs=False)
                for record in reader.records:
                    whole = file.tell()
                    inside = ([record] if not isinstance(record, Chunk)
                              else breakup_chunk(record, validate_crc=True))
                    read += len(inside)
                    yield from inside
            except Exception as error:  # a record cut short makes the library raise anything
                if not isinstance(error, EndOfFile) and file.tell() < size:
                    raise
                # At a record's end: the recorder was killed, nothing is missing that it wrote.
                if whole < size and not (self._partial and read):
                    raise BagError(
                        f"{self.path}: cut off at byte {size}, in the middle of a record that "
                        f"begins at byte {whole} (partial reads what comes before it)") from None

    def _summary(self) -> tuple[dict, dict, dict | None] | None:
        """Return channels, schemas and counts of the summary; None where it lacks some."""
        from mcap.exceptions import McapError
        from mcap.reader import SeekingReader

        with open(self._file, "rb") as file:
            try:
                summary = SeekingReader(file).get_summary()
            except (McapError, OSError, ValueError):
                return None  # no footer, say: the records tell
        if summary is None or summary.statistics is None:
            return None
        statistics = summary.statistics
        if (len(summary.channels) < statistics.channel_count
                or len(summary.schemas) < statistics.schema_count):
            return None
        counts = statistics.channel_message_counts
        complete = sum(counts.values()) == statistics.message_count
        return summary.channels, summary.schemas, counts if complete else None


class SqliteFile:
    """A sqlite3 storage file of any schema version, in order of time."""

    def __init__(self, path: Path, shown: Path) -> None:
        """Open nothing yet."""
        self._file, self.path = path, shown

    def topics(self) -> list[Topic]:
        """Return the topics with the number of their rows."""
        with self._open() as reader:
            return [Topic(c.topic, _ros2_type(c.msgtype), c.msgcount, c.ext.serialization_format)
                    for c in reader.connections]

    def messages(self, topics: Collection[str]) -> Iterator[Raw]:
        """Yield messages in order of time."""
        with self._open() as reader:
            wanted = [c for c in reader.connections if c.topic in topics]
            for connection, log_ns, data in reader.messages(wanted) if wanted else ():
                yield Raw(connection.topic, log_ns, data)

    @contextmanager
    def _open(self) -> Iterator[Any]:
        from rosbags.rosbag2.storage_sqlite3 import Sqlite3Reader

        with faults(self.path):
            reader = Sqlite3Reader(self._file)
            reader.open()
            try:
                yield reader
            finally:
                reader.close()


class Ros1File:
    """A ROS 1 bag, in order of time."""

    def __init__(self, path: Path, shown: Path) -> None:
        """Open nothing yet."""
        self._file, self.path = path, shown

    def topics(self) -> list[Topic]:
        """Return the topics with the counts of the index."""
        found: dict[str, Topic] = {}
        with self._open() as reader:
            for c in reader.connections:
                before = found.get(c.topic)
                count = c.msgcount + (before.count or 0 if before else 0)
                found[c.topic] = Topic(c.topic, _ros2_type(c.msgtype), count, "ros1")
        return list(found.values())

    def messages(self, topics: Collection[str]) -> Iterator[Raw]:
        """Yield messages in order of time; at the end, compare the counts with the index."""
        counts: Counter[str] = Counter()
        with self._open() as reader:
            wanted = [c for c in reader.connections if c.topic in topics]
            for connection, log_ns, data in reader.messages(wanted) if wanted else ():
                counts[connection.topic] += 1
                yield Raw(connection.topic, log_ns, bytes(data))
            for topic in {c.topic for c in wanted}:
                declared = sum(c.msgcount for c in wanted if c.topic == topic)
                check_count(self.path, topic, declared, counts[topic])

    @contextmanager
    def _open(self) -> Iterator[Any]:
        from rosbags.rosbag1 import Reader

        with faults(self.path):
            if self._file.suffix != ".bag":  # the library wants the name
                raise BagError(f"{self.path}: a ROS 1 bag whose name does not end in .bag")
            with Reader(self._file) as reader:
                yield reader


def check_count(path: Path, what: str, declared: int, read: int) -> None:
    """Raise BagError if more messages were declared than read."""
    if declared > read:
        raise BagError(f"{path}: {what} declares {declared} messages, {read} could be read")


@contextmanager
def faults(path: Path) -> Iterator[None]:
    """Turn whatever damaged data makes a library raise into a BagError that names the file."""
    try:
        yield
    except (BagError, ImportError):
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        text = text if len(text) < 200 else text[:200] + "..."
        raise BagError(f"{path}: damaged or not readable: {text}") from error


def merged(topics: list[list[Topic]]) -> list[Topic]:
    """Return the topics of several files, with their counts added up."""
    found: dict[str, Topic] = {}
    for topic in (topic for one in topics for topic in one):
        before = found.get(topic.name)
        if before is None:
            found[topic.name] = topic
        else:
            known = None not in (before.count, topic.count)
            found[topic.name] = replace(
                before, count=before.count + topic.count if known else None)
    return list(found.values())


def _note(record: Any, channels: dict, schemas: dict, counts: Counter | dict) -> None:
    from mcap.records import Channel, Message, Schema

    if isinstance(record, Message):
        counts[record.channel_id] += 1
    elif isinstance(record, Channel):
        channels[record.id] = record
    elif isinstance(record, Schema):
        schemas[record.id] = record


def _ros2_type(name: str) -> str:
    """Return `package/msg/Name` also for ROS 1's `package/Name`."""
    package, _, rest = name.partition("/")
    return name if not rest or "/" in rest else f"{package}/msg/{rest}"
