"""The checks of an installation: installed packages, and small pieces of real work.

An error in a check becomes its result.
"""

from __future__ import annotations

import contextlib
import getpass
import importlib
import importlib.metadata
import io
import platform
import re
import tempfile
import tomllib
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from sept_offline.errors import one_line

LONGEST = 200
"""Characters of an error that are shown; some libraries send pages."""
FAMILIES = "sept_offline.families"
FORMATS = {"HDF5": (".h5", "h5py"), "Parquet": (".parquet", "pyarrow")}
"""Format of datasets → its ending and its library."""


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's table."""

    name: str
    status: Literal["fine", "absent", "broken"]
    """`absent`: an extra that is not installed, which only its own commands miss."""
    found: str
    advice: str = ""
    """Advice; empty if nothing needs to be done."""


class AbsentError(Exception):
    """A check needs an extra that is not installed; the message is what to install."""


def check(name: str, look: Callable[[], str], advice: str) -> Finding:
    """Run `look` and report its result; if it raises, the check is broken and `advice` fixes it.

    After `AbsentError` an extra is absent. What libraries print while they are imported is hidden.
    """
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            return Finding(name, "fine", private(look()))
    except AbsentError as absent:
        return Finding(name, "absent", f"needs {absent}", f'pip install "{absent}"')
    # A broken library raises what it likes: OSError for a missing .so, SystemExit, anything.
    except (Exception, SystemExit) as error:
        text = private(one_line(f"{type(error).__name__}: {error}"))
        short = text if len(text) <= LONGEST else text[:LONGEST] + "…"
        return Finding(name, "broken", short, advice)


def private(text: str) -> str:
    """`text` without the user's home and name, so that it can be published."""
    home = user = ""
    # Without a home, or with a user that no password entry names, there is nothing to hide.
    with contextlib.suppress(RuntimeError):
        home = str(Path.home())
    with contextlib.suppress(ImportError, KeyError, OSError):
        user = getpass.getuser()
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
    if user:
        text = re.sub(rf"(?<=[/\\]){re.escape(user)}(?![\w.-])", "user", text)
    return text


def check_python(asked: Requirement) -> Finding:
    """Whether the library supports this Python version."""

    def look() -> str:
        version = platform.python_version()
        if not asked.accepts(version):
            raise RuntimeError(f"{version}, but {NAME} needs {asked.range}")
        return f"{version}, {platform.python_implementation()}"

    return check("Python", look, f"install a Python {asked.range}")


def check_needed(asked: Requirements) -> Iterator[Finding]:
    """Each library that is always needed: imported, and its version compared."""
    for requirement in asked.needed:
        advice = f"pip install --force-reinstall '{requirement}'"
        yield check(requirement.name, partial(_import, requirement), advice)


def _import(requirement: Requirement) -> str:
    importlib.import_module(requirement.module)
    version = requirement.installed()
    if version is None:
        raise RuntimeError("importable, but not installed as a package")
    if not requirement.accepts(version):
        raise RuntimeError(f"{version}, but {NAME} needs {requirement.range}")
    return f"{version} (needs {requirement.range})" if requirement.range else version


def check_extras(asked: Requirements) -> Iterator[Finding]:
    """Each extra, not imported: they are large, and most commands do without."""
    for extra, needed in asked.extras.items():
        versions = {requirement: requirement.installed() for requirement in needed}
        lacking = []
        for requirement, version in versions.items():
            if version is None:
                lacking.append(f"no {requirement.name}")
            elif not requirement.accepts(version):
                lacking.append(
                    f"{requirement.name} is {version}, but {requirement.range} is required"
                )
        if lacking:
            advice = f"to use it: pip install '{NAME}[{extra}]'"
            yield Finding(f"extra [{extra}]", "absent", ", ".join(lacking), advice)
        else:
            installed = [f"{package.name} {version}" for package, version in versions.items()]
            yield Finding(f"extra [{extra}]", "fine", ", ".join(installed))


def check_entry_points() -> Finding:
    """Whether the command and the families are registered; a separate check loads the families."""

    def look() -> str:
        registered = importlib.metadata.entry_points()
        scripts = registered.select(group="console_scripts", name=NAME)
        if not scripts:
            raise RuntimeError(f"the command {NAME} is not registered")
        for point in scripts:
            point.load()
        families = registered.select(group=FAMILIES)
        known = {(point.group, point.name) for point in families}
        for group, points in (checkout() or {}).get("entry-points", {}).items():
            for name in points:
                if (group, name) not in known:
                    raise RuntimeError(f"{name} of {group} is in pyproject.toml only")
        return f"the command, {len(families)} families"

    where = "-e ." if checkout() else f"--force-reinstall {NAME}"
    return check("entry points", look, f"pip install {where}")


def check_parts() -> Iterator[Finding]:
    """A gradient, a compiled network, a temporary file, and a dataset in each format."""
    again = "pip install --force-reinstall"
    yield check("torch learns", _gradient, f"{again} torch")
    yield check("agent's kernel", _compiled_network, f"{again} numba llvmlite")
    room = "set TMPDIR to a folder with room that you may write"
    yield check("temporary files", _temporary_file, room)
    for kind, (ending, library) in FORMATS.items():
        yield check(f"{kind} datasets", partial(_round_trip, ending), f"{again} {library} numpy")


def check_families() -> Iterator[Finding]:
    """Each registered family: loaded, one instance reset and stepped once."""
    points = importlib.metadata.entry_points(group=FAMILIES)
    for point in sorted(points, key=lambda point: point.name):
        owner = point.dist.name if point.dist else point.value
        yield check(f"family {point.name}", partial(_step, point.name), f"fix or update {owner}")


def _gradient() -> str:
    import torch

    weights = torch.ones(3, requires_grad=True)
    (weights**2).sum().backward()  # type: ignore[no-untyped-call]
    if weights.grad is None or weights.grad.tolist() != [2.0, 2.0, 2.0]:
        raise RuntimeError(f"the gradient of Σw² at 1 is {weights.grad}, expected 2")
    threads = torch.get_num_threads()
    unused = "; CUDA is there and not used" if torch.cuda.is_available() else ""
    return f"on the CPU with {threads} thread{'' if threads == 1 else 's'}{unused}"


def _compiled_network() -> str:
    import numpy as np

    from sept_offline.agent.kernels import forward, pack

    rng = np.random.default_rng(0)
    layers = [
        (rng.normal(size=shape).astype("f4"), rng.normal(size=shape[0]).astype("f4"))
        for shape in ((40, 3), (2, 40))
    ]
    x = rng.normal(size=3).astype("f4")
    (first, bias), (second, offset) = layers
    expected = second @ np.maximum(first @ x + bias, 0) + offset
    weights, plan = pack(layers, [None], False)
    values = forward(x, weights, plan, True, False)
    if not np.allclose(values, expected, atol=1e-4):
        raise RuntimeError(f"the compiled network gives {values}, NumPy {expected}")
    return "compiled, and as NumPy computes"


def _temporary_file() -> str:
    with tempfile.TemporaryDirectory(prefix="sept-offline-") as folder:
        path = Path(folder) / "file"
        path.write_bytes(b"written")
        if path.read_bytes() != b"written":
            raise RuntimeError(f"{path} does not hold what was written to it")
    return f"{tempfile.gettempdir()} can be written"


def _step(name: str) -> str:
    from sept_offline.family import load_family

    family = load_family(name)
    split, hiddens = next(iter(family.splits.items()))
    try:
        environment = family.make(hiddens[0])
    except ModuleNotFoundError as error:
        if family.extra is None:
            raise
        raise AbsentError(f"sept-offline[{family.extra}]") from error
    try:
        environment.reset(seed=0)
        environment.action_space.seed(0)
        environment.step(environment.action_space.sample())
        actions = getattr(environment.action_space, "n", None) or "continuous"
        shape = environment.observation_space.shape or ()
    finally:
        environment.close()  # type: ignore[no-untyped-call]
    sizes = "×".join(map(str, shape))
    return f"{split}-0 steps: {sizes} observed columns, {actions} actions"


def _round_trip(ending: str) -> str:
    import numpy as np

    from sept_offline.data import DatasetWriter, load_dataset, validate

    rewards = np.array([0.5, -1.0], dtype="f4")
    with tempfile.TemporaryDirectory(prefix="sept-offline-") as folder:
        path = Path(folder) / f"tiny{ending}"
        with DatasetWriter(path, num_actions=2) as writer:
            for instance in ("a", "b"):
                writer.append(
                    instance=instance,
                    observations=np.arange(6.0).reshape(3, 2),
                    actions=[0, 1],
                    rewards=rewards,
                    terminated=False,
                    truncated=True,
                )
        validate(path).raise_if_bad()
        with load_dataset(path) as data:
            read = [np.asarray(episode.rewards) for episode in data.episodes()]
            content = data.content_hash
    if len(read) != 2 or not all(np.array_equal(values, rewards) for values in read):
        raise RuntimeError(f"two episodes were written with rewards {rewards}, but {read} was read")
    return f"written, validated and read back; content {content[:16]}"


NAME = "sept-offline"
FORM = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)(?:\[(?P<extras>[^\]]*)\])?\s*\(?(?P<range>[^;)]*)\)?"
    r"(?:;.*extra\s*==\s*['\"](?P<extra>[^'\"]+)['\"].*)?"
)
MODULES = {"scikit-learn": "sklearn", "pytest-xdist": "xdist", "myst-parser": "myst_parser"}
"""Distributions that are not imported by their own names, `-` for `_` aside."""


@dataclass(frozen=True)
class Requirement:
    """A distribution and the versions of it that will do, such as `numpy` and `>=2.0`."""

    name: str
    range: str = ""

    @property
    def module(self) -> str:
        """The name it is imported by."""
        return MODULES.get(self.name.lower(), self.name.replace("-", "_"))

    def installed(self) -> str | None:
        """The version that is there."""
        try:
            return importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return None

    def accepts(self, version: str) -> bool:
        """Whether `version` is allowed; True if versions cannot be compared."""
        try:
            from packaging.specifiers import SpecifierSet
        except ImportError:
            return True
        return SpecifierSet(self.range).contains(version, prereleases=True)

    def __str__(self) -> str:
        return f"{self.name}{self.range}"


@dataclass(frozen=True)
class Requirements:
    """All requirements: the Python version, the library's packages, and those of each extra."""

    python: Requirement
    needed: tuple[Requirement, ...]
    extras: dict[str, tuple[Requirement, ...]]


def requirements() -> Requirements:
    """From pyproject.toml in a checkout, which may be newer than its installation; else as
    installed."""
    project = checkout()
    if project is not None:
        extras = project.get("optional-dependencies", {})
        return Requirements(
            Requirement("Python", project.get("requires-python", "")),
            _parse(project["dependencies"]),
            {extra: _expand(extra, extras) for extra in extras},
        )
    installed = importlib.metadata.metadata(NAME)
    named: dict[str, list[str]] = {extra: [] for extra in installed.get_all("Provides-Extra") or []}
    needed: list[str] = []
    for line in installed.get_all("Requires-Dist") or []:
        form = FORM.match(line)
        extra = form["extra"] if form else None
        (needed if extra is None else named.setdefault(extra, [])).append(line)
    return Requirements(
        Requirement("Python", "".join(installed.get_all("Requires-Python") or [])),
        _parse(needed),
        {extra: _expand(extra, named) for extra in named},
    )


def checkout() -> dict[str, Any] | None:
    """The `[project]` of the pyproject.toml next to the package, if it is this library's."""
    path = Path(__file__).parents[3] / "pyproject.toml"
    try:
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    except (OSError, KeyError, ValueError):
        return None
    return project if isinstance(project, dict) and project.get("name") == NAME else None


def _expand(
    extra: str, extras: dict[str, list[str]], within: tuple[str, ...] = ()
) -> tuple[Requirement, ...]:
    """An extra's requirements; where it names other extras of ours, theirs too."""
    whole: list[Requirement] = []
    for line in extras.get(extra, []):
        form = FORM.match(line)
        if form and form["name"] == NAME:
            for other in (form["extras"] or "").split(","):
                # an extra may name itself in a circle, and pip does not mind
                if other.strip() not in (*within, extra):
                    whole.extend(_expand(other.strip(), extras, (*within, extra)))
        else:
            whole.extend(_parse([line]))
    return tuple(dict.fromkeys(whole))


def _parse(lines: Iterable[str]) -> tuple[Requirement, ...]:
    forms = (FORM.match(line) for line in lines)
    return tuple(Requirement(form["name"], form["range"].strip()) for form in forms if form)
