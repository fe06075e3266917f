"""Turn ``sensor_msgs`` images into uint8 RGB arrays, or refuse them by name.

Every encoding of ``sensor_msgs/image_encodings.hpp`` is either converted so that each pixel is
right, or refused with a reason that says what to do instead:

- ``rgb8 bgr8 rgba8 bgra8 mono8 8UC1``: as they are (alpha is dropped, grey is repeated);
- ``rgb16 bgr16 rgba16 bgra16 mono16``: both byte orders; the range of values (``FULL_RANGE``, or
  what the sensor really uses) becomes 0 to 255, rounded;
- ``bayer_*8 bayer_*16``: bilinear demosaicing (OpenCV's), also of a mosaic that was compressed;
- ``uyvy yuv422 yuyv yuv422_yuy2 nv12 nv21 nv24``: BT.601 studio swing, as V4L2 and OpenCV do;
- ``8UC3 8UC4 16UC1 32FC1 ...``: refused, because they do not say what the numbers mean.

The functions take any object with the message's fields, so nothing here needs ROS.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from .pictures import FULL_RANGE, MAX_PIXELS, ImageError, check_size, decode_picture, to_rgb

__all__ = ["FULL_RANGE", "MAX_PIXELS", "SUPPORTED", "ImageError", "compressed_to_rgb",
           "image_to_rgb", "range_hint"]

NARROW = 0.26
"""A picture within this share of its range is worth a hint: 14 bits in 16 use a quarter of it."""

FLAT = 16
"""A 16-bit picture of fewer values than this shows nothing whose range could be told."""

_SWAP = {"rgb": None, "bgr": cv2.COLOR_BGR2RGB, "rgba": cv2.COLOR_RGBA2RGB,
         "bgra": cv2.COLOR_BGRA2RGB}
_CHANNELS = {"rgb": 3, "bgr": 3, "rgba": 4, "bgra": 4}
# OpenCV names a Bayer pattern by the second row's second and third pixels: ROS RGGB is its "BG".
_BAYER = {"rggb": cv2.COLOR_BayerBG2RGB, "bggr": cv2.COLOR_BayerRG2RGB,
          "gbrg": cv2.COLOR_BayerGR2RGB, "grbg": cv2.COLOR_BayerGB2RGB}
_YUV422 = {"uyvy": cv2.COLOR_YUV2RGB_UYVY, "yuv422": cv2.COLOR_YUV2RGB_UYVY,
           "yuyv": cv2.COLOR_YUV2RGB_YUY2, "yuv422_yuy2": cv2.COLOR_YUV2RGB_YUY2}
_YUV420 = {"nv12": cv2.COLOR_YUV2RGB_NV12, "nv21": cv2.COLOR_YUV2RGB_NV21}

_DEPTH = "is a depth image (REP 118), not a picture"
_NO_ORDER = "names no colour order: publish it as bgr8 or rgb8"
_NUMBERS = "is an array of numbers, not a picture"
_REFUSED = {"16UC1": f"{_DEPTH}; a 16-bit grey picture is mono16", "32FC1": _DEPTH,
            "8UC3": _NO_ORDER, "8UC4": _NO_ORDER, "16UC3": _NO_ORDER, "16UC4": _NO_ORDER}
_REFUSED.update({
    f"{kind}C{channels}": _NUMBERS
    for kind in ("8U", "8S", "16U", "16S", "32S", "32F", "64F") for channels in (1, 2, 3, 4)
    if f"{kind}C{channels}" not in _REFUSED and f"{kind}C{channels}" != "8UC1"})

SUPPORTED = (*(f"{order}{bits}" for order in (*_SWAP, "mono") for bits in (8, 16)), "8UC1",
             *(f"bayer_{pattern}{bits}" for pattern in _BAYER for bits in (8, 16)),
             *_YUV422, *_YUV420, "nv24")
"""Encodings of ``sensor_msgs/Image`` that are converted."""


def image_to_rgb(msg: Any, *, max_pixels: int = MAX_PIXELS,
                 value_range: tuple[int, int] = FULL_RANGE) -> np.ndarray:
    """Convert a ``sensor_msgs/Image`` to a contiguous uint8 array (height, width, 3), RGB.

    ``value_range``: of 16-bit images, the values that become 0 and 255. Of an rgb8 image without
    padding the result is a read-only view of the message's data: rclpy makes a message for each
    call. Raises ImageError for an encoding that is not a picture, a size of zero
    or above ``max_pixels``, a row step too short for the width, or fewer bytes than the size needs.
    """
    encoding = str(msg.encoding)
    width, height, step = int(msg.width), int(msg.height), int(msg.step)
    if encoding in _REFUSED:
        raise ImageError("encoding", f"encoding {encoding} {_REFUSED[encoding]}")
    if encoding not in SUPPORTED:
        raise ImageError("encoding", f"unknown encoding {_short(encoding)}")
    check_size(width, height, max_pixels)
    data = _bytes_of(msg.data)

    if encoding in _YUV420 or encoding == "nv24":
        return _planar(encoding, data, width, height, step)
    if encoding in _YUV422:
        _check_even(encoding, width=width)
        rows = _rows(encoding, data, width * 2, height, step)
        return cv2.cvtColor(rows.reshape(height, width, 2), _YUV422[encoding])
    if encoding == "8UC1":
        encoding = "mono8"
    wide = encoding.endswith("16")
    order = encoding.removesuffix("16").removesuffix("8")
    channels = _CHANNELS.get(order, 1)
    rows = _rows(encoding, data, width * channels * (2 if wide else 1), height, step)
    if wide:
        rows = rows.view(">u2" if msg.is_bigendian else "<u2").astype(np.uint16, copy=False)
    if order.startswith("bayer_"):
        if width < 2 or height < 2:
            raise ImageError("size", f"{width}x{height} is too small for a Bayer pattern")
        return to_rgb(_demosaic(rows, order.removeprefix("bayer_")), value_range)
    if order == "mono":
        return to_rgb(rows, value_range)
    pixels = rows.reshape(height, width, channels)
    if wide:
        pixels = to_rgb(pixels, value_range)
    code = _SWAP[order]
    if code is None:
        return np.ascontiguousarray(pixels)
    return cv2.cvtColor(pixels, code)


def compressed_to_rgb(msg: Any, *, max_pixels: int = MAX_PIXELS,
                      value_range: tuple[int, int] = FULL_RANGE) -> np.ndarray:
    """Decode a ``sensor_msgs/CompressedImage`` (JPEG or PNG) to uint8 (height, width, 3), RGB.

    ``value_range``: of 16-bit PNGs, the values that become 0 and 255. EXIF orientation is ignored,
    as ROS camera images are never rotated by their metadata. Raises ImageError for other formats,
    depth images, sizes out of bounds, truncated or damaged data.
    """
    source, target = _declared(msg)
    pixels = _decompressed(msg, source, max_pixels)
    pattern = source.removeprefix("bayer_").removesuffix("16").removesuffix("8")
    if pixels.ndim == 2 and source.startswith("bayer_") and not _is_grey(msg, target):
        if pattern not in _BAYER:
            raise ImageError("encoding", f"unknown encoding {_short(source)}")
        if min(pixels.shape) < 2:
            raise ImageError("size", f"{pixels.shape[1]}x{pixels.shape[0]} is too small for a "
                                     "Bayer pattern")
        pixels = _demosaic(pixels, pattern)
    rgb = to_rgb(pixels, value_range)
    # compressed_image_transport says here that it stored RGB samples where the file says BGR.
    swapped = pixels.ndim == 3 and target.startswith("rgb")
    return rgb[..., ::-1].copy() if swapped else rgb


def range_hint(msg: Any, value_range: tuple[int, int] = FULL_RANGE) -> str:
    """Return a hint where a 16-bit image uses little of its range, or an empty string.

    Takes either message, of which the conversion has succeeded; costs about as much. A picture of
    nearly one value (a covered lens, a sensor that gives nothing) tells no range.
    """
    if hasattr(msg, "step"):
        if not str(msg.encoding).endswith("16"):
            return ""
        order = ">u2" if msg.is_bigendian else "<u2"
        data = _bytes_of(msg.data)
        values = data[:data.size // 2 * 2].view(order)
    else:
        # The packet of a video has 8 bits, and may have no format.
        if not getattr(msg, "format", "").partition(";")[0].strip().endswith("16"):
            return ""
        values = decode_picture(_bytes_of(msg.data).tobytes()).reshape(-1)
        if values.dtype != np.uint16:
            return ""
    values = values[::17]  # odd: of a Bayer mosaic every colour
    low, high = (int(value) for value in np.percentile(values, (1, 99)))
    least, most = value_range
    share = (high - low) / (most - least)
    if share >= NARROW or high - low < FLAT:
        return ""
    bits = max(8, int(values.max()).bit_length())
    if (high - low) / (2**bits - 1) >= NARROW:
        advice = (f"to what the sensor gives (it looks like {bits} bits: 0 and {2**bits - 1})")
    else:  # a part of the range of any number of bits, as of a thermal camera
        advice = f"to what the scene gives (now: {low} and {high})"
    return (f"the 16-bit image uses values {low} to {high}, {share:.1%} of the range {least} to "
            f"{most}, and looks nearly grey: set min_image_value and max_image_value {advice}")


def _declared(msg: Any) -> tuple[str, str]:
    """Return the encodings that a CompressedImage's format tells: the camera's, the stored one."""
    source, _, transport = str(msg.format).partition(";")
    return source.strip(), transport.partition("compressed")[2].strip()


def _is_grey(msg: Any, target: str) -> bool:
    """Whether one channel of a Bayer camera's picture is grey, and not the mosaic itself."""
    # compressed_image_transport converts what it stores as JPEG, and says into what if not grey.
    return target == "mono8" or (not target and "jpeg compressed" in str(msg.format))


def _decompressed(msg: Any, source: str, max_pixels: int) -> np.ndarray:
    if "compressedDepth" in str(msg.format):
        raise ImageError("encoding", "compressedDepth is a depth image, not a picture")
    if source in _REFUSED:
        raise ImageError("encoding", f"compressed {source} {_REFUSED[source]}")
    try:
        return decode_picture(_bytes_of(msg.data).tobytes(), max_pixels=max_pixels)
    except ImageError as error:
        if error.cause != "format":
            raise
        raise ImageError("format", f"{error}; declared as {_short(str(msg.format))}") from None


def _check_even(encoding: str, **sides: int) -> None:
    for name, value in sides.items():
        if value % 2:
            raise ImageError("size", f"{encoding} needs an even {name}, got {value}")


def _bytes_of(data: Any) -> np.ndarray:
    """View the message's data as uint8 (n,), without a copy."""
    return np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)


def _rows(what: str, data: np.ndarray, row_bytes: int, rows: int, step: int) -> np.ndarray:
    """View ``data`` as uint8 (rows, row_bytes); rows start ``step`` bytes apart."""
    if step < row_bytes:
        raise ImageError("data", f"step {step} is shorter than a row of {what}: "
                                 f"{row_bytes} bytes")
    need = step * (rows - 1) + row_bytes
    if data.size < need:
        raise ImageError("data", f"{data.size} bytes of image data, {need} needed "
                                 f"for {rows} rows of step {step} ({what})")
    return np.lib.stride_tricks.as_strided(data, (rows, row_bytes), (step, 1), writeable=False)


def _demosaic(mosaic: np.ndarray, pattern: str) -> np.ndarray:
    """Interpolate a Bayer mosaic (h, w) of uint8 or uint16 to RGB (h, w, 3)."""
    # OpenCV leaves the outer pixels of an image under 3 a side black; a mirrored border, two
    # wide so that the pattern keeps its phase, gives every real pixel true neighbours.
    framed = cv2.copyMakeBorder(np.ascontiguousarray(mosaic), 2, 2, 2, 2, cv2.BORDER_REFLECT_101)
    return np.ascontiguousarray(cv2.cvtColor(framed, _BAYER[pattern])[2:-2, 2:-2])


def _planar(encoding: str, data: np.ndarray, width: int, height: int, step: int) -> np.ndarray:
    """Convert a luma plane followed by one plane of interleaved chroma."""
    luma = _rows(encoding, data, width, height, step)
    rest = data[step * height:]
    if encoding == "nv24":
        chroma = _rows("nv24 chroma", rest, 2 * width, height, 2 * step)
        return _yuv444_to_rgb(luma, chroma.reshape(height, width, 2))
    _check_even(encoding, width=width, height=height)
    chroma = _rows(f"{encoding} chroma", rest, width, height // 2, step)
    return cv2.cvtColor(np.concatenate((luma, chroma)), _YUV420[encoding])


def _yuv444_to_rgb(luma: np.ndarray, chroma: np.ndarray) -> np.ndarray:
    """BT.601 studio swing for full-resolution chroma (h, w, 2: U, V), which OpenCV lacks."""
    y = 1.164383 * np.maximum(luma.astype(np.float32) - 16.0, 0.0)
    u = chroma[..., 0].astype(np.float32) - 128.0
    v = chroma[..., 1].astype(np.float32) - 128.0
    rgb = np.stack((y + 1.596027 * v, y - 0.812968 * v - 0.391762 * u, y + 2.017232 * u), axis=-1)
    return np.clip(np.rint(rgb), 0, 255).astype(np.uint8)


def _short(text: str) -> str:
    """Quote text from the wire, bounded, for a log line."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
