"""What z tells of test instances: by hand, on latents whose answer is plain."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import simulators
from sept_offline.tools.bench.summary import (
    _explained,
    _of_test_instances,
    hidden_explained,
    separated,
)


def episodes(latents: dict[str, list[list[float] | None]]) -> list[dict[str, Any]]:
    return [{"instance": name, "latent": z} for name, rows in latents.items() for z in rows]


def test_instances_that_lie_apart_are_separated() -> None:
    noise = np.random.default_rng(0).normal(size=(3, 6))
    apart = {f"test-{i}": [[9.0 * i + e, e - 9.0 * i] for e in noise[i]] for i in range(3)}
    assert separated(episodes(apart)) == 1.0


def test_a_latent_that_says_nothing_is_near_chance() -> None:
    rng = np.random.default_rng(1)
    blind = {f"test-{i}": rng.normal(size=(40, 2)).tolist() for i in range(4)}
    found = separated(episodes(blind))
    assert found is not None
    assert found < 0.45


def test_one_swapped_episode_is_counted_as_wrong() -> None:
    swapped = {"a": [[0.0], [0.1], [0.2], [9.0]], "b": [[9.1], [9.2], [9.3], [9.4]]}
    assert separated(episodes(swapped)) == 7 / 8


@pytest.mark.parametrize(
    "latents",
    [
        {"a": [[0.0], [0.1]], "b": [[1.0], [1.1]]},
        {"a": [[0.0], [0.1], [0.2]]},
        {"a": [None, None, None], "b": [None, None, None]},
    ],
)
def test_too_few_episodes_say_nothing(latents: dict[str, list[list[float] | None]]) -> None:
    assert separated(episodes(latents)) is None


def segments(slope: float) -> list[dict[str, Any]]:
    """Training segments of Acrobot whose first latent column follows Δ."""
    rng = np.random.default_rng(2)
    rows = []
    for hidden in simulators.family("acrobot").instances("train"):
        for noise in rng.normal(scale=0.01, size=(20, 2)):
            z = [slope * hidden["m1"] + noise[0], noise[1]]
            rows.append({"hidden": json.dumps(hidden), "z": z})
    return rows


def test_hidden_parameters_are_read_off_a_latent_that_follows_them() -> None:
    hiddens = simulators.family("acrobot").instances("test")
    plain = [{"instance": f"test-{i}", "latent": [h["m1"], 0.0]} for i, h in enumerate(hiddens)]
    found = hidden_explained(plain, segments(slope=1.0), "acrobot", "test")
    assert found is not None
    assert set(found) == {"m1", "m2", "l1", "l2"}
    assert min(found.values()) > 0.98
    blind = hidden_explained(plain, segments(slope=0.0), "acrobot", "test")
    assert blind is not None
    assert max(blind.values()) < 0.5


def test_seeds_may_explain_different_parameters() -> None:
    record = simulators.family("pendulum")
    latents = [
        {"seed": seed, "hidden": json.dumps(hidden), "z": list(hidden.values())}
        for seed in range(2)
        for hidden in record.instances("train")
    ]
    test = record.instances("test")
    signs = [hidden["sign"] for hidden in test]
    # With the second seed, episodes of one sign ended before anything was inferred.
    played = [
        {"seed": seed, "instance": f"test-{i}", "latent": list(hidden.values())}
        for seed in range(2)
        for i, hidden in enumerate(test)
        if seed == 0 or signs[i] == signs[0]
    ]
    fits = [{"seed": seed, "split": "test"} for seed in range(2)]
    found = _of_test_instances("pendulum", played, fits, latents)["explained"]
    assert set(found) == {"mass", "length", "sign"} and min(found.values()) > 0.9


def test_without_known_parameters_nothing_is_explained() -> None:
    rows = episodes({"test-0": [[0.0]]})
    assert hidden_explained(rows, [{"hidden": None, "z": [0.0]}], "acrobot", "test") is None
    assert hidden_explained(rows, segments(1.0), "no-such-family", "test") is None


def test_one_figure_if_all_are_equal_else_the_mean_and_the_best() -> None:
    assert _explained({"m1": 0.9951, "l1": 0.9952}) == "0.995"
    assert _explained({"k1": 0.9, "dE": 0.1}) == "0.50, k1 0.90"
    assert _explained(None) == "–"
