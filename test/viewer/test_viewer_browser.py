"""The page in a real browser: what it shows, what one can do on it, on a desk and on a phone."""

from __future__ import annotations

import re
import signal
from contextlib import ExitStack, contextmanager
from urllib.request import urlopen

import pytest
from viewer_site import decision, picture, site
from waiting import wait_for

from vlm_decisions.questions import Question
from vlm_decisions.runtime.statistics import Percentiles
from vlm_decisions.viewer.browser import BrowserError, opened
from vlm_decisions.viewer.server import Server
from vlm_decisions.viewer.source import OVERLAY, System

WAIT_MS = 60_000
EVIL = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"


@pytest.fixture(scope="module")
def browser():
    with ExitStack() as stack:
        try:
            started = stack.enter_context(opened())
        except BrowserError as error:
            pytest.skip(str(error))
        yield started


@contextmanager
def page_of(browser, port, *, width=1280, height=900, **options):
    """Open the page; at the end nothing was said on the console and nothing was fetched abroad."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    faults, asked = [], []
    page.on("console", lambda m: faults.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.faults = faults
    try:
        page.goto(f"http://127.0.0.1:{port}/")
        yield page
        assert all(re.match(rf"(http://127\.0\.0\.1:{port}/|blob:)", url) for url in asked), asked
        assert not faults, faults
    finally:
        context.close()


@pytest.fixture
def viewer():
    with site() as served:
        yield served


@pytest.fixture
def page(browser, viewer):
    with page_of(browser, viewer.port) as opened_page:
        yield opened_page


def row(page, question_id):
    return page.locator(f"tr[data-id={question_id}]")


def expect(locator, text):
    locator.filter(has_text=text).first.wait_for()


def test_it_shows_decisions(viewer, page):
    viewer.board.decision(decision("person", "yes", 0.87))
    expect(row(page, "person").locator(".answer"), "yes")
    cells = row(page, "person").get_by_role("cell").all_inner_texts()
    assert "0.87" in cells[1] and cells[4] == "model" and "/ 4 Hz" in cells[5]
    assert page.locator("#decisions").get_by_role("row").count() == 2  # for readers, too
    assert page.title() == "Decisions of /test_node"
    viewer.board.decision(decision("person", "unknown", reason="no answer for 3.0 s"))
    expect(row(page, "person"), "no answer for 3.0 s")
    expect(page.get_by_role("list", name="Events"), "unknown: no answer for 3.0 s")


def test_old_answers_are_greyed(viewer, page):
    viewer.board.decision(decision("person"))
    row(page, "person").and_(page.locator(":not(.stale)")).wait_for()
    row(page, "person").and_(page.locator(".stale")).wait_for()  # nothing came for 2 s
    assert float(row(page, "person").locator(".age").inner_text().split()[0]) >= 2.0


def test_text_is_text(viewer, page):
    viewer.source.book.add(Question("evil", EVIL))
    viewer.source.book.add(Question("pick", "Which?", kind="choice", options=(EVIL[:70], "b")))
    viewer.board.questions(viewer.source.book)
    viewer.board.decision(decision("pick", EVIL[:70], 0.9, probabilities=(0.9, 0.1)))
    viewer.board.decision(decision("evil", "unknown", reason=EVIL))
    viewer.board.event("event", "evil", EVIL)
    viewer.board.link(True, EVIL)
    viewer.board.system(System(condition="", last_error=EVIL, model=EVIL, dropped={EVIL: 1}))
    expect(row(page, "evil").locator(".text"), "<script>")
    expect(page.locator("#banner"), "<img")
    page.wait_for_timeout(500)
    assert "hit" not in page.title()
    assert page.locator("script").count() == 1 and page.locator("img").count() == 2


def test_a_question_is_asked(viewer, page):
    page.get_by_label("Question", exact=True).fill("Is the cup <full>?")
    page.get_by_role("button", name="Keep asking").click()
    expect(row(page, "cup_full").locator(".text"), "Is the cup <full>?")
    expect(page.locator("#ask-result"), "Added as cup_full.")
    assert viewer.source.book.get("cup_full").text == "Is the cup <full>?"
    page.get_by_text("One of several").click()
    page.get_by_label("Question", exact=True).fill("What is it?")
    page.get_by_label("Options, one per line").fill("a cup\n\n a pen ")
    page.get_by_role("button", name="Keep asking").click()
    expect(row(page, "what_it").or_(row(page, "what_is_it")), "a pen")
    assert list(viewer.source.book)[-1].options == ("a cup", "a pen")
    page.get_by_label("Question", exact=True).fill("Is it?")
    page.get_by_role("button", name="Ask once").click()
    expect(page.locator("#ask-result"), "no, probability 0.25")


@pytest.mark.parametrize(("text", "options", "name", "said", "field"), [
    ("", None, "", "is empty", "text"), ("x" * 3000, None, "", "the limit is 500", "text"),
    ("Is it?", None, "person", "exists already", "id"),
    ("Is it?", None, "two words", "not a ROS name", "id"),
    ("Which?", "one", "", "2 to 26", "options"),
])
def test_what_is_wrong_with_a_question_is_said(viewer, page, text, options, name, said, field):
    page.get_by_label("Question", exact=True).fill(text)
    if options:
        page.get_by_text("One of several").click()
        page.get_by_label("Options, one per line").fill(options)
    if name:
        page.get_by_text("Name", exact=True).click()
        page.locator("#ask-id").fill(name)
    page.get_by_role("button", name="Keep asking").click()
    expect(page.locator("#ask").get_by_role("alert"), said)
    assert page.locator(f"[name={field}]").get_attribute("aria-invalid") == "true"
    assert len(viewer.source.book) == 1 and len(viewer.said) == 1
    page.faults.clear()  # the browser notes every reply of 400


def test_rate_and_thresholds_are_edited_and_a_question_removed(viewer, page):
    edit = page.get_by_role("button", name="Edit or remove: Is a person present?")
    edit.click()
    dialog = page.get_by_role("dialog", name="Is a person present?")
    dialog.get_by_label("Yes from").fill("0.2")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert"), "enter must be above exit")
    page.faults.clear()
    dialog.get_by_label("Yes from").fill("0.8")
    dialog.get_by_label("Rate, answers per second").fill("2")
    dialog.get_by_role("button", name="Save").click()
    expect(row(page, "person").locator(".rate"), "/ 2 Hz")
    assert viewer.source.book.get("person").enter == 0.8
    page.locator("dialog").wait_for(state="hidden")
    edit.click()
    dialog.get_by_role("button", name="Remove").click()
    assert len(viewer.source.book) == 1  # it asks once more
    dialog.get_by_role("button", name="Remove for good").click()
    row(page, "person").wait_for(state="detached")
    expect(page.locator("#no-questions"), "Ask one")
    assert len(viewer.source.book) == 0


def test_the_keyboard_is_enough(viewer, page):
    row(page, "person").wait_for()
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        seen.append(page.evaluate(
            "document.activeElement.id || document.activeElement.ariaLabel || "
            "document.activeElement.name || document.activeElement.textContent.trim()"))
    order = ["Skip to the decisions", "channel", "Edit or remove: Is a person present?",
             "ask-text", "kind", "ask-once", "aloud"]
    places = [seen.index(name) for name in order]
    assert places == sorted(places), seen
    page.locator("#ask-text").focus()
    page.keyboard.type("Is it dark?")
    page.keyboard.press("Enter")
    row(page, "it_dark").wait_for()
    page.get_by_role("button", name="Edit or remove: Is it dark?").focus()
    page.keyboard.press("Enter")
    page.get_by_role("dialog").wait_for()
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="hidden")
    assert page.evaluate("document.activeElement.ariaLabel") == "Edit or remove: Is it dark?"


def test_the_picture_comes_and_can_be_turned_off(viewer, page):
    wait_for(lambda: viewer.source.watched[-1:] == [{OVERLAY}], 30)
    viewer.pictures.put(OVERLAY, picture(90, (120, 160)))
    page.locator("#frame[data-empty=no]").wait_for()
    assert page.locator("#picture").evaluate("image => image.naturalWidth") == 160
    expect(page.locator("#picture-note"), "160 × 120")
    page.get_by_text("Off", exact=True).click()
    wait_for(lambda: viewer.source.watched[-1] == set(), 30)
    page.get_by_text("Plain", exact=True).click()
    wait_for(lambda: viewer.source.watched[-1] == {"camera"}, 30)


def test_the_runtime_and_the_camera_are_shown(viewer, page):
    ms = Percentiles(12.0, 30.0, 9)
    viewer.board.system(System(
        state="active", model="sim_desk", tick_ms={"vision": ms, "ask": ms, "total": ms},
        dropped={"queue": 1234}, counts={"frames": 10}, queue=2, image_rate_hz=15.0,
        condition="no image for 2.4 s"))
    viewer.board.decision(decision("camera_frozen", "yes", 0.9, tier=0))
    expect(page.locator("#tick-total"), "12 ms")
    expect(page.get_by_role("row").filter(has_text="Vision"), "30 ms")
    expect(page.locator("#dropped"), "1,234")
    expect(page.locator("#banner"), "Answers are unknown: no image for 2.4 s")
    expect(page.locator("#health li[data-state=yes]"), "frozen")


@pytest.mark.parametrize("width", [360, 820, 1180, 1600])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits(browser, viewer, width, scheme):
    words = "word" * 30
    viewer.source.book.add(Question("long_" + "x" * 50, f"Is {words} there?"))
    viewer.source.book.add(Question("pick", "Which?", kind="choice", options=(words[:80], "b")))
    viewer.board.questions(viewer.source.book)
    viewer.board.decision(decision("pick", words[:80], probabilities=(0.9, 0.1)))
    viewer.board.decision(decision("person", "uncertain", 0.5))
    with page_of(browser, viewer.port, width=width, height=800, color_scheme=scheme) as page:
        expect(row(page, "person"), "uncertain")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        light = page.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(244, 246, 247)")
        assert light == (scheme == "light")
        for button in page.get_by_role("button").all():
            box = button.bounding_box()
            assert box and box["x"] >= 0 and box["x"] + box["width"] <= width


def test_it_comes_back_by_itself(browser):
    with site() as first:
        port = first.port
        with page_of(browser, port) as page:
            row(page, "person").wait_for()
            first.server.stop()
            expect(page.locator("#link"), "Not connected")
            second = Server(port=port)
            first.source.book.add(Question("cup", "Is there a cup?"))
            first.board.questions(first.source.book)
            second.start(first.app.asgi)
            try:
                row(page, "cup").wait_for()
                expect(page.locator("#link"), "Live")
            finally:
                second.stop()
            page.faults.clear()  # the browser notes each connection that failed


def test_the_running_demo(browser):
    """Camera, node with its model, and viewer: each a process, as `view --sim` starts them."""
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    from vlm_decisions.lab.demo import process

    probe = Server(port=0)
    port = probe.port
    probe.stop()
    with (process("decision_node"), process("viewer", f"port:={port}"),
          process("sim_camera", "fps:=8.0") as camera, heard() as ids):
        wait_for(lambda: serves(port), 120)
        with page_of(browser, port) as page:
            page.set_default_timeout(240_000)  # a busy machine answers seldom
            row(page, "person").locator(".answer[data-kind=yes]").wait_for()
            assert page.locator("#rows tr").count() == 16
            page.locator("#frame[data-empty=no]").wait_for()
            page.get_by_label("Question", exact=True).fill("Is there a cup?")
            page.get_by_role("button", name="Keep asking").click()
            wait_for(lambda: "there_a_cup" in ids, 240)  # a decision on the topic
            answer = row(page, "there_a_cup").locator(".answer")
            answer.and_(page.locator(":not([data-kind=none], [data-kind=unknown])")).wait_for()
            camera.send_signal(signal.SIGINT)
            answer.and_(page.locator("[data-kind=unknown]")).wait_for()
            row(page, "person").locator(".answer[data-kind=unknown]").wait_for()
            expect(page.locator("#banner"), "no image for")


@contextmanager
def heard():
    """Yield the set of question ids that decisions on the node's topic are about."""
    from ros_peer import LATCHED, plain_node

    from vlm_decisions.msg import Decision

    ids = set()
    with plain_node("listener") as node:
        node.create_subscription(Decision, "/decision_node/decisions",
                                 lambda msg: ids.add(msg.question_id), LATCHED)
        yield ids


def serves(port):
    try:
        return urlopen(f"http://127.0.0.1:{port}/api/state", timeout=2).status == 200
    except OSError:
        return False
