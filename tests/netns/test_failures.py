#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Every allocation and every system call that thcd and libthc make in a run fails once, each in a
run of its own (tests/lib/fail.c). In a run thcd starts, a rank reduces, the control socket answers,
jobs come and go by reloads, and thcd stops. Each run ends in time, with correct results or with a
sentence about what failed. No process dies of a signal or leaves a descriptor, memory, pin, control
socket or XDP program.

`make check` lets each place in the code fail when it is first reached, without XDP.
`make check-debug` sets FAILURES_PER_SITE=2 and uses XDP as well.
"""
import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import tap  # noqa: E402  (found through the path above)
from keyfile import KeyFile  # noqa: E402
from tap import netns  # noqa: E402

PER_SITE = int(os.environ.get("FAILURES_PER_SITE", "1"))
AF_THC = os.environ.get("THC_TRANSPORT") == "af_thc"    # libthc's sockets
LIMIT = 60              # seconds after which a program counts as hanging, on a busy machine, too
KEY = KeyFile()
PORTS = 64
LANES = 4
TRIES = 3               # for a call that a thread makes only sometimes, and for a whole answer
# A daemon's jobs, of one rank each, by number, and its jobs after a reload: job 2 goes, the last
# job gets its slots, job 3 is replaced, prefixes of job 4 change while it runs. Only the first and
# the last job have no table: to find one takes thcd longer than the rest of a start.
TABLE = {"table": [0, 3, 5, 7, 9, 11, 13, 14, 16, 17, 19, 21, 23, 25, 27, 30]}
JOBS = {1: {}, **{job: TABLE for job in range(2, LANES + 1)}}
OTHER_JOBS = {1: {}, 3: {**TABLE, "slots": 544, "norm_slots": 32},
              4: {**TABLE, "prefix": "192.0.2.0/24"}, LANES + 1: {}}

# Functions of libraries that thcd and libthc call and that are not let fail, and why.
CANNOT_FAIL = """
    __cxa_finalize __gmon_start__ _ITM_deregisterTMCloneTable _ITM_registerTMCloneTable
    __libc_start_main __errno_location __tls_get_addr __stack_chk_fail
    bpf_map__fd bpf_map__is_internal bpf_map__name bpf_object__next_map bpf_program__fd
    bpf_object__destroy_skeleton bpf_map__reuse_fd btf__free libbpf_get_error libbpf_set_print ring_buffer__free
    ring_buffer__epoll_fd
    cap_free cap_get_bound cap_get_flag cap_max_bits cap_set_flag cap_to_name prctl
    cJSON_Delete cJSON_GetObjectItemCaseSensitive cJSON_IsArray cJSON_IsBool cJSON_IsNumber
    cJSON_IsObject cJSON_IsString cJSON_IsTrue
    clock_gettime close closedir dirfd free freeaddrinfo freeifaddrs gai_strerror getenv getpid
    fileno geteuid usleep getopt_long optarg opterr optind inet_ntop inet_pton munmap strerror
    qsort sysconf pthread_cond_destroy pthread_cond_init pthread_cond_signal pthread_cond_wait
    pthread_join pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock
    pthread_mutex_unlock pthread_sigmask sem_destroy sem_init sem_post sem_trywait sem_wait
    sigaddset sigemptyset sigfillset signal sigprocmask erfc exp fegetenv fesetenv fma frexpf ldexp ldexpf log log2 lround nearbyint
    nextafterf rintf sqrt
    memcmp memcpy memmove memset strchr strrchr strcmp strcpy strcspn strlen strncpy strsep strspn
    strstr strtod strtol strtoll strtoul strtoull __explicit_bzero_chk __isoc99_sscanf snprintf sprintf vsnprintf __memcpy_chk __memmove_chk
    __memset_chk __snprintf_chk __sprintf_chk __vsnprintf_chk __strcpy_chk
    """.split()
# Output to a terminal or a log: a failure cannot be reported anywhere else.
PRINTS = """fflush fprintf fputs fwrite printf puts stderr stdout __fprintf_chk
    __printf_chk""".split()
# Reads of a file that fopen() has opened; ferror() cannot be set from outside.
READS = "fgets fread ferror __fgets_chk __fread_chk".split()
# "Not found" is an ordinary result, which other tests cover.
FINDS = ["btf__find_by_name_kind"]

# If one of these calls fails, something may be left for the next start to remove. libbpf detaches
# a program by attaching none.
TAKES_AWAY = ("unlink", "unlinkat", "rmdir", "opendir", "readdir", "bpf_xdp_detach",
              "bpf_xdp_attach", "bpf_xdp_query")


def built(name):
    path = os.path.join(netns.build_dir(), name)
    assert os.path.exists(path), f"{path} is missing: run `make tests`"
    return path


class Injected:
    """The environment in which a call of a program fails ("": no call), and the report of it."""

    def __init__(self, program, call):
        self.program = program
        handle, self.path = tempfile.mkstemp(prefix=netns.temporary_prefix())
        os.close(handle)
        self.environment = {
            **os.environ, "LD_PRELOAD": built("tests/lib/fail.so"), "FAIL_REPORT": self.path,
            "FAIL_IN": os.path.basename(program), "FAIL_AT": call,
            "FAIL_PER_SITE": str(PER_SITE)}

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        os.unlink(self.path)

    def _report(self):
        with open(self.path, encoding="utf-8") as f:
            return f.read().splitlines()

    def lines(self):
        return [line for line in self._report() if not line.startswith("at ")]

    def calls(self):
        return [line.split()[1] for line in self._report() if line.startswith("at ")]

    def failed(self):
        """The name of the function that failed, or None."""
        return next((line.split()[0] for line in self.lines() if " called at " in line), None)

    def leaks(self):
        return [line for line in self.lines() if line.startswith("leaked ")]


class Calls:
    """The calls that have to fail yet; runs in which one fails find more calls."""

    def __init__(self):
        self.left, self.tries, self.failed, self.wrong = [""], {"": 0}, {}, []
        self.missed, self.busy, self.changed = [], 0, threading.Condition()

    def take(self):
        """The next call, or None if no call is left and none can be found any more."""
        with self.changed:
            self.changed.wait_for(lambda: self.left or not self.busy)
            if not self.left or len(self.wrong) >= 8:
                return None
            self.busy += 1
            return self.left.pop(0)

    def give(self, call, name, found, wrong=None):
        """Record a run: the name of the function that failed, if one did, and the calls found."""
        with self.changed:
            self.busy -= 1
            for other in found:
                if other not in self.tries:
                    self.tries[other] = 0
                    self.left.append(other)
            self.tries[call] += 1
            if wrong:
                self.wrong.append(f"call {call}: {wrong}")
            elif name:
                self.failed[name] = self.failed.get(name, 0) + 1
            elif call:
                (self.left if self.tries[call] < TRIES else self.missed).append(call)
            self.changed.notify_all()


def sweep(attempt, lanes=LANES):
    """Run attempt(call, lane) without a failure, and then with each call that any run has found, in
    `lanes` threads. attempt() returns the name of the function that failed, or None, and the calls
    of its run. All errors are reported together. Returns how often each function failed.
    """
    calls = Calls()

    def work(lane):
        while (call := calls.take()) is not None:
            try:
                calls.give(call, *attempt(call, lane))
            except Exception as error:  # other lanes wait for the result of this call
                calls.give(call, None, [], wrong=f"{type(error).__name__}: {error}")

    with concurrent.futures.ThreadPoolExecutor(lanes) as pool:
        for future in [pool.submit(work, k) for k in range(lanes)]:
            future.result()
    print(f"# {sum(calls.failed.values())} calls failed: " +
          ", ".join(f"{name} {n}" for name, n in sorted(calls.failed.items())))
    if calls.missed:
        print(f"# not come by again in {TRIES} runs: {', '.join(calls.missed)}")
    assert not calls.wrong, "\n".join(calls.wrong)
    return calls.failed


def happened(counts, *names):
    """Check that these functions have failed at least once: otherwise the test shows nothing."""
    missing = [name for name in names if not any(n in counts for n in name.split("|"))]
    assert not missing, f"never let fail: {', '.join(missing)}"


_next_port = 26000 + os.getpid() % 50 * PORTS


def own_ports(lanes):
    return [_next_port + lane * PORTS for lane in range(lanes)]


class Daemon:
    """thcd with jobs of one rank, started by a command; ready or not."""

    def __init__(self, command, control, environment=None):
        self.control = control
        self.said = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.said,
                                        text=True, env=environment)
        self.ready = netns_line(self.process.stdout) == "ready\n"

    def ask(self, request):
        """The answer, or None if the connection ended without one."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(LIMIT)
            s.connect(self.control)
            s.sendall(request.encode() + b"\n")
            with s.makefile() as f, contextlib.suppress(ConnectionError):
                text = f.read()
                return json.loads(text) if text else None

    def end(self):
        """End thcd; returns its exit status."""
        if self.process.poll() is None:
            self.process.terminate()
        try:
            status = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"thcd hangs: {self.text()}") from None
        finally:
            self.process.stdout.close()
        return status

    def text(self):
        self.said.seek(0)
        return self.said.read()


def netns_line(stream):
    from aggregator import read_line    # beside netns.py
    return read_line(stream, LIMIT)


def run_rank(address, port, job, environment=None, enter=lambda command: command):
    """one_rank's exit status and what it said."""
    command = [built("tests/netns/one_rank"), address, str(port), str(job), KEY.path]
    try:
        done = subprocess.run(enter(command), capture_output=True, text=True, timeout=LIMIT,
                              env=environment)
    except subprocess.TimeoutExpired:
        raise AssertionError("the rank hangs") from None
    return done.returncode, done.stdout + done.stderr


class Place:
    """A folder for the files of a daemon; close() removes it. reloads: the jobs after each reload;
    keys: those of each job"""

    def __init__(self, reloads=(), **keys):
        self.folder = tempfile.mkdtemp(prefix=netns.temporary_prefix())
        self.control = os.path.join(self.folder, "control.sock")
        self.config = os.path.join(self.folder, "thcd.conf")
        self.reloads, self.keys = reloads, keys
        self.write(JOBS)

    def write(self, jobs):
        """The file with these jobs: {number: more of its keys}"""
        with open(self.config, "w", encoding="utf-8") as f:
            os.fchmod(f.fileno(), 0o600)
            json.dump({"jobs": [{"job": job, "ranks": 1, "key": f"@{KEY.path}", **self.keys, **more}
                                for job, more in jobs.items()]}, f)

    def command(self, *options):
        return [built("thcd"), "-c", self.config, "--control", self.control, "--pidfile",
                os.path.join(self.folder, "pid"), *options]

    def software(self, port):
        return self.command("--software", "--listen", "127.0.0.1", "--port", str(port))

    def left(self):
        return [name for name in os.listdir(self.folder) if name != "thcd.conf"]

    def close(self):
        shutil.rmtree(self.folder)

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.close()


def told(daemon, request, good):
    """The first good answer of the daemon, or the last of a few tries: without memory an answer may
    be lost, or parts of it. None: the daemon has ended."""
    for _ in range(TRIES):
        answer = daemon.ask(request)
        if daemon.process.poll() is not None:
            return None
        if good(answer or {}):
            break
    return answer


def reload(daemon, place, jobs):
    """The daemon's jobs become `jobs`, at once or after more reloads."""
    place.write(jobs)
    wanted = {job: more.get("slots", 512) for job, more in jobs.items()}

    def slots(answer):
        return {j.get("job"): j.get("data_slots") for j in answer.get("jobs", [])}

    for request, good in (("reload", lambda answer: answer.get("ok")),
                          ("jobs", lambda answer: slots(answer) == wanted)):
        answer = told(daemon, request, good)
        if daemon.process.poll() is None:
            assert good(answer or {}), f"{request}: {answer}; {daemon.text()}"


def serves(daemon, injected, place, rank):
    """Check a daemon that got ready: the rank gets its sums or says why it ends. After a reload in
    which a call failed, a rank of the last job gets its sums."""
    status, text = rank(1)
    assert status in (0, 1) or daemon.process.poll() is not None, \
        f"the rank ends with {status}: {text}{daemon.text()}"
    if daemon.process.poll() is None:
        # an answer may be lost for want of memory; the next one is not
        for request in ("stats", "jobs"):
            answer = daemon.ask(request) or daemon.ask(request)
            assert answer and answer.get("instance") or daemon.ask(request), \
                f"no answer to {request}"
    for jobs in place.reloads:
        before = injected.failed()
        if daemon.process.poll() is None:
            reload(daemon, place, jobs)
        if injected.failed() != before and daemon.process.poll() is None:
            last = max(jobs)
            status, text = rank(last)
            assert not status, f"a rank of job {last} ends with {status}: {text}{daemon.text()}"


def ended_well(daemon, injected, was_alive):
    """Check that the daemon ends with 0 if it was told to, else with a sentence."""
    status = daemon.end()
    text = daemon.text()
    assert status >= 0, f"killed by {signal.Signals(-status).name}: {text}"
    # the last line names an error, not an earlier success
    assert status == 0 or re.search(r"\nthcd: (?!.* aggregator on ).* .*\n$", "\n" + text), \
        f"status {status} without a sentence: {text!r}"
    assert not was_alive or status == 0, f"status {status} at its end: {text}"
    assert was_alive or status, f"status 0, but it ended by itself: {text}"
    assert not injected.leaks(), f"{injected.leaks()}: {text}"


def one_start(injected, place, command, rank, left):
    """A daemon with a failure: start, rank(job), reloads, stop. left() returns what the daemon has
    left behind."""
    daemon = Daemon(command, place.control, injected.environment)
    try:
        if daemon.ready:
            serves(daemon, injected, place, rank)
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.process.wait(LIMIT)
            assert daemon.process.poll() is not None, "thcd hangs before it is ready"
        ended_well(daemon, injected, daemon.process.poll() is None)
    except AssertionError as error:
        raise AssertionError(f"{injected.lines()}: {error}") from None
    finally:
        with contextlib.suppress(AssertionError):
            daemon.end()
    name = injected.failed()
    remains = left()
    if remains and name in TAKES_AWAY:
        again = Daemon(command, place.control)
        assert again.ready, f"{injected.lines()} hinders the next start: {again.text()}"
        assert again.end() == 0, again.text()
        remains = left()
    assert not remains, f"{injected.lines()}: left behind: {remains}; {daemon.text()}"
    return name, injected.calls()


def case__every_function_is_let_fail_or_cannot():
    known = {*CANNOT_FAIL, *PRINTS, *READS, *FINDS}
    symbols = {}
    for name in ("thcd", "libthc.so", "tests/lib/fail.so"):
        out = subprocess.run(["nm", "-D", built(name)], capture_output=True, text=True,
                             check=True).stdout
        symbols[name] = {(kind, symbol.split("@")[0])
                         for kind, symbol in re.findall(r" (\w) (\S+)$", out, re.MULTILINE)}
    fails = {symbol for kind, symbol in symbols["tests/lib/fail.so"] if kind == "T"}
    for name in ("thcd", "libthc.so"):
        calls = {symbol for kind, symbol in symbols[name] if kind in "UwB"}
        new = {s for s in calls - known - fails if not s.startswith("thc_")}
        assert not new, (f"{name} calls {', '.join(sorted(new))}: let it fail in "
                         f"tests/lib/fail.c, or say here why it cannot")


def case__libthc():
    port = own_ports(1)[0]

    def attempt(call, lane):
        with Injected("one_rank", call) as injected:
            try:
                status, text = run_rank("127.0.0.1", port, lane + 1, injected.environment)
            except AssertionError as error:
                raise AssertionError(f"{injected.lines()}: {error}") from None
            assert status in (0, 1) and not injected.leaks(), \
                f"{injected.lines()}: status {status}: {text}"
            if injected.failed() == "pthread_create":
                job = next(j for j in daemon.ask("jobs")["jobs"] if j["job"] == lane + 1)
                assert not {*job["joined"]} - {*job["left"]}, "it has joined, and has not left"
            return injected.failed(), injected.calls()

    with Place(reply="fanout") as place:
        daemon = Daemon(place.software(port), place.control)
        try:
            assert daemon.ready, daemon.text()
            counts = sweep(attempt)
        finally:
            status = daemon.end()
    assert status == 0, daemon.text()
    over = ("connect", "getsockopt", "sendmsg", "recvmsg") if AF_THC else \
        ("getrandom", "sendmmsg|sendmsg", "recvmmsg|recvmsg", "poll|__poll_chk")
    happened(counts, "malloc|calloc", "mmap", "socket", "setsockopt", "pthread_create", "eventfd",
             *over)


def case__thcd_software():
    ports = own_ports(LANES)

    def attempt(call, lane):
        with Place((OTHER_JOBS, JOBS), reply="fanout") as place, \
                Injected("thcd", call) as injected:
            return one_start(injected, place, place.software(ports[lane]),
                             lambda job: run_rank("127.0.0.1", ports[lane], job), place.left)

    happened(sweep(attempt), "malloc|calloc", "socket", "bind", "setsockopt", "signalfd", "listen",
             "poll|__poll_chk", "recvmmsg", "sendmmsg", "accept4", "cJSON_CreateObject",
             "getrandom")


def bpffs_mounts():
    with open("/proc/self/mounts", encoding="ascii") as f:
        return sum(line.split()[1:3] == ["/sys/fs/bpf", "bpf"] for line in f)


def xdp(mode, reloads=()):
    """Every call of a thcd with XDP programs, in a topology of its own for each lane."""
    lanes = 2
    with contextlib.ExitStack() as stack:
        nets = [stack.enter_context(netns.Topology(1)) for _ in range(lanes)]
        mounts = bpffs_mounts()

        def left(net, place):
            pins = os.path.join(netns.THCD_PINS, net.name)
            link = json.loads(net.run(net.aggregator, ["ip", "-j", "link", "show", "eth0"]).stdout)
            # a mount over the first one would hide the pins of all instances
            return (place.left() + ([pins] if os.path.exists(pins) else []) +
                    ["bpffs over bpffs"] * (bpffs_mounts() - mounts) +
                    [f"XDP on {i['ifname']}" for i in link if i.get("xdp")])

        def attempt(call, lane):
            net = nets[lane]
            with Place(reloads) as place, Injected("thcd", call) as injected:
                return one_start(
                    injected, place, net.enter(net.aggregator, place.command(
                        "--instance", net.name, "-i", "eth0", "--mode", mode)),
                    lambda job: run_rank(netns.AGGREGATOR4, 18500, job,
                                         enter=lambda c: net.enter(net.worker(0), c)),
                    lambda: left(net, place))

        happened(sweep(attempt, lanes), "malloc|calloc", "mmap", "bpf_map_create", "bpf_obj_pin",
                 "bpf_xdp_attach", "bpf_object__load_skeleton", "ring_buffer__new", "mkdir",
                 "fopen", "bpf_xdp_detach", "unlinkat")


def case__thcd_native():
    xdp("native", reloads=(OTHER_JOBS,))


def case__thcd_generic():
    xdp("generic")      # a reload asks for no mode


if __name__ == "__main__":
    cases = [case__every_function_is_let_fail_or_cannot, case__libthc, case__thcd_software]
    if PER_SITE > 1:
        cases += [case__thcd_native, case__thcd_generic]
    tap.main(cases)
