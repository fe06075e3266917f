"""A window moved on by turning its keys, against one computed anew, and controls that must fail."""

from dataclasses import replace

import numpy as np
import pytest
from tiny import encoded, tiny_engine

from vlm_decisions.engine import Query, StateError
from vlm_decisions.engine.sliding import FIRST_S, Reused, SlidingWindow, slide

QUERIES = [Query("Is a person present?"), Query("Is the door open?"),
           Query("Which is it?", ("A", "B", "C"))]  # fmt: skip


@pytest.fixture(scope="module", params=[("qwen3_vl", True), ("qwen3_vl", False),
                                        ("qwen3_vl_moe", False)], ids=str)  # fmt: skip
def engine(request):
    family, in_numpy = request.param
    return tiny_engine(family, in_numpy=in_numpy)


@pytest.fixture(scope="module")
def groups(engine):
    return timed(*encoded(engine, 8))


def timed(groups, times_s):
    return [(group, round(t_s * 1e9)) for group, t_s in zip(groups, times_s, strict=True)]


def anew(engine, groups, first_s=FIRST_S):
    """Return the state of a window computed anew; first_s: stated time of its first group."""
    lines = [engine.header_line("video")]
    position = lines[0].advance
    for group, time_ns in groups:
        t_s = (time_ns - groups[0][1]) / 1e9 + first_s
        lines.append(engine.group_line(group, t_s, position))
        position += lines[-1].advance
    state = engine.decoder.fresh_state()
    engine.run(state, lines)
    return state


def answers(engine, state):
    out = engine.run(state, [], engine.questions(QUERIES))
    return np.concatenate([readout.probabilities for readout in out])


def keys(state, layer):
    return np.array(state.layers[layer].keys)[:, : state.length].astype(np.float32)


@pytest.mark.slow
def test_a_window_that_only_grows_is_exact(engine, groups):
    window = SlidingWindow(engine, refresh=0)
    for n in range(1, 6):
        state = window.advance(groups[:n])
    want = anew(engine, groups[:5])
    assert (state.length, state.next_position) == (want.length, want.next_position)
    assert np.abs(answers(engine, state) - answers(engine, want)).max() < 1e-5


def test_groups_computed_anew_among_reused_ones_change_nothing(engine, groups):
    window = SlidingWindow(engine, refresh=0, anchors=2)
    window.advance(groups[:4])
    state = window.advance(groups[:5])
    assert np.abs(answers(engine, state) - answers(engine, anew(engine, groups[:5]))).max() < 1e-5


def moved(engine, groups, **options):
    window = SlidingWindow(engine, refresh=0, **options)
    window.advance(groups[:4])
    return window.advance(groups[1:5])


def test_turned_keys_are_those_of_the_new_place(engine, groups):
    """In the first layer a key is told by its token and its place alone."""
    state, want = moved(engine, groups), anew(engine, groups[1:5], FIRST_S + 0.25)
    assert (state.length, state.next_position) == (want.length, want.next_position)
    assert np.abs(keys(state, 0) - keys(want, 0)).max() < 1e-5 * np.abs(keys(want, 0)).max()
    # Later layers were told of the group that has left.
    assert np.abs(keys(state, -1) - keys(want, -1)).max() > 1e-3 * np.abs(keys(want, -1)).max()


def test_controls_keys_that_are_not_turned_or_the_wrong_way(engine, groups):
    want = anew(engine, groups[1:5], FIRST_S + 0.25)
    window = SlidingWindow(engine, refresh=0)
    old = window.advance(groups[:4])
    header, line = len(engine.header_line("video")), window._held[1]
    shift = window._held[0].position - line.position
    rest = old.length - line.start
    for wrong in (0, -shift, 2 * shift):
        state = slide(engine.decoder, old, [Reused(0, header), Reused(line.start, rest, wrong)], 0)
        got, right = keys(state, 0), keys(want, 0)[:, : state.length]
        assert np.abs(got - right).max() > 0.1 * np.abs(right).max()
    right = slide(engine.decoder, old, [Reused(0, header), Reused(line.start, rest, shift)], 0)
    assert np.abs(keys(right, 0) - keys(want, 0)[:, : right.length]).max() < 1e-4


def test_times_stated_anew_are_those_of_a_window_computed_anew(engine, groups):
    state, want = moved(engine, groups, restate=True), anew(engine, groups[1:5])
    assert (state.length, state.next_position) == (want.length, want.next_position)
    assert np.abs(keys(state, 0) - keys(want, 0)).max() < 1e-5 * np.abs(keys(want, 0)).max()


def test_anchors_bring_it_nearer(engine, groups):
    want = answers(engine, anew(engine, groups[2:8], FIRST_S + 0.5))

    def far(**options):
        window = SlidingWindow(engine, refresh=0, **options)
        for n in range(3):
            state = window.advance(groups[n : n + 6])
        return float(np.abs(answers(engine, state) - want).mean()), window.tokens

    (none, few), (all_, many) = far(), far(anchors=1)
    assert all_ < 1e-5 < none
    assert few < many


def test_every_so_many_moves_the_window_is_computed_anew(engine, groups):
    window = SlidingWindow(engine, refresh=2)
    spent = []
    for n in range(5):
        before = window.tokens
        state = window.advance(groups[n : n + 4])
        spent.append(window.tokens - before)
    assert spent[0] == spent[2] == spent[4] > 3 * spent[1] == 3 * spent[3]
    assert np.abs(answers(engine, state) - answers(engine, anew(engine, groups[4:8]))).max() < 1e-6


def test_the_state_before_stays_as_it_was(engine, groups):
    window = SlidingWindow(engine, refresh=0)
    old = window.advance(groups[:4])
    before = answers(engine, old)
    window.advance(groups[1:5])
    assert np.array_equal(answers(engine, old), before)


def test_groups_that_do_not_follow_are_computed_anew(engine, groups):
    window = SlidingWindow(engine, refresh=0)
    window.advance(groups[:3])
    state = window.advance(groups[4:7])
    assert np.abs(answers(engine, state) - answers(engine, anew(engine, groups[4:7]))).max() < 1e-6


def test_groups_with_tokens_left_out_keep_their_places(engine, groups):
    some = np.array([0, 3, 7])
    sparse = [(replace(group, features=group.features[some.tolist()],
                       deep=tuple(level[some.tolist()] for level in group.deep), kept=some), t)
              for group, t in groups[:5]]  # fmt: skip
    line, whole = (engine.group_line(one[0][0], 0.1, 7) for one in (sparse, groups))
    before = len(whole) - groups[0][0].n_tokens - 1
    places = [*range(before), *(before + some), len(whole) - 1]
    assert np.array_equal(line.positions, whole.positions[:, places])
    assert line.advance == whole.advance
    state, want = moved(engine, sparse), anew(engine, sparse[1:5], FIRST_S + 0.25)
    assert np.abs(keys(state, 0) - keys(want, 0)).max() < 1e-5 * np.abs(keys(want, 0)).max()


@pytest.mark.slow
def test_a_stream_in_mode_window_can_be_moved_on(engine):
    groups, times_s = encoded(engine, 8)
    moved, anew_ = (engine.stream(4, "window", slide=n) for n in (4, 1))
    far = []
    for i, (group, t_s) in enumerate(zip(groups, times_s, strict=True)):
        for stream in (moved, anew_):
            stream.append(group, t_s)
        one, other = (np.concatenate([r.probabilities for r in stream.ask(QUERIES)])
                      for stream in (moved, anew_))  # fmt: skip
        far.append(float(np.abs(one - other).max()))
        if i == 6:
            moved.reset()
            for group_, t in zip(groups[3:7], times_s[3:7], strict=True):
                moved.append(group_, t)
    assert max(far[:4]) < 1e-5, "a window that grows, and its first refresh"
    assert max(far[4:7]) > 1e-5, "it was moved on"


def test_only_a_window_can_be_moved_on():
    engine = tiny_engine("qwen3_vl")
    with pytest.raises(ValueError, match="only a window"):
        engine.stream(4, "stream", slide=4)
    with pytest.raises(StateError, match="DeltaNet"):
        tiny_engine("qwen3_5").stream(4, "window", slide=4)


def test_models_that_keep_no_keys_of_single_tokens_are_refused_by_name():
    with pytest.raises(StateError, match="layer 0 is a DeltaNet: it keeps one memory"):
        SlidingWindow(tiny_engine("qwen3_5"))
    with pytest.raises(StateError, match="one block"):
        SlidingWindow(tiny_engine("qwen2_5_vl"))
