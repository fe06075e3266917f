"""Counters, latencies and their summaries."""

import math
import threading

import pytest

from vlm_decisions.runtime.statistics import MEMORY, Meter, percentiles


def test_stages_are_timed_also_when_they_raise():
    now = [0.0]
    meter = Meter(lambda: now[0])
    for taken in (0.01, 0.02, 0.03):
        with meter.stage("vision"):
            now[0] += taken
    with pytest.raises(KeyError), meter.stage("ask"):
        now[0] += 0.5
        raise KeyError
    assert meter.tick_ms()["vision"].p50 == pytest.approx(20)
    assert meter.tick_ms()["vision"].count == 3
    assert meter.tick_ms()["ask"].p95 == pytest.approx(500)


def test_counts_drops_and_errors():
    meter = Meter(lambda: 0.0)
    meter.count("frames")
    meter.count("frames", 2)
    meter.drop("queue", 3)
    meter.drop("late", 0)
    meter.error("boom")
    meter.published(2, 0.1)
    meter.published(2, None)
    assert meter.total("frames") == 3
    assert meter.dropped() == {"queue": 3}
    assert (meter.total("errors"), meter.last_error) == (1, "boom")
    assert meter.total("decisions") == 2
    assert meter.age_ms()[2].count == 1


def test_memory_is_bounded():
    meter = Meter(lambda: 0.0)
    for index in range(3 * MEMORY):
        meter.published(1, float(index))
    assert meter.age_ms()[1].count == MEMORY
    assert meter.age_ms()[1].p50 == pytest.approx(1e3 * 2.5 * MEMORY, rel=0.01)


def test_percentiles():
    assert percentiles(list(range(101))) == percentiles(list(range(100, -1, -1)))
    assert (percentiles(list(range(101))).p50, percentiles(list(range(101))).p95) == (50, 95)
    assert math.isnan(percentiles([]).p50)


def test_counting_from_many_threads_loses_nothing():
    meter = Meter(lambda: 0.0)

    def work():
        for _ in range(2000):
            meter.count("frames")
            meter.published(0, 0.0)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert meter.total("frames") == meter.total("decisions") == 8000
