"""Every setting of `fit` in one frozen record, and the presets it starts from."""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from sept_offline.config import build, check_range, merge, read_toml
from sept_offline.control import ControlConfig
from sept_offline.data import Dataset
from sept_offline.data.summary import DEFAULT_PROBE_STEPS
from sept_offline.dynamics.config import BnnConfig, DptConfig, DynamicsConfig
from sept_offline.errors import ConfigError
from sept_offline.family import suggest
from sept_offline.latent import LatentConfig
from sept_offline.limits import LONGEST_SEGMENT
from sept_offline.probe import ProbeConfig
from sept_offline.stacking import LONGEST

LEAST_DIM = 5
"""Minimum size of the latent if neither a preset nor a setting gives one."""
PRESETS = ("default", "paper", "segment")
FOUNDATIONS = {"segment": "default"}
"""Presets that extend another one."""


@dataclass(frozen=True)
class EpoptConfig:
    """Which episodes `epopt` trains on."""

    percentile: float = 10.0
    """ε: percentage of an iteration's episodes, those with the lowest returns, to train on."""
    episodes: int = 100
    """Episodes drawn per iteration."""
    everything: float = 0.5
    """Share of the updates, from the start, that train on all episodes."""

    def __post_init__(self) -> None:
        """Raise a ConfigError that names an invalid setting."""
        check_range(self, ("percentile",), "epopt", above=0, most=100)
        check_range(self, ("episodes",), "epopt", least=1)
        check_range(self, ("everything",), "epopt", least=0, most=1)


@dataclass(frozen=True)
class MamlConfig:
    """How `maml` adapts, in training and in the test episode."""

    inner_rate: float = 0.03
    """Learning rate of the one gradient step on the first T_p steps."""
    tasks: int = 8
    """Instances per update; each provides an equal share of the minibatch's transitions."""

    def __post_init__(self) -> None:
        """Raise a ConfigError that names an invalid setting."""
        check_range(self, ("inner_rate",), "maml", above=0)
        check_range(self, ("tasks",), "maml", least=1)


@dataclass(frozen=True)
class FitConfig:
    """Settings of all stages; `--set a.b=c` uses the names of these fields."""

    probe_steps: int
    """T_p, the number of steps in a probed segment."""
    stack: int = 0
    """Number of observations the agent reads at once: the current one and the last ones, with the
    actions between them. 1: the current one alone. 0: chosen from the logs."""
    held_out: float = 0.2
    """Share of each instance's episodes held out from the latent, for identification and
    novelty."""
    novelty_prior: Literal["normal", "instances"] = "normal"
    """Prior of the latent for novelty: N(0, I) or, for families with a few separate modes, the
    latents of the training instances."""
    verdict: bool = True
    """Whether the fit ends with a verdict, which may take as long as the fit itself."""
    fallback: Literal["none", "avg"] = "none"
    """Policy to use when the instance looks out-of-distribution."""
    oracle_noise: float = 0.0
    """Standard deviation of the noise on the hidden parameters that `oracle` trains with, in
    standard deviations of the training instances. It prevents overfitting to few instances."""
    latent: LatentConfig = field(default_factory=LatentConfig)
    """Settings of the latent."""
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    """Settings of the probe."""
    control: ControlConfig = field(default_factory=ControlConfig)
    """Settings of control."""
    history_steps: int = 4
    """Number of previous steps that `history` reads."""
    epopt: EpoptConfig = field(default_factory=EpoptConfig)
    """Settings of `epopt`."""
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    """The Bayesian network of `bnn` and `dpt`."""
    bnn: BnnConfig = field(default_factory=BnnConfig)
    """Settings of `bnn` in its episode."""
    dpt: DptConfig = field(default_factory=DptConfig)
    """Settings of `dpt` in its episode."""
    maml: MamlConfig = field(default_factory=MamlConfig)
    """Settings of `maml`."""

    def __post_init__(self) -> None:
        """Raise a ConfigError that names an invalid setting."""
        check_range(self, ("probe_steps", "history_steps"), least=1, most=LONGEST_SEGMENT)
        check_range(self, ("stack",), least=0, most=LONGEST)
        check_range(self, ("oracle_noise",), least=0)
        check_range(self, ("held_out",), above=0, most=0.5)


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
    said: dict[str, Any] = {}
    if metadata.probe_steps:
        said["probe_steps"] = metadata.probe_steps
    if "latent_dim" in metadata.extra:
        # Unused columns cost little; a hidden factor without a column is not found.
        said["latent"] = {"dim": max(metadata.extra["latent_dim"], LEAST_DIM)}
    chosen = preset_values(metadata.family, preset)
    if not stacks:
        chosen.pop("stack", None)
    values = merge(said, chosen, *overrides)
    if "probe_steps" not in values:
        # Build with a placeholder first, so that a mistyped setting is reported instead.
        build(FitConfig, values | {"probe_steps": 1})
        lengths = data.episode_index.length
        raise ConfigError(
            f"{data.path} does not name a probe length; add --set "
            f"probe_steps={lengths.min(initial=DEFAULT_PROBE_STEPS)}, or another number of first "
            f"steps that identify the instance; the shortest episode has {lengths.min()}."
        )
    return build(FitConfig, values)
