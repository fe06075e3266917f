"""`vlm-decisions run`: the present of a video, of a camera that fails, and what is said of them."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
from material import material

from vlm_decisions import cli
from vlm_decisions.commands.playing import play
from vlm_decisions.commands.run import summary
from vlm_decisions.frames import Frame
from vlm_decisions.model_scope import OUT_OF_SCOPE, scope_warning
from vlm_decisions.runtime.statistics import RuntimeStats
from vlm_decisions.sources.live import LiveSource
from vlm_decisions.sources.video import VideoFile

CAMERA = ("", "")
VIDEO = ("videos", "intel_car-detection.mp4")  # 30 s at 12.5 Hz


class SlowRuntime:
    """Takes frames slowly, as on a machine that is busy; notes how old each is when it comes."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.ages: list[float] = []
        self.stamps: list[int] = []
        self.checks = 0

    def push(self, frame: Frame, camera: tuple[str, str]) -> None:
        self.ages.append((time.time_ns() - frame.stamp_ns) / 1e9)
        self.stamps.append(frame.stamp_ns)
        time.sleep(self.seconds)

    def check_freshness(self) -> None:
        self.checks += 1

    def questions(self) -> tuple:
        return ()


class SlowVideo:
    """Frames whose decoding takes longer than they last."""

    shortfall = ""
    ended = False
    at = -1

    def next(self, from_s: float = 0.0):
        while True:
            self.at += 1
            if self.at == 30:
                self.ended = True
                return None
            time.sleep(0.1)
            if self.at / 20 >= from_s:
                return np.zeros((4, 4, 3), np.uint8), self.at / 20


@pytest.mark.parametrize("slow", ["runtime", "decoding"])
def test_the_newest_frame_is_never_far_behind(slow):
    """A machine that cannot keep up passes frames over, or plays more slowly."""
    runtime = SlowRuntime(0.4 if slow == "runtime" else 0.0)
    frames = VideoFile(material(*VIDEO)) if slow == "runtime" else SlowVideo()
    play({CAMERA: frames}, runtime, print, max_s=6.0)
    # Old code: the last of them is as old as the delays together, several seconds.
    assert len(runtime.ages) > 5 and max(runtime.ages) < 1.5
    assert runtime.stamps == sorted(runtime.stamps) and runtime.checks > 3


class Camera:
    """A live source that gives a frame, then nothing for a while, then another."""

    name, shortfall, trouble = "the camera", "", ""
    ended = False
    calls = 0

    def next(self, from_s: float = 0.0):
        self.calls += 1
        if self.calls in (1, 8):
            self.trouble = ""
            return np.zeros((4, 4, 3), np.uint8), time.monotonic() - 0.05
        time.sleep(0.1)
        self.trouble = "the camera: connection refused"
        self.ended = self.calls > 10
        return None


def test_a_camera_that_fails_is_waited_for():
    runtime = SlowRuntime(0.0)
    said: list[str] = []
    play({CAMERA: Camera()}, runtime, said.append)
    assert len(runtime.ages) == 2 and all(0.0 <= age < 2.0 for age in runtime.ages)
    assert runtime.checks >= 2  # answers become unknown meanwhile
    assert said[:2] == ["the camera: connection refused; trying again", "the camera is back"]


class Reader:
    """A connection whose frames come at once, with times of the camera's own clock."""

    def frames(self):
        for k in range(20):
            yield lambda: np.zeros((4, 4, 3), np.uint8), 5000.0 + k / 20
            time.sleep(0.05)
        time.sleep(60.0)

    def close(self) -> None:
        pass


def test_the_frames_of_a_live_source_are_of_now():
    runtime = SlowRuntime(0.0)
    play({CAMERA: LiveSource("camera", lambda wait_s: Reader())}, runtime, print, max_s=2.0)
    assert len(runtime.ages) > 3 and all(-0.1 < age < 1.0 for age in runtime.ages)


def run(*args: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "vlm_decisions.cli", "run", *args], text=True,
                          capture_output=True, timeout=120, check=False,
                          env={**os.environ, **environment})


def test_what_broke_windows_off_is_said():
    """Else a video whose frames come too far apart is one of no groups, and nothing says why."""
    stats = RuntimeStats(
        frames=40, groups=0, ticks=0, decisions=0, segments=0, scene_changes=0, skipped=0, errors=0,
        dropped={}, queue=0, tick_ms={}, age_ms={}, rates_hz={}, image_rate_hz=10.0,
        image_age_s=0.1, condition="", last_error="", model="", breaks={"gaps": 19, "resized": 0})
    assert list(summary(stats)) == [
        "40 frames, 0 of 0 groups answered, dropped: none; 0 decisions",
        "windows broken off: 19 gaps",
    ]
    assert len(list(summary(replace(stats, breaks={"gaps": 0})))) == 1


@pytest.mark.slow
def test_a_terminal_without_the_characters(tmp_path):
    questions = tmp_path / "q.yaml"
    questions.write_text("- {id: activity, text: 何をしていますか, kind: choice, "
                         "options: [タイピング, 読書]}\n", encoding="utf-8")
    log = tmp_path / "log.jsonl"
    done = run("--source", str(material(*VIDEO)), "--questions", str(questions), "--no-view",
               "--seconds", "3", "--log", str(log), PYTHONIOENCODING="ascii", LC_ALL="C",
               PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert "activity: ??" in done.stdout
    assert any(word in log.read_text(encoding="utf-8") for word in ("タイピング", "読書"))


@pytest.mark.slow
@pytest.mark.parametrize("display", [{"DISPLAY": ":77"},
                                     {"DISPLAY": "", "WAYLAND_DISPLAY": "wayland-77"}])
def test_a_display_that_is_stale_ends_nothing(display):
    done = run("--source", str(material(*VIDEO)), "--seconds", "3", **display)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no window: this display cannot be used") == 1
    assert "qt" not in done.stderr.lower() and "groups answered" in done.stdout


@pytest.mark.slow
def test_the_model_of_the_simulated_desk_says_that_it_knows_nothing_else():
    done = run("--source", str(material(*VIDEO)), "--no-view", "--seconds", "1")
    (line,) = [line for line in done.stderr.splitlines() if "sim_desk" in line]
    assert "knows only the simulated desk" in line and "--model" in line


def test_what_the_embedded_model_may_look_at():
    assert "means nothing" in scope_warning("sim_desk", simulated=False)
    assert not scope_warning("sim_desk", simulated=True)
    assert not scope_warning("/models/qwen", simulated=False)
    assert OUT_OF_SCOPE


@pytest.mark.slow
def test_the_page_outlives_the_file(capsys):
    """It stays after the file's end, says so, and neither health nor answers are what they were."""
    import json

    from viewer_site import until
    from websockets.sync.client import connect

    source = str(material("videos", "openh264_Zhling_1280x720.264"))  # less than a second
    results = []
    thread = threading.Thread(target=lambda: results.append(
        cli.main(["run", "--source", source, "--viewer", "--port", "0", "--seconds", "6"])))
    thread.start()
    out = ""
    end = time.monotonic() + 60.0
    while "the page stays until Ctrl-C" not in out and time.monotonic() < end:
        out += capsys.readouterr().out
        time.sleep(0.05)
    url = out.split("viewer: ", 1)[1].split()[0]
    kinds = set()
    answers: set[str] = set()
    while time.monotonic() < end and answers != {"unknown"}:
        with urllib.request.urlopen(f"{url}/api/state", timeout=5.0) as reply:
            state = json.load(reply)
        answers = {row["answer"] for row in state.get("rows", ())}
        kinds.add(state["state"]["kind"])
        time.sleep(0.2)
    assert answers == {"unknown"} and kinds == {"ended"}  # and not that the camera has gone
    assert any("the recording has ended" in row["reason"] for row in state["rows"])
    with connect(url.replace("http", "ws") + "/live", proxy=None) as live:
        live.send(json.dumps({"watch": "camera"}))  # the last picture, for a page that comes now
        assert until(live, lambda message: isinstance(message, bytes))[:2] == b"\xff\xd8"
    thread.join(60.0)
    assert results == [0]


@pytest.mark.slow
def test_output_that_nobody_reads(monkeypatch):
    """`| head` ends the command without a second complaint."""
    done = subprocess.run(
        f"{sys.executable} -m vlm_decisions.cli bench engine --questions 1 --repeat 1 --layers 1"
        " | head -c 1", shell=True, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_what_a_command_prints_is_replaced_where_the_terminal_lacks_it(monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    cli._replace_what_cannot_be_shown()
    print("読書", flush=True)
    assert raw.getvalue() == b"??\n"


def test_streams_without_an_encoding_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    cli._replace_what_cannot_be_shown()


@pytest.mark.slow
def test_a_decision_model_answers_about_a_video(tmp_path):
    from decision_checkpoints import write_d1_omni
    from pixel_model import write_video
    from tiny import moving_frames

    from vlm_decisions.runtime.log import read_log

    video = write_video(tmp_path / "film.mp4", moving_frames(24))
    log = tmp_path / "log.jsonl"
    model = str(write_d1_omni(tmp_path / "d1_omni"))
    assert cli.main(["run", "--source", str(video), "--model", model, "--no-view", "--ask",
                     "Is a person present?", "--log", str(log)]) == 0
    told = [one for one in read_log(log) if one["question_id"] == "ask_1"]
    answered = [one for one in told if one["answer"] != "unknown"]
    assert answered and all(one["t_start"] == one["t_end"] for one in answered)
    assert {one["model"] for one in answered} == {model}
