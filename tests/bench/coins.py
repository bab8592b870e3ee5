"""Families for small benches: a coin whose answer is known by hand, and three that go wrong."""

from __future__ import annotations

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

from sept_offline.family import Family, Hidden
from sept_offline.tools.bench.store import TABLES, read_table
from tests.methods.two_step import TwoStep, two_step

HERE = "tests.bench.coins"
COIN, BROKEN, SHAKY, DEADLY = (f"{HERE}:{name}" for name in ("coin", "broken", "shaky", "deadly"))
SMALL = (
    "control.hidden=[16]",
    "control.updates=10",
    "control.reward_form=raw",
    "latent.updates=5",
    "latent.hidden=16",
    "probe.steps=5",
    "probe.use=always",
    "stack=1",
    "episodes=40",
)
"""Settings with which a fit takes moments."""
MARK = "SEPT_TESTS_SHAKY"
TIMES = {"act_microseconds", "seconds", "fit_seconds", "fit_cpu_seconds", "test_seconds"}


def tables(out: Path) -> dict[str, Any]:
    """All that a bench gathers, without times."""
    return {
        name: [
            {key: value for key, value in row.items() if key not in TIMES}
            for row in read_table(out, name)
        ]
        for name in TABLES
    }


class Breaking(TwoStep):
    """A test instance that cannot be played."""

    def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
        raise RuntimeError("the coin rolled under the table")


class Shaking(TwoStep):
    """A test instance that cannot be played the first time anyone tries."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        mark = Path(os.environ[MARK])
        if not mark.exists():
            mark.touch()
            raise RuntimeError("the table shook")
        return super().reset(**options)


class Killing(TwoStep):
    """A test instance that takes its whole process down the first time anyone tries."""

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        mark = Path(os.environ[MARK])
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().reset(**options)


def _make(kind: type[TwoStep], hidden: Hidden) -> TwoStep:
    return (kind if "wrong" in hidden else TwoStep)(hidden)


def make_broken(hidden: Hidden) -> TwoStep:
    return _make(Breaking, hidden)


def make_shaky(hidden: Hidden) -> TwoStep:
    return _make(Shaking, hidden)


def make_deadly(hidden: Hidden) -> TwoStep:
    return _make(Killing, hidden)


def make_lost(hidden: Hidden) -> TwoStep:
    raise RuntimeError("the coin is lost")


def _family(name: str, **changed: Any) -> Family:
    family = two_step()
    test: list[Hidden] = list(family.splits["test"])[:4]
    if changed:
        test[1] = {**test[1], "wrong": 1.0}
    return dataclasses.replace(family, name=name, splits={**family.splits, "test": test}, **changed)


coin = _family("coin")
broken = _family("broken", make=make_broken)
shaky = _family("shaky", make=make_shaky)
deadly = _family("deadly", make=make_deadly)
