"""Figures of a bench: how methods look, what is drawn from real tables, what is left out."""

from __future__ import annotations

import importlib.util
import itertools
import re
import shutil
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure as Sheet

from sept_offline.methods import METHODS
from sept_offline.tools.bench import make_plan, run_bench
from sept_offline.tools.bench.figures import INSTALL, can_draw, catalogue, draw_figures
from sept_offline.tools.bench.figures.figure import (
    ABLATIONS,
    BASELINES,
    STYLES,
    Missing,
    Picture,
    style_of,
)
from sept_offline.tools.bench.figures.paper import draw, save, style
from sept_offline.tools.bench.figures.rows import Bench, Row, read_bench
from sept_offline.tools.bench.store import TABLES, read_table
from tests.bench.coins import COIN, SMALL
from tests.bench.made_up import VARIED, joined, made_up
from tests.cli.commands import refused, run, run_json

PIXELS = round(8 / 2.54 * 300)

# How methods look.


def test_every_method_has_a_colour_and_a_name_of_its_own() -> None:
    assert set(METHODS) <= set(STYLES) and {*BASELINES, *ABLATIONS} == set(STYLES)
    assert len({own.colour for own in STYLES.values()}) == len(STYLES)
    assert len({own.title for own in STYLES.values()}) == len(STYLES)
    assert style_of("somebody's").title == "somebody's"


# Viénot, Brettel and Mollon's planes of sight without one kind of cone, in linear RGB.
PROTAN = np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]])
DEUTAN = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])


@pytest.mark.parametrize("sight", [np.eye(3), PROTAN, DEUTAN], ids=["all", "protan", "deutan"])
@pytest.mark.parametrize("group", [BASELINES, ABLATIONS], ids=["baselines", "ablations"])
def test_methods_of_one_figure_differ_for_all_kinds_of_sight(
    group: tuple[str, ...], sight: Any
) -> None:
    """By colour (a CIELAB distance that is easily seen), or by their dash."""

    def lab(colour: str) -> Any:
        rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(rgb > 0.04045, ((rgb + 0.055) / 1.055) ** 2.4, rgb / 12.92)
        to_xyz = np.array(
            [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
        )
        xyz = to_xyz @ np.clip(sight @ linear, 0, 1) / [0.9505, 1.0, 1.089]
        f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
        return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])

    for one, other in itertools.combinations([STYLES[method] for method in group], 2):
        distance = float(np.linalg.norm(lab(one.colour) - lab(other.colour)))
        assert distance > 20 or (one.dash != other.dash and distance > 5), (one, other, distance)


# What is drawn.


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small bench, with two axes, and its figures."""
    out = tmp_path_factory.mktemp("figures") / "real"
    plan = make_plan(
        [COIN],
        ["sept", "avg"],
        seeds=1,
        settings=SMALL,
        vary=["latent.beta=0.1", "instances=2"],
    )
    report = run_bench(plan, out)
    assert report.failed == () and report.ran == 6
    return out


@pytest.fixture(scope="module")
def drawn(real: Path) -> Path:
    found = draw_figures(real)
    assert set(found.names) == {
        "reward-baselines-coin",
        "solved-baselines-coin",
        "training-coin",
        "probe-coin",
        "latent-beta-coin",
        "against-latent-beta-coin",
    }
    kinds = [one.kind for one in found.missing]
    assert "reward-ablations" in kinds and "against-behaviour" in kinds and "switch" in kinds
    # The coin has two instances: the variant with two is at the base's own place.
    assert "against-instances" in kinds
    assert found.left_out.count("\n") == 0 and "reward-ablations" in found.left_out
    return real


def test_figures_are_8_cm_wide_and_indexed(drawn: Path) -> None:
    page = (drawn / "figures.md").read_text()
    links = re.findall(r"\]\(([^\s)]+)\)", page)
    files = {str(path.relative_to(drawn)) for path in (drawn / "figures").iterdir()}
    assert set(links) == files and len(links) == len(files) == 2 * 6
    for name in links:
        data = (drawn / name).read_bytes()
        if name.endswith(".png"):
            assert data.startswith(b"\x89PNG")
            assert abs(int.from_bytes(data[16:20], "big") - PIXELS) <= 1
        else:
            root = xml.etree.ElementTree.fromstring(data)
            assert root.get("width") == f"{8 / 2.54 * 72:.6f}".rstrip("0") + "pt"
    assert "1 training seed." in page
    assert "- reward-ablations-coin: needs cells of sept-np, totalvar, maxent, dynasept" in page


def test_the_curves_drawn_end_at_the_returns_of_the_tables(drawn: Path) -> None:
    pictures = {p.name: p for p in catalogue(read_bench(drawn)) if isinstance(p, Picture)}
    with style():
        (axes,) = draw(pictures["reward-baselines-coin"].figure).axes
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    base = [row for row in read_table(drawn, "results") if "beta" not in row["variant"]]
    own = [row for row in base if "instances" not in row["variant"]]
    assert set(lines) == {"SEPT", "Avg"}
    for method, name in (("sept", "SEPT"), ("avg", "Avg")):
        returns = [row["return"] for row in own if row["method"] == method]
        assert np.asarray(lines[name])[-1] == pytest.approx(np.mean(returns))
        assert len(lines[name]) == 3


def test_the_same_tables_give_the_same_bytes_whatever_the_users_style(
    drawn: Path, tmp_path: Path
) -> None:
    pictures = {p.name: p for p in catalogue(read_bench(drawn)) if isinstance(p, Picture)}
    with matplotlib.rc_context({"font.size": 20, "axes.grid": True}):
        for name in ("training-coin", "latent-beta-coin"):
            with style():
                save(draw(pictures[name].figure), tmp_path / name)
        assert matplotlib.rcParams["font.size"] == 20
    again = sorted(tmp_path.iterdir())
    assert len(again) == 4
    for path in again:
        assert path.read_bytes() == (drawn / "figures" / path.name).read_bytes(), path.name


@pytest.fixture(scope="module")
def full() -> Bench:
    return joined(made_up("acrobot", VARIED), made_up("navigation2d-switch"))


@pytest.fixture(scope="module")
def whole(full: Bench) -> set[str]:
    """Names of the figures where all data are there."""
    return {one.name for one in catalogue(full) if isinstance(one, Picture)}


def test_every_figure_is_drawn_where_all_data_are_there(full: Bench) -> None:
    found = catalogue(full)
    pictures = {one.name: one for one in found if isinstance(one, Picture)}
    assert not [one for one in found if isinstance(one, Missing) and one.family == "acrobot"]
    steps = {
        f"{what}-{group}" for what in ("reward", "solved") for group in ("baselines", "ablations")
    }
    kinds = {*steps, "training", "probe", "latent-beta", "latent-hidden"}
    kinds |= {f"against-{re.sub('[_.]', '-', name)}" for name in VARIED}
    switch = {"reward-switch-navigation2d-switch", "solved-switch-navigation2d-switch"}
    expected = {f"{kind}-acrobot" for kind in kinds} | switch
    assert expected <= set(pictures)
    with style():
        for name in expected:
            figure = draw(pictures[name].figure)
            figure.draw_without_rendering()
            assert figure.axes and all(axes.has_data() for axes in figure.axes), name
            assert "seed" in pictures[name].caption.lower()
        lines = {
            line.get_label()
            for line in draw(pictures["reward-switch-navigation2d-switch"].figure).axes[0].lines
        }
    assert lines == {"DynaSEPT", "SEPT", "Avg", "Oracle"}
    assert "Budgets: BNN reduced." in pictures["reward-baselines-acrobot"].caption
    assert "Budgets" not in pictures["reward-ablations-acrobot"].caption
    assert "hollow points are the base, at 8" in pictures["against-probe-steps-acrobot"].caption


def without() -> Iterator[tuple[str, Any]]:
    for name in TABLES:
        yield f"no {name}", lambda row, table, name=name: table != name
    yield "no base", lambda row, table: row["variant"] != "base"
    yield "no sept", lambda row, table: row["method"] != "sept"
    yield "nothing", lambda row, table: False


@pytest.mark.parametrize(("kept"), [pytest.param(keep, id=name) for name, keep in without()])
def test_missing_data_leave_figures_out_and_nothing_breaks(
    full: Bench, whole: set[str], kept: Any
) -> None:
    bench = Bench(*([row for row in getattr(full, name) if kept(row, name)] for name in TABLES))
    found = catalogue(bench)
    pictures = [one for one in found if isinstance(one, Picture)]
    assert len(pictures) < len(whole) and any(isinstance(one, Missing) for one in found)
    with style():
        for picture in pictures[:1] + pictures[-1:]:
            draw(picture.figure).draw_without_rendering()


def test_unsolvable_families_have_no_figure_of_it_and_miss_none() -> None:
    bench = made_up("hiv")
    rows: list[Row] = [{**row, "solved": None, "steps_to_solve": None} for row in bench.results]
    found = catalogue(Bench(rows, bench.cells, bench.training, bench.latents))
    names = [one.name if isinstance(one, Picture) else one.kind for one in found]
    assert "reward-baselines-hiv" in names and not any("solved" in name for name in names)


def test_another_preset_has_figures_of_its_own() -> None:
    usual = made_up("hiv")
    other = Bench(
        *([{**row, "preset": "paper"} for row in getattr(usual, name)] for name in TABLES)
    )
    found = catalogue(joined(other, usual))
    names = [one.name for one in found if isinstance(one, Picture)]
    assert {"reward-baselines-hiv", "reward-baselines-hiv-paper"} <= set(names)
    assert len(names) == len(set(names)) == 2 * len([n for n in names if n.endswith("-paper")])
    captions = {one.name: one.caption for one in found if isinstance(one, Picture)}
    assert captions["probe-hiv-paper"].startswith("hiv (paper): ")
    missing = [one for one in found if isinstance(one, Missing)]
    assert len(missing) == len({(one.kind, one.family) for one in missing})


def test_one_instance_more_and_one_dimension_less_are_drawn_too() -> None:
    bench = made_up("acrobot")
    flat: list[Row] = [
        {**row, "z": row["z"][:1], "instance": f"train-{number}", "hidden": None}
        for number, row in enumerate(bench.latents)
    ]
    found = catalogue(Bench(bench.results, bench.cells, bench.training, flat))
    names = {one.name: one for one in found if isinstance(one, Picture)}
    assert "latent-hidden-acrobot" not in names
    with style():
        draw(names["latent-acrobot"].figure).draw_without_rendering()


# The command.


def test_the_command_draws_figures_alone(
    drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Empty ones, which is quicker: what is on them is asked above."""
    monkeypatch.setattr("sept_offline.tools.bench.figures.draw", lambda _: Sheet(figsize=(3, 2)))
    shutil.copytree(drawn, tmp_path / "bench", ignore=shutil.ignore_patterns("figures*", "*.md"))
    found = run_json("bench", "--figures", cwd=tmp_path)
    assert found["path"] == "bench" and "reward-baselines-coin" in found["figures"]
    assert (tmp_path / "bench" / "figures.md").read_bytes() == (drawn / "figures.md").read_bytes()
    assert not (tmp_path / "bench" / "tables.md").exists()


def test_without_matplotlib_one_line_says_what_to_install(
    real: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(real, tmp_path / "bench", ignore=shutil.ignore_patterns("figures*", "*.md"))
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *_: None if name == "matplotlib" else find(name)
    )
    assert not can_draw()
    assert INSTALL in refused("bench", "--figures", cwd=tmp_path)
    done = run("bench", "--tables-only", cwd=tmp_path)
    assert done.returncode == 0 and done.stderr.strip() == INSTALL
    assert (tmp_path / "bench" / "tables.md").exists()
    assert not (tmp_path / "bench" / "figures").exists()


def test_figures_of_nothing_are_refused(tmp_path: Path) -> None:
    assert "There is no bench/results.parquet" in refused("bench", "--figures", cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []
