"""Find, load and identify a checkpoint: embedded, in a folder, or from a hub.

Weights become float32 before anything is done to them (adding 1 to a float16 norm weight would
round it), then the dtype of the device: float32 on the CPU, bfloat16 on Metal and CUDA.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import numpy as np

from . import memory
from .errors import CheckpointError
from .families import Family
from .json_object import is_pointer, read_json
from .model_config import ModelConfig, read_config
from .packing import Packing, unpack_in_passes
from .weight_values import check_values
from .weights import FLOATS, Tensor, check_types, list_tensors, read_tensors

EMBEDDED: Final = {"sim_desk": Path(__file__).parent.parent / "models" / "sim_desk"}
SPARE: Final = 256 << 20  # bytes beside the weights that a pass needs at least
#: The control tokens whose ids config.json states, too.
_STATED_IDS: Final = {f"{name}_token_id": f"<|{name if 'vision' in name else name + '_pad'}|>"
                      for name in ("image", "video", "vision_start", "vision_end")}
_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: mlx-vlm's model, its tokenizer, where it came from.

    dtype: what the model computes in. remarks: sentences on how it was loaded that a user should
    read.
    """

    name: str
    folder: Path
    family: Family
    model: Any
    tokenizer: Any
    fingerprint: str
    dtype: mx.Dtype
    remarks: tuple[str, ...] = ()


def find(model: str) -> Path:
    """Return the folder of a checkpoint: an embedded name, a local path or a hub name."""
    if model in EMBEDDED:
        folder = EMBEDDED[model]
        if not (folder / "config.json").exists():
            raise CheckpointError(f"the embedded model {model!r} is missing from {folder}")
        return folder
    folder = Path(model).expanduser()
    if folder.exists():
        if not (folder / "config.json").exists():
            raise CheckpointError(f"{folder} has no config.json: not a checkpoint folder")
        return folder
    if not _HUB_NAME.fullmatch(model):
        raise CheckpointError(
            f"no checkpoint {model!r}: not an embedded model ({', '.join(EMBEDDED)}), not an "
            "existing folder, and not of the form owner/name"
        )
    try:
        from huggingface_hub import snapshot_download

        kinds = ["*.json", "*.safetensors", "*.txt", "*.jinja"]
        return Path(snapshot_download(model, allow_patterns=kinds))
    except Exception as error:  # the hub client raises many kinds
        raise CheckpointError(
            f"cannot fetch {model!r} from the hub: {type(error).__name__}: {error}"
        ) from error


def default_dtype() -> mx.Dtype:
    """float32 on the CPU (half precision is slow there), bfloat16 on a GPU."""
    return mx.float32 if mx.default_device() == mx.Device(mx.cpu) else mx.bfloat16


def load(name: str, dtype: mx.Dtype | None = None) -> Checkpoint:
    """Load a checkpoint; raises CheckpointError (FamilyError for an unknown family).

    dtype: of everything that is not packed, and on a CPU of what was packed (None: the device's).
    """
    folder = find(name)
    config = read_config(folder)
    tensors = list_tensors(folder)
    tokenizer = load_tokenizer(folder)
    _check_ids(folder, config.values, tokenizer)
    tensors = {key: one for key, one in tensors.items() if "mtp." not in key}  # a draft model's
    config = _settle_tie(folder, config, tensors)
    check_types(tensors, packed=config.quantization is not None)
    dtype = dtype or default_dtype()
    if dtype != mx.float32 and config.family.experts and default_dtype() == mx.float32:
        raise CheckpointError(
            f"{config.family.model_type} on a CPU is computed in float32 only, not in "
            f"{str(dtype).removeprefix('mlx.core.')}"
        )
    plan = plan_memory(config.quantization, tensors, dtype)
    model, fingerprint = _build(folder, config, tensors, dtype, plan.unpack)
    remarks = (*plan.remarks, *check_values(model, folder))
    return Checkpoint(name, folder, config.family, model, tokenizer, fingerprint, dtype, remarks)


def load_tokenizer(folder: Path) -> Any:
    """Load the fast tokenizer of a checkpoint folder, with its chat template."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    whole = (folder / "tokenizer.json").exists()
    if not whole and not all((folder / part).exists() for part in ("vocab.json", "merges.txt")):
        raise CheckpointError(
            f"{folder} has no tokenizer: tokenizer.json is missing (and so are vocab.json with "
            "merges.txt, which it could be made of)"
        )
    if whole and is_pointer(folder / "tokenizer.json"):
        raise CheckpointError(f"{folder / 'tokenizer.json'} is a Git LFS pointer: the tokenizer "
                              "itself was not downloaded")
    try:
        if whole:
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        else:  # named, since not every class looks for them
            tokenizer = AutoTokenizer.from_pretrained(
                folder, vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"{folder} has no usable tokenizer: {error}") from error
    if not tokenizer.chat_template:
        for path in (folder / "chat_template.jinja", folder / "chat_template.json"):
            if path.exists():
                tokenizer.chat_template = _read_template(path)
                break
    if not tokenizer.chat_template:
        raise CheckpointError(f"{folder} has no chat template")
    return tokenizer


def _read_template(path: Path) -> str:
    """Read a chat template from a file of its own; raises CheckpointError."""
    if path.suffix == ".json":
        template = read_json(path).get("chat_template")
        if not isinstance(template, str):
            raise CheckpointError(f"{path} has no chat_template that is a text")
        return template
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read the chat template {path}: {error}") from error


def _check_ids(folder: Path, values: Mapping[str, Any], tokenizer: Any) -> None:
    """Refuse a tokenizer that numbers its tokens otherwise than the model was trained with."""
    ids = tokenizer.get_vocab()
    rows = values["text_config"].get("vocab_size")
    if isinstance(rows, int) and max(ids.values(), default=0) >= rows:
        raise CheckpointError(
            f"the tokenizer in {folder} has tokens up to {max(ids.values())}, the model {rows}: it "
            "is that of another checkpoint"
        )
    for key, token in _STATED_IDS.items():
        if token in ids and values.get(key) not in (None, ids[token]):
            raise CheckpointError(
                f"the tokenizer in {folder} numbers {token} {ids[token]}, config.json "
                f"{values[key]} ({key}): it is that of another checkpoint"
                + ("" if (folder / "tokenizer.json").exists() else ", or tokenizer.json is missing")
            )


@dataclass(frozen=True)
class MemoryPlan:
    """Whether packed weights are unpacked at load, and what the user should know of it."""

    unpack: bool
    remarks: tuple[str, ...] = ()


def plan_memory(
    quantization: Mapping[str, Any] | None, tensors: Mapping[str, Tensor], dtype: mx.Dtype
) -> MemoryPlan:
    """Decide from the headers how the weights are held; raises CheckpointError if they cannot be.

    Packed weights stay packed on a GPU. On a CPU they are unpacked where memory allows.
    """
    free = memory.free_bytes()
    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    packing = Packing(quantization) if quantization else None
    held = dict.fromkeys((False, True), SPARE)  # bytes packed, and unpacked
    for tensor in tensors.values():
        plain = tensor.size * dtype.size if tensor.dtype in FLOATS else tensor.nbytes
        path, _, part = tensor.name.rpartition(".")
        packed = packing is not None and f"{path}.scales" in tensors
        held[False] += plain
        if not packed:
            held[True] += plain
        elif part == "weight":
            held[True] += tensor.size * 32 // packing.of(path)["bits"] * dtype.size
    unpack = packing is not None and on_cpu and (free is None or held[True] <= free)
    if free is None or held[unpack] <= free:
        remarks = ()
        if packing is not None and on_cpu and not unpack:
            remarks = (
                f"its packed weights are unpacked anew in each pass, which is slow: unpacked they "
                f"need {held[True] / 1e9:.1f} GB and {free / 1e9:.1f} GB are free",
            )
        return MemoryPlan(unpack, remarks)
    kind = str(dtype).removeprefix("mlx.core.")
    half = "" if dtype.size == 2 or packing else (
        f" (in bfloat16 {(held[False] - SPARE) / 2e9 + SPARE / 1e9:.1f} GB)"
    )
    raise CheckpointError(
        f"the checkpoint needs {held[False] / 1e9:.1f} GB in {kind}{half}, and "
        f"{free / 1e9:.1f} GB are free: take a smaller or a quantised one"
    )


def _settle_tie(
    folder: Path, config: ModelConfig, tensors: dict[str, Tensor]
) -> ModelConfig:
    """Decide whether the output matrix is the embedding's: as stated, else as the weights are."""
    heads = [key for key in tensors if key.split(".")[-2:-1] == ["lm_head"]]
    tied = config.tied if config.tied is not None else not heads
    if not tied and not heads:
        raise CheckpointError(
            f"{folder} states an output matrix of its own (tie_word_embeddings false), but has no "
            "lm_head weights"
        )
    if tied:
        for key in heads:
            del tensors[key]
    values = {**config.values, "tie_word_embeddings": tied}
    values["text_config"] = {**config.values["text_config"], "tie_word_embeddings": tied}
    return replace(config, values=values, tied=tied)


def _build(
    folder: Path,
    config: ModelConfig,
    tensors: dict[str, Tensor],
    dtype: mx.Dtype,
    unpack: bool,
) -> tuple[Any, str]:
    """Return the model and the fingerprint of its vision weights."""
    family = config.family
    modules = family.modules()
    wanted = inspect.signature(modules.TextConfig).parameters.items()
    lacking = sorted(
        name
        for name, one in wanted
        if one.default is inspect.Parameter.empty and name not in config.values["text_config"]
    )
    if lacking:
        raise CheckpointError(
            f"{folder / 'config.json'} does not describe a {family.model_type} model: its "
            f"text_config has no {', '.join(lacking)}"
        )
    try:
        whole = modules.ModelConfig.from_dict(dict(config.values))
        # Some of mlx-vlm's families leave the parts as they are, or read them from the top.
        whole.text_config = modules.TextConfig.from_dict(config.values["text_config"])
        whole.vision_config = modules.VisionConfig.from_dict(config.values["vision_config"])
        model = modules.Model(whole)
    except Exception as error:  # a config of the wrong shape fails in many ways
        raise CheckpointError(
            f"{folder / 'config.json'} does not describe a {family.model_type} model: "
            f"{type(error).__name__}: {error}"
        ) from error
    weights = {
        key: value.astype(mx.float32) if mx.issubdtype(value.dtype, mx.floating)
        else value
        for key, value in read_tensors(tensors).items()
    }  # fmt: skip
    try:
        weights = model.sanitize(family.arrange(weights, config.values["text_config"]))
        for part in (model.vision_tower, model.language_model):
            if hasattr(part, "sanitize"):
                weights = part.sanitize(weights)
    except Exception as error:  # weights of another shape fail in many ways
        raise CheckpointError(
            f"the weights in {folder} are not those of a {family.model_type} model: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not any(key.startswith("vision_tower.") for key in weights):
        raise CheckpointError(f"{folder} has no weights of a vision tower: text only")
    fingerprint = fingerprint_of(
        {
            key.removeprefix("vision_tower."): value
            for key, value in weights.items()
            if key.startswith("vision_tower.")
        }
    )
    if config.quantization:
        packing = Packing(config.quantization)
        packing.check(weights)
        if unpack:
            weights = packing.unpack(weights)
        else:
            packing.install(model, weights)
    keep = getattr(model.language_model, "cast_predicate", None) or (lambda _: True)
    weights = {
        key: value.astype(dtype)
        if keep(key) and mx.issubdtype(value.dtype, mx.floating)
        else value
        for key, value in weights.items()
    }
    try:
        model.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise CheckpointError(f"the weights in {folder} do not fit its config: {error}") from error
    del weights
    family.repair(model)
    if config.quantization and not unpack and mx.default_device() == mx.Device(mx.cpu):
        unpack_in_passes(model)
    model.eval()
    try:
        mx.eval(model.parameters())
    except RuntimeError as error:
        raise CheckpointError(f"cannot read the weights in {folder}: {error}") from error
    return model, fingerprint


def fingerprint_of(weights: Mapping[str, mx.array]) -> str:
    """Identify vision weights: 16 hex digits of a hash over their names, shapes and values."""
    digest = hashlib.blake2b(digest_size=8)
    for key, value in sorted(weights.items()):
        if value.dtype == mx.bfloat16:
            value = value.astype(mx.float32)
        array = np.ascontiguousarray(np.array(value))
        digest.update(f"{key} {array.dtype} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()
