# SPDX-License-Identifier: GPL-2.0
"""Packets of version 2 of the protocol, written from Documentation/protocol-2.md alone: headers,
payloads, keys and seals, with plain integers and hashlib's BLAKE2s. What is wrong with a packet is
a Malformed, in a sentence. Nothing else speaks this version yet.
"""
import hashlib
import struct

VERSION = 2
LUT_ADD, ADD, OR, MAX, WIDEN, CLAIM, CLAIM_HIGH = 1, 2, 3, 4, 5, 6, 7
JOIN, WELCOME, WAIT, STALE, CLOSE, LEAVE, CHALLENGE = 16, 17, 18, 19, 20, 21, 22
F_ANSWER, F_REPEAT, F_CE, F_CLOSED, F_EPOCH, F_LEFT, F_KNOWN = 1, 2, 4, 8, 16, 32, 128
F_DIFFERS = F_CLOSED    # of WAIT
SEAL_NONE, SEAL_SUM, SEAL_NH, SEAL_NH2, SEAL_RANKS = range(5)
UP, DOWN, JOINING, WELCOMING, LOST, ID = (
    b"thc2 up", b"thc2 down", b"thc2 join", b"thc2 welcome", b"thc2 lost", b"thc2 id")
NO_SALT = bytes(16)
KEY_BYTES = 1048
RANKS_MAX = 64
CLAIM_LANES = 8

_HEADER = struct.Struct(">BBBBIQHHIIIHHIQ")
_FIELDS = ("version", "op", "width", "flags", "key_id", "tag", "job", "rank", "epoch", "round",
           "chunk", "slot", "count", "generation", "bitmap")
_JOIN = struct.Struct(">16s16sIIHB21s")
_JOIN_FIELDS = ("nonce", "challenge", "join_flags", "offers", "workers", "version_max", "reserved")
_FIXED = struct.Struct(">16sQQIIIHHHHHBBBBBBHH")
_FIXED_FIELDS = ("nonce", "joined", "seed", "deadline_ms", "features", "constants", "ranks",
                 "quorum", "data_slots", "control_slots", "welcome_flags", "refusal", "reply",
                 "part", "parts", "version_max", "reserved", "shard", "shards")
_RECORD = struct.Struct(">BBH")
_PLACE = struct.Struct(">BBH16s")
RECORD_SEAL, RECORD_GROUP, RECORD_ROW, RECORD_SHARDS, RECORD_SCHEME, RECORD_NODE = range(1, 7)
REFUSE_IF_UNKNOWN = 1

_MOD = 1 << 64
_WEYL = 0x9E3779B97F4A7C15


class Malformed(Exception):
    """Why a packet is none of version 2."""


def require(condition, sentence):
    if not condition:
        raise Malformed(sentence)


def mix(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % _MOD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % _MOD
    return z ^ z >> 31


# --- keys and seals -----------------------------------------------------------

def derive(secret, label, job, salt, size):
    """The first @size bytes that come from @secret, K, for that purpose."""
    out = b""
    for i in range((size + 31) // 32):
        out += hashlib.blake2s(label.ljust(16, b"\0") + struct.pack(">HHI", job, 0, i) + salt,
                               key=secret).digest()
    return out[:size]


def key_id(secret, job, salt):
    return int.from_bytes(derive(secret, ID, job, salt, 4), "big")


def siphash(key, data):
    """SipHash-2-4 (Aumasson, Bernstein: SipHash, INDOCRYPT 2012)."""
    k0, k1 = struct.unpack("<2Q", key)
    v = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D,
         k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]

    def turn(x, by):
        return (x << by | x >> 64 - by) % _MOD

    def rounds(n):
        for _ in range(n):
            v[0] = (v[0] + v[1]) % _MOD
            v[1] = turn(v[1], 13) ^ v[0]
            v[0] = turn(v[0], 32)
            v[2] = (v[2] + v[3]) % _MOD
            v[3] = turn(v[3], 16) ^ v[2]
            v[0] = (v[0] + v[3]) % _MOD
            v[3] = turn(v[3], 21) ^ v[0]
            v[2] = (v[2] + v[1]) % _MOD
            v[1] = turn(v[1], 17) ^ v[2]
            v[2] = turn(v[2], 32)

    last = data[len(data) // 8 * 8:]
    words = struct.unpack(f"<{len(data) // 8}Q", data[:len(data) // 8 * 8])
    for word in (*words, int.from_bytes(last, "little") | len(data) % 256 << 56):
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


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


def _packet_sum(packet):
    a, b = _fletcher(packet[:8] + bytes(8) + packet[16:])
    x = a * _WEYL % _MOD
    x = ((x ^ x >> 32) * 0xD6E8FEB86659FD93 + b) % _MOD
    return (x ^ x >> 32) * 0xD6E8FEB86659FD93 % _MOD >> 32


def tag_of(packet, seal, key=None, instead=None):
    """The tag that belongs into @packet. @key: of KEY_BYTES, for the seals that have one.
    @instead: the tag of the request, where that stands for the payload's NH (`thc2 lost`)."""
    if seal == SEAL_NONE:
        return 0
    if seal == SEAL_SUM:
        return _packet_sum(packet)
    payload = packet[_HEADER.size:]
    digests = [instead] if instead is not None else [nh(key[16:], payload)]
    if seal == SEAL_NH2:
        digests.append(nh(key[16:], payload, 2))
    return siphash(key[:16], packet[:8] + packet[16:_HEADER.size] +
                   struct.pack(f"<{len(digests)}Q", *digests))


def build(seal=SEAL_NONE, key=None, payload=b"", instead=None, **fields):
    """A sealed packet; fields that are not named are zero, the version is ours."""
    fields = {"version": VERSION, **fields}
    packet = _HEADER.pack(*(fields.get(name, 0) for name in _FIELDS)) + payload
    return packet[:8] + struct.pack(">Q", tag_of(packet, seal, key, instead)) + packet[16:]


def is_genuine(packet, seal, key=None, instead=None):
    return struct.unpack_from(">Q", packet, 8)[0] == tag_of(packet, seal, key, instead)


def chunk_digest(chunk, bitmap, lanes, seal, key=None):
    """What an answer adds to its round's digest; @key: `thc2 down` of the epoch."""
    if seal in (SEAL_NONE, SEAL_SUM):
        a, b = _fletcher(lanes)
        h = (mix(a) + b) % _MOD
    else:
        h = nh(key[16:], lanes)
    return mix((mix(h ^ bitmap) + chunk * _WEYL) % _MOD) >> 32


# --- payloads -------------------------------------------------------------------

def pack_indices(indices, bits):
    """A stream of bits: coordinate 0 in the most significant bits of byte 0."""
    stream = 0
    for index in indices:
        stream = stream << bits | index
    return stream.to_bytes(len(indices) * bits // 8, "big")


def unpack_indices(payload, bits):
    stream, count = int.from_bytes(payload, "big"), len(payload) * 8 // bits
    return [stream >> (count - 1 - i) * bits & (1 << bits) - 1 for i in range(count)]


def masked_claim(payload, rank):
    """What an aggregator takes of a worker's CLAIM (rank below 32) or CLAIM_HIGH."""
    first = 4 * CLAIM_LANES * (rank % 32)
    last = first + 4 * CLAIM_LANES
    return bytes(first) + payload[first:last] + bytes(len(payload) - last)


def _data_bytes(p, rows):
    """Lengths that the payload of a request may have."""
    if p.op == LUT_ADD:
        require(p.width in rows, f"no row for indices of {p.width} bits")
        return {1024 * p.width // rows[p.width]}
    if p.op == WIDEN:
        require(p.width in (8, 16, 32), f"sums of {p.width} bits")
        return {512}
    wide = {ADD: (4, 8, 16, 32) if p.count else (8, 16, 32)}.get(p.op, (32,))
    require(p.width in wide, f"lanes of {p.width} bits with op {p.op}")
    return {1024} if p.op in (CLAIM, CLAIM_HIGH) else {0, 1024}


def _records(data):
    """[(type, flags, data)] of the records behind WELCOME's fixed part."""
    out, at = [], 0
    while at < len(data):
        require(len(data) - at >= _RECORD.size, "half a record's head")
        kind, flags, size = _RECORD.unpack_from(data, at)
        end = at + _RECORD.size + size
        padded = at + (_RECORD.size + size + 7) // 8 * 8
        require(padded <= len(data), f"record {kind} is cut")
        require(not any(data[end:padded]), f"record {kind} is not padded with zeros")
        require(not flags & ~REFUSE_IF_UNKNOWN, f"record {kind} has unknown flags")
        out.append((kind, flags, data[at + _RECORD.size:end]))
        at = padded
    return out


def _place(data, at=0):
    family, zero, port, address = _PLACE.unpack_from(data, at)
    require(family in (4, 6) and not zero, "an address is of family 4 or 6")
    require(family == 6 or not any(address[4:]), "bytes behind an IPv4 address")
    return address[:4] if family == 4 else address, port


def _row(data):
    require(len(data) >= 12, "half a row")
    bits, wide, granularity, clamp = struct.unpack_from(">BBHd", data)
    require(1 <= bits <= 8 and wide in (4, 8, 16, 32) and bits <= wide,
            f"a row of {bits} bits, sums of {wide}")
    require(len(data) == 12 + 2 * 2**bits, f"a row of {bits} bits has {2**bits} levels")
    return {"bits": bits, "sum_width": wide, "granularity": granularity, "clamp": clamp,
            "table": list(struct.unpack_from(f">{2**bits}H", data, 12))}


def _shards(data):
    first, count = struct.unpack_from(">HH", data)
    require(len(data) == 4 + count * _PLACE.size, f"{count} shards do not fit the record")
    return {first + i: _place(data, 4 + i * _PLACE.size) for i in range(count)}


def record(kind, data, flags=0):
    raw = _RECORD.pack(kind, flags, len(data)) + data
    return raw + bytes(-len(raw) % 8)


class Welcome:
    """All parts of one WELCOME, in any order: fields, rows by bits, shards by number, unknown
    record types."""

    def __init__(self, parts):
        first = parts[0]
        require(sorted(p.part for p in parts) == list(range(first.parts)), "a part is missing")
        self.__dict__.update({name: getattr(first, name) for name in _FIXED_FIELDS})
        self.rows, self.at, self.unknown = {}, {}, []
        self.group = self.scheme = self.node = self.salt = None
        for p in sorted(parts, key=lambda p: p.part):
            same = {n for n in _FIXED_FIELDS if getattr(p, n) != getattr(first, n)} <= {"part"}
            require(same, "parts of different WELCOMEs")
            self._take(p)

    def _take(self, p):
        salts = [data for kind, _, data in p.records if kind == RECORD_SEAL]
        require(len(salts) == 1 and len(salts[0]) == 20 and not any(salts[0][1:4]),
                "each part has one record SEAL of 20 bytes")
        require(self.salt in (None, salts[0][4:]), "parts of different epochs")
        self.seal, self.salt = salts[0][0], salts[0][4:]
        for kind, flags, data in p.records:
            if kind == RECORD_GROUP:
                self.group = _place(data)
            elif kind == RECORD_ROW:
                row = _row(data)
                require(row["bits"] not in self.rows, f"two rows of {row['bits']} bits")
                self.rows[row["bits"]] = row
            elif kind == RECORD_SHARDS:
                self.at.update(_shards(data))
            elif kind == RECORD_SCHEME:
                require(len(data) == 12, "SCHEME has 12 bytes")
                self.scheme = dict(zip(("scheme", "block_log2", "value_bits", "levels", "grain",
                                        "scale_block", "capacity"),
                                       struct.unpack(">BBBBHHI", data)))
            elif kind == RECORD_NODE:
                require(len(data) == 6, "NODE has 6 bytes")
                self.node = dict(zip(("rank_base", "workers", "depth", "ring"),
                                     struct.unpack(">HHBB", data)))
            elif kind != RECORD_SEAL:
                require(not flags & REFUSE_IF_UNKNOWN, f"record {kind} is unknown")
                self.unknown.append(kind)


class Packet:
    """A packet taken apart: fields of its header, and of JOIN, CHALLENGE, LEAVE, WAIT or WELCOME,
    as attributes. @rows: {b: w} of the job. The tag is is_genuine()'s."""

    def __init__(self, data, rows=()):
        require(len(data) >= _HEADER.size, f"{len(data)} bytes are no header")
        require(len(data) % 8 == 0, "the payload is no number of words")
        self.__dict__.update(zip(_FIELDS, _HEADER.unpack_from(data)))
        self.payload = data[_HEADER.size:]
        require(self.version == VERSION, f"version {self.version}")
        require(not self.flags & 0x40, "the flag of version 1's NOSUM")
        if LUT_ADD <= self.op <= CLAIM_HIGH:
            self._data(dict(rows))
        else:
            take = {JOIN: self._join, WELCOME: self._welcome, WAIT: self._wait,
                    STALE: lambda: self._is(0), LEAVE: self._leave,
                    CHALLENGE: self._challenge}.get(self.op)
            require(take, f"op {self.op}")
            require(not self.width, f"width {self.width} without lanes")
            take()

    def _is(self, size):
        require(len(self.payload) == size, f"op {self.op} with {len(self.payload)} bytes")

    def _data(self, rows):
        require(self.op != CLAIM_HIGH or self.rank < RANKS_MAX, f"rank {self.rank}")
        if self.flags & F_ANSWER:
            require(len(self.payload) == 1024 and self.width in (4, 8, 16, 32),
                    f"an answer of {len(self.payload)} bytes, lanes of {self.width} bits")
            return
        require(not self.flags, "a request with flags")
        require(not self.bitmap, "a request with a bitmap")
        require(self.rank < RANKS_MAX, f"rank {self.rank}")
        require(self.op != WIDEN or self.count, "WIDEN of a worker")
        require(self.op != LUT_ADD or not self.count, "LUT_ADD of a node")
        sizes = _data_bytes(self, rows)
        require(len(self.payload) in sizes,
                f"op {self.op}, width {self.width} with {len(self.payload)} bytes")

    def _join(self):
        self._is(_JOIN.size)
        self.__dict__.update(zip(_JOIN_FIELDS, _JOIN.unpack(self.payload)))
        require(not self.join_flags & ~3, "unknown flags of JOIN")
        require(not any(self.reserved), "reserved bytes of JOIN")
        require(bool(self.workers) == bool(self.join_flags & 2), "workers are a node's")
        require(any(self.nonce), "JOIN without a nonce")

    def _leave(self):
        self._is(16)
        self.nonce = self.payload

    def _challenge(self):
        self._is(32)
        self.nonce, self.challenge = self.payload[:16], self.payload[16:]

    def _wait(self):
        self._is(16)
        self.missing, self.how_many, self.depth = struct.unpack_from(">HHH", self.payload)
        require(not any(self.payload[6:]), "reserved bytes of WAIT")

    def _welcome(self):
        require(_FIXED.size <= len(self.payload) <= 1024, f"WELCOME of {len(self.payload)} bytes")
        self.__dict__.update(zip(_FIXED_FIELDS, _FIXED.unpack_from(self.payload)))
        require(not self.welcome_flags & ~0x27 and not self.reserved,
                "unknown flags or reserved bytes of WELCOME")
        require(1 <= self.parts <= 16 and self.part < self.parts,
                f"part {self.part} of {self.parts}")
        require(1 <= self.shards <= 64 and self.shard < self.shards,
                f"shard {self.shard} of {self.shards}")
        self.records = _records(self.payload[_FIXED.size:])


def build_join(secret, job, rank, nonce, **more):
    """A JOIN under the seal nh."""
    payload = _JOIN.pack(nonce, more.get("challenge", bytes(16)), more.get("flags", 0),
                         more.get("offers", 1 << SEAL_NH), more.get("workers", 0), VERSION,
                         bytes(21))
    return build(SEAL_NH, derive(secret, JOINING, job, NO_SALT, KEY_BYTES), payload, op=JOIN,
                 job=job, rank=rank, epoch=more.get("epoch", 0),
                 key_id=key_id(secret, job, NO_SALT))
