"""Third training stage: the language model learns the grammar of questions, and forgets nothing.

It begins with the second stage's language model, its vocabulary grown by the grammar's words. Each
step asks many questions behind a short prefix: language is learned from few pictures and much text.
Every few steps repeat the second stage's own material, so that all it could do stays. What cannot
be known is taught as P(yes) = 0.5.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ...sim.choices import choice
from ...sim.facts import Meaning, Scene, facts_of
from ...sim.grammar import Balance, draw
from .architecture import config
from .checkpoints import Run
from .language import EXITS, Asker, DeskClip, SceneLabels, Scratchpad, Student
from .margin_notes import MarginNotes, scene_of
from .optimiser import Optimiser
from .stage_language import SHUFFLED_SHARE, draw_clips, step_clips
from .strips import StripStore
from .tokenizer import grow
from .workers import Companion

LENGTHS, LENGTH_SHARE = (1, 2, 4, 8), (0.3, 0.14, 0.26, 0.3)
QUESTIONS = 24  # of a clip and step
STEP_TOKENS = 3400
REPEATED = 0.5  # of the steps have the second stage's material
YES_NO, CHOICES = 12, 2  # questions of a clip there
SHORT, LONG = 21, 34  # tokens of a question and its tail: a step's are of one sort, padding is dear
SHORT_STEPS = 0.55
NOTED, ASKED_AT = (4, 6), (4,)  # layers whose states hold the facts; what was asked
QUESTION_EXITS = {2: 0.05, 4: 0.25, 6: 1.0}  # two layers understand little
UNKNOWN, OPTIONS = 0.1, 0.08  # of the questions nothing answers; have options
TRIES = 50  # to draw a question of a kind about a clip, before another kind is taken
LINES = 8_000  # of the grammar, to take words from
SAMPLE_SEEDS = 5_000
SAVE_EVERY = 25
WORD = re.compile(r"(?:^| )[A-Za-z']+")


def grown_model(tokenizer: Any, model: Any, folder: Path) -> tuple[Any, Any]:
    """Return the tokenizer with the grammar's words and the model with rows for them.

    The words are kept in `folder`, so that a run goes on with the vocabulary it began with. A new
    word begins as the mean of the pieces it was made of.
    """
    from transformers import Qwen3_5ForConditionalGeneration

    path = folder / "words.json"
    if not path.exists():
        path.write_text(json.dumps(grammar_lines(np.random.default_rng(21))))
    tokenizer, made = grow(tokenizer, json.loads(path.read_text()))
    grown = Qwen3_5ForConditionalGeneration(config(tokenizer))
    weights = model.state_dict()
    rows = weights["model.language_model.embed_tokens.weight"]
    for name in ("model.language_model.embed_tokens.weight", "lm_head.weight"):
        if name in weights:
            weights[name] = torch.stack([rows[ids].mean(0) for ids in made])
    grown.load_state_dict(weights)
    return tokenizer, grown


def grammar_lines(rng: np.random.Generator) -> list[str]:
    """Return texts of the grammar, enough to have all its words."""
    lines = [draw(rng).text for _ in range(LINES)]
    for _ in range(LINES // 4):
        found = choice(rng, facts_of(random_scene(rng)), True)
        if found is not None:
            lines += [found.text, *(f"Options: {option}, " for option in found.options)]
    return sorted({word for line in lines for word in WORD.findall(line)})


def random_scene(rng: np.random.Generator) -> Scene:
    """Draw a moment of the world as scripts have it."""
    from ...sim.script import random_state

    state = random_state(rng, 2.0)
    return Scene(state, *state.at(float(rng.uniform(0.2, 2.0))))


@dataclass(frozen=True)
class Asked:
    """A question behind a prefix, and its answer.

    ids: of its tokens; right: id of the right answer; soft: (P(yes), P(no)) to teach in its place;
    meaning: what it asks, where the grammar says it.
    """

    ids: list[int]
    right: int
    soft: tuple[float, float] | None = None
    meaning: Meaning | None = None


class Examiner:
    """Draws questions of the grammar about clips, each as often true as false."""

    def __init__(self, template: Any, without: frozenset[str] = frozenset()) -> None:
        """`without`: families of tags never drawn, for controls."""
        rng = np.random.default_rng(SAMPLE_SEEDS)
        self.template, self.without = template, without
        self.balance = Balance([random_scene(rng) for _ in range(600)])

    def draw(self, rng: np.random.Generator, clip: DeskClip, count: int, longest: int,
             shortest: int = 0, split: str = "train") -> list[Asked]:
        """Draw `count` questions about a clip, of more than `shortest`, up to `longest` tokens."""
        facts = facts_of(scene_of(clip.now))
        if clip.shuffled:  # as in the second stage: in random order nobody goes anywhere
            facts |= {name: -1 for name in facts if name.startswith("motion:")}
            facts |= {"moving": 0, "still": 0}
        found: list[Asked] = []
        while len(found) < count:
            roll = rng.random() if split == "train" else 1.0
            kind = ("options" if roll < OPTIONS
                    else "unknown" if roll < OPTIONS + UNKNOWN else split)
            for _ in range(TRIES):  # so that each kind has its share, where it has such questions
                item = self._drawn(rng, clip, facts, kind)
                if item is not None and shortest < len(item.ids) <= longest:
                    found.append(item)
                    break
        return found

    def _drawn(self, rng: np.random.Generator, clip: DeskClip, facts: Mapping[str, int],
               kind: str) -> Asked | None:
        """Draw a question with options, or of a split; None where it cannot be asked there."""
        if kind == "options":
            made = choice(rng, facts, clip.shows_motion and not clip.shuffled)
            if made is None:
                return None
            q = self.template.question(made.text, made.options)
            return Asked(q.ids[q.trunk:], q.answer_ids[made.answer])
        phrase = draw(rng, kind, self.without)
        if phrase.motion and not (clip.shows_motion or clip.shuffled):
            return None
        if kind != "unknown" and not self.balance.keep(phrase.meaning, facts, rng):
            return None
        if "relation" in phrase.kinds and rng.random() < 0.5 and not any(
                facts[name] > 0 or facts[turned(name)] > 0
                for name in phrase.meaning.facts() if name.startswith("left:")):
            return None  # asked mostly where both things are in view
        value = 0 if kind == "unknown" else int(phrase.meaning.value(facts))
        q = self.template.question(phrase.text)
        right = self.template.yes_id if value >= 0 else self.template.no_id
        return Asked(q.ids[q.trunk:], right, ((1 + value) / 2, (1 - value) / 2), phrase.meaning)


def turned(name: str) -> str:
    """Return the fact of a relation the other way round."""
    kind, one, other = name.split(":")
    return f"{kind}:{other}:{one}"


def soft_loss(logits: torch.Tensor, asked: Sequence[Sequence[Asked]],
              yes_no: tuple[int, int]) -> torch.Tensor:
    """Cross entropy of (B, N, V) logits with what each question's answer is, or may be."""
    log_p = F.log_softmax(logits.flatten(0, 1), -1)
    items = [item for row in asked for item in row]
    right = torch.tensor([item.right for item in items])
    soft = torch.tensor([item.soft or (0.0, 0.0) for item in items])
    hard = torch.tensor([item.soft is None for item in items])
    known = log_p.gather(1, right[:, None])[:, 0]
    either = (log_p[:, list(yes_no)] * soft).sum(1)
    return -torch.where(hard, known, either).mean()


def question_clips(rng: np.random.Generator, store: StripStore, suffix: int) -> list[DeskClip]:
    """Draw clips of one length and size, as many as `suffix` tokens a question allow."""
    n = int(rng.choice(LENGTHS, p=LENGTH_SHARE))
    return draw_clips(rng, store, n, max(2, STEP_TOKENS // (30 * n + 40 + QUESTIONS * suffix)),
                      SHUFFLED_SHARE)


class Lessons:
    """Draws steps of this stage, and of the one before, and takes their loss."""

    def __init__(self, student: Student, store: StripStore, asker: Asker,
                 examiner: Examiner) -> None:
        self.student, self.store, self.asker, self.examiner = student, store, asker, examiner
        dim = student.model.config.hidden_size
        example = scene_of(store.strips[0].moments[0])
        self.notes = nn.ModuleDict({str(d): MarginNotes(dim, example) for d in NOTED})
        self.scratchpads = nn.ModuleDict({str(d): Scratchpad(dim) for d in NOTED})

    def loss(self, rng: np.random.Generator) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss of a step on fresh material, and the parts of it by name."""
        if rng.random() < REPEATED:
            name = "repeated"
            clips = step_clips(rng, self.store, STEP_TOKENS, YES_NO + CHOICES)
            asked = [[Asked(ids, right) for ids, right in
                      (*self.asker.draw(rng, clip, YES_NO, False),
                       *self.asker.draw(rng, clip, CHOICES, True))] for clip in clips]
        else:
            short = rng.random() < SHORT_STEPS
            name, longest = "questions", SHORT if short else LONG
            clips = question_clips(rng, self.store, SHORT if short else 30)
            asked = [self.examiner.draw(rng, clip, QUESTIONS, longest, 0 if short else SHORT)
                     for clip in clips]
        template = self.student.template
        with torch.autocast("cpu", torch.bfloat16):
            every, states, plan = self.student.prefix(clips)
            behind, logits = self.student.answers(
                states, plan, [[item.ids for item in row] for row in asked], list(EXITS))
            each = {d: soft_loss(x, asked, (template.yes_id, template.no_id))
                    for d, x in logits.items()}
        weights = EXITS if name == "repeated" else QUESTION_EXITS
        loss = sum(weights[d] * x for d, x in each.items())
        shown = {name: float(each[max(EXITS)].detach())}
        want, meanings = SceneLabels.of(clips), [item.meaning for row in asked for item in row]
        for d in NOTED:
            notes, norm = self.notes[str(d)], self.student.model.norm
            there = norm(every[d - 1].float())
            parts = {"facts": notes.scene_loss(there, clips),
                     "scene": 0.3 * self.scratchpads[str(d)].loss(there, want)}
            if name == "questions" and d in ASKED_AT:
                parts["asked"] = notes.asked_loss(norm(behind[d - 1].float()).flatten(0, 1),
                                                  meanings)
            loss = loss + sum(parts.values())
            shown |= {f"{part}@{d}": float(x.detach()) for part, x in parts.items()}
        return loss, shown


def train_questions(model: Any, tokenizer: Any, run: Run, steps: int, strips: int,
                    lr: float = 1.2e-3, without: frozenset[str] = frozenset()) -> None:
    """Train the language model of `model` for `steps` steps, in two processes."""
    student = Student(model, tokenizer)
    if run.restore("questions", {"language_model": student.model}, partial=True) >= steps:
        return
    store = StripStore(run.folder / "strips", run.folder / "vision.pt", strips)
    store.poll(wait_for=strips)
    store.close()
    asker = Asker(student.template, [m for s in store.strips[:600] for m in s.moments])
    lessons = Lessons(student, store, asker, Examiner(student.template, without))
    modules = {"language_model": student.model, "notes": lessons.notes,
               "scratchpads": lessons.scratchpads}
    optimiser = Optimiser(modules.values(), lr, run.cosine(steps, warmup=60))
    start = run.restore("questions", modules, optimiser)
    progress = run.progress("questions", start, steps)
    rng, other = np.random.default_rng([start, 11]), np.random.default_rng([start, 12])
    companion = Companion(optimiser.parameters,
                          lambda: optimiser.gradient(lessons.loss(other)[0]))
    step = saved = start
    try:
        while step < steps:
            loss, shown = lessons.loss(rng)
            optimiser.step(loss)
            step += 1 + (step + 1 < steps and companion.take(optimiser.follow))
            progress.update(step, shown)
            if step - saved >= SAVE_EVERY or step == steps:
                run.save("questions", step, modules, optimiser)
                saved = step
    finally:
        companion.close()
