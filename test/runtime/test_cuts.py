"""Cuts: what counts as one, the group across it, and the smoothing after it."""

import numpy as np
import pytest
from fakes import START_NS, Bench, Camera, FakeEngine

from vlm_decisions.decision import NO, YES
from vlm_decisions.frames import NS
from vlm_decisions.runtime.cuts import CutFinder

RNG = np.random.default_rng(4)


def scene(seed):
    rng = np.random.default_rng(seed)
    coarse = rng.integers(40, 215, (6, 8)).astype(np.uint8)
    return coarse.repeat(40, axis=0).repeat(40, axis=1)[..., None].repeat(3, axis=2)


def look(finder, pairs):
    """Show pairs of images; return for which a cut parts the two, and `cut_ns` after each."""
    parted, cuts = [], []
    for k, pair in enumerate(pairs):
        noisy = [np.clip(image + RNG.integers(-2, 3, image.shape), 0, 255).astype(np.uint8)
                 for image in pair]
        parted.append(finder.look(noisy, (10 * k + 10, 10 * k + 15)))
        cuts.append(finder.cut_ns)
    return parted, cuts


def test_a_cut_lies_in_a_group_or_between_two():
    a, b = scene(1), scene(2)
    parted, cuts = look(CutFinder(0.1), [(a, a), (a, a), (a, b), (b, b), (a, a), (a, a)])
    assert parted == [False, False, True, False, False, False]
    assert cuts == [0, 0, 35, 35, 50, 50]


def test_a_camera_that_moves_a_light_and_a_small_thing_are_no_cuts():
    wide = np.concatenate([scene(k) for k in range(8)], axis=1)

    def at(step):
        return wide[:, 30 * step:30 * step + 320]

    assert look(CutFinder(0.1), [(at(2 * k), at(2 * k + 1)) for k in range(15)])[1][-1] == 0
    a = scene(1)
    dim, thing = (a * 0.85).astype(np.uint8), a.copy()
    thing[60:120, 60:120] = 255 - thing[60:120, 60:120]
    pairs = [(a, a), (a, a), (a, dim), (dim, a), (a, thing), (thing, a)]
    assert look(CutFinder(0.1), pairs)[1][-1] == 0
    assert look(CutFinder(0.02), pairs)[1][-1] > 0, "the thing is a twentieth of the picture"
    assert look(CutFinder(None), [(a, a), (a, a), (a, scene(2))])[1][-1] == 0


def test_nothing_is_a_cut_before_it_is_known_what_is_usual():
    finder = CutFinder(0.1)
    assert look(finder, [(scene(1), scene(2))])[1] == [0]
    look(finder, [(scene(2), scene(2))] * 4 + [(scene(2), scene(3))])
    assert finder.cut_ns
    finder.forget()
    assert finder.cut_ns == 0 and look(finder, [(scene(1), scene(2))])[1] == [0]


class TwoScenes(Camera):
    """Another scene from the frame number `cut_at` on."""

    def __init__(self, cut_at):
        super().__init__(size=(240, 320))
        self.cut_at, self.count = cut_at, 0

    def image(self):
        self.count += 1
        shown = scene(1 if self.count <= self.cut_at else 2).astype(int)
        if self.count > self.cut_at:
            shown[..., 0] += 30  # what the fake engine sees
        return np.clip(shown + self._rng.integers(0, 3, shown.shape), 0, 255).astype(np.uint8)


def cut_at(frame, questions, **settings):
    """Film 8 s at 8 Hz with a cut before the frame of that number; yes is right after it."""
    engine = FakeEngine(answer=lambda _, vision: float(
        np.clip((vision.mean[0] - vision.mean[1]) / 30, 0.02, 0.98)))
    bench = Bench(questions, engine, **settings)
    bench.camera = TwoScenes(frame)
    bench.film(0, 8)
    bench.run(8)
    return bench


SLOW = """
- {id: q, text: q, ema: 0.4}
- {id: rare, text: rare, rate_hz: 0.5}
- {id: stands, text: stands, ask: on_change, change: 2, refresh_s: 3600}
"""


@pytest.mark.parametrize(("frame", "first_s"), [(33, 4.375), (32, 4.125)])
def test_after_a_cut_the_answer_is_that_of_the_first_picture_by_itself(frame, first_s):
    bench = cut_at(frame, SLOW)
    times = bench.times("q")
    assert (4.125 in times) == (frame == 32), "the group across the cut is not asked about"
    for name in ("q", "rare", "stands"):
        first = next(d for d in bench.of(name) if d.answer == YES)
        assert first.t_end_ns == START_NS + round(first_s * NS), name
        assert first.p == pytest.approx(first.p_raw)
        assert [d.answer for d in bench.of(name) if d.t_end_ns < first.t_end_ns][1:].count(NO) > 0
    stats = bench.runtime.stats()
    assert stats.cuts == (frame == 33) and stats.skipped == 0
    assert bench.runtime.stats().ticks == 32, "it is encoded and appended like any other"
    # The onset lies in the gap of the looks, which the cut is in.
    last = bench.of("q")[-1]
    assert abs(last.t_onset_ns - START_NS - round(frame / 8 * NS)) <= NS / 8


def test_without_cuts_a_group_across_one_is_asked_about_and_averaged():
    bench = cut_at(33, SLOW, cut=None)
    assert 4.125 in bench.times("q") and bench.runtime.stats().cuts == 0
    first = next(d for d in bench.of("q") if d.answer == YES)
    assert first.t_end_ns > START_NS + round(4.375 * NS)


def test_of_two_groups_in_a_row_the_second_is_asked_about():
    bench = Bench("- {id: q, text: q}")
    bench.camera = TwoScenes(10**6)
    bench.film(0, 4)
    bench.run(4)
    shown = [1, 2, 3, 1, 2, 3]  # nothing but cuts
    for k in range(12):
        bench.camera.cut_at = 10**6
        image = scene(shown[k % 6])
        bench.clock.at(4 + k / 8, lambda image=image, k=k: bench.runtime.push(
            type(bench.camera.frame(1))(image, START_NS + round((4 + k / 8) * NS), "camera")))
    bench.run(6)
    late = [t for t in bench.times("q") if t > 4]
    assert len(late) >= 3, "a picture that never stands still is judged all the same"


def test_a_model_that_sees_the_newest_frame_alone_has_no_group_across_a_cut():
    class Single(FakeEngine):
        def encode(self, frames, **sized):
            return super().encode([frames[-1], frames[-1]], **sized)

    engine = Single(n_frames=1, answer=lambda _, vision: 0.9)
    bench = Bench("- {id: q, text: q}", engine)
    bench.camera = TwoScenes(33)
    bench.film(0, 8)
    bench.run(8)
    assert 4.125 in bench.times("q") and bench.runtime.stats().cuts == 1
