"""Whether this installation works, and what a bug report says about the machine it is on.

Only the standard library is imported until a check needs more, so a broken library is reported by
its own check.
"""

from sept_offline.tools.doctor.checks import Finding
from sept_offline.tools.doctor.examination import Examination, examine

__all__ = ["Examination", "Finding", "examine"]
