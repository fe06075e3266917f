"""Other ways to answer N questions about one window, to measure the engine against.

All run mlx-vlm's own layers on the same tokens, features and positions: each question as a whole
sequence; mlx-vlm's generation loop with its vision cache; a prefix forked into N materialised
copies (what a batched cache does); the same prefix forked one question at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from ...engine.engine import Engine
from ...engine.readout import Query, softmax
from ...engine.vision import VisionGroup


@dataclass
class Case:
    """A window of groups and the questions about it."""

    engine: Engine
    groups: Sequence[VisionGroup]
    times_s: Sequence[float]
    queries: Sequence[Query]

    def __post_init__(self) -> None:
        """Lay out the tokens, features and grid that all baselines share."""
        template = self.engine.template()
        self.prefix_ids = list(template.header_ids)
        for group, t_s in zip(self.groups, self.times_s, strict=True):
            self.prefix_ids += template.group_ids(t_s, group.n_tokens)
        self.features = mx.concatenate([group.features for group in self.groups], axis=0)
        rows, columns = self.groups[0].grid
        merge = self.engine.settings.merge
        self.grid = mx.array([[len(self.groups), rows * merge, columns * merge]])
        self.questions = [self.engine.question(query) for query in self.queries]
        mx.eval(self.features)

    @property
    def language(self) -> Any:
        """mlx-vlm's language model."""
        return self.engine.model.language_model

    def embeds(self, ids: mx.array) -> mx.array:
        """Embeddings (1, L, D) of ids with the visual features in their places."""
        model = self.engine.model
        embeds, _ = model.merge_input_ids_with_image_features(
            self.features,
            self.language.model.embed_tokens(ids),
            ids,
            model.config.image_token_index,
            model.config.video_token_index,
        )
        return embeds


def independent(case: Case) -> list[np.ndarray]:
    """Each question as one ordinary full sequence."""
    out = []
    for question in case.questions:
        ids = mx.array([case.prefix_ids + question.ids])
        positions, _ = case.language.get_rope_index(ids, video_grid_thw=case.grid)
        result = case.language(
            ids,
            inputs_embeds=case.embeds(ids),
            position_ids=positions,
            return_hidden=True,
            skip_logits=True,
        )
        out.append(_read(case, result.hidden_states[-1][:, -1], [question])[0])
    return out


def engine_alone(case: Case) -> list[np.ndarray]:
    """Each question behind a window of its own, by the engine's layers: its kernels, no sharing."""
    return [
        case.engine.window(case.groups, case.times_s).ask([query])[0].probabilities
        for query in case.queries
    ]


def mlx_vlm_generate(case: Case) -> None:
    """mlx-vlm's generation loop, one token a question, the window's features in its cache."""
    from mlx_vlm.generate.ar import generate_step
    from mlx_vlm.vision_cache import VisionFeatureCache

    cache = VisionFeatureCache()
    cache.put("window", case.features)
    for question in case.questions:
        ids = mx.array([case.prefix_ids + question.ids])
        case.language._position_ids = case.language._rope_deltas = None
        steps = generate_step(
            ids,
            case.engine.model,
            mx.zeros((1, 1)),  # never looked at: the features come from the cache
            None,
            max_tokens=1,
            temperature=0.0,
            vision_cache=cache,
            _image_key="window",
            video_grid_thw=case.grid,
        )
        next(steps)
        steps.close()
    mx.synchronize()  # the loop has begun on a second token


def prefill(case: Case) -> tuple[list, int]:
    """Prefill the window with mlx-vlm's layers; its caches, and the next text position."""
    ids = mx.array([case.prefix_ids])
    positions, _ = case.language.get_rope_index(ids, video_grid_thw=case.grid)
    caches = case.language.make_cache()
    case.language.model(
        ids, inputs_embeds=case.embeds(ids), cache=caches, position_ids=positions
    )
    mx.eval([array for cache in caches for array in _arrays(cache)])
    return caches, int(positions.max().item()) + 1


def copies(case: Case, caches: list, position: int) -> list[np.ndarray]:
    """All questions in one padded batch, the prefix's caches copied to N rows."""
    forked = [_fork(cache, len(case.questions), copy=True) for cache in caches]
    mx.eval([array for cache in forked for array in _arrays(cache)])
    return _batch(case, forked, position, case.questions)


def serial(case: Case, caches: list, position: int) -> list[np.ndarray]:
    """One question after the other behind a view of the prefix's caches."""
    return [
        _batch(case, [_fork(cache, 1, copy=False) for cache in caches], position, [question])[0]
        for question in case.questions
    ]


def cache_bytes(caches: list) -> int:
    """Bytes that a prefix's caches hold."""
    return sum(array.nbytes for cache in caches for array in _arrays(cache))


def _arrays(cache: Any) -> list[mx.array]:
    if hasattr(cache, "keys"):
        return [cache.keys, cache.values]
    return [array for array in cache.cache if array is not None]


def _fork(cache: Any, n: int, *, copy: bool) -> Any:
    from mlx_vlm.models.cache import ArraysCache, KVCache

    def rows(x: mx.array) -> mx.array:
        wide = mx.broadcast_to(x, (n, *x.shape[1:]))
        return mx.repeat(x, n, axis=0) if copy else wide

    if isinstance(cache, KVCache):
        forked = KVCache()
        keys, values = cache.state
        forked.keys, forked.values, forked.offset = rows(keys), rows(values), cache.offset
        return forked
    forked = ArraysCache(size=len(cache.cache))
    forked.cache = [None if array is None else rows(array) for array in cache.cache]
    return forked


def _batch(case: Case, caches: list, position: int, questions: Sequence) -> list[np.ndarray]:
    longest = max(len(question.ids) for question in questions)
    ids = np.zeros((len(questions), longest), np.int32)
    for row, question in zip(ids, questions, strict=True):
        row[: len(question.ids)] = question.ids
    at = mx.broadcast_to(mx.arange(position, position + longest), (3, *ids.shape))
    hidden = case.language.model(mx.array(ids), cache=caches, position_ids=at)
    last = mx.array([len(question.ids) - 1 for question in questions])
    return _read(case, hidden[mx.arange(len(questions)), last], questions)


def _read(case: Case, hidden: mx.array, questions: Sequence) -> list[np.ndarray]:
    """Probabilities from final (normed) states (N, D), only the answers' logits computed."""
    out = []
    for row, question in zip(hidden, questions, strict=True):
        answers = case.language.model.embed_tokens(mx.array(question.answer_ids))
        logits = np.array((answers @ row).astype(mx.float32)).astype(np.float64)
        out.append(softmax(logits))
    return out
