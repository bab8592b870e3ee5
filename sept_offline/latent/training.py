"""Shared parts of torch training loops: seeded weights, checkpoints, learning rates."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import nn

from sept_offline.errors import TrainingError

if TYPE_CHECKING:
    from sept_offline.stage import StageState


def initialise(module: nn.Module, rng: torch.Generator) -> None:
    """Draw every weight from `rng`, uniform in ±1/√fan-in as torch does."""
    with torch.no_grad():
        for part in module.modules():
            if isinstance(part, nn.Linear):
                bound = 1 / math.sqrt(part.in_features)
            elif isinstance(part, nn.LSTM):
                bound = 1 / math.sqrt(part.hidden_size)
            else:
                continue
            for parameter in part.parameters(recurse=False):
                parameter.uniform_(-bound, bound, generator=rng)


def perceptron(inputs: int, hidden: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Linear layers with ReLU between; the last one is linear. Weights are not yet drawn."""
    widths = (inputs, *hidden)
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [_linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers, _linear(widths[-1], outputs))


def _linear(inputs: int, outputs: int) -> nn.Linear:
    # skip_init, because torch's own initialisation would draw from the global generator.
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
    assert isinstance(layer, nn.Linear)
    return layer


def lstm(inputs: int, units: int, bidirectional: bool = False) -> nn.LSTM:
    """A batch-first LSTM whose weights are not yet drawn, without touching the global generator."""
    with torch.random.fork_rng(devices=[]):
        return nn.LSTM(inputs, units, batch_first=True, bidirectional=bidirectional)


def layers_of(network: nn.Sequential) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The (weight, bias) of each linear layer, in order."""
    return [(part.weight, part.bias) for part in network if isinstance(part, nn.Linear)]


def annealed(start: float, end: float, done: int, total: int) -> float:
    """The learning rate at update `done` of `total`, on half a cosine from `start` to `end`."""
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(done / max(total, 1), 1.0)))


def set_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    """Give every parameter group this learning rate, times its own factor if it has one."""
    for group in optimiser.param_groups:
        group["lr"] = rate * group.get("factor", 1.0)


def save_module(state: StageState, prefix: str, module: nn.Module) -> None:
    """Copy a module's weights into a snapshot."""
    for name, tensor in module.state_dict().items():
        state.tensors[f"{prefix}.{name}"] = tensor.detach().clone()


def load_module(state: StageState, prefix: str, module: nn.Module) -> None:
    """Copy a module's weights out of a snapshot."""
    module.load_state_dict(
        {name: state.tensors[f"{prefix}.{name}"] for name in module.state_dict()}
    )


def save_optimiser(state: StageState, prefix: str, optimiser: torch.optim.Optimizer) -> None:
    """Copy an optimiser's moments and counts into a snapshot."""
    for index, entries in optimiser.state_dict()["state"].items():
        for key, value in entries.items():
            state.tensors[f"{prefix}.{index}.{key}"] = torch.as_tensor(value).detach().clone()


def load_optimiser(state: StageState, prefix: str, optimiser: torch.optim.Optimizer) -> None:
    """Copy an optimiser's moments and counts out of a snapshot."""
    restored: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in state.tensors.items():
        if name.startswith(f"{prefix}."):
            index, key = name[len(prefix) + 1 :].split(".")
            restored.setdefault(int(index), {})[key] = tensor.clone()
    whole = optimiser.state_dict()
    whole["state"] = restored
    optimiser.load_state_dict(whole)


def save_training(
    state: StageState,
    modules: Mapping[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    rng: torch.Generator,
) -> None:
    """Copy modules, by their names, their optimiser and their generator into a snapshot."""
    for name, module in modules.items():
        save_module(state, name, module)
    save_optimiser(state, "optimiser", optimiser)
    state.tensors["rng"] = rng.get_state()


def load_training(
    state: StageState,
    modules: Mapping[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    rng: torch.Generator,
) -> None:
    """Copy out of a snapshot what `save_training` put there."""
    for name, module in modules.items():
        load_module(state, name, module)
    load_optimiser(state, "optimiser", optimiser)
    rng.set_state(state.tensors["rng"])


def check_finite(values: Mapping[str, float], stage: str, update: int) -> None:
    """Stop at the first loss that is not a number, with what to look at."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise TrainingError(
                f"The {name} of the {stage} stage is {value} by update {update}; likely causes are "
                f"a learning rate that is too high (lower {stage}.learning_rate) "
                "or observations that are not finite (see `sept-offline validate`)."
            )
