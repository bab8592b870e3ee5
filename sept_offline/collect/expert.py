"""The online learner behind the experts: it knows the hidden parameters and may explore.

A DoubleDQN for a finite set of actions, TD3 for a box.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.actions import ActionSpace, Policy
from sept_offline.agent.networks import Standardiser, network_from_arrays
from sept_offline.collect.behaviour import Exploring, Snapshot
from sept_offline.collect.recipe import ExpertConfig
from sept_offline.collect.rollout import hidden_rows
from sept_offline.control import Batch, Learner, prepare_rewards
from sept_offline.environments import make_vector, reset_rows, spaces, step_rows
from sept_offline.family import Family, Hidden
from sept_offline.seeding import generator, integer
from sept_offline.settings import ControlConfig
from sept_offline.stage import StageState
from sept_offline.threads import one_thread

MEMORY = ("inputs", "actions", "rewards", "next_inputs", "terminals")

PATIENCE = 0.4
"""Share of the rounds after which a goal that was never reached is searched for at random."""


@dataclass(frozen=True)
class Features:
    """Scaled [observation, hidden] rows, the input of every snapshot."""

    observation: Standardiser
    hidden: Standardiser

    def __call__(
        self, observations: NDArray[Any], hidden: NDArray[np.float64]
    ) -> NDArray[np.float32]:
        """[n, d + h] float32."""
        scaled = [self.observation(observations), self.hidden(hidden)]
        return np.concatenate(scaled, axis=1, dtype=np.float32)


@dataclass(frozen=True)
class Expert:
    """A trained expert: its snapshots in order of training, and its inputs."""

    snapshots: tuple[Snapshot, ...]
    features: Features

    def replay(self, space: ActionSpace, noise: float) -> Exploring:
        """Its episodes over training: early ones explore, late ones exploit."""
        return Exploring(space, self.snapshots, self.features, noise)

    def medium(self, space: ActionSpace, epsilon: float, noise: float) -> Exploring:
        """Half trained."""
        return self._single(len(self.snapshots) // 2, space, epsilon, noise)

    def final(self, space: ActionSpace, epsilon: float = 0.0, noise: float = 0.0) -> Exploring:
        """Trained to the end; greedy by default."""
        return self._single(-1, space, epsilon, noise)

    def _single(self, index: int, space: ActionSpace, epsilon: float, noise: float) -> Exploring:
        snapshot = Snapshot(self.snapshots[index].network, epsilon)
        return Exploring(space, (snapshot,), self.features, noise)

    def state(self) -> StageState:
        """All of it, ready to be written."""
        import torch

        arrays: dict[str, NDArray[Any]] = {}
        for index, snapshot in enumerate(self.snapshots):
            arrays |= snapshot.network.to_arrays(f"snapshot.{index}")
        arrays |= self.features.observation.to_arrays("features.observation")
        arrays |= self.features.hidden.to_arrays("features.hidden")
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        return StageState(tensors, {"epsilons": [s.epsilon for s in self.snapshots]})

    @classmethod
    def restore(cls, state: StageState) -> Expert:
        """Restore what `state` returned."""
        # Shipped experts keep their weights in half precision.
        arrays = {
            name: (tensor.float() if tensor.is_floating_point() else tensor).numpy()
            for name, tensor in state.tensors.items()
            if name.startswith(("snapshot.", "features."))
        }
        snapshots = tuple(
            Snapshot(network_from_arrays(arrays, f"snapshot.{index}"), epsilon)
            for index, epsilon in enumerate(state.values["epsilons"])
        )
        features = Features(
            Standardiser.from_arrays(arrays, "features.observation"),
            Standardiser.from_arrays(arrays, "features.hidden"),
        )
        return cls(snapshots, features)


def online(control: ControlConfig, space: ActionSpace) -> ControlConfig:
    """The settings of an online learner.

    Of a box it is TD3, by way of ReBRAC, with a little imitation of what it did itself: without it
    tanh saturates early, and the actor never learns to stop.
    """
    if not space.shape:
        return control
    return dataclasses.replace(control, algorithm="rebrac", rebrac_critic_beta=0.0, critics=2)


class ExpertStage:
    """Online training in rounds.

    A round starts every environment afresh and steps all of them for one episode limit, so that
    between rounds all state is in this object, so a checkpoint of it is exact.
    """

    name = "expert"

    def __init__(self, family: Family, config: ExpertConfig, max_steps: int, seed: int) -> None:
        import torch

        self.family = family
        self.config = config
        self.max_steps = max_steps
        self.seed = seed
        self.total = config.rounds
        self.done = 0
        instances = family.instances("train")
        ids = family.instance_ids("train")
        self.copies = max(1, config.environments // len(instances))
        self.hiddens: Sequence[Hidden] = [h for h in instances for _ in range(self.copies)]
        self.ids = [name for name in ids for _ in range(self.copies)]
        self.hidden = hidden_rows(self.hiddens, family.hidden_names)
        self.places = np.arange(len(self.hiddens)) % self.copies / max(1, self.copies - 1)
        observation_dim, self.space = spaces(family)
        self.control = online(config.control, self.space)
        width = observation_dim + self.hidden.shape[1]
        capacity = config.rounds * max_steps * len(self.hiddens)
        self.memory = Batch(
            inputs=torch.zeros(capacity, width),
            actions=torch.from_numpy(self._stored(self.space.empty(capacity))),
            rewards=torch.zeros(capacity),
            next_inputs=torch.zeros(capacity, width),
            terminals=torch.zeros(capacity),
        )
        self.stored = 0
        self.ends: list[list[int]] = [[] for _ in instances]
        """Places in the memory of the steps that ended an episode, by instance."""
        self.learner = Learner(self.control, width, self.space.width, integer(seed, "weights"))
        self.features: Features | None = None
        self.snapshots: list[Snapshot] = []

    def advance(self, updates: int) -> dict[str, float]:
        """Run up to `updates` rounds."""
        metrics: dict[str, float] = {}
        with one_thread():
            for _ in range(min(updates, self.total - self.done)):
                metrics = self._round(self.done)
                self.done += 1
        return metrics

    def _epsilon(self, step: int) -> float:
        config = self.config
        horizon = max(1.0, config.epsilon_fraction * (self.total - 1) * self.max_steps)
        share = min(1.0, step / horizon)
        return config.epsilon_start + share * (config.epsilon_end - config.epsilon_start)

    def _least_epsilon(self) -> NDArray[np.float64]:
        """[rows] bounds of epsilon, spread over the copies of each instance.

        Up to 1 until the instance's goal is found, then up to `exploring`. If it is not found by
        chance in the first rounds, all copies search for it at random.
        """
        most = np.full(len(self.ends), self.config.exploring)
        least = np.zeros(len(self.ends))
        if self.family.solved is not None:
            lost = [not ends for ends in self.ends]
            most[lost] = 1.0
            least[lost] = float(self.done >= PATIENCE * self.total)
        spread = np.repeat(most, self.copies) * self.places
        return np.maximum(spread, np.repeat(least, self.copies))

    def _round(self, index: int) -> dict[str, float]:
        import torch

        rng = generator(self.seed, "round", index)
        n = len(self.hiddens)
        env = make_vector(self.family, self.hiddens, self.max_steps, self.ids)
        seeds = [integer(self.seed, "reset", index, row) for row in range(n)]
        observation = reset_rows(self.family, env, seeds)
        raw: list[tuple[NDArray[Any], ...]] = []
        fresh = np.ones(n, dtype=bool)
        returns = np.zeros(n)
        finished: list[float] = []
        for step in range(self.max_steps):
            position = (index - 1) * self.max_steps + step
            policy: Policy = self.space.uniform(n)
            if self.features is not None:
                inputs = torch.from_numpy(self.features(observation, self.hidden))
                epsilon = np.maximum(self._epsilon(position), self._least_epsilon())
                outputs = self.learner.outputs(inputs).numpy()
                policy = self.space.explore(outputs, epsilon, self.config.noise)
            action = policy.draw(rng.random((n, self.space.draws)))
            following, reward, terminated, truncated = step_rows(self.family, env, action, step)
            # The step after an end only resets its row: there is nothing in it to learn.
            rows = np.flatnonzero(fresh)
            moment = (observation, action, np.asarray(reward), following, terminated, rows)
            returns[rows] += np.asarray(reward)[rows]
            done = fresh & (terminated | truncated)
            finished.extend(returns[done])
            returns[done] = 0.0
            fresh = ~done
            observation = following
            if self.features is None:
                raw.append(moment)
                continue
            self._store(*moment)
            # The snapshots' moments are spread evenly over all rounds but the first.
            for _ in range(self.config.updates_per_step):
                self.learner.update(self._sample(rng))
            moments = (self.total - 1) * self.max_steps
            due = (position + 1) * self.config.snapshots // moments
            if due > len(self.snapshots):
                network = self.learner.averaged()
                self.snapshots.append(Snapshot(network, self._epsilon(position)))
        env.close()
        if self.features is None:
            seen = np.concatenate([early[0] for early in raw])
            self.features = Features(Standardiser.fit(seen), Standardiser.fit(self.hidden))
            for early in raw:
                self._store(*early)
        return {"return": float(np.mean(finished)) if finished else float("nan")}

    def _store(
        self,
        observation: NDArray[Any],
        action: NDArray[Any],
        reward: NDArray[Any],
        following: NDArray[Any],
        terminated: NDArray[Any],
        rows: NDArray[Any],
    ) -> None:
        import torch

        if self.features is None or not len(rows):
            return
        here = slice(self.stored, self.stored + len(rows))
        hidden = self.hidden[rows]
        done = terminated[rows].astype(np.float64)
        memory = self.memory
        memory.inputs[here] = torch.from_numpy(self.features(observation[rows], hidden))
        memory.next_inputs[here] = torch.from_numpy(self.features(following[rows], hidden))
        memory.actions[here] = torch.from_numpy(self._stored(action[rows]))
        prepared = prepare_rewards(reward[rows], done, rows, self.control)
        memory.rewards[here] = torch.from_numpy(prepared.astype(np.float32))
        memory.terminals[here] = torch.from_numpy(done.astype(np.float32))
        for place in np.flatnonzero(done).tolist():
            self.ends[rows[place] // self.copies].append(self.stored + place)
        self.stored += len(rows)

    def _sample(self, rng: np.random.Generator) -> Batch:
        import torch

        places = rng.integers(self.stored, size=self.control.batch_size)
        # The goal of an instance that is hard to reach is a few steps among many thousands, most of
        # them another instance's: drawn evenly, it is learned late or never.
        known = [ends for ends in self.ends if ends]
        if known:
            count = round(self.config.end_share * len(places))
            chosen = rng.integers(len(known), size=count)
            places[:count] = [known[place][rng.integers(len(known[place]))] for place in chosen]
        rows = torch.from_numpy(places)
        drawn = {field: getattr(self.memory, field)[rows] for field in MEMORY}
        # at weight 0 nothing depends on them, but d3rlpy's ReBRAC wants some
        return Batch(**drawn, next_actions=drawn["actions"] if self.space.shape else None)

    def _stored(self, actions: NDArray[Any]) -> NDArray[Any]:
        """As a learner reads them: numbers, or vectors scaled to [−1, 1]."""
        return self.space.encode(actions) if self.space.shape else actions

    def state(self) -> StageState:
        """Learner, memory, scalers and snapshots between two rounds."""
        import torch

        learner = self.learner.state()
        tensors = {f"learner.{name}": tensor for name, tensor in learner.tensors.items()}
        for field in MEMORY:
            tensors[f"memory.{field}"] = getattr(self.memory, field)[: self.stored]
        for instance, ends in enumerate(self.ends):
            tensors[f"ends.{instance}"] = torch.tensor(ends, dtype=torch.int64)
        values = {"done": self.done, "stored": self.stored, "learner": learner.values}
        if self.features is not None:
            expert = self.result().state()
            tensors |= expert.tensors
            values["expert"] = expert.values
        return StageState(tensors=tensors, values=values)

    def restore(self, state: StageState) -> None:
        """Continue as if the process had never stopped."""
        learner = {
            name.removeprefix("learner."): tensor
            for name, tensor in state.tensors.items()
            if name.startswith("learner.")
        }
        self.learner.restore(StageState(learner, state.values["learner"]))
        self.done = int(state.values["done"])
        self.stored = int(state.values["stored"])
        for field in MEMORY:
            getattr(self.memory, field)[: self.stored] = state.tensors[f"memory.{field}"]
        self.ends = [state.tensors[f"ends.{i}"].tolist() for i in range(len(self.ends))]
        if "expert" in state.values:
            expert = Expert.restore(StageState(state.tensors, state.values["expert"]))
            self.features = expert.features
            self.snapshots = list(expert.snapshots)

    def result(self) -> Expert:
        """The expert, once all rounds are done."""
        if self.features is None:
            raise RuntimeError("The expert has not been trained.")
        return Expert(tuple(self.snapshots), self.features)
