"""What of a family decides the figures of a bench, so that one that has changed is noticed."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from sept_offline.family import Family


def logged_world(family: Family, split: str) -> dict[str, Any]:
    """Where logs are collected: the hidden parameters of a split, and the limit of an episode."""
    return {"logged": _digest(family, split), "train_steps": family.train_steps}


def tested_world(family: Family, split: str) -> dict[str, Any]:
    """Where an agent is tested: the same of the test episodes."""
    return {"tested": _digest(family, split), "test_steps": family.test_steps}


def _digest(family: Family, split: str) -> str:
    """Of the hidden parameters of a split, instance by instance."""
    hidden = [
        {name: float(value) for name, value in one.items()} for one in family.instances(split)
    ]
    return hashlib.sha256(json.dumps(hidden, sort_keys=True).encode()).hexdigest()[:16]
