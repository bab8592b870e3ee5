"""The report: one HTML page about what was logged, what was learned, and the test episodes."""

from sept_offline.tools.report.report import write_report

__all__ = ["write_report"]
