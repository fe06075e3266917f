"""The page of a runtime without ROS, and `vlm-decisions run --viewer`."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import cv2
import material
import numpy as np
import pytest
from fake_model import FakeModel
from viewer_site import call, decision, until
from waiting import wait_for
from websockets.sync.client import connect

from vlm_decisions.frames import Frame
from vlm_decisions.model_scope import OUT_OF_SCOPE
from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question
from vlm_decisions.runtime import Runtime
from vlm_decisions.runtime.settings import RuntimeSettings
from vlm_decisions.viewer.local import LocalViewer
from vlm_decisions.views import View

BOOK = [Question("person", "Is a person present?"),
        Question("activity", "What?", kind="choice", options=("typing", "idle"))]
EVENTFUL = """
questions:
  - {id: person, text: "Is a person present?"}
events:
  - id: visit
    states: [away, here]
    transitions:
      - {from: away, to: here, when: {person: yes}, hold_s: 1.0, count: visits}
"""


class Filmed:
    """A runtime with a fake model, a camera of noise, and the viewer of both."""

    def __init__(self, engine: Callable[[], FakeModel] = FakeModel) -> None:
        self.said: list[str] = []
        self.viewer = LocalViewer("film.mp4", self.said.append, port=0)
        self.port = self.viewer.server.port
        self.runtime = Runtime(engine, QuestionBook(BOOK),
                               settings=RuntimeSettings(max_age_s=1.0))
        self._stop = threading.Event()
        self._camera = threading.Thread(target=self._film)

    def __enter__(self) -> Filmed:
        self.viewer.start(self.runtime)
        self.runtime.start()
        self._camera.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop_camera()
        self.viewer.stop()
        self.runtime.stop()

    def stop_camera(self) -> None:
        self._stop.set()
        self._camera.join()

    def _film(self) -> None:
        rng = np.random.default_rng(0)
        while not self._stop.wait(0.05):
            now_ns = time.time_ns()
            frame = Frame(rng.integers(0, 256, (48, 64, 3), dtype=np.uint8), now_ns, "cam", now_ns)
            self.runtime.push(frame)
            self.viewer.frame(frame, ("", ""))

    def call(self, method: str, path: str, body: dict | None = None) -> tuple[int, dict]:
        return call(self.port, method, path, body)

    def answer(self, question_id: str) -> str | None:
        rows = self.call("GET", "/api/state")[1].get("rows", ())
        return next((row["answer"] for row in rows if row["id"] == question_id), None)


def test_it_shows_and_acts_as_the_node_does():
    with Filmed() as film:
        wait_for(lambda: film.answer("person") == "yes" and film.answer("activity") == "typing")
        state = film.call("GET", "/api/state")[1]
        assert [q["id"] for q in state["questions"]] == ["person", "activity"]
        assert film.call("POST", "/api/questions", {"text": "Is it raining?"})[0] == 201
        wait_for(lambda: film.answer("it_raining") == "yes")
        assert film.call("PATCH", "/api/questions/it_raining", {"rate_hz": 1})[0] == 200
        assert film.runtime.questions()[-1].rate_hz == 1.0
        assert film.call("PATCH", "/api/questions/it_raining", {"text": "Is it wet?"})[0] == 200
        assert film.runtime.questions()[-1].text == "Is it wet?"
        status, reply = film.call("POST", "/api/ask", {"text": "Is it?"})
        assert status == 200 and reply["answer"] == "yes"
        status, reply = film.call("POST", "/api/cost", {"text": "Is it?"})
        assert status == 200 and reply["tokens"] > 0
        assert film.call("DELETE", "/api/questions/it_raining")[0] == 200
        assert [q.id for q in film.runtime.questions()] == ["person", "activity"]
        system = wait_for(
            lambda: (lambda s: s if {"vision", "total"} <= s["tick_ms"].keys()
                     and "it_raining" not in s["costs"] else None)(  # they are told once a second
                film.call("GET", "/api/state")[1]["system"]))
        assert system["model"] == "fake" and system["mark"] == ""
        assert system["costs"].keys() == {"person", "activity"}
        assert system["max_age_s"] == 1.0 and system["counts"]["frames"] > 0
        assert film.said == []
        status, reply = film.call("POST", "/api/views", {"name": "door",
                                                         "region": [0.5, 0.0, 1.0, 0.5]})
        assert (status, reply) == (201, {"message": "added view 'door'"})
        assert film.runtime.views()[-1] == View("door", region=(0.5, 0.0, 1.0, 0.5))
        wait_for(lambda: film.answer("door/person") == "yes" and film.answer("person") == "yes")
        with connect(f"ws://127.0.0.1:{film.port}/live", proxy=None) as live:
            live.send(json.dumps({"watch": "overlay/door"}))
            jpeg = until(live, lambda m: isinstance(m, bytes))
        assert cv2.imdecode(np.frombuffer(jpeg, np.uint8), 1).shape == (24, 32, 3)  # what it sees


@pytest.mark.slow
def test_a_model_that_cannot_keep_up_is_called_so():
    """Every answer is older than they may be: nothing is live."""
    with Filmed(lambda: FakeModel(ask_s=1.2)) as film:
        def state():
            return film.call("GET", "/api/state")[1]["state"]

        found = wait_for(lambda: (lambda s: s if s["kind"] == "overloaded" else None)(state()))
        assert "of 2 unknown" in found["label"] and "every 250 ms" in found["message"]
        for _ in range(30):
            assert state()["label"] != "Live"
            time.sleep(0.1)
    with Filmed() as film:
        wait_for(lambda: state()["label"] == "Live")


def test_events_over_decisions_are_shown():
    book = QuestionBook.loads(EVENTFUL)
    viewer = LocalViewer("film.mp4", lambda message: None, port=0)
    runtime = Runtime(FakeModel, book)
    viewer.start(runtime, book.events)
    try:
        for number in range(3):  # held for a second of frame time
            t_ns = 10_000_000_000 + number * 600_000_000
            runtime._publisher.publish(runtime._views.all[0], [
                decision("person", t_start_ns=t_ns, t_end_ns=t_ns, t_decided_ns=t_ns)])
        events = call(viewer.server.port, "GET", "/api/state")[1]["events"]
        assert [(e["ids"], e["text"]) for e in events] == [(["visit"], "away → here, visits 1")]
    finally:
        viewer.stop()


def test_a_camera_that_stops_delivering_turns_rows_to_unknown():
    with Filmed() as film:
        wait_for(lambda: film.answer("person") == "yes")
        film.stop_camera()  # nothing pushes any more: the viewer has to have it noticed
        wait_for(lambda: film.answer("person") == "unknown")
        wait_for(lambda: "no image for" in film.call("GET", "/api/state")[1]["system"]["condition"])


@pytest.mark.parametrize("channel", ["overlay", "camera"])
def test_pictures_come(channel):
    with Filmed() as film, connect(f"ws://127.0.0.1:{film.port}/live", proxy=None) as live:
        live.send(json.dumps({"watch": channel}))
        for _ in range(2):
            assert until(live, lambda m: isinstance(m, bytes))[:2] == b"\xff\xd8"


def test_while_the_model_loads_nothing_is_called_unknown():
    release = threading.Event()

    def load():
        release.wait(30)
        return FakeModel()

    viewer = LocalViewer("film.mp4", lambda message: None, port=0)
    runtime = Runtime(load, QuestionBook(BOOK))
    viewer.start(runtime)
    runtime.start()
    try:
        def state():
            return call(viewer.server.port, "GET", "/api/state")[1]

        wait_for(lambda: state()["state"]["kind"] == "loading")
        time.sleep(0.6)  # a few of the checks for stale answers
        assert "rows" not in state() and "events" not in state()
        release.set()
        wait_for(lambda: state()["state"]["kind"] == "no_camera")  # it has loaded, nothing films
    finally:
        release.set()
        viewer.stop()
        runtime.stop()


def run(*arguments: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "vlm_decisions.cli", "run", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
def test_run_opens_the_page():
    video = material.material("videos", "imageio_cockatoo.mp4")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    child = run("--source", video, "--viewer", "--port", port, "--ask", "Is there a bird?")
    try:
        line = child.stdout.readline()
        assert line.strip() == f"viewer: http://127.0.0.1:{port}", line

        def answered():
            try:
                state = call(port, "GET", "/api/state")[1]
            except OSError:  # not yet
                return None
            return [r for r in state.get("rows", ()) if r["id"] == "ask_1" and r["tier"] == 2]

        assert wait_for(answered, 60.0)
        # sim_desk was asked about a bird.
        assert call(port, "GET", "/api/state")[1]["system"]["mark"] == OUT_OF_SCOPE
    finally:
        child.terminate()
        child.wait(20)


@pytest.mark.slow
def test_a_port_in_use_ends_run_before_it_begins():
    video = material.material("videos", "imageio_cockatoo.mp4")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        child = run("--source", video, "--viewer", "--port", taken.getsockname()[1])
        out = child.communicate(timeout=60)[0]
    assert child.returncode == 1 and "is in use" in out and "Traceback" not in out
