#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""An attacker on the path, without the job's key, records all packets and sends any packet from
any address. (The attacker can also drop packets, which needs no test.)

A worker must count each forged packet as `foreign` or `bad_tag`; the aggregator must drop it or
answer STALE. Any other forged packet was believed.
"""
import os
import random
import select
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import adversary  # noqa: E402  (found through the path above)
import thcwire as wire  # noqa: E402
from adversary import (Bed, COUNT, PACKETS, Spoofer, does, ended_well, fork_in,  # noqa: E402
                       prevented)
from ranks import good  # noqa: E402
from tap import netns  # noqa: E402

PATH = "somebody on the path"
LEAST = max(100000, PACKETS)    # forged packets
BATCH = 1500            # packets that fit into a socket's buffer
EXCHANGED = ("width", "flags", "tag", "rank", "round", "chunk", "slot", "count", "generation",
             "bitmap")
FEW = 40                # recorded packets whose fields are exchanged with each other
TO_AGGREGATOR = (netns.AGGREGATOR4, wire.PORT)
BELIEVED = ("added", "waited", "repeated", "stale", "finished")


# --- forging of recorded packets ------------------------------------------------


def flips(packets):
    """Each packet with one bit inverted, for each bit."""
    for packet in packets:
        for bit in range(8 * len(packet)):
            forged = bytearray(packet)
            forged[bit // 8] ^= 1 << bit % 8
            yield bytes(forged)


def exchanges(packets):
    """Of pairs of packets: one packet with the payload, or a header field, of the other."""
    for one in packets[:FEW]:
        for other in packets[:FEW]:
            fields = wire.Packet(other).__dict__
            if one[wire.HEADER:] != other[wire.HEADER:]:
                yield one[:wire.HEADER] + other[wire.HEADER:]
            for name in EXCHANGED:
                forged = wire.changed(one, **{name: fields[name]})
                if forged != one:
                    yield forged


def forged_of(packets, rng):
    """About LEAST forged packets, in random order, without those that equal a genuine packet."""
    genuine = set(packets)
    made = list(exchanges(rng.sample(packets, min(FEW, len(packets)))))
    for packet in rng.sample(packets, len(packets)):
        if len(made) >= LEAST:
            break
        made += flips([packet])
    made = [packet for packet in made if packet not in genuine]
    rng.shuffle(made)
    return made


def renamed(packets, bed, key):
    """Recorded packets unchanged, with this session's number, and with its key's name, too."""
    for packet in packets:
        yield packet
        yield wire.changed(packet, epoch=bed.fields["epoch"])
        yield wire.changed(packet, epoch=bed.fields["epoch"], key_id=key.id)


# --- to a worker ------------------------------------------------------------------


def answers_in(seen):
    return list(dict.fromkeys(s.data for s in seen if not s.up and s.data[1] in (
        wire.LUT_ADD, wire.MAX, wire.CLAIM, wire.WAIT)))


def all_are_refused_by_a_worker(bed, packets):
    """Send the packets to rank 0 from the aggregator's address and port. An idle rank does not
    read its socket, so an all-reduce follows each batch."""
    names = ("foreign", "bad_tag")
    before = bed.counted(*names)[0]
    for at in range(0, len(packets), BATCH):
        def spoof(batch=packets[at:at + BATCH]):
            spoofer = Spoofer()
            for packet in batch:
                spoofer.send(packet, TO_AGGREGATOR, bed.members[0])
            return True

        assert does(bed.net.worker(2), spoof, user=0)
        good(bed.ranks.all(do="reduce", counts=[1024], first_key=2))
    refused = bed.counted(*names)[0] - before
    print(f"# {len(packets)} forged answers, {refused} refused")
    assert refused == len(packets), f"{len(packets) - refused} were believed, or did not arrive"


@prevented(PATH, "changes a bit, or exchanges fields, of answers that it has read")
def path__changes_no_answer():
    with Bed(rate="fixed") as bed:
        answers = answers_in(bed.recorded())
        assert {wire.LUT_ADD, wire.MAX, wire.CLAIM} <= {packet[1] for packet in answers}
        all_are_refused_by_a_worker(bed, forged_of(answers, random.Random(1)))
        bed.start()
        assert bed.passes() == bed.honest


@prevented(PATH, "answers what it has recorded in an earlier session")
def path__has_no_answer_of_an_earlier_session():
    """With `rate=fixed` both sessions round alike, so that only their keys differ."""
    with Bed(rate="fixed") as bed:
        answers = answers_in(bed.recorded())
        bed.start()
        all_are_refused_by_a_worker(bed, list(renamed(answers, bed, bed.down)))
        bed.start()
        assert bed.passes() == bed.honest


# --- to the aggregator --------------------------------------------------------------


def requests_in(seen, member):
    """(the member's contributions, its JOINs and LEAVEs)"""
    own = list(dict.fromkeys(s.data for s in seen if s.up and s.source == member))
    last = wire.CLAIM_HIGH      # the last op of contributions
    return [p for p in own if p[1] <= last], [p for p in own if p[1] > last]


def all_are_refused_by_the_aggregator(bed, packets):
    """Send the packets from rank 0's address and port."""
    session, members, before = bed.session(), bed.members, bed.aggregator.stats()

    def spoof():
        spoofer = Spoofer()
        for packet in packets:
            spoofer.send(packet, members[0], TO_AGGREGATOR)
        return True

    assert does(bed.net.worker(2), spoof, user=0)
    after = bed.aggregator.stats()

    def more(kind, names):
        return sum(after[kind][name] - before[kind][name] for name in names)

    received = after["received"] - before["received"]
    dropped = more("drops", after["drops"])
    told = more("events", ("epoch", "membership"))
    print(f"# {len(packets)} forged requests, {received} received: {dropped} dropped, {told} told "
          f"that their key is another")
    assert received > 0.9 * len(packets), "too many were lost on the way"
    assert received == dropped + told and not more("events", BELIEVED), after
    # thcd refuses a JOIN that names another key
    assert more("events", ("membership",)) == more("daemon", ("refused",)), after
    bed.look()
    assert bed.session() == session and bed.members == members


def changes_no_request(software):
    with Bed(software, rate="fixed") as bed:
        data, control = requests_in(bed.recorded(), bed.members[0])
        assert {wire.LUT_ADD, wire.MAX, wire.CLAIM} <= {packet[1] for packet in data}
        assert [packet[1] for packet in control] == [wire.JOIN] * len(control) and control
        rng = random.Random(2)
        all_are_refused_by_the_aggregator(bed, list(flips(control[-1:])) + forged_of(data, rng))
        bed.start()
        assert bed.passes() == bed.honest


@prevented(PATH, "changes a bit, or exchanges fields, of requests that it has read")
def path__changes_no_request__xdp():
    changes_no_request(False)


@prevented(PATH, "changes a bit, or exchanges fields, of requests, with `--software`")
def path__changes_no_request__software():
    changes_no_request(True)


@prevented(PATH, "contributes what it has recorded in an earlier session")
def path__has_no_request_of_an_earlier_session():
    with Bed(rate="fixed") as bed:
        data, _ = requests_in(bed.recorded(), bed.members[0])
        bed.start()
        all_are_refused_by_the_aggregator(bed, list(renamed(data, bed, bed.up)))
        bed.start()
        assert bed.passes() == bed.honest


# --- joining ------------------------------------------------------------------------


ROUNDS_OF_COPIES = 20   # copies of each recorded packet
LEAVES = 200            # LEAVEs in each round of copies
LEAVES_BURST, LEAVES_A_SECOND = 128, 400        # include/thc/aggregator/bucket.h


def sends(bed, packets, source, to=TO_AGGREGATOR):
    def spoof():
        spoofer = Spoofer()
        for packet in packets:
            spoofer.send(packet, source, to)
        return True

    assert does(bed.net.worker(2), spoof, user=0)


def is_dropped(bed, packet, source, reason):
    before = bed.dropped(reason)
    sends(bed, [packet], source)
    assert adversary.until(lambda: bed.dropped(reason) == before + 1), bed.aggregator.stats()


def joins_of(seen, source):
    """The worker's JOINs: without the challenge, with the challenge, and with HEARD."""
    joins = [p for p in requests_in(seen, source)[1] if p[1] == wire.JOIN]
    assert len(joins) >= 3, f"{len(joins)} kinds of JOIN"
    return joins


def leave_of(bed, join, source):
    """The LEAVE that belongs to this JOIN."""
    packet = wire.Packet(join)
    return bed.keys.membership(wire.JOINING).put(
        wire.build(packet.payload[:16], op=wire.LEAVE, job=1, rank=packet.rank), end=source)


def joins_again(bed):
    """All ranks begin a new session with new nonces, from unchanged ports."""
    members, session = bed.members, bed.session()
    good(bed.ranks.all(do="rejoin"))
    bed.look()
    assert bed.members == members and bed.session() > session


def changes_nothing(bed, packets, source):
    """Send recorded packets and check that the job stays as it was. Returns what thcd counted;
    packets beyond a rank's rate limit are dropped."""
    def state():
        job = bed.aggregator.ask("jobs")["jobs"][0]
        return [job[name] for name in ("epoch", "joined", "left", "ready", "members", "reply")]

    before, was = bed.aggregator.stats(), state()
    sends(bed, packets * ROUNDS_OF_COPIES, source)
    sent = len(packets) * ROUNDS_OF_COPIES
    assert adversary.until(
        lambda: bed.aggregator.stats()["received"] >= before["received"] + sent), "some were lost"

    def made():
        after = bed.aggregator.stats()
        return {name: after[kind][name] - before[kind][name]
                for kind, name in (("daemon", "challenged"), ("daemon", "refused"),
                                   ("drops", "flood"), ("events", "membership"))}

    # XDP has counted all packets, but thcd may not have read all
    last = made()
    while time.sleep(0.3) or made() != last:
        last = made()
    assert state() == was, f"{state()}, not {was}"
    return last


@prevented(PATH, "sends recorded JOINs again, in the session that they began and later")
def path__sends_no_join_again():
    with Bed(rate="fixed") as bed:
        seen, source = bed.recorded(), bed.members[0]
        joins = joins_of(seen, source)
        # from another port the tag is wrong
        is_dropped(bed, joins[0], (source[0], source[1] ^ 1), "tag")
        made = changes_nothing(bed, joins, source)
        assert not made["challenged"] and not made["refused"], made
        good(bed.ranks.all(do="reduce", counts=[COUNT]))
        # thcd refuses the last session's JOINs as another worker's, and challenges older ones
        joins_again(bed)
        made = changes_nothing(bed, joins, source)
        assert made["refused"] and not made["challenged"], made
        joins_again(bed)
        made = changes_nothing(bed, joins, source)
        assert made["challenged"] and not made["refused"], made
        assert made["challenged"] + made["flood"] == len(joins) * ROUNDS_OF_COPIES, made
        good(bed.ranks.all(do="reduce", counts=[COUNT]))
        bed.start()
        assert bed.passes() == bed.honest


@prevented(PATH, "sends recorded CHALLENGEs and WELCOMEs again to a rank that joins")
def path__confuses_no_rank_that_joins():
    """The packets come all the time, from the aggregator's address and port, to the port at which
    the rank got them first."""
    with Bed(rate="fixed") as bed:
        seen, member = bed.recorded(), bed.members[0]
        said = list(dict.fromkeys(s.data for s in seen if s.to == member and s.data[1] in (
            wire.CHALLENGE, wire.WELCOME)))
        assert {packet[1] for packet in said} == {wire.CHALLENGE, wire.WELCOME}
        over, done = os.pipe()

        def spoof():
            os.close(done)
            spoofer = Spoofer()
            while not select.select([over], [], [], 0.0005)[0]:
                for packet in said:
                    spoofer.send(packet, TO_AGGREGATOR, member)
            return True

        child = fork_in(bed.net.worker(2), spoof, 0)
        os.close(over)
        took = []
        for _ in range(5):
            session, start = bed.session(), time.monotonic()
            joins_again(bed)
            took.append(time.monotonic() - start)
            # one rank begins the session and the other joins it, or each begins one
            assert bed.session() - session <= 2, f"{bed.session() - session} sessions more"
            good(bed.ranks.all(do="reduce", counts=[1024], first_key=2))
        # on a busy machine a rank may be late, but not every time
        assert min(took) < 2, f"joining took {', '.join(f'{t:.1f}' for t in took)} s"
        os.close(done)
        assert ended_well(child), "the recorded packets were not sent"
        bed.start()
        assert bed.passes() == bed.honest


@prevented(PATH, "sends a LEAVE of an earlier session again")
def path__sends_no_leave_again():
    """The LEAVE comes from the rank's port of that session, which the rank still has or not."""
    with Bed(rate="fixed") as bed:
        seen, source = bed.recorded(), bed.members[0]
        leave = leave_of(bed, joins_of(seen, source)[0], source)
        joins_again(bed)
        made = changes_nothing(bed, [leave], source)
        assert made["membership"] == ROUNDS_OF_COPIES, made
        good(bed.ranks.all(do="reduce", counts=[COUNT]))
        bed.start()
        is_dropped(bed, leave, source, "address")
        is_dropped(bed, leave, bed.members[0], "tag")
        assert not bed.aggregator.ask("jobs")["jobs"][0]["left"]
        assert bed.passes() == bed.honest


@prevented(PATH, "floods `thcd` by a LEAVE that it has recorded")
def path__floods_by_no_leave():
    """The LEAVE is of an earlier session. The rank's own LEAVE still arrives after the flood."""
    with Bed(rate="fixed") as bed:
        seen, source = bed.recorded(), bed.members[0]
        leave = leave_of(bed, joins_of(seen, source)[0], source)
        joins_again(bed)
        start = time.monotonic()
        made = changes_nothing(bed, [leave] * LEAVES, source)
        most = LEAVES_BURST + (time.monotonic() - start) * LEAVES_A_SECOND + 3
        assert LEAVES_BURST / 2 < made["membership"] <= most, made
        assert made["membership"] + made["flood"] == LEAVES * ROUNDS_OF_COPIES, made
        # the rate limit has tokens again, so ranks can leave
        time.sleep(0.1)
        good(bed.ranks.all(do="close"))
        assert adversary.until(lambda: bed.aggregator.ask("jobs")["jobs"][0]["left"] == [0, 1])


adversary.main()
