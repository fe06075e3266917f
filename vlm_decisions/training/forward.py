"""Qwen3.5's forward pass for training, batched and forked, on transformers' own modules.

transformers runs one sequence per row and one attention call per vision group. Training asks many
questions about one clip, so the language model here runs the shared prefix once per clip and the
questions as forks of its state, and the vision tower runs equal grids as one batch. The layers,
weights and formulas are transformers'; `test/test_training.py` holds both to the same numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.models.qwen3_5.modeling_qwen3_5 import (
    apply_rotary_pos_emb,
    apply_rotary_pos_emb_vision,
    torch_chunk_gated_delta_rule,
)


def vision_features(visual: Any, pixels: Tensor, grid: tuple[int, int]) -> Tensor:
    """Features of N equal groups.

    Args:
        visual: transformers' `Qwen3_5VisionModel`.
        pixels: (N, P, C*T*16*16) patches.
        grid: patches down and across; P = down * across.

    Returns:
        (N, P / 4, out) merged tokens.
    """
    from transformers.models.qwen3_5 import modeling_qwen3_5 as source

    n, p, _ = pixels.shape
    thw = torch.tensor([[1, *grid]])
    merge = visual.config.spatial_merge_size
    indices, weights = source.get_vision_interpolation_indices_and_weights(
        thw, num_grid_per_side=visual.num_grid_per_side, mode=visual.interpolation_mode,
        align_corners=visual.interpolation_align_corners, spatial_merge_size=merge, kwargs={})
    positions = source.get_vision_position_ids(thw, merge, kwargs={})
    embed = visual.patch_embed.proj
    h = F.linear(pixels, embed.weight.reshape(embed.weight.shape[0], -1), embed.bias)
    h = h + (visual.pos_embed(indices) * weights[:, :, None]).sum(1)
    cos, sin = visual.rotary_pos_emb(h, positions)
    for block in visual.blocks:
        attention = block.attn
        q, k, v = attention.qkv(block.norm1(h)).view(n, p, 3, attention.num_heads, -1).unbind(2)
        q, k = apply_rotary_pos_emb_vision(q, k, cos, sin)
        out = F.scaled_dot_product_attention(*(a.transpose(1, 2) for a in (q, k, v)))
        h = h + attention.proj(out.transpose(1, 2).reshape(n, p, -1))
        h = h + block.mlp(block.norm2(h))
    merger = visual.merger
    h = merger.norm(h).view(n, p // merge**2, -1)
    return merger.linear_fc2(merger.act_fn(merger.linear_fc1(h)))


@dataclass
class LayerState:
    """What a fork needs of one layer: keys and values, or recurrent state and conv window."""

    first: Tensor
    second: Tensor


def _repeat(x: Tensor, times: int) -> Tensor:
    """(B, H, L, D) -> (B, H * times, L, D): each key/value head serves `times` query heads."""
    return x.repeat_interleave(times, dim=1)


def _project(attention: Any, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
    shape = (*x.shape[:-1], -1, attention.head_dim)
    q, gate = attention.q_proj(x).view(*x.shape[:-1], -1, 2 * attention.head_dim).chunk(2, dim=-1)
    q = attention.q_norm(q.reshape(shape)).transpose(1, 2)
    k = attention.k_norm(attention.k_proj(x).view(shape)).transpose(1, 2)
    v = attention.v_proj(x).view(shape).transpose(1, 2)
    q, k = apply_rotary_pos_emb(q, k, cos, sin)
    return q, k, v, gate.reshape(*x.shape[:-1], -1)


def _delta(net: Any, x: Tensor, state: LayerState | None, chunk: int) -> tuple[Tensor, LayerState]:
    """Gated DeltaNet over (B, L, D), from a state (recurrent, conv window) or from nothing."""
    b, length, _ = x.shape
    mixed = net.in_proj_qkv(x).transpose(1, 2)
    width = net.conv_kernel_size - 1
    before = mixed.new_zeros(b, mixed.shape[1], width) if state is None else state.second
    mixed = torch.cat([before, mixed], dim=2)
    window = mixed[:, :, -width:]
    mixed = F.silu(F.conv1d(mixed, net.conv1d.weight, groups=mixed.shape[1])).transpose(1, 2)
    q, k, v = mixed.split([net.key_dim, net.key_dim, net.value_dim], dim=-1)
    q, k = (a.reshape(b, length, -1, net.head_k_dim) for a in (q, k))
    v = v.reshape(b, length, -1, net.head_v_dim)
    g = -net.A_log.exp() * F.softplus(net.in_proj_a(x) + net.dt_bias)
    out, recurrent = torch_chunk_gated_delta_rule(
        q, k, v, g=g, beta=net.in_proj_b(x).sigmoid(), chunk_size=chunk,
        initial_state=None if state is None else state.first, output_final_state=True,
        use_qk_l2norm_in_kernel=True)
    z = net.in_proj_z(x).reshape(-1, net.head_v_dim)
    out = net.norm(out.reshape(-1, net.head_v_dim), z).reshape(b, length, -1)
    return net.out_proj(out), LayerState(recurrent, window)


def prefix(model: Any, embeds: Tensor, positions: Tensor) -> tuple[Tensor, list[LayerState]]:
    """Run the shared prefix.

    Args:
        model: transformers' `Qwen3_5TextModel`.
        embeds: (B, P, D) input embeddings with the visual features in place.
        positions: (3, P) M-RoPE positions, the same for every clip.

    Returns:
        The last hidden states (B, P, D) after the final norm and each layer's state.
    """
    h, states = embeds, []
    cos, sin = model.rotary_emb(h, positions[:, None, :])
    for layer in model.layers:
        x = layer.input_layernorm(h)
        if layer.block_type == "linear_attention":
            out, state = _delta(layer.linear_attn, x, None, 64)
        else:
            attention = layer.self_attn
            q, k, v, gate = _project(attention, x, cos, sin)
            times = attention.num_key_value_groups
            out = F.scaled_dot_product_attention(q, _repeat(k, times), _repeat(v, times),
                                                 is_causal=True)
            out = attention.o_proj(out.transpose(1, 2).flatten(2) * gate.sigmoid())
            state = LayerState(k, v)
        states.append(state)
        h = h + out
        h = h + layer.mlp(layer.post_attention_layernorm(h))
    return model.norm(h), states


def fork(model: Any, states: list[LayerState], embeds: Tensor, start: int) -> list[Tensor]:
    """Run N suffixes per clip, each from the clip's state, none seeing another.

    Args:
        model: transformers' `Qwen3_5TextModel`.
        states: from `prefix`, for B clips.
        embeds: (B, N, L, D) suffix embeddings, padded on the right.
        start: position of the first suffix token.

    Returns:
        Hidden states (B, N, L, D) after each layer, before the final norm.
    """
    b, n, length, dim = embeds.shape
    positions = torch.arange(start, start + length)
    cos, sin = model.rotary_emb(embeds, positions.view(1, 1, -1).expand(3, 1, -1))
    folded_cos, folded_sin = cos.repeat(1, n, 1), sin.repeat(1, n, 1)
    h, every = embeds.reshape(b * n, length, dim), []
    mask: Tensor | None = None
    for layer, state in zip(model.layers, states, strict=True):
        x = layer.input_layernorm(h)
        if layer.block_type == "linear_attention":
            own = LayerState(state.first.repeat_interleave(n, 0),
                             state.second.repeat_interleave(n, 0))
            out, _ = _delta(layer.linear_attn, x, own, min(64, max(16, length)))
        else:
            attention = layer.self_attn
            q, k, v, gate = _project(attention, x.reshape(b, n * length, dim), folded_cos,
                                     folded_sin)
            k, v = torch.cat([state.first, k], dim=2), torch.cat([state.second, v], dim=2)
            if mask is None:
                block = torch.ones(length, length, dtype=torch.bool).tril()
                mask = torch.cat([torch.ones(n * length, state.first.shape[2], dtype=torch.bool),
                                  torch.block_diag(*[block] * n)], dim=1)
            times = attention.num_key_value_groups
            out = F.scaled_dot_product_attention(q, _repeat(k, times), _repeat(v, times),
                                                 attn_mask=mask)
            out = attention.o_proj(out.transpose(1, 2).flatten(2) * gate.sigmoid())
            out = out.reshape(b * n, length, dim)
        h = h + out
        h = h + layer.mlp(layer.post_attention_layernorm(h))
        every.append(h.reshape(b, n, length, dim))
    return every
