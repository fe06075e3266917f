"""Events: state machines on scripted decisions, and what their YAML may say."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import yaml

from vlm_decisions.decision import TIER_VLM, UNKNOWN, Decision
from vlm_decisions.events import TIME_BACK, TRANSITION, UNKNOWN_ANSWER, Event, EventBook
from vlm_decisions.frames import NS
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import QuestionError

QUESTIONS = """
questions:
  - {id: activity, text: "What?", kind: choice, options: [typing, drinking, away]}
  - {id: person, text: "Is a person present?"}
"""
DRINK = QUESTIONS + """
events:
  - id: drink
    states: [idle, drinking]
    transitions:
      - {from: idle, to: drinking, when: {activity: drinking}, hold_s: 0.5}
      - {from: drinking, to: idle, when: {activity: [typing, away]}, hold_s: 1.0, count: drinks}
"""
T0 = 100 * NS


def decision(question: str, answer: str, t_s: float, late_s: float = 0.1) -> Decision:
    p = math.nan if answer == UNKNOWN else 0.9
    t_ns = T0 + round(t_s * NS)
    return Decision(question, answer, p, p, (), (), TIER_VLM, 4, t_ns - NS, t_ns,
                    t_ns + round(late_s * NS), False, t_ns, "m", "cam")


def book(text: str = DRINK) -> EventBook:
    return EventBook(QuestionBook.loads(text).events)


def play(events: EventBook, answers, question: str = "activity", dt_s: float = 0.25) -> list[Event]:
    """Feed one answer every `dt_s` seconds, from 0 on; return the events."""
    return [event for index, answer in enumerate(answers)
            for event in events.update(decision(question, answer, index * dt_s))]


def seconds(events) -> list[tuple[float, str]]:
    return [((e.t_end_ns - T0) / NS, e.to_state) for e in events]


def test_a_drink_is_counted_once():
    # A detector that flickers: one sip seen in three pieces.
    answers = (["typing"] * 4 + ["drinking"] * 4 + ["typing"] * 2 + ["drinking"] * 3
               + ["typing"] * 8)
    events = play(book(), answers)
    # drinking from 1.0, held 0.5 at 1.5; typing from 3.25, held 1.0 at 4.25.
    assert seconds(events) == [(1.5, "drinking"), (4.25, "idle")]
    end = events[-1]
    assert (end.counter, end.count, end.cause) == ("drinks", 1, TRANSITION)
    assert (end.t_start_ns - T0) / NS == 3.25 and (end.state_since_ns - T0) / NS == 1.5
    assert end.t_decided_ns == end.t_end_ns + NS // 10 and end.frame_id == "cam"
    # The control: each piece by itself would be a drink without the hold on the way back.
    loose = DRINK.replace("hold_s: 1.0", "hold_s: 0.25")
    assert [e.count for e in play(book(loose), answers) if e.counter] == [1, 2]


def test_a_hold_is_broken_by_any_other_answer():
    answers = ["drinking", "drinking", "uncertain", "drinking", "drinking", UNKNOWN, "drinking",
               "drinking", "drinking"]
    assert seconds(play(book(), answers)) == [(2.0, "drinking")]  # from 1.5 on without a break


def test_refractory_time_keeps_a_transition_shut():
    text = QUESTIONS + """
events:
  - id: alarm
    states: [watching]
    transitions:
      - {from: watching, to: watching, when: {person: "yes"}, refractory_s: 2.0, count: alarms}
"""
    events = play(book(text), ["no"] + ["yes"] * 20, "person")
    assert [t for t, _ in seconds(events)] == [0.25, 2.25, 4.25]
    assert [e.count for e in events] == [1, 2, 3]


def test_all_questions_of_a_condition_must_fit_at_once():
    text = QUESTIONS + """
events:
  - id: both
    states: [off, on]
    transitions:
      - {from: off, to: on, when: {person: yes, activity: drinking}, hold_s: 0.4}
      - {from: on, to: off, when: {person: no}}
"""
    events = book(text)
    out = []
    for question, answer, t_s in [("person", "yes", 0.0), ("activity", "typing", 0.1),
                                  ("activity", "drinking", 0.5), ("person", "yes", 0.8),
                                  ("person", "yes", 0.9), ("person", "no", 1.0)]:
        out += events.update(decision(question, answer, t_s))
    assert seconds(out) == [(0.9, "on"), (1.0, "off")]  # bare yes, on, off are those words
    assert events.states() == {"both": "off"}


def test_a_transition_without_a_condition_is_a_time_limit():
    text = QUESTIONS + """
events:
  - id: greet
    states: [alone, greeted]
    transitions:
      - {from: alone, to: greeted, when: {person: yes}}
      - {from: greeted, to: alone, hold_s: 3.0}
"""
    events = book(text)
    out = events.update(decision("person", "yes", 1.0))
    out += events.update(decision("person", "no", 1.05))
    for k in range(1, 40):  # the time passes with other questions' decisions as well
        out += events.update(decision("activity", "typing", 1.0 + 0.1 * k))
    assert seconds(out) == [(1.0, "greeted"), (4.0, "alone")]


def test_unknown_keeps_the_state_or_resets_it():
    answers = ["drinking"] * 4 + [UNKNOWN] * 4 + ["typing"]
    kept = book()
    assert [e.to_state for e in play(kept, answers)] == ["drinking"]
    assert kept.states() == {"drink": "drinking"}
    reset = play(book(DRINK.replace("states:", "on_unknown: reset\n    states:")), answers)
    assert [(e.to_state, e.cause, e.counter) for e in reset] == [
        ("drinking", TRANSITION, ""), ("idle", UNKNOWN_ANSWER, "")]
    assert math.isnan(reset[-1].p) and json.loads(reset[-1].to_json())["p"] is None


def test_unknown_can_be_waited_for_while_no_frame_comes():
    text = QUESTIONS + """
events:
  - id: blind
    states: [seeing, lost]
    transitions:
      - {from: seeing, to: lost, when: {person: unknown}, hold_s: 2.0}
      - {from: lost, to: seeing, when: {person: [yes, no]}}
"""
    events = book(text)
    out = events.update(decision("person", "yes", 0.0))
    for late_s in (0.5, 1.5, 2.5, 3.5):  # the evidence stays that of 0.0; decided later and later
        out += events.update(decision("person", UNKNOWN, 0.0, late_s))
    assert seconds(out) == [(2.5, "lost")]
    out = events.update(decision("person", "no", 5.0))
    assert seconds(out) == [(5.0, "seeing")]


def test_unknown_before_any_image_starts_no_clock():
    text = DRINK.replace("activity: drinking", "activity: [drinking, unknown]")
    events = book(text)
    never = Decision("activity", UNKNOWN, math.nan, math.nan, (), (), 0, 0, 0, 0, 0, True, 0, "")
    assert events.update(never) == []
    assert events.update(decision("activity", "drinking", 0.0)) == []  # not "held since 1970"
    assert events.update(decision("activity", "drinking", 0.5))[0].to_state == "drinking"


def test_time_that_goes_backwards_starts_anew_and_keeps_the_counters():
    events = book()
    play(events, ["drinking"] * 4 + ["typing"] * 6 + ["drinking"] * 4)
    assert events.states() == {"drink": "drinking"} and events.counters()["drink"] == {"drinks": 1}
    out = events.update(decision("activity", "drinking", 0.0))
    assert [(e.to_state, e.cause) for e in out] == [("idle", TIME_BACK)]
    again = play(events, ["drinking"] * 4 + ["typing"] * 6)
    assert seconds(again) == [(0.5, "drinking"), (2.0, "idle")]
    assert again[-1].count == 2


def test_questions_of_different_tiers_need_not_be_in_step():
    # Camera health is ahead of the groups by a frame or two: that is not time going backwards.
    text = DRINK.replace("{activity: drinking}", "{activity: drinking, camera_dark: no}")
    events = book(text)
    out = []
    for k in range(6):
        out += events.update(decision("camera_dark", "no", 0.25 * k + 0.2))
        out += events.update(decision("activity", "drinking", 0.25 * k))
    assert [e.cause for e in out] == [TRANSITION]


def test_the_same_decisions_give_the_same_events():
    answers = [("drinking", "typing", UNKNOWN)[k * k // 7 % 3] for k in range(60)]
    first, second = play(book(), answers, dt_s=0.6), play(book(), answers, dt_s=0.6)
    assert first and [e.to_json() for e in first] == [e.to_json() for e in second]


def test_events_survive_saving(tmp_path):
    questions = QuestionBook.loads(DRINK)
    questions.copy().save(tmp_path / "q.yaml")
    again = QuestionBook.load(tmp_path / "q.yaml")
    assert again.events == questions.events and list(again) == list(questions)


def test_answers_are_compared_in_their_composed_form():
    book = QuestionBook.loads(
        "questions:\n- {id: place, text: Where?, kind: choice, options: [caf\u00e9, bar]}\n"
        "events:\n- id: out\n  states: [a, b]\n  transitions:\n"
        "  - {from: a, to: b, when: {place: cafe\u0301}}\n".replace("Where?", "'Where?'")
    )
    assert book.events[0].transitions[0].when == {"place": ("caf\u00e9",)}


def test_an_answer_that_yaml_cuts_is_refused():
    with pytest.raises(QuestionError, match=r"^q:8: YAML reads only 'shelf' .* quote the text"):
        QuestionBook.loads(
            "questions:\n- {id: at, text: Q, kind: choice, options: [shelf, 'shelf #3']}\n"
            "events:\n- id: out\n  states: [a, b]  # two\n  transitions:\n  - when:\n"
            "      at: shelf #3\n    from: a\n    to: b\n", "q")


def test_a_question_that_an_event_listens_to_stays_and_keeps_its_answers():
    questions = QuestionBook.loads(DRINK)
    with pytest.raises(QuestionError, match="event 'drink' listens to it"):
        questions.remove("activity")
    with pytest.raises(QuestionError, match="never answers 'drinking'"):
        questions.replace("activity", options=("typing", "away"))
    questions.replace("activity", rate_hz=1.0)
    questions.remove("person")
    assert "activity" in questions and "person" not in questions


BAD = [
    ("id: drink", "id: my drink", 7, "event id 'my drink' must be letters"),
    ("    states: [idle, drinking]\n", "", 7, "an event needs the key 'states'"),
    ("[idle, drinking]", "[idle]", 10, "no state 'drinking' (there are: idle)"),
    ("[idle, drinking]", "[idle, drinking, off]", 8, "'off', which no transition leads to"),
    ("[idle, drinking]", "[idle, idle]", 8, "name a state twice"),
    ("[idle, drinking]", "[]", 8, "must be 1 to 32, not 0"),
    ("to: drinking,", "too: drinking,", 10, "unknown key 'too', did you mean 'to'?"),
    ("from: idle, ", "", 10, "a transition needs the key 'from'"),
    ("{activity: drinking}", "{activty: drinking}", 10, "no question 'activty' (there are: "),
    ("{activity: drinking}", "{activity: drinkin}", 10, "'activity' never answers 'drinkin'"),
    ("{activity: drinking}", "{person: drinking}", 10,
     "'person' never answers 'drinking' (its answers: yes, no, uncertain, unknown)"),
    ("{activity: drinking}", "{camera_drak: yes}", 10, "no question 'camera_drak'"),
    ("{activity: drinking}", "{activity: []}", 10, "needs one answer or several distinct"),
    ("{activity: drinking}", "{activity: [typing, typing]}", 10, "needs one answer or several"),
    ("{activity: drinking}", "drinking", 10, "expected a mapping here"),
    ("{activity: drinking}", "{activity: drinking, activity: away}", 10, "appears twice"),
    ("hold_s: 0.5", "hold_s: -1", 10, "hold_s: must be 0 to 86400 seconds, not -1"),
    ("hold_s: 0.5", "hold_s: .nan", 10, "hold_s: must be 0 to 86400"),
    ("hold_s: 0.5", "hold_s: true", 10, "hold_s: must be 0 to 86400"),
    ("hold_s: 0.5", "refractory_s: soon", 10, "refractory_s: must be 0 to 86400"),
    ("count: drinks", "count: 1 drink", 11, "counter '1 drink' must be letters"),
    ("when: {activity: drinking}, hold_s: 0.5", "hold_s: 0", 10, "without it hold_s must be"),
    ("to: drinking, when: {activity: drinking}, hold_s: 0.5", "to: idle, when: {person: yes}", 10,
     "back to its own state needs hold_s or refractory_s"),
    ("    states:", "    on_unknown: ignore\n    states:", 8, "must be keep or reset"),
    ("    states:", "    stats: 1\n    states:", 8, "unknown key 'stats', did you mean 'states'?"),
    ("events:", "event:", 6, "unknown key 'event' (the file holds a list of questions, or the keys "
     "'questions' and 'events'"),
]


@pytest.mark.parametrize(("old", "new", "line", "message"), BAD)
def test_what_is_wrong_is_named_with_its_line(old, new, line, message):
    assert old in DRINK
    with pytest.raises(QuestionError) as caught:
        QuestionBook.loads(DRINK.replace(old, new, 1), source="q.yaml")
    assert str(caught.value).startswith(f"q.yaml:{line}: "), caught.value
    assert message in str(caught.value)


def test_an_event_of_that_id_exists():
    twice = DRINK + DRINK.partition("events:\n")[2]
    with pytest.raises(QuestionError, match="q:12: event 'drink' exists already"):
        QuestionBook.loads(twice, source="q")


def test_the_shipped_events_and_those_of_the_docs():
    from pathlib import Path

    from vlm_decisions.files import resources

    desk = QuestionBook.load(resources.share_file("config", "questions", "desk.yaml"))
    assert [event.id for event in desk.events] == ["drink", "visit"]
    text = (Path(__file__).resolve().parents[2] / "docs" / "behaviour_trees.md").read_text()
    lines = text.partition("    questions:\n")[2].partition("\n\n")[0]
    told = QuestionBook.loads("    questions:\n" + lines)
    assert told.events[0].to_dict()["transitions"][1]["count"] == "drinks"


VIEWED = """
views: {front: {image: /f}, door: {image: /d}}
questions:
  - {id: person, text: a}
  - {id: open, text: b, view: door}
events:
  - id: passage
    states: [idle, near, through]
    transitions: [{from: idle, to: near, when: {front.person: yes, door.person: no}},
                  {from: near, to: through, when: {door.person: yes, open: yes}}]
  - id: seen_by_door
    states: [no, yes]
    transitions: [{from: no, to: yes, when: {door.person: yes}},
                  {from: yes, to: no, when: {door.person: [no, unknown]}}]
  - id: both
    states: [no, yes]
    transitions: [{from: no, to: yes, when: {person: yes, door.person: yes}}]
"""


def test_an_event_may_name_the_view_whose_answer_counts():
    book = QuestionBook.loads(VIEWED)
    assert QuestionBook.loads(yaml.safe_dump({
        "views": {"front": {"image": "/f"}, "door": {"image": "/d"}},
        "questions": [one.to_dict() for one in book],
        "events": [one.to_dict() for one in book.events]})).events == book.events
    events = EventBook(book.events, book.placed)

    def happened(question, answer, t_s, view):
        seen = dataclasses.replace(decision(question, answer, t_s), view=view)
        return [(event.event_id, event.view, event.to_state) for event in events.update(seen)]

    assert happened("person", "yes", 1.0, "front") == []
    assert happened("person", "no", 1.1, "door") == [("passage", "", "near")]
    assert happened("person", "yes", 1.2, "front") == []  # another view's yes is not the door's
    assert happened("open", "yes", 1.3, "door") == []
    assert happened("person", "yes", 1.4, "door") == [
        ("passage", "", "through"), ("seen_by_door", "door", "yes"), ("both", "front", "yes"),
        ("both", "door", "yes")]
    assert happened("person", "unknown", 1.5, "front") == []
    assert happened("person", "unknown", 1.6, "door") == [("seen_by_door", "door", "no")]
    assert set(events.states()) == {"passage", "seen_by_door", "front/both", "door/both"}


@pytest.mark.parametrize(("old", "new", "words"), [
    ("front.person: yes", "back.person: yes", "there is no view 'back' .there are: front, door"),
    ("front.person: yes", "front.open: yes", "'open' is not asked of view 'front' .it is of: door"),
    ("front.person: yes", "front.nobody: yes", "no question 'nobody'"),
    ("front.person: yes", "front/person: yes", "the name is view.question"),
    ("front.person: yes", "front.person: maybe", "'front.person' never answers 'maybe'"),
])
def test_a_view_that_an_event_cannot_mean_is_refused_with_its_line(old, new, words):
    with pytest.raises(QuestionError, match=f"file:9: event 'passage': transition 1: .*{words}"):
        QuestionBook.loads(VIEWED.replace(old, new), "file")


def test_a_view_that_an_event_names_stays():
    book = QuestionBook.loads(VIEWED)
    with pytest.raises(QuestionError, match="view 'front': it is in the event passage"):
        book.remove_view("front")
    with pytest.raises(QuestionError, match="'open' is not asked of view|it is of"):
        book.replace("person", view="door")


def test_without_events_nothing_happens():
    events = EventBook()
    assert len(events) == 0
    assert events.update(decision("person", "yes", 1.0)) == []


def test_events_follow_each_view_by_itself():
    text = """
views: {front: {image: /f}, door: {image: /d}}
questions:
  - {id: person, text: a}
  - {id: open, text: b, view: door}
events:
  - id: visit
    states: [away, here]
    transitions: [{from: away, to: here, when: {person: yes}, count: visits},
                  {from: here, to: away, when: {person: no}}]
  - id: entry
    states: [shut, entered]
    transitions: [{from: shut, to: entered, when: {person: yes, open: yes}}]
  - id: airing
    states: [shut, airing]
    transitions: [{from: shut, to: airing, when: {open: yes}}]
"""
    book = QuestionBook.loads(text)
    events = EventBook(book.events, book.placed)

    def happened(question, answer, t_s, view):
        seen = dataclasses.replace(decision(question, answer, t_s), view=view)
        return [(event.event_id, event.view, event.to_state) for event in events.update(seen)]

    assert happened("person", "yes", 1.0, "front") == [("visit", "front", "here")]
    assert happened("person", "no", 1.1, "door") == []
    assert happened("open", "yes", 1.2, "door") == [
        ("entry", "front", "entered"), ("airing", "door", "airing")]
    assert events.states() == {
        "front/visit": "here", "front/entry": "entered", "airing": "airing",
        "door/visit": "away", "door/entry": "shut"}
    assert events.counters()["front/visit"] == {"visits": 1}
    back = happened("person", "no", 0.5, "front")
    assert ("visit", "front", "away") in back and all(view != "door" for _, view, _ in back[:2])
