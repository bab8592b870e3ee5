"""Workers import what they run: the folder of these tests is on their path too."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
