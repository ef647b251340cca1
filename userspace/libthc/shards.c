// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* The aggregators of a client's job. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

int thc_shards_room(struct thc_client *c, uint32_t count)
{
	struct thc_shard *more = realloc(c->shard, count * sizeof(*more));
	uint32_t i;

	if (!more)
		return thc_fail(-ENOMEM, "out of memory for %u aggregators", count);
	memset(more + c->shards, 0, (count - c->shards) * sizeof(*more));
	for (i = c->shards; i < count; i++)
		more[i].link.unicast = more[i].link.group = -1;
	c->shard = more;
	c->shards = count;
	return 0;
}

void thc_shards_only_first(struct thc_client *c)
{
	while (c->shards > 1)
		thc_link_close(&c->shard[--c->shards].link);
	c->list.count = 0;
}

int thc_shards_fill(struct thc_client *c)
{
	c->flights = calloc(1, thc_flights_bytes(c));
	if (!c->flights)
		return thc_fail(-ENOMEM, "out of memory for the slots of %u aggregators",
				c->shards);
	thc_account(c, (ssize_t)thc_flights_bytes(c));
	return 0;
}

void thc_shards_empty(struct thc_client *c)
{
	uint32_t i;

	if (c->flights)
		thc_account(c, -(ssize_t)thc_flights_bytes(c));
	free(c->flights);
	c->flights = NULL;
	for (i = 0; i < c->shards; i++) {
		struct thc_shard *at = &c->shard[i];

		at->flights = NULL;
		thc_stream_init(&at->sender.data, NULL, 0, 0);
		thc_stream_init(&at->sender.control, NULL, 0, 0);
	}
}

void thc_shards_reserve(struct thc_client *c)
{
	uint32_t i;

	for (i = 0; i < c->shards; i++) {
		struct thc_sender *s = &c->shard[i].sender;

		s->data.reserved = thc_shard_part(c->numbered[false], c->shards, i);
		s->control.reserved = thc_shard_part(c->numbered[true], c->shards, i);
	}
}

/* thc.ko has the sockets to all aggregators, and we know the first one's address. */
static void name_listed(const struct thc_end *end, char *text, size_t size)
{
	bool is_ip4 = thc_addr_is_v4(&end->addr);
	char address[INET6_ADDRSTRLEN] = "?";

	inet_ntop(is_ip4 ? AF_INET : AF_INET6,
		  is_ip4 ? &end->addr.word[3] : (const void *)&end->addr, address, sizeof(address));
	snprintf(text, size, is_ip4 ? "%s:%u" : "[%s]:%u", address, thc_be16(end->port));
}

const char *thc_shard_name(const struct thc_client *c, uint32_t shard, char *text, size_t size)
{
	char address[80];

	if (!c->list.count)
		return thc_way_peer_name(&c->shard->link.way, text, size);
	shard %= c->list.count;
	if (shard < c->shards)
		thc_way_peer_name(&c->shard[shard].link.way, address, sizeof(address));
	else
		name_listed(&c->list.at[shard], address, sizeof(address));
	snprintf(text, size, "%s (shard %u of %u)", address, shard, c->list.count);
	return text;
}
