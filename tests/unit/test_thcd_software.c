// SPDX-License-Identifier: GPL-2.0
/*
 * thcd's software aggregator packet by packet, over real sockets: the seal, key and end of every
 * packet, from joining to the end of an epoch. Under each type of seal.
 */
#include <arpa/inet.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include <thc/aggregator/nibble.h>
#include <thc/key.h>
#include <thc/wire/welcome.h>
#include <thc/worker/parts.h>

#include "jobs.h"
#include "join.h"
#include "net.h"
#include "plan.h"
#include "software.h"

#define N		3
#define JOB		2
#define DATA_SLOTS	8
#define NORM_SLOTS	2
#define SLOT		5
#define LUT_BYTES	512
#define LEAVE_BYTES	sizeof(struct thc_leave)

static const u8 key[THC_KEY_BYTES] = "the key of the job of this test";
static struct thcd d;
static struct thcd_error error;
static u8 seal_types[] = { THC_SEAL_NONE, THC_SEAL_SUM, THC_SEAL_NH };

/* A worker's socket, and its path as thcd sees it. */
static struct worker {
	int fd;
	struct thc_path path;
} workers[N];

/* A packet in memory of any alignment, as it arrives. */
struct packet {
	struct thc_hdr h;
	u8 payload[THC_LANE_BYTES];
};

static struct thc_job *job(void)
{
	return &d.job[JOB];
}

static struct thc_seals *seals(void)
{
	return &d.seals[JOB];
}

static bool keyed(void)
{
	return seals()->seal == THC_SEAL_NH;
}

static void worker_open(struct worker *w)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof(at);

	w->fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_true(w->fd >= 0);
	assert_int_equal(bind(w->fd, (struct sockaddr *)&at, size), 0);
	assert_int_equal(getsockname(w->fd, (struct sockaddr *)&at, &size), 0);
	w->path = (struct thc_path){
		.src = thc_addr_v4(at.sin_addr.s_addr), .src_port = ntohs(at.sin_port),
		.dst_port = d.port, .ttl = THC_TTL,
	};
}

static int setup(void **state)
{
	struct thcd_plan plan = {
		.job = JOB,
		.ranks = N,
		.quorum = 2,
		.data_slots = DATA_SLOTS,
		.control_slots = NORM_SLOTS,
		.bits = 4,
		.tables = { .widths.sum[3] = 8, .granularity[3] = 15 },
		.reply = THC_REPLY_FANOUT,
		.seal = *(const u8 *)*state,
		.chunk = THC_COORDINATES(8),
		.admits = { .count = 1, .at = { { thc_addr_v4(0), 96 } } },
	};
	int i;

	memset(&d, 0, sizeof(d));
	d.software = true;
	d.instance = "test";
	/* the test tries ports of this range until one is free */
	for (d.port = 20000 + getpid() % 20000; d.port < 45000; d.port++)
		if (!thcd_net_open(&d, "127.0.0.1", &error))
			break;
	assert_int_equal(d.sockets, 1);
	if (thcd_software_init(&d, DATA_SLOTS + NORM_SLOTS, &error))
		fail_msg("%s", error.text);
	for (i = 0; i < 16; i++)
		plan.tables.level[16 + i] = i;
	if (plan.seal == THC_SEAL_NH)
		memcpy(plan.key, key, sizeof(key));
	thcd_job_create(&d, &plan);
	for (i = 0; i < N; i++)
		worker_open(&workers[i]);
	return 0;
}

static int teardown(void **state)
{
	int i;

	(void)state;
	for (i = 0; i < N; i++)
		close(workers[i].fd);
	thcd_job_forget(&d, JOB);
	thcd_net_close(&d);
	thcd_software_exit(&d);
	return 0;
}

static struct thc_end end_of(int rank)
{
	const struct thc_path *path = &workers[rank].path;

	return (struct thc_end){ .addr = path->src, .port = thc_be16(path->src_port) };
}

/* Delivers @p with @bytes of payload from @rank's socket; returns the drop reason, or minus the
 * fate.
 */
static int deliver(const struct packet *p, u32 bytes, int rank)
{
	struct thc_stats before = d.stats;
	struct packet copy = *p;
	int i;

	thcd_packet(&d, &copy, (u32)sizeof(p->h) + bytes, &workers[rank].path, false);
	thcd_out_flush(&d);
	assert_int_equal(d.stats.received, before.received + 1);
	for (i = 0; i < THC_EVENT_FATES; i++)
		if (d.stats.event[i] != before.event[i])
			return -i;
	for (i = 1; i < THC_DROP_REASONS; i++)
		if (d.stats.drop[i] != before.drop[i])
			return i;
	fail_msg("a packet without a fate");
	return 0;
}

static bool hears(int rank, int ms)
{
	struct pollfd p = { .fd = workers[rank].fd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

static void nobody_hears(void)
{
	int i;

	for (i = 0; i < N; i++)
		assert_false(hears(i, i ? 0 : 20));
}

/* The next packet at @rank's socket; returns bytes of payload. */
static u32 receive(int rank, struct packet *p)
{
	ssize_t n;

	assert_true(hears(rank, 2000));
	n = recv(workers[rank].fd, p, sizeof(*p), 0);
	assert_true(n >= (ssize_t)sizeof(p->h) && n % 8 == 0);
	return (u32)(n - (ssize_t)sizeof(p->h));
}

/* --- joining -------------------------------------------------------------------- */

/* Bytes of payload of a JOIN, or LEAVE. */
static u32 payload_of(u8 op)
{
	return op == THC_OP_JOIN ? sizeof(struct thc_join) : sizeof(struct thc_leave);
}

static struct packet control(u8 op, u16 rank, u8 nonce)
{
	struct packet p = {
		.h = {
			.version = THC_VERSION, .op = op, .job = thc_be16(JOB),
			.rank = thc_be16(rank),
		},
	};
	struct thc_join join = {
		.nonce = { nonce }, .offers = thc_be32(THC_OFFER_SEAL(seals()->seal)),
		.version_max = THC_VERSION, .restarted = thc_be16(THC_WORKER_NONE),
	};

	/* of LEAVE it is the nonce alone */
	memcpy(p.payload, &join, payload_of(op));
	return p;
}

static void seal_membership(struct packet *p, const struct thc_end *end)
{
	thc_member_seal(&p->h, thc_seal_of_members((u8)seals()->seal), &seals()->join, end,
			p->payload, (int)(payload_of(p->h.op) / 8));
}

static int say(struct packet *p, int rank)
{
	struct thc_end end = end_of(rank);

	seal_membership(p, &end);
	return deliver(p, payload_of(p->h.op), rank);
}

/* @p with @bytes of payload is thcd's packet to @rank, sealed by the job's key, or by the sum if
 * @unsealed.
 */
static void expect_thcds(const struct packet *p, u32 bytes, int rank, bool unsealed)
{
	struct thc_member_key by = { .id = 0 };
	struct thc_end end = end_of(rank);
	u8 seal = THC_SEAL_SUM;

	if (keyed() && !unsealed) {
		thc_member_key_derive(&by, key, THC_KEY_WELCOME, JOB);
		seal = THC_SEAL_NH;
	}
	assert_int_equal(p->h.key_id, by.id);
	assert_true(p->h.tag ==
		    thc_member_tag(seal, &by, &p->h, &end, p->payload, (int)(bytes / 8)));
	end.port ^= 1;
	assert_int_equal(p->h.tag == thc_member_tag(seal, &by, &p->h, &end, p->payload,
						     (int)(bytes / 8)),
			 seal == THC_SEAL_SUM);
}

/* Receives a CHALLENGE at @rank's socket, and puts its challenge into the JOIN @p. */
static void take_challenge(struct packet *p, int rank)
{
	struct thc_challenge c;
	struct packet got;

	assert_int_equal(receive(rank, &got), sizeof(c));
	assert_int_equal(got.h.op, THC_OP_CHALLENGE);
	assert_int_equal(got.h.rank, p->h.rank);
	assert_int_equal(got.h.epoch, 0);
	expect_thcds(&got, sizeof(c), rank, false);
	memcpy(&c, got.payload, sizeof(c));
	assert_memory_equal(c.nonce, p->payload, sizeof(c.nonce));
	memcpy(p->payload + offsetof(struct thc_join, challenge), c.challenge, sizeof(c.challenge));
}

static int join(int rank, u8 nonce)
{
	struct packet p = control(THC_OP_JOIN, rank, nonce);

	assert_int_equal(say(&p, rank), -THC_EVENT_MEMBERSHIP);
	take_challenge(&p, rank);
	return say(&p, rank);
}

/* Nonce of the last WELCOME. */
static u8 last_nonce;

/* The next packet at @rank's socket is a WELCOME, sealed by the job's key to this worker;
 * @unsealed: by a sum alone.
 */
static struct thc_spec welcome(int rank, bool unsealed)
{
	const struct thc_welcome *w;
	struct thc_spec s;
	struct packet p;
	u32 bytes;

	bytes = (u32)receive(rank, &p);
	assert_int_equal(p.h.op, THC_OP_WELCOME);
	expect_thcds(&p, bytes, rank, unsealed);
	w = (const void *)p.payload;
	assert_int_equal(thc_parts_form(w, bytes), THC_DROP_NONE);
	assert_int_equal(w->parts, 1);
	last_nonce = w->nonce[0];
	if (thc_be16(w->flags) & THC_WELCOME_F_REFUSED) {
		assert_int_equal(bytes, sizeof(*w));
		thc_spec_read_fixed(&s, w);
	} else {
		assert_true(thc_spec_read(&s, w, w + 1, bytes - (u32)sizeof(*w)));
	}
	return s;
}

static void all_join(void)
{
	int i;

	for (i = 0; i < N; i++) {
		assert_int_equal(join(i, 10 + i), -THC_EVENT_MEMBERSHIP);
		if (i < N - 1)
			welcome(i, false);
	}
	for (i = 0; i < N; i++)
		assert_int_equal(welcome(i, false).flags & THC_WELCOME_F_READY,
				 THC_WELCOME_F_READY);
}

static void join__welcome_names_the_epochs_salt(void **state)
{
	struct thc_seal_key up;
	struct thc_spec w;

	(void)state;
	assert_int_equal(join(1, 10), -THC_EVENT_MEMBERSHIP);
	w = welcome(1, false);
	assert_int_equal(job()->joined, 2);
	assert_int_equal(w.seal, seals()->seal);
	thc_seal_key_set(&up, keyed() ? key : NULL, THC_KEY_UP, JOB, w.salt);
	assert_memory_equal(&up, thc_seals_up(seals(), job()->epoch), sizeof(up));
	assert_true(thc_spec_is_sound(&w, 1, keyed()));
	nobody_hears();
}

/* A JOIN sealed for another worker's address or another aggregator is dropped. */
static void join__is_sealed_with_its_senders_end(void **state)
{
	struct packet p = control(THC_OP_JOIN, 1, 10);
	struct thc_end end;
	int i;

	(void)state;
	for (i = 0; i < 3; i++) {
		end = end_of(i ? 1 : 2);
		end.addr.word[3] ^= i == 1;
		end.aggregator ^= i == 2;
		seal_membership(&p, &end);
		assert_int_equal(deliver(&p, sizeof(struct thc_join), 1), THC_DROP_TAG);
	}
	end = end_of(1);
	seal_membership(&p, &end);
	p.payload[63] ^= 1;
	assert_int_equal(deliver(&p, sizeof(struct thc_join), 1), THC_DROP_TAG);
	assert_int_equal(job()->joined, 0);
	nobody_hears();
}

/* A JOIN with another key, or none, is refused by a WELCOME with the sum, which anybody can make.
 */
static void join__another_key_is_refused_without_a_seal(void **state)
{
	struct packet p = control(THC_OP_JOIN, 1, 10);
	struct thc_end end = end_of(1);
	struct thc_spec w;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		const struct thc_member_key other = { .sip = { 1, 2 }, .id = i ? 77 : 0 };

		if (!keyed() && !i)
			continue;
		thc_member_seal(&p.h, i ? THC_SEAL_NH : THC_SEAL_SUM, &other, &end, p.payload,
				sizeof(struct thc_join) / 8);
		assert_int_equal(deliver(&p, sizeof(struct thc_join), 1), -THC_EVENT_MEMBERSHIP);
		w = welcome(1, true);
		assert_int_equal(w.flags, THC_WELCOME_F_REFUSED);
		assert_int_equal(w.refusal, THC_REFUSED_JOB);
		assert_int_equal(last_nonce, 10);
	}
	assert_int_equal(job()->joined, 0);
}

/* Made by the test library of the last release with version 1, which shares no code with this one.
 */
static const char refused_1[] =
	"0111000052b8a1d71122334455667788000102000000000000000000000000000000000000000000"
	"00000000000000000000000000000000000000000000000000000000000000000102030405060708"
	"0000000000000000000000000000000000000000000000000206";

/* A worker of version 1 is refused in version 1. */
static void join__of_version_1(void **state)
{
	struct packet p = {
		.h = {
			.version = 1, .op = THC_OP_JOIN, .job = thc_be16(1),
			.rank = thc_be16(0x200),
			.key_id = thc_be32(0xdeadbeef), .tag = thc_be64(0x1122334455667788),
		},
		.payload = { 1, 2, 3, 4, 5, 6, 7, 8 },
	}, got;
	char text[2 * (sizeof(p.h) + 136) + 1];
	int i;

	(void)state;
	assert_int_equal(deliver(&p, 16, 1), THC_DROP_VERSION);
	assert_int_equal(receive(1, &got), 136);
	for (i = 0; i < 48 + 136; i++)
		snprintf(text + 2 * i, 3, "%02x", ((u8 *)&got)[i]);
	assert_memory_equal(text, refused_1, sizeof(refused_1) - 1);
	for (i = (int)sizeof(refused_1) - 1; i < (int)sizeof(text) - 1; i++)
		assert_int_equal(text[i], '0');
	/* no other packet of version 1 is answered */
	p.h.op = THC_OP_LEAVE;
	assert_int_equal(deliver(&p, 16, 1), THC_DROP_VERSION);
	p.h.op = THC_OP_JOIN;
	assert_int_equal(deliver(&p, 64, 1), THC_DROP_VERSION);
	p.h.version = 3;
	assert_int_equal(deliver(&p, 16, 1), THC_DROP_VERSION);
	assert_int_equal(job()->joined, 0);
	nobody_hears();
}

/* A refusal of a worker with the key is sealed by it. Ranks have 16 bits: 256 is not 0. */
static void join__refusals_are_sealed(void **state)
{
	static const u16 ranks[] = { N, 64, 255, 256, 65535 };
	struct thc_end end = end_of(0);
	struct thc_spec w;
	unsigned int i;

	(void)state;
	all_join();
	for (i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
		struct packet p = control(THC_OP_JOIN, ranks[i], 99);

		seal_membership(&p, &end);
		assert_int_equal(deliver(&p, sizeof(struct thc_join), 0), -THC_EVENT_MEMBERSHIP);
		w = welcome(0, false);
		assert_int_equal(w.flags, THC_WELCOME_F_REFUSED);
		assert_int_equal(w.refusal, THC_REFUSED_RANK);
	}
	assert_int_equal(job()->joined, 7);
	assert_int_equal(job()->restarter, THC_WORKER_NONE);
}

static void leave__is_sealed_with_its_senders_end(void **state)
{
	struct packet p;
	struct thc_end end;

	(void)state;
	all_join();
	p = control(THC_OP_LEAVE, 1, 11);
	if (keyed()) {
		end = end_of(2);
		seal_membership(&p, &end);
		assert_int_equal(deliver(&p, LEAVE_BYTES, 1), THC_DROP_TAG);
	}
	end = end_of(1);
	seal_membership(&p, &end);
	p.h.tag ^= 1;
	assert_int_equal(deliver(&p, LEAVE_BYTES, 1), THC_DROP_TAG);
	p.h.tag ^= 1;
	p.h.key_id ^= 1;
	assert_int_equal(deliver(&p, LEAVE_BYTES, 1), THC_DROP_KEY);
	assert_int_equal(job()->left, 0);
	p.h.key_id ^= 1;
	assert_int_equal(deliver(&p, LEAVE_BYTES, 1), -THC_EVENT_MEMBERSHIP);
	assert_int_equal(job()->left, 2);
	nobody_hears();
}

/* When @rank's epoch has ended by another rank's JOIN, thcd challenges @rank to join anew. */
static void asked_again(int rank)
{
	struct packet p = control(THC_OP_JOIN, rank, (u8)(10 + rank));

	take_challenge(&p, rank);
}

/* A recorded JOIN is answered by a CHALLENGE, which is shorter, and a recorded LEAVE by nothing:
 * neither changes the job.
 */
static void join__recorded_does_nothing(void **state)
{
	struct packet first = control(THC_OP_JOIN, 1, 10), again, leave;
	struct thc_job before;
	u32 challenged;
	int i;

	(void)state;
	assert_int_equal(say(&first, 1), -THC_EVENT_MEMBERSHIP);
	again = first;
	take_challenge(&first, 1);
	assert_int_equal(job()->joined, 0);
	assert_int_equal(say(&first, 1), -THC_EVENT_MEMBERSHIP);
	welcome(1, false);
	leave = control(THC_OP_LEAVE, 1, 10);
	assert_int_equal(say(&leave, 1), -THC_EVENT_MEMBERSHIP);
	assert_int_equal(job()->joined, 0);
	all_join();
	before = *job();
	challenged = (u32)d.counters.challenged;
	for (i = 0; i < 5; i++) {
		assert_int_equal(say(&leave, 1), -THC_EVENT_MEMBERSHIP);
		assert_int_equal(say(&first, 1), -THC_EVENT_MEMBERSHIP);
		/* its nonce is that of the joining before: two workers claim the rank */
		assert_int_equal(welcome(1, false).refusal, THC_REFUSED_TAKEN);
	}
	assert_int_equal(join(1, 20), -THC_EVENT_MEMBERSHIP);
	welcome(1, false);
	assert_int_equal(job()->epoch, before.epoch + 1);
	for (i = 0; i < N; i++)
		if (i != 1)
			asked_again(i);
	before = *job();
	for (i = 0; i < 5; i++) {
		assert_int_equal(say(&first, 1), -THC_EVENT_MEMBERSHIP);
		take_challenge(&again, 1);
	}
	assert_int_equal(d.counters.challenged, challenged + 1 + (N - 1) + 5);
	assert_memory_equal(job(), &before, sizeof(before));
	nobody_hears();
}

/* Each fault alone makes a JOIN invalid. */
static void join__of_a_form_that_is_not_known_is_dropped(void **state)
{
	static const struct {
		u8			at;
		u8			flip;
		enum thc_drop_reason	why;
	} faults[] = {
		{ offsetof(struct thc_join, flags) + 3, 2, THC_DROP_RESERVED }, /* NODE */
		{ offsetof(struct thc_join, flags) + 3, 4, THC_DROP_FLAGS },
		{ offsetof(struct thc_join, flags), 0x80, THC_DROP_FLAGS },
		{ offsetof(struct thc_join, workers) + 1, 1, THC_DROP_RESERVED },
		{ offsetof(struct thc_join, reserved), 1, THC_DROP_RESERVED },
		{ offsetof(struct thc_join, restarted), 1, THC_DROP_RESERVED },
		{ offsetof(struct thc_join, reserved2), 1, THC_DROP_RESERVED },
		{ offsetof(struct thc_join, reserved2) + 17, 1, THC_DROP_RESERVED },
		{ offsetof(struct thc_join, nonce), 10, THC_DROP_RESERVED }, /* zero */
	};
	struct packet p;
	unsigned int i;

	(void)state;
	for (i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
		p = control(THC_OP_JOIN, 1, 10);
		p.payload[faults[i].at] ^= faults[i].flip;
		assert_int_equal(say(&p, 1), faults[i].why);
	}
	nobody_hears();
	/* offers that are still unknown, and any highest version */
	p = control(THC_OP_JOIN, 1, 10);
	p.payload[offsetof(struct thc_join, offers)] = 0xff;
	p.payload[offsetof(struct thc_join, version_max)] = 9;
	assert_int_equal(say(&p, 1), -THC_EVENT_MEMBERSHIP);
	take_challenge(&p, 1);
	memset(p.payload + offsetof(struct thc_join, offers), 0, 4);
	assert_int_equal(say(&p, 1), -THC_EVENT_MEMBERSHIP);
	assert_int_equal(welcome(1, false).refusal, THC_REFUSED_SEAL);
	assert_int_equal(job()->joined, 0);
}

/* thcd reads at most 400 LEAVEs of a rank a second, recorded or not. */
static void leave__a_rank_has_a_bucket(void **state)
{
	struct packet p;
	int i, heard = 0;

	(void)state;
	all_join();
	p = control(THC_OP_LEAVE, 1, 11);
	for (i = 0; i < 1000; i++)
		heard += say(&p, 1) == -THC_EVENT_MEMBERSHIP;
	assert_in_range(heard, 2 * THC_JOINS_BURST, 900);
	assert_int_equal(job()->left, 2);
	/* other ranks have buckets of their own */
	p = control(THC_OP_LEAVE, 2, 12);
	assert_int_equal(say(&p, 2), -THC_EVENT_MEMBERSHIP);
	assert_int_equal(job()->left, 6);
	nobody_hears();
}

/* thcd reads at most 200 JOINs of a rank a second, recorded or not. */
static void join__a_rank_has_a_bucket(void **state)
{
	struct packet p = control(THC_OP_JOIN, 1, 10);
	int i, heard = 0;

	(void)state;
	for (i = 0; i < 1000; i++)
		heard += say(&p, 1) == -THC_EVENT_MEMBERSHIP;
	assert_in_range(heard, THC_JOINS_BURST, 500);
	assert_int_equal(d.counters.challenged, heard);
	/* other ranks have buckets of their own */
	assert_int_equal(join(2, 11), -THC_EVENT_MEMBERSHIP);
	welcome(2, false);
}

/* --- data ------------------------------------------------------------------------- */

static struct packet request(int rank, u32 generation)
{
	struct packet p = {
		.h = {
			.version = THC_VERSION, .op = THC_OP_LUT_ADD, .width = 4,
			.job = thc_be16(JOB), .rank = thc_be16(rank),
			.epoch = thc_be32(job()->epoch), .slot = thc_be16(SLOT),
			.chunk = thc_be32(SLOT + DATA_SLOTS * generation),
			.generation = thc_be32(generation),
		},
	};

	memset(p.payload, 0x11 * (rank + 1), LUT_BYTES);
	thc_seal(&p.h, (u8)seals()->seal, thc_seals_up(seals(), job()->epoch), p.payload,
		 LUT_BYTES / 8);
	return p;
}

static int contribute(int rank, u32 generation)
{
	struct packet p = request(rank, generation);

	return deliver(&p, LUT_BYTES, rank);
}

static void expect_down(const struct packet *p, u32 bytes)
{
	const struct thc_seal_key *down = thc_seals_down(seals(), job()->epoch);

	assert_int_equal(thc_be32(p->h.epoch), job()->epoch);
	assert_int_equal(p->h.key_id, down->id);
	assert_true(thc_seal_ok(&p->h, (u8)seals()->seal, down, p->payload, (int)(bytes / 8)));
}

/* Is @bytes the length of 1 to 8 bits with sums of 4 to 32 bits? */
static bool is_a_length(u32 bytes)
{
	u32 bits, width;

	for (width = 4; width <= 32; width *= 2)
		for (bits = 1; bits <= 8 && bits <= width; bits++)
			if (bytes == 1024 * bits / width)
				return true;
	return false;
}

/* A forged or cut packet is dropped, and changes neither slots nor members. */
static void data__a_wrong_tag_changes_nothing(void **state)
{
	struct thc_slot slots[DATA_SLOTS + NORM_SLOTS];
	struct thc_job before;
	struct packet p;
	u32 bit, bytes;

	(void)state;
	all_join();
	memcpy(slots, d.slot, sizeof(slots));
	before = *job();
	for (bit = 0; bit < 64; bit++) {
		p = request(1, 0);
		p.h.tag ^= 1ULL << bit;
		assert_int_equal(deliver(&p, LUT_BYTES, 1), THC_DROP_TAG);
	}
	p = request(1, 0);
	for (bytes = 0; bytes <= THC_LANE_BYTES; bytes += 8) {
		int want =
			is_a_length(bytes) ?
				/* the length of other data: without a tag it is checked alone */
				(seals()->seal == THC_SEAL_NONE ? THC_DROP_LENGTH : THC_DROP_TAG) :
				THC_DROP_LENGTH;

		if (bytes != LUT_BYTES)
			assert_int_equal(deliver(&p, bytes, 1), want);
	}
	for (bit = 0; bit < LUT_BYTES * 8 && seals()->seal != THC_SEAL_NONE; bit += 61) {
		p = request(1, 0);
		p.payload[bit / 8] ^= 1 << bit % 8;
		assert_int_equal(deliver(&p, LUT_BYTES, 1), THC_DROP_TAG);
	}
	assert_memory_equal(slots, d.slot, sizeof(slots));
	assert_memory_equal(job(), &before, sizeof(before));
	assert_int_equal(contribute(1, 0), -THC_EVENT_ADDED);
	nobody_hears();
}

/* Each direction has its key, so an answer that comes back as a request is dropped. */
static void data__an_answer_is_no_request(void **state)
{
	struct packet p;

	(void)state;
	all_join();
	p = request(1, 0);
	thc_seal(&p.h, (u8)seals()->seal, thc_seals_down(seals(), job()->epoch), p.payload,
		 LUT_BYTES / 8);
	assert_int_equal(deliver(&p, LUT_BYTES, 1), keyed() ? THC_DROP_TAG : -THC_EVENT_ADDED);
}

/* The copies of an answer to all ranks have one seal, to rank 0; a repeated answer has its own. */
static void answer__copies_have_one_seal(void **state)
{
	struct packet all[N], one;
	u32 g;
	int i;

	(void)state;
	all_join();
	for (g = 0; g < 3; g++) {
		for (i = 0; i < N; i++)
			assert_int_equal(contribute(i, g), -THC_EVENT_ADDED);
		for (i = 0; i < N; i++) {
			assert_int_equal(receive(i, &all[i]), THC_LANE_BYTES);
			assert_int_equal(all[i].h.rank, 0);
			assert_int_equal(all[i].h.flags, THC_F_ANSWER);
			assert_int_equal(all[i].payload[0], 1 + 2 + 3);
			expect_down(&all[i], THC_LANE_BYTES);
			assert_memory_equal(&all[i], &all[0], sizeof(all[0]));
		}
		for (i = 0; i < N; i++) {
			assert_int_equal(contribute(i, g), -THC_EVENT_REPEATED);
			assert_int_equal(receive(i, &one), THC_LANE_BYTES);
			assert_int_equal(thc_be16(one.h.rank), i);
			assert_int_equal(one.h.flags, THC_F_ANSWER | THC_F_REPEAT);
			expect_down(&one, THC_LANE_BYTES);
		}
	}
	nobody_hears();
}

/* Rank @rank contributes what its indices stand for, as lanes of the sum's width. */
static int contribute_sums(int rank, u32 generation)
{
	struct packet p = request(rank, generation);

	p.h.op = THC_OP_ADD;
	p.h.width = 8;
	memset(p.payload, rank + 1, sizeof(p.payload));
	thc_seal(&p.h, (u8)seals()->seal, thc_seals_up(seals(), job()->epoch), p.payload,
		 THC_LANE_BYTES / 8);
	return deliver(&p, THC_LANE_BYTES, rank);
}

/* Whichever ranks send lanes, in whatever order, the sums equal those of indices. */
static void answer__to_indices_and_sums(void **state)
{
	struct packet p;
	u32 g;
	int i;

	(void)state;
	all_join();
	for (g = 0; g < N; g++) {
		for (i = 0; i < N; i++)
			assert_int_equal(i == (int)g ? contribute_sums(i, g) : contribute(i, g),
					 -THC_EVENT_ADDED);
		for (i = 0; i < N; i++) {
			assert_int_equal(receive(i, &p), THC_LANE_BYTES);
			assert_int_equal(p.h.op, g ? THC_OP_LUT_ADD : THC_OP_ADD);
			assert_int_equal(p.h.width, 8);
			assert_int_equal(thc_be16(p.h.count), N);
			expect_down(&p, THC_LANE_BYTES);
			assert_int_equal(p.payload[0], 1 + 2 + 3);
			assert_memory_equal(p.payload, p.payload + 1, THC_LANE_BYTES - 1);
		}
	}
	nobody_hears();
}

/* Indices of any bits, with sums of any width: each rank sends a pattern of 3 bytes, which every
 * number of bits cuts differently, and the sums equal those of a plain loop.
 */
static void answer__to_indices_of_any_row(void **state)
{
	static const u8 pattern[N][3] = { { 0x1b, 0xd2, 0x87 }, { 0xff, 0x00, 0x5a },
					  { 0xc4, 0x39, 0x6e } };
	u16 table[THC_LEVELS_MAX];
	u32 bits, width, bytes, i, k, z, sum, got, g = 0;
	struct packet p;
	int r;

	(void)state;
	all_join();
	for (width = 4; width <= 32; width *= 2) {
		for (bits = 1; bits <= 8 && bits <= width; bits++, g++) {
			for (i = 0; i < 1U << bits; i++)
				table[i] = (u16)(i * 7 % (width == 4 ? 6 : 86));
			job()->widths.sum[bits - 1] = (u8)width;
			job()->flags = 0;
			thc_pairs_init(&d.pairs[thc_row_of_all(JOB, bits)], table, bits);
			bytes = 1024 * bits / width;
			for (r = 0; r < N; r++) {
				p = request(r, g);
				p.h.width = (u8)bits;
				for (i = 0; i < bytes; i++)
					p.payload[i] = pattern[r][i % 3];
				thc_seal(&p.h, (u8)seals()->seal,
					 thc_seals_up(seals(), job()->epoch), p.payload,
					 (int)bytes / 8);
				assert_int_equal(deliver(&p, bytes, r), -THC_EVENT_ADDED);
			}
			for (r = 0; r < N; r++) {
				assert_int_equal(receive(r, &p), THC_LANE_BYTES);
				assert_int_equal(p.h.width, width);
				expect_down(&p, THC_LANE_BYTES);
			}
			for (i = 0; i < 8192 / width; i++) {
				for (sum = 0, r = 0; r < N; r++) {
					for (z = 0, k = i * bits; k < (i + 1) * bits; k++)
						z = 2 * z +
						    (pattern[r][k / 8 % 3] >> (7 - k % 8)) % 2;
					sum += table[z];
				}
				for (got = 0, k = (i + 1) * width; k-- > i * width;)
					got = 2 * got + (p.payload[k / 8] >> k % 8) % 2;
				assert_int_equal(got, sum);
			}
		}
	}
	assert_int_equal(g, 28);
	nobody_hears();
}

static void answer__without_lanes_is_sealed(void **state)
{
	struct packet p;

	(void)state;
	all_join();
	assert_int_equal(contribute(1, 0), -THC_EVENT_ADDED);
	assert_int_equal(contribute(1, 0), -THC_EVENT_WAITED);
	assert_int_equal(receive(1, &p), 0);
	assert_int_equal(p.h.op, THC_OP_WAIT);
	expect_down(&p, 0);
	assert_int_equal(contribute(2, 1), THC_DROP_BUSY);
	assert_int_equal(receive(2, &p), 0);
	assert_int_equal(p.h.flags, THC_F_DIFFERS);
	expect_down(&p, 0);
	nobody_hears();
}

/* What a deadline closes is digested, too. */
static void answer__closed_is_sealed(void **state)
{
	struct packet p;

	(void)state;
	all_join();
	assert_int_equal(contribute(0, 0), -THC_EVENT_ADDED);
	assert_false(thcd_software_close(&d, JOB, SLOT, 0));
	assert_int_equal(contribute(1, 0), -THC_EVENT_ADDED);
	assert_true(thcd_software_close(&d, JOB, SLOT, 0));
	assert_int_equal(contribute(2, 0), -THC_EVENT_REPEATED);
	assert_int_equal(receive(2, &p), THC_LANE_BYTES);
	assert_int_equal(p.h.flags, THC_F_ANSWER | THC_F_REPEAT | THC_F_CLOSED);
	assert_int_equal(thc_be64(p.h.bitmap), 3);
	assert_int_equal(p.payload[0], 1 + 2);
	expect_down(&p, THC_LANE_BYTES);
}

/* A packet that reaches thcd beside XDP is not answered, and does not delay XDP's answer. */
static void epoch__beside_xdp_takes_no_turn(void **state)
{
	struct packet p;
	struct thc_packet at = { .hdr = &p.h, .payload_len = LUT_BYTES };
	struct thc_reaction r;

	(void)state;
	all_join();
	at.path = workers[1].path;
	p = request(1, 0);
	p.h.key_id ^= 1;
	d.software = false;
	r = thcd_gate(&d, &at);
	d.software = true;
	assert_int_not_equal(r.to, THC_TO_DAEMON);
	assert_int_equal(job()->member[1].told_at, 0);
	p = request(1, 0);
	p.h.key_id ^= 1;
	r = thcd_gate(&d, &at);
	assert_int_equal(r.event, THC_EVENT_EPOCH);
	assert_int_not_equal(job()->member[1].told_at, 0);
	nobody_hears();
}

/* A rank restarts: the others, which have only the old keys, are told the new epoch by a key that
 * outlives epochs, each at most once in a while. With the new keys the job goes on.
 */
static void epoch__its_end_is_told(void **state)
{
	u8 seal = thc_seal_of_members((u8)seals()->seal);
	struct packet old[N], p;
	int i, k;

	(void)state;
	all_join();
	for (i = 0; i < N; i++)
		old[i] = request(i, 0);
	assert_int_equal(join(0, 77), -THC_EVENT_MEMBERSHIP);
	welcome(0, false);
	assert_int_equal(job()->restarter, 0);
	for (i = 1; i < N; i++) {
		struct thc_end end = end_of(i);

		asked_again(i);
		assert_int_equal(deliver(&old[i], LUT_BYTES, i), -THC_EVENT_EPOCH);
		assert_int_equal(receive(i, &p), 0);
		assert_int_equal(p.h.op, THC_OP_STALE);
		assert_int_equal(p.h.flags, THC_F_EPOCH);
		assert_int_equal(thc_be32(p.h.epoch), job()->epoch);
		assert_int_equal(p.h.rank, 0);
		assert_int_equal(p.h.key_id, seals()->lost.id);
		assert_true(p.h.tag ==
			    thc_member_tag(seal, &seals()->lost, &p.h, &end, &old[i].h.tag, 1));
		for (k = 0; k < 10; k++)
			assert_int_equal(deliver(&old[i], LUT_BYTES, i), THC_DROP_KEY);
	}
	nobody_hears();
	for (i = 1; i < N; i++)
		assert_int_equal(join(i, 10 + i), -THC_EVENT_MEMBERSHIP);
	welcome(1, false);
	for (i = 0; i < N; i++)
		welcome(i, false);
	for (i = 0; i < N; i++)
		assert_int_equal(contribute(i, 0), -THC_EVENT_ADDED);
	for (i = 0; i < N; i++) {
		assert_int_equal(receive(i, &p), THC_LANE_BYTES);
		expect_down(&p, THC_LANE_BYTES);
	}
}

/* clang-format off */
#define CASE_OF(name, type, at) \
	{ #name ", " type, name, setup, teardown, &seal_types[at] }
#define CASE(name) \
	CASE_OF(name, "none", 0), CASE_OF(name, "sum", 1), CASE_OF(name, "nh", 2)
/* clang-format on */

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(join__welcome_names_the_epochs_salt),
		CASE_OF(join__is_sealed_with_its_senders_end, "nh", 2),
		CASE(join__another_key_is_refused_without_a_seal),
		CASE(join__of_version_1),
		CASE(join__refusals_are_sealed),
		CASE(join__recorded_does_nothing),
		CASE(join__of_a_form_that_is_not_known_is_dropped),
		CASE(join__a_rank_has_a_bucket),
		CASE(leave__a_rank_has_a_bucket),
		CASE(leave__is_sealed_with_its_senders_end),
		CASE(data__a_wrong_tag_changes_nothing),
		CASE(data__an_answer_is_no_request),
		CASE(answer__copies_have_one_seal),
		CASE(answer__to_indices_and_sums),
		CASE(answer__to_indices_of_any_row),
		CASE(answer__without_lanes_is_sealed),
		CASE(answer__closed_is_sealed),
		CASE(epoch__its_end_is_told),
		CASE(epoch__beside_xdp_takes_no_turn),
	};

	return cmocka_run_group_tests_name("thcd software", tests, NULL, NULL);
}
