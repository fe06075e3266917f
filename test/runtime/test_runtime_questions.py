"""Questions that come, go and change while the runtime runs, on simulated time."""

import pytest
from fakes import START_NS, Bench, FakeEngine

from vlm_decisions.decision import NO, UNKNOWN, YES
from vlm_decisions.frames import NS
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError

ONE = "- {id: person, text: is there a person}"


def test_a_removed_question_is_not_answered_any_more():
    bench = Bench("- {id: a, text: a}\n- {id: b, text: b}", FakeEngine(ask_s=0.1))
    bench.film(0, 3)
    # While the engine works on the group of 1.125: its answer comes too late.
    bench.clock.at(1.15, lambda: bench.runtime.remove_question("a"))
    bench.run(3)
    assert max(bench.times("a")) == 0.875
    assert len(bench.times("b")) == 12
    assert "a" not in bench.runtime.stats().rates_hz
    with pytest.raises(QuestionError, match="no question 'a'"):
        bench.runtime.remove_question("a")


def test_answers_to_an_old_text_do_not_pass_for_the_new():
    bench = Bench("- {id: q, text: old}", FakeEngine(ask_s=0.1, answer=lambda text, _: 0.9))
    bench.film(0, 2)
    bench.clock.at(1.15, lambda: bench.runtime.replace_question("q", text="new"))
    bench.run(2)
    assert 1.125 not in bench.times("q")
    assert bench.runtime.stats().dropped["outdated"] == 1
    assert bench.engine.calls("ask")[-1] == ("ask", ("new",))


@pytest.mark.parametrize("busy", ["encode_s", "append_s", "ask_s"])
@pytest.mark.parametrize("change", ["replaced", "removed and added"])
def test_a_question_changed_while_a_group_is_in_work_is_asked_on_the_next(busy, change):
    bench = Bench("- {id: q, text: old, rate_hz: 0.1}", FakeEngine(**{busy: 0.1}))
    bench.film(0, 3)

    def act():
        if change == "replaced":
            bench.runtime.replace_question("q", text="new")
        else:
            bench.runtime.remove_question("q")
            bench.runtime.add_question(Question("q", "new", rate_hz=0.1))

    bench.clock.at(0.15, act)
    bench.run(3)
    assert bench.times("q") == [0.375]


def test_an_answer_with_the_old_calibration_is_outdated():
    bench = Bench("- {id: q, text: q}", FakeEngine(ask_s=0.1, answer=lambda *_: 0.7))
    bench.film(0, 2)
    bench.clock.at(1.15, lambda: bench.runtime.replace_question("q", bias=-5.0))
    bench.run(2)
    assert 1.125 not in bench.times("q") and bench.runtime.stats().dropped["outdated"] == 1
    after = [d for d in bench.of("q") if d.t_decided_ns > bench.of("q")[0].t_end_ns + NS * 1.3]
    assert after and all(d.p < 0.05 for d in after), "nothing of the old one is smoothed in"


def test_thresholds_and_rates_change_in_passing():
    bench = Bench("- {id: q, text: q}", FakeEngine(answer=lambda *_: 0.7))
    bench.film(0, 8)
    bench.run(4)
    asked = len(bench.times("q"))
    bench.runtime.replace_question("q", enter=0.8, exit=0.75, rate_hz=1.0)
    with pytest.raises(QuestionError, match="above exit"):
        bench.runtime.replace_question("q", enter=0.5)
    bench.run(8)
    assert bench.answers("q")[-1] == NO
    assert len(bench.times("q")) - asked == 4
    # The smoothed value went on: the answer changed, nothing was forgotten.
    assert bench.of("q")[asked].p == pytest.approx(0.7)


def test_adding_and_removing_hundreds_of_questions_leaves_nothing():
    bench = Bench(ONE)
    bench.film(0, 20)
    for index in range(300):
        t_s = 0.5 + index * 0.06
        name = f"q{index}"
        bench.clock.at(t_s, lambda n=name: bench.runtime.add_question(Question(n, "x")))
        bench.clock.at(t_s + 0.3, lambda n=name: bench.runtime.remove_question(n))
    bench.run(20)
    runtime = bench.runtime
    assert [question.id for question in runtime.questions()] == ["person"]
    assert set(runtime.stats().rates_hz) == {"person"}
    gate = runtime._views.all[0].gate
    kept = {*gate._smoother._states, *gate._added_ns, *gate._published_ns, *gate._interrupted}
    assert {name for name in kept if not name.startswith("camera_")} <= {"person"}
    assert runtime._views.all[0].processor._faulty == set()


def test_the_standing_questions_are_saved(tmp_path):
    bench = Bench(ONE)
    bench.runtime.add_question(Question("cup", "cup", rate_hz=1.0))
    bench.runtime.save_questions(tmp_path / "saved.yaml")
    assert tuple(QuestionBook.load(tmp_path / "saved.yaml")) == bench.runtime.questions()
    with pytest.raises(QuestionError, match="exists already"):
        bench.runtime.add_question(Question("cup", "cup"))


def test_ask_answers_one_question_about_now():
    bench = Bench("- {id: person, text: p, ema: 0.1}", FakeEngine(answer=lambda *_: 0.8))
    question = Question("once", "is it so", ema=0.1)
    assert bench.runtime.ask(question).reason == "no group yet"
    bench.film(0, 1)
    bench.run(1)
    decision = bench.runtime.ask(question)
    assert (decision.question_id, decision.answer) == ("once", YES)
    assert decision.p == decision.p_raw == pytest.approx(0.8)
    assert decision.t_end_ns == START_NS + round(0.875 * NS)
    assert bench.of("once") == []  # it is no standing question
    bench.clock.advance(10)
    assert bench.runtime.ask(question).answer == UNKNOWN
    bench.film(11, 12)
    bench.run(12)
    assert bench.runtime.ask(Question("once", "overflow")).reason == "'overflow' is too long"
    heads = bench.runtime.ask(Question("once", "x", tier="heads"))
    assert "no head for question 'once'" in heads.reason
