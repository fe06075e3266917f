"""The overload benchmark: what it reports, and that it would see a queue without a bound."""

import pytest
from fake_model import FakeModel

from vlm_decisions.lab.bench.overload import bench_overload
from vlm_decisions.runtime.intake import GroupQueue

pytestmark = pytest.mark.slow


def overload():
    return bench_overload(lambda: FakeModel(ask_s=0.2), 4.0, slowness=5.0, warm_groups=4)


def test_it_reports_ages_and_the_queue():
    result = overload()
    assert set(result) == {"tick_ms", "age_ms", "rate_hz", "answers", "unknown", "queue",
                           "dropped", "ticks"}
    assert result["tick_ms"] > 900  # slowed down
    assert 0 < result["queue"]["max"] <= result["queue"]["bound"] == 4
    assert result["age_ms"]["p95"] >= result["age_ms"]["p50"] > 900
    assert result["answers"] >= 12 and 0 < result["rate_hz"] < 8
    assert sum(result["dropped"].values()) > 0


def test_a_queue_without_a_bound_is_seen(monkeypatch):
    init = GroupQueue.__init__

    def unbounded(self, *arguments):
        init(self, *arguments)
        self._limit = 10**6

    monkeypatch.setattr(GroupQueue, "__init__", unbounded)
    result = overload()
    assert result["queue"]["max"] > result["queue"]["bound"]


def test_an_engine_without_any_answer_is_an_error():
    class Mute(FakeModel):
        def stream(self, window_groups=8, mode="stream"):
            stream = super().stream(window_groups, mode)
            stream.ask = lambda queries: {}["no answer"]
            return stream

    with pytest.raises(RuntimeError, match="no answer under load"):
        bench_overload(Mute, 0.5, slowness=1.0)
