"""HIV: six cell and virus populations of a patient under two drugs, five days an action."""

from __future__ import annotations

import math

import numpy as np

from simulators.compiled import compiled
from simulators.dynamics import Array, Dynamics, HiddenParameter, Integers, Mask, Observations

# The model of Adams et al. (2004). Populations are per ml, E and the T's in cells, V in copies.
LAMBDA_1 = 1e4  # source of type 1 target cells, cells / (ml day)
LAMBDA_2 = 31.98  # source of type 2 target cells, cells / (ml day)
DEATH = 0.01  # d1 = d2, death of healthy target cells, 1 / day
RTI_SHARE = 0.34  # f, how much less the RTI does for type 2 cells
INFECTION_1 = 8e-7  # k1, ml / (copies day)
INFECTION_2 = 1e-4  # k2, ml / (copies day)
INFECTED_DEATH = 0.7  # delta, 1 / day
CLEARANCE_1 = 1e-5  # m1, ml / (cells day)
CLEARANCE_2 = 1e-5  # m2, ml / (cells day)
BURST = 100.0  # N_T, copies an infected cell
VIRUS_DEATH = 13.0  # c, 1 / day
LAMBDA_E = 1.0  # source of immune effectors, cells / (ml day)
BIRTH_E = 0.3  # bE, 1 / day
BIRTH_HALF = 100.0  # Kb, cells / ml
DEATH_E = 0.25  # dE, 1 / day
DEATH_HALF = 500.0  # Kd, cells / ml
NATURAL_DEATH_E = 0.1  # deltaE, 1 / day
EFFICACY_RTI = 0.7  # epsilon1 while the drug is given
EFFICACY_PI = 0.3  # epsilon2 while the drug is given

HIDDEN_NAMES = (
    *("lambda1", "lambda2", "k1", "k2", "f", "m1", "m2"),
    *("lambdaE", "bE", "Kb", "dE", "Kd"),
)

DAYS = 5.0  # an action lasts so long
START = (163573.0, 5.0, 11945.0, 46.0, 63919.0, 24.0)  # the unhealthy steady state
FLOOR = -30.0  # log10 of the least population: extinct for every purpose, yet positive
CEILING = 30.0  # log10 of the greatest population
OBSERVED_LOW, OBSERVED_HIGH = -5.0, 8.0  # the observation, log10 of a population, is clipped

REWARD_VIRUS = -0.1
REWARD_RTI = -2e4
REWARD_PI = -2e3
REWARD_IMMUNE = 1e3

TOLERANCE = 3e-5  # of the error estimate of one internal step, in ln of a population
MAX_TRIALS = 5_000  # internal steps an action before the cheap, always stable scheme takes over
CHEAP_STEPS = 1_000
LN10 = math.log(10.0)

_WIDTH = 6


@compiled
def _constants(hidden: Array, action: int, out: Array) -> None:
    """The constants of one patient under the drugs of `action`, in the order `_rates` reads."""
    rti = EFFICACY_RTI if action == 1 or action == 3 else 0.0
    pi = EFFICACY_PI if action >= 2 else 0.0
    out[0] = LAMBDA_1 * (1.0 + hidden[0])
    out[1] = LAMBDA_2 * (1.0 + hidden[1])
    out[2] = (1.0 - rti) * INFECTION_1 * (1.0 + hidden[2])
    out[3] = (1.0 - RTI_SHARE * (1.0 + hidden[4]) * rti) * INFECTION_2 * (1.0 + hidden[3])
    out[4] = CLEARANCE_1 * (1.0 + hidden[5])
    out[5] = CLEARANCE_2 * (1.0 + hidden[6])
    out[6] = LAMBDA_E * (1.0 + hidden[7])
    out[7] = BIRTH_E * (1.0 + hidden[8])
    out[8] = BIRTH_HALF * (1.0 + hidden[9])
    out[9] = DEATH_E * (1.0 + hidden[10])
    out[10] = DEATH_HALF * (1.0 + hidden[11])
    out[11] = (1.0 - pi) * BURST * INFECTED_DEATH


@compiled
def _rates(y: Array, c: Array, out: Array) -> None:
    """d ln(population) / dt, out[6], at ln(population) y[6]; positive by construction."""
    t1, t2 = math.exp(y[0]), math.exp(y[1])
    i1, i2 = math.exp(y[2]), math.exp(y[3])
    v, e = math.exp(y[4]), math.exp(y[5])
    infected = i1 + i2
    force1, force2 = c[2] * v, c[3] * v
    out[0] = c[0] / t1 - DEATH - force1
    out[1] = c[1] / t2 - DEATH - force2
    out[2] = force1 * t1 / i1 - INFECTED_DEATH - c[4] * e
    out[3] = force2 * t2 / i2 - INFECTED_DEATH - c[5] * e
    out[4] = c[11] * infected / v - VIRUS_DEATH - c[2] * t1 - c[3] * t2
    out[5] = (
        c[6] / e
        + c[7] * infected / (infected + c[8])
        - c[9] * infected / (infected + c[10])
        - NATURAL_DEATH_E
    )


@compiled
def _cheap(y: Array, c: Array, days: float) -> None:
    """Go on for `days` with gains explicit and losses implicit: first order, never negative."""
    h = days / CHEAP_STEPS
    t1, t2 = math.exp(y[0]), math.exp(y[1])
    i1, i2 = math.exp(y[2]), math.exp(y[3])
    v, e = math.exp(y[4]), math.exp(y[5])
    low, high = 10.0**FLOOR, 10.0**CEILING
    for _ in range(CHEAP_STEPS):
        t1 = (t1 + h * c[0]) / (1.0 + h * (DEATH + c[2] * v))
        t2 = (t2 + h * c[1]) / (1.0 + h * (DEATH + c[3] * v))
        i1 = (i1 + h * c[2] * v * t1) / (1.0 + h * (INFECTED_DEATH + c[4] * e))
        i2 = (i2 + h * c[3] * v * t2) / (1.0 + h * (INFECTED_DEATH + c[5] * e))
        infected = i1 + i2
        v = (v + h * c[11] * infected) / (1.0 + h * (VIRUS_DEATH + c[2] * t1 + c[3] * t2))
        e = (e + h * (c[6] + c[7] * infected / (infected + c[8]) * e)) / (
            1.0 + h * (c[9] * infected / (infected + c[10]) + NATURAL_DEATH_E)
        )
        t1, t2 = min(max(t1, low), high), min(max(t2, low), high)
        i1, i2 = min(max(i1, low), high), min(max(i2, low), high)
        v, e = min(max(v, low), high), min(max(e, low), high)
    y[0], y[1], y[2], y[3] = math.log(t1), math.log(t2), math.log(i1), math.log(i2)
    y[4], y[5] = math.log(v), math.log(e)


@compiled
def _integrate(y: Array, c: Array, k: Array, trial: Array, days: float) -> None:
    """Carry y[6] over `days` by Dormand and Prince's 5(4) pair with steps of this row's own.

    k[7, 6] and trial[6] are work space.
    """
    time = 0.0
    _rates(y, c, k[0])
    fastest = 1e-3
    for i in range(_WIDTH):
        fastest = max(fastest, abs(k[0, i]))
    h = min(0.1, 0.1 / fastest)
    for _ in range(MAX_TRIALS):
        if h > days - time:
            h = days - time
        for i in range(_WIDTH):
            trial[i] = y[i] + h * (1 / 5) * k[0, i]
        _rates(trial, c, k[1])
        for i in range(_WIDTH):
            trial[i] = y[i] + h * (3 / 40 * k[0, i] + 9 / 40 * k[1, i])
        _rates(trial, c, k[2])
        for i in range(_WIDTH):
            trial[i] = y[i] + h * (44 / 45 * k[0, i] - 56 / 15 * k[1, i] + 32 / 9 * k[2, i])
        _rates(trial, c, k[3])
        for i in range(_WIDTH):
            trial[i] = y[i] + h * (
                19372 / 6561 * k[0, i]
                - 25360 / 2187 * k[1, i]
                + 64448 / 6561 * k[2, i]
                - 212 / 729 * k[3, i]
            )
        _rates(trial, c, k[4])
        for i in range(_WIDTH):
            trial[i] = y[i] + h * (
                9017 / 3168 * k[0, i]
                - 355 / 33 * k[1, i]
                + 46732 / 5247 * k[2, i]
                + 49 / 176 * k[3, i]
                - 5103 / 18656 * k[4, i]
            )
        _rates(trial, c, k[5])
        for i in range(_WIDTH):
            trial[i] = y[i] + h * (
                35 / 384 * k[0, i]
                + 500 / 1113 * k[2, i]
                + 125 / 192 * k[3, i]
                - 2187 / 6784 * k[4, i]
                + 11 / 84 * k[5, i]
            )
        _rates(trial, c, k[6])
        error = 0.0
        for i in range(_WIDTH):
            local = abs(
                h
                * (
                    71 / 57600 * k[0, i]
                    - 71 / 16695 * k[2, i]
                    + 71 / 1920 * k[3, i]
                    - 17253 / 339200 * k[4, i]
                    + 22 / 525 * k[5, i]
                    - 1 / 40 * k[6, i]
                )
            )
            # Of a step much too long the error is infinite or not a number at all.
            error = max(error, local) if local < np.inf else np.inf
        error /= TOLERANCE
        if error <= 1.0:
            time += h
            for i in range(_WIDTH):
                y[i] = trial[i]
                k[0, i] = k[6, i]
            if time >= days:
                return
            h *= min(5.0, 0.9 * max(error, 1e-10) ** -0.2)
        elif error < np.inf:
            h *= max(0.2, 0.9 * error**-0.2)
        else:
            h *= 0.1
    _cheap(y, c, days - time)


@compiled
def _advance(
    state: Array,
    action: Integers,
    hidden: Array,
    elapsed: Integers,
    after: Array,
    reward: Array,
    terminated: Mask,
) -> None:
    constants, k = np.empty(12), np.empty((7, _WIDTH))
    y, trial = np.empty(_WIDTH), np.empty(_WIDTH)
    for row in range(state.shape[0]):
        _constants(hidden[row], action[row], constants)
        for i in range(_WIDTH):
            y[i] = state[row, i] * LN10
        _integrate(y, constants, k, trial, DAYS)
        for i in range(_WIDTH):
            after[row, i] = min(max(y[i] / LN10, FLOOR), CEILING)
        rti = EFFICACY_RTI if action[row] == 1 or action[row] == 3 else 0.0
        pi = EFFICACY_PI if action[row] >= 2 else 0.0
        terminated[row] = False
        reward[row] = (
            REWARD_VIRUS * math.exp(after[row, 4] * LN10)
            + REWARD_RTI * rti**2
            + REWARD_PI * pi**2
            + REWARD_IMMUNE * math.exp(after[row, 5] * LN10)
        )


def _observe(state: Array) -> Observations:
    return np.clip(state, OBSERVED_LOW, OBSERVED_HIGH).astype(np.float32)


def from_raw(populations: Array) -> Array:
    """State[n, 6], log10 with floor and ceiling, of populations[n, 6]."""
    return np.log10(np.clip(populations, 10.0**FLOOR, 10.0**CEILING))


_START = tuple(math.log10(population) for population in START)

HIV = Dynamics(
    name="hiv",
    advance=_advance,
    observe=_observe,
    hidden=tuple(HiddenParameter(name) for name in HIDDEN_NAMES),
    observation_names=tuple(f"log10 {name}" for name in ("T1", "T2", "T1*", "T2*", "V", "E")),
    observation_low=(OBSERVED_LOW,) * _WIDTH,
    observation_high=(OBSERVED_HIGH,) * _WIDTH,
    start_low=_START,
    start_high=_START,
    action_names=("none", "RTI", "PI", "both"),
    train_steps=200,
    from_raw=from_raw,
)
