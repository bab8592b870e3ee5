"""The transitions objective: a latent read from any number of transitions of one instance.

First an average model f₀(s, a) learns the effect of a step in any instance. What it leaves,
in units of how much it leaves, is what instances can differ in:

    ρ = (Δs / σ − f₀(s, a)) / rmse

Columns that are known without the instance (clocks, lags) thus stay small and cannot drown the
others. The encoder reads one transition, (s, a, ρ, a⊗ρ), and gives evidence: a mean m and a
precision λ. A context of transitions has their product with the prior N(0, I),

    q(z | context) = N(Σλm / (1 + Σλ), 1 / (1 + Σλ)),

so that order does not matter, no length is fixed, and an agent carries two sums along. Each
training instance i has a free posterior q_i. One loop, one optimiser:

    loss = − E_{q_i} log p(ρ | s, a, z)           over transitions from anywhere in the instance
           + β · KL(q_i ‖ N(0, I)) / (its transitions)
           + KL(stopgrad q_i ‖ q(z | context))    contexts of 0 to `context` steps, half of which
                                                  begin with their episode
           − through · log p(ρ | s, a, E q(z | context))

The third term makes q as wide as its errors are. The last one makes the encoder say what the
decoder needs, so that instances which were never seen are placed by what they do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.agent.networks import Standardiser, varying
from sept_offline.data.records import Segments, Steps
from sept_offline.errors import TrainingError
from sept_offline.latent.identification import neighbour_share
from sept_offline.latent.model import LatentModel
from sept_offline.latent.networks import TransitionNetwork, posterior
from sept_offline.seeding import torch_generator
from sept_offline.settings import LatentConfig
from sept_offline.threads import one_thread
from sept_offline.training.inputs import (
    Balanced,
    Floats,
    Integers,
    changes,
    check_segments,
    standardised,
)
from sept_offline.training.layers import (
    Gaussian,
    Posteriors,
    kl_between,
    kl_standard,
    log_normal,
    sample,
)
from sept_offline.training.updates import UpdateStage, annealed, check_finite, descend

TARGETS = 4
"""Transitions that the mean of each context must explain."""
EMPTY = 0.1
"""Share of contexts without steps: the prior must be trained too."""
LEAST_CHANGE = 0.01
"""A column's change counts in units of at least this share of the column's own spread."""
LEAST_REST = 0.02
"""Minimum unit of the average model's residuals, as a share of the change."""
AVERAGE = 0.25
"""Share of the updates that train the average model."""
BLOCK = 16384
"""Transitions to read at once."""
CONTEXTS, LEAST_CONTEXTS = 16384, 64
"""Contexts to train control with: in total, and at least per instance."""
KNOWN, WATCHED = 4096, 512
"""Maximum numbers of training and fresh segments to monitor identification with."""
NOTHING = np.zeros((0, 0), dtype=np.float32)


class Contexts:
    """Draws contexts: runs of consecutive steps of one instance.

    instance `[N]`, time `[N]`: of each step; those of an episode stand in a row.
    """

    def __init__(self, instance: Integers, time: Integers, longest: int) -> None:
        self.longest = longest
        starts = np.flatnonzero(time == 0)
        self.starts = torch.from_numpy(starts)
        self.first = Balanced(instance[starts])
        self.steps = Balanced(instance)
        ends = np.append(starts[1:], len(time))
        self.left = torch.from_numpy(np.repeat(ends, np.diff(np.append(starts, len(time)))))
        self.left -= torch.arange(len(time))

    def draw(self, instance: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
        """One context of each `instance[B]`: its first step and how many it has, `[B]` each.

        The first half of them begin with an episode, the others anywhere.
        """
        count = len(instance)
        half = count // 2
        begin = self.starts[self.first.draw_like(instance[:half], rng)]
        start = torch.cat((begin, self.steps.draw_like(instance[half:], rng)))
        # Log-uniform: as many contexts of 1 step as of 2 to 3, or of 4 to 7.
        length = torch.exp(torch.rand(count, generator=rng) * math.log(self.longest + 1)).long()
        length = length.clamp(1, self.longest)
        length[torch.rand(count, generator=rng) < EMPTY] = 0
        return start, torch.minimum(length, self.left[start])


def ragged(start: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    """The steps of all contexts end to end, and the context that each belongs to."""
    owner = torch.repeat_interleave(torch.arange(len(start)), length)
    before = torch.cumsum(length, 0) - length
    return start[owner] + torch.arange(len(owner)) - before[owner], owner


def change_scale(before: Floats, change: Floats, predicted: int) -> Floats:
    """The unit of each column's change, [d]; 0 where a column never changes or is not predicted."""
    # squares of large observations exceed float32
    moved, spread = change.std(axis=0, dtype=np.float64), before.std(axis=0, dtype=np.float64)
    size = np.maximum(moved, LEAST_CHANGE * spread)
    counts = varying(change) & (np.arange(change.shape[1]) < predicted)
    return np.where(counts, size, 0.0).astype(np.float32)


class TransitionLatentStage(UpdateStage):
    """Learns the average model, then encoder and decoder; see above.

    steps: all steps of the training episodes; segments: their first T steps, which the agent will
    read first; fresh: segments of other episodes, whose identification is shown while the stage
    learns; predicted: the number of columns, the first ones, that depend on the instance (the
    others of a stacked observation are known from the last step).
    """

    watched = ("log_likelihood", "kl", "encoder_kl")

    def __init__(
        self,
        steps: Steps,
        segments: Segments,
        config: LatentConfig,
        seed: int,
        *,
        space: ActionSpace,
        num_instances: int,
        fresh: Segments | None = None,
        predicted: int | None = None,
    ) -> None:
        check_segments(segments, space, num_instances)
        super().__init__("latent", config.updates, (config.learning_rate, config.learning_rate_end))
        self.config, self.space, self.num_instances = config, space, num_instances
        self._warm = max(1, round(AVERAGE * config.updates))
        before = steps.observations[steps.row]
        change = changes(before, steps.observations[steps.row + 1])
        state = Standardiser.fit(before)
        rng = torch_generator(seed, "latent", "initialise")
        self.network = TransitionNetwork(
            segments.actions.shape[1],
            space.width,
            config.dim,
            config.hidden,
            state,
            change_scale(before, change, predicted or before.shape[1]),
            config.least_log_variance,
            rng,
        )
        self.posteriors = Posteriors(num_instances, config.dim, config.initial_spread, rng)
        self.optimise(
            {"network": self.network, "posteriors": self.posteriors},
            torch_generator(seed, "latent", "train"),
            {"posteriors": config.posterior_factor},
        )
        self._states = standardised(state, before)
        self._changes = torch.from_numpy(change)
        self._chosen = torch.from_numpy(space.encode(steps.actions))
        self._residuals: Tensor | None = None
        self._instance = torch.from_numpy(steps.instance.astype(np.int64))
        self._contexts = Contexts(steps.instance, steps.time, config.context)
        counts = np.bincount(steps.instance, minlength=num_instances)
        self._kl_weight = torch.from_numpy((config.beta / np.maximum(counts, 1)).astype(np.float32))
        self._known, self._asked = segments, fresh

    def advance(self, updates: int) -> dict[str, float]:
        """See Stage; the metrics are means over these updates."""
        warm = min(updates, max(self._warm - self.done, 0))
        metrics: dict[str, float] = {}
        if warm:
            metrics |= self._repeat(warm, ("average_error",))
        if updates > warm and self.done < self.total:
            metrics |= self._repeat(updates - warm)
            # Of a transition: what the instance's latent costs is shared by all it explains.
            cost = metrics["kl"] * float(self._kl_weight.mean())
            metrics["elbo"] = metrics["log_likelihood"] - cost
        check_finite(metrics, self.name, self.done)
        if "elbo" in metrics and self._asked is not None and len(self._asked.instance):
            metrics["identification"] = self._identify(self._asked)
        return metrics

    def _update(self) -> Tensor:
        if self.done < self._warm:
            return self._update_average()
        config, rng, draws = self.config, self.rng, self._contexts.steps
        rows = draws.draw(config.transitions, rng)
        instance = self._instance[rows]
        q = self.posteriors.mean[instance], self.posteriors.log_variance[instance]
        likelihood = self._likelihood(rows, sample(q, rng)).mean()
        prior = kl_standard(q)

        named = draws.present[torch.randint(len(draws.present), (config.contexts,), generator=rng)]
        guess = self._read(*self._contexts.draw(named, rng))
        target = self.posteriors.mean[named], self.posteriors.log_variance[named]
        encoder = kl_between((target[0].detach(), target[1].detach()), guess).mean()
        asked = draws.draw_like(named.repeat_interleave(TARGETS), rng)
        # Of the mean alone: through a sample the decoder would talk the encoder out of its doubts.
        through = self._likelihood(asked, guess[0].repeat_interleave(TARGETS, dim=0)).mean()

        cost = (self._kl_weight[instance] * prior).mean()
        loss = cost + encoder - likelihood - config.through * through
        self._descend(loss)
        return torch.stack((likelihood, prior.mean(), encoder)).detach()

    def _read(self, start: Tensor, length: Tensor) -> Gaussian:
        """q(z | context) of contexts that begin at `start[B]` and have `length[B]` steps."""
        rows, owner = ragged(start, length)
        residuals = self._known_residuals()
        evidence = self.network.evidence(self._states[rows], self._chosen[rows], residuals[rows])
        nothing = torch.zeros(len(start), evidence.shape[1])
        return posterior(nothing.index_add(0, owner, evidence))

    def _likelihood(self, rows: Tensor, z: Tensor) -> Tensor:
        predicted = self.network.predict(self._states[rows], self._chosen[rows], z)
        return log_normal(self._known_residuals()[rows], *predicted)

    def _update_average(self) -> Tensor:
        """The average model alone, by its squared error."""
        rows = self._contexts.steps.draw(2 * self.config.transitions, self.rng)
        left = self.network.left(self._states[rows], self._chosen[rows], self._changes[rows])
        error = (left**2).sum(1).mean()
        self._descend(error)
        return error.detach()

    def _descend(self, loss: Tensor) -> None:
        """See UpdateStage; the average model and what follows it have a cosine each."""
        done, total = self.done, self._warm
        if done >= self._warm:
            done, total = done - self._warm, self.total - self._warm
        descend(self.optimiser, loss, annealed(*self._rates, done, total))

    def _known_residuals(self) -> Tensor:
        """ρ of every transition; the size of the rest is measured once and kept."""
        if self._residuals is not None:
            return self._residuals
        with torch.no_grad():
            left = self._blocks(self.network.left, self._changes)
            rest = self.network.get_buffer("rest")
            if not bool(rest.any()):
                rest.copy_(left.double().pow(2).mean(0).sqrt().clamp(min=LEAST_REST))
            self._residuals = left / rest
        return self._residuals

    def _blocks(
        self, function: Callable[[Tensor, Tensor, Tensor], Tensor], values: Tensor
    ) -> Tensor:
        """`function` of states, actions and `values`, in blocks that fit the memory."""
        parts = [slice(first, first + BLOCK) for first in range(0, len(values), BLOCK)]
        return torch.cat([function(self._states[p], self._chosen[p], values[p]) for p in parts])

    def _identify(self, asked: Segments) -> float:
        """The identification of some of the fresh segments."""
        model = LatentModel(self.network, self.space, NOTHING, NOTHING)
        with one_thread():
            known, known_instance = _encode_some(model, self._known, KNOWN)
            latent, instance = _encode_some(model, asked, WATCHED)
        return neighbour_share(known, known_instance, latent, instance)

    def result(self) -> LatentModel:
        """The fitted latent."""
        # However early it is asked for: the encoder needs the size of what the average leaves.
        self._known_residuals()
        return LatentModel(
            self.network,
            self.space,
            self.posteriors.mean.detach().numpy().copy(),
            self.posteriors.log_variance.detach().numpy().copy(),
        )


def draw_latents(
    evidence: Iterable[Tensor], contexts: Contexts, rng: torch.Generator
) -> tuple[Gaussian, Tensor, Tensor]:
    """Latents of contexts of 0 steps or more, equally many of each instance.

    `evidence` is that of all steps, `[n, 2k]` block by block. Returns q(z | context), two `[S, k]`,
    their instances `[S]` and the contexts' first steps `[S]`.
    """
    present = contexts.steps.present
    instance = present.repeat(max(CONTEXTS // len(present), LEAST_CONTEXTS))
    start, length = contexts.draw(instance, rng)
    # the sums before each context and up to its end; those of all steps would fill the memory
    rows = torch.cat((start, start + length)).numpy()
    wanted, place = map(torch.from_numpy, np.unique(rows, return_inverse=True))
    found, total, first = [], torch.zeros(1, 1, dtype=torch.float64), 0
    for block in evidence:
        sums = torch.cat((total.expand(-1, block.shape[1]), block.double())).cumsum(0)
        total, last = sums[-1:], first + len(block)
        found.append(sums[wanted[(first <= wanted) & (wanted < last)] - first])
        first = last
    found.append(total.expand(int((wanted == first).sum()), -1))
    before, until = torch.cat(found)[place].chunk(2)
    return posterior((until - before).float()), instance, start


def _encode_some(model: LatentModel, segments: Segments, most: int) -> tuple[Floats, Integers]:
    """Latents and instances of at most `most` segments, spread evenly."""
    rows = np.linspace(0, len(segments.instance) - 1, min(most, len(segments.instance)))
    chosen = np.unique(rows.astype(np.int64))
    latent, _ = model.encode_arrays(segments.observations[chosen], segments.actions[chosen])
    return latent, segments.instance[chosen]


def context_latents(
    model: LatentModel, steps: Steps, longest: int, seed: int
) -> tuple[Floats, Floats, Integers, Integers]:
    """Latents of contexts of 0 to `longest` steps, equally many of each instance.

    Returns the latents `[S, k]`, their variances `[S, k]`, their instances `[S]`, and the number of
    each context's first step `[S]`.
    """
    network = model.network
    if not isinstance(network, TransitionNetwork):
        raise TrainingError("Only the transitions objective reads contexts of any length.")

    def evidence() -> Iterator[Tensor]:
        for rows in np.array_split(np.arange(len(steps.row)), -(-len(steps.row) // BLOCK)):
            before = torch.from_numpy(steps.observations[steps.row[rows]])
            after = torch.from_numpy(steps.observations[steps.row[rows] + 1])
            actions = torch.from_numpy(model.space.encode(steps.actions[rows]))
            yield network.evidence_of(before, actions, after)

    with one_thread(), torch.no_grad():
        (latent, log_variance), instance, first = draw_latents(
            evidence(),
            Contexts(steps.instance, steps.time, longest),
            torch_generator(seed, "contexts"),
        )
    return latent.numpy(), log_variance.exp().numpy(), instance.numpy(), first.numpy()
