"""What the heads see on a video: the runtime's path, over time."""

from __future__ import annotations

import json

import numpy as np
import pytest
from pixel_model import PixelModel, motion_video, presence_video, square, write_video

from vlm_decisions import cli
from vlm_decisions.lab.studies.clip_answers import StudyError
from vlm_decisions.lab.studies.heads_view import heads_view, plot_heads_view, print_heads_view
from vlm_decisions.runtime.heads import Head
from vlm_decisions.sources.video import VideoFile


def head(name="square", pooling="mean", weight=None, window=1):
    weight = np.full(8, 40.0, np.float32) if weight is None else weight
    return Head(name, name, pooling, weight, -20.0, 1.0, "pixels-1", 1024, window)


def test_a_presence_head_over_time(tmp_path, capsys):
    video = presence_video(tmp_path / "v.mp4", 3, (True, False), seconds=2.0)
    result = heads_view(PixelModel(), [head()], VideoFile(str(video)))
    assert result["frames"]["count"] == 32 and result["frames"]["size"] == [96, 64]
    assert result["frames"]["rate_hz"] == pytest.approx(8.0, abs=0.05)
    assert result["groups"] == 16 and result["segments"] == 1
    row = result["heads"]["square"]
    assert (np.array(row["p"]) > 0.5).tolist() == [True] * 8 + [False] * 8
    assert row["yes"] == 0.5 and row["low"] < 0.1 < 0.9 < row["high"]
    assert "camera_dark" in result["health"]
    print_heads_view(result)
    assert "32 frames of 96x64 at 8.0 Hz" in capsys.readouterr().out


def test_a_motion_head_waits_for_its_window(tmp_path):
    video = motion_video(tmp_path / "m.mp4", 1, right=True)
    weight = np.zeros(16, np.float32)
    weight[:8] = np.arange(8)
    one = head("to_right", "motion", weight, 4)
    p = heads_view(PixelModel(), [one], VideoFile(str(video)))["heads"]["to_right"]["p"]
    assert p[0] is None and p[1] is not None and len(p) == 10  # half a window is enough


def test_it_stops_when_told(tmp_path):
    video = presence_video(tmp_path / "v.mp4", 3)
    assert heads_view(PixelModel(), [head()], VideoFile(str(video)), 1.0)["frames"]["count"] == 9


@pytest.mark.slow
def test_the_figure(tmp_path):
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    video = presence_video(tmp_path / "v.mp4", 3)
    result = json.loads(json.dumps(heads_view(PixelModel(), [head()], VideoFile(str(video)))))
    plot_heads_view(result, str(tmp_path / "heads.png"))
    assert (tmp_path / "heads.png").stat().st_size > 5000


def test_nothing_to_see_or_to_see_with(tmp_path, capfd):
    write_video(tmp_path / "one.mp4", [square(0.5)])
    with pytest.raises(StudyError, match="1 frames and no group of two"):
        heads_view(PixelModel(), [head()], VideoFile(str(tmp_path / "one.mp4")))
    with pytest.raises(StudyError, match="no head for this model"):
        heads_view(PixelModel(), [], VideoFile(str(tmp_path / "one.mp4")))
    assert cli.main(["study", "heads", "--source", "/nowhere.mp4"]) == 1
    assert "/nowhere.mp4" in capfd.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["study", "heads"])
