"""Which cells there are, from which logs, and what is refused before any is run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from sept_offline.errors import ConfigError, FamilyError
from sept_offline.methods import METHODS
from sept_offline.settings import FitConfig
from sept_offline.tools.bench import make_plan
from sept_offline.tools.bench.cell import own_settings
from sept_offline.tools.bench.logs import logs_of
from sept_offline.tools.bench.plan import make_variants, quick_variant
from sept_offline.tools.bench.store import differences
from tests.bench import coins
from tests.bench.coins import COIN

SHIPPED = {"navigation2d", "navigation2d-switch", "acrobot", "hiv"}


def test_quick_has_every_method_on_every_family() -> None:
    plan = make_plan(quick=True, seeds=1)
    assert {(cell.family, cell.method) for cell in plan.cells} == {
        (family, method) for family in SHIPPED for method in METHODS
    }
    variant = quick_variant()
    assert all(cell.variant == variant for cell in plan.cells)


def test_seeds_come_outermost_and_more_of_them_change_nothing() -> None:
    few = make_plan(["hiv", "acrobot"], ["sept", "avg"], seeds=2).cells
    many = make_plan(["hiv", "acrobot"], ["sept", "avg"], seeds=5).cells
    assert many[: len(few)] == few
    assert [cell.seed for cell in few] == [0] * 4 + [1] * 4
    assert {(cell.seed, cell.data_seed) for cell in many} == {(s, s % 2) for s in range(5)}
    assert len({cell.name for cell in many}) == len(many) == 20


def test_an_axis_is_laid_over_the_base_value_by_value() -> None:
    base, *varied = make_variants(
        ["behaviour=random,mixed,random:0.3+expert:0.7", "control.hidden=[8,8],[16]"],
        ["latent.beta=2"],
    )
    assert base.name == "latent.beta=2" and base.settings == {"latent": {"beta": 2}}
    assert [variant.data.behaviour for variant in varied] == [
        "random",
        "random:0.5,replay:0.5",
        "random:0.3,expert:0.7",
        None,
        None,
    ]
    assert varied[3].name == "latent.beta=2,control.hidden=[8,8]"
    assert varied[4].settings == {"latent": {"beta": 2}, "control": {"hidden": [16]}}


def test_logs_are_shared_where_they_are_the_same(tmp_path: Path) -> None:
    vary = [
        "latent.dim=3",
        "episodes=10,5000",
        "instances=2,4",
        "propensities=estimated",
        "probe_steps=1,9",
    ]
    plan = make_plan(["acrobot"], ["sept", "avg"], seeds=1, vary=vary)
    found = {cell.variant.name: logs_of(cell, tmp_path) for cell in plan.cells}
    base = found["base"]
    assert base.whole is None and base.path.name == "acrobot-0.h5"
    # Settings of the fit, all of the instances there are, and a shorter probe need no other logs.
    for same in ("latent.dim=3", "instances=4", "probe_steps=1"):
        assert found[same] == base
    for part in ("episodes=10", "instances=2", "propensities=estimated"):
        assert found[part].whole == base and found[part].path != base.path
    for more in ("episodes=5000", "probe_steps=9"):
        assert found[more].whole is None and found[more].path != base.path
    assert found["episodes=5000"].data.total == 20_000


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"methods": ["spet"]}, "did you mean 'sept'"),
        ({"preset": "papr"}, "did you mean 'paper'"),
        ({"vary": ["latent.bta=1"]}, "did you mean 'beta'"),
        ({"vary": ["latent.beta"]}, "name=value1,value2"),
        ({"vary": ["latent.beta=1,1"]}, "is given twice"),
        ({"vary": ["propensities=guessed"]}, "expected one of 'exact', 'estimated'"),
        ({"vary": ["behaviour=randm"]}, "did you mean 'random'"),
        ({"vary": ["episodes=1"]}, "at least 2"),
        ({"vary": ["instances=5"]}, "has 4 training instances"),
        ({"vary": ["episodes=many"]}, "expected"),
        ({"settings": ["control.batch_size=0"]}, "at least 1"),
        ({"seeds": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_is_refused_at_once(arguments: dict[str, list[str]], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence.replace("(", r"\(")):
        make_plan(["acrobot"], **arguments)  # type: ignore[arg-type]


def test_an_unknown_family_or_split_names_the_nearest() -> None:
    with pytest.raises(FamilyError, match="did you mean 'acrobot'"):
        make_plan(["acrobat"])
    with pytest.raises(FamilyError, match="did you mean 'test'"):
        make_plan(["acrobot"], split="tets")


def test_a_split_without_instances_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = dataclasses.replace(coins.coin, splits={**coins.coin.splits, "test": []})
    monkeypatch.setattr(coins, "coin", empty)
    with pytest.raises(FamilyError, match="Split 'test' of family 'coin' has no instances"):
        make_plan([COIN], ["avg"])


def test_a_setting_that_is_new_is_no_difference_but_another_value_is() -> None:
    found = {"config": {"latent": {"dim": 2}, "probe_steps": 1}, "content_hash": "a"}
    wanted = {"config": {"latent": {"dim": 2, "new": 1}, "probe_steps": 1}, "content_hash": "a"}
    assert differences(found, wanted) == []
    wanted["config"]["latent"]["dim"] = 3  # type: ignore[index]
    assert differences(found, wanted) == ["config.latent.dim"]


def test_a_cell_is_not_tied_to_the_settings_of_other_methods() -> None:
    config = FitConfig(probe_steps=1)
    assert "epopt" in own_settings("epopt", config) and "epopt" not in own_settings("sept", config)
    assert {"dynamics", "bnn"} <= own_settings("bnn", config).keys()
    assert not {"dynamics", "bnn", "dpt"} & own_settings("avg", config).keys()
