"""Every kind of bag is read whole, or refused with its file and the fault. Never a silent zero."""

from __future__ import annotations

import sqlite3

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed")
pytest.importorskip("mcap", reason="mcap is not installed")

from bag_tools import (
    START_NS,
    copied,
    image,
    jpeg,
    make_bag,
    picture,
    storage,
)
from material import material

from vlm_decisions.frames import NS
from vlm_decisions.sources.bag_files import file_kind
from vlm_decisions.sources.bag_writer import BagWriter
from vlm_decisions.sources.bags import STRING, Bag, BagError, read_images
from vlm_decisions.sources.messages import COMPRESSED, IMAGE
from vlm_decisions.sources.recording import is_bag
from vlm_decisions.sources.truth import truth_of_bag


def read_all(path, **settings) -> dict[str, int]:
    """Return the messages read by topic."""
    with Bag(path, **settings) as bag:
        counts = {topic.name: 0 for topic in bag.topics}
        for raw in bag.messages(list(counts)):
            counts[raw.topic] += 1
        return counts


@pytest.mark.parametrize("compression", ["", "message", "file"])
@pytest.mark.parametrize("compressed", [False, True])
def test_images_come_back_as_they_were_written(tmp_path, compression, compressed):
    bag = make_bag(tmp_path / "bag", 5, compression=compression, compressed=compressed)
    if compression == "file":
        assert storage(bag).name.endswith(".zstd") and file_kind(storage(bag)) == "zstd"
    frames = list(read_images(bag))
    assert [f.stamp_ns for f in frames] == [START_NS + k * NS // 8 for k in range(5)]
    assert all(np.array_equal(f.image, picture(k)) for k, f in enumerate(frames))
    assert frames[0].frame_id == "cam" and frames[0].received_ns == START_NS


def test_single_files_are_bags_too_whatever_their_name(tmp_path):
    file = storage(make_bag(tmp_path / "bag", 3))
    renamed = file.rename(tmp_path / "recording.bin")
    assert len(list(read_images(renamed))) == 3
    packed = storage(make_bag(tmp_path / "packed", 3, compression="message"))
    assert len(list(read_images(packed))) == 3  # without metadata that would say so


def test_images_without_stamps(tmp_path):
    bag = make_bag(tmp_path / "bag", 3, stamped=False)
    with pytest.raises(BagError, match=r"image 1 of /image has no stamp in its header"):
        list(read_images(bag))
    stamps = [f.stamp_ns for f in read_images(bag, stamps="arrival")]
    assert stamps == [START_NS + k * NS // 8 for k in range(3)]
    with pytest.raises(ValueError, match="stamps must be header or arrival"):
        list(read_images(bag, stamps="both"))


# -- real bags ------------------------------------------------------------------------------------

REAL = [
    ("bags/rosbag2_talker_sqlite3", {"/rosout": 10, "/parameter_events": 0, "/topic": 10}),
    ("bags/rosbag2_talker_mcap", {"/rosout": 10, "/parameter_events": 0, "/topic": 10}),
    ("bags/rosbag2_talker_mcap/talker.mcap", {"/rosout": 10, "/parameter_events": 0, "/topic": 10}),
    ("bags/rosbag2_reindex_sqlite3", {"/chatter": 3177}),  # split, without metadata
    ("bags/rosbag2_reindex_mcap", {"/chatter": 3177}),
    ("bags/rosbag2_empty_bag", {"/rosout": 0, "/parameter_events": 0}),
]


@pytest.mark.parametrize(("name", "counts"), REAL)
def test_real_bags_are_read_whole(name, counts):
    assert read_all(material(*name.split("/"))) == counts


@pytest.mark.parametrize("kind", ["mcap", "sqlite3"])
def test_a_bag_of_every_message_type(kind):
    path = material("bags", "rosbags_rs", f"test_bag_{kind}")
    counts = read_all(path)
    assert len(counts) == 94 and set(counts.values()) == {2}
    with pytest.raises(BagError, match=r"several image topics, choose one: .*compressed_image.*, "
                                       r"/test/sensor_msgs/image \(sensor_msgs/msg/Image, 2\)"):
        list(read_images(path))


def test_a_ros_1_bag():
    path = material("bags", "ros_numpy_test.bag")
    (frame,) = read_images(path, "/image", stamps="arrival")
    assert frame.image.shape == (240, 360, 3) and frame.image.std() > 10
    with pytest.raises(BagError, match=r"/image \(sensor_msgs/msg/Image, 1\), /compressedimage"):
        list(read_images(path))


REFUSED = [
    ("bags/rosbag2_wrong_rmw_mcap", "/test_topic is serialized as 'wrong_format'; only ROS"),
    ("bags/lichtblick_custom-camera-model.mcap", "/image/compressed is serialized as 'json'"),
    ("weird/foxglove_empty-file.bag", "foxglove_empty-file.bag: the file is empty"),
    ("weird/broken.png", "broken.png: not a bag"),
]


@pytest.mark.parametrize(("name", "message"), REFUSED)
def test_real_files_that_cannot_be_read_are_named(name, message):
    with pytest.raises(BagError, match=message):
        read_all(material(*name.split("/")))


def test_bags_without_images_list_what_they_hold():
    with pytest.raises(BagError, match=r"holds no images; its topics: .*/topic \(std_msgs/msg/"):
        list(read_images(material("bags", "rosbag2_talker_sqlite3")))
    with pytest.raises(BagError, match=r"holds no images; its topics: /rosout"):
        list(read_images(material("bags", "rosbag2_empty_bag")))


# -- damaged bags ---------------------------------------------------------------------------------

def test_a_killed_recorder_leaves_no_index(tmp_path):
    """Cut behind a whole record: the records that are there are read, all of them."""
    from mcap.stream_reader import StreamReader

    file = storage(make_bag(tmp_path / "bag", 6))
    ends = []
    with open(file, "rb") as stream:
        for record in StreamReader(stream, emit_chunks=True).records:
            if type(record).__name__ in ("Chunk", "MessageIndex"):
                ends.append(stream.tell())
    cut = tmp_path / "killed.mcap"
    cut.write_bytes(file.read_bytes()[:ends[-1]])
    assert read_all(cut) == {"/image": 6}


def test_a_file_cut_off_in_a_record_is_refused_or_read_in_part(tmp_path):
    bag = make_bag(tmp_path / "bag", 6)
    file = storage(bag)
    whole = file.read_bytes()
    file.write_bytes(whole[:len(whole) // 3])
    with pytest.raises(BagError, match=rf"{file.name}: cut off at byte \d+, in the middle of a"):
        read_all(bag)
    lone = file.rename(tmp_path / "lone.mcap")
    with pytest.raises(BagError, match="lone.mcap: cut off"):
        read_all(lone)


HELLO = b"\0\1\0\0\6\0\0\0hello\0"  # a std_msgs/String as CDR


def write_chatter(path, count: int = 5, **settings) -> list[int]:
    """Write an mcap file with the mcap library; return its size after each message."""
    from mcap.writer import Writer

    with open(path, "wb") as stream:
        writer = Writer(stream, **settings)
        writer.start(profile="ros2")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
        channel = writer.register_channel("/chatter", "cdr", schema)
        sizes = []
        for k in range(count):
            writer.add_message(channel, START_NS + k, HELLO, START_NS + k)
            sizes.append(stream.tell())
        writer.finish()
    return sizes


def test_partial_reads_what_is_whole(tmp_path):
    # Messages outside of chunks: a cut in the last loses that one only.
    path = tmp_path / "flat.mcap"
    sizes = write_chatter(path, use_chunking=False)
    path.write_bytes(path.read_bytes()[:sizes[3] + 20])
    with pytest.raises(BagError, match="cut off"):
        read_all(path)
    assert read_all(path, partial=True) == {"/chatter": 4}


def test_a_damaged_chunk_is_refused(tmp_path):
    from mcap.writer import CompressionType

    path = tmp_path / "bad.mcap"
    write_chatter(path, compression=CompressionType.NONE)
    data = path.read_bytes()
    assert read_all(path) == {"/chatter": 5}
    path.write_bytes(data.replace(b"hello", b"hallo", 1))  # only the checksum can tell
    with pytest.raises(BagError, match="bad.mcap: damaged or not readable: crc"):
        read_all(path)


def test_a_summary_that_repeats_no_channels(tmp_path):
    path = tmp_path / "bare.mcap"
    write_chatter(path, repeat_channels=False, repeat_schemas=False)
    assert read_all(path) == {"/chatter": 5}
    write_chatter(path, use_statistics=False)
    assert read_all(path) == {"/chatter": 5}


def test_statistics_that_declare_more_than_there_is(tmp_path):
    from mcap.records import Statistics
    from mcap.stream_reader import StreamReader

    path = tmp_path / "more.mcap"
    write_chatter(path)
    with open(path, "rb") as stream:
        for record in StreamReader(stream).records:
            if isinstance(record, Statistics):
                end = stream.tell()
    data = bytearray(path.read_bytes())
    begin = data.rfind((5).to_bytes(8, "little"), 0, end - 30)  # message_count comes first
    data[begin] = 6
    path.write_bytes(data)
    with pytest.raises(BagError, match="the file declares 6 messages, 5 could be read"):
        read_all(path)


def records(path) -> list[tuple[int, int, int]]:
    """Return (code, where it begins, length) of the records of an mcap file."""
    data, at, found = path.read_bytes(), 8, []
    while at < len(data) - 8:
        length = int.from_bytes(data[at + 1:at + 9], "little")
        found.append((data[at], at, length))
        at += 9 + length
    return found


def chunked(path, chunks: int = 6, each: int = 10):
    """Write an mcap file of several chunks, each with its message index."""
    from mcap.writer import CompressionType, Writer

    with open(path, "wb") as stream:
        writer = Writer(stream, chunk_size=400, compression=CompressionType.NONE)
        writer.start(profile="ros2")
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
        channel = writer.register_channel("/chatter", "cdr", schema)
        for k in range(chunks * each):
            writer.add_message(channel, START_NS + k, HELLO, START_NS + k)
        writer.finish()
    return path


@pytest.mark.parametrize("bit", [0, 3, 5, 9, 16, 31, 40, 62])
@pytest.mark.parametrize("code", [6, 7])
def test_a_record_with_a_wrong_length_is_refused(tmp_path, code, bit):
    """One bit of the length of a chunk or of a message index, anywhere in the file."""
    path = chunked(tmp_path / "a.mcap")
    assert read_all(path) == {"/chatter": 60}
    whole = path.read_bytes()
    wanted = [at for kind, at, _ in records(path) if kind == code]
    assert len(wanted) > 3
    for at in (wanted[0], wanted[len(wanted) // 2], wanted[-1]):
        damaged = bytearray(whole)
        damaged[at + 1 + bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(BagError, match=r"a\.mcap: "):
            read_all(path)


def test_a_length_that_reaches_past_the_end_names_the_record(tmp_path):
    path = chunked(tmp_path / "a.mcap")
    at = next(at for kind, at, _ in records(path) if kind == 7)
    data = bytearray(path.read_bytes())
    data[at + 1 + 3] ^= 0x40
    path.write_bytes(data)
    with pytest.raises(BagError, match=rf"the record at byte {at} \(message index\) claims \d+ "
                                       r"bytes, \d+ are left"):
        read_all(path)
    assert read_all(path, partial=True) == {"/chatter": 7}


def test_chunks_that_a_longer_record_hides_are_missed(tmp_path):
    """A length that ends exactly at a later record: only the counts can tell."""
    path = chunked(tmp_path / "a.mcap")
    found = records(path)
    first = next(k for k, one in enumerate(found) if one[0] == 7)
    last = max(k for k, one in enumerate(found) if one[0] == 7)
    data = bytearray(path.read_bytes())
    at, until = found[first][1], found[last][1] + 9 + found[last][2]
    data[at + 1:at + 9] = (until - at - 9).to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(BagError, match=r"the file declares 60 messages, 7 could be read"):
        read_all(path)


@pytest.mark.parametrize("at", [0, 2, 5])
@pytest.mark.parametrize("kind", ["deleted", "flipped", "doubled"])
def test_a_bag_whose_header_is_damaged_is_called_a_bag(tmp_path, at, kind):
    def damage(data: bytes) -> bytes:
        if kind == "deleted":
            return data[:at] + data[at + 1:]
        if kind == "doubled":
            return data[:at] + data[at:at + 1] + data[at:]
        return data[:at] + bytes([data[at] ^ 0x20]) + data[at + 1:]

    mcap = chunked(tmp_path / "a.mcap")
    database = material("bags", "rosbag2_talker_sqlite3", "talker.db3")
    ros1 = material("bags", "ros_numpy_test.bag")
    for source, what in ((mcap, "an mcap file"), (database, "a sqlite3 bag"),
                         (ros1, "a ROS 1 bag")):
        data = damage(source.read_bytes())
        for name in (f"renamed.bin{at}", f"b{source.suffix}"):
            path = tmp_path / name
            path.write_bytes(data)
            with pytest.raises(BagError, match=f"{what} whose header is damaged"):
                is_bag(path)
            with pytest.raises(BagError, match=f"{what} whose header is damaged"):
                Bag(path)


def test_a_bag_whose_header_is_gone_is_told_by_its_name(tmp_path):
    for name, what in ((".mcap", "an mcap file"), (".db3", "a sqlite3 bag"),
                       (".bag", "a ROS 1 bag"), (".mcap.zstd", "a file compressed with zstd")):
        path = tmp_path / f"a{name}"
        path.write_bytes(bytes(100))
        with pytest.raises(BagError, match=f"{what} whose header is damaged"):
            is_bag(path)
    film = tmp_path / "film.mp4"
    film.write_bytes(bytes(100))
    assert not is_bag(film)


@pytest.mark.parametrize("kind", ["mcap", "db3"])
def test_a_compressed_file_that_is_cut_off_names_itself(tmp_path, kind):
    import zstandard

    source = (storage(make_bag(tmp_path / "bag", 6)) if kind == "mcap"
              else material("bags", "rosbag2_talker_sqlite3", "talker.db3"))
    path = tmp_path / f"a.{kind}.zstd"
    packed = zstandard.ZstdCompressor().compress(source.read_bytes())
    path.write_bytes(packed)
    assert sum(read_all(path).values()) > 0
    for share in (0.3, 0.6, 0.99):
        path.write_bytes(packed[:int(len(packed) * share)])
        with pytest.raises(BagError, match="cut off at byte") as caught:
            read_all(path)
        assert str(caught.value).startswith(f"{path}: ") and "/tmp/vlm" not in str(caught.value)
    path.write_bytes(packed[:40] + bytes(40) + packed[80:])
    with pytest.raises(BagError) as caught:
        read_all(path)
    assert "vlm_decisions_bag_" not in str(caught.value)


def test_a_compressed_database_that_is_none_names_itself(tmp_path):
    import zstandard

    path = tmp_path / "a.db3.zstd"
    path.write_bytes(zstandard.ZstdCompressor().compress(b"SQLite format 3\0" + b"\xff" * 4000))
    with pytest.raises(BagError, match=r"a\.db3\.zstd: damaged") as caught:
        read_all(path)
    assert "vlm_decisions_bag_" not in str(caught.value)


def test_a_compressed_message_that_is_cut_off(tmp_path):
    import zstandard

    packed = zstandard.ZstdCompressor().compress(HELLO * 40)
    with BagWriter(tmp_path / "bag") as bag:
        bag.write_cdr("/chatter", STRING, START_NS, packed[:-3])
    with pytest.raises(BagError, match="message 1 of /chatter is cut off"):
        read_all(tmp_path / "bag")


@pytest.mark.slow
def test_a_bag_of_many_topics_is_listed_in_short(tmp_path):
    with BagWriter(tmp_path / "bag") as bag:
        for k in range(300):
            bag.write(f"/robot/sensors/number_{k}", STRING, START_NS, {"data": "x"})
            bag.write(f"/robot/cameras/number_{k}/image", IMAGE, START_NS, image(0, START_NS))
    with Bag(tmp_path / "bag") as bag:
        for call in (lambda: bag.topic("/robot/sensors/numbr_7"), bag.image_topic,
                     lambda: bag.image_topic("/robot/sensors/number_7"),
                     lambda: truth_of_bag(bag), lambda: truth_of_bag(bag, "/robot/cameras/number_"
                                                                          "7/image")):
            with pytest.raises(ValueError, match=r" and \d+ more") as caught:
                call()
            assert len(str(caught.value)) < 1500
        with pytest.raises(BagError, match=r"did you mean /robot/sensors/number_7\?"):
            bag.topic("/robot/sensors/numbr_7")


def test_a_database_that_is_none(tmp_path):
    path = tmp_path / "bad.db3"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4000)
    with pytest.raises(BagError, match="bad.db3: damaged or not readable"):
        read_all(path)
    good = tmp_path / "other.db3"
    with sqlite3.connect(good) as database:
        database.execute("CREATE TABLE cats (name TEXT)")
    with pytest.raises(BagError, match="other.db3: damaged or not readable: .*missing tables"):
        read_all(good)


def test_an_old_database_without_qos(tmp_path):
    path = tmp_path / "old.db3"
    database = sqlite3.connect(path)
    database.executescript("""
        CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT,
                            serialization_format TEXT);
        CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER,
                              data BLOB);
        INSERT INTO topics VALUES (1, '/chatter', 'std_msgs/msg/String', 'cdr');""")
    database.execute("INSERT INTO messages VALUES (1, 1, 5, ?)", (HELLO,))
    database.commit()
    database.close()
    assert read_all(path) == {"/chatter": 1}


def test_a_bag_that_declares_more_than_it_holds(tmp_path):
    bag = copied(material("bags", "rosbag2_talker_sqlite3"), tmp_path / "talker")
    database = sqlite3.connect(bag / "talker.db3")
    database.execute("DELETE FROM messages WHERE id = (SELECT max(messages.id) FROM messages JOIN "
                     "topics ON topic_id = topics.id WHERE topics.name = '/topic')")
    database.commit()
    database.close()
    with pytest.raises(BagError, match=r"/topic declares 10 messages, 9 could be read"):
        read_all(bag)
    assert read_all(bag, partial=True)["/topic"] == 9


def test_a_split_file_that_is_missing(tmp_path):
    bag = make_bag(tmp_path / "bag", 3)
    text = (bag / "metadata.yaml").read_text()
    name = storage(bag).name
    (bag / "metadata.yaml").write_text(text.replace(f"- {name}", f"- {name}\n  - bag_1.mcap", 1))
    with pytest.raises(BagError, match="1 of 2 files that metadata.yaml lists are missing: bag_1"):
        read_all(bag)
    assert read_all(bag, partial=True) == {"/image": 3}


METADATA = [
    ("not: [valid", "metadata.yaml: damaged or not readable"),
    ("a: 1\n", "holds no rosbag2_bagfile_information"),
    ("rosbag2_bagfile_information: {version: 5}\n", "lacks the list 'relative_file_paths'"),
    ("rosbag2_bagfile_information: {relative_file_paths: [], topics_with_message_count: [1]}\n",
     "a topic lacks its name or message_count"),
    ("rosbag2_bagfile_information: {relative_file_paths: [], topics_with_message_count: []}\n",
     "holds no bag files"),
]


@pytest.mark.parametrize(("text", "message"), METADATA)
def test_metadata_that_is_wrong(tmp_path, text, message):
    bag = make_bag(tmp_path / "bag", 2)
    (bag / "metadata.yaml").write_text(text)
    with pytest.raises(BagError, match=message):
        read_all(bag)


def test_nothing_there(tmp_path):
    with pytest.raises(BagError, match="none: there is no such bag"):
        Bag(tmp_path / "none")
    with pytest.raises(BagError, match="holds no bag files"):
        Bag(tmp_path)


def test_topics_that_are_not_there_or_not_images(tmp_path):
    bag = make_bag(tmp_path / "bag", 2, truth=lambda k: {"person": "yes"})
    with pytest.raises(BagError, match=r"no topic /camera; there are: /image .*, /truth"):
        list(read_images(bag, "/camera"))
    with pytest.raises(BagError, match=r"/truth holds no images but std_msgs/msg/String; image to"):
        list(read_images(bag, "/truth"))


def test_an_image_that_cannot_be_decoded_is_numbered(tmp_path):
    with BagWriter(tmp_path / "bag") as bag:
        bag.write("/image", COMPRESSED, START_NS, jpeg(0, START_NS))
        bad = jpeg(1, START_NS + 1)
        bad["data"] = bad["data"][:100].copy()
        bag.write("/image", COMPRESSED, START_NS + 1, bad)
    with pytest.raises(BagError, match="image 2 of /image: truncated PNG"):
        list(read_images(tmp_path / "bag"))


def test_a_message_that_is_cut_is_numbered(tmp_path):
    with BagWriter(tmp_path / "bag") as bag:
        bag.write("/image", IMAGE, START_NS, image(0, START_NS))
        bag.write_cdr("/image", IMAGE, START_NS, b"\0\1\0\0\1\0")
    with pytest.raises(BagError, match="message 2 of /image is damaged"):
        list(read_images(tmp_path / "bag"))


def test_the_writer_keeps_what_is_there_and_knows_its_types(tmp_path):
    bag = make_bag(tmp_path / "bag", 1)
    with pytest.raises(BagError, match="cannot be written: .*exists already"):
        make_bag(bag, 1)
    with BagWriter(tmp_path / "other") as writer:
        with pytest.raises(BagError, match="type acme_msgs/msg/Thing is not known"):
            writer.write_cdr("/thing", "acme_msgs/msg/Thing", 0, b"")
        writer.write("/chatter", STRING, 1, {"data": "hello"})
    with Bag(tmp_path / "other") as read:
        (raw,) = read.messages(["/chatter"])
        assert read.decode(raw, 1).data == "hello"
