/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Addresses of both IP versions in one form, and the end of a path that a worker has.
 */
#ifndef THC_WIRE_ADDRESS_H
#define THC_WIRE_ADDRESS_H

#include <thc/types.h>

/* An IPv4 address is kept IPv4-mapped (::ffff:a.b.c.d), network order. */
struct thc_addr {
	__be32	word[4];
};

#define THC_ADDR_MAPPED	0xffffU

THC_INLINE struct thc_addr thc_addr_v4(__be32 in)
{
	struct thc_addr a = { { 0, 0, thc_be32(THC_ADDR_MAPPED), in } };

	return a;
}

/* Is it an IPv4 address? */
THC_INLINE int thc_addr_is_v4(const struct thc_addr *a)
{
	return !a->word[0] && !a->word[1] && a->word[2] == thc_be32(THC_ADDR_MAPPED);
}

THC_INLINE int thc_addr_equal(const struct thc_addr *a, const struct thc_addr *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] &&
	       a->word[3] == b->word[3];
}

/**
 * struct thc_end - the end of a path that is not the aggregator's, as control packets are sealed
 *	with it
 * @addr: of the worker, or the group
 * @port: UDP port, network order
 * @aggregator: at the other end: its number in the job
 * @zero: zero
 */
struct thc_end {
	struct thc_addr	addr;
	__be16		port;
	__be16		aggregator;
	u32		zero;
};

#define THC_END_WORDS	((int)(sizeof(struct thc_end) / 8))

#endif /* THC_WIRE_ADDRESS_H */
