"""What a release needs: one version everywhere, and a changelog that bloom can read."""

from pathlib import Path

import conftest
import pytest

import vlm_decisions

ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_the_same_everywhere():
    version = vlm_decisions.__version__
    assert f"<version>{version}</version>" in (ROOT / "package.xml").read_text()
    assert f'\nversion = "{version}"\n' in (ROOT / "pyproject.toml").read_text()


def test_the_changelog_can_be_read():
    """As catkin_prepare_release does: what is forthcoming becomes the version."""
    reader = pytest.importorskip("catkin_pkg.changelog", reason="catkin_pkg is not installed")
    version = vlm_decisions.__version__
    text = (ROOT / "CHANGELOG.rst").read_text()
    released = text.replace("Forthcoming\n-----------",
                            f"{version} (2026-01-01)\n------------------")
    read = reader.populate_changelog_from_rst(reader.Changelog("vlm_decisions"), released)
    entries = {name: content for name, _, content in read.foreach_version()}
    assert version in entries and all(entries.values())


@pytest.mark.parametrize(("kept", "name"), [
    ("test/a/test_b.py::test_c@test_b.py", "test/a/test_b.py::test_c"),
    ("test/a/test_b.py::test_c[d: e@f, g]@test_b.py", "test/a/test_b.py::test_c[d: e@f, g]"),
    ("test/a/test_b.py::test_c[d@e.py]", "test/a/test_b.py::test_c[d@e.py]"),
])
def test_what_failed_is_kept_by_a_name_that_is_found_again(kept, name):
    assert conftest.name_without_group(kept) == name
