"""Exact sums: adds floating-point numbers so that a sum depends neither on their order nor on former summands.

A sum with a tolerance need not be exact to the last bit. So each summand is rounded to a whole number of units, of
which the tolerance has at least 2^32. Whole numbers can be added in any order, and subtracted again without an error.
The error of a sum of a million summands is less than a four-thousandth of the tolerance. A whole number has two parts,
which are added separately: a summand has up to 80 bits.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from falkirk.steps.differential.grouping import WholeNumbers

#: The binary logarithm of the number of units of a tolerance, and the bits of the lower part of a number.
_UNITS, _LOW = 32, 40
#: Greater summands, in units, are not added here, and neither are keys with more rows: the parts could overflow.
_GREATEST = 2.0**80
COUNT_MAX = 1 << 21


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The unit of the sums with a tolerance. Args: exponent: the unit is two to this power."""

    exponent: int

    @classmethod
    def of(cls, tolerance: float) -> "Units":
        """Return the unit for a tolerance."""
        return cls(exponent=math.frexp(tolerance)[1] - 1 - _UNITS)

    def parts(self, numbers: npt.NDArray[np.float64]) -> tuple[WholeNumbers, WholeNumbers, npt.NDArray[np.bool_]]:
        """Return the two parts of each number, and whether it can be added here."""
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = np.rint(np.ldexp(numbers, -self.exponent))
            suits = np.abs(scaled) < _GREATEST  # not infinity or NaN
            if not suits.all():
                scaled = np.where(suits, scaled, 0.0)
            high = np.floor(np.ldexp(scaled, -_LOW))
            low = scaled - np.ldexp(high, _LOW)
        return high.astype(np.int64), low.astype(np.int64), suits

    def numbers(self, high: WholeNumbers, low: WholeNumbers) -> npt.NDArray[np.float64]:
        """Return the numbers whose parts have these sums."""
        high, low = high + (low >> _LOW), low & ((1 << _LOW) - 1)
        found: npt.NDArray[np.float64] = np.ldexp(
            np.ldexp(high.astype(np.float64), _LOW) + low.astype(np.float64), self.exponent
        )
        return found


def sums_by_key(
    numbers: npt.NDArray[np.float64], counts: WholeNumbers, order: Any, first: Any, tolerance: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:  # fmt: skip
    """Return the sum of each key, and whether it could be computed here: this depends only on the rows of the key.

    Args: counts: positive. order: the places of rows such that the rows of each key are adjacent. first: where each key
        begins in that order.
    """
    unit = Units.of(tolerance)
    high, low, suits = unit.parts(numbers)
    few = counts <= COUNT_MAX
    often = np.where(few, counts, 0)
    with np.errstate(over="ignore"):  # of keys that are not computed here
        sums = [np.add.reduceat((part * often)[order], first) for part in (high, low)]
    suits = np.logical_and.reduceat((suits & few)[order], first)
    return unit.numbers(*sums), suits & (np.add.reduceat(often[order], first) <= COUNT_MAX)
