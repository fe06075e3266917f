"""Vision groups: two frames encoded once, reused by every state, head and window that needs them.

The vision tower attends within one temporal group only, so a group's features do not depend on its
neighbours. The tables that depend on the patch grid alone (position embeddings, rotary angles) are
kept per grid; mlx-vlm recomputes them in Python lists for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_vlm.models.base import ensure_fused_sdpa

from . import fastmath
from .arrays import Array, cast, contiguous, evaluate, module_of, wide
from .attend import rotate
from .errors import FrameError
from .layout import HIDDEN
from .pixels import PixelSettings, cut, resized

View = Callable[[Any], Any]  # a module as it is, or what it is in NumPy


@dataclass(frozen=True)
class VisionGroup:
    """One encoded group of two frames.

    features: (T, D) visual tokens for the language model. mean, max: float32 (D,) over the tokens.
    grid: (rows, columns) of visual tokens, T = rows * columns. deep: features (T, D) added after
    early layers (Qwen3-VL's deepstack). source: fingerprint of the model that made it.
    encoded: share of the tokens that were encoded from this group's own pixels; the others' are
    those of an older group. why: what made it so, of reuse.REASONS; "" where nothing is reused.
    kept: int (T,), which tokens of the grid there are; None: all.
    """

    features: mx.array
    mean: np.ndarray
    max: np.ndarray
    grid: tuple[int, int]
    deep: tuple[mx.array, ...] = ()
    source: str = ""
    encoded: float = 1.0
    why: str = ""
    kept: np.ndarray | None = None

    @property
    def n_tokens(self) -> int:
        """Visual tokens of the group."""
        return self.grid[0] * self.grid[1] if self.kept is None else len(self.kept)


@dataclass(frozen=True)
class _Tables:
    position: Array  # (N, D) learned position embeddings, interpolated
    cos: Array  # (N, head dim / 2)
    sin: Array

    def of(self, rows: Array | None) -> _Tables:
        """Return the tables of some patches (None: all)."""
        if rows is None:
            return self
        position = self.position[rows] if self.position.size else self.position
        return _Tables(position, self.cos[rows], self.sin[rows])


@dataclass
class Kept:
    """Keys and values (1, heads, N, dim) of each layer for the N patches of one picture.

    A pass over some tokens puts theirs in place and attends to all.
    """

    keys: list[Array] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)

    def put(self, layer: int, rows: Array | None, k: Array, v: Array) -> tuple[Array, Array]:
        """Keep what a layer computed of the patches ``rows`` (None: all); return all patches'."""
        if rows is None:
            self.keys.append(contiguous(k))
            self.values.append(contiguous(v))
            return k, v
        self.keys[layer][:, :, rows] = k
        self.values[layer][:, :, rows] = v
        return self.keys[layer], self.values[layer]

    def arrays(self) -> list[Array]:
        """Every array, to evaluate them together."""
        return [*self.keys, *self.values]


class VisionEncoder:
    """mlx-vlm's Qwen-VL vision tower, run on batches of groups of one size."""

    def __init__(self, tower: Any, settings: PixelSettings, source: str, view: View) -> None:
        """Take the tower, the pixel settings, and the view of modules to compute with."""
        self.settings, self.source = settings, source
        self._whole, self.tower = tower, view(tower)
        weight = self.tower.patch_embed.proj.weight  # (D, time, height, width, channel)
        rows = weight.transpose(0, 4, 1, 2, 3).reshape(weight.shape[0], -1)
        self._patch = contiguous(rows.T)  # (channel * time * height * width, D)
        self.xp, self.dtype = module_of(weight), weight.dtype
        self._tables: dict[tuple[int, int], _Tables] = {}

    def encode(
        self, groups: Sequence[Sequence[np.ndarray]], settings: PixelSettings | None = None
    ) -> list[VisionGroup]:
        """Encode groups of two uint8 RGB frames (H, W, 3), all of one size; raises FrameError.

        settings: of the pixels, if not the encoder's own.
        """
        if not groups:
            return []
        pairs = [resized(group, settings or self.settings) for group in groups]
        if any(pair.shape != pairs[0].shape for pair in pairs):
            raise FrameError("groups of one batch must have frames of one size")
        features, deep, grid = self.see(pairs)
        return [
            self.group(features[i], tuple(level[i] for level in deep), grid)
            for i in range(len(groups))
        ]

    def see(
        self,
        pairs: Sequence[np.ndarray],
        kept: Kept | None = None,
        tokens: np.ndarray | None = None,
    ) -> tuple[Array, list[Array], tuple[int, int]]:
        """Encode resized pairs of frames, uint8 (2, H, W, 3), or ``tokens`` of one.

        Returns features (B, T, D), the deepstack features (both evaluated with ``group``), and the
        grid of visual tokens. kept: takes up the one pair's keys and values, or gives those of the
        tokens that are not encoded.
        """
        tiles = [cut(pair, self.settings) for pair in pairs]
        h, w = tiles[0][1]
        pixels = np.stack([one for one, _ in tiles])
        if tokens is not None:
            pixels = pixels[:, self._patches(tokens)]
        features, deep = self.run(self.xp.asarray(pixels), (h, w), kept, tokens)
        if kept is not None:
            evaluate(features, *deep, *kept.arrays())
        return features, deep, (h // self.settings.merge, w // self.settings.merge)

    def group(
        self,
        features: Array,
        deep: Sequence[Array],
        grid: tuple[int, int],
        kept: np.ndarray | None = None,
    ) -> VisionGroup:
        """Return features (T, D) and deepstack features as a group; kept: see VisionGroup."""
        mean, most = wide(features).mean(axis=0), wide(features).max(axis=0)
        evaluate(features, *deep, mean, most)
        return VisionGroup(
            mx.asarray(features),
            np.array(mean),
            np.array(most),
            grid,
            tuple(mx.asarray(level) for level in deep),
            self.source,
            kept=kept,
        )

    def run(
        self,
        pixels: Array,
        grid: tuple[int, int],
        kept: Kept | None = None,
        tokens: np.ndarray | None = None,
    ) -> tuple[Array, list[Array]]:
        """Patches (B, h*w, P) to features (B, T, D) and the deepstack features (B, T, D) each.

        tokens: the patches are those of these tokens only, and ``kept`` knows the others' keys and
        values. Without tokens, ``kept`` is given all; without ``kept``, the others do not exist.
        """
        tower = self.tower
        rows = None if tokens is None else self.xp.asarray(self._patches(tokens))
        tables = self.tables(grid).of(rows)
        h = cast(pixels, self.dtype) @ self._patch + tower.patch_embed.proj.bias
        # The residual stream is float32, as the language model's.
        h = wide(h) + tables.position
        deep = []
        for i, block in enumerate(tower.blocks):
            x = cast(block.norm1(h), self.dtype)
            h = h + self._attend(block.attn, x, tables, None, (kept, i, rows))
            m, x = block.mlp, cast(block.norm2(h), self.dtype)
            h = h + m.linear_fc2(fastmath.gelu_tanh(m.linear_fc1(x)))
            if i in tower.deepstack_visual_indexes:
                which = tower.deepstack_visual_indexes.index(i)
                deep.append(self._merge(tower.deepstack_merger_list[which], h))
        return self._merge(tower.merger, h), deep

    def tables(self, grid: tuple[int, int]) -> _Tables:
        """Return the tables of one patch grid (h, w), computed by mlx-vlm's own code once."""
        if grid not in self._tables:
            thw = mx.array([[1, *grid]], dtype=mx.int32)
            position = self._whole.fast_pos_embed_interpolate(thw)
            angle = self._whole.rot_pos_emb(thw)
            made = (position, mx.cos(angle), mx.sin(angle))
            mx.eval(made)
            self._tables[grid] = _Tables(*(self.xp.asarray(one) for one in made))
        return self._tables[grid]

    def _patches(self, tokens: np.ndarray) -> np.ndarray:
        """Patches of tokens, in the order of the patches that ``cut`` gives."""
        unit = self.settings.merge**2
        return (np.asarray(tokens)[:, None] * unit + np.arange(unit)).reshape(-1)

    def _attend(
        self,
        attn: Any,
        x: Array,
        tables: _Tables,
        mask: Array | None,
        keep: tuple[Kept | None, int, Array | None],
    ) -> Array:
        """Attention of x (B, n, D); keep: where keys and values are kept, for which layer, rows."""
        b, n, _ = x.shape
        qkv = attn.qkv(x).reshape(b, n, 3, attn.num_heads, -1)
        q, k, v = (qkv[:, :, i] for i in range(3))
        q, k = (rotate(a, tables.cos, tables.sin).transpose(0, 2, 1, 3) for a in (q, k))
        v = v.transpose(0, 2, 1, 3)
        kept, layer, rows = keep
        if kept is not None:
            k, v = kept.put(layer, rows, k, v)
        if self.xp is np:
            weight = fastmath.softmax((q * attn.scale) @ k.swapaxes(2, 3), mask)
            out = weight @ v
        else:
            mask = None if mask is None else cast(mask, q.dtype)
            # Padding the heads to a fused kernel's width pays on a GPU only.
            attend = mx.fast.scaled_dot_product_attention if fastmath.ON_CPU else ensure_fused_sdpa
            out = attend(q, k, v, scale=attn.scale, mask=mask)
        return attn.proj(out.transpose(0, 2, 1, 3).reshape(b, n, -1))

    @staticmethod
    def _merge(merger: Any, x: Array) -> Array:
        b = x.shape[0]
        width = merger.hidden_size
        if merger.use_postshuffle_norm:
            x = merger.norm(x.reshape(b, -1, width))
        else:
            x = merger.norm(x).reshape(b, -1, width)
        x = cast(x, merger.norm.weight.dtype)
        return merger.linear_fc2(fastmath.gelu(merger.linear_fc1(x)))


@dataclass(frozen=True)
class _Windows:
    """How one patch grid is cut into windows.

    order, back: (T,) merged tokens in the windows' order, and back. mask: (N, N), hides from each
    patch what is not in its window.
    """

    order: Array
    back: Array
    mask: Array


class WindowedEncoder(VisionEncoder):
    """Qwen2.5-VL's tower: most of its layers attend within windows of the picture only."""

    def __init__(self, tower: Any, settings: PixelSettings, source: str, view: View) -> None:
        """Take the tower, the pixel settings, and the view of modules to compute with."""
        super().__init__(tower, settings, source, view)
        self._windows: dict[tuple[int, int], _Windows] = {}

    def run(
        self,
        pixels: Array,
        grid: tuple[int, int],
        kept: Kept | None = None,
        tokens: np.ndarray | None = None,
    ) -> tuple[Array, list[Array]]:
        """Patches (B, h*w, P) to features (B, T, D); there are no deepstack features.

        The pass, and what is kept, is in the windows' order.
        """
        tower, windows = self.tower, self.windows(grid)
        b, n, _ = pixels.shape
        unit = self.settings.merge**2
        h = wide(cast(pixels, self.dtype) @ self._patch)
        rows = None
        if tokens is None:
            h = h.reshape(b, n // unit, unit, -1)[:, windows.order].reshape(b, n, -1)
        else:
            rows = self.xp.asarray(self._patches(np.array(windows.back)[tokens]))
        tables, hidden = self.tables(grid).of(rows), windows.mask
        if rows is not None:
            hidden = hidden[rows] if kept else hidden[rows][:, rows]
        for i, block in enumerate(tower.blocks):
            mask = None if i in tower.fullatt_block_indexes else hidden
            x = cast(block.norm1(h), self.dtype)
            h = h + self._attend(block.attn, x, tables, mask, (kept, i, rows))
            m, x = block.mlp, cast(block.norm2(h), self.dtype)
            h = h + m.down_proj(fastmath.swiglu(m.gate_proj(x), m.up_proj(x)))
        merger = tower.merger
        x = cast(merger.ln_q(h), self.dtype).reshape(b, n // unit, -1)
        x = merger.mlp[2](fastmath.gelu(merger.mlp[0](x)))
        return (x[:, windows.back] if tokens is None else x), []

    def tables(self, grid: tuple[int, int]) -> _Tables:
        """Return the rotary tables of one patch grid (h, w), in the windows' order."""
        if grid not in self._tables:
            angle = self._whole.rot_pos_emb(mx.array([[1, *grid]], dtype=mx.int32))
            order, unit = mx.array(np.array(self.windows(grid).order)), self.settings.merge**2
            angle = angle.reshape(len(order), unit, -1)[order].reshape(grid[0] * grid[1], -1)
            made = (mx.cos(angle), mx.sin(angle))
            mx.eval(made)
            nothing = self.xp.zeros((0,))  # no learned positions
            self._tables[grid] = _Tables(nothing, *(self.xp.asarray(one) for one in made))
        return self._tables[grid]

    def windows(self, grid: tuple[int, int]) -> _Windows:
        """Return the windows of one patch grid, as mlx-vlm's own code cuts them."""
        if grid not in self._windows:
            index, ends = self._whole.get_window_index(mx.array([[1, *grid]], dtype=mx.int32))
            order, ends = np.array(index), np.unique(np.array(ends))
            place = np.searchsorted(ends, np.arange(grid[0] * grid[1]), side="right")
            mask = np.where(place[:, None] == place, 0.0, HIDDEN).astype(np.float32)
            made = (order.astype(np.int32), np.argsort(order).astype(np.int32), mask)
            self._windows[grid] = _Windows(*(self.xp.asarray(one) for one in made))
        return self._windows[grid]
