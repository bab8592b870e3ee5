"""The section on provenance: settings, hashes, versions, commands that repeat it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sept_offline.errors import SeptError
from sept_offline.methods import METHODS, resolve_config
from sept_offline.settings import to_plain
from sept_offline.tools.bench.figures.rows import settings_of, studies
from sept_offline.tools.bench.plan import quick_variant
from sept_offline.tools.bench.store import grouped
from sept_offline.tools.report.page import Block, Code, Facts, Heading, Section, Table, shown_path
from sept_offline.tools.report.sources import BenchFolder, Run

QUICK = quick_variant().name
TITLE = "Commands that repeat it in a new folder"


def provenance(runs: Sequence[Run], benches: Sequence[BenchFolder]) -> Section:
    """One part per run and per bench."""
    blocks: list[Block] = []
    several = len(runs) + len(benches) > 1
    for run in runs:
        if several:
            blocks.append(Heading(run.name))
        blocks += _run(run)
    for bench in benches:
        if several:
            blocks.append(Heading(shown_path(bench.path)))
        blocks += _bench(bench)
    return Section(
        "made",
        "How it was made",
        "The same seed, versions and machine give the same bytes.",
        blocks,
    )


def _run(run: Run) -> list[Block]:
    record = run.record
    facts = [
        ("run", shown_path(run.path)),
        ("method", run.method),
        ("preset", str(record.get("preset", "–"))),
        ("seed", str(record["seed"])),
        ("logs", shown_path(str(record.get("dataset", "–")))),
        ("content hash of the logs", str(record.get("content_hash", "–"))),
    ]
    if run.data is not None and run.data.metadata.plan:
        facts.append(("collection plan", run.data.metadata.plan))
    if run.results is not None:
        facts.append(("evaluated", f"{run.results.instances}, seed {run.results.seed}"))
    return [
        Facts(facts),
        Code(TITLE, commands(run)),
        _table(
            "Settings", "setting", [(n, _written(v)) for n, v in flat(record["config"]).items()]
        ),
        _table("Versions", "library", record.get("versions", {}).items()),
    ]


def commands(run: Run) -> list[str]:
    """Fit, evaluate and report as typed, with every setting that differs from the preset."""
    record, again = run.record, f"{shown_path(run.path)}-again"
    logs = str(record.get("dataset", "")) if run.data is None else str(run.data.path)
    fit = ["sept-offline", "fit", shown_path(logs), "--method", run.method]
    fit += ["--preset", str(record.get("preset", "default")), "--seed", str(record["seed"])]
    for name, value in _changed(run).items():
        fit += ["--set", f"{name}={_written(value)}"]
    held = record.get("held_out")
    if held:
        fit += ["--hold-out", str(held["share"])]
    lines = [[*fit, "-o", again]]
    results = run.results
    if results is not None:
        each = max(episode.episode for episode in results.episodes) + 1
        evaluate = ["sept-offline", "evaluate", again, "--instances", results.instances]
        evaluate += ["--episodes-per-instance", str(each), "--seed", str(results.seed)]
        if run.family is None or run.family.test_steps != results.limit:
            evaluate += ["--max-steps", str(results.limit)]
        spec = run.agent.record.get("family_object") if run.agent is not None else None
        if results.family != record.get("family"):
            evaluate += ["--family", results.family]
        elif spec:
            evaluate += ["--family", str(spec)]
        lines.append(evaluate)
    lines.append(["sept-offline", "report", again, "-o", "report.html"])
    return [typed(words) for words in lines]


def typed(words: Sequence[str]) -> str:
    """A command line; ~ stays unquoted, so that a shell expands it, or is $HOME after a sign."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    if word.startswith("~/"):
        return f"~/{shlex.quote(word[2:])}"
    name, home, path = word.partition("=~/")
    return f'{shlex.quote(name)}="$HOME"/{shlex.quote(path)}' if home else shlex.quote(word)


def _changed(run: Run) -> dict[str, Any]:
    """Settings that differ from the preset's for these logs; all if the logs are missing."""
    settings = flat(run.record["config"])
    if run.data is None:
        return settings
    try:
        preset, method = str(run.record.get("preset", "default")), METHODS.get(run.method)
        stacks = method is None or method.stacks
        usual = to_plain(resolve_config(run.data, preset, stacks=stacks))
    except SeptError:
        return settings
    expected = flat(usual)
    missing = object()
    return {name: value for name, value in settings.items() if expected.get(name, missing) != value}


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"latent": {"dim": 2}} as {"latent.dim": 2}."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            values |= flat(value, f"{prefix}{name}.")
        else:
            values[f"{prefix}{name}"] = value
    return values


def _written(value: Any, inside: bool = False) -> str:
    """A value as `--set` takes it; words need quotes only inside a list."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_written(entry, inside=True) for entry in value) + "]"
    return json.dumps(value) if inside and isinstance(value, str) else str(value)


def _table(title: str, column: str, rows: Iterable[tuple[Any, Any]]) -> Table:
    shown = [(str(name), str(value)) for name, value in rows]
    return Table(title, (column, "value"), shown, folded=True, words=True)


def _bench(bench: BenchFolder) -> list[Block]:
    cells = bench.rows.cells
    hashes = sorted({(row["family"], row["content_hash"]) for row in cells})
    return [
        Facts(
            [
                ("bench", shown_path(bench.path)),
                ("cells", str(len(cells))),
                ("families", ", ".join(sorted({row["family"] for row in cells}))),
                ("methods", ", ".join(sorted({row["method"] for row in cells}))),
                ("training seeds", str(len({row["seed"] for row in cells}))),
            ]
        ),
        Code(TITLE, bench_commands(bench)),
        *(
            _table(
                f"Settings: {study.title}",
                "setting",
                _several(flat(json.loads(row["config"])) for row in study.at(study.base).cells),
            )
            for study in studies(bench.rows)
        ),
        _table("Versions", "library", _several(json.loads(row["versions"]) for row in cells)),
        _table("Logs", "family", hashes),
    ]


def _several(records: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Each name with all the values it has."""
    values: dict[str, dict[str, None]] = {}
    for record in records:
        for name, value in record.items():
            values.setdefault(name, {})[_written(value)] = None
    return [(name, "; ".join(written)) for name, written in values.items()]


def bench_commands(bench: BenchFolder) -> list[str]:
    """One command per family, preset and variant for all methods with equal seeds and episodes."""
    bases = {(study.family, study.preset): study.base for study in studies(bench.rows)}
    cells = grouped(bench.rows.cells, "family", "preset", "variant", "method")
    groups: dict[tuple[str, ...], list[str]] = {}
    for (family, preset, variant, method), rows in sorted(cells.items()):
        words = ["--seeds", str(max(row["seed"] for row in rows) + 1)]
        words += ["--episodes", str(max(row["episodes"] for row in rows))]
        words += ["--preset", preset] if preset != "default" else []
        words += _laid_over(variant, bases[family, preset])
        splits = sorted({row["split"] for row in rows})
        words += ["--split", splits[0]] if splits != ["test"] else []
        if len(rows) > 1 and max(row["data_seed"] for row in rows) != 1:
            words += ["--data-seeds", str(max(row["data_seed"] for row in rows) + 1)]
        identity = json.loads(rows[0]["identity"])
        if "dataset" in identity:
            words += ["--dataset", f"{family}={shown_path(identity['dataset'])}"]
        spec = identity.get("spec", family)
        groups.setdefault((spec, *words), []).append(method)
    again = f"{shown_path(bench.path)}-again"
    begin = ("sept-offline", "bench", "--families")
    return [
        typed([*begin, spec, "--methods", ",".join(methods), *words, "-o", again])
        for (spec, *words), methods in groups.items()
    ]


def _laid_over(variant: str, base: str) -> list[str]:
    """The options that make a variant: `--vary` its last setting, if the base lacks it."""
    shared, settings = settings_of(base), settings_of(variant)
    words = ["--quick"] if QUICK in settings else []
    for text in settings:
        if text != QUICK:
            # Two settings to vary would be two variants.
            varied = text not in shared and text == settings[-1]
            words += ["--vary" if varied else "--set", text]
    return words
