/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The Internet checksum (RFC 1071), for the UDP header of answers. The seal guards their contents;
 * an answer has a checksum because receivers coalesce only datagrams that have one (UDP GRO), and a
 * coalesced answer costs a fraction of a single one.
 *
 * An accumulator adds 32-bit halves exactly, so nothing is lost before the fold; sums are over
 * words as they lie in memory, whatever the byte order.
 */
#ifndef THC_CHECKSUM_H
#define THC_CHECKSUM_H

#include <thc/types.h>

/**
 * thc_checksum_of() - the accumulator of many 64-bit words, each as it lies in memory
 * @whole: sum of the words modulo 2^64
 * @upper: sum of their upper halves
 *
 * The sum of the lower halves follows from both, so the caller need not add it word by word.
 */
THC_INLINE u64 thc_checksum_of(u64 whole, u64 upper)
{
	return upper + (whole - (upper << 32));
}

/* Not complemented; to be stored, or added to another accumulator. */
THC_INLINE u16 thc_checksum_fold(u64 acc)
{
	acc = (acc & 0xffffffff) + (acc >> 32);
	acc = (acc & 0xffffffff) + (acc >> 32);
	acc = (acc & 0xffff) + (acc >> 16);
	acc = (acc & 0xffff) + (acc >> 16);
	return (acc & 0xffff) + (acc >> 16);
}

/* The field's value: UDP spells a checksum of 0 as 0xffff, 0 means none. */
THC_INLINE u16 thc_checksum_udp(u64 acc)
{
	u16 check = ~thc_checksum_fold(acc);

	return check ? check : 0xffff;
}

#endif /* THC_CHECKSUM_H */
