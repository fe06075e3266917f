"""The same checkpoint, frames and questions through mlx-vlm in other ways, and here, in one run.

Each peer begins with the frames of a window and ends with an answer to every question:

- ``generate``: mlx-vlm as its users call it, one ``generate(max_tokens=1)`` a question.
- ``generate_cached``: the same with its prefix cache (APC) on, and the images' features computed
  once. (``generate`` looks into its vision cache only for families that have ``encode_image``.)
- ``copies``: the window once, then all questions in a batch of copies of its cache, as mlx-vlm's
  decision models do.
- ``here``: a window made anew by the engine. ``here_tick``: the last group of the same window
  appended to a running state, as in the node.

All run on the same weights, the same BLAS and the same patches of the frames.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

import mlx.core as mx
import numpy as np

from ...engine import blas, plain
from ...engine.engine import SMALL, Engine
from ...engine.errors import CheckpointError
from ...engine.memory import free_bytes
from ...engine.pixels import patches
from ...engine.readout import Query, softmax
from ...frames import FPS
from ...question_book import QuestionBook, questions_path
from ...sim.script import Script
from ...sim.world import World
from ..exactness import test_frames
from ..shapes import SHAPES, random_engine, weights_bytes
from . import baselines
from .clock import Clock
from .engine import N_GROUPS, gemm_peak, questions
from .flops import asked_flops, vision_flops, work_of

PEERS: Final = ("generate", "generate_cached", "copies", "here", "here_tick")
MODELS: Final = ("sim_desk", "0.8b", "2b")
SPARE: Final = 1.3  # memory that a run needs, in weights
FAMILIES: Final = ("qwen3_5", "qwen3_5_moe")  # whose layers the baselines can fork
Pair = Sequence[np.ndarray]


@dataclass
class _Window:
    """What all peers are given, and what was noted of their caches."""

    engine: Engine
    pairs: Sequence[Pair]
    queries: Sequence[Query]
    processor: Any
    case: baselines.Case
    cached_tokens: dict[str, list[int]] = field(default_factory=dict)

    @property
    def prompts(self) -> list[mx.array]:
        """Token ids (1, L) of the window and each question."""
        return [mx.array([self.case.prefix_ids + one.ids]) for one in self.case.questions]


def bench_peers(
    models: Sequence[str] = MODELS,
    *,
    n_questions: int = 6,
    n_groups: int = N_GROUPS,
    repeat: int | None = None,
    layers: int | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Compare the peers on each model: embedded, a checkpoint, or random weights of a shape.

    The peers take turns in each of ``repeat`` rounds (None: 3, of a large model 1), after one that
    warms up, checks answers and measures memory; medians over the rounds. A shape of random weights
    that does not fit into memory is left out, with the reason. layers: of such a shape, to be
    quick. Raises CheckpointError; RuntimeError where the engine's answers are not those of
    ``generate``.
    """
    rows: dict[str, Any] = {}
    for name in models:
        if name in SHAPES:
            needed, free = SPARE * weights_bytes(name, layers=layers), free_bytes()
            if free is not None and needed > free:
                rows[name] = {"left_out": f"it needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} "
                                          "GB are free"}  # fmt: skip
                say(f"{name}: left out: {rows[name]['left_out']}")
                continue
        say(f"{name}: loading")
        engine = random_engine(name, layers=layers) if name in SHAPES else Engine.load(name)
        rows[name] = _bench(engine, name, n_questions, n_groups, repeat, say)
        del engine
        mx.clear_cache()
    return {"blas": blas.ensure().path, "models": rows}


def _bench(
    engine: Engine,
    name: str,
    n_questions: int,
    n_groups: int,
    repeat: int | None,
    say: Callable[[str], None],
) -> dict[str, Any]:
    repeat = repeat or (1 if engine.decoder.hidden >= SMALL else 3)
    if engine.checkpoint.family.model_type not in FAMILIES:
        raise CheckpointError(
            f"{name!r} is a {engine.checkpoint.family.model_type}: peers are compared on "
            f"{', '.join(FAMILIES)}"
        )
    window = _window(engine, name, n_questions, n_groups)
    clock, started = Clock(), time.perf_counter()
    answers: dict[str, list[np.ndarray]] = {}
    runs = {"generate": _generate, "generate_cached": _generate_cached, "copies": _copies,
            "here": _here}  # fmt: skip
    own_threads = blas.threads()
    for i in range(repeat + 1):
        clock.warm = i > 0
        for peer, run in runs.items():
            # A small engine uses one BLAS thread; the others are given all of the machine.
            blas.use_threads(own_threads if peer == "here" else _cores())
            answers[peer] = clock(peer, lambda run=run: run(window))
        blas.use_threads(own_threads)
        tick = _prepared_tick(window)
        answers["here_tick"] = clock("here_tick", tick)
        label = f"round {i} of {repeat}" if i else "warm-up"
        say(f"{name}, {label}: {time.perf_counter() - started:.0f} s since the start")
    agreement = {peer: _agreement(answers[peer], answers["generate"]) for peer in PEERS}
    worst = np.max([agreement[peer]["largest_difference"] for peer in ("here", "here_tick")])
    limit = 1e-3 if engine.dtype == "float32" else 0.1
    if not worst < limit:
        raise RuntimeError(f"{name}: the answers differ from mlx-vlm's by {worst:.1e}")
    seconds = {peer: clock.median(peer) for peer in PEERS}
    blas.use_threads(own_threads)
    peak, work = gemm_peak(engine), _flops(window)
    row = {
        "model": engine.name,
        "dtype": engine.dtype,
        "layers": engine.n_layers,
        "questions": [query.text for query in window.queries],
        "groups": n_groups,
        "rounds": repeat,
        "prompt_tokens": len(window.case.prefix_ids),
        "seconds": seconds,
        "times_as_fast": {
            peer: seconds["generate"] / seconds[peer] for peer in PEERS
        },
        "gemm_peak": peak,
        "peak_fraction": {peer: work[peer] / seconds[peer] / peak for peer in PEERS},
        "peak_bytes": {peer: clock.peaks[peer] for peer in PEERS},
        "cached_tokens": window.cached_tokens,
        "answers": {peer: [one.tolist() for one in answers[peer]] for peer in PEERS},
        "agreement": agreement,
    }
    for peer in PEERS:
        say(f"{name} {peer:<16} {seconds[peer]:8.3f} s  {row['times_as_fast'][peer]:6.1f} times as "
            f"fast  of the GEMM peak {row['peak_fraction'][peer]:.2f}  "
            f"{clock.peaks[peer] / 1e6:8.1f} MB more  same answers "
            f"{agreement[peer]['same_answer']:.2f}  largest difference "
            f"{agreement[peer]['largest_difference']:.1e}")
    return row


def _flops(window: _Window) -> dict[str, float]:
    """Operations of each peer, the frames' encoding included; without the second token's."""
    engine, case = window.engine, window.case
    patches = case.groups[0].n_tokens * engine.settings.merge**2
    one, n = vision_flops(engine, patches, patches), len(case.questions)
    lengths = [len(question.ids) for question in case.questions]
    language = work_of(engine, len(case.prefix_ids), lengths, window.queries).flops
    last = len(engine.template().group_ids(case.times_s[-1], case.groups[-1].n_tokens))
    tick = asked_flops(
        engine, len(case.prefix_ids) - last, last, engine.questions(window.queries).tree
    )
    every = one * len(case.groups)
    return {
        "generate": language["independent"] + n * every,
        "generate_cached": language["independent"] + every,
        "copies": language["copies"] + every,
        "here": language["shared"] + every,
        "here_tick": tick + one,
    }


def _window(engine: Engine, name: str, n_questions: int, n_groups: int) -> _Window:
    if name in SHAPES:
        frames, queries = test_frames(engine, 2 * n_groups), questions(n_questions)
    else:
        world = World(7, Script.demo(7))
        frames = [world.render(4.0 + i / FPS, 320, 240) for i in range(2 * n_groups)]
        book = list(QuestionBook.load(questions_path("desk")))
        if n_questions > len(book):
            raise ValueError(f"at most {len(book)} questions, not {n_questions}")
        queries = [Query(one.text, one.options) for one in book[:n_questions]]
    pairs = [frames[2 * i : 2 * i + 2] for i in range(n_groups)]
    times_s = [0.0625 + 0.25 * i for i in range(n_groups)]
    case = baselines.Case(engine, [engine.encode(pair) for pair in pairs], times_s, queries)
    return _Window(engine, pairs, queries, _processor(engine), case)


def _processor(engine: Engine) -> Any:
    """Return what ``generate`` needs of a processor where tokens and patches are given.

    No token ends it: a small vocabulary may answer with the one that would.
    """
    from mlx_vlm.tokenizer_utils import NaiveStreamingDetokenizer
    from mlx_vlm.utils import StoppingCriteria

    tokenizer = copy.copy(engine.tokenizer)
    tokenizer.stopping_criteria = StoppingCriteria([], tokenizer)
    return SimpleNamespace(tokenizer=tokenizer, detokenizer=NaiveStreamingDetokenizer(tokenizer))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _pixels(window: _Window) -> mx.array:
    """Patches of all groups, as mlx-vlm's processor makes them."""
    settings = window.engine.settings
    return mx.array(np.concatenate([patches(pair, settings)[0] for pair in window.pairs]))


def _generate(window: _Window) -> list[np.ndarray]:
    return _one_by_one(window, "generate")


def _generate_cached(window: _Window) -> list[np.ndarray]:
    from mlx_vlm.apc import APCManager

    pixels = _pixels(window)
    seen = window.engine.model.vision_tower(pixels, window.case.grid)
    features = seen[0] if isinstance(seen, tuple) else seen
    return _one_by_one(window, "generate_cached", pixels, apc_manager=APCManager(),
                       cached_image_features=features)  # fmt: skip


def _one_by_one(
    window: _Window, name: str, pixels: mx.array | None = None, **settings: Any
) -> list[np.ndarray]:
    from mlx_vlm import generate

    model, out, cached = window.engine.model, [], []
    for ids, question in zip(window.prompts, window.case.questions, strict=True):
        model.language_model._position_ids = model.language_model._rope_deltas = None
        result = generate(
            model,
            window.processor,
            "",
            max_tokens=1,
            temperature=0.0,
            input_ids=ids,
            pixel_values=_pixels(window) if pixels is None else pixels,
            video_grid_thw=window.case.grid,
            **settings,
        )
        cached.append(result.cached_tokens)
        logits = np.array(result.logprobs.astype(mx.float32)).astype(np.float64)
        out.append(softmax(logits.reshape(-1)[question.answer_ids]))
    mx.synchronize()  # its loop has begun on a second token
    window.cached_tokens[name] = cached
    return out


def _copies(window: _Window) -> list[np.ndarray]:
    seen = plain.see(window.engine.model, window.engine.settings, window.pairs)
    window.case.features = seen.features
    caches, position = baselines.prefill(window.case)
    return baselines.copies(window.case, caches, position)


def _here(window: _Window) -> list[np.ndarray]:
    engine = window.engine
    groups = [engine.encode(pair) for pair in window.pairs]
    readouts = engine.window(groups, window.case.times_s).ask(window.queries)
    return [readout.probabilities for readout in readouts]


def _prepared_tick(window: _Window) -> Callable[[], list[np.ndarray]]:
    """Bring a running state to the last group, which the tick then takes."""
    engine, times_s = window.engine, window.case.times_s
    stream = engine.stream(len(window.pairs))
    for pair, t_s in zip(window.pairs[:-1], times_s[:-1], strict=True):
        stream.append(engine.encode(pair), t_s)
    while stream.idle():
        pass

    def tick() -> list[np.ndarray]:
        stream.append(engine.encode(window.pairs[-1]), times_s[-1])
        return [readout.probabilities for readout in stream.ask(window.queries)]

    return tick


def _agreement(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> dict[str, float]:
    """Share of the questions whose likeliest answer is the same, and how far probabilities are."""
    return {
        "same_answer": float(
            np.mean([a.argmax() == b.argmax() for a, b in zip(got, want, strict=True)])
        ),
        "largest_difference": float(
            np.max([np.abs(a - b).max() for a, b in zip(got, want, strict=True)])
        ),
    }
