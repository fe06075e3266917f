"""`vlm-decisions train model`: the embedded checkpoint, from nothing to a folder that loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from .architecture import fresh_model
from .checkpoints import Run
from .export import export
from .stage_language import train_language
from .stage_vision import train_vision


def load_stages(folder: Path) -> tuple[Any, Any]:
    """Return the tokenizer and the model as far as the checkpoints in `folder` have taken it."""
    tokenizer, model = fresh_model()
    run = Run(folder)
    run.restore("vision", {"visual": model.model.visual}, partial=True)
    run.restore("language", {"language_model": model.model.language_model}, partial=True)
    return tokenizer, model.eval()


def train_model(folder: Path, out: Path, *, vision_steps: int = 2800, language_steps: int = 1500,
                strips: int = 5000) -> int:
    """Train both stages in `folder` and write the checkpoint to `out`.

    A run that was stopped goes on from its checkpoints.

    Returns:
        The size of the written checkpoint in bytes.
    """
    torch.set_num_threads(1)  # the other core draws data; two threads would wait for each other
    tokenizer, model = fresh_model()
    run = Run(folder)
    train_vision(model, run, vision_steps)
    train_language(model, tokenizer, run, language_steps, strips)
    return export(load_stages(folder)[1], tokenizer, out)
