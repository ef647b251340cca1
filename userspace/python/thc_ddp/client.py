# SPDX-License-Identifier: LGPL-2.1 OR BSD-2-Clause OR GPL-2.0
"""One membership in a THC job: libthc's client as a Python object. It works on
addresses of buffers and does not use torch.
"""
import ctypes
import errno
import inspect
import numbers
import operator
import os
import threading
import weakref

from thc_ddp import abi

_lib = None
_lib_lock = threading.Lock()


def library():
    """libthc as a ctypes library, loaded once per process. OSError: it was not found."""
    global _lib
    with _lib_lock:
        if _lib is None:
            _lib = abi.load()
        return _lib


class ThcError(RuntimeError):
    """An error of libthc, or a bad argument. errno: the positive error number."""

    def __init__(self, message, code=0):
        super().__init__(message)
        self.errno = code

    def __reduce__(self):
        return type(self), (str(self), self.errno)


class ThcDisagreement(ThcError):
    """EBADMSG, raised on all ranks: the ranks reduce different things, or hold different results.
    rejoin() does not make them agree.
    """


def _check(result):
    if result < 0:
        sentence = library().thc_last_error().decode(errors="replace")
        sentence = sentence.replace("thc_client_rejoin()", "rejoin()")
        # errno.errorcode calls this number ENOTSUP, the documents call it EOPNOTSUPP
        name = ("EOPNOTSUPP" if result == -errno.EOPNOTSUPP else
                errno.errorcode.get(-result, str(-result)))
        kind = ThcDisagreement if result == -errno.EBADMSG else ThcError
        raise kind(f"{sentence or os.strerror(-result)} ({name})", -result)
    return result


def whole_number(name, value, most=2**64 - 1):
    """value as an int from 0 to most, else ThcError: ctypes would wrap it modulo 2^n."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number <= most:
        raise ThcError(f"{name}={value!r}: give a whole number from 0 to {most}", errno.EINVAL)
    return number


def real_number(name, value):
    """value as a float. ThcError if value is no number: float() would accept a str."""
    if not isinstance(value, numbers.Real):
        raise ThcError(f"{name}={value!r}: give a number", errno.EINVAL)
    return float(value)


def switch(name, value):
    """value as a bool. ThcError for anything but True and False: bool("no") is True."""
    if isinstance(value, str) or value not in (True, False):
        raise ThcError(f"{name}={value!r}: give True or False", errno.EINVAL)
    return bool(value)


def _count(value):
    return whole_number("count", value)


def _key(value):
    return whole_number("key", value)


def schemes():
    """Names of the schemes that libthc has."""
    names, out = library().thc_schemes(), []
    while names[len(out)]:
        out.append(names[len(out)].decode())
    return tuple(out)


def _check_scheme(name):
    if name is not None and name not in schemes():
        raise ThcError(f"scheme={name!r}: this library has {', '.join(schemes())}", errno.EINVAL)


def _milliseconds(name, seconds):
    seconds = real_number(name, seconds)
    if not 0 <= seconds <= 4e6:
        raise ThcError(f"{name}={seconds!r}: give seconds from 0 (the default) to 4000000",
                       errno.EINVAL)
    # times below 1 ms must not become 0, which is the default
    return max(1, round(seconds * 1000)) if seconds else 0


def _text(name, value):
    """value as bytes, None as None. ThcError if value is no str, or has a zero: C would end there."""
    if value is None:
        return None
    if not isinstance(value, str) or "\0" in value:
        raise ThcError(f"{name}={value!r}: give a str", errno.EINVAL)
    return value.encode()


def _port(name, value):
    return whole_number(name, value, 65535)


def _window(name, value):
    return whole_number(name, value, 2**32 - 1)


_READERS = {"aggregator": _text, "bind": _text, "interface": _text, "port": _port,
            "window": _window, "error_feedback": switch, "timeout": _milliseconds,
            "join_timeout": _milliseconds, "rate": real_number, "error": real_number}


def check_options(options):
    """Checks options of ThcClient before the job is joined; raises ThcError as ThcClient would."""
    for name, read in _READERS.items():
        if name in options:
            read(name, options[name])


def _read_key(path):
    """The job's secret key in an array, which the caller must wipe; None if path is None."""
    if path is None:
        return None
    try:
        encoded = os.fsencode(path)
    except TypeError:
        # the message omits the value, which may be the key itself
        raise ThcError("key_file: give the path of the file with the job's key, which "
                       "`thcctl genkey FILE` makes", errno.EINVAL) from None
    key = (ctypes.c_uint8 * abi.KEY_BYTES)()
    _check(library().thc_key_read(encoded, key))
    return key


class ThcClient:
    """A rank of a job. __init__ returns when all ranks have joined. The client leaves the job by
    close(), when it is garbage-collected, or at the end of the process.

    aggregator: address or host name; a link-local address is written fe80::1%eth0
    key_file: path of the file with the job's secret key; None: the job has no key (seal=sum,
        seal=none)
    job: job number; rank: 0 to n - 1; port: the aggregator's base UDP port, 0: 18500
    bind: local address or host name
    interface: receives multicast answers, None: the one of the route to the aggregator
    error_feedback: True: the next step makes up for what compression lost
    timeout, join_timeout: seconds, 0: 60 s
    window: most chunks in flight at each of the job's aggregators, 0: the job's slots
    scheme: the scheme that the job must have, one of schemes(), None: any
    nonfinite: True: NaN or Inf in a rank's gradient is a result (see wait()), not an error
    rate, error: defaults for start(), 0: the job's

    Methods raise ThcError. One thread at a time may use a client, except for wait(), wait_rows().
    """

    def __init__(self, aggregator, job, key_file, rank, port=0, bind=None, interface=None,
                 error_feedback=True, nonfinite=False, timeout=0.0, join_timeout=0.0, window=0,
                 scheme=None, rate=0.0, error=0.0):
        self._lib = library()
        self._handle = ctypes.c_void_p()
        self._leave = lambda: None
        _check_scheme(scheme)
        self._job, self._scheme, self._refused = job, scheme, None
        options = abi.Options(
            size=ctypes.sizeof(abi.Options),
            flags=((abi.CLIENT_ERROR_FEEDBACK if switch("error_feedback", error_feedback) else 0) |
                   (abi.CLIENT_NONFINITE if switch("nonfinite", nonfinite) else 0)),
            aggregator=_text("aggregator", aggregator), port=_port("port", port),
            bind=_text("bind", bind), interface=_text("interface", interface),
            job=whole_number("job", job, abi.JOBS_MAX - 1),
            rank=whole_number("rank", rank, abi.RANKS_MAX - 1),
            timeout_ms=_milliseconds("timeout", timeout),
            join_timeout_ms=_milliseconds("join_timeout", join_timeout),
            window=_window("window", window),
            rate=real_number("rate", rate), error=real_number("error", error))
        options.key = key = _read_key(key_file)
        try:
            _check(self._lib.thc_client_open(ctypes.byref(options), ctypes.byref(self._handle)))
        finally:
            if key is not None:
                ctypes.memset(key, 0, abi.KEY_BYTES)
        self._leave = weakref.finalize(self, self._lib.thc_client_close, self._handle)
        try:
            self._check_job()
        except BaseException:
            self.close()
            raise

    def _check_job(self):
        """Compares schemes at each join: a restarted thcd may give the job another scheme."""
        has = self.info()["scheme"]
        self._refused = None
        if self._scheme not in (None, has):
            self._refused = (f"job {self._job} has scheme {has}, not {self._scheme}: give "
                             f"scheme={has!r}, or start the job with scheme={self._scheme}")
            raise ThcError(self._refused, errno.EINVAL)

    def close(self):
        """Leaves the job; requests in progress fail with ECANCELED."""
        self._handle = ctypes.c_void_p()
        self._leave()

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()

    def _live(self):
        if not self._handle:
            raise ThcError("this client has left its job: open another one", errno.ENOTCONN)
        return self._handle

    def _member(self):
        """The handle, if the job has the scheme that was asked for, else ThcError."""
        if self._refused:
            raise ThcError(self._refused, errno.EINVAL)
        return self._live()

    def rejoin(self):
        """Begins a new session after an error; returns when all ranks have called rejoin()."""
        _check(self._lib.thc_client_rejoin(self._live()))
        self._check_job()

    def start(self, address, count, dtype=abi.FP32, key=0, scheme=None, precision=abi.EXACT,
              grain=0, keep=0.0, rate=0.0, error=0.0, group=0):
        """Begins the all-reduce of count values at address; returns a request for wait().

        The library owns the buffer until wait() returns. All ranks must give equal arguments,
        except address and keep.

        key: names the error memory; scheme: one of schemes(), None: the job's
        precision: abi.EXACT or abi.FIXED_n, for floats by the schemes none and lhc
        grain: scheme lhc sends this many neighbouring values if one is not zero; a power of two
        keep: scheme lhc sends this fraction of the values, the largest, and leaves the rest in the
            error memory of key; 0: all values
        rate: scheme thc spends this many bits per value, up plus down; abi.RATE_FIXED: the table's
        error: scheme thc spends the fewest bits that keep the expected NMSE at error. rate and
            error need a job with tables for them; both 0: those of the client
        group: buckets with one number meet rate or error together; 0: each bucket by itself
        """
        request = ctypes.c_void_p()
        call = abi.Call(size=ctypes.sizeof(abi.Call), scheme=_text("scheme", scheme), key=_key(key),
                        precision=whole_number("precision", precision, 32),
                        grain=whole_number("grain", grain, 256), keep=keep, rate=rate, error=error,
                        group=whole_number("group", group))
        _check(self._lib.thc_allreduce_call_start(self._member(), address, _count(count),
                                                  whole_number("dtype", dtype, 2**31 - 1),
                                                  ctypes.byref(call), ctypes.byref(request)))
        return request

    def wait(self, request):
        """Ends an all-reduce, once per start(); the buffer then holds the mean (integers: the sum).

        Returns False if a rank's gradient was not finite: the buffer then holds NaN.
        """
        return _check(self._lib.thc_allreduce_wait(request)) != abi.NONFINITE

    def allreduce(self, address, count, dtype=abi.FP32, key=0, scheme=None, precision=abi.EXACT,
                  grain=0, keep=0.0, rate=0.0, error=0.0, group=0):
        """start() and wait(); blocks."""
        return self.wait(self.start(address, count, dtype, key, scheme, precision, grain, keep,
                                    rate, error, group))

    def start_rows(self, tensor_rows, rows, arrays, dtype=abi.FP32, key=0, precision=abi.EXACT):
        """Begins the all-reduce of some rows of a tensor with tensor_rows rows, by scheme lhc.

        rows: (address, count) of the row numbers, ascending 64-bit integers; arrays: [(address,
        values per row)]. The memory must live until wait_rows() returns.
        """
        n, request = len(arrays), ctypes.c_void_p()
        widths = (whole_number("width", width, 2**32 - 1) for _, width in arrays)
        given = abi.Rows(size=ctypes.sizeof(abi.Rows),
                         total=whole_number("tensor_rows", tensor_rows),
                         count=_count(rows[1]), row=rows[0], arrays=n,
                         width=(ctypes.c_uint32 * n)(*widths),
                         values=(ctypes.c_void_p * n)(*(address for address, _ in arrays)))
        call = abi.Call(size=ctypes.sizeof(abi.Call), scheme=b"lhc", key=_key(key),
                        precision=whole_number("precision", precision, 32))
        _check(self._lib.thc_allreduce_rows_start(self._member(), ctypes.byref(given),
                                                  whole_number("dtype", dtype, 2**31 - 1),
                                                  ctypes.byref(call), ctypes.byref(request)))
        return request

    def wait_rows(self, request, take):
        """Ends an all-reduce of rows; returns what take(count, address of row numbers, [addresses
        of means]) returns. The addresses are valid during take() only. None: a rank's values were
        not finite.
        """
        out = abi.Rows(size=ctypes.sizeof(abi.Rows))
        nonfinite = abi.NONFINITE == _check(
            self._lib.thc_allreduce_rows_wait(request, ctypes.byref(out)))
        try:
            return None if nonfinite else take(out.count, out.row, out.values[:out.arrays])
        finally:
            self._lib.thc_rows_free(ctypes.byref(out))

    def error_count(self, key):
        """The number of floats in the error memory of key; 0: key has no error memory."""
        return self._lib.thc_error_export(self._live(), _key(key), None, 0)

    def error_export(self, key, address, count):
        """Copies at most count floats of key's error memory; returns error_count()."""
        return self._lib.thc_error_export(self._live(), _key(key), address, _count(count))

    def error_import(self, key, address, count):
        """Replaces key's error memory by count floats; count=0 drops it."""
        _check(self._lib.thc_error_import(self._live(), _key(key), address, _count(count)))

    def error_undo(self, key):
        """Restores the error memory that key had before its last all-reduce; see libthc.h."""
        _check(self._lib.thc_error_undo(self._live(), _key(key)))

    def info(self):
        """struct thc_client_info of libthc.h as a dict: ranks, epoch, chunk, block, table, ..."""
        info = abi.Info(size=ctypes.sizeof(abi.Info))
        _check(self._lib.thc_client_info(self._live(), ctypes.byref(info)))
        out = {name: getattr(info, name) for name, _ in abi.Info._fields_
               if name not in ("size", "table")}
        out["table"] = list(info.table.value[:info.table.levels])
        out["bits"] = info.table.bits
        for name in ("simd", "transport", "window_limit", "scheme", "seal"):
            out[name] = out[name].decode() if out[name] else ""
        return out

    def stats(self):
        """The client's counters, struct thc_client_stats of libthc.h, as a dict."""
        stats = abi.Stats(size=ctypes.sizeof(abi.Stats))
        _check(self._lib.thc_client_stats(self._live(), ctypes.byref(stats)))
        return {name: getattr(stats, name) for name, _ in abi.Stats._fields_
                if name not in ("size", "reserved")}


CLIENT_OPTIONS = tuple(inspect.signature(ThcClient).parameters)
