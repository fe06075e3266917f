"""The ordinary forward of mlx-vlm's own modules over a whole sequence, also in float32.

It is what the shared pass must agree with. Nothing of the engine's state, attention, delta rule or
vision encoder is used, only its prompt. Layers run one after the other, so that a model in half
precision can be computed in float32 with one layer's weights widened at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_map
from mlx_vlm.models.base import create_attention_mask

from .asking import Asking
from .pixels import PixelSettings, patches
from .readout import Query, Readout, softmax


@dataclass(frozen=True)
class PlainFeatures:
    """What a vision tower's own forward gives for some groups.

    features: (T, D). deep: the same for each deepstack layer. grid: groups, and the rows and
    columns of patches of each.
    """

    features: mx.array
    deep: list[mx.array]
    grid: tuple[int, int, int]


@contextmanager
def widened(module: nn.Module, wide: bool = True) -> Iterator[None]:
    """Let ``module`` hold its floating-point arrays as float32, if ``wide``, until it is left."""
    if not wide:
        yield
        return
    own = module.parameters()
    module.update(tree_map(_wide, own))
    try:
        yield
    finally:
        module.update(own)


def _wide(value: mx.array) -> mx.array:
    return value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating) else value


def see(
    model: Any,
    settings: PixelSettings,
    groups: Sequence[Sequence[np.ndarray]],
    *,
    wide: bool = False,
) -> PlainFeatures:
    """Features of groups of two frames, by the vision tower's own forward."""
    cut = [patches(group, settings) for group in groups]
    grid = (len(groups), *cut[0][1])
    pixels = mx.array(np.concatenate([pixels for pixels, _ in cut]))
    tower = model.vision_tower
    with widened(tower, wide):
        out = tower(pixels.astype(tower.patch_embed.proj.weight.dtype), mx.array([grid]))
        mx.eval(out)
    features, deep = out if isinstance(out, tuple) else (out, [])
    return PlainFeatures(features, deep, grid)


def forward(
    asking: Asking,
    model: Any,
    seen: PlainFeatures,
    times_s: Sequence[float],
    query: Query,
    media: str = "video",
    *,
    wide: bool = False,
) -> Readout:
    """Run one ordinary forward over header, groups and question; the readout has all layers."""
    language = model.language_model
    template, tokens = asking.template(media), asking.question(query, media)
    each = seen.features.shape[0] // len(times_s)
    ids = [*template.header_ids]
    for t_s in times_s:
        ids += template.group_ids(t_s, each)
    ids = mx.array([ids + tokens.ids])
    inner = language.model
    with widened(inner.embed_tokens, wide):
        h = inner.embed_tokens(ids).astype(mx.float32 if wide else inner.norm.weight.dtype)
        where = np.flatnonzero(np.array(ids[0]) == template.pad_id)
        h[0, mx.array(where)] = seen.features.astype(h.dtype)
        mx.eval(h)
    positions, _ = language.get_rope_index(ids, **{f"{media}_grid_thw": mx.array([seen.grid])})
    mask = create_attention_mask(h, None)
    states = []
    for i, layer in enumerate(inner.layers):
        with widened(layer, wide):
            # A recurrent layer's mask would hide padding, of which there is none.
            linear = getattr(layer, "is_linear", False)
            h = layer(h, None if linear else mask, None, positions)
            if i < len(seen.deep):
                h[0, mx.array(where)] += seen.deep[i].astype(h.dtype)
            mx.eval(h)
        states.append(h[0, -1].astype(mx.float32))
    last, answers = h[:, -1], mx.array([tokens.answer_ids])
    if wide:  # the whole output matrix in float32 would be too much
        rows = asking.decoder.answer_logits(last, np.array(answers))
        logits = rows[0]
    else:
        last = inner.norm(last)
        tied = language.args.tie_word_embeddings
        whole = inner.embed_tokens.as_linear(last) if tied else language.lm_head(last)
        logits = whole[0, answers[0]].astype(mx.float32)
    logits = np.array(logits).astype(np.float64)
    return Readout(softmax(logits), logits, len(states), np.array(mx.stack(states)))


