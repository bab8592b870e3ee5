"""Shared parts of torch training: layers, Gaussians, draws of rows, updates, snapshots."""
