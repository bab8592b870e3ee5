"""Every method passes the one tester."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sept_offline.methods import METHODS
from tests.methods.check_method import check_method

PAPER_LOOP = {
    "latent": {
        "objective": "segment",
        "dim": 4,
        "updates": 300,
        "learning_rate": 5e-3,
        "learning_rate_end": 5e-3,
        "beta": 0.1,
        "entropy": 0.0,
    },
    "probe": {"reward": "elbo"},
    "control": {"updates": 800},
}
CASES: dict[str, dict[str, Any]] = {
    "sept": {"returns": (1.0, 1.0)},
    "avg": {"returns": (0.3, 0.7)},
    "oracle": {"returns": (1.0, 1.0), "needs": frozenset({"hidden"})},
}


def test_every_method_has_a_case() -> None:
    assert set(CASES) == set(METHODS)


@pytest.mark.parametrize("name", sorted(CASES))
def test_method(name: str, tmp_path: Path) -> None:
    check_method(name, tmp_path, **CASES[name])


def test_the_papers_loop(tmp_path: Path) -> None:
    check_method("sept", tmp_path, returns=(1.0, 1.0), settings=PAPER_LOOP, probing=2)
