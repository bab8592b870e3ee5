"""Where independent pieces of work run."""

from sept_offline.engines.local import run_local

__all__ = ["run_local"]
