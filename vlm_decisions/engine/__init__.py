"""The engine: many questions about one running state, each answered as if asked alone.

Importing this package loads a fast BLAS for MLX on Linux, which must happen before MLX is imported.
It does not import MLX: ``Engine`` and its companions are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import blas
from .errors import (
    CheckpointError,
    ContextError,
    EngineError,
    FamilyError,
    FrameError,
    GroupError,
    ModeError,
    QueryError,
    StateError,
)

blas.ensure()

if TYPE_CHECKING:
    from .asking import Prefix
    from .engine import Engine
    from .image_engine import ImageEngine
    from .loading import load
    from .readout import Query, Readout
    from .stream import Stream
    from .vision import VisionGroup

_LAZY = {
    "Engine": "engine",
    "ImageEngine": "image_engine",
    "Prefix": "asking",
    "Query": "readout",
    "Readout": "readout",
    "Stream": "stream",
    "VisionGroup": "vision",
    "load": "loading",
}

__all__ = [
    "CheckpointError",
    "ContextError",
    "Engine",
    "EngineError",
    "FamilyError",
    "FrameError",
    "GroupError",
    "ImageEngine",
    "ModeError",
    "Prefix",
    "Query",
    "QueryError",
    "Readout",
    "StateError",
    "Stream",
    "VisionGroup",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import the MLX side of the engine when it is first asked for."""
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
