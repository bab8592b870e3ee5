"""A real browser for tests: Debian's Chromium, headless, watched for errors and requests."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAM = next((found for n in ("chromium", "google-chrome") if (found := shutil.which(n))), None)
MISSING = "no browser is installed (chromium): the page is not tried in one"
ATTACK = "<script>alert(1)</script>"
"""What an instance may be called; no dialog may ever open."""
FEW: dict[str, Any] = {
    "verdict": False,
    "latent": {"updates": 20, "hidden": 16, "encoder_units": 16, "decoder_units": 16},
    "probe": {"steps": 10},
    "control": {"updates": 20, "hidden": [16]},
}
"""Settings with which a fit takes moments."""
PATIENCE = 120_000
"""Milliseconds; a busy machine with two cores takes its time."""


class Watched:
    """A page and everything it complained of or asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda said: self._said(said.type, said.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", lambda dialog: self._said("error", f"a dialog: {dialog.message}"))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.errors.append(text)

    def open(self, path: Path) -> Any:
        """From disk, until every chart is there."""
        self.page.goto(path.as_uri())
        until(self.page, "document.documentElement.dataset.drawn")
        return self.page


def until(page: Any, script: str) -> None:
    """Wait for it to be true; asked from outside, for the page lets no text become a script."""
    end = time.monotonic() + PATIENCE / 1000
    while not page.evaluate(script):
        assert time.monotonic() < end, f"never came: {script}"
        page.wait_for_timeout(50)


@contextmanager
def launched() -> Iterator[Any]:
    """The browser itself."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = play.chromium.launch(executable_path=PROGRAM, args=arguments)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def browsing(browser: Any, scheme: str = "light", width: int = 1100) -> Iterator[Watched]:
    """A window that knows nothing of others, and starts in light or dark."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    try:
        context.set_default_timeout(PATIENCE)
        yield Watched(context.new_page())
    finally:
        context.close()
