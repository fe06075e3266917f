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
FLOATS: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
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

    With an index each file gives what the index assigns to it and nothing else. Without one, a
    name found in two files is refused.
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
            held = {name: held[name] for name in mine}
        twice = sorted(set(held) & set(tensors))
        if twice:
            raise CheckpointError(
                f"{listed(twice, 3)} found in {tensors[twice[0]].path.name} and in {path.name}, "
                f"and {folder} has no {INDEX} that says which counts"
            )
        tensors.update(held)
    return tensors


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
        tensors = {
            name: Tensor(
                name, path, one["dtype"], tuple(one["shape"]),
                one["data_offsets"][1] - one["data_offsets"][0],
            )
            for name, one in header.items()
            if name != "__metadata__"
        }  # fmt: skip
        end = max((one["data_offsets"][1] for n, one in header.items() if n != "__metadata__"),
                  default=0)  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"cannot read the weights in {path}: {error}") from error
    if 8 + length + end > total:
        raise CheckpointError(
            f"cannot read the weights in {path}: cut short, it has {total} bytes where its header "
            f"describes {8 + length + end}; half downloaded?"
        )
    return tensors
