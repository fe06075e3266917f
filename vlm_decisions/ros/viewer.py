"""viewer: a page that shows what the camera sees and what was decided, and lets one ask.

Serves http://127.0.0.1:8321 until it is stopped, for a decision node that may start before or
after it. Only this machine can open the page, unless ``host`` says otherwise.

Follows ``<node>/decisions``, ``<node>/questions``, ``<node>/events``, ``<node>/statistics``,
``<node>/evidence``, a topic ``truth`` beside the camera's and, while a page is looked at,
``<node>/overlay`` or the camera's topic; calls ``<node>/add_question``,
``<node>/remove_question``, ``<node>/ask`` and ``<node>/set_parameters_atomically``.

Parameters: ``node`` (the decision node, relative to this one's namespace), ``host`` (address to
serve on; 0.0.0.0 lets the whole network in, without a password), ``port`` (0: any free one),
``allowed_hosts`` (further names under which browsers may call the page).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node

from ..viewer.app import ViewerApp
from ..viewer.board import Board
from ..viewer.complaints import Complaints
from ..viewer.pictures import Pictures
from ..viewer.server import HOST, PORT, Server, ServerError
from .parameters import ParameterRules, Spec, declare_own
from .viewer_source import RosSource

SPECS = (
    Spec("node", "decision_node", "Name of the decision node to show.", read_only=True),
    Spec("host", HOST, "Address to serve on; 0.0.0.0: reachable from the network.",
         read_only=True),
    Spec("port", PORT, "Port to serve on; 0: any free one.", 0, 65535, read_only=True),
    Spec("allowed_hosts", "", "Further names of this machine in the browser's address, comma "
                              "separated.", read_only=True),
)


class ViewerNode(ParameterRules, Node):
    """The node. Raises ServerError where the address is taken, ValueError for bad names."""

    def __init__(self, stop: Callable[[], None] = lambda: None, **kwargs: Any) -> None:
        super().__init__("viewer", **kwargs)
        values = declare_own(self, SPECS)
        names = [name.strip() for name in values["allowed_hosts"].split(",") if name.strip()]
        try:
            self.server = Server(values["host"], values["port"])
        except ServerError:
            self.destroy_node()
            raise
        complain = Complaints(self.get_logger().warning)
        self.board = Board()
        pictures = Pictures(complain)
        self.source = RosSource(self, values["node"], self.board, pictures, complain)
        app = ViewerApp(self.source, self.board, pictures, complain, values["host"], names)
        self.server.start(app.asgi)
        self.get_logger().info(f"viewer of {self.source.name}: {self.server.url}")
        if self.server.is_open:
            self.get_logger().warning("everybody on the network can open this page, see the "
                                      "camera and change the questions")

    def close(self) -> None:
        """Let go of the browsers and the port."""
        self.server.stop()


make_node = ViewerNode
