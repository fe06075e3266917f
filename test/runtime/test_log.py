"""The decision log: whole lines whatever happens."""

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from vlm_decisions.decision import Decision
from vlm_decisions.runtime.log import DecisionLog, RecordError, read_log

DECISION = Decision(
    question_id="q",
    answer="yes",
    p=0.9,
    p_raw=0.9,
    options=(),
    probabilities=(),
    tier=2,
    depth=4,
    t_start_ns=0,
    t_end_ns=1,
    t_decided_ns=2,
    changed=False,
    since_ns=0,
    model="m",
)


def numbered(index):
    return dataclasses.replace(DECISION, t_decided_ns=index * 1_000_000_000)


def numbers(path):
    return [round(entry["t_decided"]) for entry in read_log(path)]


def test_each_decision_is_on_disk_as_a_line_as_soon_as_it_is_written(tmp_path):
    path = tmp_path / "log.jsonl"
    with DecisionLog(path) as log:
        for index in range(5):
            log.write(numbered(index))
            assert numbers(path) == list(range(index + 1))
    assert json.loads(path.read_text().splitlines()[0]) == numbered(0).to_dict()


def test_an_existing_log_is_continued(tmp_path):
    path = tmp_path / "log.jsonl"
    for index in range(3):
        with DecisionLog(path) as log:
            log.write(numbered(index))
    assert numbers(path) == [0, 1, 2]


def test_it_rotates_by_size_and_keeps_so_many(tmp_path):
    path = tmp_path / "log.jsonl"
    line = len(DECISION.to_json()) + 1
    with DecisionLog(path, max_bytes=3 * line + line // 2, keep=2) as log:
        for index in range(10):
            log.write(numbered(index))
    assert sorted(os.listdir(tmp_path)) == ["log.jsonl", "log.jsonl.1", "log.jsonl.2"]
    assert numbers(path) == [9]
    assert numbers(tmp_path / "log.jsonl.1") == [6, 7, 8]
    assert numbers(tmp_path / "log.jsonl.2") == [3, 4, 5]


def test_keep_0_starts_over(tmp_path):
    path = tmp_path / "log.jsonl"
    with DecisionLog(path, max_bytes=1, keep=0) as log:
        for index in range(3):
            log.write(numbered(index))
    assert os.listdir(tmp_path) == ["log.jsonl"]
    assert numbers(path) == [2]


@pytest.mark.parametrize("keep", [0, 3])
def test_where_no_new_file_can_be_made_the_old_ones_stay(tmp_path, monkeypatch, keep):
    path = tmp_path / "log.jsonl"
    line = len(DECISION.to_json()) + 1
    with DecisionLog(path, max_bytes=3 * line + line // 2, keep=keep) as log:
        for index in range(9):
            log.write(numbered(index))
        before = {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)}

        def no_more_files(*_args, **_kwargs):
            raise OSError(errno.EMFILE, "Too many open files")

        with monkeypatch.context() as broken:
            broken.setattr(os, "open", no_more_files)
            for index in range(5):
                with pytest.raises(RecordError, match="Too many open files"):
                    log.write(numbered(index))
        assert {name: (tmp_path / name).read_bytes() for name in os.listdir(tmp_path)} == before
        log.write(numbered(9))
    assert numbers(path) == [9]
    if keep:
        assert numbers(tmp_path / "log.jsonl.1") == [6, 7, 8]


@pytest.mark.parametrize("torn", [b'{"question_id": "q", "ans', b"{", b"\x00" * 100])
def test_a_torn_end_is_cut_off_at_opening(tmp_path, torn):
    path = tmp_path / "log.jsonl"
    with DecisionLog(path) as log:
        log.write(numbered(0))
    with open(path, "ab") as file:
        file.write(torn)
    assert numbers(path) == [0]
    with DecisionLog(path) as log:
        log.write(numbered(1))
    assert numbers(path) == [0, 1]


def test_a_disk_that_is_full_leaves_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / "log.jsonl"
    write = os.write
    with DecisionLog(path) as log:
        log.write(numbered(0))
        space = [40]

        def little_space(handle, data):
            if not space[0]:
                raise OSError(28, "No space left on device")
            done = write(handle, data[: space[0]])
            space[0] -= done
            return done

        monkeypatch.setattr(os, "write", little_space)
        with pytest.raises(RecordError, match="log.jsonl: No space left"):
            log.write(numbered(1))
        monkeypatch.setattr(os, "write", write)
        assert numbers(path) == [0]
        assert path.read_bytes().endswith(b"\n")
        log.write(numbered(2))
    assert numbers(path) == [0, 2]


@pytest.mark.slow
def test_a_killed_writer_leaves_whole_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "import test_log as t\n"
        "log = t.DecisionLog(sys.argv[1], max_bytes=200_000, keep=100)\n"
        "index = 0\n"
        "while True:\n"
        "    log.write(t.numbered(index)); index += 1\n"
        "    if index == 300: print('going', flush=True)\n"
    )
    here = os.path.dirname(os.path.abspath(__file__))
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(path), here, os.path.dirname(here)],
            stdout=subprocess.PIPE,
        ) as writer:
            assert writer.stdout.readline() == b"going\n"
            writer.send_signal(signal.SIGKILL)
    for file in tmp_path.iterdir():
        assert file.read_bytes().endswith(b"\n")
        assert all(json.loads(line)["question_id"] == "q" for line in open(file))


def test_threads_do_not_mix_their_lines(tmp_path):
    path = tmp_path / "log.jsonl"
    with DecisionLog(path) as log:
        threads = [
            threading.Thread(
                target=lambda part=part: [log.write(numbered(part * 100 + i)) for i in range(100)]
            )
            for part in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(numbers(path)) == list(range(400))


def test_a_second_writer_is_refused(tmp_path):
    path = tmp_path / "log.jsonl"
    with DecisionLog(path):
        with pytest.raises(RecordError, match="another process"):
            DecisionLog(path)
    DecisionLog(path).close()


def test_errors_name_the_file(tmp_path):
    with pytest.raises(RecordError, match="none"):
        DecisionLog(tmp_path / "none" / "log.jsonl")
    with pytest.raises(RecordError, match="none.jsonl: No such file"):
        list(read_log(tmp_path / "none.jsonl"))
    (tmp_path / "binary").write_bytes(b"x" * (1 << 21))
    with pytest.raises(RecordError, match="not a decision log"):
        DecisionLog(tmp_path / "binary")
    assert (tmp_path / "binary").stat().st_size == 1 << 21
    (tmp_path / "odd.jsonl").write_text("{}\nnonsense\n")
    with pytest.raises(RecordError, match="odd.jsonl:2: not a decision"):
        list(read_log(tmp_path / "odd.jsonl"))
    log = DecisionLog(tmp_path / "log.jsonl")
    log.close()
    log.close()
    with pytest.raises(RecordError, match="closed"):
        log.write(DECISION)


@pytest.mark.parametrize("bad", [{"max_bytes": 0}, {"keep": -1}])
def test_senseless_limits_are_refused(tmp_path, bad):
    with pytest.raises(ValueError, match="max_bytes"):
        DecisionLog(tmp_path / "log.jsonl", **bad)
