"""Experts that come with a family: trained once and kept as small files, the same for everyone.

Training gives other bits on another processor. A dataset is the same everywhere only if the expert
behind it is, so the shipped recipes' experts are files, made by `benchmarks/experts.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sept_offline.collect.expert import Expert
from sept_offline.collect.recipe import ExpertConfig, plain_expert
from sept_offline.errors import DataError
from sept_offline.family import Family
from sept_offline.seals import load_state, save_state
from sept_offline.stage import StageState


def origin(family: Family, config: ExpertConfig, seed: int) -> dict[str, Any]:
    """Everything that determines an expert besides the processor, JSON-ready."""
    return {
        "family": family.name,
        "instances": family.instances("train"),
        "max_steps": family.train_steps,
        "expert": plain_expert(config),
        "seed": seed,
    }


def shipped_expert(family: Family, config: ExpertConfig, seed: int) -> Path | None:
    """The file of the expert that `train_expert` would make, if it comes with the family."""
    if family.experts is None:
        return None
    path = family.experts / f"{seed}.safetensors"
    if not path.is_file():
        return None
    made_from = load_state(path, DataError).values.get("origin")
    return path if made_from == origin(family, config, seed) else None


def ship_expert(expert: Expert, family: Family, config: ExpertConfig, seed: int, out: Path) -> None:
    """Write `expert` for `shipped_expert` to find; weights in half precision, half the size."""
    state = expert.state()
    halved = {
        name: tensor.half()
        for name, tensor in state.tensors.items()
        if name.startswith("snapshot.") and tensor.is_floating_point()
    }
    values = {**state.values, "origin": origin(family, config, seed)}
    save_state(out, StageState(state.tensors | halved, values))
