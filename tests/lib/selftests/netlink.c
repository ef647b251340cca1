// SPDX-License-Identifier: GPL-2.0
#include "netlink.h"

static int nl_text(const struct nlattr *a, void *data)
{
	if (mnl_attr_get_type(a) == NLMSGERR_ATTR_MSG)
		snprintf(data, 256, "%s", mnl_attr_get_str(a));
	return MNL_CB_OK;
}

/* Keeps the kernel's message; returns its errno, negative. */
static int nl_error(struct nl *nl, const struct nlmsghdr *h)
{
	const struct nlmsgerr *e = mnl_nlmsg_get_payload(h);
	unsigned int skip = sizeof(*e);

	if (!(h->nlmsg_flags & NLM_F_CAPPED))
		skip += mnl_nlmsg_get_payload_len(&e->msg);
	if (h->nlmsg_flags & NLM_F_ACK_TLVS)
		mnl_attr_parse(h, MNL_ALIGN(skip), nl_text, nl->text);
	return e->error;
}

struct nlmsghdr *nl_begin(struct nl *nl, uint16_t type, uint8_t cmd, uint16_t flags)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(nl->request);
	struct genlmsghdr *g;

	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | flags;
	g = mnl_nlmsg_put_extra_header(h, sizeof(*g));
	g->cmd = cmd;
	g->version = THC_GENL_VERSION;
	return h;
}

int nl_ask(struct nl *nl, struct nlmsghdr *h, void (*each)(const struct nlmsghdr *h, void *data),
	   void *data)
{
	char *answer = malloc(NL_PART);
	int error = 1, left;

	nl->text[0] = 0;
	nl->interrupted = false;
	if (mnl_socket_sendto(nl->socket, h, h->nlmsg_len) < 0)
		error = -errno;
	while (error > 0) {
		struct nlmsghdr *a = (void *)answer;

		left = (int)mnl_socket_recvfrom(nl->socket, answer, NL_PART);
		if (left < 0)
			error = -errno;
		for (; left > 0 && error > 0 && mnl_nlmsg_ok(a, left);
		     a = mnl_nlmsg_next(a, &left)) {
			nl->interrupted |= !!(a->nlmsg_flags & NLM_F_DUMP_INTR);
			if (a->nlmsg_type == NLMSG_ERROR)
				error = nl_error(nl, a);
			else if (a->nlmsg_type == NLMSG_DONE)
				error = *(int *)mnl_nlmsg_get_payload(a);
			else if (each)
				each(a, data);
		}
	}
	free(answer);
	return error;
}

static int nl_family(const struct nlattr *a, void *data)
{
	if (mnl_attr_get_type(a) == CTRL_ATTR_FAMILY_ID)
		*(uint16_t *)data = mnl_attr_get_u16(a);
	return MNL_CB_OK;
}

static void nl_take_family(const struct nlmsghdr *h, void *data)
{
	mnl_attr_parse(h, sizeof(struct genlmsghdr), nl_family, data);
}

int nl_open(struct nl *nl)
{
	struct timeval patience = { .tv_sec = 10 };
	struct nlmsghdr *h;
	int on = 1, error;

	memset(nl, 0, sizeof(*nl));
	nl->socket = mnl_socket_open2(NETLINK_GENERIC, SOCK_CLOEXEC);
	if (!nl->socket || mnl_socket_bind(nl->socket, 0, MNL_SOCKET_AUTOPID))
		return -errno;
	mnl_socket_setsockopt(nl->socket, NETLINK_EXT_ACK, &on, sizeof(on));
	mnl_socket_setsockopt(nl->socket, NETLINK_GET_STRICT_CHK, &on, sizeof(on));
	setsockopt(mnl_socket_get_fd(nl->socket), SOL_SOCKET, SO_RCVTIMEO, &patience,
		   sizeof(patience));
	h = nl_begin(nl, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, NLM_F_ACK);
	mnl_attr_put_strz(h, CTRL_ATTR_FAMILY_NAME, THC_GENL_NAME);
	error = nl_ask(nl, h, nl_take_family, &nl->family);
	return error ? error : nl->family ? 0 : -ENOENT;
}

void nl_put_aggregator(struct nlmsghdr *h, const char *at, uint16_t port)
{
	struct nlattr *nest = mnl_attr_nest_start(h, THC_ATTR_AGGREGATOR);
	char raw[16];

	if (inet_pton(AF_INET, at, raw) == 1)
		mnl_attr_put(h, THC_AGGR_IPV4, 4, raw);
	else if (inet_pton(AF_INET6, at, raw) == 1)
		mnl_attr_put(h, THC_AGGR_IPV6, 16, raw);
	if (port)
		mnl_attr_put_u16(h, THC_AGGR_PORT, port);
	mnl_attr_nest_end(h, nest);
}

void nl_put_ids(struct nlmsghdr *h, uint16_t type, uint32_t first, uint32_t last)
{
	struct nlattr *nest = mnl_attr_nest_start(h, type);

	mnl_attr_put_u32(h, THC_IDS_FIRST, first);
	mnl_attr_put_u32(h, THC_IDS_LAST, last);
	mnl_attr_nest_end(h, nest);
}

struct nlmsghdr *nl_begin_job(struct nl *nl, uint16_t job, const char *at, uint16_t port)
{
	struct nlmsghdr *h = nl_begin(nl, nl->family, THC_CMD_JOB_NEW, NLM_F_ACK);

	mnl_attr_put_u16(h, THC_ATTR_JOB, job);
	mnl_attr_put(h, THC_ATTR_KEY, sizeof(job_key), job_key);
	nl_put_aggregator(h, at, port);
	return h;
}

int nl_new_job(struct nl *nl, uint16_t job, const char *at, uint16_t port, uint16_t other)
{
	struct nlmsghdr *h = nl_begin_job(nl, job, at, port);

	if (other)
		nl_put_aggregator(h, at, other);
	return nl_ask(nl, h, NULL, NULL);
}

int nl_del_job(struct nl *nl, uint16_t job)
{
	struct nlmsghdr *h = nl_begin(nl, nl->family, THC_CMD_JOB_DEL, NLM_F_ACK);

	mnl_attr_put_u16(h, THC_ATTR_JOB, job);
	return nl_ask(nl, h, NULL, NULL);
}

static int nl_reason_attr(const struct nlattr *a, void *data)
{
	struct reasons *r = data;

	if (mnl_attr_get_type(a) == THC_REASON_NAME)
		snprintf(r->name[r->n], sizeof(r->name[0]), "%s", mnl_attr_get_str(a));
	else if (mnl_attr_get_type(a) == THC_REASON_PACKETS)
		r->packets[r->n] = mnl_attr_get_u64(a);
	return MNL_CB_OK;
}

static int nl_reason(const struct nlattr *a, void *data)
{
	struct reasons *r = data;

	if (mnl_attr_get_type(a) == THC_ATTR_DROP && r->n < 64) {
		mnl_attr_parse_nested(a, nl_reason_attr, r);
		r->n++;
	}
	return MNL_CB_OK;
}

static void nl_take_reasons(const struct nlmsghdr *h, void *data)
{
	mnl_attr_parse(h, sizeof(struct genlmsghdr), nl_reason, data);
}

int nl_reasons(struct nl *nl, struct reasons *r)
{
	memset(r, 0, sizeof(*r));
	return nl_ask(nl, nl_begin(nl, nl->family, THC_CMD_STATS_GET, NLM_F_ACK), nl_take_reasons,
		      r);
}

uint64_t reason_count(const struct reasons *r, const char *name)
{
	int i;

	for (i = 0; i < r->n; i++)
		if (!strcmp(r->name[i], name))
			return r->packets[i];
	return UINT64_MAX;
}

uint64_t reason_sum(const struct reasons *r)
{
	uint64_t sum = 0;
	int i;

	for (i = 0; i < r->n; i++)
		sum += r->packets[i];
	return sum;
}

int nl_reasons_after(struct nl *nl, const struct reasons *before, const char *name, uint64_t n,
		     struct reasons *r)
{
	uint64_t start = now_ms();
	int error;

	do {
		error = nl_reasons(nl, r);
	} while (!error && reason_count(r, name) < reason_count(before, name) + n &&
		 reason_sum_known(r) < reason_sum_known(before) + n &&
		 now_ms() - start < PATIENCE_MS);
	return error;
}
