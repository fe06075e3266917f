"""The benchmark on a scripted recording and engine: every figure can be worked out by hand."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from fakes import FakeEngine, FakeStream

from vlm_decisions.decision import TIER_VLM, UNKNOWN, Decision
from vlm_decisions.frames import NS, Frame
from vlm_decisions.lab.replay import modes as mode_list
from vlm_decisions.lab.replay import shared
from vlm_decisions.lab.replay.bench import (
    bench_replay,
    fast_player,
    questions_with_head,
    true_decisions,
)
from vlm_decisions.lab.replay.engines import MeteredEngine, RecentStream
from vlm_decisions.lab.replay.playback import play_fast
from vlm_decisions.lab.replay.report import render, write_report
from vlm_decisions.lab.replay.score import Scorer
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.runtime.heads import Head, write_head
from vlm_decisions.runtime.settings import RuntimeSettings
from vlm_decisions.sources.recording import ReplaySource
from vlm_decisions.sources.truth import Span, Truth

T0 = 1_000 * NS
QUESTIONS = """
questions:
  - {id: light, text: "Is it light?", ema: 1.0}
  - {id: scene, text: "Which?", kind: choice, options: [red, blue], ema: 1.0}
events:
  - id: flash
    states: [dark, lit]
    transitions:
      - {from: dark, to: lit, when: {light: yes}, hold_s: 0.5}
      - {from: lit, to: dark, when: {light: no}, hold_s: 0.5, count: flashes}
"""
SCENES = 6
SCENE_S = 2.0
_NOISE = np.random.default_rng(5).integers(0, 110, (48, 64, 1), dtype=np.uint8).repeat(3, axis=2)


def lit(scene: int) -> bool:
    return scene % 2 == 1


def frames():
    """Yield 8 frames a second: odd scenes are red and light, even ones blue and darker."""
    for k in range(round(SCENES * SCENE_S * 8)):
        scene = int(k / 8 / SCENE_S)
        base = np.array([130, 60, 60] if lit(scene) else [30, 60, 60], np.uint8)
        yield Frame(np.roll(_NOISE, k, axis=1) + base, T0 + round(k / 8 * NS), "cam")


def facts(scene: int) -> dict[str, str]:
    return {"light": "yes", "scene": "red"} if lit(scene) else {"light": "no", "scene": "blue"}


def truth() -> Truth:
    return Truth({name: [Span(T0 + round(s * SCENE_S * NS), T0 + round((s + 1) * SCENE_S * NS),
                              facts(s)[name], s) for s in range(SCENES)] for name in facts(0)})


class SlowStream(FakeStream):
    """Takes time to ask."""

    def ask(self, queries):
        self.engine.sleep(self.engine.each_s)
        return super().ask(queries)


class Eye(FakeEngine):
    """Sees the mean red of a group; `window` answers as a stream would of the newest."""

    sleep = staticmethod(time.sleep)

    def stream(self, window_groups, mode):
        super().stream(window_groups, mode)
        return SlowStream(self, window_groups)

    def window(self, groups, times_s):
        self.log.append(("window", tuple(round(t, 3) for t in times_s)))
        stream = FakeStream(self, 8)
        for group, t_s in zip(groups, times_s, strict=True):
            stream.append(group, (round(t_s * NS), round(t_s * NS)))
        return stream


def answer(text, vision):
    red = vision.mean[0] > 130
    if text == "Which?":
        return [2.0, 0.0] if red else [0.0, 2.0]
    return 0.9 if red else 0.1


def run(names: str = "stream", latency: str = "none", engine=None, **settings):
    engine = engine or Eye(answer=answer)
    recording = ReplaySource("scripted", truth(), frames, "/image")
    # However busy the machine, no answer grows too old to count.
    settings = RuntimeSettings(max_age_s=600.0, **settings)
    play = fast_player(recording, engine, settings, (), latency)
    return bench_replay(recording, QuestionBook.loads(QUESTIONS), mode_list.chosen(names), play,
                        frozenset(), latency=latency, rounds=100)


@pytest.fixture
def timeless(monkeypatch):
    """Let nothing take time but an engine's asking, whatever the machine has to do besides."""
    passed_s = 0.0

    def sleep(seconds):
        nonlocal passed_s
        passed_s += seconds

    monkeypatch.setattr(shared, "time", SimpleNamespace(perf_counter=lambda: passed_s))
    monkeypatch.setattr(Eye, "sleep", staticmethod(sleep))


def test_a_perfect_engine_is_scored_so(timeless):
    result = run()
    assert {"event_accuracy", "timeliness_f1", "timeliness_f1_at1", "ars", "questions", "tiers",
            "drops", "dead_time", "modes"} <= set(result)
    # The group of a scene's first two frames ends 0.125 s into it and is decided at once.
    for name in ("event_accuracy", "accuracy", "timeliness_f1", "timeliness_f1_at1", "ars",
                 "event_precision", "event_recall", "effective_accuracy"):
        assert result[name] == 1.0, name
    light = result["questions"]["light"]
    assert light["events"] == SCENES - 1 and light["event_latency_s"] == pytest.approx(0.125)
    assert light["auroc"] == 1.0 and light["rate_hz"] == pytest.approx(4.0)
    assert light["ece"] == pytest.approx(0.1) and light["brier"] == pytest.approx(0.01)
    assert light["flips_per_min"] == pytest.approx(5 / 0.2) and light["age_ms_p95"] == 0.0
    assert result["questions"]["scene"]["auroc"] is None  # a choice is not ranked
    assert result["questions"]["scene"]["accuracy"] == 1.0
    assert light["accuracy_ci"] == [1.0, 1.0] and light["auroc_ci"] == [1.0, 1.0]
    assert result["segments"] == SCENES and result["duration_s"] == 12.0
    # Lit in scenes 1, 3, 5, dark again in 2 and 4: two flashes are over.
    assert result["events"] == {"flash": {"changes": 5, "changes_true": 5,
                                          "counters": {"flashes": 2},
                                          "counters_true": {"flashes": 2}}}
    assert result["drops"] == {} and result["overruns"] == 0
    json.dumps(result, allow_nan=False)


KINDS = """
questions:
  - {id: level, text: "How light?", kind: score, options: ["0", "10"], ema: 1.0}
  - {id: shown, text: "Is it {}?", kind: any_of, options: [lit, red, green], ema: 1.0}
events:
  - id: reds
    states: [other, red]
    transitions:
      - {from: other, to: red, when: {"shown[red]": yes}, count: reds}
      - {from: red, to: other, when: {"shown[red]": no}}
"""


def run_kinds(answer):
    told = {"level": ("0", "10"), "shown": ("none", "lit, red")}
    spans = {name: [Span(T0 + round(s * SCENE_S * NS), T0 + round((s + 1) * SCENE_S * NS),
                         answers[lit(s)], s) for s in range(SCENES)]
             for name, answers in told.items()}
    book = QuestionBook.loads(KINDS)
    recording = ReplaySource("scripted", Truth(spans).check(book), frames, "/image")
    play = fast_player(recording, Eye(answer=answer), RuntimeSettings(max_age_s=600.0), (), "none")
    result = bench_replay(recording, book, mode_list.chosen("stream"), play, frozenset(),
                          latency="none", rounds=50)
    return book, result


def test_scores_and_labels_are_scored_as_what_they_are():
    def answer(text, vision):
        red = vision.mean[0] > 130
        if text == "How light?":  # 0.9 at the right level: an expected value that is 1 off
            return np.log([0.1, 0.9] if red else [0.9, 0.1])
        return [0.9, 0.9, 0.1] if red else [0.1, 0.1, 0.9]  # green is always wrong

    book, result = run_kinds(answer)
    level, shown = result["questions"]["level"], result["questions"]["shown"]
    assert level["accuracy"] == level["event_accuracy"] == 1.0
    assert level["mae"] == pytest.approx(1.0) and level["mae_ci"] == pytest.approx([1.0, 1.0])
    assert shown["mae"] is None and "labels" not in level
    # As a whole it is right while red: there green is denied. Each label stands by itself.
    assert shown["accuracy"] == 0.5 and shown["event_accuracy"] == 0.5
    labels = shown["labels"]
    assert list(labels) == ["shown[lit]", "shown[red]", "shown[green]"]
    assert [row["accuracy"] for row in labels.values()] == [1.0, 1.0, 0.5]
    assert labels["shown[red]"]["auroc"] == 1.0 and labels["shown[green]"]["auroc"] is None
    assert labels["shown[red]"]["ece"] == pytest.approx(0.1)
    assert labels["shown[red]"]["events"] == SCENES - 1
    assert result["events"]["reds"]["counters"] == result["events"]["reds"]["counters_true"] == {
        "reds": 3}
    page = render(result, list(book))
    assert "shown[red]" in page and "score&#x27;s error" in page or "score's error" in page
    json.dumps(result, allow_nan=False)


def test_a_backward_engine_is_scored_so():
    wrong = run(engine=Eye(answer=lambda text, vision: 1 - answer(text, vision) if text != "Which?"
                           else answer(text, vision)[::-1]))
    assert wrong["event_accuracy"] == 0.0 and wrong["accuracy"] == 0.0
    assert wrong["questions"]["light"]["auroc"] == 0.0
    assert wrong["timeliness_f1"] == 0.0 and wrong["event_recall"] == 0.0


def test_one_that_never_changes_its_mind():
    stuck = run(engine=Eye(answer=lambda text, vision: [0.0, 2.0] if text == "Which?" else 0.1))
    light = stuck["questions"]["light"]
    assert stuck["event_accuracy"] == 0.5 and light["flips_per_min"] == 0.0
    assert light["event_precision"] is None and light["event_recall"] == 0.0
    # Ready at the start of every scene that is dark again, never for the light ones.
    assert light["ars"] == pytest.approx(2 / 5)


@pytest.mark.slow
def test_the_same_run_gives_the_same_result():
    first, second = run("stream,tier2"), run("stream,tier2")
    for result in (first, second):
        for mode in (result, *result["modes"].values()):
            # What the machine took:
            for key in ("wall_s", "tick_ms", "dead_time", "tiers", "overruns"):
                mode.pop(key)
    assert first == second


@pytest.mark.slow
def test_measured_latency_is_in_the_decisions_and_zero_latency_is_not():
    engine = Eye(answer=answer, each_s=0.02)
    slow, none = run(latency="measured", engine=engine), run(latency="none", engine=engine)
    assert slow["questions"]["light"]["age_ms_p50"] >= 20.0
    assert slow["questions"]["light"]["event_latency_s"] >= 0.145
    assert none["questions"]["light"]["age_ms_p50"] == 0.0
    assert slow["tiers"]["2"]["age_ms"]["p50"] >= 20.0 and slow["tick_ms"]["p50"] >= 20.0
    assert "measured on this machine" in slow["latency_model"]
    assert slow["accuracy"] == none["accuracy"] == 1.0
    dead = slow["dead_time"]
    assert dead["period_ms"] == 250.0 and 0.0 <= dead["dead_share"] < 1.0


def test_groups_that_take_too_long_are_counted(timeless):
    assert run(latency="measured", engine=Eye(answer=answer, each_s=0.2))["overruns"] == 0
    result = run(latency="measured", engine=Eye(answer=answer, each_s=0.3))
    assert result["overruns"] == 48 and result["dead_time"]["dead_s"] == 0.0


@pytest.mark.slow
def test_all_modes_in_one_run():
    engine = Eye(answer=answer)
    result = run("all", engine=engine)
    assert list(result["modes"]) == ["stream", "window", "recent4", "tier1", "tier2", "always",
                                     "on_change", "ema", "filter", "depth_auto", "unsure",
                                     "no_cuts",
                                     "no_hysteresis"]
    assert result["modes"]["tier1"]["left_out"] == "no question has a head that fits the model"
    for name in ("stream", "window", "recent4", "tier2", "always", "no_hysteresis"):
        mode = result["modes"][name]
        assert mode["event_accuracy"] == 1.0, name
        assert {"questions", "tiers", "drops", "dead_time", "timeliness_f1_at1", "ars"} <= set(mode)
        assert "lines" not in mode
    assert ("stream", 8, "window") in engine.log
    # Single frames: the newest and those 1, 2 and 3 s before it.
    assert engine.calls("window")[-1] == ("window", (0.0, 1.0, 2.0, 3.0))


@pytest.mark.slow
def test_a_decision_model_runs_in_the_modes_that_it_has(tmp_path):
    from decision_checkpoints import write_d1

    from vlm_decisions.engine import load

    engine = load(str(write_d1(tmp_path / "d1")))
    modes = run("stream,window,recent4,unsure", engine=engine)["modes"]
    assert modes["stream"]["groups"] == 48 and 0.0 <= modes["stream"]["accuracy"] <= 1.0
    assert "has no mode 'window'" in modes["window"]["left_out"]
    assert "sees one image at a time" in modes["recent4"]["left_out"]
    assert "no longer history" in modes["unsure"]["left_out"]


@pytest.mark.slow
def test_heads_answer_alone_where_they_fit(tmp_path):
    # Sees the mean red: yes above 130.
    fields = {"name": "light", "question": "light", "pooling": "mean", "fingerprint": "f00d",
              "pixel_budget": 4096, "weight": np.array([0.2, 0.0, 0.0], np.float32),
              "bias": -26.0, "temperature": 1.0}
    write_head(tmp_path / "light.npz", Head(**fields))
    write_head(tmp_path / "other.npz", Head(**(fields | {"name": "x", "fingerprint": "other"})))
    engine, book = Eye(answer=answer), QuestionBook.loads(QUESTIONS)
    heads = questions_with_head(engine, book, [tmp_path])
    assert heads == {"light"}
    vlm_only = QuestionBook([dataclasses.replace(book.get("light"), tier="vlm")])
    assert questions_with_head(engine, vlm_only, [tmp_path]) == frozenset()
    recording = ReplaySource("scripted", truth(), frames)
    play = fast_player(recording, engine, RuntimeSettings(), [tmp_path], "none")
    result = bench_replay(recording, book, mode_list.chosen("stream,tier1,tier2"), play, heads,
                          latency="none", rounds=20)
    assert result["tiers"]["1"]["answers"] == 48 and result["tiers"]["2"]["answers"] > 0
    alone, without = result["modes"]["tier1"], result["modes"]["tier2"]
    assert list(alone["questions"]) == ["light"] and alone["event_accuracy"] == 1.0
    assert alone["tiers"]["2"]["answers"] == without["tiers"]["1"]["answers"] == 0
    only = QuestionBook([book.get("light")])  # the model is asked nothing: there is no share of it
    told = ReplaySource("scripted", truth().check(only, ignore_unknown=True), frames)
    result = bench_replay(told, only, mode_list.chosen("stream,always"), play, heads,
                          latency="none", rounds=20)
    assert result["asked_share"] is None and result["event_accuracy"] == 1.0


def test_hysteresis_makes_a_difference():
    wobble = iter(np.tile([0.6, 0.45, 0.55, 0.4], 200))
    def engine():
        return Eye(answer=lambda text, vision: answer(text, vision) if text == "Which?"
                   else (0.9 if vision.mean[0] > 130 else float(next(wobble))))
    held, loose = run(engine=engine()), run("no_hysteresis", engine=engine())
    assert held["questions"]["light"]["flips_per_min"] < \
        loose["questions"]["light"]["flips_per_min"]


@pytest.mark.slow
def test_modes_that_ask_the_same_share_the_models_answers():
    engine, alone = Eye(answer=answer), Eye(answer=answer)
    together = run("stream,always,on_change,ema,no_hysteresis", engine=engine)
    apart = {name: run(name, engine=alone) for name in together["modes"]}
    once = run("stream", engine=Eye(answer=answer))
    for name, mode in together["modes"].items():
        for key in ("accuracy", "timeliness_f1", "event_accuracy", "questions", "layer_share"):
            assert mode[key] == apart[name][key], (name, key)
    assert together["modes"]["stream"]["accuracy"] == once["accuracy"]
    assert len(engine.calls("ask")) == 48 < len(alone.calls("ask"))
    assert len(engine.calls("encode")) <= 48 < len(alone.calls("encode"))


@pytest.mark.slow
def test_what_is_asked_is_compared_with_asking_always():
    engine = Eye(answer=answer)
    result = run("on_change,always", engine=engine)
    share = result["modes"]["on_change"]["asked_share"]
    # The noise moves from group to group, and not its mean: a scene is asked about once, and at the
    # latest every four seconds.
    asked = sum(len(names) for _, names in engine.calls("ask"))
    assert 0 < share < 0.5 and result["asked_share"] == share
    assert result["modes"]["always"]["asked_share"] == 1.0
    low, high = result["modes"]["on_change"]["asked_share_ci"]
    assert low <= share <= high
    assert asked == 96  # on_change first: what it left out, always asked
    assert result["layer_share"] == 1.0 and "asked_share" not in run("on_change")


@pytest.mark.slow
def test_an_answer_from_memory_takes_the_time_that_it_took():
    engine = Eye(answer=answer, each_s=0.02)
    result = run("stream,always", latency="measured", engine=engine)
    first, second = (result["modes"][name]["questions"]["light"]["age_ms_p50"]
                     for name in ("stream", "always"))
    assert len(engine.calls("ask")) == 48 and min(first, second) >= 20.0


def test_onsets_are_compared_with_the_events():
    slow = QUESTIONS.replace("ema: 1.0", "ema: 0.3")
    recording = ReplaySource("scripted", truth(), frames)
    play = fast_player(recording, Eye(answer=answer), RuntimeSettings(max_age_s=600.0), (), "none")
    result = bench_replay(recording, QuestionBook.loads(slow), mode_list.chosen("stream"), play,
                          frozenset(), latency="none", rounds=50)
    light = result["questions"]["light"]
    # A group ends 0.125 s into a scene: the change was in the middle between it and the last one.
    assert light["onset_error_s"] == light["onset_settled_error_s"] == pytest.approx(0.0, abs=1e-6)
    assert light["since_error_s"] > 0.3 and light["onsets_told"] == light["events"] == 5
    assert result["onset_error_s"] == pytest.approx(0.0, abs=1e-6)
    assert result["onset_error_s_ci"] is not None


def test_modes_that_do_not_exist():
    with pytest.raises(mode_list.ReplayModeError, match="no mode 'steam' .there are: stream, win"):
        mode_list.chosen("stream,steam")
    with pytest.raises(mode_list.ReplayModeError, match="no mode is named"):
        mode_list.chosen(" , ")
    with pytest.raises(mode_list.ReplayModeError, match="tier1: no question has a head"):
        run("tier1")
    with pytest.raises(ValueError, match="latency must be one of measured, none"):
        play_fast([], Eye(), QuestionBook(), latency="some")


def test_modes_keep_the_events_whose_questions_are_left():
    book = QuestionBook.loads(QUESTIONS)
    modes = mode_list.all_modes()
    kept = modes["tier1"].questions(book, frozenset({"light"}))
    assert [q.tier for q in kept] == ["heads"] and len(kept.events) == 1
    with pytest.raises(mode_list.ReplayModeError):
        modes["tier1"].questions(book, frozenset())
    assert all(q.enter == 0.5 and q.exit < 0.5 for q in
               modes["no_hysteresis"].questions(book, frozenset()))


def test_recent_frames_are_those_one_second_apart():
    stream = RecentStream(SimpleNamespace(), 3, 1.0)
    for k in range(20):
        stream.append(k, (k * NS // 4 - NS // 8, k * NS // 4))
    assert [kept.group for kept in stream.chosen()] == [11, 15, 19] and len(stream.history) == 9
    stream.reset()
    stream.append(0, (9 * NS, 9 * NS))
    assert [kept.group for kept in stream.chosen()] == [0]  # no older one is there yet


def test_an_engine_is_metered_by_group():
    ticks = iter(range(100))
    engine = MeteredEngine(Eye(answer=answer), timer=lambda: float(next(ticks)))
    stream = engine.stream(8, "stream")
    image = np.zeros((8, 8, 3), np.uint8)
    for t_ns in (NS, 2 * NS):
        stream.append(engine.encode([image, image]), (t_ns, t_ns))
        stream.idle()
    assert engine.spent_s["encode"] == [1.0, 1.0] and engine.turns == [[2.0, 1.0], [2.0, 1.0]]
    assert engine.fingerprint == "f00d" and engine.calls("idle")


def decided(t_s: float, answer: str, late_s: float = 0.0, question: str = "light") -> Decision:
    t_ns = T0 + round(t_s * NS)
    p = {"yes": 0.9, "no": 0.1}.get(answer, 0.5)
    return Decision(question, answer, p, p, (), (), TIER_VLM, 4, t_ns, t_ns,
                    t_ns + round(late_s * NS), False, t_ns, "m")


def test_answers_are_judged_at_their_frames_and_timed_when_decided():
    told = Truth({"light": [Span(T0, T0 + 2 * NS, "no", 0),
                            Span(T0 + 2 * NS, T0 + 4 * NS, "yes", 1)]})
    book = QuestionBook.loads(QUESTIONS)
    given = [decided(0.5, "no"), decided(1.5, "no", 0.6),  # decided in the next segment: right
             decided(2.5, "uncertain"), decided(3.0, "yes", 0.2), decided(3.2, UNKNOWN),
             decided(4.5, "no")]  # after the truth ends: not judged
    row = Scorer(told, rounds=50).score(given, list(book))["questions"]["light"]
    assert (row["judged"], row["unknown"]) == (4, 1)
    assert row["accuracy"] == 0.75 and row["event_accuracy"] == 1.0
    assert row["event_latency_s"] == pytest.approx(1.2)
    assert row["age_ms_p50"] == pytest.approx(100.0)  # of 0, 600, 0 and 200 ms
    assert "scene" not in Scorer(told, rounds=50).score(given, list(book))["questions"]


def test_true_decisions_drive_the_machines():
    told = true_decisions(truth())
    assert len(told) == 2 * 8 * SCENES
    assert {d.answer for d in told} == {"yes", "no", "red", "blue"}


class Page(HTMLParser):
    """Collects what a page would fetch, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.fetched += [value for name, value in attrs if name in ("src", "href", "data")]


def test_the_report_is_one_page_that_fetches_nothing(tmp_path):
    book = QuestionBook.loads(QUESTIONS.replace("Is it light?", "Is 1 < 2 & <script>?"))
    result = run("stream,tier1,no_hysteresis")
    write_report(tmp_path / "report.html", result, list(book))
    text = (tmp_path / "report.html").read_text()
    page = Page()
    page.feed(text)
    assert page.fetched == [] and "script" not in page.tags and "link" not in page.tags
    assert not re.search(r"https?://|url\(|@import", text)
    assert page.tags.count("svg") == 2 + 2 + 2  # two over time, time and age, two calibrations
    assert "Is 1 &lt; 2 &amp; &lt;script&gt;?" in text
    assert "left out: no question has a head" in text and "flashes 2" in text
    assert not list(tmp_path.glob(".*"))


def test_a_report_without_events_or_yes_no_questions():
    book = QuestionBook.loads('- {id: scene, text: "Which?", kind: choice, options: [red, blue]}')
    recording = ReplaySource("scripted", truth().check(book, ignore_unknown=True), frames)
    play = fast_player(recording, Eye(answer=answer), RuntimeSettings(), (), "none")
    result = bench_replay(recording, book, mode_list.chosen("stream"), play, frozenset(),
                          latency="none", rounds=20)
    assert "no yes/no question" in render(result, list(book))


def test_bad_arguments_of_the_command(tmp_path, capsys):
    pytest.importorskip("rosbags", reason="rosbags is not installed")
    from bag_tools import make_bag

    from vlm_decisions import cli

    bag = str(make_bag(tmp_path / "bag", 4, truth=lambda k: {"person": "yes", "cat": "no"}))
    other = str(make_bag(tmp_path / "other", 2))
    video = tmp_path / "film.mp4"
    video.write_bytes(b"not a film")
    for arguments, message in [
            ((bag,), "the truth names questions that are not asked: cat"),
            ((bag, "--truth", "none.yaml"), "none.yaml: there is no such file"),
            ((bag, "--topic", "/cam"), "there is no topic /cam; there are: /image"),
            ((bag, "--modes", "fast"), "there is no mode 'fast'"),
            ((bag, "--questions", str(tmp_path / "q.yaml")), "q.yaml: No such file"),
            ((other,), "no topic of truth"),
            ((str(video),), "a video tells no truth by itself"),
            ((str(video), "--truth", "t.yaml"), "holds no video"),
            ((str(tmp_path / "none"),), "there is no such bag or video file")]:
        assert cli.main(["bench", "replay", *arguments]) == 1
        assert message in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [False, True])
def test_the_command(tmp_path, capsys, monkeypatch, terminal):
    """With a real (random) model, with and without a progress bar."""
    pytest.importorskip("rosbags", reason="rosbags is not installed")
    from bag_tools import make_bag
    from tiny import write_checkpoint

    from vlm_decisions import cli

    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    bag = make_bag(tmp_path / "bag", 12, truth=lambda k: {"person": "yes" if k < 6 else "no"})
    questions = tmp_path / "q.yaml"
    questions.write_text('- {id: person, text: "Is a person present?"}\n')
    code = cli.main([str(a) for a in (
        "bench", "replay", bag, "--model", write_checkpoint(tmp_path / "tiny"), "--questions",
        questions, "--modes", "stream,window", "--rounds", "20", "--json", tmp_path / "out.json",
        "--html", tmp_path / "out.html")])
    out = capsys.readouterr()
    assert code == 0, out.err
    assert "stream: event_accuracy" in out.out and "window: event_accuracy" in out.out
    result = json.loads((tmp_path / "out.json").read_text())
    assert set(result["modes"]) == {"stream", "window"} and result["segments"] == 2
    assert "<svg" in (tmp_path / "out.html").read_text()
