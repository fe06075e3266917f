"""The documentation: links lead somewhere, names exist, and what is written twice agrees."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
MODULE = re.compile(r"\bvlm_decisions(?:\.[a-z]\w*)+")
FIGURE = re.compile(r"\d+(?:\.\d+)?")


def anchors(page: Path) -> set[str]:
    """Return the anchors that the headings of a page make."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def named_modules():
    """Return the dotted names of this package in text that is not code, by file."""
    files = [*PAGES, *ROOT.glob(".ci/*"), ROOT / "Makefile", ROOT / "CMakeLists.txt",
             ROOT / "pyproject.toml", *ROOT.glob("launch/*.py"), *ROOT.glob("examples/*.py"),
             *ROOT.glob("vlm_decisions/**/*.py"), *ROOT.glob("test/**/*.py")]
    return {name: path for path in files if path != Path(__file__)
            for name in MODULE.findall(path.read_text())}


def exists(name: str) -> bool:
    """Say whether a dotted name is a module, or something in one."""
    try:
        if importlib.util.find_spec(name) is not None:
            return True
    except ModuleNotFoundError:
        pass
    module, _, attribute = name.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), attribute)
    except ImportError:
        return False


def test_named_modules_exist():
    """Also those in strings: code for other processes, `python -m`, patched names."""
    found = named_modules()
    assert len(found) > 50
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    assert [f"{path.relative_to(ROOT)}: {name}" for name, path in found.items()
            if not exists(name)] == []


def test_the_check_of_names_can_fail():
    assert not exists("vlm_decisions.nothing") and not exists("vlm_decisions.runtime.nothing")


def test_the_readmes_figures_are_those_of_the_benchmarks():
    readme = (ROOT / "README.md").read_text()
    section = readme[readme.index("## Measured"):readme.index("**On your own recordings")]
    rows = [row.split("|") for row in re.findall(r"^\|.*`.*$", section, re.MULTILINE)]
    benchmarks = set(FIGURE.findall((ROOT / "docs" / "benchmarks.md").read_text()))
    assert len(rows) > 2
    for row in rows:
        assert set(FIGURE.findall(row[2])) <= benchmarks, row


@pytest.mark.slow
def test_the_page_of_the_nodes_is_current():
    """It is written by `make docs`."""
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    from vlm_decisions.lab.node_docs import page

    assert (ROOT / "docs" / "node.md").read_text() == page(), "run `make docs`"


def test_the_readme_installs_what_the_tests_ran_with():
    """Its pip lines pin the versions of requirements/common.txt for the Python of the robot."""
    pins = re.compile(r"([a-z_-]+(?:\[\w+\])?)==([\d.]+)")
    told = [pin for line in (ROOT / "README.md").read_text().splitlines()
            if line.strip().startswith("pip install") for pin in pins.findall(line)]
    required = set(pins.findall((ROOT / "requirements" / "common.txt").read_text()))
    assert len(told) >= 5 and set(told) <= required
    unpinned = [line for line in (ROOT / "README.md").read_text().splitlines()
                if line.strip().startswith("pip install") and "==" not in line]
    assert unpinned == []
