"""Single Episode Policy Transfer from logged trajectories.

The names below are the public API; everything else may move. They are loaded when first used, so
that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_PUBLIC = {
    "Agent": "sept_offline.agent",
    "Box": "sept_offline.actions",
    "Dataset": "sept_offline.data",
    "DatasetWriter": "sept_offline.data",
    "Episode": "sept_offline.data",
    "DemarcateConfig": "sept_offline.settings",
    "Demarcation": "sept_offline.tools.demarcate",
    "Family": "sept_offline.family",
    "FitConfig": "sept_offline.settings",
    "Judgement": "sept_offline.tools.ope",
    "OpeConfig": "sept_offline.settings",
    "ImportMapping": "sept_offline.data",
    "Results": "sept_offline.evaluation",
    "Segments": "sept_offline.data",
    "SeptError": "sept_offline.errors",
    "check_family": "sept_offline.collect",
    "collect_dataset": "sept_offline.collect",
    "convert": "sept_offline.data",
    "demarcate_dataset": "sept_offline.tools.demarcate",
    "evaluate": "sept_offline.evaluation",
    "export": "sept_offline.deploy",
    "fit": "sept_offline.methods",
    "fitter": "sept_offline.methods",
    "from_minari": "sept_offline.data",
    "import_logs": "sept_offline.data",
    "inspect": "sept_offline.data",
    "judge": "sept_offline.tools.ope",
    "load_agent": "sept_offline.agent",
    "load_dataset": "sept_offline.data",
    "load_export": "sept_offline.deploy",
    "load_family": "sept_offline.family",
    "load_results": "sept_offline.evaluation",
    "merge": "sept_offline.data",
    "save_agent": "sept_offline.agent",
    "validate": "sept_offline.data",
    "write_report": "sept_offline.tools.report",
}

__all__ = sorted(_PUBLIC)

if TYPE_CHECKING:
    from sept_offline.actions import Box as Box
    from sept_offline.agent import Agent as Agent
    from sept_offline.agent import load_agent as load_agent
    from sept_offline.agent import save_agent as save_agent
    from sept_offline.collect import check_family as check_family
    from sept_offline.collect import collect_dataset as collect_dataset
    from sept_offline.data import Dataset as Dataset
    from sept_offline.data import DatasetWriter as DatasetWriter
    from sept_offline.data import Episode as Episode
    from sept_offline.data import ImportMapping as ImportMapping
    from sept_offline.data import Segments as Segments
    from sept_offline.data import convert as convert
    from sept_offline.data import from_minari as from_minari
    from sept_offline.data import import_logs as import_logs
    from sept_offline.data import inspect as inspect
    from sept_offline.data import load_dataset as load_dataset
    from sept_offline.data import merge as merge
    from sept_offline.data import validate as validate
    from sept_offline.deploy import export as export
    from sept_offline.deploy import load_export as load_export
    from sept_offline.errors import SeptError as SeptError
    from sept_offline.evaluation import Results as Results
    from sept_offline.evaluation import evaluate as evaluate
    from sept_offline.evaluation import load_results as load_results
    from sept_offline.family import Family as Family
    from sept_offline.family import load_family as load_family
    from sept_offline.methods import fit as fit
    from sept_offline.methods import fitter as fitter
    from sept_offline.settings import DemarcateConfig as DemarcateConfig
    from sept_offline.settings import FitConfig as FitConfig
    from sept_offline.settings import OpeConfig as OpeConfig
    from sept_offline.tools.demarcate import Demarcation as Demarcation
    from sept_offline.tools.demarcate import demarcate_dataset as demarcate_dataset
    from sept_offline.tools.ope import Judgement as Judgement
    from sept_offline.tools.ope import judge as judge
    from sept_offline.tools.report import write_report as write_report


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
