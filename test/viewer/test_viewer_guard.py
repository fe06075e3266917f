"""Who may talk to the viewer: names, origins, and what its answers forbid the browser."""

from __future__ import annotations

import socket

import pytest
from viewer_site import site
from websockets.exceptions import InvalidStatus

from vlm_decisions.viewer.guard import Guard, allowed_names


def refusal(host="127.0.0.1:8321", *, kind="http", method="GET", bound="127.0.0.1", names=(),
            **headers):
    scope = {"type": kind, "method": method, "headers": [
        (b"host", host.encode()),
        *((name.replace("_", "-").encode(), value.encode()) for name, value in headers.items())]}
    return Guard(None, allowed_names(bound, names), lambda reason: None).refusal(scope)


@pytest.mark.parametrize("host", ["127.0.0.1:8321", "localhost:8321", "localhost", "LOCALHOST:1",
                                  "[::1]:8321", "192.168.1.7:8321", "localhost.:8321"])
def test_addresses_and_this_machine_are_known(host):
    assert refusal(host) == ""


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example",
                                  "localhost.evil.example", "", "[::1", "a@evil.example",
                                  "localhost@evil.example"])
def test_other_names_are_refused(host):
    """A name of a stranger's that leads here (DNS rebinding)."""
    assert "not this viewer's" in refusal(host)


def test_this_machines_name_counts_where_it_serves_the_network():
    own = socket.gethostname()
    assert refusal(f"{own}:8321") != ""
    assert refusal(f"{own}:8321", bound="0.0.0.0") == ""
    assert refusal("robot.lab:8321", names=["Robot.lab"]) == ""


@pytest.mark.parametrize("kind", ["http", "websocket"])
@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999",
                                    "http://localhost:8321", "file://", "http://[", ""])
def test_pages_of_others_are_refused(kind, origin):
    assert "may not use" in refusal(kind=kind, method="POST", origin=origin)


def test_its_own_page_is_let_in():
    assert refusal(origin="http://127.0.0.1:8321", method="POST") == ""
    assert refusal("localhost:9000", origin="http://localhost:9000", kind="websocket") == ""
    assert refusal(sec_fetch_site="same-origin", method="POST") == ""


@pytest.mark.parametrize("place", ["cross-site", "same-site"])
def test_what_another_site_fetches_is_refused(place):
    assert "another site" in refusal(sec_fetch_site=place)
    assert "another site" in refusal(sec_fetch_site=place, method="POST", sec_fetch_mode="navigate")
    assert refusal(sec_fetch_site=place, sec_fetch_mode="navigate") == ""  # a link to the page


def test_the_server_itself_refuses_and_says_so_once():
    with site() as viewer:
        for _ in range(5):
            status, reply = viewer.call("POST", "/api/questions", {"text": "Q?"},
                                        Origin="http://evil.example")
            assert status == 403 and "evil.example" in reply["error"]
        assert viewer.call("GET", "/", Host="evil.example")[0] == 403
        with pytest.raises(InvalidStatus) as caught, viewer.live(origin="http://evil.example"):
            pass
        assert caught.value.response.status_code == 403
        assert len(viewer.source.book) == 1
        assert len(viewer.said) == 1 and "evil.example" in viewer.said[0]
        with viewer.live(origin=f"http://127.0.0.1:{viewer.port}") as live:
            assert '"hello"' in live.recv(timeout=10)


def test_what_the_page_may_do_is_narrow():
    with site() as viewer:
        for path in ("/", "/static/main.js", "/api/state", "/nothing"):
            viewer.call("GET", path)
            policy = viewer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy and "http" not in policy
            assert viewer.headers["x-content-type-options"] == "nosniff"
            assert viewer.headers.get("access-control-allow-origin") is None
