"""Experts in files: trained here and resumed, or shipped with a family and the same for everyone.

Training gives other bits on another processor. A dataset is the same everywhere only if the expert
behind it is, so the shipped recipes' experts are files, made by `benchmarks/experts.py`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sept_offline.collect.recipe import ExpertConfig, Recipe, plain_expert
from sept_offline.data.filesystems import Folder, Place
from sept_offline.errors import DataError
from sept_offline.family import Family
from sept_offline.files import write_atomically
from sept_offline.progress import Progress
from sept_offline.seals import load_state, save_state
from sept_offline.seeding import integer
from sept_offline.stage import StageState

if TYPE_CHECKING:
    from sept_offline.collect.expert import Expert

EXPERT = "expert.safetensors"


def train_expert(
    family: Family, recipe: Recipe, seed: int, folder: Path, progress: Progress
) -> Path:
    """The file of the trained expert in `folder`; training continues where it was interrupted.

    An expert that comes with the family is copied there instead of trained.
    """
    from sept_offline.collect.expert import ExpertStage

    finished, unfinished = folder / EXPERT, folder / "expert-training.safetensors"
    if finished.exists():
        return finished
    shipped = shipped_expert(family, recipe.expert, seed)
    if shipped is not None:
        write_atomically(finished, lambda path: shutil.copyfile(shipped, path))
        return finished
    stage = ExpertStage(
        family, recipe.expert, family.train_steps, integer(seed, "collect", family.name, "expert")
    )
    if unfinished.exists():
        stage.restore(load_state(unfinished, DataError))
    progress.start("expert", stage.total, "rounds")
    progress.update(stage.done)
    while stage.done < stage.total:
        metrics = stage.advance(1)
        save_state(unfinished, stage.state())
        progress.update(stage.done, **metrics)
    progress.finish()
    save_state(finished, stage.result().state())
    unfinished.unlink()
    return finished


def place_expert(
    family: Family, recipe: Recipe, seed: int, folder: Folder, progress: Progress
) -> None:
    """Store the expert where all workers can read it; in a local folder, training can resume."""
    if isinstance(folder.place, Path):
        train_expert(family, recipe, seed, folder.place, progress)
    elif EXPERT not in folder.sizes():
        with tempfile.TemporaryDirectory() as scratch:
            made = train_expert(family, recipe, seed, Path(scratch), progress)
            folder.write(EXPERT, lambda path: path.write_bytes(made.read_bytes()))


def fetch_expert(place: Place) -> Expert:
    """The expert that `place_expert` put into a folder."""
    if isinstance(place, Path):
        return load_expert(place / EXPERT)
    data = Folder(place).read(EXPERT)
    if data is None:
        raise DataError(f"{place} no longer contains its expert; collect again with --restart.")
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / EXPERT
        copy.write_bytes(data)
        return load_expert(copy)


def load_expert(path: Path) -> Expert:
    """The expert in a file that `train_expert` returned."""
    from sept_offline.collect.expert import Expert

    return Expert.restore(load_state(path, DataError))


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
