"""Notebooks as pages, with the outputs that they were committed with: nothing is run here."""

from __future__ import annotations

import json
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx

FENCE = "`" * 4


def output(found: dict[str, Any]) -> str:
    """An output in Markdown: a picture if there is one, else text."""
    data = found.get("data", {})
    said = "".join(found.get("text", data.get("text/plain", "")))
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        return f"![{said.strip('<>')}](data:image/png;base64,{picture})"
    return f"{FENCE}text\n{said.rstrip()}\n{FENCE}"


def markdown(notebook: dict[str, Any]) -> str:
    """The whole notebook in Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
        elif cell["cell_type"] == "code":
            parts.append(f"{FENCE}python\n{source}\n{FENCE}")
            parts += [output(found) for found in cell["outputs"]]
    return "\n\n".join(parts) + "\n"


class NotebookParser(MystParser):
    """Reads a notebook as the Markdown that it amounts to."""

    supported = ("ipynb",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """See MystParser."""
        super().parse(markdown(json.loads(inputstring)), document)


def setup(app: Sphinx) -> dict[str, bool]:
    """See the first line."""
    app.add_source_suffix(".ipynb", "ipynb")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
