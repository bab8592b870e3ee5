"""Checks that the parts do what they are there for: small, real pieces of work."""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from sept_offline.tools.doctor.finding import AbsentError, Finding, check

KINDS = {"HDF5": ".h5", "Parquet": ".parquet"}


def check_torch() -> Finding:
    """A gradient, and what it is computed on."""

    def look() -> str:
        import torch

        weights = torch.ones(3, requires_grad=True)
        (weights**2).sum().backward()  # type: ignore[no-untyped-call]
        if weights.grad is None or weights.grad.tolist() != [2.0, 2.0, 2.0]:
            raise RuntimeError(f"the gradient of Σw² at 1 is {weights.grad}, expected 2")
        threads = torch.get_num_threads()
        unused = "; CUDA is there and not used" if torch.cuda.is_available() else ""
        return f"on the CPU with {threads} thread{'' if threads == 1 else 's'}{unused}"

    return check("torch learns", look, "pip install --force-reinstall torch")


def check_kernel() -> Finding:
    """An agent's network as compiled code, against NumPy."""

    def look() -> str:
        import numpy as np

        from sept_offline.agent.kernels import forward, pack

        rng = np.random.default_rng(0)
        shapes = ((40, 3), (2, 40))
        layers = [
            (rng.normal(size=shape).astype("f4"), rng.normal(size=shape[0]).astype("f4"))
            for shape in shapes
        ]
        x = rng.normal(size=3).astype("f4")
        (first, bias), (second, offset) = layers
        expected = second @ np.maximum(first @ x + bias, 0) + offset
        weights, plan = pack(layers, [None], False)
        found = forward(x, weights, plan, True, False)
        if not np.allclose(found, expected, atol=1e-4):
            raise RuntimeError(f"the compiled network gives {found}, NumPy {expected}")
        return "compiled, and as NumPy computes"

    return check("agent's kernel", look, "pip install --force-reinstall numba llvmlite")


def check_families() -> Iterator[Finding]:
    """Each registered family: loaded, one instance reset and stepped once."""
    points = importlib.metadata.entry_points(group="sept_offline.families")
    for point in sorted(points, key=lambda point: point.name):
        owner = point.dist.name if point.dist else point.value
        yield check(f"family {point.name}", partial(_step, point.name), f"fix or update {owner}")


def check_temporary() -> Finding:
    """A file in the folder for temporary files."""

    def look() -> str:
        with tempfile.TemporaryDirectory(prefix="sept-offline-") as folder:
            path = Path(folder) / "file"
            path.write_bytes(b"written")
            if path.read_bytes() != b"written":
                raise RuntimeError(f"{path} does not hold what was written to it")
        return f"{tempfile.gettempdir()} can be written"

    return check("temporary files", look, "set TMPDIR to a folder with room that you may write")


def check_formats() -> Iterator[Finding]:
    """A dataset of two episodes in each format, written, validated and read back."""
    for kind, ending in KINDS.items():
        library = "h5py" if kind == "HDF5" else "pyarrow"
        advice = f"pip install --force-reinstall {library} numpy"
        yield check(f"{kind} datasets", partial(_round_trip, ending), advice)


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
        report = validate(path)
        report.raise_if_bad()
        with load_dataset(path) as data:
            read = [np.asarray(episode.rewards) for episode in data.episodes()]
            content = data.content_hash
    if len(read) != 2 or not all(np.array_equal(one, rewards) for one in read):
        raise RuntimeError(f"two episodes were written with rewards {rewards}, read was {read}")
    return f"written, validated and read back; content {content[:16]}"
