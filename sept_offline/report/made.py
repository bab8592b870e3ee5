"""How it was made: settings, hashes, versions, and the commands that repeat it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from sept_offline.bench.figures.rows import settings_of
from sept_offline.bench.variants import quick_variant
from sept_offline.config import to_plain
from sept_offline.errors import SeptError
from sept_offline.methods import resolve_config
from sept_offline.report.blocks import Block, Code, Facts, Heading, Section, Table
from sept_offline.report.sources import BenchFolder, Run

QUICK = quick_variant().name


def made(runs: Sequence[Run], benches: Sequence[BenchFolder]) -> Section:
    """A part a run and a part a bench."""
    blocks: list[Block] = []
    several = len(runs) + len(benches) > 1
    for run in runs:
        if several:
            blocks.append(Heading(run.name))
        blocks += _run(run)
    for bench in benches:
        if several:
            blocks.append(Heading(str(bench.path)))
        blocks += _bench(bench)
    return Section(
        "made",
        "How it was made",
        "Same seed, same versions, same machine: the same bytes.",
        blocks,
    )


def _run(run: Run) -> list[Block]:
    record = run.record
    facts = [
        ("run", str(run.path)),
        ("method", run.method),
        ("preset", str(record.get("preset", "–"))),
        ("seed", str(record["seed"])),
        ("logs", str(record.get("dataset", "–"))),
        ("content of the logs", str(record.get("content_hash", "–"))),
    ]
    if run.data is not None and run.data.metadata.plan:
        facts.append(("plan of the collection", run.data.metadata.plan))
    if run.results is not None:
        facts.append(("evaluated", f"{run.results.instances}, seed {run.results.seed}"))
    return [
        Facts(facts),
        Code("To repeat it", commands(run)),
        _settings(record["config"]),
        _versions(record.get("versions", {})),
    ]


def commands(run: Run) -> list[str]:
    """Fit, evaluate, report, as they would be typed; every setting that is not the preset's."""
    record, path = run.record, str(run.path)
    fit = ["sept-offline", "fit", str(record.get("dataset", "")), "--method", run.method]
    fit += ["--preset", str(record.get("preset", "default")), "--seed", str(record["seed"])]
    for name, value in _changed(run).items():
        fit += ["--set", f"{name}={_written(value)}"]
    held = record.get("held_out")
    if held:
        fit += ["--hold-out", str(held["share"])]
    found = [[*fit, "-o", path]]
    if run.results is not None:
        results = run.results
        each = max((episode.episode for episode in results.episodes), default=0) + 1
        evaluate = ["sept-offline", "evaluate", path, "--instances", results.instances]
        evaluate += ["--episodes-per-instance", str(each), "--seed", str(results.seed)]
        found.append(evaluate)
    found.append(["sept-offline", "report", path, "-o", "report.html"])
    return [shlex.join(words) for words in found]


def _changed(run: Run) -> dict[str, Any]:
    """Settings that differ from what the preset says for these logs; none where that is unknown."""
    if run.data is None:
        return {}
    try:
        usual = to_plain(resolve_config(run.data, str(run.record.get("preset", "default"))))
    except SeptError:
        return {}
    expected, own = flat(usual), flat(run.record["config"])
    return {name: value for name, value in own.items() if expected.get(name) != value}


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"latent": {"dim": 2}} as {"latent.dim": 2}."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found


def _written(value: Any) -> str:
    """A value as `--set` takes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_written(one) for one in value) + "]"
    return "" if value is None else str(value)


def _settings(config: Mapping[str, Any]) -> Table:
    rows = [(name, _written(value) or "–") for name, value in flat(config).items()]
    return Table("Settings", ("setting", "value"), rows, folded=True, words=True)


def _versions(found: Mapping[str, str]) -> Table:
    rows = [(str(name), str(version)) for name, version in found.items()]
    return Table("Versions", ("library", "version"), rows, folded=True, words=True)


def _bench(bench: BenchFolder) -> list[Block]:
    cells = bench.rows.cells
    hashes = sorted({(row["family"], row["content_hash"]) for row in cells})
    rows = [(str(family), str(digest)) for family, digest in hashes]
    seeds = len({row["seed"] for row in cells})
    return [
        Facts(
            [
                ("bench", str(bench.path)),
                ("cells", str(len(cells))),
                ("families", ", ".join(sorted({row["family"] for row in cells}))),
                ("methods", ", ".join(sorted({row["method"] for row in cells}))),
                ("training seeds", str(seeds)),
            ]
        ),
        Code("To repeat it", bench_commands(bench)),
        Table("Logs", ("family", "content"), rows, folded=True, words=True),
    ]


def bench_commands(bench: BenchFolder) -> list[str]:
    """One for all methods of a family, preset and variant that have as many seeds and episodes."""
    seeds: dict[tuple[str, str, str, str], set[int]] = {}
    played: dict[tuple[str, str, str, str], int] = {}
    for row in bench.rows.cells:
        cell = (row["family"], row["preset"], row["variant"], row["method"])
        seeds.setdefault(cell, set()).add(row["seed"])
        played[cell] = max(played.get(cell, 0), row["episodes"])
    groups: dict[tuple[str, str, str, int, int], list[str]] = {}
    for (family, preset, variant, method), own in sorted(seeds.items()):
        episodes = played[family, preset, variant, method]
        groups.setdefault((family, preset, variant, max(own) + 1, episodes), []).append(method)
    lines = []
    for (family, preset, variant, count, episodes), methods in groups.items():
        words = ["sept-offline", "bench", "--families", family, "--methods", ",".join(methods)]
        words += ["--seeds", str(count), "--episodes", str(episodes)]
        words += ["--preset", preset] if preset != "default" else []
        lines.append(shlex.join([*words, *_laid_over(variant), "-o", str(bench.path)]))
    return lines


def _laid_over(variant: str) -> list[str]:
    """The options that make a variant: the last setting is what was varied."""
    settings = list(settings_of(variant))
    words = ["--quick"] if QUICK in settings else []
    said = [text for text in settings if text != QUICK]
    for text in said[:-1]:
        words += ["--set", text]
    return words + (["--vary", said[-1]] if said else [])
