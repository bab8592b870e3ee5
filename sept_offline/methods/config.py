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
"""Columns of a latent, at least, where neither a preset nor a setting says how many."""
PRESETS = ("default", "paper", "segment")
FOUNDATIONS = {"segment": "default"}
"""Presets that are laid over another one."""


@dataclass(frozen=True)
class EpoptConfig:
    """What `epopt` calls the worst."""

    percentile: float = 10.0
    """ε: the share of an iteration's episodes that is learned from, in percent."""
    episodes: int = 100
    """Episodes an iteration draws."""
    everything: float = 0.5
    """The first share of the updates, which learn from all episodes."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        check_range(self, ("percentile",), "epopt", above=0, most=100)
        check_range(self, ("episodes",), "epopt", least=1)
        check_range(self, ("everything",), "epopt", least=0, most=1)


@dataclass(frozen=True)
class MamlConfig:
    """How `maml` adapts, in training and in the test episode alike."""

    inner_rate: float = 0.03
    """Learning rate of the one gradient step on the first T_p steps."""
    tasks: int = 8
    """Instances an update; each has an equal share of the minibatch's transitions."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        check_range(self, ("inner_rate",), "maml", above=0)
        check_range(self, ("tasks",), "maml", least=1)


@dataclass(frozen=True)
class FitConfig:
    """Settings of all stages; `--set a.b=c` names them as they stand here."""

    probe_steps: int
    """T_p, the steps of a segment."""
    stack: int = 0
    """Observations that an agent reads side by side: the present one and the last ones, with the
    actions between them; 1 is the present one alone, 0 leaves the choice to the logs."""
    held_out: float = 0.2
    """Share of each instance's episodes kept from the latent, to judge it and for novelty."""
    novelty_prior: Literal["normal", "instances"] = "normal"
    """What a latent is compared with: N(0, I), or, for families of a few separate modes, the
    latents of the training instances."""
    verdict: bool = True
    """Whether the fit ends with a verdict on what was learned; it may take as long again."""
    fallback: Literal["none", "avg"] = "none"
    """A robust policy to act where an instance is flagged as new."""
    oracle_noise: float = 0.0
    """Standard deviation, in those of the training instances, of noise on the parameters the oracle
    learns with: a few dozen points in twelve dimensions are otherwise learned by heart."""
    latent: LatentConfig = field(default_factory=LatentConfig)
    """How instances are told apart."""
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    """How the first steps are chosen."""
    control: ControlConfig = field(default_factory=ControlConfig)
    """How the policy given the latent is learned."""
    history_steps: int = 4
    """Steps before the present one that `history` reads."""
    epopt: EpoptConfig = field(default_factory=EpoptConfig)
    """What `epopt` calls the worst."""
    dynamics: DynamicsConfig = field(default_factory=DynamicsConfig)
    """The Bayesian network of `bnn` and `dpt`."""
    bnn: BnnConfig = field(default_factory=BnnConfig)
    """How `bnn` plans in its episode."""
    dpt: DptConfig = field(default_factory=DptConfig)
    """How `dpt` infers in its episode."""
    maml: MamlConfig = field(default_factory=MamlConfig)
    """How `maml` adapts."""

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        check_range(self, ("probe_steps", "history_steps"), least=1, most=LONGEST_SEGMENT)
        check_range(self, ("stack",), least=0, most=LONGEST)
        check_range(self, ("oracle_noise",), least=0)
        check_range(self, ("held_out",), above=0, most=0.5)


def preset_values(family: str | None, preset: str) -> dict[str, Any]:
    """The settings of a preset for a family: those for any family, then its own.

    Where a preset has a foundation, both of that come first.
    """
    if preset not in PRESETS:
        raise ConfigError(
            f"There is no preset {preset!r}{suggest(preset, PRESETS)}; known are "
            f"{', '.join(PRESETS)}."
        )
    folder = Path(str(importlib.resources.files("sept_offline.methods") / "presets"))
    # By looking names up: a family's name may come from a file, and is never part of a path.
    shipped = {path.stem: path for path in folder.glob("*.toml")}
    files = [read_toml(shipped.pop("any"))]
    if family in shipped:
        files.append(read_toml(shipped[family]))
    order = [FOUNDATIONS[preset], preset] if preset in FOUNDATIONS else [preset]
    return merge(*(values.get(name, {}) for name in order for values in files))


def resolve_config(
    data: Dataset, preset: str = "default", *overrides: Mapping[str, Any], stacks: bool = True
) -> FitConfig:
    """The settings for a dataset: what it says of itself, the preset, then each override.

    stacks: whether the method reads stacked observations; if not, a preset's `stack` is ignored.
    """
    metadata = data.metadata
    said: dict[str, Any] = {}
    if metadata.probe_steps:
        said["probe_steps"] = metadata.probe_steps
    if "latent_dim" in metadata.extra:
        # Columns that are not needed cost little; a hidden factor without one is not found.
        said["latent"] = {"dim": max(metadata.extra["latent_dim"], LEAST_DIM)}
    chosen = preset_values(metadata.family, preset)
    if not stacks:
        chosen.pop("stack", None)
    values = merge(said, chosen, *overrides)
    if "probe_steps" not in values:
        # with a number in its place first, so that this never hides a mistyped setting
        build(FitConfig, values | {"probe_steps": 1})
        lengths = data.episode_index.length
        raise ConfigError(
            f"{data.path} does not say how many steps a probe has; add --set "
            f"probe_steps={lengths.min(initial=DEFAULT_PROBE_STEPS)}, or another number of first "
            f"steps that tells instances apart; the shortest episode has {lengths.min()}."
        )
    return build(FitConfig, values)
