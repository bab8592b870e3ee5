"""To Minari and back, with the alignment checked on the last episode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sept_offline as so
from sept_offline.errors import DataError

try:
    import minari
    import minari.dataset._storages.hdf5_storage
except ImportError:
    minari = None

needs_minari = pytest.mark.skipif(minari is None, reason="Minari (extra [minari]) not installed")


@pytest.mark.skipif(minari is not None, reason="Minari is installed")
def test_without_minari_the_extra_is_named(path: Path) -> None:
    with pytest.raises(DataError, match=r"sept-offline\[minari\]"):
        so.load_dataset(path).to_minari("toy/data-v0")
    with pytest.raises(DataError, match=r"sept-offline\[minari\]"):
        so.from_minari("toy/data-v0")


@needs_minari
@pytest.mark.parametrize("known", [True, False])
def test_there_and_back(
    tmp_path: Path, suffix: str, episodes: Any, write: Any, monkeypatch: Any, known: bool
) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    if not known:
        episodes = [{**e, "propensities": None} for e in episodes]
    data = so.load_dataset(write(tmp_path / f"data.{suffix}", episodes))
    made = data.to_minari("toy/data-v0")
    assert (made.total_episodes, made.total_steps) == (20, data.num_steps)
    last, theirs = data.episodes()[-1], made[19]
    np.testing.assert_array_equal(theirs.observations, last.observations)
    np.testing.assert_array_equal(theirs.actions, last.actions)
    np.testing.assert_array_equal(theirs.rewards, last.rewards)
    assert (theirs.terminations[-1], theirs.truncations[-1]) == (last.terminated, last.truncated)
    assert {bytes(word).decode() for word in theirs.infos["instance"]} == {last.instance}
    if known:
        np.testing.assert_array_equal(theirs.infos["propensities"][:-1], last.propensities)
        assert np.isnan(theirs.infos["propensities"][-1]).all()
    back = so.from_minari("toy/data-v0", tmp_path / f"back.{suffix}")
    for found, wrote in zip(back.episodes(), data.episodes(), strict=True):
        for name in wrote.__dataclass_fields__:
            np.testing.assert_array_equal(getattr(found, name), getattr(wrote, name), err_msg=name)
    monkeypatch.chdir(tmp_path)
    assert so.from_minari(made).path == Path("toy-data-v0.h5")


@needs_minari
def test_a_name_that_minari_does_not_know(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    with pytest.raises(DataError, match=r"no dataset 'toy/none-v0' on this machine; download"):
        so.from_minari("toy/none-v0", tmp_path / "a.h5")
    assert not (tmp_path / "a.h5").exists()


@needs_minari
def test_views_travel_too(tmp_path: Path, episodes: Any, write: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "store"))
    data = so.load_dataset(write(tmp_path / "data.h5", episodes)).select([7, 3])
    made = data.to_minari("toy/view-v0")
    np.testing.assert_array_equal(made[1].observations, data.episodes()[1].observations)
    assert made.total_episodes == 2
