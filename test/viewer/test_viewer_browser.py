"""The page in a real browser: what it shows, what one can do on it, on a desk and on a phone."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import signal
import time
from contextlib import ExitStack, contextmanager
from urllib.request import urlopen

import pytest
import yaml
from viewer_site import SOME, SYSTEM, decision, picture, site, some_of_the_desk
from waiting import wait_for

from vlm_decisions.question_book import QuestionBook
from vlm_decisions.questions import Question
from vlm_decisions.runtime.statistics import Percentiles
from vlm_decisions.runtime.system import Status, System
from vlm_decisions.sources.truth import TruthRow
from vlm_decisions.viewer.browser import BrowserError, opened
from vlm_decisions.viewer.server import Server
from vlm_decisions.viewer.source import CAMERA, OVERLAY, PageSourceError

pytestmark = pytest.mark.slow
WAIT_MS = 30_000
EVIL = "<img src=x onerror=\"document.title='hit'\"><script>document.title='hit'</script>"


class Pages:
    """The pages of one browser: those with the same options share a context and its process."""

    def __init__(self, browser, anchor):
        self._browser, self._anchor, self._contexts = browser, anchor, {}

    def open(self, **options):
        """Return a new page; the viewer keeps nothing in the browser, so it is as a first one."""
        key = repr(sorted(options.items()))
        if key not in self._contexts:
            context = self._contexts[key] = self._browser.new_context(**options)
            context.set_default_timeout(WAIT_MS)
            # Never closed, so that the process stays; new pages of the same host then start in it.
            context.new_page().goto(f"{self._anchor}/static/style.css")
        return self._contexts[key].new_page()


@pytest.fixture(scope="module")
def browser():
    with ExitStack() as stack:
        try:
            started = stack.enter_context(opened())
        except BrowserError as error:
            pytest.skip(str(error))
        yield Pages(started, f"http://127.0.0.1:{stack.enter_context(site()).port}")


@contextmanager
def page_of(browser, port, *, width=1280, height=900, script="", **options):
    """Open the page; at the end nothing was said on the console and nothing was fetched abroad.

    `script`: run before the page's own.
    """
    page = browser.open(**options)
    page.add_init_script(script)
    page.set_viewport_size({"width": width, "height": height})
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
        page.close()


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
    viewer.board.system(System(state="unconfigured", failure=EVIL, last_error=EVIL, model=EVIL,
                               dropped={EVIL: 1}, statuses=(Status(EVIL, 1, EVIL),)))
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


SCORE = Question("people", "How many people are there?", kind="score",
                 options=("none", "one", "two"))
ANY_OF = Question("on_desk", "Is there a {} on the desk?", kind="any_of", options=("cup", "pen"))


def test_a_score_shows_its_levels_and_value_and_its_thresholds_are_set(viewer, page):
    viewer.source.book.add(SCORE)
    viewer.board.questions(viewer.source.book)
    viewer.board.decision(decision("people", "one", 0.7, options=SCORE.options, value=1.15,
                                   probabilities=(0.075, 0.7, 0.225)))
    expect(row(page, "people").locator(".answers"), "one 1.15")
    assert row(page, "people").locator(".options li.is").inner_text() == "one 0.70"
    assert row(page, "people").locator(".spark .threshold").count() == 2
    row(page, "people").get_by_role("button", name="Edit or remove").click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_label("Levels, the lowest first").input_value() == "none\none\ntwo"
    expect(dialog.locator("#edit-hint"), "beyond a threshold")
    field = dialog.get_by_label("Thresholds between the levels")
    field.fill("0.5, half")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert"), "The thresholds must be numbers")
    field.fill("1.5 0.5")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert"), "The thresholds must rise: 1.5, 0.5.")
    page.faults.clear()
    field.fill("0.4, 1.6")
    dialog.get_by_role("button", name="Save").click()
    dialog.wait_for(state="hidden")
    assert viewer.source.book.get("people").thresholds == (0.4, 1.6)


def test_labels_show_which_of_them_are_so(viewer, page):
    viewer.source.book.add(ANY_OF)
    viewer.board.questions(viewer.source.book)
    viewer.board.decision(decision("on_desk", "uncertain", 0.6, options=ANY_OF.options,
                                   probabilities=(0.9, 0.6), answers=("yes", "uncertain")))
    expect(row(page, "on_desk").locator(".answer"), "uncertain")
    assert row(page, "on_desk").locator(".options li.is").all_inner_texts() == ["cup 0.90"]
    viewer.board.decision(decision("on_desk", "cup, pen", 0.8, options=ANY_OF.options,
                                   probabilities=(0.9, 0.8), answers=("yes", "yes")))
    expect(row(page, "on_desk").locator(".answer"), "cup, pen")
    assert row(page, "on_desk").locator(".options li.is").count() == 2
    row(page, "on_desk").get_by_role("button", name="Edit or remove").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("#edit-hint"), "for each label")
    assert not dialog.get_by_label("Thresholds between the levels").is_visible()


@pytest.mark.parametrize(("button", "field", "options", "kind"), [
    ("A level", "Levels, the lowest first, one per line", "none\none", "score"),
    ("Which of these", "Labels, one per line", "cup", "any_of"),
])
def test_scores_and_labels_are_asked(viewer, page, button, field, options, kind):
    page.get_by_text(button, exact=True).click()
    assert page.get_by_text("Each label is asked by itself").is_visible() == (kind == "any_of")
    page.get_by_label("Question", exact=True).fill("Is there a {} here?")
    area = page.locator("#ask").get_by_label(field)
    area.fill(options)
    page.get_by_role("button", name="Keep asking").click()
    expect(page.locator("#ask-result"), "Added as there_a_here.")
    asked = list(viewer.source.book)[-1]
    assert (asked.kind, asked.options) == (kind, tuple(options.split("\n")))
    assert page.locator("#options-field").is_hidden()  # the form is as it was


@pytest.mark.parametrize(("text", "options", "name", "said", "field"), [
    ("", None, "", "The question is empty.", "text"),
    ("x" * 3000, None, "", "The question has 3000 characters, the limit is 500.", "text"),
    ("Is it?", None, "person", "There is a question named “person” already.", "id"),
    ("Is it?", None, "two words", "The name 'two words' cannot be used. It takes letters", "id"),
    ("Which?", "one", "", "The options must be 2 to 26 for a choice", "options"),
    ("Is \u202eit?", None, "", "The question holds characters that turn the direction", "text"),
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


def test_a_nodes_refusal_is_said_in_the_pages_words(viewer, page):
    viewer.source.fail = PageSourceError(
        "question 'person': enter must be above exit: enter is 0.6")
    row(page, "person").get_by_role("button", name="Edit or remove").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Yes from").fill("0.6")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert"), "“Yes from” must be above “No up to”: “Yes from” is 0.6.")
    page.faults.clear()


def test_rate_and_thresholds_are_edited_and_a_question_removed(viewer, page):
    edit = page.get_by_role("button", name="Edit or remove: Is a person present?")
    edit.click()
    dialog = page.get_by_role("dialog", name="Is a person present?")
    dialog.get_by_label("Yes from").fill("0.2")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_role("alert"), "“Yes from” must be above “No up to”")
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
    order = ["Skip to the decisions", "Save", "channel", "unknown-first",
             "Edit or remove: Is a person present?", "ask-text", "kind", "ask-once", "aloud"]
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
    wait_for(lambda: viewer.source.watched[-1:] == [{CAMERA}], 30)  # plain on a wide screen
    viewer.pictures.put(CAMERA, picture(90, (120, 160)))
    page.locator("#frame[data-empty=no]").wait_for()
    assert page.locator("#picture").evaluate("image => image.naturalWidth") == 160
    expect(page.locator("#picture-note"), "160 × 120")
    page.get_by_text("Off", exact=True).click()
    wait_for(lambda: viewer.source.watched[-1] == set(), 30)
    page.get_by_text("Answers on it", exact=True).click()
    wait_for(lambda: viewer.source.watched[-1] == {OVERLAY}, 30)


def test_the_picture_is_saved(viewer, page):
    wait_for(lambda: viewer.source.watched[-1:] == [{CAMERA}], 30)
    viewer.pictures.put(CAMERA, picture(90, (120, 160)))
    page.locator("#frame[data-empty=no]").wait_for()
    page.locator("#save summary").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Picture, JPEG").click()
    with open(download.value.path(), "rb") as file:
        assert file.read(2) == b"\xff\xd8"


def test_the_picture_fills_the_screen(viewer, page):
    full = page.get_by_role("button", name="Full screen")
    full.click()
    page.wait_for_function("document.fullscreenElement?.id === 'frame'")
    full.click()
    page.wait_for_function("document.fullscreenElement === null")


def test_decisions_are_saved_from_the_menu(viewer, page):
    viewer.board.decision(decision("person", "yes", 0.87))
    page.locator("#save summary").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Decisions, CSV").click()
    with open(download.value.path(), encoding="utf-8") as file:
        assert "person,,yes,0.87" in file.read()
    assert re.fullmatch(r"decisions-[0-9]{8}-[0-9]{6}\.csv", download.value.suggested_filename)


def test_the_runtime_and_the_camera_are_shown(viewer, page):
    ms = Percentiles(12.0, 30.0, 9)
    stages = ("vision", "ask", "total", "intake", "outside", "health", "tier_1", "tier_2", "wait")
    viewer.board.system(System(
        state="active", model="sim_desk", tick_ms=dict.fromkeys(stages, ms),
        dropped={"queue": 1234}, breaks={"switched": 77},
        counts={"frames": 10, "skipped": 7}, queue=2, image_rate_hz=15.0,
        image_age_s=0.1))
    for name in ("dark", "bright", "blurred", "occluded"):
        viewer.board.decision(decision(f"camera_{name}", "no", 0.1, tier=0))
    viewer.board.decision(decision("camera_frozen", "yes", 0.9, tier=0))
    viewer.board.decision(decision("person"))
    expect(page.locator("#tick-total"), "12 ms")
    expect(page.get_by_role("row").filter(has_text="Vision"), "30 ms")
    expect(page.locator("#dropped"), "1,234")
    expect(page.locator("#counts"), "questions put off")
    expect(page.locator("#breaks"), "another camera")
    assert page.locator("#health li").all_inner_texts() == ["Camera frozen"]
    # Every stage has a name in words.
    named = page.locator("#ticks th").all_inner_texts()
    assert len(named) == 8 and all(name[0].isupper() and "_" not in name for name in named)
    viewer.board.decision(decision("camera_frozen", "no", 0.1, tier=0))
    expect(page.locator("#health"), "Camera: good")
    viewer.board.link(False, "no word from /test_node")
    expect(page.locator("#health"), "Camera: not known")


READY = System(state="active", model="m", image_age_s=0.1, group_ms=250.0, topic="/image",
               counts={"frames": 9})


def test_the_state_is_honest(viewer, page):
    viewer.board.questions([Question(f"q{n}", f"Is it {n}?") for n in range(3)])
    viewer.board.system(System(state="configuring"))
    for n in range(3):
        viewer.board.decision(decision(f"q{n}", "unknown", reason="no image yet", t_end_ns=0))
    expect(page.locator("#link"), "Loading")
    expect(row(page, "q0"), "waiting")  # nothing is wrong with it
    assert page.locator("#rows [data-kind=unknown]").count() == 0
    viewer.board.system(READY)
    expect(page.locator("#link"), "3 of 3 unknown")
    expect(page.locator("#banner"), "No image yet.")
    for n in range(3):
        viewer.board.decision(decision(f"q{n}"))
    expect(page.locator("#link"), "Live")
    assert page.locator("#banner").is_hidden()
    viewer.board.decision(decision("q1", "unknown", reason="no answer for 3.0 s"))
    viewer.board.system(dataclasses.replace(READY, dropped={"queue": 3}))
    expect(page.locator("#link"), "Overloaded, 1 of 3 unknown")
    expect(page.locator("#banner"), "Lower the questions' rates")
    viewer.board.system(dataclasses.replace(READY, condition="no image for 2.4 s", image_age_s=2.4))
    expect(page.locator("#link"), "No camera")
    expect(page.locator("#banner"), "ros2 topic hz /image")
    viewer.board.system(dataclasses.replace(READY, state="ended", condition="no image for 9 s"))
    expect(page.locator("#link"), "Recording ended")
    expect(page.locator("#banner"), "It was played to its end")


def test_what_a_form_said_while_the_node_was_away_is_forgotten_when_it_is_back(viewer, page):
    viewer.board.link(False, "no word from /test_node")
    expect(page.locator("#banner"), "no word from /test_node")
    viewer.source.fail = PageSourceError("no decision node answers")
    page.get_by_label("Question", exact=True).fill("Is it?")
    page.get_by_role("button", name="Keep asking").click()
    expect(page.locator("#ask-error"), "No decision node answers.")
    page.wait_for_timeout(500)
    assert page.locator("#ask-error").inner_text()  # not before
    page.faults.clear()
    viewer.board.link(True, "")
    viewer.board.system(READY)
    expect(page.locator("#link"), "Starting")
    assert page.locator("#ask-error").inner_text() == ""


HOLD = """{
  const held = [];
  let open = false;
  window.WebSocket = class extends WebSocket {
    set onmessage(take) {
      super.onmessage = (event) => { if (open) take(event); else held.push(() => take(event)); };
    }
  };
  window.release = () => { open = true; for (const one of held) one(); };
}"""


def test_what_a_form_says_before_the_first_word_of_the_viewer_stays(browser, viewer):
    with page_of(browser, viewer.port, script=HOLD) as page:
        page.get_by_role("button", name="Keep asking").click()
        expect(page.locator("#ask-error"), "The question is empty.")
        page.evaluate("release()")
        row(page, "person").wait_for()
        assert page.locator("#ask-error").inner_text() == "The question is empty."
        page.faults.clear()  # the browser notes every reply of 400


LISTEN = """() => {
  window.heard = [];
  const live = [...document.querySelectorAll(
    '[role=status], [role=alert], output, [aria-live]:not([aria-live=off])')];
  for (const region of live) {
    new MutationObserver(() => {
      const text = region.textContent.trim();
      if (text && !region.hidden) window.heard.push(text);
    }).observe(region, { childList: true, characterData: true, subtree: true });
  }
}"""


def test_a_lost_camera_is_announced_once(viewer, page):
    viewer.board.system(READY)
    viewer.board.decision(decision("person"))
    expect(page.locator("#link"), "Live")
    page.evaluate(LISTEN)
    for tenth in range(50):
        age_s = 2.0 + tenth / 10
        reason = f"no image for {age_s:.1f} s"
        viewer.board.system(dataclasses.replace(READY, condition=reason, image_age_s=age_s))
        viewer.board.decision(decision("person", "unknown", reason=reason))
        page.wait_for_timeout(100)
    assert page.evaluate("window.heard") == ["No camera."]


def test_the_focus_stays_where_the_work_is(viewer, page):
    viewer.source.book.add(Question("cup", "Is there a cup?"))
    viewer.source.book.add(Question("pen", "Is there a pen?"))
    viewer.board.questions(viewer.source.book)
    page.get_by_label("Question", exact=True).fill("Is it?")
    once = page.get_by_role("button", name="Ask once")
    once.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#ask-result"), "no, probability 0.25")
    assert page.evaluate("document.activeElement.id") == "ask-once"
    for removed, next_ in (("cup", "Edit or remove: Is there a pen?"),
                           ("pen", "Edit or remove: Is a person present?"),
                           ("person", "decisions")):
        row(page, removed).get_by_role("button", name="Edit or remove").click()
        page.get_by_role("button", name="Remove", exact=True).click()
        page.get_by_role("button", name="Remove for good").click()
        row(page, removed).wait_for(state="detached")
        page.wait_for_timeout(100)
        assert page.evaluate(
            "document.activeElement.ariaLabel || document.activeElement.id") == next_


def test_the_focus_outlives_a_question_that_others_remove(viewer, page):
    viewer.source.book.add(Question("cup", "Is there a cup?"))
    viewer.board.questions(viewer.source.book)
    row(page, "cup").wait_for()
    row(page, "person").get_by_role("button", name="Edit or remove").focus()
    viewer.source.book.remove("person")
    viewer.board.questions(viewer.source.book)
    row(page, "person").wait_for(state="detached")
    page.wait_for_function(
        "document.activeElement.ariaLabel === 'Edit or remove: Is there a cup?'")


def test_an_answer_that_failed_does_not_look_like_one(viewer, page):
    viewer.source.ask = lambda question, timeout_s: decision(
        "ask", "unknown", reason="no image for 3 s")
    page.get_by_label("Question", exact=True).fill("Is it?")
    page.get_by_role("button", name="Ask once").click()
    expect(page.locator("#ask-result"), "No answer: no image for 3 s.")
    green = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--yes')")
    colour = page.locator("#ask-result").evaluate("box => getComputedStyle(box).color")
    assert colour != hex_to_rgb(green)


def hex_to_rgb(text):
    value = int(text.strip().removeprefix("#"), 16)
    return f"rgb({value >> 16}, {value >> 8 & 255}, {value & 255})"


def test_a_row_keeps_its_height_whatever_it_says(viewer, page):
    viewer.board.system(READY)
    heights = set()
    for change in ({"answer": "yes"}, {"answer": "unknown", "reason": "no answer for 3.0 s " * 9},
                   {"answer": "uncertain"}):
        viewer.board.decision(decision("person", **change))
        expect(row(page, "person").locator(".answer"), change["answer"])
        heights.add(row(page, "person").bounding_box()["height"])
    page.wait_for_timeout(2500)  # stale by now
    heights.add(row(page, "person").bounding_box()["height"])
    assert len(heights) == 1


CONTRAST = """() => {
  const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    probe.clearRect(0, 0, 1, 1);
    probe.fillStyle = colour;
    probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data].map((v) => v / 255);
  };
  const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
  const light = (rgb) => rgb.map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const out = {};
  for (const name of ['.answer', '.value', '.age span', '.rate span', '.tier', '.options li',
                      '.mono']) {
    for (const element of document.querySelectorAll(`#rows ${name}`)) {
      if (!element.textContent.trim()) continue;
      let opacity = 1;
      const layers = [];
      for (let up = element; up; up = up.parentElement) {
        const style = getComputedStyle(up);
        opacity *= style.opacity;
        layers.unshift(rgba(style.backgroundColor));
      }
      const ground = layers.reduce((under, top) => over(top, under), [1, 1, 1]);
      const ink = rgba(getComputedStyle(element).color);
      const [a, b] = [light(over([...ink.slice(0, 3), ink[3] * opacity], ground)), light(ground)];
      const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      out[name] = Math.min(out[name] ?? 99, ratio);
    }
  }
  return out;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_old_answers_can_be_read(browser, viewer, scheme):
    viewer.source.book.add(Question("pick", "Which?", kind="choice", options=("a", "b")))
    viewer.board.questions(viewer.source.book)
    viewer.board.system(READY)
    with page_of(browser, viewer.port, color_scheme=scheme) as page:
        viewer.board.decision(decision("pick", "a", 0.9, probabilities=(0.9, 0.1)))
        viewer.board.decision(decision("person"))
        page.locator("tr.stale").nth(1).wait_for()
        page.wait_for_timeout(2000)  # the mark of a change fades
        ratios = page.evaluate(CONTRAST)
        assert len(ratios) == 7 and min(ratios.values()) >= 4.5, ratios


def test_the_count_is_that_of_the_filter(viewer, page):
    for n in range(11):
        viewer.source.book.add(Question(f"cup_{n}", f"Is there a cup {n}?"))
    viewer.board.questions(viewer.source.book)
    expect(page.locator("#count"), "12")
    page.get_by_placeholder("Filter").fill("cup 1")
    expect(page.locator("#count"), "2 of 12")
    page.get_by_placeholder("Filter").fill("zzz")
    expect(page.locator("#count"), "0 of 12")
    expect(page.locator("#no-match"), "No question")


def test_unknown_comes_first_where_that_is_wanted(viewer, page):
    for n in range(4):
        viewer.source.book.add(Question(f"q{n}", f"Is it {n}?"))
    viewer.board.questions(viewer.source.book)
    viewer.board.system(READY)

    def answer(unknown):
        for question in viewer.source.book:
            kind = "unknown" if question.id == unknown else "yes"
            viewer.board.decision(decision(question.id, kind, reason="late"))

    def order():
        return page.locator("#rows tr").evaluate_all("rows => rows.map((row) => row.dataset.id)")

    answer("q2")
    expect(row(page, "q2").locator(".answer"), "unknown")
    assert order() == ["person", "q0", "q1", "q2", "q3"]
    page.get_by_label("Unknown first").check()
    # Answers grow stale, and are unknown then: they are told anew until the page shows them.
    wait_for(lambda: answer("q2") or order() == ["q2", "person", "q0", "q1", "q3"], 20)
    wait_for(lambda: answer("q3") or order() == ["q3", "person", "q0", "q1", "q2"], 20)
    page.get_by_label("Unknown first").uncheck()
    assert order() == ["person", "q0", "q1", "q2", "q3"]


def test_ask_is_one_jump_away_on_a_phone(browser, viewer):
    with page_of(browser, viewer.port, width=390, height=844) as page:
        for n in range(20):
            viewer.source.book.add(Question(f"q{n}", f"Is it {n}?"))
        viewer.board.questions(viewer.source.book)
        row(page, "q19").wait_for()
        page.get_by_role("link", name="Ask", exact=True).click()
        assert page.evaluate("document.activeElement.id") == "ask-text"
        box = page.locator("#ask-text").bounding_box()
        assert 0 <= box["y"] and box["y"] + box["height"] <= 844


def test_text_and_options_are_edited_in_place(viewer, page):
    viewer.source.book.add(Question("pick", "Which?", kind="choice", options=("a", "b"), ema=0.5))
    viewer.board.questions(viewer.source.book)
    row(page, "pick").get_by_role("button", name="Edit or remove").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Text").fill("Which one?")
    expect(dialog, "begin anew")
    dialog.get_by_label("Options").fill("a\nc\nd")
    dialog.get_by_role("button", name="Save").click()
    expect(row(page, "pick"), "Which one?")
    question = viewer.source.book.get("pick")
    assert question == Question("pick", "Which one?", kind="choice", options=("a", "c", "d"),
                                ema=0.5)


def test_another_text_for_a_head_is_warned_of(viewer, page):
    viewer.board.decision(decision("person", tier=1))
    expect(row(page, "person").locator(".tier"), "head")
    row(page, "person").get_by_role("button", name="Edit or remove").click()
    assert page.locator("#edit-anew").is_hidden()
    page.get_by_role("dialog").get_by_label("Text").fill("Is it raining?")
    expect(page.get_by_role("dialog"), "A head answers this question, and does not read its text")


def test_the_picture_stays_in_sight_on_a_phone(browser, viewer):
    for n in range(20):
        viewer.source.book.add(Question(f"q{n}", f"Is it {n}?"))
    viewer.board.questions(viewer.source.book)
    with page_of(browser, viewer.port, width=390, height=844) as page:
        wait_for(lambda: viewer.source.watched[-1:] == [{CAMERA}], 30)  # plain: it is small
        viewer.pictures.put(CAMERA, picture(90, (480, 640)))
        page.locator("#frame[data-empty=no]").wait_for()
        button = row(page, "q15").get_by_role("button", name="Edit or remove")
        button.focus()
        frame, box = page.locator("#frame").bounding_box(), button.bounding_box()
        assert 0 <= frame["y"] < 30 and frame["height"] < 300
        assert box["y"] >= frame["y"] + frame["height"]  # what has the focus is not under it
        page.get_by_text("Answers on it", exact=True).click()
        wait_for(lambda: viewer.source.watched[-1:] == [{OVERLAY}], 30)
        frame = page.locator("#frame").bounding_box()  # all the width there is, to be read
        assert frame["width"] > 330
        assert frame["width"] / frame["height"] == pytest.approx(4 / 3, 0.01)


def drag(page, handle, down):
    """Drag a threshold to a place in its plot: the share of the height from the top."""
    plot, box = page.locator(".plot").bounding_box(), handle.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 100, plot["y"] + down * plot["height"], steps=4)
    page.mouse.up()


def test_thresholds_are_dragged_on_what_was_seen(viewer, page):
    expect(row(page, "person"), "waiting")
    for p in (0.2, 0.7, 0.3, 0.8, 0.2):  # over .65 and under .35 by turns
        viewer.board.decision(decision("person", "yes" if p > 0.5 else "no", p))
        expect(row(page, "person").locator(".value"), f"{p:.2f}")
        page.wait_for_timeout(600)
    row(page, "person").get_by_role("button", name="Edit or remove").click()
    dialog = page.get_by_role("dialog")
    expect(dialog, "would have changed 4 times.")
    enter = dialog.get_by_role("slider", name="Threshold for yes")
    drag(page, enter, 0.25)
    assert float(dialog.locator("#edit-enter").input_value()) == pytest.approx(0.75, abs=0.02)
    expect(dialog, "would have changed twice; with the old values 4 times.")
    for _ in range(10):
        page.keyboard.press("ArrowUp")
    assert float(enter.get_attribute("aria-valuenow")) == pytest.approx(0.85, abs=0.02)
    expect(dialog, "would have changed 0 times; with the old values 4 times.")
    dialog.get_by_role("button", name="Save").click()
    wait_for(lambda: viewer.source.book.get("person").enter == pytest.approx(0.85, abs=0.02), 20)


def test_thresholds_of_a_score_are_dragged(viewer, page):
    viewer.source.book.add(SCORE)
    viewer.board.questions(viewer.source.book)
    expect(row(page, "people"), "waiting")
    for value, level in ((0.2, "none"), (0.8, "one"), (0.2, "none"), (0.8, "one")):
        viewer.board.decision(decision("people", level, 0.7, options=SCORE.options, value=value))
        expect(row(page, "people").locator(".answers"), f"{level} {value:.2f}")
        page.wait_for_timeout(600)
    row(page, "people").get_by_role("button", name="Edit or remove").click()
    dialog = page.get_by_role("dialog")
    expect(dialog, "would have changed 3 times.")
    first = dialog.get_by_role("slider", name="Threshold between none and one")
    assert dialog.get_by_role("slider").count() == 2
    assert float(first.get_attribute("aria-valuenow")) == 0.5  # half way
    drag(page, first, 0.4)  # to 1.2 of 2
    expect(dialog, "would have changed 0 times; with the old values 3 times.")
    first.press("ArrowDown")
    at, other = map(float, dialog.get_by_label("Thresholds between").input_value().split(","))
    assert at == pytest.approx(1.18, abs=0.05) and other == 1.5
    first.press("PageUp")
    first.press("PageUp")
    expect(dialog, "The thresholds must rise.")
    first.press("PageDown")
    first.press("PageDown")
    dialog.get_by_role("button", name="Save").click()
    wait_for(lambda: viewer.source.book.get("people").thresholds == pytest.approx((at, 1.5)), 20)


def test_lines_to_use_a_question_elsewhere(browser, viewer):
    viewer.source.kind = "ros"
    viewer.source.book.add(Question("pick", "Isn't it?", kind="choice", options=("a", "b: c"),
                                    rate_hz=2.0))
    viewer.board.questions(viewer.source.book)
    with page_of(browser, viewer.port, permissions=["clipboard-read", "clipboard-write"]) as page:
        row(page, "pick").get_by_role("button", name="Edit or remove").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("Use it elsewhere").click()
        dialog.get_by_role("button", name="Copy: Its decisions").click()
        expect(page.locator("#said"), "Copied: Its decisions.")
        assert page.evaluate("navigator.clipboard.readText()") == (
            "ros2 topic echo /test_node/decisions/pick")
        call = dialog.get_by_role("textbox", name="Ask it once").input_value()
        program, *_, request = shlex.split(call)
        assert program == "ros2" and yaml.safe_load(request) == {
            "text": "Isn't it?", "kind": "choice", "options": ["a", "b: c"], "timeout_s": 5.0}
        entry = dialog.get_by_role("textbox", name="Its entry").input_value()
        assert list(QuestionBook.loads(entry)) == [viewer.source.book.get("pick")]
        page.keyboard.press("Escape")
        viewer.board.questions([Question("pick", "Isn't it?", depth="auto")], ["", "door"])
        row(page, '"door/pick"').get_by_role("button", name="Edit or remove").click()
        assert dialog.get_by_role("textbox", name="Its decisions").input_value() == (
            "ros2 topic echo /test_node/door/decisions/pick")
        call = dialog.get_by_role("textbox", name="Ask it once").input_value()
        assert yaml.safe_load(shlex.split(call)[-1])["view"] == "door"
        entry = dialog.get_by_role("textbox", name="Its entry").input_value()
        assert list(QuestionBook.loads(entry)) == [Question("pick", "Isn't it?", depth="auto")]


def test_a_flapping_answer_is_one_line(viewer, page):
    for number in range(30):
        viewer.board.decision(decision("person", "yes" if number % 2 else "no"))
    expect(page.get_by_role("list", name="Events"), "29 changes")
    assert page.get_by_role("list", name="Events").get_by_role("listitem").count() == 4


def test_the_timeline_shows_what_was_known_at_a_time(viewer, page):
    expect(row(page, "person"), "waiting")
    viewer.board.decision(decision("person", "no", 0.2))
    now = time.time()
    band = viewer.board._rows["person"].band
    band.clear()
    band.extend([(now - 3000, "yes", 0.9), (now - 1800, "unknown", None), (now - 60, "no", 0.2)])
    page.get_by_role("heading", name="Timeline").click()
    expect(page.locator("#bands li"), "no 0.20")
    assert page.locator("#bands canvas").get_attribute("aria-label") == (
        "unknown 58 %, yes 40 %, no 2 %")
    cursor = page.get_by_label("Time", exact=True)
    cursor.focus()
    cursor.fill("300")
    expect(page.locator("#bands li"), "yes 0.90")
    cursor.fill("700")
    expect(page.locator("#bands li"), "unknown")
    cursor.fill("50")
    expect(page.locator("#bands li"), "–")
    box = page.locator("#bands canvas").bounding_box()
    page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 5)
    expect(page.locator("#bands li"), "yes 0.90")
    page.get_by_text("10 min", exact=True).click()
    cursor.fill("10")
    expect(page.locator("#bands li"), "unknown")


def remembered(viewer):
    """Give a board what was answered and true a minute ago, and pictures of then."""
    now = time.time()
    viewer.source.book.add(Question("cup", "Is there a cup?"))
    viewer.board.questions(viewer.source.book)
    viewer.board.truth(TruthRow(2_000_000_000, {"person": "no"}))
    viewer.board.decision(decision("person", "yes", 0.9))
    viewer.board.decision(decision("person", "no", 0.1))
    viewer.board.decision(decision("cup", "yes", 0.7))
    row = viewer.board._rows["person"]
    row.band.clear()
    row.band.extend([(now - 3000, "yes", 0.9), (now - 600, "no", 0.2)])
    score = viewer.board._scores["person"]
    score.band.clear()
    score.band.extend([(now - 2000, "no")])
    score.told_s = now + 600  # and so it is known until then
    moments = viewer.pictures.moments
    for ago_s in (1830.0, 1815.0, 1750.0, 9.0):
        moments._wall = lambda ago_s=ago_s: now - ago_s
        moments.put(picture(120, (120, 160)))
    return now


@pytest.mark.parametrize("width", [390, 1440])
def test_a_moment_shows_its_pictures_its_numbers_and_the_truth(browser, viewer, width):
    remembered(viewer)
    with page_of(browser, viewer.port, width=width) as page:
        page.get_by_role("heading", name="Timeline").click()
        person = page.locator("#bands li").first
        expect(person, "50 % right")
        expect(person, "no 0.20")  # at the cursor, now
        cursor = page.get_by_label("Time", exact=True)
        cursor.fill("500")  # half an hour ago
        expect(person.locator(".wrong"), "yes 0.90, truth: no")
        assert person.locator(".truth").get_attribute("aria-label") == "truth: no 100 %"
        assert page.locator("#bands .truth").count() == 1  # nobody tells that of the cup
        assert page.locator("#moment").is_hidden()
        cursor.focus()
        page.keyboard.press("Enter")
        moment = page.get_by_role("region", name=re.compile("^At "))
        expect(moment.get_by_role("row").nth(1), "yes")
        cells = moment.get_by_role("row").nth(1).get_by_role("cell").all_inner_texts()
        assert cells[:2] == ["yes", "0.90"] and cells[-1] == "no"  # the answer, p, ..., the truth
        assert moment.locator("img").count() == 3
        moment.locator("img").first.evaluate("image => image.decode()")
        said = moment.locator("figcaption").all_inner_texts()
        assert [text.split()[-1] for text in said] == ["before", "before", "after"]
        moment.get_by_role("button", name="Close the moment").click()
        moment.wait_for(state="hidden")
        assert page.evaluate("document.activeElement.id") == "timeline-cursor"
        cup = page.locator("#bands li").nth(1).locator("canvas").first
        box = cup.bounding_box()
        page.mouse.click(box["x"] + 0.25 * box["width"], box["y"] + 5)
        expect(moment, "No picture of that minute was kept.")
        assert moment.get_by_role("row").nth(1).locator("th .mono").inner_text() == "cup"  # first
        assert page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [390, 1440])
def test_a_region_is_drawn_on_the_picture(browser, viewer, width):
    """By mouse or finger and by the keyboard; it becomes a view."""
    touch = width == 390
    with page_of(browser, viewer.port, width=width, height=844, has_touch=touch) as page:
        wait_for(lambda: viewer.source.watched[-1:] not in ([], [set()]), 30)
        page.get_by_role("button", name="Region").click()
        wait_for(lambda: viewer.source.watched[-1:] == [{CAMERA}], 30)  # the whole of it, plain
        viewer.pictures.put(CAMERA, picture(90, (120, 320)))
        page.locator("#frame[data-empty=no]").wait_for()
        edges = [page.get_by_label(edge, exact=True) for edge in ("Left", "Top", "Right", "Bottom")]
        layer = page.locator("#region-layer")
        page.wait_for_function("""() => {
          const { width, height } = document.getElementById('region-layer').getBoundingClientRect();
          return Math.abs(width / height - 320 / 120) < 0.02;
        }""")  # the picture's own shape, whatever that of the frame
        layer.scroll_into_view_if_needed()
        box = layer.bounding_box()

        def at(x, y):
            return {"x": box["x"] + x * box["width"], "y": box["y"] + y * box["height"]}

        if touch:
            finger = page.context.new_cdp_session(page)
            for kind, points in (("touchStart", [at(0.6, 0.9)]), ("touchMove", [at(0.3, 0.5)]),
                                 ("touchMove", [at(0.2, 0.1)]), ("touchEnd", [])):
                finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        else:
            page.mouse.move(**at(0.6, 0.9))
            page.mouse.down()
            page.mouse.move(**at(0.2, 0.1), steps=3)
            page.mouse.up()
            page.mouse.click(**at(0.9, 0.9))  # a slip changes nothing

        def drawn():
            return [float(edge.input_value()) / 100 for edge in edges]

        wait_for(lambda: drawn() == pytest.approx([0.2, 0.1, 0.6, 0.9], abs=0.02))
        page.get_by_role("group", name="Region of the picture").focus()
        for key in ("ArrowRight", "ArrowDown", "Shift+ArrowLeft"):
            page.keyboard.press(key)
        assert drawn() == pytest.approx([0.21, 0.11, 0.6, 0.91], abs=0.02)
        edges[0].fill("70")
        page.get_by_role("button", name="Add view").click()
        error = page.locator("#region-error")
        expect(error, "Give the view a name.")
        assert page.evaluate("document.activeElement.id") == "region-name"
        page.keyboard.type("door")
        page.keyboard.press("Enter")
        expect(error, "Left must be less than right, and top less than bottom.")
        edges[0].fill("20")
        entry = page.get_by_label("Its entry in a file of questions").first.input_value()
        (view,) = QuestionBook.loads(entry + "\nquestions: []").views
        assert view.name == "door" and view.region == pytest.approx(drawn(), abs=1e-3)
        page.get_by_role("button", name="Add view").click()
        expect(page.locator("#region-result"), "Added view 'door'.")
        assert viewer.source.book.views[-1] == view and viewer.source.of == ""
        assert page.locator("#region").is_hidden() and layer.is_hidden()
        row(page, '"door/person"').wait_for()
        page.keyboard.press("Enter")  # the focus is on the button that opened it
        page.locator("#region-box:focus").wait_for()
        page.keyboard.press("Escape")
        page.locator("#region").wait_for(state="hidden")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.faults.clear()  # the browser notes every reply of 400


def test_a_model_that_cannot_know_the_picture_is_marked(viewer, page):
    assert page.locator("#mark").is_hidden()
    viewer.board.system(dataclasses.replace(READY, mark="answers mean nothing here"))
    expect(page.locator("#mark"), "answers mean nothing here")


STATES = {
    "live": (READY, {}), "loading": (System(state="configuring"), {}),
    "no camera": (dataclasses.replace(READY, condition="no image for 3 s", image_age_s=3.0),
                  {"answer": "unknown", "reason": "no image for 3 s"}),
    "some unknown": (READY, {"answer": "unknown", "reason": "no answer for 3.0 s"}),
    "overloaded": (dataclasses.replace(READY, dropped={"queue": 9}), {}),
    "failed": (System(state="unconfigured", failure="no model"), {}),
    "ended": (dataclasses.replace(READY, state="ended", condition="no image for 9 s"),
              {"answer": "unknown", "reason": "no image for 9 s: the recording has ended"}),
}


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_any_state(browser, viewer, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright",
                              reason="axe-playwright-python is not installed")
    viewer.source.book.add(Question("pick", "Which?", kind="choice", options=("a", "b")))
    viewer.source.book.add(ANY_OF)
    viewer.board.questions(viewer.source.book)
    remembered(viewer)
    found = {}

    # Apart from these rules none depends on colours: in the dark the others would find the same.
    options = {"resultTypes": ["violations"], **(
        {"runOnly": ["color-contrast", "link-in-text-block"]} if scheme == "dark" else {})}

    def look(name):
        result = page.evaluate("options => axe.run(document, options)", options)
        found.update({f"{name}: {fault['id']}": fault["nodes"][0]["html"][:200]
                      for fault in result["violations"]})

    with page_of(browser, viewer.port, width=width, color_scheme=scheme,
                 reduced_motion="reduce") as page:
        page.evaluate(axe.Axe().axe_script)
        for name, (state, answer) in STATES.items():
            viewer.board.decision(decision("pick", "a", 0.9, probabilities=(0.9, 0.1)))
            viewer.board.decision(decision("person", **answer))
            viewer.board.system(dataclasses.replace(state, corrections=True))
            # Its kind, not its label: that counts the answers, more of which are old by the second.
            kind = json.loads(viewer.board.changes(0)[1])["state"]["kind"]
            page.locator(f"#link[data-state={kind}]").wait_for()
            page.wait_for_timeout(250)
            look(name)
        row(page, "on_desk").get_by_role("button", name="pen").click()
        look("another answer is proposed")
        page.locator("#save summary").click()
        page.get_by_role("heading", name="Timeline").click()
        page.locator("#bands li").nth(1).wait_for()
        page.get_by_label("Time", exact=True).press("Enter")
        page.locator("#moment").wait_for()
        look("timeline and a moment")
        page.get_by_role("button", name="Region").click()
        look("region")
        page.keyboard.press("Escape")
        row(page, "person").get_by_role("button", name="Edit or remove").click()
        page.get_by_text("Use it elsewhere").click()
        look("dialog")
        page.keyboard.press("Escape")
        viewer.server.stop()
        expect(page.locator("#link"), "Not connected")
        look("not connected")
        page.evaluate("document.querySelector('#about').style.color = '#888'")  # a control
        page.evaluate("document.querySelector('#about').style.background = '#777'")
        look("control")
        assert found.pop("control: color-contrast")
        page.faults.clear()
    assert found == {}


def test_what_questions_cost_is_shown_and_told_before_one_is_added(viewer, page):
    assert page.get_by_role("columnheader", name="Cost").count() == 0  # not known
    viewer.source.book.add(Question("cup", "Is there a cup?"))
    viewer.board.questions(viewer.source.book)
    viewer.board.system(dataclasses.replace(
        READY, costs={"person": (12, 3.25), "cup": (0, 0.0)}))
    expect(row(page, "person").locator(".cost"), "3.3 ms")
    assert row(page, "person").locator(".cost span").get_attribute("title").startswith("12 tokens")
    assert row(page, "cup").locator(".cost").inner_text() == ""
    assert page.get_by_role("columnheader", name="Cost").is_visible()
    page.get_by_label("Question", exact=True).fill("x" * 96)
    expect(page.locator("#ask-cost"), "48 tokens, 12 ms each time.")
    page.get_by_label("Question", exact=True).fill("")
    page.locator("#ask-cost").filter(has_not_text="tokens").wait_for(state="attached")
    assert len(viewer.source.book) == 2


def test_questions_are_suggested_while_one_is_written(viewer, page):
    text = page.get_by_label("Question", exact=True)
    offered = page.locator("#ask-suggestions button")
    viewer.board.system(dataclasses.replace(READY, model="sim_desk"))
    text.fill("What is")
    offered.first.wait_for()
    chosen = offered.first.inner_text()
    assert chosen.startswith("What is")
    offered.first.click()
    assert text.input_value() == chosen
    assert len(page.locator("#ask-options").input_value().split("\n")) > 1
    text.fill("Is the door")
    offered.filter(has_text="Is the door").first.click()
    assert text.input_value().startswith("Is the door")
    assert page.locator("#options-field").is_hidden()
    viewer.board.system(dataclasses.replace(READY, model="another"))
    text.fill("Is the")
    offered.first.wait_for(state="detached")


def test_changes_are_shown_over_the_picture_for_a_while(viewer, page):
    viewer.board.decision(decision("person", "no"))
    expect(row(page, "person").locator(".answer"), "no")
    viewer.board.decision(decision("person", "yes"))
    expect(page.locator("#chips"), "person no → yes")
    page.locator("#chips li").wait_for(state="detached")
    views = {name: {"topic": f"/{name}"} for name in ("front", "back")}
    viewer.board.system(dataclasses.replace(READY, views=views))
    page.select_option("#view", "back")
    for view in ("back", "front"):
        for answer in ("no", "yes"):
            viewer.board.decision(dataclasses.replace(decision("person", answer), view=view))
    expect(page.locator("#events"), "front/person")
    assert "back/person" in page.locator("#chips").inner_text()
    assert "front/person" not in page.locator("#chips").inner_text()
    page.select_option("#view", "")
    page.click("#region-open")  # a region is of one camera
    assert page.locator("#view").input_value() == "front"


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
            page.get_by_label("Question", exact=True).fill("Is it?")
            page.get_by_role("button", name="Keep asking").click()
            expect(page.locator("#ask-error"), "The viewer does not answer.")
            second = Server(port=port)
            first.source.book.add(Question("cup", "Is there a cup?"))
            first.board.questions(first.source.book)
            second.start(first.app.asgi)
            try:
                row(page, "cup").wait_for()
                expect(page.locator("#link"), "Starting")
                assert page.locator("#ask-error").inner_text() == ""  # said of another time
            finally:
                second.stop()
            page.faults.clear()  # the browser notes each connection that failed


def test_the_running_demo(browser, tmp_path):
    """Camera, node with its model, and viewer: each a process, as `view --sim` starts them."""
    pytest.importorskip("rclpy", reason="rclpy is not installed")
    from vlm_decisions.lab.demo import process

    probe = Server(port=0)
    port = probe.port
    probe.stop()
    questions = tmp_path / "questions.yaml"  # a few: what a question costs is measured elsewhere
    some_of_the_desk(questions)
    with (process("decision_node", f"questions_file:={questions}"),
          process("viewer", f"port:={port}"),
          process("sim_camera", "fps:=8.0") as camera, heard() as ids):
        wait_for(lambda: serves(port), 120)
        with page_of(browser, port) as page:
            page.set_default_timeout(240_000)  # a busy machine answers seldom
            row(page, "person").locator(".answer[data-kind=yes]").wait_for()
            assert page.locator("#rows tr").count() == len(SOME)
            page.locator("#frame[data-empty=no]").wait_for()
            page.get_by_text("Off", exact=True).click()
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


@pytest.mark.parametrize("width", [390, 1440])
def test_an_answer_is_corrected_by_a_press_and_by_the_keyboard(browser, viewer, width):
    with page_of(browser, viewer.port, width=width) as page:
        viewer.board.decision(decision("person", "yes", t_end_ns=9_000_000_000))
        wrong = row(page, "person").get_by_role("button", name="It is no: Is a person present?")
        viewer.board.system(dataclasses.replace(SYSTEM, corrections=False))  # nothing would keep it
        wait_for(wrong.is_hidden)
        viewer.board.system(SYSTEM)
        wrong.click()
        expect(row(page, "person").locator(".reason"), "kept number 1: person is no")
        expect(page.locator("#said"), "kept number 1")
        right = row(page, "person").get_by_role("button", name="It is yes: Is a person present?")
        right.focus()
        page.keyboard.press("Enter")
        wait_for(lambda: len(viewer.source.corrected) == 2)
        wrong.hover()
        page.mouse.down()
        page.wait_for_timeout(800)  # held down: a span
        page.mouse.up()
        wait_for(lambda: len(viewer.source.corrected) == 3)
        right.hover()
        page.mouse.down()
        page.mouse.move(2, 2)  # thought better of it
        page.mouse.up()
        viewer.source.fail = PageSourceError("set the parameter learn_dir")
        wrong.click()
        expect(row(page, "person").locator(".reason"), "set the parameter learn_dir")
        page.faults.clear()  # the browser's own word on the refusal
    now, by_key, held = viewer.source.corrected[:3]
    assert now[1:] == ("", "no", 0, 0) and by_key[1:] == ("", "yes", 0, 0)
    assert held[4] == 9_000_000_000 and 0.7e9 < held[4] - held[3] < 60e9


@pytest.mark.parametrize("width", [390, 1440])
def test_what_was_learned_is_said_and_taken_back_by_the_second_press(browser, viewer, width):
    viewer.source.book.add(ANY_OF)
    viewer.board.questions(viewer.source.book)
    with page_of(browser, viewer.port, width=width) as page:
        viewer.board.decision(decision("person", "yes"))
        button = row(page, "person").locator("button.learned")
        assert button.is_hidden()
        viewer.board.system(System(state="active", model="fake", image_age_s=0.1, learned={
            "person": {"spans": 14, "words": "learned on this camera, from 14 spans"},
            "on_desk[cup]": {"spans": 9, "words": "of 9 spans"}}))
        expect(button, "learned from 14")
        of_label = row(page, "on_desk").locator("button.learned")
        expect(of_label, "learned from 9")
        assert "cup: of 9 spans" in of_label.get_attribute("title")
        assert "Learned on this camera, from 14 spans" in button.get_attribute("aria-label")
        if axe := pytest.importorskip("axe_playwright_python.sync_playwright"):
            assert not axe.Axe().run(page, options={"resultTypes": ["violations"]}).response[
                "violations"]
        button.focus()
        page.keyboard.press("Enter")
        expect(button, "take it back?")
        page.keyboard.press("Enter")
        expect(row(page, "person").locator(".reason"), "answered as before")
        wait_for(button.is_hidden)


@contextmanager
def held(page, button, *, touch):
    """Hold a button down by the mouse or by a finger, and release it."""
    box = button.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    if touch:
        finger = page.context.new_cdp_session(page)
        finger.send("Input.dispatchTouchEvent",
                    {"type": "touchStart", "touchPoints": [{"x": x, "y": y}]})
        yield
        finger.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
    else:
        page.mouse.move(x, y)
        page.mouse.down()
        yield
        page.mouse.up()


@pytest.mark.parametrize("width", [390, 1440])
def test_options_levels_and_labels_are_corrected(browser, viewer, width):
    pick = Question("pick", "Which?", kind="choice", options=("a", "b"))
    for question in (pick, SCORE, ANY_OF):
        viewer.source.book.add(question)
    viewer.board.questions(viewer.source.book)
    viewer.board.decision(decision("pick", "a", 0.9, probabilities=(0.9, 0.1), options=pick.options,
                                   t_end_ns=9_000_000_000))
    viewer.board.decision(decision("on_desk", "cup", 0.9, options=ANY_OF.options,
                                   probabilities=(0.9, 0.3), answers=("yes", "no")))

    def corrected():
        return [(name, answer) for name, _, answer, _, _ in viewer.source.corrected]

    def button(question_id, name):
        return row(page, question_id).get_by_role("button", name=name)

    with page_of(browser, viewer.port, width=width, has_touch=width == 390) as page:
        expect(row(page, "pick").locator(".answer"), "a")
        viewer.board.system(dataclasses.replace(SYSTEM, corrections=False))
        wait_for(lambda: all(button(*one).is_disabled() for one in (
            ("pick", "b 0.10"), ("people", "none"), ("on_desk", "cup 0.90"))))
        viewer.board.system(SYSTEM)
        wait_for(button("pick", "b 0.10").is_enabled)
        assert button("pick", "It is").count() == 0  # the options themselves are the buttons
        button("pick", "b 0.10").scroll_into_view_if_needed()
        with held(page, button("pick", "b 0.10"), touch=width == 390):
            page.wait_for_timeout(800)  # held down: a span
        expect(row(page, "pick").locator(".reason"), "kept number 1: pick is b")
        *_, start_ns, end_ns = viewer.source.corrected[0]
        assert end_ns == 9_000_000_000 and 0.7e9 < end_ns - start_ns < 60e9
        # One stop of the Tab key for all levels; the arrows move between them.
        button("people", "none").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        wait_for(lambda: corrected()[1:] == [("people", "two")])
        assert row(page, "people").locator(".options [tabindex='0']").inner_text() == "two"
        expect(row(page, "on_desk").locator(".answer"), "cup")
        assert button("on_desk", "cup 0.90").get_attribute("aria-pressed") == "true"
        button("on_desk", "cup 0.90").click()
        button("on_desk", "pen 0.30").click()
        assert button("on_desk", "cup 0.90").get_attribute("aria-pressed") == "false"
        button("on_desk", "It is pen: Is there a {} on the desk?").click()
        wait_for(lambda: corrected()[2:] == [("on_desk", "pen")])
        button("on_desk", "It is cup: ").wait_for()  # what is answered, again
        button("on_desk", "cup 0.90").click()
        button("on_desk", "It is none: ").wait_for()
        page.keyboard.press("Escape")
        button("on_desk", "It is cup: ").click()
        wait_for(lambda: corrected()[3:] == [("on_desk", "cup")])
        assert page.evaluate("document.documentElement.scrollWidth") <= width
