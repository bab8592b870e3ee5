"""A run on disk: what was asked for, snapshots while it lasts, metrics, the agent at the end."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import IO, Any

from sept_offline.agent import Agent, save_agent
from sept_offline.errors import DataError
from sept_offline.files import (
    load_state,
    lock_file,
    read_json,
    remove_tree,
    save_state,
    write_json,
    write_text,
)
from sept_offline.stage import Stage

CHECKPOINT_SECONDS = 20.0
COLUMNS = ["stage", "update", "metric", "value"]
EVALUATED = "results.parquet"
"""The last evaluation of the agent."""
JUDGED = "ope.json"
"""What logs last said of the agent's worth."""


class RunDirectory:
    """`run.json`, `metrics.csv`, `checkpoints/` and, once finished, `agent/`.

    `results.parquet`, its last evaluation, is left there by whoever evaluates it, and `ope.json` by
    whoever judges it from logs.
    """

    def __init__(self, path: str | Path, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> None:
        self.path = Path(path)
        self.checkpoint_seconds = checkpoint_seconds
        self._lock: IO[str] | None = None
        self._written = time.monotonic()
        self._tensorboard: Any = None
        self._earlier: list[str] = []

    @property
    def finished(self) -> bool:
        """Whether the agent is there."""
        return (self.path / "agent" / "agent.json").exists()

    def open(self, record: dict[str, Any], resume: bool, restart: bool) -> None:
        """Begin a run, or continue the same one; anything else is refused."""
        self.path.mkdir(parents=True, exist_ok=True)
        busy = f"Another process is fitting into {self.path}; wait for it to end."
        self._lock = lock_file(self.path / ".lock", DataError(busy))
        try:
            self._prepare(record, resume, restart)
        except BaseException:
            self.close()
            raise

    def _prepare(self, record: dict[str, Any], resume: bool, restart: bool) -> None:
        description = self.path / "run.json"
        if restart:
            for leftover in ("checkpoints", "agent", "tensorboard"):
                remove_tree(self.path / leftover)
            for name in ("run.json", "metrics.csv", EVALUATED, JUDGED):
                (self.path / name).unlink(missing_ok=True)
        if description.exists():
            if not resume:
                state = "a finished" if self.finished else "an unfinished"
                raise DataError(
                    f"{self.path} holds {state} run; add --resume to continue it, --restart to "
                    "replace it, or choose another -o."
                )
            found = read_json(description, DataError)
            # The dataset is known by its content, however its path is spelled.
            free = ("versions", "dataset")
            changed = [key for key in record if key not in free and found.get(key) != record[key]]
            if changed:
                raise DataError(
                    f"{self.path} was begun with another {', '.join(changed)}; resume with the "
                    "same arguments, or add --restart to replace it."
                )
            self._tidy()
            return
        write_json(description, record)

    def _tidy(self) -> None:
        """Remove what a kill in the last moments left lying about."""
        for leftover in self.path.glob(".agent-*"):
            remove_tree(leftover)
        if self.finished:
            remove_tree(self.path / "checkpoints")

    def checkpoint(self, number: int, stage: Stage) -> Path:
        """Where the snapshot of a stage stands."""
        return self.path / "checkpoints" / f"{number}-{stage.name}.safetensors"

    def restore(self, number: int, stage: Stage) -> None:
        """Bring a stage to where it was, if it was begun."""
        path = self.checkpoint(number, stage)
        if path.exists():
            stage.restore(load_state(path, DataError))
        if stage.done < stage.total:
            self._forget(stage)
        self._earlier.append(stage.name)

    def _forget(self, stage: Stage) -> None:
        """Drop the metrics of updates that are going to be made again."""
        path = self.path / "metrics.csv"
        if not path.exists():
            return
        with path.open(newline="", encoding="utf-8") as handle:
            rows = [row for row in csv.reader(handle) if len(row) == len(COLUMNS)]
        kept = [
            row
            for row in rows[1:]
            if row[0] in self._earlier or (row[0] == stage.name and int(row[1]) <= stage.done)
        ]
        text = io.StringIO()
        csv.writer(text).writerows([COLUMNS, *kept])
        write_text(path, text.getvalue())

    def save(self, number: int, stage: Stage, force: bool) -> None:
        """Write a snapshot if it is time to, or if it must be."""
        now = time.monotonic()
        if force or now - self._written >= self.checkpoint_seconds:
            save_state(self.checkpoint(number, stage), stage.state())
            self._written = time.monotonic()

    def log(self, stage: str, done: int, metrics: dict[str, float]) -> None:
        """Add a line a metric to `metrics.csv`, and to TensorBoard where it is installed."""
        path = self.path / "metrics.csv"
        fresh = not path.exists()
        with path.open("a", newline="", encoding="utf-8") as handle:
            writer = csv.writer(handle)
            if fresh:
                writer.writerow(COLUMNS)
            for name, value in metrics.items():
                writer.writerow([stage, done, name, repr(float(value))])
        if self._tensorboard is None:
            self._tensorboard = _tensorboard(self.path)
        if self._tensorboard:
            for name, value in metrics.items():
                self._tensorboard.add_scalar(f"{stage}/{name}", value, done)

    def finish(self, agent: Agent) -> None:
        """Write the agent; the snapshots are not needed any more."""
        save_agent(agent, self.path / "agent")
        remove_tree(self.path / "checkpoints")
        if self._tensorboard:
            self._tensorboard.close()

    def close(self) -> None:
        """Let another process continue."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _tensorboard(path: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return False
    return SummaryWriter(str(path / "tensorboard"))
