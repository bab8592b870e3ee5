"""The behaviour's probabilities: as logged, or estimated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sept_offline.actions import ActionSpace
from sept_offline.probe.weights import taken
from sept_offline.seeding import generator, torch_generator
from sept_offline.threads import one_thread
from sept_offline.training.inputs import Doubles, Floats, Integers, SegmentsLike, fit_scaling
from sept_offline.training.layers import initialise, perceptron
from sept_offline.training.updates import descend

STEPS = 300
PATIENCE = 40
LEAST = 0.01
"""No estimate says that an action was less likely: one mistake there would own all the weight."""


@dataclass(frozen=True)
class Behaviour:
    """μ(a|s) along logged segments.

    probabilities[N, n, A]; estimated: whether those of the actions taken are a classifier's and not
    the log's own; nll, ece: the classifier's held-out log-loss and calibration error (None when
    every probability is logged).
    """

    probabilities: Doubles
    estimated: bool
    nll: float | None = None
    ece: float | None = None

    @property
    def uniform(self) -> bool:
        """Whether every action was equally likely at every step."""
        return bool(np.allclose(self.probabilities, 1 / self.probabilities.shape[-1]))


def logged_or_estimated(segments: SegmentsLike, space: ActionSpace, seed: int) -> Behaviour:
    """The logged probabilities; where there are none, an estimate, which marks the whole.

    If only the logged action's is known it is kept, because a weight needs no other; what is left
    is shared among the others as the estimate shares it.
    """
    logged = segments.propensities
    if logged is None:
        return estimate_behaviour(segments, space, seed)
    known: NDArray[np.bool_] = np.isfinite(logged.sum(axis=-1))
    if known.all():
        return Behaviour(logged, estimated=False)
    guess = estimate_behaviour(segments, space, seed)
    filled = np.where(known[..., None], logged, guess.probabilities)
    chance = taken(logged, segments.actions)
    alone = np.isfinite(chance) & ~known
    filled[alone] = _around(filled[alone], segments.actions[alone], chance[alone])
    estimated = not bool(np.isfinite(chance).all())
    return Behaviour(filled, estimated=estimated, nll=guess.nll, ece=guess.ece)


def _around(guess: Doubles, actions: Integers, chance: Doubles) -> Doubles:
    """[K, A], `chance` [K] for the actions taken and the rest shared as `guess` [K, A] does."""
    rows = np.arange(len(actions))
    others = guess.copy()
    others[rows, actions] = 0
    others *= ((1 - chance) / others.sum(axis=1))[:, None]
    others[rows, actions] = chance
    return others


def estimate_behaviour(
    segments: SegmentsLike, space: ActionSpace, seed: int, holdout: float = 0.2
) -> Behaviour:
    """μ from what was done: action frequencies at each time, or a classifier of state and time.

    The classifier is stopped and its temperature chosen on held-out episodes, and it is used only
    if it is better there than plain frequencies, which are all there is to know of a behaviour that
    does not look at the state.
    """
    count, length = segments.actions.shape[:2]
    num_actions = space.width
    order = generator(seed, "behaviour", "holdout").permutation(count)
    held = order[: max(1, round(holdout * count))]
    kept = order[len(held) :] if len(held) < count else order
    actions = torch.from_numpy(segments.actions.astype(np.int64))
    inputs = _inputs(segments.observations[:, :length], length)
    plain = _frequencies(segments.actions[kept], num_actions)
    plain_nll = _loss(torch.from_numpy(np.log(plain)).expand(len(held), -1, -1), actions[held])
    scores, nll = _classify(inputs, actions, kept, held, num_actions, seed)
    if nll < plain_nll:
        chances = torch.softmax(scores, dim=-1).double().numpy()
    else:
        chances = np.broadcast_to(plain, (count, length, num_actions)).copy()
        nll = plain_nll
    chances = np.maximum(chances, LEAST)
    chances /= chances.sum(axis=-1, keepdims=True)
    ece = calibration_error(chances[held], segments.actions[held])
    return Behaviour(chances, estimated=True, nll=nll, ece=ece)


def calibration_error(chances: Doubles, actions: Integers, bins: int = 10) -> float:
    """Expected calibration error over all actions' probabilities: Σ_bin share·|said − seen|."""
    said = chances.reshape(-1)
    seen = np.eye(chances.shape[-1])[actions].reshape(-1)
    place = np.minimum((said * bins).astype(np.int64), bins - 1)
    total = np.bincount(place, minlength=bins)
    gap = np.bincount(place, said - seen, minlength=bins)
    return float(np.abs(gap).sum() / total.sum())


def _inputs(observations: Floats, length: int) -> Tensor:
    scaling = fit_scaling(observations.reshape(-1, observations.shape[-1]))
    time = np.broadcast_to(np.eye(length, dtype=np.float32), (len(observations), length, length))
    return torch.from_numpy(np.concatenate((scaling(observations), time), axis=-1))


def _frequencies(actions: Integers, num_actions: int) -> Doubles:
    """[n, A], one count added to each, so that nothing is called impossible."""
    counts = np.eye(num_actions)[actions].sum(axis=0) + 1
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True))


def _loss(log_chances: Tensor, actions: Tensor) -> float:
    return float(-log_chances.gather(-1, actions.unsqueeze(-1)).mean())


def _classify(
    inputs: Tensor, actions: Tensor, kept: Integers, held: Integers, num_actions: int, seed: int
) -> tuple[Tensor, float]:
    """Calibrated scores [N, n, A] and their held-out log-loss."""
    network = perceptron(inputs.shape[-1], (64, 64), num_actions)
    initialise(network, torch_generator(seed, "behaviour", "initialise"))
    optimiser = torch.optim.Adam(network.parameters(), lr=3e-3, fused=True)
    best, best_scores, since = float("inf"), torch.zeros(*actions.shape, num_actions), 0
    with one_thread():
        for _ in range(STEPS):
            loss = torch.nn.functional.cross_entropy(
                network(inputs[kept]).flatten(0, 1), actions[kept].flatten()
            )
            descend(optimiser, loss)
            with torch.no_grad():
                scores = network(inputs)
                held_loss = _loss(torch.log_softmax(scores[held], dim=-1), actions[held])
            since += 1
            if held_loss < best:
                best, best_scores, since = held_loss, scores, 0
            if since >= PATIENCE:
                break
        sharpest = best_scores
        for temperature in np.geomspace(0.5, 4.0, 31):
            cooled = sharpest / float(temperature)
            held_loss = _loss(torch.log_softmax(cooled[held], dim=-1), actions[held])
            if held_loss < best:
                best, best_scores = held_loss, cooled
    return best_scores, best
