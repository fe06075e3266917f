"""Second stage: the language model learns to answer from cached vision features.

Each step takes clips of one length, runs their shared prefix once and forks the questions off it,
as the engine does. The answer token is trained at full depth and, more lightly, at the shallower
exits, so that leaving early means something; the state behind each group learns to hold the scene.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...engine.prompt import PromptTemplate
from ...sim.script import OBJECTS
from . import forward
from .corpus import Wordings, families, moves, where
from .scenes import GROUP_S, Moment
from .strips import EncodedStrip
from .vision import FLAGS, POSE, flags_of, pose_of

SETTLED_S, MOTION_S = 0.14, 0.4  # how long a state must have held to be asked about
MOTION_GROUPS = 2
MOTION_WEIGHT = 3.0  # motion is known for few groups and learnt last
EXITS = {2: 0.2, 4: 0.4, 6: 1.0}  # depth -> weight of its answer loss
GROUP_SHARE = {"presence": 0.4, "holding": 0.06, "relation": 0.4, "motion": 0.36,
               "activity": 0.06, "choice": 1.0}  # the last learnt and first forgotten most
MOTION_FLAGS = [FLAGS.index(n) for n in ("approaching", "receding", "left", "right")]
MOTION_POSE = [POSE.index(n) for n in ("vx", "vs")]
CONTESTED = 5.0  # how much more often a question is asked where nothing simpler answers it
BEFORE = 2  # groups back: where the person was then is what a direction is read from
WAYS = (("approaching", "receding"), ("left", "right"))
PAIRS = tuple(itertools.combinations(OBJECTS, 2))  # is the first left of the second?


@dataclass(frozen=True)
class DeskClip:
    """Some groups of a strip: consecutive ones or, `shuffled`, in an order that shows no motion."""

    strip: EncodedStrip
    groups: tuple[int, ...]
    shuffled: bool = False

    @property
    def now(self) -> Moment:
        return self.strip.moments[self.groups[-1]]

    @property
    def shows_motion(self) -> bool:
        return len(self.groups) >= MOTION_GROUPS and self.now.since_s >= MOTION_S

    def shuffle(self, rng: np.random.Generator) -> DeskClip:
        """Return it with its groups (four or more) in random order, the last three not in order."""
        while True:
            clip = DeskClip(self.strip, tuple(int(g) for g in rng.permutation(self.groups)), True)
            if not in_order(clip.groups[-3:]) and clip.now.since_s >= SETTLED_S:
                return clip


def in_order(groups: Sequence[int]) -> bool:
    """Whether they follow each other in time, forwards or backwards."""
    return list(groups) in (sorted(groups), sorted(groups)[::-1])


@dataclass
class PrefixLayout:
    """Token ids and positions of a prefix of n groups on one grid; the same for every clip."""

    ids: Tensor  # (P,)
    positions: Tensor  # (3, P)
    visual: Tensor  # (n * tokens,) where the features go
    ends: Tensor  # (n,) index of each vision_end
    next_position: int


def layout(template: PromptTemplate, n: int, rows: int, columns: int) -> PrefixLayout:
    """Lay out header, n groups (rows x columns merged tokens) and the instruction."""
    ids: list[int] = []
    positions: list[tuple[int, int, int]] = []
    visual, ends, at = [], [], 0

    def text(tokens: Sequence[int]) -> None:
        nonlocal at
        for token in tokens:
            ids.append(token)
            positions.append((at, at, at))
            at += 1

    text(template.header_ids)
    for k in range(n):
        tokens = template.group_ids(GROUP_S / 4 + k * GROUP_S, rows * columns)
        first = tokens.index(template.pad_id)
        text(tokens[:first])
        for cell in range(rows * columns):
            visual.append(len(ids))
            ids.append(template.pad_id)
            positions.append((at, at + cell // columns, at + cell % columns))
        at += max(rows, columns)
        ends.append(len(ids))
        text(tokens[first + rows * columns:])
    text(template.instruction_ids)
    return PrefixLayout(torch.tensor(ids), torch.tensor(positions).T, torch.tensor(visual),
                  torch.tensor(ends), at)


@dataclass(frozen=True)
class SceneLabels:
    """What the states behind the groups of B clips should hold; weights are 0 where unknown."""

    flags: Tensor  # (B, n, FLAGS)
    flag_weights: Tensor
    pose: Tensor  # (B, n, POSE)
    pose_weights: Tensor
    sides: Tensor  # (B, n, PAIRS)
    side_weights: Tensor
    ways: Tensor  # (B, n, 2) approaching, not receding; left, not right
    way_weights: Tensor
    before: Tensor  # (B, n, 2) x and ln scale of the person `BEFORE` groups ago
    before_weights: Tensor

    @staticmethod
    def of(clips: Sequence[DeskClip]) -> SceneLabels:
        rows: tuple[list[Any], ...] = tuple([] for _ in SceneLabels.__dataclass_fields__)
        for clip in clips:
            for g, index in enumerate(clip.groups):
                moment = clip.strip.moments[index]
                settled = float(moment.since_s >= SETTLED_S)
                moving = float(g + 1 >= MOTION_GROUPS and moment.since_s >= MOTION_S
                               and not clip.shuffled)
                pose, known = pose_of(moment)
                flags = np.array(flags_of(moment), np.float32)
                flag_weights, pose_weights = np.full(len(FLAGS), settled), np.array(known) * settled
                flag_weights[MOTION_FLAGS] = moving * MOTION_WEIGHT
                if clip.shuffled and not in_order(clip.groups[max(0, g - 2):g + 1]):
                    flags[MOTION_FLAGS], flag_weights[MOTION_FLAGS] = 0.0, settled * MOTION_WEIGHT
                pose_weights[MOTION_POSE] *= moving * MOTION_WEIGHT
                places = {n: where(moment.state, moment.x, n) for n in OBJECTS}
                pairs = [(places[a], places[b]) for a, b in PAIRS]
                both = [float(None not in pair) * settled for pair in pairs]
                sides = [float(None not in pair and pair[0] < pair[1]) for pair in pairs]
                way = moment.state.motion if moment.state.person else "still"
                way_weights = [moving * (way in pair) for pair in WAYS]
                then, there = pose_of(clip.strip.moments[clip.groups[max(0, g - BEFORE)]])
                was = [k * (g >= BEFORE) for k in there[:2]]
                for row, value in zip(rows, (
                        flags, flag_weights, pose, pose_weights, sides, both,
                        [float(way == pair[0]) for pair in WAYS], way_weights, then[:2], was,
                        ), strict=True):
                    row.append(value)
        return SceneLabels(*(torch.tensor(np.array(row), dtype=torch.float32)
                             .view(len(clips), len(clips[0].groups), -1) for row in rows))


class Scratchpad(nn.Module):
    """Linear label layers on the state behind each group; only used in training."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.flags = nn.Linear(dim, len(FLAGS))
        self.pose = nn.Linear(dim, len(POSE))
        self.sides = nn.Linear(dim, len(PAIRS))
        self.ways = nn.Linear(dim, len(WAYS))
        self.before = nn.Linear(dim, 2)

    def loss(self, hidden: Tensor, want: SceneLabels) -> Tensor:
        """Loss of the states (B, n, dim) behind the groups of each clip."""
        def average(loss: Tensor, weights: Tensor) -> Tensor:
            return (loss * weights).sum() / weights.sum().clamp(min=1)

        def told(layer: nn.Linear, true: Tensor, weights: Tensor) -> Tensor:
            return average(F.binary_cross_entropy_with_logits(layer(hidden), true,
                                                              reduction="none"), weights)

        def near(layer: nn.Linear, true: Tensor, weights: Tensor) -> Tensor:
            return average(F.smooth_l1_loss(layer(hidden), true, reduction="none", beta=0.3),
                           weights)

        return (2 * told(self.flags, want.flags, want.flag_weights)
                + told(self.sides, want.sides, want.side_weights)
                + told(self.ways, want.ways, want.way_weights)
                + near(self.pose, want.pose, want.pose_weights)
                + near(self.before, want.before, want.before_weights))


class Asker:
    """Draws questions about a clip: most often where nothing simpler gives the answer away.

    Among those clips, and among the others, every answer of a family is as frequent as any other.
    """

    def __init__(self, template: PromptTemplate, moments: Sequence[Moment]) -> None:
        self.template = template
        self.families = families()
        self._yes_no = [f for f in self.families if not f.options]
        self._choices = [f for f in self.families if f.options]
        sizes: dict[str, int] = {}
        for family in self._yes_no:
            sizes[family.group] = sizes.get(family.group, 0) + 1
        self._base = {f.name: GROUP_SHARE[f.group] / sizes.get(f.group, 1) for f in self.families}
        self._share: dict[tuple[str, bool], dict[str, float]] = {}
        for family in self.families:
            usable = [m for m in moments if m.since_s >= (MOTION_S if family.motion else SETTLED_S)]
            for contested in (True, False):
                answers = [family.answer(m.state, m.x) for m in usable
                           if self._contested(family, m) == contested]
                self._share[family.name, contested] = {
                    a: answers.count(a) / len(answers) for a in set(answers)}
        self._tokens: dict[tuple[str, tuple[str, ...]], Any] = {}

    def tokens(self, text: str, options: tuple[str, ...] = ()) -> Any:
        """Return the question's tokens behind the instruction and its answer ids."""
        key = (text, options)
        if key not in self._tokens:
            if len(self._tokens) > 20000:
                self._tokens.clear()
            q = self.template.question(text, options)
            self._tokens[key] = (q.ids[q.trunk:], q.answer_ids)
        return self._tokens[key]

    def draw(self, rng: np.random.Generator, clip: DeskClip, count: int,
             choice: bool) -> list[tuple[list[int], int]]:
        """`count` questions about the clip: (suffix ids, id of the right answer)."""
        pool = [f for f in (self._choices if choice else self._yes_no) if not f.motion
                or (f.contested is moves if clip.shuffled else clip.shows_motion)]
        answers = [f.answer(clip.now.state, clip.now.x) for f in pool]
        if clip.shuffled:
            answers = [a if not f.motion else "nowhere" if f.options else "No"
                       for f, a in zip(pool, answers, strict=True)]
        weights = np.array([self._weight(f, a, clip.now)
                            for f, a in zip(pool, answers, strict=True)])
        picks = rng.choice(len(pool), count, p=weights / weights.sum())
        return [self._phrase(rng, pool[i], answers[i]) for i in picks]

    @staticmethod
    def _contested(family: Wordings, now: Moment) -> bool:
        return family.contested is not None and family.contested(now.state, now.x)

    def _weight(self, family: Wordings, answer: str, now: Moment) -> float:
        contested = self._contested(family, now)
        share = max(0.03, self._share[family.name, contested].get(answer, 0.03))
        return self._base[family.name] / share * (CONTESTED if contested else 1.0)

    def _phrase(self, rng: np.random.Generator, family: Wordings,
                answer: str) -> tuple[list[int], int]:
        text = family.texts[0 if rng.random() < 0.3 else int(rng.integers(len(family.texts)))]
        if not family.options:
            ids, answer_ids = self.tokens(text)
            return ids, answer_ids[0 if answer == "Yes" else 1]
        options = list(family.options)
        if rng.random() < 0.6:
            rng.shuffle(options)
        if len(options) > 2 and rng.random() < 0.3:
            others = [o for o in options if o != answer]
            dropped = set(rng.choice(others, int(rng.integers(1, len(others))), replace=False))
            options = [o for o in options if o not in dropped]
        ids, answer_ids = self.tokens(text, tuple(options))
        return ids, answer_ids[options.index(answer)]


class Student:
    """The language model under training, with its template and layouts."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model = model.model.language_model
        self.template = PromptTemplate(tokenizer)
        self.pad_id = tokenizer.pad_token_id
        self._layouts: dict[tuple[int, int, int], PrefixLayout] = {}

    def prefix(self, clips: Sequence[DeskClip]
               ) -> tuple[list[Tensor], list[forward.LayerState], PrefixLayout]:
        """Run the shared prefix of clips of one length and grid; states behind each group."""
        width, height = clips[0].strip.size
        n, rows, columns = len(clips[0].groups), height // 32, width // 32
        key = (n, rows, columns)
        if key not in self._layouts:
            self._layouts[key] = layout(self.template, *key)
        plan = self._layouts[key]
        features = np.stack([c.strip.features[list(c.groups)] for c in clips])
        visual = torch.from_numpy(features.astype(np.float32)).flatten(1, 2)
        embeds = self.model.embed_tokens(plan.ids).expand(len(clips), -1, -1).clone()
        embeds[:, plan.visual] = visual
        every, states = forward.prefix(self.model, embeds, plan.positions, plan.ends)
        return every, states, plan

    def answer_logits(self, states: list[forward.LayerState], plan: PrefixLayout,
                      suffixes: Sequence[Sequence[Sequence[int]]],
                      depths: Sequence[int]) -> dict[int, Tensor]:
        """Vocabulary logits (B, N, V) behind each of N suffixes per clip, at each depth."""
        return self.answers(states, plan, suffixes, depths)[1]

    def answers(self, states: list[forward.LayerState], plan: PrefixLayout,
                suffixes: Sequence[Sequence[Sequence[int]]],
                depths: Sequence[int]) -> tuple[list[Tensor], dict[int, Tensor]]:
        """States (B, N, D) behind the suffixes after each layer, and `answer_logits`."""
        longest = max(len(s) for row in suffixes for s in row)
        ids = torch.tensor([[list(s) + [self.pad_id] * (longest - len(s)) for s in row]
                            for row in suffixes])
        last = torch.tensor([[len(s) - 1 for s in row] for row in suffixes])
        every = forward.fork(self.model, states, self.model.embed_tokens(ids), plan.next_position,
                             last)
        heads = self.model.embed_tokens.weight
        return every, {d: (self.model.norm(every[d - 1]) @ heads.T).float() for d in depths}
