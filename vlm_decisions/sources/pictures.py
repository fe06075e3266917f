"""Decode JPEG and PNG data whole, or refuse it with the reason. Nothing is written to stderr.

A camera's JPEG that lost part of its data still decodes: the decoder fills the rest with grey and
only warns. Such a warning is an error here, unless it concerns nothing that is shown: metadata,
bytes between the segments of the header, or zeros behind image data that is whole without them.
"""

from __future__ import annotations

import io
import re
import warnings
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import simplejpeg

MAX_PIXELS = 4096 * 4096
"""Default bound on width x height, checked before anything is decoded or copied."""

FULL_RANGE = (0, 65535)
"""Values of a 16-bit picture that become black and white, where nothing else is known."""

MAX_SCANS = 64
"""A progressive JPEG of more scans is refused: each of them costs a pass over the picture."""

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_LATER_SCAN = re.compile(rb"\xff\xda..", re.DOTALL)
_JPEG, _PNG = b"\xff\xd8", b"\x89PNG\r\n\x1a\n"
#: Zeros before the end marker, without the one that makes 0xFF a byte of image data.
_PADDING = re.compile(rb"(?:(?<![\x00\xff])|(?<=\xff\x00))\x00+(?=\xff+\xd9)")
_EXIF_ORIENTATION = 0x0112
#: Bits of a sample that a PNG may have, by its kind of colour.
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_PALETTE = 3


class ImageError(ValueError):
    """An image that cannot be used.

    ``cause`` is one short word for counting: ``encoding``, ``size``, ``data`` or ``format`` (and,
    of a message's header, ``stamp`` or ``frame_id``).
    """

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause


def decode_picture(data: bytes, *, max_pixels: int = MAX_PIXELS) -> np.ndarray:
    """Decode JPEG or PNG data to (height, width) grey or (height, width, 3) RGB.

    The array is uint8, or uint16 for a PNG of 16 bits. Alpha is dropped, EXIF orientation is not
    applied. The size is read from the file's header and checked before any pixel is decoded. Raises
    ImageError for other formats, sizes out of bounds, truncated or damaged data.
    """
    if data.startswith(_JPEG):
        return _decode_jpeg(data, max_pixels)
    if data.startswith(_PNG):
        return _decode_png(data, max_pixels)
    raise ImageError("format", f"neither JPEG nor PNG ({len(data)} bytes)")


def read_picture(path: Path, *, max_pixels: int = MAX_PIXELS,
                 value_range: tuple[int, int] = FULL_RANGE) -> np.ndarray:
    """Read a picture file (JPEG, PNG, or what else Pillow reads) as uint8 (height, width, 3) RGB.

    It is upright: the EXIF orientation is applied. Raises ImageError, also where the file cannot
    be read.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        data = path.read_bytes()
    except OSError as error:
        raise ImageError("data", error.strerror or str(error)) from error
    orientation = 1
    pixels = decode_picture(data, max_pixels=max_pixels) if data.startswith((_JPEG, _PNG)) else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # odd metadata
        try:
            with Image.open(io.BytesIO(data)) as image:
                orientation = image.getexif().get(_EXIF_ORIENTATION, 1)
                if pixels is None:
                    check_size(*image.size, max_pixels)
                    wide = image.mode.startswith("I;16")
                    pixels = (np.asarray(image).astype(np.uint16) if wide
                              else np.asarray(image.convert("RGB")))
        except ImageError:
            raise
        except Exception as error:  # damaged data makes Pillow raise many things
            if pixels is None:  # else only the orientation is not to be had
                known = not isinstance(error, UnidentifiedImageError)
                raise ImageError("data" if known else "format", "no picture that can be decoded"
                                 + (f": {error}" if known else "")) from error
    return to_rgb(_upright(pixels, orientation), value_range)


def to_rgb(pixels: np.ndarray, value_range: tuple[int, int] = FULL_RANGE) -> np.ndarray:
    """Return a grey or RGB array of 8 or 16 bits as uint8 (height, width, 3).

    16 bits are scaled so that `value_range` becomes 0 to 255, rounded to the nearest and clipped.
    """
    if pixels.dtype == np.uint16:
        low, high = value_range
        pixels = np.ascontiguousarray(pixels)
        if low:
            pixels = np.maximum(pixels, low) - np.uint16(low)
        pixels = cv2.convertScaleAbs(pixels, alpha=255.0 / (high - low))
    return cv2.cvtColor(pixels, cv2.COLOR_GRAY2RGB) if pixels.ndim == 2 else pixels


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Raise ImageError for an empty image, and for one of more than `max_pixels`."""
    if width < 1 or height < 1:
        raise ImageError("size", f"empty image: {width}x{height}")
    if width * height > max_pixels:
        raise ImageError("size", f"{width}x{height} is over the bound of {max_pixels} pixels")


def _upright(pixels: np.ndarray, orientation: Any) -> np.ndarray:
    """Apply an EXIF orientation (1 to 8); other values mean nothing."""
    if orientation in (5, 6, 7, 8):
        pixels = np.swapaxes(pixels, 0, 1)
    if orientation in (2, 3, 6, 7):
        pixels = pixels[:, ::-1]
    if orientation in (3, 4, 7, 8):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


# -- JPEG -----------------------------------------------------------------------------------------

def _decode_jpeg(data: bytes, max_pixels: int) -> np.ndarray:
    segments, scan_at = _jpeg_segments(data)
    width, height, components = _jpeg_frame(segments)
    check_size(width, height, max_pixels)
    space = "GRAY" if components == 1 else "RGB"
    _check_scans(segments, data[scan_at:])
    try:
        pixels = _decoded(data, space)
    except ValueError:
        # Without its metadata, the bytes between its segments and padding, a warning can only mean
        # the image data. Image data that was overwritten with zeros ends too early without them.
        try:
            pixels = _decoded(_bare(segments, _PADDING.sub(b"", data[scan_at:])), space)
        except ValueError as error:
            raise ImageError("data", f"damaged JPEG: {_reason(error)}") from None
    return pixels[..., 0] if components == 1 else pixels


def _decoded(data: bytes, space: str) -> np.ndarray:
    """Decode a JPEG; raises ValueError for what the decoder warns of, too."""
    # Neither of the fast ways: they change pixels.
    return simplejpeg.decode_jpeg(data, space, fastdct=False, fastupsample=False, strict=True)


def _reason(error: ValueError) -> str:
    return str(error).removeprefix("Corrupt JPEG data: ")


def _jpeg_segments(data: bytes) -> tuple[list[bytes], int]:
    """Return the segments of a JPEG's header, its last one being the scan's, and where that ends.

    Raises ImageError for what would not decode whole.
    """
    at = 2
    segments = []
    while True:
        at = data.find(b"\xff", at)
        if at < 0 or at + 4 > len(data):
            raise ImageError("data", "truncated JPEG: no image data")
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
            continue
        if marker in (0x00, 0x01) or 0xD0 <= marker <= 0xD7:
            at += 2
            continue
        length = int.from_bytes(data[at + 2:at + 4], "big")
        if length < 2:
            raise ImageError("data", "damaged JPEG header")
        segments.append(data[at:at + 2 + length])
        at += 2 + length
        if marker == 0xDA:
            break
    # Markers cannot occur inside entropy-coded data, so these two counts are exact.
    if data.find(b"\xff\xd9", at - 2 - length) < 0:
        raise ImageError("data", "truncated JPEG: no end marker")
    if data.count(b"\xff\xda", at - 2 - length) > MAX_SCANS:
        raise ImageError("format", f"JPEG of more than {MAX_SCANS} scans")
    return segments, at


def _jpeg_frame(segments: list[bytes]) -> tuple[int, int, int]:
    """Return (width, height, components: 1 or 3) of the frame header. Raises ImageError."""
    frames = [one for one in segments if one[1] in _FRAMES]
    if not frames:
        raise ImageError("data", "damaged JPEG: no frame header")
    frame = frames[-1]
    if len(frame) < 10:
        raise ImageError("data", "truncated JPEG header")
    if frame[4] != 8:
        raise ImageError("format", f"JPEG of {frame[4]} bits a sample")
    if frame[9] not in (1, 3):
        raise ImageError("format", f"JPEG of {frame[9]} components (CMYK?)")
    return int.from_bytes(frame[7:9], "big"), int.from_bytes(frame[5:7], "big"), frame[9]


def _check_scans(segments: list[bytes], rest: bytes) -> None:
    """Raise ImageError where whole scans are missing: the decoder says nothing of them.

    Every component must have come, and of a progressive JPEG every coefficient to its last bit.
    """
    frame = next(one for one in reversed(segments) if one[1] in _FRAMES)
    progressive = _progressive(segments)
    scans = [segments[-1][4:], *(rest[at.end():at.end() + 16] for at in _LATER_SCAN.finditer(rest))]
    missing = {(component, k) for component in frame[10:10 + 3 * frame[9]:3]
               for k in (range(64) if progressive else (0,))}
    for scan in scans:
        parts = 1 + 2 * scan[0] if scan else 0
        if len(scan) < parts + 3:
            continue  # the decoder complains
        first, last, bits = scan[parts:parts + 3] if progressive else (0, 0, 0)
        if not bits & 0x0F:  # to the last bit
            missing -= {(component, k) for component in scan[1:parts:2]
                        for k in range(first, last + 1)}
    if missing:
        raise ImageError("data", "damaged JPEG: scans are missing")


def _bare(segments: list[bytes], rest: bytes) -> bytes:
    """Return a JPEG of its segments alone, without comments, profiles and camera data."""
    kept = [one for one in segments if one[1] != 0xFE and not 0xE2 <= one[1] <= 0xED
            and one[1] != 0xEF]
    for number, one in enumerate(kept):
        if one[1] == 0xE0 and one[4:9] == b"JFIF\0":
            kept[number] = one[:9] + b"\x01\x02" + one[11:]  # the one version that is in use
        elif one[1] == 0xEE and (len(one) < 16 or one[15] > 2):
            kept[number] = b""  # no such colour transform: the decoder takes the usual one anyway
        elif one[1] == 0xDA and not _progressive(segments):
            kept[number] = one[:-3] + b"\x00\x3f\x00"  # all a sequential scan can mean
    return _JPEG + b"".join(kept) + rest


def _progressive(segments: list[bytes]) -> bool:
    return any(one[1] in (0xC2, 0xC6, 0xCA, 0xCE) for one in segments)


# -- PNG ------------------------------------------------------------------------------------------

def _decode_png(data: bytes, max_pixels: int) -> np.ndarray:
    chunks = _png_chunks(data)
    width, height = (int.from_bytes(chunks[0][1][at:at + 4], "big") for at in (0, 4))
    check_size(width, height, max_pixels)
    image_data = _image_data(chunks, _png_bytes(chunks[0][1], width, height))
    # Only what makes colours goes to the decoder, which would complain of the rest on stderr.
    wanted = (b"IHDR", b"PLTE") if chunks[0][1][9] == _PALETTE else (b"IHDR",)
    plain = _PNG + b"".join(_chunk(kind, content) for kind, content in chunks if kind in wanted)
    plain += _chunk(b"IDAT", image_data) + _chunk(b"IEND", b"")
    try:
        pixels = cv2.imdecode(np.frombuffer(plain, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error as error:
        raise ImageError("data", f"damaged PNG: {error.err}") from None
    if pixels is None or pixels.shape[:2] != (height, width):
        raise ImageError("data", "damaged PNG")
    if pixels.ndim == 2:
        return pixels
    return cv2.cvtColor(pixels, cv2.COLOR_BGRA2RGB if pixels.shape[2] == 4 else cv2.COLOR_BGR2RGB)


def _png_chunks(data: bytes) -> list[tuple[bytes, bytes]]:
    """Return the chunks (kind, content) of a PNG up to its end, the header first.

    Raises ImageError for one that is cut off, or whose checksum is wrong where it matters.
    """
    chunks = []
    at = len(_PNG)
    while at + 12 <= len(data):
        length = int.from_bytes(data[at:at + 4], "big")
        kind, content = data[at + 4:at + 8], data[at + 8:at + 8 + length]
        checksum = data[at + 8 + length:at + 12 + length]
        if len(checksum) < 4:
            break
        if not kind[0] & 0x20:  # critical
            if zlib.crc32(content, zlib.crc32(kind)) != int.from_bytes(checksum, "big"):
                raise ImageError("data", f"damaged PNG: checksum of {kind.decode('latin-1')!r}")
        chunks.append((kind, content))
        at += 12 + length
        if kind == b"IEND":
            _check_png_header(chunks)
            return chunks
    raise ImageError("data", "truncated PNG: no end chunk" if chunks else "truncated PNG header")


def _check_png_header(chunks: list[tuple[bytes, bytes]]) -> None:
    """Raise ImageError for what the decoder would complain of on stderr before any image data."""
    (first, header), kinds = chunks[0], [kind for kind, _ in chunks]
    whole = first == b"IHDR" and len(header) == 13 and kinds.count(b"IHDR") == 1
    depth, colour, *rest = header[8:13] if whole else (0, 0, 1)
    if depth not in _PNG_DEPTHS.get(colour, ()) or rest[:2] != [0, 0] or rest[2] > 1:
        raise ImageError("data", "damaged PNG header")
    before = kinds[:kinds.index(b"IDAT")] if b"IDAT" in kinds else kinds
    palettes = [len(content) for kind, content in chunks if kind == b"PLTE"]
    if colour == _PALETTE and (before.count(b"PLTE") != 1 or len(palettes) != 1
                               or palettes[0] % 3 or not 3 <= palettes[0] <= 768):
        raise ImageError("data", "damaged PNG: its palette is missing or damaged")


def _png_bytes(header: bytes, width: int, height: int) -> int:
    """Return the bytes of a PNG's rows, each behind the byte that names its filter."""
    depth, colour, interlaced = header[8], header[9], header[12]
    bits = depth * {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(colour, 1)

    def rows(wide: int, high: int) -> int:
        return high * (1 + (wide * bits + 7) // 8) if wide > 0 else 0

    if not interlaced:
        return rows(width, height)
    # Adam7: the passes begin at (x, y) and step by (dx, dy).
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
              (0, 1, 1, 2))
    return sum(rows(-((x - width) // dx), -((y - height) // dy)) for x, y, dx, dy in passes)


def _image_data(chunks: list[tuple[bytes, bytes]], need: int) -> bytes:
    """Return the image data, one whole zlib stream of `need` bytes. Raises ImageError."""
    data = rest = b"".join(content for kind, content in chunks if kind == b"IDAT")
    stream = zlib.decompressobj()
    size = 0
    try:
        while rest and not stream.eof:
            size += len(stream.decompress(rest, 1 << 20))  # in pieces: nothing is kept
            rest = stream.unconsumed_tail
            if size > need:
                raise ImageError("data", "damaged PNG: more image data than pixels")
    except zlib.error as error:
        raise ImageError("data", f"damaged PNG: {error}") from None
    if not stream.eof or size < need:
        raise ImageError("data", "damaged PNG: the image data is incomplete")
    return data[:len(data) - len(stream.unused_data)]


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (len(content).to_bytes(4, "big") + kind + content
            + zlib.crc32(content, zlib.crc32(kind)).to_bytes(4, "big"))
