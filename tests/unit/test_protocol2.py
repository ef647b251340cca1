#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Documentation/protocol-2.md and its decoder, tests/lib/thcwire2.py: the page's example, published
vectors of what the seal is made of, and that nothing passes which somebody has changed.
"""
import hashlib
import os
import random
import re
import struct
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/lib"))
import thcwire2 as wire  # noqa: E402  (found through the path above)

SECRET = bytes(range(32))
SALT = bytes(range(100, 116))
ROWS = {4: 8, 2: 4}


def page():
    with open(os.path.join(ROOT, "Documentation/protocol-2.md"), encoding="utf-8") as f:
        return f.read()


def request(**fields):
    """A LUT_ADD of 512 bytes under nh, and the key of its tag."""
    key = wire.derive(SECRET, wire.UP, 1, SALT, wire.KEY_BYTES)
    fields = {"op": wire.LUT_ADD, "width": 4, "key_id": wire.key_id(SECRET, 1, SALT), "job": 1,
              "rank": 2, "epoch": 7, "round": 3, "chunk": 5, "slot": 5,
              "payload": random.Random(1).randbytes(512), **fields}
    return wire.build(wire.SEAL_NH, key, **fields), key


def welcome(part, parts, records, salt=SALT, **fields):
    values = {"nonce": bytes([1] * 16), "ranks": 4, "quorum": 4, "data_slots": 8,
              "control_slots": 2, "reply": 1, "part": part, "parts": parts, "version_max": 2,
              "shards": 1, **fields}
    fixed = wire._FIXED.pack(*(values.get(name, 0) for name in wire._FIXED_FIELDS))
    seal = wire.record(wire.RECORD_SEAL, bytes([wire.SEAL_NH, 0, 0, 0]) + salt,
                       wire.REFUSE_IF_UNKNOWN)
    key = wire.derive(SECRET, wire.WELCOMING, 1, wire.NO_SALT, wire.KEY_BYTES)
    return wire.Packet(wire.build(wire.SEAL_NH, key, fixed + seal + b"".join(records),
                                  op=wire.WELCOME, job=1))


def row(bits, wide):
    return wire.record(wire.RECORD_ROW, struct.pack(">BBHd", bits, wide, 3, 2.5) +
                       struct.pack(f">{2**bits}H", *range(2**bits)), wire.REFUSE_IF_UNKNOWN)


class Seal(unittest.TestCase):
    def test_example_of_the_page(self):
        example = page().split("\n## Example")[1]
        lines = re.findall(r"^    ((?:[0-9a-f]{2} +){15}[0-9a-f]{2})$", example, re.M)
        packet = bytes.fromhex(" ".join(lines))
        self.assertEqual(packet, wire.build_join(SECRET, 1, 2, bytes(range(1, 17))))
        said = dict(re.findall(r"\b(NH|tag|key id) = ([0-9a-f]+)", example))
        key = wire.derive(SECRET, wire.JOINING, 1, wire.NO_SALT, wire.KEY_BYTES)
        shown = re.search(r"key = ([0-9a-f ]+)", example)[1].replace(" ", "")
        self.assertTrue(key.hex().startswith(shown))
        self.assertEqual(wire.nh(key[16:], packet[48:]), int(said["NH"], 16))
        p = wire.Packet(packet)
        self.assertEqual((p.tag, p.key_id), (int(said["tag"], 16), int(said["key id"], 16)))

    def test_published_vectors(self):
        key = bytes(range(16))
        self.assertEqual(wire.siphash(key, bytes(range(15))), 0xA129CA6149BE45E5)
        self.assertEqual(wire.siphash(key, b""), 0x726FDB47DD0E0E31)
        # RFC 7693, appendix B
        self.assertEqual(hashlib.blake2s(b"abc").hexdigest(), "508c5e8c327c14e2e1a72ba34eeb452f"
                         "37458b209ed63a294d999b4c86675982")

    def test_nh_by_hand(self):
        key = struct.pack("<6I", 1, 2, 0xFFFFFFFF, 4, 5, 6)
        data = struct.pack("<4I", 10, 20, 3, 0xFFFFFFFF)
        self.assertEqual(wire.nh(key, data), (11 * 22 + 2 * 3) % 2**64)
        self.assertEqual(wire.nh(key, data, 2), (9 * 24 + 8 * 5) % 2**64)

    def test_every_bit_counts(self):
        packet, key = request()
        self.assertTrue(wire.is_genuine(packet, wire.SEAL_NH, key))
        for bit in range(len(packet) * 8):
            other = bytearray(packet)
            other[bit // 8] ^= 1 << bit % 8
            self.assertFalse(wire.is_genuine(bytes(other), wire.SEAL_NH, key), f"bit {bit}")

    def test_keys_are_apart(self):
        packet, key = request()
        labels = (wire.UP, wire.DOWN, wire.JOINING, wire.WELCOMING, wire.LOST)
        keys = [wire.derive(SECRET, label, job, salt, wire.KEY_BYTES)
                for label in labels for job in (1, 2) for salt in (SALT, wire.NO_SALT)]
        self.assertEqual(len(set(keys)), len(keys))
        passing = [k for k in keys if wire.is_genuine(packet, wire.SEAL_NH, k)]
        self.assertEqual(passing, [key])
        self.assertFalse(wire.is_genuine(packet, wire.SEAL_NH2, key))

    def test_what_lost_its_state_answers_one_request(self):
        key = wire.derive(SECRET, wire.LOST, 1, wire.NO_SALT, wire.KEY_BYTES)
        stale = wire.build(wire.SEAL_NH, key, instead=0x1234, op=wire.STALE, job=1,
                           flags=wire.F_EPOCH, rank=65535)
        self.assertTrue(wire.is_genuine(stale, wire.SEAL_NH, key, instead=0x1234))
        self.assertFalse(wire.is_genuine(stale, wire.SEAL_NH, key, instead=0x1235))
        self.assertFalse(wire.is_genuine(stale, wire.SEAL_NH, key))

    def test_digest_of_a_round(self):
        key = wire.derive(SECRET, wire.DOWN, 1, SALT, wire.KEY_BYTES)
        lanes = random.Random(2).randbytes(1024)
        for seal in (wire.SEAL_SUM, wire.SEAL_NH):
            one = wire.chunk_digest(5, 15, lanes, seal, key)
            self.assertNotEqual(one, wire.chunk_digest(6, 15, lanes, seal, key))
            self.assertNotEqual(one, wire.chunk_digest(5, 7, lanes, seal, key))
            self.assertNotEqual(one, wire.chunk_digest(5, 15, b"\1" + lanes[1:], seal, key))


class Packets(unittest.TestCase):
    def refused(self, sentence, make):
        with self.assertRaisesRegex(wire.Malformed, sentence):
            make()

    def test_requests(self):
        self.assertEqual(wire.Packet(request()[0], ROWS).chunk, 5)
        for sentence, fields in (("no row for indices of 3 bits", {"width": 3}),
                                 ("width 2 with 512 bytes", {"width": 2, "payload": bytes(512),
                                                             "op": wire.LUT_ADD, "rank": 2}),
                                 ("with flags", {"flags": wire.F_REPEAT}),
                                 ("NOSUM", {"flags": 0x40}), ("a bitmap", {"bitmap": 1}),
                                 ("rank 64", {"rank": 64}), ("LUT_ADD of a node", {"count": 3}),
                                 ("WIDEN of a worker", {"op": wire.WIDEN, "width": 16}),
                                 ("lanes of 4 bits", {"op": wire.ADD}), ("op 20", {"op": 20}),
                                 ("width 4 without lanes", {"op": wire.STALE})):
            with self.subTest(sentence=sentence):
                if sentence.startswith("width 2"):
                    self.refused(sentence, lambda f=fields: wire.Packet(request(**f)[0], {2: 8}))
                else:
                    self.refused(sentence, lambda f=fields: wire.Packet(request(**f)[0], ROWS))
        neutral = request(op=wire.ADD, width=8, payload=b"")[0]
        self.assertEqual(wire.Packet(neutral, ROWS).payload, b"")

    def test_streams_of_bits(self):
        draw = random.Random(3)
        for bits in range(1, 9):
            indices = [draw.randrange(1 << bits) for _ in range(1024)]
            packed = wire.pack_indices(indices, bits)
            self.assertEqual((len(packed), wire.unpack_indices(packed, bits)),
                             (128 * bits, indices))
        self.assertEqual(wire.pack_indices([1, 2] * 4, 4), bytes([0x12] * 4))

    def test_claims_are_the_ranks_own(self):
        payload = bytes([7] * 1024)
        for rank in (0, 5, 31, 32, 63):
            taken = wire.masked_claim(payload, rank)
            own = range(32 * (rank % 32), 32 * (rank % 32) + 32)
            self.assertEqual([i for i, b in enumerate(taken) if b], list(own))

    def test_welcome_in_parts(self):
        place = struct.pack(">BBH16s", 4, 0, 18500, bytes([192, 0, 2, 1]))
        shards = wire.record(wire.RECORD_SHARDS, struct.pack(">HH", 0, 2) + 2 * place)
        more = wire.record(99, b"later")
        parts = [welcome(1, 2, [shards, more]), welcome(0, 2, [row(4, 8), row(2, 4)])]
        w = wire.Welcome(parts)
        self.assertEqual({b: r["sum_width"] for b, r in w.rows.items()}, ROWS)
        self.assertEqual((w.seal, w.salt, w.unknown, len(w.at)), (wire.SEAL_NH, SALT, [99], 2))
        self.refused("a part is missing", lambda: wire.Welcome(parts[:1]))
        self.refused("different WELCOMEs", lambda: wire.Welcome(
            [parts[0], welcome(0, 2, [], nonce=bytes(16))]))
        self.refused("different epochs", lambda: wire.Welcome(
            [parts[0], welcome(0, 2, [], salt=bytes(16))]))
        self.refused("record 99 is unknown", lambda: wire.Welcome(
            [welcome(0, 1, [wire.record(99, b"", wire.REFUSE_IF_UNKNOWN)])]))
        self.refused("two rows of 4 bits", lambda: wire.Welcome(
            [welcome(0, 1, [row(4, 8), row(4, 16)])]))
        self.refused("is cut", lambda: welcome(0, 1, [row(4, 8)[:16]]))

    def test_what_is_reserved_is_zero(self):
        join = bytearray(wire.build_join(SECRET, 1, 2, bytes(range(1, 17))))
        for at, sentence in ((48 + 43, "reserved bytes of JOIN"),
                             (48 + 32, "unknown flags of JOIN"),
                             (48 + 41, "workers are a node's")):
            other = bytes(join[:at]) + b"\x10" + bytes(join[at + 1:])
            self.refused(sentence, lambda p=other: wire.Packet(p))


if __name__ == "__main__":
    unittest.main()
