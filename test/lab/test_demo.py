"""The main job end to end: camera process, node process, DDS, the embedded model, the score."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from waiting import wait_for

pytest.importorskip("rclpy", reason="rclpy is not installed")

from vlm_decisions.lab.demo import process

pytestmark = pytest.mark.slow


def command(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "vlm_decisions.cli", *args], timeout=240,
                          capture_output=True, text=True, check=False)


def test_demo_decides_and_scores(tmp_path):
    out, picture = tmp_path / "demo.json", tmp_path / "demo.png"
    done = command("demo", "--seconds", "10", "--json", str(out), "--picture", str(picture))
    assert done.returncode == 0, done.stderr
    assert "truth" in done.stdout and "decisions; right in" in done.stdout
    summary = json.loads(out.read_text())
    assert {"decisions", "accuracy", "age_ms", "questions"} <= summary.keys()
    assert summary["decisions"] > 100 and summary["judged"] > 50
    assert 0 < summary["age_ms"]["p50"] <= summary["age_ms"]["p95"]
    assert summary["questions"]["person"]["accuracy"] >= 0.9
    assert len(summary["questions"]) == 16
    assert summary["accuracy"] >= 0.6  # some questions are harder for it: see docs/model.md
    assert picture.stat().st_size > 10_000


def test_demo_says_which_part_failed(tmp_path):
    done = command("demo", "--seconds", "5", "--questions", str(tmp_path / "absent.yaml"))
    assert done.returncode == 1
    assert "absent.yaml" in done.stderr and "Traceback" not in done.stderr


def test_a_terminated_demo_leaves_no_process():
    """Its nodes hear nothing of a TERM that is sent to the command alone."""
    demo = subprocess.Popen([sys.executable, "-m", "vlm_decisions.cli", "demo", "--quiet"])

    def children() -> list[int]:
        tasks = Path(f"/proc/{demo.pid}/task/{demo.pid}/children").read_text()
        return [int(pid) for pid in tasks.split()]

    started = wait_for(children, 60)
    demo.terminate()
    assert demo.wait(20) == 130
    wait_for(lambda: not [pid for pid in started if Path(f"/proc/{pid}").exists()])


def test_bench_tick_reports_its_keys(tmp_path):
    out = tmp_path / "tick.json"
    done = command("bench", "tick", "--seconds", "5", "--json", str(out))
    assert done.returncode == 0, done.stderr
    result = json.loads(out.read_text())
    assert {"groups", "answered", "dropped", "questions", "message_to_runtime_ms",
            "outside_model_ms", "tick_ms"} <= result.keys()
    assert result["answered"] > 5 and result["questions"] == 16


def test_a_signal_that_another_thread_gets_leaves_no_child(monkeypatch):
    """Python runs the handler in the main thread, though the main thread holds signals back."""
    made = []
    start = subprocess.Popen

    def interrupted_start(command, **how):
        made.append(start([sys.executable, "-c", "import time; time.sleep(60)"], **how))
        other = threading.Thread(target=lambda: signal.pthread_sigmask(
            signal.SIG_UNBLOCK, [signal.SIGTERM]) and signal.raise_signal(signal.SIGTERM))
        other.start()
        other.join()
        return made[0]

    def interrupt(*_):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        monkeypatch.setattr("vlm_decisions.lab.demo.subprocess.Popen", interrupted_start)
        with pytest.raises(KeyboardInterrupt), process("decision_node"):
            pass
    finally:
        signal.signal(signal.SIGTERM, before)
    assert made[0].poll() is not None
