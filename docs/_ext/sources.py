"""A path such as `sept_offline/stage.py` in a page leads to that file, shown within the site."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

import sept_offline

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`((?:sept_offline|simulators|benchmarks|tests)/[\w./-]+\.py)`")

TREES: dict[tuple[Any, ...], str] = {}


def page_of(path: str) -> str:
    """The name of the page that shows the file at `path`, which is relative to the root."""
    return f"source/{path.removesuffix('.py')}"


def link_paths(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Wrap each file's name in a link to its page."""
    for node in list(doctree.findall(nodes.literal)):
        path = node.astext()
        if NAMED.fullmatch(f"`{path}`") and not isinstance(node.parent, nodes.reference):
            target = app.builder.get_relative_uri(docname, page_of(path))
            node.replace_self(nodes.reference("", "", node.deepcopy(), refuri=target))


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for every file that a page names, or that a public name comes from."""
    named = {path for path, _ in map(where, sept_offline.__all__) if path}
    for docname in app.env.found_docs:
        named |= set(NAMED.findall(app.env.doc2path(docname).read_text(encoding="utf-8")))
    for path in sorted(named):
        code = (ROOT / path).read_text(encoding="utf-8")
        body = app.builder.highlighter.highlight_block(code, "python", lineanchors="L")
        yield page_of(path), {"title": path, "body": f"<h1>{path}</h1>\n{body}"}, "page.html"


def remember_tree(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Draw the tree of all pages once for the files of one depth, which are no part of it."""
    if not pagename.startswith("source/"):
        return
    draw, depth = context["toctree"], pagename.count("/")

    def remembered(**how: Any) -> str:
        wanted = (depth, *sorted(how.items()))
        if wanted not in TREES:
            TREES[wanted] = draw(**how)
        return TREES[wanted]

    context["toctree"] = remembered


def where(name: str) -> tuple[str | None, int]:
    """The file and the line in which a public name, or a method of one, is defined."""
    found: Any = sept_offline
    for part in name.split("."):
        # a field of a record has no code of its own, and a property's is asked for unbound
        found = vars(found).get(part) if inspect.isclass(found) else getattr(found, part)
    for inner in ("fget", "func", "__func__"):
        found = getattr(found, inner, found)
    try:
        file = Path(inspect.getsourcefile(found) or "")
        return str(file.relative_to(ROOT)), inspect.getsourcelines(found)[1]
    except (TypeError, ValueError, OSError):
        return None, 0


def resolve(domain: str, info: dict[str, str]) -> str | None:
    """What `sphinx.ext.linkcode` asks: where the code of a documented name is shown."""
    if domain != "py":
        return None
    path, line = where(info["fullname"])
    return f"{page_of(path)}.html#L-{line}" if path else None


def setup(app: Sphinx) -> dict[str, bool]:
    """See the first line."""
    app.connect("doctree-resolved", link_paths)
    app.connect("html-collect-pages", source_pages)
    # before the theme, which asks for the tree
    app.connect("html-page-context", remember_tree, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
