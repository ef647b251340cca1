/* SPDX-License-Identifier: GPL-2.0 */
/* Addresses of aggregators and of local ends: struct sockaddr_thc inside the kernel. */
#ifndef THC_KMOD_ADDRESS_H
#define THC_KMOD_ADDRESS_H

#include <linux/in6.h>
#include <linux/types.h>

#include <linux/thc.h>

#include <thc/wire/address.h>

#include "compat/compat.h"

/* Where an aggregator is, or a local end. */
struct thc_address {
	u16		inet;		/* AF_INET, AF_INET6; 0: none */
	__be16		port;
	int		ifindex;
	union {
		__be32		in;
		struct in6_addr	in6;
	};
};

/* -EINVAL: a reserved field, or a byte beyond the address, is not zero. */
int thc_address_check(const struct sockaddr_unsized *name, int len);
int thc_address_read(const struct sockaddr_thc *a, struct thc_address *out);
/* True if @a may be one host's, as an aggregator's has to be: not multicast, broadcast or
 * unspecified.
 */
bool thc_address_is_host(const struct thc_address *a);
/* On interface @ifindex, unless that is 0. */
struct thc_address thc_address_of(const struct thc_end *end, int ifindex);
bool thc_address_equal(const struct thc_address *a, const struct thc_address *b);
void thc_address_name(const struct thc_address *from, struct sockaddr_thc *a);

#endif /* THC_KMOD_ADDRESS_H */
