"""The window's process: where none can be shown, nothing else ends."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_for

from vlm_decisions.viewer import window
from vlm_decisions.viewer.window import Window

PICTURE = np.full((60, 80, 3), 90, np.uint8)


@pytest.mark.parametrize("display", [{"DISPLAY": ":77"}, {"WAYLAND_DISPLAY": "wayland-77"},
                                     {"DISPLAY": ":77", "WAYLAND_DISPLAY": "wayland-77"},
                                     {"DISPLAY": "nowhere.invalid:0"}])
def test_a_display_that_is_not_there(monkeypatch, capfd, display):
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in display.items():
        monkeypatch.setenv(name, value)
    assert window.possible()
    shown = Window("test")
    try:
        shown.show(PICTURE)
        wait_for(lambda: shown.failed, 60.0)
        assert not shown.closed
        shown.show(PICTURE)  # nobody takes it
    finally:
        shown.close()
    assert capfd.readouterr() == ("", "")


def test_no_display_at_all(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(window.sys, "platform", "linux")
    assert not window.possible()


def test_close_does_not_wait_for_a_window_that_is_slow():
    shown = Window("test")
    for _ in range(3):
        shown.show(np.zeros((2000, 2000, 3), np.uint8))
    shown.close()
    assert not shown.closed


@pytest.mark.slow
def test_a_real_window(monkeypatch):
    server = shutil.which("Xvfb")
    if server is None:
        pytest.skip("no X server to show a window on (Xvfb)")
    with subprocess.Popen([server, ":78", "-screen", "0", "640x480x24"],
                          stderr=subprocess.DEVNULL) as running:
        try:
            monkeypatch.setenv("DISPLAY", ":78")
            wait_for(Path("/tmp/.X11-unix/X78").exists)
            shown = Window("test")
            try:
                for _ in range(20):
                    shown.show(PICTURE)
                    time.sleep(0.1)
                assert not shown.failed and not shown.closed
                running.terminate()  # the display dies, and the window with it
                wait_for(lambda: shown.failed, 60.0)
            finally:
                shown.close()
        finally:
            running.kill()
