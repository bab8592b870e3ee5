"""Steps moved to other instances lead where those instances would lead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import sept_offline as so
from sept_offline.agent.networks import Standardiser
from sept_offline.control.replay import Batch
from sept_offline.data import Dataset, DatasetWriter
from sept_offline.methods.counterfactual import (
    CounterfactualReplay,
    Imagination,
    learn_to_imagine,
    reached,
)
from sept_offline.methods.fitting import Fitter
from sept_offline.methods.knowledge import learn_in_turn
from sept_offline.methods.preset import resolve_config
from sept_offline.methods.run import RunDirectory
from sept_offline.settings import merge
from sept_offline.stage import train_all
from tests.margins import Margins
from tests.methods.mirrored import cost_of, log_mirrored

GAINS = np.array([0.4, 1.0, 1.6])
STEPS = 6
NOISE = 0.02
FEW = {
    "verdict": False,
    "stack": 1,
    "probe_steps": 1,
    "probe": {"use": "never"},
    "latent": {"dim": 2, "updates": 600},
    "dynamics": {"outcome_updates": 600},
    "control": {"counterfactual": 0.8, "reward_form": "raw", "updates": 200},
}


def log_pushes(path: Path, episodes: int = 240) -> Dataset:
    """x′ = x ± gain + noise, rewarded by −|x′|; beyond 2 an episode ends."""
    rng = np.random.default_rng(3)
    hidden = {f"train-{code}": {"gain": float(gain)} for code, gain in enumerate(GAINS)}
    with DatasetWriter(
        path, num_actions=2, family="pushes", hidden=hidden, probe_steps=1
    ) as writer:
        for number in range(episodes):
            code = number % len(GAINS)
            actions = rng.integers(2, size=STEPS)
            moves = (2 * actions - 1) * GAINS[code] + NOISE * rng.normal(size=STEPS)
            x = np.concatenate([[0.0], np.cumsum(moves)]) + rng.uniform(-1, 1)
            ends = np.flatnonzero(x[1:] > 2)
            steps = ends[0] + 1 if len(ends) else STEPS
            x, actions = x[: steps + 1], actions[:steps]
            writer.append(
                instance=f"train-{code}",
                observations=x[:, None].astype(np.float32),
                actions=actions,
                rewards=-np.abs(x[1:]),
                terminated=len(ends) > 0,
                truncated=len(ends) == 0,
                propensities=np.full((steps, 2), 0.5),
                behaviour="random",
                seed=number,
            )
    return so.load_dataset(path)


@pytest.fixture(scope="module")
def pushes(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return log_pushes(tmp_path_factory.mktemp("pushes") / "pushes.h5")


@pytest.fixture(scope="module")
def imagination(pushes: Dataset, training_seed: int) -> Imagination:
    config = resolve_config(pushes, "default", FEW)
    segments = pushes.segments(1)
    fresh = np.zeros(len(segments.instance), dtype=bool)
    known = train_all(learn_in_turn(pushes, segments, fresh, config, training_seed))
    scaler = Standardiser.identity(known.latent.dim)
    return train_all(learn_to_imagine(pushes, known.latent, scaler, config, training_seed))


def logged(data: Dataset, imagination: Imagination) -> tuple[Batch, np.ndarray]:
    """All steps, seen with the latents of their instances, and their instances."""
    steps = data.steps()
    seen = imagination.scaler(steps.observations)
    latent = imagination.mean[steps.instance]
    before, after = (
        torch.cat((torch.from_numpy(seen[steps.row + one]), latent), dim=1) for one in (0, 1)
    )
    batch = Batch(
        before,
        torch.from_numpy(steps.actions.astype(np.int64)),
        torch.from_numpy(steps.rewards.astype(np.float32)),
        after,
        torch.from_numpy(steps.terminations.astype(np.float32)),
    )
    return batch, steps.instance


def test_a_moved_step_leads_where_the_other_instance_leads(
    pushes: Dataset, imagination: Imagination, margin: Margins
) -> None:
    batch, instance = logged(pushes, imagination)
    steps = pushes.steps()
    other = (instance + 1) % len(GAINS)
    everything = torch.ones(len(instance), imagination.mean.shape[1])
    kept = replace(imagination, shift=0.0)
    moved, _ = kept.move(batch, instance, other, torch.ones(len(instance)), everything)

    sign = 2 * steps.actions - 1
    there = steps.observations[steps.row + 1, 0] + sign * (GAINS[other] - GAINS[instance])
    # Beyond the logged range states are cut off, and beyond 2 another reward would be paid.
    inside = (there > steps.observations.min()) & (there < 2) & ~steps.terminations
    column = moved.next_inputs[:, 0].numpy() * kept.scaler.scale[0] + kept.scaler.mean[0]
    # If nothing were moved, the error would be at least 0.6.
    error = np.abs(column - there)[inside].mean()
    margin("error of the state", float(error), below=0.15)
    wrong = np.abs(moved.rewards.numpy() + np.abs(there))[inside].mean()
    margin("error of the reward", float(wrong), below=0.2)
    latents = moved.inputs[:, 1:].numpy()
    assert np.allclose(latents, imagination.mean[other].numpy(), atol=1e-5)
    assert torch.equal(moved.inputs[:, 1:], moved.next_inputs[:, 1:])
    assert torch.equal(moved.inputs[:, :1], batch.inputs[:, :1])


def test_halfway_lies_between(pushes: Dataset, imagination: Imagination) -> None:
    batch, instance = logged(pushes, imagination)
    none = torch.zeros(len(instance), imagination.mean.shape[1])
    other = (instance + 1) % len(GAINS)
    nothing, _ = imagination.move(batch, instance, other, torch.zeros(len(instance)), none)
    assert torch.allclose(nothing.next_inputs, batch.next_inputs, atol=1e-5)
    assert torch.allclose(nothing.rewards, batch.rewards, atol=1e-5)
    # A context without steps has revealed nothing: its latent stays that of the prior.
    half, _ = imagination.move(batch, instance, other, torch.full((len(instance),), 0.5), none)
    assert torch.equal(half.inputs, batch.inputs)
    assert not torch.allclose(half.next_inputs, batch.next_inputs, atol=1e-2)


def test_a_share_is_moved_and_ends_stay(pushes: Dataset, imagination: Imagination) -> None:
    batch, instance = logged(pushes, imagination)
    revealed = torch.ones(len(instance), imagination.mean.shape[1])
    for share in (0.0, 0.5, 1.0):
        some = replace(imagination, share=share)
        first, again = (some(batch, instance, revealed, np.random.default_rng(1)) for _ in range(2))
        assert torch.equal(first.next_inputs, again.next_inputs)
        changed = (first.next_inputs != batch.next_inputs).any(dim=1)
        ends = batch.terminals > 0
        assert not changed[ends].any() and torch.equal(first.rewards[ends], batch.rewards[ends])
        assert float(changed[~ends].float().mean()) == pytest.approx(share, abs=0.15)
        low, high = imagination.low.numpy(), imagination.high.numpy()
        states = first.next_inputs[:, :1].numpy() * some.scaler.scale + some.scaler.mean
        assert (states >= low - 1e-4).all() and (states <= high + 1e-4).all()


def test_minibatches_have_the_width_of_control(pushes: Dataset, imagination: Imagination) -> None:
    steps = pushes.steps()
    mean = imagination.mean.numpy()
    replay = CounterfactualReplay(
        imagination.scaler(steps.observations),
        steps.row,
        steps.actions,
        steps.rewards,
        steps.terminations,
        steps.instance,
        imagination=imagination,
        contexts=np.concatenate([mean, np.ones_like(mean)], axis=1),
        context_instance=np.arange(len(mean)),
    )
    batch = replay.sample(64, np.random.default_rng(0))
    assert batch.inputs.shape == (64, replay.input_dim) == (64, 1 + mean.shape[1])


def test_the_outermost_latents_are_reached() -> None:
    far = reached(np.array([[0.0], [1.0]], dtype=np.float32))
    assert far.min() == pytest.approx(-0.3) and far.max() == pytest.approx(1.3)


def test_a_fit_with_moved_steps_resumes_bit_for_bit(pushes: Dataset, tmp_path: Path) -> None:
    short = merge(FEW, {"latent": {"updates": 20}, "control": {"updates": 40, "hidden": [8]}})
    short = merge(short, {"dynamics": {"outcome_updates": 20}})
    so.fit(pushes, "sept", short, seed=1, out=tmp_path / "whole")
    settled = resolve_config(pushes, "default", short)
    cut: set[str] = set()
    while True:
        directory = RunDirectory(tmp_path / "resumed", checkpoint_seconds=0)
        record = {"method": "sept", "config": {}, "seed": 1}
        directory.open(record, resume=(tmp_path / "resumed").exists(), restart=False)
        try:
            for epoch in Fitter(pushes, "sept", settled, seed=1, run=directory):
                if epoch.stage not in cut and epoch.done > epoch.total // 3:
                    cut.add(epoch.stage)
                    break
            else:
                break
        finally:
            directory.close()
    assert {"latent", "outcome", "control"} <= cut
    whole, resumed = (
        (tmp_path / run / "agent" / "weights.safetensors").read_bytes()
        for run in ("whole", "resumed")
    )
    assert whole == resumed


@pytest.mark.parametrize("stack", [1, 2])
def test_boxes_and_stacked_observations_are_moved_too(tmp_path: Path, stack: int) -> None:
    logs = log_mirrored(tmp_path / "logs.h5", episodes=20)
    short = merge(FEW, {"latent": {"updates": 5}, "control": {"updates": 5, "hidden": [8]}})
    short = merge(short, {"stack": stack, "dynamics": {"outcome_updates": 5}})
    agents = [
        so.fit(logs, "sept", merge(short, {"control": {"counterfactual": share}}))
        for share in (0.0, 0.8)
    ]
    assert all(np.isfinite(cost_of(agent)) for agent in agents)
    plain, moved = (agent.control.network.to_arrays("") for agent in agents)
    assert any(not np.array_equal(plain[name], moved[name]) for name in plain)
