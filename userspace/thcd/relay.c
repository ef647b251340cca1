// SPDX-License-Identifier: GPL-2.0
/* Sends answers for generic XDP, which cannot copy a packet and relays them to us. */
#include <errno.h>
#include <string.h>

#include <bpf/libbpf.h>

#include "net.h"
#include "relay.h"

/* Answers of one turn: whoever fills the ring again and again does not hold signals, deadlines and
 * the control socket.
 */
#define RELAY_BATCH	256

/* XDP sees packets before the kernel drops those from addresses that no other host can have: an
 * answer to such an address would reach a program of this host.
 */
static void put_header(struct thcd *d, const struct thc_relay *r)
{
	if (thcd_is_hosts(d, &r->path.src))
		thcd_out_put(d, &r->path.src, r->path.src_port, &r->hdr, NULL, NULL, 0);
	else
		d->counters.unsent++;
}

/* Answers taken in this turn. */
static unsigned int taken;

static void relay(struct thcd *d, const void *data, size_t size)
{
	struct thc_relay r;

	if (size < sizeof(r))
		return;
	memcpy(&r, data, sizeof(r));
	if (r.type == THC_RELAY_HEADER)
		put_header(d, &r);
	else if (r.job >= THC_JOBS_MAX || r.slot >= d->job[r.job].slots || r.rank >= THC_RANKS_MAX)
		return;
	else if (r.type == THC_RELAY_ALL)
		thcd_answer_all(d, r.job, r.slot, r.generation);
	else if (r.type == THC_RELAY_ONE)
		thcd_answer_one(d, r.job, r.slot, r.generation, r.rank);
}

/* Less than 0 ends the turn, after this answer. */
static int on_relay(void *ctx, void *data, size_t size)
{
	relay(ctx, data, size);
	return ++taken < RELAY_BATCH ? 0 : -EAGAIN;
}

int thcd_relay_open(struct thcd *d, int fd, struct thcd_error *e)
{
	d->relay = ring_buffer__new(fd, on_relay, d, NULL);
	return d->relay ? 0 : thcd_fail(e, "cannot open the relay ring: %s", strerror(errno));
}

void thcd_relay_close(struct thcd *d)
{
	ring_buffer__free(d->relay);
	d->relay = NULL;
}

int thcd_relay_fd(const struct thcd *d)
{
	return d->relay ? ring_buffer__epoll_fd(d->relay) : -1;
}

void thcd_relay_serve(struct thcd *d)
{
	taken = 0;
	ring_buffer__consume(d->relay);
	thcd_out_flush(d);
}
