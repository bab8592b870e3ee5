"""Deployment of an agent: ONNX graphs, a NumPy export, and a JSON Lines protocol."""

from sept_offline.deploy.exports import Exported, export, load_export
from sept_offline.deploy.lines import Lines

__all__ = ["Exported", "Lines", "export", "load_export"]
