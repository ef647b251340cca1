/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* How chunks travel between a client and the aggregator. */
#ifndef LIBTHC_TRANSPORT_H
#define LIBTHC_TRANSPORT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libthc.h"

struct thc_client;

/* Two sockets for each aggregator. */
#define THC_POLL_MAX	(2 * THC_SHARDS_MAX)

/**
 * struct thc_transport - how chunks travel between a client and the aggregator
 * @open: sockets; -EAFNOSUPPORT: this kernel has none of the kind
 * @close: of what @open made, also after it failed
 * @join: until all ranks have joined: fills client.params
 * @leave: sends LEAVE to the aggregator
 * @room: bytes of client.rx that it needs to receive what a bucket of @bytes brings
 * @forget: what is in flight, after a failure
 * @receive: what has come; true if anything did
 * @send: what can be sent; lowers *@due to the time of the next look
 * @poll: what to sleep on, at most THC_POLL_MAX; how many. 0: nothing can come
 * @show: fills in the counters that only it knows, often; may be NULL
 * @ask: fills in counters that are costly to know, for thc_client_stats(); may be NULL
 */
struct thc_transport {
	const char	*name;
	int		(*open)(struct thc_client *c);
	void		(*close)(struct thc_client *c);
	int		(*join)(struct thc_client *c);
	void		(*leave)(struct thc_client *c);
	size_t		(*room)(size_t bytes);
	void		(*forget)(struct thc_client *c);
	bool		(*receive)(struct thc_client *c);
	bool		(*send)(struct thc_client *c, uint64_t *due);
	unsigned int	(*poll)(const struct thc_client *c, struct pollfd *fds);
	void		(*show)(const struct thc_client *c, struct thc_client_stats *stats);
	void		(*ask)(const struct thc_client *c, struct thc_client_stats *stats);
};

extern const struct thc_transport thc_udp_transport;
extern const struct thc_transport thc_afthc_transport;
/* join.c: JOIN and WELCOME over UDP. */
int thc_udp_join(struct thc_client *c);
void thc_udp_leave(struct thc_client *c);
/* The sockets of all aggregators. */
unsigned int thc_udp_poll(const struct thc_client *c, struct pollfd *fds);
/* Counts a packet that was dropped for @why; THC_DROP_NONE: none was. */
void thc_udp_dropped(struct thc_client *c, enum thc_drop_reason why);

#endif /* LIBTHC_TRANSPORT_H */
