#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""tests/lib/thcwire.py, with which tests make packets, makes the packets of
Documentation/protocol.md with the page's keys, and notices each changed bit.
"""
import os
import re
import struct
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/lib"))
import thcwire as wire  # noqa: E402  (found through the path above)

SECRET = bytes(range(32))
SALT = bytes(range(0x10, 0x20))
NONCE = bytes(range(1, 17))
END = ("10.0.0.2", 40000)


def hexadecimal(text):
    return bytes.fromhex("".join(text.split()))


class Examples(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(ROOT, "Documentation/protocol.md"), encoding="utf-8") as f:
            text = f.read().split("\n**Examples.**")[1].split("\n**What it holds against.**")[0]
        self.end, self.joined, self.data, self.stale, self.summed = re.split(
            r"\n(?=Its JOIN|The header of|STALE with|The same JOIN)", text)
        self.keys = wire.Keys(SECRET, 1)
        self.join = wire.build(wire.join_payload(NONCE, offers=4), op=wire.JOIN, job=1, rank=2)
        self.request = wire.build(bytes(range(256)) * 2, op=wire.LUT_ADD, width=4, job=1, rank=2,
                                  epoch=7, round=3, chunk=5, slot=5)

    @staticmethod
    def packet(text):
        return hexadecimal(" ".join(re.findall(r"^    ((?:[0-9a-f]{2} +){15}[0-9a-f]{2})", text,
                                               re.M)))

    def said(self, text, name):
        """The hexadecimal digits behind a name."""
        return hexadecimal(re.search(rf"\b{name} = ((?:[0-9a-f]+ ?)+)", text)[1])

    def test_join(self):
        key = self.keys.membership(wire.JOINING)
        packet = self.packet(self.joined)
        self.assertEqual(packet, key.put(self.join, end=END))
        self.assertEqual(self.said(self.joined, "key"), key.key)
        self.assertEqual(self.said(self.joined, "key id"), packet[4:8])
        self.assertEqual(self.said(self.joined, "tag"), packet[8:16])
        self.assertEqual(self.said(self.end, "end"), wire.end_of(*END))
        # another worker's end gives another tag
        self.assertNotEqual(packet, key.put(self.join, end=(END[0], END[1] + 1)))

    def test_data(self):
        up = self.keys.data(wire.UP, wire.SEAL_NH, SALT)
        packet = up.put(self.request)
        self.assertEqual(self.packet(self.data), packet[:wire.HEADER])
        self.assertEqual(self.said(self.data, "key"), up.key[:16])
        self.assertEqual(self.said(self.data, "key id"), packet[4:8])
        self.assertEqual(self.said(self.data, "tag"), packet[8:16])
        digest = wire.nh(up.key[16:], packet[wire.HEADER:])
        self.assertEqual(self.said(self.data, "NH"), struct.pack(">Q", digest))

    def test_stale(self):
        key = self.keys.membership(wire.LOST)
        request = self.packet(self.data)
        packet = wire.build(op=wire.STALE, flags=wire.F_EPOCH, job=1, rank=wire.NOBODY, epoch=8,
                            round=3, chunk=5, slot=5)
        tag = int.from_bytes(request[8:16], "big")
        self.assertEqual(self.packet(self.stale), key.put(packet, end=END, instead=tag))
        self.assertEqual(self.said(self.stale, "key"), key.key)

    def test_join_without_a_key(self):
        packet = wire.Keys(None, 1).membership(wire.JOINING).put(self.join, end=END)
        self.assertEqual(self.packet(self.summed), packet)


class Seal(unittest.TestCase):
    """The packet library refuses changed packets; all tests of packets rely on that."""

    def packets(self):
        """(packet, the key that it is sealed by, how)"""
        keys = wire.Keys(SECRET, 1)
        data = wire.build(bytes(range(256)), op=wire.LUT_ADD, width=4, job=1, rank=2, chunk=3)
        up = keys.data(wire.UP, wire.SEAL_NH, SALT)
        yield up.put(data), up, {}
        summed = wire.Keys(None, 1).data(wire.UP, wire.SEAL_SUM, SALT)
        yield summed.put(data), summed, {}
        join = keys.membership(wire.JOINING)
        packet = wire.build(wire.join_payload(5), op=wire.JOIN, job=1)
        yield join.put(packet, end=END), join, {"end": END}
        lost = keys.membership(wire.LOST)
        packet = wire.build(op=wire.STALE, flags=wire.F_EPOCH, job=1, epoch=8)
        yield lost.put(packet, end=END, instead=77), lost, {"end": END, "instead": 77}

    def test_each_bit_counts(self):
        for packet, key, how in self.packets():
            self.assertTrue(wire.Packet(packet).has(key, **how))
            for bit in range(8 * len(packet)):
                other = bytearray(packet)
                other[bit // 8] ^= 1 << bit % 8
                if other[1] not in (wire.WELCOME, wire.CHALLENGE):  # of another length
                    self.assertFalse(wire.Packet(bytes(other)).has(key, **how), bit)

    def test_end_and_request_count(self):
        *_, (packet, key, how) = self.packets()
        for other in ({"end": ("10.77.0.2", END[1])}, {"end": (END[0], 1)}, {"instead": 78}):
            self.assertFalse(wire.Packet(packet).has(key, **{**how, **other}), other)

    def test_each_purpose_job_and_epoch_has_a_key_of_its_own(self):
        made = {wire.Keys(SECRET, job).data(label, wire.SEAL_NH, salt).key
                for job in (1, 2) for label in (wire.UP, wire.DOWN) for salt in (SALT, bytes(16))}
        made |= {wire.Keys(SECRET, job).membership(label).key for job in (1, 2)
                 for label in (wire.JOINING, wire.WELCOMING, wire.LOST)}
        self.assertEqual(len(made), 8 + 6)


if __name__ == "__main__":
    unittest.main()
