"""A user's recordings: names, times and groups of videos, pictures and bags."""

from __future__ import annotations

import cv2
import material
import numpy as np
import pytest
from pixel_model import presence_video, square

from vlm_decisions.learn.recordings import find_recordings
from vlm_decisions.sources.video import SourceError


def test_videos_and_folders_of_them(tmp_path):
    presence_video(tmp_path / "b.mp4", 1)
    presence_video(tmp_path / "a.mp4", 2)
    (tmp_path / "notes.txt").write_text("not a video")
    found = find_recordings([tmp_path])
    assert [r.name for r in found] == ["a.mp4", "b.mp4"]
    assert found[0].duration_s == pytest.approx(4.0)
    groups = list(found[0].groups())
    assert len(groups) == 16 and groups[0].t_start_ns == 0
    assert groups[-1].t_end_ns == pytest.approx(31 / 8 * 1e9, abs=1e7)
    assert find_recordings([tmp_path / "b.mp4"])[0].identity != found[0].identity


def test_a_picture_is_a_group_of_itself(tmp_path):
    (tmp_path / "deep").mkdir()
    cv2.imwrite(str(tmp_path / "deep" / "one.png"), square(0.5)[..., ::-1])
    (recording,) = find_recordings(folders=[tmp_path])
    assert recording.name == "deep/one.png" and recording.still
    (group,) = recording.groups()
    assert np.array_equal(group.frames[0].image, square(0.5))
    assert group.frames[0] is group.frames[1]


def test_a_decomposed_file_name_is_the_composed_one(tmp_path):
    cv2.imwrite(str(tmp_path / "cafe\u0301.png"), square(0.5)[..., ::-1])
    (recording,) = find_recordings(folders=[tmp_path])
    assert recording.name == "caf\u00e9.png" and len(list(recording.frames())) == 1
    cv2.imwrite(str(tmp_path / "caf\u00e9.png"), square(0.5)[..., ::-1])
    with pytest.raises(SourceError, match="two recordings are called 'caf\u00e9.png'"):
        find_recordings(folders=[tmp_path])


def test_what_is_not_there_or_cannot_be_read(tmp_path):
    with pytest.raises(SourceError, match="there is no file"):
        find_recordings([tmp_path / "absent.mp4"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match="holds no video files"):
        find_recordings([tmp_path / "empty"])
    with pytest.raises(SourceError, match="holds no pictures and no videos"):
        find_recordings(folders=[tmp_path / "empty"])
    with pytest.raises(SourceError, match="not a folder"):
        find_recordings(folders=[tmp_path / "nowhere"])
    (tmp_path / "broken.mp4").write_bytes(b"no video")
    with pytest.raises(SourceError, match="broken.mp4"):
        find_recordings([tmp_path / "broken.mp4"])
    (tmp_path / "broken.png").write_bytes(b"no picture")
    (broken,) = find_recordings(folders=[_only(tmp_path, "broken.png")])
    with pytest.raises(SourceError, match="broken.png"):
        list(broken.groups())


def test_pictures_of_12_bits(tmp_path):
    cv2.imwrite(str(tmp_path / "one.png"), np.full((48, 64), 4095, np.uint16))
    (dark,) = find_recordings(folders=[tmp_path])
    (bright,) = find_recordings(folders=[tmp_path], value_range=(0, 4095))
    assert next(dark.frames()).image.max() == 16 and next(bright.frames()).image.max() == 255
    assert dark.identity != bright.identity  # what was computed of one is not of the other


def test_a_picture_that_lost_half_of_its_data_is_refused(tmp_path, capfd):
    whole = cv2.imencode(".jpg", square(0.5)[..., ::-1])[1].tobytes()
    (tmp_path / "half.jpg").write_bytes(whole[:len(whole) // 2] + b"\xff\xd9")
    (recording,) = find_recordings(folders=[tmp_path])
    with pytest.raises(SourceError, match=r"half.jpg: damaged JPEG"):
        list(recording.groups())
    assert capfd.readouterr() == ("", "")


def test_two_of_one_name(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        presence_video(tmp_path / name / "a.mp4", 1)
    with pytest.raises(SourceError, match="two recordings are called 'a.mp4'"):
        find_recordings([tmp_path / "one", tmp_path / "two"])
    assert [r.name for r in find_recordings(folders=[tmp_path])] == ["one/a.mp4", "two/a.mp4"]


def test_a_bag_is_a_recording():
    bags = pytest.importorskip("vlm_decisions.sources.bags", reason="needs rosbags")
    path = material.material("bags", "ros_numpy_test.bag")
    with pytest.raises(bags.BagError, match="no topic"):
        find_recordings(bags=[path], topic="/nothing")
    with bags.Bag(path) as bag:
        topic = next(t for t in bag.topics if t.type == "sensor_msgs/msg/Image")
    (recording,) = find_recordings(bags=[path], topic=topic.name, stamps="arrival")
    assert recording.name == "ros_numpy_test.bag"
    frames = list(recording.frames())
    assert frames[0].stamp_ns == 0 and frames[0].image.shape == (240, 360, 3)


def _only(folder, name):
    alone = folder / "alone"
    alone.mkdir()
    (folder / name).rename(alone / name)
    return alone
