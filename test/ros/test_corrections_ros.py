"""The services of corrections, over real DDS."""

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from ros_peer import system
from waiting import wait_for

from vlm_decisions.msg import Question
from vlm_decisions.ros.convert import ns_to_time, time_to_ns
from vlm_decisions.srv import AddQuestion, Correct, ListCorrections, UndoCorrection


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
