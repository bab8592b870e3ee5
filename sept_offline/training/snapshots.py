"""Snapshots of modules, optimisers and generators in the state of a stage."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from sept_offline.stage import StageState


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
