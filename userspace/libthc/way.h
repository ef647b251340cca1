/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* The way to an aggregator: addresses and an interface, no sockets. */
#ifndef LIBTHC_WAY_H
#define LIBTHC_WAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <thc/wire/address.h>

#include "libthc.h"

/**
 * struct thc_way - the way from this host to an aggregator
 * @aggregator: the aggregator, base port
 * @local: the local address
 * @addrlen: bytes of either address
 * @ifindex: interface of @local, 0: the system's choice
 * @bound: the program has chosen @local
 * @named: the program has chosen @ifindex
 */
struct thc_way {
	struct sockaddr_storage	aggregator;
	struct sockaddr_storage	local;
	socklen_t		addrlen;
	int			ifindex;
	bool			bound;
	bool			named;
};

/* Finds the way to the aggregator that @o names; a negative errno with a sentence. */
int thc_way_find(struct thc_way *w, const struct thc_client_options *o);
/* Finds the way to another aggregator of the job, at @to, with the options of @first. */
int thc_way_beside(struct thc_way *w, const struct thc_way *first, const struct thc_end *to);
/* The worker's end, as the aggregator sees it. */
void thc_way_end(const struct thc_way *w, struct thc_end *end);
/* @end as a socket address, of the family and on the interface of @w. */
struct sockaddr_storage thc_way_address(const struct thc_way *w, const struct thc_end *end);
const char *thc_way_name(const struct thc_way *w, char *text, size_t size);

/* Are both addresses equal, ports aside? */
bool thc_address_is_same(const struct sockaddr_storage *a, const struct sockaddr_storage *b);
void thc_address_set_port(struct sockaddr_storage *a, uint16_t port);
uint16_t thc_address_port(const struct sockaddr_storage *a);

#endif /* LIBTHC_WAY_H */
