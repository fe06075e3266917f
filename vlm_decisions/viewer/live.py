"""One browser's live connection: what changed, and pictures, never more than it can take.

A message of each kind is sent only when the browser said that it got the one before, so what
waits for a browser is at most one picture and one set of changes, whatever it does. One that says
nothing for SILENCE_S is let go.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from .board import Board
from .pictures import Pictures

PERIOD_S = 0.2
SILENCE_S = 30.0
POLICY = 1008
"""Close code for a client that does not keep to the protocol."""


class _Broken(Exception):
    """The browser sent what no page of ours sends; the message names it."""


class _Changed(Exception):
    """Another channel is to be watched."""


class Live:
    """Serves one WebSocket until either side ends it. `hello` is sent first."""

    def __init__(self, socket: WebSocket, board: Board, pictures: Pictures,
                 hello: dict[str, Any]) -> None:
        self._socket, self._board, self._pictures = socket, board, pictures
        self._hello = hello
        self._sending = asyncio.Lock()
        self._free = {"state": asyncio.Event(), "picture": asyncio.Event()}
        self._watch: str | None = None
        self._watch_changed = asyncio.Event()
        for event in self._free.values():
            event.set()

    async def run(self) -> str:
        """Serve; return the fault of the browser's that ended it, or empty."""
        await self._socket.accept()
        tasks = [asyncio.create_task(part())
                 for part in (self._read, self._send_state, self._send_pictures)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, _Broken):
                with suppress(Exception):
                    await self._socket.close(POLICY, str(result)[:120])
                return str(result)
        for task in done:
            error = task.exception() if not task.cancelled() else None
            if isinstance(error, (asyncio.TimeoutError, TimeoutError)):
                with suppress(Exception):
                    await self._socket.close(POLICY, "no word from the browser")
            elif error is not None and not isinstance(error, (WebSocketDisconnect, OSError)):
                raise error
        return ""

    async def _read(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                return
            try:
                value = json.loads(message.get("text") or "")
            except (ValueError, RecursionError) as error:
                raise _Broken(f"live connection: not JSON: {error}") from None
            if not isinstance(value, dict):
                raise _Broken("live connection: a message must be an object")
            if "got" in value:
                free = self._free.get(value["got"]) if isinstance(value["got"], str) else None
                if free is None:
                    raise _Broken("live connection: 'got' must be state or picture")
                free.set()
            if "watch" in value:
                if value["watch"] is not None and value["watch"] not in self._board.channels():
                    raise _Broken(f"live connection: 'watch' must be null or one of "
                                  f"{', '.join(self._board.channels())}")
                if value["watch"] != self._watch:
                    self._watch = value["watch"]
                    self._watch_changed.set()

    async def _send_state(self) -> None:
        await self._send(text=json.dumps(self._hello))
        version = 0
        while True:
            await self._wait_for("state")
            version, text = self._board.changes(version)
            if text:
                self._free["state"].clear()
                await self._send(text=text)
            await asyncio.sleep(PERIOD_S)

    async def _send_pictures(self) -> None:
        while True:
            channel = self._watch
            self._watch_changed.clear()
            changed = asyncio.create_task(self._watch_changed.wait())
            try:
                if channel is None:
                    await changed
                    continue
                async with self._pictures.watching(channel) as newer:
                    number = 0
                    while True:
                        # A picture that was asked for before the browser is ready would be old.
                        await _before(changed, self._wait_for("picture"))
                        number, jpeg = await _before(changed, newer(number))
                        self._free["picture"].clear()
                        await self._send(data=jpeg)
            except _Changed:
                pass
            finally:
                changed.cancel()

    async def _wait_for(self, kind: str) -> None:
        """Wait until the browser has got the last message of a kind. Raises TimeoutError."""
        await asyncio.wait_for(self._free[kind].wait(), SILENCE_S)

    async def _send(self, *, text: str | None = None, data: bytes | None = None) -> None:
        async def send() -> None:
            async with self._sending:
                if text is not None:
                    await self._socket.send_text(text)
                else:
                    await self._socket.send_bytes(data or b"")
        await asyncio.wait_for(send(), SILENCE_S)


async def _before(changed: asyncio.Task, work: Coroutine) -> Any:
    """Return what `work` returns. Raises _Changed if `changed` ends before."""
    task = asyncio.create_task(work)
    try:
        await asyncio.wait((task, changed), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise _Changed
        return task.result()
    finally:
        task.cancel()
