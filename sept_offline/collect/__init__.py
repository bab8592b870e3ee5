"""Logging episodes of a family: behaviours, and the collection of a dataset."""

from sept_offline.collect.check import FamilyWarning, check_family
from sept_offline.collect.collection import collect_dataset
from sept_offline.collect.expert_files import load_expert, train_expert
from sept_offline.collect.recipe import ExpertConfig, Recipe, load_recipe

__all__ = [
    "ExpertConfig",
    "FamilyWarning",
    "Recipe",
    "check_family",
    "collect_dataset",
    "load_expert",
    "load_recipe",
    "train_expert",
]
