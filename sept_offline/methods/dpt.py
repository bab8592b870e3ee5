"""DPT: direct policy transfer, π(a | s, w) with the Bayesian network's w inferred as it acts."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent import Agent
from sept_offline.agent.networks import Standardiser
from sept_offline.data import Dataset
from sept_offline.dynamics.contexts import InferredContext
from sept_offline.dynamics.model import Model
from sept_offline.methods.bayes import angles_read, model_stage
from sept_offline.methods.method import Method
from sept_offline.methods.shared import control_stage, spaces_of
from sept_offline.seeding import generator
from sept_offline.settings import DptConfig, FitConfig
from sept_offline.stage import Stage


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    model = yield from model_stage(data, config, seed)
    contexts, instance, weights = latents(model, data, config.dpt, seed)
    scaler = Standardiser.fit(contexts, unit=1.0)
    control = yield from control_stage(
        data,
        config.control,
        seed,
        contexts=scaler(contexts),
        context_instance=instance,
        context_weights=weights,
    )
    return Agent(
        "dpt",
        data.metadata.family or "",
        spaces_of(data),
        InferredContext(model, scaler, config.dpt),
        control,
        record={"budget": config.dpt.budget, "angles": angles_read(data, model)},
    )


def latents(
    model: Model, data: Dataset, config: DptConfig, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """The w to learn with, `[S, k]`, their instances `[S]` and weights `[S]`.

    Draws from each instance's posterior, and the mean w of all, which an episode begins with: the
    policy for it is the best one without any information.
    """
    rng = generator(seed, "dpt", "latents")
    present = np.unique(data.episode_index.instance)
    shape = (config.copies, *model.w_mean.shape)
    drawn = model.w_mean + np.exp(0.5 * model.w_log_variance) * rng.standard_normal(shape)
    mean = np.repeat(model.prior()[0][None], len(present), axis=0)
    contexts = np.concatenate([drawn.reshape(-1, model.dim), mean])
    instance = np.concatenate([np.tile(present, config.copies), present])
    weights = np.concatenate(
        [
            np.full(config.copies * len(present), (1 - config.unknown) / config.copies),
            np.full(len(present), config.unknown),
        ]
    )
    return contexts, instance, weights


DPT = Method(
    "dpt",
    _stages,
    "A Bayesian model's latent, inferred as it acts, given to the policy.",
    judged=False,
    finite=True,
    stacks=False,
    title="DPT",
    moving_latent=True,
    sections=("dynamics",),
)
