"""TotalVar: SEPT with a probe that seeks movement, R = 1/T_p Σ_t Σ_i |s_{t+1,i} − s_{t,i}|."""

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
    probe = replace(config.probe, use="always", reward="total-variation")
    return (yield from probe_infer_control("totalvar", data, replace(config, probe=probe), seed))


TOTALVAR = Method(
    "totalvar",
    _stages,
    "SEPT whose probe seeks to move the state as far as it can.",
    segments=True,
    novelty=True,
    title="TotalVar",
    ablation=True,
    probe_reward=True,
)
