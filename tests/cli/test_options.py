"""What all commands have in common, and the lists they complete from."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

import pytest

from sept_offline.bench.variants import AXES
from sept_offline.cli import names
from sept_offline.cli.main import cli
from sept_offline.cli.settings import setting_names
from sept_offline.collect.check import SPLITS
from sept_offline.collect.recipe import BEHAVIOURS
from sept_offline.control import ALGORITHMS
from sept_offline.control.config import AUTO
from sept_offline.engines import ENGINES
from sept_offline.methods import METHODS, FitConfig
from sept_offline.methods.config import PRESETS

WITHOUT = {
    "act": "speaks JSON, a line an observation, and nothing else",
    "completion": "prints a script for a shell, and nothing else",
}


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_has_json_and_quiet(name: str) -> None:
    there = {option for parameter in cli.commands[name].params for option in parameter.opts}
    assert (there >= {"--json", "--quiet"}) == (name not in WITHOUT)


def test_what_is_completed_is_what_there_is() -> None:
    assert set(names.METHODS) == set(METHODS)
    assert names.PRESETS == PRESETS
    assert (AUTO, *ALGORITHMS) == names.ALGORITHMS
    assert names.BEHAVIOURS == BEHAVIOURS
    assert names.ENGINES == ENGINES
    assert names.SPLITS == SPLITS
    assert names.AXES == AXES


def settings(record: Any, prefix: str = "") -> dict[str, tuple[str, ...]]:
    """The settings of a record as Python sees them."""
    found: dict[str, tuple[str, ...]] = {}
    for name, hint in typing.get_type_hints(record).items():
        if dataclasses.is_dataclass(hint):
            found |= settings(hint, f"{prefix}{name}.")
        elif hint is bool:
            found[prefix + name] = ("false", "true")
        else:
            literal = typing.get_origin(hint) is typing.Literal
            found[prefix + name] = typing.get_args(hint) if literal else ()
    return found


def test_settings_are_read_off_the_source_as_they_are() -> None:
    assert setting_names() == settings(FitConfig)
    assert setting_names()["latent.objective"] == ("transitions", "segment")
