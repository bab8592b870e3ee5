"""Mutated files of every kind through every reader: what is refused, and what is not.

    python benchmarks/fuzz.py --inputs 100000 [--seed 0] [--workers 2] [--kinds run.json,…] [--show]

A small corpus is made by the library itself. Each input is one file of it, mutated (bytes, or what
its format means: JSON values, columns, links, headers), read by everything that reads such a file,
in a forked worker that may take 1 GB more than it had with all libraries loaded, and 10 seconds.
A mutation that makes the checksums right again is a deliberate edit and counts apart.

    refused    one sentence, as it should be
    same       loaded, with the very content that was written
    edited     loaded with other content whose checksum was made right: nobody can tell
    warned     loaded with other content and the warning that the file carries no checksum
    no checksum  loaded with other content from a kind of file that never has a checksum

Wrong in any case:

    different  loaded without a word with other content
    traceback  any other exception, or a refusal of several lines
    hang       more than 10 seconds
    memory     more than 1 GB was taken, even if the reader then refused in one sentence
    crash      the worker died
    executed   a module that a file names was imported, a process started or a pickle loaded
    contacted  a socket was connected, or a remote filesystem of Arrow opened
"""

from __future__ import annotations

import argparse
import collections
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.fuzzing.corpus import make_corpus
from benchmarks.fuzzing.inputs import Fuzzer
from benchmarks.fuzzing.outcomes import WRONG, tabulate
from benchmarks.fuzzing.workers import fuzz, load_everything


def main() -> None:
    """Fuzz, and show the counts; exit code 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--inputs", type=int, default=1000, help="number of inputs")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kinds", default="", help="names of files, separated by commas")
    parser.add_argument("--show", type=int, default=5, help="wrong outcomes to show in full")
    arguments = parser.parse_args()
    load_everything()
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    began, shown = time.monotonic(), 0
    with tempfile.TemporaryDirectory() as scratch:
        corpus = Path(scratch) / "corpus"
        make_corpus(corpus)
        chosen = tuple(name for name in arguments.kinds.split(",") if name)
        fuzzer = Fuzzer(corpus, arguments.seed, chosen)
        for found in fuzz(fuzzer, arguments.inputs, arguments.workers, arguments.first):
            counts[found.kind][found.outcome] += 1
            if found.outcome in WRONG and shown < arguments.show:
                shown += 1
                print(
                    f"input {found.number}, {found.kind}: {found.outcome}\n{found.words}",
                    flush=True,
                )
    print(tabulate(counts))
    print(f"{arguments.inputs:,} inputs, seed {arguments.seed}, {time.monotonic() - began:.0f} s")
    if any(own[name] for own in counts.values() for name in WRONG):
        sys.exit(1)


if __name__ == "__main__":
    main()
