"""`vlm-decisions run` with several cameras: each view sees its own, from videos and from a bag."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import urllib.request

import cv2
import numpy as np
import pytest
from bag_tools import START_NS, header, make_bag, storage
from fake_model import SeeingModel
from rtsp_server import free_port

from vlm_decisions import cli
from vlm_decisions.engine import Engine
from vlm_decisions.frames import NS
from vlm_decisions.runtime.log import read_log
from vlm_decisions.sources.bag_writer import BagWriter
from vlm_decisions.sources.bags import BagError
from vlm_decisions.sources.messages import COMPRESSED, IMAGE
from vlm_decisions.sources.source import BagImages, close, open_sources, simulated
from vlm_decisions.sources.video import SourceError, VideoFile

VIEWS = """
views:
  front: {image: /front}
  back: {image: /back}
  side: {image: /back, region: [0, 0, 0.5, 1]}
"""
SECONDS = 2.0


def shown(value: int, number: int) -> np.ndarray:
    """Return a picture (48, 64, 3) of noise whose first corner has that value."""
    noise = np.random.default_rng(number).integers(40, 200, (48, 64, 3), dtype=np.uint8)
    noise[:16, :16] = value
    return noise


def film(path, value):
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 8.0, (64, 48))
    for number in range(round(SECONDS * 8)):
        writer.write(shown(value, number))
    writer.release()
    return str(path)


@pytest.fixture
def films(tmp_path):
    """Make two videos: bright corners at the front, dark ones at the back."""
    return {"/front": film(tmp_path / "front.avi", 250), "/back": film(tmp_path / "back.avi", 5)}


@pytest.fixture
def bag(tmp_path):
    """Return a bag of the same, whose second camera begins half a second later."""
    with BagWriter(tmp_path / "bag") as bag:
        for number in range(round(SECONDS * 8)):
            for topic, value, late_ns in (("/front", 250, 0), ("/back", 5, NS // 2)):
                stamp_ns = START_NS + number * NS // 8 + late_ns
                bag.write(topic, IMAGE, stamp_ns, {
                    "header": header(stamp_ns), "height": 48, "width": 64, "encoding": "rgb8",
                    "is_bigendian": 0, "step": 192, "data": shown(value, number).reshape(-1)})
    return str(tmp_path / "bag")


def run(monkeypatch, tmp_path, *arguments):
    """Run the command; return its exit code, and what the log holds."""
    monkeypatch.setattr(Engine, "load", lambda *_, **options: SeeingModel())
    (tmp_path / "views.yaml").write_text(VIEWS)
    log = tmp_path / "log.jsonl"
    code = cli.main(["run", "--views", str(tmp_path / "views.yaml"), "--ask", "Is it bright?",
                     "--no-view", "--log", str(log), *arguments])
    return code, list(read_log(log)) if log.exists() else []


def answers(log):
    found: dict[str, set[str]] = {}
    for decision in log:
        if decision["question_id"] == "ask_1" and decision["answer"] != "unknown":
            found.setdefault(decision["view"], set()).add(decision["answer"])
    return found


@pytest.mark.parametrize("what", ["videos", "bag"])
def test_each_view_sees_its_own_camera(monkeypatch, tmp_path, films, bag, what, capsys):
    sources = [f"--source={bag}"] if what == "bag" else [
        f"--source={image}={path}" for image, path in films.items()]
    code, log = run(monkeypatch, tmp_path, *sources)
    out = capsys.readouterr().out
    assert code == 0, out
    assert answers(log) == {"front": {"yes"}, "back": {"no"}, "side": {"no"}}
    frames = int(re.search(r"(\d+) frames,", out)[1])
    assert frames <= 2 * round(SECONDS * 8), "a camera of two views is received once"
    assert "front/ask_1: yes" in out and "back/ask_1: no" in out  # the terminal tells them apart


def test_an_image_in_a_bag_may_be_sent_by_a_transport(monkeypatch, tmp_path):
    views = VIEWS.replace("{image: /front}", "{image: /front, transport: compressed}").replace(
        "{image: /back}", "{image: /front, region: [0, 0, 1, 0.5]}").replace(
        "{image: /back,", "{image: /back, transport: raw,")  # which the bag has compressed too
    monkeypatch.setitem(globals(), "VIEWS", views)
    with BagWriter(tmp_path / "bag") as bag:
        for number in range(round(SECONDS * 8)):
            for topic, value in (("/front", 250), ("/back", 5)):
                stamp_ns = START_NS + number * NS // 8
                bag.write(f"{topic}/compressed", COMPRESSED, stamp_ns, {
                    "header": header(stamp_ns), "format": "png", "data": np.frombuffer(
                        cv2.imencode(".png", shown(value, number))[1].tobytes(), np.uint8)})
    code, log = run(monkeypatch, tmp_path, f"--source={tmp_path / 'bag'}")
    assert code == 0
    assert answers(log) == {"front": {"yes"}, "back": {"yes"}, "side": {"no"}}


@pytest.mark.parametrize("sources, why", [
    (["F"], "is one camera, and the views are of 2: --source /front=... --source /back=..."),
    (["/front=F"], "no --source is of the image /back: --source /back=..."),
    (["/front=F", "/back=F", "/left=F"], "no view is of the image /left (there are: /front, /back"),
    (["/front=F", "/front=F", "/back=F"], "/front is there twice"),
    (["F", "F"], "a source without a name is there twice"),
    (["/front=F", "/back=F", "F"], "every image has a source of its own"),
    (["/front=nowhere.avi", "/back=F"], "there is no file 'nowhere.avi'"),
])
def test_sources_that_do_not_fit_the_views_are_refused(
        monkeypatch, tmp_path, films, sources, why, capsys):
    given = [f"--source={text.replace('F', films['/front'])}" for text in sources]
    code, log = run(monkeypatch, tmp_path, *given)
    assert (code, log) == (1, []) and why in capsys.readouterr().err


def test_what_is_true_of_a_recording_is_scored_on_its_page(monkeypatch, tmp_path, films):
    """A film that is bright throughout: told so for its first second, then the opposite."""
    monkeypatch.setattr(Engine, "load", lambda *_, **options: SeeingModel())
    truth = tmp_path / "truth.yaml"
    truth.write_text("segments:\n- {start_s: 0, end_s: 1, facts: {ask_1: yes, other: no}}\n"
                     "- {start_s: 1, end_s: 2, facts: {ask_1: no}}\n")
    found, over, port = {}, threading.Event(), free_port()

    def look() -> None:
        while not over.wait(0.1):
            with contextlib.suppress(OSError):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/timeline") as reply:
                    found.update(json.load(reply))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        assert cli.main(["run", "--source", str(films["/front"]), "--ask", "Is it bright?",
                         "--viewer", "--port", str(port), "--truth", str(truth),
                         "--seconds", "4"]) == 0
    finally:
        over.set()
        looking.join()
    assert [answer for _, answer in found["truth"]["ask_1"]][:2] == ["yes", "no"]
    right, judged = found["scores"]["ask_1"]
    assert 0 < right < judged


@pytest.mark.parametrize(("sources", "truth", "why"), [
    (["webcam"], "truth.yaml", "--truth goes with one video file or bag"),
    (["/front=F", "/back=F"], "truth.yaml", "--truth goes with one video file or bag"),
    (["F"], "nowhere.yaml", "nowhere.yaml: No such file"),
])
def test_truth_that_cannot_be_told_is_refused(monkeypatch, tmp_path, films, sources, truth, why,
                                              capsys):
    given = [f"--source={text.replace('F', str(films['/front']))}" for text in sources]
    monkeypatch.setattr("vlm_decisions.sources.source.open_sources", lambda *_, **__: {})
    code = cli.main(["run", *given, "--ask", "Is it?", "--viewer", "--port", "0", "--truth", truth])
    assert code == 1 and why in capsys.readouterr().err


def test_a_bag_must_hold_what_the_views_are_of(tmp_path):
    one = str(make_bag(tmp_path / "one", topic="/front"))
    desk = str(make_bag(tmp_path / "desk", topic="/front", truth=lambda k: {"person": "yes"}))
    with pytest.raises(BagError, match="there is no topic /back"):
        open_sources([one], ["/front", "/back"])
    opened = open_sources([one], [""])  # its only topic, for views that name no image
    desks = open_sources([desk], [""])
    assert simulated(desks.values())  # recorded with its truth
    assert not simulated([*desks.values(), *opened.values()])
    close(desks.values())
    assert [t_s for _, t_s in opened[""]] == [k / 8 for k in range(8)] and opened[""].ended
    close(opened.values())


def test_the_topic_of_a_bag_without_views(bag):
    with pytest.raises(BagError, match="several image topics, choose one"):
        open_sources([bag], [""])
    opened = open_sources([bag], [""], topic="/back")
    assert list(opened) == [""] and len(list(opened[""])) == len(
        list(open_sources([bag], ["/back"])["/back"]))
    for given, images, topic, partial, why in [
            ([bag], ["/front", "/back"], "/back", False, "views name their topics themselves: /fr"),
            ([bag], [""], "/left", False, "there is no topic /left"),
            ([str(bag) + "/nothing.mp4"], [""], "/back", False, "is no bag: --topic goes with one"),
            ([str(bag) + "/nothing.mp4"], [""], None, True, "is no bag: --partial goes with one")]:
        with pytest.raises((SourceError, BagError), match=why):
            open_sources(given, images, topic=topic, partial=partial)


def test_a_bag_that_is_cut_off_is_played_as_far_as_it_goes(tmp_path):
    file = storage(make_bag(tmp_path / "whole", 256))  # several chunks
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(file.read_bytes()[:file.stat().st_size * 3 // 4])
    with pytest.raises(BagError, match="cut off at byte .*run --partial plays"):
        list(open_sources([str(cut)], [""])[""])
    assert 0 < len(list(open_sources([str(cut)], [""], partial=True)[""])) < 256


def test_topics_of_one_bag_keep_their_times(bag):
    opened = open_sources([bag], ["/front", "/back"])
    assert isinstance(opened["/front"], BagImages)
    assert next(iter(opened["/front"]))[1] == 0.0 and next(iter(opened["/back"]))[1] == 0.5
    assert opened["/back"].next(1.3)[1] == 1.375  # what is too late is passed over
    close(opened.values())


def test_a_name_with_an_equals_sign_is_a_file(tmp_path):
    odd = film(tmp_path / "a=b.avi", 5)
    opened = open_sources([odd], [""])
    assert isinstance(opened[""], VideoFile)
    with pytest.raises(SourceError, match="there is no file"):
        open_sources(["x=y.avi"], [""])
