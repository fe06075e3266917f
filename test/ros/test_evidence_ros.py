"""Evidence that the node records, and where it says it is."""

import json
from pathlib import Path

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from fake_model import ScriptedModel
from ros_peer import LATCHED, system
from std_msgs.msg import String
from waiting import wait_for

QUESTIONS = """
questions:
  - {id: person, text: "Is a person present?", ema: 1.0}
events:
  - id: visit
    states: [away, here]
    transitions: [{from: away, to: here, when: {person: yes}}]
"""


def test_a_change_and_an_event_are_recorded_and_their_paths_published(tmp_path):
    model, paths = ScriptedModel(), []
    folder = tmp_path / "evidence"
    with system(tmp_path, questions=QUESTIONS, fake=model, evidence_dir=str(folder),
                clip_before_s=1.0, clip_after_s=0.5) as s:
        s.peer.create_subscription(String, "/decision_node/evidence",
                                   lambda m: paths.append(Path(m.data)), LATCHED)
        s.peer.start_camera()
        s.peer.answered("person", "no")
        model.true = {"Is a person present?"}
        s.peer.answered("person", "yes")
        wait_for(lambda: any(path.name.endswith("_visit") for path in paths))
    said = [json.loads((path / "decision.json").read_text()) for path in sorted(folder.iterdir())
            if (path / "decision.json").exists()]
    assert [one["answer"] for one in said] == ["no", "yes"]
    assert all((path / "frame.jpg").exists() for path in folder.iterdir()
               if path.name.endswith("_person"))
    visit = next(path for path in paths if path.name.endswith("_visit"))
    assert (visit / "event.json").exists() and list((visit / "clip").glob("*.mcap"))


def test_a_folder_that_cannot_be_made_is_the_reason_and_can_be_corrected(tmp_path):
    (tmp_path / "file").write_text("")
    log = str(tmp_path / "log.jsonl")
    with system(tmp_path, questions=QUESTIONS, evidence_dir=str(tmp_path / "file" / "x"),
                log_file=log) as s:
        wait_for(lambda: "cannot configure" in s.node.snapshot().failure)
        assert "file" in s.node.snapshot().failure
        good = str(tmp_path / "evidence")
        assert all(result.successful for result in s.peer.set_parameters(evidence_dir=good))
        assert s.peer.transition("configure")  # the log is free again
