"""What all commands have in common, and the lists they complete from."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any

import pytest

from sept_offline.cli import parameters
from sept_offline.cli.console import print_json
from sept_offline.cli.main import cli
from sept_offline.cli.parameters import setting_names
from sept_offline.collect.recipe import BEHAVIOURS
from sept_offline.errors import ConfigError
from sept_offline.methods import METHODS
from sept_offline.methods.preset import PRESETS
from sept_offline.settings import FitConfig, build, parse_settings
from sept_offline.tools.bench.plan import AXES

WITHOUT = {
    "act": "speaks JSON, a line an observation, and nothing else",
    "completion": "prints a script for a shell, and nothing else",
}


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_has_json_and_quiet(name: str) -> None:
    there = {option for parameter in cli.commands[name].params for option in parameter.opts}
    assert (there >= {"--json", "--quiet"}) == (name not in WITHOUT)


def test_json_has_null_for_what_overflowed(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"returns": [1.0, float("-inf")], "by": ({"mean": float("nan")},)})
    assert json.loads(capsys.readouterr().out) == {"returns": [1.0, None], "by": [{"mean": None}]}


def test_what_is_completed_is_what_there_is() -> None:
    assert set(parameters.METHODS) == set(METHODS)
    assert parameters.PRESETS == PRESETS
    assert parameters.BEHAVIOURS == BEHAVIOURS
    assert parameters.AXES == AXES


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


def test_every_setting_is_completed() -> None:
    assert setting_names() == settings(FitConfig)
    assert setting_names()["latent.objective"] == ("transitions", "segment")


def test_every_completed_choice_is_accepted_and_no_other() -> None:
    chosen = {name: choices for name, choices in setting_names().items() if choices}
    for name, choices in chosen.items():
        for choice in choices:
            build(FitConfig, parse_settings(["probe_steps=1", f"{name}={choice}"]))
        with pytest.raises(ConfigError, match=name):
            build(FitConfig, parse_settings(["probe_steps=1", f"{name}=another"]))
