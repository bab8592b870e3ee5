"""`sept-offline fit`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from sept_offline.cli.console import ConsoleProgress, interruptible, plain, print_json
from sept_offline.cli.parameters import (
    DATASET,
    FILE,
    FOLDER,
    METHODS,
    PRESETS,
    Choice,
    algorithms,
    check_dataset,
    check_either,
    name_option,
    output_options,
    seed_option,
    settings_option,
)

FEW = 8
"""Maximum number of instances to list by name; beyond that, only their number is shown."""


@click.command()
@click.argument("dataset", type=DATASET)
@name_option("--method", lambda: METHODS, f"{', '.join(METHODS)}.", default="sept")
@name_option(
    "--preset",
    lambda: PRESETS,
    "default; paper: the paper's settings; segment: the paper's stages adapted to logs.",
    default="default",
)
@click.option("--config", type=FILE, help="Settings (TOML) that override the preset.")
@settings_option("Override one setting, e.g. control.batch_size=128.")
@name_option(
    "--control",
    algorithms,
    "Control algorithm: double_dqn, discrete_cql, discrete_bcq, discrete_iql, nfq; for "
    "continuous actions rebrac, td3_plus_bc, iql, cql, awac; or auto (chosen from the logs).",
)
@click.option(
    "--stack",
    type=click.IntRange(1, 64),
    help="Number of observations to stack: the current one and the last ones, with the actions "
    "between them (default: chosen from the logs).",
)
@click.option(
    "--fallback",
    type=Choice(["none", "avg"]),
    help="Policy to use when the instance looks out-of-distribution (default: none).",
)
@click.option(
    "--hold-out",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Share of instances (of episodes if there are fewer than ten instances) to hold out for "
    "ope.",
)
@click.option("--no-verdict", is_flag=True, help="Skip the final verdict.")
@seed_option
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
@click.option("--restart", is_flag=True, help="Replace an existing run.")
@click.option(
    "-o", "--out", type=FOLDER, help="Run directory (default: runs/<dataset>-<method>-<seed>)."
)
@output_options
def fit(
    dataset: str,
    method: str,
    config: Path | None,
    settings: tuple[str, ...],
    control: str | None,
    stack: int | None,
    fallback: str | None,
    no_verdict: bool,
    seed: int,
    out: Path | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
) -> None:
    """Train an agent on the logs in DATASET.

    \b
    Example:
      sept-offline fit nav.h5 --hold-out 0.2 --no-verdict --set latent.updates=100
        --set control.updates=200 -o runs/nav
      sept-offline fit nav.h5 --stack 2 --no-verdict --set latent.updates=100
        --set control.updates=200 -o runs/nav-stacked
    """
    check_either(options["resume"], options["restart"])
    check_dataset(dataset)
    from sept_offline.data.filesystems import locate
    from sept_offline.settings import merge, parse_settings, read_toml

    chosen = merge(read_toml(config) if config else {}, parse_settings(settings))
    from sept_offline.methods import fit as learn

    progress = ConsoleProgress(quiet)
    flags: dict[str, Any] = {}
    if control is not None:
        flags["control"] = {"algorithm": control}
    if stack is not None:
        flags["stack"] = stack
    if fallback is not None:
        flags["fallback"] = fallback
    if no_verdict:
        flags["verdict"] = False
    target = out or Path("runs") / f"{locate(dataset).stem}-{method}-{seed}"
    began = time.monotonic()
    with interruptible(progress, f"the same command with --resume continues {target}"):
        agent = learn(
            dataset,
            method,
            merge(chosen, flags),
            seed,
            out=target,
            progress=progress,
            **options,
        )
    seconds = time.monotonic() - began
    if as_json:
        print_json(
            {
                "path": str(target),
                "method": method,
                "needs": sorted(agent.needs),
                "seconds": round(seconds, 3),
                "verdict": agent.record.get("verdict"),
                "reasons": agent.record.get("reasons", []),
                "record": agent.record,
            }
        )
        return
    click.echo(f"{target}: {method} in {seconds:.1f} s")
    _print_record(agent.record)


def _print_record(record: dict[str, Any]) -> None:
    """Print what the fit held out, chose, measured and concluded."""
    if held := record.get("held_out"):
        click.echo(f"held out for ope: {_held_out(held)}")
    for name, choice in record.get("choices", {}).items():
        click.echo(f"{name}: {choice['chosen']}. {choice['why']}")
    if dimensions := record.get("latent_dimensions"):
        click.echo(f"latent: {dimensions['used']} of {dimensions['of']} dimensions in use")
    if matched := record.get("identification"):
        click.echo(
            f"identification: {matched['neighbours']:.3f} of the held-out episodes are matched to "
            f"their instance by their first steps (chance: {matched['chance']:.3f})"
        )
        click.echo(f"probe: {record['probe']}")
    if record.get("behaviour_estimated"):
        click.echo("The behaviour's probabilities were not logged and are estimated.")
    if "verdict" in record:
        click.echo(f"verdict: {record['verdict']}")
        for reason in record["reasons"]:
            click.echo(f"  {reason}")


def _held_out(held: dict[str, Any]) -> str:
    episodes = sum(end - first for first, end in held["episodes"])
    names = held.get("instances")
    if names is None:
        return f"{episodes:,} episodes, some of each instance"
    listed = f" ({', '.join(map(plain, names))})" if len(names) <= FEW else ""
    return f"{len(names)} instances{listed}, {episodes:,} episodes"
