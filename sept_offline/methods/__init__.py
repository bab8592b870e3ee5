"""Methods: what composes the stages into SEPT, its ablations and the baselines."""

from sept_offline.methods.fitting import METHODS, Epoch, Fitter, fit, fitter
from sept_offline.methods.preset import resolve_config

__all__ = ["METHODS", "Epoch", "Fitter", "fit", "fitter", "resolve_config"]
