"""The page as a file: what it holds, what it says of what is missing, and that it repeats."""

from __future__ import annotations

import html
import itertools
import json
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import plotly.graph_objects as go
import pytest
from click.testing import CliRunner

import sept_offline as so
from sept_offline.cli.bench import report
from sept_offline.cli.main import cli
from sept_offline.errors import ConfigError, DataError
from sept_offline.methods import resolve_config
from sept_offline.seals import read_sealed, write_json
from sept_offline.settings import parse_settings
from sept_offline.tools.bench.figures.rows import read_bench
from sept_offline.tools.bench.summary import summarise_bench
from sept_offline.tools.report import write_report
from sept_offline.tools.report.page import LIMIT, number, percent, with_error
from sept_offline.tools.report.provenance import bench_commands, commands
from sept_offline.tools.report.sources import BenchFolder, close, read_run
from tests.report.browser import ATTACK, FEW

ROOT = Path(__file__).parents[2]
BENCH = ROOT / "benchmarks" / "results" / "bench"
SECTIONS = ("logged", "learned", "episodes", "against", "made")


def page(tmp_path: Path, *sources: Path, dataset: Path | None = None) -> str:
    out = tmp_path / "report.html"
    size = write_report(sources, out, dataset=dataset)
    text = out.read_text(encoding="utf-8")
    assert size == len(text.encode()) < LIMIT
    for name in SECTIONS:
        assert f'<section id="{name}">' in text
    return text


def embedded(text: str, name: str) -> object:
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', text)
    assert found
    return json.loads(found[1])


def visible(text: str) -> str:
    """The page without its scripts and styles."""
    return re.sub(r"<(script|style)\b.*?</\1>", "", text, flags=re.DOTALL)


@pytest.fixture(scope="session")
def both(navigation: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(tmp_path_factory.mktemp("both"), navigation / "sept", navigation / "avg")


@pytest.fixture(scope="session")
def benched(large_bench: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    return page(tmp_path_factory.mktemp("benched"), large_bench)


def answer(text: str) -> tuple[str, dict[str, list[str]]]:
    """The sentence at the top, and the lines of each of the four figures by its label."""
    shown = visible(text)
    assert shown.index('id="answer"') < min(shown.index("<nav"), shown.index("<section"))
    found = re.search(r'<div id="answer">(.*?)</dl>', shown, flags=re.DOTALL)
    assert found
    sentence = re.search(r'<p class="sentence">(.*?)</p>', found[1])
    assert sentence
    tiles = {}
    for tile in re.findall(r'<div class="tile.*?</div>', found[1], flags=re.DOTALL):
        lines = [re.sub("<.*?>", "", line) for line in re.findall(r"<d[td].*?</d[td]>", tile)]
        tiles[lines[0]] = lines[1:]
    assert len(tiles) == 4
    return html.unescape(sentence[1]), tiles


def test_the_answer_is_that_of_the_results(navigation: Path, both: str) -> None:
    sept, avg = (so.load_results(navigation / m / "results.parquet") for m in ("sept", "avg"))
    own, other = sept.summary(), avg.summary()
    gap = own["steps_to_solve"]["mean"] - other["steps_to_solve"]["mean"]
    words = (
        f"{abs(gap):.3g} {'more' if gap > 0 else 'fewer'} than avg" if gap else "the same as avg"
    )
    sentence, tiles = answer(both)
    assert sentence == (
        f"sept solved {percent(own['solved'])} of 10 test episodes of navigation2d, in "
        f"{number(own['steps_to_solve']['mean'])} steps on average: {words}."
    )
    assert tiles["Solved"][0] == percent(own["solved"])
    assert tiles["Steps to solve"][0] == with_error(own["steps_to_solve"])
    (against, note) = tiles["Against avg and oracle"]
    assert against.startswith("avg ") and against.endswith(" steps") and "95 %" in note
    assert tiles["Warnings"] == ["none"] or int(tiles["Warnings"][0]) > 0


def test_the_answer_of_a_bench_has_a_line_per_family(large_bench: Path, benched: str) -> None:
    rows = {
        row["family"]: row
        for row in summarise_bench(large_bench)
        if (row["method"], row["preset"], row["variant"]) == ("sept", "default", "base")
    }
    assert len(rows) == 3
    sentence, tiles = answer(benched)
    assert sentence.startswith("sept solved 100 % of the test episodes of acrobot")
    for family, row in rows.items():
        (line,) = [x for x in tiles["Solved, or score"] if x.startswith(f"{family} ")]
        assert line == f"{family} {percent(row['solved']['mean'])}"
        (line,) = [x for x in tiles["Steps to solve, or return"] if x.startswith(f"{family} ")]
        assert line == f"{family} {row['steps_to_solve']['mean']:.3g} steps"
        gaps = [row["against"][rival]["steps_to_solve"]["mean"] for rival in ("avg", "oracle")]
        (line,) = [x for x in tiles["Against avg and oracle"] if x.startswith(f"{family} ")]
        signed = " · ".join(f"{gap:+.3g}".replace("-", "−") for gap in gaps)
        assert line == f"{family} {signed}"


def test_the_answer_says_what_is_missing(navigation: Path, attacked: Path, tmp_path: Path) -> None:
    _, tiles = answer(page(tmp_path, navigation / "sept"))
    assert tiles["Against avg and oracle"] == ["–", "not compared with avg or oracle"]
    sentence, tiles = answer(page(tmp_path, attacked / "run"))
    assert sentence == "sept earned a mean return of 2 in 1 test episode of wards."
    assert tiles["Score"] == ["–", "no reference return is known"] and tiles["Return"][0] == "2"
    bare = tmp_path / "bare"
    shutil.copytree(navigation / "sept", bare)
    (bare / "results.parquet").unlink()
    sentence, tiles = answer(page(tmp_path, bare))
    assert sentence == "sept has no test episodes yet." and tiles["Solved"][0] == "–"
    before = tiles["Warnings"]
    (bare / "agent" / "agent.json").write_text("{")
    _, tiles = answer(page(tmp_path, bare))
    assert tiles["Warnings"] == ["1" if before == ["none"] else str(int(before[0]) + 1)]


def test_a_run_is_shown_from_its_logs_to_its_episodes(both: str) -> None:
    charts = embedded(both, "charts")
    assert isinstance(charts, dict)
    assert set(charts) == {
        *("returns-1", "behaviour-1", "coverage-1"),
        *("plane-0", "latent-0", "probe-0", "probe-training-0", "control-0", "control-1"),
        *(
            "reward-navigation2d-test-50",
            "solved-navigation2d-test-50",
            "steps-navigation2d-test-50",
        ),
    }
    shown = visible(both)
    for words in ("Returns of the logged episodes", "The latent plane", "Watch an episode"):
        assert words in shown
    assert "differences, paired by instance" in shown
    assert "avg − sept" in shown


def test_every_chart_is_one_that_plotly_knows(both: str, benched: str) -> None:
    """Plotly's own objects refuse a property that does not exist or a value of another kind."""
    every = [embedded(both, "charts"), embedded(benched, "charts")]
    count = 0
    for charts in every:
        assert isinstance(charts, dict)
        for figure in charts.values():
            # Colours that the page fills in are not colours yet.
            text = re.sub(r"var\(--\w+\)", "#123456", json.dumps(figure))
            assert go.Figure(json.loads(text)).data
            count += 1
    assert count > 20
    assert any("-switch-" in name for name in every[1])


def test_the_numbers_are_those_of_the_run(navigation: Path, both: str) -> None:
    charts = embedded(both, "charts")
    assert isinstance(charts, dict)
    results = so.load_results(navigation / "sept" / "results.parquet")
    line = next(t for t in charts["reward-navigation2d-test-50"]["data"] if t.get("name") == "sept")
    assert line["y"][-1] == pytest.approx(results.summary()["return"]["mean"], rel=1e-5)
    with so.load_dataset(navigation / "logs.h5") as data:
        found = so.inspect(data, 1)
    boxes = charts["returns-1"]["data"][0]
    assert boxes["x"] == [row.instance for row in found.table]
    assert boxes["lowerfence"] == pytest.approx([row.return_min for row in found.table])
    assert boxes["upperfence"] == pytest.approx([row.return_max for row in found.table])


def test_every_test_episode_can_be_played(navigation: Path, both: str) -> None:
    players = embedded(both, "players")
    assert isinstance(players, list)
    (episodes,) = players
    assert len(episodes) == 20
    results = so.load_results(navigation / "sept" / "results.parquet")
    first, own = episodes[0], results.episodes[0]
    assert first["run"] == "sept"
    assert first["scene"]["kind"] == "plane"
    assert first["actions"] == list(own.actions)
    assert first["probe"] == own.phases.count("probe") == 1
    assert own.observations is not None
    assert [len(column) for column in first["observations"]] == [own.steps + 1] * 2
    assert first["observations"][0][0] == pytest.approx(own.observations[0][0], rel=1e-5)


def test_the_same_run_gives_the_same_bytes(navigation: Path, tmp_path: Path) -> None:
    assert page(tmp_path, navigation / "sept") == page(tmp_path, navigation / "sept")


def test_the_page_asks_for_nothing(both: str) -> None:
    assert "default-src 'none'" in both
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](?!#)""", visible(both))


def test_a_bench_is_shown_with_its_tables(benched: str) -> None:
    text = visible(benched)
    for words in ("navigation2d: test episodes", "paired by seed and instance", "acrobot"):
        assert words in text
    assert "cannot be played" in text


def test_what_is_missing_leaves_one_line(navigation: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "bare"
    shutil.copytree(navigation / "sept", run)
    (run / "results.parquet").unlink()
    record = read_sealed(run / "run.json", DataError)
    write_json(run / "run.json", record | {"dataset": "gone.h5"})
    text = visible(page(tmp_path, run))
    assert "Its logs are not at gone.h5" in text
    assert "No test episodes: sept-offline evaluate" in text
    assert "Watch an episode" not in text
    assert "The latent plane" not in text  # nothing to encode
    assert "Control" in text
    moved = visible(page(tmp_path, run, dataset=navigation / "logs.h5"))
    assert "The latent plane" in moved


def test_an_unfinished_run_and_other_logs_are_named(navigation: Path, tmp_path: Path) -> None:
    run = tmp_path / "half"
    shutil.copytree(navigation / "sept", run, ignore=shutil.ignore_patterns("agent"))
    other = tmp_path / "other.h5"
    few = {"behaviour": "random", "episodes": 4}
    so.collect_dataset("navigation2d", other, overrides=few, seed=9).close()
    record = read_sealed(run / "run.json", DataError)
    write_json(run / "run.json", record | {"dataset": "gone.h5"})
    text = visible(page(tmp_path, run, dataset=other))
    assert "It is not finished" in text
    assert "the content differs" in text


def test_names_from_data_stay_text(attacked: Path, tmp_path: Path) -> None:
    text = page(tmp_path, attacked / "run")
    assert ATTACK not in visible(text)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in visible(text)
    assert "<svg onload" not in text
    assert "<img src=x" not in text
    assert "{{ 7 * 7 }}" in visible(text)
    charts = embedded(text, "charts")
    assert isinstance(charts, dict)
    # Plotly reads a little HTML in labels: none may be left in any.
    assert not re.findall(r"<(?!br>|extra>|/extra>)", json.dumps(charts))


def test_runs_of_other_limits_and_splits_are_not_compared(navigation: Path, tmp_path: Path) -> None:
    short = tmp_path / "short"
    shutil.copytree(navigation / "avg", short)
    agent = so.load_agent(short)
    so.evaluate(agent, max_steps=20).write(short / "results.parquet")
    text = page(tmp_path, navigation / "sept", short)
    assert "No two of these runs were evaluated" in visible(text)
    charts = embedded(text, "charts")
    assert isinstance(charts, dict)
    assert {"reward-navigation2d-test-50", "reward-navigation2d-test-20"} <= set(charts)
    assert charts["reward-navigation2d-test-20"]["data"][-1]["x"][-1] == 20
    so.evaluate(agent, instances="train").write(short / "results.parquet")
    text = visible(page(tmp_path, navigation / "sept", short))
    assert "No two of these runs" in text and "navigation2d, train" in text


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("agent/agent.json", "Its agent cannot be read"),
        ("results.parquet", "Its test episodes cannot be read"),
    ],
)
def test_a_damaged_part_leaves_a_line(
    damage: str, words: str, navigation: Path, tmp_path: Path
) -> None:
    run = tmp_path / "damaged"
    shutil.copytree(navigation / "sept", run)
    (run / damage).write_text("{")
    assert words in visible(page(tmp_path, run, navigation / "avg"))


def test_an_evaluation_of_no_episodes_is_none(navigation: Path, tmp_path: Path) -> None:
    run = tmp_path / "empty"
    shutil.copytree(navigation / "sept", run)
    results = so.load_results(run / "results.parquet")
    replace(results, episodes=()).write(run / "results.parquet")
    assert "last evaluation has no episodes" in visible(page(tmp_path, run, navigation / "avg"))


def test_odd_values_do_not_stop_the_page(navigation: Path, tmp_path: Path) -> None:
    run = tmp_path / "odd"
    shutil.copytree(navigation / "sept", run)
    results = so.load_results(run / "results.parquet")
    odd = [
        replace(e, novelty=float("nan"), latent=(1.0, 2.0, 3.0), uncertainty=float("inf"))
        for e in results.episodes
    ]
    replace(results, episodes=tuple(odd)).write(run / "results.parquet")
    text = page(tmp_path, run)
    assert "diamonds" not in visible(text)  # latents of another dimension are not drawn


def test_odd_records_do_not_stop_the_page(navigation: Path, tmp_path: Path) -> None:
    run = shutil.copytree(navigation / "avg", tmp_path / "odd")
    record = read_sealed(run / "run.json", DataError)
    write_json(run / "run.json", record | {"config": {"probe_steps": "many"}})
    assert "Coverage of initial segments" in visible(page(tmp_path, run))
    everything = {"episodes": [[0, 1000]], "share": 0.5}
    write_json(run / "run.json", record | {"held_out": everything})
    assert "Its record holds out all episodes" in visible(page(tmp_path, run))


def test_what_was_held_out_is_not_shown_as_learned_from(navigation: Path, tmp_path: Path) -> None:
    run = tmp_path / "held"
    so.fit(navigation / "logs.h5", "avg", FEW, seed=0, hold_out=0.5, out=run)
    text = visible(page(tmp_path, run))
    assert "Without the 30 episodes held out by fit --hold-out." in text
    assert re.search(r"<dt>episodes</dt><dd>30</dd>", text)
    beside = visible(page(tmp_path, run, navigation / "sept"))  # of the same logs, from all of them
    assert re.findall(r"<dt>episodes</dt><dd>(\d+)</dd>", beside) == ["30", "60"]
    assert "logs.h5 (avg)" in beside and "logs.h5 (sept)" in beside
    found = read_run(run)
    assert "--hold-out 0.5" in commands(found)[0]
    close([found])


def test_the_verdict_comes_first(navigation: Path, tmp_path: Path) -> None:
    run = tmp_path / "judged"
    agent = so.fit(navigation / "logs.h5", "avg", {**FEW, "verdict": True}, seed=0, out=run)
    text = visible(page(tmp_path, run))
    assert f"avg: {agent.record['verdict']}." in text
    assert text.index('id="verdict"') < text.index('id="logged"')
    assert answer(text)[1]["Verdict"][0] == agent.record["verdict"]
    for reason in agent.record["reasons"]:
        assert html.escape(reason) in text


def test_logs_that_moved_are_found_for_each_run(navigation: Path, tmp_path: Path) -> None:
    """`--dataset` helps the run whose logs have moved, and leaves the others theirs."""
    run = tmp_path / "runs" / "moved"
    other = tmp_path / "other.h5"
    few = {"behaviour": "random", "episodes": 20}
    so.collect_dataset("navigation2d", other, overrides=few, seed=9).close()
    so.fit(other, "avg", FEW, seed=0, out=run)
    other.rename(tmp_path / "elsewhere.h5")
    text = visible(page(tmp_path, run, navigation / "sept", dataset=tmp_path / "elsewhere.h5"))
    assert "Its logs" not in text and "does not hold" not in text


def test_logs_without_a_simulator_are_sent_to_ope(attacked: Path, tmp_path: Path) -> None:
    run = tmp_path / "bare"
    shutil.copytree(attacked / "run", run)
    (run / "results.parquet").unlink()
    assert "sept-offline ope says" in visible(page(tmp_path, run))


def test_what_ope_said_is_shown(navigation: Path, tmp_path: Path) -> None:
    run, logs = shutil.copytree(navigation / "avg", tmp_path / "avg"), navigation / "logs.h5"
    quick = ["--updates", "20", "--horizon", "5", "--in-sample", "--json"]
    done = CliRunner().invoke(cli, ["ope", str(run), str(logs), *quick])
    said = json.loads(done.stdout)
    assert read_sealed(run / "ope.json", DataError) == said
    shown = visible(page(tmp_path, run))
    assert f"from logs alone: {said['verdict']}" in shown
    assert answer(shown)[0].startswith("avg solved")  # test episodes count for more
    assert "doubly robust, self-normalised" in shown
    assert "with 95 % intervals" in shown
    (run / "ope.json").write_text(json.dumps(said | {"headline": "fqe"}))
    assert ". Fitted Q evaluation estimates a return of" in visible(page(tmp_path, run))
    assert "the agent was trained on the evaluation episodes" in shown
    odd = ({"headline": "none"}, {"horizon": None}, {"logged_return": "much"}, {"estimators": [1]})
    for damage in ("{", "[]", *(json.dumps(said | one) for one in odd)):
        (run / "ope.json").write_text(damage)
        assert "ope.json is not an estimate of ope" in visible(page(tmp_path, run))
    assert "from logs alone" not in visible(page(tmp_path, navigation / "avg"))
    (run / "ope.json").write_text(json.dumps(said))
    (run / "results.parquet").unlink()
    sentence, tiles = answer(page(tmp_path, run))
    estimate = number(said["estimators"][said["headline"]]["mean"])
    assert f"from logs alone its return is estimated at {estimate}" in sentence
    assert tiles["Return, from logs"][0] == estimate


def test_a_page_that_grows_too_large_loses_its_viewer_first(
    navigation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = write_report([navigation / "sept"], tmp_path / "r.html")
    monkeypatch.setattr("sept_offline.tools.report.page.LIMIT", whole - 1)
    write_report([navigation / "sept"], tmp_path / "r.html")
    assert "would make the page too large" in (tmp_path / "r.html").read_text()
    monkeypatch.setattr("sept_offline.tools.report.page.LIMIT", 1000)
    (tmp_path / "r.html").unlink()
    with pytest.raises(DataError, match="report fewer"):
        write_report([navigation / "sept"], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_every_setting_is_written_as_it_is_read(navigation: Path, tmp_path: Path) -> None:
    """None, lists of numbers and of words, and what the preset says otherwise."""
    changed = {
        **FEW,
        "control": {**FEW["control"], "goal_shift": None, "grad_clip": 2.5},
        "dynamics": {"angles": ["x"]},
    }
    with so.load_dataset(navigation / "logs.h5") as data:
        so.fit(data, "avg", changed, seed=3, out=tmp_path / "run")
        found = read_run(tmp_path / "run")
        line = commands(found)[0]
        settings = [b for a, b in itertools.pairwise(shlex.split(line)) if a == "--set"]
        assert resolve_config(data, "default", parse_settings(settings)) == resolve_config(
            data, "default", changed
        )
        gone = commands(replace(found, data=None))[0]
        settings = [b for a, b in itertools.pairwise(shlex.split(gone)) if a == "--set"]
        assert resolve_config(data, "default", parse_settings(settings)) == resolve_config(
            data, "default", changed
        )
    close([found])


def test_an_evaluation_elsewhere_is_repeated_elsewhere(navigation: Path, tmp_path: Path) -> None:
    run = tmp_path / "switch"
    shutil.copytree(navigation / "sept", run)
    results = so.evaluate(so.load_agent(run), "navigation2d-switch", max_steps=20)
    results.write(run / "results.parquet")
    found = read_run(run)
    close([found])
    assert found.family is not None and found.family.name == "navigation2d-switch"
    line = commands(found)[1]
    assert "--max-steps 20" in line and "--family navigation2d-switch" in line


def test_the_commands_of_a_bench_name_its_cells() -> None:
    rows = read_bench(BENCH)
    lines = bench_commands(BenchFolder(BENCH, rows))
    planned = set()
    for line in lines:
        words = shlex.split(line)
        assert cli.commands["bench"].make_context("bench", words[2:])
        value = dict(itertools.pairwise(words))
        for method in value["--methods"].split(","):
            for seed in range(int(value["--seeds"])):
                variant = value.get("--vary", "base")
                preset = value.get("--preset", "default")
                planned.add((value["--families"], method, preset, variant, seed))
    keys = ("family", "method", "preset", "variant", "seed")
    assert {tuple(row[key] for key in keys) for row in rows.cells} <= planned
    odd = [
        {**row, "split": "validation", "data_seed": 0, "variant": "latent.dim=3"}
        for row in rows.cells
        if row["family"] == "hiv" and row["method"] == "sept" and row["preset"] == "default"
    ]
    (line,) = bench_commands(BenchFolder(BENCH, replace(rows, cells=odd)))
    assert "--split validation" in line and "--data-seeds 1" in line
    assert "--set latent.dim=3" in line  # there is no plainer base that it would stand beside
    # Given logs are named, and two settings are one variant.
    cell = next(row for row in rows.cells if row["variant"] == "base")
    path = Path.home() / "my logs.h5"
    identity = json.dumps(json.loads(cell["identity"]) | {"dataset": str(path)})
    cells = [
        {**cell, "identity": identity, "variant": variant}
        for variant in ("base", "latent.dim=3", "latent.dim=3,stack=2")
    ]
    *_, line = bench_commands(BenchFolder(BENCH, replace(rows, cells=cells)))
    assert "--set latent.dim=3 --vary stack=2" in line
    assert f"--dataset {cell['family']}=\"$HOME\"/'my logs.h5'" in line


def test_runs_of_one_method_have_different_names(navigation: Path, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(navigation / "sept", twin)
    text = visible(page(tmp_path, navigation / "sept", twin))
    assert "sept (twin)" in text and "sept (sept)" in text
    assert "sept (twin) − sept (sept)" in text
    dots = re.findall(r'class="dot" style="background: ([^"]+)"', text)
    assert len(dots) == len(set(dots)) == 2


def test_the_commands_repeat_the_run(navigation: Path, tmp_path: Path) -> None:
    found = read_run(navigation / "sept")
    fit, evaluate, last = commands(found)
    close([found])
    assert last.endswith("-o report.html")
    words = shlex.split(fit)[1:]
    words[words.index("-o") + 1] = str(tmp_path / "again")
    done = CliRunner().invoke(cli, [*words, "--quiet"])
    assert done.exit_code == 0, done.output
    first, again = (so.load_agent(path) for path in (navigation / "sept", tmp_path / "again"))
    assert first.record == again.record
    weights = [path / "agent" / "weights.safetensors" for path in (found.path, tmp_path / "again")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    words = shlex.split(evaluate)[1:]
    words[1] = str(tmp_path / "again")
    assert CliRunner().invoke(cli, [*words, "--quiet"]).exit_code == 0
    kept = so.load_results(tmp_path / "again" / "results.parquet")
    assert [e.actions for e in kept.episodes] == [
        e.actions for e in so.load_results(navigation / "sept" / "results.parquet").episodes
    ]


def test_the_command(navigation: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    done = CliRunner().invoke(report, [str(navigation / "avg"), "-o", str(out), "--json"])
    assert done.exit_code == 0, done.output
    (line,) = done.stdout.splitlines()
    assert json.loads(line)["bytes"] == out.stat().st_size


@pytest.mark.parametrize(
    ("sources", "out", "words"),
    [
        (["nowhere"], "r.html", "There is no"),
        (["."], "r.html", "neither a run"),
        (["."], "r.pdf", "a name that ends in .html"),
        ([".", "--dataset", "nowhere.h5"], "r.html", "There is no dataset at nowhere.h5"),
    ],
)
def test_bad_input_is_named(
    sources: list[str], out: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(report, [*sources, "-o", out])
    assert isinstance(done.exception, DataError)
    assert words in str(done.exception)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_run_is_named(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"method": 3')
    with pytest.raises(DataError, match=r"run\.json"):
        write_report([tmp_path], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_without_the_extra_it_says_what_to_install(
    navigation: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sept_offline.tools.report.page.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install"):
        write_report([navigation / "sept"], tmp_path / "r.html")
