"""Image messages: right to the pixel, or refused by name."""

import array
import re
import struct
import zlib
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from material import material

from vlm_decisions.sources import pictures
from vlm_decisions.sources.images import (
    MAX_PIXELS,
    SUPPORTED,
    ImageError,
    compressed_to_rgb,
    image_to_rgb,
    range_hint,
)

RNG = np.random.default_rng(7)
# Every name of sensor_msgs/image_encodings.hpp (Kilted).
ALL_ENCODINGS = (
    "rgb8 rgba8 rgb16 rgba16 bgr8 bgra8 bgr16 bgra16 mono8 mono16 "
    + " ".join(f"{t}C{n}" for t in ("8U", "8S", "16U", "16S", "32S", "32F", "64F")
               for n in (1, 2, 3, 4))
    + " bayer_rggb8 bayer_bggr8 bayer_gbrg8 bayer_grbg8 bayer_rggb16 bayer_bggr16 bayer_gbrg16"
    + " bayer_grbg16 uyvy yuv422 yuyv yuv422_yuy2 nv12 nv21 nv24").split()


def message(encoding, pixels, *, pad=0, big=False, tail=True, width=None, height=None):
    """Lay rows (h, bytes...) out as a message whose rows are ``pad`` bytes longer."""
    if pixels.dtype == np.uint16:
        pixels = pixels.astype(">u2" if big else "<u2")
    h, w = pixels.shape[:2]
    rows = np.frombuffer(pixels.tobytes(), np.uint8).reshape(h, -1)
    step = rows.shape[1] + pad
    padded = np.full((h, step), 0xA5, np.uint8)
    padded[:, :rows.shape[1]] = rows
    data = padded.tobytes()
    if not tail:
        data = data[:len(data) - pad] if pad else data
    return SimpleNamespace(encoding=encoding, width=width or w, height=height or h, step=step,
                           is_bigendian=int(big), data=array.array("B", data))


def noise(h, w, c, dtype=np.uint8):
    return RNG.integers(0, np.iinfo(dtype).max + 1, (h, w, c), dtype)


def exact_8(values):
    """Return 16 bit values scaled to 8 bits, by definition, in integers."""
    return ((values.astype(np.uint32) * 510 + 65535) // (2 * 65535)).astype(np.uint8)


@pytest.mark.parametrize("pad", [0, 1, 13])
@pytest.mark.parametrize("size", [(1, 1), (1, 7), (7, 1), (5, 3), (48, 64)])
@pytest.mark.parametrize("order", ["rgb8", "bgr8", "rgba8", "bgra8"])
def test_colour_8(order, size, pad):
    channels = 4 if "a8" in order else 3
    pixels = noise(*size, channels)
    want = pixels[..., :3] if order.startswith("rgb") else pixels[..., 2::-1]
    got = image_to_rgb(message(order, pixels, pad=pad))
    assert got.dtype == np.uint8 and got.flags.c_contiguous and got.shape == (*size, 3)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("pad", [0, 2, 7])
@pytest.mark.parametrize("order", ["rgb16", "bgr16", "rgba16", "bgra16"])
def test_colour_16(order, pad, big):
    pixels = noise(5, 7, 4 if "a16" in order else 3, np.uint16)
    want = pixels[..., :3] if order.startswith("rgb") else pixels[..., 2::-1]
    got = image_to_rgb(message(order, pixels, pad=pad, big=big))
    np.testing.assert_array_equal(got, exact_8(want))


@pytest.mark.parametrize("big", [False, True])
def test_every_16_bit_value(big):
    values = np.arange(65536, dtype=np.uint16).reshape(256, 256, 1)
    got = image_to_rgb(message("mono16", values, big=big))
    np.testing.assert_array_equal(got, np.repeat(exact_8(values), 3, axis=2))


@pytest.mark.parametrize("encoding", ["mono8", "8UC1"])
@pytest.mark.parametrize("pad", [0, 3])
def test_grey(encoding, pad):
    pixels = noise(9, 5, 1)
    got = image_to_rgb(message(encoding, pixels, pad=pad))
    np.testing.assert_array_equal(got, np.repeat(pixels, 3, axis=2))


PATTERNS = {"rggb": ("rg", "gb"), "bggr": ("bg", "gr"), "gbrg": ("gb", "rg"),
            "grbg": ("gr", "bg")}


def mosaic_of(rgb, pattern):
    """Sample an RGB image through a Bayer filter."""
    out = np.empty(rgb.shape[:2], rgb.dtype)
    for y in (0, 1):
        for x in (0, 1):
            out[y::2, x::2] = rgb[y::2, x::2, "rgb".index(PATTERNS[pattern][y][x])]
    return out[..., None]


@pytest.mark.parametrize("size", [(2, 2), (3, 5), (7, 2), (24, 32)])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_bayer_flat_colour_is_exact_to_the_border(pattern, size):
    rgb = np.broadcast_to(np.array([200, 90, 30], np.uint8), (*size, 3))
    got = image_to_rgb(message(f"bayer_{pattern}8", mosaic_of(rgb, pattern), pad=3))
    np.testing.assert_array_equal(got, rgb)
    wide = rgb.astype(np.uint16) * 257
    for big in (False, True):
        got = image_to_rgb(message(f"bayer_{pattern}16", mosaic_of(wide, pattern), big=big))
        np.testing.assert_array_equal(got, rgb)


@pytest.mark.parametrize("low, high, most", [(0, 1023, 255), (0, 4095, 255), (0, 16383, 255),
                                             (7200, 8475, 255), (0, 65535, 33)])
def test_the_range_of_a_16_bit_sensor(low, high, most):
    """What the sensor really uses becomes 0 to 255; a full range would leave it nearly grey."""
    grey = np.arange(256).reshape(16, 16)
    sent = (7200 + 5 * grey) if most == 33 else np.rint(low + grey * (high - low) / 255)
    sent = sent.astype(np.uint16)[..., None]
    png = encode(sent[..., 0], ".png")
    wanted = exact_8(sent[..., 0]) if most == 33 else grey
    got = [image_to_rgb(message("mono16", sent, big=big), value_range=(low, high))
           for big in (False, True)]
    got.append(compressed_to_rgb(compressed(png, "mono16; png compressed "),
                                 value_range=(low, high)))
    for rgb in got:
        assert rgb.max() == most
        assert np.abs(rgb[..., 0].astype(int) - wanted).max() <= (0 if most == 33 else 1)
    bayer = image_to_rgb(message("bayer_rggb16", np.full((4, 4, 1), high, np.uint16)),
                         value_range=(low, high))
    assert (bayer == 255).all()


def test_values_outside_of_the_range_are_clipped():
    sent = np.array([[0, 99, 100, 200, 300, 301, 65535]], np.uint16)[..., None]
    got = image_to_rgb(message("mono16", sent), value_range=(100, 300))
    assert got[0, :, 0].tolist() == [0, 0, 0, 128, 255, 255, 255]


@pytest.mark.parametrize("most, hinted", [(1023, True), (4095, True), (16383, True),
                                          (65535, False)])
def test_a_picture_of_few_bits_gives_a_hint(most, hinted):
    sent = (np.linspace(0, most, 64 * 64).reshape(64, 64, 1)).astype(np.uint16)
    png = compressed(encode(sent[..., 0], ".png"), "mono16; png compressed ")
    for msg in (message("mono16", sent), message("mono16", sent, big=True), png):
        hint = range_hint(msg)
        assert bool(hint) == hinted
        assert not hinted or ("min_image_value" in hint and "range 0 to 65535" in hint)
        assert not hinted or f"{most.bit_length()} bits: 0 and {most})" in hint
        assert not range_hint(msg, (0, most))
    assert not range_hint(message("mono8", np.zeros((4, 4, 1), np.uint8)))
    assert not range_hint(compressed(encode(np.zeros((4, 4), np.uint8), ".png"), "mono16; png"))


def test_a_hint_names_the_values_of_a_thermal_camera():
    """They are a small part of the range of any number of bits."""
    grey = np.tile(np.arange(256, dtype=np.uint16), (64, 1))[..., None]
    msg = message("mono16", 7200 + 5 * grey)
    found = re.search(r"to what the scene gives \(now: (\d+) and (\d+)\)$", range_hint(msg))
    low, high = int(found[1]), int(found[2])
    assert 7200 <= low < 7230 and 8445 < high <= 8475
    assert not range_hint(msg, (low, high))


@pytest.mark.parametrize("value", [0, 1, 7200, 65535])
@pytest.mark.parametrize("noise", [1, 5])
def test_a_picture_of_one_value_gives_no_range(value, noise):
    sent = np.full((64, 64, 1), value, np.uint16)
    sent[::2] ^= np.arange(64, dtype=np.uint16)[:, None] % noise
    assert range_hint(message("mono16", sent)) == ""


@pytest.mark.parametrize("pattern", PATTERNS)
def test_bayer_ramp_keeps_its_place(pattern):
    """Bilinear interpolation of a linear ramp is the ramp: a shifted phase would be off."""
    y, x = np.mgrid[0:20, 0:30]
    rgb = np.stack([4 * x + 2 * y, 3 * x + 4 * y, 2 * x + 6 * y], axis=-1).astype(np.uint8)
    got = image_to_rgb(message(f"bayer_{pattern}8", mosaic_of(rgb, pattern)))
    np.testing.assert_array_equal(got[1:-1, 1:-1], rgb[1:-1, 1:-1])


def studio(y, u, v):
    """BT.601 studio swing, from the definition; luma below black is black, as in OpenCV."""
    y, u, v = 1.164383 * np.maximum(y - 16.0, 0.0), u - 128.0, v - 128.0
    rgb = [y + 1.596027 * v, y - 0.391762 * u - 0.812968 * v, y + 2.017232 * u]
    return np.clip(np.stack(rgb, axis=-1), 0, 255)


def planes(h, w, down_y, down_x):
    y = RNG.integers(0, 256, (h, w)).astype(np.uint8)
    u, v = RNG.integers(0, 256, (2, h // down_y, w // down_x)).astype(np.uint8)
    full = [np.repeat(np.repeat(c, down_y, 0), down_x, 1) for c in (u, v)]
    return y, u, v, studio(y, *full)


@pytest.mark.parametrize("pad", [0, 5])
@pytest.mark.parametrize("encoding", ["uyvy", "yuv422", "yuyv", "yuv422_yuy2"])
def test_yuv422(encoding, pad):
    y, u, v, want = planes(5, 8, 1, 2)
    packed = np.empty((5, 4, 4), np.uint8)
    luma, chroma = (slice(1, None, 2), slice(0, None, 2))
    if encoding.startswith("yuy") or encoding.endswith("yuy2"):
        luma, chroma = chroma, luma
    packed[..., luma] = y.reshape(5, 4, 2)
    packed[..., chroma] = np.stack([u, v], axis=-1)
    msg = message(encoding, packed, pad=pad, width=8)
    assert np.abs(image_to_rgb(msg) - want).max() <= 1.0
    msg.width = 7
    with pytest.raises(ImageError, match="even width"):
        image_to_rgb(msg)


@pytest.mark.parametrize("pad", [0, 6])
@pytest.mark.parametrize("encoding", ["nv12", "nv21"])
def test_yuv420(encoding, pad):
    y, u, v, want = planes(6, 8, 2, 2)
    pair = [u, v] if encoding == "nv12" else [v, u]
    rows = np.concatenate([y, np.stack(pair, axis=-1).reshape(3, 8)])
    msg = message(encoding, rows[..., None], pad=pad, height=6)
    assert np.abs(image_to_rgb(msg) - want).max() <= 1.0
    msg.data = msg.data[:6 * msg.step]
    with pytest.raises(ImageError, match="chroma"):
        image_to_rgb(msg)


@pytest.mark.parametrize("pad", [0, 3])
def test_nv24(pad):
    y, u, v, want = planes(3, 5, 1, 1)
    chroma = np.stack([u, v], axis=-1)
    first = message("nv24", y[..., None], pad=pad)
    first.data.extend(message("nv24", chroma, pad=2 * pad).data)
    assert np.abs(image_to_rgb(first) - want).max() <= 1.0


@pytest.mark.parametrize("encoding", ALL_ENCODINGS)
def test_no_encoding_is_left_out(encoding):
    """Each name of the header either gives an image or a refusal that names the encoding."""
    pixels = noise(4, 4, 32)  # more bytes than any of them needs
    msg = message(encoding, pixels, width=4, height=4)
    if encoding in SUPPORTED:
        msg.data.extend(bytes(4096))
        assert image_to_rgb(msg).shape == (4, 4, 3)
    else:
        with pytest.raises(ImageError, match=encoding) as caught:
            image_to_rgb(msg)
        assert caught.value.cause == "encoding"


@pytest.mark.parametrize(("encoding", "reason"), [
    ("16UC1", "depth"), ("32FC1", "depth"), ("8UC3", "bgr8 or rgb8"), ("64FC4", "numbers"),
    ("RGB8", "unknown"), ("", "unknown"), ("x" * 10_000, "unknown")])
def test_refusals_say_why(encoding, reason):
    with pytest.raises(ImageError, match=reason) as caught:
        image_to_rgb(message(encoding, noise(4, 4, 4)))
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(("change", "cause", "text"), [
    ({"width": 0}, "size", "empty"), ({"height": 0}, "size", "empty"),
    ({"step": 0}, "data", "step 0"), ({"step": 11}, "data", "step 11"),
    ({"data": b""}, "data", "0 bytes"), ({"data": bytes(47)}, "data", "47 bytes"),
    ({"width": 2**32 - 1, "height": 2**32 - 1}, "size", "bound"),
    ({"height": 2**32 - 1}, "size", "bound"), ({"step": 2**32 - 1}, "data", "needed")])
def test_bad_geometry(change, cause, text):
    msg = message("rgb8", noise(4, 4, 3))
    for name, value in change.items():
        setattr(msg, name, value)
    with pytest.raises(ImageError, match=text) as caught:
        image_to_rgb(msg)
    assert caught.value.cause == cause


def test_last_row_may_lack_its_padding():
    pixels = noise(4, 5, 3)
    np.testing.assert_array_equal(
        image_to_rgb(message("rgb8", pixels, pad=9, tail=False)), pixels)


@pytest.mark.parametrize("encoding, pad, view", [
    ("rgb8", 0, True), ("rgb8", 3, False), ("bgr8", 0, False), ("mono8", 0, False)])
def test_only_rgb8_without_padding_is_a_view_and_nobody_can_write_through_it(encoding, pad, view):
    msg = message(encoding, noise(4, 4, 1 if encoding == "mono8" else 3), pad=pad)
    got = image_to_rgb(msg)
    assert np.shares_memory(got, np.frombuffer(msg.data, np.uint8)) == view
    if view:
        with pytest.raises(ValueError, match="read-only"):
            got[0, 0, 0] = 1


# ---- compressed ----

def compressed(data, form="jpeg"):
    return SimpleNamespace(format=form, data=array.array("B", data))


def smooth(h, w):
    y, x = np.mgrid[0:h, 0:w]
    return np.stack([255 * x / max(w - 1, 1), 255 * y / max(h - 1, 1),
                     np.full((h, w), 80)], axis=-1).astype(np.uint8)


def encode(rgb, ext, *params):
    bgr = rgb[..., ::-1] if rgb.ndim == 3 else rgb
    ok, data = cv2.imencode(ext, np.ascontiguousarray(bgr), list(params))
    assert ok
    return data.tobytes()


@pytest.mark.parametrize("form", ["jpeg", "jpg", "rgb8; jpeg compressed bgr8", ""])
@pytest.mark.parametrize("size", [(1, 1), (17, 33), (120, 160)])
def test_jpeg(size, form):
    rgb = smooth(*size)
    got = compressed_to_rgb(compressed(encode(rgb, ".jpg", cv2.IMWRITE_JPEG_QUALITY, 98), form))
    assert got.shape == rgb.shape and got.flags.c_contiguous
    assert np.abs(got.astype(int) - rgb).mean() < 3


def test_jpeg_grey_progressive_and_trailing_zeros():
    grey = smooth(40, 50)[..., 0]
    got = compressed_to_rgb(compressed(encode(grey, ".jpg")))
    assert got.shape == (40, 50, 3) and np.abs(got[..., 0].astype(int) - grey).mean() < 3
    data = encode(smooth(40, 50), ".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
    assert compressed_to_rgb(compressed(data + bytes(300))).shape == (40, 50, 3)


@pytest.mark.parametrize("form", ["png", "rgb8; png compressed bgr8", "bgr8; png compressed bgr8"])
def test_png_is_exact(form):
    rgb = noise(31, 17, 3)
    np.testing.assert_array_equal(compressed_to_rgb(compressed(encode(rgb, ".png"), form)), rgb)


def test_png_that_declares_stored_rgb():
    rgb = noise(5, 6, 3)
    data = cv2.imencode(".png", rgb)[1].tobytes()  # RGB handed to a writer of BGR
    np.testing.assert_array_equal(
        compressed_to_rgb(compressed(data, "rgb8; png compressed rgb8")), rgb)


def test_png_alpha_and_16_bit():
    rgba = noise(6, 5, 4)
    data = cv2.imencode(".png", rgba[..., [2, 1, 0, 3]])[1].tobytes()
    np.testing.assert_array_equal(compressed_to_rgb(compressed(data, "png")), rgba[..., :3])
    wide = noise(6, 5, 3, np.uint16)
    data = cv2.imencode(".png", wide[..., ::-1].copy())[1].tobytes()
    np.testing.assert_array_equal(compressed_to_rgb(compressed(data, "png")), exact_8(wide))
    grey = noise(6, 5, 1, np.uint16)
    data = cv2.imencode(".png", grey)[1].tobytes()
    np.testing.assert_array_equal(compressed_to_rgb(compressed(data, "mono16; png compressed ")),
                                  np.repeat(exact_8(grey), 3, axis=2))


@pytest.mark.parametrize(("form", "reason"), [
    ("16UC1; compressedDepth png", "depth"), ("16UC1; png compressed ", "depth"),
    ("32FC1; compressedDepth rvl", "depth"), ("8UC3; png compressed ", "colour order")])
def test_compressed_numbers_are_refused(form, reason):
    with pytest.raises(ImageError, match=reason):
        compressed_to_rgb(compressed(encode(noise(4, 4, 1), ".png"), form))


# ---- a mosaic that was compressed ----

@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("form", ["bayer_{}8; png compressed ",
                                  "bayer_{}8; png compressed bayer_{}8",
                                  "bayer_{}8; jpeg compressed bayer_{}8", "bayer_{}8"])
def test_a_compressed_mosaic_is_demosaiced(form, pattern):
    rgb = np.broadcast_to(np.array([200, 100, 30], np.uint8), (16, 24, 3))
    mosaic = mosaic_of(rgb, pattern)[..., 0]
    jpeg = "jpeg" in form
    data = encode(mosaic, ".jpg", cv2.IMWRITE_JPEG_QUALITY, 100) if jpeg else encode(mosaic, ".png")
    got = compressed_to_rgb(compressed(data, form.replace("{}", pattern)))
    assert np.abs(got.astype(int) - rgb).max() <= (3 if jpeg else 0)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_compressed_mosaic_of_16_bits(pattern):
    rgb = np.broadcast_to(np.array([200, 100, 30], np.uint16) * 257, (8, 8, 3))
    data = compressed(encode(mosaic_of(rgb, pattern)[..., 0], ".png"),
                      f"bayer_{pattern}16; png compressed ")
    np.testing.assert_array_equal(compressed_to_rgb(data), rgb // 257)


@pytest.mark.parametrize("form", ["bayer_rggb8; jpeg compressed ",
                                  "bayer_rggb8; jpeg compressed mono8",
                                  "bayer_rggb8; png compressed mono8"])
def test_what_is_grey_stays_grey(form):
    grey = smooth(16, 24)[..., 0]
    data = encode(grey, ".png" if "png" in form else ".jpg")
    got = compressed_to_rgb(compressed(data, form))
    assert (got[..., 0] == got[..., 2]).all() and np.abs(got[..., 0].astype(int) - grey).max() < 9


def test_colour_of_a_bayer_camera_is_colour():
    rgb = noise(8, 8, 3)
    got = compressed_to_rgb(compressed(encode(rgb, ".png"), "bayer_rggb8; png compressed bgr8"))
    np.testing.assert_array_equal(got, rgb)


def test_a_mosaic_of_an_unknown_pattern_is_refused_by_name():
    with pytest.raises(ImageError, match="bayer_rgbw8"):
        compressed_to_rgb(compressed(encode(noise(4, 4, 1), ".png"), "bayer_rgbw8; png compressed"))


@pytest.mark.parametrize("ext", [".jpg", ".png"])
def test_every_truncation_is_refused(ext):
    whole = encode(smooth(40, 60), ext)
    compressed_to_rgb(compressed(whole))
    for length in range(len(whole)):
        with pytest.raises(ImageError) as caught:
            compressed_to_rgb(compressed(whole[:length]))
        assert caught.value.cause in ("data", "format")


@pytest.mark.parametrize("ext", [".jpg", ".png"])
def test_flipped_bytes_never_escape(ext):
    """Damage gives ImageError or an image of the declared size, nothing else."""
    whole = encode(smooth(24, 24), ext)
    rng = np.random.default_rng(11)
    for _ in range(1500):
        data = bytearray(whole)
        for at in rng.integers(0, len(data), 3):
            data[at] = rng.integers(0, 256)
        try:
            rgb = compressed_to_rgb(compressed(data), max_pixels=100_000)
        except ImageError:
            continue
        assert rgb.ndim == 3 and rgb.dtype == np.uint8 and rgb.shape[2] == 3


def png_header(width, height):
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    end = b"IEND"
    return (b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk
            + struct.pack(">I", zlib.crc32(chunk))
            + struct.pack(">I", 0) + end + struct.pack(">I", zlib.crc32(end)))


def test_bombs_are_refused_before_decoding(monkeypatch):
    jpeg = bytearray(encode(smooth(8, 8), ".jpg"))
    at = jpeg.find(b"\xff\xc0")
    jpeg[at + 5:at + 9] = struct.pack(">HH", 65500, 65500)

    def explode(*_):
        raise AssertionError("decoded a bomb")

    monkeypatch.setattr(cv2, "imdecode", explode)
    monkeypatch.setattr(pictures.simplejpeg, "decode_jpeg", explode)
    for data in (bytes(jpeg), png_header(2**31 - 1, 2**31 - 1), png_header(60_000, 60_000)):
        with pytest.raises(ImageError, match="bound") as caught:
            compressed_to_rgb(compressed(data))
        assert caught.value.cause == "size"
    with pytest.raises(ImageError, match="empty"):
        compressed_to_rgb(compressed(png_header(0, 5)))
    with pytest.raises(ImageError, match="scans"):
        compressed_to_rgb(compressed(encode_scans(65)))
    assert MAX_PIXELS < 60_000 ** 2


def encode_scans(count):
    """Return a JPEG header and many scan headers, which a decoder would work through."""
    frame = b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, 4000, 4000, 1) + b"\x01\x11\x00"
    scan = b"\xff\xda" + struct.pack(">HB", 8, 1) + b"\x01\x00\x00\x3f\x00" + b"\x00"
    return b"\xff\xd8" + frame + scan * count + b"\xff\xd9"


@pytest.mark.parametrize("bound", [12 * 10 - 1, 12 * 10])
def test_bound_is_a_bound(bound):
    msgs = [(image_to_rgb, message("rgb8", noise(10, 12, 3))),
            (compressed_to_rgb, compressed(encode(noise(10, 12, 3), ".png"), "png"))]
    for convert, msg in msgs:
        if bound < 120:
            with pytest.raises(ImageError, match="bound"):
                convert(msg, max_pixels=bound)
        else:
            assert convert(msg, max_pixels=bound).shape == (10, 12, 3)


@pytest.mark.parametrize(("name", "expect"), [
    ("hopper_gray.jpg", (128, 128, 3)), ("hopper_orientation_6.jpg", (128, 128, 3)),
    ("16-bit-grey-alpha.png", (96, 109, 3)), ("tRNS_null_1x1.png", (1, 1, 3)),
    ("broken.png", "data"), ("truncated.png", "data"), ("truncated_jpeg.jpg", "data"),
    ("corrupt-header.jpg", None), ("pil_sample_cmyk.jpg", "format"),
    ("decompression_bomb.gif", "format"), ("16bit.cropped.tif", "format"),
    ("foxglove_empty-file.bag", "format")])
def test_real_weird_files(name, expect):
    msg = compressed(material("weird", name).read_bytes())
    if isinstance(expect, tuple):
        assert compressed_to_rgb(msg).shape == expect
    else:
        with pytest.raises(ImageError) as caught:
            compressed_to_rgb(msg)
        assert expect in (None, caught.value.cause)


def test_exif_orientation_is_ignored():
    data = material("weird", "hopper_orientation_6.jpg").read_bytes()
    plain = cv2.imdecode(np.frombuffer(data, np.uint8),
                         cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    got = compressed_to_rgb(compressed(data))
    np.testing.assert_array_equal(got, plain[..., ::-1])
