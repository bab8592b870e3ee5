"""Whether an agent reaches the answer that is known by hand."""

from __future__ import annotations

import numpy as np

import sept_offline as so
from sept_offline.agent import Agent
from sept_offline.family import Family
from tests.margins import Margins


def check_answer(
    agent: Agent,
    family: Family,
    returns: tuple[float, float],
    margin: Margins,
    name: str = "return",
    episodes: int = 4,
) -> None:
    """The mean return lies in these bounds; where the answer is certain, in every episode.

    episodes: of each instance.
    """
    results = so.evaluate(agent, family, episodes_per_instance=episodes)
    mean = np.mean([episode.total for episode in results.episodes])
    low, high = returns
    if low == high == 1.0:
        # nothing pays more, so a mean of 1 is 1 in every episode
        margin(name, float(mean), at_least=low)
    else:
        margin(name, float(mean), at_least=low, at_most=high)
