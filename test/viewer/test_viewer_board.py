"""The board: what a page that reads at its own pace gets to see."""

from __future__ import annotations

import json

import pytest
from viewer_site import decision

from vlm_decisions.frames import NS
from vlm_decisions.questions import Question
from vlm_decisions.runtime.statistics import Percentiles
from vlm_decisions.runtime.system import System
from vlm_decisions.sources.truth import TruthRow
from vlm_decisions.viewer.board import BAND, DECISIONS, EVENTS, Board

PERSON = Question("person", "Is a person present?")
CUP = Question("cup", "Is there a cup?", rate_hz=2.0)


class Time:
    """A clock that stands."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def board(clock):
    board = Board(clock, clock)
    board.questions([PERSON, CUP])
    return board


def read(board, since=0):
    version, text = board.changes(since)
    return version, json.loads(text) if text else None


def test_everything_comes_first_then_only_what_changed(board):
    board.decision(decision("person"))
    version, first = read(board)
    assert [q["id"] for q in first["questions"]] == ["person", "cup"]
    assert [row["id"] for row in first["rows"]] == ["person"]
    assert first["history"] == {"person": [[0.0, 0.9]]} and not first["link"]["ok"]
    assert read(board, version) == (version, None)
    board.decision(decision("cup", "no", 0.1))
    _, second = read(board, version)
    assert [row["id"] for row in second["rows"]] == ["cup"]
    assert not {"questions", "system", "history", "events"} & second.keys()


def test_a_slow_reader_gets_the_newest_of_each_row(board):
    version, _ = read(board)
    for p in (0.7, 0.8, 0.95):
        board.decision(decision("person", p=p))
    _, message = read(board, version)
    assert [row["p"] for row in message["rows"]] == [0.95]


def test_age_grows_while_nothing_comes(board, clock):
    board.decision(decision("person"), elapsed_s=3.0)
    clock.now_s += 4.0
    row = read(board)[1]["rows"][0]
    assert row["age"] == pytest.approx(0.25 + 3.0 + 4.0)
    assert row["held"] == pytest.approx(1.25 + 3.0 + 4.0)


def test_the_rate_is_of_frame_time_and_ends(board, clock):
    for step in range(5):
        board.decision(decision("person", t_end_ns=2_000_000_000 + step * 250_000_000))
        clock.now_s += 0.5  # seen late and unevenly: does not matter
    assert read(board)[1]["rows"][0]["rate"] == 4.0
    board.decision(decision("person", "unknown"))
    clock.now_s += 5.0
    assert read(board)[1]["rows"][0]["rate"] == 0.0


def test_unknown_is_a_gap_and_valid_json(board):
    board.decision(decision("person", "unknown", reason="no image yet", t_end_ns=0))
    row = read(board)[1]["rows"][0]
    assert row["p"] is None and row["age"] is None and row["reason"] == "no image yet"
    assert read(board)[1]["history"]["person"] == [[0.0, None]]


def test_history_holds_a_minute_in_half_seconds(board, clock):
    for step in range(1000):
        board.decision(decision("person", p=step / 1000))
        clock.now_s += 0.1
    points = read(board)[1]["history"]["person"]
    assert 100 <= len(points) <= 120
    assert points[0][0] > -60.5 and points[-1][1] == pytest.approx(0.999)
    assert all(b[0] > a[0] for a, b in zip(points, points[1:]))


def test_a_question_with_another_meaning_starts_anew(board):
    board.decision(decision("person"))
    board.decision(decision("cup"))
    board.questions([Question("person", "Is it Ada?"), Question("cup", CUP.text, rate_hz=1.0)])
    message = read(board)[1]
    assert [row["id"] for row in message["rows"]] == ["cup"]


def test_a_removed_question_leaves_nothing(board, clock):
    board.decision(decision("cup"))
    board.questions([PERSON])
    board.decision(decision("cup"))  # was on its way
    assert "rows" not in read(board)[1]
    clock.now_s += 60
    board.questions([PERSON, CUP])
    assert "rows" not in read(board)[1]


def test_a_decision_may_come_before_its_question(board):
    version, _ = read(board)
    board.decision(decision("dog"))
    assert "rows" not in (read(board, version)[1] or {})
    board.questions([PERSON, Question("dog", "Is there a dog?")])
    assert [row["id"] for row in read(board, version)[1]["rows"]] == ["dog"]


def test_decisions_without_end_of_unknown_names_are_bounded(board):
    for number in range(2000):
        board.decision(decision(f"other{number}"))
    assert len(board._rows) <= 512


def test_changes_are_events(board):
    board.decision(decision("person", "no", 0.1))
    board.decision(decision("person", "yes", 0.9))
    board.decision(decision("camera_dark", "no", 0.1, tier=0))
    board.decision(decision("camera_dark", "yes", 0.9, tier=0))
    board.event("event", "refill", "empty → full, drinks 3", "good")
    events = read(board)[1]["events"]
    assert [(e["kind"], e["ids"], e["text"]) for e in events] == [
        ("answer", ["person"], "no → yes"), ("camera", ["camera_dark"], "began"),
        ("event", ["refill"], "empty → full, drinks 3")]
    assert [e["n"] for e in events] == [1, 2, 3]


def test_many_that_become_unknown_are_one_event(board, clock):
    for name in ("person", "cup"):
        board.decision(decision(name))
    version, _ = read(board)
    for name in ("person", "cup"):
        board.decision(decision(name, "unknown", reason="no image for 2.1 s"))
    version, message = read(board, version)
    assert [(e["ids"], e["text"]) for e in message["events"]] == [
        (["person", "cup"], "unknown: no image for 2.1 s")]
    clock.now_s += 5
    board.decision(decision("cup"))
    assert read(board, version)[1]["events"][0]["text"] == "answered"


def test_an_answer_that_flaps_is_one_line(board, clock):
    for number in range(41):
        board.decision(decision("person", "yes" if number % 2 else "no"))
        clock.now_s += 0.5
    events = read(board)[1]["events"]
    assert [e["kind"] for e in events] == ["answer"] * 3 + ["flapping"]
    assert events[-1]["text"] == "flaps: no ↔ yes, 40 changes in 20 s" or (
        events[-1]["text"] == "flaps: yes ↔ no, 40 changes in 20 s")
    version, _ = read(board)
    clock.now_s += 60  # quiet since
    board.decision(decision("person", "yes"))
    assert [(e["kind"], e["text"]) for e in read(board, version)[1]["events"]] == [
        ("answer", "no → yes")]


def test_questions_that_come_and_go_together_share_a_line(board, clock):
    for number in range(40):
        for name in ("person", "cup"):
            board.decision(decision(name, "unknown" if number % 2 else "yes", reason="late"))
        clock.now_s += 1.0
    events = read(board)[1]["events"]
    assert len(events) <= 5
    assert events[-1]["kind"] == "flapping" and set(events[-1]["ids"]) == {"person", "cup"}
    assert events[-1]["text"].startswith("known and unknown by turns, ")


def test_changes_now_and_then_stay_single(board, clock):
    for number in range(6):
        board.decision(decision("person", "yes" if number % 2 else "no"))
        clock.now_s += 4.0
    assert [e["kind"] for e in read(board)[1]["events"]] == ["answer"] * 5


def test_the_state_follows_the_answers_and_the_time(board, clock):
    board.link(True, "")
    board.system(System(state="active", model="m", image_age_s=0.0, group_ms=250.0))
    assert read(board)[1]["state"]["label"] == "Starting"
    board.decision(decision("person"))
    board.decision(decision("cup"))
    clock.now_s += 0.5
    version, message = read(board)
    assert message["state"]["label"] == "Live"
    board.decision(decision("cup", "unknown", reason="no answer for 3.0 s"))
    clock.now_s += 0.5
    version, message = read(board, version)
    assert message["state"]["label"] == "1 of 2 unknown"
    clock.now_s += 30.0  # nothing comes: the other answer has become old by itself
    assert read(board, version)[1]["state"]["label"] == "2 of 2 unknown"


def test_the_timeline_holds_each_answer_and_when_it_began(board, clock):
    for answer, p, lasts_s in (("yes", 0.9, 30), ("no", 0.1, 90), ("unknown", 0.5, 10)):
        for _ in range(lasts_s):
            board.decision(decision("person", answer, p))
            clock.now_s += 1.0
    timeline = board.timeline()
    assert timeline["now"] == clock.now_s
    assert timeline["bands"] == {"cup": [], "person": [
        (100.0, "yes", 0.9), (130.0, "no", 0.1), (190.0, "no", 0.1), (220.0, "unknown", None)]}


def test_the_timeline_follows_p_and_is_bounded(board, clock):
    for number in range(3 * BAND):
        board.decision(decision("person", p=0.7 + 0.25 * (number % 2)))
        clock.now_s += 6.0
    band = board.timeline()["bands"]["person"]
    assert len(band) == BAND and band[-1][2] == 0.95 and band[-2][2] == 0.7
    board.questions([Question("person", "Is it Ada?"), CUP])
    assert board.timeline()["bands"]["person"] == []  # another question


def told(board, at_s, **facts):
    board.truth(TruthRow(round(at_s * NS), facts))


def answered(board, at_s, answer, p=0.9, name="person", **more):
    end_ns = round(at_s * NS)
    board.decision(decision(name, answer, p, t_start_ns=end_ns, t_end_ns=end_ns,
                            t_decided_ns=end_ns, **more))


def test_truth_stands_beside_the_answers_with_a_running_score(board, clock):
    for at_s, truth, answer in ((100.0, "yes", "yes"), (100.1, "yes", "no"),
                                (100.2, "no", "unknown"), (100.3, "no", "no")):
        clock.now_s = at_s
        told(board, at_s, person=truth, lamp="yes")
        answered(board, at_s, answer)
        answered(board, at_s, "yes", name="cup")  # whose truth nobody tells
    timeline = board.timeline()
    assert timeline["truth"] == {"person": [(100.0, "yes"), (100.2, "no")]}
    assert timeline["scores"] == {"person": [2, 3]}  # unknown is not judged
    answered(board, 100.15, "yes")  # judged by what was true at its frame
    assert board.timeline()["scores"] == {"person": [3, 4]}
    answered(board, 100.9, "no")  # nobody told the truth of that time
    answered(board, 99.9, "no")
    assert board.timeline()["scores"] == {"person": [3, 4]}
    clock.now_s = 110.0  # it is not told any more
    assert board.timeline()["truth"]["person"] == [(100.0, "yes"), (100.2, "no"),
                                                   (100.3, "unknown")]
    told(board, 110.0, person="no")
    assert board.timeline()["truth"]["person"][-2:] == [(100.3, "unknown"), (110.0, "no")]


def test_truth_of_another_question_of_that_name_is_not_used(board, clock):
    told(board, 100.0, person="maybe", cup=3 * "x")  # no answers of theirs
    assert board.timeline()["truth"] == {}
    told(board, 100.0, person="yes")
    board.questions([Question("person", "Is it Ada?"), CUP])  # edited: the truth is of the old one
    told(board, 100.1, person="yes")
    answered(board, 100.1, "no")
    timeline = board.timeline()
    assert timeline["truth"] == timeline["scores"] == {}
    assert board.moment(100.0)[0]["truth"] is None


def test_truth_is_of_the_views_of_its_camera(clock):
    board = Board(clock, clock)
    board.questions([PERSON], ["front", "door"])
    board.truth(TruthRow(100 * NS, {"person": "yes"}), ("front",))
    answered(board, 100.0, "yes", view="front")
    answered(board, 100.0, "yes", view="door")
    assert board.timeline()["scores"] == {"front/person": [1, 1]}


def test_a_moment_has_the_numbers_of_then(board, clock):
    told(board, 100.0, person="no")
    answered(board, 100.0, "yes", 0.8)
    clock.now_s = 101.0
    answered(board, 101.0, "unknown", reason="too dark")
    then, cup = board.moment(100.5)
    assert (then["id"], then["answer"], then["p"], then["truth"]) == ("person", "yes", 0.8, "no")
    assert (then["tier"], then["age"], then["text"]) == (2, 0.0, PERSON.text)
    assert (cup["answer"], cup["p"], "tier" in cup) == (None, None, False)
    assert board.moment(101.0)[0]["reason"] == "too dark"
    assert board.moment(99.0)[0]["answer"] is None
    for _ in range(DECISIONS):  # the decision itself is not kept any more, the timeline is
        answered(board, 101.0, "yes", name="cup")
    then = board.moment(100.5)[0]
    assert (then["answer"], then["p"], "tier" in then) == ("yes", 0.8, False)


def test_events_are_bounded(board):
    for number in range(EVENTS + 50):
        board.event("event", f"e{number}", "x")
    events = read(board)[1]["events"]
    assert len(events) == EVENTS and events[-1]["ids"] == [f"e{EVENTS + 49}"]


def test_the_system_is_valid_json_whatever_is_missing(board):
    board.system(System(tick_ms={"vision": Percentiles(float("nan"), 2.0, 1)},
                        dropped={"queue": 3}))
    system = read(board)[1]["system"]
    assert system["tick_ms"] == {"vision": [None, 2.0]} and system["dropped"] == {"queue": 3}
    assert system["image_age_s"] is None and system["max_age_s"] == 2.0


def test_readers_at_the_same_time_share_the_text(board, clock):
    assert board.changes(0)[1] is board.changes(0)[1]
    board.decision(decision("person"))
    old = board.changes(0)[1]
    clock.now_s += 30
    assert board.changes(0)[1] != old  # the age has grown, though nothing came


def test_a_question_that_is_not_asked_is_no_fault(board, clock):
    board.link(True, "")
    board.system(System(state="active", model="fake", image_age_s=0.1))
    board.decision(decision("person", "no", 0.1))
    board.decision(decision("cup", "no", 0.1))
    version, _ = read(board)
    why = "it needs 'person', which is no"
    board.decision(decision("cup", "unknown", status="not_asked", reason=why, depth=0))
    clock.now_s += 30.0  # it is repeated at a slow rate only
    board.decision(decision("person", "no", 0.1))
    version, message = read(board, version)
    row = next(row for row in message["rows"] if row["id"] == "cup")
    assert (row["status"], row["reason"]) == ("not_asked", why)
    assert "state" not in message  # it was live, and is
    assert [(e["kind"], e["text"], e["level"]) for e in message["events"]] == [
        ("not asked", f"not asked: {why}", "info")]
    clock.now_s += 1.0
    board.decision(decision("cup", "unknown", status="fault", reason="broken"))
    assert read(board, version)[1]["state"]["label"] == "1 of 2 unknown"


def test_a_row_tells_when_its_answer_began(board, clock):
    board.decision(decision(t_onset_ns=1_500_000_000, t_onset_sd_s=0.1))
    clock.now_s += 2.0
    row = read(board)[1]["rows"][0]
    assert (row["began"], row["began_sd"]) == (pytest.approx(2.75), 0.1)
    board.decision(decision())
    assert read(board)[1]["rows"][0]["began"] is None


SCORE = Question("people", "How many?", kind="score", options=("none", "one", "two"),
                 thresholds=(0.4, 1.5))
ANY_OF = Question("on_desk", "Is there a {}?", kind="any_of", options=("cup", "pen"))


def test_a_score_is_drawn_by_its_value_and_labels_have_answers(clock):
    board = Board(clock, clock)
    board.questions([SCORE, ANY_OF, PERSON])
    board.decision(decision("people", "one", 0.8, options=SCORE.options, value=0.9,
                            probabilities=(0.15, 0.8, 0.05)))
    board.decision(decision("on_desk", "cup", 0.7, options=ANY_OF.options,
                            probabilities=(0.9, 0.3), answers=("yes", "no")))
    board.decision(decision("person", "yes", 0.7))
    message = json.loads(board.changes(0)[1])
    people, on_desk, person = message["rows"]
    assert (people["value"], people["drawn"], people["p"]) == (0.9, pytest.approx(0.45), 0.8)
    assert (on_desk["answers"], on_desk["value"], on_desk["drawn"]) == (["yes", "no"], None, 0.7)
    assert (person["answers"], person["drawn"]) == ([], 0.7)
    assert message["history"]["people"] == [[0.0, pytest.approx(0.45)]]
    score, any_of, plain = message["questions"]
    # Levels none, one, two at 0, 0.5, 1 of the range; 0.15 of a step to both sides.
    assert score["bands"] == [[pytest.approx(0.125), pytest.approx(0.275)],
                              [pytest.approx(0.675), pytest.approx(0.825)]]
    assert score["thresholds"] == [0.4, 1.5]
    assert any_of["bands"] == plain["bands"] == []


def test_an_unknown_score_draws_nothing(clock):
    board = Board(clock, clock)
    board.questions([SCORE])
    board.decision(decision("people", "unknown", options=SCORE.options))
    (row,) = json.loads(board.changes(0)[1])["rows"]
    assert row["drawn"] is None and row["value"] is None


def test_views_have_rows_of_their_own(clock):
    board = Board(clock, clock)
    board.questions([PERSON, Question("cup", "Is there a cup?", view="door")], ["front", "door"])
    board.system(System(views={"front": {"topic": "/f"}, "door": {"topic": "/d"}}))
    board.decision(decision("person", answer="yes", view="front"))
    board.decision(decision("person", answer="no", view="door"))
    board.decision(decision("camera_dark", tier=0, answer="no", view="door"))
    message = read(board)[1]
    assert [q["id"] for q in message["questions"]] == ["front/person", "door/person", "door/cup"]
    assert {row["id"]: row["answer"] for row in message["rows"]} == {
        "front/person": "yes", "door/person": "no", "door/camera_dark": "no"}
    assert board.question("door/cup").id == "cup" and board.question("front/cup") is None
    assert board.ids() == {"person", "cup"} and len(board.standing()) == 2
    assert board.channels() == ("overlay", "camera", "overlay/front", "overlay/door",
                                "camera/front", "camera/door")
