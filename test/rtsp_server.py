"""A real RTSP server of a moving test picture, for tests: GStreamer's, run by the system's Python.

/usr/bin/python3 rtsp_server.py PORT
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

PYTHON = "/usr/bin/python3"
NEEDED = ("import gi; gi.require_version('Gst', '1.0'); "
          "gi.require_version('GstRtspServer', '1.0'); "
          "from gi.repository import Gst, GstRtspServer; Gst.init(None); "
          "assert Gst.ElementFactory.find('x264enc')")
PIPELINE = ("( videotestsrc is-live=true pattern=ball ! video/x-raw,width=320,height=240,"
            "framerate=15/1 ! x264enc tune=zerolatency key-int-max=15 ! rtph264pay name=pay0 )")


def available() -> bool:
    """Return whether the system has the server (gir1.2-gst-rtsp-server-1.0, plugins-ugly)."""
    try:
        return subprocess.run([PYTHON, "-c", NEEDED], capture_output=True, timeout=60,
                              check=False).returncode == 0
    except OSError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(port: int) -> Iterator[subprocess.Popen]:
    """Run the server on this port until the end; it may be killed before."""
    server = subprocess.Popen([PYTHON, __file__, str(port)], env={"PATH": "/usr/bin:/bin"})
    try:
        end = time.monotonic() + 20.0
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except OSError:
                assert server.poll() is None and time.monotonic() < end, "no RTSP server"
                time.sleep(0.05)
        yield server
    finally:
        server.kill()
        server.wait()


def main() -> None:
    import gi

    gi.require_version("Gst", "1.0")
    gi.require_version("GstRtspServer", "1.0")
    from gi.repository import GLib, Gst, GstRtspServer

    Gst.init(None)
    server = GstRtspServer.RTSPServer.new()
    server.set_address("127.0.0.1")
    server.set_service(sys.argv[1])
    factory = GstRtspServer.RTSPMediaFactory.new()
    factory.set_launch(PIPELINE)
    factory.set_shared(True)
    server.get_mount_points().add_factory("/camera", factory)
    assert server.attach(None)
    GLib.MainLoop().run()


if __name__ == "__main__":
    main()
