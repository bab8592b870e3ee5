"""Write the tables of docs/results.md, and its figures, from the study kept beside this script.

    python benchmarks/pages.py            # the page as it should be
    python benchmarks/pages.py --check    # exit code 1 if it is not

The study itself is repeated or continued by the commands on that page.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

# This folder has a file named as a package that is imported below.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).parent]

from sept_offline.bench.store import read_table  # noqa: E402
from sept_offline.bench.summary import summarise_bench, unlike  # noqa: E402
from sept_offline.bench.tables import make_tables, markdown  # noqa: E402

ROOT = Path(__file__).parent.parent
STUDY = ROOT / "benchmarks" / "results" / "bench"
PAGE = ROOT / "docs" / "results.md"
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->\n"


def page(text: str) -> str:
    """The page with the study's tables between the two marks."""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise SystemExit(f"{PAGE} has lost its marks {BEGIN.strip()} and {END.strip()}.")
    tables = markdown(make_tables(summarise_bench(STUDY)), unlike(read_table(STUDY, "cells")))
    return before + mark + tables + end + after


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    found = PAGE.read_text(encoding="utf-8")
    wanted = page(found)
    if arguments.check:
        raise SystemExit(int(found != wanted))
    PAGE.write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    main()
