"""References for an agent's returns: the best known ones, and two policies without training.

The policies are random actions and the best constant one; of a box the constant is the best of a
small grid (`ActionSpace.grid`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sept_offline.actions import ActionSpace
from sept_offline.collect.behaviour import Behaviour, Constant, Uniform
from sept_offline.collect.rollout import Logged, Start, run_shard
from sept_offline.environments import spaces
from sept_offline.errors import FamilyError
from sept_offline.evaluation.handle import environment_seed
from sept_offline.evaluation.results import EpisodeResult, Results, cumulate, plain_actions
from sept_offline.family import Family, Hidden, known_family
from sept_offline.seals import read_json
from sept_offline.seeding import generator

LEAST_DIFFERENCE = 0.05
"""Share of |reference|: instances in which skill changes the return by less are not scored."""
ROWS = 256
"""Episodes stepped together."""


@dataclass(frozen=True)
class Reference:
    """Two returns of one instance, of episodes of the family's test limit."""

    random: float
    random_se: float
    reference: float
    source: str
    """The policy behind `reference`: double_dqn, double_dqn:episode or constant:<action>."""


@dataclass(frozen=True)
class References:
    """The references of a family, found by an instance's hidden parameters."""

    steps: int
    """Maximum steps per episode they were computed with; they do not apply to other limits."""
    table: Mapping[tuple[tuple[str, float], ...], Reference]

    def of(self, hidden: Hidden) -> Reference | None:
        """The reference of the instance with exactly these parameters, if there is one."""
        return self.table.get(_key(hidden))


def load_references(family: Family) -> References | None:
    """The references that `family` ships; None if it ships none."""
    if family.references is None:
        return None
    path = family.references
    content = read_json(path, FamilyError)
    if not isinstance(content, dict) or not isinstance(content.get("steps"), int):
        raise FamilyError(f"{path} is damaged: expected an object with an integer 'steps'.")
    table = {}
    for split, entries in content.items():
        if not isinstance(entries, list):
            continue
        for index, entry in enumerate(entries):
            if entry is None:  # not yet made
                continue
            try:
                hidden, reference = _read(entry)
            except (KeyError, TypeError, ValueError, AttributeError) as problem:
                raise FamilyError(
                    f"{path} is damaged: instance {split}-{index} needs hidden, random, random_se, "
                    f"reference and source ({problem})."
                ) from problem
            table[_key(hidden)] = reference
    return References(content["steps"], table)


def references_at(family: Family, limit: int) -> References | None:
    """The references that the family ships, if they were made with this limit."""
    references = load_references(family)
    return references if references is not None and references.steps == limit else None


def normalise(value: float, random: float, reference: float) -> float | None:
    """(value − random)/(reference − random); None where the two differ by less than 5 %."""
    difference = reference - random
    if difference == 0 or abs(difference) < LEAST_DIFFERENCE * abs(reference):
        return None
    return (value - random) / difference


def _key(hidden: Hidden) -> tuple[tuple[str, float], ...]:
    return tuple(sorted((name, float(value)) for name, value in hidden.items()))


def _read(entry: Any) -> tuple[Hidden, Reference]:
    numbers = {name: float(entry[name]) for name in ("random", "random_se", "reference")}
    if not all(map(math.isfinite, numbers.values())):
        raise ValueError(f"found {numbers}")
    hidden = {str(name): float(value) for name, value in entry["hidden"].items()}
    return hidden, Reference(**numbers, source=str(entry["source"]))


def scores(
    family: Family,
    references: References | None,
    hidden: Hidden,
    rewards: Sequence[float],
    limit: int,
) -> dict[str, Any]:
    """The fields of an `EpisodeResult` that say how good its `rewards[T]` are."""
    solved = None
    if family.solved is not None:
        solved = next((t for t, reward in enumerate(rewards, 1) if reward >= family.solved), None)
    known = None if references is None else references.of(hidden)
    total = cumulate(rewards)[-1]
    return {
        "solved": None if family.solved is None else solved is not None,
        "steps_to_solve": None if family.solved is None else solved or limit,
        "normalised": None if known is None else normalise(total, known.random, known.reference),
    }


@dataclass(frozen=True)
class ReferencePolicies:
    """The results of both reference policies in the episodes of an evaluation."""

    random: Results
    """Every action with the same probability."""
    best_constant: Results
    """The constant action with the best mean score, chosen on these instances: optimistic."""
    action: int | list[float]
    """The action of `best_constant`."""
    constants: int
    """How many constant actions were tried: all of a finite set, a grid of a box."""
    score: str
    """Measure by which it was chosen: `steps_to_solve` if the family defines "solved", else
    `return`."""

    def to_json(self) -> dict[str, Any]:
        """Flat keys for `--json`."""
        return {
            "score": self.score,
            "random": self.random.summary()[self.score],
            "best_constant": self.best_constant.summary()[self.score],
            "best_constant_action": self.action,
        }


def play_references(results: Results, family: Family | None = None) -> ReferencePolicies:
    """Let both policies play the episodes of `results`: same instances, seeds and limit.

    `family` is the one that the results name by default.
    """
    record = known_family(results.family) if family is None else family
    _, space = spaces(record)
    random = _play(record, space, results, "random", Uniform(space))
    score = "return" if record.solved is None else "steps_to_solve"
    actions = space.grid()
    constants = [
        _play(record, space, results, f"constant:{action}", Constant(space, action))
        for action in actions
    ]
    best = max(range(len(actions)), key=lambda index: _worth(constants[index], score))
    return ReferencePolicies(random, constants[best], actions[best].tolist(), len(actions), score)


def _worth(results: Results, score: str) -> tuple[float, float]:
    """Larger is better; among equals the larger return."""
    summary = results.summary()
    total = float(summary["return"]["mean"])
    return (-float(summary[score]["mean"]) if score == "steps_to_solve" else total), total


def _play(
    family: Family, space: ActionSpace, results: Results, name: str, behaviour: Behaviour
) -> Results:
    split, limit = results.instances, results.limit
    hiddens = dict(zip(family.instance_ids(split), family.instances(split), strict=True))
    known = references_at(family, limit)
    starts = [
        Start(
            hidden=hiddens[episode.instance],
            behaviour=behaviour,
            progress=0.5,
            reset_seed=environment_seed(results.seed, episode.instance, episode.episode),
            draws=generator(
                results.seed, "evaluate", episode.instance, episode.episode, "reference"
            ).random((limit, space.draws)),
            instance=episode.instance,
        )
        for episode in results.episodes
    ]
    logged = [
        episode
        for low in range(0, len(starts), ROWS)
        for episode in run_shard(family, space, starts[low : low + ROWS], limit, 0)
    ]
    return Results(
        method=name,
        family=family.name,
        needs=(),
        instances=split,
        seed=results.seed,
        limit=limit,
        episodes=tuple(
            _result(
                played,
                evaluated,
                scores(family, known, start.hidden, played.rewards.tolist(), limit),
            )
            for played, evaluated, start in zip(logged, results.episodes, starts, strict=True)
        ),
    )


def _result(played: Logged, evaluated: EpisodeResult, scored: dict[str, Any]) -> EpisodeResult:
    """What a policy did in the episode that an agent was `evaluated` in."""
    rewards = tuple(played.rewards.tolist())
    return EpisodeResult(
        instance=evaluated.instance,
        episode=evaluated.episode,
        actions=plain_actions(played.actions),
        phases=("control",) * len(rewards),
        rewards=rewards,
        terminated=played.terminated,
        **scored,
        latent=None,
        uncertainty=None,
        novelty=None,
        flagged=False,
        act_microseconds=math.nan,
        seconds=math.nan,
    )
