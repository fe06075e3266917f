"""Pictures are decoded whole or refused, without a word of a library on stderr."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from material import material

from vlm_decisions.sources import pictures
from vlm_decisions.sources.pictures import ImageError, decode_picture, read_picture

RNG = np.random.default_rng(0)
PICTURE = cv2.resize(RNG.integers(0, 255, (30, 40, 3), np.uint8), (320, 240))


def jpeg(*parameters: int) -> bytes:
    return cv2.imencode(".jpg", PICTURE, list(parameters))[1].tobytes()


def png(picture: np.ndarray = PICTURE) -> bytes:
    return cv2.imencode(".png", picture)[1].tobytes()


BASELINE = jpeg()
PROGRESSIVE = jpeg(cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
RESTARTS = jpeg(cv2.IMWRITE_JPEG_RST_INTERVAL, 8)
OPTIMISED = jpeg(cv2.IMWRITE_JPEG_OPTIMIZE, 1)
END = b"\xff\xd9"


def scan_begin(data: bytes) -> int:
    at = data.index(b"\xff\xda")
    return at + 2 + int.from_bytes(data[at + 2:at + 4], "big")


def without(data: bytes, begin: float, end: float) -> bytes:
    """Leave out a part of the image data, given by shares of it."""
    first = scan_begin(data)
    a, b = (first + round(share * (len(data) - 2 - first)) for share in (begin, end))
    return data[:a] + data[b:-2] + END


def overwritten(data: bytes, begin: float, fill: int) -> bytes:
    """Overwrite the image data from a share of it on; the end marker stays."""
    first = scan_begin(data)
    at = first + round(begin * (len(data) - 2 - first))
    return data[:at] + bytes([fill]) * (len(data) - 2 - at) + END


def first_scan_only(data: bytes) -> bytes:
    """Overwrite all that follows the first scan with zeros."""
    at = data.index(b"\xff\xc4", scan_begin(data))
    return data[:at] + bytes(len(data) - 2 - at) + END


def stray_between_scans(data: bytes) -> bytes:
    """Put bytes before the segment that follows the first scan."""
    at = data.index(b"\xff\xc4", scan_begin(data))
    return data[:at] + b"abcde" * 5 + data[at:]


# Of bytes that the decoder leaves over nobody can tell whether they came in addition, or whether it
# took others of them for image data.
OVERWRITTEN = {
    f"{name} from {begin:.0%} on with {fill:#04x}": overwritten(data, begin, fill)
    for name, data in (("baseline", BASELINE), ("restart markers", RESTARTS),
                       ("progressive", PROGRESSIVE), ("optimised", OPTIMISED))
    for begin in (0.0, 0.3, 0.6, 0.97) for fill in (0x00, 0x55, 0xFF)
}
DAMAGED = OVERWRITTEN | {
    "bytes before the end that are no padding": BASELINE[:-2] + b"abcde" * 5 + END,
    "bytes between two scans": stray_between_scans(PROGRESSIVE),
    "all scans but the first overwritten": first_scan_only(PROGRESSIVE),
    "all scans but the first cut": first_scan_only(PROGRESSIVE).rstrip(END).rstrip(b"\0") + END,
    "the last 70 % of the scan lost": without(BASELINE, 0.3, 1.0),
    "the last 10 % of the scan lost": without(BASELINE, 0.9, 1.0),
    "all of the scan lost": without(BASELINE, 0.0, 1.0),
    "a packet in the middle lost": without(BASELINE, 0.4, 0.5),
    "zeros in the middle": BASELINE[:4000] + bytes(2000) + BASELINE[6000:],
    "progressive, the later scans cut": without(PROGRESSIVE, 0.6, 1.0),
    "restart markers, a part lost": without(RESTARTS, 0.4, 0.6),
    "optimised tables, the end lost": without(OPTIMISED, 0.7, 1.0),
    "odd metadata and the end lost": b"\xff\xd8\xff\xee\x00\x0eAdobe" + bytes(6) + b"\x63"
                                     + without(BASELINE, 0.6, 1.0)[2:],
    "stray bytes in the header and the end lost": BASELINE[:20] + b"abc"
                                                  + without(BASELINE, 0.6, 1.0)[20:],
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_jpeg_that_lost_image_data_is_refused(name, capfd):
    with pytest.raises(ImageError, match="damaged JPEG") as caught:
        decode_picture(DAMAGED[name])
    assert caught.value.cause == "data"
    assert capfd.readouterr() == ("", "")


def test_a_jpeg_that_ends_in_the_header_of_a_later_scan(capfd):
    begins = [at for at in range(len(PROGRESSIVE)) if PROGRESSIVE[at:at + 2] == b"\xff\xda"]
    assert len(begins) > 4
    for at in begins[1:]:
        for kept in range(9):
            with pytest.raises(ImageError):
                decode_picture(PROGRESSIVE[:at + kept] + END)
    assert capfd.readouterr() == ("", "")


PADDING = bytes(300)
WHOLE = {
    "padding before the end": BASELINE[:-2] + PADDING + END,
    "padding before the end, restart markers": RESTARTS[:-2] + PADDING + END,
    "padding before the end, progressive": PROGRESSIVE[:-2] + PADDING + END,
    "padding and fill bytes before the end": BASELINE[:-2] + PADDING + b"\xff\xff" + END,
    "bytes after the end": BASELINE + bytes(500),
    "bytes between segments": BASELINE[:20] + b"abc" + BASELINE[20:],
    "an unknown version of JFIF": BASELINE.replace(b"JFIF\0\1", b"JFIF\0\7", 1),
    "an unknown colour transform": b"\xff\xd8\xff\xee\x00\x0eAdobe" + bytes(6) + b"\x63"
                                   + BASELINE[2:],
    "a colour profile that is none": b"\xff\xd8\xff\xe2\x00\x10ICC_PROFILE\0\x05" + BASELINE[2:],
    "a comment": b"\xff\xd8\xff\xfe\x00\x06abcd" + BASELINE[2:],
    "fill bytes": BASELINE[:2] + b"\xff\xff\xff" + BASELINE[2:],
    "odd scan parameters": BASELINE[:scan_begin(BASELINE) - 3] + b"\x00\x00\x00"
                           + BASELINE[scan_begin(BASELINE):],
    "progressive": PROGRESSIVE, "restart markers": RESTARTS, "optimised tables": OPTIMISED,
}


def test_padding_is_told_from_image_data():
    """Behind 0xFF 0x00, the byte 0xFF; behind a zero nobody can tell where it begins."""
    last = set()
    for seed in range(400):
        small = np.random.default_rng(seed).integers(0, 255, (8, 8), np.uint8)
        data = cv2.imencode(".jpg", small)[1].tobytes()
        padded = data[:-2] + PADDING + END
        stuffed, zero = data[-4:-2] == b"\xff\x00", data[-3] == 0
        last.add((stuffed, zero))
        if zero and not stuffed:
            with pytest.raises(ImageError, match="premature end"):
                decode_picture(padded)
        else:
            np.testing.assert_array_equal(decode_picture(padded), decode_picture(data))
    assert last == {(True, True), (False, True), (False, False)}


@pytest.mark.parametrize("name", WHOLE)
def test_what_concerns_no_pixel_is_no_damage(name, capfd):
    got = decode_picture(WHOLE[name])
    plain = (PROGRESSIVE if "progressive" in name else RESTARTS if "restart" in name
             else BASELINE)
    want = cv2.imdecode(np.frombuffer(plain, np.uint8), cv2.IMREAD_COLOR)[..., ::-1]
    np.testing.assert_array_equal(got, want)
    assert capfd.readouterr() == ("", "")


def chunk(kind: bytes, content: bytes, *, wrong: int = 0) -> bytes:
    checksum = zlib.crc32(kind + content) ^ wrong
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def parts(data: bytes) -> dict[bytes, bytes]:
    """Return a PNG's chunks by kind, joined."""
    found: dict[bytes, bytes] = {}
    at = 8
    while at < len(data):
        length = int.from_bytes(data[at:at + 4], "big")
        kind = data[at + 4:at + 8]
        found[kind] = found.get(kind, b"") + data[at + 8:at + 8 + length]
        at += 12 + length
    return found


def built(idat: bytes, *extra: bytes, wrong: int = 0) -> bytes:
    header = parts(png())[b"IHDR"]
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(extra)
            + chunk(b"IDAT", idat, wrong=wrong) + chunk(b"IEND", b""))


def palette(*extra: bytes) -> bytes:
    header = parts(png())[b"IHDR"]
    rows = zlib.compress(bytes(PICTURE.shape[0] * (1 + PICTURE.shape[1])))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header[:9] + b"\3" + header[10:])
            + b"".join(extra) + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


IDAT = parts(png())[b"IDAT"]
BAD_PNG = {
    "a bit flipped": png()[:9000] + bytes([png()[9000] ^ 16]) + png()[9001:],
    "the checksum wrong": built(IDAT, wrong=1),
    "the zlib stream cut, checksums right": built(IDAT[:len(IDAT) // 2]),
    "the zlib stream damaged, checksums right": built(IDAT[:900] + bytes(99) + IDAT[999:]),
    "no zlib stream": built(b"hello"),
    "too few rows": built(zlib.compress(zlib.decompress(IDAT)[:1000])),
    "far more data than pixels": built(zlib.compress(bytes(50_000_000))),
    "no image data": built(b""),
    "no palette": palette(), "a palette that is cut": palette(chunk(b"PLTE", b"abcd")),
}


@pytest.mark.parametrize("name", BAD_PNG)
def test_a_png_that_is_damaged_inside_is_refused(name, capfd):
    with pytest.raises(ImageError, match="PNG") as caught:
        decode_picture(BAD_PNG[name])
    assert caught.value.cause == "data"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("extra", [
    chunk(b"iCCP", b"x"), chunk(b"tEXt", b"Comment\0hello", wrong=7), chunk(b"gAMA", b""),
    chunk(b"pHYs", b"abc"), chunk(b"acTL", b"\0\0\0\2\0\0\0\0"), chunk(b"eXIf", b"junk"),
    chunk(b"tRNS", b"abc"), chunk(b"PLTE", b"abcd"), chunk(b"IDAT", IDAT[:9]) + chunk(b"tEXt", b"")
    + chunk(b"IDAT", IDAT[9:])])
def test_odd_metadata_of_a_png_is_no_damage(extra, capfd):
    np.testing.assert_array_equal(decode_picture(built(IDAT, extra)), PICTURE[..., ::-1])
    assert capfd.readouterr() == ("", "")


def test_what_is_returned():
    grey = RNG.integers(0, 65536, (5, 7), dtype=np.uint16)
    np.testing.assert_array_equal(decode_picture(png(grey)), grey)
    assert decode_picture(palette(chunk(b"PLTE", b"abc")))[0, 0].tolist() == [97, 98, 99]
    assert decode_picture(jpeg()).shape == (240, 320, 3)
    assert decode_picture(cv2.imencode(".jpg", PICTURE[..., 0])[1].tobytes()).shape == (240, 320)
    for data in (b"", b"GIF89a", b"\xff", b"\x89PNG"):
        with pytest.raises(ImageError, match="neither JPEG nor PNG"):
            decode_picture(data)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (8, 8), (5, 3), (33, 17), (2, 1), (1, 9)])
def test_how_much_data_an_interlaced_png_holds(width, height):
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 1)
    size = 0
    for x, y, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4),
                         (1, 0, 2, 2), (0, 1, 1, 2)):
        columns, rows = len(range(x, width, dx)), len(range(y, height, dy))
        size += rows * (1 + columns) if columns else 0
    assert pictures._png_bytes(header, width, height) == size


def test_a_picture_file_of_16_bits(tmp_path):
    grey = np.linspace(0, 4095, 640).astype(np.uint16).reshape(16, 40)
    for suffix in (".png", ".tif"):
        path = tmp_path / f"one{suffix}"
        cv2.imwrite(str(path), grey)
        assert read_picture(path).max() == 16
        assert read_picture(path, value_range=(0, 4095)).max() == 255


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_picture_file_is_upright(tmp_path, orientation):
    from PIL import Image, ImageOps

    path = tmp_path / "one.png"
    image = Image.fromarray(np.ascontiguousarray(PICTURE[..., ::-1]))
    exif = image.getexif()
    exif[0x0112] = orientation
    image.save(path, exif=exif)
    with Image.open(path) as saved:
        want = np.asarray(ImageOps.exif_transpose(saved))
    np.testing.assert_array_equal(read_picture(path), want)


@pytest.mark.parametrize("suffix", [".bmp", ".tif", ".webp", ".png"])
def test_other_kinds_of_picture_files(tmp_path, suffix):
    path = tmp_path / f"one{suffix}"
    parameters = [cv2.IMWRITE_WEBP_QUALITY, 101] if suffix == ".webp" else []
    assert cv2.imwrite(str(path), PICTURE, parameters)
    np.testing.assert_array_equal(read_picture(path), PICTURE[..., ::-1])
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(ImageError):
        read_picture(path)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (8, 8), (9, 13), (2, 3)])
@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "LA", "RGBA"])
def test_every_kind_of_png(mode, size):
    """Also of one bit a pixel, whose rows do not end with a byte."""
    import io

    from PIL import Image

    grey = RNG.integers(0, 256, size, dtype=np.uint8)
    image = Image.fromarray(grey).convert(mode)
    file = io.BytesIO()
    image.save(file, "PNG")
    got = decode_picture(file.getvalue())
    want = np.asarray(image.convert("RGB"))
    np.testing.assert_array_equal(got if got.ndim == 3 else np.stack([got] * 3, -1), want)


def test_picture_files_that_are_none(tmp_path):
    with pytest.raises(ImageError, match="No such file"):
        read_picture(tmp_path / "none.jpg")
    (tmp_path / "a.jpg").write_text("no picture")
    with pytest.raises(ImageError, match="no picture that can be decoded"):
        read_picture(tmp_path / "a.jpg")
    cv2.imwrite(str(tmp_path / "b.bmp"), PICTURE)
    with pytest.raises(ImageError, match="over the bound"):
        read_picture(tmp_path / "b.bmp", max_pixels=1000)


@pytest.mark.parametrize("name", ["truncated_jpeg.jpg", "truncated.png", "broken.png"])
def test_real_damaged_files(name, capfd):
    with pytest.raises(ImageError):
        read_picture(Path(material("weird", name)))
    assert capfd.readouterr() == ("", "")
