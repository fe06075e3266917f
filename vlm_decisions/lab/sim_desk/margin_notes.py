"""What the third stage has the language model note besides answers; used in training alone.

An answer is one bit. The world gives more for nothing: every fact of the grammar at every group,
and for every question which facts it rests on, each affirmed or denied. Linear layers on the
states behind groups and questions are taught these, and are thrown away afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...sim.facts import Meaning, Scene, facts_of
from .language import MOTION_GROUPS, MOTION_S, SETTLED_S, DeskClip
from .scenes import Moment

ASKED_WEIGHT = 0.06
GAIN = 10.0  # of the label layers: a step moves weights of the model's own size little


def scene_of(moment: Moment) -> Scene:
    """Return what the grammar asks about of a moment."""
    return Scene(moment.state, moment.x, moment.scale)


def literals(meaning: Meaning, affirmed: bool = True) -> tuple[set[tuple[str, bool]], set[str]]:
    """Return the facts that a meaning rests on, each affirmed or denied, and how it joins them.

    "Not" is moved inwards, so that a denied "and" is an "or" of denied facts.
    """
    if meaning.op == "fact":
        return {(meaning.parts[0], affirmed)}, set()
    if meaning.op == "unknown":
        return set(), {"unknown"}
    if meaning.op == "not":
        return literals(meaning.parts[0], not affirmed)
    found = [literals(part, affirmed) for part in meaning.parts]
    how = meaning.op if affirmed else {"and": "or", "or": "and"}[meaning.op]
    return set().union(*(f[0] for f in found)), set().union({how}, *(f[1] for f in found))


def _told(layer: nn.Linear, hidden: Tensor) -> Tensor:
    return GAIN * layer(hidden)


class MarginNotes(nn.Module):
    """Linear label layers: the facts of each group, and what each question asks."""

    def __init__(self, dim: int, example: Scene) -> None:
        """Take the names of the facts from any scene, `example`."""
        super().__init__()
        self.names = tuple(facts_of(example))
        self._motion = [k for k, name in enumerate(self.names)
                        if name in ("moving", "still") or name.startswith("motion:")]
        columns = [*((name, True) for name in self.names), *((name, False) for name in self.names)]
        self._columns = {literal: k for k, literal in enumerate(columns)}
        for name in ("and", "or", "unknown"):
            self._columns[name, True] = len(self._columns)
        self.facts = nn.Linear(dim, len(self.names))
        self.asked = nn.Linear(dim, len(self._columns))
        for layer in (self.facts, self.asked):
            nn.init.zeros_(layer.weight)
        nn.init.constant_(self.asked.bias, -4.0 / GAIN)
        self._known: dict[int, np.ndarray] = {}

    def _facts(self, moment: Moment) -> np.ndarray:
        key = id(moment)
        if key not in self._known:
            self._known[key] = np.array(list(facts_of(scene_of(moment)).values()), np.int8)
        return self._known[key]

    def scene_loss(self, hidden: Tensor, clips: Sequence[DeskClip]) -> Tensor:
        """Loss of the states (B, n, dim) behind the groups of each clip by the facts there."""
        want = np.zeros((*hidden.shape[:2], len(self.names)), np.float32)
        for row, clip in zip(want, clips, strict=True):
            for g, index in enumerate(clip.groups):
                moment = clip.strip.moments[index]
                if moment.since_s >= SETTLED_S:
                    row[g] = self._facts(moment)
                if g + 1 < MOTION_GROUPS or moment.since_s < MOTION_S or clip.shuffled:
                    row[g, self._motion] = 0
        true = torch.from_numpy(want)
        weights = true.abs()
        loss = F.binary_cross_entropy_with_logits(_told(self.facts, hidden), (true > 0).float(),
                                                  weights, reduction="sum")
        return loss / weights.sum().clamp(min=1)

    def asked_loss(self, hidden: Tensor, meanings: Sequence[Meaning | None]) -> Tensor:
        """Loss of the states (Q, dim) behind questions by what each asks; None is left out."""
        rows, columns, kept = [], [], []
        for meaning in meanings:
            if meaning is None:
                continue
            facts, how = literals(meaning)
            found = [self._columns[literal] for literal in facts]
            found += [self._columns[name, True] for name in how]
            rows += [len(kept)] * len(found)
            columns += found
            kept.append(meaning)
        chosen = hidden[torch.tensor([m is not None for m in meanings])]
        true = torch.zeros(len(kept), len(self._columns))
        true[rows, columns] = 1.0
        loss = F.binary_cross_entropy_with_logits(_told(self.asked, chosen), true,
                                                  reduction="sum")
        return ASKED_WEIGHT * loss / max(1, len(kept))
