"""The whole viewer in the process of a runtime: what `vlm-decisions run --viewer` opens."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..events import EventSpec
from ..frames import Frame
from ..runtime import Runtime
from ..sources.truth import TruthRow
from .app import ViewerApp
from .board import Board
from .complaints import Complaints
from .pictures import Pictures
from .runtime_source import RuntimeSource
from .server import HOST, PORT, Server


class LocalViewer:
    """Serves a page about a runtime; hand it each frame, and call `ended` after the last.

    A frame goes with its camera, as views have it; `truth` takes what is true of one, where that is
    known. `name` is shown as what is looked at, `tell` gets what should be logged. Raises
    ServerError where the address is taken.
    """

    def __init__(self, name: str, tell: Callable[[str], None], *, host: str = HOST,
                 port: int = PORT, names: Iterable[str] = ()) -> None:
        complain = Complaints(tell)
        board, pictures = Board(), Pictures(complain)
        self.source = RuntimeSource(board, pictures, name)
        self.frame: Callable[[Frame, tuple[str, str]], None] = self.source.frame
        self.truth: Callable[[TruthRow, tuple[str, str]], None] = self.source.truth
        self.ended: Callable[[], None] = self.source.ended
        self._app = ViewerApp(self.source, board, pictures, complain, host, names)
        self.server = Server(host, port)

    def start(self, runtime: Runtime, events: Iterable[EventSpec] = (), *,
              simulated: bool = False) -> None:
        """Begin to serve; `events` are the state machines over the decisions.

        `simulated`: what the runtime sees is the simulated desk.
        """
        self.source.start(runtime, events, simulated=simulated)
        self.server.start(self._app.asgi)

    def stop(self) -> None:
        """End; before the runtime is stopped. Also where it was not started."""
        self.source.stop()
        self.server.stop()
