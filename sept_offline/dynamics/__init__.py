"""Learned dynamics: a Bayesian network of (s, a, w) → s′ − s, inference of w, and planning."""
