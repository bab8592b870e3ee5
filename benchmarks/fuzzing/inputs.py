"""Inputs by their numbers: which file is mutated, how, and what its readers make of it."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import shutil
import signal
import traceback
import warnings
from pathlib import Path

from benchmarks.fuzzing.kinds import Kind, kinds
from benchmarks.fuzzing.mutations import mutate
from benchmarks.fuzzing.outcomes import Finding
from benchmarks.fuzzing.readers import Reader
from benchmarks.fuzzing.watching import Watch
from sept_offline import seals
from sept_offline.errors import SeptError

SECONDS = 10
MEMORY, ROOM = 1 << 30, 4 << 30
"""What a reader may take, and what it is given to see whether it would have taken more."""
STARVED = ("malloc of size", "memory allocation failed", "bad_alloc", "cannot allocate memory")
"""How Arrow and HDF5 say that they asked for more memory than there is."""


class Hang(BaseException):
    """An input took too long."""


class Fuzzer:
    """A corpus, what its files read as when they are whole, and inputs by their numbers."""

    def __init__(self, corpus: Path, seed: int = 0, chosen: tuple[str, ...] = ()) -> None:
        self.corpus, self.seed = corpus, seed
        self.watch = Watch()
        part = next((corpus / "parts").glob("part-*.parquet"), None)
        self.kinds: list[Kind] = []
        for name, kind in kinds().items():
            if name == "parts/part" and part is not None:
                kind = Kind(f"parts/{part.name}", kind.readers, kind.form, weight=kind.weight)
            if (corpus / kind.path).exists() and (not chosen or name in chosen):
                self.kinds.append(kind)
        self.whole: dict[tuple[str, int], str] = {}

    def learn(self, folder: Path) -> None:
        """Read every file as it is."""
        for kind in self.kinds:
            for place, reader in enumerate(kind.readers):
                self.whole[kind.path, place] = reader(folder)

    def one(self, number: int, folder: Path) -> list[Finding]:
        """Mutate, read, and put the file back."""
        rng = random.Random(f"{self.seed} {number}")
        kind = rng.choices(self.kinds, [kind.weight for kind in self.kinds])[0]
        path = folder / kind.path
        content = path.read_bytes()
        mutated, edited = mutate(kind, content, rng, folder)
        found = []
        for place, reader in enumerate(kind.readers):
            path.write_bytes(mutated)
            try:
                outcome, words = self._read(kind, place, reader, folder, edited, mutated == content)
            finally:
                self._restore(folder, path, content)
            found.append(Finding(number, kind.path.split("/part-")[0], outcome, words))
        return found

    def _restore(self, folder: Path, path: Path, content: bytes) -> None:
        path.write_bytes(content)
        if path.parts[-2] == "begun" or "checkpoints" in path.parts:
            # a resumed run rewrites its metrics
            shutil.copyfile(self.corpus / "begun/metrics.csv", folder / "begun/metrics.csv")
            if path.name != "metrics.csv":
                path.write_bytes(content)

    def _read(
        self,
        kind: Kind,
        place: int,
        reader: Reader,
        folder: Path,
        edited: bool,
        unchanged: bool,
    ) -> tuple[str, str]:
        # The library warns once for each folder: every input is read as if it were the first.
        seals._warned.clear()
        self.watch.clear()
        signal.setitimer(signal.ITIMER_REAL, SECONDS)
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                found = reader(folder)
        except SeptError as error:
            outcome, words = self.watch.outcome() or _refused(error)
            if outcome == "memory" and taken(reader, folder) < MEMORY:
                return "refused", words
            return outcome, words
        except MemoryError as error:
            return "memory", str(error)
        except Hang:
            return "hang", ""
        except Exception:
            return self.watch.outcome() or ("traceback", traceback.format_exc())
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        seen = self.watch.outcome()
        if seen is not None:
            return seen
        if found == self.whole[kind.path, place] or unchanged:
            return "same", ""
        if edited:
            return "edited", ""
        if not kind.sealed:
            return "no checksum", ""
        if any("has no checksum" in str(one.message) for one in said):
            return "warned", ""
        return "different", ""


def taken(reader: Reader, folder: Path, most: int = ROOM) -> int:
    """Bytes that a reader really takes where there are `most`, in a process of its own.

    A damaged length makes a library ask for memory that it would never touch: the bytes it would
    read into it are not there.
    """
    here, there = os.pipe()
    child = os.fork()
    if not child:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with contextlib.suppress(BaseException):
            own = Path("/proc/self/statm").read_text().split()[0]
            room = int(own) * resource.getpagesize() + most
            resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            reader(folder)
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        os.write(there, str((after - before) << 10).encode())
        os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        found = pipe.read()
    os.waitpid(child, 0)
    return int(found or most)  # whoever died before it could tell took all


def _refused(error: SeptError) -> tuple[str, str]:
    """`refused`, if it is one sentence and the memory sufficed to find out."""
    text = str(error)
    if "\n" in text:
        return "traceback", f"several lines: {text}"
    problem: BaseException | None = error
    while problem is not None:
        if isinstance(problem, MemoryError) or any(one in str(problem).lower() for one in STARVED):
            return "memory", f"refused for lack of memory: {text}"
        problem = problem.__cause__ or problem.__context__
    return "refused", text
