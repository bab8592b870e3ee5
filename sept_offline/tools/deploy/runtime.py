"""The entry point of an exported agent, which needs NumPy only.

The folder of this file also contains `manifest.json`, `weights.npz` and the code in `modules/`. In
an episode:

    from runtime import load
    agent = load("the folder of this file")
    episode = agent.begin(seed=0)
    action = episode.act(observation)       # or act(observation, mask=[True, False, …])

An episode has `phase`, `latent`, `uncertainty`, `novelty`, `flagged` and `out_of_range`. The same
seed and the same observations give the same actions as the library the agent came from.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

_modules = Path(__file__).with_name("modules")
if _modules.is_dir():
    # A module with a path is a package: `modules/` holds this one's submodules, whatever its name.
    __path__ = [str(_modules)]
    if __name__ not in sys.modules:  # loaded from its path, by hand
        sys.modules[__name__] = ModuleType(__name__)
        sys.modules[__name__].__path__ = __path__
    _home = __name__
elif _modules.with_name("manifest.json").exists():
    raise ImportError(f"{_modules} is missing; copy the whole folder of the export.")
else:  # this is the library itself
    _home = "sept_offline"
_exported = importlib.import_module(f"{_home}.agent.exported")

Agent, Episode = _exported.ExportedAgent, _exported.ExportedEpisode
AgentError = _exported.AgentError
load = _exported.load
