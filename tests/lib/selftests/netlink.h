/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The generic netlink family "thc" for its tests, by libmnl: requests with right or wrong
 * attributes, and the answers with extack.
 */
#ifndef THC_SELFTESTS_NETLINK_H
#define THC_SELFTESTS_NETLINK_H

#include <libmnl/libmnl.h>
#include <linux/genetlink.h>
#include <linux/thc_netlink.h>

#include "afthc.h"

struct nl {
	struct mnl_socket	*socket;
	uint16_t		family;
	char			request[4096];
	char			text[256];	/* extack of the last answer */
	bool			interrupted;	/* the last dump: the list changed meanwhile */
};

/* Bytes received at once, so that a dump of many comes in parts. */
#define NL_PART		8192

struct nlmsghdr *nl_begin(struct nl *nl, uint16_t type, uint8_t cmd, uint16_t flags);

/* Sends the request and calls @each for every message that comes back. */
int nl_ask(struct nl *nl, struct nlmsghdr *h, void (*each)(const struct nlmsghdr *h, void *data),
	   void *data);

static inline void nl_close(struct nl *nl)
{
	if (nl->socket)
		mnl_socket_close(nl->socket);
	nl->socket = NULL;
}

int nl_open(struct nl *nl);

/* One aggregator of a job. */
void nl_put_aggregator(struct nlmsghdr *h, const char *at, uint16_t port);

/* A range of users or groups: THC_ATTR_USERS, THC_ATTR_GROUPS. */
void nl_put_ids(struct nlmsghdr *h, uint16_t type, uint32_t first, uint32_t last);

/* Begins a request for a job at @at:@port, to which attributes can be added. */
struct nlmsghdr *nl_begin_job(struct nl *nl, uint16_t job, const char *at, uint16_t port);

/* A job with up to two aggregators at @at, ports @port and @other (0: none). */
int nl_new_job(struct nl *nl, uint16_t job, const char *at, uint16_t port, uint16_t other);

int nl_del_job(struct nl *nl, uint16_t job);

/* --- counters ------------------------------------------------------------- */

struct reasons {
	int		n;
	char		name[64][24];
	uint64_t	packets[64];
};

int nl_reasons(struct nl *nl, struct reasons *r);

uint64_t reason_count(const struct reasons *r, const char *name);

uint64_t reason_sum(const struct reasons *r);

/* Sum without `unexpected`, which also counts a job's own packets that come too late: how many do
 * depends on timing.
 */
static inline uint64_t reason_sum_known(const struct reasons *r)
{
	return reason_sum(r) - reason_count(r, "unexpected");
}

/* Once @n packets more than @before have been dropped for @name, or for any reason
 * of which the number is known: softirqs may be late.
 */
int nl_reasons_after(struct nl *nl, const struct reasons *before, const char *name, uint64_t n,
		     struct reasons *r);

#endif /* THC_SELFTESTS_NETLINK_H */
