"""The verdict that each fit ended with: the first thing on the page."""

from __future__ import annotations

from collections.abc import Sequence

from sept_offline.report.blocks import Block, Note, Section
from sept_offline.report.sources import Run

KINDS = {"usable": "good", "doubtful": "note", "not usable": "warning"}


def verdicts(runs: Sequence[Run]) -> Section:
    """A line a run, and its reasons; empty where no run has a verdict."""
    blocks: list[Block] = []
    for run in runs:
        said, reasons = run.record.get("verdict"), run.record.get("reasons") or []
        if said in KINDS:
            blocks.append(Note(f"{run.name}: {said}.", KINDS[said]))
            blocks += [Note(str(reason)) for reason in reasons]
    return Section(
        "verdict",
        "Verdict",
        "Whether what was learned is of use, as a second, shorter fit and episodes kept from the "
        "fit tell. An evaluation in a simulator, below, tells more.",
        blocks,
    )
