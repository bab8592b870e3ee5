"""The CartPole of `docs/your-own-simulator.md`, from the file that the page shows."""

from __future__ import annotations

from tests.own_family.cartpole_family import cartpole as family

__all__ = ["family"]
