"""Golden numbers of a checkpoint from another implementation: transformers' Qwen3.5 in PyTorch.

    python -m vlm_decisions.lab.sim_desk.golden MODEL_FOLDER test/golden/sim_desk.npz

Fixed frames of the simulated desk and fixed questions go through transformers as ordinary full
sequences, one question at a time, with its own vision tower and M-RoPE positions. Stored are the
token ids, the vision features of the first group, and at the answer position the hidden state after
every layer and the logits of the answers. `test/engine/test_golden.py` holds the MLX engine to
them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from ...engine.prompt import PromptTemplate
from ...sim.script import Script
from ...sim.world import World
from .scenes import GROUP_S, patches

GROUPS, FPS, SIZE = 5, 8, (160, 128)  # the size that the model sees: no resize in between
QUESTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Is a person present?", ()),
    ("Is the cup to the left of the laptop?", ()),
    ("Is the person approaching?", ()),
    ("What is the person doing?", ("typing", "drinking", "on phone", "reading", "idle", "away")),
    ("Is the door open or closed?", ("open", "closed")),
)


def frames() -> np.ndarray:
    """Return the fixed frames: uint8 (GROUPS, 2, H, W, 3)."""
    world = World(7, Script.demo(7))
    drawn = [world.render(3.5 + k / FPS, *SIZE) for k in range(2 * GROUPS)]
    return np.stack(drawn).reshape(GROUPS, 2, SIZE[1], SIZE[0], 3)


def times_s() -> list[float]:
    """Return the groups' times in seconds since the first frame."""
    return [GROUP_S / 4 + k * GROUP_S for k in range(GROUPS)]


def make(checkpoint: Path, out: Path) -> None:
    """Compute and store the golden numbers."""
    import torch
    from transformers import AutoTokenizer, Qwen3_5ForConditionalGeneration

    model = Qwen3_5ForConditionalGeneration.from_pretrained(checkpoint, dtype=torch.float32).eval()
    template = PromptTemplate(AutoTokenizer.from_pretrained(checkpoint))
    width, height = SIZE
    pixels = torch.from_numpy(patches(frames()))
    grid = torch.tensor([[GROUPS, height // 16, width // 16]])
    head = list(template.header_ids)
    for t in times_s():
        head += template.group_ids(t, (height // 32) * (width // 32))
    stored: dict[str, np.ndarray] = {}
    with torch.no_grad():
        first = model.model.visual(pixels[0], grid.new_tensor([[1, *grid[0, 1:].tolist()]]))
        stored["vision"] = first.pooler_output.numpy()
        for k, (text, options) in enumerate(QUESTIONS):
            question = template.question(text, options)
            ids = torch.tensor([head + question.ids])
            kinds = torch.where(ids == template.pad_id, 2, 0)
            result = model(input_ids=ids, pixel_values_videos=pixels.flatten(0, 1),
                           video_grid_thw=grid, mm_token_type_ids=kinds,
                           output_hidden_states=True)
            # The last of transformers' states has the final norm applied: kept apart.
            layers = [h[0, -1].numpy() for h in result.hidden_states[1:-1]]
            stored[f"ids_{k}"] = ids[0].numpy().astype(np.int32)
            stored[f"layers_{k}"] = np.stack(layers)
            stored[f"final_{k}"] = result.hidden_states[-1][0, -1].numpy()
            stored[f"logits_{k}"] = result.logits[0, -1, question.answer_ids].numpy()
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(out, **stored)


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
