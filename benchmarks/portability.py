"""Does every command of the cards give its content hash, whatever the processor?

    python benchmarks/portability.py
    python benchmarks/portability.py navigation2d --settings generic libm

Each `collect` command that a card names runs in a process of its own under every setting: a choice
of environment variables that makes torch, NumPy, Numba or the C library take the instructions of
another processor. The table shows the hash and the seconds of each; exit code 1 if one differs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.processors import SETTINGS  # noqa: E402

CARDS = ROOT / "datasets" / "cards"


def card_commands(card: Path) -> dict[str, str]:
    """The commands that a card names, each with its content hash."""
    text = card.read_text(encoding="utf-8")
    [first] = re.findall(r"^\| command \| `(.+?)` \|$", text, re.MULTILINE)
    [digest] = re.findall(r"^\| content hash \| `([0-9a-f]{64})` \|$", text, re.MULTILINE)
    others = re.findall(r"^\| `(sept-offline .+?)` \| `([0-9a-f]{64})` \|$", text, re.MULTILINE)
    return {first: digest, **dict(others)}


def content_hash(command: str, setting: str) -> str:
    """The content hash that `command` gives under a setting."""
    with tempfile.TemporaryDirectory() as folder:
        words = shlex.split(command)[1:]
        script = "from sept_offline.cli.main import main; main()"
        done = subprocess.run(
            [sys.executable, "-c", script, *words, "--json", "--quiet"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **SETTINGS[setting]},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise SystemExit(f"{command} under {setting}:\n{done.stderr}")
    digest: str = json.loads(done.stdout)["content_hash"]
    return digest


def main() -> int:
    """Run every command under every setting and print a table."""
    cards = {card.stem: card for card in sorted(CARDS.glob("*.md"))}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", default=list(cards), metavar="family")
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    arguments = parser.parse_args()
    print("| command | setting | content hash | as the card | s |\n|---|---|---|---|---|")
    different = 0
    for family in arguments.families:
        for command, expected in card_commands(cards[family]).items():
            for setting in arguments.settings:
                began = time.monotonic()
                found = content_hash(command, setting)
                different += found != expected
                same = "yes" if found == expected else "NO"
                seconds = time.monotonic() - began
                row = f"| `{command}` | {setting} | `{found[:8]}…` | {same} | {seconds:.0f} |"
                print(row, flush=True)
    print(f"\n{different} of the hashes differ from the card.")
    return int(different > 0)


if __name__ == "__main__":
    sys.exit(main())
