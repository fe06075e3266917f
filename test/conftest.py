"""What every test needs before anything else is imported, and what many tests share."""

import os
import re

import pytest

# Before rclpy is initialised: nothing leaves the machine.
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ.pop("ROS_DOMAIN_ID", None)
if "PYTEST_XDIST_WORKER" in os.environ:
    # The workers share the cores: matrix products on one thread each, here and in child processes.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Loads the BLAS, before a test imports MLX.
import vlm_decisions.engine  # noqa: F401
from vlm_decisions.ros.domain import private_domain, stay_private

stay_private()


@pytest.fixture(autouse=True)
def ros_domain(monkeypatch):
    """Give each test, and the processes that it starts, a DDS domain in which nobody else is."""
    with private_domain() as domain:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(domain))
        yield domain


@pytest.fixture(scope="session")
def engine():
    """Return an engine on a small random checkpoint."""
    from tiny import tiny_engine

    return tiny_engine()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Let long tests begin first, and tests that share a module's fixture stay on one worker."""
    if getattr(config.option, "loadgroup", False):  # in a worker of pytest-xdist
        for item in items:
            found = item._fixtureinfo.name2fixturedefs.values()
            if any(definitions[-1].scope == "module" for definitions in found):
                item.add_marker(pytest.mark.xdist_group(item.path.name))
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(trylast=True)  # after pytest has kept what failed
def pytest_sessionfinish(session):
    """Once all tests have ended: name those that failed for `make retest`, and clean up.

    pytest-xdist keeps them with their group, by which no later run would find them: it would run
    all. What killed processes have left in shared memory is removed.
    """
    from shared_memory import remove_unused

    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    failed = session.config.cache.get("cache/lastfailed", {})
    if failed:
        session.config.cache.set("cache/lastfailed",
                                 {name_without_group(name): True for name in failed})
    remove_unused()


def name_without_group(name: str) -> str:
    """Return a test's name without the group that pytest-xdist writes behind it."""
    return re.sub(r"@[^@\[\]/:]*$", "", name)


def pytest_terminal_summary(terminalreporter):
    """Say once what was skipped because the shared material is absent."""
    from material import ABSENT, MATERIAL

    absent = {}
    for report in terminalreporter.stats.get("skipped", ()):
        path, line, reason = report.longrepr
        if ABSENT in reason:
            absent.setdefault(reason.partition(ABSENT)[2], []).append(report)
            report.longrepr = (path, line, "Skipped: material is absent, see above")
    if absent:
        count = sum(map(len, absent.values()))
        terminalreporter.section("material")
        terminalreporter.write_line(
            f"{count} tests were skipped: these files are not in {MATERIAL} (set "
            f"VLM_DECISIONS_MATERIAL to where they are): {', '.join(sorted(absent))}")
