"""Test episodes as the viewer plays them, and the worlds that it can draw.

A family's `scene(hidden)` describes the world of an instance in one of these kinds; a family that
has none is drawn as its columns over time.

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
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sept_offline.evaluation.results import EpisodeResult
from sept_offline.family import Family
from sept_offline.report.charts import numbers
from sept_offline.report.sources import Run

VALUES = 150_000
"""Numbers that the episodes of a page may hold in all; of more, some are left out evenly."""
COLUMNS = {"kind": "columns"}


def playable(runs: Sequence[Run]) -> tuple[list[dict[str, Any]], int]:
    """Episodes of all runs for the viewer, and how many were left out for want of room."""
    known = [
        (run, episode)
        for run in runs
        if run.results is not None and run.agent is not None
        for episode in run.results.episodes
        if episode.observations is not None
    ]
    sizes = [sum(len(one) for one in episode.observations or ()) for _, episode in known]
    share = min(1.0, VALUES / max(sum(sizes), 1))
    kept = sorted({int(place) for place in np.arange(0, len(known), 1 / share)} if known else ())
    shown = [episode_data(*known[place]) for place in kept if place < len(known)]
    return shown, len(known) - len(shown)


def episode_data(run: Run, episode: EpisodeResult) -> dict[str, Any]:
    """One episode, JSON-ready: names, the world, and everything that was seen and done.

    `observations` are columns, `[d][T + 1]`; `actions`, `rewards` `[T]`; `probe` is how many of the
    first steps the probe chose.
    """
    assert run.agent is not None and run.results is not None
    columns = np.array(episode.observations, dtype=np.float64).T
    return {
        "run": run.name,
        "instance": episode.instance,
        "episode": episode.episode,
        "scene": scene_of(run, episode.instance, len(columns)),
        "columns": list(run.agent.spaces.observation_names),
        "action_names": list(run.agent.spaces.action_names),
        "observations": [numbers(column) for column in columns],
        "actions": list(episode.actions),
        "rewards": numbers(episode.rewards),
        "probe": sum(phase == "probe" for phase in episode.phases),
        "latent": None if episode.latent is None else numbers(episode.latent),
        "novelty": episode.novelty,
        "flagged": episode.flagged,
        "solved": episode.solved,
        "terminated": episode.terminated,
    }


def scene_of(run: Run, instance: str, dim: int) -> Mapping[str, Any]:
    """The world of an instance, or plain columns where it is not known or not sound."""
    family = run.family
    if family is None or family.scene is None or run.results is None:
        return COLUMNS
    hiddens = dict(zip(*_split(family, run.results.instances), strict=True))
    if instance not in hiddens:
        return COLUMNS
    try:
        scene = dict(family.scene(hiddens[instance]))
        _check(scene, dim)
    # The description is the user's: the page is drawn all the same.
    except Exception:
        return COLUMNS
    return scene


def _split(family: Family, split: str) -> tuple[list[str], list[dict[str, float]]]:
    if split not in family.splits:
        return [], []
    return family.instance_ids(split), family.instances(split)


def _check(scene: dict[str, Any], dim: int) -> None:
    """Raise a ValueError or KeyError where the viewer could not draw it."""
    kind = scene["kind"]
    if kind == "plane":
        indices, rows = [scene["x"], scene["y"]], [scene["box"]]
        rows += [wall["line"] for wall in scene.get("walls", ())]
        rows += [scene["goal"]] if "goal" in scene else []
        if any(len(row) != 4 for row in rows):
            raise ValueError("a box, a goal and a wall are four numbers each")
    elif kind == "links":
        indices, rows = list(scene["angles"]), [scene["lengths"], [scene.get("goal", 0.0)]]
        if len(scene["angles"]) != len(scene["lengths"]):
            raise ValueError("each link has a length and an angle")
    elif kind == "doses":
        indices, rows = [], []
        if any(len(row) != len(scene["drugs"]) for row in scene["given"]):
            raise ValueError("each action gives or withholds each drug")
    else:
        raise ValueError(f"there is no scene {kind!r}")
    if any(not 0 <= int(index) < dim for index in indices):
        raise ValueError(f"there are {dim} columns")
    if any(not math.isfinite(float(value)) for row in rows for value in row):
        raise ValueError("numbers must be finite")
