"""The worth of an agent as logs tell it: the estimates of `ope` and its verdict."""

from __future__ import annotations

from sept_offline.ope import TITLES
from sept_offline.report.blocks import Block, Note, Table
from sept_offline.report.sources import Run
from sept_offline.report.text import count, figure, plural

KINDS = {"trust": "good", "caution": "note", "uncovered": "warning"}


def judged(run: Run) -> list[Block]:
    """A verdict and a table, if the run has been judged; else nothing."""
    found = run.judged
    if found is None:
        return [Note(f"{run.name}: {run.missing['judged']}")] if "judged" in run.missing else []
    quoted = found.estimators[found.headline]
    reasons = "".join(f"; {reason}" for reason in found.reasons)
    verdict = (
        f"{run.name}, from logs alone: {found.verdict}. "
        f"{TITLES.get(found.headline, found.headline).capitalize()} says "
        f"{figure(quoted.mean)} ({figure(quoted.low)} … {figure(quoted.high)}), where the logs "
        f"themselves earned {figure(found.logged_return)}{reasons}."
    )
    return [
        Note(verdict, KINDS.get(found.verdict, "note")),
        Table(
            f"Worth by the logs: {run.name}",
            ("estimator", "mean", "low", "high", "effective episodes"),
            [
                (TITLES.get(name, name), *map(figure, (one.mean, one.low, one.high, one.ess)))
                for name, one in found.estimators.items()
            ],
            note=f"Return of at most {plural(found.horizon, 'step')}; "
            f"{count(found.episodes)} episodes of {plural(found.instances, 'instance')}, "
            f"{found.judged_on}.",
            folded=True,
        ),
    ]
