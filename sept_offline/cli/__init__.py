"""The `sept-offline` command: a thin layer, each command over one function of the library."""

from sept_offline.cli.main import main

__all__ = ["main"]
