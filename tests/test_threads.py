"""Bits do not depend on how many threads the libraries may use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

import sept_offline as so
from sept_offline import threads
from sept_offline.threads import one_thread
from tests.methods.check_method import SMALL, shortened, weights
from tests.methods.two_step import log_two_step


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Where tests run there is one."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    with threadpool_limits(2):
        yield
    torch.set_num_threads(before)


def pools() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info()}


def test_one_inside_and_as_many_as_before_after_it(two_threads: None) -> None:
    assert torch.get_num_threads() == 2 and 2 in pools()
    for _ in range(2):
        with one_thread():
            assert torch.get_num_threads() == 1 and pools() == {1}
        assert torch.get_num_threads() == 2 and 2 in pools()


def test_pools_are_looked_for_again_where_more_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    with one_thread():
        found = threads._pools.cache_info().misses
    with one_thread():
        assert threads._pools.cache_info().misses == found
    monkeypatch.setitem(sys.modules, "another_library", object())  # type: ignore[arg-type]
    with one_thread():
        assert threads._pools.cache_info().misses == found + 1


@pytest.mark.parametrize("method", ["sept", "bnn"])
def test_a_fit_is_the_same_by_one_thread_and_by_two(
    method: str, tmp_path: Path, two_threads: None
) -> None:
    path = log_two_step(tmp_path / "two-step.h5")
    config = shortened(SMALL)
    by_two = so.fit(path, method, config, seed=1, out=tmp_path / "two")
    torch.set_num_threads(1)
    with threadpool_limits(1):
        by_one = so.fit(path, method, config, seed=1, out=tmp_path / "one")
    assert weights(tmp_path / "two") == weights(tmp_path / "one")
    metrics = [(tmp_path / run / "metrics.csv").read_text() for run in ("one", "two")]
    assert metrics[0] == metrics[1]
    seen = np.array([1.0, 0.0], dtype=np.float32)
    assert by_one.begin(seed=0).act(seen) == by_two.begin(seed=0).act(seen)
