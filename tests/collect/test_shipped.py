"""Shipped experts stand in for training, and give the same data on every processor."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import sept_offline as so
from sept_offline.collect import expert as expert_module
from sept_offline.collect import load_recipe
from sept_offline.collect.expert_files import load_expert, ship_expert, shipped_expert
from sept_offline.progress import Silent

FAMILIES = ("navigation2d", "navigation2d-switch", "acrobot", "hiv")
EPISODES = {"hiv": 80}
"""One of each behaviour for each instance at least."""

# Content hashes of small collections by the shipped recipes, seed 1: `collect FAMILY --seed 1
# --episodes N`, and of random behaviour. They hold on every processor.
RECIPES = {
    "navigation2d": "fc8e4a0a75bac923788dda453c29938f2c2a8006a9fd0e97aade9b89f193d014",
    "navigation2d-switch": "88c789fb5bed9df235b9af96221eba9b94217e858d3aa8c3b479c9dbb44a3f50",
    "acrobot": "6ff56c2cabe1efc0e8d61b57e1723558f36f8ed303b8345bed85119b2d7618bd",
    "hiv": "ef0504143bfea9ef3575afdeeb1d3c3a315fc1cbd6eb233dc325027a7bd1754d",
}
RANDOM = {
    "navigation2d": "4e075cb83fee49f5348b9055c8c28b8ece8cd4738cbcfdd8d474ff1881dc5681",
    "navigation2d-switch": "39bf13c505aad35559e48e094a858686a1093a078fad9f30d2ec80febf3d6b3b",
    "acrobot": "ce7be1fe3db67c08a64553288e60ad8a52cd9d41b25eaae91c78634e618ac7b0",
    "hiv": "3531c2e2fccddff42cc16abb6378de594bda0a30b7b2858964f1c159800fd176",
}


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("An expert was trained.")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("behaviour", ["recipe", "random"])
def test_a_small_collection_has_the_same_bits_on_every_processor(
    family: str, behaviour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expert_module, "ExpertStage", refuse)
    overrides = {"episodes": EPISODES.get(family, 32)}
    if behaviour == "random":
        overrides["behaviour"] = "random"
    with so.collect_dataset(family, tmp_path / "x.h5", overrides=overrides, seed=1) as data:
        assert data.metadata.extra.get("expert") == (None if behaviour == "random" else "shipped")
        expected = RANDOM if behaviour == "random" else RECIPES
        assert data.content_hash == expected[family]


@pytest.mark.parametrize("family", FAMILIES)
def test_both_seeds_of_every_recipe_are_shipped_and_no_other(family: str) -> None:
    record = so.load_family(family)
    config = load_recipe(record).expert
    assert shipped_expert(record, config, 0) is not None
    assert shipped_expert(record, config, 1) is not None
    assert shipped_expert(record, config, 2) is None
    changed = dataclasses.replace(config, rounds=config.rounds + 1)
    assert shipped_expert(record, changed, 0) is None


def test_another_seed_is_trained_here_and_says_so(tmp_path: Path) -> None:
    said: list[str] = []

    class Listener(Silent):
        def message(self, text: str) -> None:
            said.append(text)

    few = {"rounds": 2, "environments": 2, "snapshots": 2, "control": {"hidden": [4]}}
    overrides = {"behaviour": "replay", "episodes": 4, "max_steps": 5, "expert": few}
    with so.collect_dataset(
        "navigation2d", tmp_path / "x.h5", overrides=overrides, seed=2, progress=Listener()
    ) as data:
        assert data.metadata.extra["expert"] == "trained here"
    assert any("trained here" in text for text in said)


def test_shipping_an_expert_again_gives_the_same_file(tmp_path: Path) -> None:
    record = so.load_family("navigation2d")
    config = load_recipe(record).expert
    expert = load_expert(record.experts / "0.safetensors")
    again = tmp_path / "0.safetensors"
    ship_expert(expert, record, config, 0, again)
    assert again.read_bytes() == (record.experts / "0.safetensors").read_bytes()


def test_the_hopper_has_an_expert_of_one_seed() -> None:
    record = so.load_family("hopper-params")
    config = load_recipe(record).expert
    path = shipped_expert(record, config, 0)
    assert path is not None and path.stat().st_size < 1_000_000
    assert shipped_expert(record, config, 1) is None
    assert len(load_expert(path).snapshots) == config.snapshots


def test_the_shipped_hopper_moves_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco", reason="MuJoCo is not installed: sept-offline[mujoco]")
    monkeypatch.setattr(expert_module, "ExpertStage", refuse)
    returns = {}
    for behaviour in ("random", "expert"):
        overrides = {"behaviour": behaviour, "episodes": 20}
        out = tmp_path / f"{behaviour}.h5"
        with so.collect_dataset("hopper-params", out, overrides=overrides) as data:
            returns[behaviour] = np.mean([e.rewards.sum() for e in data.episodes()])
            assert data.action_space.width == 3
    assert returns["expert"] > 150 > 50 > returns["random"]
