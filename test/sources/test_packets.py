"""Video packet by packet: every picture that is shown is whole, and has its own stamp."""

from types import SimpleNamespace

import numpy as np
import pytest
from video_packets import encoded, shown

from vlm_decisions.sources.bag_writer import BagWriter
from vlm_decisions.sources.bags import BagError, read_images
from vlm_decisions.sources.bitstream import START, BitstreamError, Framing
from vlm_decisions.sources.messages import COMPRESSED, FFMPEG, FOXGLOVE, PictureReader
from vlm_decisions.sources.packets import Continuity, PacketDecoder, codec_named
from vlm_decisions.sources.pictures import ImageError

STREAMS = {
    "h264": ("h264", {}),
    "h264 low delay": ("h264", {"options": {"tune": "zerolatency"}}),
    "h264 b frames": ("h264", {"b_frames": 2}),
    "h264 open gop": ("h264", {"b_frames": 2, "options": {"x264-params": "open-gop=1:slices=4"}}),
    "h264 gradual refresh": ("h264", {"options": {"x264-params": "intra-refresh=1"}}),
    "hevc": ("hevc", {}),
    "hevc b frames": ("hevc", {"b_frames": 2}),
}


@pytest.fixture(scope="module", params=STREAMS)
def stream(request):
    codec, how = STREAMS[request.param]
    packets, _ = encoded(codec, 60, **how)
    return codec, packets, shown(codec, packets)


def decoded(codec, packets):
    """Return the pictures by stamp, in their order, and the reasons of those left out."""
    decoder = PacketDecoder(codec)
    pictures, reasons = {}, []
    for packet in packets:
        try:
            for rgb, stamp_ns in decoder.decode(packet.data, packet.number):
                pictures[stamp_ns] = rgb
        except ImageError as error:
            assert error.cause == "video"
            reasons.append(str(error))
    for rgb, stamp_ns in decoder.rest():
        pictures[stamp_ns] = rgb
    return pictures, reasons


def equal(pictures, truth):
    return all(np.array_equal(rgb, truth[number]) for number, rgb in pictures.items())


def test_a_whole_stream_is_shown_whole_with_its_own_stamps(stream):
    codec, packets, truth = stream
    pictures, reasons = decoded(codec, packets)
    assert not reasons and list(pictures) == list(range(60)) and equal(pictures, truth)


@pytest.mark.parametrize("first", [1, 3, 19])
def test_joining_between_keyframes_waits_for_the_next(stream, first):
    codec, packets, truth = stream
    pictures, reasons = decoded(codec, packets[first:])
    assert pictures and equal(pictures, truth)
    assert min(pictures) >= 19 and max(pictures) == 59
    told = (f"{codec} video: the stream was joined between two keyframes; waiting for the next "
            "keyframe")
    assert set(reasons) == (set() if packets[first].key else {told})


@pytest.mark.parametrize("lost", [5, 7, 23, 30])
def test_nothing_is_shown_from_what_a_lost_packet_broke(stream, lost):
    codec, packets, truth = stream
    pictures, reasons = decoded(codec, packets[:lost] + packets[lost + 1:])
    assert equal(pictures, truth) and max(pictures) == 59
    assert reasons or len(pictures) == 59  # nothing refers to some B frames


def test_the_decoder_alone_would_have_shown_wrong_pictures(stream):
    codec, packets, truth = stream
    pictures = shown(codec, packets[:7] + packets[9:])
    assert codec == "hevc" or not equal(pictures, truth)


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_a_gap_says_what_was_lost(codec):
    packets, _ = encoded(codec)
    _, reasons = decoded(codec, packets[:7] + packets[8:])
    told = {"h264": "a packet was lost (frame number 8 came where 7 was due)",
            "hevc": "a picture cannot be decoded (invalid data found when processing input)"}
    assert reasons[0] == f"{codec} video: {told[codec]}; waiting for the next keyframe"


@pytest.mark.parametrize("codec", ["h264", "hevc"])
@pytest.mark.parametrize("aside", [False, True])
def test_lengths_between_units_and_parameter_sets_of_their_own(codec, aside):
    """As in MP4: the parameter sets in a record before the packets, or within them."""
    packets, extradata = encoded(codec, global_header=aside)
    truth = shown(codec, encoded(codec)[0])
    framing = Framing(codec)
    decoder = PacketDecoder(codec)
    pictures = {}
    if aside:
        assert decoder.decode(record(codec, framing.units(extradata)), 0) == []
    for packet in packets:
        data = b"".join(len(unit).to_bytes(4, "big") + unit for unit in framing.units(packet.data))
        assert not data.startswith(START)
        pictures |= {stamp_ns: rgb for rgb, stamp_ns in decoder.decode(data, packet.number)}
    pictures |= {stamp_ns: rgb for rgb, stamp_ns in decoder.rest()}
    assert len(pictures) == 40 and equal(pictures, truth)


def record(codec, units):
    """Return the configuration record of these parameter sets (ISO/IEC 14496-15)."""
    def sized(unit):
        return len(unit).to_bytes(2, "big") + unit

    if codec == "h264":
        sequence, picture = (next(unit for unit in units if unit[0] & 31 == kind)
                             for kind in (7, 8))
        return (b"\1" + sequence[1:4] + b"\xff\xe1" + sized(sequence) + b"\1" + sized(picture))
    sets = [unit for unit in units if 32 <= unit[0] >> 1 & 63 <= 34]
    arrays = b"".join(bytes([unit[0] >> 1 & 63]) + b"\0\1" + sized(unit) for unit in sets)
    return b"\1" + bytes(20) + b"\xff" + bytes([len(sets)]) + arrays


@pytest.mark.parametrize("codec", ["h264", "hevc"])
def test_another_resolution(codec):
    small, large = encoded(codec, 10)[0], encoded(codec, 10, size=(240, 320))[0]
    decoder = PacketDecoder(codec)
    sizes = [rgb.shape for packet in small + large + small
             for rgb, _ in decoder.decode(packet.data, packet.number)]
    sizes += [rgb.shape for rgb, _ in decoder.rest()]
    assert {(120, 160, 3), (240, 320, 3)} == set(sizes)


def test_a_picture_over_the_bound_is_refused():
    packets, _ = encoded("h264", 3, options={"tune": "zerolatency"})
    decoder = PacketDecoder("h264", max_pixels=160 * 119)
    with pytest.raises(ImageError, match=r"160x120 is over the bound of 19040 pixels"):
        decoder.decode(packets[0].data, 0)


@pytest.mark.parametrize(("data", "told"), [
    (b"", "the packet of 0 bytes has neither start codes nor lengths"),
    (b"\xff\xd8\xff\xe0 a jpeg", "the packet of 11 bytes has neither start codes nor lengths"),
    (START + b"\x67\x64", "a header is cut off"),
    (START + b"\x67\x64\0\x0c" + b"\0\0\3" * 4 + b"\x80", "a header is damaged"),
])
def test_what_is_no_packet_is_refused_and_the_next_keyframe_helps(data, told):
    packets, _ = encoded("h264", 25, gop=10, options={"tune": "zerolatency"})
    decoder = PacketDecoder("h264")
    assert decoder.decode(packets[0].data, 0)
    with pytest.raises(ImageError, match=told):
        decoder.decode(data, 1)
    with pytest.raises(ImageError, match="waiting for the next keyframe"):
        decoder.decode(packets[1].data, 2)
    assert decoder.decode(packets[10].data, 3)


def test_random_bytes_raise_nothing_else():
    rng = np.random.default_rng(0)
    for codec in ("h264", "hevc"):
        decoder, continuity = PacketDecoder(codec), Continuity(codec)
        packets, _ = encoded(codec, 3)
        for k in range(300):
            data = bytearray(packets[k % 3].data)
            for at in rng.integers(0, len(data), 1 + k % 5):
                data[at] = rng.integers(256)
            try:
                continuity.take(bytes(data))
            except BitstreamError:
                pass
            try:
                decoder.decode(bytes(data[:rng.integers(len(data))]), k)
            except ImageError:
                pass


@pytest.mark.parametrize(("text", "codec"), [
    ("h264", "h264"), ("H.264", "h264"), ("libx264", "h264"), ("h264_nvenc", "h264"),
    ("h264;yuv420p;bgr8;rgb8", "h264"), ("hevc", "hevc"), ("h265", "hevc"), ("libx265", "hevc"),
    ("hevc_vaapi;nv12", "hevc"), ("jpeg", ""), ("rgb8; jpeg compressed bgr8", ""), ("vp9", ""),
    ("av1", ""), ("png", "")])
def test_codec_names(text, codec):
    assert codec_named(text) == codec


# -- messages -------------------------------------------------------------------------------------

def fields(kind, data, stamp_ns, named="h264"):
    """Return a message's fields as a mapping."""
    head = {"stamp": {"sec": stamp_ns // 10**9, "nanosec": stamp_ns % 10**9}, "frame_id": "cam"}
    data = np.frombuffer(data, np.uint8)
    return {
        COMPRESSED: {"header": head, "format": named, "data": data},
        FFMPEG: {"header": head, "width": 160, "height": 120, "encoding": named, "pts": 0,
                 "flags": 0, "is_bigendian": False, "data": data},
        FOXGLOVE: {"timestamp": head["stamp"], "frame_id": "cam", "data": data, "format": named},
    }[kind]


def message(kind, data, named="h264"):
    def made(value):
        if isinstance(value, dict):
            return SimpleNamespace(**{name: made(inner) for name, inner in value.items()})
        return value
    return made(fields(kind, data, 0, named))


@pytest.mark.parametrize("kind", [COMPRESSED, FFMPEG, FOXGLOVE])
def test_every_kind_of_message(kind):
    packets, _ = encoded("hevc", 12, b_frames=2)
    truth, reader, pictures = shown("hevc", packets), PictureReader(), {}
    for packet in packets:
        msg = message(kind, packet.data, "hevc")
        assert reader.codec(msg) == "hevc"
        pictures |= {ns: rgb for rgb, ns in reader.read(msg, packet.number)}
    pictures |= {ns: rgb for rgb, ns in reader.rest()}
    assert len(pictures) == 12 and equal(pictures, truth)


@pytest.mark.parametrize("kind", [FFMPEG, FOXGLOVE])
def test_another_codec_is_named(kind):
    with pytest.raises(ImageError, match=r"video of codec 'av1'; supported are h264, hevc"):
        PictureReader().read(message(kind, b"x", "av1"), 0)


def test_a_camera_that_changes_its_codec():
    reader = PictureReader()
    for codec in ("h264", "hevc", "h264"):
        packets, _ = encoded(codec, 2, options={"tune": "zerolatency"})
        (rgb, _), = reader.read(message(FOXGLOVE, packets[0].data, codec), 0)
        assert rgb.shape == (120, 160, 3)


# -- bags -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("kind", [COMPRESSED, FFMPEG, FOXGLOVE])
@pytest.mark.parametrize("lost", [(), (0, 1, 2), (30,)])
def test_a_bag_of_video(tmp_path, kind, lost):
    packets, _ = encoded("h264", 60, b_frames=2)
    truth = shown("h264", packets)
    start_ns = 5 * 10**9
    with BagWriter(tmp_path / "bag") as bag:
        for at, packet in enumerate(packets):
            if at not in lost:
                of_ns = start_ns + packet.number * 10**8
                bag.write("/video", kind, start_ns + at * 10**8, fields(kind, packet.data, of_ns))
    frames = list(read_images(tmp_path / "bag"))
    numbers = [(frame.stamp_ns - start_ns) // 10**8 for frame in frames]
    assert numbers == sorted(numbers) and numbers[-1] == 59
    assert all(np.array_equal(frame.image, truth[number])
               for frame, number in zip(frames, numbers, strict=True))
    assert len(frames) == 60 if not lost else 20 <= len(frames) < 58
    # Of the recording, each frame has the time of its own packet.
    assert {frame.received_ns for frame in frames} == {
        start_ns + at * 10**8 for at, packet in enumerate(packets)
        if packet.number in numbers}


def test_a_bag_without_a_keyframe(tmp_path):
    packets, _ = encoded("h264", 10)
    with BagWriter(tmp_path / "bag") as bag:
        for packet in packets[1:]:
            bag.write("/video", FFMPEG, 1 + packet.number,
                      fields(FFMPEG, packet.data, 1 + packet.number))
    with pytest.raises(BagError, match=r"/video holds no picture that can be decoded: h264 video: "
                                       r"the stream was joined between two keyframes"):
        list(read_images(tmp_path / "bag"))
