"""`sept-offline import`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from sept_offline.cli.completing import DATASET, FILE
from sept_offline.cli.console import ConsoleProgress, print_json
from sept_offline.cli.options import json_option, quiet_option


@click.command(name="import")
@click.argument("source", type=DATASET, nargs=-1, required=True)
@click.option("-o", "--out", type=FILE, required=True, help="The dataset: x.h5 or x.parquet.")
@click.option("--mapping", type=FILE, help="A TOML file with the names below as keys.")
@click.option("--instance", help="Column of the instance, or @file: each file is one.")
@click.option("--episode", help="Column of the episode's id; several, a,b, that tell it together.")
@click.option("--time", "time_", help="Column of numbers or timestamps; without it, row order.")
@click.option("--observations", help="Columns a,b,c, or one column of lists.")
@click.option("--next-observations", help="Columns of the observation after the step.")
@click.option("--action", help="Column of the action: labels or whole numbers.")
@click.option("--reward", help="Column of the reward.")
@click.option("--terminated", help="Column of the flag: the task ended here.")
@click.option("--truncated", help="Column of the flag: watching ended here.")
@click.option("--probability", help="Column: the behaviour's probability of the action it took.")
@click.option("--probabilities", help="Columns: of every action, in the order of --actions.")
@click.option("--actions", help="All action labels, in order; found in the data if not given.")
@click.option("--bins", type=click.IntRange(min=2), help="Cut a continuous action at quantiles.")
@click.option(
    "--fill",
    multiple=True,
    metavar="COLUMN=RULE",
    help="Missing values: previous, zero, mean, a value, or two in turn: previous,mean; COLUMN may "
    "be 'observations'.",
)
@click.option(
    "--keep-terminal",
    is_flag=True,
    help="Where no final observation is logged, keep terminated episodes' last step.",
)
@click.option("--drop-unrewarded", is_flag=True, help="Leave out episodes without any reward.")
@click.option("--delimiter", help="Of CSV; a comma, or a tab in .tsv, if not given.")
@click.option("--quoted-newlines", is_flag=True, help="Quoted text in CSV may run over lines.")
@click.option("--probe-steps", type=click.IntRange(min=1), help="First steps an agent probes in.")
@json_option
@quiet_option
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
    """Write logged steps as a dataset, with a card beside it that says what was found and done.

    SOURCE is CSV or Parquet with one row a step (files, 'patterns*.csv' or directories), HDF5 as
    D4RL has it, a replay buffer dumped by d3rlpy, or minari:NAME. A column named as its option is
    need not be named again.

    \b
    Example:
      sept-offline import wards/*.csv -o wards.h5 --instance ward --episode stay --time hour
        --observations pulse,pressure --action drug --reward score --terminated discharged
    """
    from sept_offline.data.importing import import_logs, mapping_from

    rules: dict[str, str] = {}
    for rule in fill:
        column, sign, text = rule.partition("=")
        if not sign or not column or not text:
            raise click.UsageError(f"--fill {rule} is not of the form COLUMN=RULE.")
        if column in rules:
            raise click.UsageError(
                f"--fill names {column!r} twice; say it once, as in --fill {column}=previous,mean, "
                "which takes the mean where there is nothing before."
            )
        rules[column] = text
    said = {name: value for name, value in options.items() if value not in (None, False)}
    whole = mapping_from({**said, "time": time_, "fill": rules}, mapping)
    began = time.monotonic()
    done = import_logs(source, out, whole, ConsoleProgress(quiet))
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
