"""Tables of a bench that nobody ran: every method, and whichever axes are asked for."""

from __future__ import annotations

import itertools
import json
from typing import Any

from sept_offline.tools.bench.figures.figure import STYLES
from sept_offline.tools.bench.figures.rows import Bench
from sept_offline.tools.bench.store import TABLES

VARIED = {
    "probe_steps": ("2", "16"),
    "latent.dim": ("1", "3"),
    "latent.beta": ("0.1", "10.0"),
    "behaviour": ("random", "mixed"),
    "episodes": ("10", "1000"),
    "instances": ("2",),
    "propensities": ("estimated",),
}


def named(family: str, method: str, variant: str, seed: int) -> dict[str, Any]:
    return {
        "family": family,
        "method": method,
        "preset": "default",
        "variant": variant,
        "data_seed": 0,
        "seed": seed,
    }


def episode(instance: str, rewards: list[float], solved: bool | None, limit: int) -> dict[str, Any]:
    return {
        "instance": instance,
        "return": sum(rewards),
        "normalised": None,
        "solved": solved,
        "steps_to_solve": None if solved is None else len(rewards) if solved else limit,
        "reward": rewards,
    }


def made_up(family: str, variants: dict[str, tuple[str, ...]] | None = None) -> Bench:
    """Every method at the base with two seeds; sept and avg along every axis with one."""
    bench = Bench([], [], [], [])
    cells = [(method, "base", seed) for method in STYLES for seed in range(2)]
    for axis, values in (variants or {}).items():
        cells += [(m, f"{axis}={value}", 0) for value in values for m in ("sept", "avg")]
    for number, (method, variant, seed) in enumerate(cells):
        row = named(family, method, variant, seed)
        bench.cells.append(
            row
            | {
                "limit": 6,
                "behaviour_estimated": False,
                "budget": "reduced" if method == "bnn" else None,
                "record": json.dumps({"fitted_on": {"episodes": [[0, 90], [95, 105]]}}),
                "config": json.dumps(
                    {
                        "probe_steps": 8,
                        "latent": {"dim": 2, "beta": 1.0},
                        "control": {"hidden": [32, 32]},
                        "focal": {"rewards": True},
                    }
                ),
            }
        )
        for place in range(3):
            rewards = [-1.0] * (2 + (number + place) % 4) + [5.0]
            bench.results.append(row | episode(f"test-{place}", rewards, True, 6))
        for stage, metric in (("latent", "elbo"), ("probe", "reward"), ("control", "max_q")):
            if stage != "control" and method not in ("sept", "totalvar", "maxent"):
                continue
            for update in (10, 20):
                value = {"stage": stage, "metric": metric, "update": update, "value": 1.0 / update}
                bench.training.append(row | value)
        if method == "sept":
            size = 1 if variant == "latent.dim=1" else 2
            for train, copy in itertools.product(range(5), range(3)):
                hidden = json.dumps({"m1": train / 5, "m2": train / 10, "g": 9.8})
                z = [float(train), 0.1 * copy][:size]
                latent = {"instance": f"train-{train}", "hidden": hidden, "z": z}
                bench.latents.append(row | latent)
    return bench


def joined(*benches: Bench) -> Bench:
    rows = ([row for bench in benches for row in getattr(bench, name)] for name in TABLES)
    return Bench(*rows)
