"""`sept-offline check` and `collect`: the commands that run a family's environments."""

from __future__ import annotations

import time
import warnings
from typing import Any

import click

from sept_offline.cli.console import ConsoleProgress, interruptible, plain, print_json, working
from sept_offline.cli.dataset import print_dataset
from sept_offline.cli.parameters import (
    BEHAVIOURS,
    DATASET,
    FILE,
    check_either,
    count_option,
    engines,
    family_argument,
    name_option,
    output_options,
    seed_option,
    several_of,
    typed_object,
)
from sept_offline.family import SPLITS


@click.command()
@family_argument
@count_option("--episodes", default=3, help="Random episodes per tested instance.")
@seed_option
@output_options
def check(family: str, episodes: int, seed: int, as_json: bool, quiet: bool) -> None:
    """Check FAMILY for contract violations.

    FAMILY is a registered name or package.module:object. The check runs random episodes in some of
    its instances: the seed must determine the episode, hidden parameters must change the dynamics
    and stay hidden, and environments must not share state. The exit code is 2 if there is a
    violation.

    \b
    Example:
      sept-offline check navigation2d
    """
    from sept_offline.collect import FamilyWarning, check_family
    from sept_offline.errors import FamilyError

    began = time.monotonic()
    problem: FamilyError | None = None
    with warnings.catch_warnings(record=True) as caught, working(f"checking {family}", quiet):
        warnings.simplefilter("always", FamilyWarning)
        try:
            check_family(family, seed=seed, episodes=episodes)
        except FamilyError as error:
            problem = error
    notes = [str(each.message) for each in caught if issubclass(each.category, FamilyWarning)]
    if as_json:
        print_json(
            {
                "family": family,
                "ok": problem is None,
                "problem": None if problem is None else str(problem),
                "warnings": notes,
                "seconds": round(time.monotonic() - began, 3),
            }
        )
    else:
        for line in notes:
            click.echo(f"Warning: {plain(line)}")
    if problem is not None:
        raise problem
    if not as_json:
        click.echo(f"{plain(family)} is valid.")


@click.command()
@family_argument
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
@count_option("--episodes", help="Total episodes, balanced over instances.")
@name_option("--instances", lambda: SPLITS, "Split to log (default: train).")
@count_option("--max-steps", help="Maximum steps per episode.")
@click.option(
    "--policy",
    callback=typed_object,
    help="Your own policy, package.module:object: a function from observations to probabilities "
    "(means and deviations for continuous actions), or a class for policies with memory.",
)
@click.option("--recipe", type=FILE, help="Recipe (TOML) to use instead of the family's.")
@seed_option
@name_option(
    "--engine",
    engines,
    "local, or ray: the cluster at RAY_ADDRESS, or a local one with --workers processes.",
    default="local",
)
@count_option("--workers", default=1, help="Number of worker processes.")
@click.option("--resume", is_flag=True, help="Continue an interrupted collection.")
@click.option("--restart", is_flag=True, help="Discard an interrupted collection and start again.")
@output_options
def collect(
    family: str,
    out: str,
    behaviour: str | None,
    episodes: int | None,
    instances: str | None,
    max_steps: int | None,
    policy: str | None,
    as_json: bool,
    quiet: bool,
    **options: Any,
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

    check_either(options["resume"], options["restart"])
    if policy is not None and behaviour is not None and "policy" not in behaviour:
        raise click.UsageError(
            "--behaviour does not include --policy; give it a share, as in "
            "--behaviour random:0.5,policy:0.5, or pass only one of the two options."
        )
    recipe = {
        "behaviour": behaviour,
        "episodes": episodes,
        "instances": instances,
        "max_steps": max_steps,
    }
    target, progress = locate(out), ConsoleProgress(quiet)
    began = time.monotonic()
    with interruptible(progress, f"the same command with --resume continues {target}"):
        data = collect_dataset(
            family,
            target,
            overrides={key: value for key, value in recipe.items() if value is not None},
            policy=policy,
            progress=progress,
            **options,
        )
    print_dataset(target, data, as_json, time.monotonic() - began)
