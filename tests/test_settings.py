"""Settings: nested, typed, and named when they are wrong."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from sept_offline.errors import ConfigError
from sept_offline.settings import (
    ControlConfig,
    DemarcateConfig,
    FitConfig,
    LatentConfig,
    OpeConfig,
    Range,
    Settings,
    build,
    merge,
    parse_settings,
    read_toml,
    to_plain,
)


@dataclass(frozen=True)
class Inner:
    rate: float = 0.5
    layers: tuple[int, ...] = (1, 2)
    mode: Literal["a", "b"] = "a"


@dataclass(frozen=True)
class Outer:
    steps: int = 3
    limit: int | None = None
    inner: Inner = field(default_factory=Inner)


def test_settings_are_nested_and_typed() -> None:
    values = parse_settings(["inner.rate=1", "inner.layers=[3, 4]", "steps=7", "inner.mode=b"])
    assert build(Outer, values) == Outer(7, None, Inner(1.0, (3, 4), "b"))
    assert build(Outer, {"limit": "none"}).limit is None
    assert build(Outer, to_plain(Outer(limit=2))) == Outer(limit=2)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("inner.rat=1", "inner.rat.*did you mean 'rate'"),
        ("steps=1.5", "steps is 1.5; expected a whole number"),
        ("steps=true", "expected a whole number"),
        ("limit=a", "limit is 'a'; expected a whole number or none"),
        ("inner.mode=c", "expected one of 'a', 'b'"),
        ("inner.layers=3", "inner.layers is 3; expected a list, each item a whole number"),
        ("inner.layers=[1.5]", r"inner.layers\[0\]"),
        ("inner=3", "inner is 3; expected a group of settings, such as {rate = …}"),
        ("steps", "name=value"),
    ],
)
def test_a_wrong_setting_is_named(setting: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        build(Outer, parse_settings([setting]))


@pytest.mark.parametrize(
    ("bounds", "inside", "outside", "words"),
    [
        ({"least": 1}, 1, 0, "x.rate is 0; expected at least 1."),
        ({"above": 0}, 0.1, 0, "x.rate is 0; expected above 0."),
        ({"least": 0, "below": 1}, 0, 1, "x.rate is 1; expected at least 0 and below 1."),
        ({"above": 0, "most": 1}, 1, 0, "x.rate is 0; expected above 0 and at most 1."),
        ({"least": 0, "most": 1}, 1, 1.1, "x.rate is 1.1; expected at least 0 and at most 1."),
        ({"above": 0}, None, float("nan"), "x.rate is nan; expected above 0."),
    ],
)
def test_a_setting_out_of_range_is_named(
    bounds: dict[str, float], inside: float | None, outside: float, words: str
) -> None:
    class Section(Settings, section="x"):
        pass

    for base, expected in ((Section, words), (Settings, words.removeprefix("x."))):
        for hint in (Annotated[float, Range(**bounds)], Annotated[float, Range(**bounds)] | None):
            record: Any = make_dataclass("Record", [("rate", hint)], bases=(base,), frozen=True)
            if base is Section:
                record._section = "x."
            assert record(inside).rate == inside
            with pytest.raises(ConfigError) as refused:
                record(outside)
            assert str(refused.value) == expected


def test_every_record_is_checked_when_it_is_made() -> None:
    for record, words in (
        (lambda: LatentConfig(dim=0), "latent.dim is 0; expected at least 1."),
        (lambda: ControlConfig(grad_clip=0.0), "control.grad_clip is 0.0; expected above 0."),
        (lambda: ControlConfig(hidden=()), "control.hidden needs layers of at least 1 unit"),
        (lambda: FitConfig(probe_steps=1, stack=65), "stack is 65; expected at least 0 and at"),
        (lambda: OpeConfig(horizon=0), "horizon is 0; expected at least 1."),
        (lambda: DemarcateConfig(unsure="x"), "unsure is 'x'; expected one of nearest, drop."),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError) as refused:
            record()
        assert str(refused.value).startswith(words)


def test_later_layers_win_key_by_key() -> None:
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}


def test_a_bad_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    with pytest.raises(ConfigError, match=r"x\.toml"):
        read_toml(path)
    path.write_text("a = = 1")
    with pytest.raises(ConfigError, match="not valid TOML"):
        read_toml(path)
