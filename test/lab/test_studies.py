"""The studies of the desk, on a random model: shapes, keys, controls, refusals."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from vlm_decisions import cli
from vlm_decisions.lab.studies import baseline, image_models, ladder, score, temporal
from vlm_decisions.lab.studies.clip_answers import ClipAnswers, StudyError, desk_questions
from vlm_decisions.learn.measures import auroc
from vlm_decisions.questions import Question
from vlm_decisions.runtime.heads import Head
from vlm_decisions.sim.clips import CONDITIONS, MOTION, Clip
from vlm_decisions.sim.script import State
from vlm_decisions.sim.world import truth_of

KEYS = {"auroc", "activity_accuracy", "ece", "brier", "log_loss", "heads", "temporal_gain",
        "shuffled_gain", "reversal_consistency", "clips"}


def cheap_clip(seed: int) -> Clip:
    """Return a clip of noise, brighter where the door is said to be open; its truth at random."""
    rng = np.random.default_rng(seed)
    motion = str(rng.choice(["still", "approaching", "receding", "left", "right"]))
    person = motion != "still" or bool(rng.random() < 0.5)
    state = State(person=person, activity="idle" if person else "away", motion=motion, rate=0.2,
                  door_open=bool(rng.random() < 0.5), second_person=bool(rng.random() < 0.5),
                  holding="cup" if person and rng.random() < 0.5 else None,
                  desk={n: 0.1 + 0.2 * k for k, n in enumerate(("phone", "laptop", "pen"))
                        if rng.random() < 0.5})
    top = 200 if state.door_open else 90
    frames = [rng.integers(0, top, (96, 128, 3), dtype=np.uint8) for _ in range(16)]
    return Clip(frames, truth_of(state, 0.5), True,
                tuple(n for n in CONDITIONS if rng.random() < 0.5))


@pytest.fixture(autouse=True)
def cheap(monkeypatch):
    monkeypatch.setattr(ladder, "STRENGTHS", (0.01,))
    monkeypatch.setattr(ladder, "TICKS", 1)
    monkeypatch.setattr(baseline, "STRENGTHS", (0.01,))
    for module, name in ((score, "draw_clip"), (ladder, "draw_clip"), (baseline, "draw_clip"),
                         (temporal, "draw_motion_clip")):
        monkeypatch.setattr(module, name, cheap_clip)


def motion_head(engine, name):
    return Head(name, name, "motion", np.ones(256, np.float32), 0.0, 1.0, engine.fingerprint,
                engine.pixel_budget, 4)


@pytest.mark.slow
def test_the_score_has_exactly_its_keys(engine, capsys):
    heads = [motion_head(engine, "approaching"),
             Head("person", "person", "mean", np.ones(128, np.float32), 0.0, 1.0,
                  engine.fingerprint, engine.pixel_budget)]
    result = score.score(clips=12, heads=heads, engine=engine)
    table = json.loads(json.dumps(result.table))
    assert set(table) == KEYS
    names = {q.id for q in desk_questions() if not q.options}
    families = {"presence", "holding", "relation", "motion"}
    assert set(table["auroc"]) == names | families | {"ci"}
    assert set(table["auroc"]["ci"]) == names | families
    low, high = table["auroc"]["ci"]["person"]
    assert low <= table["auroc"]["person"] <= high
    assert set(table["heads"]) == {"approaching", "person"}
    assert 0 <= table["ece"] <= 1 and table["brier"] > 0 and table["log_loss"] > 0
    assert table["clips"] == 12 and 0 <= table["reversal_consistency"] <= 1
    assert set(result.details["conditions"]) == {*CONDITIONS, "none of these"}
    assert sum(result.details["conditions"][n]["clips"] for n in CONDITIONS) > 12
    score.print_score(result)
    assert "two_people" in capsys.readouterr().out


def test_a_set_of_questions_without_motion_has_no_gains(engine, tmp_path):
    path = tmp_path / "q.yaml"
    path.write_text("- id: person\n  text: Is a person present?\n  scale: 0.5\n  bias: 1.0\n")
    result = score.score(clips=6, questions=str(path), engine=engine)
    assert result.table["temporal_gain"] is None and result.table["activity_accuracy"] is None
    assert result.details["uncalibrated"]["ece"] != result.table["ece"]
    with pytest.raises(StudyError, match="none of the questions about motion"):
        temporal.temporal(clips=4, questions=str(path), engine=engine)


def test_questions_that_are_no_facts_of_the_desk(engine, tmp_path):
    path = tmp_path / "q.yaml"
    path.write_text("- id: nose\n  text: Is there a nose?\n")
    with pytest.raises(StudyError, match="no facts of the simulated desk: nose"):
        score.score(clips=8, questions=str(path), engine=engine)


class Oracle:
    """Answers motion from what it `reads`: the "order" of groups, that "within" one, or "looks"."""

    def __init__(self, reads: str) -> None:
        self.reads = reads

    def encode(self, frames):
        return self.encode_many([frames])[0]

    def encode_many(self, pairs):
        class Group:
            pass

        groups = []
        for a, b in pairs:
            group = Group()
            group.first, group.last = int(a[0, 0, 0]), int(b[0, 0, 0])
            group.look = int(a[0, 0, 1])
            groups.append(group)
        return groups

    def window(self, groups, times):
        seen = {"order": groups[-1].last - groups[0].first, "looks": groups[0].look - 100,
                "within": 5 * (groups[-1].last - groups[-1].first)}[self.reads]

        class Prefix:
            def ask(self, questions):
                signs = {"moving_right": 1, "moving_left": -1}
                return [type("R", (), {"logits": np.array([
                    0.4 * signs.get(q.id, 0) * seen - 1.0, 0.0])})() for q in questions]

        return Prefix()


def sliding_clip(seed: int) -> Clip:
    """Red counts up (right), down (left) or stays; green says which, as a model may cheat."""
    motion = ("right", "left", "still")[seed % 3]
    step = {"right": 1, "left": -1, "still": 0}[motion]
    frames = []
    for k in range(16):
        frame = np.zeros((4, 4, 3), np.uint8)
        frame[..., 0], frame[..., 1] = 100 + step * k, 100 + 10 * step
        frames.append(frame)
    return Clip(frames, truth_of(State(motion=motion, rate=0.2), 0.5), True)


@pytest.mark.slow
def test_temporal_tells_time_from_looks(monkeypatch):
    """The control: what is read off one frame gains nothing from time, and does not turn."""
    monkeypatch.setattr(temporal, "draw_motion_clip", sliding_clip)
    book = [Question(name, "?") for name in ("moving_left", "moving_right")]
    honest = temporal.summary(temporal.watch(Oracle("order"), book, [], 60))
    assert honest["accuracy"]["full"] == 1.0 and honest["accuracy"]["single"] == 0.5
    assert honest["temporal_gain"] == 0.5 and honest["reversal_consistency"] == 1.0
    assert 0.0 < honest["shuffled_gain"] < 0.5
    low, high = honest["ci"]["temporal_gain"]
    assert low <= 0.5 <= high
    brief = temporal.summary(temporal.watch(Oracle("within"), book, [], 60))
    assert brief["temporal_gain"] == brief["shuffled_gain"] == 0.5
    assert abs(brief["scrambled_gain"]) < 0.15 and brief["reversal_consistency"] == 1.0
    cheat = temporal.summary(temporal.watch(Oracle("looks"), book, [], 60))
    assert cheat["accuracy"]["full"] == 1.0 and cheat["temporal_gain"] == 0.0
    assert cheat["reversal_consistency"] == 0.0


@pytest.mark.slow
def test_temporal_prints_and_draws(engine, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    result = temporal.temporal(clips=6, heads=[motion_head(engine, "receding")], engine=engine)
    temporal.print_temporal(result)
    assert "temporal_gain" in capsys.readouterr().out
    assert set(result["accuracy"]) == set(temporal.FORMS)
    temporal.plot_temporal(result, str(tmp_path / "t.png"))
    assert (tmp_path / "t.png").stat().st_size > 5000
    with pytest.raises(ValueError, match="must end in one of"):
        temporal.plot_temporal(result, str(tmp_path / "t.doc"))


@pytest.mark.slow
def test_the_ladder(engine, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    result = json.loads(json.dumps(ladder.ladder(clips=20, engine=engine)))
    assert result["n_layers"] == engine.n_layers == len(result["ms"])
    for name, row in result["families"].items():
        for key in ("layers", "exits", "exit_accuracy"):
            assert len(row[key]) == engine.n_layers, (name, key)
    ladder.print_ladder(result)
    assert "presence" in capsys.readouterr().out
    ladder.plot_ladder(result, str(tmp_path / "l.svg"))
    assert (tmp_path / "l.svg").read_text().startswith("<?xml")
    with pytest.raises(StudyError, match="10 clips are too few"):
        ladder.ladder(clips=10, engine=engine)


def test_probes_find_what_is_there_and_nothing_else():
    """A fact written into layer 2 is readable there, not at layer 1, and not from the wording."""
    rng = np.random.default_rng(0)
    clips, names = 200, list(MOTION)
    truth = rng.random((clips, 4)) < 0.5
    hidden = rng.normal(size=(clips, 4, 2, 12)).astype(np.float32)
    hidden[:, :, 1, 3] += 4.0 * truth
    vision = rng.normal(size=(clips, 6))
    vision[:, 0] += 4.0 * truth[:, 2]
    seen = ladder.LayerStates(names, hidden, hidden[..., 3], rng.normal(size=(4, 5)), vision, truth)
    row = ladder.probes(seen)["motion"]
    assert row["layers"][1] > 0.95 and abs(row["layers"][0] - 0.5) < 0.12
    assert abs(row["text_only"] - 0.5) < 0.12
    assert 0.55 < row["vision_only"] < 0.9  # one question of four
    assert row["exits"][1] > 0.95 > row["exits"][0]
    assert row["exit_accuracy"][1] > 0.85


@pytest.mark.slow
def test_the_wording_alone_tells_what_is_nearly_always_so():
    rng = np.random.default_rng(1)
    truth = rng.random((200, 4)) < np.array([0.95, 0.9, 0.1, 0.05])
    seen = ladder.LayerStates(list(MOTION), rng.normal(size=(200, 4, 1, 6)), np.zeros((200, 4, 1)),
                       rng.normal(size=(4, 5)), rng.normal(size=(200, 3)), truth)
    assert ladder.probes(seen)["motion"]["text_only"] > 0.85


def test_one_answer_only_is_said(engine):
    seen = ladder.LayerStates(["person"], np.zeros((40, 1, 2, 4)), np.zeros((40, 1, 2)),
                              np.zeros((1, 3)), np.zeros((40, 3)), np.ones((40, 1), bool))
    with pytest.raises(StudyError, match="only one answer"):
        ladder.probes(seen)


@pytest.mark.slow
def test_the_baselines(engine, tmp_path, capsys, monkeypatch):
    pytest.importorskip("matplotlib", reason="figures need matplotlib")
    result = json.loads(json.dumps(baseline.baseline(clips=20, test=20, cnn=False, engine=engine)))
    assert list(result["methods"]) == ["zero_shot", "decision_probe", "pooled_probe"]
    # An open door makes the clip brighter: the vision features know.
    assert result["methods"]["pooled_probe"]["door_open"]["auroc"] > 0.9
    assert "siglip" in result["left_out"]
    baseline.print_baseline(result)
    assert "without siglip" in capsys.readouterr().out
    baseline.plot_baseline(result, str(tmp_path / "b.png"))
    with pytest.raises(StudyError, match="5 clips are too few"):
        baseline.baseline(clips=40, test=5, engine=engine)
    with pytest.raises(ImportError, match="torch"):  # asked for and absent: no silent leaving out
        monkeypatch.setitem(sys.modules, "torch", None)
        image_models.small_cnn(np.zeros((2, 2, 8, 8, 3), np.uint8), np.ones((2, 1), bool),
                               np.zeros((1, 2, 8, 8, 3), np.uint8))


def bright_frames(rng, count):
    truth = rng.random((count, 2)) < 0.5
    frames = rng.integers(0, 60, (count, 2, 48, 64, 3), dtype=np.uint8)
    for k in range(count):
        frames[k, :, 8:24, 8:24] += np.uint8(120 * truth[k, 0])
        frames[k, 1] += np.uint8(60 * truth[k, 1])  # brighter at the end: a change over time
    return frames, truth


def test_the_small_network_learns():
    pytest.importorskip("torch", reason="the small network needs PyTorch")
    rng = np.random.default_rng(0)
    (frames, truth), (test, told) = bright_frames(rng, 96), bright_frames(rng, 48)
    p = image_models.small_cnn(frames, truth, test, epochs=15)
    assert p.shape == (48, 2)
    assert min(auroc(told[:, k], p[:, k]) for k in range(2)) > 0.9


def test_siglip_features(tmp_path):
    pytest.importorskip("torch", reason="SigLIP needs PyTorch")
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel

    small = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 2}
    model = SiglipModel(SiglipConfig(text_config=small, vision_config={
        **small, "image_size": 32, "patch_size": 16}))
    model.save_pretrained(tmp_path / "siglip")
    SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "siglip")
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 255, (48, 64, 3), dtype=np.uint8) for _ in range(5)]
    features = image_models.siglip_features(tmp_path / "siglip", images)
    assert features.shape == (5, 32) and np.isfinite(features).all()
    assert not np.allclose(features[0], features[1])


def test_siglip_that_is_not_there(tmp_path):
    pytest.importorskip("torch", reason="SigLIP needs PyTorch")
    with pytest.raises(ValueError, match="not a checkpoint folder"):
        image_models.siglip_features(tmp_path, [])


def test_a_head_of_another_model_is_named_by_the_command(tmp_path, capfd):
    from tiny import write_checkpoint

    from vlm_decisions.runtime.heads import write_head

    model = write_checkpoint(tmp_path / "tiny")
    write_head(tmp_path / "h.npz", Head("person", "person", "mean", np.ones(128, np.float32), 0.0,
                                        1.0, "another", 1024))
    for args in (["study", "score", "--clips", "4"], ["study", "temporal", "--clips", "4"]):
        assert cli.main([*args, "--model", str(model), "--heads", str(tmp_path / "h.npz")]) == 1
        err = capfd.readouterr().err
        assert "h.npz" in err and "another" in err and "Traceback" not in err
    assert cli.main(["study", "score", "--clips", "4", "--model", str(model), "--heads",
                     str(tmp_path / "tiny")]) == 1
    assert "there is no head" in capfd.readouterr().err


def test_answers_keep_their_truth():
    answers = ClipAnswers(truth=[{"a": "yes"}, {"a": "no"}])
    assert answers.told("a").tolist() == [True, False]
