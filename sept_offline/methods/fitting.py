"""From logs to an agent: a method's stages, advanced one epoch at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from sept_offline.actions import Box
from sept_offline.agent import Agent, NoContext, RefinedContext, SegmentContext, load_agent
from sept_offline.agent.networks import Network
from sept_offline.control import ControlStage
from sept_offline.data import Dataset, read_dataset
from sept_offline.errors import ConfigError, TrainingError
from sept_offline.family import suggest
from sept_offline.methods.baselines import AVG, EPOPT, HISTORY, ORACLE
from sept_offline.methods.bati import BATI
from sept_offline.methods.bayes import BNN, DPT
from sept_offline.methods.choices import (
    Choice,
    check_stack,
    choose_settings,
    choose_stack,
    observing_plainly,
)
from sept_offline.methods.dynasept import DYNASEPT
from sept_offline.methods.hold_out import (
    choose_hold_out,
    episode_digests,
    fitted_on,
    to_ranges,
)
from sept_offline.methods.maml import MAML
from sept_offline.methods.method import Method, Stages, check_data
from sept_offline.methods.preset import resolve_config
from sept_offline.methods.rivals import CSRO, FOCAL, UNICORN
from sept_offline.methods.run import RunDirectory
from sept_offline.methods.sept import MAXENT, SEPT, TOTALVAR
from sept_offline.methods.sept_np import SEPT_NP
from sept_offline.methods.trial import chooses_probe, renamed, trial, with_or_without_probe
from sept_offline.methods.verdict import Evidence, Interval, Values, reach
from sept_offline.progress import Progress, Silent
from sept_offline.seeding import root_seed
from sept_offline.settings import FitConfig, to_plain
from sept_offline.stacking import Stack
from sept_offline.stage import Stage
from sept_offline.threads import one_thread
from sept_offline.versions import versions

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        SEPT,
        AVG,
        ORACLE,
        EPOPT,
        SEPT_NP,
        TOTALVAR,
        MAXENT,
        HISTORY,
        MAML,
        DYNASEPT,
        BNN,
        DPT,
        FOCAL,
        UNICORN,
        CSRO,
        BATI,
    )
}
Result = TypeVar("Result")
EPOCHS = 20
"""Times a stage stops to report."""
UNTESTED = (
    "Each instance has a single episode, so it is unknown whether the latent distinguishes "
    "instances. Log two episodes or more of each."
)


@dataclass(frozen=True)
class Epoch:
    """A stage at one of its stops."""

    stage: str
    done: int
    total: int
    metrics: dict[str, float]


class Fitter:
    """Fits while it is iterated over; `agent` is there when the iteration is over.

    `for epoch in fitter: …` stops after each epoch, for notebooks; `end_stage()` in the loop ends
    the current stage early.
    """

    def __init__(
        self,
        data: Dataset,
        method: str = "sept",
        config: FitConfig | Mapping[str, Any] | None = None,
        seed: int = 0,
        run: RunDirectory | None = None,
    ) -> None:
        self.method, self.seed = _method(method), root_seed(seed)
        if not isinstance(config, FitConfig):
            config = resolve_config(data, "default", config or {}, stacks=self.method.stacks)
        self.config = config
        if self.config.fallback != "none":
            _check_fallback(self.method, self.config)
        check_stack(self.method, self.config)
        _check_space(self.method, data)
        check_data(data, self.config.probe_steps if self.method.segments else 0)
        self.data = data if self.method.privileged else data.without_hidden()
        self.config, self.choices = choose_settings(
            self.data, config, self.seed, double_dqn=self.method.double_dqn
        )
        self.run = run
        self.held_out: dict[str, Any] | None = None
        """The held-out episodes that are already missing from `data`."""
        self.agent: Agent | None = None
        self._begun: Stages | None = None
        self._number = 0
        self._values: Values | None = None
        self._early: Network | None = None
        self._stack: Stack | None = None

    def begin(self) -> None:
        """Make the first stage: a method that cannot begin refuses here, with nothing trained."""
        self._begun = _begun(self._stages(self.config.stack or 1))

    def _stages(self, stack: int) -> Stages:
        return self.method.stages(self.data.stacked(stack), self.config, self.seed)

    def __iter__(self) -> Iterator[Epoch]:
        begun, self._begun, self._number = self._begun, None, 0
        length, choices = self.config.stack or 1, dict(self.choices)
        if not self.config.stack and self.method.stacks:
            choices["stack"] = yield from self._choose_stack()
            length = int(choices["stack"].chosen)
        self._stack = None
        if length > 1:
            self._stack = Stack(length, self.data.observation_dim, self.data.action_space.width)
        if begun is None or length != (self.config.stack or 1):
            begun = self._stages(length)
        agent = yield from self._train_all(begun)
        facts: dict[str, Any] = {"fitted_on": fitted_on(self.data)}
        if self.config.verdict and self.method.judged:
            agent, verdict = yield from self._judge(agent)
            facts |= verdict
        if choices:
            facts["choices"] = {name: choice.summary() for name, choice in choices.items()}
        if self.held_out is not None:
            facts["held_out"] = self.held_out
        named = self.data.metadata.extra.get("family_object")
        if named is not None:
            facts["family_object"] = named
        seen = np.sort(episode_digests(self.data))
        plain = observing_plainly(agent, self._stack)
        self.agent = replace(plain, record=agent.record | facts, learned_from=seen)
        if self.run is not None:
            self.run.finish(self.agent)

    def _choose_stack(self) -> Generator[Epoch, None, Choice]:
        """Compare what the present observation and the last ones predict."""
        try:
            return (yield from self._train_all(choose_stack(self.data, self.config, self.seed)))
        except TrainingError as problem:
            return Choice(1, f"The stack could not be chosen from the logs: {problem}")

    def _train_all(self, stages: Generator[Stage, None, Result]) -> Generator[Epoch, None, Result]:
        """Train one stage after another; what the generator of stages returns."""
        while True:
            try:
                # what is computed between stages must not depend on free cores either
                with one_thread():
                    stage = next(stages)
            except StopIteration as finished:
                result: Result = finished.value
                return result
            yield from self._train(stage)

    def _train(self, stage: Stage) -> Generator[Epoch, None, None]:
        """Advance one stage to its end, from where the run stopped."""
        if self.run is not None:
            self.run.restore(self._number, stage)
        epoch = max(1, -(-stage.total // EPOCHS))
        while stage.done < stage.total:
            metrics = stage.advance(epoch - stage.done % epoch)
            if self.run is not None:
                # In this order, so that no update a snapshot holds lacks its metrics.
                self.run.log(stage.name, stage.done, metrics)
                self.run.save(self._number, stage, force=stage.done >= stage.total)
            yield Epoch(stage.name, stage.done, stage.total, metrics)
        self._number += 1
        if isinstance(stage, ControlStage) and stage.name == "control":
            size = max(abs(stage.bound), stage.replay.largest_size)
            self._values = Values(stage.max_q(), stage.bound, size, stage.replay.truncated)
            self._early = stage.early()

    def _judge(self, agent: Agent) -> Generator[Epoch, None, tuple[Agent, dict[str, Any]]]:
        """Reach a verdict on a fitted agent, for its record.

        Its probe goes if it does not pay, and its latent if `avg` or `history` earns more.
        """
        separation = agent.record.get("separation")
        acts_as_avg = separation is not None and isinstance(agent.context, NoContext)
        evidence = Evidence()
        if not acts_as_avg:
            early = agent
            if self._early is not None:
                early = replace(agent, control=replace(agent.control, network=self._early))
            stages = trial(
                self.method, self._seen, self.config, self.seed, agent, early, self._stack
            )
            try:
                evidence = yield from self._train_all(stages)
            except TrainingError as problem:
                evidence = Evidence(missing=f"The agent could not be tried: {problem}")
        if separation is not None:
            evidence = replace(
                evidence,
                separation=Interval(separation["apart"], separation["low"], separation["high"]),
                separates=separation["better_than_chance"],
                uncertainty=separation["uncertainty"],
                acts_as_avg=acts_as_avg,
            )
        elif isinstance(agent.context, SegmentContext | RefinedContext) and not evidence.unseen:
            evidence = replace(evidence, missing=evidence.missing or UNTESTED)
        evidence = replace(evidence, values=self._values, full=_full(agent, self.data))
        if chooses_probe(self.method, self.config):
            gains = evidence.probe_gains if evidence.faithful else None
            agent = with_or_without_probe(agent, gains)
        better = evidence.better
        if better is not None and isinstance(agent.context, RefinedContext):
            others = METHODS[better].stages(self._seen, self.config, self.seed)
            instead = yield from self._train_all(renamed(others, better))
            context = instead.context
            if isinstance(context, NoContext):
                context = NoContext(uncertainty=1.0)
            agent = replace(agent, context=context, control=instead.control, fallback=None)
            evidence = replace(evidence, replaced=better)
        conservative = "cql" if isinstance(self.data.action_space, Box) else "discrete_cql"
        facts = {**reach(evidence, conservative).summary(), "evidence": asdict(evidence)}
        if separation is not None and evidence.unseen_radii is not None:
            # Regions are for instances that nobody has seen, which may differ more than episodes.
            pairs = zip(separation["radii"], evidence.unseen_radii, strict=True)
            facts["separation"] = separation | {"radii": [max(pair) for pair in pairs]}
        return agent, facts

    @property
    def _seen(self) -> Dataset:
        """The logs as the agent reads them."""
        return self.data if self._stack is None else self.data.stacked(self._stack.length)


def _full(agent: Agent, data: Dataset) -> int | None:
    """The dimensions of the latent if all are in use and there are instances for more."""
    sizes = agent.record.get("latent_dimensions")
    if sizes is None or sizes["used"] < sizes["of"] or len(data.instances) <= sizes["of"] + 1:
        return None
    return int(sizes["of"])


def _begun(stages: Stages) -> Stages:
    """The same stages, the first of which is already made."""
    with one_thread():
        first = next(stages)

    def whole() -> Stages:
        yield first
        return (yield from stages)

    return whole()


def _method(name: str) -> Method:
    if name not in METHODS:
        raise ConfigError(
            f"There is no method {name!r}{suggest(name, METHODS)}; expected one of "
            f"{', '.join(sorted(METHODS))}."
        )
    return METHODS[name]


def _check_space(method: Method, data: Dataset) -> None:
    """Refuse a box of actions for a method that needs a finite set."""
    if method.finite and isinstance(data.action_space, Box):
        raise ConfigError(
            f"The method {method.name!r} needs discrete actions, but the actions of "
            f"{data.path} are {data.action_space.expected}; fit 'sept' or 'avg'."
        )


def _check_fallback(method: Method, config: FitConfig) -> None:
    """A fallback acts where a segment is found new: refuse it where that can never be."""
    if not method.novelty:
        why = f"the method {method.name!r} does not measure how new an instance is"
    elif config.latent.objective == "segment":
        why = "the paper's VAE does not measure novelty"
    else:
        return
    raise ConfigError(f"A fallback would never act, because {why}; omit --fallback.")


def fitter(
    data: Dataset,
    method: str = "sept",
    config: FitConfig | Mapping[str, Any] | None = None,
    seed: int = 0,
) -> Fitter:
    """Like `fit`, but as an iterator that stops after each epoch, for notebooks.

    `for epoch in fitter(data): …` yields records with `stage`, `done`, `total` and `metrics`. Call
    `end_stage()` in the loop to end the current stage early. After the loop, `agent` is the fitted
    agent. The preset is `default`; nothing is written to disk.
    """
    return Fitter(data, method, config, seed)


def fit(
    data: Dataset | str | Path,
    method: str = "sept",
    config: FitConfig | Mapping[str, Any] | None = None,
    seed: int = 0,
    *,
    out: str | Path | None = None,
    preset: str = "default",
    hold_out: float | None = None,
    resume: bool = False,
    restart: bool = False,
    progress: Progress | None = None,
    checkpoint_seconds: float | None = None,
) -> Agent:
    """Train an agent on logged episodes.

    - `data`: a dataset, or the path of one. Data from a path are validated first.
    - `method`: `sept`, or the name of a baseline or ablation.
    - `config`: settings that override the preset, e.g. `{"latent": {"dim": 3}}`. A `FitConfig`
      replaces the preset.
    - `seed`: the same data, settings and seed give the same weights on one kind of processor.
    - `out`: a run directory for settings, metrics, checkpoints and the agent. By default nothing
      is written.
    - `preset`: `default`, `paper` or `segment`.
    - `hold_out`: share of instances (of episodes if there are fewer than ten instances) to hold out
      for off-policy evaluation (`judge`).
    - `resume`, `restart`: continue the run in `out`, or replace it. Without either, an existing run
      is an error.
    - `checkpoint_seconds`: minimum time between two checkpoints.

    The verdict, if any, is in `agent.record["verdict"]` and `agent.record["reasons"]`.
    """
    listener, seed = progress or Silent(), root_seed(seed)
    # read once, and then shared by all stages
    data = data.in_memory() if isinstance(data, Dataset) else read_dataset(data)
    stacks = _method(method).stacks
    if not isinstance(config, FitConfig):
        config = resolve_config(data, preset, config or {}, stacks=stacks)
    run = None
    if out is not None:
        run = RunDirectory(out)
        if checkpoint_seconds is not None:
            run.checkpoint_seconds = checkpoint_seconds
    view = {
        "episodes": to_ranges(np.sort(data.episode_index.number)),
        "propensities": data.has_propensities,
    }
    held_out = None
    if hold_out is not None:
        held, held_out = choose_hold_out(data, hold_out, seed)
        data = data.select(~held)
    work = Fitter(data, method, config, seed, run)
    work.held_out = held_out
    if run is not None:
        if restart or not run.finished:
            # before the run's place is touched: what is refused leaves it as it was
            work.begin()
        record = {
            "method": method,
            "preset": preset,
            "seed": seed,
            "dataset": str(data.path),
            "content_hash": data.content_hash,
            "view": view,
            "held_out": held_out,
            "family": data.metadata.family,
            "config": to_plain(config),
            "versions": versions(),
        }
        run.open(record, resume, restart)
        if run.finished:
            listener.message(f"{run.path} is finished; nothing to resume.")
            run.close()
            return load_agent(run.path)
    try:
        current = None
        for epoch in work:
            if epoch.stage != current:
                if current is not None:
                    listener.finish()
                current = epoch.stage
                listener.start(epoch.stage, epoch.total, "updates")
            listener.update(epoch.done, **epoch.metrics)
        listener.finish()
    finally:
        if run is not None:
            run.close()
    if work.agent is None:
        raise ConfigError("The fit ended without an agent.")
    return work.agent
