"""Evidence in files: what is recorded, of which frames, and that the folder stays bounded."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from waiting import wait_for

from vlm_decisions.decision import Decision
from vlm_decisions.events import Event
from vlm_decisions.frames import NS, Frame
from vlm_decisions.runtime import evidence_files
from vlm_decisions.runtime.evidence_files import EvidenceRecorder, EvidenceSettings, check_clips


def look(t_s):
    frame = Frame(np.full((48, 64, 3), 90, np.uint8), round(t_s * NS), "cam")
    return SimpleNamespace(view="", frame=frame)


def said(answer, t_s, p=0.9):
    t_ns = round(t_s * NS)
    return Decision("person", answer, p, p, (), (), 2, 4, t_ns, t_ns, t_ns, False, t_ns, "m")


def visit(t_s):
    t_ns = round(t_s * NS)
    return Event("visit", "away", "here", "transition", "", 0, "person", "yes", 0.9, t_ns, t_ns,
                 t_ns, t_ns)


@pytest.fixture
def recorded(tmp_path):
    made = []

    def make(**fields):
        paths, complaints = [], []
        recorder = EvidenceRecorder(EvidenceSettings(tmp_path / "evidence", **fields),
                                    paths.append, complaints.append)
        made.append(recorder)
        return SimpleNamespace(recorder=recorder, paths=paths, complaints=complaints)

    yield make
    for recorder in made:
        recorder.close()


def test_each_change_of_an_answer_has_its_frame_and_decision(recorded):
    r = recorded()
    for t_s, answer in ((1.0, "no"), (1.25, "no"), (1.5, "yes"), (1.75, "unknown"), (2.0, "yes")):
        r.recorder.look(look(t_s))
        r.recorder.decision(said(answer, t_s))
    wait_for(lambda: len(r.paths) == 3)
    assert [path.name for path in r.paths] == [
        "000000000001000_person", "000000000001500_person", "000000000002000_person"]
    assert json.loads((r.paths[1] / "decision.json").read_text())["answer"] == "yes"
    assert (r.paths[1] / "frame.jpg").read_bytes()[:2] == b"\xff\xd8"
    assert r.complaints == []


def test_an_event_has_a_clip_from_before_it_to_after_it(recorded):
    from vlm_decisions.sources.bags import Bag, read_images

    r = recorded(before_s=1.0, after_s=0.5)
    for t_s in np.arange(1.0, 6.0, 0.25):
        r.recorder.look(look(t_s))
        r.recorder.decision(said("yes", t_s))
        if t_s == 4.0:
            r.recorder.event(visit(4.0))
    wait_for(lambda: any("visit" in path.name for path in r.paths))
    path = next(path for path in r.paths if "visit" in path.name)
    assert json.loads((path / "event.json").read_text())["to_state"] == "here"
    with Bag(path / "clip") as bag:
        topic = bag.image_topic(None).name
    stamps = [frame.stamp_ns / NS for frame in read_images(path / "clip", topic)]
    assert stamps == list(np.arange(3.0, 4.75, 0.25))


def test_the_folder_is_bounded_and_the_oldest_goes_first(recorded, tmp_path):
    r = recorded(max_bytes=5000)
    for second in range(1, 30):
        r.recorder.look(look(second))
        r.recorder.decision(said("yes" if second % 2 else "no", second))
        wait_for(lambda second=second: len(r.paths) == second)
    left = sorted(path.name for path in (tmp_path / "evidence").iterdir())
    assert 1 < len(left) < 29 and left[-1] == "000000000029000_person"
    assert left == [path.name for path in r.paths][-len(left):]


def test_what_cannot_be_written_is_said_and_what_is_too_much_is_counted(recorded, monkeypatch):
    r = recorded()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(evidence_files, "write_text", full)
    r.recorder.look(look(1.0))
    r.recorder.decision(said("yes", 1.0))
    wait_for(lambda: r.complaints)
    assert "No space left" in r.complaints[0] and r.paths == []


def test_without_what_writes_bags_clips_are_refused_with_what_to_install(monkeypatch):
    from vlm_decisions.sources.bag_writer import types

    check_clips()
    types.cache_clear()
    monkeypatch.setitem(sys.modules, "rosbags.typesys", None)
    with pytest.raises(ValueError, match=r"evidence_dir, clips of events: .*\[replay\]"):
        check_clips()


def test_views_of_one_camera_have_evidence_each(recorded):
    r = recorded()
    shared = look(1.0)
    for view in ("front", "door"):
        r.recorder.look(SimpleNamespace(view=view, frame=shared.frame))
        r.recorder.look(SimpleNamespace(view=view, frame=shared.frame))
    for view, answer in (("front", "yes"), ("door", "no")):
        r.recorder.decision(replace(said(answer, 1.0), view=view))
    wait_for(lambda: len(r.paths) == 2)
    told = {(d["view"], d["answer"]) for d in
            (json.loads((path / "decision.json").read_text()) for path in r.paths)}
    assert told == {("front", "yes"), ("door", "no")}
    assert all((path / "frame.jpg").is_file() for path in r.paths)
    assert len(r.recorder._frames) == 2
