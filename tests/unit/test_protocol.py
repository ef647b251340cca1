#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Documentation/protocol.md and its decoder, tests/lib/decoder.py: the page's tables and examples,
and published vectors for the parts of the seal. The decoder refuses packets that were changed, and
packets that the page forbids.
"""
import hashlib
import os
import random
import re
import struct
import sys
import types
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tests/lib"))
import decoder as wire  # noqa: E402  (found through the path above)

SECRET = bytes(range(32))
SALT = bytes(range(0x10, 0x20))
NONCE = bytes(range(1, 17))
END = wire.worker_end(bytes([10, 0, 0, 2]), 40000)
GROUP_ADDRESS = bytes([239, 84, 0, 1])
AGGREGATOR_ADDRESS = bytes([10, 0, 0, 9])
KEYS = wire.Keys(1, wire.SEAL_NH, SALT, SECRET)
SUM_KEYS = wire.Keys(1, wire.SEAL_SUM, SALT)
ROWS = {width: wire.Row(width, wide, 3, 2.5, [0, 1, 2, 3] * (2**(width % 16) // 4))
        for width, wide in ((4, 8), (2, 4), (16 + 4, 8), (8, 32))}
JOB = wire.Job(4, ROWS, wire.NEUTRAL)
# rank 1 is a node of five workers
TREE = wire.Job(8, ROWS, wire.NEUTRAL, ranks=4, nodes={1: 5}, numbers={0: 0, 1: 1, 2: 6, 3: 7})


def page():
    with open(os.path.join(ROOT, "Documentation/protocol.md"), encoding="utf-8") as f:
        return f.read()


def tables():
    """All tables of the page: lists of rows, which are lists of cells, heads included."""
    found = re.findall(r"(?:^\|.*\n)+", page(), re.M)
    return [[[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
            for table in found]


def table(*head):
    """The rows of the table whose first line begins with @head."""
    found, = (t[2:] for t in tables() if tuple(t[0][:len(head)]) == head)
    return found


def numbers_of(text):
    """The numbers in a text such as "1..4, 6"."""
    ends = [part.split("..") for part in text.split(",")]
    return {number for end in ends for number in range(int(end[0]), int(end[-1]) + 1)}


def layout(struct_, names):
    """{name: (offset, bytes)} of a struct with these fields."""
    sizes = [struct.calcsize(">" + code) for code in
             re.findall(r"\d+s|[A-Z]", struct_.format.replace(">", ""))]
    assert len(sizes) == len(names) and sum(sizes) == struct_.size
    return {name: (sum(sizes[:i]), sizes[i]) for i, name in enumerate(names)}


def lut_add(**fields):
    """A LUT_ADD, or another packet of the data stream, without a seal."""
    fields = {"op": wire.LUT_ADD, "width": 4, "job": 1, "rank": 2, "epoch": 7, "round": 3,
              "chunk": 5, "slot": 5, "payload": bytes(range(256)) * 2, **fields}
    return wire.build(**fields)


def control(**fields):
    """A MAX, or another packet of the control stream, without a seal."""
    fields = {"op": wire.MAX, "width": 32, "job": 1, "rank": 2, "epoch": 7, "round": 3,
              "chunk": 3, "slot": 9, "generation": 1, "payload": bytes(1024), **fields}
    return wire.build(**fields)


def answer(**fields):
    return lut_add(**{"op": wire.ADD, "width": 8, "flags": wire.F_ANSWER, "rank": 0, "count": 3,
                      "bitmap": 0b1011, "payload": bytes(1024), **fields})


def bare(op, payload=b"", **fields):
    return lut_add(**{"op": op, "width": 0, "payload": payload, **fields})


def wait(missing, how_many, depth=0, rest=bytes(10), **fields):
    return bare(wire.WAIT, struct.pack(">HHH", missing, how_many, depth) + rest,
                **{"count": 2, "bitmap": 0b11, **fields})


def join(**more):
    return wire.build_join(KEYS, 2, END, NONCE, **more)


def changed(packet, at, value):
    """@packet with other bytes from offset @at on."""
    return packet[:at] + value + packet[at + len(value):]


def seal_record(salt=SALT, seal=wire.SEAL_NH, more=b"", zero=bytes(3)):
    return wire.record(wire.RECORD_SEAL, bytes([seal]) + zero + salt + more)


def row_record(width=4, wide=8, g=3, levels=None, more=b""):
    levels = levels or [0, 1, 2, 3] * (2**(width % 16 or 1) // 4)
    return wire.record(wire.RECORD_ROW, struct.pack(">BBHd", width, wide, g, 2.5) +
                       struct.pack(f">{len(levels)}H", *levels) + more)


def place(port=18500, address=GROUP_ADDRESS, family=4, zero=0):
    return struct.pack(">BBH16s", family, zero, port, address)


def group_record(*args, **fields):
    return wire.record(wire.RECORD_GROUP, place(*args, **fields))


def shards_record(first, count, said=None, **fields):
    at = [place(**{"port": 18500 + first + i, "address": AGGREGATOR_ADDRESS, **fields})
          for i in range(count)]
    said = count if said is None else said
    return wire.record(wire.RECORD_SHARDS, struct.pack(">HH", first, said) + b"".join(at))


def scheme_record(scheme=1, more=b"", zero=0):
    return wire.record(wire.RECORD_SCHEME, struct.pack(">BBBBHHIII", scheme, 10, 0, 0, 3, 0, 0, 0,
                                                       zero) + more)


def node_record(first=6, n=8, missing=wire.NOBODY, how_many=0, zero=0, more=b""):
    return wire.record(wire.RECORD_NODE, struct.pack(">HHHBBHHI16s", first, n, 3, 1, 0, missing,
                                                     how_many, zero, bytes([9] * 16)) + more)


def rate_record(rate=4000, error=0, flags=0, more=b""):
    return wire.record(wire.RECORD_RATE, struct.pack(">III", rate, error, flags) + more)


BODY = (scheme_record(), group_record(), row_record())


def welcome_packet(records, seal=None, epoch=7, rank=2, **fields):
    values = {"nonce": NONCE, "ranks": 4, "quorum": 4, "data_slots": 8, "control_slots": 2,
              "reply": wire.MULTICAST, "parts": 1, "version_max": 2, "shards": 1, "seed": 99,
              **fields}
    records = [*([seal_record()] if seal is None else seal), *records]
    return wire.build(wire.welcome_payload(records, **values), op=wire.WELCOME, job=1, rank=rank,
                      epoch=epoch)


def whole(parts, **fields):
    """Packets of WELCOME with one list of records for each part, and right constants."""
    raw = b"".join(record for records in parts for record in records)
    said = wire.constants_of(wire.records(raw), fields.get("seed", 99), fields.get("features", 0))
    fields = {"constants": said, "parts": len(parts), **fields}
    return [wire.Packet(welcome_packet(records, part=i, **fields))
            for i, records in enumerate(parts)]


def welcome(*records, **fields):
    return wire.Welcome(whole([records or BODY], **fields))


class Case(unittest.TestCase):
    def refused(self, sentence, make, *args, **kwargs):
        with self.subTest(sentence=sentence):
            with self.assertRaisesRegex(wire.Malformed, sentence):
                make(*args, **kwargs)

    def all_refused(self, make, job, cases):
        """@cases: the refusal's sentence, and the fields that make a good packet of @make wrong."""
        wire.Packet(make(), job)
        for sentence, fields in cases:
            self.refused(sentence, lambda f=fields: wire.Packet(make(**f), job))


class Page(Case):
    def test_header(self):
        at = layout(wire.HEADER, wire.HEADER_FIELDS)
        for offset, size, name, _ in table("offset", "bytes", "field"):
            self.assertEqual(at.pop(name), (int(offset), int(size)), name)
        self.assertEqual((at, wire.HEADER.size), ({}, 48))

    def test_join(self):
        at = layout(wire.JOIN_BODY, wire.JOIN_FIELDS)
        names = {"flags": "join_flags"}
        rows = table("JOIN offset")
        said = [(int(offset), int(size)) for offset, size, _, _ in rows]
        self.assertEqual(said, list(at.values()))
        for offset, size, name, _ in rows:
            if name != "reserved":
                self.assertEqual(at[names.get(name, name)], (int(offset), int(size)), name)

    def test_welcome(self):
        at = layout(wire.FIXED, wire.FIXED_FIELDS)
        for offset, size, name, _ in table("WELCOME offset"):
            name = {"flags": "welcome_flags"}.get(name, name)
            self.assertEqual(at.pop(name), (int(offset), int(size)), name)
        self.assertEqual((at, wire.FIXED.size), ({}, 64))
        self.assertEqual(wire.PART_AT, layout(wire.FIXED, wire.FIXED_FIELDS)["part"][0])

    def test_ops_and_kinds(self):
        rows = table("op", "", "from")
        for number, name, *_ in rows:
            if number.isdigit():
                self.assertEqual(getattr(wire, name), int(number), name)
        answers, = (number for number, name, *_ in rows if "ANSWER" in name)
        self.assertEqual(numbers_of(answers), set(wire.KIND) - {wire.WIDEN})
        bytes_of = {name: size for _, name, _, _, size in rows}
        for name, size in (("JOIN", wire.JOIN_BODY.size), ("LEAVE", 16), ("CHALLENGE", 32),
                           ("WELCOME", f"{wire.FIXED.size} to {wire.WELCOME_BYTES_MAX}"),
                           ("MAX", wire.LANE_BYTES), ("WAIT", 0), ("STALE", 0)):
            self.assertEqual(bytes_of[name], str(size), name)

    def test_flags(self):
        of = {"answers": 0, "WAIT": 0, "STALE": 0}
        for number, name, on, _ in table("flag", "name", "on"):
            self.assertEqual(getattr(wire, f"F_{name}"), int(number, 16), name)
            for which in on.split(", "):
                of[which] |= int(number, 16)
        self.assertEqual(of, {"answers": wire.ANSWER_FLAGS, **{
            name: wire.BARE_FLAGS[getattr(wire, name)] for name in ("WAIT", "STALE")}})

    def test_bits_in_cells(self):
        """The bits of JOIN and WELCOME that have no table of their own."""
        cells = {(head, row[2]): row[3] for head in ("JOIN offset", "WELCOME offset")
                 for row in table(head)}
        for at, names in (
                (("JOIN offset", "flags"), "HEARD NODE"),
                (("WELCOME offset", "flags"), "READY REFUSED ONE_PORT NOGSO"),
                (("WELCOME offset", "features"), "CORRELATED NEUTRAL PAIRS QUORUM_AT_ONCE")):
            said = {name: int(bit) for bit, name in re.findall(r"(\d+) ([A-Z_]{4,})", cells[at])}
            self.assertEqual(said, {name: getattr(wire, name) for name in names.split()})
        reply = dict(re.findall(r"(\w+) (\w+)", cells["WELCOME offset", "reply"]))
        self.assertEqual(reply, {"1": "multicast", "2": "fanout"})
        self.assertEqual((wire.MULTICAST, wire.FANOUT), (1, 2))
        refusals = re.findall(r"(?:^|[,)] )(\d) \w", cells["WELCOME offset", "refusal"])
        self.assertEqual([int(r) for r in refusals], list(range(1, wire.REFUSAL_MAX + 1)))

    def test_labels(self):
        for label, salt, size, _ in table("label"):
            label = label.strip("`").encode()
            self.assertEqual(wire.KEY_BYTES[label], int(size), label)
            self.assertEqual(len(wire.derive(SECRET, label, 1)), int(size))
        self.assertEqual(len(table("label")), len(wire.KEY_BYTES))

    def test_records(self):
        for kind, flags, name, _ in table("type", "flags"):
            self.assertEqual(getattr(wire, f"RECORD_{name}"), int(kind))
            self.assertEqual(wire.RECORD_FLAGS[int(kind)], int(flags), name)
        self.assertEqual(len(table("type", "flags")), len(wire.RECORD_FLAGS))

    def test_seals(self):
        for number, name, *_ in table("seal", "", "tag of data and answers"):
            self.assertEqual(getattr(wire, f"SEAL_{name.upper()}"), int(number))


class Example(Case):
    """The packets that the page shows, and the numbers that lead to their tags."""

    def setUp(self):
        self.said = page().split("\n**Examples.**")[1].split("\n**What it holds against.**")[0]

    def shown(self, begin):
        """The packet behind the line with @begin, the numbers behind it, and both as text."""
        text = re.split(r"\n\n(?=\w)", self.said.split(begin)[1])[0]
        lines = re.findall(r"^    ((?:[0-9a-f]{2} +){15}[0-9a-f]{2})", text, re.M)
        numbers = dict(re.findall(r"\b(key id|\w+) = ([0-9a-f]+)", text.split(lines[-1])[-1]))
        return bytes.fromhex(" ".join(lines)), numbers, text

    def test_end(self):
        end = re.search(r"end = ([0-9a-f ]+)", self.said)[1]
        self.assertEqual(bytes.fromhex(end), END)
        self.assertEqual(len(END), 24)

    def test_join(self):
        packet, numbers, _ = self.shown("Its JOIN")
        self.assertEqual(packet, join())
        key = KEYS.key(wire.JOINING)
        self.assertEqual(key.hex(), numbers["key"])
        self.assertEqual(wire.member_tag(packet, key, END), int(numbers["tag"], 16))
        p = wire.Packet(packet)
        self.assertEqual((p.tag, p.key_id),
                         (int(numbers["tag"], 16), int(numbers["key id"], 16)))
        self.assertEqual((p.nonce, p.offers, p.restarted), (NONCE, 1 << wire.SEAL_NH, 65535))

    def test_lut_add(self):
        head, numbers, text = self.shown("LUT_ADD")
        packet = head + bytes(range(256)) * 2
        self.assertEqual(packet, KEYS.sealed(lut_add()))
        key = KEYS.key(wire.UP)
        self.assertEqual(key[:16].hex(), numbers["key"])
        first, last = re.search(r"N = ([0-9a-f ]+) \.\.\. ([0-9a-f]+)", text).groups()
        words = [f"{word:08x}" for word in struct.unpack("<256I", key[16:])]
        self.assertEqual((words[:4], words[-1]), (first.split(), last))
        self.assertEqual(wire.nh(key[16:], packet[48:]), int(numbers["NH"], 16))
        p = wire.Packet(packet, JOB)
        self.assertEqual((p.tag, p.key_id),
                         (int(numbers["tag"], 16), int(numbers["key id"], 16)))

    def test_stale(self):
        packet, numbers, _ = self.shown("STALE with EPOCH")
        request = self.shown("LUT_ADD")[0] + bytes(range(256)) * 2
        self.assertEqual(KEYS.key(wire.LOST).hex(), numbers["key"])
        self.assertTrue(wire.ends_epoch(packet, request, KEYS, END))
        p = wire.Packet(packet, JOB)
        self.assertEqual((p.tag, p.key_id),
                         (int(numbers["tag"], 16), int(numbers["key id"], 16)))
        self.assertEqual((p.epoch, p.rank, p.flags), (8, 65535, wire.F_EPOCH))

    def test_join_without_a_key(self):
        packet, numbers, text = self.shown("The same JOIN")
        self.assertEqual(packet, SUM_KEYS.sealed(join()))
        words = struct.unpack("<14Q", packet[:8] + bytes(8) + packet[16:])
        shown = {int(i): int(w, 16) for i, w in re.findall(r"w\[(\d+)\] = (\w+)", text)}
        self.assertEqual(words, tuple(shown.get(i, 0) for i in range(14)))
        sums = wire._fletcher(packet[:8] + bytes(8) + packet[16:])
        self.assertEqual(sums, (int(numbers["a"], 16), int(numbers["b"], 16)))
        self.assertEqual(wire.Packet(packet).tag, int(numbers["sum"], 16))


class Seal(Case):
    def test_published_vectors(self):
        key = bytes(range(16))
        self.assertEqual(wire.siphash(key, bytes(range(15))), 0xA129CA6149BE45E5)
        self.assertEqual(wire.siphash(key, bytes(range(8))), 0x93F5F5799A932462)
        self.assertEqual(wire.siphash(key, b""), 0x726FDB47DD0E0E31)
        # RFC 7693, appendix B
        self.assertEqual(hashlib.blake2s(b"abc").hexdigest(), "508c5e8c327c14e2e1a72ba34eeb452f"
                         "37458b209ed63a294d999b4c86675982")
        # vectors of FNV's authors
        self.assertEqual([wire.fnv1a(b) for b in (b"", b"a", b"foobar")],
                         [0x811C9DC5, 0xE40C292C, 0xBF9CF968])

    def test_nh_by_hand(self):
        key = struct.pack("<6I", 1, 2, 0xFFFFFFFF, 4, 5, 6)
        data = struct.pack("<4I", 10, 20, 3, 0xFFFFFFFF)
        self.assertEqual(wire.nh(key, data), (11 * 22 + 2 * 3) % 2**64)
        self.assertEqual(wire.nh(key, data, 2), (9 * 24 + 8 * 5) % 2**64)
        self.assertEqual(wire.nh(key, b""), 0)
        full = struct.pack("<4I", *[2**32 - 1] * 4)
        self.assertEqual(wire.nh(bytes(16), full), 2 * (2**32 - 1)**2 % 2**64)

    def test_derive_is_blake2s_of_40_bytes(self):
        said = (b"thc2 up" + bytes(9) + bytes([0x12, 0x34, 0xAB, 0xCD, 0, 0, 0, 32]) + SALT)
        last = hashlib.blake2s(said, key=SECRET).digest()
        key = wire.derive(SECRET, wire.UP, 0x1234, SALT, 0xABCD)
        self.assertEqual((len(said), key[1024:]), (40, last[:16]))
        longer = wire.derive(SECRET, wire.UP, 0x1234, SALT, 0xABCD, wire.SEAL_NH2)
        self.assertEqual(longer, key + last[16:24])

    def test_every_bit_counts(self):
        for packet, keys in ((KEYS.sealed(lut_add(payload=bytes(range(64)))), KEYS), (join(), KEYS),
                             (SUM_KEYS.sealed(lut_add(payload=bytes(64))), SUM_KEYS)):
            self.assertTrue(keys.is_genuine(packet, END))
            for bit in range(len(packet) * 8):
                other = bytearray(packet)
                other[bit // 8] ^= 1 << bit % 8
                self.assertFalse(keys.is_genuine(bytes(other), END), f"bit {bit}")

    def test_payloads_of_1024_bytes_and_their_lengths(self):
        for seal in (wire.SEAL_NH, wire.SEAL_NH2):
            keys = wire.Keys(1, seal, SALT, SECRET)
            tags = {keys.tag(answer(payload=bytes(size))) for size in (1016, 1024)}
            self.assertEqual(len(tags), 2)

    def test_nh2_is_two_nh(self):
        key, packet = wire.Keys(1, wire.SEAL_NH2, SALT, SECRET).key(wire.UP), lut_add()
        words = struct.unpack("<258I", key[16:])
        again = struct.pack("<256I", *words[2:])
        hashes = struct.pack("<2Q", wire.nh(key[16:], packet[48:]), wire.nh(again, packet[48:]))
        self.assertEqual(wire.data_tag(packet, wire.SEAL_NH2, key),
                         wire.siphash(key[:16], packet[:8] + packet[16:48] + hashes))

    def test_none_sum_and_ranks(self):
        self.assertEqual(wire.data_tag(lut_add(), wire.SEAL_NONE), 0)
        tag = wire.data_tag(lut_add(tag=2**64 - 1), wire.SEAL_SUM)
        self.assertEqual(tag, wire.data_tag(lut_add(), wire.SEAL_SUM))
        self.assertTrue(0 < tag < 2**32)
        self.refused("ranks is a number only", wire.data_tag, lut_add(), wire.SEAL_RANKS)
        self.refused("jobs without a key", wire.Keys, 1, wire.SEAL_SUM, SALT, SECRET)
        self.refused("jobs without a key", wire.Keys, 1, wire.SEAL_NH, SALT)

    def test_sum_is_that_of_version_1(self):
        # the example of the page of version 1: a JOIN with its cookie
        packet = bytes.fromhex("01100000 5f904c72 1f2e3d4c5b6a7988 0001020000000000"
                               "0000000000000000 0000000000000000 0000000000000000"
                               "0102030405060708 0000000000000000")
        # the sum of version 1 covers the cookie, where version 2 has the tag
        self.assertEqual(wire._fletcher(packet[:4] + bytes(4) + packet[8:]),
                         (0x90807060d04a5949, 0xcb5ff48c75f26bec))
        other = packet[:4] + bytes(12) + packet[16:]
        a = b = 0
        for i in range(0, len(other), 8):
            word = int.from_bytes(other[i:i + 8], "little")
            a = (a + (word ^ word >> 32)) % 2**64
            b = (b + a) % 2**64
        x = a * 0x9E3779B97F4A7C15 % 2**64
        x = ((x ^ x >> 32) * 0xD6E8FEB86659FD93 + b) % 2**64
        x = (x ^ x >> 32) * 0xD6E8FEB86659FD93 % 2**64
        self.assertEqual(wire.packet_sum(other), x >> 32)

    def test_keys_are_apart(self):
        labels = list(wire.KEY_BYTES)
        keys = [wire.derive(SECRET, label, job, salt, node)[:4] for label in labels
                for job in (1, 2) for salt in (SALT, wire.NO_SALT) for node in (0, 1)]
        self.assertEqual(len(set(keys)), len(keys))
        packet = KEYS.sealed(lut_add())
        for other in (wire.Keys(2, wire.SEAL_NH, SALT, SECRET),
                      wire.Keys(1, wire.SEAL_NH2, SALT, SECRET),
                      wire.Keys(1, wire.SEAL_NH, bytes([1] * 16), SECRET),
                      wire.Keys(1, wire.SEAL_NH, SALT, bytes(32)),
                      wire.Keys(1, wire.SEAL_NH, SALT, SECRET, node=1), SUM_KEYS):
            self.assertFalse(other.is_genuine(packet))

    def test_which_key_seals_what(self):
        of_epoch, zero = (wire.key_id(SECRET, 1, salt) for salt in (SALT, wire.NO_SALT))
        cases = ((lut_add(), wire.UP), (control(), wire.UP), (answer(), wire.DOWN),
                 (wait(2, 1), wire.DOWN), (bare(wire.STALE), wire.DOWN))
        for packet, label in cases:
            key = wire.derive(SECRET, label, 1, SALT)
            sealed = KEYS.sealed(packet)
            p = wire.Packet(sealed, JOB)
            self.assertEqual((p.key_id, p.tag),
                             (of_epoch, wire.data_tag(sealed, wire.SEAL_NH, key)))
        cases = ((bare(wire.LEAVE, NONCE), wire.JOINING), (welcome_packet(BODY), wire.WELCOMING),
                 (bare(wire.CHALLENGE, bytes(32)), wire.WELCOMING))
        for packet, label in cases:
            sealed = KEYS.sealed(packet, END)
            self.assertEqual(sealed[4:8], struct.pack(">I", zero))
            tag = wire.member_tag(sealed, wire.derive(SECRET, label, 1), END)
            self.assertEqual(sealed[8:16], struct.pack(">Q", tag))

    def test_node_is_in_up_and_down_alone(self):
        node = wire.Keys(1, wire.SEAL_NH, SALT, SECRET, node=5)
        same = [label for label in wire.KEY_BYTES if node.key(label) == KEYS.key(label)]
        self.assertEqual(same, [label for label in wire.KEY_BYTES
                                if label not in (wire.UP, wire.DOWN)])
        for label in (wire.UP, wire.DOWN):
            self.assertEqual(node.key(label), wire.derive(SECRET, label, 1, SALT, 5))
        self.assertEqual(node.key_id(lut_add()), KEYS.key_id(lut_add()))

    def test_the_end_of_24_bytes(self):
        end = wire.worker_end(bytes(range(16)), 0x1234, 0x56)
        self.assertEqual(end, bytes(range(16)) + bytes([0x12, 0x34, 0, 0x56, 0, 0, 0, 0]))
        mapped = wire.worker_end(bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 2]), 40000)
        self.assertEqual(END, mapped)
        packet = join()
        for other in (wire.worker_end(bytes([10, 0, 0, 3]), 40000),
                      wire.worker_end(bytes([10, 0, 0, 2]), 40001),
                      wire.worker_end(bytes([10, 0, 0, 2]), 40000, 1)):
            self.assertFalse(KEYS.is_genuine(packet, other))

    def test_stale_answers_one_request(self):
        request = KEYS.sealed(lut_add())
        tag = struct.unpack_from(">Q", request, 8)[0]

        def stale(said=tag, **fields):
            fields = {"op": wire.STALE, "flags": wire.F_EPOCH, "epoch": 8, "rank": 3, **fields}
            return KEYS.sealed(bare(**fields), END, said)
        self.assertTrue(wire.ends_epoch(stale(), request, KEYS, END))
        for other in (stale(tag + 1), stale(slot=4), stale(generation=1), stale(chunk=4),
                      stale(epoch=7), stale(flags=0), stale(job=2),
                      stale(op=wire.WELCOME)):
            self.assertFalse(wire.ends_epoch(other, request, KEYS, END))
        other_end = wire.worker_end(bytes([10, 0, 0, 3]), 40000)
        self.assertFalse(wire.ends_epoch(stale(), request, KEYS, other_end))
        # two requests of a slot differ in the tag alone
        other = KEYS.sealed(lut_add(payload=bytes(512)))
        self.assertFalse(wire.ends_epoch(stale(), other, KEYS, END))
        # the eight bytes are those of the header
        last = KEYS.sealed(bare(wire.STALE, flags=wire.F_EPOCH), END, tag)
        said = last[:8] + last[16:48] + END + request[8:16]
        self.assertEqual(last[8:16],
                         struct.pack(">Q", wire.siphash(KEYS.key(wire.LOST), said)))

    def test_jobs_without_a_key(self):
        packet = SUM_KEYS.sealed(lut_add())
        self.assertEqual(packet[4:8], SALT[:4])
        for raw in (bare(wire.LEAVE, NONCE), welcome_packet(BODY),
                    bare(wire.STALE, flags=wire.F_EPOCH)):
            for seal in wire.KEYLESS:
                sealed = wire.Keys(1, seal, SALT).sealed(raw, END)
                self.assertEqual(sealed[4:12], bytes(8))
                self.assertEqual(sealed[12:16], struct.pack(">I", wire.packet_sum(raw)))
                self.assertFalse(KEYS.is_genuine(sealed, END))
                self.assertFalse(SUM_KEYS.is_genuine(KEYS.sealed(raw, END), END))
        # STALE without EPOCH is not control
        self.assertEqual(SUM_KEYS.sealed(bare(wire.STALE))[4:8], SALT[:4])
        stale = SUM_KEYS.sealed(bare(wire.STALE, flags=wire.F_EPOCH, epoch=8))
        self.assertTrue(wire.ends_epoch(stale, packet, SUM_KEYS, END))

    def test_a_salt_that_is_drawn_again(self):
        self.assertTrue(wire.is_salt(SECRET, 1, SALT))
        self.assertTrue(wire.is_salt(None, 1, SALT, before=NONCE))
        self.assertFalse(wire.is_salt(SECRET, 1, wire.NO_SALT))
        self.assertFalse(wire.is_salt(None, 1, bytes(4) + SALT[4:]))
        self.assertFalse(wire.is_salt(None, 1, SALT, before=SALT[:4] + bytes(12)))
        before = bytes([1] * 16)
        self.assertTrue(wire.is_salt(SECRET, 1, SALT, before))
        self.assertFalse(wire.is_salt(SECRET, 1, before, before))
        # a key_id of 0, which would take 2^32 salts to find
        real = wire.derive
        wire.derive = lambda secret, label, job, salt: salt[-4:] if any(salt) else bytes([1] * 4)
        try:
            self.assertTrue(wire.is_salt(SECRET, 1, SALT))
            self.assertFalse(wire.is_salt(SECRET, 1, NONCE[:12] + bytes(4)))
        finally:
            wire.derive = real

    def test_refusals_for_strangers(self):
        refused = wire.welcome_payload(nonce=NONCE, welcome_flags=wire.REFUSED, refusal=1, parts=1,
                                       version_max=2)
        packet = SUM_KEYS.sealed(wire.build(refused, op=wire.WELCOME, job=1, rank=2))
        self.assertFalse(KEYS.is_genuine(packet, END))
        self.assertTrue(KEYS.is_last_resort(packet))
        self.assertFalse(SUM_KEYS.is_last_resort(packet))
        named = changed(packet, 4, bytes([0, 0, 0, 1]))
        named = changed(named, 8, struct.pack(">Q", wire.packet_sum(named)))
        for other in (named, changed(packet, 15, bytes([packet[15] ^ 1])),
                      SUM_KEYS.sealed(welcome_packet(BODY)),
                      SUM_KEYS.sealed(bare(wire.LEAVE, NONCE))):
            self.assertFalse(KEYS.is_last_resort(other))


class Requests(Case):
    def test_of_any_kind(self):
        self.all_refused(lut_add, JOB, (
            ("no number of words", {"payload": bytes(511)}),
            ("version 1", {"version": 1}), ("version 3", {"version": 3}),
            ("op 0", {"op": 0}), ("op 8", {"op": 8}), ("op 20", {"op": wire.CLOSE}),
            ("op 23", {"op": 23}),
            ("NOSUM", {"flags": 0x40}), ("request with flags", {"flags": wire.F_REPEAT}),
            ("request with flags", {"flags": wire.F_CE}),
            ("a bitmap", {"bitmap": 1}), ("rank 4 of 4", {"rank": 4}),
            ("rank 65535", {"rank": 65535}), ("width 4 without lanes", {"op": wire.STALE})))
        self.refused("47 bytes are no header", wire.Packet, lut_add(payload=b"")[:47], JOB)

    def test_width_picks_a_row(self):
        for width, size in ((4, 512), (2, 512), (16 + 4, 512), (8, 256)):
            p = wire.Packet(lut_add(width=width, payload=bytes(size)), JOB)
            self.assertEqual(p.width, width)
        for width in (0, 3, 9, 16 + 2, 32 + 4, 255):
            self.refused(f"no row for width {width}$", lambda w=width:
                         wire.Packet(lut_add(width=w), JOB))
        for width, size in ((4, 1024), (4, 16), (8, 512), (4, 504)):
            self.refused(f"op 1 with {size} bytes", lambda w=width, s=size:
                         wire.Packet(lut_add(width=w, payload=bytes(s)), JOB))

    def test_two_chunks_are_reserved(self):
        self.refused("op 1 with 1024 bytes", wire.Packet, lut_add(payload=bytes(1024)),
                     wire.Job(4, ROWS, wire.PAIRS))
        self.refused("features 0x4$", welcome, features=wire.PAIRS)

    def test_lengths_of_rows(self):
        # 1024 b / w bytes are a chunk of 8192 / w indices
        for wide in (4, 8, 16, 32):
            for bits in range(1, min(8, wide) + 1):
                job = wire.Job(1, {bits: wire.Row(bits, wide, 1, 1.0, [])})
                payload = wire.pack_indices([1] * (8192 // wide), bits)
                p = wire.Packet(lut_add(width=bits, rank=0, payload=payload), job)
                self.assertEqual(len(wire.unpack_indices(p.payload, bits)), 8192 // wide)
                self.refused("op 1 with", lambda: wire.Packet(
                    lut_add(width=bits, rank=0, payload=payload + bytes(8)), job))

    def test_neutral(self):
        zero = bytes(16)
        for make, op in ((lut_add, wire.ADD), (control, wire.OR), (control, wire.MAX),
                         (control, wire.CLAIM)):
            packet = make(op=op, width=32, payload=zero)
            self.assertEqual(wire.Packet(packet, JOB).payload, zero)
            self.refused("without NEUTRAL", wire.Packet, packet, wire.Job(4, ROWS))
            self.refused("not zero", wire.Packet, packet[:-1] + b"\1", JOB)
            for size in (0, 8, 24, 512, 1016):
                self.refused(f"op {op} with {size} bytes", lambda s=size:
                             wire.Packet(make(op=op, width=32, payload=bytes(s)), JOB))

    def test_lanes_of_requests(self):
        for width in (8, 16, 32):
            wire.Packet(lut_add(op=wire.ADD, width=width, payload=bytes(1024)), JOB)
        for op, width in ((wire.ADD, 4), (wire.ADD, 0), (wire.ADD, 24), (wire.ADD, 64)):
            self.refused(f"lanes of {width} bits with op {op}", lambda o=op, w=width:
                         wire.Packet(lut_add(op=o, width=w, payload=bytes(1024)), JOB))
        for op in (wire.OR, wire.MAX, wire.CLAIM):
            self.refused("lanes of 16 bits", lambda o=op: wire.Packet(
                control(op=o, width=16), JOB))

    def test_nodes(self):
        add = {"op": wire.ADD, "width": 8, "rank": 1, "count": 5, "payload": bytes(1024)}
        for fields in ({}, {"width": 4}, {"count": 1}, {"payload": bytes(16)}):
            wire.Packet(lut_add(**{**add, **fields}), TREE)
        widen = {"op": wire.WIDEN, "width": 16, "rank": 1, "count": 2, "payload": bytes(512)}
        for width in (8, 16, 32):
            wire.Packet(lut_add(**{**widen, "width": width}), TREE)
        for sentence, fields in (
                ("count 0 of rank 1", {**add, "count": 0}),
                ("6 workers of a node that has 5", {**add, "count": 6}),
                ("count 1 of rank 2", {**add, "rank": 2, "count": 1}),
                ("lanes of 4 bits", {**add, "rank": 2, "count": 0, "width": 4}),
                ("LUT_ADD of a node", {"rank": 1, "count": 5}),
                ("WIDEN of a worker", {**widen, "rank": 2, "count": 0}),
                ("sums of 4 bits", {**widen, "width": 4}), ("sums of 64 bits",
                                                            {**widen, "width": 64}),
                ("op 5 with 1024 bytes", {**widen, "payload": bytes(1024)}),
                ("op 5 with 16 bytes", {**widen, "payload": bytes(16)})):
            self.refused(sentence, lambda f=fields: wire.Packet(lut_add(**f), TREE))

    def test_streams_have_slots(self):
        self.assertEqual([op for op in wire.KIND if wire.is_data(op)],
                         [wire.LUT_ADD, wire.ADD, wire.WIDEN])
        wire.Packet(lut_add(chunk=13, generation=1), JOB)
        self.all_refused(lut_add, JOB, (
            ("op 1 in slot 8", {"slot": 8, "chunk": 0}), ("op 1 in slot 10", {"slot": 10}),
            ("chunk 5 in the place of 13", {"generation": 1}),
            ("chunk 6 in the place of 5", {"chunk": 6})))
        self.all_refused(control, JOB, (
            ("op 4 in slot 7", {"slot": 7}), ("op 4 in slot 10", {"slot": 10}),
            ("op 3 in slot 0", {"op": wire.OR, "slot": 0}),
            ("op 6 in slot 0", {"op": wire.CLAIM, "slot": 0}),
            ("chunk 9 in the place of 3", {"chunk": 9})))
        wire.Packet(lut_add(chunk=2**32 - 1, slot=7, generation=2**32 - 1), JOB)

    def test_claims_go_by_the_size_of_the_job(self):
        claims = [control(op=op) for op in (wire.CLAIM, wire.CLAIM_HIGH)]
        for n, sentences in ((32, (None, "CLAIM_HIGH of 32 workers")), (33, (None, None)),
                             (64, (None, None)), (65, ("claims of 65", "claims of 65"))):
            for packet, sentence in zip(claims, sentences):
                job = wire.Job(n, ROWS, ranks=4, tree=True)
                if sentence:
                    self.refused(sentence, wire.Packet, packet, job)
                else:
                    wire.Packet(packet, job)


class Answers(Case):
    def test_answers(self):
        wire.Packet(answer(rank=3, flags=wire.F_ANSWER | wire.F_REPEAT), JOB)
        wire.Packet(answer(flags=wire.F_ANSWER | wire.F_CE | wire.F_CLOSED), JOB)
        self.all_refused(answer, JOB, (
            ("flags 0x10 of an answer", {"flags": wire.F_ANSWER | wire.F_EPOCH}),
            ("flags 0x20 of an answer", {"flags": wire.F_ANSWER | wire.F_LEFT}),
            ("flags 0x80 of an answer", {"flags": wire.F_ANSWER | wire.F_KNOWN}),
            ("NOSUM", {"flags": wire.F_ANSWER | 0x40}),
            ("an answer with op 5", {"op": wire.WIDEN}),
            ("lanes of 0 bits", {"width": 0}), ("lanes of 20 bits", {"width": 20}),
            ("op 2 with 512 bytes", {"payload": bytes(512)}),
            ("op 2 with 16 bytes", {"payload": bytes(16)}),
            ("for all has rank 0", {"rank": 1}),
            ("rank 4 of 4", {"rank": 4, "flags": wire.F_ANSWER | wire.F_REPEAT}),
            ("answer of nobody", {"count": 0, "bitmap": 0}),
            ("place of 5", {"chunk": 7}), ("in slot 8", {"slot": 8})))
        for width in (4, 8, 16, 32):
            for op in (wire.LUT_ADD, wire.ADD):
                wire.Packet(answer(op=op, width=width), JOB)
        for op in (wire.OR, wire.MAX, wire.CLAIM):
            fields = {"op": op, "flags": wire.F_ANSWER, "rank": 0, "count": 1, "bitmap": 4}
            wire.Packet(control(**fields), JOB)
            self.refused("answer's lanes of 8 bits", lambda f=fields:
                         wire.Packet(control(**f, width=8), JOB))

    def test_count_and_bitmap(self):
        for make in (answer, lambda **f: wait(wire.NOBODY, 0, **f),
                     lambda **f: bare(wire.STALE, flags=wire.F_KNOWN, **f)):
            for sentence, job, fields in (
                    ("3 bits, count 4", JOB, {"count": 4, "bitmap": 0b111}),
                    ("3 children of 2", JOB, {"count": 2, "bitmap": 0b111}),
                    ("0 bits, count 2", JOB, {"count": 2, "bitmap": 0}),
                    ("bitmap of 4", JOB, {"count": 1, "bitmap": 0b10000}),
                    ("5 of 4 workers", JOB, {"count": 5, "bitmap": 0b1111}),
                    ("9 of 8 workers", TREE, {"count": 9, "bitmap": 0b1111}),
                    ("4 children of 3", TREE, {"count": 3, "bitmap": 0b1111}),
                    ("bitmap of 4", TREE, {"count": 5, "bitmap": 0b10000})):
                self.refused(sentence, lambda f=fields, j=job: wire.Packet(make(**f), j))
            for fields in ({"count": 8, "bitmap": 0b1111}, {"count": 8, "bitmap": 0},
                           {"count": 4, "bitmap": 0b1111}):
                wire.Packet(make(**fields), TREE)

    def test_wait(self):
        bare_wait = bare(wire.WAIT, count=2, bitmap=0b11)
        p = wire.Packet(bare_wait, JOB)
        self.assertEqual((p.missing, p.how_many, p.depth), (wire.NOBODY, 0, 0))
        self.refused("5 of 4 workers", wire.Packet, bare(wire.WAIT, count=5, bitmap=0b11), JOB)
        for packet in (wait(wire.NOBODY, 0), wait(2, 2), wait(0, 4), wait(2, 1, flags=wire.F_LEFT),
                       wait(wire.NOBODY, 0, flags=wire.F_DIFFERS), wait(2, 1, flags=wire.F_CE)):
            p = wire.Packet(packet, JOB)
            self.assertEqual(struct.pack(">HHH", p.missing, p.how_many, p.depth), p.payload[:6])
        wire.Packet(wait(7, 1, 2), TREE)
        for sentence, packet in (
                ("with 8 bytes", bare_wait + bytes(8)), ("with 24 bytes", bare_wait + bytes(24)),
                ("reserved bytes of WAIT", wait(2, 1, rest=bytes(9) + b"\1")),
                ("reserved bytes of WAIT", wait(2, 1, rest=b"\1" + bytes(9))),
                ("nobody is missing, and", wait(wire.NOBODY, 1)),
                ("nobody is missing, and", wait(wire.NOBODY, 0, 1)),
                ("DIFFERS names nobody", wait(2, 1, flags=wire.F_DIFFERS)),
                ("worker 4 of 4", wait(4, 1)), ("0 workers of 4 are", wait(2, 0)),
                ("5 workers of 4 are", wait(2, 5)),
                ("without nodes", wait(2, 1, 1)), ("rank 4 of 4", wait(2, 1, rank=4)),
                ("flags 0x10 with op 18", wait(2, 1, flags=wire.F_EPOCH)),
                ("flags 0x2 with op 18", wait(2, 1, flags=wire.F_REPEAT)),
                ("flags 0x80 with op 18", wait(2, 1, flags=wire.F_KNOWN)),
                ("width 8 without", wait(2, 1, width=8))):
            self.refused(sentence, wire.Packet, packet, JOB)

    def test_stale(self):
        wire.Packet(bare(wire.STALE), JOB)
        wire.Packet(bare(wire.STALE, flags=wire.F_KNOWN, count=2, bitmap=5), JOB)
        for rank in (0, 3, wire.NOBODY):
            wire.Packet(bare(wire.STALE, flags=wire.F_EPOCH, rank=rank, bitmap=8), JOB)
        wire.Packet(bare(wire.STALE, flags=wire.F_EPOCH, rank=7), TREE)
        for sentence, fields in (
                ("with 8 bytes", {"payload": bytes(8)}), ("not KNOWN", {"count": 1, "bitmap": 1}),
                ("not KNOWN", {"bitmap": 1}), ("rank 4 of 4", {"rank": 4}),
                ("EPOCH and KNOWN", {"flags": wire.F_EPOCH | wire.F_KNOWN}),
                ("count of STALE", {"flags": wire.F_EPOCH, "count": 1, "bitmap": 1}),
                ("bitmap of 4", {"flags": wire.F_EPOCH, "bitmap": 16}),
                ("worker 4 of 4", {"flags": wire.F_EPOCH, "rank": 4}),
                ("worker 255 of 4", {"flags": wire.F_EPOCH, "rank": 255}),
                ("flags 0x4 with op 19", {"flags": wire.F_CE}),
                ("flags 0x20 with op 19", {"flags": wire.F_LEFT})):
            self.refused(sentence, lambda f=fields: wire.Packet(bare(wire.STALE, **f), JOB))


class Sums(Case):
    """The contributions to a generation, and its answer."""

    def request(self, job=JOB, make=lut_add, **fields):
        return wire.Packet(make(**fields), job)

    def test_streams_of_bits(self):
        draw = random.Random(3)
        for bits in range(1, 9):
            indices = [draw.randrange(1 << bits) for _ in range(1024)]
            packed = wire.pack_indices(indices, bits)
            self.assertEqual((len(packed), wire.unpack_indices(packed, bits)),
                             (128 * bits, indices))
        self.assertEqual(wire.pack_indices([1, 2] * 4, 4), bytes([0x12] * 4))
        self.assertEqual(wire.unpack_indices(bytes([0b10011100, 0, 0]), 3),
                         [4, 7, 0, 0, 0, 0, 0, 0])

    def test_lanes(self):
        draw = random.Random(4)
        for bits in (4, 8, 16, 32):
            lanes = [draw.randrange(1 << bits) for _ in range(8192 // bits)]
            payload = wire.pack_lanes(lanes, bits)
            self.assertEqual(wire.unpack_lanes(payload, bits), lanes)
            for i in (0, 1, 15, 16, 17, len(lanes) - 1):
                word = struct.unpack_from("<Q", payload, i * bits // 64 * 8)[0]
                self.assertEqual(lanes[i], word >> i * bits % 64 & (1 << bits) - 1)
        # bits 4 (i mod 16) and up of word i div 16
        self.assertEqual(wire.unpack_lanes(bytes([0x21, 0x43] + [0] * 6), 4)[:5], [1, 2, 3, 4, 0])

    def test_sums(self):
        generation = wire.Generation(TREE)
        generation.add(self.request(TREE, rank=0, payload=bytes([0x12] * 512)))
        node = wire.pack_lanes([200] * 1024, 8)
        generation.add(self.request(TREE, op=wire.ADD, width=8, rank=1, count=4, payload=node))
        widened = wire.pack_lanes([15] * 1024, 4)
        again = self.request(wire.Job(8, ROWS, ranks=4, nodes={2: 2}), op=wire.WIDEN, width=8,
                             rank=2, count=2, payload=widened)
        generation.add(again)
        generation.add(again)
        generation.add(self.request(TREE, op=wire.ADD, width=8, rank=3, payload=bytes(16)))
        p = wire.Packet(generation.answer(), TREE)
        self.assertEqual((p.op, p.width, p.count, p.bitmap, p.rank),
                         (wire.LUT_ADD, 8, 8, 0b1111, 0))
        self.assertEqual((p.round, p.chunk, p.slot, p.generation), (3, 5, 5, 0))
        self.assertEqual(wire.unpack_lanes(p.payload, 8), [(1 + 200 + 15) % 256,
                                                           (2 + 200 + 15) % 256] * 512)

    def test_answers_have_the_first_op(self):
        payload = {wire.LUT_ADD: bytes(512), wire.ADD: bytes(1024), wire.WIDEN: bytes(512)}
        of = {wire.LUT_ADD: (0, 4), wire.ADD: (2, 8), wire.WIDEN: (1, 8)}
        for op, want in ((wire.LUT_ADD, wire.LUT_ADD), (wire.ADD, wire.ADD),
                         (wire.WIDEN, wire.ADD)):
            generation = wire.Generation(TREE)
            for other in sorted(of, key=lambda o, first=op: o != first):
                rank, width = of[other]
                generation.add(self.request(TREE, op=other, rank=rank, width=width,
                                            count=5 if rank == 1 else 0, payload=payload[other]))
            self.assertEqual(wire.Packet(generation.answer(), TREE).op, want)

    def test_lanes_wrap(self):
        generation = wire.Generation(JOB)
        for rank in (0, 1):
            generation.add(self.request(op=wire.ADD, width=16, rank=rank,
                                        payload=wire.pack_lanes([0xC000] * 512, 16)))
        self.assertEqual(wire.unpack_lanes(generation.answer()[48:], 16), [0x8000] * 512)

    def test_or_and_max(self):
        for op, want in ((wire.OR, 7), (wire.MAX, 6)):
            generation = wire.Generation(JOB)
            for rank, lane in ((0, 5), (1, 6)):
                generation.add(self.request(make=control, op=op, rank=rank,
                                            payload=wire.pack_lanes([lane] * 256, 32)))
            p = wire.Packet(generation.answer(), JOB)
            self.assertEqual((p.op, p.width, p.count), (op, 32, 2))
            self.assertEqual(wire.unpack_lanes(p.payload, 32), [want] * 256)

    def test_what_may_not_meet(self):
        lut = {"rank": 0}
        add = {"op": wire.ADD, "payload": bytes(1024)}
        for first, others, sentence, second in (
                (lut, (), "rounds 4, 3", {"round": 4}),
                (lut, (), "sums of 16 and 8 bits", {**add, "width": 16}),
                (lut, (), "sums of 4 and 8 bits", {"width": 2}),
                (lut, (), "rows 20, 4", {"width": 20}),
                ({**add, "width": 8, "rank": 0}, ({"rank": 1},), "rows 20, 4", {"width": 20})):
            generation = wire.Generation(JOB)
            for fields in (first, *others):
                generation.add(self.request(**fields))
            self.refused(sentence, lambda s=second: generation.add(self.request(**s)))
            self.assertEqual(generation.count, 1 + len(others))
        for first in (wire.OR, wire.MAX, wire.CLAIM):
            for second in (wire.OR, wire.MAX, wire.CLAIM):
                generation = wire.Generation(JOB)
                generation.add(self.request(make=control, op=first, rank=0))
                other = self.request(make=control, op=second, payload=bytes(16))
                if first == second:
                    generation.add(other)
                else:
                    self.refused(f"op {second} meets op {first}", generation.add, other)
        self.assertEqual(wire.KIND[wire.CLAIM_HIGH], wire.CLAIM_HIGH)

    def test_claims_are_the_workers_own(self):
        job = wire.Job(64)
        for op, worker, own in ((wire.CLAIM, 0, 0), (wire.CLAIM, 31, 248), (wire.CLAIM, 32, None),
                                (wire.CLAIM_HIGH, 32, 0), (wire.CLAIM_HIGH, 63, 248),
                                (wire.CLAIM_HIGH, 31, None)):
            generation = wire.Generation(job)
            generation.add(self.request(job, control, op=op, rank=worker,
                                        payload=wire.pack_lanes([7] * 256, 32)))
            lanes = wire.unpack_lanes(generation.answer()[48:], 32)
            want = [] if own is None else list(range(own, own + 8))
            self.assertEqual([i for i, lane in enumerate(lanes) if lane], want)
            self.assertEqual(generation.count, 1)

    def test_claims_below_nodes(self):
        full = wire.pack_lanes([7] * 256, 32)
        generation = wire.Generation(TREE)
        generation.add(self.request(TREE, control, op=wire.CLAIM, rank=2, payload=full))
        lanes = wire.unpack_lanes(generation.answer()[48:], 32)
        # rank 2 is worker 6
        self.assertEqual([i for i, lane in enumerate(lanes) if lane], list(range(48, 56)))
        generation.add(self.request(TREE, control, op=wire.CLAIM, rank=1, count=5, payload=full))
        self.assertEqual(generation.answer()[48:], full)
        self.assertEqual(generation.count, 6)


class Agreement(Case):
    def claims(self, **more):
        return {worker: wire.claim(5 * 2**32 + 7, 2, 9, 0x1234, 0xA000000B, **more)
                for worker in (0, 31, 32, 63)}

    def test_lanes(self):
        fields = wire.claim(5 * 2**32 + 7, 2, 9, 0x1234, 3 << 32 | 5, call=77, digest=88, status=1)
        self.assertEqual(fields, [7, 3 | 9 << 8 | 5 << 16, 0x1234, 6, 77, 88, 0, 1])
        missed = wire.claim(1, 0, 0, 0, 0, digest=88, missed=2)
        self.assertEqual(missed[5:7], [0, 2])
        self.assertEqual(wire.call_of(16, 64, 2), 0x690)
        self.assertEqual(wire.call_of(levels=1, row=300), 300 << 12 | 0x40)
        self.assertEqual(wire.call_of(), 0)

    def test_where_claims_are(self):
        job = wire.Job(64)
        claims = self.claims()
        for op, workers in ((wire.CLAIM, [0, 31]), (wire.CLAIM_HIGH, [32, 63])):
            generation = wire.Generation(job)
            for worker, fields in claims.items():
                its_op, payload = wire.claim_packet(fields, worker)
                generation.add(wire.Packet(control(op=op, rank=worker, payload=payload), job))
                self.assertEqual(its_op == op, worker in workers)
            found = wire.claims_of(op, wire.unpack_lanes(generation.answer()[48:], 32))
            self.assertEqual(found, {worker: claims[worker] for worker in workers})

    def both(self, claims):
        """The disagreements in CLAIM, and in the MAX of jobs with more than 64 workers."""
        lanes = [0] * 256
        for fields in claims:
            one = wire.unpack_lanes(wire.agreement_packet(fields), 32)
            self.assertEqual(one[16:], [0] * 240)
            lanes = [max(a, b) for a, b in zip(lanes, one)]
        return wire.disagreement(claims), wire.disagreement_of_many(lanes)

    def test_who_differs(self):
        base = [7, 3, 4, 5, 6, 99, 0, 0]
        for field, value, want in ((0, 8, {0}), (1, 2, {1}), (2, 2**32 - 1, {2}), (3, 0, {3}),
                                   (4, 7, {4}), (5, 98, {5}), (7, 1, {7})):
            other = list(base)
            other[field] = value
            self.assertEqual(self.both([base, base, other]), (want, want))
        self.assertEqual(self.both([base] * 3), (set(), set()))

    def test_digests_of_those_that_missed_nothing(self):
        base, missed = [7, 3, 4, 5, 6, 99, 0, 0], [7, 3, 4, 5, 6, 0, 2, 0]
        self.assertEqual(self.both([base, missed, base]), (set(), set()))
        self.assertEqual(self.both([missed, missed]), (set(), set()))
        other = [7, 3, 4, 5, 6, 98, 0, 0]
        self.assertEqual(self.both([base, missed, other]), ({5}, {5}))
        self.assertEqual(wire.agreement_packet(missed)[4 * 5:4 * 6], bytes(4))
        self.assertEqual(wire.agreement_packet(missed)[4 * 13:4 * 14], bytes(4))
        # before round 2 all digests are 0, and nobody has missed anything
        first = [7, 3, 4, 5, 6, 0, 0, 0]
        self.assertEqual(self.both([first] * 4), (set(), set()))

    def test_both_ways_find_the_same(self):
        draw = random.Random(5)
        for _ in range(300):
            claims = [wire.claim(draw.choice((7, 7, 7, 8)), 2, 0, 1, 1, status=0,
                                 digest=draw.choice((1, 1, 1, 2)), missed=draw.choice((0, 0, 3)))
                      for _ in range(draw.randrange(1, 6))]
            self.assertEqual(*self.both(claims))


class Digest(Case):
    def setUp(self):
        self.key = KEYS.key(wire.DOWN)
        draw = random.Random(6)
        self.lanes = draw.randbytes(1024)

    def packet(self, job=JOB, make=answer, **fields):
        return wire.Packet(make(**{"payload": self.lanes, **fields}), job)

    def test_is_siphash_of_24_bytes(self):
        p = self.packet()
        h = wire.nh(self.key[16:], self.lanes)
        said = struct.pack(">IHHQ", 5, 5, 3, 0b1011) + struct.pack("<Q", h)
        self.assertEqual(len(said), 24)
        self.assertEqual(wire.answer_digest(p, self.key),
                         wire.siphash(self.key[:16], said) >> 32)

    def test_without_a_key(self):
        a = b = 0
        for i in range(0, 1024, 8):
            word = int.from_bytes(self.lanes[i:i + 8], "little")
            a = (a + (word ^ word >> 32)) % 2**64
            b = (b + a) % 2**64
        z = (a ^ a >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        h = ((z ^ z >> 31) + b) % 2**64
        said = struct.pack(">IHHQ", 5, 5, 3, 0b1011) + struct.pack("<Q", h)
        self.assertEqual(wire.answer_digest(self.packet()), wire.siphash(bytes(16), said) >> 32)

    def test_is_what_workers_find(self):
        """test_worker_host.c, which shares no code with the decoder, has these numbers, too."""
        p = types.SimpleNamespace(chunk=0x01020304, slot=0x0506, count=0x0708,
                                  bitmap=0x1112131415161718,
                                  payload=bytes((7 * i + 3) % 256 for i in range(1024)))
        key = wire.derive(SECRET, wire.DOWN, 7, bytes([3] * 16))
        with open(os.path.join(HERE, "test_worker_host.c"), encoding="ascii") as f:
            known = dict(re.findall(r"^#define DIGEST_(\w+)\t0x(\w+)$", f.read(), re.M))
        self.assertEqual({"NH": f"{wire.answer_digest(p, key):08x}",
                          "SUM": f"{wire.answer_digest(p):08x}"}, known)

    def test_what_changes_it(self):
        for key in (None, self.key):
            one = wire.answer_digest(self.packet(), key)
            for fields in ({"chunk": 13, "generation": 1}, {"slot": 6, "chunk": 6},
                           {"bitmap": 0b111}, {"count": 2, "bitmap": 0b11},
                           {"payload": bytes([self.lanes[0] ^ 1]) + self.lanes[1:]}):
                self.assertNotEqual(one, wire.answer_digest(self.packet(**fields), key))
            # the receiver and the REPEAT flag do not change the digest
            again = self.packet(flags=wire.F_ANSWER | wire.F_REPEAT, rank=2)
            self.assertEqual(one, wire.answer_digest(again, key))

    def test_with_nodes(self):
        salt = bytes([9] * 16)
        key = wire.Keys(1, wire.SEAL_NH, SALT, SECRET, 5, salt).key(wire.DIGEST)
        self.assertEqual(key, wire.derive(SECRET, wire.DIGEST, 1, salt))
        here, there = (self.packet(TREE, count=6, bitmap=bits) for bits in (0b1011, 0))
        self.assertEqual(wire.answer_digest(here, key, True), wire.answer_digest(there, key, True))
        self.assertNotEqual(wire.answer_digest(here, key), wire.answer_digest(there, key))

    def test_of_a_round(self):
        answers = [self.packet(), self.packet(chunk=6, slot=6),
                   self.packet(make=control, flags=wire.F_ANSWER, rank=0, count=1, bitmap=1)]
        claim = self.packet(make=control, op=wire.CLAIM, flags=wire.F_ANSWER, rank=0, count=1,
                            bitmap=1)
        high = wire.Packet(control(op=wire.CLAIM_HIGH, flags=wire.F_ANSWER, rank=0, count=1,
                                   bitmap=1), wire.Job(40))
        want = sum(wire.answer_digest(p, self.key) for p in answers) % 2**32
        self.assertEqual(wire.round_digest(answers, self.key), want)
        self.assertEqual(wire.round_digest([claim, *answers[::-1], high], self.key), want)
        self.assertNotEqual(wire.round_digest(answers[:2], self.key), want)
        self.assertEqual(wire.round_digest([], self.key), 0)


class Control(Case):
    def test_join(self):
        for more in ({}, {"join_flags": wire.HEARD, "challenge": SALT}, {"offers": 0xFFFFFFFF},
                     {"challenge": SALT}, {"version_max": 3},
                     {"join_flags": wire.NODE, "workers": 5, "restarted": 32766},
                     {"join_flags": wire.NODE, "workers": 32767}):
            wire.Packet(join(**more))
        self.assertEqual(wire.offers([wire.SEAL_NONE, wire.SEAL_NH], wire.QUORUM_AT_ONCE),
                         1 | 1 << 2 | 1 << 20)
        for sentence, more in (
                ("unknown flags of JOIN", {"join_flags": 4}),
                ("unknown flags of JOIN", {"join_flags": 1 << 31}),
                ("HEARD without a salt", {"join_flags": wire.HEARD}),
                ("workers are a node's", {"workers": 1}),
                ("workers are a node's", {"join_flags": wire.NODE}),
                ("32768 workers below", {"join_flags": wire.NODE, "workers": 32768}),
                ("reserved byte of JOIN", {"reserved": 1}),
                ("reserved bytes of JOIN", {"reserved2": b"\1" + bytes(17)}),
                ("reserved bytes of JOIN", {"reserved2": bytes(17) + b"\1"}),
                ("who restarted", {"restarted": 0}),
                ("worker 32767 has restarted", {"join_flags": wire.NODE, "workers": 5,
                                                "restarted": 32767})):
            self.refused(sentence, lambda m=more: wire.Packet(join(**m)))
        self.refused("JOIN without a nonce", wire.Packet,
                     wire.build_join(KEYS, 2, END, bytes(16)))
        self.refused("op 16 with 56 bytes", wire.Packet, join()[:-8])
        self.refused("op 16 with 72 bytes", wire.Packet, join() + bytes(8))

    def test_leave_and_challenge(self):
        leave = {"op": wire.LEAVE, "job": 1, "rank": 2, "epoch": 7, "payload": NONCE}
        challenge = {"op": wire.CHALLENGE, "job": 1, "rank": 70, "payload": NONCE + SALT}
        self.assertEqual(wire.Packet(wire.build(**leave)).nonce, NONCE)
        p = wire.Packet(wire.build(**challenge))
        self.assertEqual((p.nonce, p.challenge), (NONCE, SALT))
        # CHALLENGE is shorter than JOIN, so it is useless for amplification
        self.assertLess(len(p.payload), 64)
        for sentence, fields in (
                ("op 21 with 8 bytes", {**leave, "payload": NONCE[:8]}),
                ("op 21 with 0 bytes", {**leave, "payload": b""}),
                ("rank 64 leaves", {**leave, "rank": 64}),
                ("LEAVE without a nonce", {**leave, "payload": bytes(16)}),
                ("op 22 with 64 bytes", {**challenge, "payload": bytes(64)}),
                ("CHALLENGE without a nonce", {**challenge, "payload": bytes(16) + SALT}),
                ("CHALLENGE with an epoch", {**challenge, "epoch": 1})):
            self.refused(sentence, lambda f=fields: wire.Packet(wire.build(**f)))

    def test_about_no_chunk(self):
        refused = wire.welcome_payload(nonce=NONCE, welcome_flags=wire.REFUSED, refusal=1, parts=1)
        for op, payload in ((wire.JOIN, join()[48:]), (wire.LEAVE, NONCE),
                            (wire.CHALLENGE, NONCE + SALT), (wire.WELCOME, refused)):
            wire.Packet(wire.build(payload, op=op))
            for name in ("round", "chunk", "slot", "count", "generation", "bitmap"):
                self.refused(f"{name} of a packet about no chunk", lambda o=op, p=payload, n=name:
                             wire.Packet(wire.build(p, op=o, **{n: 1})))
            self.refused("width 8 without", wire.Packet, wire.build(payload, op=op, width=8))
            for flag in (1, 2, 4, 8, 16, 32, 128):
                self.refused(f"flags {flag:#x} with op {op}", lambda o=op, p=payload, f=flag:
                             wire.Packet(wire.build(p, op=o, flags=f)))

    def test_epoch_of_a_join(self):
        self.assertEqual(wire.believed_epoch(1000, 1000 + 2**16 - 1), 1000 + 2**16 - 1)
        self.assertEqual(wire.believed_epoch(1000, 1000 + 2**16), 1000)
        self.assertEqual(wire.believed_epoch(1000, 5), 1000)


class Welcomes(Case):
    def test_fields(self):
        cases = (
            ("unknown flags of WELCOME", {"welcome_flags": 8}),
            ("unknown flags of WELCOME", {"welcome_flags": 16}),
            ("unknown flags of WELCOME", {"welcome_flags": 64}),
            ("reserved byte of WELCOME", {"reserved": 1}),
            ("part 0 of 0", {"parts": 0}), ("part 0 of 17", {"parts": 17}),
            ("part 2 of 2", {"parts": 2, "part": 2}),
            ("refusal without", {"refusal": 1}), ("reply 0", {"reply": 0}),
            ("reply 3", {"reply": 3}), ("shard 0 of 0", {"shards": 0}),
            ("shard 0 of 65", {"shards": 65}), ("shard 2 of 2", {"shard": 2, "shards": 2}),
            ("0 ranks", {"ranks": 0}), ("65 ranks", {"ranks": 65}),
            ("WELCOME of rank 4", {"rank": 4}), ("more than 4", {"joined": 16}),
            ("quorum 0", {"quorum": 0}), ("quorum 5 of 4", {"quorum": 5}),
            ("features 0x8$", {"features": 8}), ("features 0x20$", {"features": 33}),
            ("features 0x4$", {"features": 4}))
        self.all_refused(lambda **f: welcome_packet(BODY, **f), None, cases)
        for flags in (wire.READY, wire.ONE_PORT, wire.NOGSO):
            wire.Packet(welcome_packet(BODY, welcome_flags=flags, joined=15, features=19))
        self.refused("WELCOME of 56 bytes", wire.Packet, wire.build(bytes(56), op=wire.WELCOME))
        self.refused("WELCOME of 1032 bytes", wire.Packet, welcome_packet(
            [wire.record(99, bytes(1032 - 64 - 24 - 4))]))
        wire.Packet(welcome_packet([wire.record(99, bytes(1024 - 64 - 24 - 4))]))

    def test_seal_in_each_part(self):
        self.refused("0 records SEAL", wire.Packet, welcome_packet(BODY, seal=[]))
        self.refused("2 records SEAL", wire.Packet, welcome_packet(BODY, seal=[seal_record()] * 2))
        self.refused("reserved bytes of SEAL", wire.Packet,
                     welcome_packet(BODY, seal=[seal_record(zero=b"\0\0\1")]))
        self.refused("record 1 of 19 bytes", wire.Packet,
                     welcome_packet(BODY, seal=[seal_record(salt=SALT[:15])]))
        for seal in (wire.SEAL_NH2, wire.SEAL_RANKS, 5):
            self.refused(f"seal {seal}$", lambda s=seal: wire.Packet(
                welcome_packet(BODY, seal=[seal_record(seal=s)])))
        for seal in (wire.SEAL_NONE, wire.SEAL_SUM):
            p = wire.Packet(welcome_packet(BODY, seal=[seal_record(seal=seal, more=b"later")]))
            self.assertEqual((p.seal, p.salt), (seal, SALT))

    def test_records(self):
        w = welcome(*BODY, shards_record(0, 2), node_record(), wire.record(99, b"later"), shards=2)
        self.assertEqual((w.seal, w.salt, w.epoch, w.unknown), (wire.SEAL_NH, SALT, 7, [99]))
        self.assertEqual(w.group, (GROUP_ADDRESS, 18500))
        self.assertEqual(w.at, {i: (AGGREGATOR_ADDRESS, 18500 + i) for i in (0, 1)})
        self.assertEqual(list(w.schemes), [1])
        self.assertEqual([w.node[name] for name in ("first", "n", "number", "depth", "ring")],
                         [6, 8, 3, 1, 0])
        self.assertEqual(w.node["salt"], bytes([9] * 16))
        for sentence, records in (
                ("record 99 is unknown", [wire.record(99, b"", wire.KNOW)]),
                ("record 99 is unknown", [wire.record(99, b"", wire.KNOW | wire.CONSTANT)]),
                ("record 99 has unknown flags", [wire.record(99, b"", 4)]),
                ("record 3 has unknown flags", [wire.record(3, b"", 0x83)]),
                ("record 3 with flags 1", [wire.record(3, b"", wire.KNOW)]),
                ("record 6 with flags 3", [wire.record(6, b"", wire.KNOW | wire.CONSTANT)]),
                ("record 2 with flags 0", [wire.record(2, b"", 0)]),
                ("record 3 is cut", [row_record()[:16]]),
                ("record 99 is cut", [wire.record(99, bytes(20))[:16]]),
                ("not padded with zeros", [wire.record(99, b"later")[:-1] + b"\1"])):
            self.refused(sentence, lambda r=records: wire.Welcome([wire.Packet(
                welcome_packet([*BODY, *r]))]))

    def test_constants(self):
        raw = scheme_record() + row_record() + struct.pack(">QI", 99, 16)
        said = welcome(*BODY, features=16).constants
        self.assertEqual(said, wire.fnv1a(raw))
        # unknown CONSTANT records count, in the order of parts, but no other unknown records
        more = wire.record(98, b"later", wire.CONSTANT)
        parts = whole([[more, *BODY[1:]], [scheme_record(), wire.record(99, b"x")]])
        self.assertEqual(wire.Welcome(parts[::-1]).constants, wire.fnv1a(
            more + row_record() + scheme_record() + struct.pack(">QI", 99, 0)))
        self.assertEqual(welcome().constants, welcome(*BODY, node_record(n=7)).constants)
        for constants in (0, wire.fnv1a(raw) ^ 1):
            self.refused("constants are not", lambda c=constants: welcome(constants=c, features=16))
        self.refused("constants are not", welcome, *BODY, constants=said)

    def test_longer_records(self):
        w = welcome(scheme_record(more=b"more"), group_record(), row_record(more=b"more" * 3),
                    node_record(more=b"m"), wire.record(wire.RECORD_SHARDS, struct.pack(
                        ">HH", 0, 2) + 2 * place(address=AGGREGATOR_ADDRESS) + b"more"), shards=2)
        self.assertEqual((len(w.rows[4].levels), w.schemes[1]["grain"], len(w.at), w.n),
                         (16, 3, 2, 8))
        for sentence, kind, size in (("record 2 of 19", 2, 19), ("record 3 of 11", 3, 11),
                                     ("record 4 of 3", 4, 3), ("record 5 of 19", 5, 19),
                                     ("record 6 of 31", 6, 31), ("record 7 of 11", 7, 11)):
            self.refused(sentence + " bytes", lambda k=kind, s=size: welcome(
                wire.record(k, bytes(s))))
        self.refused("record 3 of 42 bytes", welcome, *BODY[:2], row_record(levels=[3] * 15))
        self.refused("record 4 of 44 bytes", welcome, *BODY, shards_record(0, 2, said=3), shards=3)

    def test_rows(self):
        w = welcome(*BODY[:2], row_record(4, 8), row_record(2, 4), row_record(16 + 4, 16))
        self.assertEqual({width: row.sum_width for width, row in w.rows.items()},
                         {4: 8, 2: 4, 20: 16})
        self.assertEqual((w.rows[4].granularity, w.rows[4].clamp), (3, 2.5))
        for sentence, record in (
                ("row of 0 bits", row_record(16)),
                ("row of 9 bits", row_record(9, 16, levels=[3] * 16)),
                ("sums of 12 bits", row_record(4, 12)),
                ("row of 5 bits with sums of 4", row_record(5, 4)),
                ("levels up to 3, g is 2", row_record(g=2)),
                ("levels up to 3, g is 4", row_record(g=4)),
                ("4 workers overflow 4 bits", row_record(2, 4, 4, [0, 1, 2, 4])),
                ("4 workers overflow 8 bits", row_record(4, 8, 64, [64] * 16))):
            self.refused(sentence, welcome, *BODY[:2], record)
        welcome(*BODY[:2], row_record(4, 8, 63, [63] * 16))
        self.refused("two rows of width 4", welcome, *BODY, row_record(4, 16))
        self.refused("without a row", welcome, *BODY[:2])
        # n workers, not the number of children
        self.refused("8 workers overflow 4 bits", welcome, *BODY[:2], row_record(2, 4),
                     node_record())

    def test_rates(self):
        own = scheme_record(0)
        for rate, error in ((4000, 0), (0, 1000)):
            w = welcome(own, *BODY[1:], rate_record(rate, error, more=b"later"))
            self.assertEqual((w.rate, w.error, w.rate_is_tried), (rate, error, False))
        self.assertTrue(welcome(own, *BODY[1:], rate_record(flags=1)).rate_is_tried)
        self.assertIsNone(welcome().rate)
        for sentence, records in (
                ("two records RATE", [own, rate_record(), rate_record()]),
                ("a rate and an error", [own, rate_record(4000, 1)]),
                ("or neither", [own, rate_record(0)]),
                ("reserved flags of RATE", [own, rate_record(flags=2)]),
                ("needs scheme thc", [scheme_record(1), rate_record()]),
                ("needs scheme thc", [scheme_record(2), own, rate_record()]),
                ("blocks of 1024", [wire.record(wire.RECORD_SCHEME, bytes([0, 11]) + bytes(18)),
                                    rate_record()])):
            self.refused(sentence, welcome, *records, *BODY[1:])

    def test_schemes(self):
        w = welcome(scheme_record(3), scheme_record(1), *BODY[1:])
        self.assertEqual(list(w.schemes), [3, 1])
        self.refused("two records of scheme 1", welcome, *BODY, scheme_record())
        self.refused("reserved bytes of SCHEME", welcome, *BODY, scheme_record(2, zero=1))
        self.refused("without a scheme", welcome, *BODY[1:])

    def test_groups(self):
        six = bytes([255, 0x15]) + bytes(14)
        self.assertEqual(welcome(BODY[0], group_record(1024, six, 6), BODY[2]).group,
                         (six, 1024))
        welcome(BODY[0], BODY[2], reply=wire.FANOUT)
        self.refused("multicast without a group", welcome, BODY[0], BODY[2])
        self.refused("two records GROUP", welcome, *BODY, group_record())
        for sentence, fields in (
                ("port 1023", {"port": 1023}), ("family 5", {"family": 5}),
                ("reserved byte of an address", {"zero": 1}),
                ("behind an IPv4", {"address": GROUP_ADDRESS + b"\1"}),
                ("no multicast", {"address": bytes([192, 0, 2, 1])}),
                ("no multicast", {"address": bytes([240, 0, 2, 1])}),
                ("no multicast", {"address": bytes([223, 0, 2, 1])}),
                ("no multicast", {"address": bytes([254] * 16), "family": 6})):
            self.refused(sentence, lambda f=fields: welcome(BODY[0], group_record(**f)))

    def test_nodes(self):
        job = welcome(*BODY, node_record(missing=2, how_many=3)).job()
        self.assertEqual((job.n, job.ranks, job.tree, job.numbers), (8, 4, True, {2: 6}))
        job = welcome().job()
        self.assertEqual((job.n, job.ranks, job.tree, job.numbers), (4, 4, False, {2: 2}))
        self.refused("two records NODE", welcome, *BODY, node_record(), node_record())
        for sentence, fields in (
                ("0 workers", {"n": 0, "first": 0}), ("32768 workers", {"n": 32768}),
                ("worker 8 of 8", {"first": 8}), ("reserved bytes of NODE", {"zero": 1}),
                ("1 workers are missing, the first one is 65535", {"how_many": 1}),
                ("0 workers are missing, the first one is 3", {"missing": 3}),
                ("worker 6 is missing, of 8", {"missing": 6, "how_many": 3})):
            self.refused(sentence, lambda f=fields: welcome(*BODY, node_record(**f)))

    def test_parts(self):
        lists = [[scheme_record()], [group_record()], [row_record()]]
        parts = whole(lists)
        self.assertEqual(len(wire.Welcome(parts[::-1]).rows), 1)
        self.refused("a part is missing", wire.Welcome, parts[:2])
        self.refused("a part is missing", wire.Welcome, [*parts, parts[0]])
        for fields in ({"seed": 98}, {"epoch": 8}, {"joined": 1}, {"control_slots": 3}):
            other = whole(lists, **{"constants": parts[0].constants, **fields})
            self.refused("different WELCOMEs", wire.Welcome, [other[0], *parts[1:]])
        other = whole(lists, seal=[seal_record(salt=NONCE)])
        self.refused("parts with different seals", wire.Welcome, [other[0], *parts[1:]])
        welcome_of_16 = whole([*lists, *[[]] * 13])
        self.assertEqual(wire.Welcome(welcome_of_16).parts, 16)

    def test_parts_are_taken_in_their_order(self):
        lists = [[BODY[0]], [BODY[1]], [BODY[2]]]
        old, new = whole(lists), whole(lists, joined=3)
        collected = wire.Parts(NONCE)
        for p in (old[1], old[2], old[0], old[2], old[0]):
            self.assertIsNone(collected.add(p))
        self.assertIsNone(collected.add(old[1]))
        self.assertEqual(collected.add(old[2]).joined, 0)
        # a complete WELCOME is complete again with its first part, until another WELCOME begins
        self.assertEqual(collected.add(old[0]).joined, 0)
        self.assertIsNone(collected.add(old[1]))
        self.assertEqual(collected.add(old[0]).joined, 0)
        for p in (new[0], old[1], new[2], new[1]):
            self.assertIsNone(collected.add(p))
        self.assertEqual(collected.add(new[2]).joined, 3)

    def test_parts_of_others_are_none(self):
        parts = whole([[BODY[0]], BODY[1:]])
        other = whole([[BODY[0]], BODY[1:]], nonce=SALT)
        group = wire.Packet(welcome_packet([], nonce=bytes(16), rank=0))
        collected = wire.Parts(NONCE)
        for p in (parts[0], other[1], group, other[0]):
            self.assertIsNone(collected.add(p))
        self.assertEqual(collected.add(parts[1]).joined, 0)

    def test_refused(self):
        def refused(records=(), **fields):
            values = {"nonce": NONCE, "welcome_flags": wire.REFUSED, "refusal": 7, "parts": 1,
                      "version_max": 2, **fields}
            return wire.build(wire.welcome_payload(records, **values), op=wire.WELCOME, rank=70)
        self.assertIsNone(wire.Parts(NONCE).add(wire.Packet(refused())))
        self.all_refused(refused, None, (
            ("refusal 0", {"refusal": 0}), ("refusal 8", {"refusal": 8}),
            ("REFUSED and other", {"welcome_flags": wire.REFUSED | wire.READY}),
            ("REFUSED without a nonce", {"nonce": bytes(16)}),
            ("part 0 of 0", {"parts": 0}), ("REFUSED in 2 parts", {"parts": 2}),
            ("REFUSED with records", {"records": [seal_record()]}),
            *((f"{name} of REFUSED", {name: 1}) for name in wire.FIXED_FIELDS
              if name not in (*wire.OF_REFUSED, "reserved", "part"))))

    def test_to_the_group(self):
        def group(records=(), **fields):
            return welcome_packet(records, **{"nonce": bytes(16), "rank": 0, **fields})
        w = welcome()
        self.assertTrue(w.is_heard(wire.Packet(group())))
        self.assertEqual(len(group()), 48 + 64 + 24)
        self.assertFalse(w.is_heard(wire.Packet(group(seal=[seal_record(salt=NONCE)]))))
        self.assertFalse(w.is_heard(wire.Packet(group(nonce=NONCE))))
        self.all_refused(group, None, (
            ("SEAL alone", {"records": [scheme_record()]}), ("SEAL alone", {"parts": 2}),
            ("READY to the group", {"welcome_flags": wire.READY}),
            ("to the group has rank 0", {"rank": 1})))
        # its seal covers the group's end
        end = wire.worker_end(GROUP_ADDRESS, 18500)
        self.assertFalse(KEYS.is_genuine(KEYS.sealed(group(), end), END))


class Shards(Case):
    def test_where_chunks_are(self):
        self.assertEqual(wire.place(23, 3, 4, 2, True), (2, 7, 3, 1))
        self.assertEqual(wire.place(23, 3, 4, 2, False), (2, 7, 4 + 1, 3))
        self.assertEqual(wire.place(5, 1, 8, 2, True), (0, 5, 5, 0))
        self.assertEqual(wire.place(3 * 2**32 + 7, 1, 3, 2, True), (0, 7, 1, 2))
        job = wire.Job(4, ROWS, data_slots=4, control_slots=3)
        for shards in (1, 3, 64):
            seen = set()
            for q in range(500):
                for data, make in ((True, lut_add), (False, control)):
                    at = wire.place(q, shards, 4, 3, data)
                    p = wire.Packet(make(chunk=at.chunk, slot=at.slot, generation=at.generation),
                                    job)
                    self.assertEqual(at.shard + shards * p.chunk, q)
                    seen.add((data, at))
            self.assertEqual(len(seen), 1000)

    def shard(self, number, listed=None, **fields):
        if listed is None:
            listed = [] if number else [shards_record(0, 2)]
        return welcome(*BODY, *listed, **{"shards": 2, "shard": number, **fields})

    def test_lists(self):
        w = self.shard(0, [shards_record(0, 1), shards_record(1, 1)])
        self.assertEqual([port for _, port in w.at.values()], [18500, 18501])
        for sentence, listed in (
                ("0 shards are listed", []), ("1 shards are listed", [shards_record(0, 1)]),
                ("3 shards are listed", [shards_record(0, 3)]),
                ("shard 1 behind 0", [shards_record(1, 1), shards_record(0, 1)]),
                ("shard 0 behind 1", [shards_record(0, 1), shards_record(0, 1)]),
                ("shard 1 behind 2", [shards_record(0, 2), shards_record(1, 1)]),
                ("a list of no shards", [shards_record(0, 2), shards_record(2, 2, said=0)]),
                ("where nobody can be", [shards_record(0, 2, port=0)]),
                ("where nobody can be", [shards_record(0, 2, address=GROUP_ADDRESS)])):
            self.refused(sentence, self.shard, 0, listed)
        # only shard 0 of several lists the shards
        self.shard(1)
        self.refused("2 shards are listed", self.shard, 1, [shards_record(0, 2)])
        self.refused("1 shards are listed", welcome, *BODY, shards_record(0, 1))

    def test_one_job(self):
        pair = [self.shard(1), self.shard(0, epoch=99, seal=[seal_record(salt=NONCE)])]
        wire.one_job(pair)
        wire.one_job([welcome()])
        self.refused("a shard is missing", wire.one_job, [self.shard(0)])
        self.refused("a shard is missing", wire.one_job, [self.shard(0)] * 2)
        for name, fields in (
                ("seed", {"seed": 98}), ("quorum", {"quorum": 3}),
                ("data_slots", {"data_slots": 9}), ("control_slots", {"control_slots": 3}),
                ("seal", {"seal": [seal_record(seal=wire.SEAL_SUM)]}), ("rank", {"rank": 1}),
                ("n", {"ranks": 5}), ("constants", {"features": 16})):
            other = self.shard(1, **fields)
            if name == "seed":
                # constants include the seed, but only the seed is to differ
                other.constants = self.shard(0).constants
            self.refused(f"shards differ in {name}$", wire.one_job, [self.shard(0), other])
        other = self.shard(1)
        other.shards = 3
        self.refused("shards differ in shards", wire.one_job, [self.shard(0), other])


if __name__ == "__main__":
    unittest.main()
