"""The same question asked the ordinary way: one full-sequence forward of mlx-vlm's own model.

Nothing of the engine's state, positions, attention or delta rule is used: mlx-vlm's embedding
merge, ``get_rope_index``, attention masks and chunked scan run over the whole prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from ..engine.engine import Engine
from ..engine.readout import Query, softmax
from ..engine.vision import VisionGroup


@dataclass(frozen=True)
class Plain:
    """hidden: float32 (layers, D), the last token after each layer. probabilities: (k,)."""

    hidden: np.ndarray
    probabilities: np.ndarray

    @property
    def depth(self) -> int:
        """Layers run: all."""
        return len(self.hidden)


def prompt_ids(
    engine: Engine,
    groups: Sequence[VisionGroup],
    times_s: Sequence[float],
    query: Query,
    media: str = "video",
) -> list[int]:
    """Token ids of a whole prompt, tokenised as one text (the pieces are not used)."""
    template = engine.template(media)
    text = template.header_text
    for group, t_s in zip(groups, times_s, strict=True):
        text += template.group_text(t_s, group.n_tokens)
    text += template.question_text(query.text, query.options)
    return engine.tokenizer(text, add_special_tokens=False)["input_ids"]


def full_sequence(
    engine: Engine,
    groups: Sequence[VisionGroup],
    times_s: Sequence[float],
    query: Query,
    media: str = "video",
    ids: Sequence[int] | None = None,
) -> Plain:
    """One ordinary forward over header, groups (their cached features) and question."""
    ids = mx.array([prompt_ids(engine, groups, times_s, query, media) if ids is None else ids])
    features = mx.concatenate([group.features for group in groups], axis=0)
    levels = len(groups[0].deep)
    deep = [mx.concatenate([g.deep[i] for g in groups], axis=0) for i in range(levels)]
    grid = [1, *(side * engine.settings.merge for side in groups[0].grid)]
    grid[0] = len(groups)
    answer_ids = engine.question(query, media).answer_ids
    return _forward(engine.model, ids, features, deep, grid, answer_ids, media)


def native_video(
    engine: Engine, frames: Sequence[np.ndarray], fps: float, query: Query
) -> Plain:
    """mlx-vlm's own video path: its processor, its time stamps, its vision tower on all frames.

    frames: uint8 RGB, already of a size that is a multiple of patch x merge.
    """
    from mlx_vlm.models.qwen3_vl.processing_qwen3_vl import (
        Qwen3VLVideoProcessor,
        _timestamped_video_placeholder,
        _video_group_timestamps,
    )

    settings = engine.settings
    processor = Qwen3VLVideoProcessor(
        patch_size=settings.patch,
        temporal_patch_size=settings.temporal,
        merge_size=settings.merge,
        min_pixels=1,
        max_pixels=1 << 40,
        image_mean=list(settings.mean),
        image_std=list(settings.std),
    )
    video = np.stack([frame.transpose(2, 0, 1) for frame in frames])
    out = processor(videos=[video])
    t, h, w = (int(n) for n in out["video_grid_thw"][0])
    template = engine.template("video")
    middle = _timestamped_video_placeholder(
        _video_group_timestamps(t, settings.temporal, fps),
        h * w // settings.merge**2,
        "<|vision_start|>",
        "<|vision_end|>",
    ).replace("<|placeholder|>", "<|video_pad|>")
    text = template.header_text + middle + template.question_text(query.text, query.options)
    ids = mx.array([engine.tokenizer(text, add_special_tokens=False)["input_ids"]])
    tower = engine.model.vision_tower
    pixels = mx.array(out["pixel_values_videos"]).astype(tower.patch_embed.proj.weight.dtype)
    features, deep = tower(pixels, mx.array([[t, h, w]]))
    answer_ids = engine.question(query).answer_ids
    return _forward(engine.model, ids, features, deep, [t, h, w], answer_ids, "video")


def _forward(
    model,
    ids: mx.array,
    features: mx.array,
    deep: list[mx.array],
    grid: list[int],
    answer_ids: list[int],
    media: str,
) -> Plain:
    language = model.language_model
    config = model.config
    visual = (ids == config.image_token_id) | (ids == config.video_token_id)
    embeds = language.model.embed_tokens(ids).astype(language.model.norm.weight.dtype)
    embeds[0, mx.array(np.flatnonzero(np.array(visual[0])))] = features
    thw = {f"{media}_grid_thw": mx.array([grid])}
    positions, _ = language.get_rope_index(ids, **thw)
    if config.model_type in ("qwen3_5", "qwen3_5_moe"):
        n = len(language.model.layers)
        out = language(
            ids,
            inputs_embeds=embeds,
            position_ids=positions,
            capture_layer_ids=list(range(n)),
        )
        hidden = mx.stack([h[0, -1] for h in out.hidden_states])
        logits = out.logits[0, -1]
    else:
        kwargs = {"inputs_embeds": embeds, "position_ids": positions}
        if deep:
            kwargs |= {"visual_pos_masks": visual, "deepstack_visual_embeds": deep}
        hidden = _after_each_layer(language.model, ids, kwargs)
        logits = language(ids, **kwargs).logits[0, -1]
    logits = np.array(logits.astype(mx.float32)).astype(np.float64)
    return Plain(np.array(hidden.astype(mx.float32)), softmax(logits[answer_ids]))


def _after_each_layer(model, ids: mx.array, kwargs: dict) -> mx.array:
    """Return the last token (layers, D) after each layer: runs of the first 1, 2, ... of them."""
    layers, norm = model.layers, model.norm
    try:
        model.norm = nn.Identity()
        states = []
        for i in range(len(layers)):
            model.layers = layers[: i + 1]
            states.append(model(ids, **kwargs)[0, -1])
        return mx.stack(states)
    finally:
        model.layers, model.norm = layers, norm
