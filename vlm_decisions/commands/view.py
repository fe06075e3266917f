"""`vlm-decisions view`: the page that shows what is decided."""

from __future__ import annotations

import argparse

from .arguments import Commands, positive


def add(commands: Commands) -> None:
    view = commands.add_parser("view", help="a page that shows a node's images and decisions")
    view.add_argument("--node", default="decision_node", help="which node [decision_node]")
    view.add_argument("--sim", action="store_true",
                      help="also start a simulated desk and a node for it")
    view.add_argument("--questions", default="desk",
                      help="with --sim: shipped set or YAML file [desk]")
    view.add_argument("--host", default="127.0.0.1",
                      help="address to serve on; 0.0.0.0: for the whole network [127.0.0.1]")
    view.add_argument("--port", type=int, default=8321, help="[8321]")
    view.add_argument("--screenshot", metavar="F", help="save a picture of the page and end")
    view.add_argument("--size", type=_size, default=(1440, 1100), metavar="WxH",
                      help="of the picture's window [1440x1100]")
    view.add_argument("--dark", action="store_true", help="the picture in dark colours")
    view.add_argument("--seconds", type=positive, default=30.0,
                      help="from the first answer to the picture [30]")

    def run(options: argparse.Namespace) -> int:
        from .view_page import run_view

        width, height = options.size
        run_view(node=options.node, host=options.host, port=options.port, sim=options.sim,
                 questions=options.questions, picture=options.screenshot, width=width,
                 height=height, dark=options.dark, after_s=options.seconds)
        return 0

    view.set_defaults(run=run)


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    size = int(width), int(height)
    if not all(200 <= side <= 8000 for side in size):
        raise argparse.ArgumentTypeError(f"{text}: a window is 200 to 8000 pixels wide and high")
    return size
