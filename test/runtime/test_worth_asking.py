"""What is asked at all: conditions, evidence enough, and answers that stand; simulated time."""

import numpy as np
import pytest
from fakes import START_NS, Bench, FakeEngine, person_head

from vlm_decisions.decision import (
    CAMERA_UNUSABLE,
    FAULT,
    NO_IMAGE,
    NOT_ASKED,
    NOT_ENOUGH_EVIDENCE,
    OK,
    STALE,
    TIER_HEADS,
    UNKNOWN,
    YES,
)
from vlm_decisions.frames import NS
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.views import View, ViewError


def film(bench, seconds, begin_s=0.0):
    bench.film(begin_s, begin_s + seconds)
    bench.run(begin_s + seconds)


def texts(bench):
    return [text for _, texts in bench.engine.calls("ask") for text in texts]


def test_a_question_whose_condition_does_not_hold_is_not_asked_and_says_so():
    there = {"person": 0.9}
    bench = Bench("- {id: person, text: person}\n- {id: typing, text: typing, when: person}",
                  FakeEngine(answer=lambda text, _: there.get(text, 0.9)), unknown_period_s=1.0)
    film(bench, 4)
    assert bench.answers("typing")[0] == UNKNOWN and bench.of("typing")[0].status == NOT_ASKED
    assert bench.of("typing")[0].reason == "person: is open: 'person' is unknown"
    assert set(bench.answers("typing")[1:]) == {YES}
    assert {d.status for d in bench.of("typing")[1:]} == {OK}
    there["person"] = 0.05
    asked = texts(bench).count("typing")
    film(bench, 6, 4)
    last = bench.of("typing")[-1]
    assert (last.answer, last.status, last.reason) == (UNKNOWN, NOT_ASKED, "person: does not hold")
    assert last.age_s < 0.3, "its evidence are the frames for which it was not asked"
    assert texts(bench).count("typing") <= asked + 2
    told = [d for d in bench.of("typing")
            if d.status == NOT_ASKED and d.t_decided_ns > START_NS + 5 * NS]
    assert 4 <= len(told) <= 6, "said again once a second, not at each group"
    there["person"] = 0.95
    film(bench, 2, 10)
    assert bench.answers("typing")[-1] == YES
    back = next(d for d in bench.of("typing") if d.t_end_ns > START_NS + 10 * NS and d.status == OK)
    assert (back.t_end_ns - START_NS) / NS <= 10.75, "due at once, on the group after"


def test_needs_means_that_only_a_no_makes_it_meaningless():
    p = {"door_in_view": 0.5}
    bench = Bench("- {id: door_in_view, text: door_in_view}\n"
                  "- {id: door_open, text: door_open, needs: door_in_view}",
                  FakeEngine(answer=lambda text, _: p.get(text, 0.9)))
    film(bench, 2)
    assert set(bench.answers("door_open")) == {YES}  # uncertain whether it is in view
    p["door_in_view"] = 0.01
    film(bench, 2, 2)
    last = bench.of("door_open")[-1]
    assert (last.status, last.reason) == (NOT_ASKED, "it needs 'door_in_view', which is no")


def test_what_is_not_asked_leaves_open_what_depends_on_it():
    bench = Bench("- {id: a, text: a}\n- {id: b, text: b, when: not a}\n"
                  "- {id: c, text: c, when: b}")
    film(bench, 3)
    assert {d.status for d in bench.of("b")} == {d.status for d in bench.of("c")} == {NOT_ASKED}
    assert bench.of("c")[-1].reason == "b: is open: 'b' is unknown"
    assert set(texts(bench)) == {"a"}


def test_a_condition_on_the_order_of_a_score():
    logits = {"people": [5.0, 0.0, 0.0]}
    bench = Bench("- {id: people, text: people, kind: score, options: ['0', '1', '4']}\n"
                  "- {id: queue, text: queue, when: people > 1}\n"
                  "- {id: some, text: some, implies: [people >= 1]}",
                  FakeEngine(answer=lambda text, _: logits.get(text, 0.9)))
    film(bench, 2)
    assert {d.status for d in bench.of("queue")} == {NOT_ASKED}
    assert bench.of("queue")[-1].reason == "people > 1: does not hold"
    assert bench.of("some")[-1].contradicts == ("people >= 1",)
    logits["people"] = [0.0, 0.0, 9.0]
    film(bench, 3, 2)
    assert bench.answers("queue")[-1] == YES and bench.of("some")[-1].contradicts == ()


def test_a_condition_on_the_camera_and_on_a_head(tmp_path):
    bench = Bench("- {id: person, text: p}\n- {id: q, text: q, when: person and not camera_dark}",
                  head_paths=(person_head(tmp_path),))
    bench.camera.shade[:] = (30, 0, 0)
    film(bench, 2)
    assert {d.tier for d in bench.of("person")} == {TIER_HEADS}
    assert bench.answers("q")[-1] == YES


def test_conditions_change_while_it_runs_and_what_is_used_stays():
    bench = Bench("- {id: a, text: a}\n- {id: b, text: b}")
    film(bench, 1)
    bench.runtime.replace_question("b", when="not a")
    film(bench, 2, 1)
    assert bench.of("b")[-1].status == NOT_ASKED
    with pytest.raises(QuestionError, match="'a': it is in a condition of b"):
        bench.runtime.remove_question("a")
    with pytest.raises(QuestionError, match="there is no question 'nobody'"):
        bench.runtime.add_question(Question("c", "c", needs="nobody"))
    with pytest.raises(QuestionError, match="circle"):
        bench.runtime.replace_question("a", needs="b")
    bench.runtime.replace_question("b", when=None)
    film(bench, 2, 3)
    assert bench.answers("a")[-1] == bench.answers("b")[-1] == YES


def test_no_answer_before_the_picture_was_seen_for_long_enough():
    bench = Bench("- {id: q, text: q, min_evidence_s: 2}\n- {id: now, text: now}",
                  scene_change=0.05)
    bench.clock.at(5.99, lambda: bench.camera.shade.__setitem__(slice(None), (90, -60, -60)))
    film(bench, 10)
    first = bench.of("q")[0]
    assert (first.answer, first.status) == (UNKNOWN, NOT_ENOUGH_EVIDENCE)
    assert first.reason == "seen for 0.1 of 2 s"
    known = bench.times("q")
    assert known[0] == 2.125 and bench.times("now")[0] == 0.125
    # A cut to another scene begins it anew.
    assert not any(6.0 < t < 8.0 for t in known) and any(t >= 8.0 for t in known)
    assert bench.runtime.stats().scene_changes == 1


ON_CHANGE = "- {id: q, text: q, ask: on_change, change: 0.01, refresh_s: 4}\n- {id: a, text: a}"


def test_an_answer_stands_while_the_picture_does_not_change():
    bench = Bench(ON_CHANGE, scene_change=None)
    film(bench, 10)
    assert len(bench.times("q")) == len(bench.times("a")) == 40, "published for every group"
    assert texts(bench).count("q") == 3, "at first, and after 4 s each"
    assert texts(bench).count("a") == 40
    stats = bench.runtime.stats()
    assert (stats.asked, stats.reused) == (43, 37)
    for decision in bench.of("q"):
        asked_s, end_s = ((t - START_NS) / NS for t in (decision.t_asked_ns, decision.t_end_ns))
        assert asked_s in (0.125, 4.125, 8.125) and 0 <= end_s - asked_s < 4
        assert decision.model == ("fake" if asked_s == end_s else "fake+reuse")
        assert decision.age_s < 0.01 and decision.status == OK
    assert all(d.t_asked_ns == d.t_end_ns for d in bench.of("a"))


def test_a_change_asks_at_once_and_one_that_creeps_is_found():
    engine = FakeEngine(answer=lambda _, vision: 0.9 if vision.mean[0] > 140 else 0.1)
    bench = Bench(ON_CHANGE, engine, scene_change=None)
    bench.clock.at(2.99, lambda: bench.camera.shade.__setitem__(slice(None), (60, -40, -40)))
    film(bench, 6)
    known = [d for d in bench.of("q") if d.answer != UNKNOWN]
    assert [d.answer for d in known if d.t_end_ns == START_NS + 3125 * NS // 1000] == [YES]
    # Each step is below `change`; compared with what was asked about, they add up.
    creeping = Bench(ON_CHANGE.replace("refresh_s: 4", "refresh_s: 3600"), scene_change=None)
    for index in range(80):
        creeping.clock.at(index / 8 - 0.001 if index else 0, lambda k=index: creeping.camera.shade
                          .__setitem__(slice(None), np.array([1.0, -0.5, -0.5]) * k))
    film(creeping, 10)
    assert 2 <= texts(creeping).count("q") <= 20


def test_an_answer_does_not_outlive_its_window_its_question_or_a_fault():
    bench = Bench(ON_CHANGE.replace("refresh_s: 4", "refresh_s: 3600"), scene_change=None)
    film(bench, 2)
    assert texts(bench).count("q") == 1
    film(bench, 2, 3)  # a gap
    assert texts(bench).count("q") == 2
    bench.runtime.replace_question("q", text="other")
    film(bench, 2, 5)
    assert texts(bench).count("other") == 1
    bench.runtime.remove_question("q")
    bench.runtime.add_question(Question("q", "other", ask="on_change", refresh_s=3600.0))
    film(bench, 1, 7)
    assert texts(bench).count("other") == 2
    bench.runtime.replace_question("q", text="overflow")
    film(bench, 1, 8)
    assert {d.status for d in bench.of("q")[-4:]} == {FAULT}, "a fault never stands"


def test_every_unknown_has_its_status():
    bench = Bench("- {id: q, text: q}", max_age_s=1.0)
    bench.run(1)
    assert {d.status for d in bench.decisions} == {NO_IMAGE}
    film(bench, 2, 1)
    assert bench.of("q")[-1].status == OK and bench.of("camera_dark")[-1].status == OK
    bench.engine.fail["ask"] = RuntimeError("boom")
    film(bench, 1, 3)
    assert bench.of("q")[-1].status == FAULT
    bench.engine.fail.clear()
    bench.camera.cover = 0
    film(bench, 3, 4)
    assert bench.of("q")[-1].status == CAMERA_UNUSABLE
    bench.camera.cover = None
    for index in range(24):
        t_s = 7 + index / 8
        bench.clock.at(t_s, lambda t_s=t_s: bench.shoot(t_s - 1.5))
    bench.run(10)
    assert bench.of("q")[-1].status == STALE
    assert bench.runtime.ask(Question("now", "n")).status == NO_IMAGE


IMPLIES = ("- {id: left, text: left, implies: [cup, 'activity != away']}\n"
           "- {id: cup, text: cup}\n"
           "- {id: activity, text: activity, kind: choice, options: [typing, away]}\n")


def test_a_yes_that_contradicts_what_it_implies_says_so_and_is_counted():
    p = {"left": 0.9, "cup": 0.9, "activity": [2.0, 0.0]}
    bench = Bench(IMPLIES, FakeEngine(answer=lambda text, _: p[text]))
    film(bench, 2)
    assert bench.of("left")[-1].contradicts == () and not bench.runtime.stats().contradictions
    p["cup"] = 0.05
    film(bench, 3, 2)
    last = bench.of("left")[-1]
    assert (last.answer, last.contradicts) == (YES, ("cup",))
    p["activity"] = [0.0, 5.0]
    film(bench, 3, 5)
    assert bench.of("left")[-1].contradicts == ("cup", "activity != away")
    assert bench.runtime.stats().contradictions == {"left": 1}, "it lasts"
    assert {d.contradicts for d in bench.of("cup")} == {()}
    p["left"] = 0.05
    film(bench, 2, 8)
    assert (bench.of("left")[-1].answer, bench.of("left")[-1].contradicts) == ("no", ())
    p["left"] = 0.95
    film(bench, 2, 10)
    assert bench.runtime.stats().contradictions == {"left": 2}
    with pytest.raises(QuestionError, match="'cup': it is in a condition of left"):
        bench.runtime.remove_question("cup")


def test_what_is_not_known_contradicts_nothing():
    bench = Bench("- {id: left, text: left, implies: cup}\n- {id: cup, text: cup}\n",
                  FakeEngine(answer=lambda text, _: {"left": 0.9, "cup": 0.5}[text]))
    film(bench, 3)
    assert {d.contradicts for d in bench.of("left")} == {()}


@pytest.mark.parametrize(("question", "message"), [
    ("id: a, text: a, implies: [cap]", "q:2: question 'a': implies there is no question 'cap'"),
    ("id: a, text: a, implies: [a]", "q:2: question 'a': implies names itself"),
    ("id: a, text: a, implies: [b and]", "q:2: question 'a': implies cannot be read"),
    ("id: a, text: a, implies: 5", "q:2: question 'a': implies must be a condition or a list"),
    ("id: a, text: a, kind: choice, options: [x, y], implies: [b]",
     "q:2: question 'a': implies says what a yes implies: this is a choice"),
    ("id: a, text: a, unsure: often",
     "q:2: question 'a': unsure there is no view 'often' .there are: window"),
    ("id: a, text: a, unsure: [window]", "q:2: question 'a': unsure must be window or the name"),
])
def test_bad_implications_are_named_with_their_line(question, message):
    with pytest.raises(QuestionError, match=message):
        QuestionBook.loads(f"- {{id: b, text: b}}\n- {{{question}}}\n", "q")


def test_what_is_uncertain_is_asked_once_more_about_a_longer_history():
    engine = FakeEngine(answer=lambda text, vision: 0.5 if text == "doubt" else 0.9)
    bench = Bench("- {id: doubt, text: doubt, unsure: window}\n"
                  "- {id: sure, text: sure, unsure: window}\n- {id: plain, text: doubt}\n", engine,
                  window_groups=2)
    film(bench, 4)
    again = [d for d in bench.of("doubt") if d.model.endswith("+window")]
    plain = [d for d in bench.of("doubt") if not d.model.endswith("+window")]
    assert len(again) >= len(plain) - 4 > 10, "at first there is no longer history"
    assert not [d for d in bench.of("sure") + bench.of("plain") if d.model.endswith("+window")]
    assert bench.runtime.stats().asked_again == len(again)
    # Three windows of two groups, from the newest frame back; the stream has two windows at most.
    span_s = {round((d.t_end_ns - d.t_start_ns) / NS, 3) for d in again[8:]}
    assert min(span_s) == 1.375 > max((d.t_end_ns - d.t_start_ns) / NS for d in plain)
    assert {d.t_end_ns for d in again} <= {d.t_end_ns for d in plain}


LONG = """
views:
  near: {window_groups: 2}
  long: {sample_hz: 1, window_groups: 8, max_age_s: 4}
questions:
  - {id: doubt, text: doubt, view: near, unsure: long}
  - {id: sure, text: sure, view: near, unsure: long}
"""


class LongSighted(FakeEngine):
    """Is sure about `doubt` only where it sees 6 groups or more."""

    def stream(self, window_groups, mode):
        stream = super().stream(window_groups, mode)
        readout = stream._readout

        def read(query):
            doubts = query.text == "doubt" and len(stream.history) < 6
            self.answer = lambda text, vision: 0.5 if doubts else 0.95
            return readout(query)

        stream._readout = read
        return stream


def test_what_is_uncertain_is_asked_once_more_about_another_view_s_past():
    bench = Bench(LONG, LongSighted())
    film(bench, 20)
    again = [d for d in bench.of("doubt") if d.model == "fake+long"]
    first = [d for d in bench.of("doubt") if d.model == "fake"]
    assert len(again) > 40 and not [d for d in bench.of("sure") if d.model != "fake"]
    ends = [d.t_end_ns for d in first]
    assert {d.t_end_ns for d in again} <= set(ends), "it rests on the newest frames, too"
    assert len({d.t_end_ns for d in again}) == len(again), "no second look is looked at again"
    assert len(set(ends)) == len(ends)
    assert max(d.t_end_ns - d.t_start_ns for d in again) >= 15 * NS
    assert max(d.t_end_ns - d.t_start_ns for d in first) <= NS
    assert {d.view for d in again} == {"near"}
    late = [d for d in bench.of("doubt") if d.t_end_ns > START_NS + 15 * NS]
    assert {d.answer for d in late} == {YES}, "the second looks settle it"
    # Never two frames in two groups of what is asked about: the past ends where the window begins.
    for entry in bench.engine.calls("pass"):
        assert entry[2] >= 0


def test_there_is_no_second_look_where_a_group_is_due_before_it_is_done():
    bench = Bench(LONG, LongSighted(append_s=0.001, ask_s=0.11))
    film(bench, 10)
    assert len([d for d in bench.of("doubt") if d.model == "fake+long"]) > 20
    queued = bench.runtime.stats().tick_ms["wait"].p95
    assert queued < 1.0
    slow = Bench(LONG, LongSighted(append_s=0.06, ask_s=0.01))
    film(slow, 10)
    again = [d for d in slow.of("doubt") if d.model == "fake+long"]
    # There is time for three groups; a fourth comes soon, and would take more than is left.
    assert 1 <= len(again) <= 8 and max(d.t_end_ns for d in again) < START_NS + 5 * NS
    assert slow.runtime.stats().tick_ms["wait"].p95 < 1.0
    unknown = Bench(LONG, LongSighted(append_s=0.3, ask_s=0.01))
    film(unknown, 10)
    assert len([d for d in unknown.of("doubt") if d.model == "fake+long"]) <= 1


def test_the_second_look_is_what_stands():
    bench = Bench(LONG.replace("unsure: long}", "unsure: long, ask: on_change, change: 0.01}"),
                  LongSighted(), scene_change=None)
    film(bench, 20)
    late = [d for d in bench.of("doubt") if d.t_end_ns > START_NS + 9 * NS]
    assert {d.answer for d in late} == {YES}
    standing = [d for d in late if d.model == "fake+long+reuse"]
    assert len(standing) > 30 and all(d.t_asked_ns < d.t_end_ns for d in standing)
    assert len([d for d in late if d.model in ("fake", "fake+long")]) < 10


def test_a_past_of_another_time_is_not_looked_at():
    bench = Bench(LONG, LongSighted())
    film(bench, 10)
    asked = bench.runtime.stats().asked_again
    assert asked
    bench.runtime.reset("the clock jumped")
    film(bench, 1.5, 10)  # shorter than a group of `long`
    assert bench.runtime.stats().asked_again == asked


@pytest.mark.parametrize(("question", "message"), [
    ("unsure: lang", "q:6: question 'a': unsure there is no view 'lang' .there are: window, near"),
    ("unsure: near, view: near", "q:6: question 'a': unsure names the view 'near' that the questi"),
    ("unsure: back, view: near",
     "q:6: question 'a': unsure names the view 'back', which shows another camera than 'near'"),
    ("unsure: door, view: near",
     "q:6: question 'a': unsure names the view 'door', which shows another region than 'near'"),
    ("unsure: long", "q:6: question 'a': unsure names the view 'long', which shows another region"),
])
def test_a_view_that_cannot_be_looked_at_is_named_with_its_line(question, message):
    text = ("views:\n  near: {window_groups: 2}\n  long: {sample_hz: 1}\n"
            "  door: {region: [0, 0, 0.5, 0.5]}\n  back: {image: /back}\n"
            f"questions: [{{id: a, text: a, {question}}}]\n")
    with pytest.raises(QuestionError, match=message):
        QuestionBook.loads(text, "q")


def test_a_view_that_is_looked_at_stays_and_one_of_another_camera_does_not_come():
    bench = Bench(LONG.replace("view: near, ", ""), LongSighted())
    film(bench, 2)
    with pytest.raises(QuestionError, match="view 'long': doubt, sure asked of it"):
        bench.runtime.remove_view("long")
    with pytest.raises(QuestionError, match="'doubt': unsure .* another camera than 'back'"):
        bench.runtime.add_view(View("back", "/back"))
    assert [view.name for view in bench.runtime.views()] == ["near", "long"]
    bench.runtime.add_view(View("wide", window_groups=4))
    with pytest.raises(ViewError, match="that name is taken"):
        View("window")


def test_a_second_look_that_fails_stops_nothing():
    class Once(FakeEngine):
        def stream(self, window_groups, mode):
            stream = super().stream(window_groups, mode)
            if mode == "window":
                stream.ask = lambda queries: (_ for _ in ()).throw(RuntimeError("no room"))
            return stream

    bench = Bench("- {id: doubt, text: doubt, unsure: window}\n",
                  Once(answer=lambda text, vision: 0.5), window_groups=2)
    film(bench, 3)
    assert len(bench.of("doubt")) > 8 and "asked again: no room" in bench.runtime.stats().last_error
