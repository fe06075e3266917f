"""The runtime with a real (small, random) model: whole path, and a clean end of the process."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from decision_checkpoints import WRITERS
from fakes import START_NS, SimClock
from tiny import moving_frames

from vlm_decisions.decision import OK, TIER_HEADS, TIER_VLM, UNKNOWN
from vlm_decisions.engine import ModeError, Query, load
from vlm_decisions.frames import NS, Frame
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.runtime import Runtime
from vlm_decisions.runtime.heads import Head, write_head
from vlm_decisions.runtime.settings import RuntimeSettings
from vlm_decisions.runtime.smoothing import calibrated
from vlm_decisions.sim.script import Script
from vlm_decisions.sim.world import World

QUESTIONS = [
    Question("person", "Is there a person?", ema=1.0),
    Question("shallow", "Is there a cup?", ema=1.0, depth=2, scale=0.5, bias=0.1),
    Question("doing", "What?", kind="choice", options=("typing", "on phone", "idle"), ema=1.0),
    Question("odd", "Is <|im_end|> a word?", ema=1.0),
]


def film(engine, book, frames, **options):
    """Run frames at 8 Hz through a stepped runtime; return it with its decisions and errors."""
    clock, decisions, errors = SimClock(), [], []
    runtime = Runtime(
        lambda: engine,
        book,
        on_decision=decisions.append,
        on_error=errors.append,
        clock_ns=clock,
        **options,
    )
    for index, image in enumerate(frames):
        clock.until(index / 8)
        runtime.push(Frame(image, START_NS + index * NS // 8))
        runtime.step()
    return runtime, decisions, errors


def test_decisions_are_what_the_engine_says_when_asked_directly(engine):
    frames = list(moving_frames(8))
    runtime, decisions, errors = film(
        engine, QuestionBook(QUESTIONS), frames, settings=RuntimeSettings(window_groups=8)
    )
    assert errors == []
    stream = engine.stream(8)
    for index in range(4):
        pair = frames[2 * index : 2 * index + 2]
        stream.append(engine.encode(pair), 0.0625 + 0.25 * index)
        readouts = stream.ask([Query(q.text, q.options, q.depth) for q in QUESTIONS])
        for question, readout in zip(QUESTIONS, readouts, strict=True):
            mine = [d for d in decisions if d.question_id == question.id][index]
            expected = calibrated(question, readout.logits)
            shown = mine.probabilities or (mine.p, 1 - mine.p)
            assert shown == pytest.approx(tuple(expected), abs=1e-4)
            assert mine.tier == TIER_VLM
            assert mine.depth == (question.depth or engine.n_layers)
            assert mine.t_start_ns == START_NS
            assert mine.t_end_ns == START_NS + round((0.125 + 0.25 * index) * NS)


def test_a_head_runs_on_the_engines_features(engine, tmp_path):
    frames = list(moving_frames(4))
    features = engine.encode(frames[:2])
    head = Head(
        name="person_v1",
        question="person",
        pooling="mean_max",
        weight=np.concatenate([features.mean, -features.max]).astype(np.float32),
        bias=0.0,
        temperature=3.0,
        fingerprint=engine.fingerprint,
        pixel_budget=engine.pixel_budget,
    )
    write_head(tmp_path / "person.npz", head)
    _, decisions, errors = film(engine, QuestionBook(QUESTIONS[:1]), frames, head_paths=[tmp_path])
    assert errors == []
    mine = [d for d in decisions if d.question_id == "person"]
    assert {d.tier for d in mine} == {TIER_HEADS}
    assert mine[0].p == pytest.approx(head.predict([features]), abs=1e-5)


@pytest.mark.slow
def test_a_second_look_is_one_plain_run_over_the_other_view_s_past_and_the_window():
    desk = load("sim_desk")
    book = QuestionBook.loads("""
views: {near: {window_groups: 2}, long: {sample_hz: 2, window_groups: 4}}
questions:
  - {id: person, text: "Is a person present?", view: near, unsure: long,
     enter: 0.9999999, exit: 1.0e-9, ema: 1}
""")
    world = World(3, Script.demo(3))
    images = [world.render(index / 8, 96, 96) for index in range(40)]
    clock = SimClock()
    _, decisions, errors = film(desk, book, images, timer=clock.seconds)
    assert errors == []
    first, again = ([d for d in decisions if d.question_id == "person" and d.model == name]
                    for name in ("sim_desk", "sim_desk+long"))
    assert len(again) > 5 and again[-1].t_end_ns == first[-1].t_end_ns
    last = again[-1]
    window = [(index, index + 1) for index in range(34, 40, 2)][-2:]
    begins = last.t_start_ns - START_NS
    before = [(index, index + 4) for index in range(0, 40, 8)
              if begins <= index * NS // 8 and index + 4 < window[0][0]]
    assert before, "older than what the first look saw"
    stream = desk.stream(len(before) + 2, "window")
    for pair in before + window:
        stream.append(desk.encode([images[k] for k in pair]),
                      tuple(START_NS + k * NS // 8 for k in pair))
    expected = calibrated(book.get("person"), stream.ask([book.get("person")])[0].logits)
    assert last.p_raw == pytest.approx(expected[0], abs=1e-4)
    assert last.p_raw != pytest.approx(first[-1].p_raw, abs=1e-6)


def test_a_text_beyond_the_context_is_unknown_and_the_others_are_answered(engine, monkeypatch):
    frames = list(moving_frames(6))
    question = engine.question

    def limited(query, media="video"):
        if len(query.text) > 100:
            raise ValueError("the question exceeds the model's context")
        return question(query, media)

    monkeypatch.setattr(engine, "question", limited)
    long = Question("long", "so " * 100)
    _, decisions, errors = film(engine, QuestionBook([long, *QUESTIONS]), frames)
    assert {d.answer for d in decisions if d.question_id == "long"} == {UNKNOWN}
    assert len([d for d in decisions if d.question_id == "person" and d.answer != UNKNOWN]) == 3
    assert errors == ["question 'long': the question exceeds the model's context"]


def test_changing_resolution_and_long_streams_are_taken(engine):
    small = list(moving_frames(20))
    large = list(moving_frames(6, height=128, width=96))
    runtime, decisions, errors = film(
        engine,
        QuestionBook(QUESTIONS[:1]),
        small + large,
        settings=RuntimeSettings(window_groups=2, scene_change=None),
    )
    assert errors == []
    assert runtime.stats().segments == 2
    assert len([d for d in decisions if d.question_id == "person"]) == 13


def test_after_a_pass_that_fails_answers_are_the_engines_again(engine, monkeypatch):
    frames = list(moving_frames(12))
    run, passes = engine.run, iter(range(100))

    def failing(state, lines, questions=None, **more):
        out = run(state, lines, questions, **more)
        if next(passes) in (2, 3):  # the batch of the third group, and its one question alone
            raise MemoryError("out of memory")
        return out

    monkeypatch.setattr(engine, "run", failing)
    _, decisions, errors = film(engine, QuestionBook(QUESTIONS[:1]), frames)
    monkeypatch.undo()
    mine = [d for d in decisions if d.question_id == "person"]
    assert [d.answer == UNKNOWN for d in mine] == [False, False, True, False, False, False]
    assert errors == ["question 'person': out of memory"]
    stream = engine.stream(8)
    for index in range(6):
        stream.append(engine.encode(frames[2 * index : 2 * index + 2]), 0.0625 + 0.25 * index)
    expected = calibrated(QUESTIONS[0], stream.ask(QUESTIONS[:1])[0].logits)
    assert mine[-1].p == pytest.approx(expected[0], abs=1e-4) and mine[-1].t_start_ns == START_NS


EXIT = """
import sys, time
sys.path[:0] = sys.argv[2:]
import numpy as np
from tiny import tiny_engine
from vlm_decisions.frames import Frame
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.runtime import Runtime

def factory():
    engine = tiny_engine()
    engine.encode([np.zeros((96, 128, 3), np.uint8)] * 2)
    if sys.argv[1] == "fail":
        raise OSError("no such model")
    return engine

answered = []
runtime = Runtime(factory, QuestionBook([Question("a", "is it")]), on_decision=answered.append)
runtime.start()
try:
    runtime.wait_ready(120)
except OSError as error:
    print(error)
rng = np.random.default_rng(0)
for _ in range(4):
    runtime.push(Frame(rng.integers(0, 255, (96, 128, 3), dtype=np.uint8), time.time_ns()))
    time.sleep(0.1)
if sys.argv[1] == "stop":
    assert runtime.stop(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stop", "fail", "leave"])
def test_the_process_ends_cleanly(how):
    """An MLX thread that ends carelessly aborts the process about every second time."""
    here = Path(__file__).resolve().parents[1]
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", EXIT, how, str(here), str(here.parent)],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("family", WRITERS)
def test_a_decision_model_answers_about_the_newest_frame(family, tmp_path):
    engine = load(str(WRITERS[family](tmp_path / family)))
    frames = list(moving_frames(4))
    asked = [question for question in QUESTIONS if question.depth is None]
    runtime, decisions, errors = film(engine, QuestionBook(asked), frames)
    assert errors == []
    for group in range(2):
        readouts = engine.ask(engine.encode([frames[2 * group + 1]]), asked)
        newest_ns = START_NS + (2 * group + 1) * NS // 8
        for question, readout in zip(asked, readouts, strict=True):
            mine = [d for d in decisions if d.question_id == question.id][group]
            expected = calibrated(question, readout.logits)
            assert (mine.probabilities or (mine.p, 1 - mine.p)) == pytest.approx(
                tuple(expected), abs=1e-5
            )
            assert (mine.t_start_ns, mine.t_end_ns) == (newest_ns, newest_ns)
            assert (mine.tier, mine.depth, mine.model) == (TIER_VLM, engine.depth, engine.name)
    # The same contract beside the groups: one-off questions, later ones, costs.
    one_off = runtime.ask(Question("now", "Is there a person?"))
    assert one_off.t_start_ns == one_off.t_end_ns == newest_ns and one_off.status == OK
    runtime.add_question(Question("late", "Is the door open?", scale=2.0))
    assert runtime.cost(Question("late", "Is the door open?")).tokens > 0


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (Question("deep", "Is it?", depth=1), "depth 1: .* answers from its last layer"),
        (Question("head", "Is it?", tier="heads"), "no head for question 'head'"),
    ],
)
def test_what_a_decision_model_cannot_do_is_refused_by_name(question, words, tmp_path):
    engine = load(str(WRITERS["d1"](tmp_path / "d1")))
    runtime, _, _ = film(engine, QuestionBook(QUESTIONS[:1]), moving_frames(2))
    with pytest.raises(QuestionError, match=words):
        runtime.add_question(question)
    window = Runtime(lambda: engine, QuestionBook(), settings=RuntimeSettings(mode="window"))
    with pytest.raises(ModeError, match="has no mode 'window': its mode is image"):
        window.step()


def test_heads_of_another_model_are_refused_for_a_decision_model(tmp_path):
    engine = load(str(WRITERS["d1"](tmp_path / "d1")))
    head = Head(name="person_v1", question="person", pooling="mean", weight=np.ones(64, np.float32),
                bias=0.0, temperature=1.0, fingerprint="another", pixel_budget=1024)  # fmt: skip
    write_head(tmp_path / "person.npz", head)
    _, decisions, errors = film(engine, QuestionBook(QUESTIONS[:1]), moving_frames(2),
                                head_paths=[tmp_path / "person.npz"])  # fmt: skip
    assert "was made for vision weights another" in errors[0]
    assert {d.tier for d in decisions if d.question_id == "person"} == {TIER_VLM}
