"""Logged episodes on disk: written safely, read lazily, validated, handed to other libraries."""

from sept_offline.data.dataset import Dataset, Episodes, load_dataset
from sept_offline.data.records import (
    Episode,
    EpisodeIndex,
    HiddenTable,
    Metadata,
    Problem,
    Segments,
    Steps,
)
from sept_offline.data.writer import DatasetWriter

__all__ = [
    "Dataset",
    "DatasetWriter",
    "Episode",
    "EpisodeIndex",
    "Episodes",
    "HiddenTable",
    "Metadata",
    "Problem",
    "Segments",
    "Steps",
    "load_dataset",
]
