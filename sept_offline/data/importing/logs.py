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

from sept_offline.data.checks import json_ready
from sept_offline.data.conversion import publish
from sept_offline.data.dataset import Dataset
from sept_offline.data.exchange import from_minari
from sept_offline.data.filesystems import kind_of
from sept_offline.data.hdf5 import Hdf5Source
from sept_offline.data.importing.actions import Actions, settle
from sept_offline.data.importing.card import markdown, measure, warnings
from sept_offline.data.importing.columns import Columns, Ranges
from sept_offline.data.importing.episodes import Assembly
from sept_offline.data.importing.grouping import Scattered, bucketed, gathered, grouped
from sept_offline.data.importing.hdf5 import buffer_rows, d4rl_rows, hdf5_mapping
from sept_offline.data.importing.mapping import ImportMapping, fills_of, refuse_meaningless
from sept_offline.data.importing.rows import Look, Mistaken, Reading, Rows, ranks
from sept_offline.data.importing.sources import MINARI, file_words, find_files
from sept_offline.data.importing.tables import column_names, holds_lists, table_rows
from sept_offline.data.records import EpisodeIndex, Int64, Metadata
from sept_offline.data.source import Header, Source, blocks
from sept_offline.data.writer import Spool, written_by
from sept_offline.errors import DataError
from sept_offline.files import Workspace, write_text
from sept_offline.progress import Progress, Silent

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
                spool.header = _with_extra(spool.header, card)
                content = publish(work, spool, None, _Written(spool, progress))
            finally:
                spool.close()
        progress.update(100.0)
    finally:
        progress.finish()
    return _finished(out, card, content)


class _Written:
    """Moves the bar over what is left of it while columns are written."""

    def __init__(self, spool: Spool, progress: Progress) -> None:
        self._rows = sum(shape[0] for _, shape in spool.columns.values())
        self._progress, self._seen = progress, 0

    def __call__(self, _: str, rows: int) -> None:
        self._seen += rows
        # The end is reported once, when the file is in place.
        share = min(self._seen / self._rows, 0.99)
        self._progress.update(READING + (100 - READING) * share)


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
    fills_of(whole)
    return whole


def _read(
    kind: str, files: Sequence[Path], mapping: ImportMapping, folder: Path, progress: Progress
) -> tuple[Spool, Assembly]:
    """All episodes, on disk; what the first look at the rows got wrong is read again."""
    look, together = Look(), True
    while True:
        try:
            reading = Reading(mapping, kind, look, file_words(files))
            return _pass(reading, files, folder, progress, together)
        except Mistaken as mistake:
            look = replace(look, **mistake.changes)
        except Scattered:
            together = False


def _pass(
    reading: Reading, files: Sequence[Path], folder: Path, progress: Progress, together: bool
) -> tuple[Spool, Assembly]:
    mapping = reading.mapping
    size = float(sum(path.stat().st_size for path in files))

    def report(done: float) -> None:
        progress.update(READING * done / max(size, 1.0), steps=float(reading.rows))

    for rules in fills_of(mapping).action.values():
        # Known before any row is read: rows are filled while others are still being read.
        words = [rule for rule in rules if isinstance(rule, str) and rule != "previous"]
        reading.label(words, np.zeros(0, dtype=np.int64))
    kinds = {"d4rl": d4rl_rows, "d3rlpy": buffer_rows}
    rows = _ahead(kinds.get(reading.kind, table_rows)(reading, files, report))
    first = next(rows, None)
    if first is None:
        reading.findings.raise_if_bad()
        raise DataError(f"{files[0]} has no rows; expected one row per step.")
    columns = Columns(folder, mapping.box)
    assembly = Assembly(reading, columns)
    every = gathered(itertools.chain([first], rows))
    try:
        if together:
            assembly.add_all(grouped(every))
        else:
            packed = reading.kind == "parquet" or any(path.suffix != ".csv" for path in files)
            unpacked = size * (PACKED if packed else 1)
            # Without a time no row is known to precede another: what is sorted are episodes.
            counts = reading.findings.counts if mapping.time else Counter[str]()
            assembly.add_all(bucketed(every, folder, unpacked, counts))
    finally:
        # A thread may be reading ahead for a pass that has been given up.
        rows.close()
        episodes = columns.close()
    return _ordered(episodes, assembly, settle(assembly)), assembly


def _ahead(rows: Generator[Rows]) -> Generator[Rows]:
    """The same batches, the next one being read while the last one is worked on."""
    with closing(rows), ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, rows, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, rows, None)
            yield batch


def _ordered(episodes: Int64, assembly: Assembly, actions: Actions) -> Spool:
    """The episodes in the order of instances and ids, so that no order of rows shows."""
    reading, columns = assembly.reading, assembly.columns
    episode, instance, length = episodes.T
    instances, ids = reading.instances.list, reading.episode_words()
    by_name, by_id = ranks(instances), ranks(ids)
    order = np.lexsort((by_id[episode], by_name[instance]))
    present, codes = np.unique(by_name[instance[order]], return_inverse=True)
    names = sorted(instances, key=lambda word: by_name[reading.instances.number[word]])
    sorted_length = length[order]
    index = EpisodeIndex(
        number=np.arange(len(order), dtype=np.int64),
        offset=np.cumsum(sorted_length) - sorted_length,
        length=sorted_length,
        instance=codes.reshape(-1).astype(np.int64),
        behaviour=np.zeros(len(order), dtype=np.int64),
        seed=np.zeros(len(order), dtype=np.int64),
    )
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
    written = np.cumsum(length) - length
    places = {"steps": written[order], "observations": written[order] + order}
    return Spool(columns.folder, header, index, places, "propensities" in columns.shapes)


def _card(
    spool: Spool, assembly: Assembly, sources: list[str], mapping: ImportMapping
) -> dict[str, Any]:
    findings, seen = assembly.findings, assembly.observations
    ranges = [
        {"name": assembly.observation_name(i), "min": low, "mean": mean, "max": high}
        for i, (low, mean, high) in enumerate(
            zip(seen.low.tolist(), seen.mean.tolist(), seen.high.tolist(), strict=True)
        )
    ]
    for row in ranges:
        row["filled"] = findings.filled[row["name"]]
    data = Dataset(spool, spool.index, None, hash_of_file="")
    beat = assembly.clock.beat()
    if beat is not None:
        findings.counts["gaps in time"] = beat.late
    return {
        **measure(data, ranges, mapping.probe_steps),
        "sources": sources,
        "mapping": mapping.named(),
        "interval": None if beat is None else beat.spelled(_per_second(assembly.reading)),
        "filled": {name: count for name, count in findings.filled.items() if count},
        "done": {name: count for name, count in findings.counts.items() if count},
    }


def _per_second(reading: Reading) -> float | None:
    """How many units of a timestamp a second has, None for times that are numbers."""
    if reading.times not in ("dates", "instants"):
        return None
    return 1e6 if reading.look.microseconds else 1e9


def _with_extra(header: Header, card: dict[str, Any]) -> Header:
    extra = {**header.metadata.extra, **json_ready({"card": card}, "The card")}
    return replace(header, metadata=replace(header.metadata, extra=extra))


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
            data = Dataset(source, source.index, None, hash_of_file="")
            card = {
                **measure(data, _ranges(source), mapping.probe_steps),
                "sources": names,
                "mapping": mapping.named(),
                "interval": None,
                "filled": {},
                "done": {},
            }
            header = _with_extra(source.header, card)
            about = replace(header.metadata, probe_steps=mapping.probe_steps)
            source.header = replace(header, metadata=about)
            content = publish(work, source, None)
        finally:
            source.close()
    return _finished(out, card, content)


def _ranges(source: Source) -> list[dict[str, Any]]:
    """Of every observation, block by block."""
    seen = Ranges(source.header.observation_dim)
    for block in blocks(source, "observations"):
        seen.add(block)
    return [
        {"name": f"observations[{i}]", "min": least, "mean": mean, "max": most, "filled": 0}
        for i, (least, mean, most) in enumerate(
            zip(seen.low.tolist(), seen.mean.tolist(), seen.high.tolist(), strict=True)
        )
    ]


def _finished(out: Path, card: dict[str, Any], content: str) -> Imported:
    path = out.with_suffix(".card.md")
    write_text(path, markdown(card, out, content))
    return Imported(out, path, content, card)
