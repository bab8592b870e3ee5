"""BATI: a latent by maximum likelihood under learned dynamics, without an encoder.

A decoder learns the dynamics given a latent, and each training instance i has its own posterior
q_i:

    loss = − E_{q_i} log p(s′ − s | s, a, z) + β · KL(q_i ‖ N(0, I)) / (its transitions)
                                                with rewards: log p(s′ − s, r | s, a, z)

In an episode no encoder reads the context, so that it does not matter who acted in it. Candidates
are the means of the q_i and points between two of them; a context weighs them by their likelihood,

    w_c ∝ Π_t p(s_{t+1} − s_t | s_t, a_t, z_c),        z(context) = Σ_c w_c z_c,

which is the likeliest candidate once a few steps distinguish them. Control learns π(a | s, z) with
the latents of logged contexts. From Ma, Zhong and Wang, "Behavior-agnostic task inference for
robust offline in-context reinforcement learning" (2025). Here the context is what the agent itself
has seen of its one episode, as for every other method.

The decoder is that of the transitions objective (sept_offline/latent/transitions.py), trained
without the term that passes through the encoder. Nothing reads that encoder here.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.agent.contexts.candidates import CandidateContext
from sept_offline.agent.networks import Standardiser
from sept_offline.data import Dataset
from sept_offline.data.records import Segments, Steps
from sept_offline.errors import TrainingError
from sept_offline.latent import LatentModel, TransitionLatentStage
from sept_offline.latent.networks import TransitionNetwork
from sept_offline.latent.transitions import BLOCK, Contexts, ragged
from sept_offline.methods.method import Method, Stages, agent_of, control_stage
from sept_offline.seeding import generator, integer, torch_generator
from sept_offline.settings import FitConfig, LatentConfig
from sept_offline.threads import one_thread
from sept_offline.training.inputs import Floats, Integers
from sept_offline.training.layers import log_normal

CONTEXTS, LEAST_CONTEXTS = 4096, 64
"""Contexts to train control with: in total, and at least per instance."""


def with_rewards(steps: Steps) -> Steps:
    """The same steps; the first column of observations is 0 before a step and its reward after it.

    Every step has two rows of its own.
    """
    number, width = len(steps.row), steps.observations.shape[1]
    pairs = np.zeros((number, 2, 1 + width), dtype=np.float32)
    pairs[:, 1, 0] = steps.rewards
    pairs[:, 0, 1:] = steps.observations[steps.row]
    pairs[:, 1, 1:] = steps.observations[steps.row + 1]
    return replace(
        steps,
        observations=pairs.reshape(2 * number, 1 + width),
        row=2 * np.arange(number, dtype=np.int64),
    )


def first_steps(steps: Steps) -> Segments:
    """The first step of every episode."""
    first = np.flatnonzero(steps.time == 0)
    pairs = np.stack([steps.row[first], steps.row[first] + 1], axis=1)
    return Segments(
        observations=steps.observations[pairs],
        actions=steps.actions[first][:, None],
        rewards=steps.rewards[first][:, None],
        propensities=None,
        instance=steps.instance[first],
        episode=steps.episode[first],
        skipped=0,
    )


def dynamics_stage(
    steps: Steps,
    config: LatentConfig,
    seed: int,
    *,
    space: ActionSpace,
    num_instances: int,
    predicted: int,
) -> TransitionLatentStage:
    """Learns the decoder and the instances' posteriors, from transitions alone.

    predicted: the number of columns, the first ones, that depend on the instance.
    """
    # the term through the encoder would let contexts, and who acted in them, shape the decoder
    blind = replace(config, through=0.0)
    return TransitionLatentStage(
        steps,
        first_steps(steps),
        blind,
        seed,
        space=space,
        num_instances=num_instances,
        predicted=predicted,
    )


def candidate_latents(model: LatentModel, present: Integers, number: int, seed: int) -> Floats:
    """`[number, k]`: means of the instances in `present`, then points between two of them.

    With more instances than `number`, some of their means, drawn at random.
    """
    rng = generator(seed, "candidates")
    means = model.instance_mean[present]
    if len(means) >= number:
        return means[np.sort(rng.choice(len(means), number, replace=False))]
    more = number - len(means)
    first, second = rng.integers(len(means), size=(2, more))
    share = rng.random((more, 1), dtype=np.float32)
    return np.concatenate([means, share * means[first] + (1 - share) * means[second]])


def context_latents(
    model: LatentModel, steps: Steps, candidates: Floats, longest: int, seed: int
) -> tuple[Floats, Integers]:
    """Latents `[S, k]` of logged contexts of 0 to `longest` steps, and their instances `[S]`."""
    contexts = Contexts(steps.instance, steps.time, longest)
    present = contexts.steps.present
    instance = present.repeat(max(CONTEXTS // len(present), LEAST_CONTEXTS))
    start, length = contexts.draw(instance, torch_generator(seed, "contexts"))
    rows, owner = ragged(start, length)
    distinct, place = torch.unique(rows, return_inverse=True)
    points = torch.from_numpy(candidates)
    with one_thread(), torch.no_grad():
        block = max(1, BLOCK // len(points))
        parts = [
            _log_likelihoods(model, steps, part, points) for part in torch.split(distinct, block)
        ]
        each = torch.cat([points.new_zeros(0, len(points)).double(), *parts])
        total = torch.zeros(len(start), len(points), dtype=torch.float64)
        # in blocks: a row of every step of every context would fill the memory
        for part, of in zip(torch.split(place, BLOCK), torch.split(owner, BLOCK), strict=True):
            total.index_add_(0, of, each[part])
        latent = torch.softmax(total, dim=1) @ points.double()
    return latent.float().numpy(), instance.numpy()


def _log_likelihoods(model: LatentModel, steps: Steps, rows: Tensor, points: Tensor) -> Tensor:
    """log p(s′ − s | s, a, z), [n, c], of the steps `rows[n]` and the latents `points[c, k]`."""
    network = model.network
    if not isinstance(network, TransitionNetwork):
        raise TrainingError("Only the transitions objective has a likelihood of single steps.")
    chosen = rows.numpy()
    before = torch.from_numpy(steps.observations[steps.row[chosen]])
    after = torch.from_numpy(steps.observations[steps.row[chosen] + 1])
    actions = torch.from_numpy(model.space.encode(steps.actions[chosen]))
    seen = (part.unsqueeze(1) for part in network.read(before, actions, after))
    states, taken, residual = (part.expand(-1, len(points), -1) for part in seen)
    predicted = network.predict(states, taken, points.expand(len(rows), -1, -1))
    return log_normal(residual, *predicted).double()


def _stages(data: Dataset, config: FitConfig, seed: int) -> Stages:
    rewards, steps = config.bati.rewards, data.steps()
    if rewards:
        steps = with_rewards(steps)
    stage = dynamics_stage(
        steps,
        config.latent,
        integer(seed, "latent"),
        space=data.action_space,
        num_instances=len(data.instances),
        predicted=data.present_dim + rewards,
    )
    yield stage
    model = stage.result()
    number = integer(seed, "candidates")
    candidates = candidate_latents(model, np.unique(steps.instance), config.bati.candidates, number)
    latent, instance = context_latents(model, steps, candidates, config.latent.context, number)
    scaler = Standardiser.fit(latent, unit=1.0)
    control = yield from control_stage(
        data, config.control, seed, contexts=scaler(latent), context_instance=instance
    )
    decoder = model.decoder
    if decoder is None:
        raise TrainingError("A latent by likelihood needs a decoder of transitions.")
    context = CandidateContext(decoder, candidates, scaler, config.latent.refine_steps, rewards)
    return agent_of("bati", data, context, control, record={"context_rewards": rewards})


BATI = Method(
    "bati",
    _stages,
    "A latent by likelihood under learned dynamics and, by default, of rewards; no encoder.",
    judged=False,
    title="BATI",
    moving_latent=True,
)
