"""Gradient steps per second of the control stage, of d3rlpy's own fit, and of a bare PyTorch loop.

Run: python benchmarks/fit.py [--json]. One core, one run; the same data, networks and batch size.
DoubleDQN on a finite set of actions, then ReBRAC on continuous ones. The loops take turns, each
one's best round counts, and seconds are of this process on its core, so that a busy machine
disturbs little.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from sept_offline.control import ControlStage, Replay
from sept_offline.control.d3rlpy import encoder_factory
from sept_offline.settings import ControlConfig
from sept_offline.threads import one_thread

DIM, LATENT, ACTIONS, EPISODES, LENGTH = 6, 2, 3, 200, 100
Loop = Callable[[int], None]


def make_data(box: bool) -> dict[str, np.ndarray]:
    """Random episodes of the size of a small Acrobot dataset; box: with continuous actions."""
    rng = np.random.default_rng(0)
    count = EPISODES * LENGTH
    done = np.zeros((EPISODES, LENGTH))
    done[:, -1] = 1
    actions = (
        rng.uniform(-1, 1, size=(count, ACTIONS)) if box else rng.integers(ACTIONS, size=count)
    )
    return {
        "observations": rng.normal(size=(EPISODES * (LENGTH + 1), DIM)).astype(np.float32),
        "row": np.concatenate([np.arange(LENGTH) + e * (LENGTH + 1) for e in range(EPISODES)]),
        "actions": actions,
        "rewards": rng.normal(size=count),
        "terminals": done.ravel(),
        "instance": np.repeat(np.arange(EPISODES) % 4, LENGTH),
        "contexts": rng.normal(size=(EPISODES, LATENT)).astype(np.float32),
        "context_instance": np.arange(EPISODES) % 4,
    }


def ours(data: dict[str, np.ndarray], config: ControlConfig) -> Loop:
    """The control stage."""
    stage = ControlStage(Replay(**data), config, seed=0, width=ACTIONS)
    return lambda steps: stage.advance(steps) and None


def stock(data: dict[str, np.ndarray], config: ControlConfig) -> Loop:
    """d3rlpy's algorithm as it comes, on [state, latent], without its logs and files."""
    import d3rlpy
    from d3rlpy.logging import NoopAdapterFactory

    box = config.algorithm == "rebrac"
    inputs = []
    for episode in range(EPISODES):
        rows = slice(episode * (LENGTH + 1), episode * (LENGTH + 1) + LENGTH)
        latent = np.repeat(data["contexts"][episode][None], LENGTH, axis=0)
        inputs.append(np.concatenate([data["observations"][rows], latent], axis=1))
    spaces = d3rlpy.constants.ActionSpace
    dataset = d3rlpy.dataset.MDPDataset(
        np.concatenate(inputs),
        data["actions"].astype(np.float32) if box else data["actions"],
        data["rewards"].astype(np.float32),
        data["terminals"].astype(np.float32),
        action_space=spaces.CONTINUOUS if box else spaces.DISCRETE,
        action_size=ACTIONS,
    )
    common = {
        "batch_size": config.batch_size,
        "gamma": config.gamma,
        "n_critics": config.num_critics,
    }
    if box:
        settings = d3rlpy.algos.ReBRACConfig(
            actor_learning_rate=config.learning_rate,
            critic_learning_rate=config.learning_rate,
            actor_encoder_factory=encoder_factory(config.hidden),
            critic_encoder_factory=encoder_factory(config.hidden, layer_norm=True),
            **common,
        )
    else:
        settings = d3rlpy.algos.DoubleDQNConfig(
            learning_rate=config.learning_rate,
            target_update_interval=200,
            encoder_factory=encoder_factory(config.hidden),
            **common,
        )
    algorithm = settings.create(device=False)
    algorithm.build_with_dataset(dataset)

    def run(steps: int) -> None:
        algorithm.fit(
            dataset,
            n_steps=steps,
            n_steps_per_epoch=steps,
            logger_adapter=NoopAdapterFactory(),
            show_progress=False,
        )

    return run


def bare(data: dict[str, np.ndarray], config: ControlConfig) -> Loop:
    """Double DQN written out: gather, loss, fused Adam, Polyak target, average of the weights."""

    def network() -> nn.Sequential:
        layers: list[nn.Module] = []
        width = DIM + LATENT
        for units in config.hidden:
            layers += [nn.Linear(width, units), nn.ReLU(), nn.LayerNorm(units)]
            width = units
        return nn.Sequential(*layers, nn.Linear(width, ACTIONS))

    online, target = network(), network()
    target.load_state_dict(online.state_dict())
    weights, targets = list(online.parameters()), list(target.parameters())
    average = [weight.detach().clone() for weight in weights]
    optimiser = torch.optim.Adam(weights, lr=config.learning_rate, fused=True)
    observations = torch.from_numpy(data["observations"])
    row, actions = torch.from_numpy(data["row"]), torch.from_numpy(data["actions"])
    rewards = torch.from_numpy(data["rewards"].astype(np.float32))
    going = 1 - torch.from_numpy(data["terminals"].astype(np.float32))
    contexts = torch.from_numpy(data["contexts"])
    instance = torch.from_numpy(data["instance"])
    draws = torch.Generator().manual_seed(0)
    count = 0

    def run(steps: int) -> None:
        nonlocal count
        size = config.batch_size
        for _ in range(steps):
            index = torch.randint(len(row), (size,), generator=draws)
            other = torch.randint(EPISODES // 4, (size,), generator=draws)
            latent = contexts[instance[index] + 4 * other]
            place = row[index]
            state = torch.cat([observations[place], latent], dim=1)
            following = torch.cat([observations[place + 1], latent], dim=1)
            with torch.no_grad():
                best = online(following).argmax(dim=1, keepdim=True)
                value = target(following).gather(1, best).squeeze(1)
                goal = rewards[index] + config.gamma * going[index] * value
            predicted = online(state).gather(1, actions[index][:, None]).squeeze(1)
            loss = nn.functional.smooth_l1_loss(predicted, goal)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            with torch.no_grad():
                torch._foreach_lerp_(targets, weights, config.target_rate)
                count += 1
                if count % config.average_every == 0:
                    torch._foreach_lerp_(average, weights, 0.01)

    return run


def measure(steps: int, rounds: int, config: ControlConfig) -> dict[str, float]:
    """Steps per second of each loop, and ours against the others."""
    box = config.algorithm == "rebrac"
    data = make_data(box)
    loops = {"ours": ours(data, config), "stock": stock(data, config)}
    if not box:
        loops["bare"] = bare(data, config)
    speed = dict.fromkeys(loops, 0.0)
    for run in loops.values():
        run(20)
    for _ in range(rounds):
        for name, run in loops.items():
            start = time.process_time()
            run(steps)
            speed[name] = max(speed[name], steps / (time.process_time() - start))
    rivals = [name for name in loops if name != "ours"]
    return {
        "batch_size": config.batch_size,
        **{f"{name}_steps_per_second": value for name, value in speed.items()},
        **{f"against_{name}": speed["ours"] / speed[name] for name in rivals},
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--steps", type=int, default=200, help="gradient steps per round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32, help="of DoubleDQN")
    parser.add_argument("--box-batch-size", type=int, default=256, help="of ReBRAC")
    options = parser.parse_args()
    updates = options.steps * (options.rounds + 1) + 100
    finite = ControlConfig(batch_size=options.batch_size, updates=updates)
    box = ControlConfig(
        "rebrac", batch_size=options.box_batch_size, updates=updates, hidden=(256, 256)
    )
    # d3rlpy logs to standard output, which is kept for the result
    with one_thread(), contextlib.redirect_stdout(sys.stderr):
        result = measure(options.steps, options.rounds, finite)
        continuous = measure(options.steps, options.rounds, box)
    result |= {f"box_{name}": value for name, value in continuous.items()}
    if options.json:
        print(json.dumps(result))
        return
    print(f"DoubleDQN, control stage: {result['ours_steps_per_second']:8.0f} steps per second")
    print(f"d3rlpy's fit:             {result['stock_steps_per_second']:8.0f}")
    print(f"bare PyTorch loop:        {result['bare_steps_per_second']:8.0f}")
    print(f"against d3rlpy's fit      {result['against_stock']:8.2f} × (to reach: 2)")
    print(f"against a bare loop       {result['against_bare']:8.2f} × (to reach: 0.9)")
    print(f"ReBRAC, control stage:    {result['box_ours_steps_per_second']:8.0f} steps per second")
    print(f"d3rlpy's fit:             {result['box_stock_steps_per_second']:8.0f}")
    print(f"against d3rlpy's fit      {result['box_against_stock']:8.2f} × (to reach: 1.5)")


if __name__ == "__main__":
    main()
