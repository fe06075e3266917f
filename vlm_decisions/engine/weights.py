"""Weight files: their headers read first, then the tensors that the index assigns to each.

A header tells names, shapes, types and sizes, so that what is missing, cut short or too large for
memory is refused before anything is read.
"""

from __future__ import annotations

import json
import math
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import mlx.core as mx

from ..files.listing import listed
from .errors import CheckpointError
from .json_object import read_json

INDEX: Final = "model.safetensors.index.json"
FLOATS: Final = ("F32", "F16", "BF16")
_PACKED: Final = {"weight": "U32", "scales": "U8"}  # number types of a packed module's parts
_PART: Final = re.compile(r"(.*)-(\d+)-of-(\d+)\.safetensors")
_HEADER_LIMIT: Final = 100_000_000  # bytes, as in the format's own reader


@dataclass(frozen=True)
class Tensor:
    """One tensor as its file's header describes it; nbytes: in the file."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    nbytes: int

    @property
    def size(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


def list_tensors(folder: Path) -> dict[str, Tensor]:
    """Read the headers of a checkpoint's weight files; raises CheckpointError.

    With an index each file gives what the index assigns to it, and what the index does not know.
    A name found in two files of which nothing says which counts is refused.
    """
    index = folder / INDEX
    assigned: dict[str, str] | None = None
    if index.exists():
        assigned = read_json(index).get("weight_map")
        if not isinstance(assigned, dict) or not all(isinstance(v, str) for v in assigned.values()):
            raise CheckpointError(f"{index} has no weight_map from tensor names to files")
        outside = sorted({name for name in assigned.values() if Path(name).name != name
                          or name in ("", "..")})
        if outside:
            raise CheckpointError(f"{index} assigns tensors to {outside[0]!r}: a file must lie "
                                  "beside the index, named without a folder")
        files = sorted({folder / name for name in assigned.values()})
    else:
        files = sorted(
            path for path in folder.glob("*.safetensors") if path.name != "consolidated.safetensors"
        )
    _check_complete(folder, files)
    tensors: dict[str, Tensor] = {}
    for path in files:
        held = _read_header(path)
        if assigned is not None:
            mine = {name for name, file in assigned.items() if file == path.name}
            missing = sorted(mine - set(held))
            if missing:
                raise CheckpointError(
                    f"{path} lacks {listed(missing, 3)}, which {index.name} assigns to it"
                )
            held = {name: one for name, one in held.items() if name in mine or name not in assigned}
        twice = sorted(set(held) & set(tensors))
        if twice:
            raise CheckpointError(
                f"{listed(twice, 3)} found in {tensors[twice[0]].path.name} and in {path.name}, "
                f"and {folder} has no {INDEX} that says which counts"
            )
        tensors.update(held)
    return tensors


def check_types(tensors: dict[str, Tensor], *, packed: bool) -> None:
    """Refuse weights of a number type that is not implemented. Raises CheckpointError.

    packed: whether config.json states that some are packed by MLX.
    """
    scales = [name for name in tensors if name.endswith(".scales")]
    if scales and not packed:
        raise CheckpointError(
            f"{tensors[scales[0]].path} holds packed weights ({listed(scales, 3)}), but "
            "config.json states no quantization (group_size, bits and mode)"
        )
    other = []
    for name, tensor in tensors.items():
        path, _, part = name.rpartition(".")
        fits = f"{path}.scales" in tensors and _PACKED.get(part) == tensor.dtype
        # Buffers of positions hold no weights: mlx-vlm leaves them out.
        if tensor.dtype not in FLOATS and not fits and part != "position_ids":
            other.append(tensor)
    if other:
        kinds = sorted({tensor.dtype for tensor in other})
        raise CheckpointError(
            f"{other[0].path} holds weights of the number type {', '.join(kinds)}, which is not "
            f"implemented (implemented: {', '.join(FLOATS)}, and what mlx_vlm.convert packs): "
            f"{listed((tensor.name for tensor in other), 3)}"
        )


def read_tensors(tensors: dict[str, Tensor]) -> dict[str, mx.array]:
    """Return the arrays of ``tensors``, read when they are first used; raises CheckpointError."""
    out: dict[str, mx.array] = {}
    for path in sorted({tensor.path for tensor in tensors.values()}):
        try:
            held = mx.load(str(path))
        except Exception as error:  # foreign types fail in many ways
            raise CheckpointError(f"cannot read the weights in {path}: {error}") from error
        out.update({name: held[name] for name, one in tensors.items() if one.path == path})
    return out


def _check_complete(folder: Path, files: list[Path]) -> None:
    """Raise where files are missing: assigned by the index, or parts of a numbered series."""
    wanted = set(files)
    for path in files:
        if part := _PART.fullmatch(path.name):
            stem, width, total = part[1], len(part[2]), part[3]
            numbers = range(1, int(total) + 1)
            wanted |= {folder / f"{stem}-{n:0{width}}-of-{total}.safetensors" for n in numbers}
    missing = sorted(path.name for path in wanted if not path.exists())
    if missing:
        raise CheckpointError(
            f"{folder} lacks the weight files {listed(missing, 3)}: half downloaded?"
        )
    if not files:
        unfinished = [path.name for path in folder.glob("*.incomplete")]
        raise CheckpointError(
            f"{folder} has no *.safetensors weights"
            + (f", only unfinished downloads ({listed(unfinished, 3)})" if unfinished else "")
        )


def _read_header(path: Path) -> dict[str, Tensor]:
    total = path.stat().st_size
    try:
        with path.open("rb") as file:
            start = file.read(8)
            if start == b"version ":
                raise CheckpointError(
                    f"{path} is a Git LFS pointer: the weights themselves were not downloaded"
                )
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= min(_HEADER_LIMIT, total - 8):
                raise CheckpointError(
                    f"cannot read the weights in {path}: not a safetensors file, or cut short"
                )
            header = json.loads(file.read(length))
    except (OSError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"cannot read the weights in {path}: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"cannot read the weights in {path}: its header is not an object")
    header.pop("__metadata__", None)
    tensors = {name: _described(name, path, one) for name, one in header.items()}
    end = max((one["data_offsets"][1] for one in header.values()), default=0)
    if 8 + length + end > total:
        raise CheckpointError(
            f"cannot read the weights in {path}: cut short, it has {total} bytes where its header "
            f"describes {8 + length + end}; half downloaded?"
        )
    return tensors


def _described(name: str, path: Path, one: object) -> Tensor:
    """Return a tensor as a header's entry describes it; raises CheckpointError."""
    entry = one if isinstance(one, dict) else {}
    kind, shape, offsets = (entry.get(key) for key in ("dtype", "shape", "data_offsets"))
    whole = all(isinstance(part, list) and all(type(n) is int and n >= 0 for n in part)
                for part in (shape, offsets))  # fmt: skip
    if not isinstance(kind, str) or not whole or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(
            f"cannot read the weights in {path}: its header does not describe the tensor {name}: "
            f"{json.dumps(one)[:200]}"
        )
    return Tensor(name, path, kind, tuple(shape), offsets[1] - offsets[0])
