"""The examples run as they are shown. What the behaviour tree does: test_behaviours.py."""

import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_each_has_a_test():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "ask_engine", "run_runtime", "read_decisions", "desk_tree", "two_views"}


def test_the_engine_by_itself(capsys):
    runpy.run_path(str(EXAMPLES / "ask_engine.py"))
    lines = capsys.readouterr().out.splitlines()
    p = {line.partition("?")[0]: float(line.rpartition("= ")[2]) for line in lines}
    assert set(p) == {"Is a person present", "Is there a cup", "Is the door open"}
    assert all(value > 0.5 for value in p.values())  # as it is drawn, 4 s after the start


@pytest.mark.slow
def test_the_runtime_without_ros(capsys):
    runpy.run_path(str(EXAMPLES / "run_runtime.py"))
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:2] == ["person", "yes"] for line in lines)
    assert any(line.split()[:2] == ["camera_dark", "no"] for line in lines)


@pytest.mark.slow
def test_a_subscriber_of_one_topic(tmp_path):
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    from ros_peer import system

    with system(tmp_path) as s:
        s.peer.start_camera()
        child = subprocess.Popen(
            [sys.executable, EXAMPLES / "read_decisions.py", "person"], text=True,
            env={**os.environ, "ROS_DOMAIN_ID": str(s.domain)}, stdout=subprocess.PIPE)
        try:
            assert any(line.startswith("person: yes (p = 0.88)") for line in child.stdout)
            s.peer.stop_camera()
            assert any(": no image for" in line for line in child.stdout)
            child.send_signal(signal.SIGINT)
            assert child.wait(20) == 0
        finally:
            child.kill()
            child.wait()
            child.stdout.close()


@pytest.mark.slow
def test_a_behaviour_tree_ends_by_itself():
    pytest.importorskip("py_trees", reason="py_trees is not installed")
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    done = subprocess.run([sys.executable, EXAMPLES / "desk_tree.py", "--seconds", "1"],
                          text=True, capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "wait" in done.stdout


@pytest.mark.slow
def test_two_views_in_a_program_of_ones_own(tmp_path):
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    from ros_peer import Peer, private_domain, rclpy_context, spinning

    with private_domain() as domain, rclpy_context(None, domain) as context:
        peer = Peer(context)
        child = subprocess.Popen(
            [sys.executable, EXAMPLES / "two_views.py"], text=True, cwd=tmp_path,
            env={**os.environ, "ROS_DOMAIN_ID": str(domain)}, stdout=subprocess.PIPE)
        try:
            with spinning(peer):
                peer.start_camera("/front/image_raw", size=(240, 320))
                assert any(line.startswith("right: cup is ") for line in child.stdout)
                peer.stop_camera()
            child.send_signal(signal.SIGINT)
            assert child.wait(20) == 0
        finally:
            peer.stop_camera()
            child.kill()
            child.wait()
            child.stdout.close()
            peer.destroy_node()
