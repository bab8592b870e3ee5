"""exp, log, tanh and the normal distribution in NumPy, with the same bits on every processor.

NumPy and the C library pick their kernels for these by the processor, and the last bits differ.
Sums, products, quotients and roots are defined to the bit by IEEE 754, and here everything is made
of them in a fixed order: what a behaviour draws and logs is the same everywhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

LN2_HIGH = 3048493539143.0 * 2.0**-42
"""The first 42 bits of ln 2: its product with a small whole number is exact."""
LN2_LOW = 5.497923018708371e-14
EXP_MOST = 708.0
EXP_SERIES = tuple(1.0 / math.factorial(n) for n in range(14, -1, -1))
LOG_SERIES = tuple(1.0 / n for n in range(23, 2, -2))

TAIL_MOST = 8.3


def _coefficients(*texts: str) -> tuple[tuple[float, ...], ...]:
    """Of polynomials, the highest power first."""
    return tuple(tuple(map(float, text.split())) for text in texts)


# mass(-x) * exp(x * x / 2) for 0 <= x <= 7.07 and well beyond: numerator and denominator of Hart's
# approximation 5666 ("Computer Approximations", 1968).
TAIL = _coefficients(
    "3.52624965998911e-2 0.700383064443688 6.37396220353165 33.912866078383 112.079291497871 "
    "221.213596169931 220.206867912376",
    "8.83883476483184e-2 1.75566716318264 16.064177579207 86.7807322029461 296.564248779674 "
    "637.333633378831 793.826512519948 440.413735824752",
)
# Quantiles around the middle, in the tails, and far out: Wichura's algorithm AS 241 (1988).
MIDDLE = _coefficients(
    "2509.0809287301226727 33430.575583588128105 67265.770927008700853 45921.953931549871457 "
    "13731.693765509461125 1971.5909503065514427 133.14166789178437745 3.387132872796366608",
    "5226.495278852854561 28729.085735721942674 39307.89580009271061 21213.794301586595867 "
    "5394.1960214247511077 687.1870074920579083 42.313330701600911252 1.0",
)
OUTER = _coefficients(
    "7.7454501427834140764e-4 0.0227238449892691845833 0.24178072517745061177 "
    "1.27045825245236838258 3.64784832476320460504 5.7694972214606914055 4.6303378461565452959 "
    "1.42343711074968357734",
    "1.05075007164441684324e-9 5.475938084995344946e-4 0.0151986665636164571966 "
    "0.14810397642748007459 0.68976733498510000455 1.6763848301838038494 2.05319162663775882187 "
    "1.0",
)
FAR = _coefficients(
    "2.01033439929228813265e-7 2.71155556874348757815e-5 1.2426609473880784386e-3 "
    "0.026532189526576123093 0.29656057182850489123 1.7848265399172913358 5.4637849111641143699 "
    "6.6579046435011037772",
    "2.04426310338993978564e-15 1.4215117583164458887e-7 1.8463183175100546818e-5 "
    "7.868691311456132591e-4 0.0148753612908506148525 0.13692988092273580531 "
    "0.59983220655588793769 1.0",
)


def exp(x: NDArray[Any]) -> Doubles:
    """e to the x, for x up to 708; 0 below -708."""
    value = np.clip(np.asarray(x, dtype=np.float64), -EXP_MOST, EXP_MOST)
    whole = np.floor(value * (1.0 / math.log(2.0)) + 0.5)
    rest = (value - whole * LN2_HIGH) - whole * LN2_LOW
    power = np.ldexp(_polynomial(EXP_SERIES, rest), whole.astype(np.int64))
    return np.asarray(np.where(np.asarray(x) < -EXP_MOST, 0.0, power))


def log(x: NDArray[Any]) -> Doubles:
    """The natural logarithm of positive numbers."""
    mantissa, exponent = np.frexp(np.asarray(x, dtype=np.float64))
    small = mantissa < math.sqrt(0.5)
    mantissa = np.where(small, 2.0 * mantissa, mantissa)
    whole = (exponent - small).astype(np.float64)
    # ln m = 2 artanh(f), a series in f squared, which is at most 0.03.
    f = (mantissa - 1.0) / (mantissa + 1.0)
    s = f * f
    rest = 2.0 * f * s * _polynomial(LOG_SERIES, s)
    return np.asarray(whole * LN2_HIGH + (2.0 * f + (rest + whole * LN2_LOW)))


def tanh(x: NDArray[Any]) -> Doubles:
    """The hyperbolic tangent, to 1e-16 of 1."""
    value = np.clip(np.asarray(x, dtype=np.float64), -30.0, 30.0)
    return np.asarray(1.0 - 2.0 / (exp(2.0 * value) + 1.0))


def normal_mass(x: NDArray[Any]) -> Doubles:
    """The standard normal distribution function, to 1e-15."""
    value = np.asarray(x, dtype=np.float64)
    away = np.minimum(np.abs(value), TAIL_MOST)
    tail = exp(-0.5 * (away * away)) * _rational(TAIL, away)
    tail = np.where(np.abs(value) > TAIL_MOST, 0.0, tail)
    return np.asarray(np.where(value > 0, 1.0 - tail, tail))


def normal_quantile(places: NDArray[Any]) -> Doubles:
    """The inverse of `normal_mass`, at most some eight standard deviations away."""
    p = np.clip(np.asarray(places, dtype=np.float64), 1e-16, 1.0 - 1e-16)
    q = p - 0.5
    inner = np.clip(q, -0.425, 0.425)
    middle = inner * _rational(MIDDLE, 0.180625 - inner * inner)
    r = np.sqrt(-log(np.minimum(p, 1.0 - p)))
    outer = np.where(r <= 5.0, _rational(OUTER, r - 1.6), _rational(FAR, r - 5.0))
    return np.asarray(np.where(np.abs(q) <= 0.425, middle, np.where(q < 0, -outer, outer)))


def _polynomial(coefficients: tuple[float, ...], x: Doubles) -> Doubles:
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def _rational(both: tuple[tuple[float, ...], ...], x: Doubles) -> Doubles:
    return np.asarray(_polynomial(both[0], x) / _polynomial(both[1], x))
