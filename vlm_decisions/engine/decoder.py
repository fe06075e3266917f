"""A language model's layers, driven on packed tokens. What a model family must provide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from .arrays import Array, cast, module_of, wide
from .layout import Layout, Want
from .positions import Rotary
from .state import DeltaState, KVState, ModelState


class Mixer(Protocol):
    """What mixes tokens in a layer: full attention or a gated delta rule."""

    def fresh(self) -> KVState | DeltaState:
        """Return a state of no tokens whose arrays have the model's shapes."""

    def __call__(self, x: Array, layout: Layout, state: Any, want: Want) -> Array:
        """Mix (M, D) and move ``state``; return the wanted rows."""


@dataclass(frozen=True)
class Layer:
    """One decoder layer: norm, mixer, norm, MLP, each with a residual around it.

    The residual stream is float32 whatever the dtype of the weights: with half precision that
    takes away rounding that adds up from layer to layer, at the cost of a few additions.
    """

    before: Any
    mixer: Mixer
    after: Any
    mlp: Callable[[Array], Array]

    def __call__(
        self, h: Array, layout: Layout, state: Any, want: Want = Want.ALL
    ) -> Array:
        """Run the layer on h (M, D) and return the wanted rows."""
        dtype = self.before.weight.dtype
        mixed = self.mixer(cast(self.before(h), dtype), layout, state, want)
        if want is Want.NOTHING:
            return mixed
        h = (h if want is Want.ALL else h[layout.decisions()]) + mixed
        return h + self.mlp(cast(self.after(h), dtype))


class Decoder:
    """A language model as embedding, layers and readout; built by a family adapter.

    xp: what it computes with: numpy, or mlx.core.
    """

    def __init__(self, language: Any, layers: Sequence[Layer], rotary: Rotary) -> None:
        """Take mlx-vlm's language model, or what it is in NumPy, and layers over its weights."""
        self.language = language
        self.xp = module_of(language.model.norm.weight)
        self.layers = tuple(layers)
        self.rotary = rotary
        self.max_tokens = language.args.max_position_embeddings
        self.tied = language.args.tie_word_embeddings
        self.dtype = language.model.norm.weight.dtype
        self.shapes = ModelState([layer.mixer.fresh() for layer in self.layers])
        self.hidden = language.args.hidden_size
        self.vocab = language.args.vocab_size

    @property
    def n_layers(self) -> int:
        """Layers of the full depth."""
        return len(self.layers)

    def fresh_state(self, n_layers: int | None = None) -> ModelState:
        """Return an empty state for the first ``n_layers`` layers (None: all)."""
        return ModelState([type(layer)() for layer in self.shapes.layers[:n_layers]])

    def embed(self, ids: np.ndarray) -> Array:
        """Embeddings float32 (L, D) of token ids (L,)."""
        return wide(self.language.model.embed_tokens(self.xp.asarray(ids)))

    def answer_logits(self, h: Array | np.ndarray, answer_ids: np.ndarray) -> Array:
        """Logits float32 (N, k) of each row's own answers: h (N, D), answer_ids (N, k)."""
        h = wide(self.language.model.norm(self.xp.asarray(h)))
        rows = wide(self._output_rows(self.xp.asarray(answer_ids)))  # (N, k, D)
        return (rows @ h[:, :, None])[..., 0]

    def _output_rows(self, ids: Array) -> Array:
        if self.tied:
            return self.language.model.embed_tokens(ids)
        head = self.language.lm_head
        if isinstance(head, nn.QuantizedLinear):
            flat = ids.reshape(-1)
            biases = head.biases[flat] if head.biases is not None else None
            rows = mx.dequantize(
                head.weight[flat],
                head.scales[flat],
                biases,
                group_size=head.group_size,
                bits=head.bits,
                mode=head.mode,
            )
            return rows.reshape(*ids.shape, -1)
        return head.weight[ids]
