"""`vlm-decisions view`: the page that shows what a node, or a simulated desk, decides."""

from __future__ import annotations

import argparse
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack

from .arguments import Commands, port, positive, size


def add(commands: Commands) -> None:
    view = commands.add_parser("view", help="a page that shows a node's images and decisions",
                               example="--sim --questions desk")
    view.add_argument("--node", default="decision_node", help="which node [decision_node]")
    view.add_argument("--sim", action="store_true",
                      help="also start a simulated desk and a node for it")
    view.add_argument("--questions", default="desk",
                      help="with --sim: shipped set or YAML file [desk]")
    view.add_argument("--host", default="127.0.0.1",
                      help="address to serve on; 0.0.0.0: for the whole network [127.0.0.1]")
    view.add_argument("--port", type=port, default=8321, help="[8321]")
    view.add_argument("--screenshot", metavar="F", help="save a picture of the page and end")
    view.add_argument("--size", type=size(200, 8000), default=(1440, 1100), metavar="WxH",
                      help="of the picture's window [1440x1100]")
    view.add_argument("--dark", action="store_true", help="the picture in dark colours")
    view.add_argument("--seconds", type=positive, default=30.0,
                      help="from the first answer to the picture [30]")
    view.only("--sim", lambda options: options.sim, "--questions")
    view.only("--screenshot", lambda options: options.screenshot, "--size", "--dark", "--seconds")
    view.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Serve the page until it is interrupted, or save a picture of it and end.

    Raises QuestionError for questions that cannot be used, ServerError where the address is taken,
    DemoError when a process ends early, BrowserError where no browser takes the picture.
    """
    from ..lab.demo import check_process, process
    from ..ros.domain import stay_private
    from ..ros.question_store import Keeper
    from ..viewer.server import Server

    if options.sim:
        Keeper(options.questions).load()  # the node would say the same, and wait for better ones
    Server(options.host, options.port).stop()  # a port in use ends it before anything is started
    with ExitStack() as stack:
        children: dict[str, subprocess.Popen] = {}

        def start(name: str, *parameters: str) -> None:
            children[name] = stack.enter_context(process(name, *parameters))

        if options.sim:
            stay_private()
            start("decision_node", f"questions_file:={options.questions}")
            start("sim_camera")
        start("viewer", f"node:={options.node}", f"host:='{options.host}'",
              f"port:={options.port}")

        def end_all() -> None:
            for child in children.values():
                if child.poll() is None:
                    child.send_signal(signal.SIGINT)

        stack.callback(end_all)  # all of them at once, and then one is waited for after the other

        def check() -> None:
            for name, child in children.items():
                check_process(child, name)

        shown = {"0.0.0.0": "localhost", "::": "localhost"}.get(options.host, options.host)
        url = f"http://{f'[{shown}]' if ':' in shown else shown}:{options.port}"
        _wait_for(url, check)
        if options.screenshot is None:
            print(f"viewer: {url}", flush=True)
            while True:
                time.sleep(0.2)
                check()
        from ..viewer.browser import screenshot

        width, height = options.size
        screenshot(url, options.screenshot, width=width, height=height, dark=options.dark,
                   after_s=options.seconds)
        check()
    return 0


def _wait_for(url: str, check: Callable[[], None]) -> None:
    """Wait until the page answers. Raises what `check` raises, and DemoError."""
    from ..lab.demo import START_S, DemoError

    end = time.monotonic() + START_S
    while True:
        check()
        try:
            urllib.request.urlopen(f"{url}/api/state", timeout=2.0).close()
            return
        except (urllib.error.URLError, OSError) as error:
            if time.monotonic() > end:
                raise DemoError(f"the viewer does not answer at {url}: {error}") from error
        time.sleep(0.1)
