"""The input side by itself: queue, generations, health."""

import threading

import pytest
from fakes import START_NS, Camera

from vlm_decisions.frames import NS
from vlm_decisions.runtime.intake import Intake
from vlm_decisions.runtime.settings import RuntimeSettings
from vlm_decisions.runtime.statistics import Meter


def intake(**settings):
    settings, meter = RuntimeSettings(**settings), Meter(lambda: 0.0)
    one = Intake(settings, meter)
    return one, one.open(settings), meter


def feed(one, begin_s, seconds, camera=None, fps=8):
    camera = camera or Camera()
    arrivals = []
    for index in range(round(seconds * fps)):
        stamp_ns = START_NS + round((begin_s + index / fps) * NS)
        arrivals.append(one.push(camera.frame(stamp_ns), stamp_ns))
    return arrivals


def test_groups_come_out_in_order_and_the_oldest_are_dropped():
    one, queue, meter = intake(queue_groups=3)
    feed(one, 0, 2)
    assert len(queue) == 3
    assert meter.dropped() == {"queue": 5}
    taken = [queue.take() for _ in range(4)]
    assert [group.index for group, _, _ in taken[:3]] == [5, 6, 7]
    assert [more for _, _, more in taken] == [True, True, False, False]
    assert taken[3][0] is None


def test_the_newest_only():
    one, queue, meter = intake()
    feed(one, 0, 1)
    group, _, more = queue.take(newest_only=True)
    assert (group.index, more) == (3, False)
    assert meter.dropped() == {"catch_up": 3}


def test_a_rewind_begins_a_generation_and_empties_the_queue():
    one, queue, meter = intake()
    feed(one, 10, 1)
    assert (len(queue), one.generation) == (4, 0)
    camera = Camera()
    one_back = one.push(camera.frame(START_NS + 5 * NS), START_NS + 11 * NS)
    assert (one_back.frame, one_back.reset_reason) == (None, ""), "one stamp proves nothing"
    back = one.push(camera.frame(START_NS + 5 * NS + NS // 8), START_NS + 11 * NS + NS // 8)
    assert back.reset_reason == "image time went backwards"
    assert meter.dropped() == {"reset": 4}
    # Of the new time nothing is lost: the first group is that of the two frames.
    assert (len(queue), one.generation) == (1, 1)
    group, generation, _ = queue.take()
    assert (generation, group.t_start_ns) == (1, START_NS + 5 * NS)


def test_image_time_and_clock_going_back_are_told_apart():
    one, queue, _ = intake()
    camera = Camera()
    one.push(camera.frame(START_NS), START_NS)
    one.push(camera.frame(START_NS - 5 * NS), START_NS + NS)
    back = one.push(camera.frame(START_NS - 5 * NS + NS // 8), START_NS + NS + NS // 8)
    assert back.reset_reason == "image time went backwards"
    clock = one.push(camera.frame(START_NS - 4 * NS), START_NS - 4 * NS)
    assert clock.reset_reason == "the clock went backwards"
    assert one.generation == 2
    assert one.note_clock(START_NS - 4 * NS - NS // 4) == ""  # slewed, not set


def test_late_frames_have_no_health():
    one, queue, meter = intake()
    camera = Camera()
    for offset_ms in (0, 125, 100, 250):
        arrival = one.push(camera.frame(START_NS + offset_ms * 1_000_000), START_NS)
        assert (arrival.health is None) == (offset_ms == 100)
    assert meter.dropped() == {"late": 1}


def test_no_group_holds_a_frame_of_an_unusable_camera():
    one, queue, meter = intake(queue_groups=64)
    camera = Camera()
    feed(one, 0, 1, camera)
    camera.cover = 0
    states = feed(one, 1, 2, camera)
    assert states[-1].health.reason == "camera dark and occluded"
    assert len(queue) == 0, "those that waited would be answered too late"
    camera.cover = None
    feed(one, 3, 3, camera)
    assert meter.dropped()["unusable"] > 4
    groups = [queue.take()[0] for _ in range(len(queue))]
    assert groups
    assert min(frame.image.mean() for group in groups for frame in group.frames) > 50
    assert len({group.segment for group in groups}) == 1


def test_a_group_is_there_to_encode_while_tier_0_looks_at_it_and_to_use_only_after_that():
    one, queue, _ = intake()
    camera = Camera()
    one.push(camera.frame(START_NS), START_NS)
    look, seen = one._monitor.update, threading.Event()
    one._monitor.update = lambda frame: seen.wait(10.0) and look(frame)
    stamp_ns = START_NS + NS // 8
    pushing = threading.Thread(target=one.push, args=(camera.frame(stamp_ns), stamp_ns))
    pushing.start()
    with one.changed:
        assert one.changed.wait_for(lambda: len(queue), 10.0)
    group = queue.take()[0]
    told = []
    asking = threading.Thread(target=lambda: told.append(queue.fit(group)))
    asking.start()
    asking.join(0.1)
    assert not told, "said before Tier 0 had seen it"
    seen.set()
    asking.join(10.0)
    pushing.join(10.0)
    assert told == [True]


def test_what_is_in_work_when_the_camera_becomes_unusable_is_not_fit():
    one, queue, _ = intake()
    camera = Camera()
    look, taken = one._monitor.update, []

    def look_late(frame):
        group, _, _ = queue.take()  # the engine is quicker than Tier 0
        if group is not None:
            taken.append(group)
        return look(frame)

    one._monitor.update = look_late
    feed(one, 0, 1, camera)
    assert len(taken) == 4 and all(queue.fit(group) for group in taken)
    camera.cover = 0
    feed(one, 1, 2, camera)
    assert not any(queue.fit(group) for group in taken), "of a window that has ended"
    camera.cover = None
    before = len(taken)
    feed(one, 3, 3, camera)
    assert len(taken) > before and all(queue.fit(group) for group in taken[before:])


def test_a_group_that_tier_0_fails_on_is_not_used():
    one, queue, _ = intake()
    camera = Camera()
    one.push(camera.frame(START_NS), START_NS)
    look, taken = one._monitor.update, []

    def fail(frame):
        taken.append(queue.take()[0])
        raise RuntimeError("broken")

    one._monitor.update = fail
    with pytest.raises(RuntimeError, match="broken"):
        one.push(camera.frame(START_NS + NS // 8), START_NS + NS // 8)
    assert not queue.fit(taken[0])
    one._monitor.update = look
    feed(one, 1, 1, camera)
    group = queue.take()[0]
    assert queue.fit(group) and group.index == 0


def test_the_image_rate_is_on_frame_time():
    one, queue, _ = intake()
    assert one.image_rate_hz() == 0.0
    feed(one, 0, 4, fps=30)
    assert abs(one.image_rate_hz() - 30) < 0.01


def test_images_that_stopped_are_no_slow_rate():
    one, _, _ = intake()
    feed(one, 0, 3, fps=15)
    assert not one.silent(0.9) and one.silent(1.1)
    slow, _, _ = intake()
    feed(slow, 0, 20, fps=0.5)
    assert not slow.silent(9.0) and slow.silent(11.0)


def test_a_pause_is_no_slow_rate():
    one, queue, _ = intake()
    camera = Camera()
    feed(one, 0, 3, camera, fps=15)
    feed(one, 20, 0.2, camera, fps=15)
    assert abs(one.image_rate_hz() - 15) < 0.5
    slow, _, _ = intake()
    feed(slow, 0, 20, fps=0.5)
    assert abs(slow.image_rate_hz() - 0.5) < 0.01
