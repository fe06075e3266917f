"""`vlm-decisions bench tick --against`: this code's tick and another's, on one machine."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ...files.resources import package_dir


class AgainstError(ValueError):
    """What the tick is to be compared with cannot be used."""


def machine() -> str:
    """Name this machine: its processor and how many cores this process may use."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        name = next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        pass  # not Linux
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"


def against_kept(result: dict[str, Any], file: str) -> dict[str, Any]:
    """Compare a result of `bench tick` with one that `--json` kept; raises AgainstError.

    Returns:
        against: the file. tick_ratio: tick p50 of this over that of the kept one.
    """
    try:
        kept = json.loads(Path(file).read_text(encoding="utf-8"))
        p50, where = kept["tick_ms"]["p50"], kept.get("machine", "a machine that it does not name")
        questions = kept["questions"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise AgainstError(f"{file} is no result that `bench tick --json` kept: {error}") from error
    if where != result["machine"]:
        raise AgainstError(f"{file} was measured on {where}, and this is {result['machine']}: "
                           "times of two machines are no ratio")
    if questions != result["questions"]:
        raise AgainstError(f"{file} has {questions} questions, this run {result['questions']}")
    return {"against": file, "tick_ratio": result["tick_ms"]["p50"] / p50}


def against_checkout(
    folder: str, *, seconds: float, questions: str, rounds: int, say: Callable[[str], None] = print,
    run: Callable[[Path, Sequence[str]], dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Run `bench tick` of another checkout of this package and of this one in turns.

    Both run as processes of this Python, with the interfaces that are installed for it. The other
    begins every second round, so that neither always meets the warmer machine.

    Args:
        folder: the checkout (a git worktree of an earlier commit, say).
        seconds: of each run.
        questions: shipped set or file.
        rounds: runs of each.
        say: gets a line after each round.
        run: runs the command with a folder's code (tests).

    Returns:
        against, machine, rounds, questions, tick_ms (p50 of each run, "here" and "there"),
        tick_ratio (median of here's over median of there's); cpu_ms and cpu_ratio likewise, where
        the other's command tells it.

    Raises:
        AgainstError: no checkout, or its command failed.
    """
    there = Path(folder).expanduser().resolve()
    if not (there / "vlm_decisions" / "cli.py").is_file():
        raise AgainstError(f"{folder} is neither a result of `bench tick --json` nor a checkout of "
                           "this package: it has no vlm_decisions/cli.py")
    folders = {"here": package_dir().parent, "there": there}
    arguments = ["bench", "tick", "--seconds", str(seconds), "--questions", questions]
    found: dict[str, list[dict[str, Any]]] = {"here": [], "there": []}
    for number in range(1, rounds + 1):
        for name in ("here", "there") if number % 2 else ("there", "here"):
            found[name].append((run or _run)(folders[name], arguments))
        newest = {name: results[-1]["tick_ms"]["p50"] for name, results in found.items()}
        say(f"round {number} of {rounds}: tick p50 here {newest['here']:.1f} ms, there "
            f"{newest['there']:.1f} ms")
    asked = {name: results[0]["questions"] for name, results in found.items()}
    if asked["here"] != asked["there"]:
        raise AgainstError(f"{asked['here']} questions here and {asked['there']} there: name a "
                           "file of questions that both know (--questions)")
    ticks = {name: [one["tick_ms"]["p50"] for one in results] for name, results in found.items()}
    out = {
        "against": str(there),
        "machine": machine(),
        "rounds": rounds,
        "questions": asked["here"],
        "tick_ms": ticks,
        "tick_ratio": median(ticks["here"]) / median(ticks["there"]),
    }
    if all("cpu_ms" in one for results in found.values() for one in results):
        cpu = {name: [one["cpu_ms"] for one in results] for name, results in found.items()}
        out |= {"cpu_ms": cpu, "cpu_ratio": median(cpu["here"]) / median(cpu["there"])}
    return out


def _run(folder: Path, arguments: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as out:
        file = Path(out) / "tick.json"
        done = subprocess.run(
            [sys.executable, "-m", "vlm_decisions.cli", *arguments, "--json", str(file)],
            env={**os.environ, "PYTHONPATH": str(folder)}, cwd=out, capture_output=True, text=True,
            check=False)
        if done.returncode or not file.exists():
            last = done.stderr.strip() or done.stdout.strip() or "it printed nothing"
            raise AgainstError(f"`bench tick` of {folder} failed: {last.splitlines()[-1]}")
        return json.loads(file.read_text(encoding="utf-8"))
