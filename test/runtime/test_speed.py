"""What the node says at start about what this machine can hold."""

from fakes import Bench, FakeEngine

from vlm_decisions.runtime.speed import Speed, Tick

QUESTIONS = """
views: {a: {}, b: {region: [0, 0, 0.5, 1]}, c: {sample_hz: 2}}
questions: [{id: q, text: tokens 10}, {id: r, text: tokens 10, view: a}, {id: s, text: "overflow",
  view: c}]
"""


def test_it_is_measured_of_each_view_with_its_questions():
    engine = FakeEngine(encode_s=0.02, ask_s=0.05, each_s=0.01)
    engine.tick_s = 1.0  # it is warm
    bench = Bench(QUESTIONS, engine)
    bench.runtime.step()
    a, b = bench.runtime.speed.ticks  # of c one cannot be asked: it is told when it is
    assert (a.view, a.questions, round(a.tick_s, 3), a.group_s) == ("a", 2, 0.09, 0.25)
    assert (b.view, b.questions, round(b.tick_s, 3)) == ("b", 1, 0.08)
    assert round(bench.runtime.speed.load, 2) == 0.68
    assert len(engine.calls("stream")) == 6, "measured on states of their own"


def test_what_it_says():
    one = Speed((Tick("", 0.05, 0.25, 3),))
    assert str(one) == ("a group of images with 3 questions takes 50 ms, and 4 come a second: "
                        "20% of the time")
    many = Speed((Tick("a", 0.2, 0.25, 3), Tick("b", 0.3, 0.25, 5)))
    assert str(many) == ("the machine cannot keep up: a group of images with 8 questions of 2 "
                         "views takes 250 ms, and 8 come a second: 200% of the time. It can hold "
                         "4 groups a second with these questions")
