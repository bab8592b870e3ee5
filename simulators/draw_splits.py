"""Draws the instances in splits.json; run once, kept for reproducibility."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from simulators.acrobot import ACROBOT
from simulators.hiv import HIV

SPLITS_FILE = Path(__file__).parent / "data" / "splits.json"
HIV_NAMES = [parameter.name for parameter in HIV.hidden]
HIV_COUNTS = {"train": 40, "validation": 10, "test": 20}
HIV_SPREAD = 0.25  # standard deviation, that of the field's first six patients
HIV_LIMIT = 0.5
HIV_SEED = 20200101
ACROBOT_NAMES = [parameter.name for parameter in ACROBOT.hidden]
ACROBOT_COUNT = 20
ACROBOT_LIMIT = 0.35
ACROBOT_SEED = 20200102
DECIMALS = 4

Instances = list[dict[str, float]]


def draw() -> dict[str, dict[str, Instances]]:
    """The drawn splits of each family, as splits.json holds them."""
    hiv = np.random.default_rng(HIV_SEED)
    patients = {
        split: _instances(
            HIV_NAMES,
            np.clip(hiv.normal(0.0, HIV_SPREAD, (count, len(HIV_NAMES))), -HIV_LIMIT, HIV_LIMIT),
        )
        for split, count in HIV_COUNTS.items()
    }
    acrobot = np.random.default_rng(ACROBOT_SEED)
    links = acrobot.uniform(-ACROBOT_LIMIT, ACROBOT_LIMIT, (ACROBOT_COUNT, len(ACROBOT_NAMES)))
    return {
        "hiv": patients,
        "acrobot": {"test-independent": _instances(ACROBOT_NAMES, links)},
    }


def _instances(names: list[str], values: np.typing.NDArray[np.float64]) -> Instances:
    return [dict(zip(names, row, strict=True)) for row in np.round(values, DECIMALS).tolist()]


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
