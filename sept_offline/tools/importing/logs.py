"""`import_logs`: from a table of steps to a dataset, atomically."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from sept_offline.data.dataset import Dataset
from sept_offline.data.exchange import from_minari
from sept_offline.data.filesystems import kind_of
from sept_offline.data.hdf5 import Hdf5Source
from sept_offline.data.records import EpisodeIndex, Int64, Metadata
from sept_offline.data.source import Header, RowCounter, Source, blocks
from sept_offline.data.spool import SortedSpool
from sept_offline.data.validation import json_ready
from sept_offline.data.writer import publish, written_by
from sept_offline.errors import DataError
from sept_offline.files import Workspace, write_text
from sept_offline.progress import Progress, Silent
from sept_offline.tools.importing.actions import Actions, settle
from sept_offline.tools.importing.card import markdown, warnings
from sept_offline.tools.importing.episodes import Assembly
from sept_offline.tools.importing.hdf5 import buffer_rows, d4rl_rows, hdf5_mapping
from sept_offline.tools.importing.mapping import ImportMapping, refuse_meaningless
from sept_offline.tools.importing.measures import Ranges, measure
from sept_offline.tools.importing.reading import Look, Reading
from sept_offline.tools.importing.rows import Mistaken, Rows, bucketed, gathered, grouped, ranks
from sept_offline.tools.importing.tables import (
    MINARI,
    column_names,
    file_words,
    find_files,
    holds_lists,
    table_rows,
)

PACKED = 10
"""How many times its size a compressed file may hold."""
READING = 60.0
"""Share of the progress bar for reading; the rest is for writing."""


@dataclass(frozen=True)
class Imported:
    """A finished import."""

    path: Path
    card_path: Path
    content_hash: str
    card: dict[str, Any]

    @property
    def warnings(self) -> list[str]:
        """Warnings for the user before fitting."""
        return warnings(self.card)


def import_logs(
    sources: str | Path | Sequence[str | Path],
    out: str | Path,
    mapping: ImportMapping | None = None,
    progress: Progress | None = None,
) -> Imported:
    """Write CSV, Parquet, D4RL-style HDF5, d3rlpy buffers or `minari:NAME` as a dataset at `out`.

    A card, `<stem>.card.md`, is written next to it. Memory does not grow with the number of rows; a
    single episode must fit in it.
    """
    named = [sources] if isinstance(sources, str | Path) else list(sources)
    out, mapping, progress = Path(out), mapping or ImportMapping(), progress or Silent()
    kind_of(out)
    if any(str(name).startswith(MINARI) for name in named):
        return _import_minari([str(name) for name in named], out, mapping)
    kind, files = find_files(named, out)
    whole = _complete(kind, files, mapping)
    progress.start("importing", 100.0)
    try:
        with Workspace(out) as work:
            spool, assembly = _read(kind, files, whole, work.directory, progress)
            try:
                card = _card(spool, assembly, [path.name for path in files], whole)
                content = publish(work, spool, None, _written(spool, progress))
            finally:
                spool.close()
        progress.update(100.0)
    finally:
        progress.finish()
    return _finished(out, card, content)


def _written(spool: SortedSpool, progress: Progress) -> RowCounter:
    """Moves the rest of the progress bar while columns are written."""
    every = sum(shape[0] for _, shape in spool.columns.values())
    written = 0

    def report(_: str, rows: int) -> None:
        nonlocal written
        written += rows
        # The end is reported once, when the file is in place.
        progress.update(READING + (100 - READING) * min(written / every, 0.99))

    return report


def _complete(kind: str, files: Sequence[Path], mapping: ImportMapping) -> ImportMapping:
    """The mapping with every role named, checked against every file."""
    if kind in ("d4rl", "d3rlpy"):
        return hdf5_mapping(kind, files, mapping)
    refuse_meaningless(kind, mapping, {})
    whole = mapping.completed(column_names(kind, files[0], mapping.delimiter), files[0])
    for path in files[1:]:
        whole.completed(column_names(kind, path, mapping.delimiter), path)
    if kind == "parquet" and holds_lists(files[0], whole.action_columns):
        whole = whole.as_box(f"{', '.join(whole.action_columns)} of {files[0]} holds lists")
    return whole


def _read(
    kind: str, files: Sequence[Path], mapping: ImportMapping, folder: Path, progress: Progress
) -> tuple[SortedSpool, Assembly]:
    """All episodes, on disk; what the first look at the rows got wrong is read again."""
    size = float(sum(path.stat().st_size for path in files))

    def report(done: float, rows: int) -> None:
        progress.update(READING * done / max(size, 1.0), steps=float(rows))

    look = Look()
    while True:
        try:
            reading = Reading(mapping, kind, look, file_words(files), report)
            return _pass(reading, files, folder, size)
        except Mistaken as mistake:
            look = replace(look, **mistake.changes)


def _pass(
    reading: Reading, files: Sequence[Path], folder: Path, size: float
) -> tuple[SortedSpool, Assembly]:
    mapping = reading.mapping
    for rules in mapping.fills.action.values():
        # Known before any row is read: rows are filled while others are still being read.
        words = [rule for rule in rules if isinstance(rule, str) and rule != "previous"]
        reading.label(words, np.zeros(0, dtype=np.int64))
    kinds = {"d4rl": d4rl_rows, "d3rlpy": buffer_rows}
    rows = _ahead(kinds.get(reading.kind, table_rows)(reading, files))
    first = next(rows, None)
    if first is None:
        reading.findings.raise_if_bad()
        raise DataError(f"{files[0]} has no rows; expected one row per step.")
    assembly = Assembly(reading, folder)
    every = gathered(itertools.chain([first], rows))
    try:
        if reading.look.together:
            batches = grouped(every)
        else:
            packed = reading.kind == "parquet" or any(path.suffix != ".csv" for path in files)
            unpacked = size * (PACKED if packed else 1)
            # Without a time no row is known to precede another: what is sorted are episodes.
            counts = reading.findings.counts if mapping.time else Counter[str]()
            batches = bucketed(every, folder, unpacked, counts)
        for batch in batches:
            assembly.add(batch)
    finally:
        # A thread may be reading ahead for a pass that has been given up.
        rows.close()
        episodes = assembly.columns.finish()
    return _ordered(episodes, assembly, settle(assembly)), assembly


def _ahead(rows: Generator[Rows]) -> Generator[Rows]:
    """The same batches, the next one being read while the last one is worked on."""
    with closing(rows), ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, rows, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, rows, None)
            yield batch


def _ordered(episodes: Int64, assembly: Assembly, actions: Actions) -> SortedSpool:
    """The episodes in the order of instances and ids, so that no order of rows shows."""
    reading, columns = assembly.reading, assembly.columns
    length, episode, instance = episodes.T
    instances, ids = reading.instances.list, reading.episode_words()
    by_name, by_id = ranks(instances), ranks(ids)
    order = np.lexsort((by_id[episode], by_name[instance]))
    present, codes = np.unique(by_name[instance[order]], return_inverse=True)
    names = sorted(instances, key=lambda word: by_name[reading.instances.number[word]])
    none = np.zeros(len(order), dtype=np.int64)
    index = EpisodeIndex.end_to_end(length[order], codes.reshape(-1).astype(np.int64), none, none)
    named = reading.mapping.observations
    header = Header(
        action_space=actions.space,
        observation_dim=assembly.dim,
        instances=tuple(str(names[i]) for i in present),
        metadata=Metadata(
            observation_names=named if len(named) == assembly.dim else None,
            action_names=actions.names,
            behaviours=("unknown",),
            versions=written_by(),
            probe_steps=reading.mapping.probe_steps,
        ),
        content_hash=None,
    )
    known = "propensities" in columns.shapes
    return SortedSpool(columns.folder, header, index, order, knows_propensities=known)


def _card(
    spool: SortedSpool, assembly: Assembly, sources: list[str], mapping: ImportMapping
) -> dict[str, Any]:
    """The card, which is also stored in the header."""
    findings = assembly.findings
    ranges = assembly.observations.rows(map(assembly.observation_name, range(assembly.dim)))
    beat = assembly.clock.beat()
    if beat is not None:
        findings.counts["gaps in time"] = beat.late
    return _with_card(
        spool,
        [{**row, "filled": findings.filled[row["name"]]} for row in ranges],
        mapping.probe_steps,
        sources=sources,
        mapping=mapping.named(),
        interval=None if beat is None else beat.spelled(_per_second(assembly.reading)),
        filled={name: count for name, count in findings.filled.items() if count},
        done={name: count for name, count in findings.counts.items() if count},
    )


def _with_card(
    source: Source, ranges: Sequence[dict[str, Any]], probe_steps: int | None, **entries: Any
) -> dict[str, Any]:
    """Put the card of a source into its header, and return it."""
    data = Dataset(source, source.index, None, hash_of_file="")
    card = {**measure(data, ranges, probe_steps), **entries}
    metadata = source.header.metadata
    extra = {**metadata.extra, **json_ready({"card": card}, "The card")}
    about = replace(metadata, extra=extra, probe_steps=probe_steps)
    source.header = replace(source.header, metadata=about)
    return card


def _per_second(reading: Reading) -> float | None:
    """How many units of a timestamp a second has, None for times that are numbers."""
    if reading.times not in ("dates", "instants"):
        return None
    return 1e6 if reading.look.microseconds else 1e9


def _import_minari(names: list[str], out: Path, mapping: ImportMapping) -> Imported:
    """Through the adapter into the scratch directory, and from there with its card into place."""
    if len(names) > 1:
        raise DataError("Import one Minari dataset at a time.")
    refuse_meaningless("minari", mapping, {})
    with Workspace(out) as work:
        scratch = work.directory / "minari.h5"
        from_minari(names[0].removeprefix(MINARI), scratch).close()
        source = Hdf5Source(scratch)
        try:
            seen = Ranges(source.header.observation_dim)
            for block in blocks(source, "observations"):
                seen.add(block)
            ranges = seen.rows(f"observations[{i}]" for i in range(len(seen.low)))
            card = _with_card(
                source,
                [{**row, "filled": 0} for row in ranges],
                mapping.probe_steps,
                sources=names,
                mapping=mapping.named(),
                interval=None,
                filled={},
                done={},
            )
            content = publish(work, source, None)
        finally:
            source.close()
    return _finished(out, card, content)


def _finished(out: Path, card: dict[str, Any], content: str) -> Imported:
    path = out.with_suffix(".card.md")
    write_text(path, markdown(card, out, content))
    return Imported(out, path, content, card)
