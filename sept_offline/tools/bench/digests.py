"""Digests of a family's instances, by which a bench notices that a family has changed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sept_offline.family import Family


def logged_world(family: Family, split: str) -> dict[str, Any]:
    """For the logs: hidden parameters of the split they come from, and the limit of steps."""
    return {"logged": _digest(family, split), "train_steps": family.train_steps}


def tested_world(family: Family, split: str) -> dict[str, Any]:
    """The same for the test episodes."""
    return {"tested": _digest(family, split), "test_steps": family.test_steps}


def _digest(family: Family, split: str) -> str:
    """Hash of the hidden parameters of a split, instance by instance."""
    hidden = [
        {name: float(value) for name, value in values.items()} for values in family.instances(split)
    ]
    return hashlib.sha256(json.dumps(hidden, sort_keys=True).encode()).hexdigest()[:16]
