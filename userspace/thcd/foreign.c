// SPDX-License-Identifier: GPL-2.0
/*
 * Listens to the multicast groups of the jobs, to notice another aggregator that answers to one of
 * them. The kernels of workers drop its answers by their source, but have to look at them all; so
 * the operator is told.
 *
 * After any packet, be it from another shard of the job, thcd leaves the group for a while: how
 * fast the other host sends does not matter then. In XDP modes our own answers do not loop back
 * (net.c). The software aggregator does not listen: as a member of the group its host would receive
 * each of its own answers.
 */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <unistd.h>

#include "net.h"

/* Time after a packet until thcd joins its group again. */
#define QUIET_MS	60000

/* A socket of each job whose answers go to a group. */
static struct listener {
	int		fd;		/* -1: none */
	uint64_t	from_ms;	/* when to open the socket, UINT64_MAX: done */
} listener[THC_JOBS_MAX] = { [0 ... THC_JOBS_MAX - 1] = { .fd = -1 } };

static int become_member(int fd, const struct thcd_socket *s, const struct sockaddr_storage *group)
{
	const struct group_req m = { .gr_interface = s->ifindex, .gr_group = *group };
	bool v4 = s->family == AF_INET;
	int one = 1, zero = 0;

	return setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) ||
	       (v4 && setsockopt(fd, IPPROTO_IP, IP_MULTICAST_ALL, &zero, sizeof(zero))) ||
	       setsockopt(fd, v4 ? IPPROTO_IP : IPPROTO_IPV6, MCAST_JOIN_GROUP, &m, sizeof(m));
}

static int listen_to(const struct thcd *d, const struct thcd_plan *plan)
{
	int i = thcd_socket_for(d, &plan->group), fd;
	const struct thcd_socket *s;
	struct sockaddr_storage ss;
	socklen_t length;

	if (i < 0)
		return -1;
	s = &d->socket[i];
	fd = socket(s->family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -1;
	length = thcd_sockaddr(&ss, &plan->group, plan->group_port, s->family, s->ifindex);
	if (!become_member(fd, s, &ss) && !bind(fd, (struct sockaddr *)&ss, length))
		return fd;
	thcd_say("job %u: cannot listen to its group: %s; thcd will not notice another aggregator "
		 "that uses the group",
		 plan->job, strerror(errno));
	close(fd);
	return -1;
}

void thcd_foreign_restart(u32 id, uint64_t from_ms)
{
	if (listener[id].fd >= 0)
		close(listener[id].fd);
	listener[id] = (struct listener){ .fd = -1, .from_ms = from_ms };
}

int thcd_foreign_poll(const struct thcd *d, struct pollfd *p)
{
	uint64_t now = thcd_now_ms();
	int i;

	if (d->software)
		return 0;
	for (i = 0; i < THC_JOBS_MAX; i++) {
		const struct thcd_record *r = &d->record[i];
		struct listener *l = &listener[i];

		if (r->used && r->plan.reply == THC_REPLY_MULTICAST && now >= l->from_ms) {
			l->from_ms = UINT64_MAX;
			l->fd = listen_to(d, &r->plan);
		}
		p[i] = (struct pollfd){ .fd = l->fd, .events = POLLIN };
	}
	return THCD_FOREIGN_POLLS;
}

/* Is @addr an aggregator of the job? */
static bool is_shard(const struct thcd_plan *plan, const struct thc_addr *addr)
{
	u32 i;

	for (i = 0; i < plan->shards.count; i++)
		if (thc_addr_equal(&plan->shards.at[i].addr, addr))
			return true;
	return false;
}

/* Reads one packet that came to the group of job @id. */
static void look_at(struct thcd *d, int id)
{
	const struct thcd_plan *plan = &d->record[id].plan;
	char from[INET6_ADDRSTRLEN], group[INET6_ADDRSTRLEN];
	struct sockaddr_storage ss = { 0 };
	struct sockaddr *sa = (struct sockaddr *)&ss;
	socklen_t length = sizeof(ss);
	struct thc_addr addr;
	u16 port;
	u8 byte;

	if (recvfrom(listener[id].fd, &byte, sizeof(byte), 0, sa, &length) < 0)
		return;
	thcd_sockaddr_parse(sa, &addr, &port);
	if (thcd_is_own(d, &addr))
		return;
	thcd_foreign_restart(id, thcd_now_ms() + QUIET_MS);
	if (is_shard(plan, &addr))
		return;
	d->counters.foreign++;
	thcd_say(
		"job %d: %s sends to this job's group, %s port %u: the kernels of workers drop these "
		"packets, which takes time; if %s is another aggregator, give one of the two jobs another "
		"group=",
		id, thc_addr_text(&addr, from), thc_addr_text(&plan->group, group),
		plan->group_port, from);
}

void thcd_foreign_look(struct thcd *d, const struct pollfd *p)
{
	int i;

	for (i = 0; !d->software && i < THC_JOBS_MAX; i++)
		if (p[i].fd >= 0 && p[i].revents)
			look_at(d, i);
}
