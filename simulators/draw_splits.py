"""Draws the instances in splits.json; run once, kept for reproducibility."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from simulators.acrobot import ACROBOT
from simulators.dynamics import Dynamics
from simulators.hiv import HIV
from simulators.pendulum import PENDULUM
from simulators.point_robot import POINT_ROBOT_WIND

SPLITS_FILE = Path(__file__).parent / "data" / "splits.json"
HIV_COUNTS = {"train": 40, "validation": 10, "test": 20}
HIV_SPREAD = 0.25  # standard deviation, that of the field's first six patients
HIV_LIMIT = 0.5
HIV_SEED = 20200101
ACROBOT_COUNT = 20
ACROBOT_LIMIT = 0.35
ACROBOT_SEED = 20200102
PENDULUM_COUNTS = {"train": 12, "validation": 4, "test": 8}
PENDULUM_MASS = (0.6, 1.4)  # kg
PENDULUM_LENGTH = (0.7, 1.3)  # m
PENDULUM_SEED = 20200103
WIND_LIMIT = 0.05
WIND_TASKS = 50  # of FOCAL, drawn as it draws them: the first 40 for training, the others for tests
WIND_TRAIN = 40
WIND_SEED = 1337
WIND_VALIDATION = 6  # ours, from another stream: none of FOCAL's tasks
WIND_VALIDATION_SEED = 20200104
DECIMALS = 4

Instances = list[dict[str, float]]


def draw() -> dict[str, dict[str, Instances]]:
    """The drawn splits of each family, as splits.json holds them."""
    hiv = np.random.default_rng(HIV_SEED)
    patients = {
        split: _instances(
            HIV,
            np.clip(hiv.normal(0.0, HIV_SPREAD, (count, len(HIV.hidden))), -HIV_LIMIT, HIV_LIMIT),
        )
        for split, count in HIV_COUNTS.items()
    }
    acrobot = np.random.default_rng(ACROBOT_SEED)
    links = acrobot.uniform(-ACROBOT_LIMIT, ACROBOT_LIMIT, (ACROBOT_COUNT, len(ACROBOT.hidden)))
    return {
        "hiv": patients,
        "acrobot": {"test-independent": _instances(ACROBOT, links)},
        "pendulum": _pendulums(),
        "point-robot-wind": _winds(),
    }


def _pendulums() -> dict[str, Instances]:
    """Masses and lengths are drawn; the sign alternates, so that every split has both."""
    random = np.random.default_rng(PENDULUM_SEED)
    splits = {}
    for split, count in PENDULUM_COUNTS.items():
        mass = random.uniform(*PENDULUM_MASS, count)
        length = random.uniform(*PENDULUM_LENGTH, count)
        sign = np.where(np.arange(count) % 2 == 0, 1.0, -1.0)
        splits[split] = _instances(PENDULUM, np.stack([mass, length, sign], axis=1))
    return splits


def _winds() -> dict[str, Instances]:
    tasks, others = (
        np.stack(
            [random.uniform(-WIND_LIMIT, WIND_LIMIT, count) for _ in POINT_ROBOT_WIND.hidden],
            axis=1,
        )
        for random, count in (
            (np.random.RandomState(WIND_SEED), WIND_TASKS),
            (np.random.RandomState(WIND_VALIDATION_SEED), WIND_VALIDATION),
        )
    )
    return {
        "train": _instances(POINT_ROBOT_WIND, tasks[:WIND_TRAIN], None),
        "validation": _instances(POINT_ROBOT_WIND, others),
        "test": _instances(POINT_ROBOT_WIND, tasks[WIND_TRAIN:], None),
    }


def _instances(
    dynamics: Dynamics, values: np.typing.NDArray[np.float64], decimals: int | None = DECIMALS
) -> Instances:
    names = [parameter.name for parameter in dynamics.hidden]
    rounded = values if decimals is None else np.round(values, decimals)
    return [dict(zip(names, row, strict=True)) for row in rounded.tolist()]


def as_text(splits: dict[str, dict[str, Instances]]) -> str:
    """The content of splits.json, one instance a line."""
    families = []
    for family, by_split in splits.items():
        lists = []
        for split, instances in by_split.items():
            rows = ",\n   ".join(json.dumps(instance) for instance in instances)
            lists.append(f'  "{split}": [\n   {rows}\n  ]')
        families.append(f' "{family}": {{\n' + ",\n".join(lists) + "\n }")
    return "{\n" + ",\n".join(families) + "\n}\n"


if __name__ == "__main__":
    SPLITS_FILE.write_text(as_text(draw()), encoding="utf-8")
