"""`vlm-decisions bench packed`: a checkpoint's tick with packed weights and with plain ones."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_map

from ...engine import checkpoint as checkpoints
from ...engine.engine import Engine
from ...engine.json_object import read_json
from ..exactness import test_frames
from .engine import N_GROUPS, questions

GROUP_SIZE: Final = 64
WARM: Final = 2 * N_GROUPS


def bench_packed(
    model: str = "sim_desk",
    *,
    bits: int = 4,
    n_questions: int = 16,
    ticks: int = 64,
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Time ticks (encode a group, append, ask) of a checkpoint and of itself packed, in turns.

    The packed one is written as mlx_vlm.convert does: linear layers and embeddings of the language
    model in groups of 64, all else in bfloat16, and loaded like any other.

    Returns:
        model, bits, ticks, questions. plain and packed, each: dtype, load_s, weights_bytes in
        memory, file_bytes, p50_ms, p95_ms, own_p50_ms (of the time that its own thread computed).
        ratio: packed p50 over plain p50. largest_difference: of a probability between the two,
        which is what packing costs, not an error.

    Raises:
        CheckpointError: the checkpoint cannot be loaded, or is packed already.
    """
    source = checkpoints.find(model)
    if read_json(source / "config.json").get("quantization"):
        raise checkpoints.CheckpointError(f"{model!r} is packed already: give a plain checkpoint")
    engines: dict[str, Engine] = {}
    rows: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as out:
        pack(Engine.load(model, warm=False), Path(out), bits)
        for name, folder in (("plain", source), ("packed", Path(out))):
            start = time.perf_counter()
            engine = engines[name] = Engine.load(str(folder))
            rows[name] = {
                "dtype": engine.dtype,
                "load_s": time.perf_counter() - start,
                "weights_bytes": sum(v.nbytes for _, v in tree_flatten(engine.model.parameters())),
                "file_bytes": sum(p.stat().st_size for p in folder.glob("*.safetensors")),
            }
    queries = questions(n_questions)
    frames = test_frames(engines["plain"], 2 * N_GROUPS)
    streams = {name: engine.stream(N_GROUPS) for name, engine in engines.items()}
    seconds: dict[str, list[float]] = {name: [] for name in engines}
    own: dict[str, list[float]] = {name: [] for name in engines}
    answers: dict[str, list[np.ndarray]] = {}
    worst = 0.0
    for i in range(WARM + ticks):
        pair = frames[2 * (i % N_GROUPS) :][:2]
        for name, stream in streams.items():
            start, computed = time.perf_counter(), time.thread_time()
            stream.append(engines[name].encode(pair), 0.0625 + 0.25 * i)
            answers[name] = [readout.probabilities for readout in stream.ask(queries)]
            if i >= WARM:
                seconds[name].append(time.perf_counter() - start)
                own[name].append(time.thread_time() - computed)
            while stream.idle():
                pass
        pairs = zip(answers["plain"], answers["packed"], strict=True)
        worst = float(np.max([worst, *(np.abs(a - b).max() for a, b in pairs)]))
    for name, row in rows.items():
        p50, p95 = (float(v) * 1e3 for v in np.percentile(seconds[name], [50, 95]))
        row |= {"p50_ms": p50, "p95_ms": p95, "own_p50_ms": float(np.median(own[name])) * 1e3}
        say(f"{name:<7} p50 {p50:.1f}  p95 {p95:.1f} ms  (own thread {row['own_p50_ms']:.1f} ms)  "
            f"weights {row['weights_bytes'] / 1e6:.1f} MB, in files {row['file_bytes'] / 1e6:.1f} "
            f"MB  loaded in {row['load_s']:.1f} s")
    ratio = rows["packed"]["p50_ms"] / rows["plain"]["p50_ms"]
    say(f"packed / plain {ratio:.2f}; largest difference of a probability {worst:.2f}")
    return {"model": model, "bits": bits, "ticks": ticks, "questions": n_questions, **rows,
            "ratio": ratio, "largest_difference": worst}  # fmt: skip


def pack(engine: Engine, folder: Path, bits: int) -> None:
    """Write an engine's checkpoint into ``folder`` with packed weights; its model is changed."""
    for path in engine.checkpoint.folder.iterdir():
        if path.is_file() and not path.name.startswith("model."):
            shutil.copy(path, folder / path.name)
    model, how = engine.model, {"group_size": GROUP_SIZE, "bits": bits, "mode": "affine"}
    model.update(tree_map(lambda value: value.astype(mx.bfloat16), model.parameters()))
    nn.quantize(model, **how, class_predicate=lambda path, one: (
        "vision" not in path and hasattr(one, "to_quantized")
        and one.weight.shape[-1] % GROUP_SIZE == 0))
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())))
    values = read_json(folder / "config.json")
    values["quantization"] = values["quantization_config"] = how
    (folder / "config.json").write_text(json.dumps(values), encoding="utf-8")
