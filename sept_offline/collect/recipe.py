"""What to log: behaviours and their shares, instances, episodes, limits; read from TOML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from sept_offline.errors import ConfigError
from sept_offline.family import Family, suggest
from sept_offline.settings import (
    ControlConfig,
    Count,
    Natural,
    Range,
    Settings,
    Share,
    build,
    merge,
    read_toml,
    to_plain,
)

BEHAVIOURS = ("random", "replay", "medium", "expert")
POLICY = "policy"
"""Name of the user's own policy in a mixture."""
EPISODES_PER_INSTANCE = 100


@dataclass(frozen=True)
class ExpertConfig(Settings, section="expert"):
    """How the online, hidden-parameter-conditioned DoubleDQN behind the experts is trained."""

    environments: Count = 32
    """Environments stepped at once, spread evenly over the training instances."""
    rounds: Annotated[int, Range(least=2)] = 16
    """Number of rounds: each runs all environments for one episode; the first is random."""
    updates_per_step: Count = 2
    """Gradient steps per step of all environments."""
    epsilon_start: Share = 1.0
    epsilon_end: Share = 0.1
    epsilon_fraction: Share = 0.6
    """Share of the training over which epsilon falls."""
    exploring: Share = 0.5
    """Epsilon below which one copy of each instance never falls (1 until its goal was found once);
    the bounds of its other copies are spread evenly from 0 up to that."""
    end_share: Share = 0.125
    """Share of a minibatch drawn from steps that ended an episode, from every instance equally."""
    snapshots: Count = 20
    """Networks kept along the way; `replay` walks through them, `medium` is the middle one."""
    behaviour_epsilon: Share = 0.1
    """Exploration of `medium` and `expert`; `replay` uses that of its snapshot."""
    noise: Share = 0.1
    """Standard deviation of a box's actions around the preferred one, as a share of half the range;
    of `replay`, `medium` and `expert`, and while training."""
    control: ControlConfig = field(default_factory=ControlConfig)

    def __post_init__(self) -> None:
        """Refuse what cannot work, by name."""
        super().__post_init__()
        if self.control.reward_form == "instance":
            raise ConfigError(
                "expert.control.reward_form is 'instance', which requires all rewards in advance; "
                "expected 'raw' or 'log'."
            )


@dataclass(frozen=True)
class Recipe(Settings):
    """Everything that determines a dataset besides the family and the seed."""

    behaviour: str = "random"
    """`random`, `replay`, `medium`, `expert`, or a mixture such as `random:0.5,expert:0.5`; in one,
    `policy` is the policy that `collect` is given."""
    instances: str = "train"
    episodes: Count | None = None
    """Total episodes, balanced over the instances (default: 100 per instance)."""
    max_steps: Count | None = None
    """Maximum steps per episode (default: the family's training limit)."""
    probe_steps: Natural | None = None
    """Number of uniformly random first steps of each episode (default: the family's)."""
    expert: ExpertConfig = field(default_factory=ExpertConfig)


def load_recipe(
    family: Family, path: Path | None = None, overrides: Mapping[str, Any] | None = None
) -> Recipe:
    """The family's recipe (or the file `path`), with `overrides` laid over it field by field."""
    source = path or family.recipe
    values = read_toml(source) if source else {}
    return build(Recipe, merge(values, overrides or {}))


OF_LOGS = ("centred", "bounded")
"""Settings of control that do not apply to an expert, which learns online."""
FIRST = {
    *("environments", "rounds", "updates_per_step", "epsilon_start", "epsilon_end"),
    *("epsilon_fraction", "exploring", "end_share", "snapshots", "behaviour_epsilon", "control"),
    *("algorithm", "hidden", "layer_norm", "gamma", "learning_rate", "batch_size", "updates"),
    *("target_rate", "average_decay", "average_every", "grad_clip", "critics", "members"),
    *("cql_alpha", "bcq_flexibility", "bcq_beta", "reward_form", "reward_scale", "goal_shift"),
}
"""Settings of the first version. Later ones are left out at their default, so that the experts and
plans of before are still those of the same recipes."""


def plain_expert(config: ExpertConfig) -> dict[str, Any]:
    """Everything that determines an expert, JSON-ready."""
    plain: dict[str, Any] = to_plain(config)
    usual: dict[str, Any] = to_plain(ExpertConfig())
    control = {
        name: value
        for name, value in plain["control"].items()
        if name in FIRST or (name not in OF_LOGS and value != usual["control"][name])
    }
    kept = {name: value for name, value in plain.items() if name in FIRST or value != usual[name]}
    # 0 lets the algorithm choose; the first version wrote its default of 1.
    return kept | {"control": control | {"critics": control["critics"] or 1}}


def plain_recipe(recipe: Recipe) -> dict[str, Any]:
    """Everything that determines a collection, JSON-ready."""
    plain: dict[str, Any] = to_plain(recipe)
    return plain | {"expert": plain_expert(recipe.expert)}


def parse_behaviour(text: str, *, with_policy: bool = False) -> dict[str, float]:
    """The shares of a mixture: `random:0.5,expert:0.5` gives {"random": 0.5, "expert": 0.5}.

    With `with_policy` a user's own policy may be among them.
    """
    known = (*BEHAVIOURS, POLICY) if with_policy else BEHAVIOURS
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, colon, share = part.strip().partition(":")
        if name not in known:
            raise ConfigError(
                f"There is no behaviour {name!r}{suggest(name, known)}; "
                f"expected one of {', '.join(known)}, or a mixture such as random:0.5,expert:0.5."
            )
        if name in shares:
            raise ConfigError(f"Behaviour {name!r} is named twice in {text!r}.")
        try:
            shares[name] = float(share) if colon else 1.0
        except ValueError:
            raise ConfigError(
                f"The share {share!r} of behaviour {name!r} is not a number."
            ) from None
        if not 0 < shares[name] < float("inf"):
            raise ConfigError(f"The share of behaviour {name!r} must be positive, not {share}.")
    total = sum(shares.values())
    return {name: share / total for name, share in shares.items()}


def interleave(shares: Mapping[str, float], count: int) -> list[str]:
    """`count` behaviour names whose every prefix is as close to the shares as can be."""
    names = list(shares)
    given = dict.fromkeys(names, 0)
    sequence = []
    for position in range(1, count + 1):
        name = max(names, key=lambda n: shares[n] * position - given[n])
        given[name] += 1
        sequence.append(name)
    return sequence
