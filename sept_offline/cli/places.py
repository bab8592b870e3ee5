"""Whether what a command is to read is there, asked before anything heavy is loaded."""

from __future__ import annotations

from pathlib import Path

from sept_offline.errors import AgentError


def check_dataset(dataset: str) -> None:
    """Refuse a place where no dataset can be."""
    from sept_offline.data.mistaken import check_place

    check_place(dataset)


def check_run(run: Path) -> None:
    """Refuse a place that holds no fitted agent."""
    if _holds_agent(run):
        return
    if not run.exists():
        raise AgentError(f"There is no run at {run}; check the path, or fit one.")
    if not run.is_dir():
        raise AgentError(f"{run} is a file, and a run of fit is a folder; name one.")
    if (run / "run.json").is_file():
        raise AgentError(f"The fit in {run} has not ended; continue it with fit --resume.")
    if (run / "manifest.json").is_file():
        raise AgentError(f"{run} is an exported agent; name the run of fit that it came from.")
    raise AgentError(f"There is no agent in {run}; name a run of fit.")


def check_run_and_dataset(run: Path, dataset: str) -> None:
    """Both, where a command takes one after the other, and whether they are the wrong way round."""
    if not _holds_agent(run) and _holds_agent(Path(dataset)):
        raise AgentError(f"{dataset} is a run of fit, and {run} is none: the order is RUN DATASET.")
    check_run(run)
    check_dataset(dataset)


def _holds_agent(run: Path) -> bool:
    return any((folder / "agent.json").is_file() for folder in (run, run / "agent"))
