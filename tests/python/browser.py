"""A browser without a window, for the pages that the command line writes.

It is the system's Chromium, driven by playwright; nothing is downloaded. Where there is none, tests are skipped, which
`cargo xtask test` accepts only with `--no-browser`.
"""

import contextlib
import os
import shutil
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
HINT = "there is no Chromium: `apt-get install chromium`, or set ONNXFORGE_CHROMIUM to one"


def chromium(environment=os.environ):
    """Where Chromium is, or nothing."""
    chosen = environment.get("ONNXFORGE_CHROMIUM")
    if chosen:
        return chosen
    path = environment.get("PATH", os.defpath)
    return next(filter(None, (shutil.which(name, path=path) for name in NAMES)), None)


@contextlib.contextmanager
def started():
    """A running browser."""
    executable = chromium()
    if executable is None:
        pytest.skip(HINT)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        yield browser
        browser.close()


class Sheet:
    """A page that is open, and everything that went wrong in it or left it."""

    def __init__(self, page, path):
        self.page = page
        self.url = Path(path).absolute().as_uri()
        self.problems = []
        page.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.problems.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", self.requested)

    def requested(self, request):
        itself = request.url.split("#")[0] == self.url
        if not itself and not request.url.startswith("data:"):
            self.problems.append(f"request: {request.url}")

    def open(self, fragment=""):
        self.page.goto(self.url + fragment)
        self.page.wait_for_selector("body[data-ready='1']", timeout=20_000)
        return self

    def assert_clean(self):
        assert not self.problems, self.problems


@contextlib.contextmanager
def opened(browser, path, fragment="", width=1280, height=800, **options):
    """A file, opened in a browser of its own; when it is closed, nothing went wrong in it and nothing left it."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    try:
        sheet = Sheet(context.new_page(), path).open(fragment)
        yield sheet
        sheet.assert_clean()
    finally:
        context.close()
