# SPDX-License-Identifier: GPL-2.0
"""Records the packets at the aggregator's port of the switch, as an observer on the path would, and
checks their seals.

    with Recorder(net) as recorder: ...
    for packet in recorder.packets(): ...
"""
import collections
import ctypes
import socket
import struct
import threading
import time

import thcwire as wire
from tap import netns

PORTS = range(wire.PORT, wire.PORT + 64)
# bytes of payload of a request by op, by default LANES as in an answer. The job decides LUT_ADD's,
# and WELCOME's follows from its records
PAYLOAD = {wire.JOIN: 64, wire.LEAVE: 16, wire.CHALLENGE: 32}
QUIET = 0.02            # seconds without a frame after which no frame is in flight
ROOM = 64 << 20         # bytes of the tap's buffer
SOL_PACKET, PACKET_STATISTICS, SO_RCVBUFFORCE, SO_ATTACH_FILTER, ETH_P_ALL = 263, 6, 33, 26, 3
ETHERNET_TO_UDP = 42    # bytes of the headers

# up: to the aggregator; source, to: (address, port); data: one packet
Seen = collections.namedtuple("Seen", "up source to data")


class Recorder:
    """A thread that keeps frames until it is closed. op: keep only frames whose first packet has
    this op; port: port of the switch; sum_width: bits of a sum, or {bits of an index: bits of a
    sum}."""

    def __init__(self, net, op=None, port="agg", sum_width=8):
        self.sum_width = sum_width
        self.socket = netns.in_namespace(net.switch, lambda: _open_tap(op, port))
        self.frames, self.over = [], threading.Event()
        self.read = []          # [Seen] of the first frames, of which there are `done`
        self.done = 0
        self.thread = threading.Thread(target=self._body, daemon=True)
        self.thread.start()

    def _body(self):
        self.socket.settimeout(QUIET)
        while True:
            try:
                frame = self.socket.recv(1 << 17)
            except TimeoutError:
                if self.over.is_set():
                    return
                continue
            self.frames.append(frame)

    def close(self):
        self.over.set()
        self.thread.join()
        lost = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
        self.socket.close()
        assert not lost, f"{lost} frames were not recorded"

    def packets(self):
        """[Seen] of THC's packets so far, copies included."""
        frames = self.frames[self.done:]
        for frame in frames:
            self.read += seen_in(frame, self.sum_width)
        self.done += len(frames)
        return list(self.read)

    def until(self, enough, patience=20.0):
        """Waits until enough(packets), because sent packets take time to arrive here."""
        end = time.monotonic() + patience
        while not enough(self.packets()):
            assert time.monotonic() < end, f"what was waited for did not pass in {patience} s"
            time.sleep(QUIET)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_error):
        try:
            self.close()
        except AssertionError:
            if not kind:
                raise


def _open_tap(op, port):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM)
    if op is not None:
        _filter(s, op)
    s.bind((port, ETH_P_ALL))
    return s


def _filter(s, op):
    """Lets frames pass whose first packet has that op."""
    load, equal, result = 0x30, 0x15, 0x06
    code = [(load, 0, 0, ETHERNET_TO_UDP + 1), (equal, 0, 1, op), (result, 0, 0, 0xFFFFFFFF),
            (result, 0, 0, 0)]
    text = b"".join(struct.pack("HBBI", *step) for step in code)
    room = ctypes.create_string_buffer(text, len(text))
    s.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER,
                 struct.pack("HxxxxxxP", len(code), ctypes.addressof(room)))


def _size_of(data, up, sum_width):
    """Bytes of the packet that data begins with."""
    op, width, flags = data[1:4]
    if op == wire.WELCOME:
        # several packets of one length, each with the first one's op and key
        return next(len(data) // n for n in range(len(data) // wire.HEADER, 0, -1)
                    if len(data) % (8 * n) == 0 and
                    all(data[len(data) // n * k:][:8] == data[:8] for k in range(n)))
    if op > wire.CLAIM_HIGH:
        return wire.HEADER + (PAYLOAD.get(op, 0) if up or op == wire.CHALLENGE else 0)
    if flags & wire.F_ANSWER or op != wire.LUT_ADD:
        return wire.HEADER + wire.LANES
    if isinstance(sum_width, dict):
        sum_width = sum_width[width]
    return wire.HEADER + wire.LANES * width // sum_width


def _udp_of(frame):
    """(offset of the UDP header, source address, destination address); None: no UDP over IP."""
    if frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[14] == 0x45:
        return 34, socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34])
    if frame[12:14] == b"\x86\xdd" and frame[20] == 17:
        return 54, *(socket.inet_ntop(socket.AF_INET6, frame[at:at + 16]) for at in (22, 38))
    return None


def seen_in(frame, sum_width=8):
    """The THC packets of a frame. A super-packet holds several packets of one length, and maybe a
    shorter one at the end."""
    udp = _udp_of(frame)
    if not udp:
        return
    at, source_address, to_address = udp
    source, to, length = struct.unpack_from(">HHH", frame, at)
    if to not in PORTS and source not in PORTS:
        return
    # a super-packet whose UDP length is 0 extends to the end of the frame
    data, up = frame[at + 8:at + length if length else None], to in PORTS
    ends = (source_address, source), (to_address, to)
    while data:
        size = _size_of(data, up, sum_width)
        assert len(data) >= size, f"op {data[1]}: {len(data)} bytes are no packet of {size}"
        yield Seen(up, *ends, data[:size])
        data = data[size:]


class Seals:
    """Checks the seals of a job's packets, by its secret key and the salts in its WELCOMEs.

    seen: all packets; secret: the key, None: the job has none; shard: the aggregator's number
    """

    def __init__(self, seen, secret, job=1, shard=0):
        self.keys, self.shard = wire.Keys(secret, job), shard
        self.data = {}          # (way up?, key_id): Key
        self.tags = collections.defaultdict(list)       # of requests, by their worker
        for s in seen:
            packet = wire.Packet(s.data)
            if packet.op == wire.WELCOME and not packet.refusal:
                for label in (wire.UP, wire.DOWN):
                    key = self.keys.data(label, packet.seal, packet.salt)
                    self.data[label == wire.UP, key.id] = key
            elif s.up and packet.op <= wire.CLAIM_HIGH:
                self.tags[s.source].append(packet.tag)

    def made(self, seen):
        """True if the packet's seal is right."""
        packet = wire.Packet(seen.data)
        if packet.op in (wire.JOIN, wire.LEAVE):
            return packet.has(self.keys.membership(wire.JOINING), end=(*seen.source, self.shard))
        if packet.op in (wire.WELCOME, wire.CHALLENGE):
            return packet.has(self.keys.membership(wire.WELCOMING), end=(*seen.to, self.shard))
        if packet.op == wire.STALE and packet.flags & wire.F_EPOCH:
            key = self.keys.membership(wire.LOST)
            return any(packet.has(key, end=(*seen.to, self.shard), instead=tag)
                       for tag in self.tags[seen.to])
        key = self.data.get((seen.up, packet.key_id))
        return key is not None and packet.has(key)
