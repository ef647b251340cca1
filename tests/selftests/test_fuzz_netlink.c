// SPDX-License-Identifier: GPL-2.0
/*
 * Fuzzes the netlink family of thc.ko. An input is a sequence of messages: commands with
 * attributes that fit, that are missing, twice, too long, of other types, nested or cut, and
 * bytes without a meaning. A model has the jobs that the namespace has been told of:
 *	- a job is there after JOB_NEW has said 0, gone after JOB_DEL has, and neither comes
 *	  about by any other message;
 *	- JOB_NEW takes only what has number, key and aggregators with one address each;
 *	- JOB_GET, alone and as a dump, shows exactly the jobs of the model, and no key;
 *	- each request that asks for it is acknowledged once.
 */
#include "netlink.h"
#include "seeded.h"

#define JOBS		8	/* requests mostly have numbers below this */
#define MESSAGES_MAX	12	/* messages of an input */
#define INPUTS		400

static struct nl nl;
static bool told[JOBS];		/* jobs of the model */
static uint8_t aggregators[JOBS];

/* What the current request consists of, as far as it has sound parts. */
static struct request {
	uint8_t		cmd;
	bool		sound;		/* no part was spoilt */
	bool		dump;
	unsigned int	jobs, keys;	/* attributes */
	unsigned int	good;		/* aggregators */
	unsigned int	bad;		/* aggregators and keys */
	uint16_t	job;
} asked;

/* --- attributes -------------------------------------------------------------------- */

static const char *const hosts[] = { "10.0.0.1", "127.0.0.1", "fd77::1", "fe80::1" };
static const char *const no_hosts[] = { "0.0.0.0", "239.1.2.3", "255.255.255.255",
					"::",	   "ff02::1",	"::ffff:10.0.0.1" };

static void put_address(struct nlmsghdr *h, const char *text)
{
	char raw[16];

	if (inet_pton(AF_INET, text, raw) == 1)
		mnl_attr_put(h, THC_AGGR_IPV4, 4, raw);
	else if (inet_pton(AF_INET6, text, raw) == 1)
		mnl_attr_put(h, THC_AGGR_IPV6, 16, raw);
}

static void put_aggregator(struct nlmsghdr *h, struct bytes *b)
{
	uint8_t what = take(b), which = take(b);
	struct nlattr *nest = mnl_attr_nest_start(h, THC_ATTR_AGGREGATOR);
	bool good = true;

	if (what & 3)
		put_address(h, hosts[which % 4]);
	if ((what & 0xf) == 3) {
		/* a second address: of the other family, or of the same one, where the last one
		 * counts
		 */
		put_address(h, hosts[which >> 4 & 3]);
		good = which % 4 / 2 == (which >> 4 & 3) / 2;
	}
	if (!(what & 3)) {
		put_address(h, no_hosts[which % 6]);
		good = false;
	}
	if (what & 0x10) {
		uint16_t port = (uint16_t)take_bytes(b, 2);

		mnl_attr_put_u16(h, THC_AGGR_PORT, port);
		good = good && port;
	}
	if (what & 0x20) {
		uint32_t ifindex = (uint32_t)take_bytes(b, 4);

		mnl_attr_put_u32(h, THC_AGGR_IFINDEX, ifindex);
		good = good && ifindex && ifindex <= INT32_MAX;
	}
	mnl_attr_nest_end(h, nest);
	asked.good += good;
	asked.bad += !good;
}

static void put_aggregators(struct nlmsghdr *h, unsigned int n)
{
	asked.good += n;
	while (n--) {
		struct nlattr *nest = mnl_attr_nest_start(h, THC_ATTR_AGGREGATOR);

		put_address(h, hosts[n % 4]);
		mnl_attr_nest_end(h, nest);
	}
}

/* Adds a key, mostly of the right length. */
static void put_key(struct nlmsghdr *h, struct bytes *b, uint8_t what)
{
	uint8_t length = what < 28 ? THC_KEY_BYTES : take(b) % 64, key[64] = { 0 };

	memcpy(key, job_key, sizeof(job_key));
	key[0] ^= what;
	mnl_attr_put(h, THC_ATTR_KEY, length, key);
	asked.keys++;
	asked.bad += length != THC_KEY_BYTES;
}

/* An attribute of any type and length. */
static void put_wild(struct nlmsghdr *h, struct bytes *b)
{
	uint8_t type = take(b), length = take(b) % 40, raw[40];
	unsigned int i;

	for (i = 0; i < length; i++)
		raw[i] = take(b);
	mnl_attr_put(h, (uint16_t)(type & 0x80 ? take_bytes(b, 2) : type % 12), length, raw);
	asked.sound = false;
}

static void put_attributes(struct nlmsghdr *h, struct bytes *b)
{
	uint8_t n = take(b) % 12, what;

	while (n-- && h->nlmsg_len < 3000) {
		what = take(b);
		switch (what & 7) {
		case 0:
		case 1:
			asked.job = what >> 3 < 28 ? what >> 3 & (JOBS - 1) :
						     (uint16_t)take_bytes(b, 2);
			mnl_attr_put_u16(h, THC_ATTR_JOB, asked.job);
			asked.jobs++;
			break;
		case 2:
		case 3:
			put_key(h, b, what >> 3);
			break;
		case 7:
			put_wild(h, b);
			break;
		default:
			put_aggregator(h, b);
			break;
		}
	}
}

/* Adds attributes that the model can follow, for inputs that would seldom hit on them. */
static void put_right(struct nlmsghdr *h, struct bytes *b)
{
	uint8_t what = take(b);

	asked.job = what & (JOBS - 1);
	asked.jobs = 1;
	mnl_attr_put_u16(h, THC_ATTR_JOB, asked.job);
	if (asked.cmd != THC_CMD_JOB_NEW)
		return;
	mnl_attr_put(h, THC_ATTR_KEY, sizeof(job_key), job_key);
	asked.keys = 1;
	/* about the largest number of aggregators */
	if (what >> 4 == 15)
		put_aggregators(h, THC_GENL_AGGREGATORS_MAX - 2 + take(b) % 5);
	else
		for (what >>= 4; what; what--)
			put_aggregator(h, b);
}

/* --- messages ----------------------------------------------------------------------- */

/* The header's length or some bytes are changed. */
static void spoil(struct nlmsghdr *h, struct bytes *b)
{
	uint8_t n = take(b) % 6, *raw = (uint8_t *)h;
	uint32_t length = h->nlmsg_len;

	while (n--) {
		uint32_t at = (uint32_t)sizeof(*h) + take(b);

		if (at < length)
			raw[at] ^= take(b);
	}
	if (take(b) & 1)
		h->nlmsg_len = length - take(b) % (length - (uint32_t)sizeof(*h) + 1);
	asked.sound = false;
}

static bool may_be_made(void)
{
	return !asked.sound || (asked.jobs && asked.keys && asked.good && !asked.bad &&
				asked.good <= THC_GENL_AGGREGATORS_MAX);
}

struct shown {
	unsigned int	n;
	unsigned int	of_model;
	uint16_t	job;
	uint16_t	strange[MESSAGES_MAX];	/* numbers that the model does not have */
	uint8_t		aggregators;
	bool		wrong;
};

static int shown_attr(const struct nlattr *a, void *data)
{
	struct shown *s = data;

	if (mnl_attr_get_type(a) == THC_ATTR_JOB)
		s->job = mnl_attr_get_u16(a);
	s->aggregators += mnl_attr_get_type(a) == THC_ATTR_AGGREGATOR;
	return MNL_CB_OK;
}

static void take_shown(const struct nlmsghdr *h, void *data)
{
	struct shown *s = data;

	s->n++;
	/* without its first byte, which fuzzing may change */
	s->wrong |= memmem(h, h->nlmsg_len, job_key + 1, sizeof(job_key) - 1) != NULL;
	s->aggregators = 0;
	mnl_attr_parse(h, sizeof(struct genlmsghdr), shown_attr, s);
	if (s->job >= JOBS) {
		s->strange[(s->n - s->of_model - 1) % MESSAGES_MAX] = s->job;
		return;
	}
	s->of_model++;
	s->wrong |= !told[s->job] || (aggregators[s->job] && aggregators[s->job] != s->aggregators);
}

/* Compares a dump of all jobs with the model. */
static void check_jobs(void)
{
	struct shown s = { 0 };
	unsigned int i, n = 0;
	int error =
		nl_ask(&nl, nl_begin(&nl, nl.family, THC_CMD_JOB_GET, NLM_F_DUMP), take_shown, &s);

	for (i = 0; i < JOBS; i++)
		n += told[i];
	require(!error && !s.wrong && s.of_model == n);
	/* at most one such job per message; deleted, so that the next input finds none */
	require(s.n - s.of_model <= MESSAGES_MAX);
	for (i = 0; i < s.n - s.of_model; i++)
		require(!nl_del_job(&nl, s.strange[i]));
}

/* Updates the model after a message that it can follow. */
static void follow(int error, const struct shown *s)
{
	uint16_t job = asked.job;

	/* only what shows jobs has a dump */
	require(error || !asked.dump || !asked.sound || asked.cmd == THC_CMD_JOB_GET ||
		asked.cmd == THC_CMD_SOCKET_GET);
	if (asked.dump || !asked.sound || asked.jobs != 1 || job >= JOBS)
		return;
	switch (asked.cmd) {
	case THC_CMD_JOB_NEW:
		require(error ? !may_be_made() || error == -EEXIST || error == -ENOSPC :
				may_be_made() && !told[job]);
		require(error != -EEXIST || told[job]);
		if (!error) {
			told[job] = true;
			aggregators[job] = (uint8_t)asked.good;
		}
		break;
	case THC_CMD_JOB_DEL:
		if (asked.keys || asked.good || asked.bad)
			break;
		require(error == (told[job] ? 0 : -ENOENT));
		told[job] = false;
		break;
	case THC_CMD_JOB_GET:
		if (asked.keys || asked.good || asked.bad)
			break;
		require(error == (told[job] ? 0 : -ENOENT));
		require(error || (s->n == 1 && s->job == job && !s->wrong));
		break;
	}
}

/* A message may have changed jobs that the model cannot follow: asks for each job. */
static void look_again(void)
{
	uint16_t i;

	for (i = 0; i < JOBS; i++) {
		struct nlmsghdr *h = nl_begin(&nl, nl.family, THC_CMD_JOB_GET, NLM_F_ACK);

		mnl_attr_put_u16(h, THC_ATTR_JOB, i);
		told[i] = !nl_ask(&nl, h, NULL, NULL);
		aggregators[i] = 0;
	}
}

static void ask(struct bytes *b)
{
	uint8_t how = take(b);
	struct shown s = { 0 };
	struct nlmsghdr *h;
	int error;

	memset(&asked, 0, sizeof(asked));
	asked.sound = true;
	asked.cmd = how & 0x40 ? take(b) : THC_CMD_JOB_NEW + (how & 3) % 3;
	asked.dump = (how & 0x38) == 0x38;
	h = nl_begin(&nl, nl.family, asked.cmd, NLM_F_ACK | (asked.dump ? NLM_F_DUMP : 0));
	if (how & 4)
		put_right(h, b);
	else
		put_attributes(h, b);
	if ((how & 0x18) == 0x10)
		spoil(h, b);
	error = nl_ask(&nl, h, take_shown, &s);
	require(error != -EAGAIN);
	seeded_saw(asked.cmd <= THC_CMD_MAX ? asked.cmd : THC_CMD_MAX + 1, error);
	/* several numbers: the last one counts */
	if (!error && (!asked.sound || asked.jobs != 1))
		look_again();
	else
		follow(error, &s);
	require(error || !asked.sound || asked.cmd != THC_CMD_JOB_NEW || may_be_made());
}

/* Sends the rest of the input as a message. */
static void send_raw(struct bytes *b)
{
	int fd = mnl_socket_get_fd(nl.socket);
	struct nlmsghdr *h = (void *)nl.request;
	char answer[NL_PART];
	ssize_t n;

	memset(nl.request, 0, sizeof(nl.request));
	memcpy(nl.request + sizeof(*h), b->at, b->left);
	h->nlmsg_len = (uint32_t)(sizeof(*h) + b->left);
	h->nlmsg_type = nl.family;
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	b->left = 0;
	require(send(fd, nl.request, h->nlmsg_len, 0) >= 0 || errno == ECONNREFUSED);
	do
		n = recv(fd, answer, sizeof(answer), MSG_DONTWAIT);
	while (n > 0);
	seeded_saw(300, (int)b->left);
	look_again();
}

static void one_input(struct bytes *b)
{
	unsigned int n = 0;

	while (b->left && n++ < MESSAGES_MAX) {
		if (b->at[0] == 0xff)
			send_raw(b);
		else
			ask(b);
	}
	check_jobs();
	for (n = 0; n < JOBS; n++)
		if (told[n])
			require(!nl_del_job(&nl, (uint16_t)n));
	memset(told, 0, sizeof(told));
}

int main(void)
{
	seeded_begin();
	require(!nl_open(&nl));
	return seeded_run("fuzz_netlink", INPUTS, one_input);
}
