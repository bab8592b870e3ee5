"""The model learns what instances differ in; an episode infers it from a few steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from sept_offline.actions import Finite
from sept_offline.agent import Control
from sept_offline.agent.networks import MLP, Standardiser
from sept_offline.control.learner import Learner
from sept_offline.data.records import Steps
from sept_offline.dynamics.bayesian import DynamicsStage
from sept_offline.dynamics.columns import Columns, Reader, find_angles
from sept_offline.dynamics.contexts import Planner, PlanningContext
from sept_offline.dynamics.model import Belief, Fiction, Model
from sept_offline.dynamics.outcome import OutcomeStage
from sept_offline.errors import AgentError, ConfigError
from sept_offline.methods.bayes import states_of
from sept_offline.settings import BnnConfig, ControlConfig, DynamicsConfig
from sept_offline.threads import one_thread
from tests.latent.tiny import ACTIONS, SPACE, STRENGTH, episodes
from tests.margins import Margins

SMALL = DynamicsConfig(
    dim=2,
    hidden=(32,),
    updates=700,
    batch_size=64,
    learning_rate=1e-2,
    outcome_hidden=(32, 32),
    outcome_updates=500,
    outcome_batch=128,
    outcome_rate=5e-3,
)
CONTROL = ControlConfig(
    hidden=(32, 32),
    learning_rate=5e-3,
    gamma=0.5,
    target_rate=0.1,
    average_decay=0.9,
    average_every=1,
)
PLAN = BnnConfig(episodes=32, horizon=8, updates=100)


def encoded(actions: Any) -> torch.Tensor:
    return torch.from_numpy(SPACE.encode(np.asarray(actions)))


@pytest.fixture(scope="module", autouse=True)
def single() -> Iterator[None]:
    """As in an episode, where bits must not depend on idle cores."""
    with one_thread():
        yield


@pytest.fixture(scope="module")
def steps() -> Steps:
    return episodes(per=60, length=6, seed=1)[0]


@pytest.fixture(scope="module")
def trained(steps: Steps, training_seed: int) -> tuple[DynamicsStage, float]:
    """And the share of the changes that it leaves unexplained."""
    columns = Columns.fit(steps)
    stage = DynamicsStage(
        steps, columns, SMALL, training_seed, space=SPACE, num_instances=len(STRENGTH)
    )
    return stage, stage.advance(SMALL.updates)["unexplained"]


@pytest.fixture(scope="module")
def model(steps: Steps, trained: tuple[DynamicsStage, float]) -> Model:
    stage, _ = trained
    stage.dynamics.requires_grad_(False)
    return Model(
        Columns.fit(steps),
        stage.dynamics,
        stage.posteriors.mean.detach().numpy(),
        stage.posteriors.log_variance.detach().numpy(),
        SMALL.alpha,
    )


@pytest.fixture(scope="module")
def paid(steps: Steps, training_seed: int) -> tuple[OutcomeStage, float]:
    """Pays the first coordinate that is reached; and the error of what it says."""
    rewards, ended = steps.observations[steps.row + 1][:, 0], steps.terminations
    columns = Columns.fit(steps)
    stage = OutcomeStage(steps, rewards, ended, columns, SMALL, training_seed, space=SPACE)
    return stage, stage.advance(SMALL.outcome_updates)["reward_error"]


@pytest.fixture(scope="module")
def fiction(steps: Steps, paid: tuple[OutcomeStage, float]) -> Fiction:
    stage, _ = paid
    stage.outcome.requires_grad_(False)
    states = steps.observations[steps.row]
    return Fiction(stage.outcome, states[steps.time == 0], states)


def believe(model: Model, instance: int, count: int = 6, seed: int = 0) -> Belief:
    """What an episode of fresh steps leads to."""
    belief = Belief(model, seed, samples=8)
    _, seen = episodes(per=8, length=6, seed=9)
    mine = np.flatnonzero(seen.instance == instance)
    shown = 0
    for row in mine:
        for time in np.flatnonzero(seen.actions[row] == 1):
            if shown < count:
                observations = seen.observations[row]
                belief.see(observations[time], 1, observations[time + 1])
                shown += 1
    assert shown == count
    belief.infer(60, 0.05)
    return belief


def pushed(model: Model, w: np.ndarray[tuple[int], np.dtype[np.float32]]) -> float:
    """How far action 1 pushes the first coordinate, under w."""
    dynamics = model.dynamics
    state = torch.tensor([[0.0, 0.0, 7.0]])
    known = dynamics.known(state, encoded([1]))
    change = dynamics.predict(
        known, torch.from_numpy(w).view(1, 1, -1), dynamics.network.mean.unsqueeze(0)
    )
    return float(dynamics.reader.after(state, change[0])[0, 0])


def test_changes_and_rewards_are_explained(
    trained: tuple[DynamicsStage, float], paid: tuple[OutcomeStage, float], margin: Margins
) -> None:
    margin("unexplained", trained[1], below=0.1)
    margin("reward error", paid[1], below=0.05)


def test_w_of_the_training_instances_is_what_they_differ_in(model: Model, margin: Margins) -> None:
    off = [pushed(model, w) - strength for w, strength in zip(model.w_mean, STRENGTH, strict=True)]
    margin("largest error", np.abs(off).max(), below=0.15)


@pytest.mark.parametrize("instance", range(len(STRENGTH)))
def test_a_few_steps_tell_the_instance(
    model: Model, instance: int, training_seed: int, margin: Margins
) -> None:
    before = Belief(model, training_seed, samples=8)
    after = believe(model, instance, seed=training_seed)
    margin("error", abs(pushed(model, after.mean) - STRENGTH[instance]), below=0.15)
    margin("spread left", after.spread / before.spread, below=1)
    distance = np.linalg.norm(model.w_mean - after.mean, axis=1)
    margin("to its own", distance[instance] / np.delete(distance, instance).min(), below=1)


def test_an_instance_between_those_of_the_logs_is_found_between_them(
    model: Model, training_seed: int, margin: Margins
) -> None:
    belief = Belief(model, training_seed, samples=8)
    for start in np.linspace(-0.5, 0.5, 6, dtype=np.float32):
        before = np.array([start, 0.0, 7.0], dtype=np.float32)
        belief.see(before, 1, before + np.array([0.7, 0, 0], dtype=np.float32))
    belief.infer(150, 0.05)
    margin("pushed", pushed(model, belief.mean), above=0.5, below=0.9)


def test_tuning_moves_the_network_of_the_episode_alone(
    model: Model, training_seed: int, margin: Margins
) -> None:
    fitted = model.dynamics.network.mean.clone()
    belief = Belief(model, training_seed, samples=8)
    for start in np.linspace(-0.5, 0.5, 6, dtype=np.float32):
        # pushed the other coordinate's way too, which no w explains
        here = np.array([start, 0.0, 7.0], dtype=np.float32)
        belief.see(here, 1, here + np.array([0.5, 0.5, 0], dtype=np.float32))
    belief.infer(60, 0.05)
    before = [part.clone() for part in belief._weights]
    assert torch.equal(before[0], fitted)

    def energy() -> float:
        belief._rng.manual_seed(1)
        with torch.no_grad():
            return float(torch.stack([belief._energy() for _ in range(50)]).mean())

    untuned = energy()
    belief.tune(60, 1e-2)
    assert all(
        not torch.equal(part, one) for part, one in zip(belief._weights, before, strict=True)
    )
    margin("energy left", energy() / untuned, below=0.9)
    assert torch.equal(model.dynamics.network.mean, fitted)


def test_a_seed_repeats_and_another_does_not(model: Model) -> None:
    same = [believe(model, 1, seed=3).mean.tobytes() for _ in range(2)]
    assert same[0] == same[1] != believe(model, 1, seed=4).mean.tobytes()


def test_a_snapshot_continues_bit_for_bit(steps: Steps) -> None:
    def fresh() -> DynamicsStage:
        short = replace(SMALL, updates=20)
        columns = Columns.fit(steps)
        return DynamicsStage(steps, columns, short, 0, space=SPACE, num_instances=4)

    whole, first, second = fresh(), fresh(), fresh()
    whole.advance(20)
    first.advance(7)
    second.restore(first.state())
    second.advance(13)
    ours, theirs = second.state().tensors, whole.state().tensors
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    # by these names snapshots of older versions are resumed
    heads = {name.partition(".")[0] for name in theirs}
    assert heads == {"dynamics", "posteriors", "optimiser", "rng"}


def test_the_outcome_knows_where_episodes_end(
    steps: Steps, training_seed: int, margin: Margins
) -> None:
    after = steps.observations[steps.row + 1][:, 0]
    ended = after > 1
    rewards = np.where(ended, 10.0, -0.1)
    columns = Columns.fit(steps)
    stage = OutcomeStage(steps, rewards, ended, columns, SMALL, training_seed, space=SPACE)
    stage.advance(SMALL.outcome_updates)
    before = torch.tensor([[0.6, 0.0, 7.0], [0.3, 0.0, 7.0]])
    reached = before + torch.tensor([1.0, 0.0, 0.0]) * torch.tensor([[1.0], [0.3]])
    with torch.no_grad():
        paid, ends = stage.outcome.predict(before, encoded([1, 1]), reached)
    assert ends.tolist() == [1, 0]
    margin("reward error", np.abs(paid.numpy() - [10.0, -0.1]).max(), below=0.1)


def test_rare_ends_are_not_made_likelier_than_they_are(
    steps: Steps, training_seed: int, margin: Margins
) -> None:
    """A tenth of the steps from a tenth of the states end: seldom, whatever minibatches hold."""
    rng = np.random.default_rng(0)
    count = 8000
    risky = (rng.random(count) < 0.1).astype(np.float32)
    ended = (risky == 1) & (rng.random(count) < 0.1)
    pairs = np.stack([risky, rng.normal(size=count), np.full(count, 7.0)], axis=1)
    whole = replace(
        steps,
        observations=np.repeat(pairs, 2, axis=0).astype(np.float32),
        row=2 * np.arange(count),
        actions=rng.integers(ACTIONS, size=count),
        instance=np.zeros(count, dtype=np.int64),
    )
    rewards, columns = rng.normal(size=count), Columns.fit(whole)
    stage = OutcomeStage(whole, rewards, ended, columns, SMALL, training_seed, space=SPACE)
    stage.advance(SMALL.outcome_updates)
    before, actions = torch.from_numpy(whole.observations[::2]), encoded(whole.actions)
    with torch.no_grad():
        _, logit = stage.outcome(stage.outcome.features(before, actions, before))
        _, ends = stage.outcome.predict(before, actions, before)
    chance = torch.sigmoid(logit).numpy()
    margin("risky", chance[risky == 1].mean(), above=0.06, below=0.14)
    margin("safe", chance[risky == 0].mean(), below=0.01)
    margin("ends", float(ends.mean()), below=0.01)


def test_nothing_ends_where_nothing_ended(fiction: Fiction, margin: Margins) -> None:
    states = torch.from_numpy(fiction.anywhere)
    _, ends = fiction.outcome.predict(states, encoded([1] * len(states)), states)
    margin("ends", ends.sum(), at_most=0)


def policy(scaler: Standardiser, seed: int) -> Control:
    network = Learner(CONTROL, scaler.dim, ACTIONS, seed).current()
    return Control(scaler, network)


def chosen(control: Control, fiction: Fiction) -> float:
    """The share of states in which action 1 is taken."""
    return float((control.greedy(control.scaler(fiction.starts)) == 1).mean())


def test_a_plan_does_what_the_believed_instance_asks_for(
    model: Model, fiction: Fiction, training_seed: int, margin: Margins
) -> None:
    scaler = Standardiser.fit(fiction.anywhere)
    untrained = policy(scaler, training_seed)
    for instance, bound in ((0, {"below": 0.1}), (3, {"above": 0.9})):
        belief = believe(model, instance, seed=training_seed)
        planner = Planner(fiction, PLAN, CONTROL, untrained, seed=training_seed)
        margin(f"pushed in {instance}", chosen(planner.improve(belief), fiction), **bound)


def test_plans_repeat_and_leave_the_agent_as_it_was(model: Model, fiction: Fiction) -> None:
    start = policy(Standardiser.fit(fiction.anywhere), 0)
    few = replace(PLAN, updates=20, every=2, infer_steps=5, tune_steps=3)
    context = PlanningContext(model, fiction, few, CONTROL)
    before = {name: value.copy() for name, value in context.to_arrays("c").items()}
    _, seen = episodes(per=1, length=6, seed=9)

    def live(seed: int) -> list[bytes]:
        tracker = context.begin(seed, None, start)
        bits = []
        for time in range(6):
            assert tracker.step(seen.observations[2, time]) is None and not tracker.settled
            # nothing is learned before this many steps have been seen
            assert (tracker.control is None) == (time < 2)
            if tracker.control is not None:
                network = tracker.control.network
                assert isinstance(network, MLP)
                bits.append(network.layers[0][0].tobytes())
            tracker.took(Finite.of(ACTIONS).encode(seen.actions[2, time]))
        return bits

    one, two, other = live(1), live(1), live(2)
    assert one == two != other
    assert one[0] == one[1] != one[2]
    for name, value in context.to_arrays("c").items():
        assert np.array_equal(value, before[name]), name


def test_a_damaged_model_is_refused(model: Model, fiction: Fiction) -> None:
    context = PlanningContext(model, fiction, PLAN, CONTROL)
    arrays, description = context.to_arrays("c"), context.describe()
    read = PlanningContext.from_arrays(arrays, description, "c")
    assert read.describe() == description
    assert all(np.array_equal(v, arrays[n]) for n, v in read.to_arrays("c").items())
    broken = dict(arrays)
    broken["c.model.dynamics.network.mean"] = np.zeros(3, dtype=np.float32)
    with pytest.raises(AgentError, match="shape"):
        PlanningContext.from_arrays(broken, description, "c")
    with pytest.raises(ConfigError, match="every"):
        PlanningContext.from_arrays(arrays, {**description, "plan": {"every": 0}}, "c")


def test_an_angle_is_found_and_goes_the_short_way_round() -> None:
    angle = np.linspace(0, 20, 400)
    wound = ((angle + math.pi) % (2 * math.pi) - math.pi).astype(np.float32)
    observations = np.stack([wound, 0.1 * angle.astype(np.float32)], axis=1)
    before, after = observations[:-1], observations[1:]
    assert find_angles(before, after).tolist() == [True, False]
    steps = episodes(per=1, length=2, seed=0)[0]
    whole = replace(
        steps,
        observations=observations,
        row=np.arange(399),
        actions=np.zeros(399, dtype=np.int64),
    )
    reader = Reader(Columns.fit(whole))
    assert reader.features_dim == 3
    seam = int(np.abs(after - before)[:, 0].argmax())
    one, two = torch.from_numpy(before[seam]), torch.from_numpy(after[seam])
    change = reader.change(one, two)
    # the angle turns at one speed, so at the seam as anywhere: scaled by noise alone
    assert torch.allclose(reader.after(one, change), two, atol=1e-5)
    assert abs(float(after[seam, 0] - before[seam, 0])) > 6
    moved = Columns.fit(whole).change_mean
    assert float(moved[0]) == pytest.approx(20 / 399, abs=1e-4)


def test_a_column_with_a_constant_change_keeps_changing(steps: Steps) -> None:
    """A clock: there is nothing to predict of it, and in fiction it must not stand still."""
    pairs = np.stack([np.arange(6.0), np.zeros(6), np.random.default_rng(0).normal(size=6)], axis=1)
    clock = replace(steps, observations=pairs.astype(np.float32), row=np.arange(5))
    reader = Reader(Columns.fit(clock))
    assert reader.varies.tolist() == [0, 0, 1]
    reached = reader.after(torch.tensor([[2.0, 0.0, 0.1]]), torch.full((1, 3), 9.0))
    assert reached[0, :2].tolist() == [3, 0]


def test_standardised_columns_are_not_angles_and_fast_joints_are() -> None:
    rng = np.random.default_rng(0)
    column = np.clip(rng.normal(size=(2000, 1)), -3, 3).astype(np.float32)
    assert not find_angles(column[:-1], column[1:]).any()
    turned = np.cumsum(rng.normal(scale=1.2, size=2000))
    wound = ((turned + math.pi) % (2 * math.pi) - math.pi).astype(np.float32)[:, None]
    assert find_angles(wound[:-1], wound[1:]).all()


def test_states_to_begin_in_are_few_and_their_own() -> None:
    rows = np.arange(20, dtype=np.float32).reshape(10, 2)
    few = states_of(rows, 4, np.random.default_rng(0))
    assert len(few) == 4 and len(np.unique(few, axis=0)) == 4
    assert np.array_equal(states_of(rows, 10, np.random.default_rng(0)), rows)
