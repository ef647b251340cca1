/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The seal: by what a packet shows that it is of its job and came as it was sent. It is the
 * job's cookie, in the clear, and the packet sum, which needs no secret. All senders
 * and receivers use these functions; no other code looks at cookie and sum.
 */
#ifndef THC_SEAL_H
#define THC_SEAL_H

#include <thc/wire/sum.h>

/* Does the packet carry its job's cookie? */
THC_INLINE int thc_seal_cookie_ok(const struct thc_hdr *h, u64 cookie)
{
	return h->cookie == thc_be64(cookie);
}

/**
 * thc_seal_summed() - seals a packet whose payload has been summed before
 * @h: the header, complete but for the sum
 * @payload: sum of the @words 64-bit words behind it
 *
 * A packet with THC_F_NOSUM in its flags has a sum of zero.
 */
THC_INLINE void thc_seal_summed(struct thc_hdr *h, struct thc_sum payload, u64 words)
{
	h->sum = h->flags & THC_F_NOSUM ? 0 : thc_be32(thc_sum32(h, payload, words));
}

/* Seals @h, complete but for the sum, with @words 64-bit words at @payload to come behind it. */
THC_INLINE void thc_seal(struct thc_hdr *h, const void *payload, int words)
{
	h->sum = h->flags & THC_F_NOSUM ? 0 : thc_be32(thc_sum_packet(h, payload, words));
}

/* Is the packet as it was sent? Whether its sum may be missing, the caller knows. */
THC_INLINE int thc_seal_ok(const struct thc_hdr *h, const void *payload, int words)
{
	return h->sum == thc_be32(thc_sum_packet(h, payload, words));
}

#endif /* THC_SEAL_H */
