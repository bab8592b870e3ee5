"""The pages of results show the study that is kept beside them."""

from __future__ import annotations

import re
from pathlib import Path

from tests import processes

ROOT = Path(__file__).parent.parent
CHECK = f"""
import runpy, sys
from sept_offline.tools.bench.figures import curves
curves.crossed_band = lambda paths: None
sys.path[0] = {str(ROOT / "benchmarks")!r}
runpy.run_path({str(ROOT / "benchmarks" / "pages.py")!r}, run_name="__main__")
"""
"""`benchmarks/pages.py`, without the bands of curves: a page names its pictures and draws none."""
SCREEN = 30
"""Lines of a page that are seen at once."""


def test_the_pages_are_those_of_the_kept_study() -> None:
    """`python benchmarks/pages.py` writes them."""
    done = processes.run("--check", code=CHECK, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_the_page_opens_with_a_figure_and_a_table_of_four_columns() -> None:
    lines = (ROOT / "docs" / "results.md").read_text(encoding="utf-8").splitlines()
    picture = next(n for n, line in enumerate(lines) if line.startswith("!["))
    rows = [n for n, line in enumerate(lines) if line.startswith("|")]
    assert picture < rows[0] and lines[rows[0]] == "| family | sept | avg | oracle |"
    table = [n for n in rows if n - rows[0] == rows.index(n)]
    assert table[-1] < SCREEN and len(table) >= 2 + 4
    assert all(lines[n].count("|") == 5 for n in table)


def test_the_page_names_its_data_and_its_latent() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    (line,) = re.findall("^Data and latent of these figures: .*$", text, flags=re.MULTILINE)
    assert len(re.findall("`[0-9a-f]{8}`", line)) >= 4 and "`latent.objective` `" in line
    assert "results-tables.md" in text
