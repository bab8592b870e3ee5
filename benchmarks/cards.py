"""Write the card of each shipped dataset: what its recipe makes, as `inspect` sees it.

Run: python benchmarks/cards.py [family …] [--data DIR] [--out datasets/cards]. Each recipe is
followed with seeds 0 and 1, and once with random behaviour, into DIR, or the datasets that are
already there are described; an interrupted collection is continued.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import sept_offline as so
from sept_offline.cli.collect import collect
from sept_offline.collect import Recipe, load_recipe
from sept_offline.collect.expert_files import shipped_expert
from sept_offline.collect.recipe import parse_behaviour
from sept_offline.data import Dataset
from sept_offline.data.summary import InstanceSummary, Summary

FAMILIES = (
    *("navigation2d", "navigation2d-switch", "acrobot", "hiv"),
    *("pendulum", "point-robot-wind", "hopper-params"),
)
OTHERS = {"seed1": "--seed 1", "random": "--behaviour random --seed 0"}
"""Other commands whose content hashes a card names, by the end of their file's name."""
SHOWN = 8
"""Instances that get a row each; of more, the range over all of them."""


def make_card(data: Dataset, recipe_behaviour: str, others: Mapping[str, str]) -> str:
    """The card, in Markdown; `others` are commands of the same kind, with their content hashes."""
    summary = so.inspect(data)
    behaviours = ", ".join(f"{count:,} {name}" for name, count in summary.behaviours.items())
    frequencies = " ".join(f"{share:.3f}" for share in summary.action_frequencies)
    sample = summary.effective_sample_size
    seed, family = data.metadata.root_seed, summary.family
    command = f"sept-offline collect {family} --seed {seed} -o {family}.h5"
    facts = [
        ("command", f"`{command}`"),
        ("behaviour", f"`{recipe_behaviour}`: {behaviours} episodes"),
        ("instances", f"{summary.instances}, split `{data.instances[0].rpartition('-')[0]}`"),
        ("episodes, steps", f"{summary.episodes:,}, {summary.steps:,}"),
        ("return, length of an episode", f"{summary.return_mean:,.4g}, {summary.length_mean:.1f}"),
        ("action frequencies", frequencies),
        ("probe steps", f"{summary.probe_steps}, taken uniformly at random"),
        ("initial action sequences seen", f"{summary.coverage_min:.0%} or more in every instance"),
        ("worth of a uniform probe", "–" if sample is None else f"{sample:,.0f} episodes"),
        ("instance from the first actions", _leak(summary)),
        ("content hash", f"`{summary.content_hash}`"),
    ]
    lines = [f"# {summary.family}", "", "| | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in facts if value]
    if others:
        lines += ["", holds(so.load_family(family)), ""]
        lines += ["| another command | its content hash |", "|---|---|"]
        lines += [f"| `{command}` | `{digest}` |" for command, digest in others.items()]
    lines += ["", *_table(summary.table), ""]
    lines += [f"- {warning}" for warning in summary.warnings]
    return "\n".join(lines).rstrip() + "\n"


def holds(family: so.Family) -> str:
    """Where the content hashes hold; a simulator that is not ours may compute otherwise."""
    if family.extra is None:
        return "The content hashes hold on every x86-64 processor."
    return (
        f"The content hashes are those of one machine: the simulator ({family.extra}) may give "
        "other bits on another processor or in another version."
    )


def check_recipe(data: Dataset, recipe: Recipe) -> None:
    """Refuse a dataset that an earlier recipe made: its card would tell of another."""
    found = (data.num_episodes, set(data.metadata.behaviours))
    if found != (recipe.episodes, set(parse_behaviour(recipe.behaviour))):
        raise SystemExit(
            f"{data.path} holds {found[0]} episodes of {', '.join(sorted(found[1]))}, but the "
            f"recipe says {recipe.episodes} of {recipe.behaviour}; delete the file and run again."
        )


def _leak(summary: Summary) -> str:
    if summary.leak is None:
        return "–"
    return f"predicted right {summary.leak.accuracy:.3f}, by chance {summary.leak.chance:.3f}"


def _table(rows: Sequence[InstanceSummary]) -> Iterable[str]:
    yield "| instance | episodes | steps | return: mean, least, most | length | terminated |"
    yield "|---|---|---|---|---|---|"
    if len(rows) <= SHOWN:
        for row in rows:
            returns = f"{row.return_mean:,.4g}, {row.return_min:,.4g}, {row.return_max:,.4g}"
            yield (
                f"| {row.instance} | {row.episodes:,} | {row.steps:,} | {returns} | "
                f"{row.length_mean:.1f} | {row.terminated:.0%} |"
            )
        return
    means = sorted(row.return_mean for row in rows)
    for name, pick in (("lowest", 0), ("median", len(rows) // 2), ("highest", len(rows) - 1)):
        row = next(row for row in rows if row.return_mean == means[pick])
        returns = f"{row.return_mean:,.4g}, {row.return_min:,.4g}, {row.return_max:,.4g}"
        yield (
            f"| {name} of {len(rows)}: {row.instance} | {row.episodes:,} | {row.steps:,} | "
            f"{returns} | {row.length_mean:.1f} | {row.terminated:.0%} |"
        )


def main() -> None:
    """Collect where needed, and write the cards."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=FAMILIES, metavar="family")
    parser.add_argument("--data", type=Path, default=Path("build/datasets"))
    parser.add_argument("--out", type=Path, default=Path("datasets/cards"))
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.families:
        family = so.load_family(name)
        recipe = load_recipe(family)
        path = arguments.data / f"{name}.h5"
        others = {}
        for stem, options in OTHERS.items():
            if stem == "seed1" and shipped_expert(family, recipe.expert, 1) is None:
                continue  # it would be trained here, and be nobody else's
            command = f"sept-offline collect {name} {options} -o {name}.h5"
            other = arguments.data / f"{name}-{stem}.h5"
            words = ["--resume", "--quiet", "--workers", str(arguments.workers)]
            collect([name, *shlex.split(options), *words, "-o", str(other)], standalone_mode=False)
            with so.load_dataset(other) as data:
                others[command] = data.content_hash
        with so.collect_dataset(name, path, seed=0, workers=arguments.workers, resume=True) as data:
            check_recipe(data, recipe)
            card = make_card(data, recipe.behaviour, others)
        target = arguments.out / f"{name}.md"
        target.write_text(card, encoding="utf-8")
        print(target)


if __name__ == "__main__":
    main()
