"""Mutated files of every kind through every reader; benchmarks/fuzz.py does any number of them."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from tests.safety.conftest import fuzz_module


def wrong(folder: Path, inputs: int) -> dict[str, collections.Counter[str]]:
    """The counts of a fuzz; a failure shows what was found."""
    fuzz = fuzz_module()
    fuzz.load_everything()
    fuzz.make_corpus(folder)
    fuzzer = fuzz.Fuzzer(folder)
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    found = []
    for one in fuzz.fuzz(fuzzer, inputs):
        counts[one.kind][one.outcome] += 1
        if one.outcome in fuzz.WRONG:
            found.append(one)
    assert not found, "\n".join(
        f"{one.number} {one.kind} {one.outcome} {one.words}" for one in found
    )
    return counts


def test_a_thousand_inputs(tmp_path: Path) -> None:
    counts = wrong(tmp_path / "corpus", 1000)
    assert sum(own["refused"] for own in counts.values()) > 500
    assert len(counts) >= 30


@pytest.mark.long
def test_a_hundred_thousand_inputs(tmp_path: Path) -> None:
    counts = wrong(tmp_path / "corpus", 100_000)
    print(fuzz_module().tabulate(counts))
