"""`sept-offline check`."""

from __future__ import annotations

import time
import warnings

import click

from sept_offline.cli.completers import families, typed_object
from sept_offline.cli.console import plain, print_json, working
from sept_offline.cli.options import json_option, quiet_option


@click.command()
@click.argument("family", shell_complete=families, callback=typed_object)
@click.option(
    "--episodes",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Random episodes per tested instance.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@json_option
@quiet_option
def check(family: str, episodes: int, seed: int, as_json: bool, quiet: bool) -> None:
    """Check FAMILY for contract violations; exit code 2 if there is one.

    FAMILY is a registered name or package.module:object. The check runs random episodes in some of
    its instances: the seed must determine the episode, hidden parameters must change the dynamics
    and stay hidden, and environments must not share state.

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
    said = [str(one.message) for one in caught if issubclass(one.category, FamilyWarning)]
    if as_json:
        print_json(
            {
                "family": family,
                "ok": problem is None,
                "problem": None if problem is None else str(problem),
                "warnings": said,
                "seconds": round(time.monotonic() - began, 3),
            }
        )
    else:
        for line in said:
            click.echo(f"Warning: {plain(line)}")
    if problem is not None:
        raise problem
    if not as_json:
        click.echo(f"{plain(family)} is valid.")
