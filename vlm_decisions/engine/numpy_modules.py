"""Modules of mlx-vlm as NumPy functions, for small models on a CPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from .arrays import rms_norm


class Dense:
    """A linear layer.

    Products use a transposed copy of the weight: BLAS multiplies a few rows by it up to twice as
    fast.
    """

    def __init__(self, weight: mx.array, bias: mx.array | None = None) -> None:
        """Take weight (out, in) and bias (out,)."""
        self.weight = np.asarray(weight)
        self._columns = np.ascontiguousarray(self.weight.T)
        self.bias = None if bias is None else np.asarray(bias)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Multiply x (..., in)."""
        y = x.reshape(-1, x.shape[-1]) @ self._columns
        if self.bias is not None:
            y += self.bias
        return y.reshape(*x.shape[:-1], -1)


class RMSNorm:
    """A root-mean-square norm."""

    def __init__(self, weight: mx.array, eps: float) -> None:
        """Take the weight (D,)."""
        self.weight, self.eps = np.asarray(weight), eps

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Norm the last axis."""
        return rms_norm(x, self.weight, self.eps)


class LayerNorm:
    """A layer norm with weight and bias."""

    def __init__(self, weight: mx.array, bias: mx.array, eps: float) -> None:
        """Take weight and bias (D,)."""
        self.weight, self.bias, self.eps = np.asarray(weight), np.asarray(bias), eps

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Norm the last axis."""
        x = x - x.mean(axis=-1, keepdims=True)
        return rms_norm(x, self.weight, self.eps) + self.bias


class EmbeddingTable:
    """An embedding."""

    def __init__(self, weight: mx.array) -> None:
        """Take the rows (vocabulary, D)."""
        self.weight = np.asarray(weight)

    def __call__(self, ids: np.ndarray) -> np.ndarray:
        """Return the rows of ``ids``."""
        return self.weight[ids]


def in_numpy(module: Any) -> Any:
    """Return what a module is in NumPy: a function, or an object with the same attributes.

    A module that cannot be translated is called through MLX.
    """
    if isinstance(module, nn.Linear):
        return Dense(module.weight, module.get("bias"))
    if isinstance(module, nn.RMSNorm):
        return RMSNorm(module.weight, module.eps)
    if isinstance(module, nn.LayerNorm):
        return LayerNorm(module.weight, module.bias, module.eps)
    if isinstance(module, nn.Embedding):
        return EmbeddingTable(module.weight)
    if isinstance(module, list):
        return [in_numpy(one) for one in module]
    if isinstance(module, mx.array):
        return np.asarray(module)
    if not isinstance(module, nn.Module):
        return module
    if hasattr(module, "switch_mlp"):
        return lambda x: np.asarray(module(mx.array(x)))
    plain = {key: value for key, value in vars(module).items() if not key.startswith("_")}
    return SimpleNamespace(**plain, **{key: in_numpy(value) for key, value in module.items()})


def can(model: nn.Module) -> bool:
    """Whether all weights are float32, so that NumPy can read them where they lie."""
    return all(value.dtype == mx.float32 for _, value in tree_flatten(model.parameters()))
