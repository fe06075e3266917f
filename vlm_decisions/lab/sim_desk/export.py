"""Write a trained model as a checkpoint folder that mlx-vlm and transformers both load."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from .architecture import preprocessor_config

MOST_BYTES = 8_000_000


def export(model: Any, tokenizer: Any, folder: Path) -> int:
    """Save weights (float16), tokenizer and preprocessor; the folder is replaced whole.

    Returns:
        The size of the folder in bytes.

    Raises:
        ValueError: the checkpoint is larger than the package may carry.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as parent:
        fresh = Path(parent) / "checkpoint"
        model.half().save_pretrained(fresh)
        model.float()
        tokenizer.save_pretrained(fresh)
        (fresh / "generation_config.json").unlink(missing_ok=True)
        text = json.dumps(preprocessor_config(), indent=2) + "\n"
        (fresh / "preprocessor_config.json").write_text(text)
        (fresh / "video_preprocessor_config.json").write_text(text)
        size = sum(f.stat().st_size for f in fresh.iterdir())
        if size > MOST_BYTES:
            raise ValueError(f"the checkpoint has {size} bytes; the package carries at most "
                             f"{MOST_BYTES}")
        if folder.exists():
            shutil.rmtree(folder)
        shutil.move(fresh, folder)
    return size
