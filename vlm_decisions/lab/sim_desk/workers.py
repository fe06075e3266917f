"""A background process that draws training data while the trainer computes."""

from __future__ import annotations

import multiprocessing as mp
import signal
from collections.abc import Callable, Sequence
from typing import Any

import torch


def _work(make: Callable[[int], Any], first: int, items: Any) -> None:
    import os
    import queue

    import cv2

    os.nice(5)
    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    parent = mp.parent_process()
    seed, item = first, make(first)
    while parent is not None and parent.is_alive():  # a killed trainer leaves nobody behind
        try:
            items.put((seed, item), timeout=5.0)
        except queue.Full:
            continue
        seed += 1
        item = make(seed)
    items.cancel_join_thread()  # nobody reads what is left in the pipe


class Producer:
    """Calls `make(seed)` for seed = first, first + 1, ... in a process of its own.

    `make` must be picklable. The queue is bounded, so a slow trainer is never buried. A producer
    that dies is an error at the next `get`, not a hang.
    """

    def __init__(self, make: Callable[[int], Any], first: int, ahead: int = 16) -> None:
        context = mp.get_context("spawn")
        self._queue = context.Queue(ahead)
        self._process = context.Process(target=_work, args=(make, first, self._queue), daemon=True)
        self._process.start()

    def get(self) -> tuple[int, Any]:
        """Return the next (seed, item); waits for it."""
        import queue

        while True:
            try:
                return self._queue.get(timeout=5.0)
            except queue.Empty:
                if not self._process.is_alive():
                    raise RuntimeError("the process that draws training data has died; its error "
                                       "is printed above") from None

    def ready(self) -> bool:
        return not self._queue.empty()

    def close(self) -> None:
        self._process.terminate()
        self._process.join()


class Companion:
    """A second process that takes gradients of the same parameters, for a machine of two cores.

    It is forked, so that it has the training data without reading it again; the parameters are
    shared, and it reads them while they are stepped: a gradient may be a step or two old.
    """

    def __init__(self, parameters: Sequence[torch.Tensor],
                 gradient: Callable[[], Sequence[torch.Tensor | None]]) -> None:
        """`gradient` draws data and returns the gradient by each of `parameters`, here unused."""
        context = mp.get_context("fork")
        for parameter in parameters:
            parameter.data.share_memory_()
        self._buffers = [torch.zeros_like(p).share_memory_() for p in parameters]
        self._ready, self._free = context.Event(), context.Event()
        self._free.set()
        self._process = context.Process(target=self._work, args=(gradient,), daemon=True)
        self._process.start()

    def _work(self, gradient: Callable[[], Sequence[torch.Tensor | None]]) -> None:
        # Forked, it has the command's handlers, which tell of an interrupt; it is ended silently.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: the trainer ends this
        parent = mp.parent_process()
        while parent is not None and parent.is_alive():
            found = gradient()
            while not self._free.wait(5.0):
                if not parent.is_alive():
                    return
            for buffer, own in zip(self._buffers, found, strict=True):
                buffer.zero_() if own is None else buffer.copy_(own)
            self._free.clear()
            self._ready.set()

    def take(self, use: Callable[[Sequence[torch.Tensor]], None]) -> bool:
        """Hand the newest gradient to `use`, if there is one. Raises RuntimeError if it died."""
        if not self._ready.is_set():
            if not self._process.is_alive():
                raise RuntimeError("the process that takes gradients has died; its error is "
                                   "printed above")
            return False
        use(self._buffers)
        self._ready.clear()
        self._free.set()
        return True

    def close(self) -> None:
        self._process.terminate()
        self._process.join()
