"""Run the second training stage, with checkpoints, resume and an estimate of the time left."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ...learn.measures import auroc
from .checkpoints import Run
from .corpus import moves
from .language import EXITS, MOTION_S, SETTLED_S, Asker, DeskClip, SceneLabels, Scratchpad, Student
from .optimiser import Optimiser
from .strips import GROUPS, StripStore, both_ways, encode

YES_NO, CHOICES = 7, 1
STEP_TOKENS = 7700  # clips of a step: as many as cost about this much, prefix and questions
LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16)
LENGTH_SHARE = (0.04, 0.08, 0.12, 0.2, 0.18, 0.2, 0.1, 0.08)
SIZE_SHARE = {(160, 128): 0.8, (192, 96): 0.1, (128, 128): 0.1}
# Where someone moves, so many clips have their groups in random order: there nobody goes anywhere.
SHUFFLED_GROUPS, SHUFFLED_SHARE = 4, 0.5
JUMBLED_SHARE = 0.7  # of clips have the frames of groups exchanged
VALIDATION_SEEDS = 900_000_000
REPORT = ("person", "second_person", "door_open", "cup", "phone", "laptop", "pen", "holding_cup",
          "holding_phone", "holding_pen", "cup_left_of_laptop", "phone_right_of_laptop",
          "approaching", "receding", "moving_left", "moving_right", "doing_typing")


def step_clips(rng: np.random.Generator, store: StripStore, tokens: int = STEP_TOKENS,
               questions: int = YES_NO + CHOICES) -> list[DeskClip]:
    """Draw the clips of a step of about `tokens` tokens, all of one length."""
    n = int(rng.choice(LENGTHS, p=LENGTH_SHARE))
    return draw_clips(rng, store, n, tokens // (30 * n + 40 + 20 * questions), SHUFFLED_SHARE)


def draw_clips(rng: np.random.Generator, store: StripStore, n: int, count: int,
               shuffled: float = 0.0) -> list[DeskClip]:
    """Draw `count` clips of `n` groups and of one size, each ending a moment after any change.

    shuffled: share of the clips in which someone moves that have their groups in random order.
    """
    sizes = sorted({strip.size for strip in store.strips})  # few strips may lack one
    shares = np.array([SIZE_SHARE[size] for size in sizes])
    size = sizes[int(rng.choice(len(sizes), p=shares / shares.sum()))]
    clips: list[DeskClip] = []
    while len(clips) < count:
        index = int(rng.integers(len(store)))
        strip, opposite = store.strips[index], store.backwards[index]
        if strip.size != size:
            continue
        if rng.random() < 0.5:
            strip, opposite = opposite, strip
        end = int(rng.integers(n, GROUPS + 1))
        clip = DeskClip(strip, tuple(range(end - n, end)))
        if clip.now.since_s < SETTLED_S or (not clip.shows_motion and n > 1 and rng.random() < 0.7):
            continue
        if n > 1 and not (moves(clip.now.state) and clip.shows_motion) and rng.random() < 0.55:
            continue  # someone moves in about a quarter of all moments: show about half
        if n >= SHUFFLED_GROUPS and moves(clip.now.state) and rng.random() < shuffled:
            clip = clip.shuffle(rng)
        if rng.random() < JUMBLED_SHARE:
            clip = replace(clip, strip=strip.jumbled(opposite, rng))
        clips.append(clip)
    return clips


def evaluate(student: Student, asker: Asker, clips: list[DeskClip],
             depth: int) -> tuple[dict[str, float], dict[str, float]]:
    """AUROC per yes/no family and accuracy per choice family on clips of one length and size."""
    yes_no = [f for f in asker.families if not f.options]
    choices = [f for f in asker.families if f.options]
    margins, picks = [], []
    with torch.no_grad():
        for k in range(0, len(clips), 16):
            part = clips[k:k + 16]
            _, states, plan = student.prefix(part)
            asked = [asker.tokens(f.texts[0]) for f in yes_no]
            logits = student.answer_logits(states, plan, [[a[0] for a in asked]] * len(part),
                                           [depth])[depth]
            margins.append((logits[..., asked[0][1][0]] - logits[..., asked[0][1][1]]).numpy())
            asked = [asker.tokens(f.texts[0], f.options) for f in choices]
            logits = student.answer_logits(states, plan, [[a[0] for a in asked]] * len(part),
                                           [depth])[depth]
            picks.append(np.stack([logits[:, i, a[1]].argmax(-1).numpy()
                                   for i, a in enumerate(asked)], axis=1))
    margin, pick = np.concatenate(margins), np.concatenate(picks)
    ranks = {}
    for i, family in enumerate(yes_no):
        truth = np.array([family.answer(c.now.state, c.now.x) == "Yes" for c in clips])
        if 0 < truth.sum() < len(truth):
            ranks[family.name] = auroc(truth, margin[:, i])
    accuracy = {f.name: float(np.mean([f.options[p] == f.answer(c.now.state, c.now.x)
                                       for p, c in zip(pick[:, i], clips, strict=True)]))
                for i, f in enumerate(choices)}
    return ranks, accuracy


def validation_clips(run: Run, count: int = 160) -> list[DeskClip]:
    """Settled 8-group clips of held-out worlds, all of the main size."""
    clips, seed = [], VALIDATION_SEEDS
    checkpoint = str(run.folder / "vision.pt")
    while len(clips) < count:
        strip = both_ways(*encode(seed, checkpoint))[0]
        seed += 1
        if strip.size == (160, 128):
            clips += [DeskClip(strip, tuple(range(e - 7, e + 1))) for e in (9, 12, 15)
                      if strip.moments[e].since_s >= MOTION_S + 0.1]
    return clips[:count]


def train_language(model: Any, tokenizer: Any, run: Run, steps: int, strips: int,
                   lr: float = 2e-3) -> None:
    """Train the language model of `model` for `steps` steps on up to `strips` strips."""
    student = Student(model, tokenizer)
    scratchpads = torch.nn.ModuleList(Scratchpad(student.model.config.hidden_size) for _ in EXITS)
    modules = {"language_model": student.model, "scratchpads": scratchpads}
    optimiser = Optimiser(modules.values(), lr, run.cosine(steps, warmup=150))
    start = run.restore("language", modules, optimiser)
    if start >= steps:
        return
    store = StripStore(run.folder / "strips", run.folder / "vision.pt", strips)
    progress = run.progress("language", start, steps)
    try:
        held_out = validation_clips(run)
        store.poll(wait_for=min(strips, 600))
        asker = Asker(student.template, [m for s in store.strips[:600] for m in s.moments])
        rng = np.random.default_rng([start, 10])
        full = max(EXITS)
        for step in range(start, steps):
            store.poll()
            clips = step_clips(rng, store)
            want = SceneLabels.of(clips)
            losses: dict[str, torch.Tensor] = {}
            with torch.autocast("cpu", torch.bfloat16):
                every, states, plan = student.prefix(clips)
                for name, count, choice in (("yes_no", YES_NO, False), ("choice", CHOICES, True)):
                    asked = [asker.draw(rng, clip, count, choice) for clip in clips]
                    logits = student.answer_logits(
                        states, plan, [[a for a, _ in row] for row in asked], list(EXITS))
                    right = torch.tensor([[b for _, b in row] for row in asked]).flatten()
                    each = {d: F.cross_entropy(x.flatten(0, 1), right) for d, x in logits.items()}
                    losses[name] = sum(EXITS[d] * loss for d, loss in each.items()) * (
                        0.5 if choice else 1.0)
                    losses[f"{name}@{full}"] = each[full].detach()
            for scratchpad, depth in zip(scratchpads, EXITS, strict=True):
                behind = student.model.norm(every[depth - 1].float())
                losses[f"scene@{depth}"] = 0.4 * scratchpad.loss(behind, want)
            optimiser.step(sum(loss for loss in losses.values() if loss.requires_grad))
            shown = {k: float(v.detach()) for k, v in losses.items()}
            progress.update(step + 1, {**shown, "strips": float(len(store))})
            if (step + 1) % 100 == 0 or step + 1 == steps:
                auroc, accuracy = evaluate(student, asker, held_out, full)
                progress.note("  ".join(f"{k} {auroc[k]:.3f}" for k in REPORT if k in auroc)
                              + "  |  " + "  ".join(f"{k} {v:.2f}" for k, v in accuracy.items()))
                run.save("language", step + 1, modules, optimiser)
    finally:
        store.close()
