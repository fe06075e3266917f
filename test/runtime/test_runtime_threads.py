"""The engine thread: loading, living on, stopping. Real threads, fake engine."""

import gc
import threading
import time
import weakref
from collections import Counter

import pytest
from fakes import Camera, FakeEngine
from waiting import wait_for

from vlm_decisions.decision import UNKNOWN, YES
from vlm_decisions.frames import Frame
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question
from vlm_decisions.runtime import NotReadyError, Runtime
from vlm_decisions.runtime.settings import RuntimeSettings

WAIT_S = 10.0


class Live:
    """A started runtime with a camera of its own pace; frame time is real time."""

    def __init__(self, engine=None, factory=None, **settings):
        self.engine = engine or FakeEngine()
        self.threads: set[str] = set()
        self.decisions: list = []
        self.errors: list[str] = []
        self.camera = Camera()
        self.arrived = threading.Condition()
        self.runtime = Runtime(
            factory or (lambda: self.engine),
            QuestionBook([Question("person", "p")]),
            on_decision=self._take,
            on_error=self.errors.append,
            settings=RuntimeSettings(fps=60.0, jitter_s=1.0, **settings),
        )

    def _take(self, decision):
        with self.arrived:
            self.threads.add(threading.current_thread().name)
            self.decisions.append(decision)
            self.arrived.notify_all()

    def push(self, count=2):
        for _ in range(count):
            self.runtime.push(Frame(self.camera.image(), time.time_ns()))
            time.sleep(0.02)

    def wait_for(self, wanted):
        with self.arrived:
            found = self.arrived.wait_for(lambda: any(map(wanted, self.decisions)), WAIT_S)
        assert found, self.decisions
        return next(decision for decision in self.decisions if wanted(decision))


@pytest.fixture
def live():
    made = []

    def make(*args, **kwargs):
        made.append(Live(*args, **kwargs))
        return made[-1]

    yield make
    for one in made:
        assert one.runtime.stop(WAIT_S)


def answered(decision):
    return decision.question_id == "person" and decision.answer == YES


def test_one_thread_loads_runs_and_lets_go_of_the_engine(live):
    where = {}

    class Engine(FakeEngine):
        def encode(self, frames):
            where["encode"] = threading.current_thread()
            return super().encode(frames)

    def factory():
        where["load"] = threading.current_thread()
        engine = Engine()
        where["engine"] = weakref.ref(engine)
        return engine

    one = live(factory=factory)
    one.runtime.start()
    one.runtime.wait_ready(WAIT_S)
    one.push()
    one.wait_for(answered)
    assert where["load"] is where["encode"] is not threading.current_thread()
    assert one.runtime.stop(WAIT_S)
    assert not where["load"].is_alive()
    gc.collect()
    assert where["engine"]() is None


def test_the_load_error_is_raised_where_it_is_waited_for(live):
    def factory():
        raise FileNotFoundError("models/none: no such model")

    one = live(factory=factory)
    one.runtime.start()
    with pytest.raises(FileNotFoundError, match="no such model"):
        one.runtime.wait_ready(WAIT_S)
    one.push()  # harmless
    assert one.runtime.ask(Question("q", "x"), timeout_s=1.0).answer == UNKNOWN


def test_waiting_for_a_slow_load_times_out(live):
    go = threading.Event()

    def factory():
        go.wait(WAIT_S)
        return FakeEngine()

    one = live(factory=factory)
    one.runtime.start()
    with pytest.raises(TimeoutError, match="0.05 s"):
        one.runtime.wait_ready(0.05)
    go.set()
    one.runtime.wait_ready(WAIT_S)


def test_the_thread_outlives_a_raising_engine(live):
    one = live()
    one.engine.fail["encode"] = RuntimeError("boom")
    one.runtime.start()
    one.push()
    failed = one.wait_for(lambda d: "boom" in d.reason)
    assert failed.answer == UNKNOWN
    one.engine.fail.clear()
    one.push(16)  # a failed asking counts, too: the next is due 0.25 s later
    one.wait_for(answered)
    assert any("boom" in message for message in one.errors)


def test_ask_waits_for_a_group_and_answers(live):
    one = live()
    one.runtime.start()
    asked = {}
    thread = threading.Thread(
        target=lambda: asked.update(d=one.runtime.ask(Question("now", "n"), timeout_s=WAIT_S))
    )
    thread.start()
    wait_for(lambda: one.runtime._one_offs._queue)
    one.push()
    thread.join(WAIT_S)
    assert (asked["d"].question_id, asked["d"].answer) == ("now", YES)
    again = one.runtime.ask(Question("then", "n"), timeout_s=WAIT_S)  # no new group needed
    assert again.t_end_ns == asked["d"].t_end_ns


def test_ask_gives_up_in_time_and_says_why(live):
    one = live()
    one.runtime.start()
    decision = one.runtime.ask(Question("now", "n"), timeout_s=0.05)
    assert decision.answer == UNKNOWN
    assert decision.reason == "no answer within 0.05 s: no image yet"


def test_ask_from_a_callback_is_refused_rather_than_stuck(live):
    one = live()
    caught = []

    def nested(decision):
        if decision.question_id == "person" and not caught:
            try:
                one.runtime.ask(Question("now", "n"))
            except RuntimeError as error:
                caught.append(str(error))
        one._take(decision)

    one.runtime.listen(nested)
    one.runtime.start()
    one.runtime.wait_ready(WAIT_S)
    one.push()
    one.wait_for(answered)
    assert caught
    assert "thread" in caught[0]


def test_callbacks_may_change_questions(live):
    one = live()

    def on_decision(decision):
        if answered(decision) and len(one.runtime.questions()) == 1:
            one.runtime.add_question(Question("more", "m"))
            one.runtime.stats()
        one._take(decision)

    one.runtime.listen(on_decision)
    one.runtime.start()
    one.push(6)
    one.wait_for(lambda d: d.question_id == "more" and d.answer == YES)


def test_stopping_answers_those_who_wait(live):
    one = live()
    one.runtime.start()
    one.runtime.wait_ready(WAIT_S)
    asked = {}
    thread = threading.Thread(
        target=lambda: asked.update(d=one.runtime.ask(Question("now", "n"), timeout_s=WAIT_S))
    )
    thread.start()
    wait_for(lambda: one.runtime._one_offs._queue)
    assert one.runtime.stop(WAIT_S)
    thread.join(WAIT_S)
    assert asked["d"].reason == "the runtime has stopped"
    assert one.runtime.ask(Question("now", "n")).reason == "the runtime has stopped"
    assert one.runtime.stop(WAIT_S)  # again is fine


def test_stop_says_when_the_engine_does_not_return(live):
    go = threading.Event()

    class Stuck(FakeEngine):
        def encode(self, frames):
            go.wait(WAIT_S)
            return super().encode(frames)

    one = live(engine=Stuck())
    one.runtime.start()
    one.runtime.wait_ready(WAIT_S)
    one.push(4)
    assert one.runtime.stop(0.1) is False
    go.set()
    assert one.runtime.stop(WAIT_S)


def test_start_and_step_exclude_each_other(live):
    one = live()
    one.runtime.start()
    with pytest.raises(RuntimeError, match="not started"):
        one.runtime.step()
    with pytest.raises(RuntimeError, match="once"):
        one.runtime.start()


def test_a_runtime_that_was_never_started_stops(live):
    assert live().runtime.stop()


def test_pushing_and_changing_questions_from_many_threads(live):
    one = live()
    one.runtime.start()
    one.runtime.wait_ready(WAIT_S)
    stop = threading.Event()
    faults = []

    rounds = Counter()

    def guard(work):
        def run():
            try:
                while not stop.is_set():
                    work()
                    rounds[work] += 1
            except Exception as error:
                faults.append(error)

        return threading.Thread(target=run)

    names = iter(range(10**6))

    def change():
        name = f"q{next(names)}"
        one.runtime.add_question(Question(name, "x"))
        one.runtime.replace_question(name, rate_hz=1.0)
        one.runtime.remove_question(name)

    threads = [
        guard(lambda: one.push(1)),
        guard(change),
        guard(lambda: (one.runtime.check_freshness(), time.sleep(0.005))),
        guard(lambda: (one.runtime.stats(), time.sleep(0.005))),
        guard(lambda: one.runtime.ask(Question("now", "n"), timeout_s=0.2)),
    ]
    for thread in threads:
        thread.start()
    wait_for(lambda: faults or len(rounds) == len(threads) and min(rounds.values()) >= 10
             and any(map(answered, list(one.decisions))), 60.0)
    stop.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads), "a deadlock"
    assert faults == []
    assert one.errors == []
    assert [question.id for question in one.runtime.questions()] == ["person"]
    assert any(map(answered, one.decisions))


def test_waiting_until_all_is_done(live):
    gate = threading.Event()
    one = live()
    ask = one.engine.answer
    one.engine.answer = lambda *args: gate.wait(WAIT_S) and ask(*args)
    one.runtime.start()
    one.runtime.wait_ready(WAIT_S)
    assert one.runtime.wait_idle(WAIT_S)
    one.push(2)
    assert not one.runtime.wait_idle(0.2)  # the group is in work
    gate.set()
    assert one.runtime.wait_idle(WAIT_S)
    assert one.runtime.stats().ticks == 1
    one.runtime.stop()
    assert one.runtime.wait_idle(WAIT_S)


def test_a_loader_that_times_out_is_told_at_once_and_is_not_taken_for_a_slow_one(live):
    def load():
        raise TimeoutError("the hub did not answer")

    one = live(factory=load)
    one.runtime.start()
    with pytest.raises(TimeoutError, match="the hub did not answer") as error:
        one.runtime.wait_ready(WAIT_S)
    assert not isinstance(error.value, NotReadyError)
    loads = threading.Event()
    slow = live(factory=lambda: loads.wait(WAIT_S) and FakeEngine())
    slow.runtime.start()
    with pytest.raises(NotReadyError, match="not loaded within 0.01 s"):
        slow.runtime.wait_ready(0.01)
    loads.set()
    slow.runtime.wait_ready(WAIT_S)


def test_a_group_is_encoded_while_tier_0_looks_and_answered_only_after_that(live):
    one = live()
    one.runtime.start()
    one.runtime.wait_ready(WAIT_S)
    monitor = one.runtime._views.all[0].intake._monitor
    look, seen = monitor.update, threading.Event()

    def look_late(frame):
        assert seen.wait(WAIT_S)
        return look(frame)

    one.push(1)
    monitor.update = look_late
    pushing = threading.Thread(target=one.push, args=(1,))
    pushing.start()
    wait_for(lambda: one.engine.calls("encode"))
    time.sleep(0.1)  # time enough for what must not happen
    assert not one.engine.calls("pass") and not any(map(answered, one.decisions))
    seen.set()
    pushing.join(WAIT_S)
    one.wait_for(answered)


def test_nothing_is_made_of_a_group_that_tier_0_refuses(live):
    one = live()
    one.runtime.start()
    one.runtime.wait_ready(WAIT_S)
    queue = one.runtime._views.all[0].queue
    fit = queue.fit
    queue.fit = lambda group: fit(group) and False
    one.push(6)
    assert one.runtime.wait_idle(WAIT_S)
    assert one.engine.calls("encode") and not one.engine.calls("pass")
    assert not any(map(answered, one.decisions))
    assert one.runtime.stats().dropped["unusable"] == len(one.engine.calls("encode"))
    queue.fit = fit
    one.push(4)
    one.wait_for(answered)
