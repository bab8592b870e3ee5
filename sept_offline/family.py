"""The `Family` record, and the lookup of families by name."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import math
import sys
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sept_offline.errors import FamilyError

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.vector import VectorEnv

Hidden = Mapping[str, float]
ENTRY_POINTS = "sept_offline.families"
SPLITS = ("train", "validation", "test")
"""The splits that every family has; it may have more."""


@dataclass(frozen=True)
class Family:
    """A set of instances that share states, actions and rewards and differ in hidden parameters.

    `make(hidden)` returns an environment without a time limit (or with a generous one): the
    library applies `train_steps` while logging and `test_steps` in the test episode.
    `make_vec(hiddens, max_episode_steps)` returns a vectorised environment, one row per hidden
    dict, that applies the limit itself and resets on the next step. Without it, copies of `make`
    are stepped in turn.
    """

    name: str
    """Name used in files and tables."""
    make: Callable[[Hidden], gymnasium.Env[Any, Any]]
    """From hidden parameters to an environment with Discrete actions or a bounded Box of them."""
    splits: Mapping[str, Sequence[Hidden]]
    """Named lists of instances, each a dict of hidden parameters: train, validation, test, …"""
    train_steps: int
    """Limit of a logged episode."""
    test_steps: int
    """Limit of the test episode."""
    probe_steps: int
    """T_p, the number of first steps that identify the instance."""
    latent_dim: int
    """Number of latent dimensions."""
    solved: float | None = None
    """The reward of a step that solves the task; None if undefined."""
    make_vec: Callable[[Sequence[Hidden], int], VectorEnv[Any, Any, Any]] | None = None
    """A true batch of environments, if there is one."""
    observation_names: tuple[str, ...] | None = None
    """`[d]`"""
    action_names: tuple[str, ...] | None = None
    """`[A]`, or `[k]` for the components of a box"""
    recipe: Path | None = None
    """The TOML file with the defaults of `collect`."""
    experts: Path | None = None
    """A folder of trained experts, `<seed>.safetensors`, that `collect` uses in place of training
    where family, recipe and seed are those they were made with."""
    references: Path | None = None
    """A JSON file with the random and the best known return of each instance."""
    published: Mapping[str, float] = field(default_factory=dict)
    """Published steps to solve for each method, shown next to measured ones."""
    scene: Callable[[Hidden], Mapping[str, Any]] | None = None
    """How `report` draws an episode in an instance; kinds: see `tools/report/episodes.py`."""
    extra: str | None = None
    """The extra of sept-offline whose packages `make` needs."""
    benched: bool = True
    """Whether `bench` includes it if no family is named."""

    def instances(self, split: str = "train") -> list[dict[str, float]]:
        """The hidden parameters of a split, in order; instance i has the id "<split>-<i>"."""
        if split not in self.splits:
            known = ", ".join(sorted(self.splits))
            raise FamilyError(
                f"Family {self.name!r} has no split {split!r}{suggest(split, self.splits)}; "
                f"its splits are {known}."
            )
        return [
            self._plain(f"{split}-{index}", hidden)
            for index, hidden in enumerate(self.splits[split])
        ]

    def _plain(self, instance: str, hidden: Any) -> dict[str, float]:
        """The hidden parameters of an instance as a dict of Python's own numbers."""
        where = f"Family {self.name!r}, instance {instance}"
        if not isinstance(hidden, Mapping) or not all(isinstance(name, str) for name in hidden):
            raise FamilyError(
                f"{where}: {hidden!r:.80} is not a dict of hidden parameters by name."
            )
        plain: dict[str, float] = {}
        for name, value in hidden.items():
            # NumPy's numbers, and arrays of a single one, have `item`
            number = value.item() if getattr(value, "size", 0) == 1 else value
            if not _is_finite(number):
                raise FamilyError(
                    f"{where}: the hidden parameter {name!r} is {value!r:.80}; hidden parameters "
                    "must be finite numbers; encode a category as one parameter per value, 0 or "
                    "1 each (one-hot), and decode them in make()."
                )
            # others that have a value, such as a Fraction, do not fit into a file
            plain[name] = number if isinstance(number, int | float) else float(number)
        return plain

    @property
    def hidden_names(self) -> list[str]:
        """The names of all hidden parameters of the training instances, in order."""
        training = self.instances("train") if "train" in self.splits else []
        return sorted({name for hidden in training for name in hidden})

    def instance_ids(self, split: str = "train") -> list[str]:
        """The ids of a split's instances, in order."""
        return [f"{split}-{index}" for index in range(len(self.instances(split)))]


def _is_finite(number: Any) -> bool:
    """Whether it is a finite number that a float can hold; text that spells one does not count."""
    try:
        return hasattr(number, "__float__") and math.isfinite(number)
    except (TypeError, ValueError, OverflowError):
        return False


def suggest(word: str, known: Any) -> str:
    """', did you mean …?' for the nearest of `known`, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def family_names() -> list[str]:
    """The names under which installed packages have registered families."""
    return sorted(_registered(tuple(sys.path)))


def load_object(spec: str, what: str) -> Any:
    """The object that `package.module:object` names."""
    module_name, _, attribute = spec.partition(":")
    try:
        target: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            target = getattr(target, part)
    # The module is the user's: report any error in it.
    except (Exception, SystemExit) as error:
        raise FamilyError(
            f"Cannot load the {what} {spec!r}: {type(error).__name__}: {error}."
        ) from error
    return target


@functools.lru_cache(maxsize=8)
def _registered(_: tuple[str, ...]) -> dict[str, importlib.metadata.EntryPoint]:
    """Registered families by name; cached, because scanning packages takes tens of milliseconds."""
    return {p.name: p for p in importlib.metadata.entry_points(group=ENTRY_POINTS)}


def load_family(spec: str | Family) -> Family:
    """A family by its registered name or as `package.module:object`; a record is returned as is.

    `package.module:object` imports code, so never pass a name that was read from a file.
    """
    if isinstance(spec, str) and ":" not in spec:
        return registered_family(spec)
    record = load_object(spec, "family") if isinstance(spec, str) else spec
    _check_record(spec, record)
    _handed_in[record.name] = record
    return record


def known_family(name: str, recorded: object = None) -> Family:
    """A family by a name from a file: the name never imports code.

    Registered names are looked up, then families that the user has named in this process.
    `recorded` is the `package.module:object` that the file names, for the sentence alone.
    """
    if not isinstance(name, str):
        raise FamilyError(f"A family's name must be a string, found {name!r:.80}.")
    if name in _registered(tuple(sys.path)):
        return registered_family(name)
    if name in _handed_in:
        return _handed_in[name]
    hint = f" (the file names {recorded!r:.120})" if recorded else ""
    raise FamilyError(
        f"The family {name!r:.120} is not registered, and files may not import "
        f"code{hint}; if you trust its module, pass --family my_module:my_family."
    )


_handed_in: dict[str, Family] = {}
"""Families that are not registered and that the user named in this process, by their names."""


def registered_family(name: str) -> Family:
    """The family that an installed package has registered under `name`."""
    points = _registered(tuple(sys.path))
    if name not in points:
        raise FamilyError(
            f"There is no family {name!r}{suggest(name, points)}; "
            f"expected one of {', '.join(sorted(points)) or 'none'}, "
            "or your own as package.module:object."
        )
    loaded = points[name].load()
    _check_record(name, loaded)
    record: Family = loaded
    return record


def _check_record(spec: object, record: object) -> None:
    if not isinstance(record, Family):
        raise FamilyError(f"{spec!r} is a {type(record).__name__}, not a sept_offline.Family.")
    if not isinstance(record.name, str) or not record.name:
        raise FamilyError(f"A family's name must be a string, found {record.name!r:.80}.")
    splits = record.splits
    # A generator would be empty when it is read for the second time.
    if not isinstance(splits, Mapping) or not all(isinstance(s, Sized) for s in splits.values()):
        raise FamilyError(
            f"Family {record.name!r}: splits must be a dict of lists of hidden dicts."
        )
    for name in ("train_steps", "test_steps", "probe_steps", "latent_dim"):
        value = getattr(record, name)
        if not isinstance(value, int) or value < 1:
            raise FamilyError(
                f"Family {record.name!r}: {name} is {value!r}; expected a whole number of at "
                "least 1."
            )
