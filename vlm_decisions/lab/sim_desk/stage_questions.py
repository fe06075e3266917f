"""Third training stage: the language model learns the grammar of questions, and forgets nothing.

It begins with the second stage's language model, its vocabulary grown by the grammar's words. Each
step asks many questions behind a short prefix: language is learned from few pictures and much text.
Every few steps repeat the second stage's own material, so that all it could do stays. What cannot
be known is taught as P(yes) = 0.5.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ...sim.choices import choice
from ...sim.facts import Scene, facts_of
from ...sim.grammar import Balance, draw
from .architecture import config
from .checkpoints import Run
from .language import EXITS, Asker, DeskClip, Student
from .optimiser import Optimiser
from .scenes import Moment
from .stage_language import CHOICES, YES_NO, draw_clips, step_clips
from .strips import StripStore
from .tokenizer import grow
from .workers import Companion

LENGTHS, LENGTH_SHARE = (1, 2, 4, 8), (0.4, 0.16, 0.2, 0.24)
QUESTIONS = 24  # of a clip and step
STEP_TOKENS = 3400
REPEATED = 0.3  # of the steps have the second stage's material
SHORT, LONG = 21, 34  # tokens of a question and its tail: a step's are of one sort, padding is dear
SHORT_STEPS = 0.55
QUESTION_EXITS = {2: 0.05, 4: 0.25, 6: 1.0}  # two layers understand little
UNKNOWN, OPTIONS = 0.07, 0.06  # of the questions nothing answers; have options
LINES = 8_000  # of the grammar, to take words from
SAMPLE_SEEDS = 5_000
SAVE_EVERY = 25
WORD = re.compile(r"(?:^| )[A-Za-z']+")


def scene_of(moment: Moment) -> Scene:
    """Return what the grammar asks about of a moment."""
    return Scene(moment.state, moment.x, moment.scale)


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


class Examiner:
    """Draws questions of the grammar about clips, each as often true as false."""

    def __init__(self, template: Any, without: frozenset[str] = frozenset()) -> None:
        """`without`: families of tags never drawn, for controls."""
        rng = np.random.default_rng(SAMPLE_SEEDS)
        self.template, self.without = template, without
        self.balance = Balance([random_scene(rng) for _ in range(600)])

    def draw(self, rng: np.random.Generator, clip: DeskClip, count: int, longest: int,
             shortest: int = 0, split: str = "train") -> list[tuple[list[int], list[float], int]]:
        """Draw `count` questions: suffix ids, [P(yes), P(no)] or [], id of the right answer."""
        facts = facts_of(scene_of(clip.now))
        yes_no = [self.template.yes_id, self.template.no_id]
        found: list[tuple[list[int], list[float], int]] = []
        while len(found) < count:
            roll = rng.random() if split == "train" else 1.0
            if roll < OPTIONS:
                made = choice(rng, facts, clip.shows_motion)
                if made is None:
                    continue
                q = self.template.question(made.text, made.options)
                item = (q.ids[q.trunk:], [], q.answer_ids[made.answer])
            else:
                unknown = roll < OPTIONS + UNKNOWN
                phrase = draw(rng, "unknown" if unknown else split, self.without)
                if phrase.motion and not clip.shows_motion:
                    continue
                if not unknown and not self.balance.keep(phrase.meaning, facts, rng):
                    continue
                if "relation" in phrase.kinds and rng.random() < 0.5 and not any(
                        facts[name] > 0 or facts[turned(name)] > 0
                        for name in phrase.meaning.facts() if name.startswith("left:")):
                    continue  # asked mostly where both things are in view
                value = 0 if unknown else int(phrase.meaning.value(facts))
                q = self.template.question(phrase.text)
                item = (q.ids[q.trunk:], [(1 + value) / 2, (1 - value) / 2],
                        yes_no[0 if value >= 0 else 1])
            if shortest < len(item[0]) <= longest:
                found.append(item)
        return found


def turned(name: str) -> str:
    """Return the fact of a relation the other way round."""
    kind, one, other = name.split(":")
    return f"{kind}:{other}:{one}"


def soft_loss(logits: torch.Tensor, asked: Sequence[Sequence[tuple[list[int], list[float], int]]],
              yes_no: tuple[int, int]) -> torch.Tensor:
    """Cross entropy of (B, N, V) logits with what each question's answer is, or may be."""
    log_p = F.log_softmax(logits.flatten(0, 1), -1)
    items = [item for row in asked for item in row]
    right = torch.tensor([item[2] for item in items])
    soft = torch.tensor([item[1] or [0.0, 0.0] for item in items])
    hard = torch.tensor([not item[1] for item in items])
    known = log_p.gather(1, right[:, None])[:, 0]
    either = (log_p[:, list(yes_no)] * soft).sum(1)
    return -torch.where(hard, known, either).mean()


def question_clips(rng: np.random.Generator, store: StripStore, suffix: int) -> list[DeskClip]:
    """Draw clips of one length and size, as many as `suffix` tokens a question allow."""
    n = int(rng.choice(LENGTHS, p=LENGTH_SHARE))
    return draw_clips(rng, store, n, max(2, STEP_TOKENS // (30 * n + 40 + QUESTIONS * suffix)))


@dataclass
class Lessons:
    """Draws steps of this stage, and of the one before, and takes their loss."""

    student: Student
    store: StripStore
    asker: Asker
    examiner: Examiner

    def loss(self, rng: np.random.Generator) -> tuple[torch.Tensor, dict[str, float]]:
        """Return the loss of a step on fresh material, and the part of the full depth by name."""
        if rng.random() < REPEATED:
            name, clips = "repeated", step_clips(rng, self.store, STEP_TOKENS)
            asked = [[(ids, [], right) for ids, right in
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
            _, states, plan = self.student.prefix(clips)
            logits = self.student.answer_logits(
                states, plan, [[item[0] for item in row] for row in asked], list(EXITS))
            each = {d: soft_loss(x, asked, (template.yes_id, template.no_id))
                    for d, x in logits.items()}
        weights = EXITS if name == "repeated" else QUESTION_EXITS
        loss = sum(weights[d] * x for d, x in each.items())
        return loss, {name: float(each[max(EXITS)].detach())}


def train_questions(model: Any, tokenizer: Any, run: Run, steps: int, strips: int,
                    lr: float = 1.8e-3, without: frozenset[str] = frozenset()) -> None:
    """Train the language model of `model` for `steps` steps, in two processes."""
    student = Student(model, tokenizer)
    modules = {"language_model": student.model}
    optimiser = Optimiser(modules.values(), lr, run.cosine(steps, warmup=60))
    start = run.restore("questions", modules, optimiser)
    if start >= steps:
        return
    store = StripStore(run.folder / "strips", run.folder / "vision.pt", strips)
    store.poll(wait_for=strips)
    store.close()
    progress = run.progress("questions", start, steps)
    asker = Asker(student.template, [m for s in store.strips[:600] for m in s.moments])
    lessons = Lessons(student, store, asker, Examiner(student.template, without))
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
