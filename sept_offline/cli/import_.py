"""`sept-offline import`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from sept_offline.cli.completers import DATASET, FILE
from sept_offline.cli.console import ConsoleProgress, print_json
from sept_offline.cli.options import json_option, quiet_option


@click.command(name="import")
@click.argument("source", type=DATASET, nargs=-1, required=True)
@click.option("-o", "--out", type=FILE, required=True, help="Output dataset: x.h5 or x.parquet.")
@click.option("--mapping", type=FILE, help="TOML file with the option names below as keys.")
@click.option("--instance", help="Column of the instance, or @file: one instance per file.")
@click.option("--episode", help="Column of the episode's id, or several that identify it: a,b.")
@click.option("--time", "time_", help="Column of numbers or timestamps (default: row order).")
@click.option("--observations", help="Columns a,b,c, or one column of lists.")
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
@click.option("--bins", type=click.IntRange(min=2), help="Bin a continuous action at quantiles.")
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
@click.option(
    "--probe-steps", type=click.IntRange(min=1), help="Probe length; keep it short: 1 to 8."
)
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
    """Convert logged steps to a dataset, with a card that records every repair.

    SOURCE is CSV or Parquet with one row per step (files, 'patterns*.csv' or directories),
    D4RL-style HDF5, a replay buffer dumped by d3rlpy, or minari:NAME. A column with the same name
    as its option is found automatically.

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
                f"--fill names {column!r} twice; name it once, as in "
                f"--fill {column}=previous,mean, which uses the mean if there is no previous value."
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
