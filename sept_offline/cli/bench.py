"""`sept-offline bench` and `report`: tables, figures and an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from sept_offline.cli.console import ConsoleProgress, interruptible, print_json, print_table
from sept_offline.cli.parameters import (
    DATASET,
    FILE,
    FOLDER,
    METHODS,
    PRESETS,
    check_dataset,
    complete_axes,
    count_option,
    engines,
    name_option,
    one_of,
    output_options,
    settings_option,
    several_of,
    typed_object,
)
from sept_offline.errors import ConfigError
from sept_offline.family import SPLITS, family_names

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
@count_option("--seeds", help="Number of training seeds (default: 5).")
@name_option(
    "--preset", lambda: PRESETS, "Preset of fit: default, paper or segment.", default="default"
)
@click.option(
    "--vary",
    multiple=True,
    shell_complete=complete_axes,
    help="Axis and values to compare with the base: behaviour=random,replay,mixed, episodes=N per "
    "instance, instances=N, propensities=estimated, probe_steps=N, or any setting of fit.",
)
@settings_option("Override one setting in all cells.")
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    type=DATASET,
    help="Logs to use instead of collected ones: a path, or family=path; may be repeated.",
)
@count_option("--data-seeds", default=2, help="Number of collection seeds.")
@name_option("--split", lambda: SPLITS, "Split to evaluate on.", default="test")
@count_option("--episodes", help="Minimum test episodes per cell (default: one per instance).")
@name_option("--engine", engines, "local or ray.", default="local")
@count_option("--workers", default=2, help="Number of worker processes.")
@click.option("--quick", is_flag=True, help="Smoke test with tiny budgets and one seed.")
@click.option("--replace", is_flag=True, help="Rerun finished cells whose settings differ.")
@click.option(
    "--tables-only", is_flag=True, help="Only write the tables and figures of finished cells."
)
@click.option("--figures", is_flag=True, help="Only draw the figures of finished cells.")
@click.option(
    "-o",
    "--out",
    type=FOLDER,
    default=Path("bench"),
    show_default=True,
    help="Folder of the bench: finished cells, logs, tables and figures.",
)
@output_options
def bench(
    families: str,
    methods: str,
    seeds: int | None,
    engine: str,
    workers: int,
    quick: bool,
    replace: bool,
    tables_only: bool,
    figures: bool,
    out: Path,
    as_json: bool,
    quiet: bool,
    **plan: Any,
) -> None:
    """Run every method on every family with several seeds.

    This repeats the paper's evaluation. Logs are collected by recipe or given by --dataset. Each
    cell (family × method × variant × seed) is fitted and runs its test episodes. The same command
    continues an interrupted bench; a finished cell is never run twice. The exit code is 1 if a cell
    failed.

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
    cells = make_plan(
        _names(families), _names(methods), seeds=seeds or (1 if quick else 5), quick=quick, **plan
    )
    progress = ConsoleProgress(quiet)
    with interruptible(progress, f"the same command continues {out}"):
        report = run_bench(
            cells, out, engine=engine, workers=workers, replace=replace, progress=progress
        )
    summary = {
        "path": str(out),
        "cells": report.planned,
        "found": report.found,
        "ran": report.ran,
        "failed": [vars(failure) for failure in report.failed],
        "seconds": round(report.seconds, 3),
    }
    _show(out, summary, as_json)
    click.echo(
        f"{out}: {report.found + report.ran} of {report.planned} cells, {report.ran} of them new, "
        f"in {report.seconds:.0f} s",
        err=as_json,
    )
    for failure in report.failed:
        click.echo(f"Failed: {failure.name}: {failure.error}", err=True)
    if report.failed:
        raise click.exceptions.Exit(1)


def _show(out: Path, record: dict[str, Any], as_json: bool) -> None:
    """Draw tables and figures, and show the tables."""
    from sept_offline.tools.bench import write_tables
    from sept_offline.tools.bench.figures import INSTALL, can_draw, draw_figures

    summary, tables = write_tables(out)
    drawn = draw_figures(out) if can_draw() else None
    if as_json:
        names = [] if drawn is None else list(drawn.names)
        print_json(record | {"summary": summary, "figures": names})
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
    """The names in a comma-separated list; empty if the option was not given."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text and not names:
        raise ConfigError(f"{text!r} contains no names; expected names separated by commas.")
    return names


@click.command()
@click.argument("sources", type=FOLDER, nargs=-1, required=True)
@click.option("--dataset", type=DATASET, help="Path of the runs' logs, if they have moved.")
@click.option(
    "--family",
    multiple=True,
    shell_complete=one_of(family_names),
    callback=typed_object,
    help="Your own family that the runs name, as package.module:object.",
)
@click.option(
    "-o", "--out", type=FILE, default="report.html", show_default=True, help="Output HTML file."
)
@output_options
def report(
    sources: tuple[Path, ...],
    dataset: str | None,
    family: tuple[str, ...],
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write an HTML page about runs and benches.

    SOURCES are run directories of `fit` and folders of `bench`. The page shows the logs, the
    trained models and the test episodes. It is one HTML file that opens from disk and loads nothing
    from the network. Charts can be zoomed, and test episodes can be played. A missing part (no
    evaluation yet, logs that have moved) is replaced by one line.

    \b
    Example:
      sept-offline report runs/nav -o report.html
    """
    from sept_offline.errors import DataError
    from sept_offline.family import load_family
    from sept_offline.files import refuse_links
    from sept_offline.tools.report import write_report

    if out.suffix not in (".html", ".htm"):
        raise DataError(f"Cannot write a page to {out}; choose a name that ends in .html.")
    if click.get_current_context().get_parameter_source("out") is ParameterSource.DEFAULT:
        # Follow a link only if the user typed the output.
        refuse_links(out.parent, [out.name])
    if dataset is not None:
        check_dataset(dataset)
    for name in family:
        load_family(name)  # registers it, so that a run may name it
    size = write_report(sources, out, dataset=dataset, progress=ConsoleProgress(quiet))
    if as_json:
        print_json(
            {"path": str(out), "bytes": size, "sources": [str(source) for source in sources]}
        )
    else:
        click.echo(f"{out}: {size / 1e6:.1f} MB, opens in any browser")
