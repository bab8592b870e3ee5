"""Type 1 diabetes: the virtual patients of simglucose, and a pump that must find their dose.

An episode is 12 hours in steps of 15 minutes. The pump sees its glucose sensor, the carbohydrates
announced for the next step and the time of day. It gives one of five doses in insulin units
(`glucose`), or any dose up to the largest of them (`glucose_dose`), whoever the patient is. The
reward is minus Magni's risk of the blood glucose, scaled and bounded. Hidden is the patient: 14 to
learn from, 4 and 4 others to validate and test on.
"""

from __future__ import annotations

import csv
import importlib.resources
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from sept_offline.family import Family, Hidden


def simulator() -> ModuleType:
    """simglucose's module of patients."""
    try:
        import pkg_resources  # noqa: F401
    except ModuleNotFoundError:
        # It asks a package that setuptools has given up where its own files are: answer that.
        answer = ModuleType("pkg_resources")
        vars(answer)["resource_filename"] = lambda package, name: str(
            importlib.resources.files(package) / name
        )
        sys.modules["pkg_resources"] = answer
        try:
            from simglucose.patient import t1dpatient
        finally:
            del sys.modules["pkg_resources"]
    else:
        from simglucose.patient import t1dpatient
    found: ModuleType = t1dpatient
    return found


T1D = simulator()


class Quick(T1D.T1DPatient):  # type: ignore[misc, name-defined]
    """simglucose's patient with its equations on plain numbers: the same, twice as fast."""

    @staticmethod
    def model(t: float, x: NDArray[np.float64], *rest: Any) -> NDArray[np.float64]:
        """The derivative of the state."""
        derivative: NDArray[np.float64] = T1D.T1DPatient.model(t, x.tolist(), *rest)
        return derivative


DOSES = np.array([0.0, 0.1, 0.25, 0.6, 2.5])
"""Insulin units in a step of 15 minutes."""
MINUTES = 15
FIRST_HOUR = 7.0
MEALS = ((1.0, 3.0, 25.0, 45.0), (5.0, 7.0, 30.0, 60.0), (9.5, 11.0, 15.0, 35.0))
"""Earliest and latest hour after the start, least and most grams; the same for every patient."""
SENSOR_NOISE, SENSOR_MEMORY = 6.0, 0.7
"""Deviation of the sensor's error in mg/dl, and how much of it a step keeps."""
WORST = 2.0
"""Bound of the scaled risk of one step."""
SPREAD = 0.1
"""Relative deviation of the first glucose between episodes of one patient."""


def read_patients() -> dict[str, dict[str, float]]:
    """All parameters of all patients, by name."""
    with Path(T1D.PATIENT_PARA_FILE).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    return {
        row["Name"]: {key: float(value) for key, value in row.items() if key != "Name"}
        for row in rows
    }


PATIENTS = read_patients()
STATES = [name for name in next(iter(PATIENTS.values())) if name.startswith("x0_")]


def describe(name: str) -> dict[str, float]:
    """What an oracle reads: place in the list, weight, needs, and how insulin acts."""
    own = PATIENTS[name]
    return {
        "patient": float(list(PATIENTS).index(name)),
        "weight": own["BW"],
        "basal": own["u2ss"] * own["BW"] / 100,
        "utilisation": own["Vmx"],
        "production": own["kp3"],
        "absorption": own["kabs"],
    }


class Patient(gymnasium.Env[NDArray[np.float32], Any]):
    """One patient with a sensor and a pump of five doses, without a time limit."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - Gymnasium declares it so
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float32)
    action_space: gymnasium.Space[Any] = gymnasium.spaces.Discrete(len(DOSES))

    def __init__(self, name: str) -> None:
        # The equations read these hundreds of times a step: a namespace is ten times as fast as
        # the pandas Series that simglucose reads itself, and gives the same numbers.
        self._parameters = SimpleNamespace(**PATIENTS[name], Name=name)
        self._first = np.array([PATIENTS[name][state] for state in STATES])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """A new day: other meals, another glucose to begin with."""
        super().reset(seed=seed)
        first = self._first.copy()
        first[[3, 4, 12]] *= np.exp(SPREAD * self.np_random.standard_normal())
        self._patient = Quick(self._parameters, init_state=first)
        self._elapsed = 0
        self._meals: dict[int, float] = {}
        for early, late, least, most in MEALS:
            hour, grams = self.np_random.uniform((early, least), (late, most))
            self._meals[int(hour * 60) // MINUTES] = float(grams)
        self._error = SENSOR_NOISE * self.np_random.standard_normal()
        return self._observe(), {}

    def step(self, action: Any) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Give a dose and wait for 15 minutes."""
        taken = np.asarray(action, dtype=self.action_space.dtype)
        if not self.action_space.contains(taken):
            raise ValueError(f"{action!r} is not in {self.action_space}.")
        insulin = self.units(taken) / MINUTES
        grams = self._meals.get(self._elapsed, 0.0)
        for _ in range(MINUTES):
            self._patient.step(T1D.Action(CHO=grams, insulin=insulin))
            grams = 0.0
        self._elapsed += 1
        fresh = SENSOR_NOISE * np.sqrt(1 - SENSOR_MEMORY**2) * self.np_random.standard_normal()
        self._error = SENSOR_MEMORY * self._error + fresh
        blood = self._patient.state[3] / self._parameters.Vg
        return self._observe(), -risk(blood), False, False, {}

    def units(self, action: NDArray[Any]) -> float:
        """The dose that an action stands for."""
        return float(DOSES[action])

    def _observe(self) -> NDArray[np.float32]:
        measured = float(np.clip(self._patient.observation.Gsub + self._error, 39, 400))
        day = 2 * np.pi * (FIRST_HOUR + self._elapsed * MINUTES / 60) / 24
        grams = self._meals.get(self._elapsed, 0.0)
        return np.array(
            [(measured - 140) / 60, grams / 50, np.sin(day), np.cos(day)], dtype=np.float32
        )


class Dosed(Patient):
    """The same with a pump that gives any dose."""

    action_space = gymnasium.spaces.Box(0.0, float(DOSES[-1]), (1,), np.float32)

    def units(self, action: NDArray[Any]) -> float:
        """The dose is the action."""
        return float(action[0])


def risk(glucose: float) -> float:
    """Magni's risk of a blood glucose in mg/dl as a share of 50; 0 at 139, at most `WORST`."""
    shape = 3.5506 * (np.log(max(glucose, 1.0)) ** 0.8353 - 3.7932)
    return float(min(10 * shape**2 / 50, WORST))


def make(kind: type[Patient], hidden: Hidden) -> Patient:
    """The patient at the place that `hidden` names; the other values must be theirs."""
    names = list(PATIENTS)
    place = int(hidden["patient"])
    if not 0 <= place < len(names) or describe(names[place]) != dict(hidden):
        raise ValueError(f"There is no patient with the hidden parameters {dict(hidden)}.")
    return kind(names[place])


def group(
    adolescents: tuple[int, ...], adults: tuple[int, ...], children: tuple[int, ...]
) -> list[dict[str, float]]:
    """The hidden parameters of patients by their numbers."""
    groups = (("adolescent", adolescents), ("adult", adults), ("child", children))
    return [describe(f"{kind}#{number:03}") for kind, numbers in groups for number in numbers]


def family_of(name: str, kind: type[Patient], action_names: tuple[str, ...]) -> Family:
    """The patients, divided into splits, with pumps of one kind."""
    return Family(
        name=name,
        make=partial(make, kind),
        splits={
            "train": group((1, 2, 4, 6, 9), (1, 2, 4, 6, 9), (1, 3, 5, 8)),
            "validation": group((3,), (3, 10), (6,)),
            "test": group((5, 8), (5,), (7,)),
        },
        train_steps=48,
        test_steps=48,
        probe_steps=8,
        latent_dim=2,
        observation_names=("sensor", "carbohydrates", "sine of day", "cosine of day"),
        action_names=action_names,
        recipe=Path(__file__).with_name("glucose.toml"),
    )


family = family_of("glucose", Patient, ("no insulin", "0.1 U", "0.25 U", "0.6 U", "2.5 U"))


def dosing(observations: NDArray[Any]) -> NDArray[Any]:
    """A policy to log: it doses for announced meals and high glucose, a third of it at random."""
    glucose, meal = observations[:, 0] * 60 + 140, observations[:, 1] > 0
    wanted = np.digitize(glucose, (100.0, 150.0, 200.0))
    wanted = np.where(meal, len(DOSES) - 1, wanted)
    return np.eye(len(DOSES))[wanted] * 2 / 3 + 1 / (3 * len(DOSES))
