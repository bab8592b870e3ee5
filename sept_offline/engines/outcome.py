"""The outcome of a task."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sept_offline.errors import EngineError, SeptError, SimulatorError, one_line
from sept_offline.threads import one_thread

Task = TypeVar("Task")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Outcome(Generic[Task, Result]):
    """One task, done or given up."""

    task: Task
    value: Result | None
    """The function's result; None if it failed."""
    error: str | None
    """One line that says what went wrong; None if nothing did."""
    attempts: int
    """How often the task was started."""
    exception: Exception | None = field(default=None, repr=False, compare=False)
    """The error itself, if the worker survived to return it."""

    def result(self) -> Result:
        """The value, or the error raised."""
        if self.error is not None:
            raise self.exception or EngineError(self.error)
        return self.value  # type: ignore[return-value]


@dataclass(frozen=True)
class Attempt:
    """One attempt at a task: picklable for any error."""

    value: Any
    error: str | None = None
    exception: Exception | None = None
    final: bool = True
    """Whether the task must not be tried again: it succeeded, or its input is invalid."""

    def outcome(self, task: Task, attempts: int) -> Outcome[Task, Any]:
        """What became of the task if this was the last of `attempts`."""
        return Outcome(task, self.value, self.error, attempts, self.exception)


def attempt(function: Callable[[Any], Any], task: Any) -> Attempt:
    """Call `function` on one thread; errors are caught and described."""
    try:
        with one_thread():
            return Attempt(function(task))
    except Exception as error:
        final = isinstance(error, SeptError) and not isinstance(error, SimulatorError)
        return Attempt(None, describe(error), portable(error), final=final)


def describe(error: BaseException) -> str:
    """One line: a mistake of the user's in its own words, anything else with its place."""
    if isinstance(error, SeptError):
        return str(error)
    words = one_line(error)
    text = f"{type(error).__name__}: {words}" if words else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    return f"{text} (in {frames[-1].name}, {frames[-1].filename}:{frames[-1].lineno})"


def portable(error: Exception) -> Exception | None:
    """The error if it survives a trip between processes, else None."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return None
    return error
