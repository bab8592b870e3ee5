"""Groups of known number are found, one is not divided, and what is unsure is not written."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from pushed import QUICK, STEPS, Case, write_logs
from sklearn.metrics import adjusted_rand_score

from sept_offline import collect_dataset
from sept_offline.actions import Finite
from sept_offline.cli.main import cli
from sept_offline.data import load_dataset, validate
from sept_offline.errors import ConfigError, DataError
from sept_offline.progress import Silent
from sept_offline.settings import DemarcateConfig
from sept_offline.tools.demarcate import demarcate_dataset
from sept_offline.tools.demarcate.demarcation import name_labels, write_labelled
from sept_offline.tools.demarcate.groups import GroupDecoder, Pair, _join, _large_enough
from sept_offline.tools.demarcate.latents import Decoder, transitions_of
from tests.margins import Margins


@pytest.mark.parametrize(
    ("name", "count"), [("two", 2), ("three", 3), pytest.param("many", 3, marks=pytest.mark.long)]
)
def test_groups_are_found_whatever_the_behaviour(
    name: str, count: int, request: pytest.FixtureRequest, margin: Margins
) -> None:
    case: Case = request.getfixturevalue(name)
    margin("groups", case.found.record["groups"], at_least=count, at_most=count)
    margin("as the truth", adjusted_rand_score(case.group, case.found.labels), at_least=0.95)
    behaved = adjusted_rand_score(case.behaviour, case.found.labels)
    margin("as the behaviour", abs(behaved), below=0.1)
    margin("unsure", case.found.unsure.mean(), at_most=QUICK.most_unsure)
    if name != "three":
        margin("stability", case.found.record["stability"], at_least=0.8)
        assert case.found.supported, case.found.reasons


@pytest.mark.parametrize("name", ["one", pytest.param("far", marks=pytest.mark.long)])
def test_one_dynamics_is_one_instance_for_all_its_behaviours(
    name: str, request: pytest.FixtureRequest, margin: Margins
) -> None:
    case: Case = request.getfixturevalue(name)
    margin("groups", case.found.record["groups"], at_most=1)
    assert not case.found.supported and "one instance" in case.found.reasons[0]
    assert case.found.path is None and not case.target.exists()


def test_without_states_and_actions_behaviours_would_pass_for_dynamics(
    tmp_path: Path, training_seed: int, margin: Margins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is gained by knowing the behaviour: nothing, until states and actions are hidden."""
    _, behaviour = write_logs(tmp_path / "x.h5", (0.3,), 120)
    with load_dataset(tmp_path / "x.h5") as data:
        transitions = transitions_of(data.steps(), np.full(120, STEPS), Finite.of(3))

    def gained() -> float:
        """Nats a step, of episodes that were kept out."""
        decoder = GroupDecoder(transitions, behaviour, 2, QUICK, training_seed)
        scores = decoder.halves(transitions, torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        own, both = scores.sum(axis=2)[behaviour, np.arange(120)], scores.sum(axis=2)[2]
        return float((own - both)[decoder.kept_out].mean()) / STEPS

    margin("gained", gained(), below=QUICK.gain)
    seeing = Decoder.forward

    def blind(self, states, actions, context):  # type: ignore[no-untyped-def]
        return seeing(self, states * 0, actions * 0, context)

    monkeypatch.setattr(Decoder, "forward", blind)
    margin("gained blindly", gained(), above=QUICK.gain)


def test_the_new_dataset_holds_the_same_episodes_under_new_names(two: Case) -> None:
    assert validate(two.target).ok
    with load_dataset(two.source) as before, load_dataset(two.target) as after:
        assert after.instances == ["group-0", "group-1"]
        assert after.num_episodes == before.num_episodes and after.hidden is None
        record = after.metadata.extra["demarcation"]
        assert record["source"] == before.content_hash
        assert record["stability"] == two.found.record["stability"]
        logged = {episode.seed: episode for episode in before.episodes()}
        for episode in after.episodes():
            old = logged.pop(episode.seed)
            assert episode.instance == f"group-{two.found.labels[old.index]}"
            assert np.array_equal(episode.observations, old.observations)
            assert np.array_equal(episode.actions, old.actions)
            assert np.array_equal(episode.propensities, old.propensities)
            assert episode.behaviour == old.behaviour and episode.truncated == old.truncated
    assert not logged
    card = two.target.with_name("labelled.card.md").read_text(encoding="utf-8")
    assert "have not been confirmed" in card
    sizes = np.bincount(two.found.labels)
    assert f"group-0 {sizes[0]}, group-1 {sizes[1]}" in card


def test_same_seed_same_bytes_and_the_files_own_instances_are_not_looked_at(
    tmp_path: Path,
) -> None:
    short = replace(QUICK, updates=10, refining=5)
    for name in ("one", "each"):
        write_logs(tmp_path / f"{name}.h5", (-0.5, 0.5), 12, instances=name)
    sources = {"a": "one", "b": "one", "each": "each"}
    found = {
        name: demarcate_dataset(
            tmp_path / f"{source}.h5", tmp_path / f"{name}-out.h5", short, seed=3, force=True
        )
        for name, source in sources.items()
    }
    assert (tmp_path / "a-out.h5").read_bytes() == (tmp_path / "b-out.h5").read_bytes()
    for name in ("b", "each"):
        assert np.array_equal(found[name].labels, found["a"].labels)
        assert np.array_equal(found[name].latent, found["a"].latent)


def test_known_borders_are_kept(tmp_path: Path) -> None:
    group, _ = write_logs(tmp_path / "sides.h5", (-0.5, 0.5), 20, instances="side")
    with load_dataset(tmp_path / "sides.h5") as data:
        own = data.episode_index.instance
        true = group[data.episode_index.seed]
        names, labels = name_labels(data, true, True, 3)
        assert names == [f"s{side}/group-{which}" for side in (0, 1) for which in (0, 1)]
        assert np.array_equal(labels, 2 * own + true)
        stray = np.where(own == 0, 0, true)
        stray[np.flatnonzero(own == 0)[:2]] = 1
        names, labels = name_labels(data, stray, True, 3)
        assert names == ["s0/group-0", "s1/group-0", "s1/group-1"]


def test_unsure_episodes_can_be_left_out(tmp_path: Path) -> None:
    group, _ = write_logs(tmp_path / "logs.h5", (-0.5, 0.5), 10)
    kept = np.arange(20) % 4 != 0
    with load_dataset(tmp_path / "logs.h5") as data:
        write_labelled(data, tmp_path / "x.h5", ["a", "b"], group, kept, {}, Silent())
    with load_dataset(tmp_path / "x.h5") as after:
        assert sorted(after.episode_index.seed.tolist()) == np.flatnonzero(kept).tolist()
        assert np.array_equal(after.episode_index.instance, group[after.episode_index.seed])


@pytest.mark.long
def test_what_the_pages_demarcate_is_supported(
    tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    """The command that pages and `--help` show must write its labels, few as its updates are."""
    random = {"behaviour": "random", "episodes": 200}
    collect_dataset("navigation2d", tmp_path / "nav.h5", overrides=random, seed=1).close()
    found = demarcate_dataset(
        tmp_path / "nav.h5", None, DemarcateConfig(updates=60), seed=training_seed
    )
    margin("groups", found.record["groups"], at_least=2)
    margin("stability", found.record["stability"], at_least=DemarcateConfig().stable)
    margin("unsure", found.unsure.mean(), at_most=DemarcateConfig().most_unsure)
    assert found.supported, found.reasons


def test_small_groups_are_given_up() -> None:
    likelihood = np.array([[0.0] * 6 + [-9] * 4, [-5.0] * 6 + [0] * 3 + [-8], [-8.0] * 9 + [0]])
    assert _large_enough(likelihood, 3).tolist() == [0] * 6 + [1] * 4
    assert _large_enough(likelihood, 5).tolist() == [0] * 10


def test_the_weakest_pair_is_joined_and_no_pair_that_is_apart() -> None:
    groups = np.array([0, 1, 2, 0, 1, 2])
    clear = Pair(0, 1, 0.5, 0.1, 0.5, 1.0)
    pairs = (clear, Pair(0, 2, 0.04, 0, 0.5, 1.0), Pair(1, 2, 0.3, 0.2, 0.5, 1.0))
    assert _join(groups, pairs, DemarcateConfig()).tolist() == [0, 1, 1, 0, 1, 1]
    assert not replace(clear, overlap=0.0).apart(DemarcateConfig())
    assert not replace(clear, agreement=0.7).apart(DemarcateConfig())
    assert _join(groups, (clear,), DemarcateConfig()).tolist() == groups.tolist()


def test_the_command_refuses_what_the_logs_do_not_support(
    tmp_path: Path, training_seed: int, margin: Margins
) -> None:
    write_logs(tmp_path / "logs.h5", (0.3,), 24)
    source, target = str(tmp_path / "logs.h5"), str(tmp_path / "x.h5")
    words = ["demarcate", source, "-o", target, "--updates", "10"]
    words += ["--seed", str(training_seed)]
    shown = CliRunner().invoke(cli, [*words, "--json", "--quiet"])
    found = json.loads(shown.stdout)
    margin("supported", found["supported"], at_most=0)
    assert shown.exit_code == 2 and not (tmp_path / "x.h5").exists()
    assert found["path"] is None and found["reasons"]
    shown = CliRunner().invoke(cli, [*words, "--force", "--quiet"])
    assert shown.exit_code == 0, shown.output
    assert "do not support" in shown.output
    assert validate(tmp_path / "x.h5").ok
    assert "do not support" in (tmp_path / "x.card.md").read_text(encoding="utf-8")


def test_refusals_in_one_sentence(two: Case, tmp_path: Path) -> None:
    write_logs(tmp_path / "few.h5", (0.5,), 6)
    with pytest.raises(DataError, match=r"no folder .*nowhere to write new\.h5 to"):
        demarcate_dataset(two.source, tmp_path / "nowhere" / "new.h5", QUICK)
    with pytest.raises(DataError, match="6 episodes; demarcation needs at least 20"):
        demarcate_dataset(tmp_path / "few.h5", None, QUICK)
    with pytest.raises(DataError, match="is the input dataset"):
        demarcate_dataset(two.source, two.source, QUICK)
    write_logs(tmp_path / "enough.h5", (0.5,), 20)
    with pytest.raises(DataError, match=r"too few for two groups of at least 11 .* at most 10"):
        demarcate_dataset(tmp_path / "enough.h5", None, replace(QUICK, smallest=11))
    with pytest.raises(ConfigError, match="smallest is 1"):
        DemarcateConfig(smallest=1)
    # more than are ever made: groups would never be found settled, and so never separated
    with pytest.raises(ConfigError, match="rounds is 31; expected at least 1 and at most 30"):
        DemarcateConfig(rounds=31)


def test_without_scikit_learn_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_logs(tmp_path / "logs.h5", (0.5,), 20)
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *_: None if name == "sklearn" else find(name)
    )
    for module in [name for name in sys.modules if name.partition(".")[0] == "sklearn"]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r"sept-offline\[cluster\]"):
        demarcate_dataset(tmp_path / "logs.h5", None, QUICK)
