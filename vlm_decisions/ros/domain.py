"""A DDS domain of one's own, for programs and tests whose nodes must meet no others."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterator

#: Domains whose ports lie below those that Linux hands out to clients.
DOMAINS = range(1, 102)
_kept = contextlib.ExitStack()


@contextlib.contextmanager
def private_domain() -> Iterator[int]:
    """Claim a DDS domain until the context is left or the process ends; yield its number.

    The claim is a TCP port of the loopback interface, the first of the domain's range: nobody else
    can bind it. A domain in which some other program's participants are already found (their UDP
    port is taken) is passed over. Raises RuntimeError where no domain is free.
    """
    for domain in random.Random().sample(DOMAINS, len(DOMAINS)):
        port = 7400 + 250 * domain  # the standard's mapping of domains to ports
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as claim:
            try:
                claim.bind(("127.0.0.1", port))
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as others:
                    others.bind(("", port))
            except OSError:
                continue
            yield domain
            return
    raise RuntimeError(f"no DDS domain from {DOMAINS[0]} to {DOMAINS[-1]} is free")


def stay_private() -> None:
    """Keep what this process and its children start to this machine and to a domain of their own.

    Sets ``ROS_DOMAIN_ID`` and ``ROS_AUTOMATIC_DISCOVERY_RANGE`` where they are not set. It must
    happen before ``rclpy.init``.
    """
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    if "ROS_DOMAIN_ID" not in os.environ:
        os.environ["ROS_DOMAIN_ID"] = str(_kept.enter_context(private_domain()))
