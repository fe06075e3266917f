"""What is said where a package is missing."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from vlm_decisions.files.extras import EXTRAS, missing

ROOT = Path(__file__).parents[2]
PYPI = {"sklearn": "scikit-learn", "scipy": "scikit-learn", "safetensors": "transformers"}
"""What brings a module of another name."""


def test_the_extras_bring_what_they_are_named_for():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra, (_, modules) in EXTRAS.items():
        brought = " ".join(declared["optional-dependencies"][extra])
        for module in modules:
            assert PYPI.get(module, module) in brought


@pytest.mark.parametrize(("name", "told"), [
    ("mcap.reader", r"Bags need .*\[replay\]"), ("sklearn", r"\[study\]"),
    ("torch", r"\[train\]"), ("py_trees", r"\[trees\]"), ("rclpy", "source its setup file"),
    ("starlette", "pip install starlette")])
def test_what_to_install_is_said(name, told):
    error = ModuleNotFoundError(f"No module named {name!r}", name=name)
    import re
    assert missing(error).startswith(f"No module named {name!r}. ")
    assert re.search(told, missing(error))


def test_interfaces_of_an_older_install():
    pytest.importorskip("vlm_decisions.msg", reason="the interfaces are not built")
    with pytest.raises(ImportError) as lacks:
        from vlm_decisions.msg import NotYetGenerated  # noqa: F401
    with pytest.raises(ImportError) as none:
        importlib.import_module(".not_yet_generated", "vlm_decisions")
    for caught in (lacks, none):
        told = missing(caught.value)
        assert "older than the package: build it again" in told and "setup file" not in told


WITHOUT = """
import sys
sys.modules[{module!r}] = None
sys.argv = {argv!r}
from {entry} import main
sys.exit(main({args}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "args", "argv", "module", "told"), [
    ("vlm_decisions.cli", "", ["vlm-decisions", "bench", "replay", "/x.mcap"], "mcap",
     "[replay]"),
    ("vlm_decisions.ros.programs", "'viewer'", ["viewer"], "starlette", "starlette"),
    ("vlm_decisions.ros.programs", "'decision_node'", ["decision_node"], "rclpy",
     "source its setup file")])
def test_a_program_without_a_package_says_so(tmp_path, entry, args, argv, module, told):
    if "/x.mcap" in argv:
        pytest.importorskip("rosbags", reason="rosbags is not installed")
        from vlm_decisions.lab.replay.record_sim import record_sim

        record_sim(tmp_path / "bag", 2, width=96, height=96, fps=4.0)
        argv = [str(tmp_path / "bag") if arg == "/x.mcap" else arg for arg in argv]
    elif module != "rclpy":
        pytest.importorskip("rclpy", reason="rclpy is not installed")
    code = WITHOUT.format(module=module, argv=argv, entry=entry, args=args)
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True,
                          timeout=120, check=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert told in done.stderr
