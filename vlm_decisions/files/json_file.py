"""A JSON file, written whole or not at all."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: str, value: Any) -> None:
    """Write `value` to `path`, replacing it whole."""
    target = Path(path)
    temporary = target.with_name(f".{target.name}.part")
    temporary.write_text(json.dumps(value, indent=2) + "\n")
    os.replace(temporary, target)
