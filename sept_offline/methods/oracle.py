"""Oracle: π(a | s, hidden), shown the true hidden parameters in training and in the test."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np

from sept_offline.agent import Agent, HiddenContext
from sept_offline.agent.networks import Standardiser
from sept_offline.data import Dataset
from sept_offline.errors import DataError
from sept_offline.methods.method import Method
from sept_offline.methods.shared import control_stage, spaces_of
from sept_offline.seeding import generator
from sept_offline.settings import FitConfig
from sept_offline.stage import Stage

COPIES = 50
"""Noisy versions of each instance's parameters, where there is noise."""


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    hidden = data.hidden
    if hidden is None:
        raise DataError(
            f"{data.path} does not contain the hidden parameters of its instances, which the "
            "method 'oracle' needs; fit 'sept' or 'avg'."
        )
    # instances that were held out keep their rows, and no say in the scale
    present = np.unique(data.episode_index.instance)
    scaler = Standardiser.fit(hidden.values[present])
    copies = COPIES if config.oracle_noise else 1
    contexts = np.repeat(scaler(hidden.values), copies, axis=0)
    noise = generator(seed, "oracle", "noise").standard_normal(contexts.shape)
    control = yield from control_stage(
        data,
        config.control,
        seed,
        contexts=contexts + config.oracle_noise * noise,
        context_instance=np.repeat(np.arange(len(hidden.values)), copies),
    )
    context = HiddenContext(hidden.names, scaler)
    return Agent("oracle", data.metadata.family or "", spaces_of(data), context, control)


ORACLE = Method(
    "oracle",
    _stages,
    "One policy that is given the hidden parameters: the upper bound.",
    privileged=True,
    judged=False,
    title="Oracle",
)
