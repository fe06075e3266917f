"""Load whichever engine a checkpoint is for: a vision-language model's, or a decision model's."""

from __future__ import annotations

from . import checkpoint as checkpoints
from .decision_models import family_name
from .engine import DTYPES, Engine
from .errors import CheckpointError
from .image_engine import ImageEngine
from .json_object import read_json


def load(
    model: str = "sim_desk",
    pixel_budget: int | None = None,
    *,
    dtype: str | None = None,
    outer_vision_tokens: bool = False,
    self_check: str = "off",
) -> Engine | ImageEngine:
    """Load a checkpoint by name; raises CheckpointError. The arguments are those of Engine.load.

    A decision model has no shared pass, so there is nothing for ``self_check`` to look at.
    """
    if dtype is not None and dtype not in DTYPES:
        raise CheckpointError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}")
    family = family_name(read_json(checkpoints.find(model) / "config.json"))
    if family is None:
        return Engine.load(model, pixel_budget=pixel_budget, dtype=dtype, self_check=self_check,
                           outer_vision_tokens=outer_vision_tokens)  # fmt: skip
    if outer_vision_tokens:
        raise CheckpointError(f"outer_vision_tokens is for a video's groups: {model!r} is a "
                              f"decision model ({family}), which sees one image")
    return ImageEngine.load(model, family, pixel_budget=pixel_budget, dtype=dtype)
