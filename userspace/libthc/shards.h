/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The aggregators of a client's job. Each has sockets, a window and an epoch of its own; chunk q of
 * a stream is sent to number q mod shards (<thc/wire/route.h>).
 */
#ifndef LIBTHC_SHARDS_H
#define LIBTHC_SHARDS_H

#include <thc/wire/shards.h>
#include <thc/worker/sender.h>

#include "udp.h"

struct thc_client;

/**
 * struct thc_shard - one aggregator, over UDP
 * @link: sockets to it; of AF_THC addresses alone
 * @sender: the protocol's state
 * @flights: of both streams of @sender, a part of the client's; NULL: the job is not ready, or
 *	thc.ko's
 */
struct thc_shard {
	struct thc_link		link;
	struct thc_sender	sender;
	struct thc_flight	*flights;
};

/* Room for @count aggregators, more than there are, the new ones without sockets; -ENOMEM */
int thc_shards_room(struct thc_client *c, uint32_t count);
/* Closes all but number 0. */
void thc_shards_only_first(struct thc_client *c);
/* Room for the flights of all, by client.params; -ENOMEM */
int thc_shards_fill(struct thc_client *c);
/* Frees it. */
void thc_shards_empty(struct thc_client *c);
/* Chunks that have numbers may be sent. */
void thc_shards_reserve(struct thc_client *c);
/* Address of number @shard, and which one it is of several. */
const char *thc_shard_name(const struct thc_client *c, uint32_t shard, char *text, size_t size);

/* Room for it. */
#define THC_SHARD_TEXT	112

#endif /* LIBTHC_SHARDS_H */
