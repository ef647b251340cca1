# SPDX-License-Identifier: GPL-2.0
"""Values that ranks reduce in tests, and their exact results, by integers of any size, rounded once
at the end. No code is shared with libthc.
"""
import math

import numpy as np

# numpy's type for a buffer; bf16 has none, so these are the upper halves of floats
BUFFERS = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16,
           "int8": np.int8, "int16": np.int16, "int32": np.int32}
# bits of the significand, and the exponent of the smallest step
FLOATS = {"fp32": (24, -149), "fp16": (11, -24), "bf16": (8, -133)}
UNIT = -149             # integers() are multiples of 2^UNIT
SCALE_BLOCK = 4096      # coordinates that scheme none gives one scale


def gradient(seed, rank, count):
    """A gradient with heavy tails and blocks of different norms: i.i.d. data would hide
    mistakes."""
    rng = np.random.default_rng([seed, rank])
    x = rng.standard_normal(count, dtype=np.float32)
    x *= np.exp(rng.standard_normal(count // 1000 + 1)).repeat(1000)[:count].astype(np.float32)
    return x


def buffer(seed, rank, count, dtype, share=1):
    """The input of a rank: a gradient with the fraction `share` not zero, or integers of the whole
    range."""
    if dtype not in FLOATS:
        info = np.iinfo(BUFFERS[dtype])
        rng = np.random.default_rng([seed, rank])
        return rng.integers(info.min, info.max, count, BUFFERS[dtype], endpoint=True)
    x = gradient(seed, rank, count)
    if share < 1:
        # in the first half all ranks have values in the same places
        there = [np.random.default_rng([seed, r, 1]).random(count) < share for r in (0, rank)]
        x[~np.where(np.arange(count) < count // 2, *there)] = 0
    return narrowed(x, dtype)


def narrowed(x, dtype):
    """A buffer of finite single precision floats, rounded to nearest even; fp16 saturates."""
    if dtype != "bf16":
        return (np.clip(x, -65504, 65504) if dtype == "fp16" else x).astype(BUFFERS[dtype])
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def floats(values, dtype):
    """The values of a buffer as float64, which holds them exactly."""
    if dtype == "bf16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float64)


def integers(values, dtype):
    """The values of a buffer in units of 2^UNIT, as Python's integers."""
    fraction, exponent = np.frexp(floats(values, dtype))
    whole = (fraction * 2.0**53).astype(np.int64).tolist()
    return [w << s if s >= 0 else w >> -s
            for w, s in zip(whole, (exponent - 53 - UNIT).tolist())]


def rounded(numerator, denominator, unit, dtype):
    """numerator / denominator in units of 2^unit, rounded once to the nearest of dtype, or even."""
    if not numerator:
        return 0.0
    digits, least = FLOATS[dtype]
    top, bottom = abs(numerator), denominator
    exponent = top.bit_length() - bottom.bit_length()
    if top << max(0, -exponent) < bottom << max(0, exponent):
        exponent -= 1
    step = max(exponent + unit - (digits - 1), least)
    shift = unit - step
    top, bottom = top << max(0, shift), bottom << max(0, -shift)
    whole, rest = divmod(top, bottom)
    whole += 2 * rest > bottom or (2 * rest == bottom and whole & 1)
    return math.copysign(math.ldexp(whole, step), numerator)


def as_buffer(values, dtype):
    """A buffer of values that dtype represents exactly."""
    x = np.array(values, np.float64).astype(np.float32 if dtype == "bf16" else BUFFERS[dtype])
    return (x.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else x


def total(buffers):
    """Integers, summed modulo their width."""
    return sum(b.astype(np.int64) for b in buffers).astype(buffers[0].dtype)


def exact_mean(buffers, dtype):
    sums = [sum(column) for column in zip(*(integers(b, dtype) for b in buffers))]
    return as_buffer([rounded(s, len(buffers), UNIT, dtype) for s in sums], dtype)


def fixed_mean(buffers, dtype, bits, shared=SCALE_BLOCK):
    """The mean in fixed point (protocol.md): values are first rounded to multiples of a scale.
    shared: values per scale"""
    n, out = len(buffers), []
    k = bits - 1 - (n - 1).bit_length()
    most = 2**k - 1
    for first in range(0, len(buffers[0]), shared):
        x = [floats(b[first:first + shared], dtype) for b in buffers]
        scale = int(np.frexp(max(np.abs(v).max() for v in x))[1])
        sums = sum(np.clip(np.rint(np.ldexp(v, k - scale)), -most, most).astype(np.int64)
                   for v in x)
        out += [rounded(s, n, scale - k, dtype) for s in sums.tolist()]
    return as_buffer(out, dtype)


def nmse(result, buffers, dtype):
    """The NMSE of a result against the exact mean of buffers."""
    mean = np.mean([floats(b, dtype) for b in buffers], axis=0)
    return float(((floats(result, dtype) - mean) ** 2).sum() / (mean ** 2).sum())
