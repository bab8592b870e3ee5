"""Write the tables and figures of the docs from the studies kept beside this script.

    python benchmarks/pages.py            # write the pages and their pictures
    python benchmarks/pages.py --check    # exit code 1 if they are out of date

docs/results.md has an overview of the newest bench, the figures of the widest one, and the table of
tuning.py; docs/results-tables.md the tables of the widest bench; docs/ope.md and docs/demarcate.md
those of the scripts of the same names, docs/verdict.md those of calibration.py and testbed.py. The
commands on the pages repeat or continue the studies.
"""

from __future__ import annotations

import argparse
import json
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np

from sept_offline.tools.bench.figures import catalogue
from sept_offline.tools.bench.figures.axes import COLUMNS
from sept_offline.tools.bench.figures.figure import (
    Figure,
    Intervals,
    Panel,
    Picture,
    Scale,
    style_of,
)
from sept_offline.tools.bench.figures.paper import draw, save, style
from sept_offline.tools.bench.figures.rows import Bench, read_bench
from sept_offline.tools.bench.plan import BASE
from sept_offline.tools.bench.statistics import complete, crossed_interval, grid
from sept_offline.tools.bench.summary import make_tables, markdown, summarise_bench, unlike

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
STUDY = RESULTS / "bench"
"""All methods, on earlier data."""
RECENT = RESULTS / "overview"
"""The compared methods alone, on today's."""
PAGE = ROOT / "docs" / "results.md"
TABLES = ROOT / "docs" / "results-tables.md"
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
"""The figures on the page, in the paper's order and then along the axes."""
OVERVIEW = "overview"
COMPARED = ("sept", "avg", "oracle")
DODGE = 0.18
"""Between the methods of a family in the overview, in distances of two families."""
DOTS = 180
"""Per inch, for a screen."""
Row = Mapping[str, Any]


def overview(summary: Sequence[Row], cells: Sequence[Row]) -> str:
    """The first screen: a figure, a table of four columns, and what they are of."""
    rows = _compared(summary)
    families = sorted({family for family, _ in rows})
    lines = [f"![Score of sept, avg and oracle in each family]({_image(OVERVIEW)})", ""]
    lines += [f"| family | {' | '.join(COMPARED)} |", "|---" * (1 + len(COMPARED)) + "|"]
    for family in families:
        values = [_reached(rows.get((family, method))) for method in COMPARED]
        lines.append(f"| {family} | {' | '.join(values)} |")
    seeds = ", ".join(f"{name} {rows[name, COMPARED[0]]['seeds']}" for name in families)
    lines += [
        "",
        "Mean ± standard error over training seeds, in test instances. Score: share of the "
        "achievable return, 0 for a random agent, 1 for the best known return in the instance. "
        f"Points of the figure have 95 % bootstrap intervals. Training seeds: {seeds}.",
        "",
        f"Data and latent of these figures: {_made_from(cells)}.",
        "",
    ]
    return "\n".join(lines)


def _compared(summary: Sequence[Row]) -> dict[tuple[str, str], Row]:
    """Family and method → summary, of the compared methods with their usual settings."""
    return {
        (row["family"], row["method"]): row
        for row in summary
        if (row["preset"], row["variant"]) == ("default", BASE) and row["method"] in COMPARED
    }


def _reached(row: Row | None) -> str:
    if row is None:
        return "–"
    if row["solved"] is None:
        return f"score {_with_error(row['normalised'])}"
    share = 100 * row["solved"]["mean"]
    return f"{share:.3g} % solved, {_with_error(row['steps_to_solve'])} steps"


def _with_error(statistics: Row) -> str:
    return f"{statistics['mean']:.3g} ± {statistics['se']:.1g}"


def _made_from(cells: Sequence[Row]) -> str:
    """Content hashes of the logs, and the objective of the latent, as the cells keep them."""
    base = [cell for cell in cells if (cell["preset"], cell["variant"]) == ("default", BASE)]
    hashes: dict[str, list[str]] = {}
    for cell in sorted(base, key=lambda cell: (cell["family"], cell["data_seed"])):
        short = f"`{cell['content_hash'][:8]}`"
        known = hashes.setdefault(cell["family"], [])
        if short not in known:
            known.append(short)
    objectives = {json.loads(cell["config"])["latent"]["objective"] for cell in base}
    logs = "; ".join(f"{family} {' and '.join(short)}" for family, short in hashes.items())
    named = ", ".join(f"`{objective}`" for objective in sorted(objectives))
    return f"logs with the content hashes {logs}; `latent.objective` {named}"


def overview_figure(results: Sequence[Row]) -> Figure:
    """The mean score of each compared method in each family, with its interval."""
    families = sorted({row["family"] for row in results})
    marks = []
    for rank, method in enumerate(COMPARED):
        points = []
        for place, family in enumerate(families):
            wanted = (family, method, "default", BASE)
            keys = ("family", "method", "preset", "variant")
            rows = [row for row in results if tuple(row[key] for key in keys) == wanted]
            scores = complete(grid(rows, "normalised")[2])
            if scores.size:
                low, high = crossed_interval(scores) or (np.nan, np.nan)
                points.append((place + DODGE * (rank - 1), scores.mean(), low, high))
        method_style = style_of(method)
        marks.append(
            Intervals(
                method_style.title,
                *np.array(points).T,
                hollow=[False] * len(points),
                notes=[""] * len(points),
                colour=method_style.colour,
                method=method,
                joined=False,
            )
        )
    ticks = [(float(place), family.replace("-", "-\n")) for place, family in enumerate(families)]
    across = Scale("", ticks, (-0.5, len(families) - 0.5))
    panel = Panel(marks, across, Scale(COLUMNS["normalised"]))
    return Figure("", [panel], legend=[mark.name for mark in marks])


def tables(summary: Sequence[dict[str, Any]], cells: Sequence[Row]) -> str:
    """What every method reached, and one table per family of what was varied."""
    base = make_tables([row for row in summary if row["variant"] == BASE])
    varied = make_tables([_alone(row) for row in summary if row["variant"] != BASE])
    along = [
        replace(table, title=table.title.replace("test episodes", "along the axes"))
        for table in varied
        if table.title.endswith("test episodes")
    ]
    return markdown([*base, *along], unlike(cells))


def _alone(row: dict[str, Any]) -> dict[str, Any]:
    """Without the paper's figures, which do not belong to a variant."""
    return row | {"paper": {}}


def pictures(bench: Bench) -> list[Picture]:
    """The figures of the page that the study has data for."""
    known = {p.name: p for p in catalogue(bench) if isinstance(p, Picture)}
    return [known[name] for name in SHOWN if name in known]


def figures(shown: list[Picture]) -> str:
    """The pictures, each with its caption."""
    lines = []
    for picture in shown:
        lines += [f"![{picture.name}]({_image(picture.name)})", "", picture.caption, ""]
    return "\n".join(lines)


def _image(name: str) -> str:
    return (IMAGES.relative_to(PAGE.parent) / f"{name}.png").as_posix()


def kept(name: str) -> str:
    """The tables of one script from its kept cells."""
    script = runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"))
    text: str = script["tables"](script["read"](RESULTS / f"{name}.jsonl"))
    return text


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
    bench, summary = read_bench(STUDY), summarise_bench(STUDY)
    recent = read_bench(RECENT)
    on_page = pictures(bench)
    shown = [Picture(OVERVIEW, "", overview_figure(recent.results)), *on_page]
    wanted = [
        (PAGE, "overview", overview(summarise_bench(RECENT), recent.cells)),
        (PAGE, "figures", figures(on_page)),
        (PAGE, "tuning", kept("tuning")),
        (TABLES, "tables", tables(summary, bench.cells)),
        (ROOT / "docs" / "ope.md", "tables", kept("ope")),
        (ROOT / "docs" / "demarcate.md", "tables", kept("demarcate")),
        (ROOT / "docs" / "verdict.md", "calibration", kept("calibration")),
        (ROOT / "docs" / "verdict.md", "testbed", kept("testbed")),
    ]
    stale = {image.stem for image in IMAGES.glob("*.png")} != {picture.name for picture in shown}
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
        for picture in shown:
            save(draw(picture.figure), IMAGES / picture.name)
    for spare in IMAGES.glob("*.svg"):
        spare.unlink()


if __name__ == "__main__":
    main()
