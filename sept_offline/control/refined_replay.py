"""Minibatches in which the belief about the instance is refined by each transition itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from numpy.typing import NDArray

from sept_offline.agent.networks import Standardiser
from sept_offline.control.replay import Batch, Replay
from sept_offline.errors import TrainingError


class RefinedReplay(Replay):
    """Contexts are sums of evidence; the state after a transition is seen with one term more.

    contexts `[S, 2k]`: λm and λ summed over the steps of each context; evidence `[N, 2k]`: the same
    of each transition; scaler: standardises the posterior mean Σλm / (1 + Σλ), `[k]`, that both
    states are seen with. With a fixed mean, control would take no action for what it reveals.
    """

    def __init__(
        self,
        *arguments: Any,
        evidence: NDArray[Any],
        scaler: Standardiser,
        **others: Any,
    ) -> None:
        super().__init__(*arguments, **others)
        self._evidence = torch.as_tensor(evidence, dtype=torch.float32)
        self._centre, self._inverse = map(torch.from_numpy, (scaler.mean, scaler.inverse))
        self.input_dim -= scaler.dim

    def gather(self, index: torch.Tensor, context: torch.Tensor | None) -> Batch:
        """The transitions that `draw` chose."""
        plain = super().gather(index, None)
        if context is None or self._contexts is None:
            raise TrainingError("A belief needs contexts to start from.")
        before = self._contexts.index_select(0, context)
        after = before + self._evidence.index_select(0, index)
        return replace(
            plain,
            inputs=torch.cat([plain.inputs, self._standardised(before)], dim=1),
            next_inputs=torch.cat([plain.next_inputs, self._standardised(after)], dim=1),
        )

    def _standardised(self, sums: torch.Tensor) -> torch.Tensor:
        weighted, precision = sums.chunk(2, dim=1)
        return (weighted / (1 + precision) - self._centre) * self._inverse
