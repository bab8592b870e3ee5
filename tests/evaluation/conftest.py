"""Lets the tests of this folder find navigation_agents, whatever way pytest imports them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
