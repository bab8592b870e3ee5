"""The options that commands share."""

from __future__ import annotations

import click

json_option = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object on standard output."
)
quiet_option = click.option("--quiet", is_flag=True, help="Hide progress output.")
