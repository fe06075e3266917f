"""The server: requests, live connections, slow and vanished browsers, a port in use."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from contextlib import ExitStack

import pytest
from viewer_site import decision, picture, site, until
from waiting import wait_for
from websockets.exceptions import ConnectionClosed, InvalidStatus

from vlm_decisions.runtime.system import System
from vlm_decisions.viewer import live as live_module
from vlm_decisions.viewer import server as server_module
from vlm_decisions.viewer.bodies import MAX_BODY
from vlm_decisions.viewer.server import Server, ServerError
from vlm_decisions.viewer.source import CAMERA, PageSourceError, Unavailable


@pytest.fixture(scope="module")
def viewer():
    with site() as served:
        yield served


@pytest.fixture(autouse=True)
def quiet(request):
    if "viewer" in request.fixturenames:
        served = request.getfixturevalue("viewer")
        served.said.clear()
        served.source.fail = None


def is_state(message):
    return isinstance(message, dict) and message["type"] == "state"


def is_picture(message):
    return isinstance(message, bytes)


def test_the_page_and_its_parts_are_served(viewer):
    status, page = viewer.call("GET", "/")
    assert status == 200 and 'src="/static/main.js"' in page
    parts = [line.split('"')[1] for line in page.splitlines() if "/static/" in line]
    assert parts and "://" not in page.replace("http://www.w3.org", "")
    for part in ("/static/main.js", "/static/style.css", "/static/icon.svg"):
        assert viewer.call("GET", part)[0] == 200
    assert viewer.headers["content-type"].startswith("image/svg")


@pytest.mark.parametrize("path", ["/nothing", "/static/../app.py", "/static/%2e%2e/app.py",
                                  "/static/nothing.js", "/api"])
def test_nothing_else_is_served(viewer, path):
    status, reply = viewer.call("GET", path)
    assert status == 404 and "import" not in str(reply)


def test_questions_are_added_changed_asked_and_removed(viewer):
    status, reply = viewer.call("POST", "/api/questions", {
        "text": "Is the <b>door</b> open?", "id": "door"})
    assert (status, reply) == (201, {"message": "added 'door'", "id": "door"})
    assert viewer.source.book.get("door").text == "Is the <b>door</b> open?"
    status, reply = viewer.call("PATCH", "/api/questions/door", {
        "rate_hz": 2, "enter": 0.9, "text": "Is it open?"})
    assert status == 200 and reply == {"message": "changed 'door'"}
    assert viewer.source.book.get("door").text == "Is it open?"
    assert viewer.source.book.get("door").enter == 0.9
    status, reply = viewer.call("POST", "/api/ask", {"text": "Is it?"})
    assert status == 200 and (reply["answer"], reply["p"]) == ("no", 0.25)
    assert viewer.call("DELETE", "/api/questions/door") == (200, {"message": "removed 'door'"})
    assert "door" not in viewer.source.book


def test_what_a_question_would_cost_is_told(viewer):
    assert viewer.call("POST", "/api/cost", {"text": "x" * 60}) == (200, {"tokens": 30, "ms": 7.5})
    assert viewer.call("POST", "/api/cost", {"text": ""}) == (
        200, {"tokens": None, "ms": None})
    assert viewer.call("POST", "/api/cost", raw=b"{")[0] == 400
    assert len(viewer.source.book) == 1


def test_questions_are_suggested_where_it_is_known_what_the_model_understands(viewer):
    assert viewer.call("GET", "/api/suggestions?text=cup") == (200, {"suggestions": []})
    viewer.board.system(System(state="active", model="sim_desk"))
    status, reply = viewer.call("GET", "/api/suggestions?text=what%20is")
    assert status == 200 and 0 < len(reply["suggestions"]) < 10
    assert all("What is" in s["text"] and len(s["options"]) > 1 for s in reply["suggestions"])
    assert viewer.call("GET", "/api/suggestions?text=" + "%C3%A9" * 3000)[0] in (200, 431)


@pytest.mark.parametrize(("method", "path", "body", "said", "field"), [
    ("POST", "/api/questions", {"text": ""}, "is empty", "text"),
    ("POST", "/api/questions", {"text": "x" * 40_000}, "40000 characters", "text"),
    ("POST", "/api/questions", {"text": "Q?", "id": "person"}, "exists already", "id"),
    ("POST", "/api/questions", {"text": "Q?", "kind": "choice", "options": ["a"]}, "2 to 26",
     "options"),
    ("POST", "/api/ask", {"text": ""}, "is empty", "text"),
    ("PATCH", "/api/questions/person", {"enter": 0.1}, "enter must be above exit", "enter"),
    ("PATCH", "/api/questions/person", {}, "nothing to change", None),
    ("PATCH", "/api/questions/nobody", {"enter": 0.9}, "no question 'nobody'", None),
    ("DELETE", "/api/questions/nobody", None, "no question 'nobody'", None),
    ("POST", "/api/questions", {"text": "Q?", "id": ["a"]}, "must be text", "id"),
    ("POST", "/api/ask", {"text": "nothing?"}, "4 asks are waiting", None),
])
def test_what_is_wrong_is_said_once_in_the_log(viewer, method, path, body, said, field):
    for _ in range(3):
        status, reply = viewer.call(method, path, body)
        assert status == 400 and said in reply["error"] and reply["field"] == field
    assert len(viewer.said) <= 1
    assert viewer.call("GET", "/api/state")[0] == 200


@pytest.mark.parametrize(("raw", "kind", "said"), [
    (b"{", "application/json", "not JSON"), (b"[]", "application/json", "JSON object"),
    (b"\xff", "application/json", "UTF-8"), (b'{"text": NaN}', "application/json", "NaN"),
    (b"x" * (MAX_BODY + 1), "application/json", "larger than"),
    (b'{"text": "Q?"}', "text/plain", "application/json"),
    (b"text=Q", "application/x-www-form-urlencoded", "application/json"),
    (b'{"text": "Q?"}', "", "application/json"),
])
def test_malformed_requests_are_named(viewer, raw, kind, said):
    status, reply = viewer.call("POST", "/api/questions", raw=raw, kind=kind)
    assert status == 400 and said in reply["error"]
    assert len(viewer.source.book) == 1


def test_the_systems_refusals_reach_the_page(viewer):
    viewer.source.fail = Unavailable("/decision_node is not there")
    assert viewer.call("POST", "/api/ask", {"text": "Q?"}) == (
        503, {"error": "/decision_node is not there", "field": None})
    viewer.source.fail = PageSourceError("the node is not active")
    assert viewer.call("POST", "/api/ask", {"text": "Q?"})[0] == 400
    viewer.source.fail = ZeroDivisionError("secret")
    status, reply = viewer.call("POST", "/api/ask", {"text": "Q?"})
    assert status == 500 and "secret" not in reply["error"]
    assert any("ZeroDivisionError: secret" in message for message in viewer.said)


def test_a_live_connection_tells_all_then_the_news(viewer):
    viewer.board.decision(decision("person", p=0.8))
    with viewer.live() as live:
        hello = json.loads(live.recv(timeout=20))
        assert hello["name"] == "/test_node" and hello["limits"]["text"] == 500
        first = until(live, is_state)
        assert first["questions"][0]["id"] == "person" and "history" in first
        viewer.board.decision(decision("person", p=0.6))
        news = until(live, lambda m: is_state(m) and m.get("rows"))
        assert news["rows"][0]["p"] == 0.6 and "questions" not in news


@pytest.mark.parametrize(("text", "said"), [
    ("{", "not JSON"), ("[]", "must be an object"), ('{"got": "money"}', "'got' must be"),
    ('{"watch": "tv"}', "'watch' must be"), ('{"watch": {}}', "'watch' must be"),
    ('{"got": []}', "'got' must be"), (b"\x00", "not JSON"),
])
def test_a_browser_that_talks_nonsense_is_let_go(viewer, text, said):
    with viewer.live() as live:
        until(live, is_state)
        live.send(text)
        with pytest.raises(ConnectionClosed) as caught:
            while True:
                live.recv(timeout=20)
        assert caught.value.rcvd.code == 1008 and said in caught.value.rcvd.reason
    assert viewer.call("GET", "/api/state")[0] == 200


def test_pictures_come_only_when_the_last_was_shown(viewer):
    with viewer.live() as live:
        live.send(json.dumps({"watch": CAMERA}))
        wait_for(lambda: viewer.source.watched[-1:] == [{CAMERA}], 20)
        viewer.pictures.put(CAMERA, picture(10))
        assert until(live, is_picture, ack=False)[:2] == b"\xff\xd8"
        for value in range(20):
            viewer.pictures.put(CAMERA, picture(value))
        viewer.board.decision(decision("person"))
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            try:
                assert not is_picture(live.recv(timeout=0.2))
            except TimeoutError:
                pass
        live.send(json.dumps({"got": "picture"}))
        viewer.pictures.put(CAMERA, picture(99))
        assert until(live, is_picture, ack=False)
        live.send(json.dumps({"watch": None}))
        wait_for(lambda: viewer.source.watched[-1] == set(), 20)


def test_twenty_pages_and_one_that_never_reads():
    """Every reader gets pictures and news; the one that stands still holds nothing up."""
    with site() as viewer, ExitStack() as stack:
        stuck = stack.enter_context(viewer.live(max_queue=1, close_timeout=0.1))
        stuck.send(json.dumps({"watch": CAMERA}))
        pages = [stack.enter_context(viewer.live()) for _ in range(20)]
        for page in pages:
            page.send(json.dumps({"watch": CAMERA}))
        wait_for(lambda: viewer.source.watched)
        for round_ in range(5):
            viewer.pictures.put(CAMERA, picture(round_ * 40, (480, 640)))
            viewer.board.decision(decision("person", p=0.5 + round_ / 10))
            for page in pages:
                assert until(page, is_picture)
        viewer.board.decision(decision("person", p=0.99))
        for page in pages:
            until(page, lambda m: is_state(m) and any(
                row["p"] == 0.99 for row in m.get("rows", ())))
        assert viewer.said == []


def test_a_browser_that_vanished_is_let_go(monkeypatch):
    monkeypatch.setattr(live_module, "SILENCE_S", 0.5)
    with site() as viewer, viewer.live() as live:
        live.send(json.dumps({"watch": CAMERA}))
        wait_for(lambda: viewer.source.watched[-1:] == [{CAMERA}], 20)
        viewer.board.decision(decision("person"))
        viewer.pictures.put(CAMERA, picture())
        wait_for(lambda: viewer.source.watched[-1] == set(), 20)  # nothing was acknowledged


def test_too_many_pages_are_told(monkeypatch):
    from vlm_decisions.viewer import app

    monkeypatch.setattr(app, "MAX_CLIENTS", 1)
    with site() as viewer, viewer.live() as first:
        until(first, is_state)
        with pytest.raises(InvalidStatus, match="403"), viewer.live():
            pass
        assert viewer.call("GET", "/")[0] == 200


def ended(connection: socket.socket) -> bool:
    """Whether the server has closed a connection."""
    connection.setblocking(False)
    try:
        return connection.recv(65_536) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"])
def test_connections_that_only_wait_are_let_go(monkeypatch, sent):
    monkeypatch.setattr(server_module, "REQUEST_S", 0.5)
    with site() as viewer, ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", viewer.port)))
                for _ in range(20)]
        for connection in idle:
            connection.sendall(sent)
        live = stack.enter_context(viewer.live())  # one that is used stays
        until(live, is_state)
        wait_for(lambda: all(map(ended, idle)))
        viewer.board.decision(decision("person", p=0.55))
        until(live, lambda m: is_state(m) and m.get("rows"))


def test_a_second_request_that_never_comes_whole_is_let_go(monkeypatch):
    monkeypatch.setattr(server_module, "REQUEST_S", 0.5)
    with site() as viewer, socket.create_connection(("127.0.0.1", viewer.port)) as connection:
        connection.sendall(b"GET /static/icon.svg HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET / HT")
        wait_for(lambda: ended(connection))


def test_a_body_that_never_comes_is_refused(monkeypatch):
    from vlm_decisions.viewer import app

    monkeypatch.setattr(app, "BODY_S", 0.3)
    with site() as viewer, socket.create_connection(("127.0.0.1", viewer.port)) as connection:
        connection.sendall(b"POST /api/ask HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                           b"Content-Type: application/json\r\nContent-Length: 50\r\n\r\n{")
        connection.settimeout(20)
        assert b"400" in connection.recv(100).split(b"\r\n")[0]


def test_connections_are_limited(monkeypatch):
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 30)
    with site() as viewer, ExitStack() as stack:
        many = [stack.enter_context(socket.create_connection(("127.0.0.1", viewer.port)))
                for _ in range(60)]
        wait_for(lambda: sum(map(ended, many)) == 30)
        assert all(map(ended, many[:30])), "those that waited for longest"
        assert reachable(viewer), "though the others stay"
        for connection in many:
            connection.close()
        wait_for(lambda: reachable(viewer))


def reachable(viewer) -> bool:
    try:
        return viewer.call("GET", "/api/state")[0] == 200
    except OSError:
        return False


def test_a_port_in_use_is_named():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerError, match=f"port {port} of 127.0.0.1 is in use.*another port"):
            Server(port=port)
    with site() as viewer, pytest.raises(ServerError, match="in use"):
        Server(port=viewer.port)


@pytest.mark.parametrize("host", ["203.0.113.7", "no.such.host.invalid", "x" * 300])
def test_an_address_of_another_machine_is_named(host):
    with pytest.raises(ServerError, match="viewer: "):
        Server(host=host, port=0)


def test_the_port_is_free_again_after_stop():
    with site() as viewer:
        port = viewer.port
        with viewer.live() as live:
            until(live, is_state)
            viewer.server.stop()
    Server(port=port).stop()


@pytest.mark.parametrize(("host", "url", "open_"), [
    ("127.0.0.1", "http://127.0.0.1:", False), ("localhost", "http://localhost:", False),
    ("0.0.0.0", "http://localhost:", True)])
def test_the_url_is_one_that_works_here(host, url, open_):
    server = Server(host=host, port=0)
    assert server.url == f"{url}{server.port}" and server.is_open == open_
    server.stop()


@pytest.mark.parametrize(("body", "said", "field"), [
    ({}, "give the view a name", "name"), ({"name": "a b"}, "not a ROS name", "name"),
    ({"name": 3, "region": [0, 0, 1, 1]}, "must be text", "name"),
    ({"name": "door"}, "region must be four shares", "region"),
    ({"name": "door", "region": "all"}, "region must be four shares", "region"),
    ({"name": "door", "region": [0.1, 0.2, 1.2, 0.9]}, "outside the picture: 1.2", "region"),
    ({"name": "door", "region": [0.5, 0.2, 0.4, 0.9]}, "x0 < x1 and y0 < y1", "region"),
    ({"name": "door", "region": [0.5, "x", 0.6, 0.9]}, "must hold numbers", "region"),
    ({"name": "door", "region": [0, 0, 0.5, 1], "of": 3}, "of must be the name", None),
    ({"name": "door", "region": [0, 0, 0.5, 1], "sample_hz": 3}, "unknown key 'sample_hz'", None),
])
def test_what_is_wrong_with_a_region_is_said(viewer, body, said, field):
    if body.get("name") == "a b":
        body = {**body, "region": [0, 0, 0.5, 1]}
    status, reply = viewer.call("POST", "/api/views", body)
    assert (status, reply["field"]) == (400, field) and said in reply["error"]
    assert len(viewer.source.book.views) == 1


def test_a_moment_has_its_pictures(viewer):
    moments = viewer.pictures.moments
    moments.put(picture(9))
    one = moments.around(time.time())[-1]
    status, reply = viewer.call("GET", f"/api/moment?t={one.t_s + 0.5}")
    assert status == 200 and [row["id"] for row in reply["rows"]] == list(
        viewer.board.ids())
    assert reply["pictures"][-1] == {"number": one.number, "t": one.t_s, "view": ""}
    assert viewer.call("GET", f"/api/moment?t={one.t_s}&view=door")[1]["pictures"] == []
    with urllib.request.urlopen(
            f"http://127.0.0.1:{viewer.port}/api/pictures/{one.number}") as got:
        assert (got.read(), got.headers["Content-Type"]) == (one.jpeg, "image/jpeg")
    status, reply = viewer.call("GET", "/api/pictures/99999")
    assert status == 404 and "not kept any more" in reply["error"]
    for t in ("", "soon", "nan", "1e999"):
        status, reply = viewer.call("GET", f"/api/moment?t={t}")
        assert status == 400 and "t must be a time" in reply["error"]


def test_an_answer_is_corrected_now_or_for_as_long_as_it_was_held(viewer):
    source = viewer.source
    source.corrected.clear()
    viewer.board.decision(decision("person", "yes", t_end_ns=9_000_000_000))
    status, reply = viewer.call("POST", "/api/corrections/person", {"answer": "no"})
    assert (status, reply) == (201, {"message": "kept number 1: person is no"})
    viewer.call("POST", "/api/corrections/person", {"answer": "no", "held_s": 2.5})
    assert source.corrected == [("person", "", "no", 0, 0),
                                ("person", "", "no", 6_500_000_000, 9_000_000_000)]
    for path, body, why in (
            ("nobody", {"answer": "no"}, "no question 'nobody'"),
            ("person", {}, "answer must be"), ("person", {"answer": 1}, "answer must be"),
            ("person", {"answer": "no", "held_s": -1}, "held_s must be seconds"),
            ("person", {"answer": "no", "text": "x"}, "text")):
        status, reply = viewer.call("POST", f"/api/corrections/{path}", body)
        assert status == 400 and why in reply["error"]
    source.fail = PageSourceError("set the parameter learn_dir")
    status, reply = viewer.call("POST", "/api/corrections/person", {"answer": "no"})
    assert (status, reply["error"]) == (400, "set the parameter learn_dir")


def test_what_was_learned_is_taken_back(viewer):
    status, reply = viewer.call("DELETE", "/api/learned/person")
    assert (status, reply) == (200, {"message": "'person' is answered as before"})
    status, reply = viewer.call("DELETE", "/api/learned/nobody")
    assert status == 400 and "no question 'nobody'" in reply["error"]
    viewer.source.fail = PageSourceError("nothing was learned of 'person'")
    status, reply = viewer.call("DELETE", "/api/learned/person")
    assert (status, reply["error"]) == (400, "nothing was learned of 'person'")


def test_the_question_of_a_view_is_corrected_of_that_view(viewer):
    viewer.source.corrected.clear()
    viewer.board.questions(viewer.source.book, ("front", "door"))
    assert viewer.call("POST", "/api/corrections/door/person", {"answer": "no"})[0] == 201
    assert viewer.source.corrected == [("person", "door", "no", 0, 0)]
    viewer.board.questions(viewer.source.book)
