"""Import of tables of steps: streamed, repaired by rules, documented on a card."""

from sept_offline.tools.importing.logs import Imported, import_logs
from sept_offline.tools.importing.mapping import ImportMapping, mapping_from

__all__ = ["ImportMapping", "Imported", "import_logs", "mapping_from"]
