"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_for(what: Callable[[], Value], timeout_s: float = 20.0, *, every_s: float = 0.01) -> Value:
    """Return the first true value of `what`, asked again and again; fail after `timeout_s`."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        value = what()
        if value:
            return value
        assert time.monotonic() < deadline_s, f"still not so after {timeout_s} s"
        time.sleep(every_s)
