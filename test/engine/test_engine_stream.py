"""The stream: exact at every tick, rebuilt between ticks, never mixed up with another."""

import numpy as np
import pytest
from tiny import encoded, tiny_engine

from vlm_decisions.engine import GroupError, Query
from vlm_decisions.lab.exactness import compare
from vlm_decisions.lab.reference import full_sequence

QUERIES = (
    Query("Is a person present?"),
    Query("Is the person holding a cup?"),
    Query("What is the person mainly doing?", ("typing", "on phone", "idle")),
)


def assert_exact(stream, readouts):
    engine = stream.engine
    want = [full_sequence(engine, stream.groups, stream.times_s, q) for q in QUERIES]
    margin = compare("stream", readouts, want)
    assert margin.exact, margin


@pytest.mark.slow
@pytest.mark.parametrize("rebuild", ["idle", "inline", "never idle"])
def test_every_tick_is_exact_over_several_rebuilds(rebuild):
    engine = tiny_engine()
    groups, times_s = encoded(engine, 19)
    stream = engine.stream(4, rebuild="inline" if rebuild == "inline" else "idle")
    seen = []
    for i, (group, t_s) in enumerate(zip(groups, times_s, strict=True)):
        stream.append(group, t_s)
        readouts = stream.ask(QUERIES, hidden=True)
        if i < 2 or i % 4 == 1 or stream.n_groups == 4:
            assert_exact(stream, readouts)
        assert stream.groups[-1] is group
        seen.append(stream.n_groups)
        while rebuild == "idle" and stream.idle():
            pass
    assert stream.rebuilds >= 2
    assert max(seen) <= {"idle": 8, "inline": 8, "never idle": 10}[rebuild]
    assert min(seen[4:]) >= 4


@pytest.mark.slow
def test_a_rebuild_in_pieces_serves_the_old_state_meanwhile():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 14)
    stream = engine.stream(4)
    for i, (group, t_s) in enumerate(zip(groups, times_s, strict=True)):
        stream.append(group, t_s)
        readouts = stream.ask(QUERIES, hidden=True)
        if i >= 7:
            assert_exact(stream, readouts)
            stream.idle()  # one piece a tick: less than a rebuild needs
    assert stream.rebuilds >= 1


def test_the_first_group_keeps_its_time_after_a_rebuild():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 9)
    stream = engine.stream(4)
    for group, t_s in zip(groups, times_s, strict=True):
        stream.append(group, t_s)
        while stream.idle():
            pass
    assert stream.rebuilds == 1
    assert stream.times_s == pytest.approx(times_s[: stream.n_groups])


def test_a_stream_that_begins_late_states_early_times():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 3)
    stream = engine.stream(4)
    for group, t_s in zip(groups, times_s, strict=True):
        stream.append(group, 7000.0 + t_s)
    assert stream.times_s == pytest.approx((0.1, 0.35, 0.6))
    assert_exact(stream, stream.ask(QUERIES, hidden=True))


def test_groups_wait_for_the_questions():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 3)
    stream = engine.stream(4)
    for group, t_s in zip(groups, times_s, strict=True):
        stream.append(group, t_s)
    assert stream.state.length == 0
    assert stream.n_groups == 3
    assert_exact(stream, stream.ask(QUERIES, hidden=True))
    length = stream.state.length
    assert length > 3 * groups[0].n_tokens
    assert_exact(stream, stream.ask(QUERIES, hidden=True))  # asking again adds nothing
    assert stream.state.length == length
    assert stream.idle() is False


@pytest.mark.slow
def test_two_interleaved_streams_do_not_touch_each_other():
    engine = tiny_engine()
    a_groups, times_s = encoded(engine, 10, seed=1)
    b_groups, b_times_s = encoded(engine, 10, seed=2, height=64, width=96)
    alone = engine.stream(4)
    a, b = engine.stream(4), engine.stream(4)
    for i in range(10):
        alone.append(a_groups[i], times_s[i])
        want = alone.ask(QUERIES)
        while alone.idle():
            pass
        a.append(a_groups[i], times_s[i])
        b.append(b_groups[i], b_times_s[i])
        b.ask(QUERIES)
        got = a.ask(QUERIES, hidden=True)
        for x, y in zip(got, want, strict=True):
            assert np.abs(x.probabilities - y.probabilities).max() < 1e-6
        if i % 4 == 1:
            assert_exact(a, got)
        while a.idle() or b.idle():
            pass
    assert_exact(b, b.ask(QUERIES, hidden=True))


@pytest.mark.slow
def test_window_mode_sees_the_last_window_only():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 7)
    stream = engine.stream(3, "window")
    for group, t_s in zip(groups, times_s, strict=True):
        stream.append(group, t_s)
        assert_exact(stream, stream.ask(QUERIES, hidden=True))
    assert stream.n_groups == 3
    assert stream.idle() is False
    direct = engine.window(groups[-3:], stream.times_s).ask(QUERIES)
    for x, y in zip(direct, stream.ask(QUERIES), strict=True):
        assert np.abs(x.probabilities - y.probabilities).max() < 1e-6


def test_reset_forgets():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 4)
    stream = engine.stream(4)
    for group, t_s in zip(groups[:3], times_s, strict=False):
        stream.append(group, t_s)
    stream.ask(QUERIES)
    stream.reset()
    assert stream.n_groups == 0
    with pytest.raises(GroupError, match="no group"):
        stream.ask(QUERIES)
    stream.append(groups[3], 0.0625)
    assert_exact(stream, stream.ask(QUERIES, hidden=True))


def test_a_shallow_stream_keeps_fewer_layers():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 2)
    shallow, full = engine.stream(4, depth=2), engine.stream(4)
    for stream in (shallow, full):
        for group, t_s in zip(groups, times_s, strict=True):
            stream.append(group, t_s)
    at_two = [Query(q.text, q.options, 2) for q in QUERIES]
    for x, y in zip(shallow.ask(QUERIES), full.ask(at_two), strict=True):
        assert x.depth == 2
        assert np.abs(x.probabilities - y.probabilities).max() < 1e-6
    assert shallow.state.nbytes() < 0.5 * full.state.nbytes()


def test_early_exits_leave_the_deeper_layers_whole():
    """Ticks answered at shallow depths still append through all layers."""
    engine = tiny_engine()
    groups, times_s = encoded(engine, 6)
    stream = engine.stream(8)
    shallow = [Query(q.text, q.options, depth) for q, depth in zip(QUERIES, (1, 2, 4))]
    for i, (group, t_s) in enumerate(zip(groups, times_s, strict=True)):
        stream.append(group, t_s)
        if i < 5:
            stream.ask(shallow[: 1 + i % 3])
    assert_exact(stream, stream.ask(QUERIES, hidden=True))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"mode": "sometimes"}, "mode"),
        ({"rebuild": "later"}, "rebuild"),
        ({"window_groups": 0}, "at least one"),
    ],
)
def test_bad_settings_are_named(settings, match):
    with pytest.raises(ValueError, match=match):
        tiny_engine().stream(**settings)


@pytest.mark.slow
def test_asking_many_does_not_copy_the_state():
    """Extra peak memory of 64 questions stays far below 64 copies of the state."""
    import mlx.core as mx

    engine = tiny_engine()
    groups, times_s = encoded(engine, 64)
    prefix = engine.window(groups, times_s)
    prefix.prefill()
    queries = [Query(f"Is thing {i} there?") for i in range(64)]
    prefix.ask(queries)
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    prefix.ask(queries)
    extra = mx.get_peak_memory() - before
    assert mx.get_active_memory() - before < 1 << 20  # nothing stays behind
    copies = 64 * prefix.state.nbytes()
    assert extra < 0.5 * copies, (extra, copies)


def test_the_stream_keeps_the_stamps_and_states_times_from_its_first_frame():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 6)
    start_ns = 1_764_000_000_123_456_789
    stamps = [(start_ns + k * 250_000_000, start_ns + k * 250_000_000 + 125_000_000)
              for k in range(6)]
    stamped, counted = engine.stream(8), engine.stream(8)
    for group, both, t_s in zip(groups, stamps, times_s, strict=True):
        stamped.append(group, both)
        counted.append(group, t_s)
    assert [(one.t_start_ns, one.t_end_ns) for one in stamped.history] == stamps
    assert [one.group for one in stamped.history] == groups
    assert stamped.times_s == counted.times_s == tuple(0.0625 + 0.25 * k for k in range(6))
    with pytest.raises(GroupError, match="does not come after"):
        stamped.append(groups[0], stamps[2])
    with pytest.raises(GroupError, match="in order"):
        engine.stream(8).append(groups[0], (2, 1))


@pytest.mark.slow
def test_times_go_on_as_if_what_was_left_out_had_not_been():
    engine = tiny_engine()
    groups, _ = encoded(engine, 7)
    step_ns = 250_000_000
    stream = engine.stream(3)
    for place, left_out in zip((0, 1, 6, 7, 20, 21, 22), (0, 0, 4, 0, 12, 0, 0), strict=True):
        stamps = place * step_ns, place * step_ns + step_ns // 2
        stream.append(groups[0], stamps, left_out_ns=left_out * step_ns)
        assert_exact(stream, stream.ask(QUERIES, hidden=True))
        while stream.idle():  # a state that is built anew tells the same
            pass
        steady = [0.0625 + 0.25 * k for k in range(stream.n_groups)]
        assert stream.times_s == pytest.approx(steady)
        assert stream.history[-1].t_end_ns == stamps[1]
    assert stream.rebuilds


def test_what_nobody_asks_about_costs_no_pass_and_a_late_question_sees_a_window(monkeypatch):
    engine = tiny_engine()
    groups, times_s = encoded(engine, 13)
    stream, passes, run = engine.stream(4), [], engine.run
    monkeypatch.setattr(engine, "run", lambda state, lines, *rest, **more: (
        passes.append(len(lines)) or run(state, lines, *rest, **more)))
    for group, t_s in zip(groups, times_s, strict=True):
        stream.append(group, t_s)
    assert passes == [] and stream.rebuilds == 0 and 4 <= stream.n_groups <= 8
    assert_exact(stream, stream.ask(QUERIES, hidden=True))


def test_starting_over_keeps_the_last_window_and_is_exact():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 7)
    stream = engine.stream(4)
    for group, t_s in zip(groups[:6], times_s, strict=False):
        stream.append(group, t_s)
        stream.ask(QUERIES)
    stream.start_over()
    assert stream.groups == tuple(groups[2:6])
    stream.append(groups[6], times_s[6])
    assert_exact(stream, stream.ask(QUERIES, hidden=True))
