"""What the recorder of evidence costs: figures that belong together."""

from __future__ import annotations

import pytest
from fakes import FakeEngine

pytest.importorskip("rosbags", reason="rosbags is not installed: no clips")

from vlm_decisions.lab.bench.evidence import bench_evidence


def test_entries_are_written_and_their_cost_is_a_share_of_the_groups():
    result = bench_evidence(lambda: FakeEngine(answer=lambda text, vision: 0.9), seconds=2.0,
                            width=160, height=120)
    assert result["groups"] == 8 and result["dropped"] == 0
    assert result["entries"] > 8 and result["mb"] >= 0
    assert 0 < result["in_tick_ms"] < result["tick_ms"] and result["writer_ms"] > 0
    assert result["in_tick_share"] == pytest.approx(
        result["in_tick_ms"] / result["tick_ms"], abs=0.01)
