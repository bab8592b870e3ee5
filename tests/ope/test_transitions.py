"""What Q is fitted to: actions drawn, rewards until log and agent part, values within bounds."""

import numpy as np
import pytest

from sept_offline.tools.ope.fitted_q import Transitions
from sept_offline.tools.ope.following import FiniteChoices


def some_transitions(seed: int) -> Transitions:
    """Random episodes: some terminated, some cut, some that reach a horizon of six steps."""
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 7, size=30)
    ends = np.cumsum(length + 1) - 1
    row = np.delete(np.arange(ends[-1] + 1), ends)
    last = np.zeros(len(row))
    final = np.cumsum(length) - 1
    last[final] = (rng.random(30) < 0.5) | (length == 6)
    left = np.concatenate([6 - np.arange(count + 1) for count in length])
    sharp = rng.random(ends[-1] + 1) < 0.7
    choices = FiniteChoices(len(sharp), 3)
    actions, rewards = rng.integers(3, size=len(row)), rng.normal(size=len(row))
    choices.probabilities[:] = np.where(
        sharp[:, None],
        np.eye(3)[rng.integers(3, size=len(sharp))],
        rng.dirichlet(np.ones(3), size=len(sharp)),
    )
    return Transitions(
        inputs=np.zeros((ends[-1] + 1, 1), dtype=np.float32),
        row=row,
        actions=actions,
        rewards=rewards.astype(np.float32),
        last=last.astype(np.float32),
        choices=choices,
        episode=np.repeat(np.arange(30), length),
        left=left.astype(np.float32),
        scale=1.0,
    )


@pytest.mark.parametrize("seed", range(5))
def test_rewards_count_until_log_and_agent_part(seed: int) -> None:
    data = some_transitions(seed)
    choice = data.choices.draw(np.random.default_rng(seed))
    ends, earned = data.until_parting(choice)
    for step in range(len(data.row)):
        end, total = step, data.rewards[step]
        while (
            data.last[end] == 0
            and end + 1 < len(data.row)
            and data.episode[end + 1] == data.episode[step]
            and choice[data.row[end + 1]] == data.actions[end + 1]
        ):
            end += 1
            total += data.rewards[end]
        assert ends[step] == end
        assert earned[step] == pytest.approx(total, abs=1e-5)
    assert (ends > np.arange(len(ends))).any(), "nobody ever did what the agent does"


def test_actions_are_drawn_as_often_as_the_agent_does_them() -> None:
    data = some_transitions(0)
    rng = np.random.default_rng(1)
    drawn = np.stack([data.choices.draw(rng) for _ in range(4000)])
    shares = np.stack([(drawn == action).mean(axis=0) for action in range(3)], axis=1)
    expected = data.choices.features / 2 + 0.5
    np.testing.assert_allclose(shares, expected, atol=0.04)
    sure = expected.max(axis=1) == 1
    assert (shares[sure].max(axis=1) == 1).all()


def test_values_stay_within_what_the_rewards_left_allow() -> None:
    data = some_transitions(0)
    rows = np.array([0, len(data.left) - 1])
    wild = np.array([[1e9, -1e9], [0.01, 1e9]])
    least, most = data.rewards.min(), data.rewards.max()
    left = data.left[rows]
    expected = [[left[0] * most, left[0] * least], [min(0.01, left[1] * most), left[1] * most]]
    np.testing.assert_allclose(data.attainable(wild, rows), expected, rtol=1e-6)
    positive = Transitions(**(vars(data) | {"rewards": np.abs(data.rewards) + 1}))
    assert positive.attainable(-np.ones((1, 1)), rows[:1]) == 0, "an episode may end at once"
