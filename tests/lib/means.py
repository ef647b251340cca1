# SPDX-License-Identifier: GPL-2.0
"""Schemes thc and uthc in numpy's floats: computes the mean that ranks must get from an answer, bit
for bit, and checks a rank's indices and scales against its gradient. The order of operations of a
mean is that of libthc (codec.c: single precision, strides ascending); no code is shared.
"""
import numpy as np

import decoder
import values

WEYL, UNROTATED, UTHC = 0x9E3779B97F4A7C15, 1, 2
SCALE_MIN, NORM_MAX, RANGE_MAX = 2.0**-80, 2.0**112, 2.0**122
# tolerances for single precision: of a coordinate in grid steps, of a scale relative to the norm
STEPS_OFF, SCALE_OFF = 2.0**-8, 1e-6
Z_BOUND = 5.0           # standard deviations; seeds are fixed, so a failure is a fault


def _transform(x):
    """The unscaled Hadamard transform of each row."""
    shape, stride = x.shape, 1
    while stride < shape[1]:
        pairs = x.reshape(-1, 2, stride)
        x = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], 1)
        stride *= 2
    return x.reshape(shape)


class Round:
    """One bucket of the job's scheme in one round. welcome: a worker's Welcome; number: the
    round's; lanes: those of the MAX answers, in the order of blocks; row: the row used, None: the
    job's first; which: numbers of the blocks to check, None: all; sums have these blocks alone."""

    def __init__(self, welcome, number, count, lanes, row=None, which=None):
        self.row = row or next(iter(welcome.rows.values()))
        scheme = next(iter(welcome.schemes.values()))
        self.count, self.size = count, 1 << scheme["block_log2"]
        self.blocks = -(-count // self.size)
        self.rotated, self.uthc = not scheme["features"] & UNROTATED, scheme["scheme"] == UTHC
        self.shrink = self.size if self.rotated else 1
        self.half = np.float32(0 if self.uthc else self.row.granularity / 2)
        self.which = np.arange(self.blocks) if which is None else np.array(which)
        self.signs = self._signs(welcome.seed, number).reshape(-1, self.size)[self.which]
        self.scales, offset, step = self._spans(
            np.array(lanes[:self.blocks * (2 if self.uthc else 1)], np.uint32))
        self.offset, self.step = offset[self.which], step[self.which]

    def _signs(self, seed, number):
        key = decoder.mix(decoder.mix(decoder.mix((seed + WEYL) % 2**64) ^ number))
        words = [decoder.mix((key + i * WEYL) % 2**64)
                 for i in range(self.blocks * self.size // 64)]
        negated = np.unpackbits(np.array(words, "<u8").view(np.uint8), bitorder="little")
        return np.float32(1) - 2 * negated.astype(np.float32)

    def _spans(self, lanes):
        """For each block (scale, coordinate at the grid position `half`, grid step), as arrays."""
        row = self.row
        if self.uthc:
            scales = np.where(lanes >> 31, lanes ^ 2**31, ~lanes).astype(np.uint32).view(np.float32)
            most, least = scales[0::2], np.float32(0) - scales[1::2]
            wide = most.astype(float) - least
            good = (wide >= 0) & (most <= RANGE_MAX) & (least >= -RANGE_MAX)
            return (scales, np.where(good, least, np.float32(0)),
                    np.where(good & (wide >= SCALE_MIN), wide / row.granularity, 0))
        scales = lanes.view(np.float32)
        norm = scales.astype(float)
        good = (norm >= SCALE_MIN) & (norm <= NORM_MAX)
        there = np.minimum(self.count - self.size * np.arange(self.blocks), self.size)
        spread = 1 if self.rotated else np.sqrt(1 / there)
        step = 2 * row.clamp * np.where(good, norm, 0) / row.granularity * spread
        return scales, np.zeros(self.blocks, np.float32), step

    def _in_blocks(self, x):
        return np.concatenate([x, np.zeros(self.blocks * self.size - self.count)]).reshape(
            -1, self.size)[self.which]

    def _forward(self, x):
        """The blocks of x before quantisation, rotated if the scheme rotates, one per row."""
        blocks = self._in_blocks(x)
        return _transform(blocks * self.signs) if self.rotated else blocks

    def _back(self, blocks):
        x = (_transform(blocks) * self.signs) if self.rotated else blocks
        return x.ravel()[:self.count]

    def mean(self, sums, counts, dtype):
        """The buffer that ranks must get. sums: lanes of all chunks, in the order of coordinates;
        counts: contributors by chunk, or one number for all chunks."""
        y = np.array(sums, np.uint32).astype(np.float32).reshape(-1, self.size)
        n = (np.full(y.shape, counts) if np.isscalar(counts) else
             np.repeat(np.array(counts), 8192 // self.row.sum_width).reshape(y.shape))
        step = (self.step[:, None] / self.shrink / n).astype(np.float32)
        x = (y - n.astype(np.float32) * self.half) * step
        return values.narrowed(
            self._back(x + (self.offset / np.float32(self.shrink))[:, None]), dtype)

    def check_scales(self, brought):
        """Asserts that scales are the maxima over the ranks' inputs, brought, in float64."""
        norms = np.max([np.sqrt((self._in_blocks(x)**2).sum(1)) for x in brought], axis=0)
        want, off = norms, SCALE_OFF * norms
        if self.uthc:
            there = np.arange(self.blocks * self.size).reshape(-1, self.size) < self.count
            there |= self.rotated
            y = [self._forward(x) for x in brought]
            most, least = (np.max([np.where(there, sign * v, -np.inf).max(1) for v in y], axis=0)
                           for sign in (1, -1))
            want = np.stack([most, least], 1).ravel()
            off = np.repeat(off * np.sqrt(self.shrink), 2)
        wrong = np.abs(self.scales - want) > off
        assert not wrong.any(), f"scales are {self.scales[wrong]}, not {want[wrong]}"

    def missed(self, x, indices):
        """The error of a rank's indices for its input x, in float64. Asserts that each index is one
        of the two neighbours of x, and that rounding is unbiased."""
        y, z = self._forward(x), np.array(indices).reshape(-1, self.size)
        levels = np.array(self.row.levels, float)
        at = (y - self.offset[:, None]) / self.step[:, None] + self.half
        beyond = np.concatenate([[-np.inf], levels, [np.inf]])
        wrong = (at < beyond[z] - STEPS_OFF) | (at > beyond[z + 2] + STEPS_OFF)
        assert not wrong.any(), (f"{wrong.sum()} indices, not neighbours: {z[wrong][0]} of "
                                 f"{at[wrong][0]} a grid of {self.row.granularity}")
        at = np.clip(at, 0, levels[-1])
        below = np.clip(np.searchsorted(levels, at, "right") - 1, 0, len(levels) - 2)
        variance = (at - levels[below]) * (levels[below + 1] - at)
        weight = at - levels[-1] / 2
        z_score = ((levels[z] - at) * weight).sum() / np.sqrt((variance * weight**2).sum())
        assert abs(z_score) < Z_BOUND, f"indices are biased, by {z_score} standard deviations"
        stands_for = (levels[z] - self.half) * self.step[:, None] + self.offset[:, None]
        return self._back((y - stands_for) / self.shrink)
