"""`sept-offline collect`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from sept_offline.cli.completers import (
    DATASET,
    FILE,
    families,
    one_of,
    several_of,
    typed_object,
)
from sept_offline.cli.console import ConsoleProgress, interrupted, print_json
from sept_offline.cli.names import BEHAVIOURS, ENGINES, SPLITS
from sept_offline.cli.options import json_option, quiet_option


@click.command()
@click.argument("family", shell_complete=families, callback=typed_object)
@click.option(
    "-o",
    "--out",
    required=True,
    type=DATASET,
    help="Output dataset: x.h5, x.parquet, or a directory (x or s3://bucket/x).",
)
@click.option(
    "--behaviour",
    shell_complete=several_of(lambda: (*BEHAVIOURS, "policy")),
    help="Policy to log: random, replay, medium, expert, policy (that of --policy), or a mixture "
    "such as random:0.5,expert:0.5.",
)
@click.option(
    "--episodes", type=click.IntRange(min=1), help="Total episodes, balanced over instances."
)
@click.option(
    "--instances",
    shell_complete=one_of(lambda: SPLITS),
    help="Split to log (default: train).",
)
@click.option("--max-steps", type=click.IntRange(min=1), help="Maximum steps per episode.")
@click.option(
    "--policy",
    callback=typed_object,
    help="Your own policy, package.module:object: a function from observations to probabilities "
    "(means and deviations for continuous actions), or a class for policies with memory.",
)
@click.option("--recipe", type=FILE, help="Recipe (TOML) to use instead of the family's.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--engine",
    default="local",
    show_default=True,
    shell_complete=one_of(lambda: ENGINES),
    help="local, or ray: the cluster at RAY_ADDRESS, or a local one with --workers processes.",
)
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--resume", is_flag=True, help="Continue an interrupted collection.")
@click.option("--restart", is_flag=True, help="Discard an interrupted collection and start again.")
@json_option
@quiet_option
def collect(
    family: str,
    out: str,
    behaviour: str | None,
    episodes: int | None,
    instances: str | None,
    max_steps: int | None,
    policy: str | None,
    recipe: Path | None,
    seed: int,
    engine: str,
    workers: int,
    resume: bool,
    restart: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Log episodes of FAMILY, grouped by instance.

    FAMILY is a name (navigation2d, acrobot, hiv, pendulum, …, or one that you registered) or
    package.module:object. Defaults come from the family's recipe.

    \b
    Example:
      sept-offline collect navigation2d --behaviour random --episodes 200 --seed 1 -o nav.h5
    """
    from sept_offline.collect import collect_dataset
    from sept_offline.data.filesystems import locate

    if policy is not None and behaviour is not None and "policy" not in behaviour:
        raise click.UsageError(
            "--behaviour does not include --policy; give it a share, as in "
            "--behaviour random:0.5,policy:0.5, or pass only one of the two options."
        )
    given: dict[str, Any] = {
        "behaviour": behaviour,
        "episodes": episodes,
        "instances": instances,
        "max_steps": max_steps,
    }
    target = locate(out)
    began = time.monotonic()
    progress = ConsoleProgress(quiet)
    try:
        data = collect_dataset(
            family,
            target,
            recipe=recipe,
            overrides={key: value for key, value in given.items() if value is not None},
            policy=policy,
            seed=seed,
            engine=engine,
            workers=workers,
            resume=resume,
            restart=restart,
            progress=progress,
        )
    except KeyboardInterrupt:
        interrupted(target, progress)
    seconds = time.monotonic() - began
    if as_json:
        print_json(
            {
                "path": str(target),
                "content_hash": data.content_hash,
                "instances": len(data.instances),
                "episodes": data.num_episodes,
                "steps": data.num_steps,
                "seconds": round(seconds, 3),
            }
        )
    else:
        click.echo(
            f"{target}: {data.num_episodes:,} episodes, {data.num_steps:,} steps of "
            f"{len(data.instances)} instances in {seconds:.1f} s; content {data.content_hash[:16]}"
        )
