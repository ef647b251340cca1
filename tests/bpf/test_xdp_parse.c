// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * Which packets thc_xdp passes, takes and refuses: packet tables for every branch of
 * bpf/parse.bpf.h and one for every drop reason. Each packet is counted once and under the right
 * name, and a packet that is refused or passed changes no slot.
 */
#include <stdio.h>
#include <time.h>
#include "rig.h"

#define LUT_LEN 512
#define JOIN_LEN sizeof(struct thc_join)
#define LEAVE_LEN sizeof(struct thc_leave)
#define HEAD (14 + 20 + 8) /* in front of the THC header, IPv4 */

static struct rig rig;
static struct thc_job *job;
static u8 payload[1024];

static int setup(void **state)
{
	u64 seed = 5;

	(void)state;
	if (geteuid())
		return 0;
	job = rig_test(&rig, 4);
	rig_fill(&seed, payload, sizeof(payload));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (!geteuid())
		rig_close(&rig);
	return 0;
}

static void fresh(void)
{
	rig_need_root();
	memset(rig.slots, 0, RIG_SLOTS * sizeof(*rig.slots));
	rig_stats_clear(&rig);
}

static bool slots_untouched(void)
{
	static const struct thc_slot empty[RIG_SLOTS];

	return !memcmp(rig.slots, empty, sizeof(empty));
}

static const struct rig_request lut = { .op = THC_OP_LUT_ADD, .width = 4, .job = 2, .epoch = 1 };

static size_t lut_packet(u8 *packet)
{
	struct thc_hdr h;

	rig_header(&h, &lut);
	return rig_packet(packet, &h, payload, LUT_LEN);
}

/* @frame passes unchanged and uncounted. */
static void expect_foreign(const char *what, const u8 *frame, size_t len)
{
	u8 out[RIG_FRAME_MAX];
	size_t out_len;
	struct thc_stats st;

	rig_stats_clear(&rig);
	if (rig_run(rig.skel->progs.thc_xdp, frame, len, out, &out_len) != XDP_PASS)
		fail_msg("%s: did not pass", what);
	if (out_len != len || memcmp(frame, out, len))
		fail_msg("%s: was changed", what);
	st = rig_stats(&rig);
	if (st.received)
		fail_msg("%s: was counted", what);
	assert_true(slots_untouched());
}

/* @frame is dropped for @reason, counted once, and changes nothing. */
static void expect_drop(const char *what, const u8 *frame, size_t len, enum thc_drop_reason reason)
{
	struct thc_slot before[RIG_SLOTS];
	struct thc_stats st;
	int i;

	rig_stats_clear(&rig);
	memcpy(before, rig.slots, sizeof(before));
	if (rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL) != XDP_DROP)
		fail_msg("%s: was not dropped", what);
	st = rig_stats(&rig);
	rig_check_balance(&st);
	if (st.received != 1)
		fail_msg("%s: received counts %llu", what, (unsigned long long)st.received);
	for (i = 0; i < THC_DROP_REASONS; i++)
		if (st.drop[i] != (i == (int)reason))
			fail_msg("%s: reason %d counts %llu, expected reason %d", what, i,
				 (unsigned long long)st.drop[i], reason);
	if (memcmp(before, rig.slots, sizeof(before)))
		fail_msg("%s: touched a slot", what);
}

static void expect_event(const char *what, const u8 *frame, size_t len, u32 action,
			 enum thc_event event)
{
	struct thc_stats st;

	rig_stats_clear(&rig);
	if (rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL) != action)
		fail_msg("%s: not the expected action", what);
	st = rig_stats(&rig);
	rig_check_balance(&st);
	if (st.received != 1 || st.event[event] != 1)
		fail_msg("%s: event %d was not counted once", what, event);
}

static void parse__foreign_passes_untouched(void **state)
{
	struct thc_addr elsewhere = rig_addr(false, 5), elsewhere6 = rig_addr(true, 5);
	struct rig_frame base4 = rig_way(&lut, false), base6 = rig_way(&lut, true), f;
	u8 packet[1200], frame[RIG_FRAME_MAX];
	size_t len, packet_len;

	(void)state;
	fresh();
	packet_len = lut_packet(packet);
#define FOREIGN(what, base, change) \
	do { \
		f = base; \
		change; \
		len = rig_frame(frame, &f, packet, packet_len); \
		expect_foreign(what, frame, len); \
	} while (0)
	FOREIGN("IPv4 to another host", base4, f.dst = elsewhere);
	FOREIGN("IPv6 to another host", base6, f.dst = elsewhere6);
	FOREIGN("port below ours", base4, f.dport = RIG_PORT - 1);
	FOREIGN("port above ours", base4, f.dport = RIG_PORT + THC_PORT_SPAN);
	FOREIGN("port above ours, IPv6", base6, f.dport = RIG_PORT + THC_PORT_SPAN);
	FOREIGN("TCP", base4, f.next = 6);
	FOREIGN("TCP over IPv6", base6, f.next = 6);
	FOREIGN("middle fragment", base4, f.frag = 0x2010);
	FOREIGN("last fragment", base4, f.frag = 0x0010);
	FOREIGN("options, another port", base4, (f.options = 8, f.dport = 53));
	FOREIGN("first fragment, another port", base4, (f.frag = 0x2000, f.dport = 53));
#undef FOREIGN

	len = rig_frame(frame, &base4, packet, packet_len);
	frame[12] = 0x08;
	frame[13] = 0x06;
	expect_foreign("ARP", frame, len);
	len = rig_frame(frame, &base4, packet, packet_len);
	frame[14] = 0x55;
	expect_foreign("IP version 5", frame, len);
	frame[14] = 0x44;
	expect_foreign("IPv4 header of 16 bytes", frame, len);
	len = rig_frame(frame, &base6, packet, packet_len);
	frame[14] = 0x40;
	expect_foreign("version 4 behind the type of IPv6", frame, len);

	/* two tags: the inner tag stands in the place of the EtherType */
	f = base4;
	f.vlan = 7;
	len = rig_frame(frame, &f, packet, packet_len);
	memmove(frame + 16, frame + 12, len - 12);
	expect_foreign("two VLAN tags", frame, len + 4);
}

static void parse__accepts(void **state)
{
	u8 packet[1200], frame[RIG_FRAME_MAX];
	size_t len, packet_len;
	struct rig_frame f;
	int v6, vlan;

	(void)state;
	fresh();
	packet_len = lut_packet(packet);
	for (v6 = 0; v6 < 2; v6++) {
		job->member[0].addr = rig_addr(v6, 10);
		for (vlan = 0; vlan < 4; vlan++) { /* the last one: a tag without a VLAN */
			fresh();
			f = rig_way(&lut, v6);
			f.vlan = vlan % 3 ? 0x6007 : 0;
			f.vlan_proto = (u16[]){ 0, 0x8100, 0x88a8, 0x8100 }[vlan];
			len = rig_frame(frame, &f, packet, packet_len);
			expect_event("a plain contribution", frame, len, XDP_DROP, THC_EVENT_ADDED);
			assert_int_equal(job->member[0].vlan, thc_be16(f.vlan));
			assert_int_equal(job->member[0].tagged, vlan != 0);
			assert_memory_equal(job->member[0].mac, f.src_mac, 6);

			/* Ethernet may pad frames, and some NICs append trailers */
			fresh();
			memset(frame + len, 0xee, 9);
			expect_event("trailing bytes", frame, len + 9, XDP_DROP, THC_EVENT_ADDED);
		}
	}
	job->member[0].addr = rig_addr(false, 10);
}

/* A frame cut anywhere is foreign as long as its port is missing, then truncated. */
static void parse__truncated_everywhere(void **state)
{
	u8 packet[1200], frame[RIG_FRAME_MAX];
	size_t len, full, packet_len, known;
	struct rig_frame f;
	int v6, vlan;

	(void)state;
	fresh();
	packet_len = lut_packet(packet);
	for (v6 = 0; v6 < 2; v6++) {
		for (vlan = 0; vlan < 2; vlan++) {
			f = rig_way(&lut, v6);
			f.vlan = vlan * 7;
			full = rig_frame(frame, &f, packet, packet_len);
			known = 14 + vlan * 4 + (v6 ? 40 : 20) + 8;
			/* the kernel runs nothing shorter than Ethernet's header */
			for (len = 14; len < known; len++)
				expect_foreign("cut headers", frame, len);
			for (; len < full; len++)
				expect_drop("cut packet", frame, len, THC_DROP_TRUNCATED);
		}
	}
}

static void drop__frame(void **state)
{
	struct rig_frame base = rig_way(&lut, false), base6 = rig_way(&lut, true), f;
	u8 packet[1200], frame[RIG_FRAME_MAX];
	size_t packet_len, len;
	int cut;

	(void)state;
	fresh();
	packet_len = lut_packet(packet);
#define DROP(what, from, reason, change) \
	do { \
		f = from; \
		change; \
		len = rig_frame(frame, &f, packet, packet_len); \
		expect_drop(what, frame, len, reason); \
	} while (0)
	for (cut = 4; cut <= 40; cut += 4)
		DROP("IPv4 options", base, THC_DROP_IP_OPTIONS, f.options = cut);
	DROP("options and fragment", base, THC_DROP_IP_OPTIONS, (f.options = 4, f.frag = 0x2000));
	DROP("first fragment", base, THC_DROP_FRAGMENT, f.frag = 0x2000);
	DROP("UDP longer than IP", base, THC_DROP_TRUNCATED, f.udp_len = 8 + packet_len + 1);
	DROP("UDP without a THC header", base, THC_DROP_TRUNCATED, f.udp_len = 8 + 47);
	DROP("UDP length 0", base6, THC_DROP_TRUNCATED, f.udp_len = 1);
	DROP("IP shorter than its header", base, THC_DROP_TRUNCATED, f.ip_len = 19);
	DROP("IP longer than the frame", base, THC_DROP_TRUNCATED, f.ip_len = 28 + packet_len + 1);
	DROP("IPv6 longer than the frame", base6, THC_DROP_TRUNCATED,
	     f.ip_len = 8 + packet_len + 1);
	DROP("UDP shorter than IP", base, THC_DROP_LENGTH, f.udp_len = 8 + packet_len - 8);
	DROP("UDP shorter than IPv6", base6, THC_DROP_LENGTH, f.udp_len = 8 + packet_len - 8);
	/* a good packet, with bytes between the ends of UDP and IP */
	memset(packet + packet_len, 0, 8);
	DROP("IP longer than UDP", base, THC_DROP_LENGTH,
	     (packet_len += 8, f.udp_len = packet_len));
	packet_len -= 8;
	DROP("wrong source address", base, THC_DROP_ADDRESS, f.src = rig_addr(false, 11));
	DROP("an IPv6 source for an IPv4 rank", base6, THC_DROP_ADDRESS, (void)0);
	DROP("wrong source port", base, THC_DROP_ADDRESS, f.sport++);
	DROP("slot on the wrong port", base, THC_DROP_SLOT, f.dport++);
	job->ttl_min = 255;
	DROP("one router on the way", base, THC_DROP_HOPS, f.ttl = 254);
	DROP("one router on the way, IPv6", base6, THC_DROP_HOPS, f.ttl = 254);
	/* the hop count is checked first: the tag is not */
	packet[packet_len - 1]++;
	DROP("from afar and corrupted", base, THC_DROP_HOPS, f.ttl = 64);
	DROP("corrupted", base, THC_DROP_TAG, f.ttl = 255);
	packet[packet_len - 1]--;
	job->ttl_min = 200;
	DROP("too many routers on the way", base, THC_DROP_HOPS, f.ttl = 199);
#undef DROP
	f.ttl = 200;
	len = rig_frame(frame, &f, packet, packet_len);
	assert_true(slots_untouched());
	expect_event("just near enough", frame, len, XDP_DROP, THC_EVENT_ADDED);
	job->ttl_min = 0;
}

#define EXTS_MAX 128 /* bytes of extension headers */
#define FOREIGN (-1)

/* IPv6 extension headers @kinds, by their numbers, in front of UDP or @last. Each header but a
 * fragment's has a unit of 8 bytes, and another one per predecessor.
 */
struct chain {
	u8 kinds[6];
	int n;
	u8 last; /* 17 unless set */
	u16 offset; /* the fragment header's offset and flag */
	int why; /* a drop reason, or FOREIGN */
};

/* Lays out @c; returns its bytes. */
static size_t put_chain(u8 *out, const struct chain *c)
{
	size_t at = 0;
	int i;

	memset(out, 0, EXTS_MAX);
	for (i = 0; i < c->n; i++) {
		u8 next = i + 1 < c->n ? c->kinds[i + 1] : c->last ? c->last : 17;

		out[at] = next;
		if (c->kinds[i] == 44) {
			out[at + 2] = c->offset >> 8;
			out[at + 3] = c->offset;
			at += 8;
		} else {
			out[at + 1] = i;
			at += 8 * (i + 1);
		}
	}
	return at;
}

/* Extension headers in front of UDP to one of our ports: XDP drops packets that thcd's socket
 * would receive, as far as it follows the chain. 0: hop by hop, 43: routing, 44: fragment, 60:
 * destination, 51: AH.
 */
static const struct chain chains[] = {
	{ { 0 }, 1, .why = THC_DROP_IP_OPTIONS },
	{ { 43 }, 1, .why = THC_DROP_IP_OPTIONS },
	{ { 60 }, 1, .why = THC_DROP_IP_OPTIONS },
	{ { 0, 60, 43, 60 }, 4, .why = THC_DROP_IP_OPTIONS },
	{ { 60, 60, 60, 60 }, 4, .why = THC_DROP_IP_OPTIONS },
	{ { 60, 60, 60, 60, 60 }, 5, .why = FOREIGN },
	{ { 44 }, 1, .offset = 1, .why = THC_DROP_FRAGMENT },
	{ { 44 }, 1, .offset = 0, .why = THC_DROP_FRAGMENT }, /* the only fragment of a packet */
	{ { 44 }, 1, .offset = 8, .why = FOREIGN },
	{ { 44 }, 1, .offset = 0xfff9, .why = FOREIGN },
	{ { 0, 44 }, 2, .offset = 1, .why = THC_DROP_FRAGMENT },
	{ { 44, 60 }, 2, .offset = 1, .why = THC_DROP_FRAGMENT },
	{ { 0, 43, 44, 60 }, 4, .offset = 1, .why = THC_DROP_FRAGMENT },
	{ { 0, 43, 44, 60 }, 4, .offset = 16, .why = FOREIGN },
	{ { 60 }, 1, .last = 6, .why = FOREIGN },
	{ { 60 }, 1, .last = 59, .why = FOREIGN },
	{ { 51 }, 1, .why = FOREIGN },
	{ { 60, 51 }, 2, .why = FOREIGN },
};

static void drop__extension_headers(void **state)
{
	u8 packet[1200], frame[RIG_FRAME_MAX], ext[EXTS_MAX];
	struct thc_addr elsewhere = rig_addr(true, 5);
	struct rig_frame f;
	size_t packet_len, len, i, known;
	char what[64];

	(void)state;
	fresh();
	packet_len = lut_packet(packet);
	for (i = 0; i < sizeof(chains) / sizeof(chains[0]); i++) {
		const struct chain *c = &chains[i];

		f = rig_way(&lut, true);
		f.vlan = i % 2 * 7;
		f.next = c->kinds[0];
		f.ext = ext;
		f.ext_len = put_chain(ext, c);
		known = 14 + f.vlan / 7 * 4 + 40 + f.ext_len + 8;
		for (len = rig_frame(frame, &f, packet, packet_len); len >= 54; len--) {
			snprintf(what, sizeof(what), "chain %zu, %zu bytes", i, len);
			if (len < known || c->why == FOREIGN)
				expect_foreign(what, frame, len);
			else
				expect_drop(what, frame, len, c->why);
		}
		/* other packets with such headers pass */
		f.dport = RIG_PORT + THC_PORT_SPAN;
		len = rig_frame(frame, &f, packet, packet_len);
		expect_foreign("extension headers, another port", frame, len);
		f.dport = RIG_PORT;
		f.dst = elsewhere;
		len = rig_frame(frame, &f, packet, packet_len);
		expect_foreign("extension headers, another host", frame, len);
	}
}

/* Requests that differ from a right one in a single field are dropped. */
#define DROP(reason, bytes, change) \
	do { \
		rig_header(&h, &lut); \
		change; \
		len = rig_packet(packet, &h, payload, bytes); \
		len = rig_frame(frame, &f, packet, len); \
		expect_drop(#change, frame, len, reason); \
	} while (0)
static void drop__header(void **state)
{
	u8 packet[1200], frame[RIG_FRAME_MAX];
	struct rig_frame f = rig_way(&lut, false);
	size_t len;
	struct thc_hdr h;
	int i;

	(void)state;
	fresh();
	DROP(THC_DROP_VERSION, LUT_LEN, h.version = 0);
	DROP(THC_DROP_VERSION, LUT_LEN, h.version = 1);
	DROP(THC_DROP_VERSION, LUT_LEN, h.version = 3);
	for (i = 0; i < 256; i++) {
		if ((i >= 1 && i <= 7 && i != 5) || i == THC_OP_JOIN || i == THC_OP_LEAVE)
			continue;
		DROP(THC_DROP_OP, LUT_LEN, h.op = i);
	}
	for (i = 0; i < 256; i++) {
		if (i != 4)
			DROP(THC_DROP_WIDTH, LUT_LEN, h.width = i);
		if (i != 8 && i != 16 && i != 32)
			DROP(THC_DROP_WIDTH, 1024, (h.op = THC_OP_ADD, h.width = i));
		if (i != 32) {
			DROP(THC_DROP_WIDTH, 1024, (h.op = THC_OP_OR, h.width = i));
			DROP(THC_DROP_WIDTH, 1024, (h.op = THC_OP_MAX, h.width = i));
			DROP(THC_DROP_WIDTH, 1024, (h.op = THC_OP_CLAIM, h.width = i));
		}
		/* of ranks that the job does not have */
		DROP(THC_DROP_WIDTH, 1024, (h.op = THC_OP_CLAIM_HIGH, h.width = i));
	}
	DROP(THC_DROP_WIDTH, JOIN_LEN, (h.op = THC_OP_JOIN, h.width = 4));
	for (i = 0; i < 8; i++)
		DROP(THC_DROP_FLAGS, LUT_LEN, h.flags = 1 << i);
	DROP(THC_DROP_RESERVED, LUT_LEN, h.count = thc_be16(1));
	DROP(THC_DROP_RESERVED, LUT_LEN, h.bitmap = thc_be64(1ULL << 63));
	DROP(THC_DROP_LENGTH, 256, (void)0);
	DROP(THC_DROP_LENGTH, 1024, (void)0);
	DROP(THC_DROP_LENGTH, 0, (void)0);
	DROP(THC_DROP_LENGTH, 504, (void)0);
	DROP(THC_DROP_LENGTH, LUT_LEN, (h.op = THC_OP_ADD, h.width = 8));
	DROP(THC_DROP_LENGTH, 0, (h.op = THC_OP_JOIN, h.width = 0));
	DROP(THC_DROP_LENGTH, 16, (h.op = THC_OP_JOIN, h.width = 0));
	DROP(THC_DROP_LENGTH, JOIN_LEN + 8, (h.op = THC_OP_JOIN, h.width = 0));
	DROP(THC_DROP_LENGTH, 0, (h.op = THC_OP_LEAVE, h.width = 0));
	DROP(THC_DROP_LENGTH, LEAVE_LEN + 8, (h.op = THC_OP_LEAVE, h.width = 0));
	assert_true(slots_untouched());
}

static void drop__job_rank_slot(void **state)
{
	u8 packet[1200], frame[RIG_FRAME_MAX];
	struct rig_frame f = rig_way(&lut, false);
	size_t len;
	struct thc_hdr h;

	(void)state;
	fresh();
	DROP(THC_DROP_JOB, LUT_LEN, h.job = thc_be16(3));
	DROP(THC_DROP_JOB, LUT_LEN, h.job = thc_be16(THC_JOBS_MAX));
	DROP(THC_DROP_JOB, LUT_LEN, h.job = 0xffff);
	DROP(THC_DROP_JOB, 0, (h.op = THC_OP_LEAVE, h.width = 0, h.job = thc_be16(3)));
	DROP(THC_DROP_RANK, LUT_LEN, h.rank = thc_be16(4));
	DROP(THC_DROP_RANK, LUT_LEN, h.rank = thc_be16(64));
	DROP(THC_DROP_RANK, LUT_LEN, h.rank = thc_be16(255));
	DROP(THC_DROP_RANK, LUT_LEN, h.rank = thc_be16(256));
	DROP(THC_DROP_RANK, LUT_LEN, h.rank = thc_be16(65535));
	DROP(THC_DROP_ADDRESS, LUT_LEN, h.rank = thc_be16(1));
	DROP(THC_DROP_SLOT, LUT_LEN, h.slot = thc_be16(128));
	DROP(THC_DROP_SLOT, LUT_LEN, h.slot = 0xffff);
	DROP(THC_DROP_SLOT, LUT_LEN, h.slot = thc_be16(1));
	DROP(THC_DROP_SLOT, LUT_LEN, h.chunk = thc_be32(1));
	DROP(THC_DROP_SLOT, LUT_LEN, h.chunk = thc_be32(128));
	DROP(THC_DROP_SLOT, LUT_LEN, h.generation = thc_be32(1));
	/* without contributors the answer could name nobody */
	DROP(THC_DROP_BUSY, LUT_LEN,
	     (fresh(), rig.slots[64].epoch = 1, rig.slots[64].top = -1, h.generation = thc_be32(1),
	      h.chunk = thc_be32(128)));
	fresh();
	job->member[0].port = 0;
	DROP(THC_DROP_RANK, LUT_LEN, (void)0);
	job->member[0].port = thc_be16(RIG_CLIENT_PORT);
	job->active = 0;
	DROP(THC_DROP_JOB, LUT_LEN, (void)0);
	job->active = 1;
	rig.slots[64].lock = 1;
	DROP(THC_DROP_LOCK, LUT_LEN, (void)0);
	rig.slots[64].lock = 0;
	job->slot_base = RIG_SLOTS; /* a daemon's mistake, not the wire's */
	DROP(THC_DROP_INTERNAL, LUT_LEN, (void)0);
	job->slot_base = 64;
	assert_true(slots_untouched());
}
#undef DROP

/* @frame is dropped for @reason, and the answer tells its sender the contributors. */
static void expect_differs(const char *what, const u8 *frame, size_t len,
			   enum thc_drop_reason reason, u64 ranks)
{
	struct thc_slot before[RIG_SLOTS];
	u8 out[RIG_FRAME_MAX];
	struct thc_stats st;
	struct thc_hdr h;
	size_t out_len;

	rig_stats_clear(&rig);
	memcpy(before, rig.slots, sizeof(before));
	if (rig_run(rig.skel->progs.thc_xdp, frame, len, out, &out_len) != XDP_REDIRECT)
		fail_msg("%s: was not answered", what);
	st = rig_stats(&rig);
	rig_check_balance(&st);
	if (st.received != 1 || st.drop[reason] != 1)
		fail_msg("%s: reason %d was not counted once", what, reason);
	assert_memory_equal(before, rig.slots, sizeof(before));
	/* the answer goes to the sender, is no longer than the request, and is sealed */
	assert_int_equal(out_len, HEAD + sizeof(h));
	assert_true(out_len <= len);
	assert_memory_equal(out + 30, frame + 26, 4);
	assert_memory_equal(out + 36, frame + 34, 2);
	memcpy(&h, out + HEAD, sizeof(h));
	assert_int_equal(h.op, THC_OP_WAIT);
	assert_int_equal(h.flags, THC_F_DIFFERS);
	assert_int_equal(h.width, 0);
	assert_memory_equal(&h.job, frame + HEAD + 16, 18); /* job to slot: echoed */
	assert_memory_equal(&h.generation, frame + HEAD + 36, 4);
	assert_int_equal(thc_be64(h.bitmap), ranks);
	assert_int_equal(thc_be16(h.count), __builtin_popcountll(ranks));
	assert_true(rig_sealed(&h, NULL, 0));
}

/* A request must agree with its slot; the sender of another one learns the contributors. */
static void differs__is_told(void **state)
{
	struct rig_frame f = rig_way(&lut, false);
	u8 packet[1200], frame[RIG_FRAME_MAX];
	struct rig_request other = lut;
	struct thc_hdr h;
	size_t len;

	(void)state;
	fresh();
	for (other.rank = 1; other.rank < 4; other.rank += 2) {
		len = rig_build(frame, &other, payload, LUT_LEN);
		expect_event("first", frame, len, XDP_DROP, THC_EVENT_ADDED);
	}
#define DIFFERS(reason, bytes, change) \
	do { \
		rig_header(&h, &lut); \
		change; \
		len = rig_packet(packet, &h, payload, bytes); \
		len = rig_frame(frame, &f, packet, len); \
		expect_differs(#change, frame, len, reason, 0xa); \
	} while (0)
	DIFFERS(THC_DROP_MISMATCH, LUT_LEN, h.round = thc_be32(1));
	DIFFERS(THC_DROP_MISMATCH, 1024, (h.op = THC_OP_ADD, h.width = 16));
	DIFFERS(THC_DROP_MISMATCH, 1024, (h.op = THC_OP_MAX, h.width = 32));
	DIFFERS(THC_DROP_BUSY, LUT_LEN, (h.generation = thc_be32(1), h.chunk = thc_be32(128)));
	DIFFERS(THC_DROP_BUSY, LUT_LEN, (h.generation = thc_be32(2), h.chunk = thc_be32(256)));
	DIFFERS(THC_DROP_BUSY, LUT_LEN,
		(h.generation = thc_be32(0x7fffffff), h.chunk = thc_be32(0x7fffffffU * 128)));
#undef DIFFERS

	/* its epoch ended before it got the lock: the next one is told of the new epoch */
	rig.slots[64].epoch = 2;
	len = rig_build(frame, &lut, payload, LUT_LEN);
	expect_drop("an epoch that ended in between", frame, len, THC_DROP_MISMATCH);
}

/* XDP checks the sender before the tag: it does not read a stranger's packet to its end. */
static void drop__strangers_before_the_tag(void **state)
{
	struct rig_frame f = rig_way(&lut, false);
	u8 packet[1200], frame[RIG_FRAME_MAX];
	struct thc_hdr h;
	size_t len;

	(void)state;
	fresh();
#define DROP(reason, bytes, change) \
	do { \
		rig_header(&h, &lut); \
		change; \
		len = rig_packet(packet, &h, payload, bytes); \
		packet[8] ^= 1; \
		len = rig_frame(frame, &f, packet, len); \
		expect_drop(#change, frame, len, reason); \
	} while (0)
	DROP(THC_DROP_TAG, LUT_LEN, (void)0);
	DROP(THC_DROP_JOB, LUT_LEN, h.job = thc_be16(3));
	DROP(THC_DROP_JOB, LUT_LEN, h.job = thc_be16(THC_JOBS_MAX));
	DROP(THC_DROP_RANK, LUT_LEN, h.rank = thc_be16(4));
	DROP(THC_DROP_ADDRESS, LUT_LEN, h.rank = thc_be16(1));
	DROP(THC_DROP_OP, LUT_LEN, h.op = THC_OP_CLOSE);
	DROP(THC_DROP_ADDRESS, LUT_LEN, (h.op = THC_OP_CLOSE, h.rank = thc_be16(1)));
	/* the length is checked without a tag, header fields are not */
	DROP(THC_DROP_LENGTH, 40, h.flags = 1);
	DROP(THC_DROP_TAG, LUT_LEN, h.flags = 1);
	DROP(THC_DROP_TAG, LUT_LEN, h.width = 5);
	DROP(THC_DROP_TAG, LUT_LEN, h.slot = 0xffff);
	DROP(THC_DROP_TAG, 1024, (void)0);
#undef DROP
	assert_true(slots_untouched());
}

#define KEY_AT offsetof(struct thc_hdr, key_id)
#define TAG_AT offsetof(struct thc_hdr, tag)

/* The drop reason for a change of byte @i of the header. */
static enum thc_drop_reason changed(const u8 *frame, size_t i)
{
	u16 rank = frame[HEAD + 18] << 8 | frame[HEAD + 19];

	if (i == 0)
		return THC_DROP_VERSION;
	if (i == 1)
		return thc_op_is_data(frame[HEAD + 1]) ? THC_DROP_TAG : THC_DROP_OP;
	if (i == 16 || i == 17)
		return THC_DROP_JOB;
	if (i == 18 || i == 19)
		return rank < 4 ? THC_DROP_ADDRESS : THC_DROP_RANK;
	return THC_DROP_TAG;
}

/* @frame of rank 0 names another key: the answer tells that its epoch is over, and nothing else
 * changes.
 */
static void expect_epoch(const u8 *frame, size_t len)
{
	struct rig_frame f = rig_way(&lut, false);
	struct thc_end end = rig_end(&f);
	struct thc_hdr request, h;
	u8 out[RIG_FRAME_MAX];
	struct thc_stats st;
	size_t out_len;

	rig_stats_clear(&rig);
	job->member[0].told_at = 0;
	assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, out, &out_len), XDP_REDIRECT);
	st = rig_stats(&rig);
	rig_check_balance(&st);
	assert_int_equal(st.event[THC_EVENT_EPOCH], 1);
	assert_true(slots_untouched());
	assert_int_equal(out_len, HEAD + sizeof(h));
	memcpy(&request, frame + HEAD, sizeof(request));
	memcpy(&h, out + HEAD, sizeof(h));
	assert_true(rig_ends(&h, &end, request.tag));
	assert_false(rig_ends(&h, &end, request.tag ^ 1));
	end.port ^= 1;
	assert_int_equal(rig_ends(&h, &end, request.tag), rig_seal != THC_SEAL_NH);
}

/* The job uses this seal from here on. */
static void seal_with(u8 seal)
{
	rig_seal = seal;
	rig_epoch(&rig, 2, 1);
	fresh();
}

/* Any single changed bit is noticed. */
static void drop__any_bit(void **state)
{
	u8 frame[RIG_FRAME_MAX], seal;
	size_t len, i;
	int bit;

	(void)state;
	for (seal = THC_SEAL_SUM; seal <= THC_SEAL_NH; seal++) {
		seal_with(seal);
		len = rig_build(frame, &lut, payload, LUT_LEN);
		for (i = HEAD; i < len; i++) {
			for (bit = 0; bit < 8; bit += i < HEAD + sizeof(struct thc_hdr) ? 1 : 7) {
				frame[i] ^= 1 << bit;
				if (i - HEAD >= KEY_AT && i - HEAD < TAG_AT)
					expect_epoch(frame, len);
				else
					expect_drop("one bit", frame, len,
						    changed(frame, i - HEAD));
				frame[i] ^= 1 << bit;
			}
		}
		expect_event("unchanged", frame, len, XDP_DROP, THC_EVENT_ADDED);
	}
}

/* Payloads that a subprogram of their own reads, and payloads that are copied: the tag covers the
 * first and the last byte.
 */
static void drop__any_length(void **state)
{
	static const struct {
		u8 op, width, sum_width;
		size_t len;
	} row[] = {
		{ THC_OP_LUT_ADD, 4, 16, 256 },
		{ THC_OP_LUT_ADD, 4, 8, 512 },
		{ THC_OP_ADD, 32, 8, 1024 },
		{ THC_OP_LUT_ADD, 1, 32, 32 },
		{ THC_OP_LUT_ADD, 7, 32, 224 },
		{ THC_OP_LUT_ADD, 7, 8, 896 },
		{ THC_OP_LUT_ADD, 4, 4, 1024 },
		{ THC_OP_LUT_ADD, 8, 16, 512 },
		{ THC_OP_LUT_ADD, 5, 16, 320 },
		{ THC_OP_LUT_ADD, 7, 16, 448 },
		{ THC_OP_LUT_ADD, 5, 8, 640 },
	};
	u8 frame[RIG_FRAME_MAX], seal;
	size_t len, i;

	(void)state;
	for (seal = THC_SEAL_SUM; seal <= THC_SEAL_NH; seal++) {
		seal_with(seal);
		for (i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
			struct rig_request r = lut;
			size_t at;

			fresh();
			r.op = row[i].op;
			r.width = row[i].width;
			if (row[i].op == THC_OP_LUT_ADD)
				job->widths.sum[row[i].width - 1] = row[i].sum_width;
			len = rig_build(frame, &r, payload, row[i].len);
			for (at = len - row[i].len; at < len; at += row[i].len - 1) {
				frame[at] ^= 1;
				expect_drop("one byte", frame, len, THC_DROP_TAG);
				frame[at] ^= 1;
			}
			expect_event("unchanged", frame, len, XDP_DROP, THC_EVENT_ADDED);
		}
		memset(&job->widths, 0, sizeof(job->widths));
		job->widths.sum[3] = 8;
	}
}

/* Without a seal any contents will do, as long as the epoch's key is named and the tag is 0;
 * JOIN and LEAVE have the sum.
 */
static void drop__without_a_seal(void **state)
{
	struct rig_request leave = { .op = THC_OP_LEAVE, .job = 2, .rank = 1 };
	struct rig_request join = { .op = THC_OP_JOIN, .job = 2, .rank = 1 };
	struct rig_request add = lut, copied = lut;
	u8 frame[RIG_FRAME_MAX];
	size_t len, i;

	(void)state;
	add.op = THC_OP_ADD;
	add.width = 32;
	copied.width = 7;
	seal_with(THC_SEAL_NONE);
	len = rig_build(frame, &lut, payload, LUT_LEN);
	for (i = 0; i < 8; i++) {
		assert_int_equal(frame[HEAD + TAG_AT + i], 0);
		frame[HEAD + TAG_AT + i] = 0x40;
		expect_drop("a tag", frame, len, THC_DROP_TAG);
		frame[HEAD + TAG_AT + i] = 0;
	}
	for (i = KEY_AT; i < TAG_AT; i++) {
		frame[HEAD + i] ^= 1;
		expect_epoch(frame, len);
		frame[HEAD + i] ^= 1;
	}
	frame[len - 1] ^= 1;
	expect_event("other contents", frame, len, XDP_DROP, THC_EVENT_ADDED);
	len = rig_build(frame, &add, payload, 1024);
	frame[HEAD + TAG_AT + 7] ^= 1;
	expect_drop("a tag of lanes", frame, len, THC_DROP_TAG);
	len = rig_build(frame, &copied, payload, 896);
	frame[HEAD + TAG_AT + 7] ^= 1;
	expect_drop("a tag of what is copied", frame, len, THC_DROP_TAG);
	len = rig_build(frame, &join, payload, JOIN_LEN);
	frame[len - 1] ^= 1;
	expect_drop("JOIN has a sum in every job", frame, len, THC_DROP_TAG);
	len = rig_build(frame, &leave, payload, LEAVE_LEN);
	frame[len - 1] ^= 1;
	expect_drop("LEAVE has a sum in every job", frame, len, THC_DROP_TAG);
	frame[len - 1] ^= 1;
	frame[HEAD + TAG_AT + 7] ^= 1;
	expect_drop("LEAVE has a sum in every job", frame, len, THC_DROP_TAG);
	seal_with(THC_SEAL_NH);
}

/* Only a contribution that is added tells where a rank's answers by fanout go: neither a packet
 * with a wrong tag nor a copy does.
 */
static void heard__only_who_has_the_key(void **state)
{
	static const u8 nowhere[6];
	struct rig_frame f = rig_way(&lut, false);
	u8 packet[1200], frame[RIG_FRAME_MAX];
	struct thc_member *m = &job->member[0];
	size_t len, packet_len;
	int i;

	(void)state;
	fresh();
	f.vlan = 9;
	memset(m->mac, 0, sizeof(m->mac));
	m->vlan = m->tagged = 0;
	packet_len = lut_packet(packet);
	for (i = 0; i < 4; i++) {
		static const size_t at[] = { TAG_AT, KEY_AT, sizeof(struct thc_hdr), 0 };

		packet[at[i]] ^= 1;
		len = rig_frame(frame, &f, packet, packet_len);
		rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL);
		/* a length that no payload has */
		len = rig_frame(frame, &f, packet, packet_len - 8);
		rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL);
		packet[at[i]] ^= 1;
		assert_memory_equal(m->mac, nowhere, sizeof(nowhere));
		assert_int_equal(m->vlan | m->tagged, 0);
	}
	len = rig_frame(frame, &f, packet, packet_len - 8);
	rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL);
	assert_memory_equal(m->mac, nowhere, sizeof(nowhere));
	assert_true(slots_untouched());
	len = rig_frame(frame, &f, packet, packet_len);
	expect_event("with the key", frame, len, XDP_DROP, THC_EVENT_ADDED);
	assert_memory_equal(m->mac, f.src_mac, sizeof(f.src_mac));
	assert_int_equal(m->vlan, thc_be16(9));
	memset(f.src_mac, 0xee, sizeof(f.src_mac));
	f.vlan = 8;
	len = rig_frame(frame, &f, packet, packet_len);
	expect_event("a copy", frame, len, XDP_REDIRECT, THC_EVENT_WAITED);
	assert_memory_not_equal(m->mac, f.src_mac, sizeof(f.src_mac));
	assert_int_equal(m->vlan, thc_be16(9));
	/* the rank has a new NIC, and its next contribution tells its address */
	fresh();
	expect_event("another NIC", frame, len, XDP_DROP, THC_EVENT_ADDED);
	assert_memory_equal(m->mac, f.src_mac, sizeof(f.src_mac));
	assert_int_equal(m->vlan, thc_be16(8));
}

/* Time in ns by the programs' clock, which is up to a tick late. */
static u64 now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

#define TOLD_NS (100 * 1000000ULL)

/* A rank is told at most once in 100 ms that its key belongs to no epoch; packets in between are
 * dropped. Each rank has an interval of its own.
 */
static void epoch__is_told_seldom(void **state)
{
	struct rig_request other = lut;
	u8 frame[RIG_FRAME_MAX];
	size_t len, k;
	u64 before;

	(void)state;
	fresh();
	other.rank = 1;
	job->member[1].told_at = 0;
	/* again if the machine has paused for 100 ms */
	for (k = 0; k < 100; k++) {
		len = rig_build(frame, &lut, payload, LUT_LEN);
		frame[HEAD + KEY_AT] ^= 1;
		before = now_ns();
		expect_epoch(frame, len);
		assert_true(job->member[0].told_at >= before);
		assert_true(job->member[0].told_at <= now_ns());
		job->member[0].told_at = before = now_ns();
		if (rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL) == XDP_DROP)
			break;
		assert_true(now_ns() - before >= TOLD_NS);
	}
	assert_true(k < 100);
	assert_int_equal(rig_stats(&rig).drop[THC_DROP_KEY], 1);
	assert_int_equal(job->member[0].told_at, before);
	assert_int_equal(job->member[1].told_at, 0);
	len = rig_build(frame, &other, payload, LUT_LEN);
	frame[HEAD + KEY_AT] ^= 1;
	expect_event("another rank", frame, len, XDP_REDIRECT, THC_EVENT_EPOCH);
	len = rig_build(frame, &lut, payload, LUT_LEN);
	frame[HEAD + KEY_AT] ^= 1;
	job->member[0].told_at = now_ns() - TOLD_NS;
	expect_event("100 ms later", frame, len, XDP_REDIRECT, THC_EVENT_EPOCH);
	assert_true(slots_untouched());
}

/* LEAVE of @rank, sealed for @port and @aggregator. */
static size_t leave_of(u8 *frame, int rank, __be16 port, __be16 aggregator)
{
	struct rig_request r = { .op = THC_OP_LEAVE, .job = 2, .rank = rank };
	struct rig_frame f = rig_way(&r, false);
	struct thc_end end = { .addr = f.src, .port = port, .aggregator = aggregator };
	u8 packet[sizeof(struct thc_hdr) + LEAVE_LEN];
	struct thc_hdr h;

	rig_header(&h, &r);
	return rig_frame(frame, &f, packet, rig_membership(packet, &h, &end, payload, LEAVE_LEN));
}

static void membership__passes_to_the_daemon(void **state)
{
	u8 frame[RIG_FRAME_MAX], out[RIG_FRAME_MAX];
	struct rig_request join = { .op = THC_OP_JOIN, .job = 2, .rank = 3 };
	struct rig_request leave = { .op = THC_OP_LEAVE, .job = 2, .rank = 1 };
	struct thc_stats st;
	size_t len, out_len;

	(void)state;
	fresh();
	job->member[3].port = 0;
	len = rig_build(frame, &join, payload, JOIN_LEN);
	expect_event("JOIN of a new rank", frame, len, XDP_PASS, THC_EVENT_MEMBERSHIP);
	assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, out, &out_len), XDP_PASS);
	assert_int_equal(len, out_len);
	assert_memory_equal(frame, out, len);
	frame[len - 1] ^= 1;
	expect_drop("JOIN, corrupted", frame, len, THC_DROP_TAG);
	join.slot = 64;
	len = rig_build(frame, &join, payload, JOIN_LEN);
	expect_drop("JOIN to a port that thcd does not hear", frame, len, THC_DROP_SLOT);
	join.slot = 0;
	/* the daemon tells why this JOIN is wrong */
	join.rank = 200;
	len = rig_build(frame, &join, payload, JOIN_LEN);
	expect_event("JOIN of an impossible rank", frame, len, XDP_PASS, THC_EVENT_MEMBERSHIP);
	join.job = 9;
	len = rig_build(frame, &join, payload, JOIN_LEN);
	expect_event("JOIN of no job", frame, len, XDP_PASS, THC_EVENT_MEMBERSHIP);

	len = rig_build(frame, &leave, payload, LEAVE_LEN);
	expect_event("LEAVE", frame, len, XDP_PASS, THC_EVENT_MEMBERSHIP);
	leave.slot = 64;
	len = rig_build(frame, &leave, payload, LEAVE_LEN);
	expect_drop("LEAVE to a port that thcd does not hear", frame, len, THC_DROP_SLOT);
	leave.slot = 0;
	len = rig_build(frame, &leave, payload, LEAVE_LEN);
	frame[HEAD + TAG_AT] ^= 1;
	expect_drop("LEAVE, corrupted", frame, len, THC_DROP_TAG);
	frame[HEAD + KEY_AT] ^= 1;
	expect_drop("LEAVE under another key", frame, len, THC_DROP_KEY);
	len = leave_of(frame, 1, thc_be16(RIG_CLIENT_PORT + 2), 0);
	expect_drop("LEAVE that another worker was to send", frame, len, THC_DROP_TAG);
	len = leave_of(frame, 1, thc_be16(RIG_CLIENT_PORT + 1), thc_be16(1));
	expect_drop("LEAVE to another aggregator", frame, len, THC_DROP_TAG);
	len = leave_of(frame, 1, thc_be16(RIG_CLIENT_PORT + 1), 0);
	expect_event("LEAVE, by hand", frame, len, XDP_PASS, THC_EVENT_MEMBERSHIP);
	leave.rank = 3;
	len = rig_build(frame, &leave, payload, LEAVE_LEN);
	expect_drop("LEAVE of a rank that is not in", frame, len, THC_DROP_RANK);
	rig_member(job, 3, rig_addr(false, 13), RIG_CLIENT_PORT + 3);
	st = rig_stats(&rig);
	rig_check_balance(&st);
	assert_true(slots_untouched());
}

/* An answer that cannot be sent is counted as lost; the contribution was added all the same. */
static void answer__lost(void **state)
{
	struct rig_request r = lut;
	u8 frame[RIG_FRAME_MAX];
	struct thc_stats st;
	size_t len;
	u32 one = 1;

	(void)state;
	fresh();
	assert_int_equal(bpf_map_delete_elem(bpf_map__fd(rig.skel->maps.fan), &one), 0);
	for (r.rank = 0; r.rank < 4; r.rank++) {
		len = rig_build(frame, &r, payload, LUT_LEN);
		assert_int_equal(rig_run(rig.skel->progs.thc_xdp, frame, len, NULL, NULL),
				 XDP_DROP);
	}
	st = rig_stats(&rig);
	rig_check_balance(&st);
	assert_int_equal(st.event[THC_EVENT_ADDED], 4);
	assert_int_equal(st.event[THC_EVENT_FINISHED], 1);
	assert_int_equal(st.event[THC_EVENT_LOST], 1);
	rig_fan(&rig, 1, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(parse__foreign_passes_untouched),
		cmocka_unit_test(parse__accepts),
		cmocka_unit_test(parse__truncated_everywhere),
		cmocka_unit_test(drop__frame),
		cmocka_unit_test(drop__extension_headers),
		cmocka_unit_test(drop__header),
		cmocka_unit_test(drop__job_rank_slot),
		cmocka_unit_test(differs__is_told),
		cmocka_unit_test(drop__strangers_before_the_tag),
		cmocka_unit_test(drop__any_bit),
		cmocka_unit_test(drop__any_length),
		cmocka_unit_test(drop__without_a_seal),
		cmocka_unit_test(heard__only_who_has_the_key),
		cmocka_unit_test(epoch__is_told_seldom),
		cmocka_unit_test(membership__passes_to_the_daemon),
		cmocka_unit_test(answer__lost),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
