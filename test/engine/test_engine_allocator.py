"""Freed memory stays in the process, unless the user has set up malloc."""

import os
import platform
import subprocess
import sys

import pytest

from vlm_decisions.engine import allocator

PROBE = """
import resource, sys
from vlm_decisions.engine.allocator import keep_freed_memory
print(keep_freed_memory() if sys.argv[1] == "keep" else None)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
b"x" * (48 << 20)
before = faults()
for _ in range(4):
    b"x" * (48 << 20)  # beyond the largest array that glibc keeps by itself
print(faults() - before)
"""
GLIBC = sys.platform == "linux" and platform.libc_ver()[0] == "glibc"


def probe(how, **env):
    clean = {key: value for key, value in os.environ.items() if key not in allocator._USERS}
    out = subprocess.run(
        [sys.executable, "-c", PROBE, how],
        env={**clean, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    told, faults = out.stdout.split()
    return told, int(faults)


@pytest.mark.skipif(not GLIBC, reason="only glibc's malloc is set up")
def test_pages_are_found_again():
    told, faults = probe("keep")
    assert told == "True"
    _, without = probe("as it is")
    assert faults < 0.1 * without, (faults, without)


def test_the_user_s_own_settings_stand():
    assert probe("keep", MALLOC_TRIM_THRESHOLD_="100000")[0] == "False"
