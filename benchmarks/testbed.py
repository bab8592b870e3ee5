"""How the methods do with default settings on families that are not shipped.

    python benchmarks/testbed.py --work build/testbed
    python benchmarks/testbed.py --families many,delayed --methods avg,sept --seeds 1
    python benchmarks/testbed.py --families hiv,hiv-permuted --methods sept --seeds 5
    python benchmarks/testbed.py --split validation --set control.gamma=0.98 --results tried.jsonl
    python benchmarks/testbed.py --only-table

A cell is a family, a method and a seed. Logs are collected once a family and kept in the work
folder; a finished cell adds a line to the results file and is never run twice, unless the logs or
the settings are others. Beside the methods stand `random`, and `constant`: that action which, taken
always, returns most in these very episodes. Families whose packages are missing (the extra
`testbed`) are left out and named. Shipped families run by name only, and so do other logs of a
family: `glucose-dosed`, logged by a policy that doses, `acrobot-narrow`, 400 episodes of the
expert, `-permuted`, where the episodes are assigned to the instances at random, so that nothing can
be inferred, and `-plain`, which name no family, so that no preset of a family is used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

import sept_offline as so
from sept_offline.environments import spaces
from sept_offline.errors import FamilyError
from sept_offline.evaluation.results import statistics
from sept_offline.methods.run import read_record
from sept_offline.seeding import generator, integer
from sept_offline.settings import parse_settings
from sept_offline.tools.bench.statistics import paired

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent))  # families may be named as benchmarks.families.…

from benchmarks.families import NAMES  # noqa: E402

Cell = dict[str, Any]
SHIPPED = ("navigation2d", "acrobot", "hiv", "pendulum", "point-robot-wind")
PERMUTED, PLAIN = "-permuted", "-plain"
LOGS: dict[str, dict[str, Any]] = {
    "lander": {"policy": "benchmarks.families.lander:careful"},
    "glucose_dose": {"policy": "benchmarks.families.glucose_dose:dosing"},
    "glucose-dosed": {"policy": "benchmarks.families.glucose:dosing"},
    "acrobot-narrow": {"overrides": {"behaviour": "expert", "episodes": 400}},
}
"""Arguments of `collect_dataset` for logs that the recipe of the family does not make."""
SHIPPED_LOGS = (name + ending for name in SHIPPED for ending in ("", PERMUTED, PLAIN))
KNOWN = tuple(dict.fromkeys((*NAMES, *LOGS, *SHIPPED_LOGS)))
METHODS = ("random", "constant", "avg", "history", "sept", "oracle")
UNTRAINED = ("random", "constant")
RIVALS = ("avg", "history")
RESULTS = HERE / "results" / "testbed.jsonl"


def spec_of(name: str) -> str:
    """The family as a user types it; what follows a hyphen names its logs."""
    for shipped in SHIPPED:
        if name == shipped or name.startswith(f"{shipped}-"):
            return shipped
    return f"benchmarks.families.{name.partition('-')[0]}:family"


def collected(name: str, folder: Path) -> Path:
    """The family's logs: found, or collected; a file that was collected otherwise is refused."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.removesuffix(PERMUTED).removesuffix(PLAIN)}.h5"
    so.collect_dataset(spec_of(name), path, resume=True, **LOGS.get(name, {})).close()
    if name.endswith(PERMUTED):
        return permuted(path, folder / f"{name}.h5")
    return plain(path, folder / f"{name}.h5") if name.endswith(PLAIN) else path


def permuted(path: Path, out: Path) -> Path:
    """The same episodes, dealt out at random to the same instances."""
    with so.load_dataset(path) as data:
        owner = np.random.default_rng(1).permutation(data.episode_index.instance)
        with so.DatasetWriter.like(data, out) as writer:
            for code, episode in zip(owner, data.episodes(), strict=True):
                writer.copy(episode, instance=data.instances[code])
    return out


def plain(path: Path, out: Path) -> Path:
    """The same episodes, in logs that name no family."""
    with so.load_dataset(path) as data, so.DatasetWriter.like(data, out, family=None) as writer:
        for episode in data.episodes():
            writer.copy(episode, instance=episode.instance)
    return out


Policy = Callable[[np.random.Generator], Any]


def roll_out(
    family: so.Family, policy: Policy, seed: int, episodes: int, split: str = "test"
) -> dict[str, float]:
    """The mean return in each instance, in the episodes that `evaluate` plays there."""
    scores = {}
    pairs = zip(family.instance_ids(split), family.instances(split), strict=True)
    for instance, hidden in pairs:
        env = family.make(hidden)
        returns = []
        for number in range(episodes):
            env.reset(seed=integer(seed, "evaluate", instance, number, "environment"))
            draws = generator(seed, "testbed", instance, number)
            total = 0.0
            for _ in range(family.test_steps):
                _, reward, terminated, truncated, _ = env.step(policy(draws))
                total += float(reward)
                if terminated or truncated:
                    break
            returns.append(total)
        env.close()  # type: ignore[no-untyped-call]
        scores[instance] = float(np.mean(returns))
    return scores


def untrained(family: so.Family, method: str, seed: int, arguments: Any) -> Cell:
    """What nobody needs logs for."""
    space, extent = spaces(family)[1], (arguments.episodes, arguments.split)
    if method == "random":
        every = space.uniform(1)
        draw: Policy = lambda draws: every.draw(draws.random((1, space.draws)))[0]  # noqa: E731
        return scored(roll_out(family, draw, seed, *extent))
    actions = space.grid()
    found = [roll_out(family, lambda _, a=a: a, seed, *extent) for a in actions]  # type: ignore[misc]
    best = int(np.argmax([np.mean(list(scores.values())) for scores in found]))
    return scored(found[best]) | {"action": actions[best].tolist()}


def scored(scores: dict[str, float]) -> Cell:
    """The figures of a cell: the mean over instances, its standard error, and each of them."""
    found = statistics(list(scores.values())) or {}
    return {"mean": found.get("mean"), "se": found.get("se"), "instances": scores}


def trained(
    family: so.Family, method: str, seed: int, logs: Path, run: Path, arguments: Any
) -> Cell:
    """Fit in a run folder, which a kill leaves to be continued, then test."""
    began = time.monotonic()
    # The verdict on sept is what is looked at; the others stand beside it.
    settings = {"verdict": method == "sept"} | parse_settings(arguments.set)
    agent = so.fit(logs, method, settings, seed, out=run, resume=run.exists())
    fitted = time.monotonic()
    results = so.evaluate(
        agent, family, arguments.split, seed=seed, episodes_per_instance=arguments.episodes
    )
    scores = {name: float(value or 0.0) for name, value in results.by_instance("total").items()}
    uncertain = [row.uncertainty for row in results.episodes if row.uncertainty is not None]
    parts = results.by_instance("normalised").values()  # of shipped families alone
    known = [part for part in parts if part is not None]
    return scored(scores) | {
        "normalised": float(np.mean(known)) if known else None,
        "uncertainty": float(np.mean(uncertain)) if uncertain else None,
        "fit_seconds": round(fitted - began, 1),
        "test_seconds": round(time.monotonic() - fitted, 1),
        **said_of(run),
    }


def said_of(run: Path) -> Cell:
    """What the run says of itself: whether it is usable, and why; None where it says nothing."""
    record = read_record(run)
    return {"verdict": record.get("verdict"), "reasons": record.get("reasons")}


def key_of(cell: Cell) -> tuple[Any, ...]:
    """All that decides a cell's figures, beside the library."""
    return (
        *(cell["family"], cell["method"], cell["seed"]),
        *(cell["content_hash"], cell["episodes"], tuple(cell["settings"])),
    )


def read(path: Path, settings: Sequence[str] = ()) -> list[Cell]:
    """The cells finished with these settings: the last line of each, and no half line."""
    cells: dict[tuple[Any, ...], Cell] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            cell = json.loads(line)
        except json.JSONDecodeError:
            continue
        if cell["method"] in UNTRAINED or cell["settings"] == list(settings):
            cells[cell["family"], cell["method"], cell["seed"]] = cell
    return list(cells.values())


def append(path: Path, cell: Cell) -> None:
    """Add a line, on a line of its own whatever stands before it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    old = path.read_bytes() if path.exists() else b""
    with path.open("a", encoding="utf-8") as file:
        file.write(("\n" if old and not old.endswith(b"\n") else "") + json.dumps(cell) + "\n")


def run_cells(arguments: Any) -> int:
    """Run what is missing, seed by seed; how many cells failed."""
    failed = 0
    logs: dict[str, tuple[so.Family, Path, str]] = {}
    for name in arguments.families:
        try:
            family = so.load_family(spec_of(name))
        except FamilyError as error:
            print(f"{name} is left out: {error}", flush=True)
            continue
        began = time.monotonic()
        path = collected(name, arguments.work)
        with so.load_dataset(path) as data:
            logs[name] = family, path, data.content_hash
            print(
                f"{name}: {data.num_episodes:,} episodes, {data.num_steps:,} steps, "
                f"{time.monotonic() - began:.1f} s",
                flush=True,
            )
    done = {key_of(cell) for cell in read(arguments.results, arguments.set)}
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for name, (family, path, content) in logs.items():
            for method in arguments.methods:
                cell: Cell = {"family": name, "method": method, "seed": seed}
                cell |= {"content_hash": content, "episodes": arguments.episodes}
                cell |= {"settings": [] if method in UNTRAINED else list(arguments.set)}
                if key_of(cell) in done:
                    continue
                began = time.monotonic()
                try:
                    if method in UNTRAINED:
                        cell |= untrained(family, method, seed, arguments)
                    else:
                        digest = hashlib.sha256(repr(key_of(cell)).encode()).hexdigest()[:8]
                        run = arguments.work / "runs" / f"{name}-{method}-{seed}-{digest}"
                        cell |= trained(family, method, seed, path, run, arguments)
                # Whatever one family does to one method, the others are still to be measured.
                except Exception as error:
                    failed += 1
                    print(f"{name} {method} {seed} failed: {type(error).__name__}: {error}")
                    continue
                cell["seconds"] = round(time.monotonic() - began, 1)
                append(arguments.results, cell)
                print(
                    f"{name} {method} {seed}: {cell['mean']:.4g}, {cell['seconds']} s", flush=True
                )
    return failed


def tables(cells: Iterable[Cell]) -> str:
    """In Markdown: the returns of every method, then what was said of `sept` and what is true."""
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell["family"], cell["method"]), []).append(cell)
    families = [name for name in KNOWN if any(name == family for family, _ in groups)]
    methods = [name for name in METHODS if any(name == method for _, method in groups)]
    returns = [
        [
            f"`{family}`",
            *(span([cell["mean"] for cell in groups.get((family, name), [])]) for name in methods),
        ]
        for family in families
    ]
    judged = [
        [f"`{family}`", *compared(groups, family)]
        for family in families
        if (family, "sept") in groups
    ]
    titles = ["family", "`sept` − `avg`", "`sept` − `history`", "of `avg` → `oracle`"]
    titles += ["uncertainty", "verdicts"]
    sides = [f"{side} `{name}`" for name in RIVALS for side in ("above", "below")]
    return "\n".join(
        [
            *in_markdown(["family", *(f"`{name}`" for name in methods)], returns),
            "",
            *in_markdown(titles, judged),
            "",
            *in_markdown(["verdict", "fits", *sides], verdicts_and_truth(groups)),
            "",
        ]
    )


def verdicts_and_truth(groups: dict[tuple[str, str], list[Cell]]) -> list[list[str]]:
    """Of the fits with each verdict: how many earn significantly more and less than the others.

    Significantly: Student's 95 % interval over the test instances excludes zero.
    """
    by_seed = {
        (family, method, cell["seed"]): cell
        for (family, method), cells in groups.items()
        for cell in cells
    }
    compared_fits: dict[str, list[list[tuple[float, float]]]] = {}
    for (family, method, seed), cell in by_seed.items():
        rivals = [by_seed.get((family, name, seed)) for name in RIVALS]
        if method == "sept" and None not in rivals:
            found = [gaps(cell, rival) for rival in rivals if rival is not None]
            compared_fits.setdefault(cell["verdict"], []).append(found)
    rows = []
    for word in ("usable", "doubtful", "not usable"):
        fits = compared_fits.get(word, [])
        row = [word, len(fits)]
        for place in range(len(RIVALS)):
            row += [sum(fit[place][0] > 0 for fit in fits), sum(fit[place][1] < 0 for fit in fits)]
        rows.append([str(entry) for entry in row])
    return rows


def gaps(cell: Cell, rival: Cell) -> tuple[float, float]:
    """The interval of the difference in return between two cells, over the test instances."""
    returns = cell["instances"]
    return interval([returns[name] - other for name, other in rival["instances"].items()])


def interval(differences: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of the mean."""
    values = np.array(differences)
    room = stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - room), float(values.mean() + room)


def in_markdown(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return ["| " + " | ".join(parts) + " |" for parts in lines]


def span(values: Sequence[float]) -> str:
    """The mean over seeds and, of several seeds, the least and the largest."""
    if not values:
        return ""
    if len(values) == 1:
        return f"{values[0]:.3g}"
    return f"{np.mean(values):.3g} [{min(values):.3g}, {max(values):.3g}]"


def compared(groups: dict[tuple[str, str], list[Cell]], family: str) -> list[str]:
    """How far `sept` is above `avg` and `history`, its share of the way to `oracle`, verdicts."""
    rows = {
        method: [
            {"seed": cell["seed"], "instance": instance, "total": total}
            for cell in groups.get((family, method), [])
            for instance, total in cell["instances"].items()
        ]
        for method in METHODS
    }
    above = {name: paired(rows["sept"], rows[name], "total") for name in RIVALS}
    shown = [difference(found) for found in above.values()]
    way, gained = paired(rows["oracle"], rows["avg"], "total"), above["avg"]
    # Where the oracle is not above avg there is no way to go.
    clear = way is not None and (way["mean"] if way["low"] is None else way["low"]) > 0
    share = f"{gained['mean'] / way['mean']:.2f}" if clear and way and gained else ""
    own = groups[family, "sept"]
    uncertain = [cell["uncertainty"] for cell in own if cell.get("uncertainty") is not None]
    said = [f"{cell['seed']}: {cell['verdict']}" for cell in own if cell["verdict"]]
    return [*shown, share, span(uncertain), ", ".join(said)]


def difference(found: dict[str, Any] | None) -> str:
    """A mean difference with its interval, if seeds give one."""
    if found is None:
        return ""
    interval = "" if found["low"] is None else f" [{found['low']:.3g}, {found['high']:.3g}]"
    return f"{found['mean']:.3g}{interval}"


def several(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Reads names separated by commas."""

    def parse(text: str) -> list[str]:
        names = [name.strip() for name in text.split(",") if name.strip()]
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


def main(words: Sequence[str] | None = None) -> int:
    """Run what is missing, then draw the table; 1 if a cell failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--families", type=several(KNOWN), default=list(NAMES))
    parser.add_argument("--methods", type=several(METHODS), default=list(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--episodes", type=int, default=10, help="test episodes per instance")
    parser.add_argument("--set", action="append", default=[], help="a setting of fit, as in fit")
    parser.add_argument("--split", default="test", help="instances; with --results of its own")
    parser.add_argument("--work", type=Path, default=Path("build/testbed"), help="logs and runs")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only-table", action="store_true", help="run nothing")
    arguments = parser.parse_args(words)
    failed = 0 if arguments.only_table else run_cells(arguments)
    print(tables(read(arguments.results, arguments.set)), end="")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
