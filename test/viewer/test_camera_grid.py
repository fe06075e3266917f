"""Several cameras in one plain picture."""

from types import SimpleNamespace

import numpy as np
import pytest

from vlm_decisions.frames import Frame
from vlm_decisions.sources.images import ImageError
from vlm_decisions.viewer import camera_grid
from vlm_decisions.viewer.board import Board
from vlm_decisions.viewer.camera_grid import CameraGrid
from vlm_decisions.viewer.runtime_source import RuntimeSource
from vlm_decisions.viewer.source import CAMERA
from vlm_decisions.views import View


def flat(value):
    return np.full((4, 6, 3), value, np.uint8)


def broken():
    raise ImageError("encoding", "no picture")


def test_cameras_stand_side_by_side_in_the_order_of_the_views():
    views = (View("front", "/front"), View("door", "/front", region=(0, 0, 0.5, 1)),
             View("back", "/back"))
    put = {}
    pictures = SimpleNamespace(put=lambda channel, picture: put.update({channel: picture}),
                               moments=SimpleNamespace(due=lambda view: False))
    source = RuntimeSource(Board(), pictures, "run")
    source._runtime = SimpleNamespace(views=lambda: views)
    for view, value in ((views[2], 200), (views[0], 100)):
        source.frame(Frame(flat(value), 1, "c", 1), view.camera)
    shown = put[CAMERA]()
    assert shown.shape == (4, 12, 3) and set(shown[:, :6].flat) == {100}
    assert set(shown[:, 6:].flat) == {200}


def test_a_camera_that_stands_still_is_dark_beside_others(monkeypatch):
    now_s = [10.0]
    monkeypatch.setattr(camera_grid.time, "monotonic", lambda: now_s[0])
    grid = CameraGrid()
    grid.put("a", lambda: flat(90))
    now_s[0] += 5.0
    assert set(grid.draw().flat) == {90}  # one alone is as it is
    grid.put("b", lambda: flat(60))
    assert set(grid.draw()[:, :6].flat) == {30} and set(grid.draw()[:, 6:].flat) == {60}
    grid.put("b", broken)
    assert grid.draw().shape == (4, 6, 3)
    grid.keep(["b"])
    with pytest.raises(ImageError, match="no picture"):
        grid.draw()
