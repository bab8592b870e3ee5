"""How Sphinx makes a site of these pages: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent / "_ext"), str(Path(__file__).parents[1])]

from sources import resolve  # noqa: E402

import sept_offline  # noqa: E402

project = "sept-offline"
release = sept_offline.__version__
copyright = "the authors of sept-offline"
html_title = "sept-offline"
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_use_index = False
html_show_sphinx = False
templates_path: list[str] = []
exclude_patterns = ["_ext", "_static", "notebooks/.ipynb_checkpoints"]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "sphinx_copybutton",
    "mathml",
    "notebooks",
    "options",
    "public",
    "sources",
]
html_math_renderer = "mathml"
linkcode_resolve = resolve

# Markdown that a forge shows as well: formulas between dollars, links to #headings.
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
myst_dmath_double_inline = False

# Docstrings name code in single backticks.
default_role = "code"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
python_use_unqualified_type_names = True
maximum_signature_line_length = 88

# Without a network no other project's names can be looked up; our own public ones must be found.
nitpicky = True
_PUBLIC = "|".join(sept_offline.__all__)
nitpick_ignore_regex = [(r"py:.*", rf"(?!sept_offline\.({_PUBLIC})$).*")]
