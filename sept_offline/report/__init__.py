"""One self-contained page: what was logged, what was learned, and how the one episode went."""

from sept_offline.report.building import write_report

__all__ = ["write_report"]
