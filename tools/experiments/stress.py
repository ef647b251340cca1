# SPDX-License-Identifier: GPL-2.0
"""Single precision floats that are hard to sum exactly, as their bits: some ranks' values where the
others have none, values of all binades, sums in which nearly everything cancels.
"""
from typing import NamedTuple

import numpy as np

_SIGN, _MANTISSA, _LARGEST = np.uint32(1 << 31), np.uint32((1 << 23) - 1), 254


def _drawn(rng, count):
    return rng.integers(0, 1 << 32, count, np.uint32)


def any_bits(rng, count, _rank, _ranks):
    """Every finite float, subnormals among them, is as likely as every other one."""
    bits = _drawn(rng, count)
    # of what is no number, its exponent's lowest bit
    bits[bits >> 23 & 255 > _LARGEST] ^= np.uint32(1 << 23)
    return bits


def subnormals(rng, count, _rank, _ranks):
    return _drawn(rng, count) & (_SIGN | _MANTISSA)


def gradient(rng, count, _rank, _ranks):
    """Normals of a scale that is another one every 1000."""
    scale = np.exp(rng.standard_normal(count // 1000 + 1)).astype(np.float32)
    return (rng.standard_normal(count, dtype=np.float32) *
            scale.repeat(1000)[:count]).view(np.uint32)


def halves(rng, count, rank, ranks):
    """What bf16 has."""
    return gradient(rng, count, rank, ranks) & np.uint32(0xffff0000)


def cancelling(rng, count, rank, _ranks):
    """One rank of two has the other one's values with the other sign, but for the last bit. The
    next pair's are far smaller."""
    bits = _drawn(rng, count)
    exponent = (bits >> 23 & 31) + np.uint32(150 - 70 * (rank // 2 % 3))
    bits = bits & (_SIGN | _MANTISSA) | exponent << 23
    return bits ^ _SIGN ^ (bits >> 7 & 1) if rank % 2 else bits


def _ties(small, rng, count, rank, ranks):
    """The first two ranks' means are half-way between two floats; what the others have is far
    smaller, or zero: small() of random bits."""
    # 25 bits, of which a float has 24
    mean = rng.integers(1 << 23, 1 << 24, count, np.uint64) * np.uint64(2) + np.uint64(1)
    if rank < 2:
        low = mean * np.uint64(ranks) & np.uint64(255)
        part = low if rank else mean * np.uint64(ranks) - low
        return part.astype(np.float32).view(np.uint32)
    hashed = (mean * np.uint64(0x9e3779b97f4a7c15) >> np.uint64(20 + rank % 12)).astype(np.uint32)
    return np.where(hashed >> 24 & 3 > 0, hashed & _SIGN | small(hashed), 0).astype(np.uint32)


def ties(*of):
    """Of any size."""
    return _ties(lambda bits: bits & _MANTISSA | bits % 120 << 23, *of)


def close_ties(*of):
    """2^-31 to 2^-29 beside sums of up to 2^27: as far as two digits of 29 bits reach, further than a
    double."""
    return _ties(lambda bits: 127 - 31 + bits % 3 << 23, *of)


class Case(NamedTuple):
    """draw: the bits of so many values of a rank; share: of what is not zero on a rank; alike: so
    many ranks draw from the same random numbers; zero: the bits of what is not there"""
    kind: str
    share: float
    draw: object
    alike: int = 1
    zero: int = 0

    def union(self, ranks):
        """The share of what is not zero on some rank."""
        return (self.share + 1 - (1 - self.share) ** ranks) / 2

    def _places(self, seed, rank, count):
        """In the first half where all ranks have them, then where each has its own."""
        half = count // 2
        there = [np.random.default_rng([*seed, who]).random(of, dtype=np.float32) < self.share
                 for who, of in ((100, half), (rank, count - half))]
        return np.flatnonzero(np.concatenate(there))

    def bits(self, seed, rank, ranks, count):
        """What a rank brings; seed: a list, the same on all ranks."""
        out = np.full(count, self.zero, np.uint32)
        at = self._places(seed, rank, count)
        rng = np.random.default_rng([*seed, 200 + rank // self.alike])
        out[at] = self.draw(rng, at.size, rank, ranks)
        return out


# What is not there is -0 in one case, which no union has.
CASES = (Case("any bits", 1, any_bits), Case("any bits", .2, any_bits, zero=1 << 31),
         Case("any bits", .01, any_bits), Case("subnormals", .3, subnormals),
         Case("gradient", 1, gradient), Case("gradient", .1, gradient),
         Case("gradient", .01, gradient), Case("gradient", .001, gradient),
         Case("gradient of bf16", .1, halves), Case("cancelling", .5, cancelling, alike=2),
         Case("ties", .5, ties, alike=64), Case("close ties", .5, close_ties, alike=64))
