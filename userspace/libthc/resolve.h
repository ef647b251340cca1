/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/*
 * The addresses that options name: numeric, with the interface of a link-local
 * one behind '%', or as host names.
 */
#ifndef THC_RESOLVE_H
#define THC_RESOLVE_H

#include <stdint.h>
#include <sys/socket.h>

#include "libthc.h"

/**
 * struct thc_ends - destination and source of packets
 * @aggregator: the aggregator
 * @local: the local address, with port 0; its family is AF_UNSPEC if the options name none
 * @addrlen: bytes of either address
 */
struct thc_ends {
	struct sockaddr_storage	aggregator;
	struct sockaddr_storage	local;
	socklen_t		addrlen;
};

/* Of several addresses of @o->aggregator the first one is taken, in the system's
 * order, that has the family of one of @o->bind. 0; -EINVAL no address, families
 * that differ, a link-local address without an interface or with two;
 * -EHOSTUNREACH a name without an address; -ENOMEM; each with a sentence.
 */
int thc_resolve(struct thc_ends *ends, const struct thc_client_options *o);

/* The interface that a link-local address belongs to, else 0. */
unsigned int thc_scope_of(const struct sockaddr_storage *a);

#endif /* THC_RESOLVE_H */
