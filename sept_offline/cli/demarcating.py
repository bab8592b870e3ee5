"""`sept-offline demarcate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sept_offline.cli.completing import DATASET, FILE, Choice
from sept_offline.cli.console import ConsoleProgress, print_json, print_table
from sept_offline.cli.options import json_option, quiet_option

if TYPE_CHECKING:
    from sept_offline.demarcate import Demarcation
    from sept_offline.demarcate.config import Unsure


@click.command()
@click.argument("dataset", type=DATASET)
@click.option("-o", "--out", type=FILE, help="The labelled dataset; without it, only a report.")
@click.option("--within", is_flag=True, help="Divide DATASET's instances, and never join them.")
@click.option(
    "--smallest",
    type=click.IntRange(min=2),
    help="Episodes of the smallest group; 5, or 5 % of all, by default.",
)
@click.option(
    "--unsure",
    type=Choice(["nearest", "drop"]),
    default="nearest",
    show_default=True,
    help="Episodes that fit no group, or two alike: given to the likeliest, or left out.",
)
@click.option(
    "--updates",
    type=click.IntRange(min=1),
    default=1500,
    show_default=True,
    help="Of the episodes' latents.",
)
@click.option("--force", is_flag=True, help="Write labels that the logs do not support, too.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@json_option
@quiet_option
def demarcate(
    dataset: str,
    out: Path | None,
    within: bool,
    smallest: int | None,
    unsure: Unsure,
    updates: int,
    force: bool,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Propose instances for the episodes of DATASET, by their dynamics alone.

    For logs whose borders between instances are unknown: each episode has one instance, but which
    episodes share one is not known. How many there are is found. Exit code 2, and no file, where
    the logs do not support any labels.

    \b
    Example:
      sept-offline demarcate nav.h5 -o labelled.h5 --updates 60
    """
    from sept_offline.demarcate import DemarcateConfig, demarcate_dataset

    found = demarcate_dataset(
        dataset,
        out,
        DemarcateConfig(smallest=smallest, unsure=unsure, updates=updates),
        seed=seed,
        within=within,
        force=force,
        progress=ConsoleProgress(quiet),
    )
    if as_json:
        shown = {key: value for key, value in found.record.items() if key != "settings"}
        path = None if found.path is None else str(found.path)
        print_json({"path": path, **shown, "reasons": list(found.reasons)})
    else:
        _print(dataset, found)
    if not found.supported and not force:
        raise click.exceptions.Exit(2)


def _print(dataset: str, found: Demarcation) -> None:
    from sept_offline.demarcate.labels import FATE

    record = found.record
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
        + ("" if separation is None else f"; separation {separation:.3f} nats a step")
    )
    click.echo(f"unsure episodes: {record['unsure']:,}, {FATE[record['settings']['unsure']]}")
    if found.supported:
        click.echo("The logs support these instances; they are proposals, and known to be no more.")
    else:
        click.echo("The logs do not support a division into instances:")
        for reason in found.reasons:
            click.echo(f"  {reason}")
    if found.path is not None:
        click.echo(f"{found.path} is written; see {found.card_path}")
    elif not found.supported:
        click.echo("Nothing is written; --force writes the labels all the same.")
