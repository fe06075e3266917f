"""Cameras that publish a compressed video, packet by packet, through a running node."""

import array
import itertools
import sys

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from diagnostic_msgs.msg import DiagnosticStatus
from fake_model import FakeModel
from ros_peer import system  # sets the environment for rclpy
from sensor_msgs.msg import CompressedImage
from video_packets import encoded, shown
from waiting import wait_for

from vlm_decisions.reuse import ReuseStats
from vlm_decisions.ros.convert import rgb_to_msg
from vlm_decisions.ros.parameters import ParameterError
from vlm_decisions.ros.subscription import message_type

ERROR = DiagnosticStatus.ERROR


def message(transport, codec, data, header):
    data = array.array("B", data)
    kind = message_type(transport)
    if transport == "compressed":
        return kind(header=header, format=codec, data=data)
    if transport == "ffmpeg":
        return kind(header=header, encoding=codec, data=data)
    return kind(timestamp=header.stamp, frame_id=header.frame_id, format=codec, data=data)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["compressed", "ffmpeg", "foxglove"])
@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_whole_pictures_with_their_own_stamps(tmp_path, capfd, transport, codec):
    try:
        kind = message_type(transport)
    except ParameterError as error:
        pytest.skip(str(error))
    packets, _ = encoded(codec, 200, gop=10, b_frames=0 if codec == "h264" else 2)
    truth = shown(codec, packets)
    sent = packets[3:24] + packets[25:]  # joined between keyframes, and one is lost
    coming, stamps_ns = iter(sent), {}

    def packet(rgb, stamp_ns):
        one = next(coming)
        # B frames are sent before pictures that they follow: each has its picture's stamp.
        stamps_ns[stamp_ns + (one.number - sent.index(one)) * 10**8] = one.number
        of_ns = next(reversed(stamps_ns))
        return message(transport, codec, one.data, rgb_to_msg(rgb, of_ns, "cam").header)

    with system(tmp_path, image_transport=transport) as s:
        wait_for(lambda: s.node._cameras)
        (images,) = s.node._cameras._subscriptions.values()
        seen, push = [], images._push
        images._push = lambda frame: (seen.append(frame), push(frame))
        s.peer.start_camera(f"/image/{transport}", make=packet, kind=kind, fps=20.0)
        wait_for(lambda: len(seen) >= 40)
        assert all(np.array_equal(frame.image, truth[stamps_ns[frame.stamp_ns]])
                   for frame in list(seen))
        assert images.refused["video"] >= 6 and seen[-1].frame_id == "cam"
        assert set(images.refused) == {"video"}
        assert wait_for(lambda: s.peer.newest("camera_frozen"))
    said = "".join(capfd.readouterr())
    assert f"image refused: {codec} video: the stream was joined between two keyframes" in said


def test_a_camera_that_never_sends_a_keyframe_is_told(tmp_path):
    packets, _ = encoded("h264", 30, gop=30, options={"tune": "zerolatency"})
    sent = itertools.cycle(packets[1:])

    def packet(rgb, stamp_ns):
        return message("compressed", "h264", next(sent).data,
                       rgb_to_msg(rgb, stamp_ns, "cam").header)

    with system(tmp_path, image_transport="compressed", max_age_s=0.5) as s:
        s.peer.start_camera("/image/compressed", make=packet, kind=CompressedImage)
        told = "waiting for the next keyframe"
        wait_for(lambda: any("images are refused: h264 video: " in d.reason
                             and told in d.reason for d in s.peer.decisions))
        wait_for(lambda: told in s.peer.status("image", ERROR).message)


@pytest.mark.parametrize(("transport", "package"), [
    ("ffmpeg", "ffmpeg_image_transport_msgs"), ("foxglove", "foxglove_msgs")])
def test_a_transport_whose_package_is_missing_is_told(tmp_path, monkeypatch, transport, package):
    monkeypatch.setitem(sys.modules, f"{package}.msg", None)  # also where it is installed
    with system(tmp_path, image_transport=transport) as s:
        status = s.peer.status("model", ERROR)
        assert f"cannot configure: image_transport: {transport}: {package}/msg/" in status.message
        assert f"needs the package {package}, which is not installed" in status.message
        s.peer.set_parameters(image_transport="raw")
        assert s.peer.transition("configure")


class Reusing:
    """Notes which tokens the node says changed."""

    def __init__(self, model):
        self.model, self.stats, self.told, self.losses = model, ReuseStats(), [], 0

    def grid(self, frames):
        return frames[0].shape[0] // 8, frames[0].shape[1] // 8

    def lost(self):
        self.losses += 1

    def encode(self, frames, changed=None):
        self.told.append(changed)
        group = self.model.encode(frames)
        group.encoded = float(changed.mean())
        return group

    def idle(self):
        return False


class ReusingModel(FakeModel):
    def reusing(self, settings, pixel_budget=None):
        self.encoder = Reusing(self)
        return self.encoder


@pytest.mark.slow
def test_motion_vectors_of_a_video_tell_what_changed(tmp_path):
    def paint(number, size):
        rgb = np.random.default_rng(0).integers(90, 110, (*size, 3), dtype=np.uint8)
        rgb[4 * (number % 20) : 4 * (number % 20) + 24, 120:150] = 250
        return rgb

    packets, _ = encoded("h264", 400, gop=400, paint=paint)
    coming = itertools.chain(packets[:60], packets[61:])

    def packet(rgb, stamp_ns):
        return message("compressed", "h264", next(coming).data,
                       rgb_to_msg(rgb, stamp_ns, "cam").header)

    with system(tmp_path, fake=ReusingModel(), image_transport="compressed",
                reuse="vectors") as s:
        wait_for(lambda: s.node._cameras)
        s.peer.start_camera("/image/compressed", make=packet, kind=CompressedImage, fps=16.0)
        s.peer.answered("person")
        wait_for(lambda: len(s.model.encoder.told) >= 6)
        first, *later = s.model.encoder.told
        assert first.shape == (15, 20) and first.all()
        assert all(told[:, 15:].any() and not told[:, :12].any() for told in later[:4])
        assert s.peer.newest("person").model.endswith("+reuse")


def test_vectors_of_a_camera_that_has_none_are_refused_by_name(tmp_path):
    with system(tmp_path, reuse="vectors") as s:
        told = s.peer.status("model", ERROR).message
        assert "cannot configure: reuse: vectors needs a video in H.264" in told
        assert "take pixels" in told
        s.peer.set_parameters(image_transport="compressed")
        assert s.peer.transition("configure")
