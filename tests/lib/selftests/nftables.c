// SPDX-License-Identifier: GPL-2.0
#include "nftables.h"

#define NFT_TABLE	"afthc"
#define NFT_CHAIN	"output"
#define NFT_ROOM	4096

/* Requests, one after another, that form one transaction. */
struct nft {
	char	room[NFT_ROOM];
	size_t	bytes;
	int	asked;		/* requests that are answered */
};

static struct nlmsghdr *nft_begin(struct nft *n, uint16_t type, uint16_t flags, uint16_t subsystem)
{
	struct nlmsghdr *h = mnl_nlmsg_put_header(n->room + n->bytes);
	struct nfgenmsg *g = mnl_nlmsg_put_extra_header(h, sizeof(*g));

	h->nlmsg_type = type;
	h->nlmsg_flags = NLM_F_REQUEST | flags;
	g->nfgen_family = AF_INET;
	g->version = NFNETLINK_V0;
	g->res_id = htons(subsystem);
	n->asked += !!(flags & NLM_F_ACK);
	return h;
}

static struct nlmsghdr *nft_ask(struct nft *n, uint16_t type, uint16_t flags)
{
	return nft_begin(n, NFNL_SUBSYS_NFTABLES << 8 | type, NLM_F_ACK | flags, 0);
}

static void nft_end(struct nft *n, struct nlmsghdr *h)
{
	n->bytes += NLMSG_ALIGN(h->nlmsg_len);
}

/* Sends all; the first error that comes back, or 0. */
static int nft_commit(struct nft *n)
{
	struct mnl_socket *s = mnl_socket_open2(NETLINK_NETFILTER, SOCK_CLOEXEC);
	struct timeval patience = { .tv_sec = 10 };
	char answer[NFT_ROOM];
	int error = 0, seen = 0;

	if (!s || mnl_socket_bind(s, 0, MNL_SOCKET_AUTOPID))
		return -errno;
	setsockopt(mnl_socket_get_fd(s), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (mnl_socket_sendto(s, n->room, n->bytes) < 0)
		error = -errno;
	while (!error && seen < n->asked) {
		const struct nlmsghdr *h = (const void *)answer;
		int left = (int)mnl_socket_recvfrom(s, answer, sizeof(answer));

		if (left < 0)
			error = -errno;
		for (; left > 0 && mnl_nlmsg_ok(h, left); h = mnl_nlmsg_next(h, &left)) {
			if (h->nlmsg_type != NLMSG_ERROR)
				continue;
			seen++;
			if (!error)
				error = ((const struct nlmsgerr *)mnl_nlmsg_get_payload(h))->error;
		}
	}
	mnl_socket_close(s);
	return error;
}

/* An expression of a rule, up to its data; ended by nft_end_expression(). */
struct nft_expression {
	struct nlattr	*element, *data;
};

static struct nft_expression nft_expression(struct nlmsghdr *h, const char *name)
{
	struct nft_expression e = { .element = mnl_attr_nest_start(h, NFTA_LIST_ELEM) };

	mnl_attr_put_strz(h, NFTA_EXPR_NAME, name);
	e.data = mnl_attr_nest_start(h, NFTA_EXPR_DATA);
	return e;
}

static void nft_end_expression(struct nlmsghdr *h, struct nft_expression e)
{
	mnl_attr_nest_end(h, e.data);
	mnl_attr_nest_end(h, e.element);
}

static void nft_put_chain(struct nft *n)
{
	struct nlmsghdr *h = nft_ask(n, NFT_MSG_NEWTABLE, NLM_F_CREATE);
	struct nlattr *hook;

	mnl_attr_put_strz(h, NFTA_TABLE_NAME, NFT_TABLE);
	nft_end(n, h);
	h = nft_ask(n, NFT_MSG_NEWCHAIN, NLM_F_CREATE);
	mnl_attr_put_strz(h, NFTA_CHAIN_TABLE, NFT_TABLE);
	mnl_attr_put_strz(h, NFTA_CHAIN_NAME, NFT_CHAIN);
	mnl_attr_put_strz(h, NFTA_CHAIN_TYPE, "filter");
	hook = mnl_attr_nest_start(h, NFTA_CHAIN_HOOK);
	mnl_attr_put_u32(h, NFTA_HOOK_HOOKNUM, htonl(NF_INET_LOCAL_OUT));
	mnl_attr_put_u32(h, NFTA_HOOK_PRIORITY, htonl(0));
	mnl_attr_nest_end(h, hook);
	nft_end(n, h);
}

/* meta @key @number drop */
static void nft_put_rule(struct nft *n, enum nft_meta_keys key, uint32_t number)
{
	struct nlmsghdr *h = nft_ask(n, NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND);
	struct nlattr *all, *data, *verdict;
	struct nft_expression e;

	mnl_attr_put_strz(h, NFTA_RULE_TABLE, NFT_TABLE);
	mnl_attr_put_strz(h, NFTA_RULE_CHAIN, NFT_CHAIN);
	all = mnl_attr_nest_start(h, NFTA_RULE_EXPRESSIONS);
	e = nft_expression(h, "meta");
	mnl_attr_put_u32(h, NFTA_META_KEY, htonl(key));
	mnl_attr_put_u32(h, NFTA_META_DREG, htonl(NFT_REG_1));
	nft_end_expression(h, e);
	e = nft_expression(h, "cmp");
	mnl_attr_put_u32(h, NFTA_CMP_SREG, htonl(NFT_REG_1));
	mnl_attr_put_u32(h, NFTA_CMP_OP, htonl(NFT_CMP_EQ));
	data = mnl_attr_nest_start(h, NFTA_CMP_DATA);
	mnl_attr_put_u32(h, NFTA_DATA_VALUE, number);
	mnl_attr_nest_end(h, data);
	nft_end_expression(h, e);
	e = nft_expression(h, "immediate");
	mnl_attr_put_u32(h, NFTA_IMMEDIATE_DREG, htonl(NFT_REG_VERDICT));
	data = mnl_attr_nest_start(h, NFTA_IMMEDIATE_DATA);
	verdict = mnl_attr_nest_start(h, NFTA_DATA_VERDICT);
	mnl_attr_put_u32(h, NFTA_VERDICT_CODE, htonl(NF_DROP));
	mnl_attr_nest_end(h, verdict);
	mnl_attr_nest_end(h, data);
	nft_end_expression(h, e);
	mnl_attr_nest_end(h, all);
	nft_end(n, h);
}

int nft_drop(enum nft_meta_keys key, uint32_t number)
{
	struct nft n = { 0 };

	nft_end(&n, nft_begin(&n, NFNL_MSG_BATCH_BEGIN, 0, NFNL_SUBSYS_NFTABLES));
	nft_put_chain(&n);
	nft_put_rule(&n, key, number);
	nft_end(&n, nft_begin(&n, NFNL_MSG_BATCH_END, 0, NFNL_SUBSYS_NFTABLES));
	return nft_commit(&n);
}

int nft_drop_no_more(void)
{
	struct nft n = { 0 };
	struct nlmsghdr *h;

	nft_end(&n, nft_begin(&n, NFNL_MSG_BATCH_BEGIN, 0, NFNL_SUBSYS_NFTABLES));
	h = nft_ask(&n, NFT_MSG_DELTABLE, 0);
	mnl_attr_put_strz(h, NFTA_TABLE_NAME, NFT_TABLE);
	nft_end(&n, h);
	nft_end(&n, nft_begin(&n, NFNL_MSG_BATCH_END, 0, NFNL_SUBSYS_NFTABLES));
	return nft_commit(&n);
}
