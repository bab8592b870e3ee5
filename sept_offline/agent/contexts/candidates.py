"""A latent by likelihood: candidates are weighed by how well they predict the episode's steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...actions import Policy
from ...errors import AgentError
from ...limits import LONGEST_REFINED
from ..control import Control
from ..networks import Array, Standardiser, softmax, take
from ..novelty import TransitionDecoder
from ..records import Part, Value, Weights, count, field
from .base import EMPTY, Context, Tracker, check_sizes

if TYPE_CHECKING:
    from ...family import Hidden


class CandidateContext(Context):
    """The posterior mean over a fixed set of latents, under a decoder's dynamics: `bati`.

    The prior is even over `candidates[c, k]`; each step multiplies it by the decoder's likelihood.
    With `rewards` the decoder reads and predicts one more column, the first: 0 before a step and
    the reward of the step after it. The latent is fixed after `refine_steps` steps.
    """

    kind = "candidates"
    stored = (
        Value("dim", key="latent_dim"),
        Part("decoder", TransitionDecoder.from_arrays),
        Weights("candidates", partial(take, ndim=2)),
        Weights("latent_scaler", Standardiser.from_arrays, key="latent"),
        Value("refine_steps", partial(count, most=LONGEST_REFINED)),
        Value("rewards", partial(field, kind=bool)),
    )

    def __init__(
        self,
        decoder: TransitionDecoder,
        candidates: Array,
        latent_scaler: Standardiser,
        refine_steps: int,
        rewards: bool,
    ) -> None:
        self.decoder, self.latent_scaler = decoder, latent_scaler
        self.candidates = np.ascontiguousarray(candidates, dtype=np.float32)
        self.refine_steps, self.rewards = refine_steps, rewards
        self.dim = latent_scaler.dim
        self.needs = frozenset({"reward"}) if rewards else frozenset()
        widths = (decoder.latent_dim, *self.candidates.shape[1:])
        if widths != (self.dim, self.dim) or not len(self.candidates):
            raise AgentError(
                f"The agent needs candidates of {self.dim} columns, as its scaler and decoder; "
                f"found candidates of shape {list(self.candidates.shape)} and a decoder of "
                f"{decoder.latent_dim} latents."
            )

    def begin(self, seed: int, hidden: Hidden | None, control: Control) -> Tracker:
        """A tracker that has seen nothing: all candidates weigh the same."""
        return _Weighing(self)

    def check(self, observation_dim: int, action_width: int) -> None:
        """Raise unless the decoder fits these spaces, and a reward if it explains rewards."""
        sizes = self.decoder.observation_dim, self.decoder.action_width
        check_sizes("decoder", sizes, (observation_dim + self.rewards, action_width))

    def log_likelihood(self, before: Array, taken: Array, after: Array) -> NDArray[np.float64]:
        """log p(after | before, taken, z) of each candidate, `[c]`, for one step."""
        number = len(self.candidates)
        pair = np.repeat(np.stack([before, after])[None], number, axis=0)
        return self.decoder.log_prob(
            pair, np.repeat(taken[None, None], number, axis=0), self.candidates
        )


class _Weighing(Tracker):
    """Adds up each candidate's log-likelihood; control acts at every step."""

    def __init__(self, context: CandidateContext) -> None:
        super().__init__(EMPTY, settled=False)
        self._context, self._time = context, 0
        self._total = np.zeros(len(context.candidates))
        self._before: Array = EMPTY
        self._taken: Array = EMPTY
        self._infer()

    def step(self, observation: Array, reward: float | None = None) -> Policy | None:
        """Control acts, with the latent of all steps that end in `observation[d]` or before."""
        context = self._context
        if self._time:
            after = self._row(observation, 0.0 if reward is None else reward)
            self._total += context.log_likelihood(self._before, self._taken, after)
            self._infer()
        # the next step sets out without a reward
        self._before = self._row(observation, 0.0)
        self.settled = self._time >= context.refine_steps
        return None

    def took(self, taken: Array) -> None:
        """Remember the action of the step, to predict where it leads."""
        self._taken = taken
        self._time += 1

    def _row(self, observation: Array, paid: float) -> Array:
        """What the decoder reads: `observation[d]`, after the reward if it explains rewards."""
        if not self._context.rewards:
            return observation.copy()
        return np.append(np.float32(paid), observation).astype(np.float32)

    def _infer(self) -> None:
        """Report the posterior's mean and its standard deviation."""
        candidates = self._context.candidates.astype(np.float64)
        weights = softmax(self._total)
        mean = weights @ candidates
        self.latent = mean.astype(np.float32)
        self.uncertainty = float(np.sqrt(weights @ (candidates - mean) ** 2).mean())
        self.vector = self._context.latent_scaler(self.latent)
