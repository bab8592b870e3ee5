"""Demarcations that several tests look at: two groups, three, and one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from pushed import FEWER, SOME, Case, case


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory, training_seed: int) -> Case:
    return case(tmp_path_factory.mktemp("two"), (-0.5, 0.5), 60, 0.5, "one", training_seed, FEWER)


@pytest.fixture(scope="session")
def three(tmp_path_factory: pytest.TempPathFactory, training_seed: int) -> Case:
    """Its behaviours begin in the same places: where each has its own, a place may pass for a group
    while the networks know little of it."""
    strengths = (-0.5, 0.0, 0.5)
    folder = tmp_path_factory.mktemp("three")
    return case(folder, strengths, 60, 0.0, "each", training_seed, FEWER)


@pytest.fixture(scope="session")
def many(tmp_path_factory: pytest.TempPathFactory, training_seed: int) -> Case:
    """The same with twice the episodes, of which halves are enough to find the groups again."""
    strengths = (-0.5, 0.0, 0.5)
    folder = tmp_path_factory.mktemp("many")
    return case(folder, strengths, 120, 0.0, "each", training_seed, SOME)


@pytest.fixture(scope="session")
def one(tmp_path_factory: pytest.TempPathFactory, training_seed: int) -> Case:
    """One dynamics, and two behaviours that start apart."""
    return case(tmp_path_factory.mktemp("one"), (0.3,), 80, 1.0, "one", training_seed, FEWER)


@pytest.fixture(scope="session")
def far(tmp_path_factory: pytest.TempPathFactory, training_seed: int) -> Case:
    """The same twice as far apart, which takes more episodes and updates to see."""
    return case(tmp_path_factory.mktemp("far"), (0.3,), 120, 2.0, "one", training_seed)
