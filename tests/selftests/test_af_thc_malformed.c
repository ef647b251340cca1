// SPDX-License-Identifier: GPL-2.0
/*
 * Packets that no aggregator sends, from the aggregator's address and port to a socket
 * with a live job: every header field with other values, every truncation,
 * random bytes; over IPv4 and IPv6. Nothing crashes, the job's sums stay right, and
 * each packet is counted under exactly one reason: the one that oracle.h says.
 *
 * Loopback does not take UDP super-packets apart, so one system call brings 60
 * packets. THC_MALFORMED says how many in all; 10^6 if it does not, and 10^5 on the
 * debug kernel, where each takes ten times as long.
 */
#include <dirent.h>
#include <sys/syscall.h>

#include "fake.h"
#include "harness.h"
#include "knownjob.h"
#include "netlink.h"
#include "oracle.h"

#include <thc/wire/nonce.h>
#include <thc/wire/welcome.h>

#define PACKETS		1000000
#define PACKETS_DEBUG	100000
#define PACKETS_JOINING	50000
#define BATCH		60
/* While a message is in flight. */
#define STORM		(400 * BATCH)
#define PACKET_MAX	(ANSWER_BYTES + 8)
/* chunks of that message */
#define CHUNKS		8

FIXTURE(malformed)
{
	struct daemon		daemon;
	struct nl		nl;
	int			fd[2];
	int			out;	/* the daemon's own */
	struct sockaddr_in6	to;	/* rank 0; over IPv4 a sockaddr_in */
	struct known_job	job;
};

FIXTURE_VARIANT(malformed)
{
	const char	*at, *elsewhere;
	int		domain;
};

FIXTURE_VARIANT_ADD(malformed, ipv4){
	.at = "127.0.0.1",
	.elsewhere = "127.0.0.2",
	.domain = AF_INET,
};

FIXTURE_VARIANT_ADD(malformed, ipv6){
	.at = "::1",
	.elsewhere = "fd00::2",
	.domain = AF_INET6,
};

/* Fills @a with the address @at of @domain. */
static void address_of(struct sockaddr_in6 *a, int domain, const char *at, uint16_t port)
{
	struct sockaddr_in *v4 = (void *)a;

	memset(a, 0, sizeof(*a));
	a->sin6_family = (sa_family_t)domain;
	a->sin6_port = htons(port);
	inet_pton(domain, at, domain == AF_INET6 ? (void *)&a->sin6_addr : &v4->sin_addr);
}

/* Our descriptor of the socket of @domain that process @pid has bound to @port, or -ENOENT. */
static int socket_of(pid_t pid, int domain, uint16_t port)
{
	struct sockaddr_in6 at;
	socklen_t len = sizeof(at);
	int process = (int)syscall(SYS_pidfd_open, pid, 0), fd = -ENOENT;
	char path[32];
	struct dirent *e;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	while (dir && fd < 0 && (e = readdir(dir))) {
		fd = (int)syscall(SYS_pidfd_getfd, process, atoi(e->d_name), 0);
		len = sizeof(at);
		if (fd >= 0 && (getsockname(fd, (void *)&at, &len) || at.sin6_family != domain ||
				ntohs(at.sin6_port) != port)) {
			close(fd);
			fd = -ENOENT;
		}
	}
	if (dir)
		closedir(dir);
	close(process);
	return fd < 0 ? -ENOENT : fd;
}

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
	ASSERT_EQ(start_daemon(&self->daemon, variant->at, PORT, JOB "2", NULL), 0);
	ASSERT_EQ(join_all(self->fd, 2, variant->at, PORT, 1), 0);
	ASSERT_EQ(getsockname(self->fd[0], (void *)&name, &len), 0);
	address_of(&self->to, variant->domain, variant->at, ntohs(name.sthc_port));
	ASSERT_EQ(know_job(self->fd[0], &self->job), 0);
	self->out = socket_of(self->daemon.pid, variant->domain, PORT);
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

/* The seals of job 1 in the epoch of @j. */
static const struct job_seals *seals_of(const struct known_job *j)
{
	static uint8_t salt[THC_SALT_BYTES];
	static struct job_seals s;

	if (!s.seal || memcmp(salt, j->spec.salt, sizeof(salt))) {
		memcpy(salt, j->spec.salt, sizeof(salt));
		job_seals_set(&s, job_key, 1, salt);
	}
	return &s;
}

/* The answer that rank 0 waits for; lanes of zeros, which are not the sum. */
static void good_answer(uint8_t *packet, const struct known_job *j, uint32_t chunk)
{
	struct thc_hdr *h = (void *)packet;
	uint16_t slots = j->spec.data_slots;

	memset(packet, 0, ANSWER_BYTES);
	h->version = THC_VERSION;
	h->op = half.op;
	h->width = half.width;
	h->flags = THC_F_ANSWER;
	h->job = htobe16(1);
	h->epoch = htobe32(j->epoch);
	h->round = htobe32(half.round);
	h->chunk = htobe32(chunk);
	h->slot = htobe16((uint16_t)(chunk % slots));
	h->generation = htobe32(chunk / slots);
	h->count = htobe16(2);
	h->bitmap = htobe64(3);
	seal_answer(seals_of(j), h, ANSWER_BYTES);
}

/* Stays on one CPU: loopback keeps the order of packets that one CPU sends. */
static int stay_on_this_cpu(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)sched_getcpu(), &set);
	return sched_setaffinity(0, sizeof(set), &set);
}

/* --- field by field ------------------------------------------------------- */

#define AT_FIELD(f)	offsetof(struct thc_hdr, f), sizeof(((struct thc_hdr *)0)->f)

/* The tag is computed anew, so that the field itself is judged. */
static const struct {
	const char *reason;
	size_t offset, bytes;
	uint64_t value;		/* host order */
} fields[] = {
	{ "version", AT_FIELD(version), 0 },	{ "version", AT_FIELD(version), 1 },
	{ "version", AT_FIELD(version), 255 },	{ "mismatch", AT_FIELD(op), 0 },
	{ "mismatch", AT_FIELD(op), 6 },	{ "mismatch", AT_FIELD(op), 3 },
	{ "mismatch", AT_FIELD(op), 4 },	{ "mismatch", AT_FIELD(op), 5 },
	{ "mismatch", AT_FIELD(op), 16 },	{ "reserved", AT_FIELD(op), 17 },
	{ "mismatch", AT_FIELD(op), 20 },	{ "mismatch", AT_FIELD(op), 21 },
	{ "mismatch", AT_FIELD(op), 255 },	{ "mismatch", AT_FIELD(width), 0 },
	{ "mismatch", AT_FIELD(width), 4 },	{ "mismatch", AT_FIELD(width), 16 },
	{ "mismatch", AT_FIELD(width), 255 },	{ "mismatch", AT_FIELD(flags), 0 },
	{ "mismatch", AT_FIELD(flags), 0xfe },	{ "key", AT_FIELD(key_id), 0 },
	{ "key", AT_FIELD(key_id), 0x5eed1234 },
	{ "job", AT_FIELD(job), 0 },		{ "job", AT_FIELD(job), 65535 },
	{ "unexpected", AT_FIELD(epoch), 0xffffffff },
	{ "mismatch", AT_FIELD(round), 0 },	{ "mismatch", AT_FIELD(round), 0xffffffff },
	{ "unexpected", AT_FIELD(chunk), 77 },	{ "unexpected", AT_FIELD(chunk), 0xffffffff },
	{ "unexpected", AT_FIELD(slot), 9 },	{ "slot", AT_FIELD(slot), 4096 },
	{ "slot", AT_FIELD(slot), 65535 },	{ "mismatch", AT_FIELD(count), 0 },
	{ "mismatch", AT_FIELD(count), 1 },	{ "mismatch", AT_FIELD(count), 3 },
	{ "mismatch", AT_FIELD(count), 32768 }, { "mismatch", AT_FIELD(count), 65535 },
	{ "mismatch", AT_FIELD(bitmap), 0 },	{ "mismatch", AT_FIELD(bitmap), 1 },
	{ "mismatch", AT_FIELD(bitmap), 5 },	{ "mismatch", AT_FIELD(bitmap), 7 },
	{ "mismatch", AT_FIELD(bitmap), 1ULL << 63 | 1 },
	{ "unexpected", AT_FIELD(generation), 1 },
	{ "unexpected", AT_FIELD(generation), 0xffffffff },
};

#define N_FIELDS	(sizeof(fields) / sizeof(fields[0]))

/* Returns how many packets were refused as `unexpected`. */
static uint64_t header_fields(struct __test_metadata *_metadata, int out, struct nl *nl,
			      const void *to, const struct known_job *j, bool fixed)
{
	uint64_t unexpected = 0;
	uint8_t packet[ANSWER_BYTES];
	struct reasons before, after;
	const char *reason;
	size_t i;

	for (i = 0; i < N_FIELDS; i++) {
		bool known;

		good_answer(packet, j, 0);
		put_field(packet, fields[i].offset, fields[i].bytes, fields[i].value);
		if (fixed)
			tag_answer(seals_of(j), (void *)packet, sizeof(packet));
		reason = fields[i].reason;
		/* the tag is checked before these reasons, but after the fields that say whose
		 * packet it is
		 */
		if (!fixed && (!strcmp(reason, "mismatch") || !strcmp(reason, "unexpected") ||
			       !strcmp(reason, "slot")))
			reason = "tag";
		known = !!strcmp(reason, "unexpected");
		unexpected += !known;
		EXPECT_EQ(nl_reasons(nl, &before), 0);
		EXPECT_EQ(send_one(out, to, packet, sizeof(packet)), 0);
		EXPECT_EQ(nl_reasons_after(nl, &before, reason, 1, &after), 0);
		EXPECT_GT(reason_count(&after, reason), reason_count(&before, reason))
		TH_LOG("case %zu, offset %zu: not \"%s\"", i, fields[i].offset, reason);
		EXPECT_EQ(reason_sum_known(&after), reason_sum_known(&before) + known)
		TH_LOG("case %zu", i);
	}
	return unexpected;
}

/* Of the job's own packets only those that nobody waits for are refused: WELCOMEs after the first,
 * and replies to retransmitted requests that come after the answer. Their number depends on
 * timing, so only the socket's other counters tell how many are `unexpected`: each packet since @a
 * completed a chunk, was a WAIT, was refused as late, or is one of the @sent, @want of which are
 * `unexpected`. Returns the number of late packets.
 */
static uint64_t expect_unexpected(struct __test_metadata *_metadata, uint64_t sent, uint64_t want,
				  const struct thc_socket_stats *a,
				  const struct thc_socket_stats *b)
{
	uint64_t got = b->unexpected - a->unexpected, late = got - want;

	EXPECT_GE(got, want);
	EXPECT_EQ(b->packets_down - a->packets_down,
		  sent + (b->chunks - a->chunks) + (b->waits - a->waits) + late);
	printf("# %llu of unexpected are the job's own\n", (unsigned long long)late);
	return late;
}

TEST_F_TIMEOUT(malformed, every_field, 60)
{
	struct thc_socket_stats first, last;
	uint16_t table[THC_LEVELS_MAX];
	uint64_t want;

	ASSERT_EQ(stay_on_this_cpu(), 0);
	first = stats_of(self->fd[0]);
	ASSERT_EQ(send_part(self->fd[0], 0, &half, 4, 8), 0);
	want = header_fields(_metadata, self->out, &self->nl, &self->to, &self->job, true);
	want += header_fields(_metadata, self->out, &self->nl, &self->to, &self->job, false);
	last = stats_of(self->fd[0]);
	expect_unexpected(_metadata, 2 * N_FIELDS, want, &first, &last);
	/* the other half of what rank 0's message waited for */
	ASSERT_EQ(send_part(self->fd[1], 1, &half, 4, 8), 0);
	EXPECT_EQ(check_answer(self->fd[0], &half, 4, 8, 2, table), 0);
	EXPECT_EQ(check_answer(self->fd[1], &half, 4, 8, 2, table), 0);
}

/* Why a packet of @bytes is refused whose tag was left as it was. */
static const char *reason_of_length(size_t bytes)
{
	if (bytes < sizeof(struct thc_hdr))
		return "truncated";
	return bytes % 8 || bytes > ANSWER_BYTES ? "length" : "tag";
}

TEST_F_TIMEOUT(malformed, every_length, 60)
{
	uint8_t packet[1400] = { 0 };
	struct reasons before, after;
	uint64_t want[3] = { 0 }, got;
	static const char *const names[] = { "truncated", "length", "tag" };
	uint16_t table[THC_LEVELS_MAX];
	size_t bytes, i;

	ASSERT_EQ(send_part(self->fd[0], 0, &half, 4, 8), 0);
	good_answer(packet, &self->job, 0);
	ASSERT_EQ(nl_reasons(&self->nl, &before), 0);
	for (bytes = 0; bytes <= sizeof(packet); bytes++) {
		if (bytes == ANSWER_BYTES)
			continue;
		ASSERT_EQ(send_one(self->out, &self->to, packet, bytes), 0);
		for (i = 0; i < 3; i++)
			want[i] += !strcmp(reason_of_length(bytes), names[i]);
		/* a busy machine's queue holds 1000 */
		if (bytes % 200 && bytes < sizeof(packet))
			continue;
		ASSERT_EQ(nl_reasons_after(&self->nl, &before, "tag", want[0] + want[1] + want[2],
					   &after),
			  0);
	}
	for (i = 0; i < 3; i++) {
		got = reason_count(&after, names[i]) - reason_count(&before, names[i]);
		EXPECT_EQ(got, want[i]) TH_LOG("reason %zu", i);
	}
	ASSERT_EQ(send_part(self->fd[1], 1, &half, 4, 8), 0);
	EXPECT_EQ(check_answer(self->fd[0], &half, 4, 8, 2, table), 0);
}

/* Right answers and a WELCOME from @from, which is not the aggregator's port, are all refused:
 * each packet of a train counts.
 */
static void expect_foreign(struct __test_metadata *_metadata, struct nl *nl, const void *from,
			   const void *to, const struct known_job *j)
{
	int out = socket(((const struct sockaddr *)from)->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint8_t packets[4 * ANSWER_BYTES];
	struct reasons before, after;
	struct welcome_packet p;
	unsigned int i;

	for (i = 0; i < 4; i++)
		good_answer(packets + i * ANSWER_BYTES, j, i);
	good_welcome(&p, 1);
	seal_welcome(seals_of(j), &p.h, sizeof(p), to);
	ASSERT_GE(out, 0);
	ASSERT_EQ(bind(out, from, sizeof(struct sockaddr_in6)), 0);
	ASSERT_EQ(nl_reasons(nl, &before), 0);
	ASSERT_EQ(send_joined(out, to, packets, sizeof(packets), ANSWER_BYTES), 0);
	ASSERT_EQ(send_one(out, to, &p, sizeof(p)), 0);
	ASSERT_EQ(nl_reasons_after(nl, &before, "address", 5, &after), 0);
	EXPECT_EQ(reason_count(&after, "address"), reason_count(&before, "address") + 5);
	close(out);
}

TEST_F(malformed, another_address)
{
	struct sockaddr_in6 from;
	uint16_t table[THC_LEVELS_MAX];

	ASSERT_EQ(send_part(self->fd[0], 0, &half, 4, 8), 0);
	if (variant->domain == AF_INET6)
		ASSERT_EQ(system("ip -6 addr add fd00::2/128 dev lo nodad"), 0);
	address_of(&from, variant->domain, variant->elsewhere, 0);
	expect_foreign(_metadata, &self->nl, &from, &self->to, &self->job);
	ASSERT_EQ(send_part(self->fd[1], 1, &half, 4, 8), 0);
	EXPECT_EQ(check_answer(self->fd[0], &half, 4, 8, 2, table), 0);
}

/* Any program on the aggregator's host can send from these ports, even from those that XDP uses
 * for further slots: the aggregator of a job with one port sends from that port alone.
 */
TEST_F(malformed, another_port)
{
	static const uint16_t ports[] = { PORT + 1, PORT - 1, 0 };
	struct sockaddr_in6 from;
	uint16_t table[THC_LEVELS_MAX];
	size_t i;

	ASSERT_EQ(send_part(self->fd[0], 0, &half, 4, 8), 0);
	for (i = 0; i < sizeof(ports) / sizeof(ports[0]); i++) {
		address_of(&from, variant->domain, variant->at, ports[i]);
		expect_foreign(_metadata, &self->nl, &from, &self->to, &self->job);
	}
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

/* Packets sent so far, and how many must have been counted per reason. */
struct storm {
	struct oracle	oracle;
	struct thc_end	worker;
	struct thc_end	group;
	uint64_t	sent;
	uint64_t	want[THC_WORKER_DROP_REASONS];
};

/* All reasons that a worker counts, by enum thc_drop_reason. */
static const char *const reached[THC_WORKER_DROP_REASONS] = {
	[THC_DROP_TRUNCATED] = "truncated", [THC_DROP_VERSION] = "version",
	[THC_DROP_OP] = "op",		    [THC_DROP_LENGTH] = "length",
	[THC_DROP_TAG] = "tag",		    [THC_DROP_JOB] = "job",
	[THC_DROP_KEY] = "key",		    [THC_DROP_SLOT] = "slot",
	[THC_DROP_MISMATCH] = "mismatch",   [THC_DROP_UNEXPECTED] = "unexpected",
	[THC_DROP_RESERVED] = "reserved",   [THC_DROP_ADDRESS] = "address",
};

static struct tag_key key_of(const u64 *sip, __be32 id)
{
	return (struct tag_key){ { sip[0], sip[1] }, be32toh(id) };
}

/* @to: the worker; @group: an end, of the group */
static void storm_init(struct storm *t, const struct known_job *j, const void *to,
		       const struct thc_end *group)
{
	const struct job_seals *s = seals_of(j);
	const struct thc_end worker = end_of(to);

	memset(t, 0, sizeof(*t));
	t->group = *group;
	t->worker = worker;
	t->oracle.down = key_of(s->down.sip, s->down.id);
	memcpy(t->oracle.nh, s->down.nh, sizeof(t->oracle.nh));
	t->oracle.lost = be32toh(s->lost.id);
	t->oracle.welcome = key_of(s->welcome.sip, s->welcome.id);
	memcpy(&t->oracle.worker, &worker, sizeof(worker));
	t->oracle.epoch = j->epoch;
	t->oracle.job = 1;
	t->oracle.data_slots = j->spec.data_slots;
	t->oracle.control_slots = j->spec.control_slots;
	t->oracle.round = half.round;
	t->oracle.op = half.op;
	t->oracle.width = half.width;
	t->oracle.ranks = 2;
}

/* A key's name: none, a random one, or one of a key for other packets. */
static __be32 other_key(const struct oracle *o)
{
	switch (draw() % 4) {
	case 0:
		return htobe32(o->lost);
	case 1:
		return htobe32(o->down.id);
	case 2:
		return htobe32((uint32_t)draw());
	}
	return 0;
}

/* A STALE that ends the epoch; it may name the epoch that the socket has. */
static void order_to_end(struct thc_hdr *h, const struct oracle *o)
{
	h->op = THC_OP_STALE;
	h->flags = THC_F_EPOCH;
	h->key_id = htobe32(o->lost);
	h->epoch = htobe32(o->epoch + (uint32_t)(draw() % 3) - 1);
}

/* Changes one field or one byte, often to a value that other packets have. */
static void spoil(struct thc_hdr *h, const struct oracle *o)
{
	switch (draw() % 15) {
	case 0:
		h->op = (uint8_t)(draw() % 24);
		break;
	case 1:
		h->op = draw() % 2 ? THC_OP_WAIT : THC_OP_STALE;
		break;
	case 2:
		h->width = (uint8_t)(4 << draw() % 4);
		break;
	case 3:
		h->flags = (uint8_t)draw();
		break;
	case 4:
		h->flags = 0;
		break;
	case 5:
		h->epoch = htobe32(o->epoch + (uint32_t)(draw() % 3) - 1);
		break;
	case 6:
		h->round = htobe32((uint32_t)draw() % 8);
		break;
	case 7:
		h->chunk = htobe32(o->first + (uint32_t)(draw() % 32) - 16);
		break;
	case 8:
		h->slot = htobe16((uint16_t)(draw() % (2u * o->data_slots)));
		break;
	case 9:
		h->generation = htobe32(be32toh(h->generation) + (uint32_t)(draw() % 3) - 1);
		break;
	case 10:
		h->count = htobe16((uint16_t)(draw() % 3 | draw() % 2 << 15));
		break;
	case 11:
		h->key_id = other_key(o);
		break;
	case 12:
		h->bitmap = htobe64(draw() % 8);
		break;
	case 13:
		order_to_end(h, o);
		break;
	default:
		((uint8_t *)h)[draw() % sizeof(*h)] ^= (uint8_t)(1 + draw() % 255);
	}
}

/* Fills the packet with random bytes; half of the packets keep version, key and job. */
static void scramble(uint8_t *packet, size_t bytes)
{
	bool ours = draw() % 2 && bytes >= sizeof(struct thc_hdr);
	struct thc_hdr *h = (void *)packet, was = *h;
	size_t i;

	for (i = 0; i < bytes; i += 8)
		memcpy(packet + i, &(uint64_t){ draw() * 0x9e3779b97f4a7c15ULL }, 8);
	if (!ours)
		return;
	h->version = was.version;
	h->key_id = was.key_id;
	h->job = was.job;
}

/* Computes the right tag, whatever key the packet names. */
static void tag(const struct storm *t, const struct known_job *j, struct thc_hdr *h, size_t bytes)
{
	struct thc_welcome *w = (void *)(h + 1);

	if (h->op == THC_OP_WELCOME && bytes >= sizeof(*h) + sizeof(*w))
		tag_welcome(seals_of(j), h, bytes,
			    thc_nonce_is_none(w->nonce) ? &t->group : &t->worker);
	else
		tag_answer(seals_of(j), h, bytes);
}

/* A WELCOME, mostly of good form. */
static void make_welcome(struct thc_hdr *h, const struct oracle *o)
{
	struct thc_welcome *w = (void *)(h + 1);

	h->op = THC_OP_WELCOME;
	h->key_id = htobe32(o->welcome.id);
	memset(w->nonce, draw() % 2 ? (int)draw() : 0, sizeof(w->nonce));
	w->parts = draw() % 4 ? 1 : (uint8_t)(draw() % 19);
	w->part = draw() % 4 ? 0 : (uint8_t)(draw() % 17);
	w->reserved = draw() % 8 ? 0 : (uint8_t)draw();
}

/* Fills a batch with packets of one length, and counts for each packet why it must be refused. */
static size_t fill_batch(uint8_t *batch, struct storm *t, const struct known_job *j)
{
	/* the fixed part of a WELCOME alone, with SEAL, with all records, and a byte behind them */
	static const size_t sizes[] = { 1,   8,	  47,  48,  48,	 48,   49,   56,
					112, 136, 232, 233, 512, 1072, 1072, 1080 };
	size_t bytes = sizes[draw() % (sizeof(sizes) / sizeof(sizes[0]))], i;
	_Alignas(8) uint8_t packet[PACKET_MAX];
	struct thc_hdr *h = (void *)packet;
	enum thc_drop_reason reason;

	for (i = 0; i < BATCH; i++) {
		unsigned int spoilt = draw() % 3;

		memset(packet + ANSWER_BYTES, 0, sizeof(packet) - ANSWER_BYTES);
		/* a chunk in flight, or a later one */
		good_answer(packet, j, t->oracle.first + (uint32_t)draw() % (2 * CHUNKS));
		if (bytes >= sizeof(*h) + sizeof(struct thc_welcome) && bytes < 512 && draw() % 2)
			make_welcome(h, &t->oracle);
		if (draw() % 8 == 0)
			scramble(packet, bytes);
		else
			while (spoilt--)
				spoil(h, &t->oracle);
		if (bytes >= sizeof(*h) && draw() % 2)
			tag(t, j, h, bytes);
		reason = oracle_reason(&t->oracle, packet, bytes);
		if (reason == THC_DROP_NONE) {
			/* the job would accept the packet */
			h->tag ^= 1;
			reason = oracle_reason(&t->oracle, packet, bytes);
		}
		t->want[reason]++;
		memcpy(batch + i * bytes, packet, bytes);
	}
	t->sent += BATCH;
	return bytes;
}

static uint64_t packets_wanted(void)
{
	uint64_t wanted = strtoull(getenv("THC_MALFORMED") ?: "0", NULL, 0);

	if (wanted)
		return wanted;
	if (!on_debug_kernel())
		return PACKETS;
	printf("# %d packets instead of %d: this is the debug kernel\n", PACKETS_DEBUG, PACKETS);
	return PACKETS_DEBUG;
}

static uint64_t refused(const struct thc_socket_stats *s)
{
	return s->bad_tag + s->foreign;
}

/* Waits until @fd's socket has sent @chunks once and refused @n packets; `unexpected` ones do not
 * count.
 */
static int settle(int fd, uint64_t chunks, uint64_t n)
{
	struct thc_socket_stats s = stats_of(fd);
	uint64_t start = now_ms();

	while (s.packets_up - s.retransmits < chunks || refused(&s) < n) {
		if (now_ms() - start > PATIENCE_MS)
			return -ETIMEDOUT;
		sleep_ms(1);
		s = stats_of(fd);
	}
	return 0;
}

/* Sends about @packets, STORM at most, and waits until the socket has judged them: then chunks in
 * flight may be answered.
 */
static int blow(struct storm *t, int out, const void *to, int fd, const struct known_job *j,
		uint64_t packets)
{
	uint64_t batches = ((packets < STORM ? packets : STORM) + BATCH - 1) / BATCH;
	static uint8_t batch[BATCH * PACKET_MAX];
	size_t bytes;
	int error = 0;

	while (batches-- && !error) {
		bytes = fill_batch(batch, t, j);
		error = send_joined(out, to, batch, bytes * BATCH, (uint16_t)bytes);
	}
	/* the last packet is one that the job cannot accept */
	if (!error)
		error = send_one(out, to, "", 1);
	t->want[THC_DROP_TRUNCATED]++;
	t->sent++;
	return error ? error : settle(fd, 0, t->sent - t->want[THC_DROP_UNEXPECTED]);
}

/* Exactly the packets of the storm are counted, each under its reason. */
static void expect_reasons(struct __test_metadata *_metadata, const struct storm *t,
			   const struct reasons *before, const struct reasons *after)
{
	enum thc_drop_reason reason;
	uint64_t got, want, total = 0;
	int i;

	for (i = 0; i < after->n; i++) {
		got = after->packets[i] - before->packets[i];
		want = 0;
		for (reason = 0; reason < THC_WORKER_DROP_REASONS; reason++)
			if (reached[reason] && !strcmp(reached[reason], after->name[i]))
				want = t->want[reason];
		if (got || want)
			printf("# %s %llu\n", after->name[i], (unsigned long long)got);
		if (strcmp(after->name[i], "unexpected"))
			EXPECT_EQ(got, want) TH_LOG("%s", after->name[i]);
	}
	for (reason = 0; reason < THC_WORKER_DROP_REASONS; reason++) {
		total += t->want[reason];
		/* every reason that can be drawn has been drawn */
		EXPECT_EQ(t->want[reason] > 0, !!reached[reason]) TH_LOG("reason %d", reason);
	}
	EXPECT_EQ(total, t->sent);
}

TEST_F_TIMEOUT(malformed, very_many, 56)
{
	struct thc_socket_stats first[2], last[2];
	uint64_t wanted = packets_wanted(), start, rounds = 0, late;
	struct reasons before, after;
	struct thc_send s = half;
	uint16_t table[THC_LEVELS_MAX];
	struct storm t;
	int error = 0;

	storm_init(&t, &self->job, &self->to, &self->job.spec.group);
	ASSERT_EQ(stay_on_this_cpu(), 0);
	/* after this sum no more packets of the join arrive */
	ASSERT_EQ(all_reduce(self->fd, 2, &s, CHUNKS), 0);
	first[0] = stats_of(self->fd[0]);
	first[1] = stats_of(self->fd[1]);
	ASSERT_EQ(refused(&first[0]), 0);
	ASSERT_EQ(nl_reasons(&self->nl, &before), 0);
	for (start = now_ms(); t.sent < wanted; rounds++) {
		/* a message in flight during each storm */
		s.tag++;
		t.oracle.first += CHUNKS;
		t.oracle.end = t.oracle.first + CHUNKS;
		ASSERT_EQ(send_part(self->fd[0], 0, &s, CHUNKS, 8), 0);
		ASSERT_EQ(settle(self->fd[0], t.oracle.end, 0), 0);
		error = blow(&t, self->out, &self->to, self->fd[0], &self->job, wanted - t.sent);
		if (error)	/* the checks of counters below tell more */
			break;
		ASSERT_EQ(send_part(self->fd[1], 1, &s, CHUNKS, 8), 0);
		ASSERT_EQ(check_answer(self->fd[0], &s, CHUNKS, 8, 2, table), 0);
		ASSERT_EQ(check_answer(self->fd[1], &s, CHUNKS, 8, 2, table), 0);
	}
	last[0] = stats_of(self->fd[0]);
	last[1] = stats_of(self->fd[1]);
	ASSERT_EQ(nl_reasons(&self->nl, &after), 0);
	printf("# %llu packets in %llu ms, %llu rounds of the job meanwhile\n",
	       (unsigned long long)t.sent, (unsigned long long)(now_ms() - start),
	       (unsigned long long)rounds);
	EXPECT_EQ(error, 0);
	expect_reasons(_metadata, &t, &before, &after);
	late = expect_unexpected(_metadata, t.sent, t.want[THC_DROP_UNEXPECTED], &first[0],
				 &last[0]);
	/* replies to retransmits; those to earlier retransmits may have been on their way */
	EXPECT_LE(late + last[0].waits - first[0].waits, last[0].retransmits);
	EXPECT_EQ(last[0].bad_tag - first[0].bad_tag, t.want[THC_DROP_TAG]);
	EXPECT_EQ(refused(&last[1]), refused(&first[1]));
	EXPECT_TRUE(error || !last[0].memory);
}

FIXTURE(joining)
{
	struct nl	nl;
	int		fd;
	int		udp;	/* the aggregator's */
};

FIXTURE_SETUP(joining)
{
	const char *reason = why_not();

	memset(self, 0, sizeof(*self));
	self->fd = self->udp = -1;
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(nl_open(&self->nl), 0);
	self->fd = thc_open(0);
	ASSERT_GE(self->fd, 0);
	self->udp = fake_open();
	ASSERT_GE(self->udp, 0);
}

FIXTURE_TEARDOWN(joining)
{
	close_all(&self->fd, 1);
	if (self->udp >= 0)
		close(self->udp);
	nl_close(&self->nl);
}

/* Packets to a worker that has no WELCOME yet; then WELCOME comes, and the worker joins. */
TEST_F_TIMEOUT(joining, storm, 56)
{
	static const enum thc_drop_reason drawn[] = { THC_DROP_TRUNCATED, THC_DROP_LENGTH,
						      THC_DROP_TAG,	  THC_DROP_JOB,
						      THC_DROP_KEY,	  THC_DROP_RESERVED,
						      THC_DROP_ADDRESS };
	struct known_job job = { .epoch = FAKE_EPOCH };
	struct sockaddr_thc a = fake_place();
	/* the worker knows of no group yet */
	const struct thc_end none = { .port = 0 };
	struct reasons before, after;
	struct welcome_packet p;
	struct sockaddr_in worker;
	enum thc_drop_reason r;
	fake_nonce nonce;
	struct storm t;
	size_t i;

	good_welcome(&p, 0);
	ASSERT_TRUE(
		thc_spec_read(&job.spec, &p.all.w, &p.all.seal, sizeof(p.all) - sizeof(p.all.w)));
	ASSERT_EQ(stay_on_this_cpu(), 0);
	ASSERT_EQ(begin_join(self->fd, &a), 0);
	ASSERT_EQ(fake_take_join(self->udp, &worker, &nonce), 0);
	storm_init(&t, &job, &worker, &none);
	t.oracle.joining = true;
	ASSERT_EQ(nl_reasons(&self->nl, &before), 0);
	while (t.sent < PACKETS_JOINING)
		ASSERT_EQ(blow(&t, self->udp, &worker, self->fd, &job, PACKETS_JOINING - t.sent),
			  0);
	ASSERT_EQ(nl_reasons(&self->nl, &after), 0);
	for (r = 0; r < THC_WORKER_DROP_REASONS; r++)
		if (reached[r])
			EXPECT_EQ(reason_count(&after, reached[r]) -
					  reason_count(&before, reached[r]),
				  t.want[r])
	TH_LOG("reason %d", r);
	EXPECT_EQ(reason_sum(&after) - reason_sum(&before), t.sent);
	for (i = 0; i < sizeof(drawn) / sizeof(drawn[0]); i++)
		EXPECT_GT(t.want[drawn[i]], 0) TH_LOG("reason %d", drawn[i]);
	EXPECT_EQ(t.want[THC_DROP_NONE], 0);
	good_welcome(&p, nonce);
	fake_seal_welcome(&p, &worker);
	ASSERT_EQ(send_one(self->udp, &worker, &p, sizeof(p)), 0);
	EXPECT_EQ(end_join(self->fd), 0);
}

TEST_HARNESS_MAIN
