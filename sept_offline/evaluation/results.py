"""Results of the test episodes: per step, per episode, and as a summary."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sept_offline.errors import DataError, one_line
from sept_offline.files import behind_links, write_text
from sept_offline.seals import read_sealed, read_table, sealed_json, write_table

if TYPE_CHECKING:
    import pyarrow as pa

Action = int | tuple[float, ...]
"""A numbered action, or the components `[k]` of one of a box."""
FORMAT = 1
METADATA = b"sept_offline.results"
HEADER = (
    *("method", "family", "needs", "learns"),
    *("instances", "seed", "limit", "behaviour_estimated"),
)
"""Fields of `Results` in the file's metadata."""
COLUMNS = {
    "instance": "string",
    "episode": "int64",
    "return": "float64",
    "steps": "int64",
    "solved": "bool",
    "steps_to_solve": "int64",
    "terminated": "bool",
    "normalised": "float64",
    "latent": "list",
    "uncertainty": "float64",
    "novelty": "float64",
    "flagged": "bool",
    "act_microseconds": "float64",
    "seconds": "float64",
}
"""Columns of one value per episode: fields of `EpisodeResult`, or computed from them."""
COMPUTED = {"return": "total", "steps": "steps"}


@dataclass(frozen=True)
class EpisodeResult:
    """One test episode of T steps.

    Per step: actions `[T]` or `[T, k]`, phases `[T]` ("probe" or "control": who chose), rewards
    `[T]`, and observations `[T + 1, d]`, from the first to the last; None in results of older
    versions.
    `latent[k]`, `uncertainty` and `novelty` are None where nothing was inferred, as in an episode
    that ended during the probe.
    """

    instance: str
    episode: int
    """Its number within the instance, from 0."""
    actions: tuple[Action, ...]
    phases: tuple[str, ...]
    rewards: tuple[float, ...]
    terminated: bool
    solved: bool | None
    """None if the family does not define "solved", as for `steps_to_solve`."""
    steps_to_solve: int | None
    """Including the probe; the step limit if it was not solved."""
    normalised: float | None
    latent: tuple[float, ...] | None
    uncertainty: float | None
    novelty: float | None
    flagged: bool
    act_microseconds: float
    """Mean time per action of the agent alone."""
    seconds: float
    """Seconds of the whole episode, including the environment."""
    observations: tuple[tuple[float, ...], ...] | None = None

    @property
    def total(self) -> float:
        """The return: the plain sum of the rewards."""
        return cumulate(self.rewards)[-1]

    @property
    def steps(self) -> int:
        """T."""
        return len(self.actions)

    @property
    def cumulative(self) -> tuple[float, ...]:
        """`[T]`, the reward so far after each step."""
        return cumulate(self.rewards)


@dataclass(frozen=True)
class Results:
    """All test episodes of one agent in one split of a family.

    `write` stores it as one Parquet file with a row per episode. The columns `action`, `phase`,
    `reward` and `cumulative_reward` are lists with one entry per step, `observation` has one entry
    more. All other fields are JSON in the file's metadata.
    """

    method: str
    """The agent's method."""
    family: str
    """The family's name."""
    needs: tuple[str, ...]
    """What the agent was given besides observations: none, "hidden", "reward"."""
    instances: str
    """The split that was evaluated."""
    seed: int
    """The seed of the evaluation."""
    limit: int
    """Maximum number of steps per episode."""
    episodes: tuple[EpisodeResult, ...]
    """One record per episode, in the order of the instances."""
    learns: bool = False
    """Whether the agent took gradient steps during its episodes."""
    behaviour_estimated: bool = False
    """Whether the agent learned from logs whose probabilities had to be estimated."""

    def summary(self) -> dict[str, Any]:
        """One JSON-ready object: means and standard errors over instances, null where undefined.

        Several episodes of one instance are averaged first: they share what is hidden about it.
        """
        solved = [float(e.solved) for e in self.episodes if e.solved is not None]
        actions = sum(e.steps for e in self.episodes)
        agent = math.fsum(e.act_microseconds * e.steps for e in self.episodes)
        return {
            "method": self.method,
            "family": self.family,
            "needs": list(self.needs),
            "learns": self.learns,
            "episodes": len(self.episodes),
            "solved": float(np.mean(solved)) if solved else None,
            "steps_to_solve": self._statistics("steps_to_solve"),
            "return": self._statistics("total"),
            "normalised": self._statistics("normalised"),
            "act_microseconds": agent / actions if actions else None,
            "behaviour_estimated": self.behaviour_estimated,
        }

    def _statistics(self, name: str) -> dict[str, float | int | None] | None:
        return statistics(list(self.by_instance(name).values()))

    def by_instance(self, name: str) -> dict[str, float | None]:
        """The mean of a field over each instance's episodes, None where it is undefined."""
        groups: dict[str, list[float]] = {}
        for episode in self.episodes:
            scores = groups.setdefault(episode.instance, [])
            if getattr(episode, name) is not None:
                scores.append(float(getattr(episode, name)))
        return {
            instance: math.fsum(scores) / len(scores) if scores else None
            for instance, scores in groups.items()
        }

    def episodes_table(self) -> pa.Table:
        """One row per episode, with the steps as lists."""
        import pyarrow as pa

        return pa.Table.from_pylist([_row(e) for e in self.episodes], schema=_schema(self._width))

    @property
    def _width(self) -> int | None:
        """The components of an action of a box; None for discrete actions."""
        first = next((e.actions[0] for e in self.episodes if e.actions), 0)
        return None if isinstance(first, int) else len(first)

    def to_json(self) -> dict[str, Any]:
        """Everything, JSON-ready: what was asked, the summary, and every episode with its steps."""
        return self._header() | {
            "summary": self.summary(),
            "table": [_row(episode) for episode in self.episodes],
        }

    def write(self, path: str | Path) -> None:
        """Write a whole `.parquet` or `.json` file or nothing."""
        target = behind_links(Path(path))
        if target.suffix == ".json":
            json.dumps(body := self.to_json(), allow_nan=False)
            write_text(target, sealed_json(body))
        elif target.suffix == ".parquet":
            header = {METADATA: json.dumps(self._header()).encode()}
            write_table(target, self.episodes_table().replace_schema_metadata(header))
        else:
            raise DataError(
                f"Cannot write results to {target}; choose a name that ends in .parquet or .json."
            )

    def _header(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in HEADER}
        return {"format": FORMAT, **fields, "needs": list(self.needs)}


def plain_actions(actions: NDArray[Any]) -> tuple[Action, ...]:
    """The rows of `actions[T]` or `actions[T, k]`."""
    return tuple(_plain(row) for row in actions.tolist())


def _plain(action: int | list[float]) -> Action:
    return action if isinstance(action, int) else tuple(action)


def cumulate(rewards: Sequence[float]) -> tuple[float, ...]:
    """`[T]`, sums of the first rewards in order; the last one is the return, to the bit."""
    return tuple(itertools.accumulate(rewards))


def statistics(values: Sequence[float | None]) -> dict[str, float | int | None] | None:
    """Mean, standard error, median and count of the values; None if there are none.

    The standard error is that of the mean, s/√n with n − 1 degrees of freedom; a single value has
    none.
    """
    there = np.array([value for value in values if value is not None], dtype=np.float64)
    if not len(there):
        return None
    count = len(there)
    return {
        "mean": float(there.mean()),
        "se": float(there.std(ddof=1) / math.sqrt(count)) if count > 1 else None,
        "median": float(np.median(there)),
        "count": count,
    }


def load_results(path: str | Path) -> Results:
    """Load results that `Results.write` wrote, `.parquet` or `.json`."""
    source = Path(path)
    try:
        if source.suffix == ".json":
            header = read_sealed(source, DataError)
            rows = header["table"]
        else:
            table = read_table(source, DataError)
            header = json.loads((table.schema.metadata or {})[METADATA])
            rows = table.to_pylist()
        if header["format"] != FORMAT:
            raise DataError(
                f"{source} contains results of format {header['format']}, but this version reads "
                f"{FORMAT}."
            )
        # results of earlier versions do not say whether the agent learned
        fields = {name: ({"learns": False} | header)[name] for name in HEADER}
        fields["needs"] = tuple(fields["needs"])
        return Results(**fields, episodes=tuple(_episode(row) for row in rows))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as problem:
        raise DataError(
            f"{source} contains no results of `sept-offline evaluate` ({one_line(problem):.200})."
        ) from problem


def _schema(width: int | None) -> pa.Schema:
    import pyarrow as pa

    numbers = pa.list_(pa.float64())
    action = pa.int64() if width is None else pa.list_(pa.float64(), width)
    return pa.schema(
        [
            *(
                (name, numbers if kind == "list" else pa.type_for_alias(kind))
                for name, kind in COLUMNS.items()
            ),
            ("action", pa.list_(action)),
            ("phase", pa.list_(pa.string())),
            ("reward", numbers),
            ("cumulative_reward", numbers),
            ("observation", pa.list_(numbers)),
        ]
    )


def episode_row(episode: EpisodeResult) -> dict[str, Any]:
    """The summary of one episode, as a table row."""
    row = {name: getattr(episode, COMPUTED.get(name, name)) for name in COLUMNS}
    return row | {"latent": None if episode.latent is None else list(episode.latent)}


def _row(episode: EpisodeResult) -> dict[str, Any]:
    return episode_row(episode) | {
        "action": list(episode.actions),
        "phase": list(episode.phases),
        "reward": list(episode.rewards),
        "cumulative_reward": list(episode.cumulative),
        "observation": _finite(episode.observations),
    }


def _finite(seen: tuple[tuple[float, ...], ...] | None) -> list[list[float | None]] | None:
    """JSON cannot represent non-finite numbers: they become null, which is read as NaN."""
    if seen is None:
        return None
    return [[value if math.isfinite(value) else None for value in row] for row in seen]


def _episode(row: dict[str, Any]) -> EpisodeResult:
    seen, steps = row.get("observation"), len(row["action"])
    if not steps or len(row["phase"]) != steps or len(row["reward"]) != steps:
        raise ValueError("an episode needs one action, phase and reward for each step")
    if seen is not None and (len(seen) != steps + 1 or len({len(values) for values in seen}) > 1):
        raise ValueError("an episode needs one observation more than steps, of equal width")
    fields = {name: row[name] for name in COLUMNS if name not in COMPUTED}
    fields["latent"] = None if row["latent"] is None else tuple(row["latent"])
    if seen is not None:
        seen = tuple(tuple(math.nan if v is None else v for v in values) for values in seen)
    return EpisodeResult(
        **fields,
        actions=tuple(_plain(action) for action in row["action"]),
        phases=tuple(row["phase"]),
        rewards=tuple(float(reward) for reward in row["reward"]),
        observations=seen,
    )
