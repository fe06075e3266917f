"""One storage file of a bag (mcap, sqlite3, ROS 1): its topics and its messages, undecoded.

What a file is, is told from its first bytes, not from its name; one whose first bytes are damaged
is told from what is left of them, or from its name, and refused. Every fault ends as a BagError
that names the file; a file that declares more messages than were read is one too.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import IO, Any, Protocol

MCAP = b"\x89MCAP0\r\n"
ZSTD = b"\x28\xb5\x2f\xfd"
_KINDS = {
    MCAP: "mcap",
    b"SQLite format 3\0": "sqlite3",
    b"#ROSBAG V2.0": "ros1",
    ZSTD: "zstd",
}
_NAMES = {".mcap": "mcap", ".db3": "sqlite3", ".bag": "ros1", ".zstd": "zstd"}
_WHAT = {"mcap": "an mcap file", "sqlite3": "a sqlite3 bag", "ros1": "a ROS 1 bag",
         "zstd": "a file compressed with zstd"}

ALIKE = 0.75
"""Share of a file's first bytes that must be right to tell what it was before it was damaged."""

RECORD_NAMES = {1: "header", 2: "footer", 3: "schema", 4: "channel", 5: "message", 6: "chunk",
                7: "message index", 8: "chunk index", 9: "attachment", 10: "attachment index",
                11: "statistics", 12: "metadata", 13: "metadata index", 14: "summary offset",
                15: "end of data"}


class BagError(ValueError):
    """A bag that cannot be read or written; the message names the file and the fault."""


@dataclass(frozen=True)
class Topic:
    """A topic of a bag: `type` as in ROS 2 (`sensor_msgs/msg/Image`).

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

    def last(self, topic: str) -> Raw | None:
        """Return the message of a topic that was recorded last, None where there is none.

        It is found by the index. Without one the file is read. Raises BagError.
        """


def open_file(path: Path, *, partial: bool = False, shown: Path | None = None) -> StorageFile:
    """Return a storage file by its content. Raises BagError.

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
    """Return `mcap`, `sqlite3`, `ros1`, `zstd`, or an empty string for what is no bag.

    Raises BagError for a file that cannot be read, is empty, or is a bag with a damaged header.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(16)
    except OSError as error:
        raise BagError(f"{path}: {error.strerror or error}") from error
    if not head:
        raise BagError(f"{path}: the file is empty")
    kind = next((kind for magic, kind in _KINDS.items() if head.startswith(magic)), "")
    was = "" if kind else _damaged_kind(path, head)
    if was:
        raise BagError(f"{path}: {_WHAT[was]} whose header is damaged (its first bytes are "
                       f"{head[:8].hex(' ')})")
    return kind


def _damaged_kind(path: Path, head: bytes) -> str:
    """Return what a file was, by its first bytes as far as they are right, or by its name."""
    for magic, kind in _KINDS.items():
        alike = SequenceMatcher(None, magic, head[:len(magic)], autojunk=False).ratio()
        if len(magic) > len(ZSTD) and alike >= ALIKE:
            return kind
    return _NAMES.get(path.suffix, "")


def unpack(packed: IO[bytes], unpacked: IO[bytes]) -> bool:
    """Decompress zstd data; return whether it was whole. Raises ZstdError for damaged data."""
    import zstandard

    frame = None
    while data := packed.read(1 << 20):
        while data:
            if frame is None or frame.eof:
                frame = zstandard.ZstdDecompressor().decompressobj()
            unpacked.write(frame.decompress(data))
            data = frame.unused_data
    return frame is not None and frame.eof


class McapFile:
    """An mcap file, read from its beginning to its end, with or without an index.

    A recorder that was killed leaves no index and no footer: such a file is read whole. One that
    ends in the middle of a record is cut off, which is an error unless `partial`.
    """

    def __init__(self, path: Path, shown: Path, partial: bool) -> None:
        """Open nothing yet."""
        self._file, self.path, self._partial = path, shown, partial

    def topics(self) -> list[Topic]:
        """Return the topics, from the summary where it is complete, else by reading the file."""
        with faults(self.path):
            channels, schemas, counts = self._summarised()
            if channels is None:
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
        from mcap.records import Message

        channels: dict[int, Any] = {}
        counts: Counter[int] = Counter()
        with faults(self.path):
            summary = self._summary()
            for record in self._records():
                _note(record, channels, {}, counts)
                if isinstance(record, Message):
                    if record.channel_id not in channels:
                        raise BagError(f"{self.path}: a message of channel {record.channel_id}, "
                                       "which is not declared")
                    topic = channels[record.channel_id].topic
                    if topic in topics:
                        yield Raw(topic, record.log_time, record.data)
            # A summary is found from the file's end: damage before it cannot hide it.
            if summary is not None and summary.statistics is not None and not self._partial:
                statistics = summary.statistics
                read = sum(counts.values())
                check_count(self.path, "the file", statistics.message_count, read)
                for number, declared in statistics.channel_message_counts.items():
                    name = channels[number].topic if number in channels else f"channel {number}"
                    check_count(self.path, name, declared, counts[number])

    def last(self, topic: str) -> Raw | None:
        """Return the newest message of a topic, from the last chunk that holds one."""
        from mcap.reader import SeekingReader

        with faults(self.path):
            summary = self._summary()
            if summary is None or not summary.chunk_indexes:
                return _newest(self.messages([topic]))
            with open(self._file, "rb") as file:
                found = SeekingReader(file).iter_messages([topic], reverse=True)
                return _newest(Raw(topic, message.log_time, message.data)
                               for _, _, message in islice(found, 1))

    def _records(self) -> Iterator[Any]:
        """Yield schemas, channels and messages, in the file's order, chunks unpacked."""
        from mcap.data_stream import ReadDataStream
        from mcap.opcode import Opcode
        from mcap.records import Channel, Chunk, Message, Schema
        from mcap.stream_reader import breakup_chunk

        read = {Opcode.SCHEMA: Schema.read, Opcode.CHANNEL: Channel.read, Opcode.CHUNK: Chunk.read}
        size = os.path.getsize(self._file)
        with open(self._file, "rb") as file:
            file.seek(-min(size, len(MCAP)), os.SEEK_END)
            finished = size > 2 * len(MCAP) and file.read() == MCAP
            end = size - len(MCAP) if finished else size
            at = file.seek(len(MCAP))
            code = found = 0
            while at < end:
                head = file.read(9)
                code, length = head[0], int.from_bytes(head[1:], "little")
                if len(head) < 9 or length > end - at - 9:
                    if self._partial and found:
                        return
                    raise BagError(self._does_not_fit(at, end, code, length, finished))
                if code in read or code == Opcode.MESSAGE:
                    body = ReadDataStream(_Whole(file.read(length)))
                    record = (Message.read(body, length) if code == Opcode.MESSAGE
                              else read[code](body))
                    inside = ([record] if not isinstance(record, Chunk)
                              else breakup_chunk(record, validate_crc=True))
                    found += len(inside)
                    yield from inside
                elif code == 0:
                    raise BagError(f"{self.path}: damaged at byte {at}: no record begins there")
                at = file.seek(at + 9 + length)
            # A recorder that was killed leaves no footer; nothing is missing that it wrote.
            if finished and code != Opcode.FOOTER:
                raise BagError(f"{self.path}: damaged: its last record is no footer")

    def _does_not_fit(self, at: int, end: int, code: int, length: int, finished: bool) -> str:
        if not finished:
            return (f"{self.path}: cut off at byte {end}, in the middle of a record that begins "
                    f"at byte {at} (run --partial plays what comes before it)")
        name = RECORD_NAMES.get(code, f"kind {code}")
        return (f"{self.path}: damaged: the record at byte {at} ({name}) claims {length} bytes, "
                f"{max(end - at - 9, 0)} are left in the file")

    def _summary(self) -> Any:
        """Return the library's summary of the file, None where there is none to be read."""
        from mcap.reader import SeekingReader

        with open(self._file, "rb") as file:
            try:
                return SeekingReader(file).get_summary()
            except Exception:  # no footer, say, or a damaged one: the records tell
                return None

    def _summarised(self) -> tuple[dict | None, dict, dict | None]:
        """Return channels, schemas and counts of the summary; no channels where it lacks some."""
        summary = self._summary()
        statistics = summary.statistics if summary is not None else None
        if (statistics is None or len(summary.channels) < statistics.channel_count
                or len(summary.schemas) < statistics.schema_count):
            return None, {}, None
        counts = statistics.channel_message_counts
        complete = sum(counts.values()) == statistics.message_count
        return summary.channels, summary.schemas, counts if complete else None


class _Whole(io.BytesIO):
    """The bytes of one record; to read behind their end is an error, not a short answer."""

    def read(self, size: int = -1, /) -> bytes:
        data = super().read(size)
        if len(data) < size:
            raise ValueError("a record ends before its fields do")
        return data


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

    def last(self, topic: str) -> Raw | None:
        """Return the newest message of a topic."""
        with self._open() as reader:
            ((newest_ns,),) = reader.dbconn.execute(
                "SELECT max(timestamp) FROM messages JOIN topics ON topic_id = topics.id "
                "WHERE name = ?", (topic,))
            wanted = [c for c in reader.connections if c.topic == topic]
            if newest_ns is None:
                return None
            return _newest(Raw(topic, log_ns, data)
                           for _, log_ns, data in reader.messages(wanted, start=newest_ns))

    @contextmanager
    def _open(self) -> Iterator[Any]:
        from rosbags.rosbag2.storage_sqlite3 import Sqlite3Reader

        with faults(self.path, self._file):
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

    def last(self, topic: str) -> Raw | None:
        """Return the newest message of a topic."""
        with self._open() as reader:
            wanted = [c for c in reader.connections if c.topic == topic]
            newest_ns = max((entry.time for c in wanted for entry in reader.indexes[c.id][-1:]),
                            default=None)
            if newest_ns is None:
                return None
            return _newest(Raw(topic, log_ns, bytes(data))
                           for _, log_ns, data in reader.messages(wanted, start=newest_ns))

    @contextmanager
    def _open(self) -> Iterator[Any]:
        from rosbags.rosbag1 import Reader

        with faults(self.path, self._file):
            if self._file.suffix != ".bag":  # the library wants the name
                raise BagError(f"{self.path}: a ROS 1 bag whose name does not end in .bag")
            with Reader(self._file) as reader:
                yield reader


def _newest(messages: Iterator[Raw]) -> Raw | None:
    return max(messages, key=attrgetter("log_ns"), default=None)


def check_count(path: Path, what: str, declared: int, read: int) -> None:
    """Raise BagError if more messages were declared than read."""
    if declared > read:
        raise BagError(f"{path}: {what} declares {declared} messages, {read} could be read")


@contextmanager
def faults(path: Path, unpacked: Path | None = None) -> Iterator[None]:
    """Turn whatever damaged data makes a library raise into a BagError that names the file.

    `unpacked`: where its contents really lie, which means nothing to a reader.
    """
    try:
        yield
    except (BagError, ImportError):
        raise
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        text = text.replace(str(unpacked or path), path.name)
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
