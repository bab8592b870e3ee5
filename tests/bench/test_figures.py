"""Figures of a bench: what is plotted by hand, what is drawn from real tables, what is left out."""

from __future__ import annotations

import importlib.util
import itertools
import json
import re
import shutil
import xml.etree.ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest

from sept_offline.bench import make_plan, run_bench
from sept_offline.bench.figures import INSTALL, can_draw, draw_figures
from sept_offline.bench.figures.axes import UNKNOWN, base_value, make_axis, varied
from sept_offline.bench.figures.canvas import save, style
from sept_offline.bench.figures.catalogue import Missing, Picture, catalogue
from sept_offline.bench.figures.curves import (
    cumulative_reward,
    percent_solved,
    step_curve,
    step_paths,
)
from sept_offline.bench.figures.look import ABLATIONS, BASELINES, LOOKS, look
from sept_offline.bench.figures.plane import Plane, beta_planes, explained, principal
from sept_offline.bench.figures.rows import Bench, Row, read_bench, studies
from sept_offline.bench.figures.training import metric_curves, watched_curves
from sept_offline.bench.statistics import crossed_band, crossed_interval
from sept_offline.bench.store import TABLES, read_table
from sept_offline.methods import METHODS
from tests.bench.coins import COIN, SMALL
from tests.cli.commands import refused, run, run_json

PIXELS = round(8 / 2.54 * 300)
VARIED = {
    "probe_steps": ("2", "16"),
    "latent.dim": ("1", "3"),
    "latent.beta": ("0.1", "10.0"),
    "behaviour": ("random", "mixed"),
    "episodes": ("10", "1000"),
    "instances": ("2",),
    "propensities": ("estimated",),
}


def named(family: str, method: str, variant: str, seed: int) -> dict[str, Any]:
    return {
        "family": family,
        "method": method,
        "preset": "default",
        "variant": variant,
        "data_seed": 0,
        "seed": seed,
    }


def episode(instance: str, rewards: list[float], solved: bool | None, limit: int) -> dict[str, Any]:
    return {
        "instance": instance,
        "return": sum(rewards),
        "normalised": None,
        "solved": solved,
        "steps_to_solve": None if solved is None else len(rewards) if solved else limit,
        "reward": rewards,
    }


def made_up(family: str, variants: dict[str, tuple[str, ...]] | None = None) -> Bench:
    """Every method at the base with two seeds; sept and avg along every axis with one."""
    bench = Bench([], [], [], [])
    cells = [(method, "base", seed) for method in LOOKS for seed in range(2)]
    for axis, values in (variants or {}).items():
        cells += [(m, f"{axis}={value}", 0) for value in values for m in ("sept", "avg")]
    for number, (method, variant, seed) in enumerate(cells):
        row = named(family, method, variant, seed)
        bench.cells.append(
            row
            | {
                "limit": 6,
                "behaviour_estimated": False,
                "budget": "reduced" if method == "bnn" else None,
                "record": json.dumps({"fitted_on": {"episodes": [[0, 90], [95, 105]]}}),
                "config": json.dumps({"probe_steps": 8, "latent": {"dim": 2, "beta": 1.0}}),
            }
        )
        for place in range(3):
            rewards = [-1.0] * (2 + (number + place) % 4) + [5.0]
            bench.results.append(row | episode(f"test-{place}", rewards, True, 6))
        for stage, metric in (("latent", "elbo"), ("probe", "reward"), ("control", "max_q")):
            if stage != "control" and method not in ("sept", "totalvar", "maxent"):
                continue
            for update in (10, 20):
                value = {"stage": stage, "metric": metric, "update": update, "value": 1.0 / update}
                bench.training.append(row | value)
        if method == "sept":
            size = 1 if variant == "latent.dim=1" else 2
            for train, copy in itertools.product(range(5), range(3)):
                hidden = json.dumps({"m1": train / 5, "m2": train / 10, "g": 9.8})
                z = [float(train), 0.1 * copy][:size]
                latent = {"instance": f"train-{train}", "hidden": hidden, "z": z}
                bench.latents.append(row | latent)
    return bench


def joined(*benches: Bench) -> Bench:
    rows = ([row for bench in benches for row in getattr(bench, name)] for name in TABLES)
    return Bench(*rows)


# What is plotted, by hand.


def test_an_ended_episode_keeps_its_last_value() -> None:
    row = episode("a", [1.0, -2.0, 4.0], True, 5)
    np.testing.assert_array_equal(cumulative_reward(row, 5), [0, 1, -1, 3, 3, 3])
    np.testing.assert_array_equal(percent_solved(row, 5), [0, 0, 0, 100, 100, 100])
    unsolved = episode("a", [1.0] * 5, False, 5)
    np.testing.assert_array_equal(percent_solved(unsolved, 5), [0] * 6)
    np.testing.assert_array_equal(cumulative_reward(unsolved, 5), [0, 1, 2, 3, 4, 5])


def test_a_step_curve_is_the_mean_of_seeds_and_shared_instances() -> None:
    rows: list[Row] = [
        {"seed": 0} | episode("a", [1.0, 1.0], True, 3),
        {"seed": 0} | episode("a", [3.0], True, 3),
        {"seed": 1} | episode("a", [0.0, 0.0, 6.0], True, 3),
        {"seed": 1} | episode("b", [90.0], True, 3),
    ]
    curve = step_curve("sept", rows, 3, cumulative_reward)
    assert curve is not None and curve.seeds == 2
    # Of seed 0 the mean of [0, 1, 2, 2] and [0, 3, 3, 3]; b is not there.
    np.testing.assert_allclose(curve.mean, [0, 1, 1.25, 4.25])
    assert curve.low is not None and curve.high is not None
    np.testing.assert_allclose(curve.low, [0, 0, 0, 2.5])
    np.testing.assert_allclose(curve.high, [0, 2, 2.5, 6])
    solved = step_curve("sept", rows, 3, percent_solved)
    assert solved is not None
    np.testing.assert_allclose(solved.mean, [0, 25, 50, 100])
    assert step_curve("sept", [rows[0], rows[3]], 3, cumulative_reward) is None
    single = step_curve("sept", rows[:2], 3, cumulative_reward)
    assert single is not None and single.low is single.high is None


def test_bands_are_the_intervals_of_the_tables_step_by_step() -> None:
    paths = np.random.default_rng(0).standard_normal((4, 5, 7)).cumsum(axis=2)
    band = crossed_band(paths)
    assert band is not None
    low, high = band
    expected = [crossed_interval(paths[:, :, step]) for step in range(7)]
    np.testing.assert_allclose(np.column_stack([low, high]), expected, rtol=1e-12)


def test_training_curves_spread_over_seeds_at_shared_updates() -> None:
    values = {0: {10: 1.0, 20: 2.0}, 1: {10: 5.0, 20: 4.0, 30: 9.0}, 2: {10: 0.0, 20: 3.0}}
    rows: list[Row] = [
        {"method": "avg", "stage": "control", "metric": "max_q", "seed": seed}
        | {"update": update, "value": value}
        for seed, own in values.items()
        for update, value in own.items()
    ]
    (curve,) = metric_curves(rows, ["control"], "max_q")
    assert (curve.method, curve.seeds, curve.x.tolist()) == ("avg", 3, [10, 20])
    assert curve.low is not None and curve.high is not None
    np.testing.assert_allclose([curve.mean, curve.low, curve.high], [[2, 3], [0, 2], [5, 4]])
    assert metric_curves(rows, ["latent"], "max_q") == []
    assert metric_curves(rows, ["control"], "max_q", ["sept"]) == []


def test_log_likelihood_stands_in_only_where_there_is_no_elbo() -> None:
    rows: list[Row] = [
        {"method": method, "stage": "latent", "metric": metric, "seed": 0, "update": 1, "value": 0}
        for method, metric in (
            ("sept", "elbo"),
            ("sept", "log_likelihood"),
            ("dynasept", "log_likelihood"),
        )
    ]
    found = {metric.name: [curve.method for curve in own] for metric, own in watched_curves(rows)}
    assert found == {"elbo": ["sept"], "log_likelihood": ["dynasept"]}


def test_the_base_stands_at_its_own_value_of_every_axis() -> None:
    (study,) = studies(made_up("acrobot", VARIED))
    assert study.base == "base" and set(varied(study)) == set(VARIED)
    # A hundred episodes were fitted on, of five instances; Acrobot's recipe is a replay.
    expected = {
        "probe_steps": "8",
        "latent.dim": "2",
        "latent.beta": "1",
        "behaviour": "replay",
        "episodes": "20",
        "instances": "5",
        "propensities": "exact",
        "latent.nowhere": UNKNOWN,
    }
    assert {name: base_value(study, name) for name in expected} == expected
    (other,) = studies(made_up("somebody's own"))
    assert base_value(other, "behaviour") == UNKNOWN


def test_points_along_an_axis_by_hand() -> None:
    bench = made_up("acrobot", {"latent.beta": ("0.1", "10.0")})
    (study,) = studies(bench)
    axis = make_axis(study, "latent.beta", "return")
    assert axis is not None
    assert (axis.values, axis.base, axis.numeric) == (("0.1", "1", "10"), "1", True)
    assert axis.methods == ["sept", "avg"]
    for method in axis.methods:
        for point, variant in zip(
            axis.of(method), ("latent.beta=0.1", "base", "latent.beta=10.0"), strict=True
        ):
            own = [
                row["return"]
                for row in bench.results
                if (row["method"], row["variant"]) == (method, variant)
            ]
            assert point.mean == pytest.approx(np.mean(own))
            assert (point.base, point.seeds) == ((True, 2) if variant == "base" else (False, 1))
            if variant == "base":
                assert point.low is not None and point.high is not None
                assert point.low <= point.mean <= point.high
            else:
                assert point.low is point.high is None


def test_words_along_an_axis_begin_with_the_base_and_twins_are_one_point() -> None:
    (study,) = studies(made_up("acrobot", {"behaviour": ("random", "mixed", "replay")}))
    axis = make_axis(study, "behaviour", "return")
    assert axis is not None and not axis.numeric
    assert axis.values == ("replay", "mixed", "random")
    # The base is a replay too, and has the more seeds.
    assert [point.base for point in axis.of("sept")] == [True, False, False]
    assert make_axis(study, "latent.dim", "return") is None


def test_axes_are_laid_over_a_base_with_settings_of_its_own() -> None:
    bench = made_up("acrobot", {"latent.beta": ("10",)})
    renamed = {"base": "quick,episodes=40", "latent.beta=10": "quick,episodes=40,latent.beta=10"}
    moved = Bench(
        *(
            [{**row, "variant": renamed[row["variant"]]} for row in getattr(bench, name)]
            for name in TABLES
        )
    )
    (study,) = studies(moved)
    assert study.base == renamed["base"] and "quick" in study.title
    assert varied(study) == {"latent.beta": {"10": renamed["latent.beta=10"]}}
    assert (base_value(study, "episodes"), base_value(study, "behaviour")) == ("40", "random")


def test_the_plane_is_that_of_the_first_two_principal_components() -> None:
    rng = np.random.default_rng(0)
    spread = rng.standard_normal((300, 3)) * [0.01, 1.0, 5.0]
    place = principal(spread)
    centred = spread - spread.mean(axis=0)
    np.testing.assert_allclose(place, centred[:, [2, 1]], atol=0.5)
    np.testing.assert_allclose((place**2).sum(), (centred[:, 1:] ** 2).sum(), rtol=1e-3)
    assert abs(np.corrcoef(place.T)[0, 1]) < 1e-9


def test_what_the_latent_tells_of_hidden_parameters() -> None:
    rng = np.random.default_rng(0)
    z = rng.standard_normal((200, 2))
    told, noise = 3 * z[:, 0] - z[:, 1] + 7, rng.standard_normal(200)
    hidden = {"same": np.ones(200), "noise": noise, "told": told, "twin": 2 * told - 1}
    shares = explained(Plane("", 0, ("", ""), z, np.array(["a"] * 200), hidden, z))
    assert list(shares) == [("told", "twin"), ("noise",)]
    assert shares["told", "twin"] == pytest.approx(1) and shares[("noise",)] < 0.1


def test_planes_of_each_beta_by_size() -> None:
    (study,) = studies(made_up("acrobot", {"latent.beta": ("10.0", "0.1")}))
    planes = beta_planes(study)
    assert [plane.title for plane in planes] == ["β = 0.1", "β = 1", "β = 10"]
    assert all(plane.seed == 0 and plane.place.shape == (15, 2) for plane in planes)


# How methods look.


def test_every_method_has_a_colour_and_a_name_of_its_own() -> None:
    assert set(METHODS) <= set(LOOKS) and {*BASELINES, *ABLATIONS} == set(LOOKS)
    assert len({own.colour for own in LOOKS.values()}) == len(LOOKS)
    assert len({own.name for own in LOOKS.values()}) == len(LOOKS)
    assert look("somebody's").name == "somebody's"


# Viénot, Brettel and Mollon's planes of sight without one kind of cone, in linear RGB.
PROTAN = np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]])
DEUTAN = np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]])


@pytest.mark.parametrize("sight", [np.eye(3), PROTAN, DEUTAN], ids=["all", "protan", "deutan"])
@pytest.mark.parametrize("group", [BASELINES, ABLATIONS], ids=["baselines", "ablations"])
def test_methods_of_one_figure_are_told_apart_by_all_kinds_of_sight(
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

    for one, other in itertools.combinations([LOOKS[method] for method in group], 2):
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
        (axes,) = pictures["reward-baselines-coin"].draw().axes
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
                save(pictures[name].draw(), tmp_path / name)
        assert matplotlib.rcParams["font.size"] == 20
    again = sorted(tmp_path.iterdir())
    assert len(again) == 4
    for path in again:
        assert path.read_bytes() == (drawn / "figures" / path.name).read_bytes(), path.name


@pytest.fixture(scope="module")
def full() -> Bench:
    return joined(made_up("acrobot", VARIED), made_up("navigation2d-switch"))


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
            figure = pictures[name].draw()
            figure.draw_without_rendering()
            assert figure.axes and all(axes.has_data() for axes in figure.axes), name
            assert "seed" in pictures[name].caption.lower()
        lines = {
            line.get_label()
            for line in pictures["reward-switch-navigation2d-switch"].draw().axes[0].lines
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
def test_missing_data_leave_figures_out_and_nothing_breaks(full: Bench, kept: Any) -> None:
    bench = Bench(*([row for row in getattr(full, name) if kept(row, name)] for name in TABLES))
    found = catalogue(bench)
    whole = {one.name for one in catalogue(full) if isinstance(one, Picture)}
    pictures = [one for one in found if isinstance(one, Picture)]
    assert len(pictures) < len(whole) and any(isinstance(one, Missing) for one in found)
    with style():
        for picture in pictures[:2] + pictures[-1:]:
            picture.draw().draw_without_rendering()


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
        names["latent-acrobot"].draw().draw_without_rendering()


def test_paths_are_of_seeds_instances_and_steps() -> None:
    rows: list[Row] = [
        {"seed": seed} | episode(name, [1.0 * seed, 2.0], True, 4)
        for seed in (3, 1)
        for name in "ab"
    ]
    paths = step_paths(rows, 4, cumulative_reward)
    assert paths.shape == (2, 2, 5)
    np.testing.assert_array_equal(paths[:, 0, 1], [1, 3])


# The command.


def test_the_command_draws_figures_alone(drawn: Path, tmp_path: Path) -> None:
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
