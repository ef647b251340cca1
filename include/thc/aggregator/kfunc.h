/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The functions of thc.ko that XDP programs call: the loops of lane.h on the CPU's vector unit, one
 * per lane kind (for the rows in THC_FORMATS_GROUP, one per width of a sum), and the seal nh. Their
 * results are bit for bit those of BPF. The module that defines the functions and the program that
 * calls them share these declarations. Each type has one size, from which the verifier knows that
 * lanes, payload and key are there. For a pointer without a type the verifier takes the size from
 * the next parameter, whose name has to end in __sz.
 *
 * A loop returns 0, or -EBUSY if XDP has interrupted a user of the vector unit inside the kernel:
 * then nothing was done, and the caller runs its own loop. -EINVAL: a pointer is NULL, or there is
 * no row of such packets and sums. @first as in lane.h.
 *
 * A function of the seal always returns its number: it computes without the vector unit where it
 * must. 0: a pointer is NULL.
 */
#ifndef THC_KFUNC_H
#define THC_KFUNC_H

#include <thc/aggregator/lane.h>
#include <thc/wire/seal.h>

/* One generation's lanes. */
struct thc_lane_block {
	u64 word[THC_LANE_WORDS];
};

#define THC_PAYLOAD_TYPE(bytes) \
	struct thc_payload_##bytes { \
		u8 byte[bytes]; \
	}

THC_PAYLOAD_TYPE(16);
THC_PAYLOAD_TYPE(256);
THC_PAYLOAD_TYPE(512);
THC_PAYLOAD_TYPE(1024);

/* A packet with so many bytes of payload. */
#define THC_SIZED_TYPE(bytes) \
	struct thc_sized_##bytes { \
		struct thc_hdr hdr; \
		u8 payload[bytes]; \
	};

THC_PAYLOADS(THC_SIZED_TYPE)

#ifdef __bpf__
#define THC_KFUNC extern __attribute__((section(".ksyms")))
#else
#define THC_KFUNC
#endif

/* Loops, as X(lane kind, payload bytes): those that use a table, and those that do not. */
#define THC_KFUNCS_TABLE(X) X(lut8, 512) X(lut16, 256)
#define THC_KFUNCS_PLAIN(X) X(linear8, 512) X(add8, 1024) X(add16, 1024) X(add32, 1024)

#define THC_KFUNC_TABLE(name, bytes) \
	THC_KFUNC int thc_kfunc_##name(struct thc_lane_block *lanes, \
				       const struct thc_payload_##bytes *payload, \
				       const struct thc_pairs *table, u32 first);
#define THC_KFUNC_PLAIN(name, bytes) \
	THC_KFUNC int thc_kfunc_##name(struct thc_lane_block *lanes, \
				       const struct thc_payload_##bytes *payload, u32 first);

THC_KFUNCS_TABLE(THC_KFUNC_TABLE)
THC_KFUNCS_PLAIN(THC_KFUNC_PLAIN)

/* Those of THC_FORMATS_GROUP, as X(bits of a sum). How many bits an index has follows from the
 * bytes of the packet, header and payload, so that no more than these is read.
 */
#define THC_KFUNCS_GROUP(X) X(4) X(8) X(16)

#define THC_KFUNC_GROUP(width) \
	THC_KFUNC int thc_kfunc_group##width(struct thc_lane_block *lanes, const void *packet, \
					     u32 packet__sz, const struct thc_pairs *table, \
					     u32 first);

THC_KFUNCS_GROUP(THC_KFUNC_GROUP)

/* thc_seal_tag_of() with the seal nh. */
#define THC_KFUNC_TAG(bytes) \
	THC_KFUNC u64 thc_kfunc_tag_##bytes(const struct thc_sized_##bytes *packet, \
					    const struct thc_seal_key *key);

THC_PAYLOADS_LENT(THC_KFUNC_TAG)

/* thc_nh() of little-endian lanes. */
THC_KFUNC u64 thc_kfunc_nh(const struct thc_payload_1024 *lanes, const struct thc_seal_key *key);

#endif /* THC_KFUNC_H */
