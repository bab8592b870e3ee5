"""`sept-offline evaluate` and `ope`: what an agent earns, in a simulator or judged from logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sept_offline.cli.console import ConsoleProgress, print_json, print_table, working
from sept_offline.cli.parameters import (
    DATASET,
    FILE,
    FOLDER,
    check_run,
    check_run_and_dataset,
    count_option,
    name_option,
    one_of,
    output_options,
    seed_option,
    typed_object,
)
from sept_offline.errors import DataError
from sept_offline.family import SPLITS, family_names

if TYPE_CHECKING:
    from sept_offline.evaluation import ReferencePolicies, Results
    from sept_offline.tools.ope import Judgement

FEW = 24
"""Maximum number of episodes to show one by one; beyond that, one row per instance."""
CHOSEN = (
    "random and constant actions run in the same episodes; the best constant is chosen on these "
    "instances, so it is an optimistic reference"
)
COMPARED = (
    *("method", "needs", "learns", "episodes", "solved", "steps", "paper", "return"),
    *("normalised", "µs"),
)
"""Columns of a comparison."""


@click.command()
@click.argument("runs", type=FOLDER, nargs=-1, required=True)
@click.option(
    "--family",
    shell_complete=one_of(family_names),
    callback=typed_object,
    help="Registered name or package.module:object (default: the dataset's family, if registered).",
)
@name_option("--instances", lambda: SPLITS, "Split to evaluate on.", default="test")
@count_option("--episodes-per-instance", default=1, help="Episodes per test instance.")
@count_option("--max-steps", help="Maximum steps per episode (default: the family's).")
@seed_option
@click.option("-o", "--out", type=FILE, help="File for all steps: x.parquet or x.json.")
@click.option(
    "--no-references",
    is_flag=True,
    help="Skip the reference policies: random actions and the best constant action.",
)
@output_options
def evaluate(
    runs: tuple[Path, ...],
    out: Path | None,
    no_references: bool,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Run agents for exactly one episode per test instance.

    RUNS are run directories of `fit`; several are shown in one table. An agent sees only
    observations, unless it declares that it needs more, which the table shows. An episode that ends
    during the probe counts. The run stores its last evaluation for `report`. Two reference policies
    run in the same episodes: random actions, and the constant action that is best in these
    instances, out of all actions or a grid of continuous ones.

    \b
    Example:
      sept-offline evaluate runs/nav --instances test -o results.parquet
    """
    if out is not None and out.suffix not in (".parquet", ".json"):
        raise DataError(
            f"Cannot write results to {out}; choose a name that ends in .parquet or .json."
        )
    if out is not None and len(runs) > 1:
        raise DataError(
            f"One file cannot contain the results of {len(runs)} runs; evaluate them one by one."
        )
    for run in runs:
        check_run(run)
    from sept_offline.agent import load_agent
    from sept_offline.evaluation import evaluate as run_harness
    from sept_offline.methods.run import EVALUATED

    agents = [load_agent(run) for run in runs]
    every: list[Results] = []
    for run, agent in zip(runs, agents, strict=True):
        results = run_harness(agent, progress=ConsoleProgress(quiet), **options)
        _store(run, EVALUATED, results.write, "results", quiet)  # at once: a later run may fail
        every.append(results)
    if out is not None:
        every[0].write(out)
    references = {} if no_references else _play_references(every, quiet)
    if as_json:
        summaries = [
            results.summary()
            | (references[results.family].to_json() if results.family in references else {})
            for results in every
        ]
        print_json(summaries[0] if len(every) == 1 else {"runs": summaries})
    elif len(every) > 1:
        each = options["episodes_per_instance"]
        _print_comparisons(list(zip(runs, every, strict=True)), each, references)
    else:
        _print_results(every[0])
        if every[0].family in references:
            _print_references(references[every[0].family])
        if out is not None:
            click.echo(f"{out}: {len(every[0].episodes):,} episodes, with every step")


def _store(run: Path, name: str, write: Callable[[Path], object], what: str, quiet: bool) -> None:
    """Write a file in the run directory for `report`; print a message if that fails."""
    from sept_offline.files import refuse_links

    if not (run / "run.json").is_file():
        return
    try:
        refuse_links(run, [name])
        write(run / name)
    except DataError as problem:
        ConsoleProgress(quiet).message(f"Cannot store the {what} in the run: {problem}")


def _play_references(every: list[Results], quiet: bool) -> dict[str, ReferencePolicies]:
    """Results of the reference policies in the episodes of each family, by name."""
    from sept_offline.evaluation import play_references

    with working("running random and constant actions", quiet):
        return {
            name: play_references(results)
            for name, results in {results.family: results for results in every}.items()
        }


def _print_results(results: Results) -> None:
    from sept_offline.evaluation.results import statistics

    needs = ", ".join(results.needs) or "only observations"
    if results.learns:
        needs += " · learns in its episode"
    print_table(
        f"{results.method} · {results.family} · {results.instances} · needs {needs}",
        ["instance", "episodes", "return", "steps", "solved", "normalised", "novelty", "flagged"],
        _rows(results),
    )
    if results.behaviour_estimated:
        click.echo("The behaviour's probabilities were not logged and were estimated.")
    summary = results.summary()
    parts = [f"{summary['episodes']:,} episodes of at most {results.limit:,} steps"]
    parts += _scores(summary)
    parts.append(f"{summary['act_microseconds']:.0f} µs per action")
    click.echo("; ".join(parts))
    counted = statistics([episode.normalised for episode in results.episodes])
    if counted is not None and counted["count"] != len(results.episodes):
        click.echo(
            f"normalised: mean over {counted['count']} episodes; in the other instances the random "
            "and reference returns are unknown or nearly equal"
        )


def _print_references(references: ReferencePolicies) -> None:
    """Print one line per reference policy, in the same format as the agent's."""
    for label, results in _labelled(references):
        click.echo(f"{label}: {'; '.join(_scores(results.summary()))}")
    click.echo(CHOSEN)


def _labelled(references: ReferencePolicies) -> list[tuple[str, Results]]:
    return [
        ("random", references.random),
        (
            f"best of {references.constants} constant actions ({_action(references.action)})",
            references.best_constant,
        ),
    ]


def _action(action: int | list[float]) -> str:
    """An action in few digits: float32 numbers have many as Python's own."""
    if isinstance(action, int):
        return str(action)
    return f"[{', '.join(f'{number:.4g}' for number in action)}]"


def _scores(summary: dict[str, Any]) -> list[str]:
    parts = []
    if summary["solved"] is not None:
        parts.append(f"{summary['solved']:.1%} solved")
    for name in ("steps_to_solve", "return", "normalised"):
        if summary[name] is not None:
            parts.append(f"{name.replace('_', ' ')} {_with_error(summary[name], digits=3)}")
    return parts


def _print_comparisons(
    every: list[tuple[Path, Results]], each: int, references: dict[str, ReferencePolicies]
) -> None:
    """Print one table for each family, of runs with `each` episodes per instance."""
    for name in dict.fromkeys(results.family for _, results in every):
        runs = [(run, results) for run, results in every if results.family == name]
        played = "one episode" if each == 1 else f"{each} episodes"
        rows = [*_compared(runs)]
        if name in references:
            rows += [_comparison(label, results) for label, results in _labelled(references[name])]
        print_table(
            f"{name} · {runs[0][1].instances} · {played} per instance",
            COMPARED,
            [list(row.values()) for row in rows],
        )
    click.echo(
        "steps: steps to solve, or the limit if unsolved; paper: the published figure; "
        "learns: takes gradient steps in the episode"
    )
    if references:
        click.echo(CHOSEN)


def _compared(runs: list[tuple[Path, Results]]) -> Iterator[dict[str, Any]]:
    """The row of each run in one family."""
    from sept_offline.errors import FamilyError
    from sept_offline.family import known_family

    methods = [results.method for _, results in runs]
    for run, results in runs:
        name = results.method + (" (estimated μ)" if results.behaviour_estimated else "")
        if methods.count(results.method) > 1:
            name += f" · {run}"
        try:
            published = known_family(results.family).published.get(results.method)
        except FamilyError:
            published = None
        yield _comparison(name, results) | {
            "needs": ", ".join(results.needs) or None,
            "learns": "yes" if results.learns else None,
            "paper": published,
            "µs": f"{results.summary()['act_microseconds']:.0f}",
        }


def _comparison(name: str, results: Results) -> dict[str, Any]:
    """The cells of a row that every policy has, by column."""
    summary = results.summary()
    return dict.fromkeys(COMPARED) | {
        "method": name,
        "episodes": summary["episodes"],
        "solved": None if summary["solved"] is None else f"{summary['solved']:.1%}",
        "steps": _with_error(summary["steps_to_solve"]),
        "return": _with_error(summary["return"]),
        "normalised": _with_error(summary["normalised"]),
    }


def _with_error(score: dict[str, Any] | None, digits: int = 2) -> str | None:
    if score is None:
        return None
    return f"{score['mean']:,.4g}" + ("" if score["se"] is None else f" ± {score['se']:.{digits}g}")


def _rows(results: Results) -> list[list[Any]]:
    groups: dict[tuple[str, int], list[Any]] = {}
    single = len(results.episodes) <= FEW
    for episode in results.episodes:
        key = (episode.instance, episode.episode if single else 0)
        groups.setdefault(key, []).append(episode)
    return [
        [
            instance,
            len(episodes),
            _mean([e.total for e in episodes]),
            _mean([e.steps for e in episodes]),
            _mean([e.solved for e in episodes]),
            _mean([e.normalised for e in episodes]),
            _mean([e.novelty for e in episodes]),
            sum(e.flagged for e in episodes),
        ]
        for (instance, _), episodes in groups.items()
    ]


def _mean(values: list[Any]) -> float | None:
    there = [float(value) for value in values if value is not None]
    return sum(there) / len(there) if there else None


@click.command()
@click.argument("run", type=FOLDER)
@click.argument("dataset", type=DATASET)
@count_option(
    "--horizon",
    help="Maximum steps per episode (default: the length that half of the episodes reach).",
)
@click.option(
    "--in-sample", is_flag=True, help="Evaluate on all episodes, including training episodes."
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Confidence level of the intervals.",
)
@count_option(
    "--updates", help="Gradient steps of each fitted Q (default: by the horizon, 8000 or more)."
)
@seed_option
@output_options
def ope(
    run: Path,
    dataset: str,
    in_sample: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Estimate the return of the agent in RUN from logs alone.

    The agent is evaluated on held-out episodes (`fit --hold-out`), with probe and control as one
    policy. The estimates are of the mean return of one episode with at most --horizon steps.

    \b
    Example:
      sept-offline ope runs/nav nav.h5 --horizon 20 --updates 100
    """
    check_run_and_dataset(run, dataset)
    from sept_offline.methods.run import JUDGED
    from sept_offline.seals import write_json
    from sept_offline.settings import OpeConfig
    from sept_offline.tools.ope import judge

    judgement = judge(
        run,
        dataset,
        OpeConfig(**settings),
        seed=seed,
        in_sample=in_sample,
        progress=ConsoleProgress(quiet),
    )
    summary = judgement.summary()
    _store(run, JUDGED, lambda path: write_json(path, summary), "result", quiet)
    if as_json:
        print_json(summary)
    else:
        _print_judgement(judgement)


def _print_judgement(judgement: Judgement) -> None:
    from sept_offline.tools.ope import TITLES

    print_table(
        f"{judgement.method} · return of at most {judgement.horizon:,} steps · "
        f"{judgement.episodes:,} episodes of {judgement.instances} instances, "
        f"{judgement.judged_on}",
        ["estimator", "mean", "low", "high", "effective episodes"],
        [
            [TITLES.get(name, name), value.mean, value.low, value.high, round(value.ess, 1)]
            for name, value in judgement.estimators.items()
        ],
    )
    overlap = judgement.overlap
    within = " within instances" if judgement.resampled == "episodes" else ""
    click.echo(
        f"{100 * judgement.confidence:g}% intervals, bootstrap over {judgement.resampled}{within}; "
        f"mean logged return {judgement.logged_return:,.4g}"
    )
    supported = f"{overlap.support:.1%} of its actions have support in the logs"
    if "pdis" in judgement.estimators:
        click.echo(
            f"overlap: the agent agrees with the logged action at {overlap.agreement:.1%} of the "
            f"steps and throughout {overlap.followed:.1%} of the episodes; {supported}; weights "
            f"cover {overlap.covered_steps} of {judgement.horizon} steps"
        )
    else:  # actions of a box are never equal, and have no weights
        click.echo(f"overlap of the agent: {supported}")
    if judgement.behaviour_estimated:
        click.echo("The behaviour's probabilities were not logged and are estimated.")
    quoted = judgement.estimators[judgement.headline]
    click.echo(
        f"verdict: {judgement.verdict}; {TITLES[judgement.headline]}: "
        f"{quoted.mean:,.4g} ({quoted.low:,.4g} … {quoted.high:,.4g})"
    )
    for reason in judgement.reasons:
        click.echo(f"  {reason}")
