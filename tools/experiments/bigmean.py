# SPDX-License-Identifier: GPL-2.0
"""Exact means of single precision floats, vectorised and rounded once, by big integers whose digits
to the base 2^30 are numpy's 64-bit integers. This file shares no code and no scale with libthc;
tests/unit/test_experiments.py compares its results with Python's integers.
"""
import numpy as np

_BASE = 30              # bits of a digit
# a sum in units of 2^-149, the smallest float, has 277 bits, and log2(ranks) more
_DIGITS = 10
_MANTISSA = 23          # bits that a float stores
_COLUMNS = 1 << 14      # values per pass, whose digits fit into a CPU cache
RANKS_MAX = 64


def _add(digits, bits):
    """Adds floats, given by their bits, to numbers; a row of digits is one digit of each number."""
    exponent = (bits >> _MANTISSA & 255).astype(np.int64)
    mantissa = (bits & ((1 << _MANTISSA) - 1)).astype(np.int64)
    mantissa |= (exponent > 0).astype(np.int64) << _MANTISSA
    shift = np.maximum(exponent, 1) - 1
    at = shift // _BASE
    mantissa <<= shift - at * _BASE
    low, high = mantissa & ((1 << _BASE) - 1), mantissa >> _BASE
    sign = 1 - 2 * (bits >> 31).astype(np.int64)
    flat, columns = digits.reshape(-1), bits.size
    place = at * columns + np.arange(columns)
    flat[place] += sign * low
    flat[place + columns] += sign * high


def _carry(digits):
    """Brings all digits except the highest into 0 to 2^30 - 1."""
    for low, high in zip(digits, digits[1:]):
        high += low >> _BASE
        low &= (1 << _BASE) - 1


def _quotient(digits, divisor):
    """(digits of digits / divisor, True where there is a remainder). The lowest digit is behind the
    binary point, the highest is 0."""
    out = np.zeros((len(digits) + 2, digits.shape[1]), np.int64)
    rest = np.zeros(digits.shape[1], np.int64)
    for k in range(len(digits), -1, -1):
        rest = rest << _BASE | (digits[k - 1] if k else 0)
        out[k] = rest // divisor
        rest -= out[k] * divisor
    return out, rest != 0


def _bit_length(digits):
    length = np.zeros(digits.shape[1], np.int64)
    for k, digit in enumerate(digits):
        # frexp() is exact: a digit fits into a double's significand
        length = np.where(digit > 0, k * _BASE + np.frexp(digit.astype(np.float64))[1], length)
    return length


def _rounded(digits, rest):
    """Bits of the numbers as floats, rounded to nearest even; the lowest digit is fractional."""
    columns = np.arange(digits.shape[1])
    drop = np.maximum(_bit_length(digits) - (_MANTISSA + 1), _BASE)
    at, low = drop // _BASE, drop % _BASE
    whole = (digits[at + 1, columns] << _BASE | digits[at, columns]) >> low
    # the dropped part: two digits, and a flag for digits below
    dropped = (digits[at, columns] & ((1 << low) - 1)) << _BASE | digits[at - 1, columns]
    some = np.zeros(digits.shape, bool)
    np.logical_or.accumulate(digits[:-1] != 0, axis=0, out=some[1:])
    below = some[at - 1, columns] | rest
    half = np.int64(1) << (low + _BASE - 1)
    whole += (dropped > half) | ((dropped == half) & (below | (whole & 1 == 1)))
    # subnormals have the step of the first binade; a carry out of the mantissa raises the exponent
    return ((drop - _BASE) << _MANTISSA) + whole


def _of(bits):
    digits = np.zeros((_DIGITS, bits.shape[1]), np.int64)
    for row in bits:
        _add(digits, row)
    _carry(digits)
    negative = digits[-1] < 0
    np.negative(digits, where=negative, out=digits)
    _carry(digits)
    quotient, rest = _quotient(digits, len(bits))
    return (_rounded(quotient, rest) | negative.astype(np.int64) << 31).astype(np.uint32)


def mean(bits):
    """The bits of the means of finite floats. bits: one row of floats' bits per rank. A zero sum
    has the mean +0."""
    ranks, count = bits.shape
    if not 0 < ranks <= RANKS_MAX:
        raise ValueError(f"the mean of {ranks} ranks")
    out = np.empty(count, np.uint32)
    for first in range(0, count, _COLUMNS):
        out[first:first + _COLUMNS] = _of(bits[:, first:first + _COLUMNS])
    return out
