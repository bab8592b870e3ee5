"""Formulas as MathML, which browsers draw themselves: no script, no fonts, no network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

APPLIED = re.compile(r"<mo>(&ApplyFunction;)</mo>(\s*)(?!\s*<mo[^>]*>[(\[])")
ACCENTED = re.compile(r"(\\(?:hat|bar|tilde)(?:\{[^{}]*\}|\s?\\?\w))(?=[_^])")


def mathml(source: str, node: nodes.Node, *, block: bool) -> str:
    """The formula; one that cannot be read is a warning, and so ends a strict build."""
    # docutils would set the index of an accented letter below the letter, not beside it
    apart = ACCENTED.sub(r"\1{}", source)
    try:
        # a function's name and what it is applied to stand apart, but for a bracket
        return APPLIED.sub(r'<mo rspace="0.17em">\1</mo>\2', tex2mathml(apart, as_block=block))
    except MathError as error:
        logging.getLogger(__name__).warning("%s in the formula %r", error, source, location=node)
        return ""


def visit_inline(self: Any, node: nodes.math) -> None:
    """A formula within a line."""
    self.body.append(mathml(node.astext(), node, block=False))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """A formula on lines of its own."""
    self.body.append(f'<div class="formula">{mathml(node.astext(), node, block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """The renderer `mathml`, to be named in `html_math_renderer`."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
