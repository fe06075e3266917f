"""Image models without questions, for comparison. Needs PyTorch, not MLX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

SIDE = (128, 96)  # width and height of the input of the small network
EPOCHS, BATCH = 30, 32


def small_cnn(frames: np.ndarray, truth: np.ndarray, test: np.ndarray,
              epochs: int = EPOCHS) -> np.ndarray:
    """Train a small convolutional network on all questions at once; return P(yes) of `test`.

    Args:
        frames: uint8 (N, 2, H, W, 3), the oldest and newest frame of each clip.
        truth: bool (N, Q).
        test: uint8 (M, 2, H, W, 3).
        epochs: passes over the clips.

    Returns:
        float32 (M, Q).
    """
    import torch
    from torch import nn

    torch.manual_seed(0)
    widths = (6, 16, 32, 64, 96)
    layers: list[nn.Module] = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d((3, 4)), nn.Flatten(), nn.Dropout(0.2),
                          nn.Linear(96 * 12, truth.shape[1]))
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.02)
    steps = epochs * -(-len(frames) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=max(2, steps))
    told = torch.from_numpy(truth.astype(np.float32))
    order = np.random.default_rng(0)
    model.train()
    for _ in range(epochs):
        for part in np.array_split(order.permutation(len(frames)), -(-len(frames) // BATCH)):
            if len(part) < 2:
                continue  # batch norm needs two
            loss = nn.functional.binary_cross_entropy_with_logits(
                model(_planes(frames[part])), told[part])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        parts = [torch.sigmoid(model(_planes(test[i:i + 64]))) for i in range(0, len(test), 64)]
    return torch.cat(parts).numpy()


def siglip_features(path: Path, images: Sequence[np.ndarray]) -> np.ndarray:
    """Return a SigLIP (or CLIP) checkpoint's embeddings of uint8 RGB images, float32 (N, D).

    Raises:
        ValueError: `path` is no such checkpoint.
    """
    import torch
    from transformers import AutoImageProcessor, AutoModel

    if not (path / "config.json").exists():
        raise ValueError(f"{path} has no config.json: not a checkpoint folder")
    model = AutoModel.from_pretrained(path).eval()
    tower = getattr(model, "vision_model", None)
    if tower is None:
        raise ValueError(f"{path} holds a {type(model).__name__}, which has no vision tower of its "
                         "own: give a SigLIP or CLIP checkpoint")
    processor = AutoImageProcessor.from_pretrained(path, backend="pil")
    out = []
    with torch.no_grad():
        for i in range(0, len(images), 16):
            pixels = processor(images=list(images[i:i + 16]), return_tensors="pt")["pixel_values"]
            out.append(tower(pixel_values=pixels).pooler_output)
    return torch.cat(out).numpy()


def _planes(frames: np.ndarray):  # noqa: ANN202 (a torch.Tensor; torch is imported late)
    import torch

    n, count, height, width, _ = frames.shape
    x = torch.from_numpy(np.ascontiguousarray(frames.transpose(0, 1, 4, 2, 3)))
    return x.reshape(n, count * 3, height, width).float() / 127.5 - 1.0
