"""Arguments: what is wrong with them, and what was probably meant."""

from __future__ import annotations

import argparse
import shlex

import pytest

from vlm_decisions import cli

WRONG = [
    (["run", "--sorce", "a.mp4"], "unknown option --sorce, did you mean --source?"),
    (["run", "-source", "a.mp4"], "unknown option -source, did you mean --source?"),
    (["run", "--source", "a.mp4", "--modle=x"], "unknown option --modle, did you mean --model?"),
    (["bench", "tick", "--secnds", "3"], "unknown option --secnds, did you mean --seconds?"),
    (["run", "--source", "a.mp4", "--zzzz"], "unknown option --zzzz"),
    (["rnu"], "did you mean run?"), (["bench", "tik"], "did you mean tick?"),
    (["bench", "replay", "b", "--latency", "mesured"], "did you mean measured?"),
    (["view", "--port", "99999"], "'99999' is not a whole number from 0 to 65535"),
    (["bench", "views", "--views", "4,33"], "'33' is not a whole number from 1 to 32"),
    (["run", "--source", "a", "--viewer", "--port", "http"],
     "'http' is not a whole number from 0 to 65535"),
    (["view", "--size", "abc"], "'abc' is not WIDTHxHEIGHT in pixels, each 200 to 8000"),
    (["view", "--size", "10x10"], "'10x10' is not WIDTHxHEIGHT"),
    (["record", "--sim", "--out", "x", "--size", "640"], "'640' is not WIDTHxHEIGHT in pixels"),
    (["record", "--sim", "--out", "x", "--segments", "0"], "'0' is not a whole number from 1 on"),
    (["bench", "replay", "b", "--image-range", "4095"], "'4095' is not LOW,HIGH"),
    (["train", "heads", "--image-range", "9,9"], "'9,9' is not LOW,HIGH"),
    (["demo", "--seconds", "soon"], "'soon' is not a positive number"),
    (["demo", "--seconds", "nan"], "'nan' is not a positive number"),
    (["bench", "engine", "--questions", "1,x"], "'x' is not a whole number from 1 on"),
    (["record", "--sim", "--out", "x", "--seconds", "8"], "--seconds goes with --topics"),
    (["record", "--topics", "/a", "--out", "x", "--raw", "--seed=1"],
     "--seed, --raw go with --sim"),
    (["calibrate", "--questions", "q", "--stamps", "header"], "--stamps goes with --bag"),
    (["calibrate", "--questions", "q", "--skip-unlabelled"], "goes with --videos, --dir or --bag"),
    (["calibrate", "--questions", "q", "--dir", "d", "--clips", "9"],
     "--clips goes with the simulated desk"),
    (["study", "recent", "--cache", "c"], "unknown option --cache"),
    (["train", "heads", "--motion", "a"], "--motion goes with recordings"),
    (["train", "heads", "--dir", "d", "--window", "5"], "--window goes with --motion"),
    (["train", "heads", "--replace"], "--replace goes with recordings or --at decision"),
    (["train", "model", "--from", "f", "--language-steps", "2"], "without --from"),
    (["train", "model", "--without", "pair"], "--without goes with --question-steps"),
    (["train", "heads", "--depths", "2"], "--depths goes with --at decision"),
    (["train", "heads", "--at", "decision", "--cache", "c"], "--cache goes with --at vision"),
    (["run", "--source", "a", "--port", "80"], "--port goes with --viewer"),
    (["run", "--source", "a", "--no-reuse-brightness"], "--reuse-brightness goes with --reuse"),
    (["view", "--dark"], "--dark goes with --screenshot"),
    (["view", "--quest", "q"], "--questions goes with --sim"),
    (["bench", "replay", "b", "--realtime", "--latency", "none"], "--latency goes with --fast"),
    (["bench", "replay", "b", "--realtime", "--heads", "a", "b"],
     "--heads goes with --fast, or as one folder"),
    (["bench", "replay", "b", "--recent", "8"], "--recent goes with the mode recentN"),
    (["bench", "replay", __file__, "--stamps", "arrival"], "--stamps goes with a bag"),
    (["bench", "tick", "--rounds", "2"], "--rounds goes with --against FOLDER"),
    (["bench", "engine", "--reuse", "--questions", "1"], "without --reuse"),
    (["check", "exactness", "--layers", "2"], "--layers goes with --shape"),
    (["calibrate", "--questions", "q", "--clips", "2"], "'2' is not a whole number from 6 on"),
]


@pytest.mark.parametrize(("args", "message"), WRONG, ids=[" ".join(args) for args, _ in WRONG])
def test_what_is_wrong_is_said(args, message, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(args)
    out, err = capsys.readouterr()
    assert exit_.value.code == 2 and out == ""
    assert message in err and "Traceback" not in err and "invalid" not in err.replace(
        "invalid choice", "")


def parsed(*args: str):
    return cli._parser().parse_args(args)


def commands_below(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found = [parser]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                found += commands_below(child)
    return found


@pytest.mark.parametrize("command", commands_below(cli._parser()), ids=lambda p: p.prog)
def test_the_help_of_every_command_has_an_example_that_it_takes(command, capsys):
    program, *path = command.prog.split()
    with pytest.raises(SystemExit):
        cli.main([*path, "--help"])
    example = capsys.readouterr().out.splitlines()[-1].strip()
    assert example.startswith(f"{command.prog} ")
    given = shlex.split(example.removeprefix(command.prog))
    assert given, "an example of nothing"
    assert callable(parsed(*path, *given).run)


def test_what_is_right_is_taken():
    assert parsed("run", "--sour", "a.mp4").source == ["a.mp4"]  # as argparse always did
    assert parsed("run", "--source", "a", "--ask", "Is --this it?").ask == ["Is --this it?"]
    assert parsed("view", "--screenshot", "a.png", "--size", "390X844").size == (390, 844)
    assert parsed("view", "--port", "0").port == 0
    assert parsed("train", "heads", "--dir", "d", "--image-range",
                  "0,4095").image_range == (0, 4095)
    assert parsed("record", "--topics", "/a", "--out", "x", "--seconds", "8").seconds == 8.0
    assert parsed("bench", "replay", "b", "--modes", "stream,recent8", "--recent", "8").recent == 8
    assert parsed("bench", "replay", "b", "--topic", "/a").topic == "/a"
    assert parsed("run", "--source", "a", "--viewer", "--port", "80").port == 80
    assert parsed("run", "--source", "a", "--reuse", "pixels", "--reuse-threshold", "9")
    assert parsed("bench", "engine", "--questions", "1,6").questions == (1, 6)
    assert parsed("record", "--sim", "--out", "x").size == (640, 480)


def test_questions_that_are_not_there_start_nothing(monkeypatch, capsys):
    """`view --sim` ran on with a node that had no questions."""
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    from vlm_decisions.lab import demo

    def explode(*_: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(demo, "process", explode)
    assert cli.main(["view", "--sim", "--questions", "nosuch", "--port", "0"]) == 1
    assert "no shipped set 'nosuch'" in capsys.readouterr().err
