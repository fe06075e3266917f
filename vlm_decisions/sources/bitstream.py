"""What the bytes of an H.264 or H.265 packet say, before any decoder sees them.

Written after ITU-T H.264 (7.3.1, 7.3.2, 7.3.3; E for Annex B) and H.265 (7.3.1), and ISO/IEC
14496-15 for the configuration records of MP4 ("avcC", "hvcC").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

H264, HEVC = "h264", "hevc"

START = b"\x00\x00\x00\x01"
_START = re.compile(b"\x00\x00\x01")
_EMULATION = re.compile(b"\x00\x00\x03")

_HIGH = {100, 110, 122, 244, 44, 83, 86, 118, 128, 138, 139, 134, 135}
_SLICE, _IDR, _SEI, _SPS, _PPS = 1, 5, 6, 7, 8
_RECOVERY_POINT = 6


class BitstreamError(ValueError):
    """A packet that is not what it is said to be; the message says what is wrong."""


class Bits:
    """Reads the payload of a unit bit by bit, the emulation bytes taken out."""

    def __init__(self, data: bytes) -> None:
        raw = _EMULATION.sub(b"\x00\x00", data)
        self._value, self._left = int.from_bytes(raw, "big"), 8 * len(raw)

    def u(self, count: int) -> int:
        """Return an unsigned number of `count` bits. Raises BitstreamError at the end."""
        self._left -= count
        if self._left < 0:
            raise BitstreamError("a header is cut off")
        return self._value >> self._left & (1 << count) - 1

    def ue(self) -> int:
        """Return an unsigned Exp-Golomb number."""
        zeros = 0
        while not self.u(1):
            zeros += 1
            if zeros > 32:
                raise BitstreamError("a header is damaged")
        return (1 << zeros) - 1 + self.u(zeros)

    def se(self) -> int:
        """Return a signed Exp-Golomb number."""
        code = self.ue()
        return (code + 1) // 2 if code % 2 else -(code // 2)


class Framing:
    """Cuts packets into units, whether start codes or lengths stand between them."""

    def __init__(self, codec: str) -> None:
        self._codec, self._length = codec, 4

    def units(self, data: bytes) -> list[bytes]:
        """Return the units of one packet, without start codes and lengths.

        Packets with lengths (as in MP4) may be preceded by one that is the configuration record
        with the parameter sets. Raises BitstreamError for a packet that is neither.
        """
        if data.startswith((START, START[1:])):
            return list(_by_start_codes(data))
        units = _by_lengths(data, self._length)
        if units:
            return units
        record = _configuration(data, self._codec)
        if record is None:
            raise BitstreamError(f"the packet of {len(data)} bytes has neither start codes nor "
                                 "lengths between its units, or is cut off")
        self._length, units = record
        return units


def annex_b(units: list[bytes]) -> bytes:
    """Return units as one packet with start codes."""
    return b"".join(START + unit for unit in units)


def _by_start_codes(data: bytes) -> Iterator[bytes]:
    starts = [found.end() for found in _START.finditer(data)]
    for start, after in zip(starts, [*starts[1:], None], strict=True):
        unit = data[start:after if after is None else after - 3]
        unit = unit.rstrip(b"\x00")  # the fourth byte of the next start code, and padding
        if unit:
            yield unit


def _by_lengths(data: bytes, size: int) -> list[bytes]:
    """Return the units, or nothing where their lengths do not fill the packet exactly."""
    units, at = [], 0
    while at < len(data):
        length = int.from_bytes(data[at:at + size], "big")
        at += size + length
        if not length or at > len(data):
            return []
        units.append(data[at - length:at])
    return units


def _configuration(data: bytes, codec: str) -> tuple[int, list[bytes]] | None:
    """Return the length size and the parameter sets of a configuration record, else None."""
    try:
        if data[0] != 1:
            return None
        units: list[bytes] = []
        if codec == H264:
            size, at = (data[4] & 3) + 1, 5
            for mask in (0x1F, 0xFF):
                count, at = data[at] & mask, at + 1
                at = _sized(data, at, count, units)
        else:
            size, at = (data[21] & 3) + 1, 23
            for _ in range(data[22]):
                count, at = int.from_bytes(data[at + 1:at + 3], "big"), at + 3
                at = _sized(data, at, count, units)
    except IndexError:
        return None
    return (size, units) if units else None


def _sized(data: bytes, at: int, count: int, units: list[bytes]) -> int:
    for _ in range(count):
        length = int.from_bytes(data[at:at + 2], "big")
        at += 2 + length
        if not length or at > len(data):
            raise IndexError
        units.append(data[at - length:at])
    return at


# -- what a packet holds --------------------------------------------------------------------------

@dataclass(frozen=True)
class Content:
    """``picture``: the packet holds a picture; ``begins``: decoding can begin with it.

    With gradual refresh the decoder gives the first picture some packets later, when it is whole.
    ``lost`` says which pictures before it are missing, and is empty where none is known to be.
    """

    picture: bool
    begins: bool
    lost: str = ""


class HevcReader:
    """Tells the random access pictures (BLA, IDR, CRA) of H.265.

    Lost pictures are not seen here: its decoder itself misses what it refers to.
    """

    def read(self, units: list[bytes]) -> Content:
        """Return what a packet holds."""
        kinds = [unit[0] >> 1 & 0x3F for unit in units]
        pictures = [kind for kind in kinds if kind < 32]
        return Content(bool(pictures), any(16 <= kind <= 23 for kind in pictures))

    def restart(self) -> None:
        """Forget the pictures that were read."""


@dataclass(frozen=True)
class _Sps:
    number_bits: int
    gaps: bool
    frames_only: bool
    planes: bool


class H264Reader:
    """Follows the frame numbers of H.264 (7.4.3): a lost reference picture leaves a gap in them.

    The decoder does not tell: it repeats another picture and goes on with what is wrong.
    """

    def __init__(self) -> None:
        self._sps: dict[int, _Sps] = {}
        self._pps: dict[int, int] = {}
        self.restart()

    def restart(self) -> None:
        """Forget the pictures that were read, not the parameter sets."""
        self._reference: int | None = None  # frame number of the last reference picture

    def read(self, units: list[bytes]) -> Content:
        """Return what a packet holds. Raises BitstreamError for a damaged header."""
        recovery, first = None, None
        for unit in units:
            kind = unit[0] & 0x1F
            if kind == _SPS:
                number, sps = _sequence(Bits(unit[1:]))
                self._sps[number] = sps
            elif kind == _PPS:
                bits = Bits(unit[1:])
                self._pps[bits.ue()] = bits.ue()
            elif kind == _SEI:
                recovery = _recovery(unit[1:]) if recovery is None else recovery
            elif kind in (_SLICE, 2, _IDR) and first is None:
                first = unit
        if first is None:
            return Content(False, False)
        idr = first[0] & 0x1F == _IDR
        lost = self._follow(first, whole=idr or recovery == 0)
        return Content(True, idr or recovery is not None, lost)

    def _follow(self, unit: bytes, whole: bool) -> str:
        bits = Bits(unit[1:64])
        bits.ue()  # first macroblock
        bits.ue()  # type
        pps = bits.ue()
        sps = self._sps.get(self._pps.get(pps, -1))
        if sps is None:
            return "" if self._reference is None else "its parameter sets are missing"
        if sps.planes:
            bits.u(2)
        number = bits.u(sps.number_bits)
        before, count = self._reference, 1 << sps.number_bits
        if unit[0] >> 5 & 3:
            self._reference = number
        if whole or before is None or sps.gaps:
            return ""
        due = (before + 1) % count
        second_field = not sps.frames_only and number == before
        if number == due or second_field:
            return ""
        return f"frame number {number} came where {due} was due"


def _sequence(bits: Bits) -> tuple[int, _Sps]:
    profile = bits.u(8)
    bits.u(16)  # constraints, level
    number = bits.ue()
    planes = False
    if profile in _HIGH:
        chroma = bits.ue()
        if chroma == 3:
            planes = bool(bits.u(1))
        bits.ue(), bits.ue(), bits.u(1)  # bit depths, bypass
        if bits.u(1):
            for index in range(12 if chroma == 3 else 8):
                if bits.u(1):
                    _skip_scaling_list(bits, 16 if index < 6 else 64)
    number_bits = bits.ue() + 4
    if number_bits > 16:
        raise BitstreamError("a sequence parameter set is damaged")
    order = bits.ue()
    if order == 0:
        bits.ue()
    elif order == 1:
        bits.u(1), bits.se(), bits.se()
        for _ in range(min(bits.ue(), 255)):
            bits.se()
    bits.ue()  # reference frames
    gaps = bool(bits.u(1))
    bits.ue(), bits.ue()  # size
    return number, _Sps(number_bits, gaps, bool(bits.u(1)), planes)


def _skip_scaling_list(bits: Bits, size: int) -> None:
    last = following = 8
    for _ in range(size):
        if following:
            following = (last + bits.se()) % 256
        last = following or last


def _recovery(payload: bytes) -> int | None:
    """Return after how many pictures all is right, where supplemental information says so."""
    at = 0
    while at < len(payload):
        kind, at = _number(payload, at)
        size, at = _number(payload, at)
        if kind == _RECOVERY_POINT:
            return Bits(payload[at:at + size]).ue()
        at += size
    return None


def _number(payload: bytes, at: int) -> tuple[int, int]:
    number = 0
    while at < len(payload) and payload[at] == 0xFF:
        number, at = number + 255, at + 1
    return number + (payload[at] if at < len(payload) else 0), at + 1
