"""The section on test episodes: reward and percent solved by step, instances, and the viewer.

A family's `scene(hidden)` describes an instance as one of these kinds; a family without one is
drawn as its columns over time.

    {"kind": "plane", "x": 0, "y": 1, "box": (x0, x1, y0, y1), "goal": (x0, x1, y0, y1),
     "walls": [{"line": (x, y, x, y), "from": step, "to": step}]}    columns 0 and 1 are a point
    {"kind": "links", "lengths": [1.0, 1.0], "angles": [0, 1], "goal": 1.0}
                                     columns 0 and 1 are angles of links, each from the one before
    {"kind": "doses", "drugs": ["A", "B"], "given": [[False, False], [True, False]]}
                                     columns over time; which drugs each action gives

`goal` and a wall's `from` and `to` may be left out.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from sept_offline.actions import Box
from sept_offline.agent import Agent
from sept_offline.elementary import Doubles
from sept_offline.evaluation import Results
from sept_offline.evaluation.results import EpisodeResult
from sept_offline.family import Family
from sept_offline.methods import METHODS
from sept_offline.tools.bench.cell import episode_rows
from sept_offline.tools.bench.figures.curves import (
    STEP,
    cumulative_reward,
    percent_solved,
    step_paths,
)
from sept_offline.tools.bench.figures.figure import Line, style_of
from sept_offline.tools.bench.figures.rows import Row
from sept_offline.tools.ope import TITLES
from sept_offline.tools.report.charts import bars_plot, lines_plot, numbers
from sept_offline.tools.report.page import (
    OPEN,
    Block,
    Chart,
    Note,
    Player,
    Section,
    Table,
    count,
    number,
    percent,
    plural,
    with_error,
)
from sept_offline.tools.report.sources import Evaluated, Run, comparable, evaluated

LEVEL = 0.95
BARS = 40
"""Most bars of a histogram."""
SHADES = ("#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255", "#999933", "#44AA99")
"""Colours of runs that share a method with an earlier run."""
OPE_KINDS = {"trust": "good", "caution": "note", "uncovered": "warning"}
"""Verdict of `ope` → how it is shown."""


def episodes(runs: Sequence[Run]) -> Section:
    """Comparable runs share their charts; each run has its own table."""
    blocks: list[Block] = []
    tested = evaluated(runs)
    for run in runs:
        if run.results is None:
            blocks.append(Note(f"{run.name}: {run.missing['results']}"))
    for run in runs:
        blocks += _ope_estimates(run)
    blocks += _player([run for run, _ in tested])
    groups = comparable(runs)
    for (family, split, limit), group in groups.items():
        where = f"{family}, {split}" if len(groups) > 1 else family
        if len({key[:2] for key in groups}) < len(groups):
            where += f", at most {limit} steps"
        blocks += _charts(group, runs, f" ({where})", f"{family}-{split}-{limit}", limit)
    for run, results in tested:
        blocks.append(_table(run.name, results, alone=len(tested) == 1))
    return Section(
        "episodes",
        "The one episode",
        "Each agent in the test instances. Every episode starts from the same trained agent, "
        "without a second attempt, and an agent sees rewards only if it declares that it needs "
        "them. An episode that ended during the probe is counted too.",
        blocks,
    )


def run_colour(run: Run, runs: Sequence[Run]) -> str:
    """The colour of the method for its first run on the page, a free one for later runs."""
    repeated = [other.path for other in runs if _earlier(other, runs)]
    if run.path not in repeated:
        return style_of(run.method).colour
    taken = {style_of(other.method).colour for other in runs}
    free = [shade for shade in SHADES if shade not in taken] or list(SHADES)
    return free[repeated.index(run.path) % len(free)]


def _earlier(run: Run, runs: Sequence[Run]) -> bool:
    """Whether another run of its method comes before it."""
    return next(other.path for other in runs if other.method == run.method) != run.path


def _charts(
    group: Sequence[Evaluated], runs: Sequence[Run], where: str, name: str, limit: int
) -> list[Block]:
    band = "Bands are 95 % intervals of the mean over instances, where there are several."
    rewards = [_line(entry, runs, limit, cumulative_reward) for entry in group]
    blocks: list[Block] = [
        Chart(
            f"reward-{name}",
            f"Cumulative reward{where}",
            f"After each step of the test episode; an ended episode keeps its last value. {band}",
            lines_plot(rewards, STEP, "cumulative reward"),
        )
    ]
    solving = [entry for entry in group if entry.results.summary()["solved"] is not None]
    if solving:
        solved = [_line(entry, runs, limit, percent_solved, (0.0, 100.0)) for entry in solving]
        blocks.append(
            Chart(
                f"solved-{name}",
                f"Solved{where}",
                f"Percent of test episodes solved by each step. {band}",
                lines_plot(solved, STEP, "solved, %", limits=(-3.0, 103.0)),
            )
        )
        blocks.append(_steps(solving, runs, where, name, limit))
    return blocks


def _line(
    entry: Evaluated,
    runs: Sequence[Run],
    limit: int,
    value: Callable[[Row, int], Doubles],
    between: tuple[float, float] = (-np.inf, np.inf),
) -> Line:
    """The mean over instances and its t interval."""
    run, results = entry
    rows: list[dict[str, Any]] = [{"seed": 0} | row for row in episode_rows(results)]
    (paths,) = step_paths(rows, limit, value)
    mean = paths.mean(axis=0)
    low = high = None
    if len(paths) > 1:
        reach = stats.t.ppf((1 + LEVEL) / 2, len(paths) - 1)
        half = reach * paths.std(axis=0, ddof=1) / np.sqrt(len(paths))
        low, high = np.clip(mean - half, *between), np.clip(mean + half, *between)
    return Line(
        run.name,
        np.arange(limit + 1, dtype=np.float64),
        mean,
        low,
        high,
        colour=run_colour(run, runs),
        dash=style_of(run.method).dash,
        method=run.name,
    )


def _steps(
    solving: Sequence[Evaluated], runs: Sequence[Run], where: str, name: str, limit: int
) -> Chart:
    """How many steps the episodes took."""
    steps = {
        run.name: [e.steps_to_solve for e in results.episodes if e.steps_to_solve is not None]
        for run, results in solving
    }
    least = min(min(taken) for taken in steps.values())
    width = max(1, -(-(limit - least + 1) // BARS))
    edges = np.arange(least, limit + width + 1, width)
    names = [str(edge) if width == 1 else f"{edge}–{edge + width - 1}" for edge in edges[:-1]]
    shares = {
        run: (np.histogram(taken, edges)[0] / len(taken)).tolist() for run, taken in steps.items()
    }
    colours = [run_colour(run, runs) for run, _ in solving]
    return Chart(
        f"steps-{name}",
        f"Steps to solve{where}",
        f"Share of test episodes by number of steps, probe included; {limit} where an episode was "
        "not solved.",
        bars_plot(names, shares, "steps", "share", colours, methods=list(shares)),
    )


def _table(name: str, results: Results, alone: bool) -> Table:
    instances: dict[str, list[EpisodeResult]] = {}
    for episode in results.episodes:
        instances.setdefault(episode.instance, []).append(episode)
    rows = [
        (
            instance,
            count(len(played)),
            number(_mean([e.total for e in played])),
            number(_mean([e.steps_to_solve for e in played])),
            percent(_mean([e.solved for e in played])),
            number(_mean([e.normalised for e in played])),
            number(_mean([e.uncertainty for e in played])),
            number(_mean([e.novelty for e in played])),
            count(sum(e.flagged for e in played)),
        )
        for instance, played in instances.items()
    ]
    columns = ["instance", "episodes", "return", "steps", "solved", "share"]
    columns += ["uncertainty", "novelty", "flagged"]
    return Table(
        f"Test instances{'' if alone else f': {name}'}",
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
        ("normalised", "share of the achievable return"),
    ):
        if summary[key] is not None:
            parts.append(f"{name} {with_error(summary[key])}")
    parts.append(f"{summary['act_microseconds']:.0f} µs per action")
    text = "; ".join(parts) + "."
    if any(episode.novelty is not None for episode in results.episodes):
        text += " An instance with a novelty below 0.01 is flagged: it differs from those logged."
    return text


def _player(runs: Sequence[Run]) -> list[Block]:
    shown, left_out = playable(runs)
    if not shown:
        if left_out:
            return [Note("The episodes are too long to be played here.")]
        line = "The results hold no observations; evaluate again to play the episodes."
        return [Note(line)] if any(run.agent is not None for run in runs) else []
    more = f" {count(left_out)} other episodes are left out to limit the page's size."
    return [
        Player(
            "Watch an episode",
            "Orange: steps chosen by the probe. Blue: steps chosen by control."
            + (more if left_out else ""),
            shown,
        )
    ]


def _mean(values: Sequence[float | bool | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _ope_estimates(run: Run) -> list[Block]:
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


VALUES = 200_000
"""Most numbers in all episodes of a page; of more episodes, an even selection is shown."""
LARGEST = 40_000
"""Most numbers in one episode; a longer one is left out."""
COLUMNS: dict[str, Any] = {"kind": "columns"}
Four = tuple[float, float, float, float]


def playable(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], int]:
    """Episodes of all runs for the viewer, and how many were left out for lack of space."""
    known = [
        (run, run.agent, episode)
        for run in runs
        if run.results is not None and run.agent is not None
        for episode in run.results.episodes
        if episode.observations is not None
    ]
    small = [entry for entry in known if _size(entry[-1]) <= LARGEST]
    share = min(1.0, VALUES / max(sum(_size(entry[-1]) for entry in small), 1))
    places = np.floor(np.arange(int(len(small) * share)) / share).astype(np.int64)
    shown = [episode_data(*small[place]) for place in places]
    return shown, len(known) - len(shown)


def _size(episode: EpisodeResult) -> int:
    """Numbers that it takes, with its actions, rewards, and some for its names."""
    return sum(len(observation) + 2 for observation in episode.observations or ()) + 40


def episode_data(run: Run, agent: Agent, episode: EpisodeResult) -> dict[str, Any]:
    """One episode, JSON-ready: names, the world, and everything that was seen and done.

    `observations` are columns, `[d][T + 1]`; `actions` `[T]`, or `[T][k]` within `bounds`;
    `rewards` `[T]`; `probe` is how many of the first steps the probe chose, and `known` after how
    many the latent was inferred.
    """
    space = agent.spaces.actions
    bounds = None
    if isinstance(space, Box):
        bounds = {"low": list(space.low), "high": list(space.high)}
    columns = np.array(episode.observations, dtype=np.float64).T
    encoder = getattr(agent.context, "encoder", None)
    probed = sum(phase == "probe" for phase in episode.phases)
    return {
        "run": run.name,
        "instance": episode.instance,
        "episode": episode.episode,
        "scene": scene_of(run, episode.instance, len(columns)),
        "columns": list(agent.spaces.observation_names),
        "action_names": list(agent.spaces.action_names),
        "observations": [numbers(column) for column in columns],
        "bounds": bounds,
        "actions": list(episode.actions),
        "rewards": numbers(episode.rewards),
        "probe": probed,
        "known": max(probed, getattr(encoder, "steps", episode.steps)),
        "moves": run.method in METHODS and METHODS[run.method].moving_latent,
        "latent": None if episode.latent is None else numbers(episode.latent),
        "novelty": None if episode.novelty is None else numbers([episode.novelty])[0],
        "flagged": episode.flagged,
        "solved": episode.solved,
        "terminated": episode.terminated,
    }


def scene_of(run: Run, instance: str, dim: int) -> dict[str, Any]:
    """The scene of an instance; plain columns where it is not known or not valid."""
    family = run.family
    if family is None or family.scene is None or run.results is None:
        return COLUMNS
    # The user wrote the splits and the scene: whatever they raise, the page is still drawn.
    try:
        hiddens = dict(zip(*_split(family, run.results.instances), strict=True))
        return plain_scene(family.scene(hiddens[instance]), dim)
    except Exception:
        return COLUMNS


def _split(family: Family, split: str) -> tuple[list[str], list[dict[str, float]]]:
    return family.instance_ids(split), family.instances(split)


def plain_scene(scene: Mapping[str, Any], dim: int) -> dict[str, Any]:
    """The scene in plain JSON values; ValueError, KeyError or TypeError if it cannot be drawn."""
    kind = scene["kind"]
    if kind == "plane":
        plane: dict[str, Any] = {"kind": kind, "box": _box(scene["box"])}
        plane |= {name: _column(scene[name], dim) for name in ("x", "y")}
        if scene.get("goal") is not None:
            plane["goal"] = _box(scene["goal"])
        plane["walls"] = [_wall(wall) for wall in scene.get("walls", ())]
        return plane
    if kind == "links":
        lengths = [_number(value) for value in scene["lengths"]]
        angles = [_column(value, dim) for value in scene["angles"]]
        if len(lengths) != len(angles) or not sum(abs(length) for length in lengths):
            raise ValueError("each link needs a length and an angle")
        links: dict[str, Any] = {"kind": kind, "lengths": lengths, "angles": angles}
        return links | ({"goal": _number(scene["goal"])} if "goal" in scene else {})
    if kind == "doses":
        drugs = [str(name) for name in scene["drugs"]]
        given = [[bool(dose) for dose in row] for row in scene["given"]]
        if any(len(row) != len(drugs) for row in given):
            raise ValueError("each action needs true or false for each drug")
        return {"kind": kind, "drugs": drugs, "given": given}
    raise ValueError(f"there is no scene {kind!r}")


def _wall(wall: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {"line": _four(wall["line"])}
    for name in ("from", "to"):
        if wall.get(name) is not None:
            plain[name] = operator.index(wall[name])
    return plain


def _box(values: Sequence[Any]) -> Four:
    x0, x1, y0, y1 = _four(values)
    if not (x0 < x1 and y0 < y1):
        raise ValueError("the bounds of a box must be in ascending order")
    return x0, x1, y0, y1


def _four(values: Sequence[Any]) -> Four:
    a, b, c, d = (_number(value) for value in values)
    return a, b, c, d


def _column(value: Any, dim: int) -> int:
    index = operator.index(value)
    if not 0 <= index < dim:
        raise ValueError(f"there are {dim} columns")
    return index


def _number(value: Any) -> float:
    plain = float(value)
    if not math.isfinite(plain):
        raise ValueError("numbers must be finite")
    return plain
