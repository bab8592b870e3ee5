"""`sept-offline import` as a user meets it, and how much memory it takes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pytest
from click.testing import CliRunner

import sept_offline as so
from sept_offline.cli.main import cli, main
from tests.importing.tables import stays, write_table

FLAGS = [
    *("--instance", "site", "--episode", "stay", "--time", "hour"),
    *("--observations", "pulse,pressure", "--action", "drug", "--reward", "score"),
    *("--terminated", "cured", "--truncated", "left"),
]

PEAK = """
import sys
from pathlib import Path
from sept_offline.tools.importing import ImportMapping, import_logs, rows, tables
tables.BLOCK_BYTES, rows.GATHERED_ROWS, rows.BUCKET_BYTES = 1 << 17, 1 << 12, 1 << 21
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024
mapping = ImportMapping(instance="i", episode=("e",), time="t", observations=("a", "b"),
                        action="act", reward="r", probability="p")
import_logs(sys.argv[1], sys.argv[1] + ".h5", mapping)
print(peak())
"""


def test_one_line_of_json_and_a_card(tmp_path: Path) -> None:
    path = write_table(tmp_path / "log.csv", stays())
    words = ["import", str(path), "-o", str(tmp_path / "log.h5"), *FLAGS, "--json"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["instances"], found["episodes"], found["steps"]) == (2, 6, 24)
    assert found["actions"] == ["high", "low", "none"]
    with so.load_dataset(found["path"]) as data:
        assert data.content_hash == found["content_hash"]
        card = data.metadata.extra["card"]
    text = Path(found["card"]).read_text()
    assert Path(found["card"]).name == "log.card.md" and found["content_hash"] in text
    assert card["coverage"]["possible"] == 3.0**5 and "Coverage" in text and "Entropy" in text
    assert "| pulse |" in text and "- `observations`: pulse, pressure" in text


def test_the_same_table_gives_the_same_bytes(tmp_path: Path) -> None:
    path = write_table(tmp_path / "log.csv", stays())
    for name in ("a.h5", "b.h5"):
        CliRunner().invoke(cli, ["import", str(path), "-o", str(tmp_path / name), *FLAGS])
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--action", "drugs"], "has no column 'drugs' (did you mean 'drug'?)"),
        (["--fill", "pulse"], "not of the form COLUMN=RULE"),
        (["--fill", "puls=zero"], "did you mean 'pulse'?"),
        (["--fill", "pulse=previous", "--fill", "pulse=mean"], "--fill names 'pulse' twice"),
        (["--probability", "a", "--probabilities", "a,b"], "mutually exclusive"),
        (["--next-observations", "pulse"], "one for each"),
        (["--observations", "pulse,pulse"], "Error: --observations names 'pulse' twice"),
        (["--delimiter", ";"], "seem to be separated by ','; leave out --delimiter"),
        (
            ["--reward", "drug"],
            "column 'drug': CSV conversion error to double: invalid value 'none' (row 1)",
        ),
        (["--time", "drug"], "expected numbers or timestamps"),
        (["--mapping", "none.toml"], "Cannot read none.toml"),
        (["--bins", "2", "--fill", "drug=abc"], "expected previous, zero or a number"),
    ],
)
def test_wrong_use_is_one_sentence(
    tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_table(tmp_path / "log.csv", stays())
    with pytest.raises(SystemExit) as caught:
        main(["import", str(path), "-o", str(tmp_path / "log.h5"), *FLAGS, *words, "--quiet"])
    printed = capsys.readouterr().err
    assert caught.value.code == 2 and message in printed and "Traceback" not in printed
    assert sorted(file.name for file in tmp_path.iterdir()) == ["log.csv"]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"site;stay;hour\na;1;0\n", "seem to be separated by ';'; add --delimiter ';'"),
        (b"site\tstay\thour\na\t1\t0\n", "seem to be separated by tabs; name the file .tsv"),
        (bytes(range(128)), "is not a text file"),
    ],
)
def test_a_first_line_that_names_no_columns(
    tmp_path: Path, start: bytes, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    path.write_bytes(start)
    with pytest.raises(SystemExit) as caught:
        main(["import", str(path), "-o", str(tmp_path / "log.h5"), *FLAGS, "--quiet"])
    printed = capsys.readouterr().err
    assert caught.value.code == 2 and message in printed
    assert printed.rstrip("\n").isprintable() and "   " not in printed


def test_actions_that_were_never_taken_are_named(tmp_path: Path) -> None:
    path, out = write_table(tmp_path / "log.csv", stays()), str(tmp_path / "log.h5")
    words = ["import", str(path), "-o", out, *FLAGS, "--actions", "none,low,high,double"]
    sentence = "Warning: Actions that were never taken: 'double'. "
    for command in (words, ["inspect", out]):
        done = CliRunner().invoke(cli, command)
        assert done.exit_code == 0 and sentence in done.stdout, done.output


def test_text_that_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, text in (("empty", ""), ("ragged", "a,b\n1,2\n1,2,3\n"), ("header", "a,b\n")):
        path = tmp_path / f"{name}.csv"
        path.write_text(text)
        words = ["--episode", "a", "--observations", "a,b", "--action", "a", "--reward", "b"]
        with pytest.raises(SystemExit) as caught:
            main(["import", str(path), "-o", str(tmp_path / "x.h5"), *words, "--quiet"])
        printed = capsys.readouterr().err
        assert caught.value.code == 2 and str(path) in printed
        assert "row 0" not in printed, "where a line cannot be parsed Arrow does not say which"


@pytest.mark.parametrize(
    "shuffled",
    [
        # read by the same blocks, and not sorted
        pytest.param(False, id="in order", marks=pytest.mark.long),
        pytest.param(True, id="shuffled"),
    ],
)
def test_memory_does_not_grow_with_the_table(tmp_path: Path, shuffled: bool) -> None:
    """Blocks are small here, so that what they take is reached by tables of this size."""
    peaks = []
    for steps in (100_000, 400_000):
        rng = np.random.default_rng(0)
        number = rng.permutation(steps) if shuffled else np.arange(steps)
        table = pa.table(
            {
                "i": pa.array([f"site-{k}" for k in range(4)]).take(pa.array(number // 50 % 4)),
                "e": number // 50,
                "t": number % 50,
                "a": rng.normal(size=steps).astype(np.float32),
                "b": rng.normal(size=steps).astype(np.float32),
                "act": rng.integers(3, size=steps),
                "r": rng.normal(size=steps),
                "p": np.full(steps, 1 / 3),
            }
        )
        path = tmp_path / f"{steps}.csv"
        pc.write_csv(table, path)
        command = [sys.executable, "-c", PEAK, str(path)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        peaks.append(float(done.stdout))
    # 24 MB more of text; buckets, gathered rows or blocks without a limit take 55 MB more and up.
    assert peaks[1] - peaks[0] < 30, peaks
