"""Qwen3.5's forward pass for training, batched and forked, on transformers' own modules.

transformers runs one sequence per row and one attention call per vision group. Training asks many
questions about one clip, so the language model here runs the shared prefix once per clip and the
questions as forks of its state, and the vision tower runs equal grids as one batch. The layers,
weights and formulas are transformers'; `test/lab/test_training_forward.py` holds both to the same
numbers.
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
)

CHUNK = 64


def _weights(scores: Tensor) -> Tensor:
    return scores.softmax(-1, dtype=torch.float32).to(scores.dtype)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Softmax attention, written out: the fused kernel's bfloat16 backward pass is slow on CPUs.

    `mask` is added to the scores: 0 or -inf.
    """
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    return _weights(scores if mask is None else scores + mask.to(scores.dtype)) @ v


def _future(length: int) -> Tensor:
    """(length, length) mask of what a token must not see: -inf above the diagonal, else 0."""
    return torch.full((length, length), -torch.inf).triu(1)


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
        out = _attend(*(a.transpose(1, 2) for a in (q, k, v)))
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


def _delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor,
                state: Tensor | None) -> tuple[Tensor, Tensor]:
    """Run the gated delta rule over one chunk (Yang et al., arXiv:2412.06464, its chunk form).

    The writes of a chunk depend on each other through one triangular system; solving it at once
    costs a few large operations, where a small model's time goes into many small ones.

    Args:
        q: (B, H, L, K), normalised.
        k: (B, H, L, K), normalised.
        v: (B, H, L, V).
        g: (B, H, L) log decay.
        beta: (B, H, L) write strength.
        state: (B, H, K, V) from before the chunk.

    Returns:
        The outputs (B, H, L, V) and the state after the chunk.
    """
    length, dim = q.shape[2], v.shape[-1]
    total = g.cumsum(-1)
    decay = (total[..., :, None] - total[..., None, :] + _future(length)).exp()
    grown = total.exp()[..., None]
    written = k * beta[..., None]
    system = written @ k.transpose(-1, -2) * decay  # only read below its diagonal
    right = torch.cat([v * beta[..., None], written * grown], dim=-1)
    solved = torch.linalg.solve_triangular(system, right, upper=False, unitriangular=True)
    new = solved[..., :dim]
    out = q @ k.transpose(-1, -2) * decay
    if state is None:
        out = out @ new
    else:
        new = new - solved[..., dim:] @ state
        out = out @ new + (q * grown) @ state
    left = (total[..., -1:] - total).exp()[..., None]
    after = (k * left).transpose(-1, -2) @ new
    if state is not None:
        after = after + state * total[..., -1].exp()[..., None, None]
    return out, after


def _unit(x: Tensor) -> Tensor:
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


def _delta(net: Any, x: Tensor, state: LayerState | None) -> tuple[Tensor, LayerState]:
    """Gated DeltaNet over (B, L, D), from a state (recurrent, conv window) or from nothing."""
    b, length, _ = x.shape
    mixed = net.in_proj_qkv(x)
    width = net.conv_kernel_size - 1
    before = mixed.new_zeros(b, width, mixed.shape[2]) if state is None else state.second
    mixed = torch.cat([before, mixed], dim=1)
    window = mixed[:, -width:]
    mixed = F.conv1d(mixed.transpose(1, 2), net.conv1d.weight, groups=mixed.shape[2])
    mixed = F.silu(mixed.transpose(1, 2).float())
    q, k, v = mixed.split([net.key_dim, net.key_dim, net.value_dim], dim=-1)
    q, k, v = (a.reshape(b, length, -1, net.head_k_dim).transpose(1, 2) for a in (q, k, v))
    g = -net.A_log.float().exp() * F.softplus(net.in_proj_a(x).float() + net.dt_bias)
    g, beta = g.transpose(1, 2), net.in_proj_b(x).float().sigmoid().transpose(1, 2)
    q, k = _unit(q) * net.head_k_dim**-0.5, _unit(k)
    recurrent, outs = None if state is None else state.first, []
    with torch.autocast("cpu", enabled=False):  # small products, and their errors add up
        for at in range(0, length, CHUNK):
            part = slice(at, at + CHUNK)
            out, recurrent = _delta_rule(q[:, :, part], k[:, :, part], v[:, :, part],
                                         g[..., part], beta[..., part], recurrent)
            outs.append(out)
    out = torch.cat(outs, dim=2).transpose(1, 2)
    z = net.in_proj_z(x).reshape(-1, net.head_v_dim)
    out = net.norm(out.reshape(-1, net.head_v_dim), z).reshape(b, length, -1)
    return net.out_proj(out), LayerState(recurrent, window)


def _gated(layer: Any, h: Tensor, out: Tensor, gate: Tensor) -> Tensor:
    """Return the layer's output: heads' results (B, H, L, d) of the tokens `h` (B, L, D)."""
    return _feed(layer, h + layer.self_attn.o_proj(
        out.transpose(1, 2).flatten(2) * gate.sigmoid()))


def _feed(layer: Any, h: Tensor) -> Tensor:
    return h + layer.mlp(layer.post_attention_layernorm(h))


def prefix(model: Any, embeds: Tensor, positions: Tensor,
           wanted: Tensor) -> tuple[list[Tensor], list[LayerState]]:
    """Run the shared prefix.

    Args:
        model: transformers' `Qwen3_5TextModel`, whose last layer is full attention.
        embeds: (B, P, D) input embeddings with the visual features in place.
        positions: (3, P) M-RoPE positions, the same for every clip.
        wanted: (W,) indices of the tokens whose states are returned; the last layer runs for no
            other token.

    Returns:
        Hidden states (B, W, D) after each layer, before the final norm, and each layer's state.
    """
    h, every, states = embeds, [], []
    cos, sin = model.rotary_emb(h, positions[:, None, :])
    mask = _future(h.shape[1])
    for layer in model.layers:
        x = layer.input_layernorm(h)
        if layer.block_type == "linear_attention":
            out, state = _delta(layer.linear_attn, x, None)
            states.append(state)
            h = _feed(layer, h + out)
        else:
            q, k, v, gate = _project(layer.self_attn, x, cos, sin)
            times = layer.self_attn.num_key_value_groups
            k, v = _repeat(k, times), _repeat(v, times)
            states.append(LayerState(k, v))
            if layer is model.layers[-1]:
                out = _attend(q[:, :, wanted], k, v, mask[wanted])
                every.append(_gated(layer, h[:, wanted], out, gate[:, wanted]))
                return every, states
            h = _gated(layer, h, _attend(q, k, v, mask), gate)
        every.append(h[:, wanted])
    raise ValueError("the last layer must be full attention")


def _attend_fork(q: Tensor, k: Tensor, v: Tensor, state: LayerState, mask: Tensor) -> Tensor:
    """Attention of N suffixes per clip to the clip's prefix and, each, to itself.

    Args:
        q: (B, H, N, Q, d), scaled.
        k: (B, H, N, L, d) keys of the suffixes.
        v: (B, H, N, L, d) their values.
        state: keys and values (B, H, P, d) of the prefix.
        mask: added to the suffixes' own scores (B, H, N, Q, L).

    Returns:
        (B, H, N, Q, d)
    """
    b, heads, n, queries, dim = q.shape
    before = q.flatten(2, 3) @ state.first.transpose(-1, -2)
    own = q @ k.transpose(-1, -2)
    scores = torch.cat([before.view(b, heads, n, queries, -1), own + mask.to(own.dtype)], dim=-1)
    weights = _weights(scores)
    past = state.first.shape[2]
    out = weights[..., :past].flatten(2, 3) @ state.second
    return out.view(b, heads, n, queries, dim) + weights[..., past:] @ v


def fork(model: Any, states: list[LayerState], embeds: Tensor, start: int,
         last: Tensor) -> list[Tensor]:
    """Run N suffixes per clip, each from the clip's state, none seeing another.

    Args:
        model: transformers' `Qwen3_5TextModel`, whose last layer is full attention.
        states: from `prefix`, for B clips.
        embeds: (B, N, L, D) suffix embeddings, padded on the right.
        start: position of the first suffix token.
        last: (B, N) index of each suffix's last token.

    Returns:
        Hidden states (B, N, D) of the last tokens after each layer, before the final norm.
    """
    b, n, length, dim = embeds.shape
    positions = torch.arange(start, start + length)
    cos, sin = model.rotary_emb(embeds, positions.view(1, 1, -1).expand(3, 1, -1))
    folded_cos, folded_sin = cos.repeat(1, n, 1), sin.repeat(1, n, 1)
    mask = _future(length)
    at = last + torch.arange(n) * length  # (B, N) among the clip's folded suffixes
    rows = torch.arange(b)[:, None]
    h, every = embeds.reshape(b, n * length, dim), []
    for layer, state in zip(model.layers, states, strict=True):
        x = layer.input_layernorm(h)
        if layer.block_type == "linear_attention":
            own = LayerState(state.first.repeat_interleave(n, 0),
                             state.second.repeat_interleave(n, 0))
            out, _ = _delta(layer.linear_attn, x.view(b * n, length, dim), own)
            h = _feed(layer, h + out.reshape(b, n * length, dim))
        else:
            q, k, v, gate = _project(layer.self_attn, x, folded_cos, folded_sin)
            times = layer.self_attn.num_key_value_groups
            q = q * q.shape[-1] ** -0.5
            k, v = (_repeat(a, times).unflatten(2, (n, length)) for a in (k, v))
            if layer is model.layers[-1]:
                ends = q.transpose(1, 2)[rows, at].transpose(1, 2)[:, :, :, None]
                out = _attend_fork(ends, k, v, state, mask[last][:, None, :, None])
                every.append(_gated(layer, h[rows, at], out[:, :, :, 0], gate[rows, at]))
                return every
            out = _attend_fork(q.unflatten(2, (n, length)), k, v, state, mask)
            h = _gated(layer, h, out.flatten(2, 3), gate)
        every.append(h[rows, at])
    raise ValueError("the last layer must be full attention")
