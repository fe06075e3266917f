"""Calibration of a user's questions: what is fitted, where it is written, what is refused."""

from __future__ import annotations

import dataclasses
import json
import os

import numpy as np
import pytest
from pixel_model import PixelModel, presence_video, square

from vlm_decisions import cli
from vlm_decisions.frames import NS, Frame
from vlm_decisions.learn.calibrate import _notes, calibrate, fit_any, print_calibration
from vlm_decisions.learn.fit_yes_no import fit_question
from vlm_decisions.learn.fitted import CalibrationError
from vlm_decisions.learn.margins import least_margin
from vlm_decisions.learn.measures import ece
from vlm_decisions.learn.platt import LEAST_SCALE, fit_platt
from vlm_decisions.learn.predictions import (
    LabelledRecording,
    Predictions,
    _weights,
    labelled,
    predict,
    simulated_desks,
)
from vlm_decisions.learn.question_file import rewrite
from vlm_decisions.learn.recordings import Recording, find_recordings
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question, QuestionError
from vlm_decisions.runtime.heads import Head
from vlm_decisions.sources.labels import LabelError, read_labels
from vlm_decisions.sources.truth import Span, Truth

HEAD = "source,start_s,end_s,question,label\n"
QUESTIONS = """\
# mine
- id: square   # bright
  text: Is there a square?
- id: none
  text: "Is it upside down: no square?"
  scale: 3.0
- id: same
  text: Is it constant?
- id: what
  kind: choice
  text: What is it?
  options: [a, b]
"""


@pytest.fixture(scope="module")
def videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    rows = []
    for k in range(8):
        first = k % 2 == 0
        presence_video(folder / f"v{k}.mp4", k, (first, not first, first), seconds=2.5)
        for start, there in ((0, first), (2.5, not first), (5, first)):
            for name, answer in (("square", there), ("none", not there)):
                word = "yes" if answer else "no"
                rows.append(f"v{k}.mp4,{start},{start + 2.5},{name},{word}\n")
    (folder / "labels.csv").write_text(HEAD + "".join(rows))
    return folder


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.yaml"
    path.write_text(QUESTIONS)
    return path


def run(videos, questions, **kwargs):
    kwargs.setdefault("engine", PixelModel())
    return calibrate("pixels", questions, kwargs.pop("out", questions),
                     recordings=find_recordings([videos]),
                     labels_file=kwargs.pop("labels", videos / "labels.csv"), **kwargs)


@pytest.mark.slow
def test_a_users_questions(videos, questions, capsys, monkeypatch):
    result = run(videos, questions)
    book = QuestionBook.load(questions)
    assert set(result["questions"]) == {"square", "none"}
    assert result["untouched"] == ["same", "what"]
    for name, row in result["questions"].items():
        question = book.get(name)
        assert (question.scale, question.bias) == (row["scale"], row["bias"])
        assert (question.enter, question.exit) == (row["enter"], row["exit"])
        assert row["before"]["auroc"] > 0.99 and row["held_out_sources"] >= 2
        assert row["after"]["log_loss"] <= row["before"]["log_loss"]
        assert row["after"]["cost"] <= row["before"]["cost"] + 0.05
    assert result["after"]["brier"] < 0.05
    assert book.get("same") == QuestionBook.loads(QUESTIONS).get("same")
    assert "# mine" in questions.read_text() and "# bright" in questions.read_text()
    print_calibration(result)
    assert "not calibrated: same, what" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    for width in (20, 40, 60):
        monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((width, 20)))  # noqa: B023
        print_calibration(result)
        said = capsys.readouterr().out.splitlines()
        end = next(i for i, line in enumerate(said) if line.startswith("all questions"))
        table = [line for line in said[1:end] if not line.startswith("    ")]
        assert len(table) >= 3 and max(map(len, table)) <= width
        assert any("tier" in line for line in table)


@pytest.mark.slow
def test_another_file_is_written_and_the_first_stays(videos, questions, tmp_path):
    run(videos, questions, out=tmp_path / "new.yaml")
    assert questions.read_text() == QUESTIONS
    assert QuestionBook.load(tmp_path / "new.yaml").get("square").scale != 1.0


@pytest.mark.slow
def test_a_question_that_a_head_answers_keeps_its_heads_probability(videos, questions):
    """Scale and bias are the language model's; thresholds are fitted on what the head says."""
    weight = np.full(8, 40.0, np.float32)
    head = Head("square", "square", "mean", weight, -16.0, 1.0, "pixels-1", 1024)
    result = run(videos, questions, heads=[head])
    assert result["questions"]["square"]["tier"] == "heads"
    assert result["questions"]["none"]["tier"] == "vlm"
    assert result["questions"]["square"]["after"]["cost"] < 0.3


@pytest.mark.slow
def test_a_stopped_run_goes_on(videos, questions, tmp_path):
    engine = PixelModel()
    run(videos, questions, engine=engine, cache=tmp_path / "cache", out=tmp_path / "a.yaml")
    asked = engine.encoded
    run(videos, questions, engine=engine, cache=tmp_path / "cache", out=tmp_path / "b.yaml")
    assert engine.encoded == asked > 0
    assert (tmp_path / "a.yaml").read_text() == (tmp_path / "b.yaml").read_text()
    other = tmp_path / "other.yaml"
    other.write_text(QUESTIONS.replace("Is there a square?", "Is a square there?"))
    run(videos, other, engine=engine, cache=tmp_path / "cache")
    assert engine.encoded == 2 * asked  # another wording is another answer


def test_what_is_heard_goes_with_the_labels(videos):
    book = list(QuestionBook.loads(QUESTIONS))[:2]
    labels = read_labels(videos / "labels.csv")
    recordings = find_recordings([videos])
    heard = predict(PixelModel(), labelled(recordings, labels), book, [])[0]
    assert len(heard.t_s) == 30 and heard.fresh.tolist() == [True] + [False] * 29
    assert heard.truth["square"].tolist() == [1] * 10 + [0] * 10 + [1] * 10
    assert (heard.truth["none"] == 1 - heard.truth["square"]).all()
    # A second of history at first, and 0.6 s after each change.
    assert np.flatnonzero(~heard.settled["square"]).tolist() == [0, 1, 2, 10, 11, 20, 21]
    assert ((heard.difference["square"] > 0) == (heard.truth["square"] == 1)).all()


def test_a_group_across_a_cut_is_left_out_as_in_the_runtime():
    question = Question("square", "Is there a square?")
    images = [square(None if k < 33 else 0.5) for k in range(64)]

    def frames():
        for k, image in enumerate(images):
            yield Frame(image, 1 + k * NS // 8)

    spans = {"square": tuple(Span(begin * NS // 8, end * NS // 8, said, "v") for begin, end, said
                             in ((0, 33, "no"), (33, 64, "yes")))}
    known = [LabelledRecording(Recording("v", "1", frames), Truth(spans))]
    one, = predict(PixelModel(), known, [question], [])
    assert len(one.t_s) == 31 and not any(abs(one.t_s - 4.125) < 1e-6)
    assert one.t_s[one.anew] == pytest.approx([4.375])
    assert len(one.difference["square"]) == len(one.truth["square"]) == len(one.fresh) == 31
    assert one.truth["square"].tolist() == [0] * 16 + [1] * 15


def test_thresholds_that_are_half_way_are_not_told():
    row = {"stops": None, "kept": {}, "before": {"auroc": None}}
    assert list(_notes(row | {"thresholds": ()})) == []
    assert list(_notes(row | {"thresholds": (0.5, 1.5)})) == ["thresholds 0.5, 1.5"]


@pytest.mark.slow
def test_a_decision_model_is_heard(tmp_path):
    """Its newest image, as in the node; the cache knows its weights."""
    from decision_checkpoints import write_d1

    from vlm_decisions.engine import Query, load

    engine = load(str(write_d1(tmp_path / "d1")))
    images = [np.random.default_rng(k).integers(0, 255, (64, 64, 3), np.uint8) for k in range(6)]

    def frames():
        for k, image in enumerate(images):
            yield Frame(image, 1 + k * NS // 8)

    question = Question("red", "Is it red?")
    spans = {"red": (Span(0, NS, "no", "v"),)}
    known = [LabelledRecording(Recording("v", "1", frames), Truth(spans))]
    one, = predict(engine, known, [question], [])
    said = [engine.ask(engine.encode([image]), [Query(question.text)])[0] for image in images[1::2]]
    got = one.difference["red"]
    assert got == pytest.approx([float(a.logits[0] - a.logits[1]) for a in said], abs=1e-4)
    assert len(set(got)) == 3
    assert [name for name, *_ in _weights(engine)] == ["model.safetensors"]


def test_the_desk_knows_its_truth():
    (desk,) = simulated_desks(1)
    assert {span.answer for span in desk.truth.spans["person"]} <= {"yes", "no"}
    assert "nose" not in desk.truth.ids and desk.truth.duration_s == 12.0
    frames = iter(desk.recording.frames())
    assert next(frames).stamp_ns == 0 and next(frames).stamp_ns == 125_000_000


def test_platt_puts_shifted_logits_right():
    rng = np.random.default_rng(0)
    z = rng.normal(0, 2, 20_000)
    answer = rng.random(20_000) < 1 / (1 + np.exp(-z))
    scale, bias = fit_platt(2.0 * z + 3.0, answer, np.arange(20_000) // 100)
    assert scale == pytest.approx(0.5, abs=0.02) and bias == pytest.approx(-1.5, abs=0.1)
    fitted = 1 / (1 + np.exp(-(scale * (2 * z + 3) + bias)))
    raw = 1 / (1 + np.exp(-(2 * z + 3)))
    assert ece(answer, fitted) < 0.015 < 0.1 < ece(answer, raw)


def test_a_model_that_ranks_the_wrong_way_round():
    z = np.linspace(-3, 3, 200)
    scale, bias = fit_platt(-z, z > 0, np.arange(200) % 20)
    assert scale == LEAST_SCALE and abs(bias) < 0.05


def predictions_of(count, seed, shift=0.0, spread=2.5):
    """Return recordings of 10 s: logits right but for noise, `shift` and each one's own error."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(count):
        truth = np.repeat(rng.random(4) < 0.5, 10)
        own = rng.normal(0, spread)
        logits = np.where(truth, 6.0, -6.0) + own + rng.normal(0, 2.0, 40) + shift
        fresh = np.arange(40) == 0
        found.append(Predictions(f"r{k}", np.arange(1, 41) / 4, fresh, {"q": logits}, {},
                           {"q": truth.astype(np.int8)}, {"q": np.ones(40, bool)},
                           {"q": np.array([f"r{k}"] * 40)}))
    return found


def distributions_of(count, sharpness, seed=0):
    """Return recordings of 10 s asked one of three levels: right in 8 of 10, logits too sharp."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(count):
        truth = np.repeat(rng.integers(0, 3, 4), 10)
        said = np.where(rng.random(40) < 0.8, truth, rng.integers(0, 3, 40))
        logits = sharpness * np.eye(3)[said]
        source = {"q": np.array([f"r{k}"] * 40)}
        found.append(Predictions(f"r{k}", np.arange(1, 41) / 4, np.arange(40) == 0, {}, {},
                                 {"q": truth.astype(np.int8)}, {"q": np.ones(40, bool)}, source,
                                 {"q": logits}))
    return found


LEVELS = Question("q", "How many?", kind="score", options=("none", "one", "two"))


def test_a_score_that_is_too_sure_is_made_softer():
    one = fit_any(LEVELS, distributions_of(12, 20.0))
    # A share of 0.8 + 0.2 / 3 is right: logits of log(.867 / .067) = 2.56 would be calibrated.
    assert one.changes == {"scale": pytest.approx(2.56 / 20, rel=0.2)}
    assert one.after["log_loss"] < one.before["log_loss"] / 2
    assert one.after["ece"] < 0.1 < one.before["ece"]
    assert one.before["accuracy"] == one.after["accuracy"] > 0.75
    assert one.before["auroc"] is None and one.before["cost"] > 0
    assert one.before["mae"] < 0.4
    choice = fit_any(Question("q", "Which?", kind="choice", options=LEVELS.options),
                     distributions_of(12, 20.0))
    assert choice.changes == one.changes and "mae" not in choice.before
    assert choice.before["cost"] is None and "thresholds" not in choice.values


@pytest.mark.slow
def test_a_score_that_is_calibrated_is_kept():
    good = Question("q", "How many?", kind="score", options=LEVELS.options, scale=2.56 / 20)
    one = fit_any(good, distributions_of(12, 20.0))
    assert one.after["log_loss"] <= one.before["log_loss"]
    assert one.values["scale"] == pytest.approx(good.scale, rel=0.2)


def test_a_score_that_is_always_right_does_not_become_a_thousand_times_surer():
    right = distributions_of(12, 4.0)
    for one in right:
        one.logits["q"][:] = 4.0 * np.eye(3)[one.truth["q"]]
    assert 1.0 <= fit_any(LEVELS, right).values["scale"] < 3.0


def test_scores_that_nothing_can_be_fitted_on():
    same = distributions_of(4, 20.0)
    for one in same:
        one.truth["q"][:] = 1
    with pytest.raises(CalibrationError, match="everything says 'one'"):
        fit_any(LEVELS, same)
    broken = distributions_of(4, 20.0)
    broken[0].logits["q"][3, 1] = np.inf
    with pytest.raises(CalibrationError, match="not finite"):
        fit_any(LEVELS, broken)


def levels_of(count, value, seed=0):
    """Return recordings of 10 s of three levels; `value`: expected value where each is right."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(count):
        truth = np.repeat([0, 1, 2, 1][k % 4:] + [0, 1, 2, 1][:k % 4], 10)
        aim = np.array(value)[truth] + rng.normal(0, 0.04, 40)
        high = np.clip(aim - 1, 0.01, 0.98)
        p = np.stack([1 - high - np.clip(aim - 2 * high, 0.005, 1), np.clip(aim - 2 * high, 0.005,
                                                                             1), high], axis=1)
        found.append(Predictions(
            f"r{k}", np.arange(1, 41) / 4, np.arange(40) == 0, {}, {},
            {"q": truth.astype(np.int8)}, {"q": np.ones(40, bool)},
            {"q": np.array([f"r{k}"] * 40)}, {"q": np.log(np.clip(p, 1e-3, 1))}))
    return found


@pytest.mark.parametrize("smoothing", ["ema", "filter"])
def test_the_thresholds_of_a_score_are_put_between_what_its_levels_come_to(smoothing):
    # Level 1 comes to 0.45 and 2 to 1.4: with thresholds half way neither is ever seen.
    question = dataclasses.replace(LEVELS, smoothing=smoothing, switch_hz=2.0)
    one = fit_any(question, levels_of(24, (0.05, 0.45, 1.4)))
    first, second = one.values["thresholds"]
    assert 0.1 < first < 0.45 < 1.0 < second < 1.4
    assert one.after["cost"] < 0.3 * one.before["cost"]
    assert one.changes["thresholds"] == (first, second)
    # They are valid, and are what the file then says.
    text = "- {id: q, text: How many?, kind: score, options: [none, one, two]}".replace(
        "How many?", "How many")
    changed = rewrite(text, {"q": {"thresholds": one.values["thresholds"]}})
    assert QuestionBook.loads(changed).get("q").thresholds == pytest.approx((first, second))


def test_thresholds_that_are_good_or_that_the_held_out_part_refutes_stay(monkeypatch):
    good = fit_any(LEVELS, levels_of(24, (0.05, 1.0, 1.95)))
    assert good.values["thresholds"] == () and "thresholds" not in good.changes
    assert good.kept["thresholds"] == "no others are better by more than chance"
    assert good.after["cost"] <= good.before["cost"]
    monkeypatch.setattr("vlm_decisions.learn.fit_distribution.fit_level", lambda *_: 0.95)
    bad = fit_any(LEVELS, levels_of(24, (0.05, 1.0, 1.95)))
    assert bad.values["thresholds"] == () and "held-out" in bad.kept["thresholds"]


def at_exit(predictions, noise, seed=0):
    """Give question q an early exit: half its logits, and noise."""
    rng = np.random.default_rng(seed)
    return [dataclasses.replace(one, shallow={
        "q": 0.5 * one.logits["q"] + noise * rng.normal(size=one.logits["q"].shape)})
        for one in predictions]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["choice", "score"])
def test_the_early_exit_of_a_choice_or_score_is_fitted(kind, capsys):
    question = Question("q", "Which?", kind=kind, options=LEVELS.options, depth="auto")
    known = distributions_of(30, 3.0)
    same, worse = (fit_any(question, at_exit(known, noise)) for noise in (0.0, 1.0))
    assert same.values["shallow_scale"] == pytest.approx(2 * same.values["scale"], rel=0.02)
    assert "shallow_bias" not in same.values
    assert same.values["shallow_margin"] < worse.values["shallow_margin"]
    assert same.stops == 1.0 > worse.stops
    row = {"tier": same.tier, **same.values, "kept": same.kept, "before": same.before,
           "after": same.after, "stops": same.stops}
    print_calibration({"questions": {"q": row}, "unfitted": {}, "untouched": []})
    assert "early exit: scale" in (said := capsys.readouterr().out) and "100% stop" in said
    kept = dataclasses.replace(question, **worse.changes)
    # What it promises: no more wrong answers than at full depth, on all that it was fitted on.
    wrong = {"full": 0, "early": 0}
    for one in at_exit(known, 1.0):
        for full, early, right in zip(one.logits["q"], one.shallow["q"], one.truth["q"]):
            z = kept.shallow_scale * early
            clear = np.sort(z)[-1] - np.sort(z)[-2] >= kept.shallow_margin
            answers = {}
            for name, logits in (("full", kept.scale * full),
                                 ("early", z if clear else kept.scale * full)):
                p = np.exp(logits) / np.exp(logits).sum()
                answers[name] = (p.argmax() if kind == "choice" else
                                 sum(p @ np.arange(3) >= at for at in (0.5, 1.5)))
                wrong[name] += answers[name] != right
    assert wrong["early"] <= wrong["full"]


def test_the_labels_of_an_any_of_stop_early_together(monkeypatch):
    seen = []

    def looking(lead, *rest):
        seen.append(lead)
        return least_margin(lead, *rest)

    monkeypatch.setattr("vlm_decisions.learn.fit_yes_no.least_margin", looking)
    labels = Question("q", "Is it {}?", kind="any_of", options=("lit", "red"), depth="auto")
    known = [with_exit(predictions_of(12, seed), 1.0, seed) for seed in (1, 2)]
    whole = []
    for lit, red in zip(*known):
        parts = {"q[lit]": lit, "q[red]": red}
        fields = {what: {name: getattr(one, what)["q"] for name, one in parts.items()}
                  for what in ("difference", "truth", "settled", "scene", "shallow")}
        whole.append(dataclasses.replace(lit, **fields))
    one = fit_any(labels, whole)
    lead = seen[0].reshape(12, 2, 40)  # recordings, labels, groups
    scale, bias = one.values["shallow_scale"], one.values["shallow_bias"]
    z = [[np.abs(scale * p.shallow["q"] + bias) for p in of] for of in known]
    assert lead[:, 0] == pytest.approx(np.minimum(*z)) and (lead[:, 0] == lead[:, 1]).all()
    assert 0 < one.stops < 1


def test_the_labels_of_an_any_of_are_fitted_together():
    labels = Question("q", "Is it {}?", kind="any_of", options=("lit", "red"))
    whole = []
    for lit, red in zip(predictions_of(12, 1, shift=8.0), predictions_of(12, 2, shift=8.0)):
        parts = {"q[lit]": lit, "q[red]": red}
        whole.append(Predictions(lit.name, lit.t_s, lit.fresh, *(
            {name: getattr(one, what).get("q") for name, one in parts.items()}
            for what in ("difference", "head_p", "truth", "settled", "scene"))))
    one = fit_any(labels, whole)
    assert one.values["bias"] < -1.0  # both labels say yes too easily
    assert one.after["log_loss"] < one.before["log_loss"]
    assert len(one.held["truth"]) == 2 * 40 * one.sources  # the samples of both labels


@pytest.mark.slow
def test_what_is_good_already_never_gets_worse():
    """Few recordings, and values that were fitted to many: the held-out ones decide."""
    question, changed, explained = Question("q", "?", enter=0.6, exit=0.3), 0, 0
    for seed in range(12):
        one = fit_question(question, predictions_of(20, seed))
        for measure in ("log_loss", "cost"):
            assert one.after[measure] <= one.before[measure], (seed, measure)
        changed += bool(one.changes)
        for names, why in one.kept.items():
            explained += 1
            for value in names.split(", "):
                assert one.values[value] == getattr(question, value) and why
        for names in ("scale, bias", "enter, exit"):
            assert (names in one.kept) != any(name in one.changes for name in names.split(", "))
    assert changed < 12 and explained


def test_what_is_wrong_is_put_right_even_by_few():
    for seed in range(4):
        one = fit_question(Question("q", "?"), predictions_of(20, seed, shift=9.0))
        assert one.changes["bias"] < -2.0
        assert one.after["log_loss"] < 0.6 * one.before["log_loss"]
        assert one.after["cost"] < one.before["cost"]


def test_a_fit_that_the_held_out_part_refutes_is_not_taken(monkeypatch):
    """The values of a case that was seen: almost separable data, and little of it."""
    from vlm_decisions.learn import fit_yes_no as module

    monkeypatch.setattr(module, "fit_platt", lambda *_: (5.7, -46.0))
    monkeypatch.setattr(module, "fit_thresholds", lambda *_, **__: (0.95, 0.9))
    one = fit_question(Question("q", "?"), predictions_of(20, 0))
    assert one.changes == {} and one.values["scale"] == 1.0
    assert one.after == one.before
    assert "5.7, -46 would be no better on the held-out sources" in one.kept["scale, bias"]
    assert "0.95, 0.9 would be no better" in one.kept["enter, exit"]


def test_a_better_probability_that_gives_worse_answers_is_not_taken(monkeypatch):
    """Thresholds fitted to a miscalibrated P(yes) go with it."""
    from vlm_decisions.learn import fit_yes_no as module

    monkeypatch.setattr(module, "fit_platt", lambda *_: (1.0, -9.0))
    monkeypatch.setattr(module, "fit_thresholds", lambda *_, **__: (1.0, 0.0))
    present = Question("q", "?", enter=0.9999, exit=0.99)
    one = fit_question(present, predictions_of(20, 0, shift=9.0))
    assert one.changes == {} and one.after == one.before
    assert set(one.kept) == {"scale, bias", "enter, exit"}
    assert "the answers would be worse" in one.kept["scale, bias"]


@pytest.mark.slow
def test_a_filters_rate_is_fitted_with_its_thresholds_and_guarded(monkeypatch):
    from vlm_decisions.learn import fit_yes_no as module

    question = Question("q", "?", smoothing="filter", switch_hz=5.0)
    one = fit_question(question, predictions_of(20, 0, shift=9.0))
    assert {"switch_hz", "enter", "exit"} < set(one.values)
    assert one.after["cost"] <= one.before["cost"]
    monkeypatch.setattr(module, "fit_filter", lambda *_: (9.0, 0.95, 0.9))
    one = fit_question(Question("q", "?", smoothing="filter"), predictions_of(20, 0))
    assert "switch_hz" not in one.changes
    assert "9, 0.95, 0.9 would be no better" in one.kept["switch_hz, enter, exit"]


def test_logits_that_are_no_numbers():
    with pytest.raises(CalibrationError, match="not finite"):
        fit_platt(np.array([1.0, np.nan]), np.array([True, False]), np.arange(2))


def _labels(tmp_path, rows):
    path = tmp_path / "mine.csv"
    path.write_text(HEAD + "".join(rows))
    return path


@pytest.mark.parametrize(("rows", "error", "named"), [
    ([f"v{k}.mp4,,,square,yes\n" for k in range(8)], CalibrationError,
     "'square': everything says yes and both answers are needed.*--skip square"),
    ([f"v{k}.mp4,0,2.5,square,{'yes' if k else 'no'}\n" for k in range(8)], CalibrationError,
     "yes is seen in 7 of the sources and no in 1.*column `clip`"),
    ([f"v{k}.mp4,0,2.5,circle,yes\n" for k in range(8)], LabelError,
     "mine.csv:2: there is no question 'circle'.*it has: square, none, same, what"),
    ([f"v{k}.mp4,0,2.5,what,yes\n" for k in range(8)], LabelError, "'what' never answers 'yes'"),
    ([f"v{k}.mp4,0,0.2,square,yes\n" for k in range(8)], CalibrationError, "lasts long enough"),
    (["w.mp4,0,2.5,square,yes\n"], LabelError, "no recording is called 'w.mp4'"),
    (["v0.mp4,0,2.5,square,yes\n"], LabelError, "no label names v1.mp4"),
])
def test_labels_that_nothing_can_be_fitted_on(videos, questions, tmp_path, rows, error, named):
    engine = PixelModel()
    with pytest.raises(error, match=named):
        run(videos, questions, labels=_labels(tmp_path, rows), engine=engine)
    assert engine.encoded == 0  # nothing is computed for that
    assert questions.read_text() == QUESTIONS


@pytest.mark.slow
def test_one_question_that_cannot_be_fitted_leaves_the_others(videos, questions, tmp_path, capsys):
    rows = (videos / "labels.csv").read_text().removeprefix(HEAD).splitlines(keepends=True)
    seen = [row.replace(",yes\n", ",no\n") for row in rows if ",none," in row]
    seen[0] = seen[0].replace(",no\n", ",yes\n")
    result = run(videos, questions, labels=_labels(
        tmp_path, [row for row in rows if ",square," in row] + seen))
    assert set(result["questions"]) == {"square"} and result["untouched"] == ["same", "what"]
    book, before = QuestionBook.load(questions), QuestionBook.loads(QUESTIONS)
    assert book.get("none") == before.get("none") and book.get("square") != before.get("square")
    print_calibration(result)
    out = capsys.readouterr().out
    assert "none keeps its values: yes is seen in 1 of the sources and no in 8" in out


def test_the_simulated_desk_has_its_own_advice(questions):
    """Nobody can add recordings to it."""
    questions.write_text("- id: cup\n  text: Is there a cup?\n")
    engine = PixelModel()
    with pytest.raises(CalibrationError, match="'cup': .* 1 simulated desks .*more --clips may"):
        calibrate("pixels", questions, questions, engine=engine, clips=1)
    assert engine.encoded == 0


def test_questions_that_nothing_can_be_fitted_to(videos, questions, tmp_path):
    with pytest.raises(QuestionError, match="no question 'nose'"):
        run(videos, questions, skip=["nose"])
    with pytest.raises(CalibrationError, match="labels none of the questions"):
        run(videos, questions, skip=["square", "none"])
    with pytest.raises(CalibrationError, match="no facts of the simulated desk: square, none"):
        calibrate("pixels", questions, questions, engine=PixelModel(), clips=6)
    text = QUESTIONS.replace("scale: 3.0", "tier: heads")
    questions.write_text(text)
    with pytest.raises(CalibrationError, match="'none' is answered by heads only"):
        run(videos, questions)


@pytest.mark.slow
def test_the_command(videos, questions, tmp_path, capfd):
    """Through the console command, with a real (random) model."""
    from tiny import write_checkpoint

    model = write_checkpoint(tmp_path / "tiny")
    code = cli.main([str(a) for a in (
        "calibrate", "--model", model, "--questions", questions, "--videos", videos, "--labels",
        videos / "labels.csv", "--cache", tmp_path / "cache", "--json", tmp_path / "out.json",
        "--skip", "none")])
    out = capfd.readouterr()
    assert code == 0, out.err
    assert "square" in out.out and set(json.loads((tmp_path / "out.json").read_text())) == {
        "questions", "before", "after", "unfitted", "untouched"}
    assert "# mine" in questions.read_text()


def test_the_command_refuses_a_head_of_another_model(videos, questions, tmp_path, capfd):
    from tiny import write_checkpoint

    from vlm_decisions.runtime.heads import write_head

    model = write_checkpoint(tmp_path / "tiny")
    write_head(tmp_path / "square.npz", Head("square", "square", "mean", np.ones(8, np.float32),
                                             0.0, 1.0, "pixels-1", 1024))
    assert cli.main([str(a) for a in (
        "calibrate", "--model", model, "--questions", questions, "--videos", videos, "--labels",
        videos / "labels.csv", "--heads", tmp_path / "square.npz")]) == 1
    err = capfd.readouterr().err
    assert "square.npz" in err and "pixels-1" in err and "Traceback" not in err


def with_exit(predictions, noise, seed=0):
    """Give question q an early exit: the difference at full depth, worse by `noise` logits."""
    rng = np.random.default_rng(seed)
    return [dataclasses.replace(one, shallow={
        "q": 0.5 * (one.difference["q"] + noise * rng.normal(size=len(one.t_s)))})
        for one in predictions]


def test_the_margin_of_an_early_exit_grows_with_how_wrong_it_is():
    question = Question("q", "?", depth="auto")
    known = predictions_of(30, 0)
    same = fit_question(question, with_exit(known, 0.0))
    worse = fit_question(question, with_exit(known, 3.0))
    assert same.values["shallow_margin"] <= worse.values["shallow_margin"]
    assert same.stops > worse.stops and same.stops > 0.5
    # The exit's own calibration: its logits are half of those at full depth.
    assert same.values["shallow_scale"] > 1.3 * same.values["scale"]


def test_an_exit_that_knows_nothing_hardly_ever_stops():
    one = fit_question(Question("q", "?", depth="auto"), with_exit(predictions_of(30, 0), 300.0))
    assert one.stops < 0.05 or one.values["shallow_scale"] < 0.1


@pytest.mark.slow
def test_an_early_exit_is_asked_where_the_question_has_one(videos, questions):
    text = QUESTIONS.replace("  text: Is there a square?", "  text: Is there a square?\n"
                             "  depth: auto")
    questions.write_text(text)
    result = run(videos, questions)
    row = result["questions"]["square"]
    assert {"shallow_scale", "shallow_bias", "shallow_margin"} <= set(row) and row["stops"] > 0.5
    assert result["questions"]["none"]["stops"] is None
    assert QuestionBook.load(questions).get("square").shallow_margin == row["shallow_margin"]
    print_calibration(result)
