"""Whether this installation works, and what a bug report says about the machine it is on.

Nothing but the standard library is imported until a check needs it: what is broken is found, and
told, by the check that meets it.
"""

from sept_offline.doctor.examining import Examination, examine
from sept_offline.doctor.finding import Finding

__all__ = ["Examination", "Finding", "examine"]
