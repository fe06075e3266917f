"""A DDS domain of one's own."""

import os
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from vlm_decisions.ros import domain
from vlm_decisions.ros.domain import DOMAINS, private_domain, stay_private


def test_no_two_claims_meet(monkeypatch):
    monkeypatch.setattr(domain, "DOMAINS", range(40, 46))
    with ExitStack() as held:
        claimed = []
        with pytest.raises(RuntimeError, match="no DDS domain from 40 to 45 is free"):
            while True:
                claimed.append(held.enter_context(private_domain()))
        assert 0 < len(claimed) == len(set(claimed)) and set(claimed) <= set(range(40, 46))
    with private_domain() as again:
        assert again in range(40, 46)


@pytest.fixture
def free(monkeypatch):
    """Return a free domain, which is the only one that can be claimed."""
    with private_domain() as number:
        pass
    monkeypatch.setattr(domain, "DOMAINS", [number])
    return number


def test_a_domain_with_participants_of_others_is_passed_over(free):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as participant:
        participant.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Fast DDS does
        participant.bind(("", 7400 + 250 * free))
        with pytest.raises(RuntimeError, match="is free"), private_domain():
            pass


def test_so_is_one_whose_participants_are_found_on_this_machine_only(free):
    """They bind no port for multicast, and the first of them may have left before the others."""
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    import rclpy
    from ros_peer import rclpy_context

    with rclpy_context(domain=free) as one, rclpy_context(domain=free) as other:
        first = rclpy.create_node("first", context=one)
        second = rclpy.create_node("second", context=other)
        for node in (first, second):
            with pytest.raises(RuntimeError, match="is free"), private_domain():
                pass
            node.destroy_node()
    with private_domain() as again:
        assert again == free


def test_a_claim_ends_with_its_process():
    code = ("from vlm_decisions.ros import domain\n"
            "domain.DOMAINS = [{}]\n"
            "with domain.private_domain() as number: print(number)")
    with private_domain() as taken:
        done = subprocess.run([sys.executable, "-c", code.format(taken)], capture_output=True,
                              text=True, timeout=60)
        assert "is free" in done.stderr
    done = subprocess.run([sys.executable, "-c", code.format(taken)], capture_output=True,
                          text=True, timeout=60)
    assert done.stdout == f"{taken}\n", done.stderr


def test_what_the_user_chose_stands(monkeypatch):
    monkeypatch.setenv("ROS_DOMAIN_ID", "7")
    monkeypatch.setenv("ROS_AUTOMATIC_DISCOVERY_RANGE", "SUBNET")
    stay_private()
    assert os.environ["ROS_DOMAIN_ID"] == "7"
    assert os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] == "SUBNET"
    monkeypatch.delenv("ROS_DOMAIN_ID")
    stay_private()
    assert int(os.environ["ROS_DOMAIN_ID"]) in DOMAINS
