"""Makes this folder's builders importable, and hands them to the tests."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def builders() -> ModuleType:
    """The module of small agents beside this file."""
    name = "sept_offline_test_agents"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / "builders.py")
        if spec is None or spec.loader is None:
            raise ImportError("builders.py is missing")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]
