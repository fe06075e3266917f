"""A checkpoint's JSON files, each an object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .errors import CheckpointError


def is_pointer(path: Path) -> bool:
    """Tell whether a file is what Git LFS leaves in the place of one that was not downloaded."""
    with path.open("rb") as file:
        return file.read(8) == b"version "


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; raises CheckpointError."""
    try:
        pointer = is_pointer(path)
        value = {} if pointer else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path} as JSON: {error}") from error
    if pointer:
        raise CheckpointError(f"{path} is a Git LFS pointer: the file itself was not downloaded")
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value
