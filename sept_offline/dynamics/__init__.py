"""Dynamics: a Bayesian network of (s, a, w) → s′ − s, what it infers, and plans made with it.

Settings are read without torch; it is loaded with the modules that learn.
"""

from sept_offline.dynamics.config import BnnConfig, DptConfig, DynamicsConfig

__all__ = ["BnnConfig", "DptConfig", "DynamicsConfig"]
