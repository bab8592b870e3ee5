"""The dataset card: what an import found and did, as plain values and as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from sept_offline.data.summary import LOW_COVERAGE, never_taken, shorter
from sept_offline.tools.importing.measures import LARGEST

DESCRIPTIONS = {
    "unordered rows": "rows were out of order: all were sorted",
    "scattered episodes": "episodes have rows interleaved with those of others, and no time was "
    "named: they were read in the order of the file, which cannot be checked; if a column contains "
    "their time, name it with --time",
    "duplicated steps": "steps were logged twice, identically, and kept once",
    "both end flags": "episodes were marked both terminated and truncated: terminated was kept",
    "episodes without an end flag": "episodes had no end flag and count as truncated",
    "empty flags": "end flags were empty and read as false",
    "last steps given up": "episodes had no final observation: the last logged one was used, and "
    "its step was dropped",
    "terminations given up": "of the dropped steps ended the task, and their rewards are lost: "
    "--keep-terminal keeps such steps",
    "terminal steps kept": "terminated episodes had no final observation: their last one was "
    "repeated",
    "episodes without a step": "episodes had no steps and were dropped",
    "unrewarded episodes": "episodes had no reward and were dropped",
    "gaps in time": "steps come at least 1.5 times the usual interval ({interval}) after the "
    "previous step of their episode: rows may be missing",
    "next observations that differ": "next observations differ from the observation of the next "
    "row: steps may be missing",
    "probabilities made to sum to 1": "steps had rounded probabilities, normalised to sum to 1",
    "steps without probabilities": "steps have no probability of the action taken",
    "spellings merged": "labels spell the same number as another (1.0 and 1) and were merged",
    "labels for nothing": "actions have a label such as NA, null or nan: if actions are words, "
    "only an empty field is a missing action",
    "steps without a density": "steps have no density of the action taken",
    "bins": "bins of equal counts were made from a continuous action",
    "bounds from the data": "components of the action have bounds that were taken from the data "
    "and rounded outwards: an agent never leaves them; name others with --action-low and "
    "--action-high",
}
"""The description of each count, in the order of the card."""
WARNED = (
    "scattered episodes",
    "labels for nothing",
    "gaps in time",
    "next observations that differ",
)
"""Counts that may mean that the rows were misread."""


def warnings(card: dict[str, Any]) -> list[str]:
    """Warnings for the user before fitting."""
    warnings = []
    counts = card["done"]
    if counts.get("terminations given up"):
        warnings.append(
            f"{counts['terminations given up']:,} episodes lost the step that ended their task, "
            "and its reward, because where it led is not logged: --keep-terminal keeps such steps, "
            "or log the final observation (an extra last row with an empty action, or "
            "--next-observations)."
        )
    if card["entropy"]["known_steps"] < 1:
        share = 1 - card["entropy"]["known_steps"]
        logged = "densities" if _is_box(card) else "probabilities"
        warnings.append(f"The behaviour's {logged} are unknown for {share:.0%} of the steps.")
    leak = card["confounding"]
    if leak is not None and leak["significant"]:
        warnings.append(
            f"The instance is predicted from the initial actions alone in {leak['accuracy']:.0%} "
            f"of the episodes (chance: {leak['chance']:.0%}): behaviour and instance are "
            "confounded."
        )
    if card["instances"] < 2:
        warnings.append("There is only one instance, so there is nothing to transfer between.")
    never = [] if _is_box(card) else [name for name, share in card["actions"].items() if not share]
    if never:
        warnings.append(never_taken(never))
    for name in WARNED:
        if counts.get(name):
            warnings.append(_counted(card, name))
    return warnings + _about_probe(card)


def _about_probe(card: dict[str, Any]) -> list[str]:
    """Warnings about the probe length, or a suggestion if none was named."""
    warnings = []
    shown, probe = card["coverage"], card["probe_steps"]
    short, shortest = shown["short_episodes"], int(card["length"]["min"])
    if "probe_steps" not in card["mapping"]:
        less = f"; episodes shorter than {probe} steps: {short:,}" if short else ""
        warnings.append(
            "No probe length was named, so fit chooses one; set it here with --probe-steps N or "
            "with fit --set probe_steps=N. Keep it short: 1 to 8 steps, and "
            f"at most {shortest}, the length of the shortest episode{less}."
        )
    elif short:
        warnings.append(
            f"{shorter(short)} than the probe's {probe} steps, so fit uses "
            f"{shortest}; name that with --probe-steps {shortest}, or log longer episodes."
        )
    if shown["min"] < LOW_COVERAGE:
        possible = f"{len(card['actions'])}^{probe} initial action sequences of {probe} steps"
        fewer = "; fewer steps have fewer sequences"
        if _is_box(card):
            possible, fewer = f"range of the actions in its first {probe} steps", ""
        warnings.append(
            f"An instance contains only {shown['min']:.2%} of the {possible}: probes "
            f"that take the others cannot be evaluated{fewer}."
        )
    return warnings


def markdown(card: dict[str, Any], path: Path, content_hash: str) -> str:
    """The card as Markdown."""
    entropy, shown, leak = card["entropy"], card["coverage"], card["confounding"]
    lines = [
        f"# {path.name}",
        "",
        f"Imported from {', '.join(card['sources'][:10])}"
        + (f" and {len(card['sources']) - 10} more" if len(card["sources"]) > 10 else "")
        + f"; content hash `{content_hash}`.",
        "",
        "| | |",
        "|---|---|",
        f"| instances | {card['instances']:,} |",
        f"| episodes | {card['episodes']:,} "
        f"({_span(card['episodes_per_instance'])} per instance) |",
        f"| steps | {card['steps']:,} ({_span(card['length'])} per episode) |",
        f"| terminated | {card['terminated']:.0%} of the episodes |",
        f"| return per episode | {_span(card['return'])} |",
        f"| reward per step | {card['reward']['min']:.4g} … {card['reward']['max']:.4g} |",
        "",
        "## Observations",
        "",
        "| column | minimum | mean | maximum | filled |",
        "|---|---|---|---|---|",
        *(
            f"| {row['name']} | {row['min']:.4g} | {row['mean']:.4g} | {row['max']:.4g} "
            f"| {row['filled']:,} |"
            for row in card["observations"]
        ),
        "",
        "## Actions",
        "",
        *_action_table(card),
        "",
        "## Behaviour",
        "",
        f"- Entropy: {_entropy_text(entropy)}.",
        f"- Coverage: of the {_possible(card)} an instance contains {shown['mean']:.1%} on "
        f"average, and {shown['min']:.1%} at least; "
        f"{shorter(shown['short_episodes'])}.",
        "- Confounding: "
        + (
            "cannot be measured (this requires two instances with five episodes each)."
            if leak is None
            else f"the instance is predicted from the initial actions alone in "
            f"{leak['accuracy']:.0%} of the episodes (chance: {leak['chance']:.0%})"
            + (": clearly more than chance." if leak["significant"] else ": no more than chance.")
        ),
        "",
        "## Filled, dropped, changed",
        "",
        *(_done(card) or ["Nothing."]),
        "",
        "## How the columns were read",
        "",
        *(f"- `{key}`: {_value(value)}" for key, value in card["mapping"].items()),
    ]
    noted = warnings(card)
    if noted:
        lines += ["", "## Before fitting", "", *(f"- {line}" for line in noted)]
    return "\n".join(lines) + "\n"


def _done(card: dict[str, Any]) -> list[str]:
    filled = [
        f"- {count:,} missing values of `{name}` were filled ({_rule(card['mapping'], name)})."
        for name, count in card["filled"].items()
    ]
    return filled + [f"- {_counted(card, name)}" for name in DESCRIPTIONS if card["done"].get(name)]


def _counted(card: dict[str, Any], name: str) -> str:
    text = DESCRIPTIONS[name].replace("{interval}", str(card["interval"]))
    return f"{card['done'][name]:,} {text}."


def _rule(mapping: dict[str, Any], name: str) -> str:
    """The rule by which a column, an element of it or its next observation was filled."""
    column = name.rpartition("[")[0] or name
    after, before = (mapping.get(role, []) for role in ("next_observations", "observations"))
    partners = [before[after.index(each)] for each in (name, column) if each in after]
    rules = mapping.get("fill", {})
    keys = (name, column, *partners, "observations")
    return next((rules[key] for key in keys if key in rules), "")


def _is_box(card: dict[str, Any]) -> bool:
    return any(isinstance(value, dict) for value in card["actions"].values())


def _action_table(card: dict[str, Any]) -> list[str]:
    if not _is_box(card):
        rows = [f"| {name} | {share:.1%} |" for name, share in card["actions"].items()]
        return ["| action | share of steps |", "|---|---|", *rows]
    keys = ("low", "high", "min", "mean", "max")
    return [
        "| component | lower bound | upper bound | minimum | mean | maximum |",
        "|---|---|---|---|---|---|",
        *(
            f"| {name} | " + " | ".join(f"{row[key]:.4g}" for key in keys) + " |"
            for name, row in card["actions"].items()
        ),
    ]


def _possible(card: dict[str, Any]) -> str:
    """What coverage is the share of."""
    count, steps = card["coverage"]["possible"], card["probe_steps"]
    if _is_box(card):
        return f"range of each component in the first {steps} steps, in fifths,"
    number = f"more than 10^{LARGEST / np.log(10):.0f}" if count is None else f"{count:.0f}"
    return f"{number} initial action sequences of {steps} steps"


def _entropy_text(entropy: dict[str, Any]) -> str:
    known, logged = entropy["known_steps"], entropy["of_behaviour"]
    if entropy["of_frequencies"] is None:
        if logged is None:
            return "the behaviour's densities were not logged"
        return (
            f"{logged:.3f} nats by the logged densities ({known:.0%} of the steps have them), "
            f"{entropy['largest']:.3f} if it were uniform between the bounds"
        )
    text = f"{entropy['of_frequencies']:.3f} of at most {entropy['largest']:.3f} nats in how often"
    text += " each action occurs within an instance"
    if logged is None:
        return text + "; the behaviour's own probabilities were not logged"
    alone = entropy["steps_with_the_taken_alone"]
    only = f", {alone:.0%} that of the action taken alone" if alone else ""
    return (
        f"{logged:.3f} nats by the logged probabilities "
        f"({known:.0%} of the steps have them{only}); {text}"
    )


def _span(spread: dict[str, float]) -> str:
    return f"{spread['min']:.4g} … {spread['max']:.4g}, mean {spread['mean']:.4g}"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{key}={rule}" for key, rule in value.items())
    return str(value).lower() if isinstance(value, bool) else str(value)
