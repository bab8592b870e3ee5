"""Do estimates from logs hold the truth, and do they rank agents as the truth does?

    python benchmarks/ope.py navigation2d acrobot hiv --seeds 5
    python benchmarks/ope.py navigation2d acrobot hiv --table

A cell is one agent, fitted with a fifth of the logs held out, judged on that fifth by
`sept_offline.judge`, and then run in the simulator, in the very instances it was judged on. It also
runs in dynamics, rewards and ends learned from all logs, from the held-out episodes' first states:
a second way to choose an agent. Agents are of varied quality: methods, and shares of their updates.
Each finished cell adds a line to the results file and is never run twice; the tables are drawn from
that file. Data come from the shipped recipes, with data seed 0 for even training seeds and 1 for
odd ones.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

import sept_offline as so
from sept_offline.methods import resolve_config
from sept_offline.methods.hold_out import choose_hold_out
from sept_offline.methods.rehearsal import Rehearsal, rehearse_in
from sept_offline.stage import train_all
from sept_offline.threads import one_thread

Cell = dict[str, Any]
HOLD_OUT = 0.2
AGENTS: dict[str, tuple[str, float]] = {
    "sept": ("sept", 1.0),
    "sept-few": ("sept", 0.1),
    "sept-least": ("sept", 0.01),
    "avg": ("avg", 1.0),
    "avg-least": ("avg", 0.01),
    "oracle": ("oracle", 1.0),
    "history": ("history", 0.5),
}
"""An agent's name: its method, and the share of the preset's updates of control it gets."""
ESTIMATORS = ("fqe", "dm", "pdis", "wpdis", "dr", "wdr")


def dataset(family: str, seed: int, folder: Path) -> Path:
    """The family's recipe, collected once."""
    path = folder / f"{family}-{seed}.h5"
    if not path.exists():
        so.collect_dataset(family, path, seed=seed, resume=True)
    return path


def truth(
    agent: so.Agent, family: so.Family, data: Any, horizon: int, episodes: int, seed: int
) -> tuple[float, float]:
    """The mean return of real episodes in the instances that were judged, and its error.

    The instances are the same, so only what differs between episodes of one is an error.
    """
    held = agent.record["held_out"]
    names = held["instances"] if held["by"] == "instances" else data.instances
    every = dict(zip(family.instance_ids("train"), family.instances("train"), strict=True))
    judged = replace(family, splits={"judged": [every[name] for name in names]}, references=None)
    count = max(2, -(-episodes // len(names)))
    results = so.evaluate(
        agent, judged, "judged", seed=seed, episodes_per_instance=count, max_steps=horizon
    )
    returns = np.array([episode.total for episode in results.episodes]).reshape(len(names), count)
    error = np.sqrt(returns.var(axis=1, ddof=1).sum() / count) / len(names)
    return float(returns.mean()), float(error)


@functools.lru_cache(maxsize=1)
def rehearsal(data: so.Dataset, seed: int) -> Rehearsal:
    """The learned dynamics in which all agents of a seed run."""
    config = resolve_config(data, "default")
    # the rewards as they were logged
    plain = replace(config.control, reward_form="raw", reward_scale=1.0)
    held, _ = choose_hold_out(data, HOLD_OUT, seed)
    stages = rehearse_in(data, data.select(held), replace(config, control=plain), seed, None)
    with one_thread():
        return train_all(stages)


def rehearsed(agent: so.Agent, data: so.Dataset, seed: int) -> Cell:
    """What the agent earns in learned dynamics, on average, and the dynamics' own error."""
    learned = rehearsal(data, seed)
    hidden = None
    if "hidden" in agent.needs:
        table = data.hidden
        assert table is not None
        rows = table.values[learned.instance]
        hidden = [dict(zip(table.names, map(float, row), strict=True)) for row in rows]
    returns = learned.returns(agent, hidden) * learned.unit
    present = np.unique(learned.instance)
    means = [returns[learned.instance == code].mean() for code in present]
    return {"mean": float(np.mean(means)), "off": learned.off}


def run_cell(family: so.Family, name: str, seed: int, data: Any, arguments: Any) -> Cell:
    """Fit, judge, run."""
    method, share = AGENTS[name]
    config = resolve_config(data, "default")
    updates = max(10, round(share * arguments.scale * config.control.updates))
    config = replace(config, verdict=False, control=replace(config.control, updates=updates))
    began = time.monotonic()
    kept = arguments.keep and arguments.keep / f"{family.name}-{name}-{seed}"
    if kept and kept.exists():
        agent = so.load_agent(kept)
    else:
        agent = so.fit(data, method, config, seed, hold_out=HOLD_OUT)
        if kept:
            so.save_agent(agent, kept)
    fitted = time.monotonic()
    horizon = min(family.test_steps, int(data.episode_index.length.max()))
    settings = so.OpeConfig(horizon=horizon, updates=arguments.updates)
    found = so.judge(agent, data, settings, seed=seed).summary()
    judged = time.monotonic()
    rolled = rehearsed(agent, data, seed)
    rehearsed_at = time.monotonic()
    mean, error = truth(agent, family, data, horizon, arguments.episodes, seed)
    return {
        "family": family.name,
        "agent": name,
        "seed": seed,
        "truth": mean,
        "truth_se": error,
        "fit_seconds": round(fitted - began, 1),
        "judge_seconds": round(judged - fitted, 1),
        "rehearsed": rolled,
        "rehearsal_seconds": round(rehearsed_at - judged, 1),
        **found,
    }


def tables(cells: list[Cell]) -> str:
    """Coverage, ranking and the agents themselves, in Markdown."""
    parts = (coverage(cells), ranking(cells), each_agent(cells), each_seed(cells))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def coverage(cells: list[Cell]) -> list[str]:
    """How often each estimator's interval holds the truth, by family and verdict."""
    columns = ["family", "verdict", "cells", *ESTIMATORS, "headline", "width", "error"]
    lines = [row(columns), row(["---"] * len(columns))]
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        for said in (cell["verdict"], "all"):
            groups.setdefault((cell["family"], said), []).append(cell)
    for (family, said), own in sorted(groups.items()):
        spread = np.std([cell["truth"] for cell in groups[family, "all"]]) or 1.0
        found = [cell["estimators"][cell["headline"]] for cell in own]
        width = np.median([one["high"] - one["low"] for one in found])
        error = np.median(
            [abs(one["mean"] - cell["truth"]) for one, cell in zip(found, own, strict=True)]
        )
        held = [[holds(cell, name) for cell in own] for name in ESTIMATORS]
        held.append([holds(cell, cell["headline"]) for cell in own])
        shares = [f"{np.mean(one):.0%}" for one in held]
        lines.append(
            row([family, said, len(own), *shares, f"{width / spread:.2f}", f"{error / spread:.2f}"])
        )
    return lines


def holds(cell: Cell, name: str) -> bool:
    """Whether an interval holds the truth, which is itself a mean of this many episodes."""
    found, slack = cell["estimators"][name], 2 * cell["truth_se"]
    return bool(found["low"] - slack <= cell["truth"] <= found["high"] + slack)


def ranking(cells: list[Cell]) -> list[str]:
    """Spearman's correlation of estimates and true returns over agents: a seed's, then the mean."""
    columns = ["family", "seeds", "agents", *ESTIMATORS, "rehearsed", "lost by choosing by fqe"]
    columns.append("by rehearsed")
    lines = [row(columns), row(["---"] * len(columns))]
    for family in sorted({cell["family"] for cell in cells}):
        seeds: dict[int, list[Cell]] = {}
        for cell in cells:
            if cell["family"] == family:
                seeds.setdefault(cell["seed"], []).append(cell)
        full = [own for own in seeds.values() if len(own) > 2]
        if not full:
            continue
        shown = []
        for name in (*ESTIMATORS, "rehearsed"):
            values = [correlation(own, name) for own in full]
            there = [value for value in values if np.isfinite(value)]
            shown.append(f"{np.mean(there):.2f}" if there else "–")
        shares = []
        for name in ("fqe", "rehearsed"):
            losses = [loss for loss in (lost(own, name) for own in full) if np.isfinite(loss)]
            shares.append(f"{np.mean(losses):.0%}" if losses else "–")
        lines.append(row([family, len(full), max(map(len, full)), *shown, *shares]))
    return lines


def each_agent(cells: list[Cell]) -> list[str]:
    """What each agent earned and what was said of it, means over seeds."""
    columns = ["family", "agent", "seeds", "true return", "headline", "held", "verdicts"]
    lines = [row(columns), row(["---"] * len(columns))]
    for family in sorted({cell["family"] for cell in cells}):
        for name in AGENTS:
            own = [cell for cell in cells if (cell["family"], cell["agent"]) == (family, name)]
            if not own:
                continue
            truth = np.mean([cell["truth"] for cell in own])
            said = np.mean([cell["estimators"][cell["headline"]]["mean"] for cell in own])
            held = sum(holds(cell, cell["headline"]) for cell in own)
            verdicts = Counter(cell["verdict"] for cell in own)
            words = ", ".join(f"{count} {word}" for word, count in sorted(verdicts.items()))
            numbers = [f"{truth:.4g}", f"{said:.4g}", f"{held} of {len(own)}"]
            lines.append(row([family, name, len(own), *numbers, words]))
    return lines


def each_seed(cells: list[Cell]) -> list[str]:
    """How often the headline's interval holds the truth, seed by seed."""
    lines = [row(["seed", "held by the headline"]), row(["---", "---"])]
    for seed in sorted({cell["seed"] for cell in cells}):
        held = [holds(cell, cell["headline"]) for cell in cells if cell["seed"] == seed]
        lines.append(row([seed, f"{sum(held)} of {len(held)}"]))
    return lines


def row(values: Iterable[Any]) -> str:
    """One line of a table."""
    return f"| {' | '.join(str(value) for value in values)} |"


def estimate(cell: Cell, name: str) -> float:
    """What an estimator, or the rollouts, say of an agent; not a number where it was not asked."""
    found = cell.get("rehearsed") if name == "rehearsed" else cell["estimators"][name]
    return float(found["mean"]) if found else float("nan")


def correlation(own: list[Cell], name: str) -> float:
    """Of one seed's agents; not a number where all estimates are the same."""
    said = [estimate(cell, name) for cell in own]
    true = [cell["truth"] for cell in own]
    if len(set(said)) < 2 or len(set(true)) < 2:
        return float("nan")
    return float(stats.spearmanr(said, true).statistic)


def lost(own: list[Cell], name: str) -> float:
    """The loss from choosing the agent that an estimator ranks first, as a share of best − worst.

    Fitted Q chooses among the agents that the logs cover.
    """
    true = np.array([cell["truth"] for cell in own])
    said = [estimate(cell, name) for cell in own]
    if not np.isfinite(said).all():
        return float("nan")
    covered = [cell for cell in own if cell["verdict"] != "uncovered"] or own
    asked = covered if name == "fqe" else own
    chosen = max(asked, key=lambda cell: estimate(cell, name))
    return float((true.max() - chosen["truth"]) / max(np.ptp(true), 1e-12))


def read(path: Path) -> list[Cell]:
    """The cells that are finished."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def missing(arguments: Any, cells: list[Cell]) -> Iterable[tuple[str, int, str]]:
    """What is still to run, seed by seed, so that every family has something early."""
    done = {(cell["family"], cell["seed"], cell["agent"]) for cell in cells}
    for seed in range(arguments.seeds):
        for family in arguments.families:
            for agent in arguments.agents.split(","):
                if (family, seed, agent) not in done:
                    yield family, seed, agent


def main() -> None:
    """Run what is missing, or draw the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="+")
    parser.add_argument("--agents", default=",".join(AGENTS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=200, help="minimum real episodes per cell")
    parser.add_argument("--updates", type=int, help="of each fitted Q")
    parser.add_argument("--scale", type=float, default=1.0, help="of all updates of control")
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/ope.jsonl"))
    parser.add_argument("--keep", type=Path, help="a folder for agents, taken from it if there")
    parser.add_argument("--table", action="store_true", help="only draw the tables")
    arguments = parser.parse_args()
    if not arguments.table:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.data.mkdir(parents=True, exist_ok=True)
        for name, seed, agent in missing(arguments, read(arguments.out)):
            path = dataset(name, seed % 2, arguments.data)
            with so.load_dataset(path) as data:
                cell = run_cell(so.load_family(name), agent, seed, data, arguments)
            with arguments.out.open("a") as handle:
                handle.write(json.dumps(cell) + "\n")
            print(
                f"{name} {agent} {seed}: {cell['verdict']}, "
                f"fqe {cell['estimators']['fqe']['mean']:.4g}, truth {cell['truth']:.4g}, "
                f"{cell['fit_seconds']} + {cell['judge_seconds']} s",
                flush=True,
            )
    cells = [cell for cell in read(arguments.out) if cell["family"] in arguments.families]
    if cells:
        print(tables(cells))


if __name__ == "__main__":
    main()
