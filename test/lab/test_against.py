"""The tick compared with that of another checkout, or with a kept result of the same machine."""

import json

import pytest

from vlm_decisions.files.resources import package_dir
from vlm_decisions.lab.bench.against import (
    AgainstError,
    against_checkout,
    against_kept,
    machine,
)

RESULT = {"machine": machine(), "questions": 16, "tick_ms": {"p50": 30.0, "p95": 40.0}}


def checkout(folder):
    (folder / "vlm_decisions").mkdir(parents=True)
    (folder / "vlm_decisions" / "__init__.py").touch()
    (folder / "vlm_decisions" / "cli.py").write_text("raise SystemExit('it is broken')")
    return folder


def test_both_run_in_turns_and_the_medians_are_compared(tmp_path):
    there, here = checkout(tmp_path / "there"), package_dir().parent
    ticks = {here: iter((20.0, 90.0, 30.0)), there: iter((60.0, 50.0, 55.0))}
    order, said = [], []

    def run(folder, arguments):
        order.append("here" if folder == here else "there")
        assert arguments[:2] == ["bench", "tick"] and "quiet" in arguments
        p50 = next(ticks[folder])
        return {"questions": 16, "tick_ms": {"p50": p50}, "cpu_ms": p50 * 2}

    out = against_checkout(str(there), seconds=1.0, questions="quiet", rounds=3, say=said.append,
                           run=run)  # fmt: skip
    assert order == ["here", "there", "there", "here", "here", "there"]
    assert out["tick_ratio"] == 30.0 / 55.0 and out["machine"] == machine()
    assert out["cpu_ratio"] == out["tick_ratio"] and out["cpu_ms"]["here"] == [40.0, 180.0, 60.0]
    assert out["tick_ms"]["there"] == [60.0, 50.0, 55.0] and len(said) == 3


def test_a_kept_result_of_this_machine_is_compared(tmp_path):
    file = tmp_path / "kept.json"
    file.write_text(json.dumps({**RESULT, "tick_ms": {"p50": 60.0}}))
    assert against_kept(RESULT, str(file)) == {"against": str(file), "tick_ratio": 0.5}


@pytest.mark.parametrize(
    ("kept", "words"),
    [
        ({**RESULT, "machine": "another, 8 cores"}, "measured on another, 8 cores, and this is"),
        ({**RESULT, "questions": 3}, "has 3 questions, this run 16"),
        ({"questions": 16, "tick_ms": {"p50": 1.0}}, "a machine that it does not name"),
        ({"ticks": 1}, "is no result that `bench tick --json` kept"),
        ([1], "is no result"),
    ],
)
def test_a_kept_result_that_says_nothing_here_is_refused(tmp_path, kept, words):
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(kept))
    with pytest.raises(AgainstError, match=words):
        against_kept(RESULT, str(file))


def test_what_is_no_checkout_or_does_not_run_is_named(tmp_path):
    settings = {"seconds": 1.0, "questions": "desk", "rounds": 1}
    with pytest.raises(AgainstError, match="neither a result .* nor a checkout"):
        against_checkout(str(tmp_path), **settings)
    broken = checkout(tmp_path / "broken")
    ours = package_dir().parent

    def run(folder, arguments):
        from vlm_decisions.lab.bench.against import _run

        if folder == ours:
            return {"questions": 16, "tick_ms": {"p50": 1.0}}
        return _run(folder, arguments)

    with pytest.raises(AgainstError, match="failed: it is broken"):
        against_checkout(str(broken), **settings, run=run)


def test_other_questions_are_no_comparison(tmp_path):
    there, numbers = checkout(tmp_path / "there"), iter((16, 12))
    with pytest.raises(AgainstError, match="16 questions here and 12 there"):
        against_checkout(str(there), seconds=1.0, questions="desk", rounds=1, run=lambda *_: {
            "questions": next(numbers), "tick_ms": {"p50": 1.0}})  # fmt: skip
