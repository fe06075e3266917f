"""The running state of a language model: one copy, appended to, never copied for a question."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from .arrays import Array, module_of
from .errors import StateError

KV_STEP: Final = 256  # tokens by which a key-value buffer grows


@dataclass
class KVState:
    """Keys and values of one full-attention layer, (heads, capacity, dim) each.

    The first ``length`` tokens are the state. What lies beyond is scratch that a pass may
    overwrite (the questions' trunk is put there, so that all questions read one buffer).
    """

    keys: Array | None = None
    values: Array | None = None
    length: int = 0

    def write(self, keys: Array, values: Array, commit: int) -> tuple[Array, Array]:
        """Put new tokens (heads, T, dim) after the state and count ``commit`` of them as state.

        Returns keys and values (heads, length + T, dim): old tokens, then all the new ones.
        """
        end = self.length + keys.shape[1]
        capacity = -(-end // KV_STEP) * KV_STEP
        xp = module_of(keys)
        if self.keys is None:
            shape = (keys.shape[0], capacity, keys.shape[2])
            self.keys = xp.zeros(shape, keys.dtype)
            self.values = xp.zeros((*shape[:2], values.shape[2]), values.dtype)
        elif self.keys.shape[1] < end:
            grow = [(0, 0), (0, capacity - self.keys.shape[1]), (0, 0)]
            self.keys, self.values = xp.pad(self.keys, grow), xp.pad(self.values, grow)
        if end > self.length:
            self.keys[:, self.length : end] = keys
            self.values[:, self.length : end] = values
        self.length += commit
        return self.keys[:, :end], self.values[:, :end]


@dataclass
class DeltaState:
    """State of one gated-delta-rule layer.

    memory: float32 (value heads, value dim, key dim), or None for zeros.
    window: the last inputs of the causal convolution (kernel - 1, channels), or None for zeros.
    """

    memory: Array | None = None
    window: Array | None = None


@dataclass
class ModelState:
    """All layers' states after ``length`` tokens; the next text token stands at ``next_position``.

    ``layers`` holds one entry per layer that is kept (an early-exit stream keeps fewer).
    """

    layers: list[KVState | DeltaState]
    length: int = 0
    next_position: int = 0
    times_s: list[float] = field(default_factory=list)

    def arrays(self) -> list[Array]:
        """Every array of the state, to evaluate them together."""
        out = []
        for layer in self.layers:
            pair = (
                (layer.keys, layer.values)
                if isinstance(layer, KVState)
                else (layer.memory, layer.window)
            )
            out += [array for array in pair if array is not None]
        return out

    def nbytes(self) -> int:
        """Bytes held by the state's arrays."""
        return sum(array.nbytes for array in self.arrays())

    def check(self, fresh: ModelState) -> None:
        """Raise StateError unless the arrays have the shapes that ``fresh``'s model gives them.

        fresh: an empty state whose arrays are allocated (its shapes are the model's).
        """
        if len(self.layers) > len(fresh.layers):
            raise StateError(
                f"the state has {len(self.layers)} layers, the model {len(fresh.layers)}"
            )
        for i, (layer, model) in enumerate(zip(self.layers, fresh.layers, strict=False)):
            if type(layer) is not type(model):
                raise StateError(f"layer {i}: {type(layer).__name__} for {type(model).__name__}")
            if isinstance(layer, KVState):
                if layer.length != self.length:
                    raise StateError(
                        f"layer {i}: keys of {layer.length} tokens in a state of {self.length}"
                    )
                for array, like in ((layer.keys, model.keys), (layer.values, model.values)):
                    _same_shape(i, array, like, ignore=1)
            else:
                for array, like in ((layer.memory, model.memory), (layer.window, model.window)):
                    if array is None and self.length:
                        raise StateError(f"layer {i}: no recurrent state at {self.length} tokens")
                    _same_shape(i, array, like)


def _same_shape(
    layer: int, array: Array | None, like: Array | None, ignore: int | None = None
) -> None:
    if array is None or like is None:
        return
    ok = array.ndim == like.ndim and all(
        axis == ignore or a == b
        for axis, (a, b) in enumerate(zip(array.shape, like.shape, strict=True))
    )
    if not ok:
        raise StateError(
            f"layer {layer}: a state array has the shape {array.shape}, the model's is "
            f"{like.shape} (a state holds one copy, whatever the number of questions)"
        )
