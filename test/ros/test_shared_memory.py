"""What processes leave in shared memory, and that the tests' end removes only what is unused."""

import signal

import pytest

pytest.importorskip("rclpy", reason="rclpy is not installed")

from processes import node
from shared_memory import remove_unused, segments_of

from vlm_decisions.ros.domain import private_domain

pytestmark = pytest.mark.slow


def test_only_what_nobody_uses_is_removed(monkeypatch):
    with private_domain() as elsewhere, node() as killed:
        monkeypatch.setenv("ROS_DOMAIN_ID", str(elsewhere))  # or each would use the other's
        with node() as living:
            check(killed, living)


def check(killed, living):
    for one in (killed, living):
        one.wait_line("the model loads")
    left, used = segments_of(killed.popen.pid), segments_of(living.popen.pid)
    assert left and used and not left & used
    killed.popen.kill()
    killed.popen.wait()
    remove_unused()
    assert all(path.exists() for path in used) and not any(path.exists() for path in left)
    assert living.end(signal.SIGINT)[0] == 0
