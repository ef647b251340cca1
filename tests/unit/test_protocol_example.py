#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""The packet that Documentation/protocol.md shows has the packet sum, and the
running sums, that it says; so whoever implements the protocol can rely on it.
"""
import os
import re
import struct
import sys
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/lib"))
import thcwire  # noqa: E402  (found through the path above)


class Example(unittest.TestCase):
    def test_packet_sum(self):
        with open(os.path.join(ROOT, "Documentation/protocol.md"), encoding="utf-8") as f:
            example = f.read().split("\nExample: JOIN")[1].split("For two parts")[0]
        lines = re.findall(r"^    ((?:[0-9a-f]{2} +){15}[0-9a-f]{2})", example, re.M)
        packet = bytes.fromhex(" ".join(lines))
        said = {name: int(value, 16) for name, value in re.findall(r"\b(a|b|sum) = (\w+)", example)}
        words = struct.unpack("<8Q", packet[:4] + bytes(4) + packet[8:])
        a = b = 0
        for word in words:
            a = (a + (word ^ word >> 32)) % 2**64
            b = (b + a) % 2**64
        for i, value in re.findall(r"w\[(\d)\] = (\w+)", example):
            self.assertEqual(words[int(i)], int(value, 16))
        self.assertEqual((a, b), (said["a"], said["b"]))
        self.assertEqual(thcwire.packet_sum(packet), said["sum"])
        self.assertEqual(struct.unpack(">I", packet[4:8])[0], said["sum"])


if __name__ == "__main__":
    unittest.main()
