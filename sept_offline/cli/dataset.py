"""`sept-offline inspect`, `validate`, `convert` and `merge`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sept_offline.cli.completers import DATASET, FILE
from sept_offline.cli.console import (
    ConsoleProgress,
    RowCounter,
    plain,
    print_json,
    print_table,
    working,
)
from sept_offline.cli.options import json_option, quiet_option

if TYPE_CHECKING:
    from sept_offline.data import InstanceSummary, Summary

COLUMNS = 6
"""Columns with one row per step: observations, actions, rewards, propensities, two end flags."""


@click.command()
@click.argument("dataset", type=DATASET)
@click.option("--probe-steps", type=click.IntRange(min=1), help="Length of an initial segment.")
@json_option
@quiet_option
def inspect(dataset: str, probe_steps: int | None, as_json: bool, quiet: bool) -> None:
    """Summarise DATASET: instances, returns, actions, coverage of initial segments.

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
@click.option("--probe-steps", type=click.IntRange(min=1), help="Warn about shorter episodes.")
@json_option
@quiet_option
def validate(dataset: str, probe_steps: int | None, as_json: bool, quiet: bool) -> None:
    """Check every value of DATASET; exit code 2 if there is a problem.

    \b
    Example:
      sept-offline validate nav.h5
    """
    from sept_offline.data import validate as check

    rows = _count_rows(dataset, quiet, "checking")
    report = check(dataset, probe_steps, progress=rows)
    rows.finish()
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
@json_option
@quiet_option
def convert(source: str, target: Path, as_json: bool, quiet: bool) -> None:
    """Convert SOURCE to TARGET, HDF5 to Parquet or back; the content hash stays the same.

    \b
    Example:
      sept-offline convert nav.h5 nav.parquet
    """
    from sept_offline.data import convert as translate

    rows = _count_rows(source, quiet, "converting")
    content = translate(source, target, progress=rows)
    rows.finish()
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
@json_option
@quiet_option
def merge(datasets: tuple[str, ...], out: Path, separate: bool, as_json: bool, quiet: bool) -> None:
    """Write the episodes of several DATASETS of one system to one file.

    They must agree in actions, observed columns and family. An id that occurs in two files is one
    instance, and its hidden parameters must agree if both files have them. Unknown probabilities
    stay unknown.

    \b
    Example:
      sept-offline merge nav.h5 more.parquet -o all.h5
    """
    from sept_offline.data import merge as join

    with join(datasets, out, separate=separate, progress=ConsoleProgress(quiet)) as data:
        if as_json:
            print_json(
                {
                    "path": str(out),
                    "content_hash": data.content_hash,
                    "instances": len(data.instances),
                    "episodes": data.num_episodes,
                    "steps": data.num_steps,
                }
            )
        else:
            click.echo(
                f"{out}: {data.num_episodes:,} episodes, {data.num_steps:,} steps of "
                f"{len(data.instances)} instances; content {data.content_hash[:16]}"
            )


def _count_rows(path: str, quiet: bool, title: str) -> RowCounter:
    """A progress bar over all columns of a dataset, which may be too damaged to give its size."""
    from sept_offline.data import load_dataset
    from sept_offline.errors import DataError

    try:
        with load_dataset(path) as data:
            rows = COLUMNS * data.num_steps
    except DataError:
        rows = 0
    return RowCounter(ConsoleProgress(quiet), title, rows)
