"""What the node says of a camera whose images come, but not as they should."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from diagnostic_msgs.msg import DiagnosticStatus
from fake_model import FakeModel
from ros_peer import images_of, system
from sensor_msgs.msg import Image
from std_msgs.msg import String
from waiting import wait_for

from vlm_decisions.model_scope import OUT_OF_SCOPE
from vlm_decisions.ros.convert import ns_to_time
from vlm_decisions.ros.scope import Scope
from vlm_decisions.runtime.system import System

WARN, OK = DiagnosticStatus.WARN, DiagnosticStatus.OK


class DeskModel(FakeModel):
    """By its name, the model that knows the simulated desk only."""

    name = "sim_desk"


def mono16(low: int, high: int):
    """Return what makes an image message of 16 bits with values from `low` to `high`."""
    def make(rgb: np.ndarray, stamp_ns: int) -> Image:
        grey = low + rgb[..., 0].astype(np.uint32) * (high - low) // 255
        msg = Image(height=rgb.shape[0], width=rgb.shape[1], encoding="mono16",
                    step=2 * rgb.shape[1], data=grey.astype("<u2").tobytes())
        msg.header.stamp, msg.header.frame_id = ns_to_time(stamp_ns), "cam"
        return msg
    return make


def test_a_picture_of_few_values_is_said_and_the_range_can_be_set(tmp_path):
    with system(tmp_path) as s:
        s.peer.start_camera(make=mono16(7200, 8475))
        status = s.peer.status("image", WARN)
        assert "uses values 72" in status.message and "min_image_value" in status.message
        s.peer.more_decisions(5)
        assert np.ptp(images_of(s.node).newest.image) < 8
    with system(tmp_path, min_image_value=7200, max_image_value=8475) as s:
        s.peer.start_camera(make=mono16(7200, 8475))
        s.peer.answered()
        s.peer.status("image", OK)
        assert np.ptp(images_of(s.node).newest.image) > 240


def test_a_range_that_is_none_is_refused(tmp_path):
    with system(tmp_path, min_image_value=500, max_image_value=500) as s:
        status = s.peer.status("model", DiagnosticStatus.ERROR)
        assert "min_image_value (500) must be below max_image_value (500)" in status.message


@pytest.mark.slow
def test_the_model_of_the_simulated_desk_before_a_real_camera(tmp_path):
    with system(tmp_path, fake=DeskModel()) as s:
        overlays: list[Image] = []
        s.peer.create_subscription(Image, "/decision_node/overlay", overlays.append, 1)
        s.peer.start_camera()
        status = s.peer.status("image", WARN)
        assert "sim_desk knows only the simulated desk" in status.message
        overlays.clear()
        image = np.frombuffer(wait_for(lambda: overlays)[0].data, np.uint8).reshape(48, 64, 3)
        red = (image.astype(int) - (170, 20, 20)).__abs__().sum(axis=2) < 10
        assert red[-1].mean() > 0.5  # the mark across the bottom
        told: list[String] = []
        s.peer.create_subscription(String, "/decision_node/statistics", told.append, 1)
        assert System.from_json(wait_for(lambda: told)[0].data).mark == OUT_OF_SCOPE


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sim_camera", "truth"])
def test_the_simulated_desk_and_its_recordings_are_known(tmp_path, name):
    import rclpy

    with system(tmp_path, fake=DeskModel()) as s:
        if name == "truth":
            publisher = s.peer.create_publisher(String, "/truth", 1)
            s.peer.start_camera()
        else:
            publisher = rclpy.create_node("sim_camera", context=s.peer.context)
            publisher.create_publisher(Image, "/image", 1)
            s.peer.start_camera()
        s.peer.answered()
        for _ in range(4):
            assert s.peer.status("image", OK)
        assert s.node._scope.warning == ""
        if name == "sim_camera":
            publisher.destroy_node()


def test_a_camera_that_has_gone_is_what_it_was():
    """Also before the middleware has told the name of one that is back."""
    names: list[str] = []
    warned: list[str] = []
    node = SimpleNamespace(
        get_publishers_info_by_topic=lambda topic: [SimpleNamespace(node_name=n) for n in names],
        count_publishers=lambda topic: 0,
        get_logger=lambda: SimpleNamespace(warning=warned.append))
    scope = Scope(node)
    for names[:] in (["sim_camera"], [], ["_NODE_NAME_UNKNOWN_"], ["sim_camera"]):
        for _ in range(4):
            scope.look("/image", "sim_desk")
        assert scope.warning == "" and not warned
    for names[:] in (["webcam"], []):
        for _ in range(4):
            scope.look("/image", "sim_desk")
        assert scope.warning and len(warned) == 1


def test_another_model_may_look_at_any_camera(tmp_path):
    with system(tmp_path) as s:
        s.peer.start_camera()
        s.peer.answered()
        assert s.peer.status("image", OK) and s.node._scope.warning == ""
