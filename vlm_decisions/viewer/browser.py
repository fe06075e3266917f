"""A browser without a window (Chromium by Playwright): for pictures of the page and its tests."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SCALE = 1.5
"""Pixels of a screenshot per pixel of the page."""


class BrowserError(RuntimeError):
    """There is no browser, or it did not do what it should; the message says what would help."""


def find_browser() -> str:
    """Return the path of a Chromium (CHROME names another). Raises BrowserError."""
    path = os.environ.get("CHROME") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        raise BrowserError("there is no Chromium: install one (Debian: apt install chromium), or "
                           "name one in the environment variable CHROME")
    return path


@contextmanager
def opened() -> Iterator[Browser]:
    """Run a browser. Raises BrowserError where there is none, or no Playwright."""
    path = find_browser()
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise BrowserError("Playwright is missing: pip install 'vlm_decisions[test]'") from error
    # Chromium's own sandbox refuses root, which is who runs in a container.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        try:
            browser = playwright.chromium.launch(executable_path=path, args=arguments)
        except Error as error:
            raise BrowserError(f"{path} does not start: {error.message}") from error
        try:
            yield browser
        finally:
            browser.close()


def screenshot(url: str, path: str, *, width: int, height: int, dark: bool, after_s: float) -> None:
    """Save a picture of a viewer's page, `after_s` seconds after the first answer stands in it.

    `width`, `height` are the window's, CSS pixels. Raises BrowserError.
    """
    with opened() as browser:
        page = browser.new_page(viewport={"width": width, "height": height},
                                device_scale_factor=SCALE,
                                color_scheme="dark" if dark else "light")
        page.goto(url)
        _wait(page, "#rows .answer:not([data-kind=none], [data-kind=unknown])", "no answer")
        _wait(page, "#frame[data-empty=no]", "no picture")
        page.wait_for_timeout(after_s * 1000)
        page.screenshot(path=path)


def _wait(page: Any, selector: str, what: str) -> None:
    from playwright.sync_api import TimeoutError as Late

    try:
        page.wait_for_selector(selector, timeout=60_000)
    except Late as error:
        said = page.text_content("#banner") or "nothing"
        raise BrowserError(f"{what} on the page within 60 s; it says: {said}") from error
