"""What the operator is told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from .statistics import Meter


class Notices:
    """Messages for the operator; errors are counted and kept, too.

    A receiver that fails must not stop the answers: what it raises is dropped.
    """

    def __init__(self, meter: Meter, receiver: Callable[[str], None] | None) -> None:
        """`receiver`: called with each message, in the thread that has it."""
        self._meter, self._receiver = meter, receiver

    def tell(self, message: str) -> None:
        """Tell something that is worth knowing; nothing where the message is empty."""
        if message and self._receiver is not None:
            with suppress(Exception):
                self._receiver(message)

    def error(self, message: str) -> None:
        """Tell of an error, and count it."""
        self._meter.error(message)
        self.tell(message)
