"""The settings of `fit` as `--set` names them."""

from __future__ import annotations

import dataclasses
import typing
from functools import cache


@cache
def setting_names() -> dict[str, tuple[str, ...]]:
    """Every setting, such as `latent.dim`, with its choices if it has any."""
    from sept_offline.settings import FitConfig

    return _fields(FitConfig)


def _fields(record: type, prefix: str = "") -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    hints = typing.get_type_hints(record)
    for field in dataclasses.fields(record):
        name, kind = f"{prefix}{field.name}", hints[field.name]
        if isinstance(kind, type) and dataclasses.is_dataclass(kind):
            found |= _fields(kind, f"{name}.")
        elif kind is bool:
            found[name] = ("false", "true")
        elif typing.get_origin(kind) is typing.Literal:
            found[name] = typing.get_args(kind)
        else:
            found[name] = ()
    return found
