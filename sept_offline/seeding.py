"""Random generators, spawned by name from one root seed; nothing reads global state."""

from __future__ import annotations

import hashlib
import numbers
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import ConfigError

if TYPE_CHECKING:
    import torch

Name = str | int


def root_seed(seed: Any) -> int:
    """A user's seed as a plain integer; a ConfigError if it is not a whole number from 0."""
    whole = isinstance(seed, numbers.Integral) and not isinstance(seed, bool)
    if not whole or seed < 0:
        raise ConfigError(f"The seed is {seed!r:.80}; expected a whole number of at least 0.")
    return int(seed)


def seed_sequence(root: int, *names: Name) -> np.random.SeedSequence:
    """The seed sequence of the stream that `names` name under `root`."""
    text = "\x1f".join(f"{type(name).__name__}:{name}" for name in names)
    digest = hashlib.sha256(text.encode()).digest()
    words = [int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4)]
    return np.random.SeedSequence(entropy=root, spawn_key=tuple(words))


def generator(root: int, *names: Name) -> np.random.Generator:
    """A NumPy generator for the stream `names` under `root`, e.g. `generator(0, "latent")`."""
    return np.random.Generator(np.random.PCG64(seed_sequence(root, *names)))


def integer(root: int, *names: Name) -> int:
    """A seed in [0, 2**31) for libraries that want a plain integer."""
    return int(seed_sequence(root, *names).generate_state(1, np.uint32)[0] >> 1)


def torch_generator(root: int, *names: Name) -> torch.Generator:
    """A CPU torch generator for the stream `names` under `root`."""
    import torch

    return torch.Generator().manual_seed(integer(root, *names))


def generator_state(rng: np.random.Generator) -> dict[str, Any]:
    """The state of `rng` as JSON-ready values."""
    state = rng.bit_generator.state
    return {
        "bit_generator": state["bit_generator"],
        "state": {key: str(value) for key, value in state["state"].items()},
        "has_uint32": state["has_uint32"],
        "uinteger": state["uinteger"],
    }


def restore_generator(state: dict[str, Any]) -> np.random.Generator:
    """The generator whose state `generator_state` returned."""
    bits = np.random.PCG64()
    bits.state = {
        "bit_generator": "PCG64",
        "state": {"state": int(state["state"]["state"]), "inc": int(state["state"]["inc"])},
        "has_uint32": state["has_uint32"],
        "uinteger": state["uinteger"],
    }
    return np.random.Generator(bits)
