"""The commands on datasets: `inspect`, `validate`, `convert`, `merge`, `import`, `demarcate`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sept_offline.cli.console import ConsoleProgress, plain, print_json, print_table, working
from sept_offline.cli.parameters import (
    DATASET,
    FILE,
    Choice,
    count_option,
    output_options,
    seed_option,
)

if TYPE_CHECKING:
    from sept_offline.data import Dataset, InstanceSummary, Summary
    from sept_offline.tools.demarcate import Demarcation

COLUMNS = 6
"""Columns with one row per step: observations, actions, rewards, propensities, two end flags."""


@click.command()
@click.argument("dataset", type=DATASET)
@count_option("--probe-steps", help="Length of an initial segment (default: the dataset's, or 5).")
@output_options
def inspect(dataset: str, probe_steps: int | None, as_json: bool, quiet: bool) -> None:
    """Summarise the instances, returns and actions of DATASET.

    The summary includes the coverage of initial segments, and warnings.

    \b
    Example:
      sept-offline inspect nav.h5
    """
    from sept_offline.data import inspect as summarise

    with working(f"reading {dataset}", quiet):
        summary = summarise(dataset, probe_steps)
    if as_json:
        print_json(summary.to_json())
        return
    family = summary.family or "no family named"
    print_table(
        f"{summary.path} · {family} · content {summary.content_hash[:16]}",
        ["instance", "episodes", "steps", "return", "length", "ended", "actions", "cover", "ESS"],
        [
            [
                row.instance,
                row.episodes,
                row.steps,
                row.return_mean,
                row.length_mean,
                f"{row.terminated:.0%}",
                _actions(row),
                f"{row.coverage:.0%}",
                row.effective_sample_size,
            ]
            for row in summary.table
        ],
    )
    named = ", ".join(f"{plain(name)} {count:,}" for name, count in summary.behaviours.items())
    click.echo(
        f"{summary.episodes:,} episodes, {summary.steps:,} steps of {summary.instances} instances; "
        f"episodes by behaviour: {named}"
    )
    click.echo(
        f"ended: share that terminated; cover: {_cover(summary)}; ESS: effective sample size of a "
        "uniform probe"
    )
    for warning in summary.warnings:
        click.echo(f"Warning: {warning}")


def _actions(row: InstanceSummary) -> str:
    """The share of each action, or the mean and deviation of each component."""
    shares = [f"{share:.2f}" for share in row.action_frequencies]
    spreads = zip(row.action_means, row.action_deviations, strict=True)
    return " ".join([*shares, *(f"{mean:.2f}±{deviation:.2f}" for mean, deviation in spreads)])


def _cover(summary: Summary) -> str:
    if summary.num_actions is None:
        return f"range of the actions seen in the first {summary.probe_steps} steps"
    return f"initial action sequences of {summary.probe_steps} steps seen"


@click.command()
@click.argument("dataset", type=DATASET)
@count_option("--probe-steps", help="Warn about shorter episodes (default: the dataset's length).")
@output_options
def validate(dataset: str, probe_steps: int | None, as_json: bool, quiet: bool) -> None:
    """Check every value of DATASET.

    The exit code is 2 if there is a problem.

    \b
    Example:
      sept-offline validate nav.h5
    """
    from sept_offline.data import validate as check

    with _counting_rows(dataset, quiet, "checking") as count:
        report = check(dataset, probe_steps, progress=count)
    if as_json:
        print_json(report.to_json())
    else:
        for problem in report.problems:
            click.echo(f"{problem.kind} × {problem.count:,} at {problem.where}: {problem.message}")
    if not report.ok:
        report.raise_if_bad()
    if not as_json:
        click.echo(f"{report.path} is valid.")


@click.command()
@click.argument("source", type=DATASET)
@click.argument("target", type=FILE)
@output_options
def convert(source: str, target: Path, as_json: bool, quiet: bool) -> None:
    """Convert SOURCE to TARGET, HDF5 to Parquet or back.

    The content hash stays the same.

    \b
    Example:
      sept-offline convert nav.h5 nav.parquet
    """
    from sept_offline.data import convert as translate

    with _counting_rows(source, quiet, "converting") as count:
        content = translate(source, target, progress=count)
    if as_json:
        print_json({"path": str(target), "content_hash": content})
    else:
        click.echo(f"{target}: content {content[:16]}, as {source}")


@click.command()
@click.argument("datasets", type=DATASET, nargs=-1, required=True)
@click.option("-o", "--out", required=True, type=FILE, help="Output file: x.h5 or x.parquet.")
@click.option(
    "--separate",
    is_flag=True,
    help="Treat equal ids in two files as different instances; prefix ids with the file's name.",
)
@output_options
def merge(datasets: tuple[str, ...], out: Path, separate: bool, as_json: bool, quiet: bool) -> None:
    """Write the episodes of several DATASETS to one file.

    The datasets must have the same actions, observed columns and family. An id that occurs in two
    files is treated as one instance; contradicting hidden parameters are an error. Unknown
    probabilities stay unknown.

    \b
    Example:
      sept-offline merge nav.h5 more.parquet -o all.h5
    """
    from sept_offline.data import merge as join

    with join(datasets, out, separate=separate, progress=ConsoleProgress(quiet)) as data:
        print_dataset(out, data, as_json)


def print_dataset(path: object, data: Dataset, as_json: bool, seconds: float | None = None) -> None:
    """Say what a new dataset contains, and how long that took."""
    if as_json:
        print_json(
            {
                "path": str(path),
                "content_hash": data.content_hash,
                "instances": len(data.instances),
                "episodes": data.num_episodes,
                "steps": data.num_steps,
                **({} if seconds is None else {"seconds": round(seconds, 3)}),
            }
        )
        return
    took = "" if seconds is None else f" in {seconds:.1f} s"
    click.echo(
        f"{path}: {data.num_episodes:,} episodes, {data.num_steps:,} steps of "
        f"{len(data.instances)} instances{took}; content {data.content_hash[:16]}"
    )


@contextlib.contextmanager
def _counting_rows(path: str, quiet: bool, title: str) -> Iterator[Callable[[str, int], None]]:
    """A progress bar over all columns of a dataset, which may be too damaged to give its size."""
    from sept_offline.data import load_dataset
    from sept_offline.errors import DataError

    total, seen = 1, 0
    with contextlib.suppress(DataError), load_dataset(path) as data:
        total = max(1, COLUMNS * data.num_steps)
    progress = ConsoleProgress(quiet)

    def count(_: str, rows: int) -> None:
        nonlocal seen
        seen += rows
        progress.update(min(seen, total))

    progress.start(title, total)
    yield count
    progress.update(total)
    progress.finish()


@click.command(name="import")
@click.argument("source", type=DATASET, nargs=-1, required=True)
@click.option("-o", "--out", type=FILE, required=True, help="Output dataset: x.h5 or x.parquet.")
@click.option("--mapping", type=FILE, help="TOML file with the option names below as keys.")
@click.option("--instance", help="Column of the instance, or @file: one instance per file.")
@click.option(
    "--episode",
    help="Column of the episode's id, a,b if several identify it, or @file: one episode per file.",
)
@click.option("--time", "time_", help="Column of numbers or timestamps (default: row order).")
@click.option("--observations", help="Columns a,b,c; Parquet columns may be lists.")
@click.option("--next-observations", help="Columns of the observation after the step.")
@click.option("--action", help="Column of the action: labels or integers; a,b,c is a vector.")
@click.option("--continuous", is_flag=True, help="A single action column is a number, not a label.")
@click.option("--action-low", help="Lower bound of each component (default: from the data).")
@click.option("--action-high", help="Upper bound of each component (default: from the data).")
@click.option("--reward", help="Column of the reward.")
@click.option("--terminated", help="Column of a flag: the task ended at this step.")
@click.option("--truncated", help="Column of a flag: the recording ended at this step.")
@click.option("--probability", help="Column of the behaviour's probability of the logged action.")
@click.option(
    "--probabilities", help="Columns with the probability of every action, as in --actions."
)
@click.option("--density", help="Column of the behaviour's density of a continuous action.")
@click.option("--log-density", help="Column of the logarithm of that density, instead of it.")
@click.option("--actions", help="All action labels, in order (default: those in the data).")
@count_option("--bins", least=2, help="Bin a continuous action at quantiles.")
@click.option(
    "--fill",
    multiple=True,
    metavar="COLUMN=RULE",
    help="Rule for missing values: previous, zero, mean, a value, or previous with a fallback, "
    "previous,mean. COLUMN may be 'observations'.",
)
@click.option(
    "--keep-terminal",
    is_flag=True,
    help="Keep the last step of terminated episodes without a logged final observation.",
)
@click.option("--drop-unrewarded", is_flag=True, help="Drop episodes without any reward.")
@click.option("--delimiter", help="CSV delimiter (default: comma, or tab in .tsv).")
@click.option("--quoted-newlines", is_flag=True, help="Allow line breaks in quoted CSV text.")
@count_option("--probe-steps", help="Probe length; keep it short: 1 to 8.")
@output_options
def import_(
    source: tuple[str, ...],
    out: Path,
    mapping: Path | None,
    time_: str | None,
    fill: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Convert logged steps to a dataset.

    SOURCE is CSV or Parquet with one row per step (files, 'patterns*.csv' or directories),
    D4RL-style HDF5, a replay buffer dumped by d3rlpy, or minari:NAME. A column with the same name
    as its option is found automatically. A card next to the dataset records every repair.

    \b
    Example:
      sept-offline import wards/*.csv -o wards.h5 --instance ward --episode stay --time hour
        --observations pulse,pressure --action drug --reward score --terminated discharged
    """
    from sept_offline.tools.importing import import_logs, mapping_from

    rules: dict[str, str] = {}
    for rule in fill:
        column, sign, text = rule.partition("=")
        if not sign or not column or not text:
            raise click.UsageError(f"--fill {rule} is not of the form COLUMN=RULE.")
        if column in rules:
            raise click.UsageError(
                f"--fill names {column!r} twice; name it once, as in "
                f"--fill {column}=previous,mean, which uses the mean if there is no previous value."
            )
        rules[column] = text
    given = {name: value for name, value in options.items() if value not in (None, False)}
    columns = mapping_from({**given, "time": time_, "fill": rules}, mapping)
    began = time.monotonic()
    done = import_logs(source, out, columns, ConsoleProgress(quiet))
    seconds = time.monotonic() - began
    card = done.card
    if as_json:
        print_json(
            {
                "path": str(done.path),
                "card": str(done.card_path),
                "content_hash": done.content_hash,
                "instances": card["instances"],
                "episodes": card["episodes"],
                "steps": card["steps"],
                "actions": list(card["actions"]),
                "filled": card["filled"],
                "done": card["done"],
                "confounding": card["confounding"],
                "warnings": done.warnings,
                "seconds": seconds,
            }
        )
        return
    click.echo(
        f"{out}: {card['episodes']:,} episodes, {card['steps']:,} steps of {card['instances']:,} "
        f"instances; content {done.content_hash[:16]}; see {done.card_path}"
    )
    for warning in done.warnings:
        click.echo(f"Warning: {warning}")


@click.command()
@click.argument("dataset", type=DATASET)
@click.option(
    "-o", "--out", type=FILE, help="Output dataset with labels (default: print a report only)."
)
@click.option("--within", is_flag=True, help="Split DATASET's instances, never merge them.")
@count_option(
    "--smallest",
    least=2,
    help="Minimum episodes per group (default: 5, or 5 % of all if that is more).",
)
@click.option(
    "--unsure",
    type=Choice(["nearest", "drop"]),
    default="nearest",
    show_default=True,
    help="Episodes that fit no group, or two equally well: assign to the most likely, or drop.",
)
@count_option("--updates", default=1500, help="Gradient steps for the episodes' latents.")
@click.option("--force", is_flag=True, help="Write labels even if the logs do not support them.")
@seed_option
@output_options
def demarcate(
    dataset: str,
    out: Path | None,
    within: bool,
    force: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
    **settings: Any,
) -> None:
    """Propose instance labels for the episodes of DATASET.

    For logs without instance labels; the labels are inferred from the dynamics alone. Each episode
    must belong to one instance; the number of instances is estimated. If the logs do not support
    any labels, the exit code is 2 and no file is written.

    \b
    Example:
      sept-offline demarcate nav.h5 -o labelled.h5 --updates 60
    """
    from sept_offline.settings import DemarcateConfig
    from sept_offline.tools.demarcate import demarcate_dataset

    proposal = demarcate_dataset(
        dataset,
        out,
        DemarcateConfig(**settings),
        seed=seed,
        within=within,
        force=force,
        progress=ConsoleProgress(quiet),
    )
    if as_json:
        shown = {key: value for key, value in proposal.record.items() if key != "settings"}
        path = None if proposal.path is None else str(proposal.path)
        print_json({"path": path, **shown, "reasons": list(proposal.reasons)})
    else:
        _print_demarcation(dataset, proposal)
    if not proposal.supported and not force:
        raise click.exceptions.Exit(2)


def _print_demarcation(dataset: str, proposal: Demarcation) -> None:
    from sept_offline.tools.demarcate.demarcation import FATE

    record = proposal.record
    print_table(
        f"{dataset} · {record['episodes']:,} episodes",
        ["proposed instance", "episodes"],
        [[name, size] for name, size in record["sizes"].items()],
    )
    separation = record["separation"]
    click.echo(
        f"groups found: {record['groups']} "
        f"({record['half_groups'][0]} and {record['half_groups'][1]} in independent halves); "
        f"stability {record['stability']:.3f}"
        + ("" if separation is None else f"; separation {separation:.3f} nats per step")
    )
    click.echo(f"unsure episodes: {record['unsure']:,}, {FATE[record['settings']['unsure']]}")
    if proposal.supported:
        click.echo("The logs support these instances, but they are proposals, not ground truth.")
    else:
        click.echo("The logs do not support instance labels:")
        for reason in proposal.reasons:
            click.echo(f"  {reason}")
    if proposal.path is not None:
        click.echo(f"Wrote {proposal.path}; see {proposal.card_path}")
    elif not proposal.supported:
        click.echo("Nothing was written; --force writes the labels anyway.")
