"""A viewer for tests: the real server on a free port, with a source that only keeps book."""

from __future__ import annotations

import contextlib
import http.client
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from websockets.sync.client import ClientConnection, connect

from vlm_decisions.decision import Decision
from vlm_decisions.question_book import QuestionBook, questions_path
from vlm_decisions.questions import Question
from vlm_decisions.runtime.system import System
from vlm_decisions.viewer.app import ViewerApp
from vlm_decisions.viewer.board import Board
from vlm_decisions.viewer.complaints import Complaints
from vlm_decisions.viewer.pictures import Pictures
from vlm_decisions.viewer.server import Server
from vlm_decisions.viewer.source import PageSourceError
from vlm_decisions.views import View


def decision(question_id: str = "person", answer: str = "yes", p: float = 0.9, **changes: Any
             ) -> Decision:
    values: dict[str, Any] = {
        "p_raw": p, "options": (), "probabilities": (), "tier": 2, "depth": 4,
        "t_start_ns": 1_000_000_000, "t_end_ns": 2_000_000_000, "t_decided_ns": 2_250_000_000,
        "changed": False, "since_ns": 1_000_000_000, "model": "fake", **changes}
    return Decision(question_id, answer, math.nan if answer == "unknown" else p, **values)


SYSTEM = System(state="active", model="fake", image_age_s=0.1, corrections=True)

SOME = ("person", "door_open", "activity")


def some_of_the_desk(path: Path) -> None:
    """Write a file of a few of the desk's questions, for tests that need a running desk."""
    desk = QuestionBook.load(questions_path("desk"))
    QuestionBook(desk.get(name) for name in SOME).save(path)


def call(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """Send a request to a viewer on a port; return (status, decoded JSON)."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, path, None if body is None else json.dumps(body),
                       {"Content-Type": "application/json"})
    response = connection.getresponse()
    reply = json.loads(response.read())
    connection.close()
    return response.status, reply


class BookSource:
    """Holds its questions in a book; `fail` is raised by the next request."""

    kind, name = "test", "/test_node"

    def __init__(self, board: Board) -> None:
        self.board = board
        self.book = QuestionBook([Question("person", "Is a person present?")])
        self.fail: Exception | None = None
        self.watched: list[frozenset[str]] = []
        self.corrected: list[tuple[str, str, str, int, int]] = []
        board.questions(self.book)
        board.link(True, "")
        board.system(SYSTEM)

    def _act(self, what: str) -> str:
        if self.fail is not None:
            fail, self.fail = self.fail, None
            raise fail
        self.board.questions(self.book, [view.name for view in self.book.views])
        return what

    def add(self, question: Question) -> str:
        self.book.add(question)
        return self._act(f"added '{question.id}'")

    def remove(self, question_id: str) -> str:
        self.book.remove(question_id)
        return self._act(f"removed '{question_id}'")

    def change(self, question: Question, changes: dict[str, Any]) -> str:
        self.book.replace(question.id, **changes)
        return self._act(f"changed '{question.id}'")

    def ask(self, question: Question, timeout_s: float) -> Decision:
        self._act("")
        if "nothing" in question.text:
            raise PageSourceError("4 asks are waiting already")
        return decision("ask", "no", 0.25)

    def cost(self, question: Question) -> tuple[int, float] | None:
        return len(question.text) // 2, len(question.text) / 8

    def correct(self, question_id: str, view: str, answer: str, start_ns: int, end_ns: int) -> str:
        self.corrected.append((question_id, view, answer, start_ns, end_ns))
        return self._act(f"kept number {len(self.corrected)}: {question_id} is {answer}")

    def add_view(self, view: View, of: str) -> str:
        self.book.add_view(view)
        self.of = of
        return self._act(f"added view '{view.name}'")

    def undo_learning(self, question_id: str, view: str) -> str:
        self.board.system(SYSTEM)
        return self._act(f"'{question_id}' is answered as before")

    def watch(self, channels: frozenset[str]) -> None:
        self.watched.append(channels)


class Site:
    """A served viewer: `call` sends a request, `live` opens a live connection."""

    def __init__(self, host: str = "127.0.0.1", names: tuple[str, ...] = ()) -> None:
        self.said: list[str] = []
        complain = Complaints(self.said.append)
        self.board, self.pictures = Board(), Pictures(complain)
        self.source = BookSource(self.board)
        self.app = ViewerApp(self.source, self.board, self.pictures, complain, host, names)
        self.server = Server(host, 0)
        self.port = self.server.port

    def call(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None,
             kind: str = "application/json", **headers: str) -> tuple[int, Any]:
        """Return (status, decoded JSON or text); `_` in a header's name stands for `-`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None and kind:
            named["Content-Type"] = kind
        connection.request(method, path, data, named)
        response = connection.getresponse()
        text = response.read().decode()
        self.headers = response.headers
        connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        return response.status, json.loads(text) if is_json else text

    def live(self, **options: Any) -> ClientConnection:
        return connect(f"ws://127.0.0.1:{self.port}/live", proxy=None, open_timeout=60, **options)


@contextlib.contextmanager
def site(**options: Any) -> Iterator[Site]:
    served = Site(**options)
    served.server.start(served.app.asgi)
    try:
        yield served
    finally:
        served.server.stop()


def until(socket: ClientConnection, wanted: Any, *, ack: bool = True,
          timeout_s: float = 20.0) -> Any:
    """Return the first message for which `wanted(message)` is true; bytes are pictures."""
    while True:
        data = socket.recv(timeout=timeout_s)
        message = data if isinstance(data, bytes) else json.loads(data)
        if ack and (isinstance(message, bytes) or message["type"] == "state"):
            socket.send(json.dumps({"got": "picture" if isinstance(message, bytes) else "state"}))
        if wanted(message):
            return message


def picture(shade: int = 0, size: tuple[int, int] = (48, 64)) -> np.ndarray:
    return np.full((*size, 3), shade, np.uint8)
