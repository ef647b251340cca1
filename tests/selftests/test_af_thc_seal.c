// SPDX-License-Identifier: GPL-2.0
/*
 * Seals: how a socket's packets show that they belong to its job, and which packets from its
 * aggregator's address it accepts. First an exchange with known answers, then packets that are
 * forged, recorded, or meant for another worker.
 */
#include "fake.h"
#include "harness.h"
#include "netlink.h"
#include "tags.h"

/**
 * struct talk - a socket, and the test as its aggregator
 * @fd: rank 1, at @worker
 * @udp: the aggregator
 * @nonce: nonce of the last join
 */
struct talk {
	struct nl		nl;
	int			fd;
	int			udp;
	struct sockaddr_in	worker;
	fake_nonce		nonce;
};

FIXTURE(aggregator)
{
	struct talk	talk;
};

FIXTURE_SETUP(aggregator)
{
	struct talk *t = &self->talk;

	memset(t, 0, sizeof(*t));
	t->fd = -1;
	t->udp = -1;
	if (why_not())
		SKIP(return, "%s", why_not());
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(nl_open(&t->nl), 0);
	t->fd = thc_open(0);
	ASSERT_GE(t->fd, 0);
	t->udp = fake_open();
	ASSERT_GE(t->udp, 0);
}

FIXTURE_TEARDOWN(aggregator)
{
	close_all(&self->talk.fd, 1);
	close_all(&self->talk.udp, 1);
	nl_close(&self->talk.nl);
}

/* Drops the packets until now, and begins a JOIN of the socket. */
static int begin_again(struct talk *t)
{
	struct sockaddr_thc a = fake_place();
	int error;

	fake_forget(t->udp);
	error = begin_join(t->fd, &a);
	return error ? error : fake_take_join(t->udp, &t->worker, &t->nonce);
}

/* Begins a JOIN of a fresh socket with or without a key. */
static int begin_fake(struct __test_metadata *_metadata, struct talk *t, bool keyed)
{
	close(t->fd);
	t->fd = keyed ? thc_open(0) : thc_open_keyless(0);
	EXPECT_GE(t->fd, 0);
	return begin_again(t);
}

/* Delivers a packet to @to: it counts under @reason, or is not refused if @reason is NULL. */
static void tell_at(struct __test_metadata *_metadata, struct talk *t, const struct sockaddr_in *to,
		    const void *packet, size_t bytes, const char *reason)
{
	struct reasons before, after;

	ASSERT_EQ(nl_reasons(&t->nl, &before), 0);
	ASSERT_EQ(deliver(t->fd, t->udp, to, packet, bytes), 0);
	ASSERT_EQ(nl_reasons(&t->nl, &after), 0);
	EXPECT_EQ(reason_sum(&after) - reason_sum(&before), !!reason);
	if (reason)
		EXPECT_EQ(reason_count(&after, reason) - reason_count(&before, reason), 1)
	TH_LOG("not \"%s\"", reason);
}

static void tell(struct __test_metadata *_metadata, struct talk *t, const void *packet,
		 size_t bytes, const char *reason)
{
	tell_at(_metadata, t, &t->worker, packet, bytes, reason);
}

static void expect_joining(struct __test_metadata *_metadata, int fd)
{
	EXPECT_EQ(poll_now(fd), 0) TH_LOG("the join has ended");
	EXPECT_EQ(failure_of(fd).error, 0);
}

/* The job is joined, and @chunks of a message are in flight. */
static void begin_chunks(struct __test_metadata *_metadata, struct talk *t,
			 struct chunk_packet *request, unsigned int chunks)
{
	struct welcome_packet p;
	unsigned int i;

	ASSERT_EQ(begin_fake(_metadata, t, true), 0);
	good_welcome(&p, t->nonce);
	fake_seal_welcome(&p, &t->worker);
	tell(_metadata, t, &p, sizeof(p), NULL);
	ASSERT_EQ(end_join(t->fd), 0);
	ASSERT_EQ(send_part(t->fd, 1, &add8, chunks, 8), 0);
	for (i = 0; i < chunks; i++)
		ASSERT_EQ(fake_take_chunk(t->udp, &request[i], i), 0);
}

/* Turns the request into its answer, not yet sealed. */
static void make_answer(struct chunk_packet *p)
{
	p->h.flags = THC_F_ANSWER;
	p->h.rank = 0;
	p->h.count = htobe16(2);
	p->h.bitmap = htobe64(3);
}

/* A STALE that ends the epoch of @request: the aggregator's epoch is @epoch. Not sealed. */
static struct thc_hdr end_of_epoch(const struct thc_hdr *request, uint32_t epoch)
{
	struct thc_hdr h = *request;

	h.op = THC_OP_STALE;
	h.width = 0;
	h.flags = THC_F_EPOCH;
	h.rank = htobe16(0);
	h.epoch = htobe32(epoch);
	return h;
}

/* --- known answers -------------------------------------------------------- */

/* Derived by hashlib's BLAKE2s from job_key, job 1 and the salt of fake_seals(); and NH of the
 * bytes 7 i + 1 under the 1024 bytes of the keys of data and answers.
 */
static const struct tag_key known_join = { { 0xa45099510c9fdd52, 0xa2cfb868c260f9e1 }, 0x97fab960 };
static const struct tag_key known_welcome = { { 0xe2558fb9b9427779, 0xf32f8fa7d32b93f3 },
					      0x97fab960 };
static const struct tag_key known_lost = { { 0x6233cd97962c6288, 0xcaa614cf78efa798 }, 0x97fab960 };
static const struct tag_key known_up = { { 0x04a98f83a38d6d7b, 0x26d746097d2f2f01 }, 0xf4d27971 };
static const struct tag_key known_down = { { 0x1bed66fa290c8cee, 0xc1736c9da04e622f }, 0xf4d27971 };
#define KNOWN_UP_NH	0x1981a3e509f06d7bULL
#define KNOWN_DOWN_NH	0x97604ca3ae8e9c65ULL

static void known_lanes(uint8_t *lanes)
{
	int i;

	for (i = 0; i < THC_LANE_BYTES; i++)
		lanes[i] = (uint8_t)(7 * i + 1);
}

static struct tag_end known_end(const struct sockaddr_in *worker)
{
	struct tag_end end = { .address = { [10] = 0xff, [11] = 0xff } };

	memcpy(end.address + 12, &worker->sin_addr, 4);
	memcpy(end.port, &worker->sin_port, 2);
	return end;
}

static void expect_tag(struct __test_metadata *_metadata, const struct thc_hdr *h,
		       const struct tag_key *key, uint64_t tag)
{
	EXPECT_EQ(be32toh(h->key_id), key->id);
	EXPECT_EQ(be64toh(h->tag), tag);
}

static void set_tag(struct thc_hdr *h, const struct tag_key *key, const struct tag_end *end,
		    const void *payload, size_t bytes)
{
	h->key_id = htobe32(key->id);
	h->tag = htobe64(tag_of_membership(key, h, end, payload, bytes));
}

static void known_join_and_welcome(struct __test_metadata *_metadata, struct talk *t,
				   struct tag_end *end)
{
	struct sockaddr_thc a = fake_place();
	struct join_packet join;
	struct welcome_packet w;

	ASSERT_EQ(begin_join(t->fd, &a), 0);
	ASSERT_EQ(fake_take_join_packet(t->udp, &t->worker, &join), 0);
	*end = known_end(&t->worker);
	expect_tag(_metadata, &join.h, &known_join,
		   tag_of_membership(&known_join, &join.h, end, &join.j, sizeof(join.j)));
	good_welcome(&w, nonce_of(&join));
	set_tag(&w.h, &known_welcome, end, &w.all, sizeof(w.all));
	tell(_metadata, t, &w, sizeof(w), NULL);
	ASSERT_EQ(end_join(t->fd), 0);
}

/* Data chunk @number. */
static void known_request(struct __test_metadata *_metadata, struct talk *t, uint32_t number,
			  struct chunk_packet *p)
{
	known_lanes(p->lanes);
	ASSERT_EQ(send_message(t->fd, p->lanes, LANES, &add8, 0), LANES);
	ASSERT_EQ(fake_take_chunk(t->udp, p, number), 0);
	expect_tag(_metadata, &p->h, &known_up, tag_of_data(&known_up, &p->h, KNOWN_UP_NH));
	EXPECT_EQ(p->h.flags, 0);
	EXPECT_EQ(be16toh(p->h.rank), 1);
}

TEST_F(aggregator, known_answers)
{
	struct talk *t = &self->talk;
	struct chunk_packet p;
	struct tag_end end;
	struct thc_hdr h;

	known_join_and_welcome(_metadata, t, &end);
	known_request(_metadata, t, 0, &p);
	make_answer(&p);
	p.h.tag = htobe64(tag_of_data(&known_down, &p.h, KNOWN_DOWN_NH));
	tell(_metadata, t, &p, sizeof(p), NULL);
	EXPECT_EQ(stats_of(t->fd).chunks, 1);
	known_request(_metadata, t, 1, &p);
	h = end_of_epoch(&p.h, FAKE_EPOCH + 2);
	set_tag(&h, &known_lost, &end, &p.h.tag, sizeof(p.h.tag));
	tell(_metadata, t, &h, sizeof(h), NULL);
	EXPECT_EQ(failure_of(t->fd).reason, THC_FAILED_EPOCH);
	close_all(&t->fd, 1);
	do {
		ASSERT_GT(recv(t->udp, &p, sizeof(p), 0), 0);
	} while (p.h.op != THC_OP_LEAVE);
	expect_tag(_metadata, &p.h, &known_join,
		   tag_of_membership(&known_join, &p.h, &end, p.lanes, sizeof(struct thc_leave)));
}

/* A job without a key: packets carry the sum, and the epoch's salt instead of the key's name. */
TEST_F(aggregator, known_answers_without_a_key)
{
	struct talk *t = &self->talk;
	static const uint8_t salt[THC_SALT_BYTES] = { 0x5a, 0x17, 0xed, 0x42, 0x99 };
	static const uint32_t strange[] = { 0, 0x5a17ed43, 0x99000000 };
	struct sockaddr_thc a = fake_place();
	struct join_packet join;
	struct welcome_packet w;
	struct chunk_packet p;
	size_t i;

	close(t->fd);
	t->fd = thc_open_keyless(0);
	ASSERT_EQ(begin_join(t->fd, &a), 0);
	ASSERT_EQ(fake_take_join_packet(t->udp, &t->worker, &join), 0);
	EXPECT_EQ(join.h.key_id, 0);
	EXPECT_EQ(be64toh(join.h.tag), tag_sum((uint8_t *)&join, sizeof(join)));
	good_welcome(&w, nonce_of(&join));
	w.all.seal.seal = THC_SEAL_SUM;
	memcpy(w.all.seal.salt, salt, sizeof(salt));
	w.h.tag = htobe64(tag_sum((uint8_t *)&w, sizeof(w)) ^ 1);
	tell(_metadata, t, &w, sizeof(w), "tag");
	w.h.tag = htobe64(tag_sum((uint8_t *)&w, sizeof(w)));
	tell(_metadata, t, &w, sizeof(w), NULL);
	ASSERT_EQ(end_join(t->fd), 0);

	ASSERT_EQ(send_part(t->fd, 1, &add8, 1, 8), 0);
	ASSERT_EQ(fake_take_chunk(t->udp, &p, 0), 0);
	EXPECT_EQ(be32toh(p.h.key_id), 0x5a17ed42);
	EXPECT_EQ(be64toh(p.h.tag), tag_sum((uint8_t *)&p, sizeof(p)));
	make_answer(&p);
	for (i = 0; i < sizeof(strange) / sizeof(strange[0]); i++) {
		p.h.key_id = htobe32(strange[i]);
		p.h.tag = htobe64(tag_sum((uint8_t *)&p, sizeof(p)));
		tell(_metadata, t, &p, sizeof(p), "key");
	}
	p.h.key_id = htobe32(0x5a17ed42);
	p.h.tag = htobe64(tag_sum((uint8_t *)&p, sizeof(p)) ^ 1);
	tell(_metadata, t, &p, sizeof(p), "tag");
	p.h.tag = htobe64(tag_sum((uint8_t *)&p, sizeof(p)));
	tell(_metadata, t, &p, sizeof(p), NULL);
	EXPECT_EQ(stats_of(t->fd).chunks, 1);
}

/* Seal none: data packets have no tag; packets that join or end an epoch carry the sum. */
TEST_F(aggregator, no_seal)
{
	struct talk *t = &self->talk;
	struct welcome_packet w;
	struct chunk_packet p;
	struct thc_hdr end;

	ASSERT_EQ(begin_fake(_metadata, t, false), 0);
	good_welcome(&w, t->nonce);
	w.all.seal.seal = THC_SEAL_NONE;
	w.h.tag = 0;
	tell(_metadata, t, &w, sizeof(w), "tag");
	w.h.tag = htobe64(tag_sum((uint8_t *)&w, sizeof(w)));
	tell(_metadata, t, &w, sizeof(w), NULL);
	ASSERT_EQ(end_join(t->fd), 0);
	ASSERT_EQ(send_part(t->fd, 1, &add8, 2, 8), 0);
	ASSERT_EQ(fake_take_chunk(t->udp, &p, 1), 0);
	EXPECT_EQ(p.h.tag, 0);
	EXPECT_NE(p.h.key_id, 0);
	end = end_of_epoch(&p.h, FAKE_EPOCH + 2);
	end.key_id = 0;
	make_answer(&p);
	p.h.tag = htobe64(1);
	tell(_metadata, t, &p, sizeof(p), "tag");
	tell(_metadata, t, &end, sizeof(end), "tag");
	p.h.tag = 0;
	tell(_metadata, t, &p, sizeof(p), NULL);
	EXPECT_EQ(stats_of(t->fd).chunks, 1);
	ASSERT_EQ(fake_take_chunk(t->udp, &p, 0), 0);
	end.chunk = p.h.chunk;
	end.slot = p.h.slot;
	/* the tag of the request, 0, stands in the place of a payload */
	p.h = end;
	memset(p.lanes, 0, 8);
	end.tag = htobe64(tag_sum((uint8_t *)&p, sizeof(p.h) + 8));
	tell(_metadata, t, &end, sizeof(end), NULL);
	EXPECT_EQ(failure_of(t->fd).reason, THC_FAILED_EPOCH);
}

/* --- joining -------------------------------------------------------------- */

/* WELCOMEs for another worker, another join or another job are refused, however well sealed. */
TEST_F(aggregator, welcomes_for_somebody_else)
{
	struct talk *t = &self->talk;
	struct job_seals other_job;
	struct sockaddr_in other;
	struct welcome_packet p;

	ASSERT_EQ(begin_fake(_metadata, t, true), 0);
	good_welcome(&p, t->nonce + 1);
	fake_seal_welcome(&p, &t->worker);
	tell(_metadata, t, &p, sizeof(p), "unexpected");
	good_welcome(&p, t->nonce);
	other = t->worker;
	other.sin_port = (in_port_t)(other.sin_port + 1);
	fake_seal_welcome(&p, &other);
	tell(_metadata, t, &p, sizeof(p), "tag");
	other = t->worker;
	other.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	fake_seal_welcome(&p, &other);
	tell(_metadata, t, &p, sizeof(p), "tag");
	job_seals_set(&other_job, job_key, 2, p.all.seal.salt);
	seal_welcome(&other_job, &p.h, sizeof(p), &t->worker);
	tell(_metadata, t, &p, sizeof(p), "key");
	expect_joining(_metadata, t->fd);
	fake_seal_welcome(&p, &t->worker);
	tell(_metadata, t, &p, sizeof(p), NULL);
	EXPECT_EQ(end_join(t->fd), 0);
}

/* WELCOMEs sealed without the key, or by a key for other packets, are refused. */
TEST_F(aggregator, welcomes_that_are_forged)
{
	struct talk *t = &self->talk;
	struct welcome_packet good, p;
	unsigned int at;

	ASSERT_EQ(begin_fake(_metadata, t, true), 0);
	good_welcome(&good, t->nonce);
	fake_seal_welcome(&good, &t->worker);
	p = good;
	seal_nobodys(&p.h, sizeof(p));
	tell(_metadata, t, &p, sizeof(p), "key");
	/* the seal of a worker's JOIN */
	seal_join(fake_seals(), &p.h, sizeof(p), &t->worker);
	tell(_metadata, t, &p, sizeof(p), "tag");
	for (at = 0; at < 64; at += 7) {
		p = good;
		p.h.tag ^= htobe64(1ULL << at);
		tell(_metadata, t, &p, sizeof(p), "tag");
	}
	for (at = 20; at < sizeof(p); at += 13) {
		p = good;
		((uint8_t *)&p)[at] ^= 1;
		tell(_metadata, t, &p, sizeof(p), "tag");
	}
	expect_joining(_metadata, t->fd);
	tell(_metadata, t, &good, sizeof(good), NULL);
	EXPECT_EQ(end_join(t->fd), 0);
}

/* The job's seal must fit the worker: nh if the worker has a key, else sum or none. */
TEST_F_TIMEOUT(aggregator, seals_that_do_not_fit_the_key, 60)
{
	struct talk *t = &self->talk;
	static const struct {
		bool keyed;
		uint8_t seal;
	} bad[] = {
		{ true, THC_SEAL_NONE }, { true, THC_SEAL_SUM }, { true, THC_SEAL_NH + 1 },
		{ false, THC_SEAL_NH },	 { false, 255 },
	};
	struct welcome_packet p;
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ASSERT_EQ(begin_fake(_metadata, t, bad[i].keyed), 0);
		good_welcome(&p, t->nonce);
		p.all.seal.seal = bad[i].seal;
		if (bad[i].keyed)
			fake_seal_welcome(&p, &t->worker);
		else
			seal_nobodys(&p.h, sizeof(p));
		tell(_metadata, t, &p, sizeof(p), NULL);
		EXPECT_EQ(end_join(t->fd), -EPROTO) TH_LOG("case %zu", i);
		EXPECT_EQ(failure_of(t->fd).reason, THC_FAILED_VERSION);
	}
}

/* The flags of the next JOIN. */
static uint32_t next_flags(struct __test_metadata *_metadata, int udp)
{
	struct sockaddr_in worker;
	struct join_packet p = { .j.flags = htobe32(~0U) };

	fake_forget(udp);
	EXPECT_EQ(fake_take_join_packet(udp, &worker, &p), 0);
	return be32toh(p.j.flags);
}

/* A WELCOME to the group counts if it is of this epoch and was sealed for this group. */
TEST_F(aggregator, welcomes_to_the_group)
{
	struct talk *t = &self->talk;
	struct sockaddr_in group = { .sin_family = AF_INET, .sin_port = htons(20001) }, other;
	struct welcome_packet p;

	inet_pton(AF_INET, "239.1.2.3", &group.sin_addr);
	ASSERT_EQ(begin_fake(_metadata, t, true), 0);
	good_welcome(&p, 0);
	p.all.w.joined = htobe64(2);
	p.all.w.flags = htobe16(THC_WELCOME_F_ONE_PORT);
	p.all.w.reply = THC_REPLY_MULTICAST;
	p.all.group.at.port = group.sin_port;
	memcpy(p.all.group.at.addr, &group.sin_addr, 4);
	set_nonce(&p, t->nonce);
	fake_seal_welcome(&p, &t->worker);
	tell(_metadata, t, &p, sizeof(p), NULL);
	ASSERT_EQ(wait_for_group("239.1.2.3", 20001), 0);
	EXPECT_EQ(next_flags(_metadata, t->udp), 0);
	/* a WELCOME to the group that another host sends on to the worker */
	fake_seal_to_group(&p, &group);
	tell(_metadata, t, &p, TO_GROUP_PACKET, "address");
	EXPECT_EQ(next_flags(_metadata, t->udp), 0);
	/* recorded in another epoch, whatever its number was */
	p.all.seal.salt[3] ^= 1;
	fake_seal_to_group(&p, &group);
	tell_at(_metadata, t, &group, &p, TO_GROUP_PACKET, "unexpected");
	EXPECT_EQ(next_flags(_metadata, t->udp), 0);
	p.all.seal.salt[3] ^= 1;
	other = group;
	other.sin_port = htons(20002);
	fake_seal_to_group(&p, &other);
	tell_at(_metadata, t, &group, &p, TO_GROUP_PACKET, "tag");
	fake_seal_to_group(&p, &t->worker);
	tell_at(_metadata, t, &group, &p, TO_GROUP_PACKET, "tag");
	/* all records, or less than SEAL: to the group, WELCOME has the epoch's salt alone */
	seal_welcome(fake_seals(), &p.h, sizeof(p), &group);
	tell_at(_metadata, t, &group, &p, sizeof(p), "unexpected");
	seal_welcome(fake_seals(), &p.h, REFUSAL_PACKET, &group);
	tell_at(_metadata, t, &group, &p, REFUSAL_PACKET, "unexpected");
	EXPECT_EQ(next_flags(_metadata, t->udp), 0);
	fake_seal_to_group(&p, &group);
	tell_at(_metadata, t, &group, &p, TO_GROUP_PACKET, NULL);
	EXPECT_EQ(next_flags(_metadata, t->udp), THC_JOIN_F_HEARD);
}

/* --- refusals ------------------------------------------------------------- */

/* How long a socket doubts an unsealed refusal, ms; how often the test repeats it. */
#define DOUBT_MS	2000
#define DOUBT_STEP_MS	100

static void refusal(struct welcome_packet *p, fake_nonce nonce, uint8_t why)
{
	good_welcome(p, nonce);
	memset(&p->all, 0, sizeof(p->all));
	p->h.epoch = 0;
	p->all.w.parts = 1;
	p->all.w.version_max = THC_VERSION;
	set_nonce(p, nonce);
	p->all.w.refusal = why;
	p->all.w.flags = htobe16(THC_WELCOME_F_REFUSED);
}

/* An unsealed refusal might be forged, so the socket doubts it. */
TEST_F_TIMEOUT(aggregator, unsealed_refusals_are_doubted, 30)
{
	struct talk *t = &self->talk;
	struct welcome_packet p;
	uint64_t first;

	ASSERT_EQ(begin_fake(_metadata, t, true), 0);
	refusal(&p, t->nonce, THC_REFUSED_JOB);
	seal_nobodys(&p.h, REFUSAL_PACKET);
	tell(_metadata, t, &p, REFUSAL_PACKET, "unexpected");
	first = now_ms();
	while (now_ms() - first < DOUBT_MS / 2) {
		tell(_metadata, t, &p, REFUSAL_PACKET, "unexpected");
		expect_joining(_metadata, t->fd);
		sleep_ms(DOUBT_STEP_MS);
	}
	while (now_ms() - first <= DOUBT_MS)
		sleep_ms(DOUBT_STEP_MS);
	tell(_metadata, t, &p, REFUSAL_PACKET, NULL);
	EXPECT_EQ(end_join(t->fd), -EACCES);
	EXPECT_EQ(failure_of(t->fd).reason, THC_FAILED_REFUSED);
	EXPECT_EQ(failure_of(t->fd).refusal, THC_REFUSED_JOB);
}

/* When the join times out, a doubted refusal is reported as its likely cause. */
TEST_F(aggregator, unsealed_refusals_are_told_of)
{
	struct talk *t = &self->talk;
	struct welcome_packet p;

	ASSERT_EQ(set_u32(t->fd, THC_OPT_JOIN_TIMEOUT, DOUBT_MS - 500), 0);
	ASSERT_EQ(begin_again(t), 0);
	refusal(&p, t->nonce, THC_REFUSED_TAKEN);
	seal_nobodys(&p.h, REFUSAL_PACKET);
	tell(_metadata, t, &p, REFUSAL_PACKET, "unexpected");
	EXPECT_EQ(end_join(t->fd), -EACCES);
	EXPECT_EQ(failure_of(t->fd).reason, THC_FAILED_REFUSED);
	EXPECT_EQ(failure_of(t->fd).refusal, THC_REFUSED_TAKEN);
}

/* Unsealed refusals are refused for good if the aggregator has shown that it has the key, without
 * the right nonce, with a wrong sum, or without the flag.
 */
TEST_F_TIMEOUT(aggregator, unsealed_refusals_that_are_never_believed, 30)
{
	struct talk *t = &self->talk;
	struct welcome_packet p, right;

	ASSERT_EQ(begin_fake(_metadata, t, true), 0);
	refusal(&right, t->nonce, THC_REFUSED_JOB);
	seal_nobodys(&right.h, REFUSAL_PACKET);
	tell(_metadata, t, &right, REFUSAL_PACKET, "unexpected");
	sleep_ms(DOUBT_MS + DOUBT_STEP_MS);
	p = right;
	p.all.w.nonce[0] ^= 1;
	seal_nobodys(&p.h, REFUSAL_PACKET);
	tell(_metadata, t, &p, REFUSAL_PACKET, "key");
	p = right;
	p.h.tag ^= htobe64(1);
	tell(_metadata, t, &p, REFUSAL_PACKET, "key");
	p = right;
	p.all.w.flags = 0;
	seal_nobodys(&p.h, REFUSAL_PACKET);
	tell(_metadata, t, &p, REFUSAL_PACKET, "key");
	expect_joining(_metadata, t->fd);

	good_welcome(&p, t->nonce);
	p.all.w.joined = htobe64(2);
	p.all.w.flags = htobe16(THC_WELCOME_F_ONE_PORT);
	fake_seal_welcome(&p, &t->worker);
	tell(_metadata, t, &p, sizeof(p), NULL);
	tell(_metadata, t, &right, REFUSAL_PACKET, "unexpected");
	expect_joining(_metadata, t->fd);
	good_welcome(&p, t->nonce);
	fake_seal_welcome(&p, &t->worker);
	tell(_metadata, t, &p, sizeof(p), NULL);
	EXPECT_EQ(end_join(t->fd), 0);
}

/* A refusal is believed at once if the job's key seals it, or if the worker has no key to check
 * it.
 */
TEST_F(aggregator, refusals_that_are_believed_at_once)
{
	struct talk *t = &self->talk;
	struct welcome_packet p;
	int keyed;

	for (keyed = 0; keyed < 2; keyed++) {
		ASSERT_EQ(begin_fake(_metadata, t, keyed), 0);
		refusal(&p, t->nonce, THC_REFUSED_RANK);
		if (keyed)
			seal_welcome(fake_seals(), &p.h, REFUSAL_PACKET, &t->worker);
		else
			seal_nobodys(&p.h, REFUSAL_PACKET);
		tell(_metadata, t, &p, REFUSAL_PACKET, NULL);
		EXPECT_EQ(end_join(t->fd), -EACCES);
		EXPECT_EQ(failure_of(t->fd).refusal, THC_REFUSED_RANK);
	}
}

/* --- answers -------------------------------------------------------------- */

/* Answers sealed by another key, or by this one for other packets, are refused. */
TEST_F(aggregator, answers_that_are_forged)
{
	struct talk *t = &self->talk;
	const struct job_seals *s = fake_seals();
	struct chunk_packet request, good, p;
	struct thc_socket_stats stats;
	unsigned int at, tags = 0;

	begin_chunks(_metadata, t, &request, 1);
	fake_answer(&good, &request.h, 3, 7);
	for (at = 0; at < 64; at += 7, tags++) {
		p = good;
		p.h.tag ^= htobe64(1ULL << at);
		tell(_metadata, t, &p, sizeof(p), "tag");
	}
	for (at = sizeof(p.h); at < sizeof(p); at += 100, tags++) {
		p = good;
		((uint8_t *)&p)[at] ^= 0x80;
		tell(_metadata, t, &p, sizeof(p), "tag");
	}
	/* the socket's own request, sent back */
	p = good;
	seal_request(s, &p.h, sizeof(p));
	tell(_metadata, t, &p, sizeof(p), "tag");
	/* a forged WAIT or STALE */
	p.h = good.h;
	p.h.op = THC_OP_WAIT;
	p.h.flags = 0;
	tell(_metadata, t, &p.h, sizeof(p.h), "tag");
	p.h.op = THC_OP_STALE;
	tell(_metadata, t, &p.h, sizeof(p.h), "tag");
	tags += 3;

	stats = stats_of(t->fd);
	EXPECT_EQ(stats.bad_tag, tags);
	EXPECT_EQ(stats.foreign, 0);
	p = good;
	p.h.key_id = 0;
	tag_answer(s, &p.h, sizeof(p));
	tell(_metadata, t, &p, sizeof(p), "key");
	p.h.key_id = s->lost.id;
	tag_answer(s, &p.h, sizeof(p));
	tell(_metadata, t, &p, sizeof(p), "key");
	seal_nobodys(&p.h, sizeof(p));
	tell(_metadata, t, &p, sizeof(p), "key");
	stats = stats_of(t->fd);
	EXPECT_EQ(stats.bad_tag, tags);
	EXPECT_EQ(stats.foreign, 3);
	EXPECT_EQ(stats.waits, 0);
	EXPECT_EQ(stats.chunks, 0);
	EXPECT_EQ(failure_of(t->fd).error, 0);
	tell(_metadata, t, &good, sizeof(good), NULL);
	EXPECT_EQ(stats_of(t->fd).chunks, 1);
}

/* Answers recorded in one epoch are refused in the next, of whatever number, even with the slot,
 * chunk and generation of a request in flight.
 */
TEST_F(aggregator, answers_of_an_epoch_before)
{
	struct talk *t = &self->talk;
	struct job_seals next = fake_seals_of(FAKE_EPOCH + 1);
	struct chunk_packet request, recorded, p;
	struct welcome_packet w;
	unsigned int number;

	begin_chunks(_metadata, t, &request, 1);
	EXPECT_EQ(request.h.key_id, fake_seals()->up.id);
	fake_answer(&recorded, &request.h, 3, 7);
	tell(_metadata, t, &recorded, sizeof(recorded), NULL);
	for (number = FAKE_EPOCH; number <= FAKE_EPOCH + 1; number++) {
		ASSERT_EQ(begin_fake(_metadata, t, true), 0);
		good_welcome(&w, t->nonce);
		w.h.epoch = htobe32(number);
		w.all.seal.salt[THC_SALT_BYTES - 1] = FAKE_EPOCH + 1;
		fake_seal_welcome(&w, &t->worker);
		tell(_metadata, t, &w, sizeof(w), NULL);
		ASSERT_EQ(end_join(t->fd), 0);
		ASSERT_EQ(send_part(t->fd, 1, &add8, 1, 8), 0);
		ASSERT_EQ(fake_take_chunk(t->udp, &request, 0), 0);
		p = request;
		seal_request(&next, &p.h, sizeof(p));
		EXPECT_EQ(memcmp(&p, &request, sizeof(p)), 0);
		EXPECT_NE(request.h.key_id, fake_seals()->up.id);
		tell(_metadata, t, &recorded, sizeof(recorded), "key");
		/* recorded answers are refused under the new key's name, too */
		p = recorded;
		p.h.key_id = next.down.id;
		p.h.epoch = request.h.epoch;
		tell(_metadata, t, &p, sizeof(p), "tag");
		EXPECT_EQ(stats_of(t->fd).chunks, 0);
		fake_answer(&p, &request.h, 3, 9);
		seal_answer(&next, &p.h, sizeof(p));
		tell(_metadata, t, &p, sizeof(p), NULL);
		EXPECT_EQ(stats_of(t->fd).chunks, 1);
	}
}

/* A socket that joins again uses the new epoch's keys. */
TEST_F(aggregator, joining_again_makes_new_keys)
{
	struct talk *t = &self->talk;
	struct job_seals next = fake_seals_of(FAKE_EPOCH + 1);
	struct sockaddr_thc a = fake_place();
	struct chunk_packet request, p;
	struct welcome_packet w;
	int tries;

	begin_chunks(_metadata, t, &request, 1);
	ASSERT_EQ(begin_join(t->fd, &a), 0);
	/* requests and LEAVE come first */
	for (tries = 0; fake_take_join(t->udp, &t->worker, &t->nonce); tries++)
		ASSERT_LT(tries, 100);
	good_welcome(&w, t->nonce);
	w.all.seal.salt[THC_SALT_BYTES - 1] = FAKE_EPOCH + 1;
	fake_seal_welcome(&w, &t->worker);
	tell(_metadata, t, &w, sizeof(w), NULL);
	ASSERT_EQ(end_join(t->fd), 0);
	ASSERT_EQ(send_part(t->fd, 1, &add8, 1, 8), 0);
	ASSERT_EQ(fake_take_chunk(t->udp, &request, 0), 0);
	p = request;
	seal_request(&next, &p.h, sizeof(p));
	EXPECT_EQ(memcmp(&p, &request, sizeof(p)), 0);
}

/* --- the end of an epoch -------------------------------------------------- */

/* A STALE ends an epoch only if it has the key and the tag of a request in flight of this worker.
 */
TEST_F(aggregator, ends_that_are_none)
{
	struct talk *t = &self->talk;
	const struct job_seals *s = fake_seals();
	struct chunk_packet request[3], p;
	const struct thc_hdr *first = &request[0].h, *second = &request[1].h;
	struct sockaddr_in other;
	struct thc_hdr h;

	begin_chunks(_metadata, t, request, 3);
	fake_answer(&p, &request[2].h, 3, 7);
	tell(_metadata, t, &p, sizeof(p), NULL);

	/* the tag of another request, or none */
	h = end_of_epoch(first, FAKE_EPOCH + 2);
	seal_end(s, &h, &t->worker, second->tag);
	tell(_metadata, t, &h, sizeof(h), "tag");
	seal_end(s, &h, &t->worker, 0);
	tell(_metadata, t, &h, sizeof(h), "tag");
	/* a tag for another worker's address */
	other = t->worker;
	other.sin_port = (in_port_t)(other.sin_port + 1);
	seal_end(s, &h, &other, first->tag);
	tell(_metadata, t, &h, sizeof(h), "tag");
	/* with bytes behind the header */
	p.h = h;
	memset(p.lanes, 0, 8);
	seal_end(s, &p.h, &t->worker, first->tag);
	tell(_metadata, t, &p, sizeof(p.h) + 8, "tag");
	/* sealed by the key of answers, by that of JOIN, by none */
	seal_answer(s, &h, sizeof(h));
	tell(_metadata, t, &h, sizeof(h), "key");
	seal_join(s, &h, sizeof(h), &t->worker);
	tell(_metadata, t, &h, sizeof(h), "tag");
	seal_nobodys(&h, sizeof(h));
	tell(_metadata, t, &h, sizeof(h), "key");
	/* the STALE names the epoch that the socket has */
	h = end_of_epoch(first, FAKE_EPOCH);
	seal_end(s, &h, &t->worker, first->tag);
	tell(_metadata, t, &h, sizeof(h), "unexpected");
	/* about a request that is answered, and one that was never sent */
	h = end_of_epoch(&request[2].h, FAKE_EPOCH + 2);
	seal_end(s, &h, &t->worker, request[2].h.tag);
	tell(_metadata, t, &h, sizeof(h), "unexpected");
	h = end_of_epoch(first, FAKE_EPOCH + 2);
	h.chunk = htobe32(77);
	h.slot = htobe16(77);
	seal_end(s, &h, &t->worker, first->tag);
	tell(_metadata, t, &h, sizeof(h), "unexpected");

	EXPECT_EQ(failure_of(t->fd).error, 0);
	EXPECT_EQ(poll_now(t->fd), POLLOUT);
	h = end_of_epoch(second, FAKE_EPOCH + 2);
	seal_end(s, &h, &t->worker, second->tag);
	tell(_metadata, t, &h, sizeof(h), NULL);
	EXPECT_EQ(failure_of(t->fd).reason, THC_FAILED_EPOCH);
}

/* --- jobs without a key, of thcd ------------------------------------------ */

AFTHC_FIXTURE(job)

static const char *const keyless_jobs[] = { "1,seal=sum,reply=fanout,ranks=2",
					    "1,seal=none,reply=fanout,ranks=2" };

TEST_F(job, jobs_without_a_key)
{
	size_t i;
	int r;

	for (i = 0; i < 2; i++) {
		for (r = 0; r < 2; r++)
			self->fd[r] = thc_open_keyless(0);
		ASSERT_EQ(begin(&self->daemon, self->fd, keyless_jobs[i], 2), 0);
		EXPECT_EQ(all_reduce(self->fd, 2, &add8, 70), 0) TH_LOG("%s", keyless_jobs[i]);
		EXPECT_EQ(stats_of(self->fd[0]).bad_tag, 0);
		close_all(self->fd, 2);
		stop_daemon(&self->daemon, SIGKILL);
	}
}

/* A worker with a key cannot join a job without one, nor a worker without a key a job with one. */
TEST_F_TIMEOUT(job, keys_that_do_not_fit_the_job, 30)
{
	struct sockaddr_thc a = place("127.0.0.1", PORT, 1, 0);
	uint64_t start;
	int keyed;

	for (keyed = 0; keyed < 2; keyed++) {
		ASSERT_EQ(start_daemon(&self->daemon, "127.0.0.1", PORT,
				       keyed ? keyless_jobs[0] : JOB "2", NULL),
			  0);
		self->fd[0] = keyed ? thc_open(0) : thc_open_keyless(0);
		start = now_ms();
		EXPECT_EQ(connect_errno(self->fd[0], &a, sizeof(a)), EACCES);
		EXPECT_EQ(failure_of(self->fd[0]).refusal, THC_REFUSED_JOB);
		if (keyed)
			EXPECT_GE(now_ms() - start, DOUBT_MS);
		close_all(self->fd, 1);
		stop_daemon(&self->daemon, SIGKILL);
	}
}

TEST_HARNESS_MAIN
