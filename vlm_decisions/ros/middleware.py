"""What is known of the middleware: room for images in Fast DDS, and where messages get lost."""

from __future__ import annotations

import os
import re
from importlib import metadata
from pathlib import Path

from ..files import resources

PROFILES, OLD_PROFILES = "FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"
TRANSPORTS = "FASTDDS_BUILTIN_TRANSPORTS"


def is_fast_dds() -> bool:
    """Return whether the middleware of this process is Fast DDS, as it is by default."""
    return os.environ.get("RMW_IMPLEMENTATION", "rmw_fastrtps").startswith("rmw_fastrtps")


def profiles_variable() -> str:
    """Return the environment variable that names a profile of Fast DDS."""
    # Fast DDS 2 (up to Jazzy, rclpy 7) knows the old name only, Fast DDS 3 warns of it.
    return OLD_PROFILES if int(metadata.version("rclpy").partition(".")[0]) < 9 else PROFILES


def profile() -> str:
    """Return the path of the profile that gives images room in shared memory."""
    return str(resources.share_file("config", "fastdds.xml"))


def let_images_pass() -> None:
    """Give Fast DDS room for images in shared memory, where nobody chose otherwise.

    config/fastdds.xml says why. It must happen before ``rclpy.init``.
    """
    if is_fast_dds() and not {PROFILES, OLD_PROFILES, TRANSPORTS} & set(os.environ):
        os.environ[profiles_variable()] = profile()


def remove_segments() -> None:
    """Remove what Fast DDS keeps in shared memory for this process, which ends without cleaning up.

    A segment, 34 MiB with our profile, would stay until the machine is started again. Its lock is
    held by the process that made it. Where there is no /proc this does nothing.
    """
    try:
        held = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    except OSError:
        return
    for lock in held:
        if re.fullmatch(r"/dev/shm/fast(dds|rtps)_[0-9a-f]{16}_el", str(lock)):
            for path in (Path(str(lock).removesuffix("_el")), lock):
                path.unlink(missing_ok=True)
