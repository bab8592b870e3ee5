"""Dynamics: a Bayesian network of (s, a, w) → s′ − s, what it infers, and plans made with it."""
