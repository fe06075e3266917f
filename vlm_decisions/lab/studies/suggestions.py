"""`vlm-decisions study suggestions`: the questions that the embedded model answers rightly.

Every candidate of the grammar is asked about held-out desks, as often where it is true as where it
is false. Those that the model gets right are written beside its weights, and the viewer offers them
to whoever types a question: only what was measured is suggested.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...learn.measures import auroc, balanced_accuracy
from ...sim import clips as desk
from ...sim.facts import Scene, facts_of
from ...sim.suggestions import candidate_choices, candidates
from .clip_answers import progress

FIRST_SEED = 870_000_000
AT_ONCE = 16  # questions asked together
EACH = 10  # desks where a candidate is true, and as many where it is false, at most
FEWEST = 5  # of either, or nothing is known of it
RIGHT = 0.95  # AUROC, and mean balanced accuracy at 0.5, of what is suggested


def suggestions(engine: Any, clips: int = 60, seed: int = 0) -> dict[str, Any]:
    """Ask the candidates about `clips` desks.

    Returns:
        suggestions: [{text, options, kind}] of what was answered rightly, the short ones first.
        asked, of: how many texts could be measured, and how many there were.
    """
    from ...engine.readout import Query

    rng = np.random.default_rng([seed, 41])
    moments = [desk.settled_moment(FIRST_SEED + k) for k in range(clips)]
    facts = [facts_of(Scene(world.state(t), *world.pose(t))) for world, t in moments]
    table = {name: np.array([f[name] for f in facts], np.int8) for name in facts[0]}
    plans: list[tuple[str, str, list[int]]] = []
    truths: dict[str, np.ndarray] = {}
    for one in candidates():
        values = np.broadcast_to(one.meaning.value(table), clips)
        sides = [np.flatnonzero(values > 0), np.flatnonzero(values < 0)]
        if min(len(side) for side in sides) >= FEWEST:
            truths[one.text] = values
            plans.append((one.text, one.kind, [int(k) for side in sides for k in rng.permutation(
                side)[:EACH]]))
    choices = {text: found for text, found in candidate_choices(facts).items()
               if len(found) >= 2 * FEWEST}
    asks: list[list[tuple[str, tuple[str, ...], int]]] = [[] for _ in facts]
    for text, _, scenes in plans:
        for k in scenes:
            asks[k].append((text, (), 0))
    for text, found in choices.items():
        for k, options, answer in found[:2 * EACH]:
            asks[k].append((text, options, answer))
    said: dict[str, list[tuple[int, float]]] = {}
    for k in progress(range(clips), clips, "clips"):
        groups = engine.encode_many(desk.window(*moments[k]).pairs)
        shown = engine.window(groups, desk.TIMES_S)
        for first in range(0, len(asks[k]), AT_ONCE):
            part = asks[k][first:first + AT_ONCE]
            readouts = shown.ask([Query(text, options) for text, options, _ in part])
            for (text, options, answer), readout in zip(part, readouts, strict=True):
                value = float(np.argmax(readout.probabilities) == answer) if options else readout.p
                said.setdefault(text, []).append((k, value))
    kept = [{"text": text, "options": [], "kind": kind} for text, kind, _ in plans
            if _understood(truths[text], said[text])]
    for text, found in choices.items():
        if np.mean([value for _, value in said[text]]) >= RIGHT:
            longest = max((options for _, options, _ in found), key=len)
            kept.append({"text": text, "options": list(longest), "kind": "choice"})
    kept.sort(key=lambda one: (len(one["text"]), one["text"]))
    return {"suggestions": kept, "asked": len(said), "of": len(candidates()) + len(choices)}


def _understood(truth: np.ndarray, said: list[tuple[int, float]]) -> bool:
    true = np.array([truth[k] > 0 for k, _ in said])
    p = np.array([value for _, value in said])
    return min(auroc(true, p) or 0.0, balanced_accuracy(true, p >= 0.5) or 0.0) >= RIGHT


def print_suggestions(result: dict[str, Any]) -> None:
    """Print how many there are of each kind, and an example."""
    kinds: dict[str, list[str]] = {}
    for one in result["suggestions"]:
        kinds.setdefault(one["kind"], []).append(one["text"])
    for kind, texts in kinds.items():
        print(f"{kind:<12} {len(texts):4d}  {texts[0]}")
    print(f"{len(result['suggestions'])} of {result['asked']} texts are understood "
          f"({result['of']} were drawn)")
