"""Train the experts that come with the shipped families, and write them where `collect` looks.

Run: python benchmarks/experts.py [family …] [--seeds 0 1] [--out datasets/experts]. An expert's
bits are those of the machine that trained it; the file makes them everybody's. Write the cards
again afterwards (`python benchmarks/cards.py`).
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import sept_offline as so
from sept_offline.cli.console import ConsoleProgress
from sept_offline.collect import load_recipe
from sept_offline.collect.expert_files import load_expert, ship_expert, train_expert

FAMILIES = (
    *("navigation2d", "navigation2d-switch", "acrobot", "hiv"),
    *("pendulum", "point-robot-wind", "hopper-params"),
)


def main() -> None:
    """Train one expert for each family and seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=FAMILIES, metavar="family")
    parser.add_argument("--seeds", nargs="*", type=int, default=(0, 1))
    parser.add_argument("--out", type=Path, default=Path("datasets/experts"))
    arguments = parser.parse_args()
    for name in arguments.families:
        family = so.load_family(name)
        recipe = load_recipe(family)
        for seed in arguments.seeds:
            target = arguments.out / name / f"{seed}.safetensors"
            target.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory() as folder:
                trained = train_expert(family, recipe, seed, Path(folder), ConsoleProgress(False))
                ship_expert(load_expert(trained), family, recipe.expert, seed, target)
            print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
