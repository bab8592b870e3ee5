"""MaxEnt: SEPT with a probe that seeks what the VAE knows least, R = −ELBO(segment)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from sept_offline.agent import Agent
from sept_offline.data import Dataset
from sept_offline.methods.method import Method
from sept_offline.methods.sept import probe_infer_control
from sept_offline.settings import FitConfig
from sept_offline.stage import Stage


def _stages(data: Dataset, config: FitConfig, seed: int) -> Generator[Stage, None, Agent]:
    probe = replace(config.probe, use="always", reward="negative-elbo")
    return (yield from probe_infer_control("maxent", data, replace(config, probe=probe), seed))


MAXENT = Method(
    "maxent",
    _stages,
    "SEPT whose probe seeks what the latent's model explains least.",
    segments=True,
    novelty=True,
    title="MaxEnt",
    ablation=True,
    probe_reward=True,
)
