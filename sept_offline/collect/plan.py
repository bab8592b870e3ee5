"""The plan of a collection: all that is decided before its first episode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sept_offline.collect.expert_files import shipped_expert
from sept_offline.collect.jobs import Planned, load_policy, reset_seed
from sept_offline.collect.partition import plan_digest
from sept_offline.collect.recipe import (
    EPISODES_PER_INSTANCE,
    Recipe,
    interleave,
    load_recipe,
    parse_behaviour,
    plain_recipe,
)
from sept_offline.data.records import Metadata
from sept_offline.data.source import Header
from sept_offline.data.writer import written_by
from sept_offline.environments import spaces
from sept_offline.errors import ConfigError, FamilyError
from sept_offline.family import Family, Hidden, load_family, registered_family

SHARD = 256
"""Episodes stepped together; part of the definition of a dataset, not a tuning knob."""


@dataclass(frozen=True)
class Collection:
    """All that determines a dataset."""

    record: Family
    family: str | Family
    """The name by which workers load it."""
    recipe: Recipe
    hiddens: tuple[Hidden, ...]
    seed: int
    policy: str | Callable[..., Any] | None
    planned: tuple[Planned, ...]
    names: dict[str, str]
    """Planned name of a behaviour to logged name, in the order of planning."""

    @property
    def max_steps(self) -> int:
        """The limit of an episode."""
        return self.recipe.max_steps or self.record.train_steps

    @property
    def probe_steps(self) -> int:
        """Uniform steps at the start of an episode."""
        own = self.recipe.probe_steps
        return self.record.probe_steps if own is None else own

    @property
    def shards(self) -> list[tuple[Planned, ...]]:
        """The episodes in the pieces that tasks run."""
        return [self.planned[i : i + SHARD] for i in range(0, len(self.planned), SHARD)]

    @property
    def instances(self) -> list[str]:
        """The ids of the instances, in order."""
        return [f"{self.recipe.instances}-{index}" for index in range(len(self.hiddens))]

    @property
    def behaviours(self) -> tuple[str, ...]:
        """The planned names of those that act, in the order of their first episodes."""
        return tuple(dict.fromkeys(episode.behaviour for episode in self.planned))

    @property
    def needs_expert(self) -> bool:
        """Whether an expert must be trained first."""
        return any(name in ("replay", "medium", "expert") for name in self.names)

    @cached_property
    def is_portable(self) -> bool:
        """Whether nothing is trained here, so that the bits depend on no processor.

        That holds for the shipped families; what a user's own environment computes is theirs.
        """
        if not self.needs_expert:
            return True
        return shipped_expert(self.record, self.recipe.expert, self.seed) is not None

    @cached_property
    def plan(self) -> dict[str, Any]:
        """The values that a resumed collection must match."""
        return {
            "family": self.record.name,
            "seed": self.seed,
            "policy": self.names["policy"] if self.policy is not None else None,
            "recipe": plain_recipe(self.recipe),
            "instances": [dict(hidden) for hidden in self.hiddens],
            "max_steps": self.max_steps,
            "probe_steps": self.probe_steps,
            "shard": SHARD,
        }

    @cached_property
    def header(self) -> Header:
        """The header of the dataset, but for its hash."""
        observation_dim, space = spaces(self.record)
        extra: dict[str, Any] = {"latent_dim": self.record.latent_dim}
        if isinstance(self.family, str) and ":" in self.family:
            extra["family_object"] = self.family
        if self.needs_expert:
            extra["expert"] = "shipped" if self.is_portable else "trained here"
        return Header(
            action_space=space,
            observation_dim=observation_dim,
            instances=tuple(self.instances),
            metadata=Metadata(
                family=self.record.name,
                family_arguments={"max_episode_steps": self.max_steps},
                observation_names=self.record.observation_names,
                action_names=self.record.action_names,
                behaviours=tuple(self.names[name] for name in self.behaviours),
                root_seed=self.seed,
                versions=written_by(),
                probe_steps=self.probe_steps,
                extra=extra,
                plan=plan_digest(self.plan),
            ),
            content_hash=None,
        )

    def reset_seeds(self) -> list[int]:
        """The reset seeds of all episodes."""
        split = self.recipe.instances
        return [reset_seed(self.seed, split, episode) for episode in self.planned]


def decide(
    family: str | Family,
    recipe: Recipe | str | Path | None,
    overrides: Mapping[str, Any] | None,
    policy: str | Callable[..., Any] | None,
    seed: int,
    elsewhere: bool,
) -> Collection:
    """The collection that a user asks for; `elsewhere`: its episodes run in other processes."""
    record = load_family(family)
    if not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"The seed is {seed!r}; expected a whole number of at least 0.")
    if not isinstance(recipe, Recipe):
        recipe = load_recipe(record, Path(recipe) if recipe else None, overrides)
    shares = parse_behaviour(recipe.behaviour, with_policy=True)
    if policy is None and "policy" in shares:
        raise ConfigError(
            f"The behaviour {recipe.behaviour!r} includes your own policy; pass it with --policy "
            "package.module:object."
        )
    if policy is not None and "policy" not in shares:
        shares = {"policy": 1.0}
    hiddens = record.instances(recipe.instances)
    episodes = recipe.episodes or EPISODES_PER_INSTANCE * len(hiddens)
    if episodes < len(hiddens):
        raise ConfigError(
            f"{episodes} episodes cannot cover the {len(hiddens)} instances of split "
            f"{recipe.instances!r}; collect at least one per instance."
        )
    if isinstance(family, Family) and _is_registered(family):
        family = family.name
    if elsewhere and isinstance(family, Family):
        raise ConfigError(
            "Several workers need a family by name; register it, or pass it as "
            "package.module:object."
        )
    if elsewhere and policy is not None and not isinstance(policy, str):
        raise ConfigError("Several workers need a policy as package.module:object.")
    if isinstance(policy, str):
        load_policy(policy)  # here, so that a wrong name leaves nothing behind
    policy_name = policy if isinstance(policy, str) else getattr(policy, "__name__", "policy")
    planned = Collection(
        record=record,
        family=family,
        recipe=recipe,
        hiddens=tuple(hiddens),
        seed=seed,
        policy=policy,
        planned=tuple(plan_episodes(len(hiddens), episodes, shares)),
        names={name: policy_name if name == "policy" else name for name in shares},
    )
    if planned.needs_expert:
        _check_expert(planned)
    return planned


def _check_expert(planned: Collection) -> None:
    """Refuse an expert that cannot act in these instances, or whose actions have no density."""
    record, recipe = planned.record, planned.recipe
    named = {name for hidden in planned.hiddens for name in hidden}
    unknown = sorted(named - set(record.hidden_names))
    if unknown:
        raise ConfigError(
            f"Split {recipe.instances!r} names the hidden parameter {unknown[0]!r}, which no "
            "training instance has, so an expert has not learned from it; log another behaviour "
            "there."
        )
    if recipe.expert.noise == 0 and spaces(record)[1].shape:
        raise ConfigError(
            "expert.noise is 0, but continuous actions without noise have no density; expected "
            "above 0."
        )


def plan_episodes(num_instances: int, episodes: int, shares: Mapping[str, float]) -> list[Planned]:
    """All episodes, instance by instance; every instance gets the behaviours in equal shares."""
    planned = []
    for instance in range(num_instances):
        share, rest = divmod(episodes, num_instances)
        names = interleave(shares, share + (instance < rest))
        counts = {name: names.count(name) for name in shares}
        seen = dict.fromkeys(shares, 0)
        for index, name in enumerate(names):
            planned.append(Planned(instance, index, counts[name], seen[name], name))
            seen[name] += 1
    return planned


def _is_registered(family: Family) -> bool:
    try:
        return registered_family(family.name) is family
    except FamilyError:
        return False
