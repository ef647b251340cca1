// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzes the aggregator with packets: bpf/thc.bpf.c itself, parser, admission,
 * slots, lanes and answers, compiled for user space with a shim in place of
 * the kernel's helpers. So it covers include/thc/ and the XDP program at once.
 *
 * An input is a sequence of actions: a raw frame; a well-formed packet, of
 * which some bytes may be changed and whose tag may be right or wrong; a
 * CLOSE; a new epoch. Each job has a seal of its own. After each one:
 *	- a frame that is not THC passes untouched and uncounted, every other
 *	  one is counted once as received and once under its fate;
 *	- what is refused for its header is counted under the reason that
 *	  Documentation/protocol.md has first, and JOINs, of strangers and of
 *	  each rank, reach the daemon only as long as there are tokens;
 *	- what was counted as added was entitled to it, and was not in before;
 *	- every answer that leaves has true lengths, addresses, checksums and
 *	  tag, and its lanes are those of exactly the contributors in
 *	  its bitmap, added here with plain integers per coordinate;
 *	- no answer leaves whose slot went on to something else while its lanes
 *	  were copied;
 *	- no lock is held, and no counter but those of this packet has moved.
 * Reads and writes beyond a frame are found by AddressSanitizer.
 */
#include <assert.h>
#include <sys/mman.h>
#include <linux/bpf.h>
#include <sanitizer/asan_interface.h>

#include "shim/bpf/bpf_helpers.h"

#include <thc/wire/checksum.h>

#include "fuzz.h"

/* Called for a clone after its lanes are copied and before the slot is checked again. */
static void fuzz_copied(void);
#define thc_checksum_udp(acc) (fuzz_copied(), thc_checksum_udp(acc))

/* XDP reads unaligned fields, which the kernel's compiler allows. */
#pragma clang attribute push(__attribute__((no_sanitize("alignment"))), apply_to = function)
#include "../../bpf/thc.bpf.c"

#define JOBS		3
#define JOB_SLOTS	3
#define DATA_SLOTS	2	/* the last slot is for norms */
#define SLOTS		(JOBS * JOB_SLOTS)
#define RANKS		3
#define FRAME_MAX	2048
#define FAN_MAX		(RANKS + 1)
#define SENT_TTL	64

/* --- the world ---------------------------------------------------------------- */

static struct thc_job world_jobs[THC_JOBS_MAX];
static struct thc_seals world_seals[THC_JOBS_MAX];
static struct thc_pairs world_pairs[THC_ROWS_MAX];
static struct thc_lane_block world_copy;
static struct thc_slot world_slots[SLOTS];
static struct thc_lanes world_lanes[SLOTS];
static struct thc_stats world_stats;
static struct thc_turn world_turn;
static struct thc_bucket world_strangers;
static int tokens;	/* of the strangers' bucket; time stands still */
static int rank_tokens[JOBS][RANKS], leave_tokens[JOBS][RANKS];
static bool told[JOBS][RANKS];	/* that an epoch is over: once */
static char world_fan[THC_RANKS_MAX + 1];
static struct thc_relay world_relay;
static bool relay_submitted, relay_full, relay_crowded;
static int redirected = -1;	/* entry of the fan */

/* A frame's memory; what lies outside data..data_end is poisoned. */
static u8 *low_memory;
static u8 *tail_limit;	/* the end of a frame's memory, to which it may grow */

static void *fuzz_lookup(void *map, const void *key)
{
	u32 k = *(const u32 *)key;

	if (map == (void *)&jobs)
		return k < THC_JOBS_MAX ? &world_jobs[k] : NULL;
	if (map == (void *)&seals_of)
		return k < THC_JOBS_MAX ? &world_seals[k] : NULL;
	if (map == (void *)&pairs)
		return k < THC_ROWS_MAX ? &world_pairs[k] : NULL;
	if (map == (void *)&slots)
		return k < SLOTS ? &world_slots[k] : NULL;
	if (map == (void *)&lanes)
		return k < SLOTS ? &world_lanes[k] : NULL;
	if (map == (void *)&stats)
		return k < 1 ? &world_stats : NULL;
	if (map == (void *)&copies)
		return k < 1 ? &world_copy : NULL;
	if (map == (void *)&turn)
		return k < 1 ? &world_turn : NULL;
	if (map == (void *)&strangers)
		return k < 1 ? &world_strangers : NULL;
	if (map == (void *)&fan)
		return k <= THC_RANKS_MAX ? &world_fan[k] : NULL;
	abort();
}

static long fuzz_redirect(void *map, __u32 key, __u64 flags)
{
	redirected = (char *)map - world_fan;
	require(redirected >= 0 && redirected <= RANKS && key == 0);
	require(!(flags & BPF_F_BROADCAST) == !redirected);
	return XDP_REDIRECT;
}

static long fuzz_adjust_tail(struct xdp_md *ctx, int delta)
{
	u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	u8 *to = end + delta;

	if (to > tail_limit || to < data + ETH_HLEN)
		return -1;
	ASAN_POISON_MEMORY_REGION(data, FRAME_MAX);
	ASAN_UNPOISON_MEMORY_REGION(data, to - data);
	if (to > end)
		memset(end, 0, to - end);
	ctx->data_end = (u32)(long)to;
	return 0;
}

/* A copy that sanitizers check. */
static long fuzz_load_bytes(struct xdp_md *ctx, __u32 at, void *to, __u32 bytes)
{
	const u8 *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;

	require(to == &world_copy && bytes && bytes <= sizeof(world_copy));
	if (at > end - data || bytes > end - data - at)
		return -1;
	memcpy(to, data + at, bytes);
	return 0;
}

static void *fuzz_reserve(void *ring, __u64 size, __u64 flags)
{
	require(ring == (void *)&relay && size == sizeof(world_relay) && !flags);
	return relay_full ? NULL : &world_relay;
}

static __u64 fuzz_query(void *ring, __u64 what)
{
	require(ring == (void *)&relay && what == BPF_RB_AVAIL_DATA);
	return relay_full || relay_crowded ? THC_RELAY_BYTES : 0;
}

static void fuzz_submit(void *record, __u64 flags)
{
	require(record == &world_relay && !flags);
	require(!relay_crowded || world_relay.type != THC_RELAY_HEADER);
	relay_submitted = true;
}

#define NOW_NS	1000000000ULL
#define TOKENS	3	/* at first; few, so that they are used up */

static __u64 fuzz_clock(void)
{
	return NOW_NS;
}

/* --- jobs --------------------------------------------------------------------- */

static u16 tables[JOBS][9][THC_LEVELS_MAX]; /* by the bits of an index */

/* A set holds the rows of all jobs of an input: two rows a job, whose sums may have one width. */
#define ROW_SETS 4
#define ROWS 2

static const struct thc_row rows[ROW_SETS][JOBS][ROWS] = {
	{ { { 4, 8, 0 }, { 3, 8, 0 } },
	  { { 4, 16, 0 }, { 5, 16, 0 } },
	  { { 4, 8, 1 }, { 2, 8, 0 } } },
	{ { { 2, 4, 0 }, { 1, 4, 0 } },
	  { { 1, 16, 0 }, { 6, 8, 0 } },
	  { { 5, 8, 0 }, { 8, 8, 0 } } },
	{ { { 8, 8, 0 }, { 4, 8, 1 } },
	  { { 7, 32, 0 }, { 2, 4, 0 } },
	  { { 3, 4, 0 }, { 1, 4, 0 } } },
	{ { { 4, 32, 0 }, { 8, 32, 0 } },
	  { { 6, 16, 1 }, { 2, 8, 0 } },
	  { { 4, 4, 1 }, { 3, 4, 0 } } },
};
static u32 row_set;

/* Levels in any order, the largest among them; sums of all ranks fit. */
static void make_table(u16 *table, const struct thc_row *row)
{
	u64 most = ((1ULL << row->sum_width) - 1) / RANKS;
	u32 i, z = 1U << row->bits;

	most = most < 4095 ? most : 4095;
	for (i = 0; i < z; i++)
		table[i] = row->linear && row->sum_width > row->bits ? i : i * 37 % (most + 1);
	if (!row->linear)
		table[z / 3] = most;
}

static void set_rows(u32 set)
{
	int j, i;

	row_set = set;
	memset(tables, 0, sizeof(tables));
	for (j = 0; j < JOBS; j++) {
		memset(&world_jobs[j].widths, 0, sizeof(world_jobs[j].widths));
		world_jobs[j].flags = 0;
		for (i = 0; i < ROWS; i++) {
			const struct thc_row *row = &rows[set][j][i];

			make_table(tables[j][row->bits], row);
			thc_pairs_init(&world_pairs[8 * j + row->bits - 1], tables[j][row->bits],
				       row->bits);
			world_jobs[j].widths.sum[row->bits - 1] = row->sum_width;
			world_jobs[j].flags |= row->linear ? THC_JOB_F_LINEAR : 0;
		}
	}
}

static const struct thc_config world_config = {
	.addr4 = { { 0, 0, __builtin_bswap32(0xffff), __builtin_bswap32(0x0a000064) } },
	.addr6 = { { __builtin_bswap32(0xfd770000), 0, 0, __builtin_bswap32(0x64) } },
	.port_base = THC_PORT_DEFAULT,
};

static struct thc_addr member_addr(int job, int rank)
{
	struct thc_addr six = { { thc_be32(0xfd770000), 0, 0, thc_be32(1 + rank) } };

	return job == 1 ? six : thc_addr_v4(thc_be32(0x0a000001 + rank));
}

static void set_config(bool relayed)
{
	struct thc_config c = world_config;
	void *to = (void *)(uintptr_t)&thc_config;

	/* the compiler must not know that this is the constant */
	asm volatile("" : "+r"(to));
	c.relay = relayed;
	memcpy(to, &c, sizeof(c));
}

static const enum thc_seal_type seal_types[JOBS] = { THC_SEAL_NH, THC_SEAL_SUM, THC_SEAL_NONE };

/* Any keys that differ; a job without a secret key has names alone. */
static void set_keys(struct thc_seals *s, int job)
{
	struct thc_seal_key *key[] = { &s->up[0], &s->up[1], &s->down[0], &s->down[1] };
	u32 i, k;

	memset(s, 0, sizeof(*s));
	s->seal = seal_types[job];
	for (k = 0; k < 4; k++) {
		key[k]->id = thc_be32(0x100 * (job + 1) + (k & 1));
		for (i = 0; !job && i < THC_NH_WORDS; i++)
			key[k]->nh[i] = (i + 1) * 0x9e3779b9 + k * 0x85ebca6b;
		key[k]->sip[0] = job ? 0 : 0x0123456789abcdefULL * (k + 1);
	}
	if (job)
		return;
	s->join = (struct thc_member_key){ { 1, 2 }, thc_be32(0x77), 0 };
	s->lost = (struct thc_member_key){ { 3, 4 }, thc_be32(0x77), 0 };
}

static void reset(void)
{
	int j, r;

	memset(world_jobs, 0, sizeof(world_jobs));
	memset(world_slots, 0, sizeof(world_slots));
	memset(world_lanes, 0xa5, sizeof(world_lanes));
	memset(&world_stats, 0, sizeof(world_stats));
	memset(&world_turn, 0, sizeof(world_turn));
	world_strangers.full_at = NOW_NS + (THC_JOINS_BURST - TOKENS) * THC_JOINS_NS;
	tokens = TOKENS;
	memset(told, 0, sizeof(told));
	for (j = 0; j < JOBS; j++) {
		struct thc_job *job = &world_jobs[j];

		set_keys(&world_seals[j], j);
		job->all = (1 << RANKS) - 1;
		job->joined = job->all;
		job->active = 1;
		job->epoch = 1;
		job->slot_base = j * JOB_SLOTS;
		job->slots = JOB_SLOTS;
		job->data_slots = DATA_SLOTS;
		job->ranks = RANKS;
		job->quorum = 1 + j % 2;
		job->ttl_min = j ? SENT_TTL : 0;
		job->reply = j == 0 ? THC_REPLY_MULTICAST : THC_REPLY_FANOUT;
		job->group = thc_addr_v4(thc_be32(0xefff0001));
		job->group_port = thc_be16(18499);
		job->port_base = THC_PORT_DEFAULT;
		for (r = 0; r < RANKS; r++) {
			job->member[r].addr = member_addr(j, r);
			job->member[r].port = thc_be16(40000 + r);
			job->member[r].joined = 1;
			job->member[r].joins = world_strangers;
			job->member[r].leaves.full_at =
				NOW_NS + THC_JOINS_BURST * THC_JOINS_NS - TOKENS * THC_LEAVES_NS;
			rank_tokens[j][r] = leave_tokens[j][r] = TOKENS;
		}
	}
}

/* --- the reference: contributions as they were counted ------------------------ */

struct contribution {
	bool in;
	u8 op;
	u8 payload[THC_LANE_BYTES];
};

/* @op: of the first contribution; @width: of the sum's lanes; @bits: of the indices, 0: none yet */
static struct shadow {
	bool used;
	u32 epoch;
	u32 generation;
	u8 op;
	u8 width;
	u8 bits;
	struct contribution from[RANKS];
} shadow[SLOTS][2];

/* Indices and lanes are added alike; other ops meet only themselves. */
static bool may_meet(u8 a, u8 b)
{
	return a == b || (a <= THC_OP_ADD && b <= THC_OP_ADD);
}

/* The slot of the last packet, which half of all CLOSEs name. */
static struct {
	u32 job, slot;
} recent;

static u32 lane_of(const u8 *p, int width, int i)
{
	u32 v = 0;
	int b;

	if (width == 4)
		return p[i / 2] >> 4 * (i % 2) & 15;
	for (b = width / 8 - 1; b >= 0; b--)
		v = v << 8 | p[i * width / 8 + b];
	return v;
}

static u32 value_of(int job, const struct shadow *s, const struct contribution *c, int i)
{
	int at, z = 0;

	if (c->op == THC_OP_LUT_ADD) {
		for (at = i * s->bits; at < (i + 1) * s->bits; at++)
			z = 2 * z + (c->payload[at / 8] >> (7 - at % 8) & 1);
		return tables[job][s->bits][z];
	}
	return lane_of(c->payload, s->width, i);
}

/* Lane @i of the contributions in @bitmap, without overflow. */
static u64 lane_wanted(int job, const struct shadow *s, u64 bitmap, int i)
{
	u64 want = 0;
	int r;

	for (r = 0; r < RANKS; r++) {
		u32 v = value_of(job, s, &s->from[r], i);

		if (!(bitmap >> r & 1))
			continue;
		/* there is no rank above 31 */
		if (s->op == THC_OP_CLAIM_HIGH || (s->op == THC_OP_CLAIM && i / 8 != r))
			v = 0;
		if (s->op == THC_OP_OR)
			want |= v;
		else if (s->op >= THC_OP_MAX)
			want = want > v ? want : v;
		else
			want += v;
	}
	return want;
}

/* Do lanes that are no sums of indices meet indices, and overflow the word of lane @i? */
static bool spills(int job, const struct shadow *s, u64 bitmap, int i)
{
	int lanes = 64 / s->width, k, r;
	bool mixed = false;

	for (r = 0; r < RANKS; r++)
		mixed |= bitmap >> r & 1 && s->from[r].op != s->op;
	for (k = 0; mixed && k < lanes; k++)
		if (lane_wanted(job, s, bitmap, i / lanes * lanes + k) >> s->width)
			return true;
	return false;
}

static void check_lanes(int job, u32 index, u32 generation, u64 bitmap, const u8 *answer)
{
	const struct shadow *s = &shadow[index][generation & 1];
	int i;

	for (i = 0; i < THC_LANE_BYTES * 8 / s->width; i++) {
		u64 want = lane_wanted(job, s, bitmap, i) & ((1ULL << s->width) - 1);

		require(lane_of(answer, s->width, i) == want || spills(job, s, bitmap, i));
	}
}

/* Do IP, UDP and THC agree where the packet ends, and does the frame hold it? */
static void check_lengths(const u8 *frame, size_t size, size_t at, u32 payload_len)
{
	const u8 *udp = frame + at - 8, *ip = udp - (frame[at - 28] == 0x45 ? 20 : 40);
	size_t len = 8 + sizeof(struct thc_hdr) + payload_len;
	bool v4 = udp - ip == 20;

	require((size_t)(udp[4] << 8 | udp[5]) == len);
	require((size_t)(v4 ? (ip[2] << 8 | ip[3]) - 20 : ip[4] << 8 | ip[5]) == len);
	require(udp + len <= frame + size);
}

/* TTL or hop limit in front of the THC header at @h. */
static u8 ttl_of(const u8 *h)
{
	const u8 *udp = h - 8;

	return udp[-20] == 0x45 ? udp[-12] : udp[-33];
}

/* The chunk of a slot's generation, by protocol.md. */
static u32 chunk_of(int slot, u32 generation)
{
	return slot < DATA_SLOTS ? generation * DATA_SLOTS + slot :
				   generation * (JOB_SLOTS - DATA_SLOTS) + slot - DATA_SLOTS;
}

/* The start of IP, and of THC, in a frame taken for a packet. */
static const u8 *ip_header(const u8 *frame)
{
	u32 proto = frame[12] << 8 | frame[13];

	return frame + (proto == ETH_P_8021Q || proto == ETH_P_8021AD ? 18 : 14);
}

static size_t header_offset(const u8 *frame)
{
	const u8 *ip = ip_header(frame);

	return ip - frame + ((ip[-2] << 8 | ip[-1]) == ETH_P_IP ? 20 : 40) + 8;
}

/* --- the reference: tags -------------------------------------------------------- */

/* NH, an integer at a time. */
static u64 nh_of(const u32 *key, const u8 *payload, u32 bytes)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i < bytes / 8; i++) {
		u32 low = lane_of(payload, 32, 2 * i) + key[2 * i];
		u32 high = lane_of(payload, 32, 2 * i + 1) + key[2 * i + 1];

		sum += (u64)low * high;
	}
	return sum;
}

/* The sum of version 1, with its own field as zero. */
static u32 sum_of(const struct thc_hdr *h, const u8 *more, u32 bytes)
{
	struct thc_sum none = { 0, 0 };

	thc_sum_add(&none, more, bytes / 8);
	return thc_sum32(h, none, bytes / 8);
}

static u32 header_words(const struct thc_hdr *h, u64 *out)
{
	u64 word[THC_HDR_WORDS];

	memcpy(word, h, sizeof(word));
	out[0] = word[0];
	memcpy(out + 1, word + 2, 4 * sizeof(u64));
	return 5;
}

/* The tag of data, answers and WAIT. */
static __be64 data_tag(int job, const struct thc_seal_key *key, const struct thc_hdr *h,
		       const u8 *payload, u32 bytes)
{
	u64 word[6];
	u32 n = header_words(h, word);

	if (seal_types[job] == THC_SEAL_NONE)
		return 0;
	if (seal_types[job] == THC_SEAL_SUM)
		return thc_be64(sum_of(h, payload, bytes));
	word[n++] = nh_of(key->nh, payload, bytes);
	return thc_be64(thc_siphash(key->sip, word, n));
}

/* Most bytes that follow the header of a membership packet to the aggregator: JOIN's. */
#define MEMBERSHIP_MAX	64

/* Of JOIN, LEAVE, and of STALE that ends an epoch, for which @more is the request's tag. */
static __be64 member_tag(int job, const struct thc_member_key *key, const struct thc_hdr *h,
			 const struct thc_end *end, const void *more, u32 bytes)
{
	u64 word[5 + 3 + MEMBERSHIP_MAX / 8];
	u32 n = header_words(h, word);

	if (seal_types[job] != THC_SEAL_NH)
		return thc_be64(sum_of(h, more, bytes));
	memcpy(word + n, end, sizeof(*end));
	n += 3;
	require(bytes <= MEMBERSHIP_MAX);
	if (bytes)
		memcpy(word + n, more, bytes);
	return thc_be64(thc_siphash(key->sip, word, n + bytes / 8));
}

/* The sender of the frame with THC at @at. */
static struct thc_end end_of(const u8 *frame, size_t at)
{
	const u8 *udp = frame + at - 8, *ip = ip_header(frame);
	struct thc_end end = { .addr = thc_addr_v4(0) };

	memcpy(udp - ip == 20 ? &end.addr.word[3] : &end.addr.word[0],
	       ip + (udp - ip == 20 ? 12 : 8), udp - ip == 20 ? 4 : 16);
	memcpy(&end.port, udp, 2);
	return end;
}

/* The request that is being answered. */
static struct {
	struct thc_end end;
	__be64 tag;
	u32 rank;
} asked;

/* Bytes of a data packet's payload. */
static u32 payload_of(const struct thc_hdr *h)
{
	const struct thc_job *job = &world_jobs[thc_be16(h->job)];

	return h->op == THC_OP_LUT_ADD ? 1024 * h->width / job->widths.sum[h->width - 1] : 1024;
}

/* A packet was counted as added: was it entitled to that? */
static void note_added(const u8 *frame, size_t size, const struct thc_hdr *h, u32 payload_len)
{
	int job = thc_be16(h->job), slot = thc_be16(h->slot), rank = thc_be16(h->rank), r;
	u32 generation = thc_be32(h->generation), index = job * JOB_SLOTS + slot;
	u8 bits = h->op == THC_OP_LUT_ADD ? h->width : 0;
	u8 width = bits ? world_jobs[job].widths.sum[bits - 1] : h->width;
	const u8 *payload = (const u8 *)(h + 1);
	const struct thc_seal_key *key;

	recent.job = job;
	recent.slot = slot;
	require(payload + payload_len <= frame + size);
	require(h->version == THC_VERSION && job < JOBS && slot < JOB_SLOTS && rank < RANKS);
	key = &world_seals[job].up[world_jobs[job].epoch & 1];
	require(h->key_id == key->id);
	require(thc_be32(h->epoch) == world_jobs[job].epoch);
	require(ttl_of((const u8 *)h) >= (job ? SENT_TTL : 0));
	require(thc_be32(h->chunk) == chunk_of(slot, generation));
	require(!h->count && !h->bitmap && !h->flags);
	require(h->tag == data_tag(job, key, h, payload, payload_len));
	if (!shadow[index][generation & 1].used ||
	    shadow[index][generation & 1].generation != generation ||
	    shadow[index][generation & 1].epoch != thc_be32(h->epoch)) {
		memset(&shadow[index][generation & 1], 0, sizeof(shadow[0][0]));
		shadow[index][generation & 1].used = true;
		shadow[index][generation & 1].generation = generation;
		shadow[index][generation & 1].epoch = thc_be32(h->epoch);
		shadow[index][generation & 1].op = h->op;
		shadow[index][generation & 1].width = width;
	}
	require(may_meet(shadow[index][generation & 1].op, h->op));
	require(shadow[index][generation & 1].width == width);
	if (bits && shadow[index][generation & 1].bits)
		require(shadow[index][generation & 1].bits == bits);
	shadow[index][generation & 1].bits |= bits;
	r = shadow[index][generation & 1].from[rank].in;
	require(!r);
	shadow[index][generation & 1].from[rank].in = true;
	shadow[index][generation & 1].from[rank].op = h->op;
	memcpy(shadow[index][generation & 1].from[rank].payload, payload, payload_len);
}

/* --- answers ------------------------------------------------------------------ */

static u32 ones(u32 sum, const u8 *p, size_t n)
{
	size_t i;

	for (i = 0; i + 1 < n; i += 2)
		sum += p[i] << 8 | p[i + 1];
	if (n & 1)
		sum += p[n - 1] << 8;
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* WAIT's contributors include its receiver, unless that one differs. */
static void check_wait(const struct thc_slot *s, const struct thc_hdr *h, u64 bitmap)
{
	u32 generation = thc_be32(h->generation);
	bool ahead = (s32)(generation - s->top) > 0;
	const struct thc_generation *g = &s->generation[(ahead ? s->top : generation) & 1];

	require(bitmap && bitmap == g->bitmap && g->number == (ahead ? s->top : generation));
	require(thc_be16(h->count) == __builtin_popcountll(bitmap));
	if (!(h->flags & THC_F_DIFFERS))
		require(!ahead && bitmap >> thc_be16(h->rank) & 1 &&
			h->round == thc_be32(g->round));
}

static void check_answer_seal(const struct thc_hdr *h, const u8 *payload, u32 payload_len)
{
	int job = thc_be16(h->job);
	const struct thc_seals *s = &world_seals[job];

	if (h->op == THC_OP_STALE && h->flags & THC_F_EPOCH) {
		require(h->key_id == s->lost.id && told[job][asked.rank]);
		require(h->tag == member_tag(job, &s->lost, h, &asked.end, &asked.tag, 8));
	} else {
		const struct thc_seal_key *key = &s->down[thc_be32(h->epoch) & 1];

		require(h->key_id == key->id);
		require(h->tag == data_tag(job, key, h, payload, payload_len));
	}
}

static void check_answer_header(const struct thc_hdr *h, const u8 *payload, u32 payload_len)
{
	int job = thc_be16(h->job), slot = thc_be16(h->slot);
	u32 generation = thc_be32(h->generation);
	u64 bitmap = thc_be64(h->bitmap);

	require(h->version == THC_VERSION && job < JOBS);
	check_answer_seal(h, payload, payload_len);
	if (h->flags & THC_F_ANSWER) {
		u32 index = job * JOB_SLOTS + slot;

		require(payload_len == THC_LANE_BYTES && slot < JOB_SLOTS);
		require(bitmap && !(bitmap & ~world_jobs[job].all));
		require(thc_be16(h->count) == __builtin_popcountll(bitmap));
		require(!(h->flags & THC_F_CLOSED) == (bitmap == world_jobs[job].all));
		require(shadow[index][generation & 1].used &&
			shadow[index][generation & 1].generation == generation &&
			shadow[index][generation & 1].epoch == thc_be32(h->epoch));
		require(h->op == shadow[index][generation & 1].op);
		require(h->width == shadow[index][generation & 1].width);
		check_lanes(job, index, generation, bitmap, payload);
	} else {
		require(h->op == THC_OP_WAIT || h->op == THC_OP_STALE);
		require(!payload_len && !h->width);
		if (h->op == THC_OP_WAIT)
			check_wait(&world_slots[job * JOB_SLOTS + slot], h, bitmap);
	}
}

/* Checks a sent frame as its receiver would. */
static void check_sent(const u8 *frame, size_t size)
{
	const u8 *ip = frame + 14, *udp;
	u32 proto = frame[12] << 8 | frame[13], sum;
	struct thc_hdr h;
	size_t len;

	if (proto == ETH_P_8021Q || proto == ETH_P_8021AD) {
		proto = frame[16] << 8 | frame[17];
		ip += 4;
	}
	if (proto == ETH_P_IP) {
		require(ip[0] == 0x45);
		len = ip[2] << 8 | ip[3];
		require(ip + len == frame + size);
		require(ones(0, ip, 20) == 0xffff);
		require(ip[8] == (ip[16] >> 4 == 0xe ? 1 : 255));
		udp = ip + 20;
		sum = ones(0, ip + 12, 8);
	} else {
		require(proto == ETH_P_IPV6 && ip[0] >> 4 == 6);
		len = 40 + (ip[4] << 8 | ip[5]);
		require(ip + len == frame + size);
		require(ip[7] == (ip[24] == 0xff ? 1 : 255));
		udp = ip + 40;
		sum = ones(0, ip + 8, 32);
	}
	len = udp[4] << 8 | udp[5];
	require(udp + len == frame + size && len >= 8 + sizeof(h));
	if (udp[6] | udp[7])
		require(ones(sum + IPPROTO_UDP + len, udp, len) == 0xffff);
	memcpy(&h, udp + 8, sizeof(h));
	check_answer_header(&h, udp + 8 + sizeof(h), len - 8 - sizeof(h));
}

static struct xdp_md put_frame(u8 *at, const u8 *frame, size_t size, size_t tailroom)
{
	ASAN_POISON_MEMORY_REGION(at, FRAME_MAX);
	ASAN_UNPOISON_MEMORY_REGION(at, size);
	memcpy(at, frame, size);
	tail_limit = at + size + tailroom;
	return (struct xdp_md){ .data = (u32)(long)at, .data_end = (u32)(long)(at + size) };
}

/* --- a slot that is taken while an answer is copied out of it ------------------ */

static int theft;	/* 1 to 7: number of the clone in which the slot is taken; 0: never */
static u64 thefts, packets;
static struct {
	struct thc_slot *slot;	/* NULL: nothing to be taken */
	struct thc_generation *generation;
	int clones;		/* clones until then */
	bool taken;
} victim;

/* Another CPU opens the next but one generation, or another epoch. */
static void take_slot(u32 by)
{
	if (theft & 1)
		victim.generation->number += 2 * by;
	else
		victim.slot->epoch += by;
}

static void fuzz_copied(void)
{
	if (!victim.slot || --victim.clones)
		return;
	take_slot(1);
	victim.taken = true;
	thefts++;
}

static void victim_choose(const struct thc_hdr *h)
{
	u32 index = thc_be16(h->job) * JOB_SLOTS + thc_be16(h->slot);

	memset(&victim, 0, sizeof(victim));
	if (!theft || !(h->flags & THC_F_ANSWER))
		return;
	victim.slot = &world_slots[index];
	victim.generation = &victim.slot->generation[thc_be32(h->generation) & 1];
	victim.clones = theft;
}

static void victim_restore(void)
{
	if (victim.taken)
		take_slot(-1);
	victim.slot = NULL;
}

/* Acts as the devmap: clones, which can grow, and then the frame, which cannot. */
static void send_clones(struct xdp_md *ctx, int entries)
{
	size_t size = ctx->data_end - ctx->data;
	u8 frame[FRAME_MAX];
	struct thc_hdr h;
	int k, sent = 0;

	memcpy(frame, (void *)(long)ctx->data, size);
	memcpy(&h, frame + header_offset(frame), sizeof(h));
	victim_choose(&h);
	for (k = 0; k < entries; k++) {
		bool original = k == entries - 1;
		struct xdp_md out = put_frame(low_memory + FRAME_MAX, frame, size,
					      original ? 0 : FRAME_MAX - size);

		if (thc_egress(&out) == XDP_PASS) {
			require(!victim.taken);
			check_sent((void *)(long)out.data, out.data_end - out.data);
			sent++;
		}
	}
	victim_restore();
	require(sent <= (entries > 1 ? entries - 1 : 1));
}

/* --- actions ------------------------------------------------------------------ */

static u64 total(const u64 *counter, int n)
{
	u64 sum = 0;

	while (n--)
		sum += counter[n];
	return sum;
}

static void check_after(const struct thc_stats *before)
{
	int i;

	require(world_stats.received == total(world_stats.event, THC_EVENT_FATES) +
						total(world_stats.drop, THC_DROP_REASONS));
	require(!world_stats.drop[THC_DROP_NONE]);
	require(!world_stats.drop[THC_DROP_INTERNAL] && !world_stats.drop[THC_DROP_LOCK]);
	require(world_stats.received - before->received <= 1);
	for (i = 0; i < SLOTS; i++)
		require(!world_slots[i].lock);
}

/* Checks the sender: job, rank, address and port. */
static enum thc_drop_reason unknown_sender(const struct thc_hdr *h, const struct thc_end *end)
{
	int job = thc_be16(h->job), rank = thc_be16(h->rank);
	struct thc_addr member;

	if (job >= JOBS || !world_jobs[job].active)
		return THC_DROP_JOB;
	if (rank >= RANKS)
		return THC_DROP_RANK;
	member = member_addr(job, rank);
	return end->port == thc_be16(40000 + rank) && !memcmp(&end->addr, &member, sizeof(member)) ?
		       THC_DROP_NONE :
		       THC_DROP_ADDRESS;
}

static enum thc_drop_reason bad_form(const struct thc_hdr *h)
{
	if (h->flags)
		return THC_DROP_FLAGS;
	return h->count || h->bitmap ? THC_DROP_RESERVED : THC_DROP_NONE;
}

/* Has the packet with @payload come to the port that thcd listens on? */
static bool is_heard(const u8 *payload)
{
	const u8 *udp = payload - sizeof(struct thc_hdr) - 8;

	return (udp[2] << 8 | udp[3]) == THC_PORT_DEFAULT;
}

/* Checks the form of JOIN and LEAVE. */
static enum thc_drop_reason bad_membership_form(const struct thc_hdr *h, const u8 *payload,
						u32 length)
{
	enum thc_drop_reason why = bad_form(h);

	if (why)
		return why;
	if (h->width)
		return THC_DROP_WIDTH;
	if (length != (h->op == THC_OP_JOIN ? 64 : 16))
		return THC_DROP_LENGTH;
	return is_heard(payload) ? THC_DROP_NONE : THC_DROP_SLOT;
}

static enum thc_drop_reason take(int *of)
{
	return *of ? (--*of, THC_DROP_NONE) : THC_DROP_FLOOD;
}

static enum thc_drop_reason bad_join(const struct thc_hdr *h, const struct thc_end *end,
				     const u8 *payload, u32 length)
{
	enum thc_drop_reason why = bad_membership_form(h, payload, length);
	int job = thc_be16(h->job);

	if (why)
		return why;
	if (job >= JOBS || !world_jobs[job].active || h->key_id != world_seals[job].join.id ||
	    thc_be16(h->rank) >= RANKS)
		return take(&tokens);
	if (h->tag != member_tag(job, &world_seals[job].join, h, end, payload, length))
		return THC_DROP_TAG;
	return take(&rank_tokens[job][thc_be16(h->rank)]);
}

static enum thc_drop_reason bad_leave(const struct thc_hdr *h, const struct thc_end *end,
				      const u8 *payload, u32 length)
{
	enum thc_drop_reason why = bad_membership_form(h, payload, length);
	int job = thc_be16(h->job);

	if (why)
		return why;
	if (h->key_id != world_seals[job].join.id)
		return THC_DROP_KEY;
	if (h->tag != member_tag(job, &world_seals[job].join, h, end, payload, length))
		return THC_DROP_TAG;
	return take(&leave_tokens[job][thc_be16(h->rank)]);
}

/* A rank is told once that its epoch is over. */
static enum thc_drop_reason tell(const struct thc_hdr *h)
{
	bool *already = &told[thc_be16(h->job)][thc_be16(h->rank)];
	enum thc_drop_reason why = *already ? THC_DROP_KEY : THC_DROP_NONE;

	*already = true;
	return why;
}

/* Of 1 to 8 bits into sums of 4 to 32: protocol.md's list. */
static bool is_a_length(u32 length)
{
	static const u16 known[] = { 32,  64,  96,  128, 160, 192, 224, 256,
				     320, 384, 448, 512, 640, 768, 896, 1024 };
	size_t i;

	for (i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (length == known[i])
			return true;
	return false;
}

static enum thc_drop_reason bad_data(const struct thc_hdr *h, const u8 *payload, u32 length)
{
	int job = thc_be16(h->job);
	const struct thc_seal_key *key = &world_seals[job].up[world_jobs[job].epoch & 1];
	enum thc_drop_reason why;

	if (h->op < 1 || h->op > 7 || h->op == 5)
		return THC_DROP_OP;
	if (h->key_id != key->id)
		return tell(h);
	if (!is_a_length(length))
		return THC_DROP_LENGTH;
	if (h->tag != data_tag(job, key, h, payload, length))
		return THC_DROP_TAG;
	why = bad_form(h);
	if (why)
		return why;
	return thc_be32(h->epoch) != world_jobs[job].epoch ? tell(h) : THC_DROP_NONE;
}

/* The first reason of protocol.md's table that header, payload and tag give. */
static enum thc_drop_reason first_reason(const u8 *frame, size_t at)
{
	u32 length = (frame[at - 4] << 8 | frame[at - 3]) - 8 - sizeof(struct thc_hdr);
	const u8 *payload = frame + at + sizeof(struct thc_hdr);
	struct thc_end end = end_of(frame, at);
	enum thc_drop_reason why;
	struct thc_hdr h;

	memcpy(&h, frame + at, sizeof(h));
	/* the daemon answers JOINs of version 1 */
	if (h.version == 1 && h.op == THC_OP_JOIN && length == 16 && is_heard(payload))
		return take(&tokens);
	if (h.version != THC_VERSION)
		return THC_DROP_VERSION;
	/* only job 0 accepts any TTL */
	if (thc_be16(h.job) && thc_be16(h.job) < JOBS && ttl_of(frame + at) < SENT_TTL)
		return THC_DROP_HOPS;
	if (h.op == THC_OP_JOIN)
		return bad_join(&h, &end, payload, length);
	why = unknown_sender(&h, &end);
	if (why)
		return why;
	return h.op == THC_OP_LEAVE ? bad_leave(&h, &end, payload, length) :
				      bad_data(&h, payload, length);
}

/* Remembers the request that an answer will be for. */
static void note_asked(const u8 *frame, size_t size)
{
	size_t at = size < 60 ? size : header_offset(frame);
	struct thc_hdr h;

	if (at + sizeof(h) > size)
		return;
	memcpy(&h, frame + at, sizeof(h));
	asked.end = end_of(frame, at);
	asked.tag = h.tag;
	asked.rank = thc_be16(h.rank) % RANKS;
}

/* Is the reason under which the frame was counted the first that applies? */
static void check_reason(const u8 *frame, size_t size, const struct thc_stats *before)
{
	enum thc_drop_reason why, got = THC_DROP_NONE;
	size_t at = header_offset(frame);
	const u8 *udp = frame + at - 8, *ip = ip_header(frame);
	int i;

	for (i = 1; i < THC_DROP_REASONS; i++)
		if (world_stats.drop[i] > before->drop[i])
			got = i;
	/* reasons of the frame, which has no THC header */
	if (got == THC_DROP_TRUNCATED || got == THC_DROP_IP_OPTIONS || got == THC_DROP_FRAGMENT)
		return;
	require(size >= at + sizeof(struct thc_hdr));
	if (udp - ip == 20 ? (ip[2] << 8 | ip[3]) - 20 != (udp[4] << 8 | udp[5]) :
			     memcmp(ip + 4, udp + 4, 2)) {
		require(got == THC_DROP_LENGTH);
		return;
	}
	why = first_reason(frame, at);
	if (why)
		require(got == why);
	else
		require(!got || got == THC_DROP_WIDTH || got == THC_DROP_LENGTH ||
			got == THC_DROP_SLOT || got == THC_DROP_BUSY || got == THC_DROP_MISMATCH);
}

static void receive(const u8 *frame, size_t size)
{
	struct thc_stats before = world_stats;
	struct xdp_md ctx = put_frame(low_memory, frame, size, 0);
	int action;

	packets++;
	redirected = -1;
	relay_submitted = false;
	note_asked(frame, size);
	action = thc_xdp(&ctx);
	require(action == XDP_PASS || action == XDP_DROP || action == XDP_REDIRECT);
	require((action == XDP_REDIRECT) == (redirected >= 0));
	check_after(&before);
	if (world_stats.received > before.received)
		check_reason(frame, size, &before);
	if (action == XDP_PASS) {
		require(ctx.data_end - ctx.data == size &&
			!memcmp((void *)(long)ctx.data, frame, size));
		require(world_stats.received == before.received ||
			world_stats.event[THC_EVENT_MEMBERSHIP] >
				before.event[THC_EVENT_MEMBERSHIP]);
	} else {
		require(world_stats.received > before.received);
	}
	if (world_stats.event[THC_EVENT_ADDED] > before.event[THC_EVENT_ADDED]) {
		size_t at = header_offset(frame);
		struct thc_hdr h;

		memcpy(&h, frame + at, sizeof(h));
		check_lengths(frame, size, at, payload_of(&h));
		note_added(frame, size, (const void *)(frame + at),
			   size < at + sizeof(h) ?
				   0 :
				   (frame[at - 4] << 8 | frame[at - 3]) - 8 - sizeof(h));
	}
	if (action == XDP_REDIRECT)
		send_clones(&ctx, redirected + 1);
	if (relay_submitted && world_relay.type == THC_RELAY_HEADER)
		check_answer_header(&world_relay.hdr, NULL, 0);
	require(world_stats.received == before.received ||
		world_stats.event[THC_EVENT_LOST] <= before.event[THC_EVENT_LOST] + 1 ||
		redirected > 0);
}

static void act_raw(struct input *in)
{
	u8 frame[FRAME_MAX];
	size_t size = next(in) * 6, i;

	size += next(in) % 6;	/* odd ones, too */
	for (i = 0; i < size; i++)
		frame[i] = next(in);
	receive(frame, size);
}

/* The first two are LUT_ADD by the job's rows. */
struct shape {
	u8 op, width;
	u16 payload;
};

static const struct shape shapes[] = {
	{ THC_OP_LUT_ADD, 0, 0 }, { THC_OP_LUT_ADD, 0, 0 }, { THC_OP_ADD, 8, 1024 },
	{ THC_OP_ADD, 16, 1024 }, { THC_OP_ADD, 32, 1024 }, { THC_OP_OR, 32, 1024 },
	{ THC_OP_MAX, 32, 1024 }, { THC_OP_JOIN, 0, 64 }, { THC_OP_LEAVE, 0, 16 },
	{ THC_OP_CLOSE, 0, 0 }, { THC_OP_CLAIM, 32, 1024 },
};

/* Ethernet, IP and UDP around @bytes of THC; returns their length. */
static size_t put_headers(u8 *frame, int job, int rank, int slot, size_t bytes, u8 flags)
{
	struct thc_addr from = member_addr(job, rank);
	size_t n = 12, udp;

	memset(frame, 0x02, 12);
	frame[11] = 0x10 + rank;
	if (flags & 1) {
		memcpy(frame + n, "\x81\x00\x20\x07", 4);
		n += 4;
	}
	if (job == 1) {
		memcpy(frame + n, "\x86\xdd\x60\x00\x00\x00", 6);
		frame[n + 6] = (8 + bytes) >> 8;
		frame[n + 7] = 8 + bytes;
		frame[n + 8] = IPPROTO_UDP;
		frame[n + 9] = SENT_TTL;
		memcpy(frame + n + 10, &from, 16);
		memcpy(frame + n + 26, &world_config.addr6, 16);
		udp = n + 2 + 40;
	} else {
		memset(frame + n, 0, 22);
		memcpy(frame + n, "\x08\x00\x45", 3);
		frame[n + 3] = flags & 2 ? 3 : 0;
		frame[n + 4] = (28 + bytes) >> 8;
		frame[n + 5] = 28 + bytes;
		frame[n + 10] = SENT_TTL;
		frame[n + 11] = IPPROTO_UDP;
		memcpy(frame + n + 14, &from.word[3], 4);
		memcpy(frame + n + 18, &world_config.addr4.word[3], 4);
		udp = n + 2 + 20;
	}
	frame[udp] = 40000 >> 8;
	frame[udp + 1] = (40000 & 0xff) + rank;
	frame[udp + 2] = THC_PORT_DEFAULT >> 8;
	frame[udp + 3] = (THC_PORT_DEFAULT & 0xff) + slot / 64;
	frame[udp + 4] = (8 + bytes) >> 8;
	frame[udp + 5] = 8 + bytes;
	frame[udp + 6] = 0;
	frame[udp + 7] = 0;
	return udp + 8;
}

/* A worker's packet and its destination. */
struct request {
	int job;
	int rank;
	int slot;
	int shape;
	u32 epoch;
	u32 generation;
	u8 seed;
	u8 headers;	/* for put_headers() */
};

static struct shape shape_of(const struct request *r)
{
	struct shape s = shapes[r->shape];

	if (s.op == THC_OP_LUT_ADD) {
		const struct thc_row *row = &rows[row_set][r->job][r->shape];

		s.width = row->bits;
		s.payload = 1024 * row->bits / row->sum_width;
	}
	return s;
}

/* Lays out a right packet without its tag; *@head: the start of THC. */
static size_t put_request(u8 *frame, const struct request *r, size_t *head)
{
	const struct shape shape = shape_of(r);
	size_t bytes = shape.payload, i;
	struct thc_hdr h = {
		.version = THC_VERSION, .op = shape.op, .width = shape.width,
		.key_id = world_seals[r->job].up[r->epoch & 1].id, .job = thc_be16(r->job),
		.rank = thc_be16(r->rank), .epoch = thc_be32(r->epoch),
		.round = thc_be32(r->generation), .slot = thc_be16(r->slot),
		.chunk = thc_be32(chunk_of(r->slot, r->generation)),
		.generation = thc_be32(r->generation),
	};
	u8 *payload;

	if (h.op == THC_OP_JOIN || h.op == THC_OP_LEAVE)
		h.key_id = world_seals[r->job].join.id;
	*head = put_headers(frame, r->job, r->rank, r->slot, sizeof(h) + bytes, r->headers);
	memcpy(frame + *head, &h, sizeof(h));
	payload = frame + *head + sizeof(h);
	for (i = 0; i < bytes; i++)
		payload[i] = r->seed * (i + 1) + (i >> 3) * r->rank;
	return *head + sizeof(h) + bytes;
}

static void seal(u8 *frame, size_t head, const struct request *r)
{
	const struct thc_seals *s = &world_seals[r->job];
	const u8 *payload = frame + head + sizeof(struct thc_hdr);
	const struct thc_seal_key *key = &s->up[r->epoch & 1];
	struct thc_end end = end_of(frame, head);
	u32 bytes = shape_of(r).payload;
	struct thc_hdr h;

	memcpy(&h, frame + head, sizeof(h));
	/* a payload that is too long is refused for its length first */
	if ((h.op == THC_OP_JOIN || h.op == THC_OP_LEAVE) && bytes <= MEMBERSHIP_MAX)
		h.tag = member_tag(r->job, &s->join, &h, &end, payload, bytes);
	else
		h.tag = data_tag(r->job, key, &h, payload, bytes);
	memcpy(frame + head + offsetof(struct thc_hdr, tag), &h.tag, sizeof(h.tag));
}

static int shape_for(u8 what)
{
	return what % (sizeof(shapes) / sizeof(*shapes));
}

/* The newest generation of a slot, as the next packet should see it. */
static u32 top_of(int job, int slot)
{
	struct thc_slot *s = &world_slots[job * JOB_SLOTS + slot];

	return s->epoch == world_jobs[job].epoch ? s->top : (u32)-1;
}

/* An IPv4 option, the mark of a first fragment, or lengths that disagree. */
static size_t spoil_ip(u8 *frame, size_t size, size_t head, int how)
{
	u8 *ip = frame + head - 28;
	size_t len = size - (ip - frame);

	switch (how) {
	case 0:
		memmove(ip + 24, ip + 20, len - 20);
		memset(ip + 20, 1, 4);
		ip[0] = 0x46;
		len += 4;
		size += 4;
		break;
	case 1:
		ip[6] = 0x20;
		break;
	case 2:
		len -= 8;
		break;
	case 3:
		len += 8;
		break;
	}
	ip[2] = len >> 8;
	ip[3] = len;
	return size;
}

/* A length below @size, odd or even. */
static size_t cut(struct input *in, size_t size)
{
	size_t off = next(in) * 6;

	off += next(in) % 6;
	return size - off % size;
}

/* A right packet, in which up to seven bytes are then changed. */
static void act_packet(struct input *in, bool sealed)
{
	u8 who = next(in), where = next(in), changes = next(in), frame[FRAME_MAX];
	struct request r = {
		.job = who % JOBS, .rank = who / JOBS % RANKS, .headers = who >> 6,
		.slot = where % JOB_SLOTS, .seed = next(in),
	};
	size_t head, size;
	int i;

	r.shape = shape_for(next(in));
	r.generation = top_of(r.job, r.slot) + (where >> 1 & 3) - 1;
	r.epoch = world_jobs[r.job].epoch - (where >> 3 & 7) / 7;
	size = put_request(frame, &r, &head);
	if (sealed && changes & 0x10)	/* changed on the way: the tag was right */
		seal(frame, head, &r);
	for (i = changes & 7; i; i--) {
		size_t byte = (next(in) << 8 | next(in)) % size;

		/* mostly in the headers */
		if (changes & 0x20)
			byte %= head + sizeof(struct thc_hdr);
		frame[byte] ^= next(in);
	}
	if (sealed && !(changes & 0x10))	/* changed by its sender: the tag is right */
		seal(frame, head, &r);
	if (changes & 0x40)	/* cut, or with bytes behind it */
		size = changes & 0x80 ? size + next(in) % 64 : cut(in, size);
	else if (changes & 0x80 && r.job != 1)
		size = spoil_ip(frame, size, head, where >> 6);
	receive(frame, size);
}

/* The shape of lanes that meet a row's indices; 4-bit sums have none. */
static int shape_of_sums(const struct thc_row *row)
{
	switch (row->sum_width) {
	case 8:
		return 2;
	case 16:
		return 3;
	case 32:
		return 4;
	}
	return 0;
}

/* All ranks contribute to the next generation, in some order, once or twice; some send lanes
 * instead of indices.
 */
static void act_round(struct input *in)
{
	u8 who = next(in), order = next(in), what = next(in), frame[FRAME_MAX];
	struct request r = {
		.job = who % JOBS, .slot = who / JOBS % JOB_SLOTS, .headers = who >> 6,
		.seed = next(in),
	};
	size_t head, size;
	int i;

	r.epoch = world_jobs[r.job].epoch;
	r.generation = top_of(r.job, r.slot) + (order & 1);
	theft = order >> 5;
	for (i = 0; i < RANKS + (order >> 1 & 3); i++) {
		r.rank = (order + i) % RANKS;
		r.shape = shape_for(what);
		if (r.shape < 2 && order >> 3 & i & 3)
			r.shape = shape_of_sums(&rows[row_set][r.job][r.shape]);
		size = put_request(frame, &r, &head);
		seal(frame, head, &r);
		receive(frame, size);
	}
	theft = 0;
}

static void act_close(struct input *in)
{
	struct thc_stats before = world_stats;
	u8 where = next(in);
	u32 job = where & 0x20 ? recent.job : where % (JOBS + 1);
	u32 slot = where & 0x20 ? recent.slot : where / 4 % (JOB_SLOTS + 1), k;
	u32 index = job * JOB_SLOTS + slot;
	struct thc_close_request r = {
		.job = job, .slot = slot,
		.generation = (index < SLOTS ? world_slots[index].top : 0) - (where >> 6 & 1),
	};
	struct xdp_md ctx = put_frame(low_memory, (void *)&r, sizeof(r) - (where >> 7), 0);
	int action = thc_close(&ctx);

	require(world_stats.received == before.received);
	check_after(&before);
	require((action == XDP_TX) ==
		(world_stats.event[THC_EVENT_CLOSED] == before.event[THC_EVENT_CLOSED] + 1));
	if (action != XDP_TX)
		return;
	k = r.generation & 1;
	require(world_slots[index].generation[k].state == THC_CLOSED &&
		world_slots[index].generation[k].count >= world_jobs[job].quorum);
	/* lanes are little-endian words */
	check_lanes(job, index, r.generation, world_slots[index].generation[k].bitmap,
		    (const u8 *)world_lanes[index].word[k]);
}

static void act_daemon(struct input *in)
{
	u8 what = next(in);
	struct thc_job *job = &world_jobs[what % JOBS];

	switch (what / JOBS % 4) {
	case 0:
		job->epoch++;
		break;
	case 1:
		job->left ^= 1 << what / 16 % RANKS;
		break;
	case 2:
		job->active ^= 1;
		break;
	case 3:
		job->reply ^= THC_REPLY_MULTICAST ^ THC_REPLY_FANOUT;
		break;
	}
}

/* --- what was reached ----------------------------------------------------------- */

static struct thc_stats reached;

static void count_reached(void)
{
	size_t i;

	for (i = 0; i < sizeof(reached) / sizeof(u64); i++)
		((u64 *)&reached)[i] += ((const u64 *)&world_stats)[i];
}

/* A run whose inputs never pass the parser must not pass. */
static void report_reached(void)
{
	int i, missing = 0;

	printf("# reached:");
	for (i = 0; i < THC_EVENTS; i++) {
		printf(" event%d %llu", i, reached.event[i]);
		missing += !reached.event[i];
	}
	for (i = 1; i < THC_DROP_REASONS; i++) {
		printf(" drop%d %llu", i, reached.drop[i]);
		missing += !reached.drop[i] && i != THC_DROP_LOCK && i != THC_DROP_INTERNAL;
	}
	missing += !thefts;
	printf(" thefts %llu\n# %llu inputs, %llu packets, %d outcomes never reached\n", thefts,
	       (unsigned long long)inputs, packets, missing);
	fflush(stdout);
	/* a run with fewer inputs examines a crash */
	if (inputs >= FUZZ_ENOUGH && missing)
		_exit(1);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	uintptr_t page = sysconf(_SC_PAGESIZE);

	(void)argc;
	(void)argv;
	low_memory = mmap((void *)0x10000000, 2 * FRAME_MAX, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (low_memory != (void *)0x10000000) {
		fprintf(stderr, "no memory at 0x10000000: another mapping is there\n");
		exit(1);
	}
	/* A loader writes .rodata before it is frozen, and so does this test. */
	if (mprotect((void *)((uintptr_t)&thc_config & -page), 2 * page, PROT_READ | PROT_WRITE)) {
		perror("mprotect");
		exit(1);
	}
	atexit(report_reached);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	u8 first = next(&in);

	begin_input();
	reset();
	memset(shadow, 0, sizeof(shadow));
	memset(&recent, 0, sizeof(recent));
	set_config(first & 1);
	set_rows(first >> 1 & (ROW_SETS - 1));
	relay_full = first == 0x7f;
	relay_crowded = first == 0x7d;
	while (in.left) {
		u8 action = next(&in);

		switch (action & 15) {
		case 0:
			act_raw(&in);
			break;
		case 1:
			act_close(&in);
			break;
		case 2:
			act_daemon(&in);
			break;
		case 3:
		case 4:
			act_round(&in);
			break;
		default:
			act_packet(&in, action & 0x10);
			break;
		}
	}
	count_reached();
	return 0;
}
#pragma clang attribute pop
