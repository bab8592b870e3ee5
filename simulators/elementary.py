"""Compiled arithmetic: exp, log, sin, cos and angles with the same bits on every processor.

A C library picks its kernels by the processor (with and without fused multiply-add), and their last
bits differ. These use additions, multiplications and divisions in a fixed order, which IEEE 754
defines to the bit. Each result is within 2 units in the last place where the docstring says so.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import TypeVar, cast

import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., object])

# ln 2 and pi / 2 as sums of parts: a multiple of a leading part is exact for the small integers
# that multiply it here, so that the remainder of a range reduction keeps its precision.
LN2_HIGH: float = 3048493539143.0 * 2.0**-42  # 42 bits
LN2_LOW = 5.497923018708371e-14
HALF_PI_HIGH: float = 6746518852.0 * 2.0**-32  # 33 bits
HALF_PI_MIDDLE: float = 4484108710.0 * 2.0**-66
HALF_PI_LOW = 2.0222662487959506e-21
PER_HALF_PI = 0.6366197723675814

PARTS_BITS = 5
PARTS = 1 << PARTS_BITS
PART_HIGH: float = 47632711549.0 * 2.0**-41  # of ln 2 / 32, 36 bits
PART_LOW = 5.145609244655338e-14
PER_PART = 46.16624130844683
with localcontext(prec=40):
    # 2 to the 0/32 … 31/32, correctly rounded.
    ROOTS = np.array([float(Decimal(2) ** (Decimal(part) / PARTS)) for part in range(PARTS)])

EXP_MOST = 708.0
SQRT_HALF = 0.7071067811865476
EXPONENT_BITS = 52
EXPONENT_BIAS = 1023
MANTISSA = (1 << EXPONENT_BITS) - 1


def compiled(function: F) -> F:
    """Compile `function`; a second start of the program loads it from the cache.

    `fastmath` stays off: reordered sums would let a row's result depend on its batch.
    """
    return cast(F, numba.njit(cache=True, error_model="numpy")(function))


@compiled
def exp(x: float) -> float:
    """e to the x; infinite above 708, 0 below -708."""
    if not abs(x) <= EXP_MOST:
        return x if np.isnan(x) else np.inf if x > 0.0 else 0.0
    # x = whole * ln2 / 32 + r, so that e^x = 2^(whole // 32) * 2^((whole % 32) / 32) * e^r.
    whole = np.floor(x * PER_PART + 0.5)
    r = (x - whole * PART_HIGH) - whole * PART_LOW
    # Taylor's series in |r| <= 0.011; what is left out is below 1e-17. In pairs: a processor works
    # on several at once.
    s = r * r
    tail = (1.0 / 2.0 + r * (1.0 / 6.0)) + s * (
        (1.0 / 24.0 + r * (1.0 / 120.0)) + s * (1.0 / 720.0)
    )
    count = np.int64(whole)
    root = ROOTS[count & (PARTS - 1)]
    power = np.int64(((count >> PARTS_BITS) + EXPONENT_BIAS) << EXPONENT_BITS).view(np.float64)
    result: float = (root + root * (r + s * tail)) * power
    return result


@compiled
def log(x: float) -> float:
    """The natural logarithm of a normal positive number; not a number below 0."""
    if not x > 0.0:
        return -np.inf if x == 0.0 else np.nan
    if x == np.inf:
        return x
    bits = np.float64(x).view(np.int64)
    exponent = (bits >> EXPONENT_BITS) - EXPONENT_BIAS + 1
    halved = (bits & MANTISSA) | (np.int64(EXPONENT_BIAS - 1) << EXPONENT_BITS)
    m = np.int64(halved).view(np.float64)
    if m < SQRT_HALF:
        m *= 2.0
        exponent -= 1
    # ln m = 2 artanh(f), a series in f squared, which is at most 0.03.
    f = (m - 1.0) / (m + 1.0)
    s = f * f
    p = 1.0 / 23.0
    p = p * s + 1.0 / 21.0
    p = p * s + 1.0 / 19.0
    p = p * s + 1.0 / 17.0
    p = p * s + 1.0 / 15.0
    p = p * s + 1.0 / 13.0
    p = p * s + 1.0 / 11.0
    p = p * s + 1.0 / 9.0
    p = p * s + 1.0 / 7.0
    p = p * s + 1.0 / 5.0
    p = p * s + 1.0 / 3.0
    whole = float(exponent)
    return whole * LN2_HIGH + (2.0 * f + (2.0 * f * s * p + whole * LN2_LOW))


@compiled
def power(x: float, exponent: float) -> float:
    """A normal positive number to the `exponent`, to a few parts in 1e14."""
    return exp(exponent * log(x))


@compiled
def sin_cos(x: float) -> tuple[float, float]:
    """Sine and cosine of an angle of at most a few thousand turns."""
    quarter = np.floor(x * PER_HALF_PI + 0.5)
    r = ((x - quarter * HALF_PI_HIGH) - quarter * HALF_PI_MIDDLE) - quarter * HALF_PI_LOW
    s = r * r
    # Taylor's series in |r| <= pi / 4; what is left out is below 1e-17.
    p = 1.0 / 355687428096000.0
    p = p * s - 1.0 / 1307674368000.0
    p = p * s + 1.0 / 6227020800.0
    p = p * s - 1.0 / 39916800.0
    p = p * s + 1.0 / 362880.0
    p = p * s - 1.0 / 5040.0
    p = p * s + 1.0 / 120.0
    p = p * s - 1.0 / 6.0
    sine = r + r * s * p
    q = 1.0 / 20922789888000.0
    q = q * s - 1.0 / 87178291200.0
    q = q * s + 1.0 / 479001600.0
    q = q * s - 1.0 / 3628800.0
    q = q * s + 1.0 / 40320.0
    q = q * s - 1.0 / 720.0
    q = q * s + 1.0 / 24.0
    cosine = 1.0 - (0.5 * s - s * s * q)
    turn = np.int64(quarter) & 3
    if turn == 0:
        return sine, cosine
    if turn == 1:
        return cosine, -sine
    if turn == 2:
        return -sine, -cosine
    return -cosine, sine


@compiled
def wrap(angle: float) -> float:
    """The same direction in [-pi, pi], for angles of a few turns."""
    while angle > np.pi:
        angle -= 2.0 * np.pi
    while angle < -np.pi:
        angle += 2.0 * np.pi
    return angle
