# SPDX-License-Identifier: GPL-2.0
"""THC packets for tests, written from include/uapi/linux/thc.h alone and with
plain integers per coordinate: a reference that shares no code and no word
arithmetic with what it checks.
"""
import os
import select
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tools"))
from keyfile import KeyFile, cookie_of  # noqa: E402  (found through the path above)

VERSION = 1
LUT_ADD, ADD, OR, MAX = 1, 2, 3, 4
JOIN, WELCOME, WAIT, STALE, CLOSE, LEAVE = 16, 17, 18, 19, 20, 21
F_ANSWER, F_REPEAT, F_CE, F_CLOSED, F_EPOCH, F_LEFT, F_NOSUM, F_KNOWN = (1 << i for i in range(8))
F_DIFFERS = F_CLOSED    # of WAIT
HEARD = 1
READY, REFUSED, ONE_PORT, NOSUM, NOGSO = 1, 2, 4, 8, 32
NOT_JOB, NOT_RANK, NOT_PREFIX, TAKEN, NO_XDP = 1, 2, 3, 4, 5
MULTICAST, FANOUT = 1, 2
PORT = 18500
KEY = bytes(range(0x40, 0x60))      # of the jobs that a test starts by hand
KEY_FILE = KeyFile(KEY)
KEYED = f"key=@{KEY_FILE.path}"     # for thcd --job
COOKIE = cookie_of(KEY, 1)
PATIENCE = 60.0         # seconds: ends what hangs, on a machine with other work, too

_HEADER = struct.Struct(">BBBBIQHBBIIIHHIQ")
_WELCOME = struct.Struct(">QQdQIIHHHHHHHHBBBBBBBB32s16s24s")
_FIELDS = ("version", "op", "width", "flags", "sum", "cookie", "job", "rank", "reserved", "epoch",
           "round", "chunk", "slot", "count", "generation", "bitmap")
_WELCOME_FIELDS = ("joined", "seed", "clamp", "nonce", "table_hash", "deadline_ms", "ranks",
                   "quorum", "data_slots", "norm_slots", "chunk_size", "granularity",
                   "group_port", "shards", "welcome_flags", "refusal", "reply", "bits",
                   "sum_width", "block_log2", "family", "reserved1", "table", "group",
                   "reserved2")
_MOD = 1 << 64


def packet_sum(packet):
    """thc_hdr.sum of a whole packet: Fletcher over 64-bit words, folded."""
    words = struct.unpack(f"<{len(packet) // 8}Q", packet[:4] + bytes(4) + packet[8:])
    a = b = 0
    for word in words:
        a += word ^ word >> 32
        b += a
    x = a * 0x9E3779B97F4A7C15 % _MOD
    x = ((x ^ x >> 32) * 0xD6E8FEB86659FD93 + b) % _MOD
    return (x ^ x >> 32) * 0xD6E8FEB86659FD93 % _MOD >> 32


def build(payload=b"", seal=True, **fields):
    """A packet; fields not named are zero, version is ours."""
    fields = {"version": VERSION, **fields}
    packet = _HEADER.pack(*(fields.get(name, 0) for name in _FIELDS)) + payload
    if not seal or fields.get("flags", 0) & F_NOSUM:
        return packet
    return packet[:4] + struct.pack(">I", packet_sum(packet)) + packet[8:]


class Packet:
    """A received packet: header fields as attributes, payload as bytes."""

    def __init__(self, data):
        assert len(data) >= _HEADER.size, f"short packet of {len(data)} bytes"
        self.__dict__.update(zip(_FIELDS, _HEADER.unpack_from(data)))
        self.payload = data[_HEADER.size:]
        self.length = len(data)
        if not self.flags & F_NOSUM:
            assert self.sum == packet_sum(data), f"wrong packet sum in {self}"
        if self.op == WELCOME:
            self.__dict__.update(zip(_WELCOME_FIELDS, _WELCOME.unpack(self.payload)))
            self.table = struct.unpack(">16H", self.table)

    def __repr__(self):
        return " ".join(f"{name}={getattr(self, name):#x}" for name in _FIELDS if
                        name not in ("cookie", "sum", "version", "reserved"))


class Worker:
    """One rank: a socket, and one on the group after the job's first WELCOME.

    cookie: by default that of KEY
    place(call) runs call where sockets are to be made, in a namespace perhaps
    """

    def __init__(self, rank, aggregator="127.0.0.1", port=PORT, job=1, cookie=None,
                 interface=None, nonce=None, bind=None, place=lambda call: call()):
        self.rank, self.job = rank, job
        self.cookie = cookie_of(KEY, job) if cookie is None else cookie
        self.family = socket.AF_INET6 if ":" in aggregator else socket.AF_INET
        self.nonce = nonce if nonce is not None else 0x1000 + rank
        self.place = place
        self.socket = place(lambda: socket.socket(self.family, socket.SOCK_DGRAM))
        if bind:
            self.socket.bind(bind)
        self.to = (aggregator, port)
        self.interface = interface
        self.group = None
        self.epoch = 0
        self.one_port = True
        self.welcome = None

    def close(self):
        self.socket.close()
        if self.group:
            self.group.close()

    def chunk_in(self, slot, generation):
        """The chunk that lives there, of data or of norms."""
        data, norms = self.welcome.data_slots, self.welcome.norm_slots
        chunk = slot + generation * data if slot < data else slot - data + generation * norms
        return chunk % 2**32

    def send(self, op, payload=b"", seal=True, **fields):
        fields = {"op": op, "job": self.job, "cookie": self.cookie, "rank": self.rank,
                  "epoch": self.epoch, **fields}
        if op <= MAX and self.welcome:
            fields.setdefault("chunk", self.chunk_in(fields.get("slot", 0),
                                                     fields.get("generation", 0)))
        self.send_raw(build(payload, seal, **fields), fields.get("slot", 0))

    def send_raw(self, packet, slot=0):
        port = self.to[1] + (0 if self.one_port else slot // 64)
        self.socket.sendto(packet, (self.to[0], port))

    def receive(self, wait=PATIENCE):
        """The next packet on either socket, or None."""
        sockets = [s for s in (self.socket, self.group) if s]
        ready = select.select(sockets, [], [], wait)[0]
        if not ready:
            return None
        packet = Packet(ready[0].recv(2048))
        packet.by_group = ready[0] is self.group
        return packet

    def expect(self, op, wait=PATIENCE, **fields):
        """The next packet of that op; others than WELCOME may not come before."""
        end = time.monotonic() + wait
        while True:
            packet = self.receive(max(0, end - time.monotonic()))
            assert packet, f"rank {self.rank}: no answer with op {op} within {wait} s"
            if packet.op == WELCOME and op != WELCOME:
                continue
            assert packet.op == op, f"rank {self.rank}: op {op} expected, got {packet}"
            for name, value in fields.items():
                got = getattr(packet, name)
                assert got == value, \
                    f"rank {self.rank}: {name} is {got:#x}, not {value:#x}: {packet}"
            return packet

    def silent(self, wait=0.1):
        packet = self.receive(wait)
        while packet and packet.op == WELCOME:
            packet = self.receive(wait)
        assert not packet, f"rank {self.rank}: unexpected {packet}"

    def join_once(self, heard=False, **fields):
        """One JOIN and its own WELCOME."""
        self.send(JOIN, struct.pack(">QII", self.nonce, HEARD if heard else 0, 0), epoch=0,
                  **fields)
        while True:
            packet = self.expect(WELCOME)
            if packet.nonce == self.nonce:
                self.welcome = packet
                if not packet.refusal:
                    self.epoch = packet.epoch
                    self.one_port = bool(packet.welcome_flags & ONE_PORT)
                return packet

    def listen(self):
        """Joins the group of the last WELCOME."""
        w = self.welcome
        if self.group or w.reply != MULTICAST:
            return
        self.group = self.place(lambda: socket.socket(self.family, socket.SOCK_DGRAM))
        self.group.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        index = self.place(lambda: socket.if_nametoindex(self.interface or "lo"))
        if w.family == 4:
            raw = w.group[:4]
            self.group.bind((socket.inet_ntoa(raw), w.group_port))
            self.group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                                  struct.pack("4s4si", raw, bytes(4), index))
        else:
            text = socket.inet_ntop(socket.AF_INET6, w.group)
            self.group.bind((text, w.group_port, 0, index))
            self.group.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP,
                                  struct.pack("16si", w.group, index))
            # XDP answers carry no UDP checksum: UDP_NO_CHECK6_RX
            self.group.setsockopt(socket.IPPROTO_UDP, 102, 1)

    def drain(self):
        while self.receive(0):
            pass


def join_all(workers, wait=PATIENCE, heard=True):
    """Every worker JOINs until it is told READY, as libthc does."""
    ready = set()
    end = time.monotonic() + wait
    hears = set()
    while len(ready) < len(workers):
        assert time.monotonic() < end, f"only ranks {sorted(ready)} got ready"
        for w in workers:
            packet = w.join_once(heard=w.rank in hears)
            assert not packet.refusal, f"rank {w.rank} refused: {packet.refusal}"
            w.listen()
            if packet.welcome_flags & READY:
                ready.add(w.rank)
        if heard:
            for w in workers:
                while w.group:
                    packet = w.receive(0.005)
                    if not packet:
                        break
                    if packet.by_group:
                        hears.add(w.rank)
    # WELCOMEs still under way must not be taken for answers
    time.sleep(0.02)
    for w in workers:
        w.drain()


class Reference:
    """What the aggregator has to answer: one integer per coordinate."""

    def __init__(self, op, width, sum_width=8, table=None):
        self.op, self.width = op, width
        self.out = {LUT_ADD: sum_width, ADD: width}.get(op, 32)
        self.count = 8192 // self.out
        self.table = table

    def values(self, payload):
        if self.op == LUT_ADD:
            nibbles = [n for byte in payload for n in (byte >> 4, byte & 15)]
            return [self.table[n] for n in nibbles]
        size = self.out // 8
        return [int.from_bytes(payload[i:i + size], "little")
                for i in range(0, len(payload), size)]

    def payload_bytes(self):
        return self.count // 2 if self.op == LUT_ADD else 1024

    def combine(self, payloads):
        columns = zip(*(self.values(p) for p in payloads))
        if self.op == OR:
            out = []
            for column in columns:
                value = 0
                for v in column:
                    value |= v
                out.append(value)
        elif self.op == MAX:
            out = [max(column) for column in columns]
        else:
            out = [sum(column) % (1 << self.out) for column in columns]
        return b"".join(v.to_bytes(self.out // 8, "little") for v in out)
