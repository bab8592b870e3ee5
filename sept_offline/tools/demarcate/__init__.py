"""Demarcation: instances proposed from the dynamics of episodes when their borders are unknown."""

from sept_offline.tools.demarcate.demarcation import Demarcation as Demarcation
from sept_offline.tools.demarcate.demarcation import demarcate_dataset as demarcate_dataset
