# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""libthc.h in ctypes: structures and prototypes, field by field as in the header
(tests/python/test_abi.py compares them), and the search for the library. No
policy.
"""
import ctypes
import ctypes.util
import os
from ctypes import (POINTER, c_char_p, c_double, c_int, c_size_t, c_uint8, c_uint16, c_uint32,
                    c_uint64, c_void_p)

FP32, FP16, BF16, INT8, INT16, INT32 = 0, 1, 2, 3, 4, 5
RATE_FIXED = -1.0
EXACT, FIXED_8, FIXED_16, FIXED_32 = 0, 8, 16, 32
CLIENT_ERROR_FEEDBACK = 0x1
CLIENT_NONFINITE = 0x2
NONFINITE = 1
KEY_BYTES = 32
TABLE_LEVELS_MAX = 256
JOBS_MAX = 16
RANKS_MAX = 64


class Table(ctypes.Structure):
    """struct thc_table"""
    _fields_ = [("bits", c_uint32), ("granularity", c_uint32), ("levels", c_uint32),
                ("p", c_double), ("t", c_double), ("cost", c_double),
                ("value", c_uint16 * TABLE_LEVELS_MAX)]


class Options(ctypes.Structure):
    """struct thc_client_options"""
    _fields_ = [("size", c_size_t), ("flags", c_uint32), ("aggregator", c_char_p),
                ("port", c_uint16), ("bind", c_char_p), ("interface", c_char_p),
                ("job", c_uint16), ("rank", c_uint16), ("key", POINTER(c_uint8)),
                ("timeout_ms", c_uint32), ("join_timeout_ms", c_uint32), ("window", c_uint32),
                ("simd", c_int), ("transport", c_int), ("rate", c_double),
                ("error", c_double)]


class Call(ctypes.Structure):
    """struct thc_call"""
    _fields_ = [("size", c_size_t), ("scheme", c_char_p), ("key", c_uint64), ("precision", c_int),
                ("reserved", c_uint32), ("grain", c_size_t), ("keep", c_double),
                ("rate", c_double), ("error", c_double), ("group", c_uint64)]


class Rows(ctypes.Structure):
    """struct thc_rows"""
    _fields_ = [("size", c_size_t), ("total", c_uint64), ("count", c_size_t), ("row", c_void_p),
                ("arrays", c_uint32), ("width", POINTER(c_uint32)), ("values", POINTER(c_void_p))]


class Info(ctypes.Structure):
    """struct thc_client_info"""
    _fields_ = [("size", c_size_t), ("ranks", c_uint32), ("epoch", c_uint32),
                ("data_slots", c_uint32), ("chunk", c_uint32), ("block", c_uint32),
                ("sum_width", c_uint32), ("multicast", c_uint32), ("table", Table),
                ("memory_peak", c_size_t), ("simd", c_char_p), ("transport", c_char_p),
                ("window", c_uint32), ("window_limit", c_char_p), ("scheme", c_char_p),
                ("shards", c_uint32), ("precision", c_uint32), ("seal", c_char_p),
                ("rate_goal", c_double), ("error_goal", c_double), ("table_error", c_double),
                ("rate_tried", c_uint32)]


class Stats(ctypes.Structure):
    """struct thc_client_stats"""
    _fields_ = [("size", c_size_t)] + [(name, c_uint64) for name in (
        "requests", "failures", "packets_up", "bytes_up", "packets_down", "bytes_down", "chunks",
        "retransmits", "repeats", "waits", "excluded", "partial", "bad_tag", "unexpected",
        "foreign", "window_cuts", "send_calls", "receive_calls", "rtt_us", "window",
        "reserved", "nonfinite", "rate_requests", "rate_blocks", "rate_skipped",
        "rate_bits_up", "rate_bits_down")] + [
            ("rate_square", c_double), ("rate_lost", c_double), ("trial", c_uint64),
            ("trial_fixed_ns", c_uint64), ("trial_rate_ns", c_uint64)]


_PROTOTYPES = {
    "thc_version": (c_char_p, []),
    "thc_last_error": (c_char_p, []),
    "thc_key_read": (c_int, [c_char_p, POINTER(c_uint8)]),
    "thc_client_open": (c_int, [POINTER(Options), POINTER(c_void_p)]),
    "thc_client_close": (None, [c_void_p]),
    "thc_client_rejoin": (c_int, [c_void_p]),
    "thc_allreduce_call_start": (c_int, [c_void_p, c_void_p, c_size_t, c_int, POINTER(Call),
                                         POINTER(c_void_p)]),
    "thc_allreduce_wait": (c_int, [c_void_p]),
    "thc_allreduce_rows_start": (c_int, [c_void_p, POINTER(Rows), c_int, POINTER(Call),
                                         POINTER(c_void_p)]),
    "thc_allreduce_rows_wait": (c_int, [c_void_p, POINTER(Rows)]),
    "thc_rows_free": (None, [POINTER(Rows)]),
    "thc_error_export": (c_size_t, [c_void_p, c_uint64, c_void_p, c_size_t]),
    "thc_error_import": (c_int, [c_void_p, c_uint64, c_void_p, c_size_t]),
    "thc_error_undo": (c_int, [c_void_p, c_uint64]),
    "thc_schemes": (POINTER(c_char_p), []),
    "thc_client_info": (c_int, [c_void_p, POINTER(Info)]),
    "thc_client_stats": (c_int, [c_void_p, POINTER(Stats)]),
}


def _candidates():
    named = os.environ.get("LIBTHC")
    if named:
        return [named]
    tree = os.path.dirname(os.path.abspath(__file__))
    built = os.path.normpath(os.path.join(tree, "../../../build/libthc.so"))
    return [c for c in (built if os.path.exists(built) else None,
                        ctypes.util.find_library("thc"), "libthc.so.1") if c]


def load():
    """Returns libthc with its prototypes set. OSError: no candidate could be loaded."""
    tried = []
    for name in _candidates():
        try:
            lib = ctypes.CDLL(name)
            for function, (result, arguments) in _PROTOTYPES.items():
                prototype = getattr(lib, function)
                prototype.restype, prototype.argtypes = result, arguments
            return lib
        except (OSError, AttributeError) as error:
            tried.append(str(error))
    raise OSError("libthc was not found: build it with `make`, install it with `make install`, or "
                  "set LIBTHC to its path (" + "; ".join(tried) + ")")
