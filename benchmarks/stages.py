"""Which stage loses what: the stages of `--preset paper` exchanged for the default preset's.

    python benchmarks/stages.py navigation.h5 --seeds 1

Latent, probe and control are taken from either preset, in all eight ways, with the paper's number
of probe steps and a latent that is read once. The paper's loop gives its latent and its probe;
beside another latent or probe, a probe is learned for the latent at hand, by the ELBO (paper) or by
information (default). The last row is `--preset segment` as it is. Instances are named for fresh
segments, drawn as the probe would make them.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

import sept_offline as so
from sept_offline.agent import Agent
from sept_offline.agent.networks import Standardiser
from sept_offline.agent.probes import NetworkProbe
from sept_offline.data import Dataset, Segments
from sept_offline.evaluation import evaluate
from sept_offline.latent.identification import linear, vote
from sept_offline.methods.hold_out import unfitted_episodes
from sept_offline.methods.knowledge import Knowledge, learn_in_turn, learn_jointly
from sept_offline.methods.method import control_stage, spaces_of
from sept_offline.methods.preset import resolve_config
from sept_offline.methods.sept import context_of, read_segments
from sept_offline.probe import (
    ProbeStage,
    logged_or_estimated,
    segment_rewards,
)
from sept_offline.probe.weights import balance
from sept_offline.seeding import generator, integer
from sept_offline.settings import FitConfig, Reward
from sept_offline.stage import train_all
from sept_offline.threads import one_thread

REWARDS: dict[str, Reward] = {"paper": "elbo", "default": "information"}
DRAWN = 3000
"""Segments of each kind by which instances are named."""
NEIGHBOURS = 15
EPISODES = {"test": 1, "validation": 10}
"""Of each instance."""


class Exchange:
    """The stages of both presets on the same logs with the same seed, each learned once."""

    def __init__(self, data: Dataset, seed: int, split: str) -> None:
        self.data, self.seed, self.split = data, seed, split
        paper = resolve_config(data, "paper", {"verdict": False})
        same = {
            "probe_steps": paper.probe_steps,
            "verdict": False,
            "latent": {"refine": False},
            "control": {"algorithm": "double_dqn"},
        }
        self.configs = {"paper": paper, "default": resolve_config(data, "default", same)}
        unfitted = unfitted_episodes(data, paper.held_out, seed)
        self.fitted = data.select(~unfitted)
        self.segments = data.segments(paper.probe_steps)
        self.fresh = np.isin(self.segments.episode, data.episode_index.number[unfitted])
        self.known: dict[tuple[str, str], Knowledge] = {}

    def knowledge(self, latent: str, probe: str) -> Knowledge:
        """The latent of one preset with the probe of one."""
        if (latent, probe) not in self.known:
            if latent == probe:
                learn = learn_jointly if latent == "paper" else learn_in_turn
                parts = self.fitted, self.segments, self.fresh, self.configs[latent], self.seed
                self.known[latent, probe] = train_all(learn(*parts))
            else:
                self.known[latent, probe] = self._probed(self.knowledge(latent, latent), probe)
        return self.known[latent, probe]

    def _probed(self, known: Knowledge, probe: str) -> Knowledge:
        config = replace(self.configs["default"].probe, reward=REWARDS[probe])
        stage = ProbeStage(
            self.segments,
            segment_rewards(config.reward, known.latent, self.segments),
            config,
            integer(self.seed, "probe"),
            space=self.data.action_space,
        )
        stage.advance(stage.total)
        found = stage.result()
        return replace(known, probe=found.policy, weights=found.weights)

    def row(self, latent: str, probe: str, control: str) -> list[str]:
        """A row of the table."""
        known = self.knowledge(latent, probe)
        config = replace(self.configs[latent], control=self.configs[control].control)
        seen = read_segments(known, self.segments)
        scaler = Standardiser.fit(seen.latent)
        acting = train_all(
            control_stage(
                self.data,
                config.control,
                self.seed,
                contexts=scaler(seen.latent),
                context_instance=seen.instance,
                context_weights=seen.weights,
            )
        )
        agent = Agent(
            "sept",
            self.data.metadata.family or "",
            spaces_of(self.data),
            context_of(known, scaler, None, 1.0, config),
            acting,
        )
        named = self.named(known, self.segments, self.fresh)
        return [latent, probe, control, *named, *judged(agent, self.split, self.seed)]

    def segment_row(self) -> list[str]:
        """The row of `--preset segment`."""
        config: FitConfig = resolve_config(self.data, "segment", {"verdict": False})
        agent = so.fit(self.data, "sept", config, self.seed)
        segments = self.data.segments(config.probe_steps)
        unfitted = unfitted_episodes(self.data, config.held_out, self.seed)
        fresh = np.isin(segments.episode, self.data.episode_index.number[unfitted])
        parts = self.fitted, segments, fresh, config, self.seed
        named = self.named(train_all(learn_jointly(*parts)), segments, fresh)
        return ["segment"] * 3 + [*named, *judged(agent, self.split, self.seed)]

    def named(
        self, known: Knowledge, segments: Segments, fresh: NDArray[np.bool_]
    ) -> tuple[str, str]:
        """Share of fresh segments whose instance is read off z, by neighbours and linearly."""
        assert known.probe is not None
        behaviour = logged_or_estimated(segments, self.data.action_space, self.seed)
        ratio = log_probe(known.probe, segments)
        ratio -= behaviour.along(segments).sum(axis=1)
        weights = np.exp(ratio - ratio.max()) * balance(segments.instance)
        rng = generator(self.seed, "named")
        z, _ = known.latent.encode(segments)
        reference, asked = (
            rng.choice(np.flatnonzero(rows), DRAWN, p=weights[rows] / weights[rows].sum())
            for rows in (~fresh, fresh)
        )
        spread = np.maximum(z[reference].std(axis=0), 1e-6)
        labels, truth = segments.instance[reference], segments.instance[asked]
        near = vote(z[reference] / spread, labels, z[asked] / spread, NEIGHBOURS)
        straight = linear(z[reference], labels, z[asked])
        return f"{(near == truth).mean():.2f}", f"{(straight == truth).mean():.2f}"


def log_probe(probe: NetworkProbe, segments: Segments) -> NDArray[np.float64]:
    """Σ_t log π(a_t|s_t), `[N]`."""
    count, length = segments.actions.shape
    seen = segments.observations[:, :length].reshape(count * length, -1)
    scores = probe.network(probe.scaler(seen)).astype(np.float64)
    chances = scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)
    taken = chances[np.arange(len(chances)), segments.actions.reshape(-1)]
    return np.asarray(taken.reshape(count, length).sum(axis=1))


def judged(agent: Agent, split: str, seed: int) -> tuple[str, str]:
    """Mean steps, the limit where unsolved, and the share of solved episodes."""
    found = evaluate(agent, instances=split, seed=seed, episodes_per_instance=EPISODES[split])
    summary = found.summary()
    return f"{summary['steps_to_solve']['mean']:.1f}", f"{summary['solved']:.0%}"


def main() -> None:
    """Print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--split", choices=sorted(EPISODES), default="test")
    arguments = parser.parse_args()
    print("| seed | latent | probe | control | neighbours | linear | steps | solved |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    with one_thread(), so.load_dataset(arguments.dataset) as data:
        for seed in range(arguments.seeds):
            exchange = Exchange(data.without_hidden(), seed, arguments.split)
            for latent in REWARDS:
                for probe in REWARDS:
                    for control in REWARDS:
                        row = exchange.row(latent, probe, control)
                        print(f"| {seed} | {' | '.join(row)} |", flush=True)
            print(f"| {seed} | {' | '.join(exchange.segment_row())} |", flush=True)


if __name__ == "__main__":
    main()
