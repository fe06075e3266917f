"""`vlm-decisions view`: the page for a node, or with a simulated desk, and pictures of it."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys

import cv2
import pytest
from viewer_site import decision, picture, site, some_of_the_desk
from waiting import wait_for

from vlm_decisions.viewer.browser import BrowserError, find_browser, opened, screenshot
from vlm_decisions.viewer.server import Server
from vlm_decisions.viewer.source import CAMERA


@pytest.fixture(scope="module")
def browser_there() -> None:
    """Skip where there is no browser."""
    try:
        with opened():
            pass
    except BrowserError as error:
        pytest.skip(str(error))


def free_port() -> int:
    probe = Server(port=0)
    probe.stop()
    return probe.port


def view(*arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "vlm_decisions.cli", "view", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)


@pytest.mark.slow
def test_no_browser_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("CHROME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BrowserError, match="apt install chromium"):
        find_browser()
    monkeypatch.setenv("CHROME", str(tmp_path / "absent"))
    pytest.importorskip("playwright", reason="Playwright is not installed")
    with pytest.raises(BrowserError, match="absent does not start"), opened():
        pass


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_a_picture_of_the_page(browser_there, tmp_path, dark):
    path = tmp_path / "page.png"
    with site() as viewer:
        viewer.board.decision(decision("person"))
        # Pictures come for as long as somebody looks, as they do from a node.
        viewer.source.watch = lambda channels: [
            viewer.pictures.put(CAMERA, picture(128)) for _ in channels]
        viewer.pictures.on_watch = viewer.source.watch
        screenshot(f"http://127.0.0.1:{viewer.port}", str(path), width=800, height=600, dark=dark,
                   after_s=0.1)
    image = cv2.imread(str(path))
    assert image.shape == (900, 1200, 3)
    assert (image[-1, -1].mean() < 60) == dark


def test_bad_sizes_are_named(capsys):
    from vlm_decisions.cli import main

    for size in ("100x100", "800", "axb", "800x99999"):
        with pytest.raises(SystemExit):
            main(["view", "--size", size])
        assert "--size" in capsys.readouterr().err


@pytest.mark.slow
def test_the_simulated_desk_is_pictured(browser_there, tmp_path):
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    path, questions = tmp_path / "desk.png", tmp_path / "questions.yaml"
    some_of_the_desk(questions)
    child = view("--sim", "--port", free_port(), "--screenshot", path, "--seconds", "1",
                 "--size", "1280x800", "--questions", questions)
    out = child.communicate(timeout=240)[0]
    assert child.returncode == 0, out
    image = cv2.imread(str(path))
    assert image.shape == (1200, 1920, 3) and image.std() > 20


@pytest.mark.slow
def test_a_node_of_another_name_is_waited_for_and_a_signal_ends_all():
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    from urllib.request import urlopen

    port = free_port()
    child = view("--node", "/robot/decider", "--port", port)
    try:
        assert child.stdout.readline().strip() == f"viewer: http://127.0.0.1:{port}"
        state = urlopen(f"http://127.0.0.1:{port}/api/state", timeout=20).read().decode()
        assert "waiting for /robot/decider" in state
    finally:
        child.send_signal(signal.SIGTERM)
    child.communicate(timeout=30)
    wait_for(lambda: not _listens(port), 30)  # its viewer ended with it


@pytest.mark.slow
def test_a_port_in_use_is_named():
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        child = view("--port", taken.getsockname()[1])
        out = child.communicate(timeout=90)[0]
    assert child.returncode == 1 and "is in use" in out and "Traceback" not in out


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
