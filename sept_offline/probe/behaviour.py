"""The behaviour's probabilities or densities: as logged, or estimated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sept_offline.actions import ActionSpace, Box
from sept_offline.agent.networks import Standardiser
from sept_offline.data.records import Segments
from sept_offline.probe.policy import NormalNetwork
from sept_offline.seeding import generator, torch_generator
from sept_offline.threads import one_thread
from sept_offline.training.adam import Adam
from sept_offline.training.inputs import Doubles, Floats, Integers, standardised
from sept_offline.training.layers import initialise, perceptron
from sept_offline.training.updates import descend

STEPS = 300
PATIENCE = 40
HIDDEN = (64, 64)
CHECK_SHARE = 0.2
"""Share of the episodes on which an estimate is checked."""
LEAST = 0.01
"""No estimate says that an action was less likely (in a box: than this share of the uniform
density): one mistake there would own all the weight."""


@dataclass(frozen=True)
class Behaviour:
    """μ(a|s) along logged segments.

    propensities: probabilities `[N, n, A]`, or the log-densities `[N, n]` of the actions taken in a
    box; estimated: whether those of the actions taken are a model's and not the log's own; nll,
    ece: the model's log-loss and calibration error on checked episodes (None where all are logged).
    """

    space: ActionSpace
    propensities: Doubles
    estimated: bool
    nll: float | None = None
    ece: float | None = None

    @property
    def uniform(self) -> bool:
        """Whether every action was equally likely at every step."""
        if isinstance(self.space, Box):
            return bool(np.allclose(self.propensities, uniform_density(self.space)))
        return bool(np.allclose(self.propensities, 1 / self.space.width))

    def along(self, segments: Segments) -> Doubles:
        """log μ(a_t|s_t) of the actions taken, [N, n]."""
        return self.space.log_propensity(self.propensities, segments.actions)


def uniform_density(space: Box) -> float:
    """The log-density of a uniform action."""
    return -float(np.log(2 * space.half).sum())


def logged_or_estimated(segments: Segments, space: ActionSpace, seed: int) -> Behaviour:
    """The logged behaviour; an estimate fills in what was not logged, and marks the whole.

    If only the logged action's probability is known it is kept, because a weight needs no other;
    what is left is shared among the others as the estimate shares it.
    """
    logged = segments.propensities
    if logged is None:
        return estimate_behaviour(segments, space, seed)
    known = np.isfinite(logged) if isinstance(space, Box) else np.isfinite(logged.sum(axis=-1))
    if known.all():
        return Behaviour(space, logged, estimated=False)
    guess = estimate_behaviour(segments, space, seed)
    if isinstance(space, Box):
        filled = np.where(known, logged, guess.propensities)
        return Behaviour(space, filled, estimated=True, nll=guess.nll, ece=guess.ece)
    filled = np.where(known[..., None], logged, guess.propensities)
    chance = np.take_along_axis(logged, segments.actions[..., None], axis=-1)[..., 0]
    alone = np.isfinite(chance) & ~known
    filled[alone] = _around(filled[alone], segments.actions[alone], chance[alone])
    estimated = not bool(np.isfinite(chance).all())
    return Behaviour(space, filled, estimated=estimated, nll=guess.nll, ece=guess.ece)


def _around(guess: Doubles, actions: Integers, chance: Doubles) -> Doubles:
    """[K, A], `chance` [K] for the actions taken and the rest shared as `guess` [K, A] does."""
    rows = np.arange(len(actions))
    others = guess.copy()
    others[rows, actions] = 0
    others *= ((1 - chance) / others.sum(axis=1))[:, None]
    others[rows, actions] = chance
    return others


def estimate_behaviour(segments: Segments, space: ActionSpace, seed: int) -> Behaviour:
    """Estimate μ by a model of state and time or, if that is not better, of time alone.

    The model is stopped, and its temperature chosen, on the checked episodes. It is used only if it
    is better there than what a behaviour that does not look at the state would do: the frequencies
    of the actions at each time; in a box a density at each time, or the uniform one.
    """
    count = len(segments.actions)
    order = generator(seed, "behaviour", "holdout").permutation(count)
    checked = order[: max(1, round(CHECK_SHARE * count))]
    kept = order[len(checked) :] if len(checked) < count else order
    if isinstance(space, Box):
        return _estimate_density(segments, space, kept, checked, seed)
    return _estimate_chances(segments, space, kept, checked, seed)


def _estimate_chances(
    segments: Segments, space: ActionSpace, kept: Integers, checked: Integers, seed: int
) -> Behaviour:
    (count, length), num_actions = segments.actions.shape[:2], space.width
    actions = torch.from_numpy(segments.actions.astype(np.int64))
    inputs = _inputs(segments.observations[:, :length], length)
    plain = _frequencies(segments.actions[kept], num_actions)
    plain_nll = _loss(
        torch.from_numpy(np.log(plain)).expand(len(checked), -1, -1), actions[checked]
    )
    scores, nll = _classify(inputs, actions, kept, checked, num_actions, seed)
    if nll < plain_nll:
        chances = torch.softmax(scores, dim=-1).double().numpy()
    else:
        chances = np.broadcast_to(plain, (count, length, num_actions)).copy()
        nll = plain_nll
    chances = np.maximum(chances, LEAST)
    chances /= chances.sum(axis=-1, keepdims=True)
    ece = calibration_error(chances[checked], segments.actions[checked])
    return Behaviour(space, chances, estimated=True, nll=nll, ece=ece)


def _estimate_density(
    segments: Segments, space: Box, kept: Integers, checked: Integers, seed: int
) -> Behaviour:
    count, length = segments.actions.shape[:2]
    inputs = _inputs(segments.observations[:, :length], length)
    flat = uniform_density(space)
    density = np.full((count, length), flat)
    places = (space.encode(segments.actions).astype(np.float64) + 1) / 2
    nll = -flat
    for seen in (inputs[..., -length:], inputs):
        candidate, candidate_places, loss = _fit_density(
            seen, segments.actions, space, kept, checked, seed
        )
        if loss < nll:
            density, places, nll = candidate, candidate_places, loss
    mixed = np.logaddexp(np.log1p(-LEAST) + density, np.log(LEAST) + flat)
    return Behaviour(space, mixed, estimated=True, nll=nll, ece=_misplaced(places[checked]))


def _fit_density(
    inputs: Tensor, actions: NDArray[Any], space: Box, kept: Integers, checked: Integers, seed: int
) -> tuple[Doubles, Doubles, float]:
    """Log-densities [N, n], each component's place in its distribution [N, n, k], check loss."""
    width = inputs.shape[-1]
    unscaled = Standardiser.identity(width)
    rng = torch_generator(seed, "behaviour", "initialise")
    network = NormalNetwork(space, HIDDEN, unscaled, rng)
    taken = network.read(actions)
    optimiser = Adam(network.parameters(), 1e-2)
    best, since = float("inf"), 0
    with one_thread():
        for _ in range(STEPS):
            descend(optimiser, -network.log_probability(inputs[kept], taken[kept]).mean())
            with torch.no_grad():
                each = network.log_probability(inputs, taken)
                loss = -float(each[checked].mean())
                since += 1
                if loss < best:
                    best, since = loss, 0
                    density, (mean, log_deviation) = each, network.parameters_at(inputs)
            if since >= PATIENCE:
                break
        deviation = torch.exp(log_deviation)
        edges = (torch.special.ndtr((at - mean) / deviation) for at in (-1.0, taken, 1.0))
        low, place, high = edges
    return density.numpy(), ((place - low) / (high - low)).numpy(), best


def _misplaced(places: Doubles, bins: int = 10) -> float:
    """Calibration error of densities: how far the places of the actions in their distributions,
    `[..., k]`, are from spread evenly; the mean over the quantiles of |share below − quantile|."""
    flat = places.reshape(-1, places.shape[-1])
    quantiles = np.arange(1, bins) / bins
    below = (flat[:, :, None] <= quantiles).mean(axis=0)
    return float(np.abs(below - quantiles).mean())


def calibration_error(chances: Doubles, actions: Integers, bins: int = 10) -> float:
    """Expected calibration error over all actions' probabilities: Σ_bin share·|said − seen|."""
    stated = chances.reshape(-1)
    seen = np.eye(chances.shape[-1])[actions].reshape(-1)
    place = np.minimum((stated * bins).astype(np.int64), bins - 1)
    total = np.bincount(place, minlength=bins)
    gap = np.bincount(place, stated - seen, minlength=bins)
    return float(np.abs(gap).sum() / total.sum())


def _inputs(observations: Floats, length: int) -> Tensor:
    """Standardised observations and the step as a one-hot, [N, n, d + n]."""
    scaling = Standardiser.fit(observations.reshape(-1, observations.shape[-1]))
    time = np.broadcast_to(np.eye(length, dtype=np.float32), (len(observations), length, length))
    return torch.cat((standardised(scaling, observations), torch.from_numpy(time.copy())), dim=-1)


def _frequencies(actions: Integers, num_actions: int) -> Doubles:
    """[n, A], with one count added to each, so that no action has probability 0."""
    counts = np.eye(num_actions)[actions].sum(axis=0) + 1
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))


def _loss(log_chances: Tensor, actions: Tensor) -> float:
    return float(-log_chances.gather(-1, actions.unsqueeze(-1)).mean())


def _classify(
    inputs: Tensor, actions: Tensor, kept: Integers, checked: Integers, num_actions: int, seed: int
) -> tuple[Tensor, float]:
    """Calibrated scores [N, n, A] and their log-loss on the checked episodes."""
    network = perceptron(inputs.shape[-1], HIDDEN, num_actions)
    initialise(network, torch_generator(seed, "behaviour", "initialise"))
    optimiser = Adam(network.parameters(), 3e-3)
    best, best_scores, since = float("inf"), torch.zeros(*actions.shape, num_actions), 0
    with one_thread():
        for _ in range(STEPS):
            loss = torch.nn.functional.cross_entropy(
                network(inputs[kept]).flatten(0, 1), actions[kept].flatten()
            )
            descend(optimiser, loss)
            with torch.no_grad():
                scores = network(inputs)
                check_loss = _loss(torch.log_softmax(scores[checked], dim=-1), actions[checked])
            since += 1
            if check_loss < best:
                best, best_scores, since = check_loss, scores, 0
            if since >= PATIENCE:
                break
        sharpest = best_scores
        for temperature in np.geomspace(0.5, 4.0, 31):
            cooled = sharpest / float(temperature)
            check_loss = _loss(torch.log_softmax(cooled[checked], dim=-1), actions[checked])
            if check_loss < best:
                best, best_scores = check_loss, cooled
    return best_scores, best
