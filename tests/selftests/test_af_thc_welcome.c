// SPDX-License-Identifier: GPL-2.0
/*
 * WELCOME in parts, some of which are lost, and its records: records that a socket does not know,
 * and all records as THC_OPT_WELCOME returns them. test_af_thc_receive tests the values of single
 * fields.
 */
#include "fake.h"
#include "harness.h"
#include "knownjob.h"
#include "netlink.h"

/**
 * struct talk - a socket, and the test as its aggregator
 * @fd: rank 1, at @worker
 * @udp: the aggregator
 * @whole: the WELCOME that answers the current JOIN
 */
struct talk {
	struct nl		nl;
	int			fd;
	int			udp;
	struct sockaddr_in	worker;
	struct welcome_packet	whole;
};

FIXTURE(welcome)
{
	struct talk	talk;
};

FIXTURE_SETUP(welcome)
{
	struct talk *t = &self->talk;

	memset(t, 0, sizeof(*t));
	t->fd = -1;
	t->udp = -1;
	if (why_not())
		SKIP(return, "%s", why_not());
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(nl_open(&t->nl), 0);
	t->udp = fake_open();
	ASSERT_GE(t->udp, 0);
}

FIXTURE_TEARDOWN(welcome)
{
	close_all(&self->talk.fd, 1);
	close_all(&self->talk.udp, 1);
	nl_close(&self->talk.nl);
}

/* A fresh socket's JOIN. */
static void begin_fake(struct __test_metadata *_metadata, struct talk *t)
{
	struct sockaddr_thc a = fake_place();
	fake_nonce nonce;

	close_all(&t->fd, 1);
	t->fd = thc_open(0);
	fake_forget(t->udp);
	ASSERT_EQ(begin_join(t->fd, &a), 0);
	ASSERT_EQ(fake_take_join(t->udp, &t->worker, &nonce), 0);
	good_welcome(&t->whole, nonce);
}

/**
 * struct part_packet - a part of WELCOME, right or made by a test
 * @bytes: of the packet so far
 */
struct part_packet {
	struct thc_hdr		h;
	struct thc_welcome	w;
	uint8_t			record[THC_WELCOME_BYTES - sizeof(struct thc_welcome)];
	size_t			bytes;
};

static void add(struct part_packet *p, const void *record, size_t bytes)
{
	memcpy((uint8_t *)p + p->bytes, record, bytes);
	p->bytes += bytes;
}

/* The fixed part and SEAL, which each part has. */
static void begin_part(struct part_packet *p, const struct welcome_packet *whole, uint8_t part,
		       uint8_t parts)
{
	p->h = whole->h;
	p->w = whole->all.w;
	p->w.part = part;
	p->w.parts = parts;
	p->bytes = offsetof(struct part_packet, record);
	add(p, &whole->all.seal, sizeof(whole->all.seal));
}

/* Adds all records from ROW on. */
static void add_constants(struct part_packet *p, const struct whole_welcome *all)
{
	add(p, &all->row, sizeof(*all) - offsetof(struct whole_welcome, row));
}

/* Adds a record of an unknown type with @bytes of zeros. */
static void add_unknown(struct part_packet *p, uint8_t flags, uint16_t bytes)
{
	struct thc_record r = { .type = 99, .flags = flags, .bytes = htobe16(bytes) };
	static const uint8_t zeros[THC_WELCOME_BYTES];

	add(p, &r, sizeof(r));
	add(p, zeros, thc_record_size(bytes) - sizeof(r));
}

/* Part 0 or 1 of two. */
static void half(struct part_packet *p, const struct welcome_packet *whole, uint8_t part)
{
	begin_part(p, whole, part, 2);
	if (part)
		add_constants(p, &whole->all);
	else
		add(p, &whole->all.group, sizeof(whole->all.group));
}

static void tell(struct __test_metadata *_metadata, struct talk *t, struct part_packet *p)
{
	seal_welcome(fake_seals(), &p->h, p->bytes, &t->worker);
	ASSERT_EQ(deliver(t->fd, t->udp, &t->worker, p, p->bytes), 0);
}

static void tell_half(struct __test_metadata *_metadata, struct talk *t, uint8_t part)
{
	struct part_packet p;

	half(&p, &t->whole, part);
	tell(_metadata, t, &p);
}

/* The socket has not joined, and sends JOIN again. */
static void expect_joining(struct __test_metadata *_metadata, struct talk *t)
{
	struct join_packet join;

	fake_forget(t->udp);
	EXPECT_EQ(fake_take_join_packet(t->udp, &t->worker, &join), 0);
	EXPECT_EQ(poll_now(t->fd), 0) TH_LOG("the join has ended");
	EXPECT_EQ(failure_of(t->fd).error, 0);
}

TEST_F(welcome, parts_that_are_lost)
{
	struct talk *t = &self->talk;

	begin_fake(_metadata, t);
	tell_half(_metadata, t, 0);
	tell_half(_metadata, t, 1);
	EXPECT_EQ(end_join(t->fd), 0);

	/* part 0 is lost: the next JOIN brings both parts */
	begin_fake(_metadata, t);
	tell_half(_metadata, t, 1);
	expect_joining(_metadata, t);
	tell_half(_metadata, t, 0);
	tell_half(_metadata, t, 1);
	EXPECT_EQ(end_join(t->fd), 0);

	/* part 1 is lost: the socket keeps part 0, which may come again */
	begin_fake(_metadata, t);
	tell_half(_metadata, t, 0);
	expect_joining(_metadata, t);
	tell_half(_metadata, t, 1);
	EXPECT_EQ(end_join(t->fd), 0);
	begin_fake(_metadata, t);
	tell_half(_metadata, t, 0);
	tell_half(_metadata, t, 0);
	expect_joining(_metadata, t);
	tell_half(_metadata, t, 1);
	EXPECT_EQ(end_join(t->fd), 0);
}

/* Parts of another epoch, or of another state of the job, do not complete a WELCOME. */
TEST_F(welcome, parts_of_different_welcomes)
{
	struct talk *t = &self->talk;
	struct part_packet p;

	begin_fake(_metadata, t);
	tell_half(_metadata, t, 0);
	half(&p, &t->whole, 1);
	p.w.joined = htobe64(2);
	tell(_metadata, t, &p);
	expect_joining(_metadata, t);
	half(&p, &t->whole, 1);
	p.h.epoch = htobe32(FAKE_EPOCH + 1);
	tell(_metadata, t, &p);
	expect_joining(_metadata, t);
	half(&p, &t->whole, 1);
	p.w.parts = 3;
	tell(_metadata, t, &p);
	expect_joining(_metadata, t);
	/* a part with another salt: both parts are there, but do not fit */
	half(&p, &t->whole, 1);
	p.record[offsetof(struct thc_record_seal, salt)] ^= 1;
	tell(_metadata, t, &p);
	EXPECT_EQ(end_join(t->fd), -EPROTO);
	EXPECT_EQ(failure_of(t->fd).reason, THC_FAILED_VERSION);
}

/* Each malformed part is counted, and none ends the join. */
TEST_F(welcome, parts_of_no_form)
{
	struct talk *t = &self->talk;
	static const struct {
		uint8_t part, parts, reserved;
	} bad[] = {
		{ 0, 0, 0 }, { 1, 1, 0 }, { 0, 17, 0 }, { 255, 255, 0 }, { 0, 1, 1 }, { 0, 1, 128 },
	};
	static const size_t lengths[] = { 0, 8, 63, 65, 68, 1016 + 4, 1024 + 8 };
	uint8_t packet[sizeof(struct thc_hdr) + THC_WELCOME_BYTES + 8] = { 0 };
	struct reasons before, after;
	size_t i;

	begin_fake(_metadata, t);
	ASSERT_EQ(nl_reasons(&t->nl, &before), 0);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct welcome_packet p = t->whole;

		p.all.w.part = bad[i].part;
		p.all.w.parts = bad[i].parts;
		p.all.w.reserved = bad[i].reserved;
		fake_seal_welcome(&p, &t->worker);
		ASSERT_EQ(deliver(t->fd, t->udp, &t->worker, &p, sizeof(p)), 0);
	}
	memcpy(packet, &t->whole, sizeof(t->whole));
	for (i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
		ASSERT_EQ(deliver(t->fd, t->udp, &t->worker, packet,
				  sizeof(struct thc_hdr) + lengths[i]),
			  0);
	ASSERT_EQ(nl_reasons(&t->nl, &after), 0);
	EXPECT_EQ(reason_count(&after, "reserved") - reason_count(&before, "reserved"), 6);
	EXPECT_EQ(reason_count(&after, "length") - reason_count(&before, "length"), 7);
	expect_joining(_metadata, t);
	fake_seal_welcome(&t->whole, &t->worker);
	ASSERT_EQ(deliver(t->fd, t->udp, &t->worker, &t->whole, sizeof(t->whole)), 0);
	EXPECT_EQ(end_join(t->fd), 0);
}

/* --- records -------------------------------------------------------------- */

/* All records, and an unknown one with @flags, which `constants` does not cover. */
static void with_unknown(struct part_packet *p, const struct welcome_packet *whole, uint8_t flags)
{
	begin_part(p, whole, 0, 1);
	add_constants(p, &whole->all);
	add_unknown(p, flags, 7);
}

/* FNV-1a, from its definition, over the records behind SEAL, the seed and the features. */
static uint32_t hash_of(const struct part_packet *p)
{
	const uint8_t *from = p->record + sizeof(struct thc_record_seal),
		      *end = (uint8_t *)p + p->bytes;
	uint32_t hash = 0x811c9dc5;
	size_t i;

	while (from < end)
		hash = (hash ^ *from++) * 0x01000193;
	for (i = 0; i < 8; i++)
		hash = (hash ^ ((uint8_t *)&p->w.seed)[i]) * 0x01000193;
	for (i = 0; i < 4; i++)
		hash = (hash ^ ((uint8_t *)&p->w.features)[i]) * 0x01000193;
	return hash;
}

TEST_F(welcome, records_that_are_unknown)
{
	struct talk *t = &self->talk;
	struct part_packet p;

	/* a socket skips an unknown record that it need not know */
	begin_fake(_metadata, t);
	with_unknown(&p, &t->whole, 0);
	tell(_metadata, t, &p);
	EXPECT_EQ(end_join(t->fd), 0);
	/* an unknown constant counts in `constants` all the same */
	begin_fake(_metadata, t);
	with_unknown(&p, &t->whole, THC_RECORD_F_CONSTANT);
	p.w.constants = htobe32(hash_of(&p));
	tell(_metadata, t, &p);
	EXPECT_EQ(end_join(t->fd), 0);
	begin_fake(_metadata, t);
	with_unknown(&p, &t->whole, THC_RECORD_F_CONSTANT);
	tell(_metadata, t, &p);
	EXPECT_EQ(end_join(t->fd), -EPROTO);
	EXPECT_EQ(failure_of(t->fd).reason, THC_FAILED_VERSION);
	/* a socket that does not know the record cannot join */
	begin_fake(_metadata, t);
	with_unknown(&p, &t->whole, THC_RECORD_F_KNOW);
	tell(_metadata, t, &p);
	EXPECT_EQ(end_join(t->fd), -EPROTO);
	EXPECT_EQ(failure_of(t->fd).reason, THC_FAILED_VERSION);
}

TEST_F(welcome, constants_that_are_wrong)
{
	struct talk *t = &self->talk;
	int bit;

	for (bit = 0; bit < 32; bit += 31) {
		begin_fake(_metadata, t);
		t->whole.all.w.constants ^= htobe32(1U << bit);
		fake_seal_as_is(&t->whole, &t->worker);
		ASSERT_EQ(deliver(t->fd, t->udp, &t->worker, &t->whole, sizeof(t->whole)), 0);
		EXPECT_EQ(end_join(t->fd), -EPROTO);
		EXPECT_EQ(failure_of(t->fd).reason, THC_FAILED_VERSION);
	}
}

/* Surplus data of a known type is skipped, and so are unknown schemes. */
TEST_F(welcome, records_that_are_longer)
{
	struct talk *t = &self->talk;
	const struct whole_welcome *all = &t->whole.all;
	struct thc_record_scheme other;
	struct part_packet p;
	struct known_job j;

	begin_fake(_metadata, t);
	begin_part(&p, &t->whole, 0, 1);
	add(&p, &all->row, sizeof(all->row) + sizeof(all->level));
	other = all->scheme;
	other.head.bytes = htobe16(28);
	add(&p, &other, sizeof(other));
	add(&p, "extended", 8);
	other.head.bytes = all->scheme.head.bytes;
	other.scheme = 77;
	add(&p, &other, sizeof(other));
	p.w.constants = htobe32(hash_of(&p));
	tell(_metadata, t, &p);
	EXPECT_EQ(end_join(t->fd), 0);
	ASSERT_EQ(know_job(t->fd, &j), 0);
	EXPECT_EQ(j.spec.scheme, 0);
	EXPECT_EQ(j.spec.block_log2, all->scheme.block_log2);
}

/* --- THC_OPT_WELCOME ------------------------------------------------------ */

/* Bytes, or -errno. */
static int describe_job(int fd, struct described_job *d)
{
	socklen_t len = sizeof(*d);

	memset(d, 0x5a, sizeof(*d));
	return getsockopt(fd, SOL_THC, THC_OPT_WELCOME, d, &len) ? -errno : (int)len;
}

/* THC_OPT_WELCOME returns the records of all parts in order, with the SEAL of each part. */
TEST_F(welcome, records_as_they_were_sent)
{
	struct talk *t = &self->talk;
	const size_t fixed = offsetof(struct part_packet, record);
	struct described_job d;
	struct part_packet p[2];
	int bytes;

	begin_fake(_metadata, t);
	EXPECT_EQ(describe_job(t->fd, &d), -ENOTCONN);
	half(&p[0], &t->whole, 0);
	add_unknown(&p[0], 0, 13);
	half(&p[1], &t->whole, 1);
	tell(_metadata, t, &p[0]);
	EXPECT_EQ(describe_job(t->fd, &d), -ENOTCONN);
	tell(_metadata, t, &p[1]);
	ASSERT_EQ(end_join(t->fd), 0);
	bytes = describe_job(t->fd, &d);
	EXPECT_EQ(d.info.epoch, FAKE_EPOCH);
	EXPECT_EQ(d.info.shards, 1);
	EXPECT_EQ(d.info.bytes, p[0].bytes + p[1].bytes - 2 * fixed);
	EXPECT_EQ(bytes, sizeof(d.info) + d.info.bytes);
	EXPECT_EQ(memcmp(d.record, p[0].record, p[0].bytes - fixed), 0);
	EXPECT_EQ(memcmp(d.record + p[0].bytes - fixed, p[1].record, p[1].bytes - fixed), 0);
	EXPECT_EQ(d.record[d.info.bytes], 0x5a);
	/* the fixed part of the first part */
	EXPECT_EQ(memcmp(&d.info.welcome, &p[0].w, sizeof(p[0].w)), 0);
}

/* The largest number of parts, each of the largest length. */
TEST_F(welcome, records_that_fill_all_parts)
{
	struct talk *t = &self->talk;
	const size_t all = sizeof(t->whole.all) - offsetof(struct whole_welcome, row);
	struct described_job d;
	struct part_packet p;
	uint8_t part;
	size_t room;

	begin_fake(_metadata, t);
	for (part = 0; part < THC_WELCOME_PARTS; part++) {
		begin_part(&p, &t->whole, part, THC_WELCOME_PARTS);
		room = sizeof(p.record) - sizeof(struct thc_record_seal);
		if (!part) {
			add_constants(&p, &t->whole.all);
			room -= all;
		}
		add_unknown(&p, 0, (uint16_t)(room - sizeof(struct thc_record)));
		ASSERT_EQ(p.bytes, sizeof(p.h) + THC_WELCOME_BYTES);
		tell(_metadata, t, &p);
	}
	ASSERT_EQ(end_join(t->fd), 0);
	EXPECT_EQ(describe_job(t->fd, &d), sizeof(d));
	EXPECT_EQ(d.info.bytes, THC_RECORDS_MAX);
}

TEST_HARNESS_MAIN
