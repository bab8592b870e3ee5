"""HIV: six cell and virus populations of a patient under two drugs, five days per action."""

from __future__ import annotations

import numpy as np

from simulators.dynamics import Array, Dynamics, HiddenParameter, Integers, Mask, Observations
from simulators.elementary import compiled, exp, log, power

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

TOLERANCE = 4e-5  # of the error estimate of one internal step, in ln of a population
MAX_TRIALS = 5_000  # internal steps an action before the cheap, always stable scheme takes over
CHEAP_STEPS = 1_000
LN10 = 2.302585092994046

LEAST: float = 10.0**FLOOR
MOST: float = 10.0**CEILING

Six = tuple[float, float, float, float, float, float]
Twelve = tuple[float, float, float, float, float, float, float, float, float, float, float, float]
ZERO: Six = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
_WIDTH = 6


@compiled
def _constants(hidden: Array, rti: float, pi: float) -> Twelve:
    """The constants of one patient under drugs of these efficacies, in the order `_rates` reads."""
    return (
        LAMBDA_1 * (1.0 + hidden[0]),
        LAMBDA_2 * (1.0 + hidden[1]),
        (1.0 - rti) * INFECTION_1 * (1.0 + hidden[2]),
        (1.0 - RTI_SHARE * (1.0 + hidden[4]) * rti) * INFECTION_2 * (1.0 + hidden[3]),
        CLEARANCE_1 * (1.0 + hidden[5]),
        CLEARANCE_2 * (1.0 + hidden[6]),
        LAMBDA_E * (1.0 + hidden[7]),
        BIRTH_E * (1.0 + hidden[8]),
        BIRTH_HALF * (1.0 + hidden[9]),
        DEATH_E * (1.0 + hidden[10]),
        DEATH_HALF * (1.0 + hidden[11]),
        (1.0 - pi) * BURST * INFECTED_DEATH,
    )


@compiled
def _rates(y: Six, constants: Twelve) -> Six:
    """d ln(population) / dt at y = ln(population); positive by construction."""
    l1, l2, k1, k2, m1, m2, source, birth, birth_half, death, death_half, burst = constants
    t1, t2, i1 = exp(y[0]), exp(y[1]), exp(y[2])
    i2, v, e = exp(y[3]), exp(y[4]), exp(y[5])
    infected = i1 + i2
    force1, force2 = k1 * v, k2 * v
    return (
        l1 / t1 - DEATH - force1,
        l2 / t2 - DEATH - force2,
        force1 * t1 / i1 - INFECTED_DEATH - m1 * e,
        force2 * t2 / i2 - INFECTED_DEATH - m2 * e,
        burst * infected / v - VIRUS_DEATH - k1 * t1 - k2 * t2,
        source / e
        + birth * infected / (infected + birth_half)
        - death * infected / (infected + death_half)
        - NATURAL_DEATH_E,
    )


@compiled
def _add(y: Six, weight: float, k: Six) -> Six:
    """y + weight * k. Tuples stay in registers where small arrays would go through memory."""
    return (
        y[0] + weight * k[0],
        y[1] + weight * k[1],
        y[2] + weight * k[2],
        y[3] + weight * k[3],
        y[4] + weight * k[4],
        y[5] + weight * k[5],
    )


@compiled
def _largest(y: Six) -> float:
    """The largest magnitude in y; infinite if any is infinite or not a number."""
    largest = 0.0
    for value in y:
        size = abs(value)
        largest = max(largest, size) if size < np.inf else np.inf
    return largest


@compiled
def _bounded(population: float) -> float:
    return min(max(population, LEAST), MOST)


@compiled
def _cheap(y: Six, constants: Twelve, days: float) -> Six:
    """Go on for `days` with gains explicit and losses implicit: first order, never negative."""
    l1, l2, k1, k2, m1, m2, source, birth, birth_half, death, death_half, burst = constants
    h = days / CHEAP_STEPS
    t1, t2, i1 = exp(y[0]), exp(y[1]), exp(y[2])
    i2, v, e = exp(y[3]), exp(y[4]), exp(y[5])
    for _ in range(CHEAP_STEPS):
        t1 = _bounded((t1 + h * l1) / (1.0 + h * (DEATH + k1 * v)))
        t2 = _bounded((t2 + h * l2) / (1.0 + h * (DEATH + k2 * v)))
        i1 = _bounded((i1 + h * k1 * v * t1) / (1.0 + h * (INFECTED_DEATH + m1 * e)))
        i2 = _bounded((i2 + h * k2 * v * t2) / (1.0 + h * (INFECTED_DEATH + m2 * e)))
        infected = i1 + i2
        v = _bounded((v + h * burst * infected) / (1.0 + h * (VIRUS_DEATH + k1 * t1 + k2 * t2)))
        gain = source + birth * infected / (infected + birth_half) * e
        loss = death * infected / (infected + death_half) + NATURAL_DEATH_E
        e = _bounded((e + h * gain) / (1.0 + h * loss))
    return (log(t1), log(t2), log(i1), log(i2), log(v), log(e))


@compiled
def _integrate(y: Six, c: Twelve, days: float) -> Six:
    """Carry y over `days` by Dormand and Prince's 5(4) pair with steps of this row's own."""
    time = 0.0
    k1 = _rates(y, c)
    h = min(0.1, 0.3 / max(_largest(k1), 1e-3))
    for _ in range(MAX_TRIALS):
        h = min(h, days - time)
        k2 = _rates(_add(y, h * (1 / 5), k1), c)
        trial = _add(_add(y, h * (3 / 40), k1), h * (9 / 40), k2)
        k3 = _rates(trial, c)
        trial = _add(_add(_add(y, h * (44 / 45), k1), h * (-56 / 15), k2), h * (32 / 9), k3)
        k4 = _rates(trial, c)
        trial = _add(_add(y, h * (19372 / 6561), k1), h * (-25360 / 2187), k2)
        trial = _add(_add(trial, h * (64448 / 6561), k3), h * (-212 / 729), k4)
        k5 = _rates(trial, c)
        trial = _add(_add(y, h * (9017 / 3168), k1), h * (-355 / 33), k2)
        trial = _add(_add(trial, h * (46732 / 5247), k3), h * (49 / 176), k4)
        trial = _add(trial, h * (-5103 / 18656), k5)
        k6 = _rates(trial, c)
        trial = _add(_add(y, h * (35 / 384), k1), h * (500 / 1113), k3)
        trial = _add(_add(trial, h * (125 / 192), k4), h * (-2187 / 6784), k5)
        trial = _add(trial, h * (11 / 84), k6)
        k7 = _rates(trial, c)
        local = _add(_add(ZERO, h * (71 / 57600), k1), h * (-71 / 16695), k3)
        local = _add(_add(local, h * (71 / 1920), k4), h * (-17253 / 339200), k5)
        local = _add(_add(local, h * (22 / 525), k6), h * (-1 / 40), k7)
        # Of a step much too long the error is infinite or not a number at all.
        error = _largest(local) / TOLERANCE
        if error <= 1.0:
            time += h
            y, k1 = trial, k7
            if time >= days:
                return y
            # A faster growth than this outran the error estimate after a sharp transient.
            h *= min(2.0, 0.9 * power(max(error, 1e-10), -0.2))
        elif error < np.inf:
            h *= max(0.2, 0.9 * power(error, -0.2))
        else:
            h *= 0.1
    return _cheap(y, c, days - time)


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
    for row in range(state.shape[0]):
        rti = EFFICACY_RTI if action[row] == 1 or action[row] == 3 else 0.0
        pi = EFFICACY_PI if action[row] >= 2 else 0.0
        s = state[row]
        y = _integrate(
            _add(ZERO, LN10, (s[0], s[1], s[2], s[3], s[4], s[5])),
            _constants(hidden[row], rti, pi),
            DAYS,
        )
        for i in range(_WIDTH):
            after[row, i] = min(max(y[i] / LN10, FLOOR), CEILING)
        terminated[row] = False
        reward[row] = (
            REWARD_VIRUS * exp(after[row, 4] * LN10)
            + REWARD_RTI * rti**2
            + REWARD_PI * pi**2
            + REWARD_IMMUNE * exp(after[row, 5] * LN10)
        )


def _observe(state: Array) -> Observations:
    return np.clip(state, OBSERVED_LOW, OBSERVED_HIGH).astype(np.float32)


@compiled
def _log10(populations: Array) -> Array:
    logs = np.empty_like(populations)
    for row in range(populations.shape[0]):
        for i in range(populations.shape[1]):
            logs[row, i] = log(populations[row, i]) / LN10
    return logs


def from_raw(populations: Array) -> Array:
    """State[n, 6], log10 with floor and ceiling, of populations[n, 6]."""
    return _log10(np.clip(populations, LEAST, MOST))


# log10 of START, written out: a C library's log10 may differ in its last bit.
_START = (
    *(5.213711618903007, 0.6989700043360189, 4.077186154085897),
    *(1.662757831681574, 4.805629971908577, 1.380211241711606),
)

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
