"""What figures of a bench plot, by hand: curves, bands, axes and planes."""

from __future__ import annotations

import numpy as np
import pytest

from sept_offline.tools.bench.figures.axes import UNKNOWN, base_value, make_axis, varied
from sept_offline.tools.bench.figures.curves import (
    cumulative_reward,
    metric_curves,
    percent_solved,
    step_curve,
    step_paths,
    watched_curves,
)
from sept_offline.tools.bench.figures.plane import Plane, beta_planes, explained, principal
from sept_offline.tools.bench.figures.rows import Bench, Row, studies
from sept_offline.tools.bench.statistics import crossed_band, crossed_interval
from sept_offline.tools.bench.store import TABLES
from tests.bench.made_up import VARIED, episode, made_up


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
    np.testing.assert_allclose(curve.y, [0, 1, 1.25, 4.25])
    assert curve.low is not None and curve.high is not None
    np.testing.assert_allclose(curve.low, [0, 0, 0, 2.5])
    np.testing.assert_allclose(curve.high, [0, 2, 2.5, 6])
    solved = step_curve("sept", rows, 3, percent_solved)
    assert solved is not None
    np.testing.assert_allclose(solved.y, [0, 25, 50, 100])
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
    np.testing.assert_allclose([curve.y, curve.low, curve.high], [[2, 3], [0, 2], [5, 4]])
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
        "control.hidden": "[32,32]",
        "focal.rewards": "true",
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
    linear, noise = 3 * z[:, 0] - z[:, 1] + 7, rng.standard_normal(200)
    hidden = {"same": np.ones(200), "noise": noise, "linear": linear, "twin": 2 * linear - 1}
    shares = explained(Plane("", 0, ("", ""), z, np.array(["a"] * 200), hidden, z))
    assert list(shares) == [("linear", "twin"), ("noise",)]
    assert shares["linear", "twin"] == pytest.approx(1) and shares[("noise",)] < 0.1


def test_planes_of_each_beta_by_size() -> None:
    (study,) = studies(made_up("acrobot", {"latent.beta": ("10.0", "0.1")}))
    planes = beta_planes(study)
    assert [plane.title for plane in planes] == ["β = 0.1", "β = 1", "β = 10"]
    assert all(plane.seed == 0 and plane.place.shape == (15, 2) for plane in planes)


def test_paths_are_of_seeds_instances_and_steps() -> None:
    rows: list[Row] = [
        {"seed": seed} | episode(name, [1.0 * seed, 2.0], True, 4)
        for seed in (3, 1)
        for name in "ab"
    ]
    paths = step_paths(rows, 4, cumulative_reward)
    assert paths.shape == (2, 2, 5)
    np.testing.assert_array_equal(paths[:, 0, 1], [1, 3])
