"""The shipped sample can be made again, and a card says what a dataset holds."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

import sept_offline as so
from sept_offline.cli.main import cli
from sept_offline.collect import Recipe
from tests.processors import SETTINGS

ROOT = Path(__file__).parents[1]
SAMPLE = ROOT / "datasets" / "sample.h5"


def load_script(name: str) -> ModuleType:
    """A script of `benchmarks/` as a module."""
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_the_documented_command_makes_the_sample_again(tmp_path: Path) -> None:
    text = (ROOT / "datasets" / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    sept-offline (.+ -o sample\.h5)$", text, re.MULTILINE)
    again = tmp_path / "sample.h5"
    words = shlex.split(command.replace("sample.h5", str(again)))
    assert CliRunner().invoke(cli, words).exit_code == 0
    with so.load_dataset(SAMPLE) as shipped, so.load_dataset(again) as made:
        assert made.content_hash == shipped.content_hash
        same_versions = made.metadata.versions == shipped.metadata.versions
    # The file also names the versions that wrote it; with the same ones it is the same file.
    if same_versions:
        assert again.read_bytes() == SAMPLE.read_bytes()


def test_the_sample_is_small_and_sound() -> None:
    assert SAMPLE.stat().st_size <= 100_000
    assert so.validate(SAMPLE).ok
    with so.load_dataset(SAMPLE) as data:
        assert (data.num_episodes, len(data.instances)) == (40, 2)
        assert data.metadata.family == "navigation2d"


def test_a_card_says_what_the_dataset_holds() -> None:
    cards = load_script("cards")
    recipe = Recipe(behaviour="random", episodes=40)
    with so.load_dataset(SAMPLE) as data:
        cards.check_recipe(data, recipe)
        with pytest.raises(SystemExit, match="delete the file"):
            cards.check_recipe(data, dataclasses.replace(recipe, behaviour="replay"))
        card = cards.make_card(data, "random", {"sept-offline collect x": "abc"})
        assert card.startswith("# navigation2d\n")
        assert data.content_hash in card and f"{data.num_steps:,}" in card
        assert "`random`: 40 random episodes" in card
        assert "| `sept-offline collect x` | `abc` |" in card
        for instance in data.instances:
            total = [episode.rewards.sum() for episode in data.episodes(instance=instance)]
            mean = f"{sum(total) / len(total):,.4g}"
            assert re.search(rf"^\| {instance} \| 20 \| .*{re.escape(mean)}", card, re.MULTILINE)


def test_cards_that_are_shipped_belong_to_a_family() -> None:
    for card in (ROOT / "datasets" / "cards").glob("*.md"):
        family = so.load_family(card.stem)
        text = card.read_text(encoding="utf-8")
        assert text.startswith(f"# {family.name}\n")
        assert re.search(r"content hash \| `[0-9a-f]{64}`", text)


def card_commands(card: Path) -> dict[str, str]:
    """The commands that a card names, each with its content hash."""
    text = card.read_text(encoding="utf-8")
    [first] = re.findall(r"^\| command \| `(.+?)` \|$", text, re.MULTILINE)
    [digest] = re.findall(r"^\| content hash \| `([0-9a-f]{64})` \|$", text, re.MULTILINE)
    others = re.findall(r"^\| `(sept-offline .+?)` \| `([0-9a-f]{64})` \|$", text, re.MULTILINE)
    return {first: digest, **dict(others)}


def portable_cards() -> list[Path]:
    """Cards whose hashes are promised everywhere: MuJoCo's simulators are not ours."""
    cards = sorted((ROOT / "datasets" / "cards").glob("*.md"))
    return [card for card in cards if so.load_family(card.stem).extra is None]


@pytest.mark.long
@pytest.mark.parametrize("setting", ["generic", "compatible", "libm", "numba"])
@pytest.mark.parametrize("card", portable_cards(), ids=lambda card: card.stem)
def test_the_cards_hashes_hold_on_other_processors(
    card: Path, setting: str, tmp_path: Path
) -> None:
    """Environment variables make the libraries take the instructions of another processor."""
    script = "from sept_offline.cli.main import main; main()"
    for command, expected in card_commands(card).items():
        done = subprocess.run(
            [sys.executable, "-c", script, *shlex.split(command)[1:], "--json", "--quiet"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **SETTINGS[setting]},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["content_hash"] == expected, command
