"""A checkpoint's tick with packed weights and with plain ones."""

import json

import pytest
from tiny import write_checkpoint

from vlm_decisions.engine import CheckpointError, Engine
from vlm_decisions.lab.bench.packed import bench_packed, pack


@pytest.mark.slow
def test_both_are_timed_and_the_packed_one_is_packed(tmp_path):
    source = str(write_checkpoint(tmp_path / "ck", num_hidden_layers=2))
    said = []
    out = bench_packed(source, n_questions=2, ticks=2, say=said.append)
    assert json.loads(json.dumps(out))["bits"] == 4
    plain, packed = out["plain"], out["packed"]
    assert out["ratio"] == packed["p50_ms"] / plain["p50_ms"]
    assert packed["file_bytes"] < 0.7 * plain["file_bytes"]  # the vision tower is not packed
    assert packed["dtype"] == plain["dtype"]
    assert 0 < out["largest_difference"] < 1
    assert "packed / plain" in said[-1]
    finer = bench_packed(source, bits=8, n_questions=2, ticks=1, say=said.append)
    assert finer["largest_difference"] < out["largest_difference"]


def test_a_packed_checkpoint_is_not_packed_again(tmp_path):
    engine = Engine.load(str(write_checkpoint(tmp_path / "ck", num_hidden_layers=2)), warm=False)
    (tmp_path / "packed").mkdir()
    pack(engine, tmp_path / "packed", 4)
    with pytest.raises(CheckpointError, match="is packed already"):
        bench_packed(str(tmp_path / "packed"))
