"""Frozen dataclasses from TOML and from `a.b=c` settings, with errors that name the key."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
import tomllib
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from sept_offline.errors import ConfigError, one_line
from sept_offline.family import suggest
from sept_offline.limits import read_whole

Record = TypeVar("Record")
Rule = Callable[[Any, str], None]
"""Raises a ConfigError if the value of the setting at this path is not allowed."""
WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    dict: "a table of names and values",
    Mapping: "a table of names and values",
    type(None): "none",
}
"""What the types of settings are called in errors."""
TOML_BYTES = 16 << 20
"""Size limit of a settings file, which is written by hand."""


def build(cls: type[Record], values: Mapping[str, Any], where: str = "") -> Record:
    """An instance of the dataclass `cls` from nested mappings; unknown keys raise a ConfigError."""
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    hints = typing.get_type_hints(cls)
    arguments = {}
    for key, value in values.items():
        path = f"{where}.{key}" if where else key
        if key not in fields:
            raise ConfigError(
                f"There is no setting {path!r}{suggest(key, fields)}; "
                f"expected one of {', '.join(sorted(fields))}."
            )
        arguments[key] = _convert(value, hints[key], path)
    try:
        return cls(**arguments)
    except ValueError as error:
        raise ConfigError(f"Setting {where}: {error}" if where else str(error)) from error


def _convert(value: Any, hint: Any, path: str) -> Any:
    origin = typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        options = typing.get_args(hint)
        if value is None or (value == "none" and type(None) in options):
            if type(None) in options:
                return None
        else:
            for option in options:
                if option is type(None):
                    continue
                try:
                    return _convert(value, option, path)
                except ConfigError:
                    continue
    elif origin is typing.Literal:
        choices = typing.get_args(hint)
        if value in choices:
            return value
        listed = ", ".join(map(repr, choices))
        raise ConfigError(
            f"Setting {path} is {value!r:.120}{suggest(str(value), map(str, choices))}; "
            f"expected one of {listed}."
        )
    elif origin is tuple:
        item = typing.get_args(hint)[0]
        if isinstance(value, list | tuple):
            return tuple(_convert(v, item, f"{path}[{i}]") for i, v in enumerate(value))
    elif origin is dict or origin is Mapping or hint is dict:
        if isinstance(value, Mapping):
            return dict(value)
    elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if isinstance(value, hint):
            return value
        if isinstance(value, Mapping):
            return build(hint, value, path)
    elif hint is float:
        if isinstance(value, int | float) and not isinstance(value, bool):
            with contextlib.suppress(OverflowError):
                return float(value)
    elif hint is int:
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
            return value
    elif isinstance(hint, type) and isinstance(value, hint):
        return value
    raise ConfigError(f"Setting {path} is {value!r:.120}; expected {_in_words(hint)}.")


def _in_words(hint: Any) -> str:
    """What a setting's type admits, as its user would say it."""
    kind, parts = typing.get_origin(hint) or hint, typing.get_args(hint)
    if kind in (types.UnionType, typing.Union):
        return " or ".join(map(_in_words, parts))
    if kind is tuple:
        return f"a list, each item {_in_words(parts[0])}"
    if kind is typing.Literal:
        return f"one of {', '.join(map(repr, parts))}"
    if dataclasses.is_dataclass(hint):
        example = dataclasses.fields(hint)[0].name
        return f"a group of settings, such as {{{example} = …}}"
    return WORDS.get(kind) or str(getattr(kind, "__name__", kind))


@dataclasses.dataclass(frozen=True)
class Range:
    """The bounds of a number, declared in the annotation of a field."""

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None

    def __call__(self, value: Any, path: str) -> None:
        """Raise a ConfigError that names the setting `path` if its value is out of the bounds."""
        bounds = [
            (word, holds, bound)
            for word, holds, bound in (
                ("at least", operator.ge, self.least),
                ("above", operator.gt, self.above),
                ("at most", operator.le, self.most),
                ("below", operator.lt, self.below),
            )
            if bound is not None
        ]
        if not all(holds(value, bound) for _, holds, bound in bounds):
            expected = " and ".join(f"{word} {bound}" for word, _, bound in bounds)
            raise ConfigError(f"{path} is {value}; expected {expected}.")


def check_layers(widths: tuple[int, ...], path: str) -> None:
    """Raise a ConfigError that names the setting `path` if a network cannot have such layers."""
    if not widths or min(widths) < 1:
        raise ConfigError(f"{path} needs layers of at least 1 unit, found {widths}.")


def check_choice(known: tuple[Any, ...], value: Any, path: str) -> None:
    """Raise a ConfigError that names the setting `path` if its value is none of the known."""
    if value not in known:
        listed = ", ".join(map(str, known))
        raise ConfigError(f"{path} is {value!r}; expected one of {listed}.")


Count = Annotated[int, Range(least=1)]
Natural = Annotated[int, Range(least=0)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(least=0)]
Share = Annotated[float, Range(least=0, most=1)]
Layers = Annotated[tuple[int, ...], check_layers]


class Settings:
    """A frozen dataclass whose fields are checked against their annotations when it is made."""

    _section = ""

    def __init_subclass__(cls, section: str = "") -> None:
        """`section` is the group of the settings, for error messages."""
        cls._section = f"{section}." if section else ""

    def __post_init__(self) -> None:
        """Raise a ConfigError that names an invalid setting; None is not checked."""
        record: Any = type(self)
        for name, rule in _rules(record):
            value = getattr(self, name)
            if value is not None:
                rule(value, f"{self._section}{name}")


@functools.cache
def _rules(record: type[Settings]) -> list[tuple[str, Rule]]:
    """The names of the fields that are checked, each with the rule that its annotation declares."""
    rules: list[tuple[str, Rule]] = []
    for name, hint in typing.get_type_hints(record, include_extras=True).items():
        for kind in (hint, *typing.get_args(hint)):  # those of `Count | None`, too
            if typing.get_origin(kind) is typing.Literal:
                rules.append((name, functools.partial(check_choice, typing.get_args(kind))))
            rules += [(name, rule) for rule in getattr(kind, "__metadata__", ())]
    return rules


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings; later ones take precedence key by key."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            if isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
                merged[key] = merge(merged[key], value)
            else:
                merged[key] = value
    return merged


def parse_settings(settings: Iterable[str]) -> dict[str, Any]:
    """Nested values from `a.b=c` strings; c is read as TOML, or else as a plain string."""
    result: dict[str, Any] = {}
    for setting in settings:
        path, sign, text = setting.partition("=")
        if not sign or not path.strip():
            raise ConfigError(f"Setting {setting!r} is not of the form name=value.")
        try:
            value = tomllib.loads(f"value = {text.strip()}")["value"]
        except (ValueError, RecursionError):  # not TOML, or an absurdly long number
            value = text.strip()
        nested: dict[str, Any] = {}
        inner = nested
        *parents, last = path.strip().split(".")
        for parent in parents:
            inner[parent] = {}
            inner = inner[parent]
        inner[last] = value
        result = merge(result, nested)
    return result


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, or a ConfigError that names it."""
    try:
        return tomllib.loads(read_whole(path, ConfigError, TOML_BYTES).decode())
    except RecursionError as error:
        raise ConfigError(f"{path} is not valid TOML: it is nested too deeply.") from error
    except ValueError as error:  # of TOML, of UTF-8, or of a number of thousands of digits
        raise ConfigError(f"{path} is not valid TOML: {one_line(error)}.") from error


def to_plain(record: Any) -> Any:
    """A dataclass as nested JSON-ready values."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_plain(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, list | tuple):
        return [to_plain(item) for item in record]
    if isinstance(record, Mapping):
        return {str(key): to_plain(value) for key, value in record.items()}
    return record
