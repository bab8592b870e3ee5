"""The pages cannot rot: their code runs, their commands parse, their links and paths exist."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import sept_offline
from sept_offline.cli.main import cli
from sept_offline.tools.bench.plan import QUICK
from tests import processes

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKED = [
    *PAGES,
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "datasets").rglob("*.md")),
]
METHOD_PAGES = [
    page for page in sorted((ROOT / "docs" / "methods").glob("*.md")) if page.stem != "index"
]
FENCED = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<code>.*?)^```", re.DOTALL | re.MULTILINE)
SAVED = re.compile(r"[Ss]ave this as\s+`(\S+)`:\n\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SITE = {"{toctree}", "{eval-rst}"}
"""Blocks that Sphinx reads; tests/test_site.py builds them."""
LEFT_BY_COMMANDS = {
    "nav.h5",
    "nav.parquet",
    "more.parquet",
    "all.h5",
    "labelled.h5",
    "labelled.card.md",
    "runs",
    "results.parquet",
    "agent.onnx",
    "agent",
    "quick",
    "report.html",
}
"""What the page of commands leaves behind, and nothing beside it."""
ELSEWHERE = {"your-own-simulator"}
"""Pages whose Python is run by a test of its own, in tests/own_family."""
ELSEWHERE_TOO = {"sept-offline doctor"}
"""Lines that a test runs just so: tests/cli/test_doctor.py."""
FEWER = {
    r"\b(latent|control)\.updates=\d+": r"\1.updates=5",
    r"( ope .*--updates) 100\b": r"\1 5",
    # that these labels are supported is a long test's to see, in tests/demarcate
    r"( demarcate .*--updates) 60\b": r"\1 5 --force",
    # tests/collect has more; those of several workers are of several shards
    r"( collect (?!.*--workers).*--episodes) \d{3,}": r"\1 60",
    # tests/deploy verifies along 10,000
    r"( export .*)": r"\1 --observations 300",
    # tests/test_csv_to_agent.py has one, and so has `avg` on the page that comes first
    r"( fit (pumps|navigation).h5 (?!.*--method avg).*)": r"\1 --no-verdict",
    # tests/own_family has two by command, each of which loads everything anew
    r"( collect .*--workers) 2\b": r"\1 1",
    # tests/bench runs several methods by command
    r"( bench --quick .*--methods) sept,avg\b": r"\1 avg",
    # its page shows what the recipe and the preset give
    r"( collect pendulum)": r"\1 --behaviour random --episodes 24",
    r"( fit pendulum.h5 .*)": r"\1 --no-verdict --set latent.updates=5 --set control.updates=5",
    r"( fit .*)": r"\1 --set probe.steps=5",
}
"""A page's budgets for what it says came of them; that a line runs is seen by less."""
EMPTY = f"""
from matplotlib.figure import Figure
from sept_offline.tools.bench import figures
figures.draw = lambda _: Figure(figsize=(3, 2))
{processes.COMMAND}
"""
"""The command line, whose benches have empty figures: tests/bench draws them."""
LEARNED = ROOT / "docs" / "partial-observability.md"
FEWER_IN_CODE = {
    ROOT / "README.md": {
        '{"updates": 50}, "control": {"updates": 50}}': (
            '{"updates": 5}, "control": {"updates": 5}, "probe": {"steps": 5}}'
        ),
    },
    LEARNED: {
        '{"episodes": 400}': '{"episodes": 120}',
        '{"updates": 1200, ': '{"updates": 240, ',
        '{"updates": 600}': '{"updates": 5}',
        "assert shares[4] > shares[1] + 0.1\n": "",
    },
    ROOT / "docs" / "continuous.md": {
        '"latent": {"updates": 20}': '"latent": {"updates": 5}',
        '"control": {"updates": 20}': '"control": {"updates": 5}',
        '"probe": {"steps": 20}': '"probe": {"steps": 5}',
    },
    ROOT / "docs" / "demarcate.md": {"DemarcateConfig(updates=20)": "DemarcateConfig(updates=5)"},
    ROOT / "docs" / "ope.md": {
        '"control": {"updates": 50}': '"control": {"updates": 5}',
        "horizon=10, updates=100": "horizon=10, updates=5",
    },
    ROOT / "docs" / "report.md": {
        '{"updates": 20}, "control": {"updates": 20}}': (
            '{"updates": 5}, "control": {"updates": 5}, "probe": {"steps": 5}}'
        ),
    },
    ROOT / "docs" / "deploy.md": {
        '{"updates": 50}, "control": {"updates": 100}}': (
            '{"updates": 5}, "control": {"updates": 5}, "probe": {"steps": 5}}'
        ),
        '"agent.onnx", verify_on=data': '"agent.onnx", verify_on=data, observations=300',
        'form="numpy", verify_on=data': 'form="numpy", verify_on=data, observations=300',
    },
}
"""The same for the code of a page; what `LEARNED` says came of it is seen by a long test."""
OWN = re.compile(r"`((?:sept_offline|simulators|tests|benchmarks|datasets|docs)/[\w./-]*)`")


def named(page: Path) -> str:
    """The name of a page in a report of tests."""
    return str(page.relative_to(ROOT).with_suffix(""))


def anchors(page: Path) -> set[str]:
    """What can follow # in a link to a page, as forges and the site make it of its headings."""
    text = FENCED.sub("", page.read_text(encoding="utf-8"))
    found: dict[str, int] = {}
    slugs = set()
    for heading in re.findall(r"^#{1,4} (.+?)\s*$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\s-]", "", plain.lower()).replace(" ", "-")
        count = found.setdefault(slug, 0)
        found[slug] += 1
        slugs.add(f"{slug}-{count}" if count else slug)
    return slugs


def blocks(page: Path, kind: str) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return [found["code"] for found in FENCED.finditer(text) if found["kind"].strip() == kind]


def shell_lines(page: Path) -> list[str]:
    """Full lines for a shell of a page: in its blocks and in indented lines."""
    text = page.read_text(encoding="utf-8")
    plain = FENCED.sub("", text)
    lines = [line.strip() for line in plain.splitlines() if line.startswith("    ")]
    for kind in ("bash", "bash run"):
        lines += [line.strip() for block in blocks(page, kind) for line in block.splitlines()]
    return [line for line in lines if "…" not in line]


def commands(page: Path) -> list[str]:
    """Those that are commands of ours and nothing else."""
    return [line for line in shell_lines(page) if line.startswith("sept-offline ")]


def environment() -> dict[str, str]:
    folder = Path(sys.executable).parent
    return {
        **os.environ,
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
    }


Files = dict[Path, bytes]


def files(folder: Path, *names: str) -> Files:
    """What a folder holds, or only these of its files and folders, by relative paths."""
    places = [folder / name for name in names] if names else [folder]
    found = {path for place in places for path in (place, *place.rglob("*")) if path.is_file()}
    return {path.relative_to(folder): path.read_bytes() for path in sorted(found)}


@pytest.fixture(scope="module")
def made() -> dict[tuple[object, ...], Files]:
    """The files written by lines that stand on several pages, by the line and what it reads."""
    return {}


def run_once(line: str, cwd: Path, made: dict[tuple[object, ...], Files]) -> None:
    """A line of a shell; one that has run on the same files before has made the same ones."""
    if sum(line in shell_lines(page) for page in PAGES) == 1:
        run_line(line, cwd)
        return
    given = (line, *files(cwd, *shlex.split(line, comments=True)).items())
    if given not in made:
        before = files(cwd)
        run_line(line, cwd)
        made[given] = dict(files(cwd).items() - before.items())
    for path, content in made[given].items():
        (cwd / path).parent.mkdir(parents=True, exist_ok=True)
        (cwd / path).write_bytes(content)


def run_line(line: str, cwd: Path) -> None:
    """A line of a shell, whose programs are ours; something may be handed to the last of them."""
    for many, few in FEWER.items():
        line = re.sub(many, few, line)
    *before, last = line.split(" | ")
    given = None
    if before:
        shell = ["bash", "-o", "pipefail", "-c", " | ".join(before)]
        given = subprocess.run(shell, cwd=cwd, capture_output=True, text=True, check=True).stdout
    program, *words = shlex.split(last, comments=True)
    assert program == "sept-offline", line
    code = EMPTY if words[0] == "bench" else processes.COMMAND
    done = processes.run(*words, given=given, code=code, cwd=cwd, env=environment())
    assert done.returncode == 0, (line, done.stderr)
    assert done.stdout, f"{line} says nothing"
    if before:
        assert done.stderr == "" and json.loads(done.stdout)["episode"], done


def run_code(code: str, cwd: Path) -> None:
    """A page's Python, as one script."""
    (cwd / "page.py").write_text(code, encoding="utf-8")
    done = processes.run(script=cwd / "page.py", cwd=cwd, env=environment())
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_code_of_a_page_runs(
    page: Path, tmp_path: Path, made: dict[tuple[object, ...], Files]
) -> None:
    for name, code in SAVED.findall(page.read_text(encoding="utf-8")):
        (tmp_path / name).write_text(code, encoding="utf-8")
    text = page.read_text(encoding="utf-8")
    kinds = [found["kind"].strip() for found in FENCED.finditer(text)]
    # all of one kind, then all of the other; the page's first block says which
    for kind in sorted({"python", "bash run"} & set(kinds), key=kinds.index):
        if kind == "python" and page.stem in ELSEWHERE:
            continue
        if kind == "python":
            code = "\n".join(blocks(page, kind))
            for many, few in FEWER_IN_CODE.get(page, {}).items():
                assert code.count(many) == 1, many
                code = code.replace(many, few)
            run_code(code, tmp_path)
            continue
        for line in "".join(blocks(page, kind)).splitlines():
            if line.partition("#")[0].strip() and line not in ELSEWHERE_TOO:
                run_once(line, tmp_path, made)
    if page.stem == "commands":
        assert {path.name for path in tmp_path.iterdir()} == LEFT_BY_COMMANDS


@pytest.mark.long
def test_what_a_page_says_is_learned_comes_of_its_code(tmp_path: Path) -> None:
    run_code("\n".join(blocks(LEARNED, "python")), tmp_path)


def test_code_runs_where_nothing_is_loaded_yet() -> None:
    """The page on deployment starts the installed program so, by its own code.

    tests/cli/test_commands.py collects by command in such an interpreter, loads every public name,
    then fits and evaluates.
    """
    deploy = "\n".join(blocks(ROOT / "docs" / "deploy.md", "python"))
    assert '[program, "act", "runs/nav"]' in deploy


@pytest.mark.parametrize("page", LINKED, ids=named)
def test_commands_parse(page: Path) -> None:
    for line in commands(page):
        name, *arguments = shlex.split(line, comments=True)[1:]
        if name.startswith("-"):
            continue
        command = cli.get_command(click.Context(cli), name)
        assert command is not None, f"{page.name}: there is no command {name}"
        if "--help" not in arguments:
            command.make_context(name, arguments)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_an_extra_is_named_where_a_command_needs_it(page: Path) -> None:
    needed = {
        extra
        for line in commands(page)
        for command, extra in (("export", "onnx"), ("report", "report"), ("demarcate", "cluster"))
        if line.split()[1] == command and not {"--numpy", "--help"} & set(line.split())
    }
    text = page.read_text(encoding="utf-8")
    for extra in needed:
        named_so = re.search(rf"\[(?:\w+,)*{extra}(?:,\w+)*\]", text)
        assert named_so, f"{page.name} needs the extra [{extra}] and does not say so"


def test_pages_hold_what_is_tested_here() -> None:
    assert sum(len(blocks(page, "python")) for page in PAGES) >= 10
    assert sum(len(commands(page)) for page in PAGES) >= 15
    kinds = {
        found["kind"].strip()
        for page in PAGES
        for found in FENCED.finditer(page.read_text(encoding="utf-8"))
    }
    assert kinds - SITE <= {"python", "bash", "bash run", "toml"}, "a kind that is never tested"


@pytest.mark.parametrize("page", LINKED, ids=named)
def test_links_and_paths_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for link, anchor in re.findall(r"\]\((?!https?://|mailto:)([^)#\s]*)#?([^)]*)\)", text):
        target = page.parent / link if link else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name} links to {link}#{anchor}"
    for path in OWN.findall(text):
        assert (ROOT / path).exists(), f"{page.name} names {path}"


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_has_its_section(name: str) -> None:
    assert name in anchors(ROOT / "docs" / "commands.md")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_code_is_where_a_page_says(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name, path in re.findall(r"`([A-Za-z_][\w.]*)`\s+in\s+`(\w+/[\w/]+\.py)`", text):
        code = (ROOT / path).read_text(encoding="utf-8")
        for part in name.split("."):
            defined = rf"^\s*(?:class |def ){part}\b|^{part}\b.*="
            assert re.search(defined, code, re.MULTILINE), f"{page.name}: {name} is not in {path}"


def test_the_architecture_is_that_of_the_test() -> None:
    code = ast.parse((ROOT / "tests" / "test_architecture.py").read_text(encoding="utf-8"))
    order = next(
        ast.literal_eval(node.value)
        for node in code.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "ORDER"
    )
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rule = page.partition("## The rule")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", rule, re.MULTILINE) == order


def test_every_method_has_its_page() -> None:
    from sept_offline.methods.fitting import METHODS

    assert {page.stem for page in METHOD_PAGES} == set(METHODS)
    for page in METHOD_PAGES:
        headings = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings == [
            "Formula and file",
            "What it needs at test time",
            "How it departs from the paper",
            "Fit it",
        ], page.name


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("logs") / "navigation.h5"
    sept_offline.collect_dataset(
        "navigation2d", path, overrides={"behaviour": "random", "episodes": 60}, seed=0
    )
    return path


@pytest.mark.parametrize("page", METHOD_PAGES, ids=named)
def test_a_method_is_fitted_as_its_page_says(page: Path, logs: Path, tmp_path: Path) -> None:
    line = next(line for line in commands(page) if " fit " in line)
    _, _, _, *arguments = shlex.split(line)
    assert arguments[:2] == ["--method", page.stem]
    tiny = tomllib.loads(QUICK.read_text("utf-8"))
    for part, settings in tiny["settings"].items():
        for name, value in settings.items():
            # what is learned is not asked here
            few = min(value, 5) if name.endswith("updates") else value
            arguments += ["--set", f"{part}.{name}={json.dumps(few)}"]
    out = tmp_path / "run"
    arguments += ["--no-verdict", "--quiet", "-o", str(out)]
    done = CliRunner().invoke(cli, ["fit", str(logs), *arguments])
    assert done.exit_code == 0, (done.output, done.exception)
    agent = sept_offline.load_agent(out)
    table = (ROOT / "docs" / "methods" / "index.md").read_text(encoding="utf-8")
    row = next(line for line in table.splitlines() if line.startswith(f"| [`{page.stem}`]"))
    _, needs, learns = (cell.strip() for cell in row.strip("|").split("|")[1:])
    assert needs == (", ".join(sorted(agent.needs)) or "–")
    assert learns == ("yes" if agent.learns else "no")


def test_the_page_of_settings_is_current() -> None:
    spec = importlib.util.spec_from_file_location(
        "write_settings", ROOT / "docs" / "write_settings.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == module.fill(page), "run `make settings`"
    assert module.fill(module.fill(page)) == page
    # A setting that has changed shows.
    old = page.replace("| `latent.dim` |", "| `latent.width` |")
    assert old != page and module.fill(old) == page


def test_make_knows_the_targets_that_pages_name() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in LINKED:
        for name in re.findall(r"^    make ([\w-]+)", page.read_text("utf-8"), re.MULTILINE):
            assert name in targets, f"{page.name} names make {name}"
