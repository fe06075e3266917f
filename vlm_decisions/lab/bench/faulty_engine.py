"""An engine that blocks, raises or is slow on request, for soak and overload tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...questions import Question


class FaultyEngine:
    """An engine with faults.

    Its calls block while `go` is not set, raise RuntimeError `failures` times, and take `slowness`
    times as long.
    """

    def __init__(self, engine: Any, slowness: float = 1.0) -> None:
        self._engine = engine
        self.go = threading.Event()
        self.go.set()
        self.failures = 0
        self.slowness = slowness
        for name in ("name", "fingerprint", "pixel_budget", "n_layers", "n_frames", "token_pixels",
                     "device", "dtype"):
            if hasattr(engine, name):
                setattr(self, name, getattr(engine, name))

    def encode(self, frames: Sequence[np.ndarray], **sized: Any) -> Any:
        return self.disturbed("encode", lambda: self._engine.encode(frames, **sized))

    def encode_many(self, groups: Sequence[Sequence[np.ndarray]], **sized: Any) -> Any:
        return self.disturbed("encode", lambda: self._engine.encode_many(groups, **sized))

    def tokens(self, query: Question) -> int:
        return self._engine.tokens(query)

    def token_counts(self, queries: Sequence[Question]) -> Sequence[tuple[int, int]]:
        return self._engine.token_counts(queries)

    def stream(self, window_groups: int, mode: str) -> FaultyStream:
        return FaultyStream(self, self._engine.stream(window_groups=window_groups, mode=mode))

    def disturbed(self, name: str, call: Callable[[], Any]) -> Any:
        """Return the result of `call`, after the faults that are set."""
        self.go.wait()
        if self.failures > 0:
            self.failures -= 1
            raise RuntimeError(f"injected into {name}")
        began_s = time.perf_counter()
        result = call()
        if self.slowness > 1.0:
            time.sleep((self.slowness - 1.0) * (time.perf_counter() - began_s))
        return result


class FaultyStream:
    """The same for the engine's running state."""

    def __init__(self, engine: FaultyEngine, stream: Any) -> None:
        self._engine, self._stream = engine, stream

    @property
    def history(self) -> Sequence[Any]:
        return self._stream.history

    def append(
        self, group: Any, stamps_ns: tuple[int, int], *, left_out_ns: int = 0
    ) -> None:
        self._engine.disturbed(
            "append", lambda: self._stream.append(group, stamps_ns, left_out_ns=left_out_ns))

    def ask(self, queries: Sequence[Question]) -> Any:
        return self._engine.disturbed("ask", lambda: self._stream.ask(queries))

    def reset(self) -> None:
        self._stream.reset()

    def start_over(self) -> None:
        self._stream.start_over()

    def idle(self) -> bool:
        return self._stream.idle()
