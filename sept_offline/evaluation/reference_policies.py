"""Two reference policies without training: random, and the best constant action.

Of a box the constant is the best of a small grid (`ActionSpace.grid`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from sept_offline.actions import ActionSpace
from sept_offline.collect.behaviour import Behaviour, Constant, Uniform
from sept_offline.collect.rollout import Logged, Start, run_shard
from sept_offline.environments import spaces
from sept_offline.evaluation.harness import environment_seed, references_at, solved_at
from sept_offline.evaluation.references import References, normalise
from sept_offline.evaluation.results import EpisodeResult, Results, cumulate, plain_actions
from sept_offline.family import Family, Hidden, known_family
from sept_offline.seeding import generator

ROWS = 256
"""Episodes stepped together."""


@dataclass(frozen=True)
class ReferencePolicies:
    """The results of both reference policies in the episodes of an evaluation."""

    random: Results
    """Every action with the same probability."""
    best_constant: Results
    """The constant action with the best mean score, chosen on these very instances: generous."""
    action: int | list[float]
    """The action of `best_constant`."""
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
    return ReferencePolicies(random, constants[best], actions[best].tolist(), score)


def _worth(results: Results, score: str) -> tuple[float, float]:
    """Larger is better; among equals the larger return."""
    summary = results.summary()
    total = float(summary["return"]["mean"])
    return (-float(summary[score]["mean"]) if score == "steps_to_solve" else total), total


def _play(
    family: Family, space: ActionSpace, results: Results, name: str, behaviour: Behaviour
) -> Results:
    hiddens = dict(
        zip(
            family.instance_ids(results.instances),
            family.instances(results.instances),
            strict=True,
        )
    )
    known = references_at(family, results.limit)
    starts = [
        Start(
            hidden=hiddens[episode.instance],
            behaviour=behaviour,
            progress=0.5,
            reset_seed=environment_seed(results.seed, episode.instance, episode.episode),
            draws=generator(
                results.seed, "evaluate", episode.instance, episode.episode, "reference"
            ).random((results.limit, space.draws)),
            instance=episode.instance,
        )
        for episode in results.episodes
    ]
    logged = [
        episode
        for low in range(0, len(starts), ROWS)
        for episode in run_shard(family, space, starts[low : low + ROWS], results.limit, 0)
    ]
    return Results(
        method=name,
        family=family.name,
        needs=(),
        instances=results.instances,
        seed=results.seed,
        limit=results.limit,
        episodes=tuple(
            _result(family, played, one.instance, one.episode, start.hidden, results.limit, known)
            for played, one, start in zip(logged, results.episodes, starts, strict=True)
        ),
    )


def _result(
    family: Family,
    played: Logged,
    instance: str,
    number: int,
    hidden: Hidden,
    limit: int,
    references: References | None,
) -> EpisodeResult:
    rewards = played.rewards.tolist()
    solved = solved_at(family, rewards)
    known = references.of(hidden) if references is not None else None
    total = cumulate(rewards)[-1]
    return EpisodeResult(
        instance=instance,
        episode=number,
        actions=plain_actions(played.actions),
        phases=("control",) * len(rewards),
        rewards=tuple(rewards),
        terminated=played.terminated,
        solved=None if family.solved is None else solved is not None,
        steps_to_solve=None if family.solved is None else solved or limit,
        normalised=None if known is None else normalise(total, known.random, known.reference),
        latent=None,
        uncertainty=None,
        novelty=None,
        flagged=False,
        act_microseconds=math.nan,
        seconds=math.nan,
    )
