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

from sept_offline.actions import Box, Finite
from sept_offline.agent import Actor, Agent, Control, NoContext, Spaces
from sept_offline.agent.networks import Standardiser
from sept_offline.threads import one_thread


def measure(actions: int, batch: int, repeats: int, box: bool) -> dict[str, float]:
    """The best of `repeats` rounds each, so that a busy machine disturbs least.

    box: continuous actions, against d3rlpy's ReBRAC instead of its DoubleDQN.
    """
    from d3rlpy.algos import DoubleDQNConfig, ReBRACConfig

    from sept_offline.control import Learner
    from sept_offline.control.d3rlpy import encoder_factory
    from sept_offline.settings import ControlConfig

    dim, width = 8, 3
    config = ControlConfig("rebrac" if box else "double_dqn")
    learner = Learner(config, dim, width, seed=0)
    trained = learner.members[0].networks.impl
    rng = np.random.default_rng(0)
    states = rng.normal(size=(actions, dim)).astype(np.float32)
    encoder, scaler = encoder_factory(config.hidden), Standardiser.identity(dim)
    if box:
        space = Box.of([-1.0] * width, [1.0] * width)
        control = Actor(scaler, learner.current(), space)
        rival = ReBRACConfig(actor_encoder_factory=encoder).create(device=False)
        rival.create_impl((dim,), width)
        rival.impl.policy.load_state_dict(trained.policy.state_dict())
    else:
        space = Finite.of(width)
        control = Control(scaler, learner.current())
        rival = DoubleDQNConfig(encoder_factory=encoder).create(device=False)
        rival.create_impl((dim,), width)
        rival.impl.q_function.load_state_dict(trained.q_function.state_dict())
    agent = Agent(
        method="avg",
        family="benchmark",
        spaces=Spaces.of(states, space),
        context=NoContext(),
        control=control,
    )

    single, theirs, together = [], [], []
    for _ in range(repeats):
        episode = agent.begin()
        start = time.process_time()
        ours = [episode.act(state) for state in states]
        single.append((time.process_time() - start) / actions)
        few = states[: max(1, actions // 10)]
        start = time.process_time()
        rivals = [rival.predict(state[None])[0] for state in few]
        theirs.append((time.process_time() - start) / len(few))
        if not np.allclose(ours[: len(few)], rivals, atol=1e-5):
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
        result = measure(options.actions, options.batch, options.repeats, box=False)
        continuous = measure(options.actions, options.batch, options.repeats, box=True)
    if options.json:
        print(json.dumps(result | {f"box_{name}": value for name, value in continuous.items()}))
        return
    for title, found in (("a finite set", result), ("continuous actions", continuous)):
        print(title)
        print(f"  one episode:       {found['act_microseconds']:8.1f} µs per action")
        print(f"  d3rlpy's predict:  {found['predict_microseconds']:8.1f} µs per action")
        print(f"  ratio:             {found['times_faster']:8.1f} × (to reach: 10)")
        rate = found["batched_actions_per_second"]
        print(f"  {options.batch} at once: {rate:14,.0f} actions per second")


if __name__ == "__main__":
    main()
