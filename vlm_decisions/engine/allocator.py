"""Keep freed memory in the process, so that each pass finds its pages where the last one left them.

MLX on the CPU allocates every intermediate array with malloc and frees it. glibc hands freed
memory of some size back to the kernel at once, and each page of the next array then costs a fault:
much of the time of a large model's pass with many questions, and with a small model that of the
images and their copies. Nothing is done off Linux, with another malloc,
or where the user has set it up (a ``MALLOC_..._`` or ``GLIBC_TUNABLES`` variable).
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from typing import Final

KEPT_BYTES: Final = 1 << 30  # freed bytes kept, and the largest array that is not mapped by itself
_TRIM_THRESHOLD: Final = -1  # mallopt's numbers for its parameters, from malloc.h
_MMAP_THRESHOLD: Final = -3
_USERS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD")


def keep_freed_memory() -> bool:
    """Tell glibc to keep up to ``KEPT_BYTES`` of freed memory; whether it was told."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        return False
    if any(os.environ.get(name) for name in _USERS):
        return False
    mallopt = ctypes.CDLL(None).mallopt
    done = [mallopt(_TRIM_THRESHOLD, KEPT_BYTES), mallopt(_MMAP_THRESHOLD, KEPT_BYTES)]
    return all(done)
