"""Against others: the methods beside each other and beside the paper, and paired differences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sept_offline.evaluation import Results
from sept_offline.report.blocks import Block, Note, Section, Table
from sept_offline.report.episodes import evaluated_alike
from sept_offline.report.sources import Evaluated, Run
from sept_offline.report.text import count, figure, interval, percent, with_error
from sept_offline.seeding import generator

RESAMPLES = 4000
FIELDS = (("steps_to_solve", "steps"), ("total", "return"), ("normalised", "share"))


def against(runs: Sequence[Run]) -> Section:
    """Runs of one family and split, if there are two or more; else nothing."""
    blocks: list[Block] = []
    for (family, split, limit), own in evaluated_alike(runs).items():
        if len(own) > 1:
            title = f"{family} · {split} · at most {limit} steps"
            blocks += [_table(own, title), *_differences(own, family)]
    if len(runs) > 1 and not blocks:
        line = "No two of these runs were evaluated in the same instances with the same limit."
        blocks.append(Note(line))
    return Section(
        "against",
        "Against others",
        "The same instances for all. The paper trains online, with the simulator at hand; here "
        "there are only logs.",
        blocks,
    )


def _table(own: Sequence[Evaluated], title: str) -> Table:
    rows = []
    for one in own:
        run, summary = one.run, one.results.summary()
        published = run.family.published.get(run.method) if run.family is not None else None
        steps, total, share = (summary[k] for k in ("steps_to_solve", "return", "normalised"))
        rows.append(
            (
                run.name,
                ", ".join(summary["needs"]) or "–",
                "yes" if summary["learns"] else "–",
                count(summary["episodes"]),
                percent(summary["solved"]),
                *(with_error(*_both(found)) for found in (steps, total, share)),
                figure(published),
                f"{summary['act_microseconds']:.0f}",
            )
        )
    columns = ["method", "needs", "learns", "episodes", "solved", "steps", "return"]
    columns += ["share", "paper's steps", "µs"]
    return Table(
        title,
        columns,
        rows,
        note="± is the standard error over instances. Steps are to solve, the limit where "
        "unsolved. Share: of the achievable, 0 a random agent's, 1 the best known in the very "
        "instance. Needs: what the agent is given beside observations; learns: takes gradient "
        "steps in its episode; µs: of the agent, an action.",
    )


def _differences(own: Sequence[Evaluated], family: str) -> list[Block]:
    """Each run against the first, instance by instance."""
    first, *others = own
    rows = []
    for one in others:
        cells = [_paired(one.results, first.results, name) for name, _ in FIELDS]
        rows.append((f"{one.run.name} − {first.run.name}", *cells))
    kept = [n for n in range(len(FIELDS)) if any(row[n + 1] != "–" for row in rows)]
    if not kept:
        return []
    return [
        Table(
            f"{family}: differences, paired by instance",
            ("runs", *(FIELDS[n][1] for n in kept)),
            [(row[0], *(row[n + 1] for n in kept)) for row in rows],
            note="Brackets are 95 % bootstrap intervals over instances: what other instances might "
            "have shown of these very agents. Other training seeds are not in them; a bench is.",
        )
    ]


def _paired(one: Results, other: Results, name: str) -> str:
    left, right = one.by_instance(name), other.by_instance(name)
    gaps = [
        float(value) - float(beside)
        for instance, value in left.items()
        if value is not None and (beside := right.get(instance)) is not None
    ]
    if not gaps:
        return "–"
    values = np.array(gaps)
    if len(values) < 2:
        return interval(float(values.mean()), None, None)
    draws = generator(0, "report", "differences").integers(len(values), size=(RESAMPLES, len(gaps)))
    low, high = np.percentile(values[draws].mean(axis=1), (2.5, 97.5))
    return interval(float(values.mean()), float(low), float(high))


def _both(found: dict[str, float] | None) -> tuple[float | None, float | None]:
    return (None, None) if found is None else (found["mean"], found["se"])
