"""The harness: one episode of an agent in each instance, and the table of results."""

from sept_offline.evaluation.handle import SingleEpisode
from sept_offline.evaluation.harness import evaluate
from sept_offline.evaluation.references import (
    Reference,
    ReferencePolicies,
    load_references,
    normalise,
    play_references,
)
from sept_offline.evaluation.results import EpisodeResult, Results, load_results

__all__ = [
    "EpisodeResult",
    "Reference",
    "ReferencePolicies",
    "Results",
    "SingleEpisode",
    "evaluate",
    "load_references",
    "load_results",
    "normalise",
    "play_references",
]
