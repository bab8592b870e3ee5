"""`sept-offline demarcate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sept_offline.cli.completers import DATASET, FILE, Choice
from sept_offline.cli.console import ConsoleProgress, print_json, print_table
from sept_offline.cli.options import json_option, quiet_option

if TYPE_CHECKING:
    from sept_offline.settings import Unsure
    from sept_offline.tools.demarcate import Demarcation


@click.command()
@click.argument("dataset", type=DATASET)
@click.option(
    "-o", "--out", type=FILE, help="Output dataset with labels (default: print a report only)."
)
@click.option("--within", is_flag=True, help="Split DATASET's instances, never merge them.")
@click.option(
    "--smallest",
    type=click.IntRange(min=2),
    help="Minimum episodes per group (default: 5, or 5 % of all if that is more).",
)
@click.option(
    "--unsure",
    type=Choice(["nearest", "drop"]),
    default="nearest",
    show_default=True,
    help="Episodes that fit no group, or two equally well: assign to the most likely, or drop.",
)
@click.option(
    "--updates",
    type=click.IntRange(min=1),
    default=1500,
    show_default=True,
    help="Gradient steps for the episodes' latents.",
)
@click.option("--force", is_flag=True, help="Write labels even if the logs do not support them.")
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
    """Propose instance labels for the episodes of DATASET, from their dynamics alone.

    For logs without instance labels. Each episode must belong to one instance; the number of
    instances is estimated. If the logs do not support any labels, the exit code is 2 and no file is
    written.

    \b
    Example:
      sept-offline demarcate nav.h5 -o labelled.h5 --updates 60
    """
    from sept_offline.settings import DemarcateConfig
    from sept_offline.tools.demarcate import demarcate_dataset

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
    from sept_offline.tools.demarcate.demarcation import FATE

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
        + ("" if separation is None else f"; separation {separation:.3f} nats per step")
    )
    click.echo(f"unsure episodes: {record['unsure']:,}, {FATE[record['settings']['unsure']]}")
    if found.supported:
        click.echo("The logs support these instances, but they are proposals, not ground truth.")
    else:
        click.echo("The logs do not support instance labels:")
        for reason in found.reasons:
            click.echo(f"  {reason}")
    if found.path is not None:
        click.echo(f"Wrote {found.path}; see {found.card_path}")
    elif not found.supported:
        click.echo("Nothing was written; --force writes the labels anyway.")
