"""Methods: what composes the stages into SEPT, its ablations and the baselines."""

from sept_offline.methods.config import FitConfig, resolve_config
from sept_offline.methods.fitting import METHODS, Epoch, Fitter, fit, fitter

__all__ = ["METHODS", "Epoch", "FitConfig", "Fitter", "fit", "fitter", "resolve_config"]
