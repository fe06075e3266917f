"""A window that shows pictures, in a process of its own.

Where no window can be shown (a stale DISPLAY, a display of another kind, an OpenCV without one),
the toolkit ends its process. That must not be the process that answers.

    python -m vlm_decisions.viewer.window TITLE < pictures
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import struct
import subprocess
import sys
import threading

import numpy as np

_HEADER = struct.Struct("<II")
_CLOSED = 10
"""Exit code of the process when the user closed the window (q, Escape or its button)."""


class Window:
    """Shows the newest of the pictures it is handed. Never waits, never raises.

    `closed`: the user closed it. `failed`: no window can be shown here.
    """

    def __init__(self, title: str) -> None:
        """Start the process; the window comes with the first picture."""
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__, title], stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._picture: np.ndarray | None = None
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._feed, name="window", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        """Whether the user closed the window."""
        return self._child.poll() == _CLOSED

    @property
    def failed(self) -> bool:
        """Whether no window can be shown."""
        return self._child.poll() not in (None, _CLOSED)

    def show(self, picture: np.ndarray) -> None:
        """Show a picture, uint8 RGB (H, W, 3); one that is replaced in time is passed over."""
        with self._changed:
            self._picture = picture
            self._changed.notify()

    def close(self) -> None:
        """End the process."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._child.kill()
        self._child.wait()
        self._thread.join()

    def _feed(self) -> None:
        pipe = self._child.stdin
        with contextlib.suppress(OSError), pipe:  # the process has ended
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._picture is not None or self._ended)
                    picture, self._picture = self._picture, None
                if picture is None:
                    return
                pipe.write(_HEADER.pack(*picture.shape[:2]) + picture.tobytes())
                pipe.flush()


def main(title: str) -> int:
    """Show what comes on the standard input until it ends or the user closes the window."""
    import cv2

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command ends this process
    source = sys.stdin.buffer
    shown = False
    while True:
        if select.select([source], [], [], 0.05)[0]:
            head = source.read(_HEADER.size)
            if len(head) < _HEADER.size:
                return 0
            height, width = _HEADER.unpack(head)
            picture = np.frombuffer(source.read(height * width * 3), np.uint8)
            cv2.imshow(title, picture.reshape(height, width, 3)[..., ::-1])
            shown = True
        if shown:
            if cv2.waitKey(1) & 0xFF in (27, ord("q")):
                return _CLOSED
            if cv2.getWindowProperty(title, cv2.WND_PROP_VISIBLE) < 1:
                return _CLOSED


def possible() -> bool:
    """Return whether there is a display at all."""
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
