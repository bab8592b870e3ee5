"""`sept-offline ope`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from sept_offline.cli.completers import DATASET, FOLDER
from sept_offline.cli.console import ConsoleProgress, print_json, print_table
from sept_offline.cli.options import json_option, quiet_option
from sept_offline.cli.places import check_run_and_dataset

if TYPE_CHECKING:
    from sept_offline.tools.ope import Judgement


@click.command()
@click.argument("run", type=FOLDER)
@click.argument("dataset", type=DATASET)
@click.option(
    "--horizon",
    type=click.IntRange(min=1),
    help="Maximum steps per episode (default: the length that half of the episodes reach).",
)
@click.option(
    "--in-sample", is_flag=True, help="Evaluate on all episodes, including training episodes."
)
@click.option(
    "--confidence",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.95,
    show_default=True,
    help="Confidence level of the intervals.",
)
@click.option("--updates", type=click.IntRange(min=1), help="Gradient steps of each fitted Q.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@json_option
@quiet_option
def ope(
    run: Path,
    dataset: str,
    horizon: int | None,
    in_sample: bool,
    confidence: float,
    updates: int | None,
    seed: int,
    as_json: bool,
    quiet: bool,
) -> None:
    """Estimate what the agent in RUN would have earned, from the logs in DATASET alone.

    The agent is evaluated on held-out episodes (`fit --hold-out`), with probe and control as one
    policy. The estimates are of the mean return of one episode with at most --horizon steps.

    \b
    Example:
      sept-offline ope runs/nav nav.h5 --horizon 20 --updates 100
    """
    check_run_and_dataset(run, dataset)
    from sept_offline.settings import OpeConfig
    from sept_offline.tools.ope import judge

    judgement = judge(
        run,
        dataset,
        OpeConfig(horizon=horizon, confidence=confidence, updates=updates),
        seed=seed,
        in_sample=in_sample,
        progress=ConsoleProgress(quiet),
    )
    _keep(judgement, run, quiet)
    if as_json:
        print_json(judgement.summary())
        return
    _print(judgement)


def _keep(judgement: Judgement, run: Path, quiet: bool) -> None:
    """Store the result in the run for `report`; print a message if that fails."""
    from sept_offline.errors import DataError
    from sept_offline.methods.run import JUDGED
    from sept_offline.seals import write_json

    if not (run / "run.json").is_file():
        return
    try:
        write_json(run / JUDGED, judgement.summary())
    except DataError as problem:
        ConsoleProgress(quiet).message(f"Cannot store the result in the run: {problem}")


def _print(judgement: Judgement) -> None:
    from sept_offline.tools.ope import TITLES

    print_table(
        f"{judgement.method} · return of at most {judgement.horizon:,} steps · "
        f"{judgement.episodes:,} episodes of {judgement.instances} instances, "
        f"{judgement.judged_on}",
        ["estimator", "mean", "low", "high", "effective episodes"],
        [
            [TITLES.get(name, name), found.mean, found.low, found.high, round(found.ess, 1)]
            for name, found in judgement.estimators.items()
        ],
    )
    found = judgement.overlap
    within = " within instances" if judgement.resampled == "episodes" else ""
    click.echo(
        f"{100 * judgement.confidence:g}% intervals, bootstrap over {judgement.resampled}{within}; "
        f"mean logged return {judgement.logged_return:,.4g}"
    )
    supported = f"{found.support:.1%} of its actions have support in the logs"
    if "pdis" in judgement.estimators:
        click.echo(
            f"overlap: the agent agrees with the logged action at {found.agreement:.1%} of the "
            f"steps and throughout {found.followed:.1%} of the episodes; {supported}; weights "
            f"cover {found.covered_steps} of {judgement.horizon} steps"
        )
    else:  # actions of a box are never equal, and have no weights
        click.echo(f"overlap of the agent: {supported}")
    if judgement.behaviour_estimated:
        click.echo("The behaviour's probabilities were not logged and are estimated.")
    quoted = judgement.estimators[judgement.headline]
    click.echo(
        f"verdict: {judgement.verdict}; {TITLES[judgement.headline]}: "
        f"{quoted.mean:,.4g} ({quoted.low:,.4g} … {quoted.high:,.4g})"
    )
    for reason in judgement.reasons:
        click.echo(f"  {reason}")
