"""Live cameras: the newest frame, its true age, and what happens when they fail."""

from __future__ import annotations

import io
import re
import signal
import socket
import threading
import time
from fractions import Fraction

import av
import cv2
import numpy as np
import pytest
import rtsp_server
from video_packets import Packet, encoded, shown

from vlm_decisions.sources import live
from vlm_decisions.sources.live import (
    LiveSource,
    NetworkStream,
    Webcam,
    open_stream,
    without_password,
)
from vlm_decisions.sources.source import open_source
from vlm_decisions.sources.video import SourceError


def wait_for_frame(source: LiveSource, timeout_s: float = 20.0) -> tuple[np.ndarray, float]:
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        taken = source.next()
        if taken is not None:
            return taken
    raise AssertionError(f"no frame came: {source.trouble}")


def picture() -> np.ndarray:
    return np.zeros((2, 2, 3), np.uint8)


class Camera:
    """Connections whose frames a test hands out; `None` in them ends a connection."""

    def __init__(self) -> None:
        self.opened = 0
        self.refuse = False
        self._frames: list[float | None] = []
        self._changed = threading.Condition()

    def __call__(self, wait_s: float) -> Camera:
        if self.refuse:
            raise SourceError("nobody there")
        self.opened += 1
        return self

    def give(self, camera_s: float | None) -> None:
        with self._changed:
            self._frames.append(camera_s)
            self._changed.notify_all()

    def frames(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._frames)
                camera_s = self._frames.pop(0)
            if camera_s is None:
                return
            yield picture, camera_s

    def close(self) -> None:
        pass


def age_s(taken: tuple[np.ndarray, float]) -> float:
    return time.monotonic() - taken[1]


@pytest.fixture
def camera(monkeypatch):
    monkeypatch.setattr(live, "PAUSES_S", (0.01,))
    camera = Camera()
    source = LiveSource("camera", camera)
    yield camera, source
    camera.give(None)
    source.close()


def test_a_frame_that_was_late_is_as_old_as_it_is(camera):
    camera, source = camera
    camera.give(100.0)
    wait_for_frame(source)
    time.sleep(1.0)
    camera.give(100.4)  # it was taken .4 s after the first, and came a second after it
    assert age_s(wait_for_frame(source)) > 0.55


def test_a_backlog_is_no_fresh_picture(camera):
    """Frames of ten seconds that all come at once: only the last of them is of now."""
    camera, source = camera
    camera.give(0.0)
    camera.give(10.0)
    taken = wait_for_frame(source)
    while source._newest is not None:
        taken = wait_for_frame(source)
    assert age_s(taken) < 0.5
    camera.give(10.1)
    assert age_s(wait_for_frame(source)) < 0.5


def test_a_camera_whose_clock_began_anew_is_believed(camera):
    camera, source = camera
    for camera_s in (500.0, 0.0, 0.1):
        camera.give(camera_s)
        assert age_s(wait_for_frame(source)) < 0.5


def test_a_connection_that_is_lost_is_made_again(camera):
    camera, source = camera
    camera.give(1.0)
    wait_for_frame(source)
    camera.refuse = True
    camera.give(None)
    end = time.monotonic() + 10.0
    while source.trouble != "nobody there":
        assert source.next() is None and time.monotonic() < end
    camera.refuse = False
    camera.give(7.0)
    wait_for_frame(source)
    assert camera.opened == 2 and source.trouble == "" and not source.ended


def test_what_cannot_be_opened_at_first_is_refused():
    camera = Camera()
    camera.refuse = True
    with pytest.raises(SourceError, match="nobody there"):
        LiveSource("camera", camera)


def test_next_does_not_wait_for_ever_and_close_ends_it(camera):
    camera, source = camera
    assert source.next() is None and not source.ended
    frames = []
    thread = threading.Thread(target=lambda: frames.extend(source), daemon=True)
    thread.start()
    camera.give(None)
    source.close()
    thread.join(10.0)
    assert source.ended and not thread.is_alive()


# -- webcams --------------------------------------------------------------------------------------

class Capture:
    """OpenCV's capture of a camera that fails now and then (no such camera is here)."""

    reads: list[bool] = []
    open = True

    def __init__(self, index: int) -> None:
        self.index = index

    def isOpened(self) -> bool:  # noqa: N802
        return self.open

    def read(self):
        good = self.reads.pop(0) if self.reads else False
        return good, np.full((4, 4, 3), (1, 2, 3), np.uint8) if good else None

    def release(self) -> None:
        pass


@pytest.fixture
def webcam(monkeypatch):
    monkeypatch.setattr(cv2, "VideoCapture", Capture)
    monkeypatch.setattr(live.sys, "platform", "darwin")
    monkeypatch.setattr(Webcam, "GONE_S", 0.3)
    monkeypatch.setattr(Capture, "reads", [])
    monkeypatch.setattr(Capture, "open", True)
    return Capture


def test_one_failed_read_does_not_end_a_webcam(webcam):
    webcam.reads += [True, False, False, True, False, True]
    frames = Webcam(0).frames()
    for _ in range(3):
        convert, camera_s = next(frames)
        assert camera_s is None and convert()[0, 0].tolist() == [3, 2, 1]
    with pytest.raises(SourceError, match="camera 0 gives no image any more"):
        next(frames)


def test_a_webcam_that_is_in_use(webcam):
    webcam.open = False
    with pytest.raises(SourceError, match="camera 0 cannot be opened .in use"):
        Webcam(0)


@pytest.mark.parametrize(("source", "told"), [
    ("webcam:97", "there is no camera 97 on this machine"),
    ("/dev/video97", "there is no camera 97 on this machine"),
    ("file:///tmp/x.mp4", "give the path by itself, /tmp/x.mp4"),
    ("webcam:front", "a webcam is `webcam` or `webcam:N`"), ("webcam:", "`webcam:N`"),
    ("foo://camera/1", "foo:// is not supported; streams are rtsp://"),
    ("rtsp://user:secret@127.0.0.1:1/x", "rtsp://127.0.0.1:1/x cannot be opened: connection ref"),
    ("RTSP://127.0.0.1:1/x", "cannot be opened: connection refused"),
    ("http://127.0.0.1:1/x.mjpg", "cannot be opened: connection refused")])
def test_sources_that_are_not_there(source, told, capfd):
    with pytest.raises(SourceError, match=told) as caught:
        open_source(source)
    assert "secret" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("scheme", ["udp", "rtp"])
def test_a_stream_whose_sender_starts_later_is_waited_for(scheme, monkeypatch, capfd):
    assert live.LISTEN_S <= 5.0
    monkeypatch.setattr(live, "LISTEN_S", 0.3)
    monkeypatch.setattr(live, "REOPEN_S", 5.0)
    monkeypatch.setattr(live, "PAUSES_S", (0.01,))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    source = open_stream(f"{scheme}://127.0.0.1:{port}")
    try:
        assert re.search(r"nothing came within 0.3 s \(is something sent", source.trouble)
        assert source.next() is None and not source.ended
        if scheme == "udp":
            over = threading.Event()
            sender = threading.Thread(target=send_again_and_again, args=(port, over))
            sender.start()
            try:
                assert wait_for_frame(source, 60.0)[0].shape == (120, 160, 3)
            finally:
                over.set()
                sender.join()
            assert source.trouble == ""
    finally:
        source.close()
    assert capfd.readouterr() == ("", "")


def send_again_and_again(port: int, over: threading.Event) -> None:
    """Send a transport stream in datagrams, as a camera does, again and again."""
    data = transport_stream(encoded("h264", 40, gop=5, options={"tune": "zerolatency"})[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        while not over.is_set():
            for at in range(0, len(data), 7 * 188):
                sender.sendto(data[at:at + 7 * 188], ("127.0.0.1", port))
                if over.wait(0.01):
                    return


def test_the_end_does_not_wait_for_a_stream_that_nobody_sends():
    """It is asked for in another thread, which closes nothing that is in use."""
    go, asked = threading.Event(), threading.Event()

    def connect(wait_s: float) -> Camera:
        if asked.is_set():
            go.wait(60.0)
        asked.set()
        raise live.SilentError("nothing came")

    source = LiveSource("camera", connect)
    source.close()
    assert source.ended and not go.is_set()
    go.set()


def test_a_signal_does_not_wait_until_a_camera_is_opened():
    go = threading.Event()

    def connect(wait_s: float) -> Camera:
        go.wait(60.0)
        return Camera()

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        with pytest.raises(KeyboardInterrupt):
            LiveSource("camera", connect)
        assert not go.is_set()
    finally:
        go.set()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def test_addresses_are_shown_without_what_logs_in():
    assert without_password("rtsp://me:pw@cam/1") == "rtsp://cam/1"
    assert without_password("rtsp://cam/a@b") == "rtsp://cam/a@b"


# -- a stream that loses packets ------------------------------------------------------------------

def transport_stream(packets: list[Packet]) -> bytes:
    """Return H.264 packets as an MPEG transport stream."""
    file = io.BytesIO()
    with av.open(file, "w", format="mpegts") as container:
        stream = container.add_stream("libx264", rate=10)
        stream.height, stream.width, stream.pix_fmt = 120, 160, "yuv420p"
        for packet in packets:
            sent = av.Packet(packet.data)
            sent.pts = sent.dts = packet.number
            sent.time_base, sent.stream = Fraction(1, 10), stream
            container.mux(sent)
    return file.getvalue()


@pytest.mark.parametrize("lost", [(), (72,), (60,)])
def test_no_picture_is_shown_that_misses_what_it_refers_to(lost):
    packets, _ = encoded("h264", 100, gop=20, options={"tune": "zerolatency"})
    truth = shown("h264", packets)
    data = transport_stream([packet for packet in packets if packet.number not in lost])
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        stream = NetworkStream(f"tcp://127.0.0.1:{server.getsockname()[1]}", 10.0)
        pictures = [(picture_of(), t_s) for picture_of, t_s in stream.frames()]
        stream.close()
    finally:
        thread.join()
        server.close()
    numbers = [round(10 * (t_s - pictures[-1][1])) + 99 for _, t_s in pictures]
    assert all(np.array_equal(rgb, truth[number])
               for number, (rgb, _) in zip(numbers, pictures, strict=True))
    # FFmpeg passes over what it looked at to know the stream.
    broken = range(lost[0], 80) if lost else ()
    assert numbers == [number for number in range(numbers[0], 100) if number not in broken]
    assert numbers[0] <= 60


# -- a real RTSP server ---------------------------------------------------------------------------

@pytest.mark.slow
def test_a_real_rtsp_server_that_stalls_dies_and_comes_back(capfd):
    if not rtsp_server.available():
        pytest.skip("no RTSP server (apt install gir1.2-gst-rtsp-server-1.0 python3-gi "
                    "gstreamer1.0-plugins-ugly)")
    port = rtsp_server.free_port()
    with rtsp_server.serving(port) as server:
        source = open_stream(f"rtsp://127.0.0.1:{port}/camera")
        try:
            rgb, _ = wait_for_frame(source)
            assert rgb.shape == (240, 320, 3) and rgb.max() > 200 > 50 > rgb.min()
            for _ in range(10):
                wait_for_frame(source)
            assert age_s(wait_for_frame(source)) < 1.0
            server.send_signal(signal.SIGSTOP)
            while source.next() is not None:
                pass
            time.sleep(1.5)
            server.send_signal(signal.SIGCONT)
            # What was on its way is as old as it is, and then the present comes.
            ages = []
            while not ages or ages[-1] > 0.5:
                ages.append(age_s(wait_for_frame(source)))
                assert len(ages) < 300
            server.kill()
            end = time.monotonic() + 20.0
            while "connection refused" not in source.trouble:
                source.next()
                assert time.monotonic() < end
            assert source.next() is None and not source.ended
            with rtsp_server.serving(port):
                back_s = time.monotonic()
                taken = wait_for_frame(source)
                assert taken[1] > back_s - 1.0 and source.trouble == ""
        finally:
            source.close()
    assert capfd.readouterr() == ("", "")
