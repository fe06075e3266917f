"""
Turn ``sensor_msgs`` images into uint8 RGB arrays, or refuse them by name.

Every encoding of ``sensor_msgs/image_encodings.hpp`` is either converted so that each pixel is
right, or refused with a reason that says what to do instead:

- ``rgb8 bgr8 rgba8 bgra8 mono8 8UC1``: as they are (alpha is dropped, grey is repeated);
- ``rgb16 bgr16 rgba16 bgra16 mono16``: both byte orders, scaled by 255/65535 and rounded;
- ``bayer_*8 bayer_*16``: bilinear demosaicing (OpenCV's);
- ``uyvy yuv422 yuyv yuv422_yuy2 nv12 nv21 nv24``: BT.601 studio swing, as V4L2 and OpenCV do;
- ``8UC3 8UC4 16UC1 32FC1 ...``: refused, because they do not say what the numbers mean.

The functions take any object with the message's fields, so nothing here needs ROS.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

MAX_PIXELS = 4096 * 4096
"""Default bound on width x height, checked before anything is decoded or copied."""

_SWAP = {"rgb": None, "bgr": cv2.COLOR_BGR2RGB, "rgba": cv2.COLOR_RGBA2RGB,
         "bgra": cv2.COLOR_BGRA2RGB, "mono": cv2.COLOR_GRAY2RGB}
_CHANNELS = {"rgb": 3, "bgr": 3, "rgba": 4, "bgra": 4, "mono": 1}
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

SUPPORTED = (*(f"{order}{bits}" for order in _SWAP for bits in (8, 16)), "8UC1",
             *(f"bayer_{pattern}{bits}" for pattern in _BAYER for bits in (8, 16)),
             *_YUV422, *_YUV420, "nv24")
"""Encodings of ``sensor_msgs/Image`` that are converted."""


class ImageError(ValueError):
    """
    An image message that cannot be used.

    ``cause`` is one short word for counting: ``encoding``, ``size``, ``data`` or ``format`` (and,
    of a message's header, ``stamp`` or ``frame_id``).
    """

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


def image_to_rgb(msg: Any, *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """
    Convert a ``sensor_msgs/Image`` to a contiguous uint8 array (height, width, 3), RGB.

    Of an rgb8 image without padding it is a read-only view of the message's data: rclpy makes a
    message for each call. Raises ImageError for an encoding that is not a picture, a size of zero
    or above ``max_pixels``, a row step too short for the width, or fewer bytes than the size needs.
    """
    encoding = str(msg.encoding)
    width, height, step = int(msg.width), int(msg.height), int(msg.step)
    if encoding in _REFUSED:
        raise ImageError("encoding", f"encoding {encoding} {_REFUSED[encoding]}")
    if encoding not in SUPPORTED:
        raise ImageError("encoding", f"unknown encoding {_short(encoding)}")
    _check_size(width, height, max_pixels)
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
        rgb = _demosaic(rows, order.removeprefix("bayer_"))
        return _to_8_bit(rgb) if wide else rgb
    pixels = rows.reshape(height, width, channels)
    if wide:
        pixels = _to_8_bit(pixels).reshape(height, width, channels)
    code = _SWAP[order]
    if code is None:
        return np.ascontiguousarray(pixels)
    return cv2.cvtColor(pixels, code)


def compressed_to_rgb(msg: Any, *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """
    Decode a ``sensor_msgs/CompressedImage`` (JPEG or PNG) to uint8 (height, width, 3), RGB.

    The size is read from the file's header and checked before any pixel is decoded. EXIF
    orientation is ignored, as ROS camera images are never rotated by their metadata. Raises
    ImageError for other formats, depth images, sizes out of bounds, truncated or damaged data.
    """
    declared = str(msg.format)
    source, _, transport = declared.partition(";")
    source = source.strip()
    if "compressedDepth" in declared:
        raise ImageError("encoding", "compressedDepth is a depth image, not a picture")
    if source in _REFUSED:
        raise ImageError("encoding", f"compressed {source} {_REFUSED[source]}")
    data = _bytes_of(msg.data)
    raw = data.tobytes()
    if raw.startswith(b"\xff\xd8"):
        size = _jpeg_size(raw)
        flags = cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION
    elif raw.startswith(b"\x89PNG\r\n\x1a\n"):
        size = _png_size(raw)
        flags = cv2.IMREAD_UNCHANGED
    else:
        raise ImageError("format", f"neither JPEG nor PNG (format {_short(declared)}, "
                                   f"{len(raw)} bytes)")
    _check_size(*size, max_pixels)
    try:
        pixels = cv2.imdecode(data, flags)
    except cv2.error as error:
        raise ImageError("data", f"damaged image data: {error.err}") from None
    if pixels is None or pixels.shape[:2] != size[::-1]:
        raise ImageError("data", "damaged image data")
    if pixels.dtype == np.uint16:
        pixels = _to_8_bit(pixels)
    if pixels.ndim == 2:
        return cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB)
    # compressed_image_transport says here that it stored RGB samples where the file says BGR.
    stored_rgb = transport.strip().endswith(("compressed rgb8", "compressed rgba8"))
    if pixels.shape[2] == 4:
        return cv2.cvtColor(pixels, cv2.COLOR_RGBA2RGB if stored_rgb else cv2.COLOR_BGRA2RGB)
    return pixels if stored_rgb else cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _check_size(width: int, height: int, max_pixels: int) -> None:
    if width < 1 or height < 1:
        raise ImageError("size", f"empty image: {width}x{height}")
    if width * height > max_pixels:
        raise ImageError("size", f"{width}x{height} is over the bound of {max_pixels} pixels")


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


def _to_8_bit(pixels: np.ndarray) -> np.ndarray:
    """Scale uint16 to uint8 by 255/65535, rounded to the nearest."""
    return cv2.convertScaleAbs(np.ascontiguousarray(pixels), alpha=1.0 / 257.0)


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


def _jpeg_size(raw: bytes) -> tuple[int, int]:
    """Read (width, height) from a JPEG's frame header; refuse what would not decode whole."""
    at = 2
    size = None
    while True:
        at = raw.find(b"\xff", at)
        if at < 0 or at + 4 > len(raw):
            raise ImageError("data", "truncated JPEG: no image data")
        marker = raw[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD7:
            at += 2
            continue
        length = int.from_bytes(raw[at + 2:at + 4], "big")
        if length < 2:
            raise ImageError("data", "damaged JPEG header")
        if marker == 0xDA:
            break
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            if length < 8 or at + 10 > len(raw):
                raise ImageError("data", "truncated JPEG header")
            if raw[at + 4] != 8:
                raise ImageError("format", f"JPEG of {raw[at + 4]} bits a sample")
            if raw[at + 9] not in (1, 3):
                raise ImageError("format", f"JPEG of {raw[at + 9]} components (CMYK?)")
            size = (int.from_bytes(raw[at + 7:at + 9], "big"),
                    int.from_bytes(raw[at + 5:at + 7], "big"))
        at += 2 + length
    if size is None:
        raise ImageError("data", "damaged JPEG: no frame header")
    # Markers cannot occur inside entropy-coded data, so these two counts are exact.
    if raw.find(b"\xff\xd9", at) < 0:
        raise ImageError("data", "truncated JPEG: no end marker")
    if raw.count(b"\xff\xda", at) > 64:
        raise ImageError("format", "JPEG of more than 64 scans")
    return size


def _png_size(raw: bytes) -> tuple[int, int]:
    """Read (width, height) from a PNG's header and check that its chunks are complete."""
    if raw[12:16] != b"IHDR" or len(raw) < 33:
        raise ImageError("data", "truncated PNG header")
    at = 8
    while at + 12 <= len(raw):
        length = int.from_bytes(raw[at:at + 4], "big")
        kind = raw[at + 4:at + 8]
        at += 12 + length
        if kind == b"IEND" and at <= len(raw):
            return int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big")
    raise ImageError("data", "truncated PNG: no end chunk")


def _short(text: str) -> str:
    """Quote text from the wire, bounded, for a log line."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
