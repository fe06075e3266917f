"""The door: who may talk to the viewer, and what its pages may do.

A page of another site can make a browser send requests to a server on this machine, and a name
that its owner lets point here (DNS rebinding) can make such a page count as the same site. So
the Host must be an address, this machine or a name that was allowed, and a request that tells its
origin must come from the very page that it goes to.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-cache",
}


def allowed_names(host: str, extra: Iterable[str] = ()) -> frozenset[str]:
    """Return the names under which a server bound to `host` may be called (addresses always)."""
    names = {"localhost", *(name.lower() for name in extra)}
    if not is_loopback(host):
        own = socket.gethostname().lower()
        names |= {own, f"{own}.local", socket.getfqdn().lower(), host.lower()}
    return frozenset(names)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach a server bound to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """ASGI middleware: refuse what the module's text says, and add the headers."""

    def __init__(self, app: ASGIApp, names: frozenset[str],
                 on_refusal: Callable[[str], None]) -> None:
        self._app, self._names, self._on_refusal = app, names, on_refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it with 403."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        reason = self.refusal(scope)
        if scope["type"] == "websocket":
            if reason:
                self._on_refusal(reason)
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": reason[:120]})
            else:
                await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        if reason:
            self._on_refusal(reason)
            await JSONResponse({"error": reason}, 403)(scope, receive, with_headers)
        else:
            await self._app(scope, receive, with_headers)

    def refusal(self, scope: Scope) -> str:
        """Return why a request is refused, or empty."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_own(host):
            return (f"the name {host[:80]!r} is not this viewer's: call it by address, or start "
                    "it with that name allowed")
        origin = headers.get("origin")
        if origin is not None and not _same(origin, host):
            return f"a page of {origin[:80]!r} may not use this viewer"
        site = headers.get("sec-fetch-site", "none")
        opened = scope["type"] == "http" and scope["method"] == "GET" and (
            headers.get("sec-fetch-mode") == "navigate")
        if site not in ("same-origin", "none") and not opened:
            return f"a page of another site may not use this viewer ({site})"
        return ""

    def _is_own(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name.rstrip(".") in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def _same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower()
