"""Find, load and identify a checkpoint: embedded, in a folder, or from a hub.

Weights become float32 before anything is done to them (adding 1 to a float16 norm weight would
round it), then the dtype of the device: float32 on the CPU, bfloat16 on Metal and CUDA.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from .errors import CheckpointError
from .families import Family, family_of

EMBEDDED: Final = {"sim_desk": Path(__file__).parent.parent / "models" / "sim_desk"}
_HUB_NAME: Final = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint: mlx-vlm's model, its tokenizer, where it came from."""

    name: str
    folder: Path
    family: Family
    model: Any
    tokenizer: Any
    fingerprint: str
    dtype: mx.Dtype


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
    """Load a checkpoint; raises CheckpointError (FamilyError for an unknown family)."""
    folder = find(name)
    config = _read_json(folder / "config.json")
    family = family_of(config.get("model_type"))
    dtype = dtype or default_dtype()
    quantized = bool(config.get("quantization") or config.get("quantization_config"))
    if quantized:
        model, fingerprint = _load_quantized(folder)
    else:
        model, fingerprint = _load_plain(folder, family, config, dtype)
    return Checkpoint(
        name, folder, family, model, load_tokenizer(folder), fingerprint, dtype
    )


def load_tokenizer(folder: Path) -> Any:
    """Load the fast tokenizer of a checkpoint folder, with its chat template."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    try:
        if (folder / "tokenizer.json").exists():
            tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
        else:
            tokenizer = AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # transformers raises many kinds
        raise CheckpointError(f"{folder} has no usable tokenizer: {error}") from error
    if not tokenizer.chat_template:
        for path in (folder / "chat_template.jinja", folder / "chat_template.json"):
            if path.exists():
                text = path.read_text(encoding="utf-8")
                is_json = path.suffix == ".json"
                tokenizer.chat_template = json.loads(text)["chat_template"] if is_json else text
                break
    if not tokenizer.chat_template:
        raise CheckpointError(f"{folder} has no chat template")
    return tokenizer


def _load_plain(
    folder: Path, family: Family, config: dict, dtype: mx.Dtype
) -> tuple[Any, str]:
    modules = family.modules()
    try:
        model = modules.Model(modules.ModelConfig.from_dict(config))
    except Exception as error:  # a config of the wrong shape fails in many ways
        raise CheckpointError(
            f"{folder / 'config.json'} does not describe a {family.model_type} model: "
            f"{type(error).__name__}: {error}"
        ) from error
    weights = {key: value.astype(mx.float32) for key, value in _read_weights(folder).items()}
    weights = model.sanitize(weights)
    for part in (model.vision_tower, model.language_model):
        if hasattr(part, "sanitize"):
            weights = part.sanitize(weights)
    try:
        model.load_weights(list(weights.items()), strict=True)
    except ValueError as error:
        raise CheckpointError(f"the weights in {folder} do not fit its config: {error}") from error
    fingerprint = fingerprint_of(model.vision_tower)
    if dtype != mx.float32:
        keep = getattr(model.language_model, "cast_predicate", None) or (lambda _: True)
        for key, value in tree_flatten(model.parameters()):
            if keep(key):
                weights[key] = value.astype(dtype)
        model.load_weights(list(weights.items()), strict=True)
    model.eval()
    mx.eval(model.parameters())
    return model, fingerprint


def _load_quantized(folder: Path) -> tuple[Any, str]:
    from mlx_vlm.utils import load_model

    try:
        model = load_model(folder)
    except Exception as error:  # mlx-vlm raises many kinds
        raise CheckpointError(f"cannot load {folder}: {type(error).__name__}: {error}") from error
    return model, fingerprint_of(model.vision_tower)


def fingerprint_of(tower: Any) -> str:
    """Identify vision weights: 16 hex digits of a hash over their names, shapes and values."""
    digest = hashlib.blake2b(digest_size=8)
    for key, value in sorted(tree_flatten(tower.parameters())):
        if value.dtype == mx.bfloat16:
            value = value.astype(mx.float32)
        array = np.ascontiguousarray(np.array(value))
        digest.update(f"{key} {array.dtype} {array.shape}\n".encode())
        digest.update(array.data)
    return digest.hexdigest()


def _read_weights(folder: Path) -> dict[str, mx.array]:
    files = sorted(
        path for path in folder.glob("*.safetensors") if path.name != "consolidated.safetensors"
    )
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = set(_read_json(index).get("weight_map", {}).values())
        missing = sorted(name for name in names if not (folder / name).exists())
        if missing:
            raise CheckpointError(f"{folder} lacks the weight files {', '.join(missing)}")
        files = sorted(folder / name for name in names)
    if not files:
        raise CheckpointError(f"{folder} has no *.safetensors weights")
    weights: dict[str, mx.array] = {}
    for path in files:
        try:
            weights.update(mx.load(str(path)))
        except Exception as error:  # truncated or foreign files fail in many ways
            raise CheckpointError(f"cannot read the weights in {path}: {error}") from error
    return weights


def _read_json(path: Path) -> dict:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return value
