"""The record of a method: its name, what it may see, and a generator of its stages."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from sept_offline.agent import Agent
from sept_offline.data import Dataset
from sept_offline.settings import FitConfig
from sept_offline.stage import Stage

Recipe = Callable[[Dataset, FitConfig, int], Generator[Stage, None, Agent]]


@dataclass(frozen=True)
class Method:
    """A way from logs to an agent.

    `stages` yields one stage after another; the caller advances each to its end (or restores
    an ended one), then asks for the next. It returns the agent. Files, clocks and progress bars
    are the iterator's business.
    """

    name: str
    stages: Recipe
    summary: str
    privileged: bool = False
    """Whether it is shown the hidden parameters of the training instances."""
    judged: bool = True
    """Whether a fit ends with a verdict: its agents act quickly and need observations alone."""
    segments: bool = False
    """Whether it reads the first T_p steps of every episode, so that none may be shorter."""
    stacks: bool = True
    """Whether it learns from observations stacked with the last steps; if not, `stack` is 1."""
    probe_optional: bool = False
    """Whether `probe.use` may leave out its probe."""
    finite: bool = False
    """Whether it needs a finite action space."""
    novelty: bool = False
    """Whether its agents measure how new an instance is, so that a fallback may act."""
    double_dqn: bool = False
    """Whether its control is always DoubleDQN, for any `control.algorithm`."""
    title: str = ""
    """Its name in figures and tables, as the paper writes it; `name` where empty."""
    ablation: bool = False
    """Whether it is SEPT with one part changed; other methods are baselines."""
    probe_reward: bool = False
    """Whether training reports the reward of a probe."""
    moving_latent: bool = False
    """Whether its latent changes until the end of an episode."""
    sections: tuple[str, ...] = ()
    """Sections of `FitConfig`, beside its own, that not every method reads."""
