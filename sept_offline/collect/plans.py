"""The plan of a collection: whose shards, parts and dataset these are, by its digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sept_offline.errors import DataError


def plan_digest(plan: Mapping[str, Any]) -> str:
    """One digest for each plan, however its file spells it."""
    text = json.dumps(plan, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def parse_plan(text: str | bytes, where: object) -> dict[str, Any]:
    """The plan that a file holds; a DataError where it is damaged."""
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError(f"expected an object, found {type(found).__name__}")
    except (ValueError, RecursionError) as error:
        words = " ".join(str(error).split())
        raise DataError(
            f"The plan of the collection at {where} is damaged ({words:.200}); add --restart to "
            "discard the collection."
        ) from error
    return found


def check_plan(found: Mapping[str, Any], wanted: Mapping[str, Any], where: object) -> None:
    """Refuse to continue what another plan began."""
    if plan_digest(found) == plan_digest(wanted):
        return
    different = [key for key in wanted if key not in found or found[key] != wanted[key]]
    raise DataError(
        f"{where} was started with another {', '.join(different) or 'version'}; resume with the "
        "same arguments, or add --restart to discard it."
    )
