// SPDX-License-Identifier: GPL-2.0
/*
 * How a socket reacts to a fake aggregator: right and wrong WELCOMEs, and answers that come late,
 * twice, damaged or not at all.
 */
#include <limits.h>

#include <thc/worker/join.h>

#include "fake.h"
#include "harness.h"
#include "netlink.h"
#include "tags.h"

FIXTURE(aggregator)
{
	struct nl		nl;
	int			fd;	/* rank 1 */
	int			udp;	/* the aggregator */
	struct sockaddr_in	worker;
};

FIXTURE_SETUP(aggregator)
{
	memset(self, 0, sizeof(*self));
	self->fd = -1;
	self->udp = -1;
	if (why_not())
		SKIP(return, "%s", why_not());
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(nl_open(&self->nl), 0);
	self->fd = thc_open(0);
	ASSERT_GE(self->fd, 0);
}

FIXTURE_TEARDOWN(aggregator)
{
	close_all(&self->fd, 1);
	close_all(&self->udp, 1);
	nl_close(&self->nl);
}

/* --- WELCOME -------------------------------------------------------------- */

/* A JOIN of @fd begins; its nonce. */
static int begin_fake(int fd, int udp, struct sockaddr_in *worker, fake_nonce *nonce)
{
	struct sockaddr_thc a = fake_place();
	int error = begin_join(fd, &a);

	/* JOINs of an attempt before may still wait */
	fake_forget(udp);
	return error ? error : fake_take_join(udp, worker, nonce);
}

#define AT(f)	offsetof(struct whole_welcome, f), sizeof(((struct whole_welcome *)0)->f)
/* Type and flags of a record: an unknown type that a worker need not know. */
#define AT_HEAD(f)	offsetof(struct whole_welcome, f.head), 2
#define UNKNOWN		0x6300

TEST_F_TIMEOUT(aggregator, every_constant_of_a_welcome, 60)
{
	static const struct {
		size_t offset, bytes;
		uint64_t value;
	} bad[] = {
		{ AT(w.ranks), 0 },		{ AT(w.ranks), 1 },	/* no rank 1 */
		{ AT(w.ranks), 65 },		{ AT(w.ranks), 65535 },
		{ AT(w.data_slots), 0 },	{ AT(w.control_slots), 0 },
		{ AT(w.data_slots), 4093 },	{ AT(w.control_slots), 65535 },
		{ AT(w.flags), THC_WELCOME_F_READY | 0x08 },
		{ AT(w.flags), THC_WELCOME_F_READY | 0x8000 },
		{ AT(w.features), 2 },		{ AT(w.features), 1U << 31 },
		{ AT(w.reply), 0 },		{ AT(w.reply), 3 },
		{ AT(w.shard), 1 },		{ AT(w.shards), 0 },
		{ AT(w.shards), 2 },		{ AT(seal.reserved[2]), 1 },
		{ AT(group.at.reserved), 1 },	{ AT(group.at.family), 5 },
		{ AT(group.at.addr[15]), 1 },	/* behind an IPv4 address */
		{ AT(row.width), 0 },		{ AT(row.width), 9 },
		{ AT(row.width), 5 },		/* the row has fewer levels than that */
		{ AT(row.sum_width), 0 },	{ AT(row.sum_width), 12 },
		{ AT(row.sum_width), 64 },	{ AT(row.granularity), 31 },
		{ AT(level[9]), 31 },		{ AT(scheme.scheme), THC_SCHEMES_COUNT },
		{ AT(scheme.scheme), 255 },	{ AT(scheme.reserved), 1 },
		/* records: missing types, flags, lengths */
		{ AT_HEAD(seal), UNKNOWN },
		{ AT_HEAD(row), UNKNOWN | THC_RECORD_F_CONSTANT },
		{ AT_HEAD(scheme), UNKNOWN | THC_RECORD_F_CONSTANT },
		{ AT(group.head.type), THC_RECORD_SEAL },	/* with another salt */
		{ AT(row.head.flags), THC_RECORD_F_KNOW },	/* then `constants` are wrong */
		{ AT(group.head.flags), 4 },	{ AT(row.head.bytes), 43 },
		{ AT(scheme.head.bytes), 18 },	{ AT(scheme.head.bytes), 21 },
		{ AT(scheme.head.bytes), 65535 },
	};
	struct welcome_packet p;
	fake_nonce nonce;
	size_t i;

	self->udp = fake_open();
	ASSERT_GE(self->udp, 0);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ASSERT_EQ(begin_fake(self->fd, self->udp, &self->worker, &nonce), 0);
		good_welcome(&p, nonce);
		put_field(&p.all, bad[i].offset, bad[i].bytes, bad[i].value);
		fake_seal_welcome(&p, &self->worker);
		ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
		EXPECT_EQ(end_join(self->fd), -EPROTO) TH_LOG("case %zu", i);
		EXPECT_EQ(failure_of(self->fd).reason, THC_FAILED_VERSION);
	}
}

/* A group is wrong if it is a host's address or its port is privileged: the socket does not listen
 * there. A group of the other IP version is valid, but not joined.
 */
TEST_F_TIMEOUT(aggregator, group_that_is_none, 60)
{
	static const struct {
		const char *group;
		uint16_t port;
		bool good;
	} groups[] = {
		{ "127.0.0.1", 20000, false },	 { "0.0.0.0", 20000, false },
		{ "223.255.255.255", 20000, false }, { "255.255.255.255", 20000, false },
		{ "239.1.2.3", 0, false },	 { "239.1.2.3", 1023, false },
		{ "239.1.2.3", 1024, true },	 { "ff15::77", 20000, true },
		{ "fe80::1", 20000, false },
	};
	struct welcome_packet p;
	fake_nonce nonce;
	size_t i;

	self->udp = fake_open();
	ASSERT_GE(self->udp, 0);
	for (i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		bool v6 = strchr(groups[i].group, ':');

		ASSERT_EQ(begin_fake(self->fd, self->udp, &self->worker, &nonce), 0);
		good_welcome(&p, nonce);
		p.all.w.reply = THC_REPLY_MULTICAST;
		p.all.group.at.family = v6 ? 6 : 4;
		p.all.group.at.port = htobe16(groups[i].port);
		inet_pton(v6 ? AF_INET6 : AF_INET, groups[i].group, p.all.group.at.addr);
		fake_seal_welcome(&p, &self->worker);
		ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
		EXPECT_EQ(end_join(self->fd), groups[i].good ? 0 : -EPROTO) TH_LOG("case %zu", i);
	}
}

/* A UDP port that nobody else can share. */
static int occupy(uint16_t port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return bind(fd, (void *)&at, sizeof(at)) ? -errno : fd;
}

/* A WELCOME while the other rank is missing. @worker: NULL for the group. */
static void welcome_to(struct welcome_packet *p, const struct sockaddr_in *worker, fake_nonce nonce,
		       const char *at, uint16_t port)
{
	struct sockaddr_in group = { .sin_family = AF_INET, .sin_port = htons(port) };

	inet_pton(AF_INET, at, &group.sin_addr);
	good_welcome(p, nonce);
	p->all.w.joined = htobe64(2);
	p->all.w.flags = htobe16(THC_WELCOME_F_ONE_PORT);
	p->all.w.reply = THC_REPLY_MULTICAST;
	p->all.group.at.port = htobe16(port);
	memcpy(p->all.group.at.addr, &group.sin_addr, sizeof(group.sin_addr));
	if (worker)
		fake_seal_welcome(p, worker);
	else
		fake_seal_to_group(p, &group);
}

static void group_welcome(struct welcome_packet *p, const struct sockaddr_in *worker,
			  fake_nonce nonce, uint16_t port)
{
	welcome_to(p, worker, nonce, "239.1.2.3", port);
}

/* A socket tries to join a group once a second at most, however often WELCOME names it, but
 * another group at once. Without a group the job answers by fanout.
 */
TEST_F_TIMEOUT(aggregator, group_that_cannot_be_joined, 60)
{
	fake_nonce nonce;
	uint64_t start;
	struct welcome_packet p;
	int taken = occupy(20001);

	ASSERT_GE(taken, 0);
	self->udp = fake_open();
	ASSERT_EQ(begin_fake(self->fd, self->udp, &self->worker, &nonce), 0);
	group_welcome(&p, &self->worker, nonce, 20001);
	start = now_ms();
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	sleep_ms(600);
	close(taken);
	ASSERT_FALSE(is_bound(20001));
	while (!is_bound(20001) && now_ms() - start < PATIENCE_MS) {
		ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
		sleep_ms(20);
	}
	EXPECT_TRUE(is_bound(20001)) TH_LOG("not tried again");
	EXPECT_GE(now_ms() - start, 1000);

	/* ends the join, which would go on */
	close(self->fd);
	self->fd = thc_open(0);
	EXPECT_FALSE(is_bound(20001)) TH_LOG("the group of a socket that is closed");
	taken = occupy(20002);
	ASSERT_EQ(begin_fake(self->fd, self->udp, &self->worker, &nonce), 0);
	group_welcome(&p, &self->worker, nonce, 20002);
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	sleep_ms(100);
	group_welcome(&p, &self->worker, nonce, 20003);
	start = now_ms();
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	while (!is_bound(20003) && now_ms() - start < PATIENCE_MS)
		sleep_ms(20);
	EXPECT_TRUE(is_bound(20003)) TH_LOG("another group has to wait");

	close(self->fd);
	self->fd = thc_open(0);
	ASSERT_EQ(begin_fake(self->fd, self->udp, &self->worker, &nonce), 0);
	group_welcome(&p, &self->worker, nonce, 20002);
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	good_welcome(&p, nonce);
	fake_seal_welcome(&p, &self->worker);
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	EXPECT_EQ(end_join(self->fd), 0);
	close(taken);
}

/* The flags of the next JOIN that is not older than this call. */
static int next_flags(int udp, uint32_t *flags)
{
	struct sockaddr_in worker;
	struct join_packet p;
	int error;

	fake_forget(udp);
	error = fake_take_join_packet(udp, &worker, &p);
	*flags = be32toh(p.j.flags);
	return error;
}

/* Delivers a WELCOME with the group @at:@port, and waits until the socket has joined it. */
static int join_group(int fd, int udp, const struct sockaddr_in *worker,
		      const struct welcome_packet *p, const char *at, uint16_t port)
{
	int error = deliver(fd, udp, worker, p, sizeof(*p));

	return error ? error : wait_for_group(at, port);
}

/* A JOIN that says that a group is heard does not hold for the next group. */
TEST_F(aggregator, another_group_is_not_heard_yet)
{
	struct sockaddr_in group = { .sin_family = AF_INET, .sin_port = htons(20001),
				     .sin_addr.s_addr = inet_addr("239.1.2.3") };
	struct welcome_packet p;
	fake_nonce nonce;
	uint32_t flags;

	self->udp = fake_open();
	ASSERT_EQ(begin_fake(self->fd, self->udp, &self->worker, &nonce), 0);
	group_welcome(&p, &self->worker, nonce, 20001);
	ASSERT_EQ(join_group(self->fd, self->udp, &self->worker, &p, "239.1.2.3", 20001), 0);
	ASSERT_EQ(next_flags(self->udp, &flags), 0);
	EXPECT_EQ(flags, 0);
	group_welcome(&p, NULL, 0, 20001);
	ASSERT_EQ(deliver(self->fd, self->udp, &group, &p, TO_GROUP_PACKET), 0);
	ASSERT_EQ(next_flags(self->udp, &flags), 0);
	EXPECT_EQ(flags, THC_JOIN_F_HEARD);
	group_welcome(&p, &self->worker, nonce, 20001);
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	ASSERT_EQ(next_flags(self->udp, &flags), 0);
	EXPECT_EQ(flags, THC_JOIN_F_HEARD) TH_LOG("the same group is forgotten");
	group_welcome(&p, &self->worker, nonce, 20002);
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	ASSERT_EQ(next_flags(self->udp, &flags), 0);
	EXPECT_EQ(flags, 0);
}

/* If WELCOME names another group, the socket joins it, leaves the first, and receives WELCOMEs
 * there.
 */
TEST_F_TIMEOUT(aggregator, another_group_is_joined, 60)
{
	static const char *const at[] = { "239.1.2.3", "239.4.5.6", "239.1.2.3" };
	struct welcome_packet p;
	fake_nonce nonce;
	uint32_t flags;
	uint16_t i;

	self->udp = fake_open();
	ASSERT_EQ(begin_fake(self->fd, self->udp, &self->worker, &nonce), 0);
	for (i = 0; i < sizeof(at) / sizeof(at[0]); i++) {
		uint16_t port = 20001 + i;
		struct sockaddr_in group = { .sin_family = AF_INET, .sin_port = htons(port),
					     .sin_addr.s_addr = inet_addr(at[i]) };

		welcome_to(&p, &self->worker, nonce, at[i], port);
		ASSERT_EQ(join_group(self->fd, self->udp, &self->worker, &p, at[i], port), 0)
		TH_LOG("%s is not joined", at[i]);
		ASSERT_EQ(next_flags(self->udp, &flags), 0);
		EXPECT_EQ(flags, 0);
		welcome_to(&p, NULL, 0, at[i], port);
		ASSERT_EQ(deliver(self->fd, self->udp, &group, &p, TO_GROUP_PACKET), 0);
		ASSERT_EQ(next_flags(self->udp, &flags), 0);
		EXPECT_EQ(flags, THC_JOIN_F_HEARD);
		EXPECT_FALSE(i && is_bound(port - 1)) TH_LOG("the one before is still open");
		EXPECT_FALSE(i && is_member(at[i - 1])) TH_LOG("%s is not left", at[i - 1]);
	}
}

/* An IPv6 address that is not a group's. */
TEST_F_TIMEOUT(aggregator, group_that_is_none_ipv6, 60)
{
	static const struct {
		const char *group;
		int error;
	} groups[] = {
		{ "::1", -EPROTO },	 { "::", -EPROTO },
		{ "fe80::1", -EPROTO },	 { "::ffff:239.1.2.3", -EPROTO },
		{ "ff15::77", 0 },
	};
	struct sockaddr_thc a = place("::1", FAKE_PORT, 1, 1);
	struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons(FAKE_PORT),
				   .sin6_addr = in6addr_loopback };
	struct welcome_packet p;
	size_t i;

	self->udp = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	set_timeo(self->udp, SO_RCVTIMEO, PATIENCE_MS);
	ASSERT_EQ(bind(self->udp, (void *)&at, sizeof(at)), 0);
	for (i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
		struct sockaddr_in6 worker;
		socklen_t len = sizeof(worker);
		struct join_packet join;

		ASSERT_EQ(begin_join(self->fd, &a), 0);
		fake_forget(self->udp);
		ASSERT_EQ(recvfrom(self->udp, &join, sizeof(join), 0, (void *)&worker, &len),
			  sizeof(join));
		good_welcome(&p, nonce_of(&join));
		p.all.group.at.family = 6;
		p.all.w.reply = THC_REPLY_MULTICAST;
		p.all.group.at.port = htobe16(20000);
		inet_pton(AF_INET6, groups[i].group, p.all.group.at.addr);
		fake_seal_welcome(&p, &worker);
		ASSERT_EQ(sendto(self->udp, &p, sizeof(p), 0, (void *)&worker, len), sizeof(p));
		EXPECT_EQ(end_join(self->fd), groups[i].error) TH_LOG("group %s", groups[i].group);
	}
}

/* WELCOMEs that change nothing, each counted; then the right one. */
TEST_F(aggregator, welcomes_of_others)
{
	struct reasons before, after;
	struct welcome_packet p;
	fake_nonce nonce;

	self->udp = fake_open();
	ASSERT_GE(self->udp, 0);
	ASSERT_EQ(begin_fake(self->fd, self->udp, &self->worker, &nonce), 0);
	ASSERT_EQ(nl_reasons(&self->nl, &before), 0);
	good_welcome(&p, nonce + 1);
	fake_seal_welcome(&p, &self->worker);
	/* unexpected: nonce */
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	good_welcome(&p, nonce);
	fake_seal_welcome(&p, &self->worker);
	p.h.key_id ^= 1;
	/* key */
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	good_welcome(&p, nonce);
	p.h.job = htobe16(2);
	fake_seal_welcome(&p, &self->worker);
	/* job */
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	good_welcome(&p, nonce);
	fake_seal_welcome(&p, &self->worker);
	p.all.w.joined ^= 1;
	/* tag */
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	/* length */
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p) - 4), 0);
	ASSERT_EQ(nl_reasons(&self->nl, &after), 0);
	EXPECT_EQ(reason_sum(&after) - reason_sum(&before), 5);
	EXPECT_EQ(reason_count(&after, "unexpected") - reason_count(&before, "unexpected"), 1);
	EXPECT_EQ(reason_count(&after, "key") - reason_count(&before, "key"), 1);
	EXPECT_EQ(reason_count(&after, "job") - reason_count(&before, "job"), 1);
	EXPECT_EQ(reason_count(&after, "tag") - reason_count(&before, "tag"), 1);
	EXPECT_EQ(reason_count(&after, "length") - reason_count(&before, "length"), 1);
	good_welcome(&p, nonce);
	fake_seal_welcome(&p, &self->worker);
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	EXPECT_EQ(end_join(self->fd), 0);
}

/* Waits for a JOIN with this challenge. Returns ms, or -1 if none comes. JOINs of the timer may
 * come first, with the challenge before.
 */
static int asks_after(int udp, const struct challenge_packet *c)
{
	uint64_t start = now_ms();
	struct sockaddr_in worker;
	struct join_packet p;

	while (!fake_take_join_packet(udp, &worker, &p) && !p.j.flags)
		if (!memcmp(p.j.challenge, c->c.challenge, sizeof(p.j.challenge)))
			return (int)(now_ms() - start);
	return -1;
}

/* A CHALLENGE is answered at once, long before the timer's next JOIN, which comes every 320 ms by
 * then; other CHALLENGEs are counted. The fastest answer counts: the machine may be busy.
 */
TEST_F(aggregator, challenge_is_answered)
{
	struct reasons before, after;
	struct challenge_packet c;
	struct welcome_packet p;
	int i, ms, fastest = INT_MAX;
	struct join_packet join;
	fake_nonce nonce;

	self->udp = fake_open();
	ASSERT_GE(self->udp, 0);
	ASSERT_EQ(begin_fake(self->fd, self->udp, &self->worker, &nonce), 0);
	for (i = 1; i < THC_JOIN_FIRST + THC_JOIN_DOUBLED; i++)
		ASSERT_EQ(fake_take_join_packet(self->udp, &self->worker, &join), 0);
	ASSERT_EQ(nl_reasons(&self->nl, &before), 0);
	fake_challenge(&c, nonce + 1, 1, &self->worker);
	/* unexpected: nonce */
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &c, sizeof(c)), 0);
	fake_challenge(&c, nonce, 1, &self->worker);
	c.c.challenge[3] ^= 1;
	/* tag */
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &c, sizeof(c)), 0);
	/* length */
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &c, sizeof(c) - 8), 0);
	for (i = 1; i < 4; i++) {
		fake_challenge(&c, nonce, (uint8_t)i, &self->worker);
		fake_forget(self->udp);
		ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &c, sizeof(c)), 0);
		ms = asks_after(self->udp, &c);
		EXPECT_GE(ms, 0);
		fastest = ms < fastest ? ms : fastest;
		/* unexpected: a JOIN has answered this challenge */
		ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &c, sizeof(c)), 0);
	}
	EXPECT_LT(fastest, 160);
	ASSERT_EQ(nl_reasons(&self->nl, &after), 0);
	EXPECT_EQ(reason_count(&after, "unexpected") - reason_count(&before, "unexpected"), 4);
	EXPECT_EQ(reason_count(&after, "tag") - reason_count(&before, "tag"), 1);
	EXPECT_EQ(reason_count(&after, "length") - reason_count(&before, "length"), 1);
	good_welcome(&p, nonce);
	fake_seal_welcome(&p, &self->worker);
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	EXPECT_EQ(end_join(self->fd), 0);
	/* after the join, no JOIN answers a CHALLENGE */
	fake_challenge(&c, nonce, 9, &self->worker);
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &c, sizeof(c)), 0);
	ASSERT_EQ(nl_reasons(&self->nl, &after), 0);
	EXPECT_EQ(reason_count(&after, "unexpected") - reason_count(&before, "unexpected"), 5);
}

/* JOIN names the job's last epoch, so that the next epoch is newer, whatever clock the aggregator
 * has.
 */
TEST_F(aggregator, join_tells_the_last_epoch)
{
	struct sockaddr_thc a = fake_place();
	struct join_packet p;
	int i;

	self->udp = fake_open();
	ASSERT_GE(self->udp, 0);
	ASSERT_EQ(begin_join(self->fd, &a), 0);
	ASSERT_EQ(fake_take_join_packet(self->udp, &self->worker, &p), 0);
	EXPECT_EQ(p.h.epoch, 0);
	ASSERT_EQ(fake_join(self->fd, self->udp, &self->worker), 0);
	fake_forget(self->udp);
	ASSERT_EQ(begin_join(self->fd, &a), 0);
	/* LEAVE comes first, and JOINs of before may still be queued */
	for (i = 0; i < 20; i++) {
		if (!fake_take_join_packet(self->udp, &self->worker, &p)) {
			if (be32toh(p.h.epoch) == FAKE_EPOCH)
				break;
		} else {
			ASSERT_EQ(p.h.op, THC_OP_LEAVE);
		}
	}
	EXPECT_EQ(p.h.op, THC_OP_JOIN);
	EXPECT_EQ(be32toh(p.h.epoch), FAKE_EPOCH);
	/* the socket was in no epoch of another job */
	a.sthc_job = 2;
	ASSERT_EQ(begin_join(self->fd, &a), 0);
	do {
		ASSERT_EQ(fake_take_join_packet(self->udp, &self->worker, &p), 0);
	} while (be16toh(p.h.job) == 1);
	EXPECT_EQ(p.h.epoch, 0);
}

/* ICMP errors have answered JOINs for longer than a joined socket would bear. The first message is
 * sent at once after WELCOME, before any other packet comes.
 */
TEST_F(aggregator, comes_after_the_network_has_said_no)
{
	struct sockaddr_thc a = fake_place();
	struct welcome_packet p;
	char lanes[LANES] = "";
	fake_nonce nonce;

	ASSERT_EQ(begin_join(self->fd, &a), 0);
	sleep_ms(1500);
	EXPECT_EQ(poll_now(self->fd), 0);
	self->udp = fake_open();
	ASSERT_GE(self->udp, 0);
	ASSERT_EQ(fake_take_join(self->udp, &self->worker, &nonce), 0);
	good_welcome(&p, nonce);
	fake_seal_welcome(&p, &self->worker);
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	ASSERT_EQ(end_join(self->fd), 0);
	EXPECT_EQ(send_message(self->fd, lanes, LANES, &add8, 0), LANES);
	set_timeo(self->fd, SO_RCVTIMEO, 300);
	EXPECT_EQ(receive(self->fd, 0), -EAGAIN);
	EXPECT_EQ(failure_of(self->fd).error, 0);
}

/* --- answers -------------------------------------------------------------- */

/* Joins the socket and sends @chunks; returns when all their packets have come. */
static int give(int fd, int udp, struct sockaddr_in *worker, struct chunk_packet *requests,
		int chunks)
{
	int error = fake_join(fd, udp, worker), i;

	if (!error)
		error = send_part(fd, 1, &add8, (size_t)chunks, 8);
	for (i = 0; i < chunks && !error; i++)
		error = fake_take_chunk(udp, &requests[i], (uint32_t)i);
	return error;
}

static int answer(int fd, int udp, const struct sockaddr_in *worker, const struct thc_hdr *request,
		  uint64_t ranks, uint8_t value)
{
	struct chunk_packet p;

	fake_answer(&p, request, ranks, value);
	return deliver(fd, udp, worker, &p, sizeof(p));
}

static bool all_bytes(const uint8_t *p, size_t bytes, uint8_t value)
{
	while (bytes--)
		if (*p++ != value)
			return false;
	return true;
}

/* The aggregator stays silent: the socket sends its packet again and again. */
TEST_F(aggregator, silent_one_is_asked_again)
{
	struct chunk_packet first, again;
	struct thc_socket_stats s;
	int i;

	self->udp = fake_open();
	ASSERT_EQ(give(self->fd, self->udp, &self->worker, &first, 1), 0);
	for (i = 0; i < 3; i++) {
		ASSERT_EQ(fake_take(self->udp, &again, PATIENCE_MS), 0);
		EXPECT_EQ(memcmp(&again, &first, sizeof(first)), 0);
	}
	s = stats_of(self->fd);
	EXPECT_GE(s.retransmits, 3);
	EXPECT_EQ(s.packets_up, s.retransmits + 1);
	ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &first.h, 3, 1), 0);
	EXPECT_EQ(receive(self->fd, 0), ANSWER);
}

/* The part of @request in a message's digest, if the sum of ranks 0 and 1 has all bytes @fill. */
static uint32_t digest_of(const struct chunk_packet *request, uint8_t fill)
{
	const struct thc_seal_key *down = &fake_seals()->down;
	const struct tag_key key = { .sip = { down->sip[0], down->sip[1] } };
	struct thc_hdr h = request->h;
	uint8_t lanes[LANES];

	memset(lanes, fill, sizeof(lanes));
	h.count = htobe16(2);
	h.bitmap = htobe64(3);
	return tag_of_result(&key, &h, tag_nh(down->nh, lanes, sizeof(lanes)));
}

/* An answer that comes three times counts once; the last missing answer ends the message. */
TEST_F(aggregator, answers_that_come_again_count_once)
{
	struct chunk_packet request[3];
	uint8_t room[3 * ANSWER];
	struct thc_received r;
	struct thc_socket_stats s;
	int i;

	self->udp = fake_open();
	ASSERT_EQ(give(self->fd, self->udp, &self->worker, request, 3), 0);
	for (i = 0; i < 6; i++)
		ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &request[i % 2].h, 3,
				 i < 2 ? 7 : 9),
			  0);
	EXPECT_EQ(poll_now(self->fd), POLLOUT) TH_LOG("complete without its third chunk");
	s = stats_of(self->fd);
	EXPECT_EQ(s.chunks, 2);
	EXPECT_EQ(s.unexpected, 4);
	ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &request[2].h, 3, 7), 0);
	ASSERT_EQ(receive_message(self->fd, room, sizeof(room), &r, 0, NULL), sizeof(room));
	EXPECT_EQ(stats_of(self->fd).chunks, 3);
	EXPECT_TRUE(all_bytes(room, 3 * LANES, 7)) TH_LOG("lanes of a duplicate");
	EXPECT_EQ(r.least, 2);
	EXPECT_EQ(r.ranks, 3);
	EXPECT_EQ(r.flags, 0);
	EXPECT_EQ(r.digest, digest_of(&request[0], 7) + digest_of(&request[1], 7) +
				    digest_of(&request[2], 7));
	EXPECT_EQ(r.missed, 0);
	EXPECT_EQ(stats_of(self->fd).memory, 0);
}

/* Damaged answers, answers of another epoch, and answers for another address are refused. */
TEST_F(aggregator, answers_that_are_none)
{
	struct sockaddr_in elsewhere;
	struct chunk_packet request, p;
	struct thc_socket_stats stats;
	uint8_t room[ANSWER];
	struct thc_received r;
	int other = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	self->udp = fake_open();
	ASSERT_EQ(give(self->fd, self->udp, &self->worker, &request, 1), 0);
	fake_answer(&p, &request.h, 3, 1);
	p.lanes[500] ^= 0x10;
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	EXPECT_EQ(stats_of(self->fd).bad_tag, 1);
	fake_answer(&p, &request.h, 3, 2);
	p.h.epoch = htobe32(FAKE_EPOCH - 1);
	seal_answer(fake_seals(), &p.h, sizeof(p));
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	p.h.epoch = htobe32(FAKE_EPOCH + 1);
	seal_answer(fake_seals(), &p.h, sizeof(p));
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &p, sizeof(p)), 0);
	EXPECT_EQ(stats_of(self->fd).unexpected, 2);
	loopback(&elsewhere, FAKE_PORT + 1);
	elsewhere.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1);
	ASSERT_EQ(bind(other, (void *)&elsewhere, sizeof(elsewhere)), 0);
	stats = stats_of(self->fd);
	ASSERT_EQ(answer(self->fd, other, &self->worker, &request.h, 3, 3), 0);
	EXPECT_EQ(stats_of(self->fd).foreign, 1);
	/* refused packets are not counted as packets from the aggregator */
	EXPECT_EQ(stats_of(self->fd).packets_down, stats.packets_down);
	EXPECT_EQ(stats_of(self->fd).bytes_down, stats.bytes_down);
	EXPECT_EQ(stats_of(self->fd).chunks, 0);
	EXPECT_EQ(poll_now(self->fd), POLLOUT);
	/* refused packets have not overwritten a lane of the result */
	ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &request.h, 3, 4), 0);
	ASSERT_EQ(receive_message(self->fd, room, sizeof(room), &r, 0, NULL), ANSWER);
	EXPECT_TRUE(all_bytes(room, LANES, 4));
	close(other);
}

/* Each packet from another address, or another port than the aggregator's, is counted once and has
 * no other effect.
 */
TEST_F(aggregator, strangers_are_counted)
{
	static const struct {
		uint32_t at;
		uint16_t port;
		bool known;
	} from[] = {
		{ INADDR_LOOPBACK, FAKE_PORT - 1, false },
		{ INADDR_LOOPBACK, FAKE_PORT + THC_PORT_SPAN, false },
		{ INADDR_LOOPBACK + 1, FAKE_PORT, false },
		{ INADDR_LOOPBACK, FAKE_PORT + THC_PORT_SPAN - 1, true },
	};
	struct thc_socket_stats before, after;
	struct reasons first, last;
	struct chunk_packet request;
	char joined[500] = "";
	struct sockaddr_in a;
	size_t i;
	int udp;

	self->udp = fake_open();
	ASSERT_EQ(give(self->fd, self->udp, &self->worker, &request, 1), 0);
	for (i = 0; i < sizeof(from) / sizeof(from[0]); i++) {
		udp = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
		loopback(&a, from[i].port);
		a.sin_addr.s_addr = htonl(from[i].at);
		ASSERT_EQ(bind(udp, (void *)&a, sizeof(a)), 0);
		before = stats_of(self->fd);
		ASSERT_EQ(nl_reasons(&self->nl, &first), 0);
		ASSERT_EQ(answer(self->fd, udp, &self->worker, &request.h, 3, 1), 0);
		ASSERT_EQ(send_joined(udp, &self->worker, joined, sizeof(joined), 100), 0);
		ASSERT_EQ(nl_reasons_after(&self->nl, &first, "address", 6, &last), 0);
		after = stats_of(self->fd);
		EXPECT_EQ(after.foreign - before.foreign, 6) TH_LOG("case %zu", i);
		EXPECT_EQ(after.packets_down - before.packets_down, from[i].known ? 6 : 0)
		TH_LOG("case %zu", i);
		EXPECT_EQ(after.chunks, 0);
		close(udp);
	}
	ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &request.h, 3, 4), 0);
	EXPECT_EQ(stats_of(self->fd).chunks, 1);
}

/* The aggregator sends STALE for each request with an unknown key, a forged one, too. A STALE with
 * the socket's own epoch answers such a request, and ends nothing.
 */
TEST_F(aggregator, only_another_epoch_ends_this_one)
{
	static const int epochs[] = { 0, -2, 2 };
	struct chunk_packet request;
	struct thc_hdr stale;
	struct thc_failure f;
	unsigned int i;

	self->udp = fake_open();
	for (i = 0; i < sizeof(epochs) / sizeof(epochs[0]); i++) {
		close(self->fd);
		self->fd = thc_open(0);
		ASSERT_EQ(give(self->fd, self->udp, &self->worker, &request, 1), 0);
		stale = request.h;
		stale.op = THC_OP_STALE;
		stale.width = 0;
		stale.flags = THC_F_EPOCH;
		stale.rank = htobe16(300);
		stale.epoch = htobe32(FAKE_EPOCH + (uint32_t)epochs[i]);
		seal_end(fake_seals(), &stale, &self->worker, request.h.tag);
		ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &stale, sizeof(stale)), 0);
		f = failure_of(self->fd);
		EXPECT_EQ(f.error, epochs[i] ? ESTALE : 0) TH_LOG("epoch %d", epochs[i]);
		if (!epochs[i])
			continue;
		EXPECT_EQ(receive(self->fd, 0), -ESTALE);
		EXPECT_EQ(f.reason, THC_FAILED_EPOCH);
		EXPECT_EQ(f.epoch, FAKE_EPOCH + (uint32_t)epochs[i]);
		EXPECT_EQ(f.worker, 300);
	}
}

/* Each chunk's count tells whether this rank is in the sum; the message's flags cover all chunks.
 */
TEST_F(aggregator, sums_without_this_rank_say_so)
{
	static const uint64_t ranks[] = { 3, 1, 2, 3 };
	struct chunk_packet request[4];
	uint8_t room[4 * ANSWER];
	struct thc_received r;
	int i;

	self->udp = fake_open();
	ASSERT_EQ(give(self->fd, self->udp, &self->worker, request, 4), 0);
	for (i = 0; i < 4; i++)
		ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &request[i].h, ranks[i], 1),
			  0);
	ASSERT_EQ(receive_message(self->fd, room, sizeof(room), &r, 0, NULL), sizeof(room));
	EXPECT_EQ(lane_of(room + 4 * LANES, 2), 2);
	EXPECT_EQ(lane_of(room + 4 * LANES + 2, 2), 1 | THC_COUNT_EXCLUDED);
	EXPECT_EQ(lane_of(room + 4 * LANES + 4, 2), 1);
	EXPECT_EQ(lane_of(room + 4 * LANES + 6, 2), 2);
	EXPECT_EQ(r.flags, THC_RECV_PARTIAL | THC_RECV_EXCLUDED);
	EXPECT_EQ(r.least, 1);
	EXPECT_EQ(r.ranks, 0);
	EXPECT_EQ(stats_of(self->fd).excluded, 1);
	EXPECT_EQ(stats_of(self->fd).partial, 2);
}

/* For a sum that the aggregator no longer has, the ranks are known. The sum is not part of the
 * digest, and is counted.
 */
TEST_F(aggregator, sums_that_are_gone_are_counted)
{
	struct chunk_packet request[3];
	uint8_t room[3 * ANSWER];
	struct thc_received r;
	struct thc_hdr stale;

	self->udp = fake_open();
	ASSERT_EQ(give(self->fd, self->udp, &self->worker, request, 3), 0);
	ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &request[0].h, 3, 1), 0);
	stale = request[1].h;
	stale.op = THC_OP_STALE;
	stale.width = 0;
	stale.flags = THC_F_KNOWN;
	stale.count = htobe16(1);
	stale.bitmap = htobe64(1);
	seal_answer(fake_seals(), &stale, sizeof(stale));
	ASSERT_EQ(deliver(self->fd, self->udp, &self->worker, &stale, sizeof(stale)), 0);
	ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &request[2].h, 3, 1), 0);
	ASSERT_EQ(receive_message(self->fd, room, sizeof(room), &r, 0, NULL), sizeof(room));
	EXPECT_EQ(r.digest, digest_of(&request[0], 1) + digest_of(&request[2], 1));
	EXPECT_EQ(r.missed, 1);
	EXPECT_EQ(r.least, 0);
}

/* --- packets that were joined --------------------------------------------- */

/* Datagrams that this namespace's UDP sockets have received. */
static uint64_t datagrams(void)
{
	unsigned long long n = 0;
	char line[256];
	FILE *f = fopen("/proc/net/snmp", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "Udp: %llu", &n) == 1)
			break;
	if (f)
		fclose(f);
	return n;
}

/* Answers that GRO has joined to one super-packet count one by one: sums, a damaged one, and a
 * header with WAIT at the end.
 */
TEST_F(aggregator, answers_that_were_joined)
{
	enum { N = 40, SPOILT = 7 };
	struct chunk_packet *all = calloc(N, sizeof(*all)), request[N];
	unsigned char *room = malloc(N * ANSWER);
	uint64_t before, seen, start;
	struct thc_received r;
	int i;

	self->udp = fake_open();
	ASSERT_EQ(fake_join(self->fd, self->udp, &self->worker), 0);
	ASSERT_EQ(send_part(self->fd, 1, &add8, N, 8), 0);
	for (i = 0; i < N; i++) {
		ASSERT_EQ(fake_take_chunk(self->udp, &request[i], (uint32_t)i), 0);
		fake_answer(&all[i], &request[i].h, 3, (uint8_t)(i + 1));
	}
	all[SPOILT].lanes[100] ^= 1;
	all[N - 1].h.op = THC_OP_WAIT;
	all[N - 1].h.bitmap = htobe64(2);
	all[N - 1].h.count = htobe16(1);
	all[N - 1].h.flags = 0;
	seal_answer(fake_seals(), &all[N - 1].h, sizeof(all->h));
	before = datagrams();
	seen = looked_at(self->fd);
	ASSERT_EQ(send_joined(self->udp, &self->worker, all,
			      (N - 1) * sizeof(*all) + sizeof(all->h), sizeof(*all)),
		  0);
	for (start = now_ms(); looked_at(self->fd) < seen + N; sleep_ms(1))
		ASSERT_LT(now_ms() - start, PATIENCE_MS);
	EXPECT_EQ(datagrams(), before + 1) TH_LOG("the network took them apart");
	EXPECT_EQ(stats_of(self->fd).chunks, N - 2);
	EXPECT_EQ(stats_of(self->fd).bad_tag, 1);
	EXPECT_EQ(stats_of(self->fd).waits, 1);
	ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &request[SPOILT].h, 3, SPOILT + 1), 0);
	ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &request[N - 1].h, 3, N), 0);
	ASSERT_EQ(receive_message(self->fd, room, N * ANSWER, &r, 0, NULL), N * ANSWER);
	for (i = 0; i < N * LANES; i++)
		if (room[i] != i / LANES + 1)
			break;
	EXPECT_EQ(i, N * LANES) TH_LOG("lane byte %d is %d", i, room[i]);
	free(room);
	free(all);
}

/* --- windows -------------------------------------------------------------- */

static uint64_t sent_once(int fd)
{
	struct thc_socket_stats s = stats_of(fd);

	return s.packets_up - s.retransmits;
}

/* The first window limits unanswered chunks. When silence counts as loss, the window is halved, so
 * one answer lets no new chunk go.
 */
TEST_F(aggregator, congestion_window_limits_what_is_in_flight)
{
	struct chunk_packet request;
	struct thc_socket_stats s;
	uint64_t window, start;

	self->udp = fake_open();
	ASSERT_EQ(fake_join(self->fd, self->udp, &self->worker), 0);
	window = stats_of(self->fd).window;
	EXPECT_LT(window, FAKE_SLOTS) TH_LOG("this shows nothing");
	ASSERT_EQ(send_part(self->fd, 1, &add8, FAKE_SLOTS, 8), 0);
	EXPECT_EQ(sent_once(self->fd), window);
	start = now_ms();
	while (s = stats_of(self->fd), !s.window_cuts && now_ms() - start < PATIENCE_MS)
		sleep_ms(10);
	/* Half of the first window is the least one, so a second cut, which a slow
	 * reader sees, changes nothing.
	 */
	EXPECT_GE(s.window_cuts, 1);
	EXPECT_EQ(s.window, window / 2);
	ASSERT_EQ(fake_take_chunk(self->udp, &request, 0), 0);
	ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &request.h, 3, 1), 0);
	EXPECT_EQ(stats_of(self->fd).chunks, 1);
	EXPECT_EQ(sent_once(self->fd), window);
}

TEST_F(aggregator, option_window_limits_what_is_in_flight)
{
	struct chunk_packet request;
	int i;

	self->udp = fake_open();
	ASSERT_EQ(set_u32(self->fd, THC_OPT_WINDOW, 5), 0);
	ASSERT_EQ(fake_join(self->fd, self->udp, &self->worker), 0);
	EXPECT_EQ(stats_of(self->fd).window, 5);
	ASSERT_EQ(send_part(self->fd, 1, &add8, 20, 8), 0);
	EXPECT_EQ(sent_once(self->fd), 5);
	for (i = 1; i <= 10; i++) {
		ASSERT_EQ(fake_take_chunk(self->udp, &request, (uint32_t)i - 1), 0);
		ASSERT_EQ(answer(self->fd, self->udp, &self->worker, &request.h, 3, 1), 0);
		EXPECT_EQ(sent_once(self->fd), 5 + i);
	}
}

TEST_HARNESS_MAIN
