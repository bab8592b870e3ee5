"""A run on disk: what was asked for, snapshots while it lasts, metrics, the agent at the end."""

from __future__ import annotations

import contextlib
import csv
import functools
import hashlib
import io
import json
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sept_offline.agent import Agent, load_agent, save_agent
from sept_offline.agent.store import OURS as AGENT
from sept_offline.errors import DataError, SeptError, one_line
from sept_offline.files import (
    Lock,
    refuse_foreign,
    refuse_links,
    remove_ours,
    repair_folder,
    sync_file,
    write_text,
    writing,
)
from sept_offline.limits import read_whole
from sept_offline.seals import (
    CHECKSUM,
    load_state,
    read_json,
    read_sealed,
    save_state,
    warn_unsealed,
    write_json,
)
from sept_offline.stage import Stage

CHECKPOINT_SECONDS = 20.0
RUN = "run.json"
"""File with the request, which marks a folder as a run."""
LOCK = ".lock"
METRICS = "metrics.csv"
COLUMNS = ["stage", "update", "metric", "value", "check"]
"""`check`: of the row and all rows before it, so that no row can change, or be lost, unseen."""
CHECK = "metrics.check"
"""Under which a snapshot keeps the check of the last row that it knows."""
EVALUATED = "results.parquet"
"""The last evaluation of the agent."""
JUDGED = "ope.json"
"""File with the last off-policy evaluation."""
RECORDED = {
    "preset": str,
    "dataset": str,
    "content_hash": str,
    "held_out": dict,
    "family": str,
    "versions": dict,
    "metrics": str,
    "verdict": str,
    "reasons": list,
}
"""Optional keys of a record, and their types."""
TITLES = {
    "content_hash": "other logs",
    "view": "other episodes of the logs",
    "held_out": "other held-out episodes",
    "config": "other settings",
}
"""How errors name a changed entry of `run.json`; any other one is "another KEY"."""
REMOVED = {"probe": ("progress_weight",)}
"""Settings of earlier versions that never had an effect, by section."""
VERDICT = ("verdict", "reasons")
"""Keys that a run repeats from its agent's record."""
FOLDERS = {
    "agent": AGENT,
    "checkpoints": re.compile(r"\d+-[\w-]+\.safetensors"),
    "tensorboard": re.compile(r"events\.out\.tfevents\.[^/]*"),
}
"""Files in a run's folders; any other file belongs to the user."""


def read_record(path: Path) -> dict[str, Any]:
    """The request of a run; a DataError if `run.json` is damaged or not ours."""
    record = read_sealed(path / RUN, DataError)
    if not (
        isinstance(record.get("method"), str)
        and isinstance(record.get("config"), dict)
        and isinstance(record.get("seed"), int)
    ):
        raise DataError(f"{path / RUN} does not describe a run of fit.")
    for name, kind in RECORDED.items():
        if not isinstance(record.get(name), kind | None):
            raise DataError(f"{path / RUN} is damaged: its {name} is {record[name]!r:.60}.")
    held = record.get("held_out")
    if held is not None and not _is_held_out(held):
        raise DataError(f"{path / RUN} is damaged: its held_out is {held!r:.60}.")
    return record


def _is_held_out(held: dict[str, Any]) -> bool:
    """Whether `held` says which episodes were kept from a fit, as ranges."""
    ranges, share = held.get("episodes"), held.get("share")
    return (
        isinstance(share, int | float)
        and isinstance(ranges, list)
        and all(
            isinstance(pair, list) and len(pair) == 2 and all(isinstance(end, int) for end in pair)
            for pair in ranges
        )
    )


def _in_use(config: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run without those that were removed."""
    kept = dict(config)
    for section, names in REMOVED.items():
        if isinstance(kept.get(section), dict):
            kept[section] = {k: v for k, v in kept[section].items() if k not in names}
    return kept


def read_metrics(path: Path, last: str | None = None) -> list[list[str]]:
    """The rows of `metrics.csv`, each checked; a line that a kill cut short is left out.

    `last` is the check of the last row, where that is known: in a finished run.
    """
    try:
        text = read_whole(path, DataError).decode()
        rows = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1], newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as problem:
        raise _damaged(path, str(problem)) from problem
    if not rows:
        rows = [COLUMNS]
    if rows[0] == COLUMNS[:-1]:
        warn_unsealed(path)
        return _known(path, [[*row, ""] for row in rows[1:] if len(row) == len(COLUMNS) - 1])
    check = ""
    for number, row in enumerate(rows):
        expected = COLUMNS if not number else [*row[:-1], chained(check, row[:-1])]
        if row != expected:
            raise _damaged(path, f"line {number + 1} does not match its check")
        check = row[-1] if number else ""
    if last is not None and check != last:
        raise _damaged(path, "rows are missing at its end")
    return _known(path, rows[1:])


def _known(path: Path, rows: list[list[str]]) -> list[list[str]]:
    for row in rows:
        try:
            int(row[1]), float(row[3])
        except ValueError as problem:
            raise _damaged(path, str(problem)) from problem
    return rows


def chained(check: str, row: Iterable[str]) -> str:
    """The check of a row after one whose check is `check`."""
    return hashlib.sha256("\0".join([check, *row]).encode()).hexdigest()[:16]


def _damaged(path: Path, why: str) -> DataError:
    return DataError(
        f"{path} is damaged ({one_line(why)}); restore it, or fit again with --restart."
    )


class RunDirectory:
    """`run.json`, `metrics.csv`, `checkpoints/` and, once finished, `agent/`.

    `evaluate` stores its results there as `results.parquet`, and `ope` stores its result as
    `ope.json`.
    """

    def __init__(self, path: str | Path, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> None:
        self.path = Path(path)
        self.checkpoint_seconds = checkpoint_seconds
        self._lock: Lock | None = None
        self._written = time.monotonic()
        self._tensorboard: Any = None
        self._earlier: list[str] = []
        self._check: str | None = None

    @property
    def finished(self) -> bool:
        """Whether the agent is there."""
        return (self.path / RUN).exists() and (self.path / "agent" / "agent.json").exists()

    def open(self, record: dict[str, Any], resume: bool, restart: bool) -> None:
        """Start a run, or continue the same one; raise for any other run."""
        self._refuse_foreign()
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            busy = f"Another process is fitting into {self.path}; wait for it to end."
            self._lock = Lock(self.path / LOCK, DataError(busy))
        try:
            self._refuse_foreign()
            self._prepare(record, resume, restart)
        except BaseException:
            self.close()
            raise

    def _refuse_foreign(self) -> None:
        """Refuse a folder with files that are not part of a run."""
        if self.path.exists() and not self.path.is_dir():
            raise DataError(f"{self.path} is a file; choose a folder for the run.")
        refuse_links(self.path, (*FOLDERS, RUN, METRICS, EVALUATED, JUDGED, LOCK))
        if not (self.path / RUN).exists():
            for name in (*FOLDERS, METRICS, EVALUATED, JUDGED):
                if (self.path / name).exists():
                    raise DataError(
                        f"{self.path} holds {name} and no {RUN}, so it is not a run of fit, and "
                        "nothing in it is replaced; choose another -o."
                    )
        for name, ours in FOLDERS.items():
            refuse_foreign(self.path / name, ours)

    def _prepare(self, record: dict[str, Any], resume: bool, restart: bool) -> None:
        description = self.path / RUN
        if restart and description.exists():
            try:
                read_record(self.path)
            except DataError:
                if not self._is_damaged():
                    raise
                # A whole record first: what a kill leaves is still known to be a run.
                write_json(description, record)
            for name, ours in FOLDERS.items():
                remove_ours(self.path / name, ours)
            # The mark goes last: what a kill leaves is still known to be a run.
            for name in (METRICS, EVALUATED, JUDGED, RUN):
                (self.path / name).unlink(missing_ok=True)
        if description.exists():
            if not resume:
                state = "a finished" if self.finished else "an unfinished"
                raise DataError(
                    f"{self.path} holds {state} run; add --resume to continue it, --restart to "
                    "replace it, or choose another -o."
                )
            earlier = read_record(self.path)
            # The dataset is known by its content, however its path is spelled.
            free = ("versions", "dataset")
            # As it is read: a tuple has become a list.
            asked = json.loads(json.dumps(record))
            # runs of earlier versions do not say which part of the file they read
            known = {"view": asked.get("view"), **earlier, "config": _in_use(earlier["config"])}
            changed = [key for key in asked if key not in free and known.get(key) != asked[key]]
            if changed:
                others = ", ".join(TITLES.get(key, f"another {key}") for key in changed)
                raise DataError(
                    f"{self.path} was started with {others}; resume with the same "
                    "arguments, or add --restart to replace it."
                )
            self._tidy(earlier)
            return
        write_json(description, record)

    def _is_damaged(self) -> bool:
        """Whether `run.json` was ours before it was damaged, and not the user's own file.

        It still has a checksum, or it is not JSON any more and stands beside metrics, a snapshot or
        an agent that we wrote.
        """
        try:
            content = read_json(self.path / RUN, DataError)
        except DataError:
            return self._is_beside_ours()
        return isinstance(content, dict) and isinstance(content.get(CHECKSUM), str)

    def _is_beside_ours(self) -> bool:
        readers: list[Callable[[], object]] = [
            lambda: read_metrics(self.path / METRICS),
            lambda: load_agent(self.path / "agent"),
        ]
        for path in sorted((self.path / "checkpoints").glob("*.safetensors")):
            readers.append(functools.partial(load_state, path, DataError))
        for read in readers:
            with contextlib.suppress(SeptError):
                if read() != []:
                    return True
        return False

    def _tidy(self, record: dict[str, Any]) -> None:
        """Remove what a kill in the last moments left behind."""
        repair_folder(self.path / "agent", AGENT)
        if self.finished and ("metrics" not in record or (self.path / "checkpoints").exists()):
            self._end(load_agent(self.path))

    def _end(self, agent: Agent) -> None:
        """Note the verdict and how the metrics end; the snapshots are not needed any more."""
        earlier = read_record(self.path)
        record = earlier | {name: agent.record[name] for name in VERDICT if name in agent.record}
        if "metrics" not in record and (self.path / METRICS).exists():
            rows = read_metrics(self.path / METRICS)
            if rows and rows[-1][-1]:
                record = {**record, "metrics": rows[-1][-1]}
        if record != earlier:
            write_json(self.path / RUN, record)
        remove_ours(self.path / "checkpoints", FOLDERS["checkpoints"])

    def checkpoint(self, number: int, stage: Stage) -> Path:
        """The path of a stage's checkpoint."""
        return self.path / "checkpoints" / f"{number}-{stage.name}.safetensors"

    def restore(self, number: int, stage: Stage) -> None:
        """Restore a stage from its checkpoint, if there is one."""
        path, check = self.checkpoint(number, stage), None
        if path.exists():
            state = load_state(path, DataError)
            check = state.values.pop(CHECK, None)
            try:
                stage.restore(state)
            except (KeyError, ValueError, TypeError, RuntimeError, IndexError) as problem:
                raise DataError(
                    f"The checkpoint {path} does not belong to this run's stage {stage.name} "
                    f"({type(problem).__name__}: {one_line(problem):.200}); delete it, or add "
                    "--restart."
                ) from problem
        if stage.done < stage.total or check is not None:
            self._forget(stage, check)
        self._earlier.append(stage.name)

    def _forget(self, stage: Stage, check: str | None) -> None:
        """Drop the metrics of updates that will be repeated.

        `check` is that of the last row when the snapshot was taken: none before it may be missing.
        """
        path = self.path / METRICS
        rows = read_metrics(path) if path.exists() else []
        kept = [
            row
            for row in rows
            if row[0] in self._earlier or (row[0] == stage.name and int(row[1]) <= stage.done)
        ]
        if check is not None and check != (kept[-1][-1] if kept else ""):
            raise _damaged(path, f"rows before update {stage.done} of {stage.name} are missing")
        if stage.done >= stage.total or not path.exists():
            return
        text = io.StringIO()
        writer, self._check = csv.writer(text), ""
        writer.writerow(COLUMNS)
        for row in kept:
            self._check = chained(self._check, row[:-1])
            writer.writerow([*row[:-1], self._check])
        write_text(path, text.getvalue())

    def save(self, number: int, stage: Stage, force: bool) -> None:
        """Write a checkpoint if it is due, or if `force` is set."""
        now = time.monotonic()
        if force or now - self._written >= self.checkpoint_seconds:
            state = stage.state()
            # Its own checks are in the file: what it says of the metrics must be on disk before.
            if (self.path / METRICS).exists():
                sync_file(self.path / METRICS)
            values = {**state.values, CHECK: self._check or ""}
            save_state(self.checkpoint(number, stage), replace(state, values=values))
            self._written = time.monotonic()

    def log(self, stage: str, done: int, metrics: dict[str, float]) -> None:
        """Add one line per metric to `metrics.csv`, and to TensorBoard where it is installed."""
        path = self.path / METRICS
        if self._check is None:
            rows = read_metrics(path) if path.exists() else []
            self._check = rows[-1][-1] if rows else ""
        text = io.StringIO()
        writer = csv.writer(text)
        if not path.exists():
            writer.writerow(COLUMNS)
        check = self._check
        for name, value in metrics.items():
            row = [stage, str(done), name, repr(float(value))]
            check = chained(check, row)
            writer.writerow([*row, check])
        # In one piece: of a line that a kill cuts short the next reader keeps nothing.
        with writing(path), path.open("ab") as handle:
            handle.write(text.getvalue().encode())
        self._check = check
        if self._tensorboard is None:
            self._tensorboard = _tensorboard(self.path)
        if self._tensorboard:
            for name, value in metrics.items():
                self._tensorboard.add_scalar(f"{stage}/{name}", value, done)

    def finish(self, agent: Agent) -> None:
        """Write the agent; the snapshots are not needed any more."""
        save_agent(agent, self.path / "agent")
        self._end(agent)
        if self._tensorboard:
            self._tensorboard.close()

    def close(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            self._lock.release()


def _tensorboard(path: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return False
    return SummaryWriter(str(path / "tensorboard"))
