"""Features of recordings: the running path, kept on disk, refused where they are no numbers."""

from __future__ import annotations

import numpy as np
import pytest
from pixel_model import PixelModel, motion_video, presence_video, square, write_video

from vlm_decisions.frames import Frame, Sampler
from vlm_decisions.learn.features import FeatureError, features_of
from vlm_decisions.learn.recordings import Recording, find_recordings


@pytest.fixture
def recordings(tmp_path):
    (tmp_path / "videos").mkdir()
    presence_video(tmp_path / "videos" / "a.mp4", 1)
    motion_video(tmp_path / "videos" / "b.mp4", 2, right=True)
    return find_recordings([tmp_path / "videos"])


def test_features_are_those_of_the_running_path(recordings):
    engine = PixelModel()
    seen = features_of(engine, recordings)
    assert list(seen) == ["a.mp4", "b.mp4"]
    sampler = Sampler(8.0)
    groups = [g for f in recordings[1].frames() if (g := sampler.push(f)) is not None]
    own = seen["b.mp4"]
    assert len(own) == len(groups) == 10
    assert own.end_s == pytest.approx([g.t_end_ns / 1e9 for g in groups])
    for k, group in enumerate(groups):
        assert np.array_equal(own.mean[k], engine.encode([f.image for f in group.frames]).mean)
    assert own.back.shape == (0, 8)


def test_backwards_exchanges_the_frames_of_a_group(recordings):
    engine = PixelModel()
    own = features_of(engine, recordings, backwards=True)["b.mp4"]
    frames = [frame.image for frame in recordings[1].frames()]
    assert np.array_equal(own.back[3], engine.encode([frames[7], frames[6]]).mean)
    assert not np.array_equal(own.back[3], own.mean[3])


def test_a_stopped_run_goes_on(tmp_path, recordings):
    engine, cache = PixelModel(), tmp_path / "cache"
    first = features_of(engine, recordings[:1], cache)
    after_one = engine.encoded
    again = features_of(engine, recordings, cache)
    assert engine.encoded == after_one + len(again["b.mp4"])
    assert np.array_equal(first["a.mp4"].mean, again["a.mp4"].mean)
    encoded = engine.encoded
    features_of(engine, recordings, cache)
    assert engine.encoded == encoded


def test_another_model_or_file_is_another_feature(tmp_path, recordings):
    cache = tmp_path / "cache"
    features_of(PixelModel(), recordings, cache)
    other = PixelModel("pixels-2")
    features_of(other, recordings, cache)
    assert other.encoded == 26
    presence_video(tmp_path / "videos" / "a.mp4", 5)
    engine = PixelModel()
    features_of(engine, find_recordings([tmp_path / "videos"]), cache)
    assert engine.encoded == 16
    for path in cache.iterdir():  # cut off: made again, not believed
        path.write_bytes(path.read_bytes()[:100])
    engine = PixelModel()
    features_of(engine, recordings[1:], cache)
    assert engine.encoded == 10


def test_nan_features_name_the_recording(recordings):
    with pytest.raises(FeatureError, match=r"a\.mp4: features are not finite.*from 0\.00 s on"):
        features_of(PixelModel(spoil=True), recordings)


def test_a_recording_without_a_group(tmp_path):
    write_video(tmp_path / "one.mp4", [square(0.5)])
    with pytest.raises(FeatureError, match=r"one\.mp4 gives no group"):
        features_of(PixelModel(), find_recordings([tmp_path / "one.mp4"]))
    slow = Recording("slow", "1", lambda: iter([Frame(square(0.5), k * 3 * 10**9)
                                                for k in range(4)]))
    with pytest.raises(FeatureError, match="more than a second apart"):
        features_of(PixelModel(), [slow])
