"""A background process that draws training data while the trainer computes."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable
from typing import Any


def _work(make: Callable[[int], Any], first: int, items: Any) -> None:
    import os
    import queue

    import cv2
    import torch

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
