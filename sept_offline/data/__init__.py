"""Logged episodes on disk: safe writing, lazy reading, validation, conversion."""

from sept_offline.data.dataset import Dataset, Episodes, load_dataset, opened
from sept_offline.data.exchange import convert, from_minari, merge
from sept_offline.data.records import (
    Episode,
    EpisodeIndex,
    HiddenTable,
    Metadata,
    Problem,
    Segments,
    Steps,
)
from sept_offline.data.summary import InstanceSummary, Summary, inspect
from sept_offline.data.validation import ValidationReport, read_dataset, validate
from sept_offline.data.writer import DatasetWriter

__all__ = [
    "Dataset",
    "DatasetWriter",
    "Episode",
    "EpisodeIndex",
    "Episodes",
    "HiddenTable",
    "InstanceSummary",
    "Metadata",
    "Problem",
    "Segments",
    "Steps",
    "Summary",
    "ValidationReport",
    "convert",
    "from_minari",
    "inspect",
    "load_dataset",
    "merge",
    "opened",
    "read_dataset",
    "validate",
]
