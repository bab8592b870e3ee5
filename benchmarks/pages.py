"""Write the tables and figures of the docs from the studies kept beside this script.

    python benchmarks/pages.py            # the pages as they should be, and their pictures
    python benchmarks/pages.py --check    # exit code 1 if they are not

docs/results.md has those of the bench, docs/ope.md and docs/demarcate.md those of the scripts of
these names. The studies are repeated or continued by the commands on the pages.
"""

from __future__ import annotations

import argparse
import runpy
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

# This folder has a file named as a package that is imported below.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).parent]

import matplotlib  # noqa: E402

from sept_offline.bench.figures.catalogue import Picture, catalogue  # noqa: E402
from sept_offline.bench.figures.paper import save, style  # noqa: E402
from sept_offline.bench.figures.rows import read_bench  # noqa: E402
from sept_offline.bench.store import read_table  # noqa: E402
from sept_offline.bench.summary import summarise_bench, unlike  # noqa: E402
from sept_offline.bench.tables import make_tables, markdown  # noqa: E402
from sept_offline.bench.variants import BASE  # noqa: E402

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
STUDY = RESULTS / "bench"
PAGE = ROOT / "docs" / "results.md"
IMAGES = ROOT / "docs" / "images" / "results"
SHOWN = (
    *("reward-baselines-navigation2d", "reward-baselines-acrobot", "reward-baselines-hiv"),
    *("solved-baselines-navigation2d", "solved-baselines-acrobot"),
    *("reward-ablations-navigation2d", "reward-ablations-acrobot", "reward-ablations-hiv"),
    "solved-switch-navigation2d-switch",
    *("training-acrobot", "probe-navigation2d", "probe-hiv"),
    *("latent-beta-acrobot", "latent-hidden-acrobot", "latent-hidden-hiv"),
    *("against-probe-steps-navigation2d", "against-probe-steps-acrobot", "against-probe-steps-hiv"),
    *("against-latent-dim-navigation2d", "against-latent-dim-acrobot", "against-latent-dim-hiv"),
    *("against-behaviour-navigation2d", "against-behaviour-acrobot", "against-behaviour-hiv"),
    *("against-episodes-navigation2d", "against-episodes-acrobot", "against-episodes-hiv"),
    *("against-instances-acrobot", "against-instances-hiv"),
    *("against-propensities-navigation2d", "against-propensities-hiv"),
)
"""The figures on the page, as the paper has them and then along the axes; all are in a bench."""
DOTS = 180
"""An inch, for a screen."""


def tables() -> str:
    """What every method reached, and after it one table a family of what was varied."""
    summary = summarise_bench(STUDY)
    base = make_tables([row for row in summary if row["variant"] == BASE])
    varied = make_tables([_alone(row) for row in summary if row["variant"] != BASE])
    along = [
        replace(table, title=table.title.replace("test episodes", "along the axes"))
        for table in varied
        if table.title.endswith("test episodes")
    ]
    return markdown([*base, *along], unlike(read_table(STUDY, "cells")))


def _alone(row: dict[str, Any]) -> dict[str, Any]:
    """Without the paper's figures, which are of no variant."""
    return row | {"paper": {}}


def pictures() -> list[Picture]:
    """Those of the page that the study has data for."""
    drawn = {one.name: one for one in catalogue(read_bench(STUDY)) if isinstance(one, Picture)}
    return [drawn[name] for name in SHOWN if name in drawn]


def figures(found: list[Picture]) -> str:
    """The pictures, each with its caption."""
    lines = []
    for one in found:
        path = IMAGES.relative_to(PAGE.parent) / f"{one.name}.png"
        lines += [f"![{one.name}]({path.as_posix()})", "", one.caption, ""]
    return "\n".join(lines)


def kept(name: str) -> str:
    """The tables of one script from its kept cells."""
    script = runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"))
    found: str = script["tables"](script["read"](RESULTS / f"{name}.jsonl"))
    return found


def between_marks(path: Path, name: str, content: str) -> str:
    """The text of a page with `content` where the marks of that name stand."""
    text = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, mark, rest = text.partition(begin)
    _, last, after = rest.partition(end)
    if not (mark and last):
        raise SystemExit(f"{path} has lost its marks {begin.strip()} and {end.strip()}.")
    return before + mark + content + last + after


def main() -> None:
    """Write, or compare."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    shown = pictures()
    wanted = [
        (PAGE, "tables", tables()),
        (PAGE, "figures", figures(shown)),
        (ROOT / "docs" / "ope.md", "tables", kept("ope")),
        (ROOT / "docs" / "demarcate.md", "tables", kept("demarcate")),
    ]
    stale = {one.stem for one in IMAGES.glob("*.png")} != {one.name for one in shown}
    for path, name, content in wanted:
        text = between_marks(path, name, content)
        if text != path.read_text(encoding="utf-8"):
            stale = True
            if not arguments.check:
                path.write_text(text, encoding="utf-8")
    if arguments.check:
        raise SystemExit(int(stale))
    for old in IMAGES.glob("*"):
        old.unlink()
    with style():
        matplotlib.rcParams["savefig.dpi"] = DOTS
        for one in shown:
            save(one.draw(), IMAGES / one.name)
    for spare in IMAGES.glob("*.svg"):
        spare.unlink()


if __name__ == "__main__":
    main()
