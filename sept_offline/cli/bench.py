"""`sept-offline bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from sept_offline.cli.completers import (
    DATASET,
    FOLDER,
    complete_axes,
    complete_settings,
    one_of,
    several_of,
    typed_object,
)
from sept_offline.cli.console import ConsoleProgress, print_json, print_table
from sept_offline.cli.names import ENGINES, METHODS, PRESETS, SPLITS
from sept_offline.cli.options import json_option, quiet_option
from sept_offline.errors import ConfigError
from sept_offline.family import family_names

if TYPE_CHECKING:
    from sept_offline.tools.bench.figures import Drawn


@click.command()
@click.option(
    "--families",
    default="",
    shell_complete=several_of(family_names),
    callback=typed_object,
    help="Names or package.module:object, comma-separated (default: all registered families, "
    "except the shipped ones with continuous actions).",
)
@click.option(
    "--methods",
    default="",
    shell_complete=several_of(lambda: METHODS),
    help="Names, comma-separated (default: all).",
)
@click.option("--seeds", type=click.IntRange(min=1), help="Number of training seeds (default: 5).")
@click.option(
    "--preset",
    default="default",
    show_default=True,
    shell_complete=one_of(lambda: PRESETS),
    help="Preset of fit: default, paper or segment.",
)
@click.option(
    "--vary",
    multiple=True,
    shell_complete=complete_axes,
    help="Axis and values to compare with the base: behaviour=random,replay,mixed, episodes=N per "
    "instance, instances=N, propensities=estimated, probe_steps=N, or any setting of fit.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    shell_complete=complete_settings,
    help="Override one setting in all cells.",
)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    type=DATASET,
    help="Logs to use instead of collected ones: a path, or family=path; may be repeated.",
)
@click.option(
    "--data-seeds",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Number of collection seeds.",
)
@click.option(
    "--split",
    default="test",
    show_default=True,
    shell_complete=one_of(lambda: SPLITS),
    help="Split to evaluate on.",
)
@click.option(
    "--episodes",
    type=click.IntRange(min=1),
    help="Minimum test episodes per cell (default: one per instance).",
)
@click.option(
    "--engine",
    default="local",
    show_default=True,
    shell_complete=one_of(lambda: ENGINES),
    help="local or ray.",
)
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--quick", is_flag=True, help="Smoke test with tiny budgets and one seed.")
@click.option("--replace", is_flag=True, help="Rerun finished cells whose settings differ.")
@click.option(
    "--tables-only", is_flag=True, help="Only write the tables and figures of finished cells."
)
@click.option("--figures", is_flag=True, help="Only draw the figures of finished cells.")
@click.option("-o", "--out", type=FOLDER, default=Path("bench"), show_default=True)
@json_option
@quiet_option
def bench(
    families: str,
    methods: str,
    seeds: int | None,
    preset: str,
    vary: tuple[str, ...],
    settings: tuple[str, ...],
    datasets: tuple[str, ...],
    data_seeds: int,
    split: str,
    episodes: int | None,
    engine: str,
    workers: int,
    quick: bool,
    replace: bool,
    tables_only: bool,
    figures: bool,
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Repeat the paper's evaluation: every method on every family with several seeds.

    Logs are collected by recipe or given by --dataset. Each cell (family × method × variant × seed)
    is fitted and runs its test episodes. The same command continues an interrupted bench; a
    finished cell is never run twice. The exit code is 1 if a cell failed.

    \b
    Example:
      sept-offline bench --quick --families navigation2d --methods sept,avg --workers 1 -o quick
    """
    from sept_offline.family import load_family
    from sept_offline.tools.bench import gather_finished, make_plan, run_bench

    for family in _names(families):
        load_family(family)  # from here on tables may name it
    if figures or tables_only:
        gather_finished(out)
    if figures:
        from sept_offline.tools.bench.figures import draw_figures

        drawn = draw_figures(out)
        if as_json:
            print_json({"path": str(out), "figures": list(drawn.names)})
        _say_figures(out, drawn, err=as_json)
        return
    if tables_only:
        _show(out, {"path": str(out)}, as_json)
        return
    progress = ConsoleProgress(quiet)
    plan = make_plan(
        _names(families),
        _names(methods),
        seeds=seeds or (1 if quick else 5),
        preset=preset,
        vary=vary,
        settings=settings,
        quick=quick,
        data_seeds=data_seeds,
        split=split,
        episodes=episodes,
        datasets=datasets,
    )
    try:
        report = run_bench(
            plan, out, engine=engine, workers=workers, replace=replace, progress=progress
        )
    except KeyboardInterrupt:
        progress.finish()
        click.echo(f"Interrupted; the same command continues {out}.", err=True)
        raise click.exceptions.Exit(1) from None
    found = {
        "path": str(out),
        "cells": report.planned,
        "found": report.found,
        "ran": report.ran,
        "failed": [vars(failure) for failure in report.failed],
        "seconds": round(report.seconds, 3),
    }
    _show(out, found, as_json)
    click.echo(
        f"{out}: {report.found + report.ran} of {report.planned} cells, {report.ran} of them new, "
        f"in {report.seconds:.0f} s",
        err=as_json,
    )
    for failure in report.failed:
        click.echo(f"Failed: {failure.name}: {failure.error}", err=True)
    if report.failed:
        raise click.exceptions.Exit(1)


def _show(out: Path, found: dict[str, Any], as_json: bool) -> None:
    """Draw tables and figures, and show the tables."""
    from sept_offline.tools.bench import write_tables
    from sept_offline.tools.bench.figures import INSTALL, can_draw, draw_figures

    summary, tables = write_tables(out)
    drawn = draw_figures(out) if can_draw() else None
    if as_json:
        names = [] if drawn is None else list(drawn.names)
        print_json(found | {"summary": summary, "figures": names})
    else:
        for table in tables:
            print_table(table.title, table.columns, table.rows)
        click.echo(f"{out / 'tables.md'} contains the same tables and explains the columns")
    if drawn is None:
        click.echo(INSTALL, err=True)
    else:
        _say_figures(out, drawn, err=as_json)


def _say_figures(out: Path, drawn: Drawn, err: bool) -> None:
    if drawn.names:
        click.echo(f"{out / 'figures.md'} shows {len(drawn.names)} figures", err=err)
    if drawn.left_out:
        click.echo(drawn.left_out, err=True)


def _names(text: str) -> list[str]:
    """The names in a list with commas; none only if nothing was typed."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text and not names:
        raise ConfigError(f"{text!r} names nothing; expected names, comma-separated.")
    return names
