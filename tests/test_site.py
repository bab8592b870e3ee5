"""The site builds without a warning, hangs together, and asks nothing of the network."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import sept_offline
from sept_offline.settings import to_plain
from tests import processes

ROOT = Path(__file__).parents[1]
NEEDED = ("sphinx", "myst_parser", "furo", "sphinx_copybutton")
LOADING = {
    ("script", "src"),
    ("img", "src"),
    ("iframe", "src"),
    ("source", "src"),
    ("object", "data"),
    ("embed", "src"),
    ("video", "src"),
    ("audio", "src"),
    ("use", "href"),
    ("image", "href"),
}
WAYS = {"a": ("href",), "form": ("action",)}
BUILD = """
import gc, re, sys
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.cmd.build import main
from sphinx.highlighting import PygmentsBridge
from sphinx.search.en import SearchEnglish
gc.disable()  # a site is many objects, and nearly all of them stay: a fifth of the time
SearchEnglish.stem = lambda self, word: word.lower()
colour = PygmentsBridge.highlight_block
def block(self, code, language, *more, **how):
    return colour(self, code, "none" if code.count("\\n") > 150 else language, *more, **how)
PygmentsBridge.highlight_block = block
tree, trees = StandaloneHTMLBuilder._get_local_toctree, {}
def of_folder(self, page, **how):
    # a page that is in the folder and not in the tree: every link of the tree is in it
    outside = page.rpartition("/")[0] + "/outside" if "/" in page else "outside"
    wanted = (outside, *sorted(how.items()))
    if wanted not in trees:
        trees[wanted] = tree(self, outside, **how)
    return trees[wanted]
StandaloneHTMLBuilder._get_local_toctree = of_folder
parse = MystParser.parse
def small(self, text, document):
    parse(self, re.sub("(data:image/png;base64,[^)]{40})[^)]*", r"\\1", text), document)
MystParser.parse = small
sys.exit(main(sys.argv[1:]))
"""
"""Strict, as `make docs`, but for what takes long and concerns no warning and no link.

Long listings have no colours, words to search no stems, quotes no curls; pictures of notebooks end
after their first bytes; all pages of a folder share a tree, in which none is marked.
"""
INERT = {"search", "index", "next", "prev", "author", "canonical"}
"""Kinds of <link> that only lead somewhere; a browser fetches any other."""
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED),
    reason='the site needs pip install "sept-offline[docs]"',
)


class Page(HTMLParser):
    """What a page loads, where it leads, and what in it can be led to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.anchors: set[str] = set()
        self.tags: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags.add(tag)
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        self.loads += [values[name] for kind, name in LOADING if kind == tag and name in values]
        if tag == "link" and values.get("rel") not in INERT:
            self.loads.append(values["href"])
        self.leads += [values[name] for name in WAYS.get(tag, ()) if name in values]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    strict = ["-q", "-W", "--keep-going", "-n", "-E", "-d", str(folder / "doctrees")]
    plain = ["-D", "smartquotes=0"]
    done = processes.run(
        *strict,
        *plain,
        ROOT / "docs",
        folder / "html",
        code=BUILD,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr.strip(), done.stderr
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_no_page_asks_anything_of_the_network(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for address in page.loads:
            parts = urlsplit(address)
            assert not parts.netloc and parts.scheme in ("", "data"), f"{path.name}: {address}"
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"@import|url\(\s*['\"]?(?:https?:)?//", text), sheet.name
    assert not any("math" in script.name.lower() for script in site.rglob("*.js"))


def test_links_and_anchors_lead_somewhere(pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for address in page.leads:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), f"{path.name} leads to {address}"
            if parts.fragment and target.suffix == ".html":
                anchors = pages[target].anchors
                assert unquote(parts.fragment) in anchors, f"{path.name} leads to {address}"


def test_every_page_is_reached_from_the_first(site: Path, pages: dict[Path, Page]) -> None:
    reached, waiting = set(), [site / "index.html"]
    while waiting:
        path = waiting.pop()
        if path in reached:
            continue
        reached.add(path)
        targets = [urlsplit(address) for address in pages[path].leads]
        waiting += [
            (path.parent / unquote(target.path)).resolve()
            for target in targets
            if target.path.endswith(".html") and not target.netloc
        ]
    missing = {path.relative_to(site) for path in set(pages) - reached}
    assert not missing, f"no way leads to {sorted(map(str, missing))}"
    docs = ROOT / "docs"
    for source in [*docs.rglob("*.md"), *docs.glob("notebooks/*.ipynb")]:
        page = site / source.relative_to(docs).with_suffix(".html")
        assert page in reached, f"{source.name} is not part of the site"


def test_every_public_name_is_explained(site: Path, pages: dict[Path, Page]) -> None:
    explained = pages[site / "api.html"].anchors
    missing = {name for name in sept_offline.__all__ if f"sept_offline.{name}" not in explained}
    assert not missing


def test_every_field_of_a_public_record_is_explained(site: Path, pages: dict[Path, Page]) -> None:
    explained = pages[site / "api.html"].anchors
    for name in sept_offline.__all__:
        record = getattr(sept_offline, name)
        if inspect.isclass(record) and dataclasses.is_dataclass(record):
            for field in dataclasses.fields(record):
                assert f"sept_offline.{name}.{field.name}" in explained, f"{name}.{field.name}"


def test_every_setting_is_listed(site: Path) -> None:
    def names(values: dict[str, Any], prefix: str = "") -> list[str]:
        inner = [(prefix + name, value) for name, value in values.items()]
        return [
            leaf
            for name, value in inner
            for leaf in (names(value, f"{name}.") if isinstance(value, dict) else [name])
        ]

    page = (site / "settings.html").read_text(encoding="utf-8")
    wanted = names(to_plain(sept_offline.FitConfig(probe_steps=1)))
    assert len(wanted) > 60
    for name in wanted:
        assert f">{name}<" in page, f"{name} is not on the page of settings"


def test_formulas_options_and_code_are_there(site: Path, pages: dict[Path, Page]) -> None:
    assert "math" in pages[site / "stages" / "probe.html"].tags
    assert "--hold-out" in (site / "commands.html").read_text(encoding="utf-8")
    shown = pages[site / "methods" / "maml.html"].leads
    assert "../source/sept_offline/methods/maml.html" in shown
    code = (site / "source" / "sept_offline" / "methods" / "maml.html").read_text(encoding="utf-8")
    assert "TaskReplay" in code
