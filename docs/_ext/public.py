"""Types in signatures stand by where they are defined; they are documented by their public name."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import sept_offline


def public_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> Any:
    """The reference by its public name, if it has one."""
    target = node.get("reftarget", "")
    last = target.rpartition(".")[2]
    if node.get("refdomain") != "py" or last not in sept_offline.__all__:
        return None
    if target != last and getattr(sept_offline, last).__module__ != target.rpartition(".")[0]:
        return None
    name = f"sept_offline.{last}"
    domain = env.domains.python_domain
    return domain.resolve_xref(
        env, node["refdoc"], app.builder, node["reftype"], name, node, content
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """See the first line."""
    app.connect("missing-reference", public_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
