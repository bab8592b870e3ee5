"""DynaSEPT: one policy π(a | s, z, η) that probes while it doubts; z slides with the episode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.agent import WindowContext
from sept_offline.agent.contexts.latent import UNKNOWN, doubt
from sept_offline.agent.networks import Array, Standardiser
from sept_offline.agent.rewards import shift_by_goal
from sept_offline.control import prepare_rewards
from sept_offline.data import Dataset
from sept_offline.data.records import Steps
from sept_offline.latent import LatentModel, SegmentLatentStage, WindowLatentStage
from sept_offline.latent.window import Windows, all_windows
from sept_offline.methods.method import Method, Stages, agent_of, control_stage
from sept_offline.seeding import integer
from sept_offline.settings import ControlConfig, FitConfig

DRAWS = 2
"""Antithetic draws of z an ELBO: there are as many windows as steps, and their noise averages."""


def running_doubt(
    deviation: NDArray[Any], windows: Windows, time: NDArray[np.int64]
) -> NDArray[np.float32]:
    """η `[W]` of `deviation[W, k]`: over the largest so far in the episode, the prior's included.

    time `[N]`: of each step, 0 at an episode's first.
    """
    largest = np.maximum(np.asarray(deviation, dtype=np.float32), UNKNOWN)
    length = windows.actions.shape[1]
    moment = time[windows.last]
    order = np.argsort(moment, kind="stable")
    edges = np.flatnonzero(np.diff(moment[order])) + 1
    for rows in np.split(order, edges):
        # windows of an episode stand one after another, so the one before is the row before
        if len(rows) and moment[rows[0]] >= length:
            largest[rows] = np.maximum(largest[rows], largest[rows - 1])
    eta: NDArray[np.float32] = doubt(deviation, largest).astype(np.float32)
    return eta


def total_rewards(
    rewards: NDArray[np.float64],
    probing: NDArray[np.float64],
    windows: Windows,
    eta: NDArray[Any],
) -> NDArray[np.float64]:
    """R_tot = η · R_p + (1 − η) · R_env, `[N]`, with `rewards[N]` for R_env.

    η is that of the window a step sets out from, `eta[N]`; R_p is `probing[W]`, the ELBO of the
    window that the step completes, standardised and put on R_env's scale. A step that completes
    none, at an episode's start, is worth R_env's mean.
    """
    size = probing.std()
    standard = (probing - probing.mean()) / (size if size > 0 else 1.0)
    completed = np.full(len(rewards), rewards.mean())
    completed[windows.last] += rewards.std() * standard
    whole: NDArray[np.float64] = eta * completed + (1 - eta) * rewards
    return whole


def relabel(
    steps: Steps,
    windows: Windows,
    model: LatentModel,
    scaler: Standardiser,
    config: ControlConfig,
) -> tuple[Array, NDArray[np.float64]]:
    """Every logged observation with the z and η of its window, every step with its R_tot.

    `[N+E, k+1]`: z, standardised, and η, of the window that ends in each observation; `[N]`: R_tot
    of each step, as control learns from it.
    """
    mean, log_variance = model.encode(windows)
    beside = np.zeros((len(steps.observations), model.dim + 1), dtype=np.float32)
    beside[:, -1] = UNKNOWN
    ends = steps.row[windows.last] + 1
    beside[ends, :-1] = scaler(mean)
    beside[ends, -1] = running_doubt(np.exp(0.5 * log_variance), windows, steps.time)
    # the shift falls on the whole: it is an identity for any reward
    unshifted = replace(config, goal_shift=None)
    env = prepare_rewards(steps.rewards, steps.terminations, steps.instance, unshifted)
    eta = beside[steps.row, -1].astype(np.float64)
    rewards = total_rewards(env, model.elbo(windows, draws=DRAWS), windows, eta)
    if config.goal_shift is not None:
        rewards = shift_by_goal(rewards, steps.terminations, config.goal_shift, config.gamma)
    return beside, rewards


def _stages(data: Dataset, config: FitConfig, seed: int) -> Stages:
    steps = data.steps()
    windows = all_windows(steps, config.probe_steps)
    settings: dict[str, Any] = {
        "config": config.latent,
        "seed": integer(seed, "latent"),
        "space": data.action_space,
        "num_instances": len(data.instances),
    }
    latent: WindowLatentStage | SegmentLatentStage
    if config.latent.objective == "segment":
        latent = SegmentLatentStage(windows, **settings)
    else:
        latent = WindowLatentStage(steps, windows, **settings)
    yield latent
    model = latent.result()
    scaler = Standardiser.fit(model.encode(windows)[0], unit=1.0)
    beside, rewards = relabel(steps, windows, model, scaler, config.control)
    control = yield from control_stage(data, config.control, seed, beside=beside, rewards=rewards)
    eta = beside[steps.row[windows.last] + 1, -1]
    record = {"eta": {"mean": float(eta.mean()), "sd": float(eta.std())}}
    context = WindowContext(model.encoder, scaler)
    return agent_of("dynasept", data, context, control, record=record)


DYNASEPT = Method(
    "dynasept",
    _stages,
    "Infers at every step, probes while in doubt: DynaSEPT.",
    segments=True,
    title="DynaSEPT",
    ablation=True,
    moving_latent=True,
)
