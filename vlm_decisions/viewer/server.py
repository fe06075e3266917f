"""Serve an application from a thread of its own, on a socket that is bound before."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import logging
import os
import socket
import threading

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from .guard import is_loopback

HOST, PORT = "127.0.0.1", 8321

MAX_CONNECTIONS = 256
"""Connections at the same time. For one more, the one is closed that only waits for longest."""

REQUEST_S = 10.0
"""A connection that has not sent a whole request by then is closed, seconds."""


class ServerError(OSError):
    """The address cannot be served on; the message names it and what would help."""


class Server:
    """Binds `host`:`port` (0: any free one) at once, and serves from `start` to `stop`.

    Raises ServerError where the address is taken, or does not belong to this machine.
    """

    def __init__(self, host: str = HOST, port: int = PORT) -> None:
        self._host = host
        self._socket = bind(host, port)
        self.port: int = self._socket.getsockname()[1]
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    def start(self, app: ASGIApp) -> None:
        """Begin to serve `app`."""
        config = uvicorn.Config(
            # The application says what went wrong, once in a while; the library would always.
            app, http=_Connection, log_config=None, log_level=logging.CRITICAL, access_log=False,
            lifespan="off", server_header=False, ws="websockets-sansio", ws_max_size=65_536,
            ws_max_queue=8, ws_per_message_deflate=False, timeout_keep_alive=5,
            timeout_graceful_shutdown=1)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._serve, name="viewer", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The page's address, as a browser on this machine reaches it."""
        try:
            address = ipaddress.ip_address(self._host)
        except ValueError:
            return f"http://{self._host}:{self.port}"
        if address.is_unspecified:
            return f"http://localhost:{self.port}"
        return f"http://{f'[{address}]' if address.version == 6 else address}:{self.port}"

    @property
    def is_open(self) -> bool:
        """Whether other machines can reach it."""
        return not is_loopback(self._host)

    def stop(self, timeout_s: float = 1.2) -> None:
        """Let go of the browsers and the port."""
        if self._server is not None:
            self._server.should_exit = True
            self._thread.join(timeout_s)
        self._socket.close()

    def _serve(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._socket]))


class _Connection(H11Protocol):
    """An HTTP connection that is let go where it only waits."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MAX_CONNECTIONS:
            waiting = [one for one in self.connections if getattr(one, "_waiting", None)]
            oldest = min(waiting, key=lambda one: one._waiting.when())  # at the latest itself
            oldest._end_wait()
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        upgraded = self.transport.get_protocol() is not self
        if upgraded or (self.cycle is not None and not self.cycle.response_complete):
            self._end_wait()
        elif self._waiting is None:  # the first part of another request
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_wait()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(REQUEST_S, self.transport.abort)

    def _end_wait(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def bind(host: str, port: int) -> socket.socket:
    """Return a socket bound to an address. Raises ServerError."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise ServerError(f"viewer: {host!r} is no address of this machine: {error}") from error
    sock = socket.socket(family, kind, proto)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(64)  # two servers with SO_REUSEADDR could both bind, but not both listen
    except OSError as error:
        sock.close()
        place = f"port {port} of {host}"
        if error.errno == errno.EADDRINUSE:
            raise ServerError(
                f"viewer: {place} is in use (by another viewer?): choose another port") from error
        if error.errno == errno.EACCES:
            raise ServerError(f"viewer: {place} is reserved: choose one from 1024 on") from error
        raise ServerError(f"viewer: cannot serve on {place}: {os.strerror(error.errno)}") from error
    return sock
