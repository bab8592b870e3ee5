"""Test episodes as the viewer plays them, and the scenes that it can draw.

A family's `scene(hidden)` describes an instance as one of these kinds; a family without one is
drawn as its columns over time.

    {"kind": "plane", "x": 0, "y": 1, "box": (x0, x1, y0, y1), "goal": (x0, x1, y0, y1),
     "walls": [{"line": (x, y, x, y), "from": step, "to": step}]}    columns 0 and 1 are a point
    {"kind": "links", "lengths": [1.0, 1.0], "angles": [0, 1], "goal": 1.0}
                                     columns 0 and 1 are angles of links, each from the one before
    {"kind": "doses", "drugs": ["A", "B"], "given": [[False, False], [True, False]]}
                                     columns over time; which drugs each action gives

`goal` and a wall's `from` and `to` may be left out.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sept_offline.actions import Box
from sept_offline.agent import Agent
from sept_offline.evaluation.results import EpisodeResult
from sept_offline.family import Family
from sept_offline.methods import METHODS
from sept_offline.tools.report.charts import numbers
from sept_offline.tools.report.sources import Run

VALUES = 200_000
"""Most numbers in all episodes of a page; of more episodes, an even selection is shown."""
LARGEST = 40_000
"""Most numbers in one episode; a longer one is left out."""
COLUMNS: dict[str, Any] = {"kind": "columns"}
Row = tuple[float, float, float, float]


def playable(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], int]:
    """Episodes of all runs for the viewer, and how many were left out for lack of space."""
    known = [
        (run, run.agent, episode)
        for run in runs
        if run.results is not None and run.agent is not None
        for episode in run.results.episodes
        if episode.observations is not None
    ]
    small = [entry for entry in known if _size(entry[-1]) <= LARGEST]
    share = min(1.0, VALUES / max(sum(_size(entry[-1]) for entry in small), 1))
    places = np.floor(np.arange(int(len(small) * share)) / share).astype(np.int64)
    shown = [episode_data(*small[place]) for place in places]
    return shown, len(known) - len(shown)


def _size(episode: EpisodeResult) -> int:
    """Numbers that it takes, with its actions, rewards, and some for its names."""
    return sum(len(observation) + 2 for observation in episode.observations or ()) + 40


def episode_data(run: Run, agent: Agent, episode: EpisodeResult) -> dict[str, Any]:
    """One episode, JSON-ready: names, the world, and everything that was seen and done.

    `observations` are columns, `[d][T + 1]`; `actions` `[T]`, or `[T][k]` within `bounds`;
    `rewards` `[T]`; `probe` is how many of the first steps the probe chose, and `known` after how
    many the latent was inferred.
    """
    space = agent.spaces.actions
    bounds = None
    if isinstance(space, Box):
        bounds = {"low": list(space.low), "high": list(space.high)}
    columns = np.array(episode.observations, dtype=np.float64).T
    encoder = getattr(agent.context, "encoder", None)
    probed = sum(phase == "probe" for phase in episode.phases)
    return {
        "run": run.name,
        "instance": episode.instance,
        "episode": episode.episode,
        "scene": scene_of(run, episode.instance, len(columns)),
        "columns": list(agent.spaces.observation_names),
        "action_names": list(agent.spaces.action_names),
        "observations": [numbers(column) for column in columns],
        "bounds": bounds,
        "actions": list(episode.actions),
        "rewards": numbers(episode.rewards),
        "probe": probed,
        "known": max(probed, getattr(encoder, "steps", episode.steps)),
        "moves": run.method in METHODS and METHODS[run.method].moving_latent,
        "latent": None if episode.latent is None else numbers(episode.latent),
        "novelty": None if episode.novelty is None else numbers([episode.novelty])[0],
        "flagged": episode.flagged,
        "solved": episode.solved,
        "terminated": episode.terminated,
    }


def scene_of(run: Run, instance: str, dim: int) -> dict[str, Any]:
    """The scene of an instance; plain columns where it is not known or not valid."""
    family = run.family
    if family is None or family.scene is None or run.results is None:
        return COLUMNS
    # The user wrote the splits and the scene: whatever they raise, the page is still drawn.
    try:
        hiddens = dict(zip(*_split(family, run.results.instances), strict=True))
        return plain_scene(family.scene(hiddens[instance]), dim)
    except Exception:
        return COLUMNS


def _split(family: Family, split: str) -> tuple[list[str], list[dict[str, float]]]:
    return family.instance_ids(split), family.instances(split)


def plain_scene(scene: Mapping[str, Any], dim: int) -> dict[str, Any]:
    """The scene in plain JSON values; ValueError, KeyError or TypeError if it cannot be drawn."""
    kind = scene["kind"]
    if kind == "plane":
        plane: dict[str, Any] = {"kind": kind, "box": _box(scene["box"])}
        plane |= {name: _column(scene[name], dim) for name in ("x", "y")}
        if scene.get("goal") is not None:
            plane["goal"] = _box(scene["goal"])
        plane["walls"] = [_wall(wall) for wall in scene.get("walls", ())]
        return plane
    if kind == "links":
        lengths = [_number(value) for value in scene["lengths"]]
        angles = [_column(value, dim) for value in scene["angles"]]
        if len(lengths) != len(angles) or not sum(abs(length) for length in lengths):
            raise ValueError("each link needs a length and an angle")
        links: dict[str, Any] = {"kind": kind, "lengths": lengths, "angles": angles}
        return links | ({"goal": _number(scene["goal"])} if "goal" in scene else {})
    if kind == "doses":
        drugs = [str(name) for name in scene["drugs"]]
        given = [[bool(dose) for dose in row] for row in scene["given"]]
        if any(len(row) != len(drugs) for row in given):
            raise ValueError("each action needs true or false for each drug")
        return {"kind": kind, "drugs": drugs, "given": given}
    raise ValueError(f"there is no scene {kind!r}")


def _wall(wall: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {"line": _four(wall["line"])}
    for name in ("from", "to"):
        if wall.get(name) is not None:
            plain[name] = operator.index(wall[name])
    return plain


def _box(values: Sequence[Any]) -> Row:
    x0, x1, y0, y1 = _four(values)
    if not (x0 < x1 and y0 < y1):
        raise ValueError("the bounds of a box must be in ascending order")
    return x0, x1, y0, y1


def _four(values: Sequence[Any]) -> Row:
    a, b, c, d = (_number(value) for value in values)
    return a, b, c, d


def _column(value: Any, dim: int) -> int:
    index = operator.index(value)
    if not 0 <= index < dim:
        raise ValueError(f"there are {dim} columns")
    return index


def _number(value: Any) -> float:
    plain = float(value)
    if not math.isfinite(plain):
        raise ValueError("numbers must be finite")
    return plain
