"""`vlm-decisions train model`: the embedded checkpoint, from nothing to a folder that loads."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from ...sim.grammar import FAMILIES
from .architecture import fresh_model
from .checkpoints import Run
from .export import export
from .stage_language import train_language
from .stage_questions import grown_model, train_questions
from .stage_vision import train_vision


def load_stages(folder: Path) -> tuple[Any, Any]:
    """Return the tokenizer and the model as far as the checkpoints in `folder` have taken it."""
    tokenizer, model = fresh_model()
    run = Run(folder)
    run.restore("vision", {"visual": model.model.visual}, partial=True)
    run.restore("language", {"language_model": model.model.language_model}, partial=True)
    if run.has("questions"):
        tokenizer, model = grown_model(tokenizer, model, folder)
        run.restore("questions", {"language_model": model.model.language_model}, partial=True)
    return tokenizer, model.eval()


def adopt(folder: Path, checkpoint: Path) -> None:
    """Take a finished checkpoint for the first two stages of `folder`, where it has none.

    Raises:
        ValueError: the checkpoint has another vocabulary than the second stage ends with.
    """
    from transformers import Qwen3_5ForConditionalGeneration

    done = Qwen3_5ForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).model
    size, wanted = done.config.text_config.vocab_size, len(fresh_model()[0])
    if size != wanted:
        raise ValueError(f"{checkpoint} has a vocabulary of {size}, not of {wanted}: it knows the "
                         "grammar already; go on with the folder that it was trained in")
    run = Run(folder)
    for stage, modules in (("vision", {"visual": done.visual}),
                           ("language", {"language_model": done.language_model})):
        if not run.has(stage):
            run.save(stage, 0, modules)


def train_model(folder: Path, out: Path, *, begin: Path | None = None,
                vision_steps: int = 2800, language_steps: int = 1500, question_steps: int = 9000,
                strips: int = 5000, without: Collection[str] = ()) -> int:
    """Train all three stages in `folder` and write the checkpoint to `out`.

    A run that was stopped goes on from its checkpoints.

    Args:
        folder: of the checkpoints.
        out: folder to write.
        begin: checkpoint that stands for the first two stages.
        vision_steps: of the first stage; a stage of 0 steps is left as it is.
        language_steps: of the second.
        question_steps: of the third.
        strips: clips that the language model learns from.
        without: families of tags (`grammar.held_out`) left out of the third stage, for controls.

    Returns:
        The size of the written checkpoint in bytes.

    Raises:
        ValueError: a family that the grammar does not have, or a checkpoint that cannot stand for
            the first two stages.
    """
    unknown = set(without) - set(FAMILIES)
    if unknown:
        raise ValueError(f"the grammar has no family {', '.join(sorted(unknown))}; it has "
                         f"{', '.join(FAMILIES)}")
    torch.set_num_threads(1)  # the other core draws data; two threads would wait for each other
    tokenizer, model = fresh_model()
    run = Run(folder)
    if begin is not None:
        adopt(folder, begin)
        vision_steps = language_steps = 0
    if vision_steps:
        train_vision(model, run, vision_steps)
    if language_steps:
        train_language(model, tokenizer, run, language_steps, strips)
    if question_steps:
        tokenizer, model = load_stages(folder)
        if not run.has("questions"):
            tokenizer, model = grown_model(tokenizer, model, folder)
        train_questions(model.train(), tokenizer, run, question_steps, strips,
                        without=frozenset(without))
    tokenizer, model = load_stages(folder)
    return export(model, tokenizer, out)
