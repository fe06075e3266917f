"""Shell completion, asked for as a shell does."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("argcomplete", reason="argcomplete is not installed")


def completed(line, tmp_path):
    """Return what a shell would offer at the end of `line`."""
    out = tmp_path / "offers"
    environment = os.environ | {
        "_ARGCOMPLETE": "1", "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9",
        "_ARGCOMPLETE_COMP_WORDBREAKS": "", "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(out)}
    ran = subprocess.run([sys.executable, "-c", "from vlm_decisions.cli import main; main()"],
                         env=environment, timeout=120, check=False, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    return [offer.strip() for offer in out.read_text().split("\n")]


@pytest.mark.parametrize(("line", "offers"), [
    ("vlm-decisions cor", ["corrections"]),
    ("vlm-decisions corrections ", ["list", "undo", "export"]),
    ("vlm-decisions corrections export --qu", ["--questions"]),
    ("vlm-decisions nothing_like_it", [""]),
])
def test_commands_and_options_are_completed(line, offers, tmp_path):
    assert set(offers) <= set(completed(line, tmp_path))
