"""Those who are called with what happens, and how they come and go."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

Told = TypeVar("Told")


class Listeners(Generic[Told]):
    """Calls every listener, in the order in which they came.

    One that raises is reported and stops no other; one that is slow delays the others and the
    caller. Coming and going is thread-safe.
    """

    def __init__(
        self, what: str, error: Callable[[str], None], lock: AbstractContextManager[object]
    ) -> None:
        """Begin with none.

        `what` is told, for messages; `error` gets them. `lock` is held while one comes or goes:
        where it is held while they are told, too, none is called after it has gone.
        """
        self._what = what
        self._error = error
        self._lock = lock
        self._listeners: tuple[Callable[[Told], None], ...] = ()

    def add(self, listener: Callable[[Told], None]) -> Callable[[], None]:
        """Call `listener` from now on; return a function that ends that."""
        with self._lock:
            self._listeners = (*self._listeners, listener)

        def end() -> None:
            with self._lock:
                self._listeners = tuple(one for one in self._listeners if one is not listener)

        return end

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._listeners)

    def tell(self, told: Told) -> None:
        """Call all of them."""
        for listener in self._listeners:
            try:
                listener(told)
            except OSError as error:  # a full disk, say: the message has it all
                self._error(f"{self._what} could not be handed on: {error}")
            except Exception:
                self._error(f"{self._what} could not be handed on\n"
                            f"{traceback.format_exc().rstrip()}")
