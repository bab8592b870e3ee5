"""Gradient steps per second of the control stage, of d3rlpy's own fit, and of a bare PyTorch loop.

Run: python benchmarks/fit.py [--json]. One core, one run; the same data, network and batch size.
The three take turns, each one's best round counts, and seconds are of this process on its core, so
that a busy machine disturbs little.
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


def make_data() -> dict[str, np.ndarray]:
    """Random episodes of the size of a small Acrobot dataset."""
    rng = np.random.default_rng(0)
    count = EPISODES * LENGTH
    done = np.zeros((EPISODES, LENGTH))
    done[:, -1] = 1
    return {
        "observations": rng.normal(size=(EPISODES * (LENGTH + 1), DIM)).astype(np.float32),
        "row": np.concatenate([np.arange(LENGTH) + e * (LENGTH + 1) for e in range(EPISODES)]),
        "actions": rng.integers(0, ACTIONS, size=count),
        "rewards": rng.normal(size=count),
        "terminals": done.ravel(),
        "instance": np.repeat(np.arange(EPISODES) % 4, LENGTH),
        "contexts": rng.normal(size=(EPISODES, LATENT)).astype(np.float32),
        "context_instance": np.arange(EPISODES) % 4,
    }


def ours(data: dict[str, np.ndarray], config: ControlConfig) -> Callable[[int], None]:
    """The control stage."""
    stage = ControlStage(Replay(**data), config, seed=0, num_actions=ACTIONS)
    return lambda steps: stage.advance(steps) and None


def stock(data: dict[str, np.ndarray], config: ControlConfig) -> Callable[[int], None]:
    """d3rlpy's DoubleDQN as it comes, on [state, latent], without its logs and files."""
    import d3rlpy
    from d3rlpy.logging import NoopAdapterFactory

    inputs = []
    for episode in range(EPISODES):
        rows = slice(episode * (LENGTH + 1), episode * (LENGTH + 1) + LENGTH)
        latent = np.repeat(data["contexts"][episode][None], LENGTH, axis=0)
        inputs.append(np.concatenate([data["observations"][rows], latent], axis=1))
    dataset = d3rlpy.dataset.MDPDataset(
        np.concatenate(inputs),
        data["actions"],
        data["rewards"].astype(np.float32),
        data["terminals"].astype(np.float32),
        action_space=d3rlpy.constants.ActionSpace.DISCRETE,
        action_size=ACTIONS,
    )
    algorithm = d3rlpy.algos.DoubleDQNConfig(
        batch_size=config.batch_size,
        learning_rate=config.learning_rate,
        gamma=config.gamma,
        target_update_interval=200,
        encoder_factory=encoder_factory(config),
    ).create(device=False)
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


def bare(data: dict[str, np.ndarray], config: ControlConfig) -> Callable[[int], None]:
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


def measure(steps: int, rounds: int, batch_size: int) -> dict[str, float]:
    """Steps per second of each, and ours against the other two."""
    config = ControlConfig(batch_size=batch_size, updates=steps * (rounds + 1) + 100)
    data = make_data()
    loops = {"ours": ours(data, config), "stock": stock(data, config), "bare": bare(data, config)}
    speed = dict.fromkeys(loops, 0.0)
    for run in loops.values():
        run(20)
    for _ in range(rounds):
        for name, run in loops.items():
            start = time.process_time()
            run(steps)
            speed[name] = max(speed[name], steps / (time.process_time() - start))
    return {
        "batch_size": batch_size,
        **{f"{name}_steps_per_second": value for name, value in speed.items()},
        "against_stock": speed["ours"] / speed["stock"],
        "against_bare": speed["ours"] / speed["bare"],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--steps", type=int, default=200, help="gradient steps a round")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    # d3rlpy logs to standard output, which is kept for the result
    with one_thread(), contextlib.redirect_stdout(sys.stderr):
        result = measure(options.steps, options.rounds, options.batch_size)
    if options.json:
        print(json.dumps(result))
        return
    print(f"control stage:       {result['ours_steps_per_second']:8.0f} steps a second")
    print(f"d3rlpy's fit:        {result['stock_steps_per_second']:8.0f}")
    print(f"bare PyTorch loop:   {result['bare_steps_per_second']:8.0f}")
    print(f"against d3rlpy's fit {result['against_stock']:8.2f} × (to reach: 2)")
    print(f"against a bare loop  {result['against_bare']:8.2f} × (to reach: 0.9)")


if __name__ == "__main__":
    main()
