"""Checks that a command's inputs exist, before large libraries are loaded."""

from __future__ import annotations

from pathlib import Path

from sept_offline.errors import AgentError


def check_dataset(dataset: str) -> None:
    """Raise a DataError if the path cannot be a dataset."""
    from sept_offline.data.filesystems import check_place

    check_place(dataset)


def check_run(run: Path) -> None:
    """Raise an AgentError if the path contains no fitted agent."""
    if _holds_agent(run):
        return
    if not run.exists():
        raise AgentError(f"There is no run at {run}; check the path, or run fit first.")
    if not run.is_dir():
        raise AgentError(f"{run} is a file; expected the run directory of a fit.")
    if (run / "run.json").is_file():
        raise AgentError(f"The fit in {run} has not finished; continue it with fit --resume.")
    if (run / "manifest.json").is_file():
        raise AgentError(f"{run} is an exported agent; expected the run directory of its fit.")
    raise AgentError(f"There is no agent in {run}; expected the run directory of a fit.")


def check_run_and_dataset(run: Path, dataset: str) -> None:
    """Check a run and a dataset, and whether they were given in the wrong order."""
    if not _holds_agent(run) and _holds_agent(Path(dataset)):
        raise AgentError(f"{dataset} is a run, but {run} is not; the order is RUN DATASET.")
    check_run(run)
    check_dataset(dataset)


def _holds_agent(run: Path) -> bool:
    return any((folder / "agent.json").is_file() for folder in (run, run / "agent"))
