"""Write a rosbag2 folder (mcap), through rosbags."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..files import resources
from .bag_files import BagError
from .messages import DEFINITIONS


class BagWriter:
    """A new bag, written until it is closed. Raises BagError; a folder that exists is left alone.

    Topics are declared as they are first written to.
    """

    def __init__(self, path: str | Path, *, compression: str = "") -> None:
        """Make the folder. `compression`: `message` or `file` (zstd), or none."""
        from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
        from rosbags.rosbag2.errors import WriterError

        self.path = Path(path)
        self._connections: dict[str, Any] = {}
        self._writer = None
        try:
            # Version 8 is what ROS 2 Humble and later read.
            writer = Writer(self.path, version=8, storage_plugin=StoragePlugin.MCAP)
            if compression:
                mode = CompressionMode[compression.upper()]
                writer.set_compression(mode, CompressionFormat.ZSTD)
            writer.open()
        except (WriterError, OSError) as error:
            raise BagError(f"{self.path}: cannot be written: {error}") from error
        self._writer = writer

    def write(self, topic: str, kind: str, log_ns: int, fields: Mapping[str, Any]) -> None:
        """Write a message given by its fields, nested ones as mappings."""
        store = types()
        self.write_cdr(topic, kind, log_ns, store.serialize_cdr(_message(store, kind, fields),
                                                                kind))

    def write_cdr(self, topic: str, kind: str, log_ns: int, data: bytes | memoryview) -> None:
        """Write a serialized message. Raises BagError for a type that is not known."""
        if topic not in self._connections:
            if kind not in types().fielddefs:
                raise BagError(f"{self.path}: {topic}: the message type {kind} is not known here")
            with self._told():
                self._connections[topic] = self._writer.add_connection(topic, kind,
                                                                       typestore=types())
        with self._told():
            self._writer.write(self._connections[topic], log_ns, data)

    def close(self) -> None:
        """Write the index and metadata.yaml. Raises BagError."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._told():
                writer.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise BagError(f"{self.path}: cannot be written: {error}") from error

    def __enter__(self) -> BagWriter:
        """Return the writer."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Close it: what was written is kept."""
        self.close()


@lru_cache(maxsize=1)
def types() -> Any:
    """Return the message types that can be written: ROS 2's, videos' and this package's."""
    from rosbags.typesys import Stores, get_types_from_msg, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    for name, definition in DEFINITIONS.items():
        store.register(get_types_from_msg(definition, name))
    for path in sorted((resources.share_dir() / "msg").glob("*.msg")):
        store.register(get_types_from_msg(path.read_text(), f"vlm_decisions/msg/{path.stem}"))
    return store


def _message(store: Any, kind: str, fields: Mapping[str, Any]) -> Any:
    made = {}
    for name, (_, info) in store.fielddefs[kind][1]:
        value = fields[name]
        made[name] = _message(store, info, value) if isinstance(value, Mapping) else value
    return store.types[kind](**made)
