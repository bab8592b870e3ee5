"""Microseconds an action takes: one episode against d3rlpy's predict, and many at once.

Run: python benchmarks/act.py [--json]. One core; both act with the same network on the same states.
Seconds are of this process on its core, so that a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np

from sept_offline.actions import Finite
from sept_offline.agent import Agent, Control, NoContext, Spaces
from sept_offline.agent.networks import Standardiser
from sept_offline.threads import one_thread


def measure(actions: int, batch: int, repeats: int) -> dict[str, float]:
    """The best of `repeats` rounds each, so that a busy machine disturbs least."""
    from d3rlpy.algos import DoubleDQNConfig

    from sept_offline.control import Learner
    from sept_offline.control.d3rlpy import encoder_factory
    from sept_offline.settings import ControlConfig

    dim, num_actions, config = 8, 3, ControlConfig()
    learner = Learner(config, dim, num_actions, seed=0)
    rng = np.random.default_rng(0)
    states = rng.normal(size=(actions, dim)).astype(np.float32)
    agent = Agent(
        method="avg",
        family="benchmark",
        spaces=Spaces.of(states, Finite.of(num_actions)),
        context=NoContext(),
        control=Control(Standardiser.identity(dim), learner.current()),
    )
    rival = DoubleDQNConfig(encoder_factory=encoder_factory(config.hidden)).create(device=False)
    rival.create_impl((dim,), num_actions)
    rival.impl.q_function.load_state_dict(learner.members[0].networks.impl.q_function.state_dict())

    single, theirs, together = [], [], []
    for _ in range(repeats):
        episode = agent.begin()
        start = time.process_time()
        ours = [episode.act(state) for state in states]
        single.append((time.process_time() - start) / actions)
        few = states[: max(1, actions // 10)]
        start = time.process_time()
        rivals = [int(rival.predict(state[None])[0]) for state in few]
        theirs.append((time.process_time() - start) / len(few))
        if ours[: len(few)] != rivals:
            sys.exit("The agent and d3rlpy's predict chose different actions.")
        many = agent.begin_batch(range(batch))
        rows = rng.normal(size=(20, batch, dim)).astype(np.float32)
        start = time.process_time()
        for observations in rows:
            many.act(observations)
        together.append((time.process_time() - start) / (len(rows) * batch))
    return {
        "act_microseconds": min(single) * 1e6,
        "predict_microseconds": min(theirs) * 1e6,
        "times_faster": min(theirs) / min(single),
        "batch": batch,
        "batched_actions_per_second": 1 / min(together),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--actions", type=int, default=5000)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    with one_thread():
        result = measure(options.actions, options.batch, options.repeats)
    if options.json:
        print(json.dumps(result))
        return
    print(f"one episode:       {result['act_microseconds']:8.1f} µs an action")
    print(f"d3rlpy's predict:  {result['predict_microseconds']:8.1f} µs an action")
    print(f"ratio:             {result['times_faster']:8.1f} × (to reach: 10)")
    print(
        f"{options.batch} at once: {result['batched_actions_per_second']:14,.0f} actions a second"
    )


if __name__ == "__main__":
    main()
