"""The facts of the shipped families: splits, limits, names, and the drawn instances."""

import numpy as np
import pytest

import simulators
from sept_offline.family import Family
from simulators.draw_splits import SPLITS_FILE, as_text, draw
from simulators.families import FAMILIES

FACTS = {
    "navigation2d": (100, 50, 2, 2, 1000.0, 2, 4),
    "navigation2d-switch": (100, 50, 2, 2, 1000.0, 2, 4),
    "acrobot": (400, 200, 5, 2, 10.0, 4, 3),
    "hiv": (200, 200, 8, 6, None, 6, 4),
    "pendulum": (200, 200, 4, 3, None, 3, 1),
    "point-robot-wind": (25, 25, 1, 2, None, 2, 2),
    "hopper-params": (200, 200, 8, 6, None, None, None),
    "walker-params": (200, 200, 8, 6, None, None, None),
}


@pytest.mark.parametrize("name", sorted(FACTS))
def test_facts(name):
    family = simulators.family(name)
    assert isinstance(family, Family) and family.name == name
    assert (
        family.train_steps,
        family.test_steps,
        family.probe_steps,
        family.latent_dim,
        family.solved,
        family.observation_names and len(family.observation_names),
        family.action_names and len(family.action_names),
    ) == FACTS[name]
    for path in (family.recipe, family.references):
        assert path is None or path.is_file()


def test_unknown_family():
    with pytest.raises(ValueError, match="acrobat"):
        simulators.family("acrobat")
    assert set(FAMILIES) == set(FACTS)


@pytest.mark.parametrize("name", ["navigation2d", "navigation2d-switch"])
def test_navigation_splits(name):
    family = simulators.family(name)
    assert family.instances("train") == family.instances("validation") == [{"z": 1}, {"z": 2}]
    assert [hidden["z"] for hidden in family.instances("test")] == [1, 2] * 5
    assert family.instance_ids("test")[3] == "test-3"


def test_acrobot_splits():
    family = simulators.family("acrobot")
    deltas = {"train": [-0.3, -0.1, 0.1, 0.3], "validation": [-0.25, 0, 0.25]}
    deltas["test"] = [-0.35, -0.2, 0.2, 0.35]
    for split, expected in deltas.items():
        found = family.instances(split)
        assert [hidden["m1"] for hidden in found] == expected
        assert all(len(hidden) == 4 and len(set(hidden.values())) == 1 for hidden in found)
    independent = family.instances("test-independent")
    values = np.array([list(hidden.values()) for hidden in independent])
    assert values.shape == (20, 4) and np.abs(values).max() <= 0.35
    assert len(np.unique(values)) > 70


def test_hiv_splits():
    family = simulators.family("hiv")
    sizes = {split: len(family.instances(split)) for split in family.splits}
    assert sizes == {"train": 40, "validation": 10, "test": 20, "paper": 5}
    drawn = np.array(
        [
            list(hidden.values())
            for split in ("train", "validation", "test")
            for hidden in family.instances(split)
        ]
    )
    assert drawn.shape == (70, 12) and len(np.unique(drawn, axis=0)) == 70
    assert np.abs(drawn).max() == 0.5
    # 840 draws from N(0, 0.25^2): mean within 4 standard errors, spread a little below 0.25.
    assert abs(drawn.mean()) < 4 * 0.25 / np.sqrt(drawn.size)
    assert 0.22 < drawn.std() < 0.25
    assert family.instances("paper")[4]["Kd"] == -0.4
    assert family.instances("paper")[0]["dE"] == -0.8


def test_pendulum_splits():
    family = simulators.family("pendulum")
    sizes = {split: len(family.instances(split)) for split in family.splits}
    assert sizes == {"train": 12, "validation": 4, "test": 8}
    seen = [tuple(h.values()) for split in family.splits for h in family.instances(split)]
    assert len(set(seen)) == 24
    for split in family.splits:
        signs = [hidden["sign"] for hidden in family.instances(split)]
        assert signs.count(1.0) == signs.count(-1.0)
        for hidden in family.instances(split):
            assert 0.6 <= hidden["mass"] <= 1.4 and 0.7 <= hidden["length"] <= 1.3


def test_the_winds_are_those_of_focal():
    family = simulators.family("point-robot-wind")
    random = np.random.RandomState(1337)
    winds = np.stack([random.uniform(-0.05, 0.05, 50) for _ in range(2)], axis=1)
    known = [[h["wind_x"], h["wind_y"]] for h in family.instances("train")]
    unseen = [[h["wind_x"], h["wind_y"]] for h in family.instances("test")]
    assert known == winds[:40].tolist() and unseen == winds[40:].tolist()
    ours = [[h["wind_x"], h["wind_y"]] for h in family.instances("validation")]
    assert len(ours) == 6 and not any(one in known + unseen for one in ours)


def test_the_written_splits_are_those_the_script_draws():
    assert SPLITS_FILE.read_text(encoding="utf-8") == as_text(draw())
