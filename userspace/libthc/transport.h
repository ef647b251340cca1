/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The interface of transports, which carry chunks between a client and its aggregators. Client,
 * engine and pipeline call these functions, and do not know the members of struct thc_udp and
 * struct thc_afthc.
 */
#ifndef LIBTHC_TRANSPORT_H
#define LIBTHC_TRANSPORT_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "buffers.h"
#include "libthc.h"

struct thc_client;
struct thc_phase;
struct thc_transport;
struct thc_way;

/* Two sockets for each aggregator. */
#define THC_POLL_MAX	(2 * THC_SHARDS_MAX)

/**
 * struct thc_transport_ops - the functions of a kind of transport
 * @close: frees it
 * @join: joins, and waits for all ranks: fills client.spec, client.epoch, client.list,
 *	client.window
 * @leave: sends LEAVE to the aggregators; NULL: @close and the next @join do that
 * @rx_bytes: bytes of thc_transport.rx that it needs to receive the sums of a bucket of @bytes
 * @ready: takes chunk @index of @p, which has its number and its payload; NULL: it needs no such
 *	call
 * @forget: forgets all packets in flight, after a failure
 * @receive: receives packets; true if any came
 * @send: sends all that can be sent; lowers *@due to the time of the next look
 * @poll: fills in what to sleep on, at most THC_POLL_MAX, and returns how many; 0: nothing can come
 * @polled: takes the result of poll() for the @fds of @poll; may be NULL
 * @way: the way to aggregator number @shard of the job; NULL: only client.list is known
 * @epoch: the session that this rank is in at number @shard
 * @show: fills in the counters that only it knows; called often; may be NULL
 * @ask: fills in counters that take a system call, for thc_client_stats(); may be NULL
 */
struct thc_transport_ops {
	const char	*name;
	void		(*close)(struct thc_transport *t);
	int		(*join)(struct thc_transport *t);
	void		(*leave)(struct thc_transport *t);
	size_t		(*rx_bytes)(size_t bytes);
	void		(*ready)(struct thc_transport *t, struct thc_phase *p, uint32_t index);
	void		(*forget)(struct thc_transport *t);
	bool		(*receive)(struct thc_transport *t);
	bool		(*send)(struct thc_transport *t, uint64_t *due);
	unsigned int	(*poll)(const struct thc_transport *t, struct pollfd *fds);
	void		(*polled)(struct thc_transport *t, const struct pollfd *fds);
	const struct thc_way *(*way)(const struct thc_transport *t, uint32_t shard);
	uint32_t	(*epoch)(const struct thc_transport *t, uint32_t shard);
	void		(*show)(const struct thc_transport *t, struct thc_client_stats *stats);
	void		(*ask)(const struct thc_transport *t, struct thc_client_stats *stats);
};

/**
 * struct thc_transport - the first member of each transport's own struct
 * @client: the client it belongs to
 * @rx: buffer to receive into, kept from bucket to bucket
 */
struct thc_transport {
	const struct thc_transport_ops	*ops;
	struct thc_client		*client;
	struct thc_buffer			rx;
};

/* Sockets towards client.options.aggregator; a negative errno with a sentence. */
int thc_udp_open(struct thc_client *c, struct thc_transport **out);
/* -EAFNOSUPPORT: this kernel has no AF_THC. */
int thc_afthc_open(struct thc_client *c, struct thc_transport **out);

#endif /* LIBTHC_TRANSPORT_H */
