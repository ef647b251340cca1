# SPDX-License-Identifier: GPL-2.0
"""Workers for tests, which make, seal and send the packets of Documentation/protocol.md by the
decoder's header and hashes. A packet with a wrong seal that a Worker receives fails the test. A
Reference computes an aggregator's answer by plain integers per coordinate; it shares no code and no
word arithmetic with the code under test.
"""
import collections
import functools
import select
import socket
import struct
import time

import decoder
import tap
from decoder import HEADER_FIELDS, build, claimed, nh, packet_sum, siphash, worker_end
from keyfile import KeyFile

assert tap.netns        # tap puts tools/ into sys.path

VERSION = 2
LUT_ADD, ADD, OR, MAX, CLAIM, CLAIM_HIGH = 1, 2, 3, 4, 6, 7
JOIN, WELCOME, WAIT, STALE, CLOSE, LEAVE, CHALLENGE = 16, 17, 18, 19, 20, 21, 22
F_ANSWER, F_REPEAT, F_CE, F_CLOSED, F_EPOCH, F_LEFT, F_KNOWN = 1, 2, 4, 8, 16, 32, 128
F_DIFFERS = F_CLOSED    # of WAIT
HEARD, NODE = 1, 2          # of JOIN
READY, REFUSED, ONE_PORT, NOGSO = 1, 2, 4, 32
CORRELATED = 1          # a feature
NOT_JOB, NOT_RANK, NOT_PREFIX, TAKEN, NO_XDP, NOT_SEAL = 1, 2, 3, 4, 5, 7
MULTICAST, FANOUT = 1, 2
SEAL_NONE, SEAL_SUM, SEAL_NH = 0, 1, 2
NOBODY = 65535          # no worker, where a worker's number is meant
UP, DOWN, JOINING, WELCOMING, LOST, ID = (
    b"thc2 up", b"thc2 down", b"thc2 join", b"thc2 welcome", b"thc2 lost", b"thc2 id")
NO_SALT = bytes(16)
HEADER = 48
LANES = 1024
PORT = 18500
KEY = bytes(range(0x40, 0x60))      # of the jobs that a test starts by hand
KEY_FILE = KeyFile(KEY)
KEYED = f"key=@{KEY_FILE.path}"     # for thcd --job
OTHER_KEY = bytes(range(0x80, 0xA0))
PATIENCE = 60.0         # seconds until a wait fails, enough for a busy machine

_JOIN = struct.Struct(">16s16sIIHBBH18s")
_CHALLENGE = struct.Struct(">16s16s")


# --- keys and seals -----------------------------------------------------------

derive = functools.lru_cache(1024)(decoder.derive)


@functools.lru_cache(64)
def _digest(key, payload):
    """NH of at most LANES bytes, for which the key has words."""
    return nh(key, payload[:LANES])


def end_of(address, port, shard=0):
    """struct thc_end of a worker, or of a group, at aggregator @shard."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return worker_end(socket.inet_pton(family, address.partition("%")[0]), port, shard)


class Key:
    """A key that seals packets, and its key_id. key: 16 bytes for SipHash, followed by NH's key for
    data."""

    def __init__(self, seal, key_id, key=b""):
        self.seal, self.id, self.key = seal, key_id, key

    def tag(self, packet, end=None, instead=None):
        """The packet's tag. end: (address, port) of a membership packet's worker or group; instead:
        the tag of the request that a STALE with EPOCH answers, hashed in place of a payload."""
        rest = packet[HEADER:] if instead is None else struct.pack(">Q", instead)
        if self.seal == SEAL_NONE:
            return 0
        if self.seal != SEAL_NH:
            return packet_sum(packet[:HEADER] + rest)
        header = packet[:8] + packet[16:HEADER]
        if end is None:
            return siphash(self.key[:16], header + struct.pack("<Q", _digest(self.key[16:], rest)))
        return siphash(self.key, header + end_of(*end) + rest)

    def put(self, packet, **how):
        """The packet, sealed."""
        packet = packet[:4] + struct.pack(">I", self.id) + packet[8:]
        return packet[:8] + struct.pack(">Q", self.tag(packet, **how)) + packet[16:]


class Keys:
    """The keys of a job. secret: the job's secret key, None: the job has none."""

    def __init__(self, secret, job):
        self.secret, self.job = secret, job

    def _id(self, salt):
        return int.from_bytes(derive(self.secret, ID, self.job, salt), "big")

    def membership(self, label):
        if self.secret is None:
            return Key(SEAL_SUM, 0)
        return Key(SEAL_NH, self._id(NO_SALT), derive(self.secret, label, self.job, NO_SALT))

    def data(self, label, seal, salt):
        """The key of an epoch's requests (label UP) or answers (DOWN)."""
        if seal != SEAL_NH:
            return Key(seal, int.from_bytes(salt[:4], "big"))
        return Key(seal, self._id(salt), derive(self.secret, label, self.job, salt))


# --- packets ------------------------------------------------------------------


def changed(packet, **fields):
    """The packet with other fields in its header."""
    old = dict(zip(HEADER_FIELDS, decoder.HEADER.unpack_from(packet)))
    return build(packet[HEADER:], **{**old, **fields})


def as_nonce(number):
    """Sixteen bytes for a number; bytes as they are."""
    return number if isinstance(number, bytes) else number.to_bytes(16, "big")


def join_payload(nonce, flags=0, challenge=NO_SALT, offers=7, workers=0, version_max=VERSION,
                 reserved=0, restarted=NOBODY, reserved2=bytes(18)):
    return _JOIN.pack(as_nonce(nonce), challenge, flags, offers, workers, version_max, reserved,
                      restarted, reserved2)


class Packet:
    """A received packet: header fields as attributes, payload as bytes."""

    def __init__(self, data):
        assert len(data) >= HEADER, f"short packet of {len(data)} bytes"
        self.__dict__.update(zip(HEADER_FIELDS, decoder.HEADER.unpack_from(data)))
        self.data = data
        self.payload = data[HEADER:]
        self.length = len(data)
        if self.op == WELCOME:
            self._take_welcome()
        elif self.op == CHALLENGE:
            self.nonce, self.challenge = _CHALLENGE.unpack(self.payload)

    def _take_welcome(self):
        """Sets WELCOME's fields from the decoder, and, unless it is a refusal, seal, salt and the
        records' contents that tests need."""
        part = decoder.Packet(self.data)
        self.__dict__.update({name: getattr(part, name) for name in decoder.FIXED_FIELDS})
        if self.refusal:
            return
        self.seal, self.salt = part.seal, part.salt
        if not any(self.nonce):
            return
        job = decoder.Welcome([part])
        self.group = job.group
        self.rows = job.rows
        row = next(iter(job.rows.values()))
        own, = job.schemes.values()
        self.sum_width, self.granularity, self.clamp = row.sum_width, row.granularity, row.clamp
        self.table, self.block_log2 = row.levels, own["block_log2"]
        self.chunk_size = 8192 // row.sum_width

    def has(self, key, **how):
        """True if the packet is sealed by that key."""
        return self.key_id == key.id and self.tag == key.tag(self.data, **how)

    def group_end(self):
        """(address, port) of the group in a WELCOME."""
        address, port = self.group
        family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
        return socket.inet_ntop(family, address), port

    def __repr__(self):
        return " ".join(f"{name}={getattr(self, name):#x}" for name in HEADER_FIELDS if
                        name not in ("tag", "version"))


class Worker:
    """One rank: a socket, and one on the group after the job's first WELCOME.

    key: the job's secret key, None: the job has none
    end: (address, port) that seals JOIN and LEAVE, by default the socket's
    place(call): runs call where sockets are made, for example in a namespace
    """

    def __init__(self, rank, aggregator="127.0.0.1", port=PORT, job=1, key=KEY,
                 interface=None, nonce=None, bind=None, place=lambda call: call()):
        self.rank, self.job = rank, job
        self.keys = Keys(key, job)
        self.family = socket.AF_INET6 if ":" in aggregator else socket.AF_INET
        self.nonce = as_nonce(nonce if nonce is not None else 0x1000 + rank)
        self.challenge = NO_SALT        # the aggregator's last challenge
        self.welcomed_at = 0.0
        self.place = place
        self.to = (aggregator, port)
        self.socket = place(lambda: socket.socket(self.family, socket.SOCK_DGRAM))
        self.socket.bind(bind or self._local())
        self.end = self.socket.getsockname()[:2]
        self.interface = interface
        self.group = self.group_end = None
        self.epoch = 0
        self.one_port = True
        self.welcome = None
        self.up = Key(SEAL_NONE, 0)
        self.down = {}          # by key_id, of all epochs
        self.asked = collections.deque(maxlen=256)      # tags of the last requests sent

    def _local(self):
        """Our address towards the aggregator, and port 0."""
        with self.place(lambda: socket.socket(self.family, socket.SOCK_DGRAM)) as probe:
            probe.connect(self.to)
            name = probe.getsockname()
        return (name[0], 0, *name[2:])

    def close(self):
        self.socket.close()
        if self.group:
            self.group.close()

    def chunk_in(self, slot, generation):
        """The chunk that belongs into this slot and generation, of data or of norms."""
        data, norms = self.welcome.data_slots, self.welcome.control_slots
        chunk = slot + generation * data if slot < data else slot - data + generation * norms
        return chunk % 2**32

    def packet(self, op, payload=None, seal=True, **fields):
        """A packet of this rank. payload: default: the nonce for LEAVE, else empty; seal: True: by
        the key for op; a Key: by that key; False: tag as in fields, by default a wrong one."""
        if payload is None:
            payload = self.nonce if op == LEAVE else b""
        fields = {"op": op, "job": self.job, "rank": self.rank, "epoch": self.epoch, **fields}
        if op <= CLAIM_HIGH and self.welcome:
            fields.setdefault("chunk", self.chunk_in(fields.get("slot", 0),
                                                     fields.get("generation", 0)))
        control = op in (JOIN, LEAVE)
        key = self.keys.membership(JOINING) if control else self.up
        if not seal:
            return build(payload, **{"key_id": key.id, **fields})
        key = key if seal is True else seal
        packet = build(payload, **fields)
        return key.put(packet, end=self.end) if control else key.put(packet)

    def send(self, op, payload=None, seal=True, **fields):
        self.send_raw(self.packet(op, payload, seal, **fields), fields.get("slot", 0))

    def send_raw(self, packet, slot=0):
        self.asked.append(packet[8:16])
        port = self.to[1] + (0 if self.one_port else slot // 64)
        self.socket.sendto(packet, (self.to[0], port))

    def send_join(self, flags=0, **fields):
        """Sends one JOIN, with the last challenge, or, if flags have HEARD, the epoch's salt."""
        said = self.welcome.salt if flags & HEARD else self.challenge
        self.send(JOIN, join_payload(self.nonce, flags, said), **{"epoch": 0, **fields})

    def enter(self, **fields):
        """Sends a JOIN that takes effect, and does not wait for its WELCOME."""
        self.send_join(**fields)
        self.challenge = self.expect(CHALLENGE, nonce=self.nonce).challenge
        self.send_join(**fields)

    def receive(self, wait=PATIENCE):
        """The next packet on either socket, or None."""
        sockets = [s for s in (self.socket, self.group) if s]
        ready = select.select(sockets, [], [], wait)[0]
        if not ready:
            return None
        packet = Packet(ready[0].recv(2048))
        packet.by_group = ready[0] is self.group
        packet.anybodys = False
        assert self._is_genuine(packet), f"rank {self.rank}: wrong seal of {packet}"
        return packet

    def _is_genuine(self, p):
        """True if the aggregator has sealed p. A refusal for a wrong key is sealed by no key, and
        sets p.anybodys."""
        if p.op == CHALLENGE:
            return p.has(self.keys.membership(WELCOMING), end=self.end)
        if p.op == WELCOME:
            p.anybodys = p.refusal == NOT_JOB and p.has(Key(SEAL_SUM, 0))
            end = self.end if any(p.nonce) else self.group_end
            return p.anybodys or p.has(self.keys.membership(WELCOMING), end=end)
        if p.op == STALE and p.flags & F_EPOCH:
            key = self.keys.membership(LOST)
            return any(p.has(key, end=self.end, instead=int.from_bytes(tag, "big"))
                       for tag in self.asked if len(tag) == 8)
        return p.key_id in self.down and p.has(self.down[p.key_id])

    def expect(self, op, wait=PATIENCE, **fields):
        """Receives the next packet of that op, and checks fields. Only WELCOME and CHALLENGE may
        come before it."""
        end = time.monotonic() + wait
        while True:
            packet = self.receive(max(0, end - time.monotonic()))
            assert packet, f"rank {self.rank}: no answer with op {op} within {wait} s"
            if packet.op in (WELCOME, CHALLENGE) and op != packet.op:
                continue
            assert packet.op == op, f"rank {self.rank}: op {op} expected, got {packet}"
            for name, value in fields.items():
                got = getattr(packet, name)
                assert got == value, \
                    f"rank {self.rank}: {name} is {got:#x}, not {value:#x}: {packet}"
            return packet

    def silent(self, wait=0.1):
        packet = self.receive(wait)
        while packet and packet.op in (WELCOME, CHALLENGE):
            packet = self.receive(wait)
        assert not packet, f"rank {self.rank}: unexpected {packet}"

    def join_once(self, heard=False, **fields):
        """Sends a JOIN, answers a CHALLENGE, returns the WELCOME. It waits first, because thcd
        answers a member once in 10 ms."""
        time.sleep(max(0.0, self.welcomed_at + 0.012 - time.monotonic()))
        self.send_join(HEARD if heard else 0, **fields)
        end = time.monotonic() + PATIENCE
        while True:
            packet = self.receive(max(0, end - time.monotonic()))
            assert packet, f"rank {self.rank}: no WELCOME"
            assert packet.op in (WELCOME, CHALLENGE), f"rank {self.rank}: {packet}"
            if packet.nonce != self.nonce:
                continue
            if packet.op == WELCOME:
                self.take(packet)
                return packet
            self.challenge = packet.challenge
            self.send_join(**fields)

    def take(self, welcome):
        """Sets this rank's state from a WELCOME."""
        self.welcome, self.welcomed_at = welcome, time.monotonic()
        if welcome.refusal:
            return
        self.epoch = welcome.epoch
        self.one_port = bool(welcome.welcome_flags & ONE_PORT)
        self.up = self.keys.data(UP, welcome.seal, welcome.salt)
        down = self.keys.data(DOWN, welcome.seal, welcome.salt)
        self.down[down.id] = down

    def listen(self):
        """Joins the group of the last WELCOME."""
        w = self.welcome
        if self.group or w.reply != MULTICAST:
            return
        self.group = self.place(lambda: socket.socket(self.family, socket.SOCK_DGRAM))
        self.group.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.group_end = w.group_end()
        index = self.place(lambda: socket.if_nametoindex(self.interface or "lo"))
        raw = w.group[0]
        if len(raw) == 4:
            self.group.bind(self.group_end)
            self.group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                                  struct.pack("4s4si", raw, bytes(4), index))
        else:
            self.group.bind((*self.group_end, 0, index))
            self.group.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP,
                                  struct.pack("16si", raw, index))
            # XDP answers carry no UDP checksum: UDP_NO_CHECK6_RX
            self.group.setsockopt(socket.IPPROTO_UDP, 102, 1)

    def drain(self):
        """Discards all packets received so far."""
        sockets = [s for s in (self.socket, self.group) if s]
        while ready := select.select(sockets, [], [], 0)[0]:
            ready[0].recv(2048)


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
    """The answer that an aggregator must give, with one integer per coordinate."""

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
        if self.op in (CLAIM, CLAIM_HIGH):
            payloads = [claimed(p, self.op, rank) for rank, p in enumerate(payloads)]
        columns = zip(*(self.values(p) for p in payloads))
        if self.op == OR:
            out = []
            for column in columns:
                value = 0
                for v in column:
                    value |= v
                out.append(value)
        elif self.op in (MAX, CLAIM, CLAIM_HIGH):
            out = [max(column) for column in columns]
        else:
            out = [sum(column) % (1 << self.out) for column in columns]
        return b"".join(v.to_bytes(self.out // 8, "little") for v in out)
