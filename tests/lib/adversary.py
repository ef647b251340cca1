# SPDX-License-Identifier: GPL-2.0
"""Shared by the tests of tests/adversary: a running job, attackers, and the decorators of cases.
Each decorator states a line of the table in Documentation/security.md; unit/test_security_table.py
compares them.

    @prevented("another host of the network", "answers from its own address")
    def ...(): fails if the attack works

    @possible("another host of the network", "hears the group, and so the sums", until="ever")
    def ...(): fails if the attack does not work any more: then the table has to change
"""
import os
import select
import socket
import struct
import time
import traceback

import tap
import thcwire as wire
from aggregator import Aggregator
from ranks import Ranks, good
from recorder import Recorder, Seals
from tap import netns

NOBODY = 65534
PACKETS = int(os.environ.get("THC_FORGED", "20000"))    # fewest forged; 1000000 in long runs
PASSES = 4
ROUNDS = 4              # rounds per pass
COUNT = 200000
CHUNKS = -(-COUNT // 1024)      # chunks per round, with sums of 8 bits
SLOTS = 512
PATIENCE = 20           # seconds until a wait fails
BROKE = 2               # exit status of a process whose attack raised an exception
NOT_ANY_MORE = "this attack does not work any more: Documentation/security.md says that it does"

_cases = []


def _case(function):
    _cases.append(function)
    return function


def prevented(_attacker, _attack):
    return _case


def possible(_attacker, _attack, until):
    assert until
    return _case


def main(*but):
    """Runs all cases; with a sanitizer, without the cases in `but`, see tap.once()."""
    tap.main(tap.once(_cases, *but))


def until(is_true):
    """True if is_true() becomes true within PATIENCE seconds."""
    end = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


# --- attackers -------------------------------------------------------------------


def fork_in(ns, call, user=NOBODY):
    """Forks a child that runs call() in namespace ns as `user`, by default an unprivileged one."""
    child = os.fork()
    if not child:
        status = BROKE
        try:
            netns.move_into(ns)
            if user:
                os.setgroups([])
                os.setresgid(user, user, user)
                os.setresuid(user, user, user)
            status = 0 if call() else 1
        except BaseException:   # the child must not return into the test
            traceback.print_exc()
        finally:
            os._exit(status)
    return child


def ended_well(child):
    """True if the child's call() returned a true value; an exception in it fails the test."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 1), "the attacker's process failed; its traceback is above"
    return status == 0


def does(ns, call, user=NOBODY):
    """True if call(), run by fork_in(), returned a true value."""
    return ended_well(fork_in(ns, call, user))


def udp(port=0):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(PATIENCE)
    s.bind(("0.0.0.0", port))
    return s


def join(s, address, key, rank, nonce=0xbad):
    """Joins job 1 as rank: sends a JOIN from s, sealed by key, and answers a CHALLENGE. Returns the
    WELCOME with the nonce, or None. address: that of the host of s"""
    def say(challenge):
        packet = wire.build(wire.join_payload(nonce, challenge=challenge), op=wire.JOIN, job=1,
                            rank=rank)
        s.sendto(key.put(packet, end=(address, s.getsockname()[1])),
                 (netns.AGGREGATOR4, wire.PORT))

    say(wire.NO_SALT)
    try:
        while True:
            got = wire.Packet(s.recv(2048))
            if got.op == wire.CHALLENGE and got.nonce == wire.as_nonce(nonce):
                say(got.challenge)
            elif got.op == wire.WELCOME and got.nonce == wire.as_nonce(nonce):
                return got
    except TimeoutError:
        return None


def without(key):
    """A Key with key's name and without its secret."""
    return wire.Key(wire.SEAL_SUM, key.id)


class Spoofer:
    """Sends UDP packets from any address and port: needs a raw socket."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def send(self, packet, source, to):
        """source, to: (address, port)"""
        length = 28 + len(packet)
        header = struct.pack(">BBHHHBBH4s4sHHHH", 0x45, 0, length, 0, 0, 255, socket.IPPROTO_UDP,
                             0, socket.inet_aton(source[0]), socket.inet_aton(to[0]),
                             source[1], to[1], length - 20, 0)
        self.socket.sendto(header + packet, (to[0], 0))


def hear_group(group, port, address, enough, seconds=PATIENCE):
    """Receives the group's packets at the host with `address`. True once enough(packet) is true;
    False if no packet comes for `seconds`."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((group, port))
        s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                     socket.inet_aton(group) + socket.inet_aton(address))
        s.settimeout(seconds)
        try:
            while not enough(wire.Packet(s.recv(2048))):
                pass
            return True
        except TimeoutError:
            return False


# --- the job ---------------------------------------------------------------------


class Bed:
    """Two ranks of a running job, a third host, and what attackers know of the job."""

    def __init__(self, software=False, **job):
        self.net = netns.Topology(3)
        self.welcomes = Recorder(self.net, wire.WELCOME)
        self.aggregator = Aggregator(self.net, 2, software, job=job)
        self.ranks = Ranks(self.net, self.aggregator, n=2, timeout=PATIENCE,
                           join_timeout=PATIENCE)
        self.keys = wire.Keys(self.aggregator.key, 1)

    def __enter__(self):
        try:
            self.start()
            self.honest = self.passes()
        except BaseException:
            # __exit__() is not called after an exception here, and threads would keep the program
            self.__exit__()
            raise
        return self

    def __exit__(self, *_exc):
        self.ranks.close()
        self.aggregator.stop()
        self.welcomes.close()
        self.net.close()

    def start(self):
        """Starts new processes and a new session, so that rounding repeats."""
        for rank in range(2):
            if self.ranks.processes[rank].poll() is None and hasattr(self, "honest"):
                self.ranks.kill(rank)
                self.ranks.restart(rank)
        self.ranks.open()
        self.look()

    def look(self):
        """Sets what attackers know: job, session, ports, and the keys of requests and answers (some
        attackers know only the keys' names)."""
        self.job = self.aggregator.ask("jobs")["jobs"][0]
        self.members = [(m["address"], m["port"]) for m in self.job["members"]]
        self.fields = {"job": 1, "epoch": self.job["epoch"]}
        assert until(self._knows_keys), "no WELCOME was recorded"

    def _knows_keys(self):
        for seen in reversed(self.welcomes.packets()):
            # an attacker may send a WELCOME, too
            if seen.up:
                continue
            w = wire.Packet(seen.data)
            if not w.refusal and w.epoch == self.job["epoch"]:
                self.up = self.keys.data(wire.UP, w.seal, w.salt)
                self.down = self.keys.data(wire.DOWN, w.seal, w.salt)
                return True
        return False

    def passes(self):
        """The digests of PASSES all-reduces, one after the other."""
        digests = []
        for seed in range(PASSES):
            answers = self.ranks.reduce(counts=[COUNT], rounds=ROUNDS, seed=seed)
            assert len({a["digest"] for a in answers}) == 1, "the ranks received different bits"
            digests.append(answers[0]["digest"])
        return digests

    def recorded(self, **reduce):
        """[Seen] of a new session with one all-reduce, without duplicates."""
        with Recorder(self.net) as recorder:
            self.start()
            self.ranks.reduce(**{"counts": [COUNT], **reduce})
        seen = list(dict.fromkeys(recorder.packets()))
        seals = Seals(seen, self.aggregator.key)
        assert all(map(seals.made, seen)), "a packet is not sealed right"
        return seen

    def sums_are_heard_at(self, worker):
        """True if a user of that worker's host receives sums from the group."""
        def listen():
            return hear_group(self.job["group"], self.job["group_port"],
                              self.net.address(worker),
                              lambda packet: packet.op == wire.LUT_ADD)

        child = fork_in(self.net.worker(worker), listen)
        self.start()
        self.passes()
        return ended_well(child)

    def session(self):
        """The number of the session, which grows at each new session."""
        return self.aggregator.ask("jobs")["jobs"][0]["epoch"]

    def counted(self, *names):
        """For each rank, the sum of its counters with these names."""
        return [sum(s[name] for name in names) for s in good(self.ranks.all(do="stats"))]

    def dropped(self, reason):
        return self.aggregator.stats()["drops"][reason]

    def place(self, chunk):
        """Header fields of a data chunk of passes()."""
        return {**self.fields, "slot": chunk % SLOTS, "generation": chunk // SLOTS,
                "chunk": chunk, "round": chunk // CHUNKS}

    def answers(self, down=None):
        """Forged packets: one that would end the session, and answers to each chunk of passes()."""
        down = down or self.down
        newer = {**self.fields, "epoch": self.fields["epoch"] + 1}
        yield without(self.keys.membership(wire.LOST)).put(
            wire.build(op=wire.STALE, flags=wire.F_EPOCH, **newer))
        for chunk in range(PASSES * ROUNDS * CHUNKS):
            place = {**self.place(chunk), "bitmap": 3, "count": 2}
            yield down.put(wire.build(bytes(1024), op=wire.LUT_ADD, flags=wire.F_ANSWER, width=8,
                                      **place))
            yield down.put(wire.build(op=wire.STALE, flags=wire.F_KNOWN, **place))
            yield down.put(wire.build(op=wire.WAIT, flags=wire.F_LEFT,
                                      **{**place, "bitmap": 1, "count": 1}))

    def contributions(self, rank=0, chunks=PASSES * ROUNDS * CHUNKS, up=None):
        """Forged requests of the rank, with other lanes than its own."""
        up = up or self.up
        for chunk in range(chunks):
            yield up.put(wire.build(b"\xff" * 512, op=wire.LUT_ADD, width=4, rank=rank,
                                    **self.place(chunk)))

    def withstands(self, ns, port=0):
        """Asserts that forged packets from a user of ns, at least PACKETS, are refused although
        their keys are right, and do not change the ranks' results. Packets that the aggregator's
        host sends to itself do not pass XDP."""
        self.start()
        aggregator = netns.AGGREGATOR4
        packets = [(p, to) for p in self.answers() for to in self.members]
        packets += [(p, (aggregator, wire.PORT + self.place(chunk)["slot"] // 64))
                    for rank in range(2) for chunk, p in enumerate(self.contributions(rank))]

        def attack():
            s = udp(port)
            return lambda packet, to: s.sendto(packet, to)

        foreign = self.beside(ns, packets, attack)
        print(f"# refused: {foreign} by the ranks, {self.dropped('address')} by the aggregator")
        assert min(foreign) > 0, f"no forged packet reached a worker: {foreign}"
        assert self.dropped("address") > 0 or ns == self.net.aggregator, \
            "no forged packet reached the aggregator"

    def withstands_spoofed_answers(self, ns):
        """Like withstands(): root of ns, without the key, sends answers from the aggregator's
        address and port."""
        self.start()
        packets = [(p, to) for p in self.answers(without(self.down)) for to in self.members]

        def attack():
            spoofer = Spoofer()
            return lambda packet, to: spoofer.send(packet, (netns.AGGREGATOR4, wire.PORT), to)

        wrong = self.beside(ns, packets, attack, 0, ("bad_tag",))
        print(f"# refused: {wrong} by the ranks")
        assert min(wrong) > 0, f"no forged packet reached a worker: {wrong}"

    def withstands_spoofed_contributions(self, ns, reason="tag"):
        """Like withstands(): root of ns, without the key, sends requests from a worker's address
        and port."""
        self.start()
        to = netns.AGGREGATOR4, wire.PORT
        packets = [(p, self.members[rank]) for rank in range(2)
                   for p in self.contributions(rank, up=without(self.up))]

        def attack():
            spoofer = Spoofer()
            return lambda packet, source: spoofer.send(packet, source, to)

        before = self.aggregator.stats()["drops"]
        self.beside(ns, packets, attack, 0)
        after = self.aggregator.stats()["drops"]
        print(f"# refused: { {name: n - before[name] for name, n in after.items() if n} }")
        assert after[reason] > before[reason], "no forged packet reached the aggregator"

    def beside(self, ns, packets, attack, user=NOBODY, names=("foreign",)):
        """Asserts equal results while a user of ns sends packets, [(packet, argument)], by the
        function that attack() returns. Returns counted(*names)."""
        # not in the ranks' order, but in one order in every run
        packets = packets[::7] + [p for i, p in enumerate(packets) if i % 7]
        over, done = os.pipe()

        def send():
            os.close(done)
            sent, put = 0, attack()
            while sent < PACKETS or not select.select([over], [], [], 0)[0]:
                for _ in range(100):
                    put(*packets[sent % len(packets)])
                    sent += 1
            print(f"# {sent} forged packets", flush=True)
            return True

        child = fork_in(ns, send, user)
        os.close(over)
        digests = self.passes()
        os.close(done)
        assert ended_well(child), "the forged packets were not sent"
        assert digests == self.honest, "sums differ beside forged packets"
        # one more all-reduce empties the sockets' buffers, so that all packets are counted
        good(self.ranks.all(do="reduce", counts=[COUNT]))
        return self.counted(*names)
