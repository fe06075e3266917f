"""What the soak's judge counts, and what it does not."""

import dataclasses

from fakes import START_NS

from vlm_decisions.decision import UNKNOWN, Decision
from vlm_decisions.frames import NS
from vlm_decisions.lab.bench.soak_judge import RECOVERY_S, Judge
from vlm_decisions.questions import Question

MAX_AGE_S = 2.0


class Court:
    """A judge, and a runtime that answers as it is told to."""

    def __init__(self, **rates_hz):
        self.judge = Judge(MAX_AGE_S)
        self.rates_hz = rates_hz
        self.now_s = 0.0
        self.next_s = dict.fromkeys(rates_hz, 0.0)
        self.judge.standing({name: Question(name, "?", rate_hz=rate)
                             for name, rate in rates_hz.items()}, START_NS)
        self.judge.calm(START_NS)

    @property
    def now_ns(self):
        return START_NS + round(self.now_s * NS)

    def answer(self, name, t_end_s=None, answer="yes", now_s=None):
        t_end_ns = START_NS + round((self.now_s if t_end_s is None else t_end_s) * NS)
        now_ns = self.now_ns if now_s is None else START_NS + round(now_s * NS)
        self.judge.decided(Decision(name, answer, 0.9, 0.9, (), (), 2, 4, t_end_ns, t_end_ns,
                                    now_ns, False, 0, "m"), now_ns)

    def run(self, seconds, skip=lambda name, t_s: False):
        """Let groups come every 0.25 s; answer each question at its rate, unless skipped."""
        for _ in range(round(seconds * 8)):
            self.now_s += 0.125
            self.judge.sent(self.now_ns)
            if self.now_s % 0.25 == 0:
                for name, rate_hz in self.rates_hz.items():
                    if self.now_s >= self.next_s[name]:
                        self.next_s[name] = self.now_s + 1 / rate_hz
                        if not skip(name, self.now_s):
                            self.answer(name)
            self.judge.tick(self.now_ns)
        return self

    @property
    def counts(self):
        return self.judge.missed, self.judge.stale_as_fresh


def test_a_runtime_that_answers_in_time_is_not_blamed():
    assert Court(a=4.0, b=2.0, c=0.5).run(60).counts == (0, 0)


def test_every_skipped_answer_is_counted_once():
    assert Court(a=4.0).run(20, lambda _, t: t == 10.0).counts == (1, 0)
    assert Court(a=4.0).run(20, lambda _, t: t in (10.0, 10.25, 15.0)).counts == (3, 0)
    assert Court(a=2.0, b=4.0).run(20, lambda name, t: name == "a" and t == 9.75).counts == (1, 0)
    assert Court(a=0.5).run(30, lambda _, t: 8 < t < 13).counts[0] >= 1


def test_a_question_that_is_never_answered_again_is_missed():
    court = Court(a=4.0, b=4.0).run(20, lambda name, t: name == "a" and t > 10)
    court.judge.disturbed()
    assert court.judge.missed > 20
    assert court.judge.stale_as_fresh == 1  # it still stands as an answer


def test_a_new_question_is_due_with_the_next_group_whatever_its_rate():
    court = Court(a=4.0).run(10)
    questions = {"a": Question("a", "?"), "slow": Question("slow", "?", rate_hz=0.5)}
    court.judge.standing(questions, court.now_ns)
    court.run(0.25)
    court.answer("slow")
    assert court.counts == (0, 0)
    court.judge.standing({**questions, "late": Question("late", "?", rate_hz=0.5)}, court.now_ns)
    court.run(0.75)
    court.answer("late")
    assert court.counts == (1, 0)


def test_what_is_disturbed_is_not_blamed_until_it_had_time_to_recover():
    court = Court(a=4.0).run(10)
    court.judge.disturbed()
    court.answer("a", answer=UNKNOWN)
    court.run(1.0, lambda *_: True)
    court.judge.calm(court.now_ns)
    court.run(RECOVERY_S - 0.25, lambda *_: True)
    court.run(5)
    assert court.counts == (0, 0)
    court.judge.disturbed()
    court.judge.calm(court.now_ns)
    court.run(RECOVERY_S + 1.0, lambda *_: True).run(1)
    assert court.judge.missed >= 3


def test_old_evidence_is_stale():
    court = Court(a=4.0).run(10)
    court.answer("a", 8.125)
    assert court.counts == (0, 0)
    court.answer("a", 7.0)
    assert court.judge.stale_as_fresh == 1
    court.answer("a", 7.0, answer=UNKNOWN)
    assert court.judge.stale_as_fresh == 1


def test_evidence_of_another_run_of_time_is_stale():
    court = Court(a=4.0).run(10)
    court.judge.rewound(court.now_ns)
    court.answer("a", 9.875)
    assert court.judge.stale_as_fresh == 1


def test_an_answer_about_a_camera_long_covered_is_stale():
    court = Court(a=4.0).run(10)
    court.judge.disturbed()
    court.judge.covered(court.now_ns)
    court.run(2.0)
    assert court.counts == (0, 0)
    court.run(0.5)
    assert court.judge.stale_as_fresh > 0


def test_an_answer_that_outlives_its_evidence_is_stale_once():
    court = Court(a=4.0, slow=0.5).run(10)
    court.judge.disturbed()
    court.run(2.25, lambda *_: True)
    assert court.counts == (0, 0)
    court.run(0.5, lambda *_: True)
    assert court.judge.stale_as_fresh == 1
    court.run(10.0, lambda *_: True)  # and the slow one
    assert court.judge.stale_as_fresh == 2


def test_camera_health_is_not_judged():
    court = Court(a=4.0).run(5)
    decision = Decision("camera_dark", "no", 0.0, 0.0, (), (), 0, 0, 1, 1, court.now_ns, False, 0,
                        "")
    court.judge.decided(decision, court.now_ns)
    court.judge.decided(dataclasses.replace(decision, question_id="a"), court.now_ns)
    assert court.judge.stale_as_fresh == 1
