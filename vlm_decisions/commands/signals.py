"""What a command does on SIGINT, SIGTERM and SIGHUP: it ends soon and quietly, with code 130."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from . import INTERRUPTED

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

RETRY_S, IMPORT_S = 0.02, 0.3
"""A signal that comes during an import is handled again after RETRY_S, for at most IMPORT_S."""

GRACE_S = 15.0
"""Seconds from the signal after which the process ends even if its cleaning up does not."""


class Interrupt:
    """Whether a signal has come."""

    def __init__(self) -> None:
        """None has."""
        self.came = False
        self._first_s = 0.0
        self._deadline: threading.Timer | None = None

    def take(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal: the first one raises KeyboardInterrupt; later ones change nothing."""
        if self.came:
            return
        if _importing(frame):  # a library that is interrupted while it loads can abort the process
            self._first_s = self._first_s or time.monotonic()
            if time.monotonic() - self._first_s > IMPORT_S:
                leave()  # a large one: it is loaded before there is anything to clean up
            again = threading.Timer(RETRY_S, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
            return
        self.came = True
        # What fails from here on fails because of the interrupt.
        threading.excepthook = lambda *_: None
        sys.unraisablehook = lambda *_: None
        self._deadline = threading.Timer(GRACE_S, leave)
        self._deadline.daemon = True
        self._deadline.start()
        raise KeyboardInterrupt

    def cleaned_up(self) -> None:
        """Let the process live on: the command has ended in time."""
        if self._deadline is not None:
            self._deadline.cancel()


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Handle the signals in the main thread; put the handlers back afterwards.

    One that is ignored stays so (SIGHUP under nohup).
    """
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    hooks = threading.excepthook, sys.unraisablehook
    before = {number: signal.signal(number, interrupt.take)
              for number in NUMBERS if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield interrupt
    finally:
        interrupt.cleaned_up()
        for number, handler in before.items():
            signal.signal(number, handler)
        threading.excepthook, sys.unraisablehook = hooks


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def leave() -> None:
    """End the process at once, as interrupted: no thread and no library can delay it."""
    middleware = sys.modules.get("vlm_decisions.ros.middleware")
    if hasattr(middleware, "remove_segments"):  # it is there and whole: nothing is imported here
        middleware.remove_segments()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            pass
    os._exit(INTERRUPTED)
