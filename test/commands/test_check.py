"""`vlm-decisions check exactness`: what it prints and how it exits."""

from __future__ import annotations

import pytest

from vlm_decisions import cli
from vlm_decisions.lab import exactness


@pytest.mark.slow
def test_the_right_path_passes(capsys):
    assert cli.main(["check", "exactness"]) == 0
    out = capsys.readouterr().out
    for way in ("window", "one by one", "stream", "append with ask", "native video path", "image"):
        assert f"\n{way} " in f"\n{out}", way
    assert "1 - cosine" in out and "|dP|" in out
    assert "passed: all ways agree" in out


@pytest.mark.slow
@pytest.mark.parametrize("control", exactness.CONTROLS)
def test_each_control_is_caught(control, capsys):
    assert cli.main(["check", "exactness", f"--{control}"]) == 0
    out = capsys.readouterr().out
    assert "DIFFERENT" in out and "passed: the control is caught" in out


@pytest.mark.slow
@pytest.mark.parametrize("args", [[], ["--wrong-pos"]])
def test_a_failure_exits_with_1(args, monkeypatch, capsys):
    """With limits that nothing meets the right path fails; with none no control is caught."""
    monkeypatch.setattr(exactness, "COSINE", -2.0 if args else 2.0)
    monkeypatch.setattr(exactness, "PROBABILITY", 2.0)
    assert cli.main(["check", "exactness", *args]) == 1
    assert "FAILED: not" in capsys.readouterr().out


@pytest.mark.slow
def test_a_shape_with_random_weights(capsys):
    assert cli.main(["check", "exactness", "--shape", "tiny", "--layers", "2"]) == 0
    assert "passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "args",
    [["--layers", "2"], ["--shape", "huge"], ["--layers", "0", "--shape", "tiny"],
     ["--wrong-pos", "--stale-state"], ["--model", "a", "--shape", "tiny"]],
)
def test_bad_arguments_exit_with_2(args, capsys):
    with pytest.raises(SystemExit) as exit_:
        cli.main(["check", "exactness", *args])
    assert exit_.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_a_missing_model_is_named(capsys):
    assert cli.main(["check", "exactness", "--model", "no_such_model"]) == 1
    assert "no_such_model" in capsys.readouterr().err
