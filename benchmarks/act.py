"""Microseconds an action takes: one episode against d3rlpy's predict, and many at once.

Run: python benchmarks/act.py [--json]. One core; both act with the same network on the same states,
once among three actions (DoubleDQN's network) and once in a box (TD3+BC's). Seconds are of this
process on its core, so that a busy machine disturbs little.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import numpy as np

from sept_offline.actions import ActionSpace, Box, Finite
from sept_offline.agent import Actor, Agent, Control, NoContext, Spaces
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.threads import one_thread

DIM = 8
SPACES: dict[str, ActionSpace] = {"finite": Finite.of(3), "box": Box.of([-1.0] * 3, [1.0] * 3)}


def rival_of(space: ActionSpace) -> tuple[Any, Control]:
    """An algorithm of d3rlpy's, and the control that acts with the same network."""
    from d3rlpy.algos import DoubleDQNConfig, TD3PlusBCConfig

    from sept_offline.control.d3rlpy import encoder_factory
    from sept_offline.settings import ControlConfig

    factory, scaler = encoder_factory(ControlConfig().hidden), Standardiser.identity(DIM)
    if isinstance(space, Box):
        rival = TD3PlusBCConfig(actor_encoder_factory=factory).create(device=False)
    else:
        rival = DoubleDQNConfig(encoder_factory=factory).create(device=False)
    rival.create_impl((DIM,), space.width)
    networks = rival.impl.policy if isinstance(space, Box) else rival.impl.q_function[0]
    linear, norms = [], []
    for module in networks.modules():
        parts = [one.detach().numpy() for one in module.parameters(recurse=False)]
        if parts:
            (linear if parts[0].ndim == 2 else norms).append((parts[0], parts[1]))
    network = MLP(linear, norms or None, norm_first=False, squashed=isinstance(space, Box))
    if isinstance(space, Box):
        return rival, Actor(scaler, network, space)
    return rival, Control(scaler, network)


def measure(space: ActionSpace, actions: int, batch: int, repeats: int) -> dict[str, float]:
    """The best of `repeats` rounds each, so that a busy machine disturbs least."""
    rival, control = rival_of(space)
    rng = np.random.default_rng(0)
    states = rng.normal(size=(actions, DIM)).astype(np.float32)
    agent = Agent("avg", "benchmark", Spaces.of(states, space), NoContext(), control)
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
        rows = rng.normal(size=(20, batch, DIM)).astype(np.float32)
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
    sizes = options.actions, options.batch, options.repeats
    with one_thread():
        results = {name: measure(space, *sizes) for name, space in SPACES.items()}
    if options.json:
        print(json.dumps(results))
        return
    for name, result in results.items():
        print(f"{name}:")
        print(f"one episode:       {result['act_microseconds']:8.1f} µs an action")
        print(f"d3rlpy's predict:  {result['predict_microseconds']:8.1f} µs an action")
        print(f"ratio:             {result['times_faster']:8.1f} × (to reach: 10)")
        many = result["batched_actions_per_second"]
        print(f"{options.batch} at once: {many:14,.0f} actions a second")


if __name__ == "__main__":
    main()
