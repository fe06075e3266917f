"""The package finds its files in a source tree and below any installation prefix."""

from pathlib import Path

import pytest

from vlm_decisions.files import resources


def test_share_dir_of_this_installation_holds_the_interfaces():
    """Whatever way this test runs, the folder found is the right one."""
    share = resources.share_dir()
    assert (share / "package.xml").is_file()
    assert (share / "msg" / "Decision.msg").is_file()
    assert resources.share_file("config").is_dir()
    assert resources.share_file("heads").is_dir()


def test_package_dir_is_the_python_package():
    """The models lie in it."""
    assert (resources.package_dir() / "files" / "resources.py").is_file()


@pytest.mark.parametrize(
    "below_prefix",
    [
        "lib/python3.12/site-packages/vlm_decisions",
        "local/lib/python3.10/dist-packages/vlm_decisions",
        "vlm_decisions",  # pip install --target
    ],
)
def test_installed_layouts(tmp_path: Path, below_prefix: str):
    """Every layout that pip, colcon and Debian use resolves to the prefix's share folder."""
    package = tmp_path / below_prefix
    package.mkdir(parents=True)
    share = tmp_path / "share" / "vlm_decisions"
    share.mkdir(parents=True)
    with pytest.raises(resources.ResourceError, match="partly installed"):
        resources.share_dir(package)
    (share / "package.xml").touch()
    assert resources.share_dir(package) == share


def test_source_tree_wins(tmp_path: Path):
    """In a source tree the tree's own files are used, even below an installed prefix."""
    (tmp_path / "share" / "vlm_decisions").mkdir(parents=True)
    (tmp_path / "share" / "vlm_decisions" / "package.xml").touch()
    tree = tmp_path / "src" / "vlm_decisions"
    (tree / "msg").mkdir(parents=True)
    (tree / "package.xml").touch()
    assert resources.share_dir(tree / "vlm_decisions") == tree


def test_missing_file_is_named():
    """A missing file is an error that names it."""
    with pytest.raises(resources.ResourceError, match="no_such_folder"):
        resources.share_file("no_such_folder", "x.yaml")
