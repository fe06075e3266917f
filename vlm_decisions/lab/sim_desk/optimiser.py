"""Muon for the matrices, AdamW for the rest, one schedule for both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn


class Optimiser:
    """Steps all parameters of some modules.

    Weight matrices are stepped by Muon (https://kellerjordan.github.io/posts/muon/), which needs
    markedly fewer steps than AdamW for models of this size; its update is scaled to AdamW's, so one
    learning rate serves both. Embeddings, convolutions, gains and biases stay with AdamW.
    """

    def __init__(self, modules: Iterable[nn.Module], lr: float, factor: Callable[[int], float],
                 weight_decay: float = 0.03) -> None:
        matrices, rest, seen = [], [], set()
        for module in modules:
            embeddings = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
            for parameter in module.parameters():
                if not parameter.requires_grad or id(parameter) in seen:
                    continue
                seen.add(id(parameter))
                matrix = parameter.ndim == 2 and min(parameter.shape) >= 32
                (matrices if matrix and id(parameter) not in embeddings else rest).append(parameter)
        self.parameters = matrices + rest
        self._parts: list[torch.optim.Optimizer] = [
            torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay,
                             adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(rest, lr=lr, weight_decay=weight_decay, betas=(0.9, 0.98)),
        ]
        self._schedules = [torch.optim.lr_scheduler.LambdaLR(p, factor) for p in self._parts]

    def step(self, loss: torch.Tensor) -> None:
        """One step down the gradient of `loss`, its norm clipped to 1."""
        self.gradient(loss)
        self._descend()

    def gradient(self, loss: torch.Tensor) -> list[torch.Tensor | None]:
        """Return the gradient of `loss` by `parameters`, without a step."""
        for part in self._parts:
            part.zero_grad()
        loss.backward()
        return [p.grad for p in self.parameters]

    def follow(self, gradient: Sequence[torch.Tensor]) -> None:
        """One step down a gradient that was taken elsewhere."""
        for parameter, own in zip(self.parameters, gradient, strict=True):
            parameter.grad = own.clone()
        self._descend()

    def _descend(self) -> None:
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        for part, schedule in zip(self._parts, self._schedules, strict=True):
            part.step()
            schedule.step()

    def state_dict(self) -> dict[str, Any]:
        return {"parts": [p.state_dict() for p in self._parts],
                "schedules": [s.state_dict() for s in self._schedules]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for part, saved in zip(self._parts, state["parts"], strict=True):
            part.load_state_dict(saved)
        for schedule, saved in zip(self._schedules, state["schedules"], strict=True):
            # The rate is this run's: only how far the schedule has come is restored.
            schedule.load_state_dict({**saved, "base_lrs": schedule.base_lrs})
