"""Vision that encodes only what changed, against encoding all, with a control that must fail."""

import cv2
import mlx.core as mx
import numpy as np
import pytest
from tiny import FAMILIES, moving_frames, tiny_engine

from vlm_decisions.engine import FrameError
from vlm_decisions.engine.change import ChangeTracker
from vlm_decisions.engine.pixels import resize
from vlm_decisions.reuse import ReuseSettings

CASES = [(family, in_numpy) for family in sorted(FAMILIES) for in_numpy in (True, False)]
PIXELS = ReuseSettings("pixels", threshold=2.0, brightness=False, full_above=1.0,
                       refresh_groups=0)  # fmt: skip


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}-{'numpy' if case[1] else 'mlx'}")
def engine(request):
    family, in_numpy = request.param
    return tiny_engine(family, in_numpy=in_numpy)


def features(group):
    return [np.array(level.astype(mx.float32)) for level in (group.features, *group.deep)]


def distance(group, other):
    """Return the largest difference of two groups' features, relative to their size."""
    return max(
        float(np.abs(a - b).max() / np.abs(b).max())
        for a, b in zip(features(group), features(other), strict=True)
    )


def same(group, other):
    return all(np.array_equal(a, b) for a, b in zip(features(group), features(other), strict=True))


def noisy(frames, seed=3):
    """Return the frames with all of their pixels somewhat different."""
    rng = np.random.default_rng(seed)
    return [np.clip(frame + rng.integers(-60, 60, frame.shape), 0, 255).astype(np.uint8)
            for frame in frames]  # fmt: skip


def test_a_full_pass_is_the_exact_one_bit_for_bit(engine):
    frames = moving_frames(2)
    reusing = engine.reusing(PIXELS)
    group, exact = reusing.encode(frames), engine.encode(frames)
    assert same(group, exact)
    assert np.array_equal(group.mean, exact.mean)
    assert np.array_equal(group.max, exact.max)
    assert (group.encoded, group.why) == (1.0, "first")
    assert (exact.encoded, exact.why) == (1.0, "")


def test_encoding_tokens_anew_that_did_not_change_changes_nothing(engine):
    frames = moving_frames(2)
    exact = engine.encode(frames)
    rng = np.random.default_rng(0)
    for share in (0.1, 0.5, 1.0):
        reusing = engine.reusing(PIXELS)
        reusing.encode(frames)
        some = rng.random(exact.grid) <= share
        group = reusing.encode(frames, changed=some)
        assert group.encoded == some.mean()
        assert distance(group, exact) < 1e-5
        assert np.allclose(group.mean, exact.mean, atol=1e-5)


def test_control_a_mask_that_misses_what_changed_is_caught(engine):
    frames, others = moving_frames(2), moving_frames(2, seed=4)
    exact = engine.encode(others)
    rng = np.random.default_rng(0)
    reusing = engine.reusing(PIXELS)
    reusing.encode(frames)
    group = reusing.encode(others, changed=rng.random(exact.grid) < 0.5)
    assert distance(group, exact) > 0.1


def test_all_tokens_changed_is_the_exact_pass(engine):
    frames, others = moving_frames(2), moving_frames(2, seed=4)
    reusing = engine.reusing(PIXELS)
    reusing.encode(frames)
    group = reusing.encode(others, changed=np.ones(engine.encode(others).grid, bool))
    assert distance(group, engine.encode(others)) < 1e-5


def test_a_change_in_one_place_encodes_that_place(engine):
    side = engine.settings.factor
    frames = moving_frames(2)
    others = [frame.copy() for frame in frames]
    for frame in others:
        frame[:side, side : 2 * side] = 255 - frame[:side, side : 2 * side]
    reusing = engine.reusing(PIXELS)
    before = reusing.encode(frames)
    group = reusing.encode(others)
    assert (group.encoded, group.why) == (1 / group.n_tokens, "pixels")
    moved = np.abs(features(group)[0] - features(before)[0]).max(axis=1)
    assert np.flatnonzero(moved).tolist() == [1]
    exact = features(engine.encode(others))[0][1]
    new, old = (np.abs(features(one)[0][1] - exact).max() for one in (group, before))
    assert new < old / 3


def test_nothing_changed_is_the_same_group_and_costs_nothing(engine):
    frames = moving_frames(2)
    reusing = engine.reusing(PIXELS)
    first = reusing.encode(frames)
    group = reusing.encode([frame.copy() for frame in frames])
    assert (group.encoded, group.why) == (0.0, "pixels")
    assert same(group, first)
    assert reusing.stats.encoded == first.n_tokens


def test_the_whole_grid_is_what_the_language_model_is_asked_about(engine):
    from vlm_decisions.engine import Query

    queries = [Query("Is a person present?"), Query("Is the door open?")]
    frames = moving_frames(4)
    reusing = engine.reusing(PIXELS)
    groups = [reusing.encode(frames[:2]), reusing.encode(frames[:2])]
    exact = [engine.encode(frames[:2])] * 2
    for a, b in zip(engine.window(groups, [0.1, 0.3]).ask(queries),
                    engine.window(exact, [0.1, 0.3]).ask(queries), strict=True):
        assert np.abs(a.probabilities - b.probabilities).max() < 1e-6


# -- when all are encoded ------------------------------------------------------------------------


def tiny_reusing(**changes):
    settings = {"threshold": 2.0, "brightness": False, "full_above": 1.0, "refresh_groups": 0}
    return tiny_engine().reusing(ReuseSettings("pixels", **{**settings, **changes}))


def shifted(frames, side=32):
    """Return the frames with one token's pixels inverted."""
    out = [frame.copy() for frame in frames]
    for frame in out:
        frame[:side, :side] = 255 - frame[:side, :side]
    return out


def test_much_changed():
    reusing = tiny_reusing(full_above=0.3)
    frames = moving_frames(2)
    reusing.encode(frames)
    group = reusing.encode(noisy(frames))
    assert (group.encoded, group.why) == (1.0, "large change")
    assert same(group, tiny_engine().encode(noisy(frames)))


def test_what_changed_a_little_less_is_encoded_along_with_what_changed():
    frames = [frame // 2 + 60 for frame in moving_frames(2)]

    def brighter(first, second):  # the first two tokens
        out = [frame.copy() for frame in frames]
        for frame in out:
            frame[:32, :32] += np.uint8(first)
            frame[:32, 32:64] += np.uint8(second)
        return out

    for first, second, tokens in ((9, 0, 0), (9, 9, 0), (11, 9, 2), (11, 5, 1)):
        reusing = tiny_reusing(threshold=10.0)
        n = reusing.encode(frames).n_tokens
        assert round(reusing.encode(brighter(first, second)).encoded * n) == tokens


def test_a_little_everywhere_is_a_large_change_as_when_the_camera_moves():
    reusing = tiny_reusing(threshold=10.0)
    frames = [frame // 2 + 60 for frame in moving_frames(2)]
    reusing.encode(frames)
    assert reusing.encode([frame + np.uint8(4) for frame in frames]).why == "pixels"
    group = reusing.encode([frame + np.uint8(7) for frame in frames])
    assert (group.encoded, group.why) == (1.0, "large change")


def test_another_size():
    reusing = tiny_reusing()
    reusing.encode(moving_frames(2))
    frames = moving_frames(2, 64, 128)
    group = reusing.encode(frames)
    assert (group.encoded, group.why) == (1.0, "resized")
    assert same(group, tiny_engine().encode(frames))


def test_a_loss():
    reusing = tiny_reusing()
    reusing.encode(moving_frames(2))
    reusing.lost()
    group = reusing.encode(moving_frames(2))
    assert (group.encoded, group.why) == (1.0, "loss")
    assert reusing.encode(moving_frames(2)).why == "pixels"


def test_the_first_after_a_reset():
    reusing = tiny_reusing()
    reusing.encode(moving_frames(2))
    reusing.reset()
    assert reusing.encode(moving_frames(2)).why == "first"


def test_a_refresh_is_due_some_groups_after_the_last():
    reusing = tiny_reusing(refresh_groups=3)
    frames = moving_frames(2)
    whys = [reusing.encode(shifted(frames) if i % 2 else frames).why for i in range(8)]
    assert whys == ["first", "pixels", "pixels", "due", "pixels", "pixels", "due", "pixels"]
    assert reusing.stats.refreshes == 2
    assert 0 <= reusing.stats.drift < 1
    assert reusing.stats.worst_drift >= reusing.stats.drift


def test_a_refresh_is_due_where_much_changed_bit_by_bit_and_then_rests():
    frames = moving_frames(2)

    def whys(tokens, **settings):
        reusing = tiny_reusing(**{"refresh_groups": 16, **settings})
        reusing.encode(frames)
        changed = np.zeros((3, 4), bool)
        for token in range(tokens):
            changed[:] = False
            changed.flat[token] = True
            reusing.encode(frames, changed=changed)
        return [reusing.encode(frames).why for _ in range(3)]

    assert whys(4) == ["pixels", "due", "pixels"]
    assert whys(3) == ["pixels"] * 3
    assert whys(4, refresh_groups=0) == ["pixels"] * 3, "no refresh at all is wanted"


def test_no_refresh_is_due_while_all_features_are_of_one_pass():
    reusing = tiny_reusing(refresh_groups=3)
    assert [reusing.encode(moving_frames(2)).why for _ in range(6)] == ["first"] + ["pixels"] * 5


def test_a_refresh_that_is_due_happens_in_dead_time():
    reusing = tiny_reusing(refresh_groups=3)
    frames = moving_frames(2)
    whys = []
    for i in range(7):
        whys.append(reusing.encode(shifted(frames) if i % 2 else frames).why)
        while reusing.idle():
            pass
    assert whys == ["first"] + ["pixels"] * 6
    assert reusing.stats.in_dead_time == reusing.stats.refreshes == 3
    still = reusing.encode(frames)  # as the last one, which was encoded in full
    assert still.encoded == 0
    assert same(still, tiny_engine().encode(frames))


def test_drift_is_that_of_features_that_were_reused():
    exact = tiny_reusing(refresh_groups=2)
    frames = moving_frames(2)
    exact.encode(frames)
    exact.encode(frames, changed=np.ones((3, 4), bool))  # nothing is old
    assert exact.idle()
    assert exact.stats.drift < 1e-6
    wrong = tiny_reusing(refresh_groups=2)  # control: what changed was missed
    wrong.encode(frames)
    wrong.encode(noisy(frames), changed=np.eye(3, 4) > 0)
    assert wrong.idle()
    assert wrong.stats.drift > 1e-3


def test_a_pass_that_fails_leaves_nothing_half_old():
    reusing = tiny_reusing()
    frames = moving_frames(2)
    reusing.encode(frames)
    real, count = reusing._vision._merge, []

    def fails(*args):
        count.append(1)
        raise RuntimeError("out of memory")

    reusing._vision._merge = fails
    try:
        with pytest.raises(RuntimeError):
            reusing.encode(shifted(frames))
    finally:
        reusing._vision._merge = real
    group = reusing.encode(shifted(frames))
    assert (group.encoded, group.why) == (1.0, "loss")
    assert same(group, tiny_engine().encode(shifted(frames)))


def test_a_bad_frame_changes_nothing():
    reusing = tiny_reusing()
    frames = moving_frames(2)
    reusing.encode(frames)
    with pytest.raises(FrameError, match="uint8"):
        reusing.encode([frame.astype(np.float32) for frame in frames])
    assert reusing.encode(frames).encoded == 0


def test_vectors_without_vectors_are_refused_by_name():
    reusing = tiny_engine().reusing(ReuseSettings("vectors"))
    with pytest.raises(FrameError, match="motion vectors"):
        reusing.encode(moving_frames(2))


def test_a_mask_of_another_grid_is_refused():
    with pytest.raises(FrameError, match="grid of 3 x 4, not 4 x 3"):
        tiny_reusing().encode(moving_frames(2), changed=np.ones((4, 3), bool))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mode": "some"}, "reuse must be one of off, pixels, vectors"),
        ({"threshold": -1.0}, "reuse_threshold must be 0 to 255"),
        ({"threshold": float("nan")}, "reuse_threshold"),
        ({"full_above": 1.5}, "reuse_full_above must be 0 to 1"),
        ({"refresh_groups": 2.5}, "reuse_refresh_groups must be a whole number"),
        ({"brightness": 1}, "reuse_brightness must be true or false"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        ReuseSettings(**changes)


# -- the change map ------------------------------------------------------------------------------


def pair_of(frames):
    return np.stack(frames)


def tracker(frames, **options):
    made = ChangeTracker(32, **options)
    made.encoded(pair_of(frames))
    return made


def test_the_score_is_the_largest_mean_difference_of_a_cell():
    frames = [np.full((64, 96, 3), 100, np.uint8)] * 2
    others = [frame.copy() for frame in frames]
    others[1][40:48, 72:80] += 12  # one cell of token (1, 2), in one of the two frames
    score = tracker(frames, brightness=False).compare(pair_of(others)).score
    assert score.shape == (2, 3)
    assert score[1, 2] == pytest.approx(12, abs=0.1)
    score[1, 2] = 0
    assert not score.any()


def test_a_slow_change_adds_up_until_it_counts():
    frames = [np.full((64, 96, 3), 100, np.uint8)] * 2
    watched = tracker(frames, brightness=False)
    scores = []
    for step in range(1, 9):
        pair = pair_of(frames).copy()
        pair[:, :32, :32] += np.uint8(step)
        scores.append(float(watched.compare(pair).score[0, 0]))
    assert scores == pytest.approx(range(1, 9), abs=0.1)


def test_what_is_encoded_is_compared_with_its_own_pixels_from_then_on():
    frames = [np.full((64, 96, 3), 100, np.uint8)] * 2
    watched = tracker(frames, brightness=False)
    pair = pair_of(frames) + np.uint8(9)
    watched.encoded(pair, np.array([1, 3]))
    score = watched.compare(pair).score
    assert score.reshape(-1) == pytest.approx([9, 0, 9, 0, 9, 9], abs=0.1)


def test_flicker_is_no_change_and_a_thing_in_flickering_light_is_one():
    rng = np.random.default_rng(0)
    ground = rng.integers(60, 180, (2, 3, 3), np.uint8).repeat(32, 0).repeat(32, 1)
    brighter = np.clip(ground * 1.06, 0, 255).astype(np.uint8)
    brighter[:32, :32] = 20
    plain = tracker([ground] * 2, brightness=False).compare(pair_of([brighter] * 2))
    level = tracker([ground] * 2).compare(pair_of([brighter] * 2))
    assert plain.brightness == (1.0, 1.0)
    assert level.brightness == pytest.approx((1.06, 1.06), abs=0.01)
    assert (plain.score > 3).all()
    assert (level.score > 3).sum() == 1
    assert level.score[0, 0] > 30


def test_another_light_is_a_change():
    ground = np.full((64, 96, 3), 150, np.uint8)
    change = tracker([ground] * 2).compare(pair_of([ground // 2] * 2))
    assert change.brightness == (1.0, 1.0)
    assert (change.score > 50).all()


def test_tokens_encoded_in_different_light_are_compared_alike():
    rng = np.random.default_rng(0)
    ground = rng.integers(60, 180, (2, 3, 3), np.uint8).repeat(32, 0).repeat(32, 1)

    def lit(first, second):
        return pair_of([np.clip(ground * light, 0, 255).astype(np.uint8)
                        for light in (first, second)])  # fmt: skip

    watched = tracker([ground] * 2)
    watched.encoded(lit(1.1, 0.95), np.array([0, 4]))
    change = watched.compare(lit(0.92, 1.08))
    assert change.brightness == pytest.approx((0.92, 1.08), abs=0.01)
    assert (change.score < 2).all()


def test_changed_tokens_are_encoded_in_the_light_of_the_others():
    frames = [frame // 2 + 40 for frame in moving_frames(2)]
    there = [frame.copy() for frame in frames]
    for frame in there:
        frame[:32, :32] = 20
    brighter = [np.clip(frame * 1.12, 0, 255).astype(np.uint8) for frame in there]
    some = np.zeros((3, 4), bool)
    some[0, 0] = True
    want = tiny_reusing()
    want.encode(frames)
    want = want.encode(there, changed=some)

    def far(**settings):
        reusing = tiny_reusing(**settings)
        reusing.encode(frames)
        return distance(reusing.encode(brighter, changed=some), want)

    assert far(brightness=True) < far(brightness=False) / 4


def seen_from(dx, dy=0.0, size=(128, 160)):
    """Film a soft scene with a camera that stands (dx, dy) pixels further."""
    rng = np.random.default_rng(1)
    wall = cv2.GaussianBlur(rng.integers(0, 255, (240, 320, 3), np.uint8), (0, 0), 6)
    wall = cv2.normalize(wall, None, 40, 220, cv2.NORM_MINMAX)
    there = np.float32([[1, 0, -60 - dx], [0, 1, -50 - dy]])
    return cv2.warpAffine(wall, there, size[::-1])


def test_a_camera_that_shakes_is_no_change_and_what_moves_before_it_is():
    frame = seen_from(0)
    watched, plain = tracker([frame] * 2), tracker([frame] * 2, shake=0.0)
    for dx, dy in ((0.9, 0.0), (-0.6, 0.8), (1.0, -1.0)):
        shaken = seen_from(dx, dy)
        change = watched.compare([shaken] * 2)
        assert np.allclose(change.shift, [(-dx, -dy)] * 2, atol=0.25) and not change.moved
        inner = slice(1, -1), slice(1, -1)  # what comes in at the edges is new
        as_it_is = plain.compare([shaken] * 2).score[inner].max()
        assert change.score[inner].max() < min(8, as_it_is / 1.5)
        shaken[40:60, 70:90] = 0
        score = watched.compare([shaken] * 2).score
        assert np.flatnonzero(score > 15).tolist() == [7]
        watched.encoded([shaken] * 2, np.array([7]))  # as it was from where it stood before
        assert watched.compare([seen_from(0)] * 2).score[1, 2] > 15
        assert watched.compare([shaken] * 2).score[inner].max() < 8
        watched.encoded([frame] * 2)


def test_what_moves_by_itself_is_not_taken_for_the_camera_however_large():
    rng = np.random.default_rng(0)
    wall = rng.integers(90, 130, (16, 20, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    body = rng.integers(20, 240, (7, 5, 3), np.uint8).repeat(16, 0).repeat(16, 1)

    def passing(x):
        frame = wall.copy()
        frame[16:, 30 + x : 110 + x] = body
        return frame

    watched = tracker([passing(0)] * 2)
    for step in (1, 3, 8):
        change = watched.compare([passing(step)] * 2)
        assert (change.shift, change.moved) == (((0.0, 0.0), (0.0, 0.0)), False)
        assert change.score[:, -1].max() == 0 < change.score.max(), "the wall has not changed"


def test_a_camera_that_turns_is_a_large_change():
    assert tracker([seen_from(0)] * 2).compare([seen_from(2.5)] * 2).moved
    reusing = tiny_reusing(threshold=100.0)
    reusing.encode([seen_from(0)] * 2)
    assert reusing.encode([seen_from(0.8)] * 2).why == "pixels"
    assert reusing.encode([seen_from(2.5)] * 2).why == "large change"


def test_frames_are_compared_as_the_model_sees_them_without_being_resized(monkeypatch):
    large = [cv2.resize(frame, (640, 480)) for frame in (seen_from(0), seen_from(0))]
    changed = [frame.copy() for frame in large]
    changed[1][200:280, 300:380] = 0
    watched = ChangeTracker(32)
    watched.encoded(large, None, (128, 160))
    score = watched.compare(changed).score
    small = [resize(frame, 128, 160) for frame in large]
    want = tracker(small).compare([resize(frame, 128, 160) for frame in changed]).score
    assert score == pytest.approx(want, abs=6) and score.max() > 60
    reusing = tiny_reusing()
    reusing.encode(large)
    monkeypatch.setattr("vlm_decisions.engine.reusing.resized", None)
    assert reusing.encode(large).encoded == 0
