"""EPOpt-adv learns from the worst episodes; the history that is learned from is acted on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sept_offline as so
from sept_offline.actions import Finite
from sept_offline.agent import Control, HistoryContext
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.data import Dataset
from sept_offline.errors import ConfigError, DataError
from sept_offline.methods import resolve_config
from sept_offline.methods.baselines import WorstReplay, histories
from sept_offline.settings import EpoptConfig
from tests.methods.navigation import log_navigation

TURN = 70
LENGTHS = np.tile([1, 2, 3, 4], 20)
INSTANCE = np.repeat([0, 1], [20, 60])
"""Of each episode: an instance with few episodes and one with many."""


def replay(returns: np.ndarray, **settings: float) -> WorstReplay:
    """Episodes of the given returns; a transition's observation is its episode's number."""
    episode = np.repeat(np.arange(80), LENGTHS)
    first = np.r_[True, np.diff(episode) > 0]
    rows = np.arange(len(episode)) + episode
    observations = np.zeros((rows[-1] + 2, 1))
    observations[rows, 0] = episode
    rewards = np.where(first, returns[episode], 0.0)
    return WorstReplay(
        observations,
        rows,
        np.zeros(len(rows)),
        rewards,
        np.zeros(len(rows)),
        INSTANCE[episode],
        episode=episode,
        raw_rewards=rewards,
        config=EpoptConfig(**settings),  # type: ignore[arg-type]
        turn=TURN,
    )


def seen(replay: WorstReplay, first: int) -> list[np.ndarray]:
    """The episodes that each of 64 minibatches holds transitions of."""
    batches = replay.minibatches(first, 64, 512, np.random.default_rng(0))
    assert len(batches) == 64
    return [np.unique(batch.inputs[:, 0].numpy()).astype(int) for batch in batches]


def test_the_first_updates_learn_from_everything_the_others_from_the_worst() -> None:
    plain = replay(np.random.default_rng(1).normal(size=80))
    early, late = seen(plain, 64)[: TURN - 64], seen(plain, 64)[TURN - 64 :]
    assert all(len(episodes) > 70 for episodes in early + seen(plain, 0))
    assert all(len(episodes) <= 10 for episodes in late)
    # ten of a hundred drawn: seldom above the lowest fifth
    below = plain.quantiles[np.concatenate(late), 0]
    assert (below < 0.2).mean() > 0.9
    assert (below < 0.1).mean() > 0.6


def test_transitions_of_the_worst_are_drawn_equally_often() -> None:
    everything = replay(np.arange(80.0), percentile=100.0, episodes=3000)
    drawn = everything.draw_worst(1, 20_000, np.random.default_rng(0))
    counts = np.bincount(drawn[0], minlength=everything.size)
    episode = np.repeat(np.arange(80), LENGTHS)
    # equal weight per instance: each of the 20 episodes of the first counts as three of the second
    shares = np.bincount(INSTANCE[episode], weights=counts) / counts.sum()
    assert shares == pytest.approx([0.5, 0.5], abs=0.05)
    last = np.cumsum(LENGTHS) - 1
    assert counts[last].min() > 0 and counts[last + 1 - LENGTHS].min() > 0


@pytest.mark.parametrize(
    ("mean", "spread"),
    [((1.0, 1e6), (0.3, 3e5)), ((100, 100), (10, 50)), ((-100, 100), (5, 5)), ((0, 0), (0, 0))],
)
def test_no_instance_decides_alone(mean: tuple[float, float], spread: tuple[float, float]) -> None:
    """Whatever the sizes, spreads and signs of returns, every instance has its share of the worst.

    In the last case all returns are equal, and chance decides.
    """
    noise = np.random.default_rng(2).normal(size=80)
    returns = np.array(mean)[INSTANCE] + np.array(spread)[INSTANCE] * noise
    many = replay(returns)
    drawn = many.draw_worst(2000, 8, np.random.default_rng(0))
    episode = np.repeat(np.arange(80), LENGTHS)[drawn]
    # long episodes hold more transitions: compare episodes, by the inverse of their lengths
    shares = np.bincount(INSTANCE[episode].ravel(), weights=1 / LENGTHS[episode].ravel())
    assert shares / shares.sum() == pytest.approx([0.5, 0.5], abs=0.05)
    if any(spread):
        assert (many.quantiles[episode, 0] < 0.2).mean() > 0.9
    else:
        assert len(np.unique(episode)) == 80


def test_mistakes_are_named() -> None:
    with pytest.raises(ConfigError, match=r"epopt\.percentile"):
        EpoptConfig(percentile=0)
    with pytest.raises(ConfigError, match=r"epopt\.episodes"):
        EpoptConfig(episodes=0)
    with pytest.raises(ConfigError, match=r"epopt\.everything"):
        EpoptConfig(everything=2)


def test_offline_and_online_features_are_the_same_bits(tmp_path: Path) -> None:
    path = log_navigation(tmp_path / "nav.h5", episodes=12)
    with so.load_dataset(path) as data:
        steps = data.steps()
        context = HistoryContext(3, data.num_actions, Standardiser.fit(steps.observations))
        space = Finite.of(data.num_actions)
        offline = histories(steps, context, space)
        width = data.observation_dim + context.dim
        network = MLP([(np.zeros((data.num_actions, width)), np.zeros(data.num_actions))])
        control = Control(context.scaler, network)
        row = 0
        for episode in data.episodes():
            tracker = context.begin(0, None, control)
            for time, observation in enumerate(episode.observations):
                assert tracker.step(observation) is None and not tracker.settled
                assert np.array_equal(tracker.vector, offline[row])
                row += 1
                if time < len(episode.actions):
                    tracker.took(space.encode(episode.actions[time]))
        assert row == len(offline)
        check_by_hand(data, context, offline)


def check_by_hand(data: Dataset, context: HistoryContext, offline: np.ndarray) -> None:
    """Observations before, actions as one of four, a mask; zeros before the start."""
    first = next(iter(data.episodes()))
    width = data.observation_dim + data.num_actions + 1
    assert offline.shape[1] == context.dim == 3 * width
    assert not offline[0].any()
    second = offline[2].reshape(3, width)
    for lag in (0, 1):
        seen, action = first.observations[1 - lag], first.actions[1 - lag]
        assert np.array_equal(second[lag, :2], context.scaler(seen))
        assert second[lag, 2:].tolist() == [*(np.arange(4) == action).astype(float), 1.0]
    assert not second[2].any()


@pytest.mark.parametrize(("value", "problem"), [(np.nan, "unknown"), (1e60, "too large")])
def test_the_oracle_names_a_parameter_that_it_cannot_use(
    tmp_path: Path, value: float, problem: str
) -> None:
    path = tmp_path / "a.h5"
    hidden = {"left": {"gain": 1.0}, "right": {"gain": value}}
    with so.DatasetWriter(path, num_actions=2, hidden=hidden) as writer:
        for instance in hidden:
            writer.append(
                instance=instance,
                observations=np.zeros((3, 1)),
                actions=[0, 1],
                rewards=[0.0, 1.0],
                terminated=False,
                truncated=True,
            )
    with pytest.raises(DataError, match=f"'gain' of the instance 'right' in .* is .*{problem}"):
        so.fit(path, "oracle")


def test_the_length_is_a_setting(tmp_path: Path) -> None:
    path = log_navigation(tmp_path / "nav.h5", episodes=12)
    few = {"verdict": False, "control": {"updates": 2}, "history_steps": 2}
    agent = so.fit(path, "history", few)
    assert isinstance(agent.context, HistoryContext) and agent.context.steps == 2
    with so.load_dataset(path) as data, pytest.raises(ConfigError, match="history_steps"):
        resolve_config(data, "default", {"history_steps": 0})
