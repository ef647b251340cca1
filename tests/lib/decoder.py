# SPDX-License-Identifier: GPL-2.0
"""A decoder of the protocol, written from Documentation/protocol.md alone: headers, payloads, keys
and seals, an aggregator's sums, the workers' agreement, by plain integers and hashlib's BLAKE2s. A
wrong packet raises Malformed with a sentence. Features that the page reserves are here, too, for
jobs that have them. Not here: sockets, timers, and what thcd remembers of a rank.
"""
import hashlib
import struct
from collections import namedtuple
from dataclasses import dataclass, field

VERSION = 2
LUT_ADD, ADD, OR, MAX, WIDEN, CLAIM, CLAIM_HIGH = 1, 2, 3, 4, 5, 6, 7
JOIN, WELCOME, WAIT, STALE, CLOSE, LEAVE, CHALLENGE = 16, 17, 18, 19, 20, 21, 22
F_ANSWER, F_REPEAT, F_CE, F_CLOSED, F_EPOCH, F_LEFT, F_NOSUM, F_KNOWN = (1 << i for i in range(8))
F_DIFFERS = F_CLOSED    # of WAIT
ANSWER_FLAGS = F_ANSWER | F_REPEAT | F_CE | F_CLOSED
BARE_FLAGS = {WAIT: F_CE | F_DIFFERS | F_LEFT, STALE: F_EPOCH | F_KNOWN}
# the kind of a generation, in which ops of one kind meet
KIND = {LUT_ADD: ADD, ADD: ADD, WIDEN: ADD, OR: OR, MAX: MAX, CLAIM: CLAIM, CLAIM_HIGH: CLAIM_HIGH}

SEAL_NONE, SEAL_SUM, SEAL_NH, SEAL_NH2, SEAL_RANKS = range(5)
KEYLESS = (SEAL_NONE, SEAL_SUM)
UP, DOWN, DIGEST, JOINING, WELCOMING, LOST, SEED, ID = (
    b"thc2 up", b"thc2 down", b"thc2 digest", b"thc2 join", b"thc2 welcome", b"thc2 lost",
    b"thc2 seed", b"thc2 id")
KEY_BYTES = {UP: 1040, DOWN: 1040, DIGEST: 1040, JOINING: 16, WELCOMING: 16, LOST: 16, SEED: 8,
             ID: 4}
NH2_BYTES = 8           # key bytes of the second NH, behind the first one's key
MEMBERSHIP_LABEL = {JOIN: JOINING, LEAVE: JOINING, CHALLENGE: WELCOMING, WELCOME: WELCOMING,
                 STALE: LOST}
NO_SALT = bytes(16)

RANKS_MAX = 64
WORKERS_MAX = 32767
NOBODY = 65535
LANE_BYTES = 1024
NEUTRAL_BYTES = 16
CLAIM_LANES = 8
CLAIM_WORKERS = 32      # of one packet
CLAIMS_MAX = 64         # workers of a job that agrees by CLAIM
EPOCHS_AHEAD = 1 << 16

CORRELATED, NEUTRAL, PAIRS, QUORUM_AT_ONCE = 1, 2, 4, 16
HEARD, NODE = 1, 2
READY, REFUSED, ONE_PORT, NOGSO = 1, 2, 4, 32
REFUSAL_MAX = 7
MULTICAST, FANOUT = 1, 2
PARTS_MAX, SHARDS_MAX, WELCOME_BYTES_MAX = 16, 64, 1024
(RECORD_SEAL, RECORD_GROUP, RECORD_ROW, RECORD_SHARDS, RECORD_SCHEME, RECORD_NODE,
 RECORD_RATE) = range(1, 8)
KNOW, CONSTANT = 1, 2
RECORD_FLAGS = {RECORD_SEAL: KNOW, RECORD_GROUP: KNOW, RECORD_ROW: KNOW | CONSTANT,
                RECORD_SHARDS: KNOW, RECORD_SCHEME: KNOW | CONSTANT, RECORD_NODE: KNOW,
                RECORD_RATE: KNOW | CONSTANT}

HEADER = struct.Struct(">BBBBIQHHIIIHHIQ")
HEADER_FIELDS = ("version", "op", "width", "flags", "key_id", "tag", "job", "rank", "epoch",
                 "round", "chunk", "slot", "count", "generation", "bitmap")
JOIN_BODY = struct.Struct(">16s16sIIHBBH18s")
JOIN_FIELDS = ("nonce", "challenge", "join_flags", "offers", "workers", "version_max", "reserved",
               "restarted", "reserved2")
FIXED = struct.Struct(">16sQQIIIHHHHHBBBBBBHH")
FIXED_FIELDS = ("nonce", "joined", "seed", "deadline_ms", "features", "constants", "ranks",
                "quorum", "data_slots", "control_slots", "welcome_flags", "refusal", "reply",
                "part", "parts", "version_max", "reserved", "shard", "shards")
PART_AT = 56
OF_REFUSED = ("nonce", "welcome_flags", "refusal", "parts", "version_max")
_RECORD = struct.Struct(">BBH")
_SEAL = struct.Struct(">B3s16s")
_PLACE = struct.Struct(">BBH16s")
_ROW = struct.Struct(">BBHd")
_SHARDS = struct.Struct(">HH")
_SCHEME = struct.Struct(">BBBBHHIII")
_NODE = struct.Struct(">HHHBBHHI16s")
_RATE = struct.Struct(">III")
RATE_BLOCK_LOG2 = 10

_MOD = 1 << 64
_WEYL = 0x9E3779B97F4A7C15


class Malformed(Exception):
    """A packet that is not of version 2, or not of its job; the message says why."""


def require(condition, sentence):
    if not condition:
        raise Malformed(sentence)


# --- hashes -------------------------------------------------------------------

def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % _MOD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % _MOD
    return z ^ z >> 31


def fnv1a(data):
    """FNV-1a of 32 bits."""
    h = 0x811C9DC5
    for byte in data:
        h = (h ^ byte) * 0x01000193 % 2**32
    return h


def siphash(key, data):
    """SipHash-2-4 (Aumasson, Bernstein: SipHash, INDOCRYPT 2012)."""
    k0, k1 = struct.unpack("<2Q", key)
    v0, v1 = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    v2, v3 = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    last = data[len(data) // 8 * 8:]
    words = struct.unpack(f"<{len(data) // 8}Q", data[:len(data) // 8 * 8])
    steps = [(word, 0, 2) for word in (*words, int.from_bytes(last, "little") |
                                       len(data) % 256 << 56)]
    # inline, because calls and lists would take half of a test's time on an emulated machine
    for word, end, rounds in (*steps, (0, 0xFF, 4)):
        v3 ^= word
        v2 ^= end
        for _ in range(rounds):
            v0 = (v0 + v1) % _MOD
            v1 = (v1 << 13 | v1 >> 51) % _MOD ^ v0
            v0 = (v0 << 32 | v0 >> 32) % _MOD
            v2 = (v2 + v3) % _MOD
            v3 = (v3 << 16 | v3 >> 48) % _MOD ^ v2
            v0 = (v0 + v3) % _MOD
            v3 = (v3 << 21 | v3 >> 43) % _MOD ^ v0
            v2 = (v2 + v1) % _MOD
            v1 = (v1 << 17 | v1 >> 47) % _MOD ^ v2
            v2 = (v2 << 32 | v2 >> 32) % _MOD
        v0 ^= word
    return v0 ^ v1 ^ v2 ^ v3


def nh(key, payload, at=0):
    """NH of @payload under the u32 words of @key from word @at on."""
    words = struct.unpack(f"<{len(key) // 4}I", key)
    total = 0
    for i, word in enumerate(struct.unpack(f"<{len(payload) // 8}Q", payload)):
        low = (word + words[at + 2 * i]) % 2**32
        high = ((word >> 32) + words[at + 2 * i + 1]) % 2**32
        total += low * high
    return total % _MOD


def _fletcher(data):
    a = b = 0
    for word in struct.unpack(f"<{len(data) // 8}Q", data):
        a = (a + (word ^ word >> 32)) % _MOD
        b = (b + a) % _MOD
    return a, b


def packet_sum(packet):
    """The seal sum of a packet, whose tag counts as 0."""
    a, b = _fletcher(packet[:8] + bytes(8) + packet[16:])
    x = a * _WEYL % _MOD
    x = ((x ^ x >> 32) * 0xD6E8FEB86659FD93 + b) % _MOD
    return (x ^ x >> 32) * 0xD6E8FEB86659FD93 % _MOD >> 32


# --- keys and seals -----------------------------------------------------------

def derive(secret, label, job, salt=NO_SALT, node=0, seal=SEAL_NH):
    """The key for the purpose @label, derived from the job's key @secret."""
    has_nh = label in (UP, DOWN, DIGEST)
    size, out = KEY_BYTES[label] + (NH2_BYTES if has_nh and seal == SEAL_NH2 else 0), b""
    for i in range((size + 31) // 32):
        out += hashlib.blake2s(label.ljust(16, b"\0") + struct.pack(">HHI", job, node, i) + salt,
                               key=secret).digest()
    return out[:size]


def key_id(secret, job, salt):
    """The name of a key. @secret: None with the seals none and sum; @salt: NO_SALT for membership
    packets."""
    return int.from_bytes(derive(secret, ID, job, salt) if secret else salt[:4], "big")


def is_salt(secret, job, salt, before=None):
    """True if an epoch may have @salt. @before: the salt of the epoch before"""
    others = {key_id(secret, job, NO_SALT)} | ({key_id(secret, job, before)} if before else set())
    return key_id(secret, job, salt) not in {0} | others


def address_bytes(address):
    """16 bytes of an address of 4 or 16: IPv4 as ::ffff:a.b.c.d."""
    return bytes(10) + b"\xff\xff" + address if len(address) == 4 else address


def worker_end(address, port, shard=0):
    """The 24 bytes of an end (a worker's, or the group) that a membership packet's tag covers."""
    return address_bytes(address) + struct.pack(">HHI", port, shard, 0)


def data_tag(packet, seal, key=None):
    """The tag of a request, an answer, WAIT, or STALE without EPOCH."""
    require(seal != SEAL_RANKS, "the seal ranks is a number only")
    if seal == SEAL_NONE:
        return 0
    if seal == SEAL_SUM:
        return packet_sum(packet)
    payload = packet[HEADER.size:]
    digests = [nh(key[16:], payload)]
    if seal == SEAL_NH2:
        digests.append(nh(key[16:], payload, 2))
    return siphash(key[:16], packet[:8] + packet[16:HEADER.size] +
                   struct.pack(f"<{len(digests)}Q", *digests))


def member_tag(packet, key, end, request_tag=None):
    """The tag of a membership packet under a key of 16 bytes. @request_tag: the tag of the request
    that STALE answers"""
    rest = packet[HEADER.size:] if request_tag is None else struct.pack(">Q", request_tag)
    return siphash(key, packet[:8] + packet[16:HEADER.size] + end + rest)


def is_membership(packet):
    """True if a membership key, not a data key, seals the packet."""
    op, flags = packet[1], packet[3]
    return op in (JOIN, LEAVE, CHALLENGE, WELCOME) or (op == STALE and bool(flags & F_EPOCH))


class Keys:
    """The keys of a job's packets at one aggregator, in one epoch. @node, @digest_salt: from the
    record NODE.
    """

    def __init__(self, job, seal, salt, secret=None, node=0, digest_salt=NO_SALT):
        require((secret is None) == (seal in KEYLESS), "jobs without a key have none and sum")
        self.job, self.seal, self.salt, self.secret = job, seal, salt, secret
        self._of = {UP: (salt, node, seal), DOWN: (salt, node, seal),
                    DIGEST: (digest_salt, 0, seal)}
        self._derived = {}

    def key(self, label):
        """The key for @label, or None in a job without a key."""
        if label not in self._derived and self.secret:
            of = self._of.get(label, ())
            self._derived[label] = derive(self.secret, label, self.job, *of)
        return self._derived.get(label)

    def key_id(self, packet):
        return key_id(self.secret, self.job, NO_SALT if is_membership(packet) else self.salt)

    def tag(self, packet, end=None, request_tag=None):
        op, flags = packet[1], packet[3]
        if not is_membership(packet):
            down = flags & F_ANSWER or op in (WAIT, STALE)
            return data_tag(packet, self.seal, self.key(DOWN if down else UP))
        if not self.secret:
            return packet_sum(packet)
        return member_tag(packet, self.key(MEMBERSHIP_LABEL[op]), end, request_tag)

    def sealed(self, packet, end=None, request_tag=None):
        """@packet with its key_id and tag."""
        packet = packet[:4] + struct.pack(">I", self.key_id(packet)) + packet[8:]
        return packet[:8] + struct.pack(">Q", self.tag(packet, end, request_tag)) + packet[16:]

    def is_genuine(self, packet, end=None, request_tag=None):
        return packet == self.sealed(packet, end, request_tag)

    def is_last_resort(self, packet):
        """True for a refusal that a worker with a key believes if no packet under its key comes."""
        refused = packet[1] == WELCOME and Packet(packet).welcome_flags & REFUSED
        return bool(self.secret and refused and packet[4:8] == bytes(4) and
                    struct.unpack_from(">Q", packet, 8)[0] == packet_sum(packet))


def build(payload=b"", **fields):
    """A packet without a seal, of version VERSION; fields that are not given are zero."""
    fields = {"version": VERSION, **fields}
    return HEADER.pack(*(fields.get(name, 0) for name in HEADER_FIELDS)) + payload


def ends_epoch(stale, request, keys, end):
    """True if @stale, with EPOCH, ends the epoch of a worker with @request in flight."""
    s, r = (dict(zip(HEADER_FIELDS, HEADER.unpack_from(packet))) for packet in (stale, request))
    return (s["op"] == STALE and bool(s["flags"] & F_EPOCH) and
            all(s[name] == r[name] for name in ("job", "slot", "generation", "chunk")) and
            s["epoch"] != r["epoch"] and keys.is_genuine(stale, end, r["tag"]))


# --- lanes and chunks ---------------------------------------------------------

def pack_indices(indices, bits):
    """A stream of bits: coordinate 0 in the most significant bits of byte 0."""
    stream = 0
    for index in indices:
        stream = stream << bits | index
    return stream.to_bytes(len(indices) * bits // 8, "big")


def unpack_indices(payload, bits):
    stream, count = int.from_bytes(payload, "big"), len(payload) * 8 // bits
    return [stream >> (count - 1 - i) * bits & (1 << bits) - 1 for i in range(count)]


def unpack_lanes(payload, bits):
    """Lanes of @bits, 4 to 32: those of a little-endian word from its lowest bits up."""
    words = struct.unpack(f"<{len(payload) // 8}Q", payload)
    return [word >> at & (1 << bits) - 1 for word in words for at in range(0, 64, bits)]


def pack_lanes(lanes, bits):
    words = [0] * (len(lanes) * bits // 64)
    for i, lane in enumerate(lanes):
        words[i * bits // 64] |= lane << i * bits % 64
    return struct.pack(f"<{len(words)}Q", *words)


def is_data(op):
    """Does a request with @op belong to the data stream?"""
    return KIND[op] == ADD


Place = namedtuple("Place", "shard chunk slot generation")


def place(q, shards, data_slots, control_slots, data):
    """The Place of chunk @q of a stream: the shard, and the header's fields there."""
    shard, chunk = q % shards, q // shards
    slots, first = (data_slots, 0) if data else (control_slots, data_slots)
    return Place(shard, chunk % 2**32, first + chunk % slots, chunk // slots % 2**32)


def bits_of(width):
    """b of a LUT_ADD request's or a row's width, which is b + 16 t."""
    return width % 16


Row = namedtuple("Row", "width sum_width granularity clamp levels")


@dataclass
class Job:
    """The properties of a job that decide whether a packet is valid."""
    n: int
    rows: dict = field(default_factory=dict)        # width of LUT_ADD: Row
    features: int = 0
    data_slots: int = 8
    control_slots: int = 2
    ranks: int = 0                                  # children of the aggregator; 0: n
    nodes: dict = field(default_factory=dict)       # rank: workers of its JOIN
    numbers: dict = field(default_factory=dict)     # rank: worker, where they are not equal
    tree: bool = False                              # the job has nodes

    def __post_init__(self):
        self.ranks = self.ranks or self.n
        self.tree = self.tree or bool(self.nodes)


# --- packets ------------------------------------------------------------------

class Packet:
    """A packet taken apart: fields of its header, and of JOIN, CHALLENGE, LEAVE, WAIT or WELCOME,
    as attributes. @job: a Job, which requests, answers, WAIT and STALE need. The tag is that of
    Keys.is_genuine().
    """

    def __init__(self, data, job=None):
        require(len(data) >= HEADER.size, f"{len(data)} bytes are no header")
        require(len(data) % 8 == 0, "the payload is no number of words")
        self.__dict__.update(zip(HEADER_FIELDS, HEADER.unpack_from(data)))
        self.payload = data[HEADER.size:]
        require(self.version == VERSION, f"version {self.version}")
        require(not self.flags & F_NOSUM, "the flag of version 1's NOSUM")
        if LUT_ADD <= self.op <= CLAIM_HIGH:
            self._lanes(job)
            return
        take = {JOIN: self._join, LEAVE: self._leave, CHALLENGE: self._challenge,
                WELCOME: self._welcome, WAIT: self._wait, STALE: self._stale}.get(self.op)
        require(take, f"op {self.op}")
        require(not self.width, f"width {self.width} without lanes")
        unknown = self.flags & ~BARE_FLAGS.get(self.op, 0)
        require(not unknown, f"flags {unknown:#x} with op {self.op}")
        if self.op in BARE_FLAGS:
            take(job)
            return
        for name in ("round", "chunk", "slot", "count", "generation", "bitmap"):
            require(not getattr(self, name), f"{name} of a packet about no chunk")
        take()

    def _is(self, size):
        require(len(self.payload) == size, f"op {self.op} with {len(self.payload)} bytes")

    # requests, answers

    def _lanes(self, job):
        require(self.op != CLAIM_HIGH or job.n > CLAIM_WORKERS, f"CLAIM_HIGH of {job.n} workers")
        require(self.op not in (CLAIM, CLAIM_HIGH) or job.n <= CLAIMS_MAX,
                f"claims of {job.n} workers")
        if self.flags & F_ANSWER:
            self._answer(job)
        else:
            self._request(job)
        self._at(job)

    def _at(self, job):
        """Checks that the chunk belongs into the packet's slot and generation."""
        slots, first = job.data_slots, 0
        if not is_data(self.op):
            slots, first = job.control_slots, slots
        require(first <= self.slot < first + slots, f"op {self.op} in slot {self.slot}")
        chunk = (self.slot - first + self.generation * slots) % 2**32
        require(self.chunk == chunk, f"chunk {self.chunk} in the place of {chunk}")

    def _request(self, job):
        require(not self.flags, "a request with flags")
        require(not self.bitmap, "a request with a bitmap")
        require(self.rank < job.ranks, f"rank {self.rank} of {job.ranks}")
        below = job.nodes.get(self.rank, 0)
        require(bool(self.count) == bool(below), f"count {self.count} of rank {self.rank}")
        require(self.count <= below, f"{self.count} workers of a node that has {below}")
        require(self.op != LUT_ADD or not below, "LUT_ADD of a node")
        require(self.op != WIDEN or below, "WIDEN of a worker")
        self._length(job, below)

    def _length(self, job, below):
        if self.op == LUT_ADD:
            require(self.width in job.rows, f"no row for width {self.width}")
            row = job.rows[self.width]
            self._is(LANE_BYTES * bits_of(row.width) // row.sum_width)
        elif self.op == WIDEN:
            require(self.width in (8, 16, 32), f"sums of {self.width} bits")
            self._is(LANE_BYTES // 2)
        else:
            allowed = (32,) if self.op != ADD else (4, 8, 16, 32) if below else (8, 16, 32)
            require(self.width in allowed, f"lanes of {self.width} bits with op {self.op}")
            if len(self.payload) != NEUTRAL_BYTES:
                self._is(LANE_BYTES)
                return
            require(job.features & NEUTRAL, "16 bytes in a job without NEUTRAL")
            require(not any(self.payload), "16 bytes that are not zero")

    def _answer(self, job):
        unknown = self.flags & ~ANSWER_FLAGS
        require(not unknown, f"flags {unknown:#x} of an answer")
        require(self.op != WIDEN, f"an answer with op {self.op}")
        allowed = (4, 8, 16, 32) if is_data(self.op) else (32,)
        require(self.width in allowed, f"an answer's lanes of {self.width} bits")
        self._is(LANE_BYTES)
        require(self.flags & F_REPEAT or not self.rank, "an answer for all has rank 0")
        require(self.rank < job.ranks, f"rank {self.rank} of {job.ranks}")
        require(self.count, "an answer of nobody")
        self._contributors(job)

    def _contributors(self, job):
        bits = bin(self.bitmap).count("1")
        require(self.bitmap < 1 << job.ranks, f"bitmap of {job.ranks} children")
        require(self.count <= job.n, f"{self.count} of {job.n} workers")
        require(bits <= self.count, f"{bits} children of {self.count} workers")
        require(job.tree or bits == self.count, f"{bits} bits, count {self.count}")

    def _wait(self, job):
        require(self.rank < job.ranks, f"rank {self.rank} of {job.ranks}")
        self._contributors(job)
        self.missing, self.how_many, self.depth = NOBODY, 0, 0
        if not self.payload:
            return
        self._is(16)
        self.missing, self.how_many, self.depth = struct.unpack_from(">HHH", self.payload)
        require(not any(self.payload[6:]), "reserved bytes of WAIT")
        if self.missing == NOBODY:
            require(not self.how_many and not self.depth, "nobody is missing, and somebody is")
            return
        require(not self.flags & F_DIFFERS, "DIFFERS names nobody")
        require(self.missing < job.n, f"worker {self.missing} of {job.n} is missing")
        require(1 <= self.how_many <= job.n, f"{self.how_many} workers of {job.n} are missing")
        require(job.tree or not self.depth, "depth in a job without nodes")

    def _stale(self, job):
        self._is(0)
        if self.flags & F_EPOCH:
            require(not self.flags & F_KNOWN, "EPOCH and KNOWN")
            require(not self.count, "count of STALE with EPOCH")
            require(self.bitmap < 1 << job.ranks, f"bitmap of {job.ranks} children")
            require(self.rank == NOBODY or self.rank < job.n, f"worker {self.rank} of {job.n}")
            return
        require(self.rank < job.ranks, f"rank {self.rank} of {job.ranks}")
        require(self.flags & F_KNOWN or not (self.count or self.bitmap), "not KNOWN, and known")
        self._contributors(job)

    # control

    def _join(self):
        self._is(JOIN_BODY.size)
        self.__dict__.update(zip(JOIN_FIELDS, JOIN_BODY.unpack(self.payload)))
        require(any(self.nonce), "JOIN without a nonce")
        require(not self.join_flags & ~(HEARD | NODE), "unknown flags of JOIN")
        require(not self.join_flags & HEARD or any(self.challenge), "HEARD without a salt")
        require(not self.reserved, "reserved byte of JOIN")
        require(not any(self.reserved2), "reserved bytes of JOIN")
        is_node = bool(self.join_flags & NODE)
        require(bool(self.workers) == is_node, "workers are a node's")
        require(self.workers <= WORKERS_MAX, f"{self.workers} workers below a node")
        require(self.restarted == NOBODY or is_node, "who restarted is a node's to say")
        require(self.restarted in range(WORKERS_MAX) or self.restarted == NOBODY,
                f"worker {self.restarted} has restarted")

    def _leave(self):
        self._is(16)
        require(self.rank < RANKS_MAX, f"rank {self.rank} leaves")
        self.nonce = self.payload
        require(any(self.nonce), "LEAVE without a nonce")

    def _challenge(self):
        self._is(32)
        self.nonce, self.challenge = self.payload[:16], self.payload[16:]
        require(any(self.nonce), "CHALLENGE without a nonce")
        require(not self.epoch, "CHALLENGE with an epoch")

    def _welcome(self):
        size = len(self.payload)
        require(FIXED.size <= size <= WELCOME_BYTES_MAX, f"WELCOME of {size} bytes")
        self.__dict__.update(zip(FIXED_FIELDS, FIXED.unpack_from(self.payload)))
        require(not self.welcome_flags & ~(READY | REFUSED | ONE_PORT | NOGSO),
                "unknown flags of WELCOME")
        require(not self.reserved, "reserved byte of WELCOME")
        require(1 <= self.parts <= PARTS_MAX and self.part < self.parts,
                f"part {self.part} of {self.parts}")
        self.records = records(self.payload[FIXED.size:])
        if self.welcome_flags & REFUSED:
            self._refused()
            return
        require(not self.refusal, "a refusal without REFUSED")
        require(self.reply in (MULTICAST, FANOUT), f"reply {self.reply}")
        require(1 <= self.shards <= SHARDS_MAX and self.shard < self.shards,
                f"shard {self.shard} of {self.shards}")
        require(1 <= self.ranks <= RANKS_MAX, f"{self.ranks} ranks")
        require(self.rank < self.ranks, f"WELCOME of rank {self.rank}")
        require(self.joined < 1 << self.ranks, f"joined by more than {self.ranks}")
        require(1 <= self.quorum <= self.ranks, f"quorum {self.quorum} of {self.ranks}")
        known = CORRELATED | NEUTRAL | QUORUM_AT_ONCE
        require(not self.features & ~known, f"features {self.features & ~known:#x}")
        seals = [r.data for r in self.records if r.kind == RECORD_SEAL]
        require(len(seals) == 1, f"{len(seals)} records SEAL in a part")
        self.seal, zero, self.salt = _unpack(_SEAL, seals[0], RECORD_SEAL)
        require(not any(zero), "reserved bytes of SEAL")
        require(self.seal in (SEAL_NONE, SEAL_SUM, SEAL_NH), f"seal {self.seal}")
        if not any(self.nonce):
            self._to_the_group()

    def _refused(self):
        require(1 <= self.refusal <= REFUSAL_MAX, f"refusal {self.refusal}")
        require(self.welcome_flags == REFUSED, "REFUSED and other flags")
        require(any(self.nonce), "REFUSED without a nonce")
        require(self.parts == 1, f"REFUSED in {self.parts} parts")
        require(not self.records, "REFUSED with records")
        for name in FIXED_FIELDS:
            require(name in OF_REFUSED or not getattr(self, name), f"{name} of REFUSED")

    def _to_the_group(self):
        require(self.parts == 1 and len(self.records) == 1, "to the group goes SEAL alone")
        require(not self.welcome_flags & READY, "READY to the group")
        require(not self.rank, "WELCOME to the group has rank 0")


def offers(seals, features=0):
    """JOIN's field `offers`: the seals and features that a worker has."""
    return sum(1 << seal for seal in seals) | features << 16


def build_join(keys, rank, end, nonce, **more):
    """A JOIN of a worker; @more: other fields of its payload, and the epoch."""
    fields = {"nonce": nonce, "challenge": bytes(16), "offers": offers([keys.seal]),
              "version_max": VERSION, "restarted": NOBODY, "reserved2": bytes(18), **more}
    payload = JOIN_BODY.pack(*(fields.get(name, 0) for name in JOIN_FIELDS))
    return keys.sealed(build(payload, op=JOIN, job=keys.job, rank=rank,
                             epoch=more.get("epoch", 0)), end)


def believed_epoch(own, said):
    """The epoch that thcd continues from: its own, or that of a JOIN with a right challenge, if it
    is newer by less than EPOCHS_AHEAD."""
    return said if own < said < own + EPOCHS_AHEAD else own


# --- a generation -------------------------------------------------------------

def claimed(payload, op, worker):
    """The lanes that an aggregator takes from @worker's CLAIM or CLAIM_HIGH."""
    first = 4 * CLAIM_LANES * (worker % CLAIM_WORKERS)
    if (worker >= CLAIM_WORKERS) != (op == CLAIM_HIGH):
        return bytes(len(payload))
    last = first + 4 * CLAIM_LANES
    return bytes(first) + payload[first:last] + bytes(len(payload) - last)


class Generation:
    """A generation of a slot: contributions that an aggregator adds up, and their answer."""

    def __init__(self, job):
        self.job = job
        self.kind = self.row = None
        self.count = self.bitmap = 0

    def add(self, p):
        """Adds the request @p; Malformed if @p does not match the others. A rank's second request
        changes nothing."""
        width = self.job.rows[p.width].sum_width if p.op == LUT_ADD else p.width
        if self.kind is None:
            self.kind, self.width, self.first = KIND[p.op], width, p
            self.lanes = [0] * (LANE_BYTES * 8 // width)
        require(KIND[p.op] == self.kind, f"mismatch: op {p.op} meets op {self.first.op}")
        require(p.round == self.first.round, f"mismatch: rounds {p.round}, {self.first.round}")
        require(width == self.width, f"mismatch: sums of {width} and {self.width} bits")
        if p.op == LUT_ADD:
            self.row = self.row or p.width
            require(p.width == self.row, f"mismatch: rows {p.width}, {self.row}")
        if self.bitmap >> p.rank & 1:
            return
        self.bitmap |= 1 << p.rank
        self.count += p.count or 1
        if len(p.payload) != NEUTRAL_BYTES or p.op == LUT_ADD:
            self._combine(self._contribution(p))

    def _contribution(self, p):
        if p.op == LUT_ADD:
            row = self.job.rows[p.width]
            return [row.levels[i] for i in unpack_indices(p.payload, bits_of(row.width))]
        payload = p.payload
        if p.op in (CLAIM, CLAIM_HIGH) and p.rank not in self.job.nodes:
            payload = claimed(payload, p.op, self.job.numbers.get(p.rank, p.rank))
        return unpack_lanes(payload, p.width // 2 if p.op == WIDEN else p.width)

    def _combine(self, lanes):
        combine = {ADD: lambda a, b: (a + b) % (1 << self.width),
                   OR: lambda a, b: a | b}.get(self.kind, max)
        self.lanes = [combine(a, b) for a, b in zip(self.lanes, lanes)]

    def answer(self, **more):
        """The answer to all, without a seal; its op is that of the first contribution."""
        op = self.kind if self.first.op == WIDEN else self.first.op
        like = {name: getattr(self.first, name)
                for name in ("job", "epoch", "round", "chunk", "slot", "generation")}
        return build(pack_lanes(self.lanes, self.width),
                     **{**like, "op": op, "width": self.width, "flags": F_ANSWER,
                        "count": self.count, "bitmap": self.bitmap, **more})


# --- agreement ----------------------------------------------------------------

DIFFERENT = range(5)        # fields that must be equal on all workers
SKETCH_SHIFT = 28           # so must the last field's bits from this one on
OF_DIGEST, OF_MISSED, OF_STATUS = 5, 6, 7


def claim(coordinates, dtype, scheme, constants, key, **more):
    """A worker's eight fields. @more: call, digest, missed, status."""
    missed = more.get("missed", 0)
    return [coordinates % 2**32, dtype + 1 | scheme << 8 | coordinates >> 32 << 16, constants,
            key % 2**32 ^ key >> 32, more.get("call", 0), 0 if missed else more.get("digest", 0),
            missed, more.get("status", 0)]


def call_of(precision=0, grain=1, levels=0, row=0):
    """Lane 4 of a claim: the choices of a call by none or lhc. levels: of the index that follows"""
    require(grain and not grain & (grain - 1) and grain <= 256, f"a grain of {grain}")
    return precision | levels << 6 | (grain.bit_length() - 1) << 8 | row << 12


def claim_packet(fields, worker):
    """Op and payload that carry a claim in a job of 64 workers at most."""
    lanes = [0] * 256
    first = CLAIM_LANES * (worker % CLAIM_WORKERS)
    lanes[first:first + CLAIM_LANES] = fields
    return CLAIM if worker < CLAIM_WORKERS else CLAIM_HIGH, pack_lanes(lanes, 32)


def agreement_packet(fields):
    """The payload of MAX that carries a claim in a job of more than 64 workers."""
    complement = [2**32 - 1 - x for x in fields]
    if fields[OF_MISSED]:
        complement[OF_DIGEST] = 0
    return pack_lanes(fields + complement + [0] * (256 - 2 * CLAIM_LANES), 32)


def claims_of(op, lanes):
    """{worker: fields} of the answer to CLAIM or CLAIM_HIGH, of those that have claimed."""
    first = CLAIM_WORKERS if op == CLAIM_HIGH else 0
    all_of_them = {first + i: lanes[CLAIM_LANES * i:CLAIM_LANES * (i + 1)]
                   for i in range(CLAIM_WORKERS)}
    return {worker: fields for worker, fields in all_of_them.items() if fields[1] % 256}


def disagreement(claims):
    """The fields that stop a round because claims differ, for at most 64 workers."""
    digests = {fields[OF_DIGEST] for fields in claims if not fields[OF_MISSED]}
    return ({i for i in DIFFERENT if len({fields[i] for fields in claims}) > 1} |
            ({OF_STATUS} if len({fields[OF_STATUS] >> SKETCH_SHIFT for fields in claims}) > 1
             else set()) |
            ({OF_DIGEST} if len(digests) > 1 else set()) |
            ({OF_STATUS} if any(fields[OF_STATUS] % 256 for fields in claims) else set()))


def disagreement_of_many(lanes):
    """The fields that stop a round because claims differ, from the lanes of MAX."""
    both = [(a + b) % 2**32 == 2**32 - 1
            for a, b in zip(lanes[:CLAIM_LANES], lanes[CLAIM_LANES:2 * CLAIM_LANES])]
    somebody_has_all = lanes[CLAIM_LANES + OF_MISSED] == 2**32 - 1
    return ({i for i in DIFFERENT if not both[i]} |
            ({OF_DIGEST} if somebody_has_all and not both[OF_DIGEST] else set()) |
            ({OF_STATUS} if lanes[OF_STATUS] else set()))


def answer_digest(p, key=None, tree=False):
    """The part of a round's digest that the answer @p adds. @key: the key `thc2 down`, in a job
    with nodes `thc2 digest`; None: the job has no key.
    """
    if key is None:
        a, b = _fletcher(p.payload)
        h = (mix(a) + b) % _MOD
    else:
        h = nh(key[16:], p.payload)
    said = struct.pack(">IHHQ", p.chunk, p.slot, p.count, 0 if tree else p.bitmap)
    return siphash(key[:16] if key else bytes(16), said + struct.pack("<Q", h)) >> 32


def round_digest(answers, key=None, tree=False):
    """The digest of a round's answers in both streams, in any order. The caller must leave out the
    MAX by which more than 64 workers agree.
    """
    return sum(answer_digest(p, key, tree) for p in answers
               if p.op not in (CLAIM, CLAIM_HIGH)) % 2**32


# --- WELCOME ------------------------------------------------------------------

Record = namedtuple("Record", "kind flags data raw")


def record(kind, data, flags=None):
    """A record as sent; @flags: None: the flags of its type."""
    flags = RECORD_FLAGS.get(kind, 0) if flags is None else flags
    raw = _RECORD.pack(kind, flags, len(data)) + data
    return raw + bytes(-len(raw) % 8)


def records(data):
    """The records behind WELCOME's fixed part."""
    out, at = [], 0
    while at < len(data):
        kind, flags, size = _RECORD.unpack_from(data, at)
        end = at + _RECORD.size + size
        padded = at + (_RECORD.size + size + 7) // 8 * 8
        require(padded <= len(data), f"record {kind} is cut")
        require(not any(data[end:padded]), f"record {kind} is not padded with zeros")
        require(not flags & ~(KNOW | CONSTANT), f"record {kind} has unknown flags")
        require(flags == RECORD_FLAGS.get(kind, flags), f"record {kind} with flags {flags}")
        out.append(Record(kind, flags, data[at + _RECORD.size:end], data[at:padded]))
        at = padded
    return out


def constants_of(all_records, seed, features):
    """WELCOME's `constants`, of records in the order of parts."""
    hashed = b"".join(r.raw for r in all_records if r.flags & CONSTANT)
    return fnv1a(hashed + struct.pack(">QI", seed, features))


def welcome_payload(some_records=(), **fields):
    """The payload of one part."""
    return FIXED.pack(*(fields.get(name, 0) for name in FIXED_FIELDS)) + b"".join(some_records)


def _unpack(layout, data, kind, at=0):
    require(len(data) >= at + layout.size, f"record {kind} of {len(data)} bytes")
    return layout.unpack_from(data, at)


def _place_of(data, kind, at=0):
    family, zero, port, address = _unpack(_PLACE, data, kind, at)
    require(family in (4, 6), f"an address of family {family}")
    require(not zero, "a reserved byte of an address")
    require(family == 6 or not any(address[4:]), "bytes behind an IPv4 address")
    return address[:4] if family == 4 else address, port


def is_group(address):
    """Is it a multicast address?"""
    return 224 <= address[0] < 240 if len(address) == 4 else address[0] == 255


def _row_of(data, n):
    width, sum_width, granularity, clamp = _unpack(_ROW, data, RECORD_ROW)
    bits = bits_of(width)
    require(1 <= bits <= 8, f"a row of {bits} bits")
    require(sum_width in (4, 8, 16, 32), f"a row with sums of {sum_width} bits")
    require(bits <= sum_width, f"a row of {bits} bits with sums of {sum_width}")
    levels = _unpack(struct.Struct(f">{2**bits}H"), data, RECORD_ROW, _ROW.size)
    require(max(levels) == granularity, f"levels up to {max(levels)}, g is {granularity}")
    require(granularity * n < 1 << sum_width, f"{n} workers overflow {sum_width} bits")
    return Row(width, sum_width, granularity, clamp, levels)


class Welcome:
    """All parts of one WELCOME, in any order: fields of FIXED_FIELDS, rows by width, schemes by
    number, shards by number, types of unknown records.
    """

    def __init__(self, parts):
        parts = sorted(parts, key=lambda p: p.part)
        first = parts[0]
        require([p.part for p in parts] == list(range(first.parts)), "a part is missing")
        self.__dict__.update({name: getattr(first, name) for name in
                              (*FIXED_FIELDS, "epoch", "rank", "seal", "salt")})
        for p in parts:
            require(together(p) == together(first), "parts of different WELCOMEs")
            require((p.seal, p.salt) == (self.seal, self.salt), "parts with different seals")
        self.records = [r for p in parts for r in p.records]
        self.group = self.node = self.rate = self.error = None
        self.rate_is_tried = False
        self.at, self.schemes, self.unknown = {}, {}, []
        for r in self.records:
            self._take(r)
        self.n = self.node["n"] if self.node else self.ranks
        self.rows = self._rows()
        if any(self.nonce):
            self._is_whole()

    def _take(self, r):
        take = {RECORD_GROUP: self._group, RECORD_SHARDS: self._shards,
                RECORD_SCHEME: self._scheme, RECORD_NODE: self._node,
                RECORD_RATE: self._rate}.get(r.kind)
        if take:
            take(r.data)
        elif r.kind not in RECORD_FLAGS:
            require(not r.flags & KNOW, f"record {r.kind} is unknown")
            self.unknown.append(r.kind)

    def _group(self, data):
        require(not self.group, "two records GROUP")
        self.group = address, port = _place_of(data, RECORD_GROUP)
        require(is_group(address), "a group that is no multicast address")
        require(port >= 1024, f"a group at port {port}")

    def _shards(self, data):
        first, count = _unpack(_SHARDS, data, RECORD_SHARDS)
        require(count, "a list of no shards")
        for i in range(count):
            require(first + i == len(self.at), f"shard {first + i} behind {len(self.at)} others")
            address, port = _place_of(data, RECORD_SHARDS, _SHARDS.size + i * _PLACE.size)
            require(port and not is_group(address), "a shard where nobody can be")
            self.at[first + i] = address, port

    def _scheme(self, data):
        fields = dict(zip(("scheme", "block_log2", "value_bits", "levels", "grain", "scale_block",
                           "capacity", "features", "zero"), _unpack(_SCHEME, data, RECORD_SCHEME)))
        require(not fields.pop("zero"), "reserved bytes of SCHEME")
        require(fields["scheme"] not in self.schemes, f"two records of scheme {fields['scheme']}")
        self.schemes[fields["scheme"]] = fields

    def _rate(self, data):
        require(self.rate is None, "two records RATE")
        self.rate, self.error, flags = _unpack(_RATE, data, RECORD_RATE)
        require(not flags & ~1, "reserved flags of RATE")
        self.rate_is_tried = bool(flags)
        require(bool(self.rate) != bool(self.error), "a rate and an error, or neither")

    def _node(self, data):
        require(not self.node, "two records NODE")
        names = ("first", "n", "number", "depth", "ring", "missing", "how_many", "zero", "salt")
        self.node = node = dict(zip(names, _unpack(_NODE, data, RECORD_NODE)))
        require(not node.pop("zero"), "reserved bytes of NODE")
        require(1 <= node["n"] <= WORKERS_MAX, f"{node['n']} workers")
        require(node["first"] < node["n"], f"worker {node['first']} of {node['n']}")
        require((node["missing"] == NOBODY) == (node["how_many"] == 0),
                f"{node['how_many']} workers are missing, the first one is {node['missing']}")
        require(node["missing"] == NOBODY or node["missing"] + node["how_many"] <= node["n"],
                f"worker {node['missing']} is missing, of {node['n']}")

    def _rows(self):
        rows = {}
        for r in self.records:
            if r.kind == RECORD_ROW:
                row = _row_of(r.data, self.n)
                require(row.width not in rows, f"two rows of width {row.width}")
                rows[row.width] = row
        return rows

    def _is_whole(self):
        """Checks what the parts of a whole WELCOME must have; the one to the group is not whole."""
        require(self.constants == constants_of(self.records, self.seed, self.features),
                "constants are not those of the records")
        require(self.schemes, "a job without a scheme")
        require(self.rows, "a job without a row")
        require(self.group or self.reply != MULTICAST, "multicast without a group")
        own = next(iter(self.schemes.values()))
        require(self.rate is None or (own["scheme"], own["block_log2"]) == (0, RATE_BLOCK_LOG2),
                "a rate needs scheme thc and blocks of 1024")
        listed = 0 if self.shard or self.shards == 1 else self.shards
        require(len(self.at) == listed, f"{len(self.at)} shards are listed")

    def job(self):
        """The Job that a worker is in."""
        number = self.node["first"] if self.node else self.rank
        return Job(self.n, self.rows, self.features, self.data_slots, self.control_slots,
                   self.ranks, numbers={self.rank: number}, tree=bool(self.node))

    def is_heard(self, group):
        """True if @group, received at the group's address, shows that multicast arrives."""
        return not any(group.nonce) and group.salt == self.salt


def together(p):
    """The fields that are equal in all parts of one WELCOME."""
    return p.epoch, p.payload[:PART_AT] + p.payload[PART_AT + 1:FIXED.size]


class Parts:
    """Collects the parts of the WELCOME with a worker's nonce. Parts come in order. A part 0 starts
    anew, unless it repeats the WELCOME that is whole.
    """

    def __init__(self, nonce):
        self.nonce, self.parts = nonce, []

    def _is_again(self, p):
        first = self.parts[0] if self.parts else None
        return (first and len(self.parts) == first.parts and
                (p.epoch, p.payload) == (first.epoch, first.payload))

    def add(self, p):
        """The whole WELCOME, once all parts are there; else None."""
        if p.nonce != self.nonce or p.welcome_flags & REFUSED:
            return None
        if not self._is_again(p):
            if not p.part:
                self.parts = []
            if p.part != len(self.parts) or (p.part and together(p) != together(self.parts[0])):
                return None
            self.parts.append(p)
        return Welcome(self.parts) if len(self.parts) == p.parts else None


def one_job(welcomes):
    """Malformed if WELCOMEs, one per shard, are not of one job."""
    first = welcomes[0]
    require(sorted(w.shard for w in welcomes) == list(range(first.shards)), "a shard is missing")
    for w in welcomes:
        for name in ("shards", "constants", "seed", "n", "quorum", "data_slots", "control_slots",
                     "seal", "rank"):
            require(getattr(w, name) == getattr(first, name), f"shards differ in {name}")
