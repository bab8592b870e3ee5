"""The code blocks of docs/families.md run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "families.md").read_text(encoding="utf-8"), re.S
)


@pytest.mark.parametrize("index", range(len(BLOCKS)))
def test_code_block(index):
    subprocess.run([sys.executable, "-c", BLOCKS[index]], cwd=ROOT, check=True, timeout=60)


def test_there_are_blocks():
    assert len(BLOCKS) == 4
