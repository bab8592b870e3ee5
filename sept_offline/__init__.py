"""Single Episode Policy Transfer from logged trajectories.

The names below are the public API; everything else may move. They are loaded when first used, so
that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_MODULES = {
    "actions": "Box",
    "agent": "Agent load_agent save_agent",
    "collect": "check_family collect_dataset",
    "data": "Dataset DatasetWriter Episode Segments convert from_minari inspect load_dataset merge "
    "validate",
    "errors": "SeptError",
    "evaluation": "Results evaluate load_results",
    "family": "Family load_family",
    "methods": "fit fitter",
    "settings": "DemarcateConfig FitConfig OpeConfig",
    "tools.demarcate": "Demarcation demarcate_dataset",
    "tools.deploy": "export load_export",
    "tools.importing": "ImportMapping import_logs",
    "tools.ope": "Judgement judge",
    "tools.report": "write_report",
}
_PUBLIC = {name: module for module, names in _MODULES.items() for name in names.split()}

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
    from sept_offline.data import Segments as Segments
    from sept_offline.data import convert as convert
    from sept_offline.data import from_minari as from_minari
    from sept_offline.data import inspect as inspect
    from sept_offline.data import load_dataset as load_dataset
    from sept_offline.data import merge as merge
    from sept_offline.data import validate as validate
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
    from sept_offline.tools.deploy import export as export
    from sept_offline.tools.deploy import load_export as load_export
    from sept_offline.tools.importing import ImportMapping as ImportMapping
    from sept_offline.tools.importing import import_logs as import_logs
    from sept_offline.tools.ope import Judgement as Judgement
    from sept_offline.tools.ope import judge as judge
    from sept_offline.tools.report import write_report as write_report


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})
