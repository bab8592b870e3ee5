"""Somebody's table of steps as a dataset: read as a stream, mended by rule, told on a card."""

from sept_offline.data.importing.logs import Imported, import_logs
from sept_offline.data.importing.mapping import ImportMapping, mapping_from

__all__ = ["ImportMapping", "Imported", "import_logs", "mapping_from"]
