"""Freshness and faults of the runtime, on simulated time: `unknown` where nothing is known."""

import dataclasses
import math

import pytest
from fakes import START_NS, Bench, Camera, FakeEngine

from vlm_decisions.decision import NO, TIER_HEALTH, UNKNOWN, YES
from vlm_decisions.frames import NS
from vlm_decisions.questions import Question

ONE = "- {id: person, text: is there a person}"


def test_unknown_when_images_stop_and_recovery_within_one_window():
    bench = Bench(ONE, max_age_s=1.0)
    bench.film(0, 3)
    bench.film(8, 10)
    bench.run(10)
    decisions = bench.of("person")
    unknown = [d for d in decisions if d.answer == UNKNOWN and d.t_decided_ns > START_NS + 3 * NS]
    first = unknown[0]
    assert "no image for 1." in first.reason
    assert first.changed
    # At the first check after max_age_s, and said again while it lasts.
    assert 1.0 < (first.t_decided_ns - START_NS) / NS - 2.875 <= 1.1
    assert len(unknown) == pytest.approx(5, abs=1)
    assert [d.changed for d in unknown[1:]] == [False] * (len(unknown) - 1)
    assert math.isnan(first.p)
    assert first.age_s > 1.0
    back = next(d for d in decisions if d.t_end_ns >= START_NS + 8 * NS)
    assert (back.answer, back.changed) == (YES, True)
    assert back.t_end_ns == START_NS + round(8.125 * NS)
    health = bench.answers("camera_dark")
    assert health[0] == health[-1] == NO
    assert UNKNOWN in health


def test_slow_questions_do_not_wait_for_their_turn_after_an_interruption():
    bench = Bench(
        "- {id: slow, text: s, rate_hz: 0.05}\n- {id: faulty, text: overflow, rate_hz: 0.05}"
    )
    bench.film(0, 4)
    bench.film(8, 40)
    bench.clock.at(12, lambda: setattr(bench.camera, "cover", 0))
    bench.clock.at(16, lambda: setattr(bench.camera, "cover", None))
    bench.run(30)
    told = [(d.answer, round((d.t_decided_ns - START_NS) / NS)) for d in bench.of("slow")]
    known = [t_s for answer, t_s in told if answer == YES]
    assert known[0] == 0
    assert 8 <= known[1] <= 9  # images are back
    assert 12 <= known[2] <= 13  # a cut, to what is not yet known to be dark
    assert 16 <= known[3] <= 18  # the camera is uncovered
    assert len(known) == 4  # and never more often than that
    asked = [text for _, texts in bench.engine.calls("ask") for text in texts]
    assert asked.count("overflow") <= 6  # in the batch, and by itself: not at every group


def test_before_the_first_image_everything_is_unknown():
    bench = Bench(ONE)
    bench.run(3)
    assert {(d.answer, d.reason) for d in bench.decisions} == {(UNKNOWN, "no image yet")}
    assert len(bench.of("person")) == 3  # once a second
    assert {d.question_id for d in bench.decisions} >= {"person", "camera_frozen"}


def test_an_unusable_camera_makes_answers_unknown_with_its_reason():
    bench = Bench(ONE)
    bench.film(0, 8, fps=30)
    bench.clock.at(2.01, lambda: setattr(bench.camera, "cover", 0))
    bench.clock.at(4.01, lambda: setattr(bench.camera, "cover", None))
    bench.run(8)
    dark = [d for d in bench.of("person") if d.answer == UNKNOWN]
    times = [(d.t_decided_ns - START_NS) / NS for d in dark]
    assert 2.0 < times[0] < 4.0
    assert "camera" in dark[0].reason
    assert "dark" in dark[-1].reason
    assert {"camera_dark", "camera_occluded"} <= {
        d.question_id for d in bench.decisions if d.tier == TIER_HEALTH and d.answer == YES
    }
    # Nothing of the dark is in a window, and answers are back within one.
    back = [t for t in bench.times("person") if t > times[0]]
    assert 4.0 < back[0] < 6.0
    known = [t for t in bench.times("person") if t < times[0]]
    assert not any(known[-1] < t < back[0] for t in bench.times("person"))
    assert bench.runtime.stats().dropped["unusable"] > 0
    # The group in which the camera is covered shows two pictures, and is not asked about.
    assert len(bench.engine.calls("encode")) == len(bench.times("person")) + 1


def test_a_frozen_camera_makes_answers_unknown():
    bench = Bench(ONE)
    bench.film(0, 2)
    still = bench.camera.image()
    bench.clock.at(1.99, lambda: setattr(bench.camera, "image", still.copy))
    bench.film(2, 6)
    bench.run(6)
    last = bench.of("person")[-1]
    assert (last.answer, last.reason) == (UNKNOWN, "camera frozen")
    first = next(d for d in bench.of("person") if d.reason)
    assert 3.0 <= (first.t_decided_ns - START_NS) / NS <= 3.3


def test_time_going_backwards_resets_everything_and_recovers():
    bench = Bench("- {id: person, text: p, rate_hz: 1}")
    bench.film(0, 5)
    for index in range(24):  # a bag that begins again, arriving later
        bench.clock.at(5 + index / 8, lambda index=index: bench.shoot(4.8 + index / 8 - 0.5))
    bench.run(8)
    unknown = [d for d in bench.of("person") if d.reason == "image time went backwards"]
    assert len(unknown) == 1
    assert unknown[0].t_end_ns == START_NS + round(4.425 * NS)  # the frame that proved it
    index = bench.decisions.index(unknown[0])
    after = [d for d in bench.decisions[index + 1 :] if d.question_id == "person"]
    assert after[0].answer == YES
    assert after[0].changed
    assert (after[0].t_end_ns - START_NS) / NS == pytest.approx(4.425)  # its first group
    assert bench.runtime.stats().segments == 2


def test_results_of_an_older_run_of_time_are_dropped():
    """A rewind arrives while the engine works on a group from before it."""
    bench = Bench(ONE, FakeEngine(ask_s=0.5))
    bench.film(0, 0.25)
    bench.clock.at(0.3, lambda: bench.shoot(-1.0))
    bench.clock.at(0.4, lambda: bench.shoot(-0.9))
    bench.run(1.0, check_s=None)
    assert set(bench.answers("person")) == {UNKNOWN}
    assert bench.runtime.stats().dropped["outdated"] == 1


def test_the_clock_going_backwards_resets():
    bench = Bench(ONE)
    bench.film(0, 3)
    bench.run(3, check_s=None)
    bench.clock.now_ns -= 100 * NS
    bench.runtime.check_freshness()
    assert bench.of("person")[-1].reason == "the clock went backwards"
    bench.shoot(-97.0)
    bench.clock.advance(0.125)
    bench.shoot(-96.875)
    bench.run(-96.5, check_s=None)
    assert bench.answers("person")[-1] == YES


def test_an_engine_that_hangs_is_noticed_after_the_clock_went_back_behind_an_addition():
    bench = Bench(ONE)
    bench.clock.now_ns += 100 * NS
    bench.runtime.push(bench.camera.frame(bench.clock.now_ns))
    bench.runtime.add_question(Question("late", "late"))
    bench.clock.now_ns -= 100 * NS
    bench.film(0, 10)
    bench.run(3)
    assert bench.answers("late")[-1] == bench.answers("person")[-1] == YES
    bench.engine.ask_s = 6.0
    bench.run(4, check_s=None)
    for name in ("late", "person"):
        reasons = [d.reason for d in bench.of(name) if d.answer == UNKNOWN]
        assert any(reason.startswith("no answer for") for reason in reasons), name


def test_reset_by_hand():
    bench = Bench(ONE)
    bench.film(0, 3)
    bench.run(3, check_s=None)
    bench.runtime.reset("the clock jumped")
    assert bench.of("person")[-1].reason == "the clock jumped"
    bench.runtime.check_freshness()
    assert bench.runtime.stats().condition == "no image since the clock jumped"


@pytest.mark.parametrize(
    ("offset_s", "words"), [(-10.0, "the newest image is 10."), (10.0, "ahead of the clock")]
)
def test_stamps_far_from_the_clock_are_never_answers(offset_s, words):
    bench = Bench(ONE)
    for index in range(24):
        bench.clock.at(index / 8, lambda index=index: bench.shoot(index / 8 + offset_s))
    bench.run(3)
    assert set(bench.answers("person")) == {UNKNOWN}
    assert words in bench.of("person")[-1].reason
    # What an old picture shows is not the camera's state now; one of the future is of now.
    assert set(bench.answers("camera_dark")) == {UNKNOWN if offset_s < 0 else NO}
    if offset_s < 0:
        assert words in bench.of("camera_dark")[-1].reason


def test_evidence_that_outlives_the_limit_in_the_engine_is_no_answer():
    bench = Bench(ONE, FakeEngine(ask_s=3.08), unknown_period_s=0.05)
    bench.film(0, 10)
    bench.run(10, check_s=None)
    assert set(bench.answers("person")) == {UNKNOWN}
    # Arriving frames notice first that no answer comes; then one comes, but from too long ago.
    reasons = [decision.reason for decision in bench.of("person")]
    assert reasons[0].startswith("no answer for 2.")
    assert any(reason.startswith("the evidence is 3.") for reason in reasons)


def test_groups_farther_apart_than_answers_may_be_old_are_no_silence():
    bench = Bench(ONE, fps=0.9)
    bench.film(0, 12)
    bench.run(12)
    answers = bench.answers("person")
    assert YES in answers and UNKNOWN not in answers[answers.index(YES):]


def test_an_engine_that_hangs_is_noticed():
    bench = Bench(ONE)
    bench.film(0, 1)
    bench.run(1)
    assert bench.answers("person")[-1] == YES
    for index in range(40):  # frames go on, the engine does not
        bench.clock.until(1 + index / 8)
        bench.shoot(1 + index / 8)
        bench.runtime.check_freshness()
    unknown = [d for d in bench.of("person") if d.answer == UNKNOWN]
    assert "no answer for 2." in unknown[0].reason
    assert bench.answers("person")[-1] == UNKNOWN


def test_a_slow_question_is_not_stale_between_its_answers():
    bench = Bench("- {id: slow, text: s, rate_hz: 0.2}", max_age_s=1.0)
    bench.film(0, 20)
    bench.run(20)
    assert UNKNOWN not in bench.answers("slow")[1:]
    assert len(bench.times("slow")) == 4


def test_one_question_that_overflows_does_not_stop_the_others():
    bench = Bench("- {id: bad, text: overflow}\n- {id: a, text: a}\n- {id: b, text: b}")
    bench.film(0, 3)
    bench.run(3)
    assert set(bench.answers("a")) == set(bench.answers("b")) == {YES}
    assert len(bench.times("a")) == len(bench.times("b")) == 12
    assert set(bench.answers("bad")) == {UNKNOWN}
    assert bench.of("bad")[-1].reason == "'overflow' is too long"
    assert bench.errors == ["question 'bad': 'overflow' is too long"]
    # It is kept out of the batch from then on: the others are asked together.
    assert bench.engine.calls("ask")[-2:] == [("ask", ("a", "b")), ("ask", ("overflow",))]
    bench.runtime.replace_question("bad", text="good")
    bench.film(3, 4)
    bench.run(4)
    assert bench.answers("bad")[-1] == YES
    assert bench.engine.calls("ask")[-1] == ("ask", ("good", "a", "b"))


@pytest.mark.parametrize("call", ["encode", "append", "pass", "ask", "reset"])
def test_a_raising_engine_answers_unknown_with_the_reason_and_recovers(call):
    bench = Bench(ONE)
    bench.film(0, 8)
    fault = RuntimeError("out of memory")
    bench.clock.at(2.01, lambda: bench.engine.fail.__setitem__(call, fault))
    if call == "reset":
        bench.clock.at(2.01, lambda: bench.engine.fail.__setitem__("ask", fault))
    bench.clock.at(4.01, bench.engine.fail.clear)
    bench.run(8)
    during = [d for d in bench.of("person") if 2.1 < (d.t_decided_ns - START_NS) / NS < 4.0]
    assert len(during) >= 7
    assert {d.answer for d in during} == {UNKNOWN}
    assert all("out of memory" in d.reason for d in during)
    assert bench.errors
    assert all("out of memory" in message for message in bench.errors)
    # Back on the first group after the fault.
    back = [t for t in bench.times("person") if t > 4.0]
    assert back[0] <= 4.375
    assert len(back) >= 15


def test_a_failed_state_is_rebuilt_from_cached_features():
    bench = Bench(ONE, window_groups=4)
    bench.film(0, 3)
    bench.clock.at(2.01, lambda: bench.engine.fail.__setitem__("ask", RuntimeError("lost")))
    bench.clock.at(2.2, bench.engine.fail.clear)
    bench.run(3)
    log = [entry[0] for entry in bench.engine.log if entry[0] != "idle"]
    assert log.count("encode") == 12
    resets = [index for index, name in enumerate(log) if name == "reset"]
    assert len(resets) == 2  # the first window's begin, and this
    # The last window and the new group, none of them encoded again.
    assert log[resets[1] :][:7] == ["reset", *["pass"] * 5, "ask"]


def test_an_answer_that_is_no_number_is_unknown():
    bench = Bench(ONE, FakeEngine(answer=lambda *_: float("nan")))
    bench.film(0, 1)
    bench.run(1)
    assert set(bench.answers("person")) == {UNKNOWN}
    assert "not finite" in bench.of("person")[-1].reason


def test_an_output_that_is_no_list_of_numbers_is_that_question_s_fault_alone():
    two = "- {id: a, text: a, kind: choice, options: [x, y]}\n- {id: b, text: b}"
    bench = Bench(two, FakeEngine(answer=lambda text, _: [[1.0, 2.0]] * 2 if text == "a" else 0.9))
    bench.film(0, 2)
    bench.run(2)
    assert set(bench.answers("a")) == {UNKNOWN} and "not valid" in bench.of("a")[-1].reason
    assert bench.answers("b")[-1] == YES and len(bench.times("b")) == 8


def test_answers_of_the_wrong_number_are_unknown():
    bench = Bench(
        "- {id: c, text: c, kind: choice, options: [x, y]}\n- {id: a, text: a}",
        FakeEngine(answer=lambda text, _: [1, 0, 0] if text == "c" else 0.9),
    )
    bench.film(0, 1)
    bench.run(1)
    assert set(bench.answers("c")) == {UNKNOWN}
    assert "2 probabilities wanted" in bench.of("c")[-1].reason
    assert set(bench.answers("a")) == {YES}


def test_a_raising_outlet_is_reported_and_stops_nothing():
    bench = Bench(ONE)
    heard = []
    end = bench.runtime.listen(lambda decision: 1 / 0)
    bench.runtime.listen(heard.append)
    bench.film(0, 2)
    bench.run(1)
    assert any(message.startswith("decisions could not be handed on\n") for message in bench.errors)
    assert any("ZeroDivisionError" in message for message in bench.errors)
    count = len(bench.errors)
    end()
    bench.run(2)
    assert len(bench.errors) == count
    assert bench.runtime.stats().ticks == 8
    # Those before and behind the faulty one miss nothing.
    assert len(heard) == len(bench.decisions) > 8


def test_a_full_disk_is_told_without_a_traceback():
    bench = Bench(ONE)

    def full(decision):
        raise OSError("decisions.jsonl: no space left")

    bench.runtime.listen(full)
    bench.film(0, 1)
    bench.run(1)
    # One message, the same for every decision: whoever tells it can tell it once.
    assert set(bench.errors) == {"decisions could not be handed on: decisions.jsonl: no space left"}
    assert not any("Traceback" in message for message in bench.errors)


def test_a_changing_resolution_begins_a_new_window():
    bench = Bench(ONE)
    bench.film(0, 2)
    bench.clock.at(1.99, lambda: setattr(bench, "camera", Camera((60, 80))))
    bench.film(2, 4)
    bench.run(4)
    assert bench.runtime.stats().segments == 2
    assert UNKNOWN not in bench.answers("person")
    assert bench.errors == []


@pytest.mark.parametrize("fps", [5, 10, 15])
def test_swapped_frames_and_a_wrong_stamp_make_no_answer_unknown(fps):
    bench = Bench(ONE)
    times = [index / fps for index in range(20 * fps)]
    for index in range(2 * fps, len(times) - 1, 2 * fps):
        times[index], times[index + 1] = times[index + 1], times[index]
    times[5 * fps + 2] += 0.4
    times[9 * fps + 3] -= 1.5
    for index, t_s in enumerate(times):
        bench.clock.at(index / fps, lambda t_s=t_s: bench.shoot(t_s))
    bench.run(20)
    assert UNKNOWN not in bench.answers("person")[1:]
    assert len(bench.times("person")) > 0.9 * 20 * min(8, fps) / 2
    stats = bench.runtime.stats()
    assert stats.breaks["rewinds"] == 0 and stats.dropped["late"] >= 9
    assert {d.answer for d in bench.of("camera_dark")} == {NO}


def two_cameras(bench, until_s, fps):
    for index in range(round(until_s * fps)):
        def shoot(index=index):
            frame = bench.camera.frame(START_NS + index * NS // fps)
            bench.runtime.push(dataclasses.replace(frame, frame_id=("left", "right")[index % 2]))

        bench.clock.at(index / fps, shoot)


def test_two_cameras_on_one_topic_share_no_window_and_are_named():
    bench = Bench(ONE)
    two_cameras(bench, 6, fps=16)
    bench.run(6)
    assert set(bench.answers("person")) == {UNKNOWN}, "one's answer would pass for the other's"
    said = "images of several cameras come in turn: frame_id 'left' and 'right'"
    assert bench.of("person")[-1].reason.endswith(said)
    stats = bench.runtime.stats()
    assert stats.mixture == said and stats.breaks["switched"] > 80
    bench.film(6, 10)
    bench.run(10)
    assert bench.answers("person")[-1] == YES and bench.runtime.stats().mixture == ""


def test_two_cameras_that_have_gone_are_no_mixture():
    """Neither while nothing comes, nor when one of them comes back."""
    bench = Bench(ONE)
    two_cameras(bench, 4, fps=16)
    bench.run(4)
    assert bench.runtime.stats().mixture
    bench.run(9)
    stats = bench.runtime.stats()
    assert stats.mixture == "" and stats.views[""].silent
    bench.film(9, 9.5)
    bench.run(9.5)
    stats = bench.runtime.stats()
    assert stats.mixture == "" and not stats.views[""].silent
    assert "several cameras" not in bench.of("person")[-1].reason


def test_two_sizes_in_turn_are_named():
    bench = Bench(ONE)
    cameras = Camera(), Camera((60, 80))
    for index in range(48):
        def shoot(index=index):
            bench.camera = cameras[index % 2]
            bench.shoot(index / 8)

        bench.clock.at(index / 8, shoot)
    bench.run(6)
    said = "images of several sizes come in turn: 64x48 and 80x60"
    assert set(bench.answers("person")) == {UNKNOWN}
    assert bench.of("person")[-1].reason.endswith(said)
    assert bench.runtime.stats().mixture == said and bench.runtime.stats().breaks["resized"] > 40


def test_one_switch_to_another_camera_is_no_mixture():
    bench = Bench(ONE)
    bench.film(0, 3)
    bench.run(3)
    for index in range(24):
        frame = bench.camera.frame(START_NS + (3 * 8 + index) * NS // 8)
        other = dataclasses.replace(frame, frame_id="other")
        bench.clock.at(3 + index / 8, lambda other=other: bench.runtime.push(other))
    bench.run(6)
    stats = bench.runtime.stats()
    assert (stats.breaks["switched"], stats.segments, stats.mixture) == (1, 2, "")
    assert UNKNOWN not in bench.answers("person")
    last = bench.of("person")[-1]
    assert last.frame_id == "other" and last.t_start_ns == START_NS + 3 * NS


def test_while_images_are_refused_the_reason_is_theirs():
    bench = Bench(ONE)
    bench.runtime.refuse("encoding 'yuv9' is not known")
    bench.run(1)
    assert bench.of("person")[-1].reason == "no image yet: encoding 'yuv9' is not known"
    bench.film(1, 3)
    for index in range(40):
        refuse = "step 7 is less than a row"
        bench.clock.at(3 + index / 8, lambda text=refuse: bench.runtime.refuse(text))
    bench.run(8)
    reason = bench.of("person")[-1].reason
    assert reason.startswith("no image for ") and reason.endswith(" s: step 7 is less than a row")
    bench.run(12)  # now nothing arrives at all
    assert bench.of("person")[-1].reason.endswith(" s")


def test_stamps_that_stand_still_are_named():
    bench = Bench(ONE)
    for index in range(80):
        bench.clock.at(index / 8, lambda: bench.shoot(0.0))
    bench.run(10)
    assert bench.of("person")[-1].reason.endswith(" s: image stamps do not advance")


def test_an_image_before_simulated_time_begins_is_no_old_one():
    bench = Bench(ONE)
    bench.clock.now_ns = 0
    bench.runtime.push(bench.camera.frame(START_NS))
    bench.runtime.check_freshness()
    assert bench.of("person")[-1].reason == "the clock stands at 0: simulated time has not begun"
    bench.clock.now_ns = START_NS
    bench.film(0.125, 2)
    bench.run(2)
    reasons = {d.reason for d in bench.of("person")}
    assert not any(reason.startswith("no image for") for reason in reasons), reasons
    assert bench.answers("person")[-1] == YES


def test_why_images_come_late_is_told_with_how_late_they_are():
    """Images that are lost on their way: what comes through is old, or answers stop."""
    lost = "1 publisher on /image, its images are lost in the middleware: read compressed images"
    for film in ({"delay_s": 6.0}, {"fps": 0.6}):
        bench = Bench(ONE)
        bench.film(0, 12, **film)
        for index in range(140):
            bench.clock.at(index / 10, lambda bench=bench: bench.runtime.refuse(lost))
        bench.run(12)
        reasons = [d.reason for d in bench.of("person") if d.answer == UNKNOWN]
        assert reasons and all(reason.endswith(f": {lost}") for reason in reasons), reasons


def test_a_single_image_left_out_is_no_reason_for_others_that_are_old():
    bench = Bench(ONE)
    bench.film(0, 12, delay_s=6.0)
    for index in range(24):  # a frame again that was there before
        bench.clock.at(6.01 + index / 2, lambda at_s=index / 2: bench.shoot(at_s))
    bench.run(12)
    reasons = [d.reason for d in bench.of("person") if "the newest image" in d.reason]
    assert reasons and not any("stamps" in reason for reason in reasons), reasons


def test_rates_fall_when_nothing_comes_any_more():
    bench = Bench(ONE)
    bench.film(0, 6)
    bench.run(6)
    stats = bench.runtime.stats()
    assert stats.image_rate_hz == pytest.approx(8) and stats.rates_hz["person"] > 3.5
    seen = []
    for until_s in (7, 9, 12):
        bench.run(until_s)
        stats = bench.runtime.stats()
        seen.append((stats.image_rate_hz, stats.rates_hz["person"]))
    assert seen == sorted(seen, reverse=True)
    assert seen[0][0] < 1.5 and seen[-1][0] < 0.2 and seen[-1][1] == 0.0


def test_the_rates_of_questions_fall_while_the_camera_is_unusable():
    bench = Bench(ONE)
    bench.film(0, 20)
    bench.clock.at(6, lambda: setattr(bench.camera, "cover", 0))
    bench.run(18)
    stats = bench.runtime.stats()
    assert stats.image_rate_hz == pytest.approx(8, rel=0.1) and stats.rates_hz["person"] == 0.0
