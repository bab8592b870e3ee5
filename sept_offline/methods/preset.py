"""The presets of `fit`, and the settings that a dataset, a preset and a user give."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sept_offline.data import Dataset
from sept_offline.errors import ConfigError
from sept_offline.family import suggest
from sept_offline.settings import FitConfig, build, merge, read_toml

LEAST_DIM = 12
"""Minimum size of the latent if neither a preset nor a setting gives one."""
PRESETS = ("default", "paper", "segment")
FOUNDATIONS = {"segment": "default"}
"""Presets that extend another one."""


def preset_values(family: str | None, preset: str) -> dict[str, Any]:
    """The settings of a preset for a family: those for any family, then the family's.

    If the preset extends another one, the settings of that one come first.
    """
    if preset not in PRESETS:
        raise ConfigError(
            f"There is no preset {preset!r}{suggest(preset, PRESETS)}; expected one of "
            f"{', '.join(PRESETS)}."
        )
    folder = Path(str(importlib.resources.files("sept_offline.methods") / "presets"))
    # A family's name may come from a file, so it is looked up and never becomes part of a path.
    shipped = {path.stem: path for path in folder.glob("*.toml")}
    files = [read_toml(shipped.pop("any"))]
    if family in shipped:
        files.append(read_toml(shipped[family]))
    order = [FOUNDATIONS[preset], preset] if preset in FOUNDATIONS else [preset]
    return merge(*(values.get(name, {}) for name in order for values in files))


def resolve_config(
    data: Dataset, preset: str = "default", *overrides: Mapping[str, Any], stacks: bool = True
) -> FitConfig:
    """The settings for a dataset: from its metadata, then the preset, then each override.

    stacks: whether the method reads stacked observations; if not, a preset's `stack` is ignored.
    """
    metadata = data.metadata
    logged_dim = metadata.extra.get("latent_dim")
    # Unused columns cost little; a hidden factor without a column is not found.
    dim = max(logged_dim, LEAST_DIM) if isinstance(logged_dim, int) else LEAST_DIM
    logged: dict[str, Any] = {"latent": {"dim": dim}}
    # A length that some episodes do not reach is left to the fit.
    if metadata.probe_steps and not (data.episode_index.length < metadata.probe_steps).any():
        logged["probe_steps"] = metadata.probe_steps
    chosen = preset_values(metadata.family, preset)
    if not stacks:
        chosen.pop("stack", None)
    return build(FitConfig, merge(logged, chosen, *overrides))
