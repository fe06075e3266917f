"""Patches: bit for bit those of mlx-vlm's own processors on frames of the right size."""

import json
import subprocess
import sys

import numpy as np
import pytest
from mlx_vlm.models.qwen3_vl.processing_qwen3_vl import (
    Qwen3VLImageProcessor,
    Qwen3VLVideoProcessor,
)
from tiny import moving_frames

from vlm_decisions.engine.errors import CheckpointError, FrameError
from vlm_decisions.engine.pixels import PixelSettings, patches, read_settings

CLIP = {"mean": (0.48145466, 0.4578275, 0.40821073), "std": (0.26862954, 0.26130258, 0.27577711)}


@pytest.mark.parametrize("norm", [{}, CLIP])
@pytest.mark.parametrize(("height", "width"), [(96, 128), (32, 32), (64, 224)])
def test_equal_to_the_video_processor(height, width, norm):
    frames = moving_frames(2, height, width)
    settings = PixelSettings(pixel_budget=height * width, **norm)
    got, grid = patches(frames, settings)
    processor = Qwen3VLVideoProcessor(
        min_pixels=1,
        max_pixels=1 << 40,
        image_mean=list(settings.mean),
        image_std=list(settings.std),
    )
    want = processor(videos=[np.stack([f.transpose(2, 0, 1) for f in frames])])
    assert np.array_equal(got, want["pixel_values_videos"])
    assert [1, *grid] == want["video_grid_thw"][0].tolist()


def test_a_still_image_equals_the_image_processor_resize_included():
    frame = moving_frames(1, 250, 333)[0]
    budget = 112 * 160
    got, grid = patches([frame, frame], PixelSettings(pixel_budget=budget))
    want = Qwen3VLImageProcessor(min_pixels=1, max_pixels=budget)(images=[frame.transpose(2, 0, 1)])
    assert np.array_equal(got, want["pixel_values"])
    assert [1, *grid] == want["image_grid_thw"][0].tolist()


@pytest.mark.parametrize(
    "size", [(480, 640), (1080, 1920), (96, 96), (720, 72), (31, 5), (33, 900)]
)
def test_target_size_is_a_multiple_within_the_budget(size):
    settings = PixelSettings(pixel_budget=96 * 128)
    height, width = settings.target_size(*size)
    assert height % 32 == 0
    assert width % 32 == 0
    assert 0 < height * width <= settings.pixel_budget


@pytest.mark.parametrize(
    ("frames", "match"),
    [
        ([np.zeros((64, 64, 3), np.float32)] * 2, "uint8"),
        ([np.zeros((64, 64), np.uint8)] * 2, "shape"),
        ([np.zeros((64, 64, 4), np.uint8)] * 2, "shape"),
        ([np.zeros((64, 64, 3), np.uint8)], "2 frames"),
        ([np.zeros((64, 64, 3), np.uint8), np.zeros((64, 96, 3), np.uint8)], "differ"),
        ([np.zeros((0, 64, 3), np.uint8)] * 2, "empty"),
        ([np.zeros((1, 4000, 3), np.uint8)] * 2, "narrow"),
        (["a.png", "b.png"], "not str"),
    ],
)
def test_bad_frames_are_named(frames, match):
    with pytest.raises(FrameError, match=match):
        patches(frames, PixelSettings())


class Vision:
    patch_size, spatial_merge_size, temporal_patch_size = 16, 2, 2


def test_settings_come_from_the_checkpoint(tmp_path):
    assert read_settings(tmp_path, Vision) == PixelSettings()
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "image_mean": [0.1, 0.2, 0.3],
                "size": {"shortest_edge": 4096, "longest_edge": 5000},
                "patch_size": 16,
            }
        )
    )
    (tmp_path / "video_preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.3, 0.2, 0.1]})
    )
    settings = read_settings(tmp_path, Vision)
    assert (settings.mean, settings.pixel_budget) == ((0.3, 0.2, 0.1), 5000)
    assert settings.min_pixels == 4096
    assert read_settings(tmp_path, Vision, 7000).pixel_budget == 7000
    assert read_settings(tmp_path, Vision, 2048).min_pixels == 0
    with pytest.raises(CheckpointError, match="below one token"):
        read_settings(tmp_path, Vision, 900)
    assert settings.source == (
        f"{tmp_path / 'preprocessor_config.json'} and "
        f"{tmp_path / 'video_preprocessor_config.json'}"
    )
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"patch_size": 14}))
    with pytest.raises(CheckpointError, match="differ"):
        read_settings(tmp_path, Vision)
    (tmp_path / "preprocessor_config.json").write_text("{")
    with pytest.raises(CheckpointError, match="JSON"):
        read_settings(tmp_path, Vision)


@pytest.mark.parametrize(("name", "stated", "match"), [
    ("processor_config.json", {"image_processor": [1]}, r"image_processor \[1\]: not an object"),
    ("processor_config.json", {"video_processor": "x"}, "video_processor 'x': not an object"),
    ("processor_config.json", {"image_mean": [0.5] * 3, "size": {}}, "image_mean by itself"),
    ("preprocessor_config.json", {"image_processor": [1]}, "only processor_config.json holds"),
    ("preprocessor_config.json", {"image_processor": {"image_std": [1, 1, 1]}},
     "preprocessor_config.json holds them itself"),
])
def test_settings_below_a_key_that_is_not_read(tmp_path, name, stated, match):
    (tmp_path / name).write_text(json.dumps(stated))
    with pytest.raises(CheckpointError, match=match):
        read_settings(tmp_path, Vision)


def test_what_is_null_is_not_stated(tmp_path):
    """The video's null leaves the image's value."""
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.4] * 3}))
    (tmp_path / "video_preprocessor_config.json").write_text(json.dumps(
        {"image_mean": None, "size": {"longest_edge": None, "shortest_edge": 0}}))
    settings = read_settings(tmp_path, Vision)
    assert settings.mean == (0.4,) * 3
    assert (settings.pixel_budget, settings.min_pixels) == (PixelSettings().pixel_budget, 0)


def test_settings_as_transformers_5_writes_them(tmp_path):
    """All in one file, by processor; they count before those of the files of their own."""
    assert read_settings(tmp_path, Vision).source == ""
    image = {"image_mean": [0.4, 0.4, 0.4], "image_std": [0.2, 0.2, 0.2],
             "size": {"shortest_edge": 1024, "longest_edge": 8192}}  # fmt: skip
    path = tmp_path / "processor_config.json"
    path.write_text(json.dumps({"image_processor": image, "processor_class": "Qwen3VLProcessor"}))
    settings = read_settings(tmp_path, Vision)
    assert (settings.mean, settings.std, settings.pixel_budget, settings.min_pixels) == (
        (0.4,) * 3, (0.2,) * 3, 8192, 1024)  # fmt: skip
    assert settings.source == str(path)
    video = {"image_mean": [0.1, 0.1, 0.1]}
    path.write_text(json.dumps({"image_processor": image, "video_processor": video}))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_std": [9, 9, 9]}))
    settings = read_settings(tmp_path, Vision)
    assert (settings.mean, settings.std) == ((0.1,) * 3, (0.2,) * 3)


@pytest.mark.parametrize(
    ("stated", "match"),
    [
        ({"do_normalize": False}, "do_normalize False"),
        ({"patch_size": 0}, "patch_size 0: not a number above 0"),
        ({"rescale_factor": 0}, "rescale_factor 0: not a number above 0"),
        ({"merge_size": True}, "merge_size True: not a number above 0"),
        ({"size": []}, r"size \[\]: not a range"),
        ({"size": {"longest_edge": 0}}, "longest_edge 0: not a number above 0"),
        ({"image_mean": []}, r"image_mean \[\]: not one number for each"),
        ({"image_std": [1, 1, True]}, "image_std .*not one number for each"),
        ({"do_rescale": False}, "do_rescale False"),
        ({"do_resize": False}, "do_resize False"),
        ({"do_center_crop": True}, "do_center_crop True"),
        ({"resample": 2}, "resample 2.*implemented: 3"),
        ({"size": {"height": 224, "width": 224}}, "not a range of pixels"),
    ],
)
def test_steps_that_are_not_implemented(tmp_path, stated, match):
    for name, whole in (("preprocessor_config.json", stated),
                        ("processor_config.json", {"video_processor": stated})):  # fmt: skip
        (tmp_path / name).write_text(json.dumps(whole))
        with pytest.raises(CheckpointError, match=match):
            read_settings(tmp_path, Vision)
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    ("stated", "match"),
    [
        ({"image_mean": [0.1, 0.2]}, "image_mean .*red, green and blue"),
        ({"image_mean": "0.5"}, "image_mean '0.5'"),
        ({"image_std": [0.5, 0.0, 0.5]}, "image_std"),
        ({"size": {"longest_edge": "24576"}}, "longest_edge '24576': not a number"),
        ({"patch_size": [16, 16]}, "patch_size"),
        ({"rescale_factor": float("nan")}, "rescale_factor nan"),
    ],
)
def test_settings_that_cannot_be_computed_with(tmp_path, stated, match):
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": stated}))
    with pytest.raises(CheckpointError, match=match):
        read_settings(tmp_path, Vision)


def test_the_frames_of_a_group_keep_their_order():
    """They are resized side by side."""
    first, second = (np.full((240, 320, 3), value, np.uint8) for value in (10, 200))
    settings = PixelSettings(pixel_budget=64 * 96)
    got, _ = patches([first, second], settings)
    both = got.reshape(len(got), 3, 2, -1)
    assert np.allclose(both[:, :, 0], settings.table[0, 10])
    assert np.allclose(both[:, :, 1], settings.table[0, 200])


def test_a_forked_process_and_one_that_ends_resize_as_well():
    """A thread of the parent does not exist in a child; at the end nothing new is started."""
    code = """
import atexit, os, signal, sys
import numpy as np
from vlm_decisions.engine.pixels import PixelSettings, patches
pair = [np.full((240, 320, 3), value, np.uint8) for value in (10, 200)]
settings = PixelSettings(pixel_budget=64 * 96)
want, _ = patches(pair, settings)
child = os.fork()
if not child:
    signal.alarm(20)
    os._exit(0 if np.array_equal(patches(pair, settings)[0], want) else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
atexit.register(lambda: print("same", np.array_equal(patches(pair, settings)[0], want)))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True,
                          text=True, timeout=60, check=False)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "same True\n"), done.stderr
