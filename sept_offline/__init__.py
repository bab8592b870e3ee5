"""Single Episode Policy Transfer from logged trajectories.

The names below are the public API; everything else may move. They are loaded when first used, so
that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Dataset": "sept_offline.data",
    "DatasetWriter": "sept_offline.data",
    "Episode": "sept_offline.data",
    "Family": "sept_offline.family",
    "Segments": "sept_offline.data",
    "SeptError": "sept_offline.errors",
    "check_family": "sept_offline.collect",
    "collect_dataset": "sept_offline.collect",
    "convert": "sept_offline.data",
    "from_minari": "sept_offline.data",
    "inspect": "sept_offline.data",
    "load_dataset": "sept_offline.data",
    "load_family": "sept_offline.family",
    "validate": "sept_offline.data",
}

__all__ = sorted(_PUBLIC)

if TYPE_CHECKING:
    from sept_offline.collect import check_family as check_family
    from sept_offline.collect import collect_dataset as collect_dataset
    from sept_offline.data import Dataset as Dataset
    from sept_offline.data import DatasetWriter as DatasetWriter
    from sept_offline.data import Episode as Episode
    from sept_offline.data import Segments as Segments
    from sept_offline.data import convert as convert
    from sept_offline.data import from_minari as from_minari
    from sept_offline.data import inspect as inspect
    from sept_offline.data import load_dataset as load_dataset
    from sept_offline.data import validate as validate
    from sept_offline.errors import SeptError as SeptError
    from sept_offline.family import Family as Family
    from sept_offline.family import load_family as load_family


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
