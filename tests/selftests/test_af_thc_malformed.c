// SPDX-License-Identifier: GPL-2.0
/*
 * Packets that no aggregator sends, from the aggregator's address to a socket
 * with a live job: every header field with other values, every truncation,
 * random bytes. Nothing crashes, the job's sums stay right, and each packet is
 * counted under exactly one reason.
 *
 * Loopback does not take UDP super-packets apart, so one system call brings 60
 * packets. THC_MALFORMED says how many in all; 10^6 if it
 * does not, and 10^5 on the debug kernel, where each takes ten times as long.
 */
#include <linux/udp.h>

#include "fake.h"
#include "netlink.h"

#include <kselftest_harness.h>

#define AT		"127.0.0.1"
#define PACKETS		1000000
#define PACKETS_DEBUG	100000
#define BATCH		60

FIXTURE(malformed)
{
	struct daemon		daemon;
	struct nl		nl;
	int			fd[2];
	int			out;
	struct sockaddr_in	to;	/* rank 0 */
	struct thc_joined	joined;
};

static const struct thc_send half = { .op = THC_OP_ADD, .width = 8, .round = 3, .tag = 9 };

FIXTURE_SETUP(malformed)
{
	const char *reason = why_not();
	struct sockaddr_thc name;
	socklen_t len = sizeof(name);

	memset(self, 0, sizeof(*self));
	memset(self->fd, 0xff, sizeof(self->fd));
	self->out = -1;
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(nl_open(&self->nl), 0);
	ASSERT_EQ(start_daemon(&self->daemon, AT, PORT, JOB "2", NULL), 0);
	ASSERT_EQ(join_all(self->fd, 2, AT, PORT, 1), 0);
	ASSERT_EQ(getsockname(self->fd[0], (void *)&name, &len), 0);
	loopback(&self->to, ntohs(name.sthc_port));
	len = sizeof(self->joined);
	ASSERT_EQ(getsockopt(self->fd[0], SOL_THC, THC_OPT_WELCOME, &self->joined, &len), 0);
	self->out = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	ASSERT_GE(self->out, 0);
}

FIXTURE_TEARDOWN(malformed)
{
	close_all(self->fd, 2);
	stop_daemon(&self->daemon, SIGKILL);
	nl_close(&self->nl);
	if (self->out >= 0)
		close(self->out);
}

/* The answer that rank 0 waits for; lanes of zeros, which are not the sum. */
static void good_answer(uint8_t *packet, const struct thc_joined *j, uint32_t chunk)
{
	struct thc_hdr *h = (void *)packet;
	uint16_t slots = be16toh(j->welcome.data_slots);

	memset(packet, 0, ANSWER_BYTES);
	h->version = THC_VERSION;
	h->op = half.op;
	h->width = half.width;
	h->flags = THC_F_ANSWER;
	h->cookie = htobe64(COOKIE);
	h->job = htobe16(1);
	h->epoch = htobe32(j->epoch);
	h->round = htobe32(half.round);
	h->chunk = htobe32(chunk);
	h->slot = htobe16((uint16_t)(chunk % slots));
	h->generation = htobe32(chunk / slots);
	h->count = htobe16(2);
	h->bitmap = htobe64(3);
	set_sum(h, ANSWER_BYTES);
}

/* --- field by field ------------------------------------------------------- */

#define AT_FIELD(f)	offsetof(struct thc_hdr, f), sizeof(((struct thc_hdr *)0)->f)

/* With a packet sum that is right again, so that the field itself is judged. */
static const struct {
	const char *reason;
	size_t offset, bytes;
	uint64_t value;		/* host order */
} fields[] = {
	{ "version", AT_FIELD(version), 0 },	{ "version", AT_FIELD(version), 2 },
	{ "version", AT_FIELD(version), 255 },	{ "mismatch", AT_FIELD(op), 0 },
	{ "mismatch", AT_FIELD(op), 1 },	{ "mismatch", AT_FIELD(op), 3 },
	{ "mismatch", AT_FIELD(op), 4 },	{ "mismatch", AT_FIELD(op), 5 },
	{ "mismatch", AT_FIELD(op), 16 },	{ "length", AT_FIELD(op), 17 },
	{ "mismatch", AT_FIELD(op), 20 },	{ "mismatch", AT_FIELD(op), 21 },
	{ "mismatch", AT_FIELD(op), 255 },	{ "mismatch", AT_FIELD(width), 0 },
	{ "mismatch", AT_FIELD(width), 4 },	{ "mismatch", AT_FIELD(width), 16 },
	{ "mismatch", AT_FIELD(width), 255 },	{ "mismatch", AT_FIELD(flags), 0 },
	{ "mismatch", AT_FIELD(flags), 0xfe },	{ "cookie", AT_FIELD(cookie), 0 },
	{ "cookie", AT_FIELD(cookie), COOKIE + 1 },
	{ "job", AT_FIELD(job), 0 },		{ "job", AT_FIELD(job), 65535 },
	{ "unexpected", AT_FIELD(epoch), 0xffffffff },
	{ "mismatch", AT_FIELD(round), 0 },	{ "mismatch", AT_FIELD(round), 0xffffffff },
	{ "unexpected", AT_FIELD(chunk), 77 },	{ "unexpected", AT_FIELD(chunk), 0xffffffff },
	{ "unexpected", AT_FIELD(slot), 9 },	{ "slot", AT_FIELD(slot), 4096 },
	{ "slot", AT_FIELD(slot), 65535 },	{ "mismatch", AT_FIELD(count), 0 },
	{ "unexpected", AT_FIELD(generation), 1 },
	{ "unexpected", AT_FIELD(generation), 0xffffffff },
};

static void header_fields(struct __test_metadata *_metadata, int out, struct nl *nl,
			  const struct sockaddr_in *to, const struct thc_joined *j, bool fixed)
{
	uint8_t packet[ANSWER_BYTES];
	struct reasons before, after;
	const char *reason;
	size_t i;

	for (i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		good_answer(packet, j, 0);
		put_field(packet, fields[i].offset, fields[i].bytes, fields[i].value);
		if (fixed)
			set_sum((void *)packet, sizeof(packet));
		reason = fields[i].reason;
		/* whose job it is comes first, then whether it is whole */
		if (!fixed && (!strcmp(reason, "mismatch") || !strcmp(reason, "unexpected") ||
			       !strcmp(reason, "slot")))
			reason = "sum";
		ASSERT_EQ(nl_reasons(nl, &before), 0);
		ASSERT_EQ(send_one(out, to, packet, sizeof(packet)), 0);
		ASSERT_EQ(nl_reasons_after(nl, &before, 1, &after), 0);
		EXPECT_EQ(reason_count(&after, reason), reason_count(&before, reason) + 1)
		TH_LOG("case %zu, offset %zu: not \"%s\"", i, fields[i].offset, reason);
		EXPECT_EQ(reason_sum(&after), reason_sum(&before) + 1) TH_LOG("case %zu", i);
	}
}

TEST_F_TIMEOUT(malformed, every_field, 60)
{
	uint16_t table[16];

	ASSERT_EQ(send_part(self->fd[0], 0, &half, 4, 8), 0);
	header_fields(_metadata, self->out, &self->nl, &self->to, &self->joined, true);
	header_fields(_metadata, self->out, &self->nl, &self->to, &self->joined, false);
	/* what it waited for all the time */
	ASSERT_EQ(send_part(self->fd[1], 1, &half, 4, 8), 0);
	EXPECT_EQ(check_answer(self->fd[0], &half, 4, 8, 2, table), 0);
	EXPECT_EQ(check_answer(self->fd[1], &half, 4, 8, 2, table), 0);
}

/* What a packet of so many bytes, its sum as it was, is refused for. */
static const char *reason_of_length(size_t bytes)
{
	if (bytes < sizeof(struct thc_hdr))
		return "truncated";
	return bytes % 8 || bytes > ANSWER_BYTES ? "length" : "sum";
}

TEST_F_TIMEOUT(malformed, every_length, 60)
{
	uint8_t packet[1400] = { 0 };
	struct reasons before, after;
	uint64_t want[3] = { 0 }, got;
	static const char *const names[] = { "truncated", "length", "sum" };
	uint16_t table[16];
	size_t bytes, i;

	ASSERT_EQ(send_part(self->fd[0], 0, &half, 4, 8), 0);
	good_answer(packet, &self->joined, 0);
	ASSERT_EQ(nl_reasons(&self->nl, &before), 0);
	for (bytes = 0; bytes <= sizeof(packet); bytes++) {
		if (bytes == ANSWER_BYTES)
			continue;
		ASSERT_EQ(send_one(self->out, &self->to, packet, bytes), 0);
		for (i = 0; i < 3; i++)
			want[i] += !strcmp(reason_of_length(bytes), names[i]);
	}
	ASSERT_EQ(nl_reasons_after(&self->nl, &before, want[0] + want[1] + want[2], &after), 0);
	for (i = 0; i < 3; i++) {
		got = reason_count(&after, names[i]) - reason_count(&before, names[i]);
		EXPECT_EQ(got, want[i]) TH_LOG("reason %zu", i);
	}
	ASSERT_EQ(send_part(self->fd[1], 1, &half, 4, 8), 0);
	EXPECT_EQ(check_answer(self->fd[0], &half, 4, 8, 2, table), 0);
}

/* From elsewhere, even the right answer is none: each packet of a train counts. */
TEST_F(malformed, another_address)
{
	struct sockaddr_in from = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1) };
	uint8_t packets[4 * ANSWER_BYTES];
	struct reasons before, after;
	int segment = ANSWER_BYTES;
	uint16_t table[16];
	unsigned int i;

	ASSERT_EQ(send_part(self->fd[0], 0, &half, 4, 8), 0);
	for (i = 0; i < 4; i++)
		good_answer(packets + i * ANSWER_BYTES, &self->joined, i);
	ASSERT_EQ(bind(self->out, (void *)&from, sizeof(from)), 0);
	ASSERT_EQ(setsockopt(self->out, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof(segment)), 0);
	ASSERT_EQ(nl_reasons(&self->nl, &before), 0);
	ASSERT_EQ(send_one(self->out, &self->to, packets, sizeof(packets)), 0);
	ASSERT_EQ(nl_reasons_after(&self->nl, &before, 4, &after), 0);
	EXPECT_EQ(reason_count(&after, "address"), reason_count(&before, "address") + 4);
	ASSERT_EQ(send_part(self->fd[1], 1, &half, 4, 8), 0);
	EXPECT_EQ(check_answer(self->fd[0], &half, 4, 8, 2, table), 0);
}

/* --- very many ------------------------------------------------------------ */

static uint64_t state = 20240607;

static uint64_t draw(void)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return state >> 20;
}

/* Bytes each of a batch has. */
static size_t fill_batch(uint8_t *batch, const struct thc_joined *j)
{
	static const size_t sizes[] = { 1, 8, 47, 48, 49, 56, 184, 185, 512 };
	size_t bytes = sizes[draw() % (sizeof(sizes) / sizeof(sizes[0]))], i, k;
	bool wild = draw() % 4 == 0;
	uint8_t packet[ANSWER_BYTES];

	good_answer(packet, j, (uint32_t)draw() % 8);
	for (i = 0; i < BATCH; i++) {
		uint8_t *p = batch + i * bytes;

		memcpy(p, packet, bytes);
		for (k = 0; wild && k < bytes; k += 8)
			memcpy(p + k, &(uint64_t){ draw() * 0x9e3779b97f4a7c15ULL },
			       bytes - k < 8 ? bytes - k : 8);
		/* op and flags of every kind; the packet's sum stays what it was */
		if (!wild && bytes >= sizeof(struct thc_hdr))
			p[draw() % sizeof(struct thc_hdr)] ^= (uint8_t)(1 + draw() % 255);
	}
	return bytes;
}

static uint64_t packets_wanted(void)
{
	uint64_t wanted = strtoull(getenv("THC_MALFORMED") ?: "0", NULL, 0);

	if (wanted)
		return wanted;
	if (strcmp(getenv("THC_VM_KERNEL") ?: "", "debug"))
		return PACKETS;
	printf("# %d packets instead of %d: this is the debug kernel\n", PACKETS_DEBUG, PACKETS);
	return PACKETS_DEBUG;
}

TEST_F_TIMEOUT(malformed, very_many, 56)
{
	uint64_t wanted = packets_wanted(), sent = 0;
	struct thc_socket_stats stats;
	uint8_t batch[BATCH * 512];
	struct reasons r;
	struct thc_send s = half;
	uint64_t start = now_ms(), dropped, rounds = 0;
	int i;

	while (sent < wanted) {
		uint16_t table[16];

		/* a message in flight during each storm */
		s.tag++;
		ASSERT_EQ(send_part(self->fd[0], 0, &s, 8, 8), 0);
		for (i = 0; i < 400 && sent < wanted; i++, sent += BATCH) {
			int bytes = (int)fill_batch(batch, &self->joined);

			ASSERT_EQ(setsockopt(self->out, IPPROTO_UDP, UDP_SEGMENT, &bytes,
					     sizeof(bytes)),
				  0);
			ASSERT_EQ(send_one(self->out, &self->to, batch, (size_t)bytes * BATCH), 0);
		}
		ASSERT_EQ(send_part(self->fd[1], 1, &s, 8, 8), 0);
		ASSERT_EQ(check_answer(self->fd[0], &s, 8, 8, 2, table), 0);
		ASSERT_EQ(check_answer(self->fd[1], &s, 8, 8, 2, table), 0);
		rounds++;
	}
	stats = stats_of(self->fd[0]);
	ASSERT_EQ(nl_reasons(&self->nl, &r), 0);
	dropped = stats.bad_sum + stats.unexpected + stats.foreign;
	printf("# %llu packets in %llu ms, %llu rounds of the job meanwhile; dropped %llu\n",
	       (unsigned long long)sent, (unsigned long long)(now_ms() - start),
	       (unsigned long long)rounds, (unsigned long long)dropped);
	for (i = 0; i < r.n; i++)
		if (r.packets[i])
			printf("# %s %llu\n", r.name[i], (unsigned long long)r.packets[i]);
	/* only the job's own answers, when they come twice, are unexpected */
	EXPECT_EQ(dropped - stats.unexpected, sent);
	EXPECT_EQ(reason_sum(&r) - reason_count(&r, "unexpected"), sent);
	EXPECT_EQ(reason_count(&r, "sum"), stats.bad_sum);
	EXPECT_EQ(stats.memory, 0);
}

TEST_HARNESS_MAIN
