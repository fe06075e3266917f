"""Floating-point operations of a pass, counted from the model's own shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlx.utils import tree_flatten

from ...engine.attend import FullAttention
from ...engine.delta import CHUNK, DeltaNet
from ...engine.engine import Engine
from ...engine.readout import Query
from ...engine.tree import Tree


@dataclass(frozen=True)
class Operations:
    """Language-model tokens and operations of each way; ``bound`` is the ratio of two of them.

    Padding inside a kernel is not counted (mlx-vlm's gated delta rule pads a question to 64).
    """

    tokens: dict[str, int]
    flops: dict[str, float]

    @property
    def bound(self) -> float:
        """The most that sharing can bring: operations alone, all else free."""
        return self.flops["independent"] / self.flops["shared"]


def sequence_flops(engine: Engine, start: int, length: int) -> float:
    """Operations of ``length`` tokens in a row behind ``start`` others, all layers."""
    total = 0.0
    context = start + (length + 1) / 2
    for layer, module in zip(
        engine.decoder.layers, engine.model.language_model.model.layers, strict=True
    ):
        weights = sum(
            value.size
            for key, value in tree_flatten(module.parameters())
            if value.ndim == 2 and key.endswith("weight")
        )
        total += 2.0 * weights * length
        mixer = layer.mixer
        if isinstance(mixer, FullAttention):
            total += 4.0 * mixer.n_heads * mixer.head_dim * context * length
        elif isinstance(mixer, DeltaNet):
            chunk = min(length, CHUNK)
            inner = 6.0 * mixer.k_dim * mixer.v_dim + 4.0 * chunk * (mixer.k_dim + mixer.v_dim)
            total += mixer.v_heads * inner * length
    return total


def vision_flops(engine: Engine, patches: int, encoded: int) -> float:
    """Operations of the vision tower for ``encoded`` patches that attend to ``patches``."""
    tower = engine.model.vision_tower
    unit = engine.settings.merge**2
    total = 0.0
    for key, value in tree_flatten(tower.parameters()):
        if value.ndim >= 2 and "pos_embed" not in key:
            total += 2.0 * value.size * (encoded / unit if "merger" in key else encoded)
    width = engine.model.config.vision_config.hidden_size
    return total + 4.0 * len(tower.blocks) * width * patches * encoded


def asked_flops(engine: Engine, start: int, appended: int, tree: Tree) -> float:
    """Operations of one pass: ``appended`` tokens behind ``start`` others, and questions there.

    Each leaf token sees what is before it, the trunk and, on average, half its own question.
    """
    line = appended + tree.n_trunk
    leaf = sequence_flops(engine, start + line, 1)
    return sequence_flops(engine, start, line) + leaf * tree.n_leaf


def work_of(engine: Engine, prefix: int, suffixes: Sequence[int],
            queries: Sequence[Query]) -> Operations:
    """Count asking ``queries`` (of ``suffixes`` tokens each) behind ``prefix`` tokens in all ways.

    ``mlx_vlm`` is its generation loop: it reads the whole vocabulary and starts on the next token.
    ``copies`` pads all questions to the longest one.
    """
    n, longest = len(suffixes), max(suffixes)
    tree = engine.questions(queries).tree
    whole = sum(sequence_flops(engine, 0, prefix + length) for length in suffixes)
    window = sequence_flops(engine, 0, prefix)
    more = sum(
        sequence_flops(engine, prefix + length, 1)
        + 2 * 2.0 * engine.decoder.hidden * engine.decoder.vocab
        for length in suffixes
    )
    shared = asked_flops(engine, 0, prefix, tree)
    tokens = sum(prefix + length for length in suffixes)
    return Operations(
        {
            "independent": tokens,
            "mlx_vlm": tokens + n,
            "copies": prefix + n * longest,
            "serial": prefix + sum(suffixes),
            "shared": prefix + len(tree.ids),
        },
        {
            "independent": whole,
            "mlx_vlm": whole + more,
            "copies": window + n * sequence_flops(engine, prefix, longest),
            "serial": window + sum(sequence_flops(engine, prefix, n) for n in suffixes),
            "shared": shared,
        },
    )
