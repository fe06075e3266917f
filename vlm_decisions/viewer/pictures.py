"""Pictures on their way to browsers: the newest of each channel, encoded once, only while watched.

A source puts pictures in from any thread and never waits. The rest lives in the server's event
loop: one encoding task per channel that is watched, whose result all its watchers share.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from .jpeg import encode
from .moments import Moments

INTERVAL_S = 0.08
"""Shortest time between two encoded pictures of a channel."""

Picture = "np.ndarray | Callable[[], np.ndarray]"


@dataclass
class _Channel:
    picture: Picture | None = None  # guarded by the lock
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    encoded: asyncio.Condition = field(default_factory=asyncio.Condition)
    jpeg: bytes = b""
    number: int = 0
    watchers: int = 0
    task: asyncio.Task | None = None


class Pictures:
    """The newest picture of each channel; small ones of what was watched stay in `moments`.

    `on_watch` is called with the channels that are watched whenever that changes; `on_error` with
    a message for each picture that could not be encoded.
    """

    def __init__(self, on_error: Callable[[str], None]) -> None:
        self.on_watch: Callable[[frozenset[str]], None] = lambda channels: None
        self.moments = Moments()
        self._on_error = on_error
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._channels: dict[str, _Channel] = {}
        self._watched: frozenset[str] = frozenset()

    def put(self, channel: str, picture: Picture) -> None:
        """Take the newest picture: uint8 RGB (H, W, 3), not written to later, or what draws it.

        Dropped where nobody watches the channel. Never waits; from any thread.
        """
        with self._lock:
            if channel not in self._watched:
                return
            self._channels[channel].picture = picture
            loop, arrived = self._loop, self._channels[channel].arrived
            try:
                loop.call_soon_threadsafe(arrived.set)
            except RuntimeError:  # the server has ended
                self._watched = frozenset()

    @asynccontextmanager
    async def watching(self, name: str) -> AsyncIterator[Callable]:
        """Watch a channel; yields `next(after) -> (number, jpeg)`, which waits for a newer one."""
        channel = self._open(name)
        channel.watchers += 1
        if channel.watchers == 1:
            channel.task = asyncio.create_task(self._encode(name, channel))
        self._tell()

        async def newer(after: int) -> tuple[int, bytes]:
            async with channel.encoded:
                await channel.encoded.wait_for(lambda: channel.jpeg and channel.number > after)
                return channel.number, channel.jpeg

        try:
            yield newer
        finally:
            channel.watchers -= 1
            if channel.watchers == 0:
                channel.task.cancel()
                channel.jpeg = b""
                with self._lock:
                    channel.picture = None
            self._tell()

    def _open(self, name: str) -> _Channel:
        with self._lock:
            loop = asyncio.get_running_loop()
            if loop is not self._loop:
                self._loop = loop
                self._channels = {}
            return self._channels.setdefault(name, _Channel())

    def _tell(self) -> None:
        with self._lock:
            watched = frozenset(n for n, c in self._channels.items() if c.watchers)
            changed, self._watched = watched != self._watched, watched
        if changed:
            self.on_watch(watched)

    async def _encode(self, name: str, channel: _Channel) -> None:
        while True:
            await channel.arrived.wait()
            channel.arrived.clear()
            with self._lock:
                picture, channel.picture = channel.picture, None
            if picture is None:
                continue
            try:
                jpeg = await asyncio.to_thread(self._encoded, name, picture)
            except Exception as error:  # whatever draws or encodes: the next picture may do
                self._on_error(f"picture of {name}: {type(error).__name__}: {error}")
            else:
                async with channel.encoded:
                    channel.jpeg, channel.number = jpeg, channel.number + 1
                    channel.encoded.notify_all()
            await asyncio.sleep(INTERVAL_S)

    def _encoded(self, name: str, picture: Picture) -> bytes:
        rgb = picture() if callable(picture) else picture
        view = name.partition("/")[2]
        if self.moments.due(view):
            self.moments.put(rgb, view)
        return encode(rgb)
