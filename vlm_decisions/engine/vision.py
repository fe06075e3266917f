"""Vision groups: two frames encoded once, reused by every state, head and window that needs them.

The vision tower attends within one temporal group only, so a group's features do not depend on its
neighbours. The tables that depend on the patch grid alone (position embeddings, rotary angles) are
kept per grid; mlx-vlm recomputes them in Python lists for each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_vlm.models.base import ensure_fused_sdpa

from . import fastmath
from .attend import rotate
from .errors import FrameError
from .pixels import PixelSettings, patches


@dataclass(frozen=True)
class VisionGroup:
    """One encoded group of two frames.

    features: (T, D) visual tokens for the language model. mean, max: float32 (D,) over the tokens.
    grid: (rows, columns) of visual tokens, T = rows * columns. deep: features (T, D) added after
    early layers (Qwen3-VL's deepstack). source: fingerprint of the model that made it.
    """

    features: mx.array
    mean: np.ndarray
    max: np.ndarray
    grid: tuple[int, int]
    deep: tuple[mx.array, ...] = ()
    source: str = ""

    @property
    def n_tokens(self) -> int:
        """Visual tokens of the group."""
        return self.grid[0] * self.grid[1]


@dataclass(frozen=True)
class _Tables:
    position: mx.array  # (N, D) learned position embeddings, interpolated
    cos: mx.array  # (N, head dim / 2)
    sin: mx.array


class VisionEncoder:
    """mlx-vlm's Qwen-VL vision tower, run on batches of groups of one size."""

    def __init__(self, tower: Any, settings: PixelSettings, source: str = "") -> None:
        """Keep the tower's weights and the pixel settings."""
        self.tower, self.settings, self.source = tower, settings, source
        weight = tower.patch_embed.proj.weight  # (D, time, height, width, channel)
        self._patch = weight.transpose(0, 4, 1, 2, 3).reshape(weight.shape[0], -1)
        self.dtype = weight.dtype
        self._tables: dict[tuple[int, int], _Tables] = {}

    def encode(self, groups: Sequence[Sequence[np.ndarray]]) -> list[VisionGroup]:
        """Encode groups of two uint8 RGB frames (H, W, 3), all of one size; raises FrameError."""
        if not groups:
            return []
        cut = [patches(group, self.settings) for group in groups]
        grid = cut[0][1]
        if any(other != grid for _, other in cut):
            raise FrameError("groups of one batch must have frames of one size")
        pixels = mx.array(np.stack([pixels for pixels, _ in cut]))
        features, deep = self.run(pixels, grid)
        wide = features.astype(mx.float32)
        mean, most = wide.mean(axis=1), wide.max(axis=1)
        mx.eval(features, deep, mean, most)
        merge = self.settings.merge
        merged = (grid[0] // merge, grid[1] // merge)
        return [
            VisionGroup(
                features[i],
                np.array(mean[i]),
                np.array(most[i]),
                merged,
                tuple(level[i] for level in deep),
                self.source,
            )
            for i in range(len(groups))
        ]

    def run(self, pixels: mx.array, grid: tuple[int, int]) -> tuple[mx.array, list[mx.array]]:
        """Patches (B, h*w, P) to features (B, T, D) and the deepstack features (B, T, D) each."""
        tower, tables = self.tower, self.tables(grid)
        h = pixels.astype(self.dtype) @ self._patch.T + tower.patch_embed.proj.bias
        # The residual stream is float32, as the language model's.
        h = h.astype(mx.float32) + tables.position
        deep = []
        for i, block in enumerate(tower.blocks):
            h = h + self._attend(block.attn, block.norm1(h).astype(self.dtype), tables)
            m, x = block.mlp, block.norm2(h).astype(self.dtype)
            h = h + m.linear_fc2(fastmath.gelu_tanh(m.linear_fc1(x)))
            if i in tower.deepstack_visual_indexes:
                which = tower.deepstack_visual_indexes.index(i)
                deep.append(self._merge(tower.deepstack_merger_list[which], h))
        return self._merge(tower.merger, h), deep

    def tables(self, grid: tuple[int, int]) -> _Tables:
        """Return the tables of one patch grid (h, w), computed by mlx-vlm's own code once."""
        if grid not in self._tables:
            thw = mx.array([[1, *grid]], dtype=mx.int32)
            position = self.tower.fast_pos_embed_interpolate(thw)
            angle = self.tower.rot_pos_emb(thw)
            tables = _Tables(position, mx.cos(angle), mx.sin(angle))
            mx.eval(tables.position, tables.cos, tables.sin)
            self._tables[grid] = tables
        return self._tables[grid]

    @staticmethod
    def _attend(attn: Any, x: mx.array, tables: _Tables) -> mx.array:
        b, n, _ = x.shape
        qkv = attn.qkv(x).reshape(b, n, 3, attn.num_heads, -1)
        q, k, v = (qkv[:, :, i] for i in range(3))
        q, k = (rotate(a, tables.cos, tables.sin).transpose(0, 2, 1, 3) for a in (q, k))
        v = v.transpose(0, 2, 1, 3)
        # Padding the heads to a fused kernel's width pays on a GPU only.
        on_cpu = mx.default_device() == mx.Device(mx.cpu)
        attend = mx.fast.scaled_dot_product_attention if on_cpu else ensure_fused_sdpa
        out = attend(q, k, v, scale=attn.scale)
        return attn.proj(out.transpose(0, 2, 1, 3).reshape(b, n, -1))

    @staticmethod
    def _merge(merger: Any, x: mx.array) -> mx.array:
        b = x.shape[0]
        if merger.use_postshuffle_norm:
            x = merger.norm(x.reshape(b, -1, merger.hidden_size))
        else:
            x = merger.norm(x).reshape(b, -1, merger.hidden_size)
        x = x.astype(merger.norm.weight.dtype)
        return merger.linear_fc2(fastmath.gelu(merger.linear_fc1(x)))
