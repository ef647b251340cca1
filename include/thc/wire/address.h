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

/* Is it a multicast address? RFC 5771; RFC 4291, section 2.7 */
THC_INLINE int thc_addr_is_group(const struct thc_addr *a)
{
	const u8 *byte = (const u8 *)a;

	return thc_addr_is_v4(a) ? (byte[12] & 0xf0) == 0xe0 : byte[0] == 0xff;
}

THC_INLINE int thc_addr_equal(const struct thc_addr *a, const struct thc_addr *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] &&
	       a->word[3] == b->word[3];
}

/**
 * struct thc_end - the end of a path that is not the aggregator's, which the tag of a membership
 *	packet covers
 * @addr: of the worker, or of the group
 * @port: UDP port, network order
 * @aggregator: number in the job of the aggregator at the other end, network order
 * @zero: zero
 */
struct thc_end {
	struct thc_addr	addr;
	__be16		port;
	__be16		aggregator;
	u32		zero;
};

#define THC_END_WORDS	((int)(sizeof(struct thc_end) / 8))

/* Writes address and port of @end into a record. */
THC_INLINE void thc_record_address_put(struct thc_record_address *r, const struct thc_end *end)
{
	int is_ip4 = thc_addr_is_v4(&end->addr);
	const u8 *from = (const u8 *)&end->addr;
	u32 i, bytes = is_ip4 ? 4 : 16;

	r->family = is_ip4 ? 4 : 6;
	r->reserved = 0;
	r->port = end->port;
	for (i = 0; i < 16; i++)
		r->addr[i] = i < bytes ? from[16 - bytes + i] : 0;
}

/* Reads what thc_record_address_put() writes; 0: it would not write this. */
THC_INLINE int thc_record_address_read(struct thc_end *end, const struct thc_record_address *r)
{
	u32 i, bytes = r->family == 4 ? 4 : 16;
	u8 *to = (u8 *)&end->addr;

	if (r->reserved || (r->family != 4 && r->family != 6))
		return 0;
	for (i = bytes; i < 16; i++)
		if (r->addr[i])
			return 0;
	*end = (struct thc_end){ .addr = thc_addr_v4(0), .port = r->port };
	for (i = 0; i < bytes; i++)
		to[16 - bytes + i] = r->addr[i];
	return thc_addr_is_v4(&end->addr) == (r->family == 4);
}

#endif /* THC_WIRE_ADDRESS_H */
