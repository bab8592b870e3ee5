"""`sept-offline report`."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from sept_offline.cli.completers import DATASET, FILE, FOLDER, families, typed_object
from sept_offline.cli.console import ConsoleProgress, print_json
from sept_offline.cli.options import json_option, quiet_option
from sept_offline.cli.places import check_dataset


@click.command()
@click.argument("sources", type=FOLDER, nargs=-1, required=True)
@click.option("--dataset", type=DATASET, help="Path of the runs' logs, if they have moved.")
@click.option(
    "--family",
    multiple=True,
    shell_complete=families,
    callback=typed_object,
    help="Your own family that the runs name, as package.module:object.",
)
@click.option("-o", "--out", type=FILE, default="report.html", show_default=True)
@json_option
@quiet_option
def report(
    sources: tuple[Path, ...],
    dataset: str | None,
    family: tuple[str, ...],
    out: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Write an HTML page about runs and benches: logs, trained models and test episodes.

    SOURCES are run directories of `fit` and folders of `bench`. The page is one HTML file that
    opens from disk and loads nothing from the network. Charts can be zoomed, and test episodes can
    be played. A missing part (no evaluation yet, logs that have moved) is replaced by one line.

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
        print_json({"path": str(out), "bytes": size, "sources": [str(one) for one in sources]})
    else:
        click.echo(f"{out}: {size / 1e6:.1f} MB, opens in any browser")
