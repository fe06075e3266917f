"""Learning while it runs: from corrections to answers, and back."""

import json
import os
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from fakes import START_NS, Bench, FakeEngine, Vision, person_head
from waiting import wait_for

from vlm_decisions.decision import TIER_HEADS, TIER_VLM
from vlm_decisions.frames import NS
from vlm_decisions.learn import learner
from vlm_decisions.learn.corrections import CorrectionStore, Corrector, ModelId
from vlm_decisions.learn.learner import GIVES_WAY_S, NICENESS, Learner, Pace
from vlm_decisions.learn.span_fit import fit_spans
from vlm_decisions.questions import Question
from vlm_decisions.runtime.heads import (
    CELLS,
    COLOURS,
    MEAN_MAX_COLOURS,
    Head,
    HeadError,
    colours_of,
    write_head,
)
from vlm_decisions.runtime.learned import (
    HeldOut,
    Learned,
    LearnedError,
    read_learned,
    shipped_logits,
    write_learned,
)

LAMP = """
questions:
  - {id: lamp, text: "Is the lamp on?", ema: 1.0}
  - {id: person, text: "Is there a person?", ema: 1.0}
"""
SPAN_S = 1.0


def unsure(text, vision):
    """Say rather no of everything, the more so the less red there is; red is what a lamp makes."""
    return 0.05 + 0.0015 * float(vision.mean[0]) if "lamp" in text else 0.9


class Taught:
    """A runtime on simulated time with a learner, whose camera shows a lamp that is on or off."""

    def __init__(self, folder, questions=LAMP, engine=None, **settings):
        self.bench = Bench(questions, engine or FakeEngine(answer=unsure), **settings)
        self.told, self.complaints, self.changes = [], [], []
        self.store = CorrectionStore(folder)
        self.corrector = Corrector(self.store)
        fake = self.bench.engine
        self.corrector.model = ModelId(fake.name, fake.fingerprint, fake.pixel_budget)
        self.bench.runtime.watch(self.corrector.looks.take)
        self.learner = Learner(self.corrector, self.bench.runtime, self.told.append,
                               self.complaints.append, lambda: self.changes.append(1), share=1.0)
        self.now_s = 0.0
        self.show(False)
        self.learner.start()

    def show(self, on, seconds=SPAN_S):
        """Let the camera see the lamp on or off for a while; return when."""
        self.bench.camera.shade = np.array([60.0 if on else 0.0, 0.0, 0.0])
        start_s, self.now_s = self.now_s, self.now_s + seconds
        self.bench.film(start_s, self.now_s)
        self.bench.run(self.now_s)
        return START_NS + round(start_s * NS), START_NS + round(self.now_s * NS)

    def correct(self, answer, span, question_id="lamp", view=""):
        question = next(q for q in self.bench.runtime.questions() if q.id == question_id)
        views = [one for one in self.bench.runtime.views() if one.name == view]
        correction, _ = self.corrector.correct(question, views, answer, {}, *span)
        self.learner.consider(correction)
        assert self.learner.wait_idle(60)
        return correction

    def teach(self, times=6, flip=False):
        for k in range(2 * times):
            on = bool(k % 2)
            self.correct("yes" if on != flip else "no", self.show(on))

    def newest(self, question_id="lamp"):
        return self.bench.of(question_id)[-1]

    def close(self):
        self.learner.close()


@pytest.fixture
def taught(tmp_path):
    made = Taught(tmp_path / "learn")
    yield made
    made.close()


def test_corrections_become_answers_while_it_runs_and_are_marked(taught):
    taught.show(True)
    assert taught.newest().answer == "no" and taught.newest().model == "fake"
    taught.teach()
    assert not taught.complaints, taught.complaints
    learned = taught.bench.runtime.learned()[0]
    assert str(learned).startswith(f"learned on this camera, from {learned.spans} spans")
    assert learned.after.log_loss < learned.before.log_loss and learned.spans <= 12
    for on, answer in ((True, "yes"), (False, "no"), (True, "yes")):
        taught.show(on)
        assert taught.newest().answer == answer
    assert taught.newest().model.endswith("+learned")
    assert taught.newest("person").model == "fake"
    stats = taught.bench.runtime.stats()
    assert list(stats.learned) == ["lamp"]
    state = json.loads(json.dumps(taught.learner.state()))
    assert state["learned"][0]["question"] == "lamp" and not state["waiting"]


@pytest.mark.slow
def test_thresholds_are_learned_and_count_until_somebody_sets_others(tmp_path):
    made = Taught(tmp_path / "learn", LAMP.replace("1.0", "1.0, enter: 0.999, exit: 0.001"))
    made.teach(10)
    learned = read_learned(made.store.folder / "learned-lamp.npz")
    assert (learned.thresholds, learned.instead_of) == ((0.65, 0.35), (0.999, 0.001))
    assert str(learned).endswith("yes from 0.65, no up to 0.35")
    for on, answer in ((True, "yes"), (False, "no")):
        made.show(on)
        assert made.newest().answer == answer and 0.001 < made.newest().p < 0.999
    made.bench.runtime.replace_question("lamp", exit=0.0001)
    made.show(True)
    assert made.newest().answer != "yes" and made.newest().model.endswith("+learned")
    made.close()


def test_only_what_was_learned_is_asked_anew_of_an_unchanged_picture(tmp_path):
    made = Taught(tmp_path / "learn", LAMP.replace("1.0", "1.0, ask: on_change, refresh_s: 60"))
    made.show(False)
    log = made.bench.engine.log
    numbers = HeldOut(1.0, 0.5)
    learned = Learned("lamp", "", "Is the lamp on?", (), (1.0, 0.0), 1.0, (9.0,),
                      np.zeros((1, 0), np.float32), "", "f00d", 4096, "", 12, {}, numbers, numbers)
    for change, answer, asked in ((lambda: None, "no", set()),
                                  (lambda: made.bench.runtime.learn(learned), "yes", {"lamp"}),
                                  (lambda: made.learner.undo("lamp", ""), "no", {"lamp"})):
        log.clear()
        change()
        made.show(False)
        assert made.newest().answer == answer
        texts = {text for entry in log if entry[0] == "ask" for text in entry[1]}
        assert texts == {f"Is the {name} on?" for name in asked}
    made.close()


def test_undoing_the_learning_brings_the_old_answers_back_until_the_next_correction(taught):
    taught.teach()
    taught.show(True)
    assert taught.newest().answer == "yes"
    said = taught.learner.undo("lamp", "")
    assert "as before it was learned on this camera" in said
    taught.show(True)
    assert taught.newest().answer == "no" and taught.newest().model == "fake"
    assert taught.learner.state()["waiting"]["lamp"].startswith("taken back")
    assert not list(taught.store.folder.glob("learned-*"))
    with pytest.raises(LearnedError, match="nothing was learned of 'lamp'"):
        taught.learner.undo("lamp", "")
    taught.correct("yes", taught.show(True))
    assert taught.bench.runtime.learned()


def test_a_correction_taken_back_is_unlearned(taught):
    taught.teach()
    assert taught.bench.runtime.learned()
    for _ in range(5):
        taught.learner.consider(taught.store.remove())
        assert taught.learner.wait_idle(60)
    assert not taught.bench.runtime.learned() and "4 of each" in str(taught.learner.state())
    assert any("is answered as before" in one for one in taught.told)
    assert not list(taught.store.folder.glob("learned-*"))


def test_labels_that_say_nothing_are_refused_and_the_reason_is_told(taught):
    rng = np.random.default_rng(3)
    for k in range(12):
        taught.correct("yes" if rng.random() < 0.5 else "no", taught.show(bool(k % 2)))
        taught.now_s += 1.0
    assert not taught.bench.runtime.learned()
    assert taught.learner.state()["waiting"]["lamp"]


def test_what_was_learned_lasts_and_another_model_refuses_it_by_name(tmp_path, taught):
    taught.teach()
    taught.close()
    again = Taught(tmp_path / "learn")
    again.show(True)
    assert again.newest().answer == "yes" and again.newest().model.endswith("+learned")
    assert any("learned on this camera" in one for one in again.told)
    again.close()
    other = Taught(tmp_path / "learn", engine=FakeEngine(answer=unsure, fingerprint="beef"))
    other.show(True)
    assert other.newest().answer == "no" and not other.bench.runtime.learned()
    assert "f00d" in other.complaints[0] and "beef" in other.complaints[0]
    assert "f00d" in other.learner.state()["refused"]["learned-lamp.npz"]
    # Its corrections are another model's, too.
    other.correct("yes", other.show(True))
    assert "12 corrections are of another model" in other.learner.state()["waiting"]["lamp"]
    other.close()
    assert (tmp_path / "learn" / "learned-lamp.npz").exists()


@pytest.mark.slow
@pytest.mark.parametrize("spoil", ("empty", "text", "of_another", "not_finite", "fields"))
def test_bad_files_are_named_and_it_goes_on(tmp_path, taught, spoil):
    taught.teach()
    taught.close()
    path = taught.store.folder / "learned-lamp.npz"
    learned = read_learned(path)
    if spoil in ("empty", "text"):
        path.write_bytes(b"" if spoil == "empty" else b"learned")
    elif spoil == "of_another":
        write_learned(path, replace(learned, question_id="person", text="Is there a person?"))
    else:
        with np.load(path) as arrays:
            header, weight = json.loads(str(arrays["header"])), arrays["weight"]
        header["bias"] = [float("inf")] if spoil == "not_finite" else "much"
        np.savez(path, header=np.array(json.dumps(header)), weight=weight)
    again = Taught(tmp_path / "learn")
    assert len(again.complaints) == 1 and "learned-lamp.npz" in again.complaints[0]
    again.show(True)
    assert again.newest().answer == "no"
    again.correct("yes", again.show(True))  # it goes on, and learns anew
    assert again.bench.runtime.learned()
    again.close()


def test_a_question_that_asks_something_else_is_answered_without(taught):
    taught.teach()
    taught.bench.runtime.replace_question("lamp", rate_hz=2.0)
    assert taught.bench.runtime.learned()
    taught.bench.runtime.replace_question("lamp", text="Is the lamp off?")
    assert not taught.bench.runtime.learned()
    taught.correct("no", taught.show(True))
    assert "0 spans say yes and 1 no" in taught.learner.state()["waiting"]["lamp"]


def test_each_view_learns_for_itself(tmp_path):
    book = """
views:
  left: {image: /camera, region: [0, 0, 0.5, 1]}
  right: {image: /camera, region: [0.5, 0, 1, 1]}
questions:
  - {id: lamp, text: "Is the lamp on?", ema: 1.0}
"""
    made = Taught(tmp_path / "learn", book)
    for k in range(12):
        on = bool(k % 2)
        made.correct("yes" if on else "no", made.show(on), view="right")
    made.show(True)
    last = {one.view: one for one in made.bench.of("lamp")}
    assert (last["left"].answer, last["right"].answer) == ("no", "yes")
    assert not last["left"].model.endswith("+learned")
    assert list(made.bench.runtime.stats().learned) == ["right/lamp"]
    assert (made.store.folder / "learned-right-lamp.npz").exists()
    made.close()


def test_what_the_model_cannot_tell_becomes_a_head_and_asks_the_model_no_more(tmp_path):
    made = Taught(tmp_path / "learn", engine=FakeEngine(answer=lambda text, vision: 0.2))
    made.teach()
    assert made.bench.runtime.learned()[0].is_head
    made.bench.engine.log.clear()
    made.show(True)
    last = made.newest()
    assert (last.answer, last.tier, last.model) == ("yes", TIER_HEADS, "fake/lamp+learned")
    asked = [entry[1] for entry in made.bench.engine.log if entry[0] == "ask"]
    assert asked and not any("Is the lamp on?" in texts for texts in asked)
    assert made.newest("person").tier == TIER_VLM
    assert made.bench.runtime.stats().costs["lamp"].tokens == 0
    # It is a head like others: in a file, by name.
    path = tmp_path / "lamp.npz"
    write_head(path, made.bench.runtime.learned()[0].as_head())
    other = Bench('questions: [{id: l, text: "Lamp?", head: lamp, ema: 1.0}]', FakeEngine(),
                  head_paths=(path,))
    other.camera.shade = np.array([60.0, 0.0, 0.0])
    other.film(0.0, 1.0)
    other.run(1.0)
    assert other.answers("l")[-1] == "yes"
    assert Head.load(path).trained_on.endswith("spans of one camera")
    made.close()


def test_a_question_of_the_language_model_alone_gets_no_head(tmp_path):
    made = Taught(tmp_path / "learn", LAMP.replace('on?"', 'on?", tier: vlm'),
                  FakeEngine(answer=lambda text, vision: 0.2))
    made.teach()
    assert all(not one.is_head for one in made.bench.runtime.learned())
    made.show(True)
    assert made.newest().tier == TIER_VLM
    made.close()


def test_what_a_loaded_head_says_is_corrected_too(tmp_path):
    """A head for the lamp that is sure there is none, though it ranks well."""
    path = person_head(tmp_path, name="lamp", question="lamp", bias=-260.0, temperature=20.0)
    made = Taught(tmp_path / "learn", head_paths=(path,))
    made.show(True)
    assert made.newest().answer == "no" and made.newest().model == "fake/lamp"
    made.teach()
    made.show(True)
    assert made.newest().answer == "yes"
    assert made.newest().model == "fake/lamp+learned"
    made.close()


def hardly_differs(text, vision):
    """Rank the options well and say the first of all pictures; red is what is bright."""
    red = float(vision.mean[0])
    return [20.0, 0.05 * red, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ("choice", "score"))
def test_a_choice_and_a_score_are_learned_by_option(tmp_path, kind):
    made = Taught(tmp_path / "learn", f"""
questions:
  - {{id: lamp, text: "What is it?", kind: {kind}, options: [dim, bright, blue], ema: 1.0}}
""", FakeEngine(answer=hardly_differs))
    made.show(True)
    assert made.newest().answer == "dim"
    for k in range(16):
        made.correct("bright" if k % 2 else "dim", made.show(bool(k % 2)))
    learned = made.bench.runtime.learned()[0]
    assert learned.counts == {"dim": 8, "bright": 8, "blue": 0}
    assert learned.bias[2] == 0.0 and not learned.weight[2].any()  # no span shows it: as it was
    for on, answer in ((True, "bright"), (False, "dim")):
        made.show(on)
        assert made.newest().answer == answer and made.newest().model == "fake+learned"
        assert sum(made.newest().probabilities) == pytest.approx(1.0)
    made.close()
    again = Taught(tmp_path / "learn", f"""
questions:
  - {{id: lamp, text: "What is it?", kind: {kind}, options: [dim, bright, green], ema: 1.0}}
""", FakeEngine(answer=hardly_differs))
    assert "of dim, bright, blue" in again.complaints[0] and "green" in again.complaints[0]
    again.close()


def test_each_label_is_learned_by_itself(tmp_path, monkeypatch):
    """The model rather says no of both; the lamp shows whether there is a cup, never a pen."""
    questions = """
questions: [{id: seen, text: "Is there a {}?", kind: any_of, options: [a/b, pen], ema: 1.0}]
"""

    def hardly(text, vision):
        return [0.05 + 0.0015 * float(vision.mean[0]), 0.2]

    made = Taught(tmp_path / "learn", questions, FakeEngine(answer=hardly))
    for k in range(12):
        made.correct("a/b" if k % 2 else "none", made.show(bool(k % 2)), "seen")
    assert not made.complaints, made.complaints
    assert [one.name for one in made.bench.runtime.learned()] == ["seen[a/b]"]
    assert "0 spans say yes" in made.learner.state()["waiting"]["seen[pen]"]
    assert list(made.bench.runtime.stats().learned) == ["seen[a/b]"]
    for on, answer in ((True, "a/b"), (False, "none")):
        made.show(on)
        newest = made.newest("seen")
        assert newest.answer == answer and newest.model.endswith("+learned")
        assert newest.probabilities[1] == pytest.approx(0.2)

    undone = []

    def undone_meanwhile(*args, **kwargs):
        if not undone:
            undone.append(made.learner.undo("seen[a/b]", ""))
        return fit_spans(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(learner, "fit_spans", undone_meanwhile)
        made.correct("a/b", made.show(True), "seen")
    assert not made.bench.runtime.learned()
    made.correct("none", made.show(False), "seen")
    assert [one.name for one in made.bench.runtime.learned()] == ["seen[a/b]"]
    made.close()
    again = Taught(tmp_path / "learn", questions.replace("pen]", "cap]"), FakeEngine(answer=hardly))
    again.show(True)  # another label beside it changes nothing
    assert again.newest("seen").answer == "a/b" and not again.complaints
    assert again.learner.undo("seen", "").startswith("'seen[a/b]' is answered as before")
    again.show(True)
    assert again.newest("seen").answer == "none" and not again.bench.runtime.learned()
    again.close()
    write_learned(tmp_path / "learn" / "learned-seen%5Ba%2Fb%5D.npz", Learned(
        "seen", "", "Is there a a/b?", (), (1.0, 0.0), 1.0, (2.0,), np.zeros((1, 0), np.float32),
        "", "f00d", 4096, "", 12, {}, HeldOut(1.0, 0.5), HeldOut(0.5, 1.0), label="a/b"))
    other = Taught(tmp_path / "learn", questions.replace("a {}", "no {}"),
                   FakeEngine(answer=hardly))
    assert "is of 'Is there a a/b?'" in other.complaints[-1]
    other.close()


def test_a_full_disk_is_told_and_the_answers_stay_learned(taught, monkeypatch):
    def full(path, learned):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("vlm_decisions.learn.learner.write_learned", full)
    taught.teach()
    assert "will not last" in taught.complaints[0] and "No space left" in taught.complaints[0]
    assert taught.bench.runtime.learned()


def test_it_works_a_small_share_of_the_time_and_gives_way(monkeypatch):
    now, slept, gave_way = [0.0], [], []
    monkeypatch.setattr(time, "thread_time", lambda: now[0])
    monkeypatch.setattr(time, "sleep", slept.append)
    pause = Pace(0.1, lambda: gave_way.append(len(slept)))
    for work_s in (0.0001, 0.0001, 0.002, 0.0):
        now[0] += work_s
        pause()
    assert slept == [pytest.approx(9 * 0.0022)] and gave_way == [1]


def test_it_waits_while_the_engine_works_and_not_for_ever(taught, monkeypatch):
    """The engine never rests here: a fit waits before each piece, and comes to its end."""
    waited = []
    monkeypatch.setattr(taught.bench.runtime, "wait_idle", waited.append)
    taught.teach()
    assert set(waited) == {GIVES_WAY_S} and taught.bench.runtime.learned()


@pytest.mark.skipif(sys.platform != "linux", reason="niceness by thread is Linux's")
def test_the_thread_gives_way_and_the_others_do_not(taught):
    own = os.getpriority(os.PRIO_PROCESS, 0)
    thread = taught.learner._thread.native_id
    wait_for(lambda: os.getpriority(os.PRIO_PROCESS, thread) == min(19, own + NICENESS))
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_the_logit_is_that_of_the_runtime(taught):
    """What is measured on stored looks is what the runtime answers."""
    taught.teach()
    learned = taught.bench.runtime.learned()[0]
    correction = taught.correct("yes", taught.show(True))
    learned = taught.bench.runtime.learned()[0]
    looks = taught.store.looks(correction.id)
    taught.show(True, 0.5)
    span = taught.show(True, 0.25)
    seen = taught.corrector.looks.newest("lamp", "")[0]
    assert seen.t_end_ns <= span[1]
    question = Question("lamp", "Is the lamp on?")
    z = shipped_logits(question, seen.reads["lamp"].logits, seen.reads["lamp"].depth)
    p = learned.probabilities(question, z, seen)[0]
    assert p == pytest.approx(taught.newest().p_raw, abs=1e-6)
    assert looks.logits.shape[1] == 2


def test_colours_are_read_off_the_newest_frame_by_what_was_learned_and_by_a_head(tmp_path, taught):
    weight = np.zeros((1, CELLS[0] * CELLS[1] * 3), np.float32)
    weight[0, 0::3], weight[0, 2::3] = 4.0, -4.0  # red against blue
    numbers = HeldOut(1.0, 0.5)
    learned = Learned("lamp", "", "Is the lamp on?", (), (1.0, 0.0), 0.0, (0.5,), weight, COLOURS,
                      "f00d", 4096, "", 12, {"yes": 6, "no": 6}, numbers, numbers)
    taught.bench.runtime.learn(learned)
    path = tmp_path / "lamp.npz"
    write_head(path, learned.as_head())
    other = Bench('questions: [{id: l, text: "Lamp?", head: lamp, ema: 1.0}]', FakeEngine(),
                  head_paths=(path,))
    for on, answer in ((True, "yes"), (False, "no")):
        weight_of = 1 if on else -1
        taught.bench.camera.shade = np.array([30.0 * weight_of, 0.0, 0.0])
        taught.bench.film(taught.now_s, taught.now_s + 1.0)
        taught.now_s += 1.0
        taught.bench.run(taught.now_s)
        seen = taught.corrector.looks.newest("lamp", "")[0]
        expected = 0.5 + float(weight[0] @ colours_of(seen.frame.image))
        last = taught.newest()
        assert last.p_raw == pytest.approx(1 / (1 + np.exp(-expected)), abs=1e-6)
        assert last.answer == answer and last.model == "fake/lamp+learned"
        other.camera.shade = taught.bench.camera.shade
        other.film(0.0 if on else 1.0, 1.0 if on else 2.0)
        other.run(1.0 if on else 2.0)
        assert other.answers("l")[-1] == answer
    # Beside the model's answer it counts as well, and beside pooled features.
    wide = np.concatenate([np.tile(np.float32([[0.1, -0.2, 0.3]]), 2), weight], axis=1)
    beside = replace(learned, question_id="person", text="Is there a person?", scale=1.0,
                     weight=wide, pooling=MEAN_MAX_COLOURS)
    taught.bench.runtime.learn(beside)
    taught.show(True, 0.5)
    seen = taught.corrector.looks.newest("person", "")[0]
    z = shipped_logits(Question("person", "Is there a person?"), *[
        getattr(seen.reads["person"], name) for name in ("logits", "depth")])
    read = np.concatenate([seen.mean, seen.max, colours_of(seen.frame.image)])
    expected = float(z[0]) + 0.5 + float(wide[0] @ read)
    assert taught.newest("person").p_raw == pytest.approx(1 / (1 + np.exp(-expected)), abs=1e-6)
    with pytest.raises(HeadError, match="colours of the picture"):
        Head.load(path).logit([Vision(np.zeros(3), np.zeros(3), 0)])


def test_colours_do_not_tell_how_bright_a_picture_is():
    image = np.random.default_rng(0).integers(40, 120, (48, 64, 3)).astype(np.uint8)
    assert colours_of(image * 2) == pytest.approx(colours_of(image), abs=0.02)
    assert np.isfinite(colours_of(np.zeros_like(image))).all()
