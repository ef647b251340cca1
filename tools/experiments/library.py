# SPDX-License-Identifier: GPL-2.0
"""libthc for experiments: its public tables, and whole rounds of its codecs without a network
(round_tables.c, round_rate.c, round_fixed.c, round_index.c, round_peel.c).
"""
import ctypes
import functools
import os
import sys
from ctypes import POINTER, byref, c_double, c_uint32, c_uint64, c_void_p

import numpy as np

import netns
from experiments.report import ExperimentError

sys.path.append(os.path.join(netns.ROOT, "userspace/python"))
from thc_ddp import abi  # noqa: E402  (found through the path above)


BITS_MAX = 8            # of an index
UNROTATED, RANGES = 1, 2        # THC_CODEC_*
FEEDBACK = 1            # THC_TABLE_FEEDBACK


class Trial(ctypes.Structure):
    """struct trial of trial.h"""
    _fields_ = [("count", c_uint64), ("round", c_uint64), ("seed", c_uint64),
                ("ranks", c_uint32), ("block_log2", c_uint32), ("correlated", c_uint32),
                ("width", c_uint32), ("form", c_uint32)]


class Wish(ctypes.Structure):
    """struct thc_table_wish of libthc.h"""
    _fields_ = [("size", ctypes.c_size_t), ("bits", c_uint32), ("ranks", c_uint32),
                ("width", c_uint32), ("granularity", c_uint32), ("p", c_double),
                ("flags", c_uint64)]


class SketchTrial(ctypes.Structure):
    """struct sketch_trial of round_peel.c"""
    _fields_ = [("count", c_uint64), ("items", c_uint64), ("seed", c_uint64),
                ("draws", c_uint32), ("hashes", c_uint32), ("lanes_log2", c_uint32),
                ("buckets", c_uint32)]


class SketchOutcome(ctypes.Structure):
    """struct sketch_outcome of round_peel.c"""
    _fields_ = [("cells", c_uint64), ("lanes", c_uint64), ("windows", c_uint64),
                ("add_ns", c_double), ("find_ns", c_double), ("values_ns", c_double)]


class RateTrial(ctypes.Structure):
    """struct rate_trial of round_rate.c"""
    _fields_ = [("bits", c_uint32), ("error", c_uint32), ("turn", c_uint32), ("skips", c_uint32),
                ("width", c_uint32 * 7)]


class RateOutcome(ctypes.Structure):
    """struct rate_outcome of round_rate.c"""
    _fields_ = [("blocks", c_uint32 * 7), ("expected", c_double), ("sent", c_double),
                ("skipped", c_double), ("lost", c_double)]


class LibraryError(ExperimentError):
    """An error of libthc, as a sentence."""


@functools.cache
def _load(path, prototypes):
    path = os.path.join(netns.build_dir(), path)
    if not os.path.exists(path):
        raise LibraryError(f"{path} is missing: run `make tests`")
    library = ctypes.CDLL(path)
    for name, result, arguments in prototypes:
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def _tables():
    return _load("libthc.so", (
        ("thc_table_solve", ctypes.c_int, (c_uint32, c_uint32, c_double, POINTER(abi.Table))),
        ("thc_table_from_values", ctypes.c_int, (c_uint32, c_uint32, c_double,
                                                 POINTER(ctypes.c_uint16), POINTER(abi.Table))),
        ("thc_table_choose", ctypes.c_int, (POINTER(Wish), POINTER(abi.Table))),
        ("thc_table_nmse", c_double, (POINTER(abi.Table), c_uint32))))


def _rounds():
    return _load("experiments/rounds.so", (
        ("round_by_table", ctypes.c_int, (POINTER(Trial), POINTER(abi.Table), c_void_p, c_void_p)),
        ("round_by_rate", ctypes.c_int, (POINTER(Trial), POINTER(RateTrial), POINTER(abi.Table),
                                         c_void_p, c_void_p, POINTER(RateOutcome))),
        ("round_by_fixed", ctypes.c_int, (POINTER(Trial), c_uint32, c_void_p, c_void_p,
                                          POINTER(c_uint64))),
        ("round_by_index", ctypes.c_int, (c_uint64, c_uint32, c_uint32, c_void_p,
                                          POINTER(c_uint64))),
        ("sketch_buckets", c_uint32, (c_uint32, c_uint32)),
        ("round_by_sketch", ctypes.c_int, (POINTER(SketchTrial), c_void_p,
                                           POINTER(SketchOutcome)))))


def _check(status, what):
    if status:
        raise LibraryError(f"{what}: {os.strerror(-status)}")


# --- tables -----------------------------------------------------------------
def solve(bits, granularity, p):
    """The optimal table."""
    table = abi.Table()
    _check(_tables().thc_table_solve(bits, granularity, p, byref(table)),
           f"no table of {bits} bits, granularity {granularity}, p {p:g}")
    return table


def from_values(bits, granularity, p, values):
    table = abi.Table()
    _check(_tables().thc_table_from_values(bits, granularity, p,
                                           (ctypes.c_uint16 * len(values))(*values), byref(table)),
           f"{list(values)} is no table")
    return table


def closed_form(table, ranks):
    """NMSE of the mean of equal gradients, rounded independently."""
    return _tables().thc_table_nmse(byref(table), ranks)


def values(table):
    return list(table.value[:table.levels])


def choose(bits, ranks, width, feedback=True):
    """The table with the least closed_form() whose sums fit, as thcd chooses it. With feedback a
    rank's own loss is at most 1/2."""
    wish = Wish(ctypes.sizeof(Wish), bits, ranks, width, flags=FEEDBACK if feedback else 0)
    table = abi.Table()
    _check(_tables().thc_table_choose(byref(wish), byref(table)),
           f"no table of {bits} bits for {ranks} ranks and sums of {width} bits")
    return table


# --- rounds -----------------------------------------------------------------
def _gradients(x):
    x = np.ascontiguousarray(x, dtype=np.float32)
    return x, np.empty(x.shape[1], dtype=np.float32)


def by_table(table, width, x, seed, block_log2=10, correlated=False, form=0):
    """The mean of x, one gradient per row, by scheme thc with sums of `width` bits.

    form: UNROTATED: blocks are not rotated; RANGES: levels span a block's values
    """
    x, out = _gradients(x)
    trial = Trial(x.shape[1], 1, seed, x.shape[0], block_log2, correlated, width, form)
    _check(_rounds().round_by_table(byref(trial), byref(table), x.ctypes.data, out.ctypes.data),
           f"a round of {table.bits} bits up, {width} down")
    return out


@functools.cache
def classes(ranks):
    """(tables, widths of sums), indexed by bits 1 to 6, as thcd chooses them for rates."""
    tables, widths = (abi.Table * 7)(), [0] * 7
    for bits in range(1, 7):
        widths[bits] = next(w for w in (4, 8, 16) if w >= bits and (2 ** bits - 1) * ranks < 2 ** w)
        tables[bits] = choose(bits, ranks, widths[bits])
    return tables, widths


def by_rate(x, seed, rate=0., error=0., turn=0, skips=True):
    """(the mean of x, one gradient per row, by scheme thc with a rate or an error; a RateOutcome).
    Rounding is correlated, thcd's default."""
    x, out = _gradients(x)
    tables, widths = classes(x.shape[0])
    trial = Trial(x.shape[1], 1, seed, x.shape[0], 10, True, 0, 0)
    how = RateTrial(round(1000 * rate), round(1e6 * error), turn, skips, (c_uint32 * 7)(*widths))
    outcome = RateOutcome()
    _check(_rounds().round_by_rate(byref(trial), byref(how), tables, x.ctypes.data, out.ctypes.data,
                                   byref(outcome)), f"a round of {rate:g} bits")
    return out, outcome


def index_words(count, grain_log2, levels, bits):
    """The size of a union's index in 32-bit words. bits: one bit per coordinate, in 32-bit words"""
    words = c_uint64()
    _check(_rounds().round_by_index(count, grain_log2, levels, bits.ctypes.data, byref(words)),
           f"an index of {levels} levels, grain {1 << grain_log2}")
    return words.value


def sketch_buckets(hashes, items):
    """The buckets that libthc chooses for a lane with this many items."""
    return _rounds().sketch_buckets(hashes, items)


def sketches(hashes, count, items, draws, seed, buckets=0, lanes=1):
    """Sketches `items` items among count coordinates, `draws` times: (items that peeling leaves, by
    draw; a SketchOutcome).

    buckets: of a lane; 0: libthc chooses lanes and buckets
    """
    trial = SketchTrial(count, items, seed, draws, hashes, lanes.bit_length() - 1, buckets)
    left, outcome = np.empty(draws, dtype=np.uint64), SketchOutcome()
    _check(_rounds().round_by_sketch(byref(trial), left.ctypes.data, byref(outcome)),
           f"a sketch of {items} items, {hashes} hashes")
    return left, outcome


def uniform(bits):
    """The table of uniform THC. Its levels span a block's range, so p has no meaning."""
    return from_values(bits, 2 ** bits - 1, .5, range(2 ** bits))


def by_fixed(width, x, exact=False):
    """(the mean of x, one gradient per row, by scheme none; lanes per coordinate)"""
    x, out = _gradients(x)
    trial, lanes = Trial(x.shape[1], 1, 0, x.shape[0], 10, 0, width, 0), c_uint64()
    _check(_rounds().round_by_fixed(byref(trial), exact, x.ctypes.data, out.ctypes.data,
                                    byref(lanes)), f"a round of fixed point, {width} bits")
    return out, lanes.value / x.shape[1]
