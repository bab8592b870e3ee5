"""Deployment of an agent: ONNX graphs, a NumPy export, and a JSON Lines protocol."""

from sept_offline.tools.deploy.exports import Exported, export, load_export
from sept_offline.tools.deploy.lines import Lines

__all__ = ["Exported", "Lines", "export", "load_export"]
