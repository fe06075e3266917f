"""What a model may be asked about: the embedded one knows the simulated desk and nothing else."""

from __future__ import annotations

SIMULATED_DESK = "sim_desk"
"""Name of the embedded model."""

OUT_OF_SCOPE = "simulation model: answers mean nothing here"
"""The mark on a picture that the model cannot know."""


def scope_mark(model: str, *, simulated: bool) -> str:
    """Return what a picture that `model` cannot know is marked with, or an empty string."""
    return OUT_OF_SCOPE if scope_warning(model, simulated=simulated) else ""


def scope_warning(model: str, *, simulated: bool) -> str:
    """Return what a user must be told where `model` looks at a camera, or an empty string."""
    if model != SIMULATED_DESK or simulated:
        return ""
    return (f"{model} knows only the simulated desk: what it says of any other camera means "
            "nothing. Give a real model: a local path or a hub name")
