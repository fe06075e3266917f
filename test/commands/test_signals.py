"""A signal ends every command quietly with exit code 130, wherever it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from material import material
from shared_memory import segments_of
from waiting import wait_for

from vlm_decisions import cli
from vlm_decisions.commands import signals

VIDEO = ("videos", "intel_car-detection.mp4")


def start(*args: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", "vlm_decisions.cli", *args], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, **environment})


def wait_for_library(process: subprocess.Popen, name: str) -> None:
    """Wait until the process has a library in its memory: how far it is, whatever that takes."""
    end = time.monotonic() + 120.0
    while time.monotonic() < end and process.poll() is None:
        if name in Path(f"/proc/{process.pid}/maps").read_text():
            return
        time.sleep(0.005)
    raise AssertionError(f"it never loaded {name}: {process.communicate()}")


def end(process: subprocess.Popen, number: int, again: bool) -> str:
    process.send_signal(number)
    if again:
        time.sleep(0.2)
        process.send_signal(number)
    _, err = process.communicate(timeout=60.0)
    assert process.returncode == 130, err
    assert "Traceback" not in err and "Error" not in err and "cannot" not in err
    return err


needs_proc = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc here")


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(("args", "library"), [
    (["run", "--no-view", "--source"], "_multiarray_umath"),  # NumPy is being imported
    (["run", "--no-view", "--source"], "libmlx"),  # the model is being loaded
    (["check", "exactness"], "libmlx"),  # MLX is being imported, by the main thread
    (["bench", "soak", "--minutes", "1"], "libmlx"),
    (["record", "--sim", "--out"], "_multiarray_umath"),
])
def test_an_interrupt_while_it_starts(args, library, again, tmp_path):
    if args[-1] == "--source":
        args = [*args, str(material(*VIDEO))]
    elif args[-1] == "--out":
        args = [*args, str(tmp_path / "bag")]
    process = start(*args)
    wait_for_library(process, library)
    end(process, signal.SIGINT, again)


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("args", [["view", "--sim", "--port", "0"], ["demo", "--quiet"],
                                  ["bench", "tick", "--seconds", "60"], ["replay"]])
def test_an_interrupt_of_what_uses_ros(args, number):
    """Also of commands whose own processes are still starting; none of those is left behind."""
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    if args == ["replay"]:
        args = ["replay", str(material(*VIDEO))]
    process = start(*args)
    wait_for_library(process, "librcl")
    time.sleep(1.0)
    children = descendants(process.pid)
    segments = set().union(*map(segments_of, [process.pid, *children]))
    end(process, number, number == signal.SIGINT)
    assert not any(map(is_alive, children))
    assert not [path for path in segments if path.exists()]


def descendants(pid: int) -> list[int]:
    """Return the processes below one, at any depth."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGKILL])
@pytest.mark.parametrize("args", [["view", "--sim", "--port", "0"], ["demo", "--quiet"],
                                  ["bench", "tick", "--seconds", "60"],
                                  ["bench", "engine", "--layers", "1", "--questions", "1",
                                   "--repeat", "1"]])
def test_no_process_outlives_its_command(args, number):
    """Not even where the command is killed and can see to nothing."""
    if args[0] != "bench" or args[1] == "tick":
        pytest.importorskip("rclpy", reason="rclpy is not installed")
    process = start(*args)
    children = wait_for(lambda: process.poll() is not None or descendants(process.pid), 120.0)
    assert process.poll() is None, process.communicate()
    process.send_signal(number)
    _, err = process.communicate(timeout=60.0)
    assert process.returncode == (130 if number == signal.SIGHUP else -signal.SIGKILL)
    assert "Traceback" not in err
    wait_for(lambda: not any(map(is_alive, children)), 30.0)


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_what_it_saw(number, tmp_path):
    log = tmp_path / "out.jsonl"
    process = start("run", "--no-view", "--log", str(log), "--source", str(material(*VIDEO)))
    deadline = time.monotonic() + 120.0
    while not (log.exists() and log.stat().st_size) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    out, err = process.communicate(timeout=60.0)
    assert process.returncode == 130 and "groups answered" in out
    assert "Traceback" not in err and "closed" not in err


AT_FIRST = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "vlm_decisions.commands.signals":
            os.kill(os.getpid(), signal.{name})
            sum(range(1000))  # a turn of the interpreter, in which the handler runs

sys.meta_path.insert(0, Interrupting())
sys.argv = ["vlm-decisions", "--version"]
from vlm_decisions.cli import main
sys.exit(main())
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_in_the_first_moment(name):
    done = subprocess.run([sys.executable, "-c", AT_FIRST.format(name=name)], text=True,
                          capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_nothing_is_imported_before_signals_are_taken_care_of():
    """Python's own start cannot be reached: all that comes before is this package's."""
    code = ("import importlib, signal, sys\nbefore = set(sys.modules)\n"
            "import vlm_decisions.cli, vlm_decisions.ros.programs\n"
            "print(*sorted(name for name in set(sys.modules) - before "
            "if name.partition('.')[0] not in ('vlm_decisions', '__future__', 'importlib')))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_signal_that_is_ignored_stays_so(monkeypatch):
    """As SIGHUP is under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert interrupted(monkeypatch, lambda: signal.raise_signal(signal.SIGHUP) or 0) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    assert interrupted(monkeypatch, lambda: signal.raise_signal(signal.SIGHUP) or 0) == 130


def interrupted(monkeypatch, command) -> int:
    """Run a command's body in this process, as the command line would."""
    monkeypatch.setattr(cli, "_run", lambda args: command())
    return cli.main([])


def test_what_fails_because_of_the_signal_is_not_reported(monkeypatch, capsys):
    def command() -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5.0)
        except BaseException as error:
            raise RuntimeError("the model cannot be loaded") from error
        return 0

    assert interrupted(monkeypatch, command) == 130
    assert capsys.readouterr() == ("", "")


def test_a_command_that_ends_well_in_spite_of_the_signal_was_interrupted(monkeypatch):
    def command() -> int:
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            pass
        signal.raise_signal(signal.SIGINT)  # cleaning up goes on
        return 0

    assert interrupted(monkeypatch, command) == 130


def test_threads_that_fail_after_the_signal_are_quiet(monkeypatch, capsys):
    def command() -> int:
        def fail() -> None:
            raise ValueError("the context is gone")

        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            thread = threading.Thread(target=fail)
            thread.start()
            thread.join()
            raise
        return 0

    hook = threading.excepthook
    assert interrupted(monkeypatch, command) == 130
    assert capsys.readouterr() == ("", "") and threading.excepthook is hook


def test_who_calls_the_command_from_python_lives_on(monkeypatch):
    """The process is ended only where cleaning up does not end by itself."""
    ended = []
    monkeypatch.setattr(signals, "GRACE_S", 0.2)
    monkeypatch.setattr(signals, "leave", lambda: ended.append("the process"))
    assert interrupted(monkeypatch, lambda: signal.raise_signal(signal.SIGINT) or 0) == 130
    time.sleep(0.5)
    assert not ended

    def slow_to_end() -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            end = time.monotonic() + 10.0
            while not ended and time.monotonic() < end:
                time.sleep(0.01)
        return 0

    assert interrupted(monkeypatch, slow_to_end) == 130 and ended == ["the process"]


def test_an_import_is_not_interrupted_in_the_middle(monkeypatch, tmp_path):
    monkeypatch.setattr(signals, "IMPORT_S", 60.0)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "slow_to_import.py").write_text(
        "import os, signal, time\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "end = time.monotonic() + 0.3\n"
        "while time.monotonic() < end: time.sleep(0.01)\n"
        "done = True\n")
    seen = []

    def command() -> int:
        import slow_to_import

        seen.append(slow_to_import.done)
        time.sleep(30.0)
        return 0

    assert interrupted(monkeypatch, command) == 130
    assert seen == [True]


def test_the_handlers_are_put_back(monkeypatch):
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    assert interrupted(monkeypatch, lambda: 0) == 0
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_faults_of_the_program_are_not_hidden(monkeypatch):
    def command() -> int:
        raise TypeError("a fault")

    with pytest.raises(TypeError, match="a fault"):
        interrupted(monkeypatch, command)
