"""The soak of the node, with a model that is not there; and that it finds what is broken."""

import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from fake_model import FakeModel
from ros_peer import QUESTIONS  # sets the environment for rclpy

from vlm_decisions import cli
from vlm_decisions.lab.bench import soak as soak_test
from vlm_decisions.lab.bench.soak import Soak
from vlm_decisions.lab.bench.soak_images import ENCODINGS, encoded
from vlm_decisions.lab.bench.soak_rig import bench_soak
from vlm_decisions.runtime.gate import Gate
from vlm_decisions.runtime.scheduler import Scheduler
from vlm_decisions.runtime.tick import Processor
from vlm_decisions.sources.images import image_to_rgb
from vlm_decisions.viewer import overlay

pytestmark = pytest.mark.slow

KEYS = {"rss_mb", "ticks", "faults", "missed", "stale_as_fresh", "tracebacks"}


@pytest.fixture
def soak(tmp_path, monkeypatch):
    def run(frame_s, *kinds, say=None):
        if kinds:  # one size of images: memory is looked at where all faults are
            monkeypatch.setattr(soak_test, "SIZES", 3 * soak_test.SIZES[2:3])
        file = tmp_path / "questions.yaml"
        file.write_text(QUESTIONS)
        said = []
        result = bench_soak(10.0, engine_factory=lambda *_: FakeModel(), questions=str(file),
                            frame_s=frame_s, kinds=kinds, say=said.append)
        assert json.loads(json.dumps(result)) == result and set(result) == KEYS
        return result, said
    return run


def counts(result):
    return result["missed"], result["stale_as_fresh"], result["tracebacks"]


def test_every_fault_is_survived(soak):
    kinds = {name.removeprefix("do_") for name in vars(Soak) if name.startswith("do_")}
    result, said = soak(150.0)
    assert counts(result) == (0, 0, 0), said
    assert set(result["faults"]) == kinds and len(kinds) == 16
    assert result["ticks"] > 300
    assert set(result["rss_mb"]) == {"start", "middle", "end"}
    assert all(20 < mb < 8000 for mb in result["rss_mb"].values())


def test_questions_that_are_skipped_are_found(soak, monkeypatch):
    due = Scheduler.due
    groups = iter(range(10**6))

    def forgetful(self, questions, t_ns):
        lost = next(groups) % 10 == 0
        return [q for q in due(self, questions, t_ns) if not (lost and q.id == "person")]

    monkeypatch.setattr(Scheduler, "due", forgetful)
    result, said = soak(16.0, "late_image")
    assert result["missed"] >= 2 and counts(result)[1:] == (0, 0), said
    assert any(line.startswith("missed: person") for line in said)


@pytest.mark.parametrize("kind", ["stall", "engine_stall", "cover", "wrong_stamps"])
def test_stale_answers_are_found(soak, monkeypatch, kind):
    for check in ("_absent", "_outlived", "_overdue"):
        monkeypatch.setattr(Gate, check, lambda *args: "")
    for check in ("_old", "cause"):
        monkeypatch.setattr(Gate, check, lambda *args: ("ok", ""))
    result, said = soak(14.0, kind)
    assert result["stale_as_fresh"] > 0 and result["tracebacks"] == 0, said


def test_a_fault_in_a_timer_is_found(soak, monkeypatch):
    monkeypatch.setattr(overlay, "draw", lambda *args, **more: {}["gone"])
    result, _ = soak(8.0, "late_image")
    assert result["tracebacks"] > 0 and counts(result)[:2] == (0, 0)


def test_a_fault_in_the_engine_thread_is_found(soak, monkeypatch):
    tier1 = Processor.tier1
    groups = iter(range(10**6))

    def faulty(self, encoded, due):
        return tier1(self, encoded, due) if next(groups) % 8 else {}["gone"]

    monkeypatch.setattr(Processor, "tier1", faulty)
    result, _ = soak(8.0, "late_image")
    assert result["tracebacks"] > 0 and result["missed"] > 0


def test_a_request_that_is_wrongly_taken_is_found(soak, monkeypatch):
    monkeypatch.setattr("vlm_decisions.ros.services.MAX_TIMEOUT_S", 1e9)
    monkeypatch.setattr("vlm_decisions.questions.MAX_TEXT", 10**9)
    result, _ = soak(12.0, "bad_request")
    assert result["tracebacks"] > 0


def test_every_traceback_is_counted_wherever_it_comes_from():
    script = """
import os, sys, threading, traceback
from vlm_decisions.lab.bench.stderr_watch import StderrWatch
with StderrWatch() as watch:
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
    print("noise", file=sys.stderr)
    try:
        raise KeyError("b")
    except KeyError:
        traceback.print_exc()
    os.write(2, b"Traceback (most recent call last):\\n  native\\nAbort: from C\\nnoise\\n")
print(watch.count)
print("after", file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "3\n", done.stderr
    # Only they are let through; and afterwards everything is again.
    assert "ZeroDivisionError" in done.stderr and "KeyError" in done.stderr
    assert "Abort: from C" in done.stderr and "noise" not in done.stderr
    assert done.stderr.endswith("after\n")


@pytest.mark.parametrize("padding", [0, 13])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_good_images_are_good(encoding, padding):
    rgb = np.random.default_rng(0).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    want = rgb[..., 1:2].repeat(3, axis=2) if encoding == "mono8" else rgb
    np.testing.assert_array_equal(image_to_rgb(encoded(rgb, 10**18, encoding, padding)), want)


@pytest.mark.parametrize(("wrong", "code"), [
    ({}, 0), ({"missed": 1}, 1), ({"stale_as_fresh": 2}, 1), ({"tracebacks": 3}, 1)])
def test_the_command_fails_where_the_soak_does(tmp_path, monkeypatch, capsys, wrong, code):
    result = {"rss_mb": {"start": 1.0, "middle": 1.0, "end": 1.0}, "ticks": 9, "faults": {},
              "missed": 0, "stale_as_fresh": 0, "tracebacks": 0, **wrong}
    given = {}

    def soak(minutes, seed, *, questions, say):
        given.update(minutes=minutes, seed=seed, questions=questions)
        say("a minute has passed")
        return result

    monkeypatch.setattr("vlm_decisions.lab.bench.soak_rig.bench_soak", soak)
    out = tmp_path / "soak.json"
    assert cli.main(["bench", "soak", "--minutes", "2", "--json", str(out)]) == code
    assert given == {"minutes": 2.0, "seed": 0, "questions": "desk"}
    assert json.loads(out.read_text()) == result
    assert "a minute has passed" in capsys.readouterr().out
