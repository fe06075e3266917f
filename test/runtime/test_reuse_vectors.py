"""Reuse by a video's motion vectors: what they say changed, who is refused, and losses."""

from __future__ import annotations

import av
import numpy as np
import pytest
from fakes import START_NS, Bench, FakeEngine, FakeReusing
from video_packets import encoded

from vlm_decisions.frames import NS, Frame
from vlm_decisions.motion import CELL, over_patches
from vlm_decisions.reuse import ReuseSettings
from vlm_decisions.sources.packets import PacketDecoder
from vlm_decisions.sources.pictures import ImageError
from vlm_decisions.sources.video import VideoFile
from vlm_decisions.views import View

SIZE = 96, 128
TOKEN = 16
STILL = 13  # picture from which on nothing moves, the second of its group


def moving(number, size=SIZE):
    """Return a picture whose left half never changes; a square moves on the right until STILL."""
    rgb = np.random.default_rng(0).integers(90, 110, (*size, 3), dtype=np.uint8)
    top = 8 + 4 * min(number, STILL)
    rgb[top : top + 24, 88:112] = np.random.default_rng(1).integers(0, 255, (24, 24, 3), np.uint8)
    return rgb


@pytest.fixture(scope="module")
def film():
    """Return 24 packets with one keyframe."""
    packets, _ = encoded("h264", 24, gop=100, size=SIZE, paint=moving,
                         options={"preset": "fast", "crf": "18"})
    return packets


def decoded(packets, codec="h264", vectors=True):
    decoder = PacketDecoder(codec, vectors=vectors)
    for packet in packets:
        for rgb, stamp_ns in decoder.decode(packet.data, START_NS + packet.number * NS // 8):
            yield rgb, stamp_ns, decoder.motions.get(stamp_ns)


def test_cells_change_where_something_moved_and_nowhere_else(film):
    motions = [motion for _, _, motion in decoded(film)]
    assert [motion.number for motion in motions] == list(range(1, 25))
    assert motions[0].changed_at.shape == (SIZE[0] // CELL, SIZE[1] // CELL)
    assert (motions[0].changed_at == 1).all(), "a keyframe changes every cell"
    early = motions[STILL - 2].since(motions[2])
    assert early[:, 88 // CELL : 112 // CELL].any() and not early[:, : 64 // CELL].any()
    assert not motions[-1].since(motions[STILL + 2]).any(), "nothing has moved since"
    assert motions[5].since(None).all()
    assert not np.array_equal(motions[9].since(motions[8]), motions[9].since(motions[2]))


def test_without_vectors_or_in_another_codec_there_is_no_motion(film):
    assert {motion for _, _, motion in decoded(film, vectors=False)} == {None}
    hevc, _ = encoded("hevc", 4, size=SIZE, paint=moving)
    assert {motion for _, _, motion in decoded(hevc, "hevc")} == {None}


def test_what_was_lost_begins_another_run(film):
    again, _ = encoded("h264", 24, gop=8, size=SIZE, paint=moving)
    decoder, motions = PacketDecoder("h264", vectors=True), []
    for packet in again[:10] + again[11:]:  # the second picture of a group of pictures is lost
        try:
            for _, stamp_ns in decoder.decode(packet.data, packet.number):
                motions.append(decoder.motions[stamp_ns])
        except ImageError:
            continue
    runs = [motion.run for motion in motions]
    assert len(set(runs)) == 2 and runs[0] != runs[-1]
    assert motions[-1].since(motions[0]).all(), "nothing is known across a loss"


def test_a_video_file_tells_its_motion(tmp_path, film):
    path = tmp_path / "film.mp4"
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=8)
        stream.height, stream.width, stream.pix_fmt = *SIZE, "yuv420p"
        for number in range(24):
            frame = av.VideoFrame.from_ndarray(moving(number), format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    video = VideoFile(path, vectors=True)
    numbers = [video.motion.number for _ in video]
    assert numbers == list(range(1, 25))
    plain = VideoFile(path)
    assert plain.next() is not None and plain.motion is None


def test_patches_take_the_largest_of_the_cells_that_overlap_them():
    cells = np.zeros((6, 8), bool)
    cells[2, 3] = True
    assert np.argwhere(over_patches(cells, (3, 4))).tolist() == [[1, 1]]
    assert np.argwhere(over_patches(cells, (4, 5))).tolist() == [[1, 1], [1, 2]]


class Told(FakeReusing):
    """Notes which tokens it was told of, and whether something was lost."""

    def __init__(self, engine):
        super().__init__(engine)
        self.changed, self.losses = [], 0

    def grid(self, frames):
        return frames[0].shape[0] // TOKEN, frames[0].shape[1] // TOKEN

    def lost(self):
        self.losses += 1

    def encode(self, frames, changed=None):
        self.changed.append(changed)
        return super().encode(frames)


class Engine(FakeEngine):
    def reusing(self, settings, pixel_budget=None):
        self.told = Told(self)
        return self.told


def bench(questions="- {id: person, text: p}"):
    return Bench(questions, Engine(), reuse=ReuseSettings("vectors"))


def film_into(one, packets, vectors=True, camera=None):
    for rgb, stamp_ns, motion in decoded(packets, vectors=vectors):
        one.clock.until_ns(stamp_ns)
        one.runtime.push(Frame(rgb, stamp_ns, "cam", 0, motion), camera)
        while one.runtime.step():
            pass


def test_the_encoder_is_told_what_the_video_says(film):
    one = bench()
    film_into(one, film)
    told = one.engine.told.changed
    assert len(told) >= 9 and told[0].all() and told[0].shape == (6, 8)
    for changed in told[1:6]:
        assert changed[:, 5:].any() and not changed[:, :4].any()
    assert not any(changed.any() for changed in told[8:])
    assert one.engine.told.losses == 0 and "yes" in one.answers("person")


def test_what_moved_within_a_group_has_changed_in_the_next(film):
    """The group that ends at STILL shows motion; the one after it shows none, so is another."""
    one = bench()
    film_into(one, film)
    told = one.engine.told.changed
    assert told[STILL // 2].any() and told[STILL // 2 + 1].any()
    assert not told[STILL // 2 + 2].any()


def test_a_loss_is_told_to_the_encoder():
    packets, _ = encoded("h264", 40, gop=8, size=SIZE, paint=moving)
    one, decoder = bench(), PacketDecoder("h264", vectors=True)
    for packet in packets[:10] + packets[11:]:
        stamp_ns = START_NS + packet.number * NS // 8
        one.clock.until_ns(stamp_ns)
        try:
            pictures = decoder.decode(packet.data, stamp_ns)
        except ImageError:
            continue
        for rgb, shown_ns in pictures:
            one.runtime.push(Frame(rgb, shown_ns, "cam", 0, decoder.motions[shown_ns]))
        while one.runtime.step():
            pass
    assert one.engine.told.losses == 1 and one.engine.told.changed[-1] is not None


def test_a_camera_without_vectors_is_refused_by_name_and_the_other_lives(film):
    one = bench("""
views: {raw: {image: /raw}, video: {image: /video, region: [0, 0, 0.5, 1]}}
questions: [{id: person, text: p}]
""")
    film_into(one, film[:16], camera=View("video", "/video").camera)
    assert {changed.shape for changed in one.engine.told.changed} == {(6, 4)}
    assert not any(changed.any() for changed in one.engine.told.changed[1:]), "its half is still"
    film_into(one, film[:8], vectors=False, camera=View("raw", "/raw").camera)
    answers = {d.view: d for d in one.of("person") if d.view == "raw" or d.answer == "yes"}
    assert answers["video"].answer == "yes"
    assert "view 'raw': reuse: vectors needs the motion vectors of a video" in answers["raw"].reason
