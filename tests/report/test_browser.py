"""The page in a real browser: it opens from disk, draws, plays, and nothing in it is a script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sept_offline.tools.report import write_report
from tests.report.browser import ATTACK, MISSING, PROGRAM, Watched, browsing, launched, until

pytestmark = pytest.mark.skipif(PROGRAM is None, reason=MISSING)
SMALL = 380
"""Pixels across the screen of a phone."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as found:
        yield found


@pytest.fixture(scope="module")
def run_page(navigation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "run.html"
    write_report([navigation / "sept", navigation / "avg"], out)
    return out


@pytest.fixture(scope="module")
def avg_page(navigation: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run without a latent: half of the charts."""
    out = tmp_path_factory.mktemp("page") / "avg.html"
    write_report([navigation / "avg"], out)
    return out


@pytest.fixture(scope="module")
def dark(browser: Any, avg_page: Path) -> Iterator[Watched]:
    """The page of one run, opened once where the system is dark and the screen small.

    Tests change its theme.
    """
    with browsing(browser, "dark", SMALL) as found:
        found.open(avg_page)
        yield found


@pytest.fixture(scope="module")
def mixed_page(bench: Path, attacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bench, and a run whose names are attacks."""
    out = tmp_path_factory.mktemp("page") / "mixed.html"
    write_report([bench, attacked / "run"], out)
    return out


@pytest.fixture(scope="module")
def mixed(browser: Any, mixed_page: Path) -> Iterator[Watched]:
    """That page, opened once."""
    with browsing(browser) as found:
        found.open(mixed_page)
        yield found


@pytest.fixture(scope="module")
def watched(browser: Any, run_page: Path) -> Iterator[Watched]:
    """That page, opened once: whoever changes what others look at changes it back."""
    with browsing(browser) as found:
        found.open(run_page)
        yield found


def charts(page: Any) -> int:
    """Charts that have really been drawn: an SVG of some size with marks in it."""
    drawn = """[...document.querySelectorAll('.chart')].filter((one) => {
        const svg = one.querySelector('svg.main-svg');
        const marks = one.querySelectorAll('.trace, .boxes, .point, .scatterlayer path').length;
        return svg && svg.getBoundingClientRect().height > 100 && marks;
    }).length"""
    return int(page.evaluate(drawn))


def chart_names(page: Any) -> list[str]:
    """Of all charts of a page."""
    script = "[...document.querySelectorAll('.chart')].map((one) => one.dataset.chart)"
    return [str(name) for name in page.evaluate(script)]


def lines_of(chart: str) -> str:
    """The script that lists the names of the lines that a chart shows just now."""
    return f"""document.querySelector('[data-chart="{chart}"]').data
        .filter((one) => one.name && one.visible !== 'legendonly').map((one) => one.name)"""


def shown(page: Any, chart: str) -> list[str]:
    """Names of the lines that a chart shows just now."""
    return [str(name) for name in page.evaluate(lines_of(chart))]


def test_the_page_of_a_run(watched: Watched, run_page: Path) -> None:
    page = watched.page
    assert charts(page) == page.locator(".chart").count() == 12
    assert watched.errors == []
    assert watched.requests == [run_page.as_uri()]


def test_the_answer_is_seen_first(watched: Watched) -> None:
    """One sentence and four figures side by side, above everything that one can click."""
    page = watched.page
    assert page.locator("#answer .sentence").inner_text().startswith("sept solved")
    tiles = page.locator("#answer .tile")
    boxes = [tiles.nth(place).bounding_box() for place in range(tiles.count())]
    assert len(boxes) == 4 and len({box["y"] for box in boxes}) == 1
    bottom = max(box["y"] + box["height"] for box in boxes)
    assert bottom < page.locator("nav").bounding_box()["y"] < 900


def test_no_button_sends_a_chart_away(watched: Watched) -> None:
    page = watched.page
    buttons = page.locator('[data-chart="plane-0"] .modebar-btn').evaluate_all(
        "(found) => found.map((one) => one.dataset.title)"
    )
    assert 3 <= len(buttons) <= 4
    assert not [title for title in buttons if re.search("share|cloud|edit", title, re.I)]


def test_the_page_of_a_bench(mixed: Watched, mixed_page: Path) -> None:
    page = mixed.page
    of_bench = [one for one in chart_names(page) if "navigation2d" in one]
    assert len(of_bench) >= 5
    assert charts(page) == page.locator(".chart").count() > len(of_bench)
    assert mixed.errors == []
    assert mixed.requests == [mixed_page.as_uri()]


def test_a_method_can_be_switched_off_and_on(watched: Watched) -> None:
    page = watched.page
    assert shown(page, "reward-navigation2d-test-50") == ["sept", "avg"]
    switch = page.locator('.method[data-method="avg"]')
    switch.click()
    assert switch.get_attribute("aria-pressed") == "false"
    for chart in ("reward", "solved", "steps"):
        assert shown(page, f"{chart}-navigation2d-test-50") == ["sept"]
    switch.click()
    assert shown(page, "reward-navigation2d-test-50") == ["sept", "avg"]
    # and by the legend of one chart alone
    legend = page.locator('[data-chart="reward-navigation2d-test-50"] .legendtoggle').nth(1)
    script = lines_of("reward-navigation2d-test-50")
    legend.click()
    until(page, f"{script}.join() === 'sept'")  # later: Plotly waits for a double click
    assert shown(page, "solved-navigation2d-test-50") == ["sept", "avg"]
    legend.click()
    until(page, f"{script}.join() === 'sept,avg'")
    assert watched.errors == []


def test_hovering_tells_and_dragging_zooms(watched: Watched) -> None:
    page = watched.page
    chart = page.locator('[data-chart="reward-navigation2d-test-50"]')
    chart.scroll_into_view_if_needed()
    box = chart.locator(".nsewdrag").first.bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.wait_for_selector('[data-chart="reward-navigation2d-test-50"] .hoverlayer text')
    name = "reward-navigation2d-test-50"
    limits = f"document.querySelector('[data-chart={name}]').layout.xaxis.range"
    before = page.evaluate(limits)
    page.mouse.down()
    page.mouse.move(middle[0] + 120, middle[1] + 40, steps=5)
    page.mouse.up()
    until(page, f"{limits}[1] !== {before[1]}")
    after = page.evaluate(limits)
    assert after[1] - after[0] < (before[1] - before[0]) / 2
    assert watched.errors == []


def test_the_latent_plane_can_be_coloured_by_what_is_hidden(watched: Watched) -> None:
    page = watched.page
    seen = """document.querySelector('[data-chart="plane-0"]').data
        .filter((one) => one.visible !== false).map((one) => one.name)"""
    assert page.evaluate(seen) == ["train-0", "train-1", "test episodes"]
    chart = page.locator('[data-chart="plane-0"]')
    chart.scroll_into_view_if_needed()
    chart.locator(".updatemenu-header").click()
    chart.locator(".updatemenu-dropdown-button").nth(1).click()
    until(page, f"({seen}).length === 2")
    assert page.evaluate(seen) == ["z", "test episodes"]
    assert watched.errors == []


def test_an_episode_plays(watched: Watched) -> None:
    page = watched.page
    player = page.locator(".player")
    slider, play = player.locator(".slider"), player.locator(".play")
    last = int(slider.get_attribute("max"))
    assert player.get_attribute("data-step") == "0"
    assert player.locator(".wall").count() == 1
    where = (
        player.locator(".point").get_attribute("cx"),
        player.locator(".point").get_attribute("cy"),
    )
    play.click()
    assert play.get_attribute("aria-label") == "Pause"
    until(page, "Number(document.querySelector('.player').dataset.step) >= 3")
    play.click()
    assert play.get_attribute("aria-label") == "Play"
    stopped = player.get_attribute("data-step")
    page.wait_for_timeout(600)
    assert player.get_attribute("data-step") == stopped
    assert slider.input_value() == stopped
    now = (
        player.locator(".point").get_attribute("cx"),
        player.locator(".point").get_attribute("cy"),
    )
    assert now != where
    # the slider, step by step, and the end
    slider.fill(str(last))
    assert f"step {last} of {last}" in player.locator(".readout").inner_text()
    player.locator(".back").click()
    assert player.get_attribute("data-step") == str(last - 1)
    slider.fill("1")
    assert "probe chose" in player.locator(".readout").inner_text()
    slider.fill("2")
    readout = player.locator(".readout").inner_text()
    assert "control chose" in readout and "z = (" in readout
    # probe and control have different colours
    colours = player.locator(".stage line").evaluate_all(
        "(lines) => lines.map((line) => line.getAttribute('stroke'))"
    )
    assert {"var(--probe)", "var(--control)"} <= set(colours)
    player.locator(".run").select_option("avg")
    assert player.get_attribute("data-step") == "0"
    slider.fill("1")
    assert "control chose" in player.locator(".readout").inner_text()
    assert watched.errors == []


def test_it_is_readable_on_a_small_screen(dark: Watched) -> None:
    page = dark.page
    assert page.evaluate("window.innerWidth") == SMALL
    assert page.evaluate("document.documentElement.scrollWidth") <= SMALL
    assert charts(page) == page.locator(".chart").count() >= 5
    assert dark.errors == []


# from dark to light and back; the other way round is the long one
@pytest.mark.long
def test_light_and_dark(browser: Any, avg_page: Path) -> None:
    with browsing(browser, "light") as watched:
        watched.open(avg_page)
        switch_theme(watched, avg_page, "light")


def test_dark_and_light(dark: Watched, avg_page: Path) -> None:
    switch_theme(dark, avg_page, "dark")


def switch_theme(watched: Watched, path: Path, scheme: str) -> None:
    """The system's choice at first, then the button's; the charts' ink follows the page's."""
    ink = "getComputedStyle(document.body).color"
    text = '[data-chart="reward-navigation2d-test-50"] .xtick text'
    drawn = f"getComputedStyle(document.querySelector('{text}')).fill"
    back = "getComputedStyle(document.body).backgroundColor"
    page = watched.page
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    first = page.evaluate(back)
    bright = sum(int(part) for part in first[4:-1].split(",")) / 3
    assert (bright > 128) == (scheme == "light")
    assert page.evaluate(drawn) == page.evaluate(ink)
    page.locator("#theme").click()
    assert page.evaluate(back) != first
    until(page, f"{drawn} === {ink}")
    # who opens a page again is remembered; one without Plotly, which draws nothing
    bare = path.with_name("bare.html")
    packed = re.compile(r'(<script type="text/plain" id="plotly">)[^<]+')
    text, cut = packed.subn(r"\1", path.read_text(encoding="utf-8"))
    assert cut == 1
    bare.write_text(text, encoding="utf-8")
    again = Watched(page.context.new_page())
    again.page.goto(bare.as_uri())
    assert again.page.evaluate("document.documentElement.dataset.theme") != scheme
    again.page.close()
    assert watched.errors == again.errors == []


def test_names_from_data_are_text(mixed: Watched, mixed_page: Path) -> None:
    page = mixed.page
    assert page.locator("tbody th", has_text=ATTACK).count() >= 1
    assert ATTACK in page.locator(".player .episode option").first.inner_text()
    labels = page.locator('[data-chart="returns-1"] .xtick text').all_text_contents()
    assert any(ATTACK in text for text in labels)
    page.locator(".player .slider").fill("1")
    assert "<i>left</i>" in page.locator(".player .readout").inner_text()
    assert page.evaluate("document.querySelectorAll('.player b, .player i, img').length") == 0
    # any other family: its columns over time
    assert page.locator(".player .column").count() == 2
    assert mixed.errors == []
    assert mixed.requests == [mixed_page.as_uri()]


def test_it_prints_light_and_without_controls(dark: Watched) -> None:
    page = dark.page
    theme = "document.documentElement.dataset.theme"
    closed = page.locator("details:not([open])").count()
    if page.evaluate(theme) == "light":
        page.locator("#theme").click()
    assert page.evaluate(theme) == "dark"
    page.emulate_media(media="print")
    assert not page.locator(".controls").is_visible()
    assert not page.locator("nav").is_visible()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(theme) == "light"
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(theme) == "dark"
    assert page.locator("details:not([open])").count() == closed > 0
    pdf = page.pdf()
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000
    page.emulate_media(media="screen")
    assert dark.errors == []
