"""An exported agent in one file: NumPy acts, and nothing else is needed.

Beside this file lie `manifest.json` and `weights.npz`. In an episode:

    from runtime import load
    agent = load("the folder of this file")
    episode = agent.begin(seed=0)
    action = episode.act(observation)       # or act(observation, mask=[True, False, …])

`phase`, `latent`, `uncertainty`, `novelty`, `flagged` and `out_of_range` of an episode tell what it
knows. The same seed and the same observations give the same actions as the library
the agent came from.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1
F32 = np.float32
LOG_TWO_PI = float(np.log(2 * np.pi))
LONGEST_STACK = 64
LONGEST_SEGMENT = 100_000
LONGEST_REFINED = 10**9


class AgentError(ValueError):
    """The agent is damaged, or was given what it cannot use."""


def load(folder: str | Path) -> Agent:
    """The agent that was exported to `folder`."""
    place = Path(folder)
    try:
        manifest = json.loads((place / "manifest.json").read_text(encoding="utf-8"))
        checksum = manifest.pop("checksum", None)
        body = json.dumps(manifest, indent=2).encode()
        if manifest.get("format") != FORMAT or manifest.get("form") != "numpy":
            raise AgentError(f"{place} holds no agent that this runtime can read.")
        # exports of earlier versions have none
        if checksum is not None and checksum != hashlib.sha256(body).hexdigest():
            raise AgentError(f"{place / 'manifest.json'} is damaged or was edited.")
        weights = read_weights(place / "weights.npz", manifest["files"]["weights.npz"])
        return Agent(manifest, weights)
    except (
        OSError,
        LookupError,
        TypeError,
        AttributeError,
        RuntimeError,
        ArithmeticError,
    ) as error:
        raise AgentError(f"{place} cannot be read: {error}.") from error
    except ValueError as error:
        if isinstance(error, AgentError):
            raise
        raise AgentError(f"{place} is damaged: {error}.") from error


def check_context(context: dict[str, Any]) -> None:
    """Refuse numbers by which no episode can be laid out, or that are none."""
    encoder = context.get("encoder") or {}
    decoder = (context.get("novelty") or {}).get("decoder") or {}
    for record, name, most in (
        (context, "steps", LONGEST_SEGMENT),
        (context, "refine_steps", LONGEST_REFINED),
        (encoder, "steps", LONGEST_SEGMENT),
    ):
        value = record.get(name, 1)
        if type(value) is not int or not 1 <= value <= most:
            raise AgentError(f"An agent has {name!r} from 1 to {most:,}, found {value!r:.40}.")
    for record, name in (
        (encoder, "log_var_range"),
        (encoder, "log_precision_range"),
        (decoder, "log_var_range"),
    ):
        low, high = record.get(name, (0, 1))
        if not -math.inf < low < high < math.inf:
            raise AgentError(f"An agent has two rising numbers as {name!r}, found others.")
    for record, name in ((encoder, "residual_range"), (context, "uncertainty_scale")):
        if not 0 < record.get(name, 1) < math.inf:
            raise AgentError(f"An agent has {name!r} above 0, found {record[name]!r:.40}.")


def read_weights(path: Path, checksum: str | None = None) -> dict[str, Any]:
    """The arrays of an export; they are stored as they are, so that none can unfold in memory."""
    content = path.read_bytes()
    if checksum is not None and hashlib.sha256(content).hexdigest() != checksum:
        raise AgentError(f"{path} does not match its checksum: it is damaged.")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            claimed = sum(entry.file_size for entry in packed.infolist())
        if claimed > len(content):
            raise AgentError(f"{path} claims {claimed:,} bytes of arrays; it is damaged.")
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise AgentError(f"{path} is damaged: {error}.") from error


class Agent:
    """What is shared by all episodes; it never changes."""

    def __init__(self, manifest: dict[str, Any], weights: dict[str, Any]) -> None:
        self.manifest, self.weights = manifest, weights
        self.observation_names = tuple(manifest["observation_names"])
        self.action_names = tuple(manifest["action_names"])
        self.probe_steps = int(manifest["probe_steps"])
        self.context = manifest["context"]
        check_context(self.context)
        # exports of earlier versions stack nothing
        self.stack = int(manifest.get("stack", 1))
        if not 1 <= self.stack <= LONGEST_STACK:
            raise AgentError(f"An agent stacks 1 to {LONGEST_STACK} observations: {self.stack}.")
        seen, taken = len(self.observation_names), len(self.action_names)
        self.width = self.stack * seen + (self.stack - 1) * taken
        self.control = Control(weights, "control")
        self.fallback = Control(weights, "fallback") if manifest["fallback"] else None
        self.encoder: Any = Encoder(self) if "encoder" in self.context else None
        self.lowest = np.asarray(manifest["range"]["lowest"], F32)
        self.highest = np.asarray(manifest["range"]["highest"], F32)

    def begin(self, seed: int = 0, hidden: dict[str, float] | None = None) -> Episode:
        """A new episode; `hidden` only for an agent that needs the hidden parameters."""
        return Episode(self, seed, hidden)


class Scaler:
    """(x − mean) / scale, column by column."""

    def __init__(self, weights: dict[str, Any], name: str) -> None:
        self.mean = weights[f"{name}.mean"]
        self.inverse = (F32(1) / weights[f"{name}.scale"]).astype(F32)

    def __call__(self, x: Any) -> Any:
        """`x[..., k]`, standardised."""
        return (np.asarray(x, F32) - self.mean) * self.inverse


class Layers:
    """Linear layers with an activation, and perhaps a LayerNorm, in each but the last."""

    def __init__(self, weights: dict[str, Any], name: str) -> None:
        activation, norm_first = weights[f"{name}.form"]
        self.relu, self.norm_first = activation == 0, bool(norm_first)
        self.layers: list[tuple[Any, Any, Any]] = []
        while f"{name}.{len(self.layers)}.weight" in weights:
            layer = f"{name}.{len(self.layers)}"
            norm = None
            if f"{layer}.gamma" in weights:
                norm = weights[f"{layer}.gamma"], weights[f"{layer}.beta"]
            self.layers.append((weights[f"{layer}.weight"].T, weights[f"{layer}.bias"], norm))

    def __call__(self, x: Any) -> Any:
        """`x[..., inputs]` to `[..., outputs]`."""
        value = np.asarray(x, F32)
        for weight, bias, norm in self.layers[:-1]:
            value = value @ weight + bias
            if norm is not None and self.norm_first:
                value = _normalise(value, *norm)
            value = np.maximum(value, F32(0)) if self.relu else np.tanh(value)
            if norm is not None and not self.norm_first:
                value = _normalise(value, *norm)
        weight, bias, _ = self.layers[-1]
        return value @ weight + bias


def _normalise(value: Any, gamma: Any, beta: Any) -> Any:
    centred = value - value.mean(axis=-1, keepdims=True)
    variance = (centred * centred).mean(axis=-1, keepdims=True)
    return centred * (F32(1) / np.sqrt(variance + F32(1e-5))) * gamma + beta


class Mean:
    """The mean of several networks."""

    def __init__(self, weights: dict[str, Any], name: str) -> None:
        self.members: list[Layers] = []
        while f"{name}.member{len(self.members)}.form" in weights:
            self.members.append(Layers(weights, f"{name}.member{len(self.members)}"))

    def __call__(self, x: Any) -> Any:
        """The mean output."""
        total = self.members[0](x)
        for member in self.members[1:]:
            total = total + member(x)
        return total * F32(1 / len(self.members))


class Imitated:
    """Values of the actions that an imitator finds likely enough, 0 for the others."""

    def __init__(self, weights: dict[str, Any], name: str) -> None:
        self.values = _network(weights, f"{name}.values")
        self.imitator = _network(weights, f"{name}.imitator")
        self.least = F32(np.log(float(weights[f"{name}.flexibility"][0])))

    def __call__(self, x: Any) -> Any:
        """Shifted values."""
        logits, values = self.imitator(x), self.values(x)
        likely = logits - logits.max(axis=-1, keepdims=True) > self.least
        return (values - values.min(axis=-1, keepdims=True) + F32(1e-5)) * likely


def _network(weights: dict[str, Any], name: str) -> Any:
    if f"{name}.flexibility" in weights:
        return Imitated(weights, name)
    return (Mean if f"{name}.member0.form" in weights else Layers)(weights, name)


class Control:
    """Values the actions on the standardised state and the context beside it."""

    def __init__(self, weights: dict[str, Any], name: str) -> None:
        self.scaler = Scaler(weights, f"{name}.scaler")
        self.network = _network(weights, f"{name}.network")

    def values(self, observation: Any, context: Any) -> Any:
        """`[num_actions]` in `observation[d]` with `context[k]`."""
        return self.network(np.concatenate([self.scaler(observation), context]))


class Episode:
    """One episode: `act` is all there is to do with it."""

    def __init__(self, agent: Agent, seed: int = 0, hidden: dict[str, float] | None = None) -> None:
        kind = agent.context["kind"]
        if (kind == "hidden") != (hidden is not None):
            needed = "needs" if kind == "hidden" else "does not need"
            raise AgentError(f"The agent {needed} the hidden parameters.")
        self.agent, self.steps, self.out_of_range = agent, 0, ()
        self.tracker = TRACKERS[kind](agent, seed, hidden)
        self.stacked = np.zeros(agent.width, F32)

    out_of_range: tuple[str, ...]

    @property
    def phase(self) -> str:
        """Who chooses the next action: "probe" or "control"."""
        return "probe" if self.steps < self.agent.probe_steps else "control"

    @property
    def latent(self) -> Any:
        """The posterior mean `[k]`, once there is one."""
        return self.tracker.latent

    @property
    def uncertainty(self) -> float | None:
        """The posterior's standard deviation, mean over columns."""
        return self.tracker.uncertainty

    @property
    def novelty(self) -> float | None:
        """The share of held-out training segments no likelier than this one; near 0 is new."""
        return self.tracker.novelty

    @property
    def flagged(self) -> bool:
        """Whether the instance looks like none that was learned from."""
        return self.tracker.flagged

    def act(self, observation: Any, mask: Any = None) -> int:
        """The action in `observation[d]`, of those where `mask[num_actions]` is true."""
        agent, value = self.agent, _array(observation, "The observation", F32)
        if value.shape != agent.lowest.shape:
            raise AgentError(f"Expected {len(agent.lowest)} columns, found {list(value.shape)}.")
        row = value.tolist()
        if not all(map(math.isfinite, row)):
            raise AgentError(f"The observation at step {self.steps} is not finite: {row}.")
        allowed = None if mask is None else self._allowed(mask)
        self.out_of_range = ()
        outside = (value < agent.lowest) | (value > agent.highest)
        if outside.any():
            names = agent.observation_names
            self.out_of_range = tuple(names[index] for index in np.flatnonzero(outside))
        tracker = self.tracker
        if agent.stack > 1:
            self.stacked[: len(value)] = value
            if not self.steps:
                self.stacked[: agent.stack * len(value)] = np.tile(value, agent.stack)
            value = self.stacked.copy()
        action = tracker.step(value, allowed)
        self.steps += 1
        if action is None:
            if tracker.flagged and agent.fallback is not None:
                values = agent.fallback.values(value, tracker.vector[:0])
            else:
                values = agent.control.values(value, tracker.vector)
            if allowed is not None:
                values = np.where(allowed, values, -np.inf)
            action = int(values.argmax())
        tracker.took(action)
        if agent.stack > 1:
            self._move(action)
        return action

    def _move(self, action: int) -> None:
        """Each observation and each one-hot action becomes one step older; the newest is first."""
        row, dim, actions = self.stacked, len(self.agent.lowest), len(self.agent.action_names)
        end = self.agent.stack * dim
        row[dim:end] = row[: end - dim].copy()
        row[end + actions :] = row[end : len(row) - actions].copy()
        row[end : end + actions] = 0
        row[end + action] = 1

    def _allowed(self, mask: Any) -> Any:
        given = _array(mask, "A mask")
        flags = given.dtype.kind in "biu" and ((given == 0) | (given == 1)).all()
        if given.shape != (len(self.agent.action_names),) or not flags:
            raise AgentError(
                f"A mask says true or false of {len(self.agent.action_names)} actions."
            )
        allowed = given.astype(bool)
        if not allowed.any():
            raise AgentError("A mask forbids every action; at least one must be allowed.")
        return allowed


def _array(values: Any, what: str, dtype: Any = None) -> Any:
    try:
        return np.asarray(values, dtype)
    except (TypeError, ValueError) as error:
        raise AgentError(f"{what} must be numbers in a row, found {values!r:.80}.") from error


class Tracker:
    """What an episode keeps beside the state; `vector[k]` is what control reads of it."""

    latent: Any = None
    uncertainty: float | None
    novelty: float | None = None
    flagged = False

    def __init__(self, agent: Agent, seed: int, hidden: dict[str, float] | None) -> None:
        self.agent, self.time = agent, 0
        self.vector: Any = np.zeros(0, F32)
        self.uncertainty = agent.context.get("uncertainty")

    def step(self, observation: Any, allowed: Any) -> int | None:
        """The tracker's own action, or None where control is to act."""
        return None

    def took(self, action: int) -> None:
        """Told what was done."""
        self.time += 1


class Hidden(Tracker):
    """The true hidden parameters."""

    def __init__(self, agent: Agent, seed: int, hidden: dict[str, float] | None) -> None:
        super().__init__(agent, seed, hidden)
        names, given = agent.context["names"], hidden or {}
        if set(given) != set(names):
            raise AgentError(f"The agent needs the hidden parameters {', '.join(names)}.")
        values = _array([given[name] for name in names], "The hidden parameters", F32)
        if not np.isfinite(values).all():
            raise AgentError("Hidden parameters must be finite.")
        self.vector = Scaler(agent.weights, "context.scaler")(values)


class History(Tracker):
    """The last steps, newest first: state, one-hot action and a 1; zeros before the episode."""

    def __init__(self, agent: Agent, seed: int, hidden: dict[str, float] | None) -> None:
        super().__init__(agent, seed, hidden)
        self.scaler = Scaler(agent.weights, "context.scaler")
        width = agent.width + len(agent.action_names) + 1
        self.past = np.zeros((agent.context["steps"], width), F32)
        self.vector = self.past.reshape(-1)

    def step(self, observation: Any, allowed: Any) -> int | None:
        """Control acts."""
        self.present = self.scaler(observation)
        return None

    def took(self, action: int) -> None:
        """The present becomes the newest of the past."""
        taken = np.eye(len(self.agent.action_names), dtype=F32)[action]
        newest = np.concatenate([self.present, taken, np.ones(1, F32)])
        self.past = np.concatenate([newest[None], self.past[:-1]])
        self.vector = self.past.reshape(-1)


class Encoded(Tracker):
    """The latent of the first T steps, taken by control: it begins with a latent of its own."""

    def __init__(self, agent: Agent, seed: int, hidden: dict[str, float] | None) -> None:
        super().__init__(agent, seed, hidden)
        self.encoder = agent.encoder
        self.scaler = Scaler(agent.weights, "context.latent")
        steps, dim = self.encoder.steps, agent.width
        self.observations = np.zeros((1, steps + 1, dim), F32)
        self.actions = np.zeros((1, steps), np.int64)
        self.vector = agent.weights.get("context.start", self.vector)

    def step(self, observation: Any, allowed: Any) -> int | None:
        """Control acts."""
        self._see(observation)
        return None

    def took(self, action: int) -> None:
        """One more step."""
        if self.time < self.encoder.steps:
            self.actions[0, self.time] = action
        self.time += 1

    def _see(self, observation: Any) -> None:
        if self.time > self.encoder.steps:
            return
        self.observations[0, self.time] = observation
        if self.time == self.encoder.steps:
            mean, log_var = self.encoder(self.observations, self.actions)
            self._tell(mean[0], log_var[0])
            if self.agent.context["novelty"] is not None:
                self.novelty = novelty(self.agent, self.observations, self.actions, mean, log_var)
                self.flagged = self.novelty < self.agent.context["novelty"]["flagged_below"]

    def _tell(self, mean: Any, log_var: Any) -> None:
        scale = self.agent.context.get("uncertainty_scale", 1.0)
        self.latent = mean
        self.uncertainty = scale * float(np.exp(F32(0.5) * log_var).mean())
        self.vector = self.scaler(mean)


class Probed(Encoded):
    """The latent of the first T steps, taken by a probe."""

    def __init__(self, agent: Agent, seed: int, hidden: dict[str, float] | None) -> None:
        super().__init__(agent, seed, hidden)
        self.random = probe_stream(seed)
        self.kind = (agent.context["probe"] or {}).get("kind")
        if self.kind == "network":
            self.scaled = Scaler(agent.weights, "context.probe.scaler")
            self.network = Layers(agent.weights, "context.probe.network")
        elif self.kind == "table":
            rows = agent.weights["context.probe.table"].astype(np.float64)
            self.table = rows / rows.sum(axis=1, keepdims=True)

    def step(self, observation: Any, allowed: Any) -> int | None:
        """A drawn action while the probe lasts."""
        self._see(observation)
        if self.time >= self.agent.probe_steps:
            return None
        chances = self._probabilities(observation)
        if allowed is not None:
            left = np.where(allowed, chances, 0.0)
            chances = left / left.sum() if left.sum() > 0 else allowed / allowed.sum()
        edges = np.cumsum(chances)
        place = int(np.searchsorted(edges, self.random.random() * edges[-1], side="right"))
        return min(place, int(np.flatnonzero(chances)[-1]))

    def _probabilities(self, observation: Any) -> Any:
        if self.kind == "network":
            logits = self.network(self.scaled(observation)).astype(np.float64)
            likely = np.exp(logits - logits.max())
            return likely / likely.sum()
        if self.kind == "table":
            return self.table[min(self.time, len(self.table) - 1)]
        count = len(self.agent.action_names)
        return np.full(count, 1 / count)


class Refined(Probed):
    """The latent of all steps so far: their evidence is added up."""

    def __init__(self, agent: Agent, seed: int, hidden: dict[str, float] | None) -> None:
        super().__init__(agent, seed, hidden)
        nothing = np.zeros(len(self.scaler.mean), F32)
        self.weighted, self.precision, self.vector = nothing, nothing, self.scaler(nothing)
        self.before, self.last = self.observations[0, 0], 0

    def _see(self, observation: Any) -> None:
        if 0 < self.time <= self.agent.context["refine_steps"]:
            pair = np.stack([self.before, observation])[None]
            found = self.encoder.evidence(pair, np.array([[self.last]]))
            self.weighted = self.weighted + found[0][0, 0]
            self.precision = self.precision + found[1][0, 0]
            self._tell(*posterior(self.weighted, self.precision))
        self.before = observation.copy()
        if self.time <= self.encoder.steps:
            self.observations[0, self.time] = observation
        if self.time == self.encoder.steps and self.agent.context["novelty"] is not None:
            q = posterior(self.weighted[None], self.precision[None])
            self.novelty = novelty(self.agent, self.observations, self.actions, *q)
            self.flagged = self.novelty < self.agent.context["novelty"]["flagged_below"]

    def took(self, action: int) -> None:
        """One more step."""
        super().took(action)
        self.last = action


class Window(Tracker):
    """The latent of the last T steps, and the doubt about it."""

    def __init__(self, agent: Agent, seed: int, hidden: dict[str, float] | None) -> None:
        super().__init__(agent, seed, hidden)
        self.encoder = agent.encoder
        self.scaler = Scaler(agent.weights, "context.latent")
        self.largest = np.ones(len(self.scaler.mean), F32)
        self.vector = np.append(np.zeros(len(self.scaler.mean), F32), F32(1))
        self.observations = np.zeros((1, self.encoder.steps + 1, agent.width), F32)
        self.actions = np.zeros((1, self.encoder.steps), np.int64)

    def step(self, observation: Any, allowed: Any) -> int | None:
        """Control acts, with what the window that ends here tells."""
        newest = np.asarray(observation)[None, None]
        self.observations = np.concatenate([self.observations[:, 1:], newest], axis=1)
        if self.time >= self.encoder.steps:
            mean, log_var = self.encoder(self.observations, self.actions)
            deviation = np.exp(F32(0.5) * log_var[0])
            self.largest = np.maximum(self.largest, deviation)
            self.latent, self.uncertainty = mean[0], float(deviation.mean())
            doubt = F32((deviation / self.largest).mean())
            self.vector = np.append(self.scaler(mean[0]), doubt)
        return None

    def took(self, action: int) -> None:
        """The newest step of the window."""
        self.actions = np.append(self.actions[:, 1:], [[action]], axis=1)
        self.time += 1


TRACKERS = {
    "none": Tracker,
    "hidden": Hidden,
    "history": History,
    "segment": Probed,
    "refined": Refined,
    "unprobed": Encoded,
    "window": Window,
}


def probe_stream(seed: int) -> np.random.Generator:
    """The stream the probe's draws come from: PCG64, its seed sequence named "agent", "probe"."""
    digest = hashlib.sha256(b"str:agent\x1fstr:probe").digest()
    words = tuple(int.from_bytes(digest[i : i + 4], "little") for i in range(0, 32, 4))
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=words)))


class Encoder:
    """From T steps, and the state they end in, to mean and log-variance of the latent."""

    def __init__(self, agent: Agent) -> None:
        described, weights = agent.context["encoder"], agent.weights
        self.kind, self.steps = described["kind"], int(described["steps"])
        self.one_hot = np.eye(len(agent.action_names), dtype=F32)
        self.described = described
        self.state = Scaler(weights, "context.encoder.observation")
        if self.kind == "transition":
            self.average = Layers(weights, "context.encoder.average")
        if self.kind in ("flat", "transition"):
            self.delta = Scaler(weights, "context.encoder.delta")
            self.network = Layers(weights, "context.encoder.network")
            return
        self.network = Layers(weights, "context.encoder.head")
        # encoders of earlier versions do not mention changes
        self.changes = bool(described.get("changes"))
        if self.changes:
            self.delta = Scaler(weights, "context.encoder.delta")
        parts = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        self.directions = [
            tuple(weights[f"context.encoder.{way}.{part}"] for part in parts)
            for way in ("forward", "backward")
        ]

    def __call__(self, observations: Any, actions: Any) -> tuple[Any, Any]:
        """`[n, k]` each, of `observations[n, T+1, d]`, `actions[n, T]`."""
        if self.kind == "transition":
            weighted, precision = self.evidence(observations, actions)
            return posterior(weighted.sum(axis=1), precision.sum(axis=1))
        state, taken = self.state(observations[:, :-1]), self.one_hot[actions]
        if self.kind == "flat":
            delta = self.delta(observations[:, 1:] - observations[:, :-1])
            crossed = taken[..., :, None] * delta[..., None, :]
            crossed = crossed.reshape(*actions.shape, -1)
            read = np.concatenate([state, taken, delta, crossed], axis=2)
            output = self.network(read.reshape(len(actions), -1))
        else:
            parts = [state, taken]
            if self.changes:
                parts.append(self.delta(observations[:, 1:] - observations[:, :-1]))
            read = np.concatenate(parts, axis=2)
            ahead, back = self.directions
            pooled = [_lstm(read, *ahead).mean(axis=1), _lstm(read[:, ::-1], *back).mean(axis=1)]
            output = self.network(np.concatenate(pooled, axis=1))
        size = output.shape[1] // 2
        clipped = np.clip(output[:, size:], *self.described["log_var_range"])
        return output[:, :size], clipped.astype(F32)

    def evidence(self, observations: Any, actions: Any) -> tuple[Any, Any]:
        """λm and λ, `[n, T, k]` each, of `observations[n, T+1, d]`, `actions[n, T]`."""
        state, taken = self.state(observations[:, :-1]), self.one_hot[actions]
        change = self.delta(observations[:, 1:] - observations[:, :-1])
        rest = change - self.average(np.concatenate([state, taken], axis=2))
        limit = self.described["residual_range"]
        rest = np.clip(rest, -limit, limit)
        crossed = (taken[..., :, None] * rest[..., None, :]).reshape(*actions.shape, -1)
        output = self.network(np.concatenate([state, taken, rest, crossed], axis=2))
        size = output.shape[2] // 2
        precision = np.exp(np.clip(output[..., size:], *self.described["log_precision_range"]))
        return precision * output[..., :size], precision


def posterior(weighted: Any, precision: Any) -> tuple[Any, Any]:
    """Mean and log-variance from summed evidence and the prior N(0, I)."""
    return weighted / (1 + precision), -np.log1p(precision)


def _sigmoid(x: Any) -> Any:
    return F32(0.5) * (np.tanh(F32(0.5) * x) + F32(1))


def _lstm(inputs: Any, w_ih: Any, w_hh: Any, b_ih: Any, b_hh: Any) -> Any:
    """The states `[n, T, H]` over `inputs[n, T, in]`; gates in the order i, f, g, o."""
    hidden = cell = np.zeros((len(inputs), w_hh.shape[1]), F32)
    states = []
    for step in range(inputs.shape[1]):
        gates = inputs[:, step] @ w_ih.T + hidden @ w_hh.T + (b_ih + b_hh)
        enter, forget, new, leave = np.split(gates, 4, axis=1)
        cell = _sigmoid(forget) * cell + _sigmoid(enter) * np.tanh(new)
        hidden = _sigmoid(leave) * np.tanh(cell)
        states.append(hidden)
    return np.stack(states, axis=1)


def novelty(agent: Agent, observations: Any, actions: Any, mean: Any, log_var: Any) -> float:
    """The share of held-out segments whose ELBO is at most this one's.

    The ELBO's expectation is the mean over the 2k points m ± √k·sd_j·e_j of the latent.
    """
    weights, described = agent.weights, agent.context["novelty"]
    name, size, steps = "context.novelty", mean.shape[1], actions.shape[1]
    wide = log_var[0].astype(np.float64)
    offsets = np.diag(np.sqrt(size) * np.exp(0.5 * wide))
    points = mean[0] + np.concatenate([offsets, -offsets])
    state = Scaler(weights, f"{name}.decoder.observation")(observations[0, :-1])
    changes = observations[0, 1:] - observations[0, :-1]
    delta = Scaler(weights, f"{name}.decoder.delta")(changes)
    taken = np.eye(len(agent.action_names), dtype=F32)[actions[0]]
    repeated = [np.tile(part, (2 * size, 1)) for part in (state, taken, delta)]
    latent = np.repeat(points.astype(F32), steps, axis=0)
    crossed = (repeated[1][:, :, None] * latent[:, None, :]).reshape(len(latent), -1)
    read = np.concatenate([repeated[0], repeated[1], latent, crossed], axis=1)
    output = Layers(weights, f"{name}.decoder.network")(read).astype(np.float64)
    dim = state.shape[1]
    mean_change = output[:, :dim]
    if described["decoder"].get("average"):
        known = np.concatenate(repeated[:2], axis=1)
        mean_change = mean_change + Layers(weights, f"{name}.decoder.average")(known)
    spread = np.clip(output[:, dim:], *described["decoder"]["log_var_range"])
    errors = (repeated[2] - mean_change) ** 2 * np.exp(-spread) + spread + LOG_TWO_PI
    likelihood = -0.5 * errors.sum() / (2 * size)
    if described["prior"] == "normal":
        squares = mean[0].astype(np.float64) ** 2
        divergence = 0.5 * (np.exp(wide) + squares - 1 - wide).sum()
    else:
        centres = weights[f"{name}.prior.mean"].astype(np.float64)
        variance = weights[f"{name}.prior.variance"].astype(np.float64)
        apart = (points[:, None] - centres) ** 2 / variance + np.log(variance) + LOG_TWO_PI
        each = -0.5 * apart.sum(axis=2)
        top = each.max(axis=1)
        density = top + np.log(np.exp(each - top[:, None]).mean(axis=1))
        divergence = -0.5 * (wide + LOG_TWO_PI + 1).sum() - density.mean()
    held_out = weights[f"{name}.held_out"]
    # a little more, so that rounding never parts a segment from its own likes
    below = np.searchsorted(held_out, likelihood - divergence + 1e-3, side="right")
    return float(below / len(held_out))
