"""Sampling and grouping on frame time."""

import numpy as np
import pytest

from vlm_decisions.frames import NS, Frame, InvalidFrameError, Sampler

IMAGE = np.zeros((4, 6, 3), np.uint8)


def push_all(sampler, stamps_s, image=IMAGE):
    groups = [sampler.push(Frame(image, round(t * NS))) for t in stamps_s]
    return [group for group in groups if group is not None]


def stamps(fps, seconds, start=100.0, jitter=0.0, seed=0):
    rng = np.random.default_rng(seed)
    t = start + np.arange(round(fps * seconds)) / fps
    return t + rng.uniform(-jitter, jitter, len(t))


@pytest.mark.parametrize("fps", [8, 10, 12.5, 15, 24, 25, 29.97, 30, 60, 120])
def test_eight_frames_a_second_from_any_faster_camera(fps):
    sampler = Sampler()
    groups = push_all(sampler, stamps(fps, 20))
    assert len(groups) == pytest.approx(80, abs=1)
    assert {group.segment for group in groups} == {groups[0].segment}
    assert [group.index for group in groups] == list(range(len(groups)))
    # The frame nearest to each grid point: never further off than half the camera's interval.
    times = np.array([frame.stamp_ns for group in groups for frame in group.frames]) / NS
    grid = 100.0 + np.arange(len(times)) / 8
    assert np.abs(times - grid).max() <= max(0.5 / fps, 1e-9) + 1e-9


@pytest.mark.parametrize("fps", [8, 10, 25, 30])
def test_jitter_of_20_ms_breaks_nothing(fps):
    groups = push_all(Sampler(), stamps(fps, 20, jitter=min(0.02, 0.4 / fps)))
    assert len(groups) == pytest.approx(80, abs=1)
    assert len({group.segment for group in groups}) == 1


@pytest.mark.parametrize("fps", [1, 2, 5, 7])
def test_slower_cameras_make_groups_at_their_own_rate(fps):
    groups = push_all(Sampler(), stamps(fps, 20))
    assert len(groups) == pytest.approx(fps * 10, abs=1)
    # The interval has to be learnt once; from then on it is no gap.
    assert len({group.segment for group in groups}) == 1
    gaps = {group.frames[1].stamp_ns - group.frames[0].stamp_ns for group in groups}
    assert gaps <= {NS // fps, NS // fps + 1}


def test_a_camera_slower_than_one_frame_a_second_makes_no_group():
    sampler = Sampler()
    assert push_all(sampler, stamps(0.8, 20)) == []
    assert sampler.gaps == 15


def test_pairs_are_successive_and_do_not_overlap():
    groups = push_all(Sampler(), stamps(8, 3))
    assert [g.frames[0].stamp_ns for g in groups] == [round((100 + i / 4) * NS) for i in range(12)]
    first = groups[0]
    assert (first.t_start_ns, first.t_end_ns) == (100 * NS, round(100.125 * NS))
    assert first.t_mid_s == pytest.approx(100.0625)


def test_gap_begins_a_new_segment_with_the_frame_after_it():
    sampler = Sampler()
    before = push_all(sampler, stamps(8, 1.125))  # one frame is left over
    after = push_all(sampler, stamps(8, 1, start=101.4))
    assert sampler.gaps == 1
    assert after[0].segment == before[-1].segment + 1
    assert after[0].epoch == before[-1].epoch
    assert after[0].index == 0
    # The frame left over is not paired across the gap.
    assert after[0].t_start_ns == round(101.4 * NS)


@pytest.mark.parametrize(
    ("fps", "lost", "gap"), [(30, 3, False), (30, 6, True), (8, 1, True), (5, 1, True)]
)
def test_lost_frames_are_a_gap_only_beyond_period_and_jitter(fps, lost, gap):
    sampler = Sampler()
    push_all(sampler, stamps(fps, 2))
    learnt = sampler.gaps
    push_all(sampler, stamps(fps, 2, start=102 + lost / fps))
    assert sampler.gaps - learnt == int(gap)


def test_interval_just_within_and_just_beyond_the_jitter():
    for extra_s, gaps in ((0.0499, 0), (0.0501, 1)):
        sampler = Sampler(fps=8, jitter_s=0.05)
        push_all(sampler, [100.0, 100.125, 100.25, 100.375 + extra_s, 100.5 + extra_s])
        assert sampler.gaps == gaps


def test_time_going_backwards_begins_a_new_epoch_and_segment():
    sampler = Sampler()
    first = push_all(sampler, stamps(8, 2))
    second = push_all(sampler, stamps(8, 2))  # a bag that loops
    assert sampler.rewinds == 1
    assert second[0].epoch == first[0].epoch + 1
    assert second[0].segment > first[-1].segment
    assert second[0].index == 0
    assert len(second) == len(first)


def test_late_and_doubled_frames_are_ignored():
    sampler = Sampler()
    groups = push_all(sampler, [100.0, 100.0, 100.125, 100.1, 100.25, 100.375])
    assert sampler.late == 2
    assert [(g.t_start_ns, g.t_end_ns) for g in groups] == [
        (100 * NS, round(100.125 * NS)),
        (round(100.25 * NS), round(100.375 * NS)),
    ]
    assert groups[0].epoch == groups[1].epoch


def test_one_late_frame_is_no_new_time():
    sampler = Sampler()
    push_all(sampler, [0.0, 0.1, 0.2, 0.4, 0.3, 0.5])
    assert (sampler.rewinds, sampler.late, sampler.gaps) == (0, 1, 0)


@pytest.mark.parametrize("fps", [30, 15, 10, 8, 5, 2])
def test_swapped_frames_cost_no_window(fps):
    sampler, times = Sampler(), stamps(fps, 60)
    for index in range(2 * fps, len(times) - 1, 2 * fps):
        times[index], times[index + 1] = times[index + 1], times[index]
    groups = push_all(sampler, times)
    assert (sampler.rewinds, sampler.late, sampler.ahead) == (0, 29, 0)
    assert len(groups) == pytest.approx(30 * min(8, fps), abs=1)
    assert len({group.segment for group in groups}) == 1
    assert sampler.gaps <= 1  # where the first interval was longer than the expected one
    assert all(g.t_start_ns < g.t_end_ns for g in groups)
    assert all(a.t_end_ns < b.t_start_ns for a, b in zip(groups, groups[1:], strict=False))


@pytest.mark.parametrize("fps", [30, 15, 10, 8])
@pytest.mark.parametrize("off_s", [0.4, 3.0, 1e6, -0.7, -50.0])
def test_one_wrong_stamp_is_not_believed(fps, off_s):
    sampler, times = Sampler(), stamps(fps, 60)
    wrong = range(60, len(times), 60)
    times[wrong] += off_s
    groups = push_all(sampler, times)
    assert sampler.rewinds == 0
    assert (sampler.ahead, sampler.late) == ((len(wrong), 0) if off_s > 0 else (0, len(wrong)))
    right = set(map(round, (stamps(fps, 60) * NS).tolist()))
    assert all(frame.stamp_ns in right for group in groups for frame in group.frames)


@pytest.mark.parametrize("back_s", [0.3, 1.0, 100.0])
def test_time_that_stays_back_is_believed_at_the_second_frame(back_s):
    sampler = Sampler()
    push_all(sampler, stamps(15, 4))
    for index, t_s in enumerate(stamps(15, 4, start=104.0 - back_s)):
        group = sampler.push(Frame(IMAGE, round(t_s * NS)))
        assert sampler.rewinds == (index > 0)
        if group is not None and index < 4:
            assert group.t_start_ns == round((104.0 - back_s) * NS)  # the first frame counts
    assert sampler.epoch == 1


def test_a_gap_is_believed_with_the_frame_after_it_and_loses_nothing():
    sampler = Sampler()
    push_all(sampler, stamps(8, 1))
    assert sampler.push(Frame(IMAGE, 110 * NS)) is None and sampler.taken == ()
    assert sampler.push(Frame(IMAGE, round(110.125 * NS))).t_start_ns == 110 * NS
    assert (len(sampler.taken), sampler.gaps) == (2, 1)


def test_frames_at_random_times_come_out_in_order_or_in_a_new_epoch():
    rng = np.random.default_rng(5)
    sampler, newest, epoch = Sampler(), -1, 0
    for t_s in np.cumsum(rng.choice([0.03, 0.1, 0.5, -0.05, -0.3, -4.0, 4.0, 0.0], 5000)) + 1e4:
        sampler.push(Frame(IMAGE, round(t_s * NS)))
        for frame in sampler.taken:
            if sampler.epoch != epoch:
                newest, epoch = -1, sampler.epoch
            assert frame.stamp_ns > newest
            newest = frame.stamp_ns
    assert sampler.rewinds > 10 and sampler.late > 10 and sampler.ahead > 10


def test_another_frame_id_begins_a_new_segment():
    sampler = Sampler()
    groups = []
    for index, t_s in enumerate(stamps(16, 4)):  # two cameras in turn
        groups.append(sampler.push(Frame(IMAGE, round(t_s * NS), "left" if index % 2 else "right")))
    assert set(groups) == {None} and sampler.switched == 63
    one = push_all(sampler, stamps(8, 1, start=104.0))
    assert sampler.switched == 64 and len(one) == 4


def test_another_size_begins_a_new_segment():
    sampler = Sampler()
    small = push_all(sampler, stamps(8, 1.125))
    large = push_all(sampler, stamps(8, 1, start=101.125), np.zeros((8, 6, 3), np.uint8))
    assert sampler.resized == 1
    assert sampler.gaps == 0
    assert large[0].segment == small[-1].segment + 1
    assert {frame.size for group in large for frame in group.frames} == {(8, 6)}


def test_reset_and_break_begin_new_segments_of_the_same_epoch():
    sampler = Sampler()
    one = push_all(sampler, stamps(8, 1))[-1]
    sampler.break_segment()
    two = push_all(sampler, stamps(8, 1, start=101))[0]
    sampler.reset()
    three = push_all(sampler, stamps(8, 1, start=50))[0]  # no rewind: all was forgotten
    assert one.segment < two.segment < three.segment
    assert one.epoch == two.epoch == three.epoch
    assert two.index == three.index == 0


def test_a_camera_that_speeds_up_is_not_sampled_in_a_burst():
    sampler = Sampler()
    push_all(sampler, stamps(5, 10))
    groups = push_all(sampler, stamps(30, 5, start=110))
    assert len(groups) == pytest.approx(20, abs=1)


@pytest.mark.parametrize(
    ("image", "stamp", "words"),
    [
        (np.zeros((4, 6, 3)), 0, "uint8"),
        (np.zeros((4, 6), np.uint8), 0, "(H, W, 3)"),
        (np.zeros((0, 6, 3), np.uint8), 0, "(H, W, 3)"),
        (np.zeros((4, 6, 4), np.uint8), 0, "(H, W, 3)"),
        ([[0]], 0, "list"),
        (IMAGE, 1.5, "nanoseconds"),
        (IMAGE, True, "nanoseconds"),
    ],
)
def test_what_is_no_frame_is_refused(image, stamp, words):
    with pytest.raises(InvalidFrameError) as caught:
        Frame(image, stamp)
    assert words in str(caught.value)


@pytest.mark.parametrize("bad", [{"fps": 0}, {"fps": float("nan")}, {"jitter_s": -1}])
def test_sampler_refuses_senseless_settings(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Sampler(**bad)
