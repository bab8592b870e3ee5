"""The interface through which long-running work reports progress."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A listener to work in named parts."""

    def start(self, title: str, total: float, unit: str = "") -> None:
        """Start a part of `total` units."""
        ...

    def update(self, done: float, **metrics: float) -> None:
        """`done` units of the part are finished; `metrics` are what matters in it."""
        ...

    def finish(self) -> None:
        """The part is over."""
        ...

    def message(self, text: str) -> None:
        """One line that the user should read."""
        ...


class Silent:
    """The listener that ignores everything."""

    def start(self, title: str, total: float, unit: str = "") -> None:
        """Ignore."""

    def update(self, done: float, **metrics: float) -> None:
        """Ignore."""

    def finish(self) -> None:
        """Ignore."""

    def message(self, text: str) -> None:
        """Ignore."""
