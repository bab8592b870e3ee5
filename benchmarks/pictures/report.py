"""Pictures of a report, taken by a headless Chromium.

python benchmarks/pictures/report.py demo/report.html -o docs/images
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

WIDTH = 1000
STEP = 7
"""Of the episode that is shown, so that probe and control are both to be seen."""


def main() -> None:
    """The top of the page, the latent, the one episode, and the same at night."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        sys.exit("Pictures of a page need a browser: apt-get install chromium.")
    arguments.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as play:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = play.chromium.launch(executable_path=program, args=sandbox)
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": WIDTH, "height": 800}, color_scheme=scheme)
            page.goto(arguments.report.resolve().as_uri())
            end = time.monotonic() + 120
            while not page.evaluate("document.documentElement.dataset.drawn"):
                if time.monotonic() > end:
                    sys.exit(f"{arguments.report} draws no charts.")
                page.wait_for_timeout(100)
            page.locator(".player .slider").fill(str(STEP))
            page.locator(".player .slider").blur()
            for name, picture in shots(page, scheme).items():
                keep(picture, arguments.out / f"{name}.png")
        browser.close()


def shots(page: Any, scheme: str) -> dict[str, bytes]:
    """By file name."""
    reward = page.locator("figure", has=page.locator('[data-chart^="reward-"]')).first
    player = page.locator("figure.player")
    if scheme == "dark":
        return {"report-dark": between(page, player, reward)}
    plane = page.locator("figure", has=page.locator('[data-chart^="plane-"]')).first
    probe = page.locator("figure", has=page.locator('[data-chart^="probe-"]')).first
    return {
        "report-logged": between(
            page, page.locator("header"), page.locator("#logged figure").first
        ),
        "report-learned": between(page, plane, probe),
        "report-episode": between(page, page.locator("#episodes h2"), reward),
        "report-against": page.locator("#against").screenshot(),
    }


def between(page: Any, first: Any, last: Any) -> bytes:
    """From the top of one element to the bottom of another."""
    top, bottom = (
        one.evaluate(
            "(e) => [e.getBoundingClientRect().top, "
            "e.getBoundingClientRect().bottom].map((y) => y + scrollY)"
        )
        for one in (first, last)
    )
    clip = {"x": 0, "y": max(top[0] - 12, 0), "width": WIDTH, "height": bottom[1] - top[0] + 24}
    found: bytes = page.screenshot(full_page=True, clip=clip)
    return found


def keep(picture: bytes, path: Path) -> None:
    """Small, and without a word on who made it."""
    Image.open(BytesIO(picture)).convert("RGB").save(path, optimize=True)
    print(path)


if __name__ == "__main__":
    main()
