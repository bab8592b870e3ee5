"""`sept-offline evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sept_offline.cli.completers import FILE, FOLDER, families, one_of, typed_object
from sept_offline.cli.console import ConsoleProgress, print_json, print_table, working
from sept_offline.cli.names import SPLITS
from sept_offline.cli.options import json_option, quiet_option
from sept_offline.cli.places import check_run

if TYPE_CHECKING:
    from sept_offline.evaluation import ReferencePolicies, Results

FEW = 24
"""Maximum number of episodes to show one by one; beyond that, one row per instance."""
CHOSEN = (
    "random and the best constant action run in the same episodes; the constant is chosen on these "
    "instances, so it is an optimistic reference"
)


@click.command()
@click.argument("runs", type=FOLDER, nargs=-1, required=True)
@click.option(
    "--family",
    shell_complete=families,
    callback=typed_object,
    help="Registered name or package.module:object (default: the dataset's family, if registered).",
)
@click.option(
    "--instances",
    default="test",
    show_default=True,
    shell_complete=one_of(lambda: SPLITS),
    help="Split to evaluate on.",
)
@click.option("--episodes-per-instance", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--max-steps",
    type=click.IntRange(min=1),
    help="Maximum steps per episode (default: the family's).",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("-o", "--out", type=FILE, help="File for all steps: x.parquet or x.json.")
@click.option(
    "--no-references",
    is_flag=True,
    help="Skip the reference policies: random actions and the best constant action.",
)
@json_option
@quiet_option
def evaluate(
    runs: tuple[Path, ...],
    family: str | None,
    instances: str,
    episodes_per_instance: int,
    max_steps: int | None,
    seed: int,
    out: Path | None,
    no_references: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run the agent of each of RUNS for exactly one episode per test instance.

    RUNS are run directories of `fit`; several are shown in one table. The agent sees only
    observations, unless it declares that it needs more, which the table shows. An episode that ends
    during the probe counts. The run stores its last evaluation for `report`. Two reference policies
    run in the same episodes: random actions, and the constant action that is best in these
    instances.

    \b
    Example:
      sept-offline evaluate runs/nav --instances test -o results.parquet
    """
    from sept_offline.errors import DataError

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

    agents = [load_agent(run) for run in runs]
    every = []
    for run, agent in zip(runs, agents, strict=True):
        results = run_harness(
            agent,
            family,
            instances,
            seed=seed,
            episodes_per_instance=episodes_per_instance,
            max_steps=max_steps,
            progress=ConsoleProgress(quiet),
        )
        _keep(results, run, quiet)  # at once: a later run may fail
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
    if len(every) > 1:
        if as_json:
            print_json({"runs": summaries})
        else:
            for name in dict.fromkeys(results.family for results in every):
                own = [
                    (run, results)
                    for run, results in zip(runs, every, strict=True)
                    if results.family == name
                ]
                _print_comparison(own, episodes_per_instance, references.get(name))
            _explain_comparison(bool(references))
        return
    results = every[0]
    if as_json:
        print_json(summaries[0])
        return
    _print_results(results)
    if results.family in references:
        _print_references(references[results.family])
    if out is not None:
        click.echo(f"{out}: {len(results.episodes):,} episodes, with every step")


def _play_references(every: list[Results], quiet: bool) -> dict[str, ReferencePolicies]:
    """Results of the reference policies in the episodes of each family, by name."""
    from sept_offline.evaluation import play_references

    with working("running random and constant actions", quiet):
        return {
            name: play_references(results)
            for name, results in {one.family: one for one in every}.items()
        }


def _keep(results: Results, run: Path, quiet: bool) -> None:
    """Store the results in the run directory; print a message if that fails."""
    from sept_offline.errors import DataError
    from sept_offline.files import refuse_links
    from sept_offline.methods.run import EVALUATED

    if not (run / "run.json").is_file():
        return
    try:
        refuse_links(run, [EVALUATED])
        results.write(run / EVALUATED)
    except DataError as problem:
        ConsoleProgress(quiet).message(f"Cannot store the results in the run: {problem}")


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
        (f"best constant action ({references.action})", references.best_constant),
    ]


def _scores(summary: dict[str, Any]) -> list[str]:
    parts = []
    if summary["solved"] is not None:
        parts.append(f"{summary['solved']:.1%} solved")
    for name in ("steps_to_solve", "return", "normalised"):
        found = summary[name]
        if found is not None:
            error = "" if found["se"] is None else f" ± {found['se']:.3g}"
            parts.append(f"{name.replace('_', ' ')} {found['mean']:,.4g}{error}")
    return parts


def _print_comparison(
    every: list[tuple[Path, Results]], each: int, references: ReferencePolicies | None
) -> None:
    """Print one table of runs in one family, with `each` episodes per instance."""
    from sept_offline.errors import FamilyError
    from sept_offline.family import known_family

    rows = []
    methods = [results.method for _, results in every]
    for run, results in every:
        summary = results.summary()
        name = results.method + (" (estimated μ)" if results.behaviour_estimated else "")
        if methods.count(results.method) > 1:
            name += f" · {run}"
        try:
            published = known_family(results.family).published.get(results.method)
        except FamilyError:
            published = None
        steps, score = summary["steps_to_solve"], summary["normalised"]
        rows.append(
            [
                name,
                ", ".join(results.needs) or "–",
                "yes" if results.learns else "–",
                summary["episodes"],
                None if summary["solved"] is None else f"{summary['solved']:.1%}",
                _with_error(steps),
                published,
                _with_error(summary["return"]),
                _with_error(score),
                f"{summary['act_microseconds']:.0f}",
            ]
        )
    for label, results in [] if references is None else _labelled(references):
        summary = results.summary()
        rows.append(
            [
                label,
                "–",
                "–",
                summary["episodes"],
                None if summary["solved"] is None else f"{summary['solved']:.1%}",
                _with_error(summary["steps_to_solve"]),
                None,
                _with_error(summary["return"]),
                _with_error(summary["normalised"]),
                None,
            ]
        )
    _, first = every[0]
    played = "one episode" if each == 1 else f"{each} episodes"
    print_table(
        f"{first.family} · {first.instances} · {played} per instance",
        [
            "method",
            "needs",
            "learns",
            "episodes",
            "solved",
            "steps",
            "paper",
            "return",
            "normalised",
            "µs",
        ],
        rows,
    )


def _explain_comparison(with_references: bool) -> None:
    click.echo(
        "steps: steps to solve, or the limit if unsolved; paper: the published figure; "
        "learns: takes gradient steps in the episode"
    )
    if with_references:
        click.echo(CHOSEN)


def _with_error(found: dict[str, Any] | None) -> str | None:
    if found is None:
        return None
    return f"{found['mean']:,.4g}" + ("" if found["se"] is None else f" ± {found['se']:.2g}")


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
