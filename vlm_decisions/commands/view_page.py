"""`vlm-decisions view`: the viewer of a running node, or of a simulated desk of its own."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from contextlib import ExitStack

from ..lab.demo import START_S, DemoError, check_process, process
from ..ros.domain import stay_private
from ..viewer.server import Server


def run_view(*, node: str = "decision_node", host: str = "127.0.0.1", port: int = 8321,
             sim: bool = False, questions: str = "desk", picture: str | None = None,
             width: int = 1440, height: int = 1100, dark: bool = False,
             after_s: float = 30.0) -> None:
    """Serve the page until it is interrupted, or save a `picture` of it and end.

    `sim` starts a simulated camera and a decision node with `questions` as well. `width`, `height`
    (CSS pixels), `dark` and `after_s` (seconds after the first answer) are the picture's. Raises
    ServerError where the address is taken, DemoError when a process ends early, BrowserError where
    no browser takes the picture.
    """
    Server(host, port).stop()  # a port in use ends it before anything is started
    with ExitStack() as stack:
        children: dict[str, subprocess.Popen] = {}

        def start(name: str, *parameters: str) -> None:
            children[name] = stack.enter_context(process(name, *parameters))

        if sim:
            stay_private()
            start("decision_node", f"questions_file:={questions}")
            start("sim_camera")
        start("viewer", f"node:={node}", f"host:='{host}'",
              f"port:={port}")

        def check() -> None:
            for name, child in children.items():
                check_process(child, name)

        shown = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
        url = f"http://{f'[{shown}]' if ':' in shown else shown}:{port}"
        _wait_for(url, check)
        if picture is None:
            print(f"viewer: {url}", flush=True)
            while True:
                time.sleep(0.2)
                check()
        from ..viewer.browser import screenshot

        screenshot(url, picture, width=width, height=height, dark=dark, after_s=after_s)
        check()


def _wait_for(url: str, check) -> None:
    """Wait until the page answers. Raises what `check` raises, and DemoError."""
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
