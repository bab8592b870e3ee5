"""Particulars of dpt: the w its policy learns with, and w as the episode goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import sept_offline as so
from sept_offline.dynamics.contexts import InferredContext
from sept_offline.errors import ConfigError
from sept_offline.methods.bayes import latents
from sept_offline.settings import DptConfig, merge
from tests.methods.check_method import SMALL
from tests.methods.two_step import log_two_step

BRIEF = merge(
    SMALL,
    {
        "dynamics": {"dim": 2, "hidden": [8], "updates": 60},
        "control": {"updates": 20},
        "dpt": {"every": 3, "infer_steps": 3},
    },
)


def test_the_policy_learns_with_each_instances_own_w_and_with_the_mean(tmp_path: Path) -> None:
    path = log_two_step(tmp_path / "t.h5", episodes=40)
    agent = so.fit(path, "dpt", BRIEF)
    assert isinstance(agent.context, InferredContext)
    model, config = agent.context.model, DptConfig(copies=400, unknown=0.25)
    with so.load_dataset(path) as data:
        contexts, instance, weights = latents(model, data, config, seed=0)
    assert contexts.shape == (2 * 401, 2)
    for code in (0, 1):
        own = instance == code
        assert weights[own].sum() == pytest.approx(1.0)
        unknown = own & (contexts == model.w_mean.mean(axis=0)).all(axis=1)
        assert weights[unknown].sum() == pytest.approx(0.25)
        drawn = contexts[own & ~unknown]
        spread = np.exp(0.5 * model.w_log_variance[code])
        assert np.allclose(drawn.mean(axis=0), model.w_mean[code], atol=0.2 * spread.max())
        assert np.allclose(drawn.std(axis=0), spread, rtol=0.15)


def test_w_is_inferred_every_few_steps_and_control_reads_it(tmp_path: Path) -> None:
    agent = so.fit(log_two_step(tmp_path / "t.h5", episodes=40), "dpt", BRIEF)
    context = agent.context
    assert isinstance(context, InferredContext)
    assert agent.learns and not agent.needs and agent.record["budget"] == "reduced"
    tracker = context.begin(0, None, agent.control)
    faces = np.random.default_rng(0).choice((-1.0, 1.0), size=10)
    vectors = []
    for time, face in enumerate(faces):
        assert tracker.step(np.array([face, time], dtype=np.float32)) is None
        assert tracker.latent is not None and tracker.control is None
        assert np.array_equal(tracker.vector, context.scaler(tracker.latent))
        vectors.append(tracker.vector.tobytes())
        tracker.took(agent.spaces.actions.encode(1))
    assert [t for t in range(1, 10) if vectors[t] != vectors[t - 1]] == [3, 6, 9]
    start = context.scaler(context.model.prior()[0])
    assert vectors[0] == start.tobytes()


@pytest.mark.parametrize("wrong", [{"every": 0}, {"unknown": 1.0}, {"copies": 0}])
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=f"dpt.{next(iter(wrong))}"):
        DptConfig(**wrong)  # type: ignore[arg-type]
