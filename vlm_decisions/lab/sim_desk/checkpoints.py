"""Checkpoint folder of a training run: save, resume, progress with an estimate."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from ...files.atomic import replacing


class Progress:
    """A line on stderr: step, smoothed losses, time a step, time left."""

    def __init__(self, name: str, start: int, steps: int) -> None:
        self.name, self.start, self.steps = name, start, steps
        self._began = time.monotonic()
        self._printed = 0.0
        self._average: dict[str, float] = {}

    def update(self, step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            before = self._average.get(key, value)
            self._average[key] = 0.97 * before + 0.03 * value
        now = time.monotonic()
        if now - self._printed < (2.0 if sys.stderr.isatty() else 20.0) and step < self.steps:
            return
        self._printed = now
        each = (now - self._began) / max(1, step - self.start)
        filled = round(20 * step / self.steps)
        losses = " ".join(f"{k} {v:.3f}" for k, v in self._average.items())
        line = (f"{self.name} [{'#' * filled}{'.' * (20 - filled)}] {step}/{self.steps}  {losses}"
                f"  {each:.2f} s/step, {each * (self.steps - step) / 60:.0f} min left")
        print(line, end="\r" if sys.stderr.isatty() and step < self.steps else "\n",
              file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        print(f"\n{self.name}: {text}", file=sys.stderr, flush=True)


class Run:
    """A folder that holds one `<stage>.pt` per stage, replaced whole at each save."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._epochs: dict[str, int] = {}

    def progress(self, stage: str, start: int, steps: int) -> Progress:
        return Progress(stage, start, steps)

    @staticmethod
    def cosine(steps: int, warmup: int) -> Callable[[int], float]:
        """Learning-rate factor: linear warm-up, then a cosine down to 2%."""

        def factor(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            share = min(1.0, (step - warmup) / max(1, steps - warmup))
            return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share))

        return factor

    def epoch(self, stage: str) -> int:
        """How often the stage was resumed: a resumed run draws other data than its first part."""
        return self._epochs.get(stage, 0)

    def save(self, stage: str, step: int, modules: Mapping[str, Any],
             optimiser: Any = None) -> None:
        """Replace the stage's checkpoint; without an optimiser it cannot be trained on."""
        path = self.folder / f"{stage}.pt"
        state = {"step": step, "epoch": self.epoch(stage),
                 "optimiser": optimiser and optimiser.state_dict(),
                 "modules": {name: m.state_dict() for name, m in modules.items()}}
        with replacing(path) as file:
            torch.save(state, file)

    def has(self, stage: str) -> bool:
        """Whether the stage has a checkpoint."""
        return (self.folder / f"{stage}.pt").exists()

    def restore(self, stage: str, modules: Mapping[str, Any], optimiser: Any = None, *,
                partial: bool = False) -> int:
        """Load the stage's checkpoint into `modules`; the step it had reached, 0 without one.

        With `partial`, modules of the checkpoint that are not asked for are left out.
        """
        path = self.folder / f"{stage}.pt"
        if not path.exists():
            return 0
        state = torch.load(path, weights_only=True)
        if not partial and set(modules) != set(state["modules"]):
            raise ValueError(f"{path} holds {sorted(state['modules'])}, not {sorted(modules)}")
        for name, module in modules.items():
            module.load_state_dict(state["modules"][name])
        if optimiser is not None:
            optimiser.load_state_dict(state["optimiser"])
        self._epochs[stage] = state["epoch"] + 1
        return int(state["step"])
