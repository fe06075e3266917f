"""Scheduling of the runtime, on simulated time: nothing here waits."""

import dataclasses
import gc
import re
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import START_NS, Bench, FakeEngine, person_head

from vlm_decisions.decision import NO, TIER_HEADS, TIER_HEALTH, TIER_VLM, UNKNOWN, YES
from vlm_decisions.frames import NS
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.runtime import Runtime
from vlm_decisions.runtime.costs import Cost
from vlm_decisions.runtime.view_state import ViewState

ONE = "- {id: person, text: is there a person}"


def many(count, rate_hz=8.0):
    return QuestionBook([Question(f"q{i}", f"is {i}", rate_hz=rate_hz) for i in range(count)])


def test_every_group_is_answered_at_four_hertz_and_rates_hold():
    bench = Bench(
        "- {id: a, text: a}\n- {id: b, text: b, rate_hz: 1}\n"
        "- {id: c, text: c, kind: choice, options: [x, y], rate_hz: 2}",
        FakeEngine(
            encode_s=0.02, ask_s=0.06, answer=lambda text, _: [1, 0] if text == "c" else 0.9
        ),
    )
    bench.film(0, 10, fps=30)
    bench.run(10)
    stats = bench.runtime.stats()
    assert len(bench.times("a")) == stats.groups == 40
    assert np.diff(bench.times("a")) == pytest.approx(0.25, abs=0.034)
    assert len(bench.times("b")) == 10
    assert len(bench.times("c")) == 20
    assert set(bench.answers("c")) == {"x"}
    assert stats.rates_hz == pytest.approx({"a": 4, "b": 1, "c": 2}, abs=0.2)
    assert stats.dropped == {}
    assert stats.segments == 1
    assert bench.errors == []


def test_the_age_is_that_of_the_evidence_when_decided():
    bench = Bench(ONE, FakeEngine(encode_s=0.02, append_s=0.03, ask_s=0.1))
    bench.film(0, 3, delay_s=0.01)
    bench.run(3)
    for decision in bench.of("person"):
        assert decision.age_s == pytest.approx(0.01 + 0.15)
        assert decision.tier == TIER_VLM
        assert decision.frame_id == "camera"
        assert decision.model == "fake"
    # The evidence reaches back over the stream's groups, one window to begin with.
    last = bench.of("person")[7]
    assert (last.t_start_ns, last.t_end_ns) == (START_NS, START_NS + round(1.875 * NS))


def test_jitter_of_the_stamps_loses_no_answer():
    bench = Bench(ONE)
    rng = np.random.default_rng(0)
    for index in range(80):
        t_s = index / 8 + rng.uniform(-0.008, 0.008)
        bench.clock.at(max(t_s, 0), lambda t_s=max(t_s, 0): bench.shoot(t_s))
    bench.run(10.1)
    assert len(bench.times("person")) == 40


def test_tier_1_is_published_before_any_language_model_work(tmp_path):
    bench = Bench(
        "- {id: other, text: other}\n- {id: person, text: p}",
        FakeEngine(encode_s=0.02, append_s=0.1, ask_s=0.1),
        head_paths=(person_head(tmp_path),),
    )
    published = []
    bench.runtime.listen(
        lambda decision: published.append(
            (decision.question_id, len(bench.engine.calls("pass")), decision.age_s)
        )
    )
    bench.film(0, 0.25)
    bench.run(0.5)
    answers = [entry for entry in published if not entry[0].startswith("camera_")]
    assert [entry[:2] for entry in answers] == [("person", 0), ("other", 1)]
    assert answers[0][2] == pytest.approx(0.02)
    assert answers[1][2] == pytest.approx(0.22)


def test_heads_answer_auto_questions_and_the_model_the_rest(tmp_path):
    path = person_head(tmp_path)
    bench = Bench(
        """
- {id: person, text: p}
- {id: person_again, text: p, head: person_v1}
- {id: person_asked, text: asked, tier: vlm}
""",
        head_paths=(path,),
    )
    bench.camera.shade[:] = (30, 0, 0)
    bench.film(0, 1)
    bench.run(1)
    tiers = {name: {d.tier for d in bench.of(name)} for name in bench.runtime.stats().rates_hz}
    assert tiers["person"] == tiers["person_again"] == {TIER_HEADS}
    assert tiers["person_asked"] == {TIER_VLM}
    assert bench.of("person")[0].model == "fake/person_v1"
    assert bench.of("person")[0].depth == 0
    assert {text for _, texts in bench.engine.calls("ask") for text in texts} == {"asked"}


@pytest.mark.parametrize(("keys", "words"), [
    ("depth: 60", "depth 60: the language model 'fake' has layers 1 to 4"),
    ("tier: heads", "no head for question 'cup' is loaded .*there are: person_v1 for person"),
    ("head: nohead", "no head 'nohead' is loaded .*there are: person_v1."),
    ("tier: heads, head: nohead", "no head 'nohead' is loaded"),
])
def test_what_the_model_can_never_answer_is_refused_whenever_it_comes(tmp_path, keys, words):
    path = person_head(tmp_path)
    with pytest.raises(QuestionError, match=words):
        Bench(f"- {{id: cup, text: c, {keys}}}", head_paths=(path,)).run(1)
    bench = Bench("- {id: person, text: p, tier: heads}\n- {id: cup, text: c}", head_paths=(path,))
    bench.film(0, 4)
    bench.run(2)
    odd = next(iter(QuestionBook.loads(f"- {{id: cup, text: c, {keys}}}")))
    changes = {name: getattr(odd, name) for name in ("depth", "tier", "head")}
    with pytest.raises(QuestionError, match=words):
        bench.runtime.replace_question("cup", **changes)
    other = dataclasses.replace(odd, id="other")
    with pytest.raises(QuestionError, match=words.replace("cup", "other")):
        bench.runtime.add_question(other)
    assert re.search(words.replace("cup", "other"), bench.runtime.ask(other).reason)
    bench.run(4)
    assert len(bench.times("cup")) == len(bench.times("person")) == 16, "all goes on"
    bench.runtime.replace_question("cup", depth=4)
    assert [question.id for question in bench.runtime.questions()] == ["person", "cup"]


def test_a_motion_head_waits_for_its_window(tmp_path):
    path = person_head(
        tmp_path,
        name="motion",
        pooling="motion",
        weight=np.array([1.0, 0, 0, 0, 0, 0], np.float32),
        bias=0.0,
        temperature=1.0,
        window_groups=4,
    )
    bench = Bench(ONE, head_paths=(path,))
    for index in range(24):

        def shoot(index=index):
            bench.camera.shade[:] = 2.0 * index
            bench.shoot(index / 8)

        bench.clock.at(index / 8, shoot)
    bench.run(3)
    decisions = bench.of("person")
    assert bench.times("person")[0] == 0.375  # two groups
    assert {d.answer for d in decisions} == {YES}
    spans = [(d.t_end_ns - d.t_start_ns) / NS for d in decisions]
    assert spans[:3] == pytest.approx([0.375, 0.625, 0.875])
    assert max(spans) == pytest.approx(0.875)
    assert bench.engine.calls("ask") == []


def test_a_head_for_another_model_is_refused_and_the_model_asked_instead(tmp_path):
    path = person_head(tmp_path, fingerprint="other")
    bench = Bench(ONE, head_paths=(path, tmp_path / "none.npz"))
    bench.film(0, 1)
    bench.run(1)
    stats = bench.runtime.stats()
    assert stats.heads == ()
    assert "other" in stats.heads_refused[""][str(path)]
    assert "f00d" in stats.heads_refused[""][str(path)]
    assert len(bench.errors) == 2
    assert {d.tier for d in bench.of("person")} == {TIER_VLM}


def test_the_window_is_bounded_and_times_are_relative_to_its_begin():
    bench = Bench(ONE, window_groups=4)
    bench.film(0, 5)
    bench.run(5)
    assert bench.engine.calls("stream") == [("stream", 4, "auto")]
    times = [t_s for _, _, t_s in bench.engine.calls("pass")]
    assert times[:3] == pytest.approx([0.0625, 0.3125, 0.5625])
    assert len(times) == 20


def test_without_questions_for_it_the_model_does_nothing_until_there_is_one():
    bench = Bench(QuestionBook(), window_groups=4)
    bench.film(0, 5)
    bench.run(3, check_s=None)
    assert bench.engine.calls("pass") == []
    bench.runtime.add_question(Question("late", "late"))
    bench.run(3.3, check_s=None)
    # A window is there already: its cached features and the new group's go through the model.
    assert len(bench.engine.calls("pass")) == 5 and len(bench.engine.calls("encode")) == 13
    assert len(bench.times("late")) == 1
    decision = bench.of("late")[0]
    assert decision.t_end_ns - decision.t_start_ns == round(1.125 * NS)


def test_backlog_skips_tier_2_but_not_tier_1(tmp_path):
    engine = FakeEngine(encode_s=0.01, ask_s=0.6)
    bench = Bench(
        "- {id: person, text: p}\n- {id: other, text: o}",
        engine,
        head_paths=(person_head(tmp_path),),
    )
    bench.film(0, 10)
    bench.run(11)
    stats = bench.runtime.stats()
    assert len(bench.times("person")) == stats.groups == 40
    assert 10 <= len(bench.times("other")) < 25
    assert stats.skipped > 0
    assert stats.dropped == {}
    assert stats.segments == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encode_s", "each_s"),
    [(0.045, 0.025), (0.045, 0.06), (0.15, 0.025)],
    ids=["5x slowed", "ask takes 0.8 s", "vision alone too slow"],
)
def test_overload_keeps_the_queue_and_the_age_bounded(encode_s, each_s):
    """12 questions at 8 Hz; groups come every 125 ms."""
    engine = FakeEngine(encode_s=encode_s, append_s=0.005, ask_s=0.05, each_s=each_s)
    bench = Bench(many(12), engine, fps=16.0, queue_groups=4)
    queued = []
    push = bench.runtime.push

    def watched(frame):
        push(frame)
        queued.append(bench.runtime.stats().queue)

    bench.runtime.push = watched
    bench.film(0, 30, fps=16)
    bench.run(30)
    tick_s = encode_s + 0.005 + 0.05 + 12 * each_s
    ages = [d.age_s for d in bench.decisions if d.tier == TIER_VLM and d.answer != UNKNOWN]
    assert max(queued) <= 4
    assert np.percentile(ages, 95) < 2 * tick_s
    for index in range(12):
        times = bench.times(f"q{index}")
        assert max(np.diff(times)) < 4 * tick_s + 1.0, "a question was forgotten"
        assert UNKNOWN not in bench.answers(f"q{index}")[1:]
    # The cause is named, in the statistics and once to the operator, though no batch was cut.
    said = "too slow for all rates, which are lowered: 12 questions take "
    assert bench.runtime.stats().overload.startswith(said)
    assert len(bench.errors) == 1 and bench.errors[0].startswith(said)


def test_one_stall_is_no_overload():
    engine = FakeEngine(encode_s=0.01, ask_s=0.01, each_s=0.001)
    bench = Bench(many(4), engine)
    bench.clock.at(5.0, lambda: setattr(engine, "ask_s", 1.2))
    bench.clock.at(5.3, lambda: setattr(engine, "ask_s", 0.01))
    bench.film(0, 10)
    bench.run(8)
    stats = bench.runtime.stats()
    assert stats.skipped > 0 and stats.overload == "" and bench.errors == []


def test_a_dropped_group_begins_a_new_window():
    bench = Bench(ONE, FakeEngine(encode_s=0.3), queue_groups=2)
    bench.film(0, 5)
    bench.run(6)
    stats = bench.runtime.stats()
    assert sum(stats.dropped.values()) > 0
    assert stats.segments > 1
    # No window holds groups that are not contiguous: times in it are 0.25 s apart.
    times = [entry[2] if entry[0] == "pass" else None for entry in bench.engine.log]
    window = []
    for entry, t_s in zip(bench.engine.log, times, strict=True):
        if entry[0] == "reset":
            window = []
        elif t_s is not None:
            window.append(t_s)
            assert np.diff(window) == pytest.approx(0.25) if len(window) > 1 else True
            assert window[0] == pytest.approx(0.0625)


def test_a_scene_change_asks_everything_at_once():
    questions = "- {id: slow, text: s, rate_hz: 0.1}\n- {id: fast, text: f}"
    bench = Bench(questions, scene_change=0.05)
    bench.film(0, 6)
    bench.clock.at(2.99, lambda: bench.camera.shade.__setitem__(slice(None), (90, -60, -60)))
    bench.run(6)
    assert bench.runtime.stats().scene_changes == 1
    assert bench.times("slow") == [0.125, 3.125]
    steady = Bench(questions, scene_change=0.05)
    steady.film(0, 6)
    steady.run(6)
    assert steady.times("slow") == [0.125]
    never = Bench(questions, scene_change=None)
    never.film(0, 6)
    never.clock.at(2.99, lambda: never.camera.shade.__setitem__(slice(None), (90, -60, -60)))
    never.run(6)
    assert never.times("slow") == [0.125]


def test_a_question_added_now_is_asked_on_the_next_group():
    bench = Bench("- {id: old, text: o, rate_hz: 0.1}")
    bench.film(0, 5)
    bench.clock.at(2.01, lambda: bench.runtime.add_question(Question("new", "n", rate_hz=0.1)))
    bench.run(5)
    assert bench.times("new") == [2.125]
    assert bench.times("old") == [0.125]


@pytest.mark.slow
def test_a_budget_too_small_for_all_asks_all_in_turn():
    engine = FakeEngine(encode_s=0.01, ask_s=0.02, each_s=0.02)
    bench = Bench(many(12, rate_hz=4.0), engine, tier2_budget_s=0.1)
    bench.film(0, 30)
    bench.run(30)
    counts = [len(bench.times(f"q{i}")) for i in range(12)]
    batches = [len(texts) for _, texts in engine.calls("ask")]
    assert max(batches[4:]) <= 5, "the budget is 4 questions: 0.02 + 4 * 0.02 s"
    assert np.median(batches) == 4
    assert min(counts) >= 0.9 * max(counts)
    rates = bench.runtime.stats().rates_hz
    assert rates["q0"] == pytest.approx(4 * 4 / 12, abs=0.35)
    assert bench.runtime.stats().skipped > 0


@pytest.mark.slow
def test_where_the_machine_is_too_slow_rates_are_lowered_in_turn_and_it_is_said():
    """Ten questions that together take 2.3 s: longer than any evidence counts."""
    book = QuestionBook(
        [Question(f"q{i}", f"tokens {20 if i else 100}", rate_hz=4.0) for i in range(8)]
        + [Question("slow", "tokens 20", rate_hz=0.5), Question("mid", "tokens 20", rate_hz=1.0)]
    )
    engine = FakeEngine(encode_s=0.01, ask_s=0.05, each_s=0.08)
    bench = Bench(book, engine)
    assert bench.runtime.cost(book.get("q0")) is None  # not loaded yet
    bench.film(0, 60)
    bench.run(60)
    ages = [d.age_s for d in bench.decisions if d.tier == TIER_VLM and d.answer != UNKNOWN]
    assert max(ages) < 2.0
    for question in book:
        times = [t for t in bench.times(question.id) if t > 10]
        assert max(np.diff(times)) < 8.0, f"{question.id} has lost its turn"
    slow, fast = (len(bench.times(name)) for name in ("slow", "q1"))
    assert slow >= 0.8 * min(30, fast), "the highest rates are lowered first"
    assert not any(d.reason.startswith("the evidence") for d in bench.decisions[200:])
    stats = bench.runtime.stats()
    assert stats.costs["q0"].tokens == 100 and stats.costs["q1"].tokens == 20
    assert stats.costs["q0"].ms == pytest.approx(5 * stats.costs["q1"].ms)
    assert stats.costs["q1"].ms == pytest.approx(160, rel=0.1)
    said = "too slow for all rates, which are lowered: 10 questions take "
    assert stats.overload.startswith(said) and "'q0' (100 tokens, " in stats.overload
    asked = bench.runtime.cost(Question("new", "tokens 300"))  # before it is added
    assert asked.tokens == 300 and asked.ms == pytest.approx(2400, rel=0.1)
    # The machine is free again: all rates hold, and nothing is said any more.
    engine.ask_s, engine.each_s = 0.01, 0.001
    bench.film(60, 75)
    bench.run(75)
    stats = bench.runtime.stats()
    assert stats.overload == "" and stats.rates_hz["q1"] == pytest.approx(4.0, rel=0.1)


def test_what_questions_share_is_counted_once():
    """Costs are what a batch takes longer by a question, also before it is added."""
    def asked(count):
        book = "\n".join(f"- {{id: q{k}, text: tokens {30 + 10 * k}}}" for k in range(count))
        bench = Bench(book, FakeEngine(each_s=0.01, trunk=20))
        bench.film(0, 4)
        bench.run(3)
        bench.runtime.replace_question("q0", rate_hz=1.0)  # batches of two sizes
        bench.film(4, 8)
        bench.run(8)
        return bench

    three, four = asked(3), asked(4)
    taken_ms = [bench.runtime.stats().tick_ms["ask"].p95 for bench in (three, four)]
    new = three.runtime.cost(Question("q3", "tokens 60"))
    assert new.tokens == 60 and new.ms == pytest.approx(taken_ms[1] - taken_ms[0], rel=0.02)
    costs = four.runtime.stats().costs
    assert costs["q3"].ms == pytest.approx(new.ms, rel=0.02)
    assert [cost.tokens for cost in costs.values()] == [30, 40, 50, 60]
    view = four.runtime._views.all[0]
    assert view.processor.total_ms(view.questions) == pytest.approx(taken_ms[1], rel=0.02)


def test_a_question_of_a_head_costs_the_language_model_nothing(tmp_path):
    bench = Bench("- {id: person, text: p}", head_paths=(person_head(tmp_path),))
    bench.film(0, 1)
    bench.run(1)
    assert bench.runtime.stats().costs["person"].tokens == 0


def test_smoothing_and_hysteresis_reach_the_decisions():
    values = iter([0.9, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    bench = Bench("- {id: q, text: q, ema: 0.5}", FakeEngine(answer=lambda *_: next(values)))
    bench.film(0, 2)
    bench.run(2)
    assert bench.answers("q")[:4] == [YES, YES, YES, NO]
    assert [d.p for d in bench.of("q")[:4]] == pytest.approx([0.9, 0.7, 0.4, 0.25])


def test_health_is_reported_on_change_and_once_a_second():
    bench = Bench(ONE)
    bench.film(0, 10, fps=30)
    bench.run(10, check_s=None)
    assert len(bench.of("camera_blurred")) == 10
    assert [d.changed for d in bench.of("camera_blurred")] == [True] + [False] * 9
    decision = bench.of("camera_blurred")[5]
    assert (decision.tier, decision.depth, decision.model) == (TIER_HEALTH, 0, "")
    assert decision.since_ns == START_NS
    assert decision.t_start_ns == decision.t_end_ns


def test_statistics_add_up():
    bench = Bench(ONE, FakeEngine(encode_s=0.02, append_s=0.01, ask_s=0.05))
    bench.film(0, 5, fps=30)
    bench.run(5)
    stats = bench.runtime.stats()
    assert stats.frames == 150
    assert stats.groups == stats.ticks == 20
    assert stats.decisions == len(bench.decisions)
    assert stats.tick_ms["vision"].p50 == pytest.approx(20)
    assert stats.tick_ms["append"].p50 == 0  # its cost is in the pass of the questions
    assert stats.tick_ms["ask"].p95 == pytest.approx(60)
    assert stats.tick_ms["total"].p50 == pytest.approx(80)
    assert stats.age_ms[TIER_VLM].p50 == pytest.approx(80)
    assert stats.image_rate_hz == pytest.approx(30, rel=0.01)
    assert stats.model == "fake"
    assert stats.queue == 0
    assert stats.condition == ""


def test_dead_time_is_the_streams():
    bench = Bench(ONE)
    bench.film(0, 2)
    bench.run(2)
    log = [entry[0] for entry in bench.engine.log]
    for index, name in enumerate(log):
        if name == "ask":
            assert log[index + 1] == "idle"
    assert log.count("idle") >= 8


def test_step_raises_the_load_error():
    def broken():
        raise OSError("no such model")

    runtime = Runtime(broken, QuestionBook(), on_decision=print)
    with pytest.raises(OSError, match="no such model"):
        runtime.step()


@pytest.mark.slow
def test_no_image_is_kept_once_its_group_is_answered():
    """A window holds features; its images would be hundreds of megabytes of a large camera's."""
    bench = Bench(ONE)
    kept = []
    image = bench.camera.image

    def remembered():
        made = image()
        kept.append(weakref.ref(made))
        return made

    bench.camera.image = remembered
    bench.film(0, 10)
    bench.run(10)
    gc.collect()
    # The camera's health compares with the newest, and the sampler may hold another.
    assert len(kept) == 80 and sum(ref() is not None for ref in kept) <= 3


@pytest.mark.parametrize(("costs", "said"), [
    ({"a": Cost(3, 0.0)}, "1 question takes 50 ms"),
    ({"a": Cost(3, 0.0), "b": Cost(9, float("nan"))}, "2 questions take 50 ms"),
    ({"a": Cost(3, 4.0), "b": Cost(9, 1.0)},
     "2 questions take 50 ms, the dearest is 'a' (3 tokens, 4.0 ms)")])
def test_no_question_is_blamed_before_costs_are_known(costs, said):
    view = SimpleNamespace(_overloaded_ns=0, costs=lambda: costs, questions=(), name="",
                           processor=SimpleNamespace(total_ms=lambda questions: 50.0))
    assert ViewState.overload(view, 1).endswith(said)
