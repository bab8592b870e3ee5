"""What the parts of an agent store, and that all of it is read back."""

from __future__ import annotations

import inspect

import pytest

from sept_offline.agent import AdaptedContext, Novelty
from sept_offline.agent.contexts import FORWARD, context_from_arrays
from sept_offline.agent.contexts.candidates import CandidateContext
from sept_offline.agent.encoders import ENCODERS
from sept_offline.agent.novelty import TransitionDecoder
from sept_offline.agent.probes import PROBES
from sept_offline.agent.records import Record
from sept_offline.agent.rewards import RewardForm
from sept_offline.errors import AgentError
from tests.agent import builders

OTHERS = (AdaptedContext, CandidateContext, Novelty, RewardForm, TransitionDecoder)
RECORDS = (*FORWARD.values(), *ENCODERS.values(), *PROBES.values(), *OTHERS)


@pytest.mark.parametrize("kind", RECORDS)
def test_every_argument_of_a_record_is_stored(kind: type[Record]) -> None:
    names = [each.name for each in kind.stored if each.reader is not None]
    assert sorted(names) == sorted(inspect.signature(kind).parameters)
    assert set(kind.earlier) <= {
        getattr(each, "flag", "") or each.key or each.name for each in kind.stored
    }


@pytest.mark.parametrize("method", ["sept", "refined", "unprobed", "sept-np"])
@pytest.mark.parametrize("name", ["probe_steps", "latent_dim"])
def test_a_description_may_not_contradict_what_is_computed(method: str, name: str) -> None:
    context = builders.make_agent(method).context
    arrays, description = context.to_arrays("c"), context.describe()
    assert context_from_arrays(arrays, description, "c").describe() == description
    if name in description:
        with pytest.raises(AgentError, match=f"'{name}' in the agent's description contradicts"):
            context_from_arrays(arrays, description | {name: 7}, "c")
