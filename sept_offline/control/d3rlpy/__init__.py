"""The only package that knows the internals of d3rlpy and of torch's fused kernels.

d3rlpy has the networks, the losses and the targets of every algorithm. `QNetworks.update` is one
update of value networks, `ActorCritic.update` one of an actor and its critics. Every parameter is a
view into one flat tensor, so that Adam, the target's interpolation and the average of the weights
are one fused pass each instead of a loop in Python. tests/control/test_d3rlpy.py says for which
versions this holds.
"""

from __future__ import annotations

import contextlib
import io

# d3rlpy imports legacy gym, which prints an irrelevant notice
with contextlib.redirect_stderr(io.StringIO()):
    import d3rlpy as _first  # noqa: F401

from sept_offline.control.d3rlpy.actor_critic import ActorCritic
from sept_offline.control.d3rlpy.adam import FlatAdam, flatten
from sept_offline.control.d3rlpy.algorithms import ALGORITHMS, drawing_from, minibatch, seeded
from sept_offline.control.d3rlpy.evaluation import Evaluation
from sept_offline.control.d3rlpy.networks import encoder_factory, layers_of, to_numpy
from sept_offline.control.d3rlpy.q_networks import Critic, QNetworks

__all__ = [
    "ALGORITHMS",
    "ActorCritic",
    "Critic",
    "Evaluation",
    "FlatAdam",
    "QNetworks",
    "drawing_from",
    "encoder_factory",
    "flatten",
    "layers_of",
    "minibatch",
    "seeded",
    "to_numpy",
]
