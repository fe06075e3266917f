"""The services of corrections and of what is learned from them, over real DDS."""

import json

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from fake_model import FakeModel
from ros_peer import LATCHED, system
from std_msgs.msg import String
from waiting import wait_for

from vlm_decisions.msg import Question
from vlm_decisions.ros.convert import ns_to_time, time_to_ns
from vlm_decisions.runtime.learned import HeldOut, Learned, write_learned
from vlm_decisions.runtime.system import System
from vlm_decisions.srv import (
    AddQuestion,
    Correct,
    ListCorrections,
    UndoCorrection,
    UndoLearning,
)


def test_an_answer_is_corrected_listed_and_taken_back(tmp_path):
    folder = tmp_path / "learn"
    with system(tmp_path, learn_dir=str(folder)) as s:
        peer = s.peer
        reply = peer.call(Correct, "correct", question_id="person", answer="no")
        assert not reply.success and reply.message.startswith("'person' has not been answered")
        peer.start_camera()
        peer.answered()
        reply = peer.call(Correct, "correct", question_id="person", answer="no")
        assert reply.success, reply.message
        one = reply.correction
        assert (one.id, one.question_id, one.answer, one.said, one.looks) == (
            1, "person", "no", "yes", 1)
        assert time_to_ns(one.t_end) in peer.stamps
        first = peer.newest("person")
        wait_for(lambda: time_to_ns(peer.newest("person").t_end) - time_to_ns(first.t_end) > 1e9)
        start_ns, end_ns = time_to_ns(first.t_start), time_to_ns(peer.newest("person").t_end)
        span = peer.call(Correct, "correct", question_id="person", answer="no",
                         t_start=ns_to_time(start_ns), t_end=ns_to_time(end_ns))
        assert span.success and span.correction.looks >= 2
        listed = peer.call(ListCorrections, "list_corrections", question_id="person")
        assert [c.id for c in listed.corrections] == [1, 2]
        assert listed.message == "2 corrections"
        assert "took back number 2" in peer.call(UndoCorrection, "undo_correction").message
        for fields, why in (
                ({"question_id": "nobody", "answer": "no"}, "nobody"),
                ({"question_id": "person", "answer": "perhaps"}, "never answers 'perhaps'"),
                ({"question_id": "person", "answer": "yes", "view": "door"}, "of a view 'door'"),
                ({"question_id": "person", "answer": "yes", "t_end": ns_to_time(5)},
                 "both be above 0")):
            reply = peer.call(Correct, "correct", **fields)
            assert not reply.success and why in reply.message, reply.message
        # What was read of a question that asks something else now is not corrected.
        other = Question(id="person", text="Is a dog present?")
        peer.stop_camera()
        peer.answered(answer="unknown")
        assert peer.call(AddQuestion, "add_question", question=other, replace=True).success
        reply = peer.call(Correct, "correct", question_id="person", answer="no",
                          t_start=ns_to_time(start_ns), t_end=ns_to_time(end_ns))
        assert not reply.success and "was not answered between" in reply.message
    assert [path.name for path in folder.glob("*.npz")] == ["000001.npz"]


def test_without_a_folder_corrections_are_refused_with_the_remedy(tmp_path):
    with system(tmp_path) as s:
        wait_for(lambda: s.peer.state() == "active")
        for kind, name, fields in (
                (Correct, "correct", {"question_id": "person", "answer": "no"}),
                (ListCorrections, "list_corrections", {}),
                (UndoCorrection, "undo_correction", {})):
            reply = s.peer.call(kind, name, **fields)
            assert not reply.success and "set the parameter learn_dir" in reply.message
        told = []
        s.peer.create_subscription(String, "/decision_node/statistics", told.append, LATCHED)
        wait_for(lambda: told)
        assert not System.from_json(told[-1].data).corrections  # the page offers none


def learned_file(folder, question_id="person", **changes):
    """Write what was learned of a question: that the fake model's yes is a no."""
    folder.mkdir(exist_ok=True)
    numbers = HeldOut(1.0, 0.5), HeldOut(0.2, 0.9)
    learned = Learned(**{
        "question_id": question_id, "view": "", "text": "Is a person present?",
        "options": (), "shipped": (1.0, 0.0), "scale": 1.0, "bias": (-6.0,),
        "weight": np.zeros((1, 0), np.float32),
        "pooling": "", "fingerprint": FakeModel.fingerprint,
        "pixel_budget": FakeModel.pixel_budget, "language": "", "spans": 14,
        "counts": {"yes": 6, "no": 8},
        "before": numbers[0], "after": numbers[1], **changes})
    write_learned(folder / f"learned-{question_id}.npz", learned)


@pytest.mark.slow
def test_what_was_learned_is_used_told_and_taken_back(tmp_path):
    folder = tmp_path / "learn"
    learned_file(folder)
    learned_file(folder, "activity", text="What?", fingerprint="another-model")
    heard, told = [], []
    with system(tmp_path, learn_dir=str(folder), learn="on") as s:
        peer = s.peer
        peer.create_subscription(String, "/decision_node/learned", heard.append, LATCHED)
        peer.create_subscription(String, "/decision_node/statistics", told.append, LATCHED)
        peer.start_camera()
        decision = peer.answered(answer="no")
        assert decision.model == "fake+learned"
        state = json.loads(wait_for(lambda: heard and heard[-1].data))
        one = state["learned"][0]
        assert (one["question"], one["spans"], one["after"]["accuracy"]) == ("person", 14, 0.9)
        assert "another-model" in state["refused"]["learned-activity.npz"]
        assert "fake-fingerprint" in state["refused"]["learned-activity.npz"]
        wait_for(lambda: any(System.from_json(one.data).learned for one in list(told)))
        assert System.from_json(told[-1].data).corrections
        values = {one.key: one.value for one in peer.status("questions").values}
        assert values["learned, person"].startswith("learned on this camera, from 14 spans")
        assert "another-model" in values["not learned, learned-activity.npz"]
        reply = peer.call(UndoLearning, "undo_learning", question_id="person")
        assert reply.success and "as before it was learned" in reply.message, reply.message
        assert peer.answered(answer="yes").model == "fake"
        wait_for(lambda: not json.loads(heard[-1].data)["learned"])
        assert not (folder / "learned-person.npz").exists()
        for question_id, why in (("person", "nothing was learned of 'person'"), ("nobody", "no")):
            reply = peer.call(UndoLearning, "undo_learning", question_id=question_id)
            assert not reply.success and why in reply.message
        # A correction is considered at once, and why it is not enough is told.
        assert peer.call(Correct, "correct", question_id="person", answer="no").success
        wait_for(lambda: "0 spans say yes and 1 no"
                 in json.loads(heard[-1].data)["waiting"].get("person", ""))


def test_learning_can_be_off(tmp_path):
    folder = tmp_path / "learn"
    learned_file(folder)
    with system(tmp_path, learn_dir=str(folder), learn="off") as s:
        s.peer.start_camera()
        assert s.peer.answered(answer="yes").model == "fake"
        reply = s.peer.call(UndoLearning, "undo_learning", question_id="person")
        assert not reply.success and "set the parameter learn" in reply.message
