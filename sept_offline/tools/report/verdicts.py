"""The verdicts on a run: the one its fit ended with, and the one `ope` reached from logs."""

from __future__ import annotations

from collections.abc import Sequence

from sept_offline.tools.ope import TITLES
from sept_offline.tools.report.blocks import Block, Note, Section, Table
from sept_offline.tools.report.sources import Run
from sept_offline.tools.report.text import count, number, percent, plural

FIT_KINDS = {"usable": "good", "doubtful": "note", "not usable": "warning"}
OPE_KINDS = {"trust": "good", "caution": "note", "uncovered": "warning"}


def fit_verdict(run: Run) -> str | None:
    """The verdict of the fit; None where the run has none."""
    verdict = run.record.get("verdict")
    return str(verdict) if verdict in FIT_KINDS else None


def verdicts(runs: Sequence[Run]) -> Section:
    """A line per run with its reasons; empty where no run has a verdict."""
    blocks: list[Block] = []
    for run in runs:
        verdict = fit_verdict(run)
        if verdict is not None:
            blocks.append(Note(f"{run.name}: {verdict}.", FIT_KINDS[verdict]))
            blocks += [Note(str(reason)) for reason in run.record.get("reasons") or []]
    return Section(
        "verdict",
        "Verdict",
        "Whether the agent is fit for use, estimated from the logs alone: a second, shorter fit is "
        "checked on episodes that the fit did not see. Test episodes in a simulator, below, are "
        "better evidence.",
        blocks,
    )


def ope_estimates(run: Run) -> list[Block]:
    """The verdict of `ope` and its estimates; empty where it has not been run."""
    judged = run.judged
    if judged is None:
        return [Note(f"{run.name}: {run.missing['judged']}")] if "judged" in run.missing else []
    quoted = judged.estimators[judged.headline]
    reasons = "".join(f"; {reason}" for reason in judged.reasons)
    title = TITLES.get(judged.headline, judged.headline)
    verdict = (
        f"{run.name}, from logs alone: {judged.verdict}. "
        f"{title[:1].upper()}{title[1:]} estimates a return of "
        f"{number(quoted.mean)} ({number(quoted.low)} … {number(quoted.high)}); the logged "
        f"episodes earned {number(judged.logged_return)}{reasons}."
    )
    return [
        Note(verdict, OPE_KINDS.get(judged.verdict, "note")),
        Table(
            f"Return estimated from logs: {run.name}",
            ("estimator", "mean", "low", "high", "effective episodes"),
            [
                (TITLES.get(name, name), *map(number, (e.mean, e.low, e.high, e.ess)))
                for name, e in judged.estimators.items()
            ],
            note=f"Return of at most {plural(judged.horizon, 'step')}, with "
            f"{percent(judged.confidence)} intervals; "
            f"{count(judged.episodes)} episodes of {plural(judged.instances, 'instance')}, "
            f"{judged.judged_on}.",
            folded=True,
        ),
    ]
