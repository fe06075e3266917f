"""`vlm-decisions train model`: the embedded checkpoint, from nothing to a folder that loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from .architecture import config
from .checkpoints import Run
from .corpus import families, tokenizer_text
from .export import export
from .stage_language import train_language
from .stage_vision import train_vision
from .tokenizer import build_tokenizer


def fresh_model(seed: int = 0) -> tuple[Any, Any]:
    """Return the tokenizer and an untrained model."""
    from transformers import Qwen3_5ForConditionalGeneration

    tokenizer = build_tokenizer(tokenizer_text(families()))
    torch.manual_seed(seed)
    model = Qwen3_5ForConditionalGeneration(config(tokenizer))
    for layer in model.model.language_model.layers:
        if layer.block_type == "linear_attention":  # the stock decay forgets within a few tokens
            decay = torch.empty_like(layer.linear_attn.A_log).uniform_(-6.0, 0.0)
            layer.linear_attn.A_log.data.copy_(decay)
    return tokenizer, model


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
