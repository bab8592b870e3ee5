"""A run on disk: what was asked for, snapshots while it lasts, metrics, the agent at the end."""

from __future__ import annotations

import csv
import fcntl
import time
from pathlib import Path
from typing import IO, Any

from sept_offline.agent import Agent, save_agent
from sept_offline.errors import DataError
from sept_offline.files import load_state, read_json, remove_tree, save_state, write_json
from sept_offline.stage import Stage

CHECKPOINT_SECONDS = 20.0


class RunDirectory:
    """`run.json`, `metrics.csv`, `checkpoints/` and, once finished, `agent/`."""

    def __init__(self, path: str | Path, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> None:
        self.path = Path(path)
        self.checkpoint_seconds = checkpoint_seconds
        self._lock: IO[str] | None = None
        self._written = time.monotonic()
        self._tensorboard: Any = None

    @property
    def finished(self) -> bool:
        """Whether the agent is there."""
        return (self.path / "agent" / "agent.json").exists()

    def open(self, record: dict[str, Any], resume: bool, restart: bool) -> None:
        """Begin a run, or continue the same one; anything else is refused."""
        self.path.mkdir(parents=True, exist_ok=True)
        self._lock = (self.path / ".lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            self._lock = None
            raise DataError(
                f"Another process is fitting into {self.path}; wait for it to end."
            ) from None
        try:
            self._prepare(record, resume, restart)
        except BaseException:
            self.close()
            raise

    def _prepare(self, record: dict[str, Any], resume: bool, restart: bool) -> None:
        description = self.path / "run.json"
        if restart:
            for leftover in ("checkpoints", "agent"):
                remove_tree(self.path / leftover)
            for name in ("run.json", "metrics.csv"):
                (self.path / name).unlink(missing_ok=True)
        if description.exists():
            if not resume:
                state = "a finished" if self.finished else "an unfinished"
                raise DataError(
                    f"{self.path} holds {state} run; add --resume to continue it, --restart to "
                    "replace it, or choose another -o."
                )
            found = read_json(description, DataError)
            changed = [key for key in record if key != "versions" and found.get(key) != record[key]]
            if changed:
                raise DataError(
                    f"{self.path} was begun with another {', '.join(changed)}; resume with the "
                    "same arguments, or add --restart to replace it."
                )
            return
        write_json(description, record)

    def checkpoint(self, number: int, stage: Stage) -> Path:
        """Where the snapshot of a stage stands."""
        return self.path / "checkpoints" / f"{number}-{stage.name}.safetensors"

    def restore(self, number: int, stage: Stage) -> None:
        """Bring a stage to where it was, if it was begun."""
        path = self.checkpoint(number, stage)
        if path.exists():
            stage.restore(load_state(path, DataError))

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
                writer.writerow(["stage", "update", "metric", "value"])
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
