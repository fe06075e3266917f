"""What a user should know of a model that was loaded: into Python's log.

An engine keeps the same sentences as ``remarks``. Who shows those gives ``LOG`` a handler of its
own, or none (``logging.NullHandler``), so that nothing is said twice.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

LOG: Final = logging.getLogger(__name__)


def tell(model: str, remarks: Iterable[str]) -> None:
    """Log each remark on ``model`` as a warning."""
    for remark in remarks:
        LOG.warning("%s: %s", model, remark)
