"""Find the files that come with the package: config/, heads/, launch/, and the models.

There is one rule for every way of installing, without ROS: the share folder is the nearest folder
above this file that holds ``share/vlm_decisions/package.xml`` (pip, colcon, a system package). In a
source tree it is the tree itself, recognised by its ``package.xml``.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = "vlm_decisions"


class ResourceError(FileNotFoundError):
    """A file or folder of the package is missing from the installation."""


def package_dir() -> Path:
    """Return the folder of the Python package, which holds ``models/``."""
    return Path(__file__).resolve().parents[1]


def share_dir(start: Path | None = None) -> Path:
    """Return the folder that holds the package's files that are no Python.

    These are ``action/``, ``config/``, ``heads/``, ``launch/``, ``msg/`` and ``srv/``.

    ``start`` is the Python package's folder; only tests give it. Raises ResourceError that names
    the folders searched if there is none.
    """
    package = package_dir() if start is None else start
    parent = package.parent
    if (parent / "package.xml").is_file() and (parent / "msg").is_dir():
        return parent
    for prefix in package.parents:
        share = prefix / "share" / PACKAGE
        if (share / "package.xml").is_file():
            return share
    raise ResourceError(
        f"no share/{PACKAGE} above {package}: the package is only partly installed "
        "(install it with pip or colcon, or run from its source tree)"
    )


def share_file(*parts: str) -> Path:
    """Return the path of an existing file or folder below the share folder.

    Raises ResourceError that names the path if it does not exist.
    """
    path = share_dir().joinpath(*parts)
    if not path.exists():
        raise ResourceError(f"{path} is missing from the installation of {PACKAGE}")
    return path
