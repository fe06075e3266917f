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


def test_a_domain_with_participants_of_others_is_passed_over(monkeypatch):
    with private_domain() as free:
        pass
    monkeypatch.setattr(domain, "DOMAINS", [free])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as participant:
        participant.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as Fast DDS does
        participant.bind(("", 7400 + 250 * free))
        with pytest.raises(RuntimeError, match="is free"), private_domain():
            pass


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
