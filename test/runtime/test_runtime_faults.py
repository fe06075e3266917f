"""Faults at random on simulated time: nothing stale passes as fresh, and all comes back."""

import random

import pytest
from fakes import START_NS, Bench, Camera, FakeEngine

from vlm_decisions.decision import TIER_HEALTH, UNKNOWN
from vlm_decisions.frames import NS
from vlm_decisions.questions import Question, QuestionError

FAULTS = (
    "stall", "lose", "rewind", "clock", "cover", "resize", "engine", "slow", "add", "remove",
    "change", "late", "ask",
)  # fmt: skip


class Chaos:
    """A camera at 25 fps for `seconds`, with a fault about every second."""

    def __init__(self, seed: int, seconds: float) -> None:
        self.random = random.Random(seed)
        self.bench = Bench(
            "- {id: a, text: a}\n- {id: b, text: b, rate_hz: 1}",
            FakeEngine(encode_s=0.01, append_s=0.002, ask_s=0.02, each_s=0.005),
            max_age_s=1.0,
        )
        self.offset_ns = 0  # of the stamps, from the clock
        self.silent_until_ns = 0
        self.names = iter(range(10**6))
        self.done: dict[str, int] = dict.fromkeys(FAULTS, 0)
        self.worst_queue = 0
        for index in range(round(seconds * 25)):
            self.bench.clock.at(index / 25, self.frame)
        for index in range(round(seconds) - 12):
            self.bench.clock.at(1 + index + self.random.random(), self.fault)
        self.bench.clock.at(seconds - 10, self.calm)

    def frame(self) -> None:
        now_ns = self.bench.clock.now_ns
        if now_ns < self.silent_until_ns:
            return
        self.bench.runtime.push(self.bench.camera.frame(now_ns + self.offset_ns))
        self.worst_queue = max(self.worst_queue, self.bench.runtime.stats().queue)

    def calm(self) -> None:
        bench = self.bench
        self.silent_until_ns, self.offset_ns = 0, 0
        bench.camera.cover = None
        bench.engine.fail.clear()
        bench.engine.ask_s = 0.02

    def fault(self) -> None:
        kind = self.random.choice(FAULTS)
        self.done[kind] += 1
        getattr(self, f"do_{kind}")()

    def later(self, seconds, event) -> None:
        self.bench.clock.at((self.bench.clock.now_ns - START_NS) / NS + seconds, event)

    def do_stall(self):
        self.silent_until_ns = self.bench.clock.now_ns + 2 * NS

    def do_lose(self):
        self.silent_until_ns = self.bench.clock.now_ns + NS // 4

    def do_rewind(self):
        self.offset_ns -= self.random.choice((NS // 5, NS // 2, 5 * NS))
        self.later(3, lambda: setattr(self, "offset_ns", 0))

    def do_clock(self):
        self.bench.runtime.check_freshness(self.bench.clock.now_ns - 10 * NS)

    def do_cover(self):
        self.bench.camera.cover = self.random.choice((0, 128))
        self.later(2, lambda: setattr(self.bench.camera, "cover", None))

    def do_resize(self):
        self.bench.camera = Camera(self.random.choice(((48, 64), (60, 80), (33, 47))))

    def do_engine(self):
        call = self.random.choice(("encode", "append", "ask", "reset"))
        self.bench.engine.fail[call] = RuntimeError(f"{call} failed")
        self.later(1.5, self.bench.engine.fail.clear)

    def do_slow(self):
        self.bench.engine.ask_s = self.random.choice((0.4, 1.5))
        self.later(2, lambda: setattr(self.bench.engine, "ask_s", 0.02))

    def do_add(self):
        text = self.random.choice(("fine", "overflow"))
        self.bench.runtime.add_question(Question(f"q{next(self.names)}", text))

    def do_remove(self):
        names = [q.id for q in self.bench.runtime.questions() if q.id not in "ab"]
        if names:
            self.bench.runtime.remove_question(self.random.choice(names))

    def do_change(self):
        try:
            self.bench.runtime.replace_question("a", enter=self.random.choice((0.2, 0.6, 0.9)))
        except QuestionError:
            pass

    def do_late(self):
        frame = self.bench.camera.frame(self.bench.clock.now_ns + self.offset_ns - NS // 30)
        self.bench.runtime.push(frame)

    def do_ask(self):
        decision = self.bench.runtime.ask(Question("now", "n"))
        assert decision.answer == UNKNOWN or 0 <= decision.age_s <= 1.6


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_nothing_stale_passes_as_fresh_and_all_recovers(seed):
    chaos = Chaos(seed, 120.0)
    bench = chaos.bench
    bench.run(120.0)
    for decision in bench.decisions:
        if decision.tier != TIER_HEALTH and decision.answer != UNKNOWN:
            assert -1.0 <= decision.age_s <= 1.0, decision
            assert 0.0 <= decision.p <= 1.0
        if decision.answer == UNKNOWN:
            assert decision.reason
    assert chaos.worst_queue <= 4
    assert sum(count > 0 for count in chaos.done.values()) >= 10, chaos.done
    # Ten quiet seconds at the end: every question that can be answered is, at its rate.
    for question in bench.runtime.questions():
        end = [t for t in bench.times(question.id) if t > 112]
        if question.text == "overflow":
            assert bench.answers(question.id)[-1] == UNKNOWN
        else:
            assert len(end) == pytest.approx(8 * question.rate_hz, abs=2), question.id
    assert bench.runtime.stats().condition == ""
    # Each change of an answer is marked, and nothing else is.
    for name in {decision.question_id for decision in bench.decisions}:
        told = bench.of(name)
        for before, after in zip(told, told[1:], strict=False):
            assert after.changed == (after.answer != before.answer)
            assert after.t_decided_ns >= before.t_decided_ns - 11 * NS
