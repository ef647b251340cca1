// SPDX-License-Identifier: GPL-2.0
/*
 * Generic netlink family "thc": adding and deleting jobs, listing sockets and counters, bad input
 * with the kernel's messages, and privileges.
 */
#include "harness.h"
#include "knownjob.h"
#include "netlink.h"

#include <sys/stat.h>

#define AT	"127.0.0.1"
#define MOST	THC_GENL_JOBS_MAX

FIXTURE(netlink)
{
	struct nl nl;
	struct daemon daemon, other;
	int fd[RANKS_MAX];
};

FIXTURE_SETUP(netlink)
{
	const char *reason = why_not();

	memset(self, 0, sizeof(*self));
	memset(self->fd, 0xff, sizeof(self->fd));
	if (reason)
		SKIP(return, "%s", reason);
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(nl_open(&self->nl), 0);
}

FIXTURE_TEARDOWN(netlink)
{
	close_all(self->fd, RANKS_MAX);
	stop_daemon(&self->daemon, SIGKILL);
	stop_daemon(&self->other, SIGKILL);
	nl_close(&self->nl);
}

/* --- what came back ------------------------------------------------------- */

struct job {
	int		n;		/* messages */
	size_t		bytes;		/* bytes of these messages */
	uint16_t	id;
	int		keys;		/* key attributes; messages with our key */
	int		aggregators;
	uint16_t	port[THC_GENL_AGGREGATORS_MAX];
	uint32_t	in[THC_GENL_AGGREGATORS_MAX];
	uint8_t		in6[THC_GENL_AGGREGATORS_MAX][16];
	uint32_t	ifindex[THC_GENL_AGGREGATORS_MAX];
	bool		has_users, has_groups;
	uint32_t	users[2], groups[2];	/* first, last */
	uint8_t		seen[8192];
};

static int aggregator_attr(const struct nlattr *a, void *data)
{
	struct job *j = data;
	int i = j->aggregators;

	switch (mnl_attr_get_type(a)) {
	case THC_AGGR_IPV4:
		memcpy(&j->in[i], mnl_attr_get_payload(a), 4);
		break;
	case THC_AGGR_IPV6:
		memcpy(j->in6[i], mnl_attr_get_payload(a), 16);
		break;
	case THC_AGGR_PORT:
		j->port[i] = mnl_attr_get_u16(a);
		break;
	case THC_AGGR_IFINDEX:
		j->ifindex[i] = mnl_attr_get_u32(a);
		break;
	}
	return MNL_CB_OK;
}

static int ids_attr(const struct nlattr *a, void *data)
{
	uint32_t *ids = data;

	if (mnl_attr_get_type(a) == THC_IDS_FIRST)
		ids[0] = mnl_attr_get_u32(a);
	else if (mnl_attr_get_type(a) == THC_IDS_LAST)
		ids[1] = mnl_attr_get_u32(a);
	return MNL_CB_OK;
}

static int job_attr(const struct nlattr *a, void *data)
{
	struct job *j = data;

	switch (mnl_attr_get_type(a)) {
	case THC_ATTR_JOB:
		j->id = mnl_attr_get_u16(a);
		if (j->id < sizeof(j->seen))
			j->seen[j->id]++;
		break;
	case THC_ATTR_KEY:
		j->keys++;
		break;
	case THC_ATTR_AGGREGATOR:
		if (j->aggregators < THC_GENL_AGGREGATORS_MAX) {
			mnl_attr_parse_nested(a, aggregator_attr, j);
			j->aggregators++;
		}
		break;
	case THC_ATTR_USERS:
		j->has_users = true;
		mnl_attr_parse_nested(a, ids_attr, j->users);
		break;
	case THC_ATTR_GROUPS:
		j->has_groups = true;
		mnl_attr_parse_nested(a, ids_attr, j->groups);
		break;
	}
	return MNL_CB_OK;
}

static void parse_job(const struct nlmsghdr *h, void *data)
{
	struct job *j = data;

	j->n++;
	j->bytes += h->nlmsg_len;
	j->keys += memmem(h, h->nlmsg_len, job_key, sizeof(job_key)) != NULL;
	mnl_attr_parse(h, sizeof(struct genlmsghdr), job_attr, j);
}

static int get_job(struct nl *nl, uint16_t id, struct job *j)
{
	struct nlmsghdr *h = nl_begin(nl, nl->family, THC_CMD_JOB_GET, NLM_F_ACK);

	memset(j, 0, sizeof(*j));
	mnl_attr_put_u16(h, THC_ATTR_JOB, id);
	return nl_ask(nl, h, parse_job, j);
}

static int dump_jobs(struct nl *nl, struct job *j)
{
	memset(j, 0, sizeof(*j));
	return nl_ask(nl, nl_begin(nl, nl->family, THC_CMD_JOB_GET, NLM_F_DUMP), parse_job, j);
}

static struct job job;

/* --- jobs ----------------------------------------------------------------- */

TEST_F(netlink, job_new_get_del)
{
	struct nlmsghdr *h = nl_begin(&self->nl, self->nl.family, THC_CMD_JOB_NEW, NLM_F_ACK);
	struct nlattr *nest;
	struct in6_addr six;

	inet_pton(AF_INET6, "fd00::1", &six);
	mnl_attr_put_u16(h, THC_ATTR_JOB, 65535);
	mnl_attr_put(h, THC_ATTR_KEY, sizeof(job_key), job_key);
	nl_put_aggregator(h, "10.1.2.3", 0);
	nest = mnl_attr_nest_start(h, THC_ATTR_AGGREGATOR);
	mnl_attr_put(h, THC_AGGR_IPV6, 16, &six);
	mnl_attr_put_u16(h, THC_AGGR_PORT, 4000);
	mnl_attr_put_u32(h, THC_AGGR_IFINDEX, 1);
	mnl_attr_nest_end(h, nest);
	ASSERT_EQ(nl_ask(&self->nl, h, NULL, NULL), 0);

	ASSERT_EQ(get_job(&self->nl, 65535, &job), 0);
	EXPECT_EQ(job.n, 1);
	EXPECT_EQ(job.id, 65535);
	EXPECT_EQ(job.keys, 0) TH_LOG("the administrator is shown the key");
	EXPECT_EQ(job.aggregators, 2);
	EXPECT_EQ(job.in[0], inet_addr("10.1.2.3"));
	EXPECT_EQ(job.port[0], THC_PORT_DEFAULT);
	EXPECT_EQ(job.ifindex[0], 0);
	EXPECT_EQ(memcmp(job.in6[1], &six, 16), 0);
	EXPECT_EQ(job.port[1], 4000);
	EXPECT_EQ(job.ifindex[1], 1);

	EXPECT_EQ(nl_new_job(&self->nl, 65535, AT, PORT, 0), -EEXIST);
	EXPECT_NE(strstr(self->nl.text, "already"), NULL) TH_LOG("\"%s\"", self->nl.text);
	EXPECT_EQ(nl_del_job(&self->nl, 65535), 0);
	EXPECT_EQ(nl_del_job(&self->nl, 65535), -ENOENT);
	EXPECT_NE(strstr(self->nl.text, "no such job"), NULL) TH_LOG("\"%s\"", self->nl.text);
	EXPECT_EQ(get_job(&self->nl, 65535, &job), -ENOENT);
	EXPECT_NE(strstr(self->nl.text, "no such job"), NULL) TH_LOG("\"%s\"", self->nl.text);
}

TEST_F(netlink, job_dump_takes_more_than_one_message)
{
	int i;

	ASSERT_EQ(dump_jobs(&self->nl, &job), 0);
	EXPECT_EQ(job.n, 0);
	for (i = 0; i < MOST; i++)
		ASSERT_EQ(nl_new_job(&self->nl, (uint16_t)i, AT, PORT, 0), 0);
	ASSERT_EQ(dump_jobs(&self->nl, &job), 0);
	EXPECT_FALSE(self->nl.interrupted);
	EXPECT_EQ(job.n, MOST);
	EXPECT_EQ(job.keys, 0);
	EXPECT_GT(job.bytes, NL_PART) TH_LOG("this showed nothing");
	for (i = 0; i < MOST; i++)
		EXPECT_EQ(job.seen[i], 1);
	for (i = 0; i < MOST; i += 2)
		ASSERT_EQ(nl_del_job(&self->nl, (uint16_t)i), 0);
	ASSERT_EQ(dump_jobs(&self->nl, &job), 0);
	EXPECT_EQ(job.n, MOST / 2);
	/* the rest goes with the namespace */
}

/* Anybody can be root of a network namespace, so the memory for a namespace's jobs has a bound. */
TEST_F(netlink, jobs_have_a_bound)
{
	struct nl inner;
	int i;

	for (i = 0; i < MOST; i++)
		ASSERT_EQ(nl_new_job(&self->nl, (uint16_t)i, AT, PORT, 0), 0);
	EXPECT_EQ(nl_new_job(&self->nl, MOST, AT, PORT, 0), -ENOSPC);
	EXPECT_NE(strstr(self->nl.text, "at most 256 jobs: delete one"), NULL)
	TH_LOG("\"%s\"", self->nl.text);
	EXPECT_EQ(get_job(&self->nl, MOST, &job), -ENOENT);
	/* at the bound, an existing job still gives EEXIST, a new one ENOSPC */
	EXPECT_EQ(nl_new_job(&self->nl, 5, AT, PORT, 0), -EEXIST);
	EXPECT_EQ(nl_del_job(&self->nl, 5), 0);
	EXPECT_EQ(nl_del_job(&self->nl, 5), -ENOENT);
	EXPECT_EQ(nl_new_job(&self->nl, MOST, AT, PORT, 0), 0);
	EXPECT_EQ(nl_new_job(&self->nl, 5, AT, PORT, 0), -ENOSPC);
	/* each namespace has a bound of its own */
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(nl_open(&inner), 0);
	EXPECT_EQ(nl_new_job(&inner, 5, AT, PORT, 0), 0);
	nl_close(&inner);
}

/* The list of jobs changes once during a dump, after its first message. */
struct changing {
	struct job	*job;
	struct nl	*other;
	uint16_t	add, del;	/* 0: no job */
	int		error;
};

static void take_job_and_change(const struct nlmsghdr *h, void *data)
{
	struct changing *c = data;

	if (!c->job->n && c->add)
		c->error = nl_new_job(c->other, c->add, AT, PORT, 0);
	if (!c->job->n && c->del)
		c->error = nl_del_job(c->other, c->del);
	parse_job(h, c->job);
}

/* A reader of a dump in parts learns that the list has changed between two parts: jobs behind a
 * deleted job move up, and the dump skips one.
 */
TEST_F(netlink, job_dump_tells_of_a_change_meanwhile)
{
	static const struct {
		uint16_t add, del;
		bool told;
	} changes[] = { { 0, 0, false }, { 0, 1, true }, { 1, 0, true }, { 0, MOST, true } };
	struct nl other;
	size_t i;
	int k;

	ASSERT_EQ(nl_open(&other), 0);
	for (k = 1; k <= MOST; k++)
		ASSERT_EQ(nl_new_job(&other, (uint16_t)k, AT, PORT, 0), 0);
	for (i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
		struct changing c = { &job, &other, changes[i].add, changes[i].del, 0 };

		memset(&job, 0, sizeof(job));
		ASSERT_EQ(nl_ask(&self->nl,
				 nl_begin(&self->nl, self->nl.family, THC_CMD_JOB_GET, NLM_F_DUMP),
				 take_job_and_change, &c),
			  0);
		ASSERT_EQ(c.error, 0);
		EXPECT_EQ(self->nl.interrupted, changes[i].told) TH_LOG("change %zu", i);
	}
	nl_close(&other);
}

/* Missing, surplus and wrongly sized attributes give an errno and a message. */
TEST_F(netlink, job_new_what_it_refuses)
{
	static const struct {
		const char *what;
		int error;
		bool job, key;
		int aggregators;
		const char *at;
		uint16_t port;
	} bad[] = {
		{ "no job", -EINVAL, false, true, 1, AT, PORT },
		{ "no key", -EINVAL, true, false, 1, AT, PORT },
		{ "no aggregator", -EINVAL, true, true, 0, AT, PORT },
		{ "too many aggregators", -E2BIG, true, true, THC_GENL_AGGREGATORS_MAX + 1, AT,
		  PORT },
		{ "no address", -EINVAL, true, true, 1, "", PORT },
		{ "a group", -EINVAL, true, true, 1, "224.0.0.1", PORT },
		{ "all", -EINVAL, true, true, 1, "255.255.255.255", PORT },
		{ "none", -EINVAL, true, true, 1, "::", PORT },
		{ "mapped", -EINVAL, true, true, 1, "::ffff:1.2.3.4", PORT },
	};
	size_t i;
	int k;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct nlmsghdr *h =
			nl_begin(&self->nl, self->nl.family, THC_CMD_JOB_NEW, NLM_F_ACK);

		if (bad[i].job)
			mnl_attr_put_u16(h, THC_ATTR_JOB, 1);
		if (bad[i].key)
			mnl_attr_put(h, THC_ATTR_KEY, sizeof(job_key), job_key);
		for (k = 0; k < bad[i].aggregators; k++)
			nl_put_aggregator(h, bad[i].at, bad[i].port);
		EXPECT_EQ(nl_ask(&self->nl, h, NULL, NULL), bad[i].error) TH_LOG("%s", bad[i].what);
		EXPECT_NE(self->nl.text[0], 0) TH_LOG("%s: no text", bad[i].what);
	}
	EXPECT_EQ(get_job(&self->nl, 1, &job), -ENOENT) TH_LOG("something was made nevertheless");
}

/* Makes a job that is right but for the interface. */
static int new_on_interface(struct nl *nl, uint32_t ifindex)
{
	struct nlmsghdr *h = nl_begin(nl, nl->family, THC_CMD_JOB_NEW, NLM_F_ACK);
	struct nlattr *nest;

	mnl_attr_put_u16(h, THC_ATTR_JOB, 1);
	mnl_attr_put(h, THC_ATTR_KEY, sizeof(job_key), job_key);
	nest = mnl_attr_nest_start(h, THC_ATTR_AGGREGATOR);
	mnl_attr_put_u32(h, THC_AGGR_IPV4, inet_addr(AT));
	mnl_attr_put_u32(h, THC_AGGR_IFINDEX, ifindex);
	mnl_attr_nest_end(h, nest);
	return nl_ask(nl, h, NULL, NULL);
}

/* Interface numbers are checked as in connect(): numbers that no interface can have. */
TEST_F(netlink, job_new_interfaces)
{
	static const uint32_t bad[] = { 0, 0x80000000, UINT32_MAX };
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		EXPECT_EQ(new_on_interface(&self->nl, bad[i]), -ERANGE) TH_LOG("%#x", bad[i]);
		EXPECT_NE(self->nl.text[0], 0);
	}
	EXPECT_EQ(get_job(&self->nl, 1, &job), -ENOENT);
	EXPECT_EQ(new_on_interface(&self->nl, INT32_MAX), 0);
	ASSERT_EQ(get_job(&self->nl, 1, &job), 0);
	EXPECT_EQ(job.ifindex[0], INT32_MAX);
}

TEST_F(netlink, job_new_ranges)
{
	struct nlmsghdr *h = nl_begin_job(&self->nl, 1, AT, PORT);

	nl_put_ids(h, THC_ATTR_USERS, 0, 4294967294);
	nl_put_ids(h, THC_ATTR_GROUPS, 100, 100);
	ASSERT_EQ(nl_ask(&self->nl, h, NULL, NULL), 0);
	ASSERT_EQ(get_job(&self->nl, 1, &job), 0);
	EXPECT_TRUE(job.has_users);
	EXPECT_EQ(job.users[0], 0);
	EXPECT_EQ(job.users[1], 4294967294);
	EXPECT_TRUE(job.has_groups);
	EXPECT_EQ(job.groups[0], 100);
	EXPECT_EQ(job.groups[1], 100);
	ASSERT_EQ(nl_del_job(&self->nl, 1), 0);

	/* a dump shows no attribute that was not given */
	ASSERT_EQ(nl_new_job(&self->nl, 1, AT, PORT, 0), 0);
	ASSERT_EQ(dump_jobs(&self->nl, &job), 0);
	EXPECT_EQ(job.n, 1);
	EXPECT_FALSE(job.has_users);
	EXPECT_FALSE(job.has_groups);
}

/* @number: first, last; it may have fewer or more numbers than there are attributes. */
static int new_with_ids(struct nl *nl, uint16_t type, const uint32_t *number, int n)
{
	struct nlmsghdr *h = nl_begin_job(nl, 1, AT, PORT);
	struct nlattr *nest = mnl_attr_nest_start(h, type);
	int i;

	for (i = 0; i < n; i++)
		mnl_attr_put_u32(h, THC_IDS_FIRST + (uint16_t)i, number[i]);
	mnl_attr_nest_end(h, nest);
	return nl_ask(nl, h, NULL, NULL);
}

TEST_F(netlink, job_new_bad_ranges)
{
	static const struct {
		uint32_t number[3];
		int n, error;
	} bad[] = {
		{ { 0 }, 0, -EINVAL },
		{ { 1000 }, 1, -EINVAL },
		{ { 1000, 999 }, 2, -EINVAL },
		{ { 0, UINT32_MAX }, 2, -ERANGE },
		{ { UINT32_MAX, UINT32_MAX }, 2, -ERANGE },
		{ { 1, 2, 3 }, 3, -EINVAL },
	};
	size_t i, k;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		for (k = 0; k < 2; k++) {
			EXPECT_EQ(new_with_ids(&self->nl, k ? THC_ATTR_GROUPS : THC_ATTR_USERS,
					       bad[i].number, bad[i].n),
				  bad[i].error)
			TH_LOG("case %zu", i);
			EXPECT_NE(self->nl.text[0], 0) TH_LOG("case %zu: no text", i);
		}
	}
	EXPECT_EQ(get_job(&self->nl, 1, &job), -ENOENT);
}

/* Adds one wrong attribute to right ones. */
static int new_with(struct nl *nl, uint16_t type, size_t bytes, uint16_t nested)
{
	struct nlmsghdr *h = nl_begin(nl, nl->family, THC_CMD_JOB_NEW, NLM_F_ACK);
	static const char zero[64];
	struct nlattr *nest;

	if (type != THC_ATTR_JOB)
		mnl_attr_put_u16(h, THC_ATTR_JOB, 1);
	if (type != THC_ATTR_KEY)
		mnl_attr_put(h, THC_ATTR_KEY, sizeof(job_key), job_key);
	if (!nested) {
		nl_put_aggregator(h, AT, PORT);
		mnl_attr_put(h, type, bytes, zero);
		return nl_ask(nl, h, NULL, NULL);
	}
	nest = mnl_attr_nest_start(h, THC_ATTR_AGGREGATOR);
	/* an IPv6 address of the right length is wrong only beside an IPv4 address */
	if (nested != THC_AGGR_IPV4 && (nested != THC_AGGR_IPV6 || bytes == 16))
		mnl_attr_put_u32(h, THC_AGGR_IPV4, inet_addr(AT));
	mnl_attr_put(h, nested, bytes, zero);
	mnl_attr_nest_end(h, nest);
	return nl_ask(nl, h, NULL, NULL);
}

TEST_F(netlink, attributes_of_wrong_size_or_unknown)
{
	static const struct {
		uint16_t type;
		size_t bytes;
		uint16_t nested;
		int error;
	} bad[] = {
		{ THC_ATTR_JOB, 1, 0, -EINVAL },
		{ THC_ATTR_JOB, 4, 0, -EINVAL },
		{ THC_ATTR_KEY, 0, 0, -ERANGE },
		{ THC_ATTR_KEY, THC_KEY_BYTES - 1, 0, -ERANGE },
		{ THC_ATTR_KEY, THC_KEY_BYTES + 1, 0, -ERANGE },
		{ THC_ATTR_KEY, 2 * THC_KEY_BYTES, 0, -ERANGE },
		{ THC_ATTR_AGGREGATOR, 4, 0, -EINVAL },
		{ THC_ATTR_SOCKET, 4, 0, -EINVAL },
		{ THC_ATTR_USERS, 4, 0, -EINVAL },
		{ THC_ATTR_GROUPS, 8, 0, -EINVAL },
		{ THC_ATTR_MAX + 1, 4, 0, -EINVAL },
		{ 1000, 4, 0, -EINVAL },
		{ THC_ATTR_AGGREGATOR, 3, THC_AGGR_IPV4, -ERANGE },
		{ THC_ATTR_AGGREGATOR, 16, THC_AGGR_IPV4, -ERANGE },
		{ THC_ATTR_AGGREGATOR, 4, THC_AGGR_IPV6, -ERANGE },
		{ THC_ATTR_AGGREGATOR, 15, THC_AGGR_IPV6, -ERANGE },
		{ THC_ATTR_AGGREGATOR, 20, THC_AGGR_IPV6, -ERANGE },
		{ THC_ATTR_AGGREGATOR, 16, THC_AGGR_IPV6, -EINVAL },	/* both IPv4 and IPv6 */
		{ THC_ATTR_AGGREGATOR, 2, THC_AGGR_PORT, -ERANGE },	/* port 0 */
		{ THC_ATTR_AGGREGATOR, 4, THC_AGGR_PORT, -EINVAL },
		{ THC_ATTR_AGGREGATOR, 4, THC_AGGR_IFINDEX, -ERANGE },
		{ THC_ATTR_AGGREGATOR, 2, THC_AGGR_IFINDEX, -EINVAL },
		{ THC_ATTR_AGGREGATOR, 4, THC_AGGR_MAX + 1, -EINVAL },
	};
	size_t i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		EXPECT_EQ(new_with(&self->nl, bad[i].type, bad[i].bytes, bad[i].nested),
			  bad[i].error)
		TH_LOG("case %zu", i);
		EXPECT_NE(self->nl.text[0], 0) TH_LOG("case %zu: no text", i);
	}
	EXPECT_EQ(get_job(&self->nl, 1, &job), -ENOENT);
}

TEST_F(netlink, commands_without_what_they_need)
{
	static const uint8_t commands[] = { THC_CMD_JOB_DEL, THC_CMD_JOB_GET };
	size_t i;

	for (i = 0; i < 2; i++) {
		EXPECT_EQ(nl_ask(&self->nl,
				 nl_begin(&self->nl, self->nl.family, commands[i], NLM_F_ACK), NULL,
				 NULL),
			  -EINVAL);
		EXPECT_NE(self->nl.text[0], 0);
	}
	/* a job number of the wrong size */
	ASSERT_EQ(nl_new_job(&self->nl, 0, AT, PORT, 0), 0);
	for (i = 0; i < 4; i++) {
		struct nlmsghdr *h =
			nl_begin(&self->nl, self->nl.family, commands[i / 2], NLM_F_ACK);

		mnl_attr_put(h, THC_ATTR_JOB, i % 2 ? 4 : 1, "\0\0\0");
		EXPECT_EQ(nl_ask(&self->nl, h, NULL, NULL), -EINVAL) TH_LOG("case %zu", i);
		EXPECT_NE(self->nl.text[0], 0);
	}
	EXPECT_EQ(get_job(&self->nl, 0, &job), 0) TH_LOG("it was deleted nevertheless");
	/* unknown commands, dumps of commands without one, and commands that exist only as dumps */
	EXPECT_EQ(nl_ask(&self->nl, nl_begin(&self->nl, self->nl.family, 77, NLM_F_ACK), NULL,
			 NULL),
		  -EOPNOTSUPP);
	EXPECT_EQ(nl_ask(&self->nl,
			 nl_begin(&self->nl, self->nl.family, THC_CMD_SOCKET_GET, NLM_F_ACK), NULL,
			 NULL),
		  -EOPNOTSUPP);
	EXPECT_EQ(nl_ask(&self->nl,
			 nl_begin(&self->nl, self->nl.family, THC_CMD_STATS_GET, NLM_F_DUMP), NULL,
			 NULL),
		  -EOPNOTSUPP);
}

/* An attribute that the command has no use for is no request that we understand. */
TEST_F(netlink, commands_with_what_others_take)
{
	static const struct {
		uint8_t command;
		uint16_t flags, type;
	} bad[] = {
		{ THC_CMD_JOB_NEW, NLM_F_ACK, THC_ATTR_SOCKET },
		{ THC_CMD_JOB_NEW, NLM_F_ACK, THC_ATTR_DROP },
		{ THC_CMD_JOB_NEW, NLM_F_ACK, THC_ATTR_PAD },
		{ THC_CMD_JOB_DEL, NLM_F_ACK, THC_ATTR_KEY },
		{ THC_CMD_JOB_DEL, NLM_F_ACK, THC_ATTR_AGGREGATOR },
		{ THC_CMD_JOB_GET, NLM_F_ACK, THC_ATTR_KEY },
		{ THC_CMD_JOB_GET, NLM_F_ACK, THC_ATTR_AGGREGATOR },
		{ THC_CMD_JOB_GET, NLM_F_DUMP, THC_ATTR_JOB },
		{ THC_CMD_JOB_GET, NLM_F_DUMP, THC_ATTR_KEY },
		{ THC_CMD_SOCKET_GET, NLM_F_DUMP, THC_ATTR_JOB },
		{ THC_CMD_SOCKET_GET, NLM_F_DUMP, THC_ATTR_SOCKET },
		{ THC_CMD_STATS_GET, NLM_F_ACK, THC_ATTR_JOB },
		{ THC_CMD_STATS_GET, NLM_F_ACK, THC_ATTR_DROP },
	};
	size_t i;

	ASSERT_EQ(nl_new_job(&self->nl, 1, AT, PORT, 0), 0);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct nlmsghdr *h =
			nl_begin(&self->nl, self->nl.family, bad[i].command, bad[i].flags);

		if (bad[i].type == THC_ATTR_JOB)
			mnl_attr_put_u16(h, THC_ATTR_JOB, 1);
		else if (!(bad[i].flags & NLM_F_DUMP) && bad[i].command != THC_CMD_STATS_GET)
			mnl_attr_put_u16(h, THC_ATTR_JOB,
					 bad[i].command == THC_CMD_JOB_NEW ? 2 : 1);
		if (bad[i].command == THC_CMD_JOB_NEW) {
			mnl_attr_put(h, THC_ATTR_KEY, sizeof(job_key), job_key);
			nl_put_aggregator(h, AT, PORT);
		}
		if (bad[i].type == THC_ATTR_AGGREGATOR)
			nl_put_aggregator(h, AT, PORT);
		else if (bad[i].type == THC_ATTR_KEY)
			mnl_attr_put(h, THC_ATTR_KEY, sizeof(job_key), job_key);
		else if (bad[i].type != THC_ATTR_JOB)
			mnl_attr_put(h, bad[i].type, 0, NULL);
		EXPECT_EQ(nl_ask(&self->nl, h, NULL, NULL), -EINVAL) TH_LOG("case %zu", i);
		/* Linux 6.1 cannot return a message before a dump has begun */
		if (!(bad[i].flags & NLM_F_DUMP) || bad[i].command != THC_CMD_JOB_GET) {
			EXPECT_NE(self->nl.text[0], 0) TH_LOG("case %zu: no text", i);
		}
	}
	EXPECT_EQ(get_job(&self->nl, 1, &job), 0) TH_LOG("it was deleted nevertheless");
	EXPECT_EQ(get_job(&self->nl, 2, &job), -ENOENT) TH_LOG("it was made nevertheless");
}

/* --- without CAP_NET_ADMIN ------------------------------------------------ */

/* Gives up all effective capabilities; seteuid(0) restores root. */
static int become_nobody(void)
{
	return seteuid(65534) ? -errno : 0;
}

TEST_F(netlink, who_is_not_the_administrator)
{
	struct nlmsghdr *h = nl_begin_job(&self->nl, 1, AT, PORT);
	struct sockaddr_thc a = place(NULL, 0, 1, 0);

	ASSERT_EQ(start_daemon(&self->daemon, AT, PORT, "1,ranks=1," JOB_KEY, NULL), 0);
	nl_put_ids(h, THC_ATTR_USERS, 65534, 65534);
	ASSERT_EQ(nl_ask(&self->nl, h, NULL, NULL), 0);
	nl_close(&self->nl);
	ASSERT_EQ(become_nobody(), 0);
	ASSERT_EQ(nl_open(&self->nl), 0);
	EXPECT_EQ(nl_new_job(&self->nl, 2, AT, PORT, 0), -EPERM);
	EXPECT_EQ(nl_del_job(&self->nl, 1), -EPERM);
	ASSERT_EQ(get_job(&self->nl, 1, &job), 0);
	EXPECT_EQ(job.aggregators, 1);
	EXPECT_EQ(job.keys, 0);
	ASSERT_EQ(dump_jobs(&self->nl, &job), 0);
	EXPECT_EQ(job.n, 1);
	EXPECT_EQ(job.keys, 0);
	/* the process may join a described job without knowing the key */
	self->fd[0] = thc_open_keyless(0);
	ASSERT_EQ(connect(self->fd[0], (void *)&a, sizeof(a)), 0);
	EXPECT_EQ(all_reduce(self->fd, 1, &(struct thc_send){ .op = THC_OP_ADD, .width = 8 }, 3),
		  0);
	ASSERT_EQ(seteuid(0), 0);
}

/* A job belongs to one namespace. */
TEST_F(netlink, namespaces_do_not_see_each_other)
{
	struct sockaddr_thc a = place(NULL, 0, 1, 0);
	struct nl inner;

	ASSERT_EQ(nl_new_job(&self->nl, 1, AT, PORT, 0), 0);
	ASSERT_EQ(enter_netns(), 0);
	ASSERT_EQ(nl_open(&inner), 0);
	EXPECT_EQ(get_job(&inner, 1, &job), -ENOENT);
	EXPECT_EQ(nl_new_job(&inner, 1, AT, PORT + 1, 0), 0);
	ASSERT_EQ(get_job(&self->nl, 1, &job), 0);
	EXPECT_EQ(job.port[0], PORT);
	EXPECT_EQ(nl_del_job(&inner, 1), 0);
	self->fd[0] = thc_open_keyless(0);
	EXPECT_EQ(connect(self->fd[0], (void *)&a, sizeof(a)), -1);
	EXPECT_EQ(errno, ENOENT);
	EXPECT_EQ(get_job(&self->nl, 1, &job), 0);
	nl_close(&inner);
}

/* --- sockets -------------------------------------------------------------- */

struct socket_seen {
	int			n;
	uint64_t		inode;
	uint32_t		uid, epoch, shards;
	uint16_t		job;
	uint8_t			rank;
	char			state[16];
	struct thc_socket_stats	stats;
	uint64_t		wanted;		/* inode */
	struct socket_seen	*found;
};

static int socket_attr(const struct nlattr *a, void *data)
{
	struct socket_seen *s = data;

	switch (mnl_attr_get_type(a)) {
	case THC_SOCK_INODE:
		s->inode = mnl_attr_get_u64(a);
		break;
	case THC_SOCK_UID:
		s->uid = mnl_attr_get_u32(a);
		break;
	case THC_SOCK_JOB:
		s->job = mnl_attr_get_u16(a);
		break;
	case THC_SOCK_RANK:
		s->rank = mnl_attr_get_u8(a);
		break;
	case THC_SOCK_STATE:
		snprintf(s->state, sizeof(s->state), "%s", mnl_attr_get_str(a));
		break;
	case THC_SOCK_EPOCH:
		s->epoch = mnl_attr_get_u32(a);
		break;
	case THC_SOCK_SHARDS:
		s->shards = mnl_attr_get_u32(a);
		break;
	case THC_SOCK_STATS:
		if (mnl_attr_get_payload_len(a) == sizeof(s->stats))
			memcpy(&s->stats, mnl_attr_get_payload(a), sizeof(s->stats));
		break;
	}
	return MNL_CB_OK;
}

static int socket_nest(const struct nlattr *a, void *data)
{
	if (mnl_attr_get_type(a) == THC_ATTR_SOCKET)
		mnl_attr_parse_nested(a, socket_attr, data);
	return MNL_CB_OK;
}

static void take_socket(const struct nlmsghdr *h, void *data)
{
	struct socket_seen *s = data;

	s->n++;
	mnl_attr_parse(h, sizeof(struct genlmsghdr), socket_nest, s);
	if (s->found && s->inode == s->wanted)
		*s->found = *s;
}

static int dump_sockets(struct nl *nl, struct socket_seen *s)
{
	return nl_ask(nl, nl_begin(nl, nl->family, THC_CMD_SOCKET_GET, NLM_F_DUMP), take_socket, s);
}

static uint64_t inode_of(int fd)
{
	struct stat st;

	fstat(fd, &st);
	return st.st_ino;
}

TEST_F(netlink, socket_dump)
{
	struct socket_seen mine = { 0 }, all = { .found = &mine };
	int i;

	for (i = 2; i < 60; i++)
		self->fd[i] = thc_open(0);
	all.wanted = inode_of(self->fd[30]);
	ASSERT_EQ(dump_sockets(&self->nl, &all), 0);
	EXPECT_EQ(all.n, 58);
	EXPECT_STREQ(mine.state, "idle");

	ASSERT_EQ(start_daemon(&self->daemon, AT, PORT, "3,ranks=2," JOB_KEY, NULL), 0);
	ASSERT_EQ(join_all(self->fd, 2, AT, PORT, 3), 0);
	ASSERT_EQ(all_reduce(self->fd, 2, &(struct thc_send){ .op = THC_OP_OR, .width = 32 }, 7),
		  0);
	memset(&all, 0, sizeof(all));
	all.wanted = inode_of(self->fd[1]);
	all.found = &mine;
	ASSERT_EQ(dump_sockets(&self->nl, &all), 0);
	EXPECT_EQ(all.n, 60);
	EXPECT_EQ(mine.inode, all.wanted);
	EXPECT_STREQ(mine.state, "ready");
	EXPECT_EQ(mine.job, 3);
	EXPECT_EQ(mine.rank, 1);
	EXPECT_EQ(mine.uid, 0);
	EXPECT_EQ(mine.shards, 1);
	EXPECT_EQ(mine.epoch, epoch_of(self->fd[1]));
	EXPECT_EQ(mine.stats.messages, 1);
	EXPECT_EQ(mine.stats.chunks, 7);
}

struct closing {
	struct socket_seen	seen;
	int			*fd;
};

static void take_socket_and_close(const struct nlmsghdr *h, void *data)
{
	struct closing *c = data;

	if (!c->seen.n)
		close_all(c->fd, 1);
	take_socket(h, &c->seen);
}

TEST_F(netlink, socket_dump_tells_of_a_change_meanwhile)
{
	struct closing c = { .fd = &self->fd[0] };
	int fd[200], i;

	self->fd[0] = thc_open(0);
	for (i = 0; i < 200; i++)
		fd[i] = thc_open(0);
	ASSERT_EQ(dump_sockets(&self->nl, &c.seen), 0);
	EXPECT_EQ(c.seen.n, 201);
	EXPECT_FALSE(self->nl.interrupted);
	c.seen.n = 0;
	ASSERT_EQ(nl_ask(&self->nl,
			 nl_begin(&self->nl, self->nl.family, THC_CMD_SOCKET_GET, NLM_F_DUMP),
			 take_socket_and_close, &c),
		  0);
	EXPECT_TRUE(self->nl.interrupted) TH_LOG("%d of 201 seen", c.seen.n);
	close_all(fd, 200);
}

/* --- counters ------------------------------------------------------------- */

TEST_F(netlink, stats_name_every_reason)
{
	static const char *const some[] = { "truncated", "version",  "op",	  "length",
					    "tag",	 "job",	     "key",	  "address",
					    "slot",	 "mismatch", "unexpected" };
	struct reasons r;
	size_t i;

	ASSERT_EQ(nl_reasons(&self->nl, &r), 0);
	/* all but "none" */
	EXPECT_EQ(r.n, THC_WORKER_DROP_REASONS - 1);
	EXPECT_EQ(reason_sum(&r), 0);
	for (i = 0; i < sizeof(some) / sizeof(some[0]); i++)
		EXPECT_EQ(reason_count(&r, some[i]), 0) TH_LOG("reason %zu", i);
}

/* --- several aggregators -------------------------------------------------- */

/* Aggregator q mod 2 adds chunk q, and every lane is in its place, for any number of chunks and of
 * earlier chunks.
 */
TEST_F_TIMEOUT(netlink, two_aggregators_share_a_host_job, 60)
{
	static const size_t sizes[] = { 1, 2, 3, 7, 64, 129, 1, 200 };
	static const char job[] = "1,ranks=3," JOB_KEY ",rate=fixed,reply=fanout,seed=9,slots=32";
	struct thc_send or = describe(THC_OP_OR, 32, 99, 99);
	struct thc_socket_stats s;
	struct known_job known;
	size_t i, chunks = 0;

	ASSERT_EQ(start_shard(&self->daemon, job, 0, 2), 0);
	ASSERT_EQ(start_shard(&self->other, job, 1, 2), 0);
	ASSERT_EQ(nl_new_job(&self->nl, 1, AT, shard_port(0), shard_port(1)), 0);
	ASSERT_EQ(join_all(self->fd, 3, NULL, 0, 1), 0);
	ASSERT_EQ(know_job(self->fd[0], &known), 0);
	EXPECT_EQ(known.shards, 2);
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct thc_send add = describe(THC_OP_ADD, 32, (uint32_t)i, 10 + i);
		struct thc_send lut = describe(THC_OP_LUT_ADD, 4, (uint32_t)i, 30 + i);
		struct thc_send max = describe(THC_OP_MAX, 32, (uint32_t)i, 50 + i);

		EXPECT_EQ(all_reduce(self->fd, 3, &add, sizes[i]), 0);
		EXPECT_EQ(all_reduce(self->fd, 3, &lut, sizes[i]), 0);
		EXPECT_EQ(all_reduce(self->fd, 3, &max, sizes[i]), 0);
		chunks += 3 * sizes[i];
	}
	s = stats_of(self->fd[0]);
	EXPECT_EQ(s.chunks, chunks);
	EXPECT_EQ(s.memory, 0);
	/* the second aggregator's chunks do not come without it; the first one's come within
	 * seconds
	 */
	stop_daemon(&self->other, SIGKILL);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_TIMEOUT, 8000), 0);
	EXPECT_LT(all_reduce(self->fd, 3, & or, 9), 0);
	EXPECT_EQ(failure_of(self->fd[0]).shard, 1);
}

/* connect() fails if one of the aggregators in the administrator's list is not the expected one. */
static void does_not_join(struct __test_metadata *_metadata, int fd, int error, uint16_t reason)
{
	struct sockaddr_thc a = place(NULL, 0, 1, 0);

	EXPECT_EQ(connect_errno(fd, &a, sizeof(a)), error);
	EXPECT_EQ(failure_of(fd).reason, reason);
}

TEST_F(netlink, aggregators_of_different_jobs_do_not_agree)
{
	static const char job[] = "1,ranks=1," JOB_KEY ",rate=fixed,reply=fanout,seed=9";
	static const char other[] = "1,ranks=1," JOB_KEY ",rate=fixed,reply=fanout,seed=8";

	ASSERT_EQ(start_shard(&self->daemon, job, 0, 2), 0);
	ASSERT_EQ(start_shard(&self->other, other, 1, 2), 0);
	ASSERT_EQ(nl_new_job(&self->nl, 1, AT, shard_port(0), shard_port(1)), 0);
	self->fd[0] = thc_open_keyless(0);
	does_not_join(_metadata, self->fd[0], EPROTO, THC_FAILED_SHARDS);
}

TEST_F(netlink, aggregators_of_another_order_or_number)
{
	static const char job[] = "1,ranks=1," JOB_KEY ",rate=fixed,reply=fanout";

	ASSERT_EQ(start_shard(&self->daemon, job, 0, 2), 0);
	ASSERT_EQ(start_shard(&self->other, job, 1, 2), 0);
	self->fd[0] = thc_open_keyless(0);
	/* an aggregator does not answer a JOIN that is sealed for another number */
	ASSERT_EQ(nl_new_job(&self->nl, 1, AT, shard_port(1), shard_port(0)), 0);
	ASSERT_EQ(set_u32(self->fd[0], THC_OPT_JOIN_TIMEOUT, 1500), 0);
	does_not_join(_metadata, self->fd[0], EHOSTUNREACH, THC_FAILED_SILENT);
	ASSERT_EQ(nl_del_job(&self->nl, 1), 0);
	/* for a described job, WELCOME's list adds no aggregators */
	ASSERT_EQ(nl_new_job(&self->nl, 1, AT, shard_port(0), 0), 0);
	does_not_join(_metadata, self->fd[0], EPROTO, THC_FAILED_SHARDS);
}

TEST_F(netlink, job_of_as_many_aggregators_as_there_may_be)
{
	struct nlmsghdr *h = nl_begin(&self->nl, self->nl.family, THC_CMD_JOB_NEW, NLM_F_ACK);
	struct in6_addr six;
	int i;

	inet_pton(AF_INET6, "fd00::1", &six);
	mnl_attr_put_u16(h, THC_ATTR_JOB, 1);
	mnl_attr_put(h, THC_ATTR_KEY, sizeof(job_key), job_key);
	for (i = 0; i < THC_GENL_AGGREGATORS_MAX; i++) {
		struct nlattr *nest = mnl_attr_nest_start(h, THC_ATTR_AGGREGATOR);

		six.s6_addr[15] = (uint8_t)i;
		mnl_attr_put(h, THC_AGGR_IPV6, 16, &six);
		mnl_attr_put_u32(h, THC_AGGR_IFINDEX, 1 + (uint32_t)i);
		mnl_attr_nest_end(h, nest);
	}
	ASSERT_EQ(nl_ask(&self->nl, h, NULL, NULL), 0);
	for (i = 0; i < 2; i++) {
		ASSERT_EQ(i ? dump_jobs(&self->nl, &job) : get_job(&self->nl, 1, &job), 0);
		EXPECT_EQ(job.n, 1);
		EXPECT_EQ(job.aggregators, THC_GENL_AGGREGATORS_MAX);
		EXPECT_EQ(memcmp(job.in6[THC_GENL_AGGREGATORS_MAX - 1], &six, 16), 0);
		EXPECT_EQ(job.ifindex[THC_GENL_AGGREGATORS_MAX - 1], THC_GENL_AGGREGATORS_MAX);
	}
}

TEST_HARNESS_MAIN
