"""Every refusal has a name and comes before any computation changes a state."""

import dataclasses

import mlx.core as mx
import numpy as np
import pytest
from tiny import encoded, moving_frames, tiny_engine, write_checkpoint

from vlm_decisions.engine import (
    ContextError,
    Engine,
    EngineError,
    FrameError,
    GroupError,
    Query,
    QueryError,
    StateError,
)

ASK = [Query("Is a person present?"), Query("Is the door open?")]


@pytest.fixture
def stream():
    engine = tiny_engine()
    groups, times_s = encoded(engine, 2)
    running = engine.stream(4)
    for group, t_s in zip(groups, times_s, strict=True):
        running.append(group, t_s)
    running.ask(ASK)
    return running


def test_no_question(stream):
    with pytest.raises(QueryError, match="no question"):
        stream.ask([])


@pytest.mark.parametrize(
    ("query", "match"),
    [
        (Query(" "), "empty"),
        (Query("Which?", ("one",)), "two options"),
        (Query("Is it?", depth=0), "depth 0"),
        (Query("Is it?", depth=7), "depth 7"),
        (Query("Is it?", depth=True), "depth True"),
        (Query("Is it?", depth=2.5), "depth 2.5"),
        (Query("Is it?", depth="2"), "depth '2'"),
        (Query(None), "NoneType"),
        (Query("a \ud800"), "not valid Unicode"),
        (Query("Which?", (["cup"], "phone")), "list"),
        (Query("Which?", 3), "list of texts"),
    ],
)
def test_bad_questions(stream, query, match):
    with pytest.raises(QueryError, match=match):
        stream.ask([*ASK, query])


def test_another_frame_size(stream):
    other, _ = encoded(stream.engine, 1, height=64, width=96)
    with pytest.raises(GroupError, match="2 x 3 visual tokens after one of 3 x 4"):
        stream.append(other[0], 9.0)
    with pytest.raises(GroupError, match="size changed"):
        stream.engine.window([stream.groups[0], other[0]], [0.1, 0.3])
    assert stream.n_groups == 2


def test_a_group_of_another_model(stream):
    foreign, _ = encoded(tiny_engine("qwen3_vl"), 1)
    with pytest.raises(GroupError, match="encoded by the model"):
        stream.append(foreign[0], 9.0)


@pytest.mark.parametrize("t_s", [0.1, 0.3125, -1.0, float("nan"), float("inf")])
def test_time_must_grow(stream, t_s):
    with pytest.raises(GroupError, match="time"):
        stream.append(stream.groups[0], t_s)
    assert stream.n_groups == 2


def test_windows_need_as_many_times_as_groups(stream):
    with pytest.raises(GroupError, match="2 groups with 1"):
        stream.engine.window(stream.groups, [0.1])
    with pytest.raises(GroupError, match="0 groups"):
        stream.engine.window([], [])


@pytest.mark.parametrize("times_s", [
    [0.3, 0.1], [0.1, 0.1], [float("nan"), 0.1], [0.1, float("inf")]])
def test_times_of_a_window_must_grow(stream, times_s):
    with pytest.raises(GroupError, match="must be finite and grow"):
        stream.engine.window(stream.groups, times_s)


def test_a_state_of_two_rows_is_refused_not_reset(stream):
    """mlx-vlm quietly replaces a recurrent state of another batch size by zeros."""
    delta, full = stream.state.layers[0], stream.state.layers[1]
    good = delta.memory
    delta.memory = np.stack([good, good])
    with pytest.raises(StateError, match="one copy"):
        stream.ask(ASK)
    delta.memory = None
    with pytest.raises(StateError, match="no recurrent state"):
        stream.ask(ASK)
    delta.memory = good
    full.length -= 1
    with pytest.raises(StateError, match="keys of"):
        stream.ask(ASK)
    full.length += 1
    stream.state.layers.reverse()
    with pytest.raises(StateError, match="KVState for DeltaState"):
        stream.ask(ASK)
    stream.state.layers.reverse()
    assert len(stream.ask(ASK)) == 2


def test_context_overflow(tmp_path):
    engine = Engine.load(str(write_checkpoint(tmp_path, max_position_embeddings=128)))
    groups, times_s = encoded(engine, 8)
    stream = engine.stream(8)
    stream.append(groups[0], times_s[0])
    stream.ask(ASK)
    with pytest.raises(ContextError, match="context is 128"):
        stream.ask([Query("Is there a cup " * 60 + "?")])
    assert len(stream.ask(ASK)) == 2  # the refusal changed nothing
    with pytest.raises(ContextError, match="context is 128"):
        for group, t_s in zip(groups[1:], times_s[1:], strict=True):
            stream.append(group, t_s)
    with pytest.raises(ContextError, match="context is 128"):
        engine.window(groups, times_s)


def test_bad_frames():
    engine = tiny_engine()
    good = moving_frames(1)[0]
    with pytest.raises(FrameError, match="2 frames"):
        engine.encode([good])
    with pytest.raises(FrameError, match="uint8"):
        engine.encode([good.astype(np.float32)] * 2)
    with pytest.raises(FrameError, match="shape"):
        engine.image(good[..., 0])
    with pytest.raises(FrameError, match="one size"):
        engine.encode_many([[good, good], moving_frames(2, 64, 64)])
    assert engine.encode_many([]) == []


def test_a_batch_of_groups_is_encoded_as_one_by_one():
    engine = tiny_engine()
    frames = moving_frames(6)
    pairs = [frames[i : i + 2] for i in (0, 2, 4)]
    for one, pair in zip(engine.encode_many(pairs), pairs, strict=True):
        alone = engine.encode(pair)
        assert np.abs(np.array(one.features) - np.array(alone.features)).max() < 1e-4
        assert np.abs(one.mean - np.array(alone.features).mean(axis=0)).max() < 1e-4
        assert np.array_equal(alone.max, np.array(alone.features).max(axis=0))
        assert one.grid == (3, 4)


def test_refusals_come_before_any_compute(stream, monkeypatch):
    """With layers and a vision tower that cannot run, each refusal still has its own name."""
    engine = stream.engine
    group = stream.groups[0]
    other, _ = encoded(engine, 1, height=64, width=96)
    foreign, _ = encoded(tiny_engine("qwen3_vl"), 1)
    window = engine.window([group], [0.1])
    stream.append(group, 5.0)  # waits for the next question
    good = moving_frames(1)[0]

    def explode(*args, **kwargs):
        raise AssertionError("computed")

    monkeypatch.setattr(engine.decoder, "layers", (explode,) * engine.n_layers)
    monkeypatch.setattr(engine.decoder, "embed", explode)
    monkeypatch.setattr(engine.vision, "run", explode)
    with pytest.raises(AssertionError, match="computed"):  # the trap works
        stream.ask(ASK)
    too_long = Query("Is there a cup " * 900 + "?")
    for asked in (stream, window):
        for queries in ([], [*ASK, Query("")], [*ASK, Query("Which?", ("one",))],
                        [Query("Is it?", depth=99)], [Query("Is it?", depth=2.5)],
                        [Query("\udfff")], [Query(None)], ["Is it?"]):
            with pytest.raises(QueryError):
                asked.ask(queries)
        with pytest.raises(ContextError, match="a question of"):
            asked.ask([*ASK, too_long])
    for bad in (other[0], foreign[0], None):
        with pytest.raises(GroupError):
            stream.append(bad, 9.0)
        with pytest.raises(GroupError):
            engine.window([group, bad], [0.1, 0.3])
    with pytest.raises(FrameError):
        engine.encode([good, good[:64]])
    delta = window.state.layers[0]
    delta.memory = mx.zeros((2, 4, 32, 32))
    with pytest.raises(StateError, match="one copy"):
        window.ask(ASK)


def test_all_refusals_are_engine_errors():
    for kind in (ContextError, FrameError, GroupError, QueryError, StateError):
        assert issubclass(kind, EngineError)


@pytest.mark.parametrize("fault", [ZeroDivisionError, KeyboardInterrupt, SystemExit])
def test_a_pass_that_fails_half_way_starts_over(stream, monkeypatch, fault):
    """Memory may run out in the middle of a pass, or a user interrupt it.

    The next pass must not build on half a state, with a stream, a window or a rebuild.
    """
    groups, times_s = encoded(stream.engine, 3)
    decoder = stream.engine.decoder
    want = [r.probabilities for r in stream.engine.window(groups, times_s).ask(ASK)]

    fresh, asked = (stream.engine.window(groups, times_s) for _ in range(2))
    asked.ask(ASK)
    rebuilt = stream.engine.stream(2)
    for group, t_s in zip((*groups, groups[0]), (*times_s, times_s[-1] + 0.25), strict=True):
        rebuilt.append(group, t_s)
        rebuilt.ask(ASK)

    def fail(x):
        raise fault

    broken = dataclasses.replace(decoder.layers[3], mlp=fail)
    monkeypatch.setattr(decoder, "layers", (*decoder.layers[:3], broken, *decoder.layers[4:]))
    stream.append(groups[2], times_s[2])
    for run in (lambda: stream.ask(ASK), lambda: fresh.ask(ASK), lambda: asked.ask(ASK),
                rebuilt.idle):  # fmt: skip
        with pytest.raises(fault):
            run()
    monkeypatch.undo()
    for one in (stream, fresh, asked):
        for got, p in zip(one.ask(ASK), want, strict=True):
            assert np.abs(got.probabilities - p).max() < 1e-5
    while rebuilt.idle():
        pass
    assert rebuilt.rebuilds == 1
    rebuilt.ask(ASK)
