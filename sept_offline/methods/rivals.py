"""FOCAL, UNICORN and CSRO: encoders of contexts without a likelihood, each with its own loss.

A transition has an embedding e, and a context the mean of its transitions' embeddings:

    z(context) = 1/n Σ_t e(s_t, a_t, s_{t+1} − s_t, r_t)        without rewards: no r_t

- FOCAL draws contexts of one instance together and those of others apart. From Li, Yang and Luo,
  "FOCAL: efficient fully-offline meta-reinforcement learning via distance metric learning and
  behavior regularization" (2021).

    L_FOCAL = mean ‖z_i − z_j‖²  over pairs of one instance
              + β · mean 1 / (‖z_i − z_j‖² + ε)  over all other pairs

- UNICORN's latent must also predict other transitions, from anywhere in the instance;
  reconstruction bounds the information about the task from below, distances from above. From Li et
  al., "Towards an information theoretic framework of context-based offline meta-reinforcement
  learning" (2024).

    L = E ‖decoder(s, a, z) − (s′ − s, r)‖² + α · L_FOCAL

- CSRO's embeddings say little about who acted where. The bracket bounds the information between a
  transition's embedding e and its state and action from above (CLUB), so that z depends on what an
  action does and not on the behaviour that chose it. q is a Gaussian that is fitted beside it, to
  embeddings held constant. At test time random steps come first. From Gao et al., "Context shift
  reduction for offline meta-reinforcement learning" (2023).

    L = L_FOCAL + λ · ( E log q(e | s, a) − E_{e′ of other steps} log q(e′ | s, a) )

They are published with rewards in the context, and with a context that is logged in the test task.
Here the context is what the agent itself has seen of its one episode, as for every other method. An
agent reads it with the encoder of the transitions objective: each embedding counts as evidence of
the same, very high precision, so that a context has their mean. Control learns π(a | s, z).
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
import torch
from torch import Tensor, nn

from sept_offline.actions import ActionSpace, Box
from sept_offline.agent import RefinedContext
from sept_offline.agent.contexts import RewardedContext
from sept_offline.agent.encoders import TransitionEncoder
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.agent.probes import UniformBoxProbe, UniformProbe
from sept_offline.data import Dataset
from sept_offline.data.records import Steps
from sept_offline.latent.networks import (
    LOG_PRECISION,
    LOG_VARIANCE,
    RESIDUAL,
    bounded,
    outer,
    posterior,
)
from sept_offline.latent.transitions import BLOCK, TARGETS, Contexts, draw_latents, ragged
from sept_offline.methods.method import Method, Stages, agent_of, control_stage
from sept_offline.seeding import integer, torch_generator
from sept_offline.settings import FitConfig, FocalConfig
from sept_offline.threads import one_thread
from sept_offline.training.inputs import Floats, Integers, changes, standardised
from sept_offline.training.layers import array, initialise, layers_of, log_normal, perceptron
from sept_offline.training.updates import UpdateStage

COPIES = 4
"""Contexts of each instance in a minibatch."""
SURE = LOG_PRECISION[1]
"""Log-precision of every embedding."""


class ContextStage(UpdateStage):
    """Base of stages that learn embeddings of transitions; a subclass says by which loss.

    rewards: whether the reward of each step is one more column of what is read.
    """

    watched = ("loss",)

    def __init__(
        self, steps: Steps, config: FitConfig, seed: int, *, space: ActionSpace, rewards: bool
    ) -> None:
        latent = config.latent
        super().__init__("latent", latent.updates, (latent.learning_rate, latent.learning_rate_end))
        self.config, self._seed = config, seed
        before = steps.observations[steps.row]
        change = changes(before, steps.observations[steps.row + 1])
        if rewards:
            # the reward is a column that is 0 before every step
            before = np.concatenate([before, np.zeros((len(before), 1), np.float32)], axis=1)
            change = np.concatenate([change, steps.rewards[:, None].astype(np.float32)], axis=1)
        self._scalers = Standardiser.fit(before), Standardiser.fit(change)
        self.states = standardised(self._scalers[0], before)
        self.changes = standardised(self._scalers[1], change).clamp(-RESIDUAL, RESIDUAL)
        self.chosen = torch.from_numpy(space.encode(steps.actions))
        self.draws = Contexts(steps.instance, steps.time, latent.context)
        width = self.states.shape[1]
        inputs = 2 * width + space.width + space.width * width
        self.embedding = perceptron(inputs, (latent.hidden, latent.hidden), latent.dim)
        self.beside = self._beside()
        modules = {"embedding": self.embedding, **self.beside}
        rng = torch_generator(seed, "latent", "initialise")
        for module in modules.values():
            initialise(module, rng)
        self.optimise(modules, torch_generator(seed, "latent", "train"))

    @abstractmethod
    def _loss(self, instance: Tensor, z: Tensor) -> Tensor:
        """The loss of contexts of `instance[B]` with the latents `z[B, k]`."""

    def _beside(self) -> dict[str, nn.Sequential]:
        """The networks that are trained with the embedding; their weights are not yet drawn."""
        return {}

    def embed(self, rows: Tensor) -> Tensor:
        """e of the steps `rows[n]`, [n, k]."""
        chosen, changes = self.chosen[rows], self.changes[rows]
        inputs = (self.states[rows], chosen, changes, outer(chosen, changes))
        embedded: Tensor = self.embedding(torch.cat(inputs, dim=1))
        return embedded

    def _update(self) -> Tensor:
        config, rng, present = self.config.latent, self.rng, self.draws.steps.present
        count = max(2, config.contexts // COPIES)
        instance = present[torch.randint(len(present), (count,), generator=rng)].repeat(COPIES)
        start, length = self.draws.draw(instance, rng)
        rows, owner = ragged(start, length.clamp(min=1))
        evidence = torch.zeros(len(start), 2 * config.dim)
        evidence = evidence.index_add(0, owner, _evidence(self.embed(rows)))
        loss = self._loss(instance, posterior(evidence)[0])
        self._descend(loss)
        return loss.detach()

    def targets(self, instance: Tensor) -> Tensor:
        """`TARGETS` steps from anywhere in each `instance[B]`, [B · TARGETS]."""
        return self.draws.steps.draw_like(instance.repeat_interleave(TARGETS), self.rng)

    def latents(self) -> tuple[Floats, Integers]:
        """Latents `[S, k]` of contexts of 0 to `context` steps, and their instances `[S]`."""
        with one_thread(), torch.no_grad():
            everything = torch.arange(len(self.states))
            blocks = (_evidence(self.embed(rows)) for rows in torch.split(everything, BLOCK))
            rng = torch_generator(self._seed, "contexts")
            (latent, _), instance, _ = draw_latents(blocks, self.draws, rng)
        return latent.numpy(), instance.numpy()

    def encoder(self) -> TransitionEncoder:
        """The embedding as the agent reads it."""
        width, taken = self.states.shape[1], self.chosen.shape[1]
        *layers, (weight, bias) = [(array(w), array(b)) for w, b in layers_of(self.embedding)]
        sure = np.full(len(bias), SURE, dtype=np.float32)
        last = np.concatenate([weight, np.zeros_like(weight)]), np.concatenate([bias, sure])
        nothing = np.zeros((width, width + taken)), np.zeros(width)
        return TransitionEncoder(
            MLP([nothing]),
            MLP([*layers, last]),
            *self._scalers,
            action_width=taken,
            steps=1,
            residual_range=RESIDUAL,
            log_precision_range=LOG_PRECISION,
        )


def _evidence(embedded: Tensor) -> Tensor:
    """λm and λ of embeddings `[n, k]`, all of the same precision, [n, 2k]."""
    precision = torch.full_like(embedded, float(np.exp(SURE)))
    return torch.cat((precision * embedded, precision), dim=1)


def distance_loss(instance: Tensor, z: Tensor, config: FocalConfig) -> Tensor:
    """‖z_i − z_j‖² over pairs of one instance, plus β / (‖z_i − z_j‖² + ε) over all other pairs.

    instance `[B]`, z `[B, k]`; each kind of pair has its own mean.
    """
    first, second = torch.triu_indices(len(z), len(z), offset=1)
    apart = ((z[first] - z[second]) ** 2).sum(dim=1)
    same = instance[first] == instance[second]
    together = apart[same].sum() / same.sum().clamp(min=1)
    others = (1 / (apart[~same] + config.softening)).sum() / (~same).sum().clamp(min=1)
    return together + config.repulsion * others


class FocalStage(ContextStage):
    """Learns embeddings by distances alone."""

    def _loss(self, instance: Tensor, z: Tensor) -> Tensor:
        return distance_loss(instance, z, self.config.focal)


class UnicornStage(ContextStage):
    """Learns embeddings by what they predict, and by distances."""

    def _beside(self) -> dict[str, nn.Sequential]:
        width, taken = self.states.shape[1], self.chosen.shape[1]
        dim, hidden = self.config.latent.dim, self.config.latent.hidden
        inputs = width + taken + dim + taken * dim
        return {"decoder": perceptron(inputs, (hidden, hidden), width)}

    def _loss(self, instance: Tensor, z: Tensor) -> Tensor:
        rows = self.targets(instance)
        chosen, repeated = self.chosen[rows], z.repeat_interleave(TARGETS, dim=0)
        inputs = (self.states[rows], chosen, repeated, outer(chosen, repeated))
        predicted: Tensor = self.beside["decoder"](torch.cat(inputs, dim=1))
        error = ((predicted - self.changes[rows]) ** 2).sum(dim=1).mean()
        distances = distance_loss(instance, z, self.config.focal)
        return error + self.config.unicorn.distance * distances


class CsroStage(ContextStage):
    """Learns embeddings by distances, and keeps states and actions out of them."""

    def _beside(self) -> dict[str, nn.Sequential]:
        # q: mean and log-variance of an embedding, from state and action
        inputs, hidden = self.states.shape[1] + self.chosen.shape[1], self.config.csro.hidden
        return {"q": perceptron(inputs, (hidden, hidden), 2 * self.config.latent.dim)}

    def _loss(self, instance: Tensor, z: Tensor) -> Tensor:
        rows, network = self.targets(instance), self.beside["q"]
        embedded = self.embed(rows)
        known = torch.cat((self.states[rows], self.chosen[rows]), dim=1)
        fitted = log_normal(embedded.detach(), *bounded(network(known), LOG_VARIANCE)).mean()
        held = {name: value.detach() for name, value in network.named_parameters()}
        q = bounded(torch.func.functional_call(network, held, (known,)), LOG_VARIANCE)
        others = embedded[torch.randperm(len(rows), generator=self.rng)]
        bound = (log_normal(embedded, *q) - log_normal(others, *q)).mean()
        distances = distance_loss(instance, z, self.config.focal)
        return distances - fitted + self.config.csro.independence * bound


def _method(
    name: str, kind: type[ContextStage], summary: str, *, random_steps: bool = False
) -> Method:
    """A method that trains an encoder, then control given its latents.

    random_steps: whether the first T_p steps are random.
    """

    def stages(data: Dataset, config: FitConfig, seed: int) -> Stages:
        space, rewards = data.action_space, getattr(config, name).rewards
        number = integer(seed, "latent")
        stage = kind(data.steps(), config, number, space=space, rewards=rewards)
        yield stage
        latent, instance = stage.latents()
        scaler = Standardiser.fit(latent, unit=1.0)
        control = yield from control_stage(
            data, config.control, seed, contexts=scaler(latent), context_instance=instance
        )
        probe = None
        if random_steps:
            uniform = UniformBoxProbe if isinstance(space, Box) else UniformProbe
            probe = uniform(space.width)
        context = (RewardedContext if rewards else RefinedContext)(
            probe,
            stage.encoder().reading(config.probe_steps),
            scaler,
            refine_steps=max(config.latent.refine_steps, config.probe_steps),
        )
        return agent_of(name, data, context, control, record={"context_rewards": rewards})

    return Method(
        name,
        stages,
        summary,
        judged=False,
        title=name.upper(),
        moving_latent=True,
        sections=() if name == "focal" else ("focal",),
    )


FOCAL = _method(
    "focal",
    FocalStage,
    "A latent by distances between contexts and, as published, their rewards.",
)
UNICORN = _method(
    "unicorn",
    UnicornStage,
    "A latent that predicts other steps, by distances and, as published, with rewards.",
)
CSRO = _method(
    "csro",
    CsroStage,
    "Random steps, then a latent by distances that ignores the behaviour; reads rewards.",
    random_steps=True,
)
