"""The one episode: reward against step, percent solved, a table of instances, and the viewer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sept_offline.bench.figures.look import look
from sept_offline.evaluation import Results
from sept_offline.evaluation.results import EpisodeResult
from sept_offline.report.blocks import Block, Chart, Note, Player, Section, Table
from sept_offline.report.charts import Line, bars_chart, colour_of, dash_of, lines_chart
from sept_offline.report.judged import judged
from sept_offline.report.scenes import playable
from sept_offline.report.sources import Evaluated, Run, evaluated
from sept_offline.report.text import count, figure, percent, with_error

LEVEL = 0.95
OPEN = 12
SHADES = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933", "#44AA99")
"""Of runs that share a method with one before them."""
Array = NDArray[np.float64]


def episodes(runs: Sequence[Run]) -> Section:
    """Runs that were evaluated alike together in each chart, one table a run."""
    blocks: list[Block] = []
    there = evaluated(runs)
    for run in runs:
        if run.results is None:
            blocks.append(Note(f"{run.name}: {run.missing['results']}"))
    for run in runs:
        blocks += judged(run)
    blocks += _player([one.run for one in there])
    alike = evaluated_alike(runs)
    for (family, split, limit), own in alike.items():
        where = f"{family}, {split}" if len(alike) > 1 else family
        if len({key[:2] for key in alike}) < len(alike):
            where += f", at most {limit} steps"
        blocks += _charts(own, runs, f" ({where})", f"{family}-{split}-{limit}", limit)
    for one in there:
        blocks.append(_table(one, alone=len(there) == 1))
    return Section(
        "episodes",
        "The one episode",
        "Each agent in the test instances: every episode begins from the same trained agent, there "
        "is no second attempt, and no reward is shown to an agent that does not declare that it "
        "needs it. An episode that ended during the probe counts as it ended.",
        blocks,
    )


def evaluated_alike(runs: Sequence[Run]) -> dict[tuple[str, str, int], list[Evaluated]]:
    """Runs that can be compared: of one family and split, with the same limit of steps."""
    groups: dict[tuple[str, str, int], list[Evaluated]] = {}
    for one in evaluated(runs):
        key = (one.results.family, one.results.instances, one.results.limit)
        groups.setdefault(key, []).append(one)
    return groups


def _charts(
    own: Sequence[Evaluated], runs: Sequence[Run], where: str, name: str, limit: int
) -> list[Block]:
    band = "Bands are 95 % intervals of the mean over instances, where there are several."
    blocks: list[Block] = [
        Chart(
            f"reward-{name}",
            f"Cumulative reward{where}",
            f"After each step of the test episode; one that has ended keeps its last value. {band}",
            lines_chart(
                [_line(one, runs, limit, _cumulative) for one in own],
                "step of the test episode",
                "cumulative reward",
            ),
        )
    ]
    solving = [one for one in own if any(e.solved is not None for e in one.results.episodes)]
    if solving:
        lines = [_line(one, runs, limit, _solved, (0.0, 100.0)) for one in solving]
        blocks.append(
            Chart(
                f"solved-{name}",
                f"Solved{where}",
                f"Percent of test episodes solved by each step. {band}",
                lines_chart(
                    lines,
                    "step of the test episode",
                    "solved, %",
                    more={"yaxis": {"range": [-3, 103]}},
                ),
            )
        )
        blocks.append(_steps(solving, runs, where, name, limit))
    return blocks


def _line(
    one: Evaluated,
    runs: Sequence[Run],
    limit: int,
    value: Callable[[EpisodeResult, int], Array],
    between: tuple[float, float] = (-np.inf, np.inf),
) -> Line:
    groups: dict[str, list[Array]] = {}
    for episode in one.results.episodes:
        groups.setdefault(episode.instance, []).append(value(episode, limit))
    paths = np.array([np.mean(own, axis=0) for own in groups.values()])
    mean = paths.mean(axis=0)
    low = high = None
    if len(paths) > 1:
        reach = stats.t.ppf((1 + LEVEL) / 2, len(paths) - 1)
        half = reach * paths.std(axis=0, ddof=1) / np.sqrt(len(paths))
        low, high = np.clip(mean - half, *between), np.clip(mean + half, *between)
    return Line(
        one.run.name,
        np.arange(limit + 1),
        mean,
        low,
        high,
        colour=run_colour(one.run, runs),
        dash=dash_of(look(one.run.method)),
        method=one.run.name,
    )


def run_colour(run: Run, runs: Sequence[Run]) -> str:
    """The method's own colour for the first run of it on the page, one that is free for others."""
    alike = [other.path for other in runs if other.method == run.method]
    if alike[0] == run.path:
        return colour_of(run.method)
    taken = {colour_of(other.method) for other in runs}
    free = [shade for shade in SHADES if shade not in taken] or list(SHADES)
    others = [one.path for one in runs if _earlier(one, runs)]
    return free[others.index(run.path) % len(free)]


def _earlier(run: Run, runs: Sequence[Run]) -> bool:
    """Whether another run of its method comes before it."""
    return next(one.path for one in runs if one.method == run.method) != run.path


def _cumulative(episode: EpisodeResult, limit: int) -> Array:
    sums = np.concatenate([[0.0], episode.cumulative])[: limit + 1]
    return np.pad(sums, (0, limit + 1 - len(sums)), mode="edge")


def _solved(episode: EpisodeResult, limit: int) -> Array:
    found = np.zeros(limit + 1)
    if episode.solved and episode.steps_to_solve is not None:
        found[episode.steps_to_solve :] = 100.0
    return found


def _steps(
    solving: Sequence[Evaluated], runs: Sequence[Run], where: str, name: str, limit: int
) -> Chart:
    """How often an episode took so many steps."""
    everyone = {
        one.run.name: [
            e.steps_to_solve for e in one.results.episodes if e.steps_to_solve is not None
        ]
        for one in solving
    }
    least = min(min(steps) for steps in everyone.values())
    width = max(1, -(-(limit - least + 1) // 40))
    edges = np.arange(least, limit + width + 1, width)
    names = [str(edge) if width == 1 else f"{edge}–{edge + width - 1}" for edge in edges[:-1]]
    shares = {
        run: (np.histogram(steps, edges)[0] / len(steps)).tolist()
        for run, steps in everyone.items()
    }
    colours = [run_colour(one.run, runs) for one in solving]
    return Chart(
        f"steps-{name}",
        f"Steps to solve{where}",
        f"Share of test episodes that took so many steps, the probe's included; {limit} where one "
        "was never solved.",
        bars_chart(names, shares, "steps", "share", colours, methods=list(shares)),
    )


def _table(one: Evaluated, alone: bool) -> Table:
    results = one.results
    groups: dict[str, list[EpisodeResult]] = {}
    for episode in results.episodes:
        groups.setdefault(episode.instance, []).append(episode)
    rows = [
        (
            instance,
            count(len(own)),
            figure(_mean([e.total for e in own])),
            figure(_mean([e.steps_to_solve for e in own])),
            percent(_mean([e.solved for e in own])),
            figure(_mean([e.normalised for e in own])),
            figure(_mean([e.uncertainty for e in own])),
            figure(_mean([e.novelty for e in own])),
            count(sum(e.flagged for e in own)),
        )
        for instance, own in groups.items()
    ]
    columns = ["instance", "episodes", "return", "steps", "solved", "share"]
    columns += ["uncertainty", "novelty", "flagged"]
    return Table(
        f"Test instances{'' if alone else f': {one.run.name}'}",
        columns,
        rows,
        note=_summary(results),
        folded=len(rows) > OPEN or not alone,
    )


def _summary(results: Results) -> str:
    summary = results.summary()
    parts = [f"{count(summary['episodes'])} episodes of at most {count(results.limit)} steps"]
    if summary["solved"] is not None:
        parts.append(f"{percent(summary['solved'])} solved")
    for key, name in (
        ("steps_to_solve", "steps to solve"),
        ("return", "return"),
        ("normalised", "share of the achievable"),
    ):
        if summary[key] is not None:
            parts.append(f"{name} {with_error(summary[key]['mean'], summary[key]['se'])}")
    parts.append(f"{summary['act_microseconds']:.0f} µs an action")
    text = "; ".join(parts) + "."
    if any(episode.novelty is not None for episode in results.episodes):
        text += " Novelty: below 0.01 an instance is flagged as unlike any that was logged."
    return text


def _player(runs: Sequence[Run]) -> list[Block]:
    shown, left = playable(runs)
    if not shown:
        ready = [run for run in runs if run.agent is not None]
        if left:
            return [Note("The episodes are too long to be played here.")]
        line = "The results hold no observations: evaluate again to see the episodes."
        return [Note(line)] if ready else []
    more = f" {count(left)} others are left out for the page's size." if left else ""
    return [
        Player(
            "Watch an episode",
            "Orange steps were chosen by the probe, blue ones by control." + more,
            shown,
        )
    ]


def _mean(values: Sequence[float | bool | None]) -> float | None:
    there = [float(value) for value in values if value is not None]
    return sum(there) / len(there) if there else None
