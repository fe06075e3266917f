"""The study of reuse: its figures on a short scene, its control, and the codec's rule."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("av", reason="PyAV is not installed")

from tiny import moving_frames, tiny_engine

from vlm_decisions import cli
from vlm_decisions.engine import Engine, StateError
from vlm_decisions.lab.bench.reuse import bench_reuse
from vlm_decisions.lab.studies import codec
from vlm_decisions.lab.studies.reuse import all_modes, keep, print_reuse, study_reuse
from vlm_decisions.lab.studies.window import WindowCase, print_window, study_window, tells
from vlm_decisions.reuse import ReuseSettings, measured_text, read_measured

SETTINGS = ReuseSettings("pixels")
KEYS = {"equal", "mean_dp", "worst_scene", "longest_wrong_groups", "accuracy", "heads_equal",
        "vision_share", "lm_share", "skipped_share", "flop_share", "cpu_ratio",
        "modes"}  # fmt: skip


@pytest.fixture(scope="module")
def engine():
    return Engine.load("sim_desk", warm=False)


@pytest.mark.slow
def test_the_figures_and_the_control_that_must_fail(engine, capsys):
    result = study_reuse(engine, 1, names=["reuse", "no_skip", "random", "paper_tau4_gop8"],
                         seconds=5.0)
    assert result.keys() >= KEYS
    modes = result["modes"]
    assert list(modes) == ["reuse", "no_skip", "random", "paper_tau4_gop8"]
    assert result["equal"] == modes["reuse"]["equal"] > 0.97
    assert modes["random"]["equal"] < 0.95
    assert 0 < modes["reuse"]["vision_share"] < 1
    assert modes["no_skip"]["lm_share"] == pytest.approx(1.0)
    assert modes["no_skip"]["skipped_share"] == 0
    assert modes["paper_tau4_gop8"]["lm_share"] < 1
    assert modes["random"]["vision_share"] == pytest.approx(0.25, abs=0.15)
    print_reuse(result)
    assert "paper_tau4_gop8" in capsys.readouterr().out
    json.dumps(result)


@pytest.mark.slow
def test_exact_settings_are_equal_in_all(engine):
    """Nothing counts as unchanged: every group is encoded in full."""
    settings = replace(SETTINGS, threshold=0.0)
    result = study_reuse(engine, 1, settings=settings, names=["reuse"], seconds=2.0)
    assert (result["equal"], result["vision_share"], result["mean_dp"]) == (1.0, 1.0, 0.0)


def test_a_mode_that_does_not_exist_is_refused(engine):
    with pytest.raises(ValueError, match="there is no mode nothing"):
        study_reuse(engine, 1, names=["nothing"])
    assert {"reuse", "random", "vectors", "paper_tau0.5_gop32"} <= all_modes(SETTINGS).keys()


def test_what_is_kept_is_that_checkpoints_and_those_settings(engine, tmp_path, monkeypatch):
    language = engine.language_fingerprint
    result = {"fingerprint": engine.fingerprint, "language": language,
              "settings": SETTINGS.values(), "equal": 0.9971, "worst_scene": 0.991,
              "scenes": 12, "modes": {}, "cameras": {}}  # fmt: skip
    monkeypatch.setattr(engine, "checkpoint", replace(engine.checkpoint, folder=tmp_path))
    keep(engine, result)
    assert "modes" not in json.loads((tmp_path / "reuse.json").read_text())
    kept = read_measured(tmp_path, engine.fingerprint, lambda: language)
    text = "0.9971 of answers as without, worst scene 0.9910 (12 scenes)"
    assert measured_text(kept, SETTINGS) == text
    assert measured_text(kept, replace(SETTINGS, threshold=3.0)) == (
        f"{text}, measured with other settings"
    )
    assert read_measured(tmp_path, "another", lambda: language) is None
    assert read_measured(tmp_path, engine.fingerprint, lambda: "another") is None
    (tmp_path / "reuse.json").write_text("[]")
    assert read_measured(tmp_path, engine.fingerprint, lambda: language) is None
    assert measured_text(None, SETTINGS).startswith("not measured")


def test_settings_out_of_range_are_refused_by_the_command(capsys):
    with pytest.raises(SystemExit):
        cli.main(["study", "reuse", "--reuse-full-above", "1.5"])
    assert "'1.5' is not a number from 0 to 1" in capsys.readouterr().err
    for mode in ("off", "vectors"):  # nothing to measure; motion vectors are a mode of the study
        with pytest.raises(SystemExit):
            cli.main(["study", "reuse", "--reuse", mode])
        assert f"invalid choice: '{mode}'" in capsys.readouterr().err


# -- the codec -----------------------------------------------------------------------------------


def moving(dx, n=6, size=(96, 128)):
    """Frames of a texture that moves by ``dx`` pixels a frame in their left half."""
    rng = np.random.default_rng(0)
    ground = rng.integers(0, 255, (size[0] // 4, size[1] // 4, 3), np.uint8)
    ground = ground.repeat(4, 0).repeat(4, 1)
    frames = []
    for i in range(n):
        frame = ground.copy()
        frame[:, : size[1] // 2] = np.roll(ground, dx * i, axis=1)[:, : size[1] // 2]
        frames.append(frame)
    return frames


def test_vectors_have_the_length_of_the_motion_and_lie_where_it_is():
    frames = list(codec.coded(moving(4), 16, 6))
    assert [frame.key for frame in frames] == [True] + [False] * 5
    assert not frames[0].motion.any()
    left, right = np.split(frames[3].length, 2, axis=1)
    assert np.median(left) == pytest.approx(4, abs=0.3)
    assert np.median(right) == 0


def test_the_predicted_picture_is_nearer_than_the_one_before():
    frames = list(codec.coded(moving(4), 16, 6))
    right = codec.prediction_error(frames[2].image, frames[3]).mean()
    still = codec.prediction_error(
        frames[2].image, replace(frames[3], motion=np.zeros_like(frames[3].motion))
    ).mean()
    wrong = codec.prediction_error(
        frames[2].image, replace(frames[3], motion=-frames[3].motion)
    ).mean()
    assert right < still / 2
    assert right < wrong / 2


def frame(length=0.0, where=(slice(0, 0), slice(0, 0)), key=False):
    motion = np.zeros((24, 32, 2), np.float32)
    motion[where] = (length, 0)
    return codec.Coded(key, motion, np.zeros((96, 128, 3), np.uint8))


def test_once_dynamic_a_token_stays_so_until_the_next_key_frame():
    mask = codec.GopMask((3, 4), 2, tau=0.5)
    spot = (slice(0, 2), slice(0, 2))  # 8 pixels: one patch of token (0, 0)
    assert mask.push(frame(key=True)).all()
    assert not mask.push(frame()).any()  # the key frame itself does not count
    moved = mask.push(frame(0.6, spot))
    assert np.flatnonzero(moved).tolist() == [0]
    assert (mask.push(frame()) == moved).all()
    assert mask.push(frame(key=True)).all()
    assert not mask.push(frame(0.4, spot)).any()  # below tau


def test_a_block_counts_for_every_patch_it_overlaps():
    over = codec.over_patches(np.eye(6), (4, 4))  # 6 cells over 4 patches: 1.5 each
    want = [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    assert over.tolist() == want


def test_rescue_only_adds():
    plain, rescued = codec.GopMask((3, 4), 2, 0.5), codec.GopMask((3, 4), 2, 0.5, rescue=0.05)
    lit = np.zeros((96, 128, 3), np.uint8)
    lit[64:, 96:] = 200
    for mask in (plain, rescued):
        mask.push(frame(key=True))
    appeared = codec.Coded(False, np.zeros((24, 32, 2), np.float32), lit)
    assert not plain.push(appeared).any()
    assert np.flatnonzero(rescued.push(appeared)).tolist() == [11]


# -- windows moved on ----------------------------------------------------------------------------


@pytest.mark.slow
def test_windows_moved_on_and_the_control_that_must_fail(capsys):
    engine = tiny_engine("qwen3_vl")
    frames = moving_frames(24)
    cases = [WindowCase(), WindowCase(turned=False), WindowCase(gop=1), WindowCase(refresh=4),
             WindowCase(2, 4, 2.0)]  # fmt: skip
    rows = study_window(engine, lambda: frames, lambda gop: list(codec.coded(frames, 8, gop)),
                        cases=cases, groups=4)  # fmt: skip
    turned, still, anew, refreshed, dropped = rows
    assert anew["dp_max"] < 1e-5, "every group is an anchor"
    assert turned["dp"] < still["dp"] / 2, "control: keys that are not turned"
    assert tells(rows)
    assert (turned["rebuild"], anew["rebuild"]) == (0, pytest.approx(1, abs=0.1))
    assert turned["rebuild"] < refreshed["rebuild"] < anew["rebuild"]
    assert turned["new_kv"] == pytest.approx(1 / 4, abs=0.05)
    assert dropped["new_kv"] < 1
    assert turned["dp_all"] == turned["dp"]
    print_window(rows)
    assert "control differs no more" not in capsys.readouterr().out
    print_window([turned, {**still, "dp": turned["dp"]}, *rows[2:]])
    assert "control differs no more" in capsys.readouterr().out


def test_windows_of_a_hybrid_are_refused_by_name(engine):
    with pytest.raises(StateError, match="DeltaNet"):
        study_window(engine, list, lambda gop: [])


# -- the bench -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_bench_of_reuse():
    said = []
    result = bench_reuse("tiny", (128,), (1.0, 0.5, 0.25), repeat=1, say=said.append)
    rows = result["results"]
    assert [row["share"] for row in rows] == [1.0, 0.5, 0.25]
    assert rows[0]["vision_ratio"] == rows[0]["vision_flops"] == 1.0
    assert rows[2]["vision_flops"] == pytest.approx(0.25)
    assert rows[2]["vision_flops"] < rows[2]["tick_flops"] < 1
    assert [row["size"] for row in result["flops"]] == [128] * 3
    assert result["flops"][1]["vision_flops"] == pytest.approx(0.5)
    assert all(ms > 0 for ms in result["map_ms"].values())
    assert len(said) == 10
