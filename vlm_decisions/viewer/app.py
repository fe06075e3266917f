"""The web application: the page, its live connection, and the requests it makes.

- `GET /`, `/static/...`: the page.
- `WS /live`: changes and pictures (live.py).
- `GET /api/state`: everything at once, as the page gets it at first.
- `GET /api/timeline`: the answers of the last hours (Board.timeline).
- `GET /api/moment?t=...`: what was answered at a time (epoch, seconds), and the pictures next to
  it, with `view=...` of one view only. `GET /api/pictures/<number>`: such a picture.
- `GET /api/decisions.csv`, `.jsonl`, `/api/events.csv`, `.jsonl`, `/api/questions.yaml`: to save.
- `POST /api/questions` {text, kind, options, id}, `PATCH /api/questions/<id>`
  {text, options, rate_hz, enter, exit, ema}, `DELETE /api/questions/<id>`, `POST /api/ask`
  {text, options}, `POST /api/cost` {text, kind, options, id}.
- `POST /api/views` {name, region, of}: a view of a region of the camera of the view `of`.
- `POST /api/corrections/<name>` {answer, held_s}; `DELETE /api/learned/<name>`: answer as before
  anything was learned.
- `GET /api/suggestions?text=...`: questions to go on with, of those that the model understands.

Requests and replies are JSON; a refusal is `{"error": why, "field": which}`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.websockets import WebSocket

from .. import __version__
from ..files import resources
from ..kinds import MAX_OPTIONS
from ..questions import MAX_ID, MAX_OPTION, MAX_TEXT, Question, QuestionError
from ..runtime.system import finite
from ..views import ViewError
from .board import Board
from .bodies import (
    MAX_BODY,
    BodyError,
    changes_of,
    correction_of,
    new_question,
    new_view,
    one_question,
    read_json,
)
from .complaints import Complaints
from .export import FILES
from .guard import Guard, allowed_names
from .live import Live
from .pictures import Pictures
from .source import PageSource, PageSourceError, Unavailable
from .suggestions import suggest

MAX_CLIENTS = 64
"""Live connections at the same time; each may cost a picture's worth of memory."""

MAX_REQUESTS = 16
"""Requests to the system that may be under way."""

ASK_TIMEOUT_S = 5.0

BODY_S = 10.0
"""A request whose body has not come by then is refused."""

LIMITS = {"id": MAX_ID, "text": MAX_TEXT, "options": MAX_OPTIONS, "option": MAX_OPTION}


class ViewerApp:
    """The application for a source; call `asgi`. `complain` gets what should be logged."""

    def __init__(self, source: PageSource, board: Board, pictures: Pictures, complain: Complaints,
                 host: str = "127.0.0.1", names: Iterable[str] = ()) -> None:
        self._source, self._board, self._pictures = source, board, pictures
        self._complain = complain
        self._clients = 0
        self._limiter: anyio.CapacityLimiter | None = None
        pictures.on_watch = source.watch
        self._static = resources.package_dir() / "viewer" / "static"

        def refused(reason: str) -> None:
            complain(f"refused: {reason}", "refused")

        self.asgi = Starlette(
            routes=[
                Route("/", self._page),
                Route("/api/state", self._state),
                Route("/api/timeline", self._timeline),
                Route("/api/moment", self._answering(self._moment)),
                Route("/api/pictures/{number:int}", self._picture),
                *(Route(f"/api/{name}", self._file) for name in FILES),
                Route("/api/questions", self._answering(self._add), methods=["POST"]),
                Route("/api/questions/{id:path}", self._answering(self._change), methods=["PATCH"]),
                Route("/api/questions/{id:path}", self._answering(self._remove),
                      methods=["DELETE"]),
                Route("/api/corrections/{id:path}", self._answering(self._correct),
                      methods=["POST"]),
                Route("/api/views", self._answering(self._add_view), methods=["POST"]),
                Route("/api/learned/{id:path}", self._answering(self._undo_learning),
                      methods=["DELETE"]),
                Route("/api/ask", self._answering(self._ask), methods=["POST"]),
                Route("/api/cost", self._answering(self._cost), methods=["POST"]),
                Route("/api/suggestions", self._suggestions),
                WebSocketRoute("/live", self._live),
                Mount("/static", StaticFiles(directory=self._static)),
            ],
            middleware=[Middleware(Guard, names=allowed_names(host, names), on_refusal=refused)],
            exception_handlers={HTTPException: _http_error, Exception: self._failed},
        )

    async def _page(self, _request: Request) -> Response:
        return FileResponse(self._static / "index.html")

    async def _state(self, _request: Request) -> Response:
        return Response(self._board.changes(0)[1], media_type="application/json")

    async def _timeline(self, _request: Request) -> Response:
        return JSONResponse(await anyio.to_thread.run_sync(self._board.timeline))

    async def _moment(self, request: Request) -> Response:
        try:
            t_s = float(request.query_params.get("t", ""))
        except ValueError:
            t_s = math.nan
        if not math.isfinite(t_s):
            raise BodyError("t must be a time, in seconds since 1970")
        rows = await anyio.to_thread.run_sync(self._board.moment, t_s)
        pictures = self._pictures.moments.around(t_s, request.query_params.get("view"))
        return JSONResponse({"t": t_s, "rows": rows, "pictures": [
            {"number": one.number, "t": one.t_s, "view": one.view} for one in pictures]})

    async def _picture(self, request: Request) -> Response:
        jpeg = self._pictures.moments.jpeg(request.path_params["number"])
        if jpeg is None:
            raise HTTPException(404, "this picture is not kept any more")
        return Response(jpeg, media_type="image/jpeg")

    async def _file(self, request: Request) -> Response:
        name = request.url.path.rpartition("/")[2]
        kind, write = FILES[name]
        text = await anyio.to_thread.run_sync(write, self._board)
        stamp = time.strftime("%Y%m%d-%H%M%S")
        return Response(text, media_type=f"{kind}; charset=utf-8", headers={
            "Content-Disposition": f'attachment; filename="{name.replace(".", f"-{stamp}.")}"'})

    async def _live(self, socket: WebSocket) -> None:
        if self._clients >= MAX_CLIENTS:
            await socket.close(1013, f"{MAX_CLIENTS} pages are open already")
            return
        self._clients += 1
        hello = {"type": "hello", "kind": self._source.kind, "name": self._source.name,
                 "version": __version__, "limits": LIMITS}
        try:
            fault = await Live(socket, self._board, self._pictures, hello).run()
        except Exception as error:
            fault = f"live connection: {type(error).__name__}: {error}"
        except asyncio.CancelledError:  # the server ends, and does not wait for this browser
            return
        finally:
            self._clients -= 1
        if fault:
            self._complain(fault, "live")

    # -- requests --------------------------------------------------------------------------------

    def _question(self, request: Request) -> Question:
        """Return the question that a request's path names. Raises QuestionError."""
        name = request.path_params["id"]
        question = self._board.question(name)
        if question is None:
            raise QuestionError(f"there is no question '{name[:MAX_ID]}'")
        return question

    async def _add(self, request: Request) -> Response:
        question = new_question(await _body(request), self._board.ids())
        message = await self._act(self._source.add, question)
        return JSONResponse({"message": message, "id": question.id}, 201)

    async def _change(self, request: Request) -> Response:
        question = self._question(request)
        changes = changes_of(await _body(request), question)
        return JSONResponse({"message": await self._act(self._source.change, question, changes)})

    async def _remove(self, request: Request) -> Response:
        question = self._question(request)
        return JSONResponse({"message": await self._act(self._source.remove, question.id)})

    async def _correct(self, request: Request) -> Response:
        question, name = self._question(request), request.path_params["id"]
        answer, held_s = correction_of(await _body(request))
        said = await self._act(self._source.correct, question.id, name.rpartition("/")[0], answer,
                               *self._board.span(name, held_s))
        return JSONResponse({"message": said}, 201)

    async def _add_view(self, request: Request) -> Response:
        view, of = new_view(await _body(request))
        return JSONResponse({"message": await self._act(self._source.add_view, view, of)}, 201)

    async def _undo_learning(self, request: Request) -> Response:
        question, name = self._question(request), request.path_params["id"]
        return JSONResponse({"message": await self._act(
            self._source.undo_learning, question.id, name.rpartition("/")[0])})

    async def _ask(self, request: Request) -> Response:
        question = one_question(await _body(request))
        decision = await self._act(self._source.ask, question, ASK_TIMEOUT_S)
        age_s = decision.age_s
        return JSONResponse({
            "answer": decision.answer, "p": finite(decision.p), "reason": decision.reason,
            "value": finite(decision.value), "answers": list(decision.answers),
            "options": list(decision.options), "age": finite(age_s) if age_s else None,
            "probabilities": [finite(p) for p in decision.probabilities if math.isfinite(p)]})

    async def _cost(self, request: Request) -> Response:
        body = await _body(request)
        try:
            question = new_question(body, ())
        except QuestionError:  # half written: what is wrong with it is said when it is added
            return JSONResponse({"tokens": None, "ms": None})
        cost = await self._act(self._source.cost, question)
        tokens, ms = (None, None) if cost is None else (cost[0], finite(cost[1]))
        return JSONResponse({"tokens": tokens, "ms": ms})

    async def _suggestions(self, request: Request) -> Response:
        found = suggest(self._board.model, request.query_params.get("text", "")[:MAX_TEXT])
        return JSONResponse({"suggestions": [{"text": s.text, "options": list(s.options)}
                                             for s in found]})

    async def _act(self, act: Callable[..., Any], *args: Any) -> Any:
        """Call the source, which blocks, in a thread."""
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(MAX_REQUESTS)
        return await anyio.to_thread.run_sync(act, *args, limiter=self._limiter)

    async def _failed(self, request: Request, error: Exception) -> Response:
        self._complain(f"{request.method} {request.url.path}: {type(error).__name__}: {error}",
                       type(error).__name__)
        return JSONResponse({"error": "the viewer failed; its log says why"}, 500)

    def _answering(self, handler: Callable[[Request], Awaitable[Response]],
                   ) -> Callable[[Request], Awaitable[Response]]:
        """Wrap a handler: what it raises is told to the page, and to the log once in a while."""
        async def wrapped(request: Request) -> Response:
            field, status = None, 400
            try:
                return await handler(request)
            except (QuestionError, ViewError) as error:
                message, field = str(error), error.field
            except BodyError as error:
                message = str(error)
            except Unavailable as error:
                message, status = str(error), 503
            except PageSourceError as error:
                message = str(error)
            self._complain(f"bad request: {message[:300]}", "bad request")
            return JSONResponse({"error": message, "field": field}, status)
        return wrapped


async def _body(request: Request) -> dict[str, Any]:
    """Return the JSON object of a request. Raises BodyError."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":  # a form of another site cannot send this one
        raise BodyError("the request must be of type application/json")
    body = bytearray()
    try:
        with anyio.fail_after(BODY_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    raise BodyError(f"the request is larger than {MAX_BODY} bytes")
    except TimeoutError:
        raise BodyError(f"the request did not come whole within {BODY_S:g} s") from None
    return read_json(bytes(body))


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)
