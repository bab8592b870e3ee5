"""The section that compares runs: one table, the paper's figures, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sept_offline.evaluation import Results
from sept_offline.seeding import generator
from sept_offline.tools.report.blocks import Block, Note, Section, Table
from sept_offline.tools.report.sources import Evaluated, Run, comparable
from sept_offline.tools.report.text import count, interval, number, percent, with_error

RESAMPLES = 4000
FIELDS = (("steps_to_solve", "steps"), ("total", "return"), ("normalised", "share"))


@dataclass(frozen=True)
class Difference:
    """A mean difference over shared instances and its 95 % interval, if there are two or more."""

    mean: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        """−26.6 [−31.1, −22.7]."""
        return interval(self.mean, self.low, self.high)


def comparison(runs: Sequence[Run]) -> Section:
    """Runs that are comparable, if there are two or more; else nothing."""
    blocks: list[Block] = []
    for (family, split, limit), group in comparable(runs).items():
        if len(group) > 1:
            title = f"{family} · {split} · at most {limit} steps"
            blocks += [_table(group, title), *_differences(group, family)]
    if len(runs) > 1 and not blocks:
        line = "No two of these runs were evaluated in the same instances with the same limit."
        blocks.append(Note(line))
    return Section(
        "against",
        "Against others",
        "All methods in the same instances. The paper trains online, in the simulator; the "
        "methods here learn from logs only.",
        blocks,
    )


def paired_difference(results: Results, other: Results, field: str) -> Difference | None:
    """`results` minus `other`, instance by instance; None where they share no instance."""
    left, right = results.by_instance(field), other.by_instance(field)
    gaps = np.array(
        [
            float(value) - float(beside)
            for instance, value in left.items()
            if value is not None and (beside := right.get(instance)) is not None
        ]
    )
    if not len(gaps):
        return None
    if len(gaps) < 2:
        return Difference(float(gaps.mean()), None, None)
    size = (RESAMPLES, len(gaps))
    draws = generator(0, "report", "differences").integers(len(gaps), size=size)
    low, high = np.percentile(gaps[draws].mean(axis=1), (2.5, 97.5))
    return Difference(float(gaps.mean()), float(low), float(high))


def _table(group: Sequence[Evaluated], title: str) -> Table:
    rows = []
    for run, results in group:
        summary = results.summary()
        published = run.family.published.get(run.method) if run.family is not None else None
        rows.append(
            (
                run.name,
                ", ".join(summary["needs"]) or "–",
                "yes" if summary["learns"] else "–",
                count(summary["episodes"]),
                percent(summary["solved"]),
                *(with_error(summary[key]) for key in ("steps_to_solve", "return", "normalised")),
                number(published),
                f"{summary['act_microseconds']:.0f}",
            )
        )
    columns = ["method", "needs", "learns", "episodes", "solved", "steps", "return"]
    columns += ["share", "paper's steps", "µs"]
    return Table(
        title,
        columns,
        rows,
        note="± is the standard error over instances. Steps: to solve, or the limit where an "
        "episode was not solved. Share: of the achievable return; 0 is a random agent, 1 the best "
        "known return in that instance. Needs: what the agent gets beside observations. Learns: "
        "whether it takes gradient steps during the episode. µs: time of the agent per action.",
    )


def _differences(group: Sequence[Evaluated], family: str) -> list[Block]:
    """Each run against the first, instance by instance."""
    first, *others = group
    rows = []
    for run, results in others:
        gaps = [paired_difference(results, first.results, field) for field, _ in FIELDS]
        cells = ["–" if gap is None else str(gap) for gap in gaps]
        rows.append((f"{run.name} − {first.run.name}", *cells))
    kept = [n for n in range(len(FIELDS)) if any(row[n + 1] != "–" for row in rows)]
    if not kept:
        return []
    return [
        Table(
            f"{family}: differences, paired by instance",
            ("runs", *(FIELDS[n][1] for n in kept)),
            [(row[0], *(row[n + 1] for n in kept)) for row in rows],
            note="Brackets are 95 % bootstrap intervals over instances, for these agents. They do "
            "not include the variation between training seeds; a bench does.",
        )
    ]
