# SPDX-License-Identifier: GPL-2.0
"""Bits of single precision floats that are hard to sum exactly: values on some ranks only, values
of all binades, sums that nearly cancel.
"""
from typing import NamedTuple

import numpy as np

_SIGN, _MANTISSA, _LARGEST = np.uint32(1 << 31), np.uint32((1 << 23) - 1), 254


def _drawn(rng, count):
    return rng.integers(0, 1 << 32, count, np.uint32)


def any_bits(rng, count, _rank, _ranks):
    """All finite floats, subnormals included, nearly equally likely."""
    bits = _drawn(rng, count)
    # an Inf or NaN becomes finite: clear the lowest bit of its exponent
    bits[bits >> 23 & 255 > _LARGEST] ^= np.uint32(1 << 23)
    return bits


def subnormals(rng, count, _rank, _ranks):
    return _drawn(rng, count) & (_SIGN | _MANTISSA)


def gradient(rng, count, _rank, _ranks):
    """Normal values whose scale changes every 1000 values."""
    scale = np.exp(rng.standard_normal(count // 1000 + 1)).astype(np.float32)
    return (rng.standard_normal(count, dtype=np.float32) *
            scale.repeat(1000)[:count]).view(np.uint32)


def halves(rng, count, rank, ranks):
    """Values that bf16 represents."""
    return gradient(rng, count, rank, ranks) & np.uint32(0xffff0000)


def cancelling(rng, count, rank, _ranks):
    """Ranks in pairs: the second one has the first one's values negated, except for the lowest bit.
    Each pair's values are far smaller than those of the pair before."""
    bits = _drawn(rng, count)
    exponent = (bits >> 23 & 31) + np.uint32(150 - 70 * (rank // 2 % 3))
    bits = bits & (_SIGN | _MANTISSA) | exponent << 23
    return bits ^ _SIGN ^ (bits >> 7 & 1) if rank % 2 else bits


def _ties(small, rng, count, rank, ranks):
    """The first two ranks alone have means half-way between two floats. The values of the others,
    small() of random bits, are far smaller or zero."""
    # 25 bits, one more than a float's significand
    mean = rng.integers(1 << 23, 1 << 24, count, np.uint64) * np.uint64(2) + np.uint64(1)
    if rank < 2:
        low = mean * np.uint64(ranks) & np.uint64(255)
        part = low if rank else mean * np.uint64(ranks) - low
        return part.astype(np.float32).view(np.uint32)
    hashed = (mean * np.uint64(0x9e3779b97f4a7c15) >> np.uint64(20 + rank % 12)).astype(np.uint32)
    return np.where(hashed >> 24 & 3 > 0, hashed & _SIGN | small(hashed), 0).astype(np.uint32)


def ties(*of):
    """Ties with small values of any size."""
    return _ties(lambda bits: bits & _MANTISSA | bits % 120 << 23, *of)


def close_ties(*of):
    """Ties with small values of 2^-31 to 2^-29, and sums of up to 2^27: two digits of 29 bits reach
    that far, a double does not."""
    return _ties(lambda bits: 127 - 31 + bits % 3 << 23, *of)


class Case(NamedTuple):
    """A kind of bucket. draw: draws the bits of a rank's values; share: fraction of coordinates
    with a value on a rank; alike: ranks that share random numbers; zero: bits of the other
    coordinates
    """
    kind: str
    share: float
    draw: object
    alike: int = 1
    zero: int = 0

    def union(self, ranks):
        """The fraction of coordinates with a value on at least one rank."""
        return (self.share + 1 - (1 - self.share) ** ranks) / 2

    def _places(self, seed, rank, count):
        """Coordinates with a value: in the first half equal on all ranks, then each rank's own."""
        half = count // 2
        there = [np.random.default_rng([*seed, who]).random(of, dtype=np.float32) < self.share
                 for who, of in ((100, half), (rank, count - half))]
        return np.flatnonzero(np.concatenate(there))

    def bits(self, seed, rank, ranks, count):
        """The bits of a rank's bucket. seed: a list, equal on all ranks"""
        out = np.full(count, self.zero, np.uint32)
        at = self._places(seed, rank, count)
        rng = np.random.default_rng([*seed, 200 + rank // self.alike])
        out[at] = self.draw(rng, at.size, rank, ranks)
        return out


# One case has -0 for zeros, which is not in the union either.
CASES = (Case("any bits", 1, any_bits), Case("any bits", .2, any_bits, zero=1 << 31),
         Case("any bits", .01, any_bits), Case("subnormals", .3, subnormals),
         Case("gradient", 1, gradient), Case("gradient", .1, gradient),
         Case("gradient", .01, gradient), Case("gradient", .001, gradient),
         Case("gradient of bf16", .1, halves), Case("cancelling", .5, cancelling, alike=2),
         Case("ties", .5, ties, alike=64), Case("close ties", .5, close_ties, alike=64))
