"""A DDS domain of one's own, for programs and tests whose nodes must meet no others."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterator

#: Domains whose ports lie below those that Linux hands out to clients.
DOMAINS = range(1, 102)

#: The standard's mapping of domains to ports: a domain's first port, which is bound by those who
#: are found by multicast, and those that its participants bind one after the other.
FIRST, PER_DOMAIN = 7400, 250
PARTICIPANTS = [10 + 2 * number for number in range(10)]

_kept = contextlib.ExitStack()


@contextlib.contextmanager
def private_domain() -> Iterator[int]:
    """Claim a DDS domain until the context is left or the process ends; yield its number.

    The claim is a TCP port of the loopback interface, the first of the domain's range: nobody else
    can bind it. A domain that participants of some other program are in already (a UDP port of
    theirs is taken) is passed over. Raises RuntimeError where no domain is free.
    """
    for domain in random.Random().sample(DOMAINS, len(DOMAINS)):
        port = FIRST + PER_DOMAIN * domain
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as claim:
            try:
                claim.bind(("127.0.0.1", port))
                # On this machine only, nobody is found by multicast: the first port is free then.
                for offset in (0, *PARTICIPANTS):
                    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as others:
                        others.bind(("", port + offset))
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
