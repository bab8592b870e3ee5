"""SEPT-NP weighs segments by what control would do, and acts with the mean latent first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sept_offline as so
from sept_offline.actions import Finite
from sept_offline.agent import Control, UnprobedContext
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.data import Segments
from sept_offline.latent.identification import vote
from sept_offline.methods.sept_np import UnprobedReplay, near_greedy
from sept_offline.probe import Behaviour
from sept_offline.settings import merge
from tests.margins import Margins
from tests.methods.check_method import SMALL, shortened
from tests.methods.two_step import log_two_step, two_step

START = np.array([7.0, 8.0], dtype=np.float32)


def logged(actions: np.ndarray, chances: float) -> tuple[Segments, Behaviour]:
    """Segments of a one-column state, taken by a μ that takes action 1 with `chances`."""
    count, length = actions.shape
    mu = np.broadcast_to([1 - chances, chances], (count, length, 2)).copy()
    segments = Segments(
        observations=np.zeros((count, length + 1, 1), dtype=np.float32),
        actions=actions,
        rewards=np.zeros((count, length)),
        propensities=mu,
        instance=np.arange(count) % 2,
        episode=np.arange(count),
        skipped=0,
    )
    return segments, Behaviour(Finite.of(mu.shape[-1]), mu, estimated=False)


def always(action: int) -> Control:
    """A control that prefers `action` if it is given START, and the other if not."""
    sign = 1.0 if action else -1.0
    weights = sign * np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    return Control(Standardiser.identity(1), MLP([(weights, np.zeros(2))], []))


@pytest.mark.parametrize("chances", [0.5, 0.8])
def test_weights_are_those_of_the_mixture(chances: float) -> None:
    rng = np.random.default_rng(0)
    actions = (rng.random((4000, 2)) < chances).astype(np.int64)
    segments, behaviour = logged(actions, chances)
    found = near_greedy(always(1), START, segments, behaviour, floor=0.0)
    assert found.epsilon == pytest.approx(0.05) and found.weights.sum() == pytest.approx(1)
    # what the weighted segments do is what the mixture would do
    expected = 0.95 + 0.05 * chances
    assert found.weights @ (actions == 1) == pytest.approx([expected, expected], abs=0.01)


def test_the_floor_holds() -> None:
    rng = np.random.default_rng(0)
    segments, behaviour = logged(rng.integers(2, size=(4000, 8)), 0.5)
    shares, epsilons = [], []
    for floor in (0.0, 0.1, 0.5, 1.0):
        found = near_greedy(always(0), START, segments, behaviour, floor)
        assert found.ess_share >= floor - 1e-9
        shares.append(found.ess_share)
        epsilons.append(found.epsilon)
    assert shares[0] < 0.02 and epsilons == sorted(epsilons)
    assert epsilons[-1] == 1.0 and np.allclose(found.weights, 1 / 4000)


def test_early_transitions_are_seen_with_the_mean() -> None:
    """Three steps, two of them before anything is known of the instance."""
    replay = UnprobedReplay(
        np.zeros((4, 1)),
        np.arange(3),
        np.zeros(3),
        np.zeros(3),
        np.zeros(3),
        np.zeros(3),
        contexts=np.ones((5, 2)),
        context_instance=np.zeros(5),
        time=np.arange(3),
        steps=2,
        start=START,
    )
    batch = replay.sample(300, np.random.default_rng(0))
    found = {
        (tuple(own), tuple(after))
        for own, after in zip(
            batch.inputs[:, 1:].tolist(), batch.next_inputs[:, 1:].tolist(), strict=True
        )
    }
    mean, known = (7.0, 8.0), (1.0, 1.0)
    assert found == {(mean, mean), (mean, known), (known, known)}


def test_the_papers_vae_serves_it_too(tmp_path: Path, training_seed: int, margin: Margins) -> None:
    settings = {
        "latent": {
            "objective": "segment",
            "dim": 4,
            "updates": 300,
            "learning_rate": 5e-3,
            "learning_rate_end": 5e-3,
            "beta": 0.1,
            "entropy": 0.0,
        },
        "control": {"updates": 100},
    }
    path = log_two_step(tmp_path / "two-step.h5", probing=2)
    latent: list[dict[str, float]] = []
    with so.load_dataset(path) as data:
        work = so.fitter(data, "sept-np", merge(SMALL, settings), seed=training_seed)
        latent = [epoch.metrics for epoch in work if epoch.stage == "latent"]
        segments = data.segments(2)
    agent = work.agent
    assert agent is not None and isinstance(agent.context, UnprobedContext)
    assert agent.context.novelty is None
    # It explains segments, and by what it encodes: one that ignored its latent would spend nothing.
    first, last = latent[0], latent[-1]
    margin("nats gained", last["log_likelihood"] - first["log_likelihood"], above=8)
    margin("nats encoded", last["kl"], above=1)
    # Even an untrained encoder tells whole segments apart; here only that they arrive in episodes.
    taken = agent.spaces.actions.encode(segments.actions)
    known, _ = agent.context.encoder.encode(segments.observations, taken)
    played = so.evaluate(agent, two_step(probing=2), episodes_per_instance=4).episodes
    predicted = vote(known, segments.instance, np.array([episode.latent for episode in played]))
    modes = np.array([int(episode.instance.removeprefix("test-")) % 2 for episode in played])
    assert (predicted == modes).mean() > 0.9


def test_an_estimated_behaviour_is_marked(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "two-step.h5")
    with so.load_dataset(path) as data:
        agent = so.fit(data.without_propensities(), "sept-np", shortened(SMALL), seed=1)
    assert agent.record["behaviour_estimated"] is True
