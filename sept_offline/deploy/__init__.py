"""An agent out of Python's hands: ONNX graphs, modules for NumPy alone, and lines of JSON."""

from sept_offline.deploy.exports import Exported, export, load_export
from sept_offline.deploy.lines import Lines

__all__ = ["Exported", "Lines", "export", "load_export"]
