"""Mutated files of every kind through every reader; benchmarks/fuzz.py does any number of them."""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import sys
import warnings
from pathlib import Path

import pyarrow as pa
import pytest

import sept_offline as so
from benchmarks.fuzzing.corpus import make_corpus
from benchmarks.fuzzing.inputs import Fuzzer
from benchmarks.fuzzing.kinds import Kind
from benchmarks.fuzzing.outcomes import WRONG, tabulate
from benchmarks.fuzzing.readers import Reader
from benchmarks.fuzzing.workers import fuzz, load_everything
from sept_offline.errors import DataError
from sept_offline.seals import read_sealed


def wrong(folder: Path, inputs: int, first: int = 0) -> dict[str, collections.Counter[str]]:
    """The counts of a fuzz; a failure shows what was found."""
    load_everything()
    make_corpus(folder)
    fuzzer = Fuzzer(folder)
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    found = []
    for one in fuzz(fuzzer, inputs, workers=1, first=first):
        counts[one.kind][one.outcome] += 1
        if one.outcome in WRONG:
            found.append(one)
    assert not found, "\n".join(
        f"{one.number} {one.kind} {one.outcome} {one.words}" for one in found
    )
    return counts


def test_five_hundred_inputs(tmp_path: Path) -> None:
    counts = wrong(tmp_path / "corpus", 500)
    assert sum(own["refused"] for own in counts.values()) > 350
    assert len(counts) >= 50


ALLOWED = 1 << 28
"""Bytes that a reader may take where the fuzzer itself is tested: more than a process has freed."""


def _connect(_: Path) -> str:
    import socket

    with contextlib.suppress(OSError), socket.socket() as line:
        line.settimeout(0.1)
        line.connect(("127.0.0.1", 9))
    return "connected"


def _open_remote(_: Path) -> str:
    so.load_dataset("s3://bucket/x?endpoint_override=127.0.0.1:9")
    return "opened"


def _import_evil(_: Path) -> str:
    sys.modules.pop("evil", None)
    with contextlib.suppress(ImportError):
        __import__("evil")
    return "imported"


def _start_process(_: Path) -> str:
    return str(os.system("true"))


def _unpickle(_: Path) -> str:
    return str(pickle.loads(pickle.dumps(Path)))


def _starve(_: Path) -> str:
    try:
        # a quarter more than is allowed: every page of it is written
        return str(len(b"x" * (5 * ALLOWED // 4)))
    except MemoryError as error:
        raise DataError("x is damaged (malloc of size 2147483648 failed).") from error


def _ask(_: Path) -> str:
    raise DataError("x is damaged (malloc of size 2147483648 failed).") from pa.ArrowMemoryError()


@pytest.mark.parametrize(
    ("reader", "outcome"),
    [
        (_connect, "contacted"),
        (_open_remote, "contacted"),
        (_import_evil, "executed"),
        (_start_process, "executed"),
        (_unpickle, "executed"),
        (_starve, "memory"),
        (_ask, "refused"),
    ],
)
def test_the_fuzzer_counts_what_no_reader_may_do(
    tmp_path: Path, reader: Reader, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.fuzzing.inputs.MEMORY", ALLOWED)
    (tmp_path / "config.toml").write_text("history_steps = 3\n")

    def read(folder: Path) -> str:
        changed = (folder / "config.toml").read_bytes() != b"history_steps = 3\n"
        return reader(folder) if changed else "whole"

    fuzzer = Fuzzer(tmp_path)
    fuzzer.kinds = [Kind("config.toml", (read,), "toml", sealed=False)]
    assert [one.outcome for one in fuzz(fuzzer, 1, workers=1, memory=ALLOWED)] == [outcome]


def test_the_warning_of_a_file_without_a_checksum_is_expected_of_every_input(
    tmp_path: Path,
) -> None:
    path = tmp_path / "old.json"
    path.write_text('{"value": 1}')

    def read(folder: Path) -> str:
        with warnings.catch_warnings():
            if (folder / "old.json").read_bytes() == path.read_bytes():
                warnings.simplefilter("ignore")
            return repr(read_sealed(folder / "old.json", DataError))

    fuzzer = Fuzzer(tmp_path)
    fuzzer.kinds = [Kind("old.json", (read,), "bytes")]
    outcomes = {one.outcome for one in fuzz(fuzzer, 40, workers=1)}
    assert "warned" in outcomes and "different" not in outcomes


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 100_000, 12_500))
def test_a_hundred_thousand_inputs(tmp_path: Path, first: int) -> None:
    """In eight parts, so that all workers of the tests share them."""
    counts = wrong(tmp_path / "corpus", 12_500, first)
    print(tabulate(counts))
