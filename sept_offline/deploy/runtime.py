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
from pathlib import Path

_modules = Path(__file__).with_name("modules")
# A module with a path is a package: `modules/` holds this one's submodules, whatever its name.
__path__ = [str(_modules)]
# Where there is no such folder, this is the library itself.
_home = __name__ if _modules.is_dir() else "sept_offline"
_exported = importlib.import_module(f"{_home}.agent.exported")

Agent, Episode = _exported.ExportedAgent, _exported.ExportedEpisode
AgentError = _exported.AgentError
load = _exported.load
