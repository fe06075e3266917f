"""A full disk: one clear error, everything else goes on, and the exit code is not 0."""

from __future__ import annotations

import json
import os
import resource
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from pixel_model import noise_video
from viewer_site import decision

from vlm_decisions.files.atomic import write_json, write_text
from vlm_decisions.runtime.log import DecisionLog, RecordError

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")


def command(*args: str, **files: object) -> subprocess.CompletedProcess:
    """Run vlm-decisions; its output is buffered as a user's, whatever the tests' is."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    files = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | files
    return subprocess.run([sys.executable, "-m", "vlm_decisions.cli", *args], text=True,
                          timeout=120, check=False, env=environment, **files)


@contextmanager
def room(size: int):
    """Let this process write no file larger than so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def film(tmp_path):
    return str(noise_video(tmp_path / "film.mp4", 48))


@pytest.mark.slow
def test_a_run_whose_log_cannot_be_written(film):
    done = command("run", "--source", film, "--no-view", "--log", str(FULL))
    assert done.returncode == 1
    assert done.stderr.count("/dev/full: No space left on device") == 1
    assert "decisions are missing in /dev/full" in done.stderr
    assert "groups answered" in done.stdout and "person: " in done.stdout


@pytest.mark.slow
def test_output_that_cannot_be_written(film):
    for args in (["--version"], ["run", "--source", film, "--no-view"]):
        with open(FULL, "w") as out:
            done = command(*args, stdout=out)
        assert done.returncode == 1
        said = [line for line in done.stderr.splitlines() if not line.startswith("warning")]
        assert said == ["vlm-decisions: [Errno 28] No space left on device: 'standard output'"]


def test_a_log_may_be_a_device_or_a_pipe(tmp_path):
    with DecisionLog(FULL, max_bytes=10) as log:
        for count in (1, 2):
            with pytest.raises(RecordError, match="/dev/full: No space left on device"):
                log.write(decision("person"))
            assert log.missing == count
    assert stat.S_ISCHR(FULL.stat().st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with DecisionLog(pipe, max_bytes=10) as log, open(pipe) as lines:
        for name in ("person", "cup"):  # no rotation: a pipe has no size
            log.write(decision(name))
            assert json.loads(lines.readline())["question_id"] == name
    assert os.listdir(tmp_path) == ["pipe"]


def test_a_device_is_written_to_and_not_replaced():
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        write_json(FULL, {"x": 1})
    assert stat.S_ISCHR(FULL.stat().st_mode)
    write_text("/dev/null", "x")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_a_file_that_finds_no_room_is_named_and_stays_as_it_was(tmp_path):
    path = tmp_path / "result.json"
    write_text(path, "old")
    with room(100), pytest.raises(OSError, match="File too large: '.*result.json'"):
        write_json(path, list(range(100)))
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["result.json"]


def test_a_bag_that_finds_no_room_is_named(tmp_path):
    pytest.importorskip("rosbags", reason="rosbags is not installed")
    from vlm_decisions.lab.replay.record_sim import record_sim
    from vlm_decisions.sources.bags import BagError

    with room(20_000), pytest.raises(BagError, match="bag: cannot be written: .*File too large"):
        record_sim(tmp_path / "bag", 4, width=96, height=96, fps=4.0)
