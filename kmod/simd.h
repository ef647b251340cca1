/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Lane loops and NH per instruction set. include/thc/aggregator/lane.h and wire/nh.h define their
 * results, bit for bit, also where a table overflows its lanes; only their speed differs.
 *
 * simd_scalar.c, simd_avx2.c and simd_avx512.c are also compiled in user
 * space, where tests/unit/test_kmod_simd.c compares them on the instruction
 * sets that emulators lack. Only the kernel has simd.c, which chooses one and
 * owns the vector unit while a loop runs.
 */
#ifndef THC_KMOD_SIMD_H
#define THC_KMOD_SIMD_H

#include <thc/aggregator/lane.h>
#include <thc/wire/nh.h>

/**
 * struct thc_simd_ops - the loops of one instruction set
 * @name: as the module's parameter "simd" takes it
 *
 * @lanes: THC_LANE_BYTES, aligned to words. @payload: thc_lane_payload() bytes of
 * its kind, of any alignment. The caller owns the vector unit, if the loops need it.
 * @group is thc_lanes_group() for rows of THC_FORMATS_GROUP, and does nothing for other
 * rows; it may read the header in front of @payload.
 * @nh writes thc_nh() of @words words to its first parameter.
 */
struct thc_simd_ops {
	const char *name;
	void (*lut8)(u64 *lanes, const void *payload, const struct thc_pairs *p, int first);
	void (*lut16)(u64 *lanes, const void *payload, const struct thc_pairs *p, int first);
	void (*group)(u64 *lanes, const void *payload, const struct thc_pairs *p, u32 bits,
		      u32 width, int first);
	void (*linear8)(u64 *lanes, const void *payload, int first);
	void (*add8)(u64 *lanes, const void *payload, int first);
	void (*add16)(u64 *lanes, const void *payload, int first);
	void (*add32)(u64 *lanes, const void *payload, int first);
	void (*nh)(u64 *nh, const u32 *key, const void *data, int words);
};

extern const struct thc_simd_ops thc_simd_scalar;
extern const struct thc_simd_ops thc_simd_avx2;
extern const struct thc_simd_ops thc_simd_avx512; /* F, BW, VL and VBMI */

/* Defines thc_simd_@set from the loops @set_lut8() and so on, add_row() and @set_nh(). Loops are
 * compiled twice, for @first 0 and 1, and add_row() for each row, too.
 */
#define THC_SIMD_TABLE(set, name) \
	static void name(u64 *lanes, const void *payload, const struct thc_pairs *p, int first) \
	{ \
		if (first) \
			set##_##name(lanes, payload, p, 1); \
		else \
			set##_##name(lanes, payload, p, 0); \
	}

#define THC_SIMD_PLAIN(set, name) \
	static void name(u64 *lanes, const void *payload, int first) \
	{ \
		if (first) \
			set##_##name(lanes, payload, 1); \
		else \
			set##_##name(lanes, payload, 0); \
	}

#define THC_SIMD_ROW(kind, name, op, up, sum, ...) \
	case (up) << 8 | (sum): \
		if (first) \
			add_row(lanes, payload, p, up, sum, 1); \
		else \
			add_row(lanes, payload, p, up, sum, 0); \
		break;

#define THC_SIMD_OPS(set, text) \
	THC_SIMD_TABLE(set, lut8) \
	THC_SIMD_TABLE(set, lut16) \
	static void group(u64 *lanes, const void *payload, const struct thc_pairs *p, u32 bits, \
			  u32 width, int first) \
	{ \
		switch (bits << 8 | width) { \
			THC_FORMATS_GROUP(THC_SIMD_ROW) \
		} \
	} \
	THC_SIMD_PLAIN(set, linear8) \
	THC_SIMD_PLAIN(set, add8) \
	THC_SIMD_PLAIN(set, add16) \
	THC_SIMD_PLAIN(set, add32) \
	const struct thc_simd_ops thc_simd_##set = { \
		.name = text, \
		.lut8 = lut8, \
		.lut16 = lut16, \
		.group = group, \
		.linear8 = linear8, \
		.add8 = add8, \
		.add16 = add16, \
		.add32 = add32, \
		.nh = set##_nh, \
	}

#ifdef __KERNEL__
/* Each runs its loop; 0, or -EBUSY if the vector unit cannot be used now. */
int thc_simd_lut8(u64 *lanes, const void *payload, const struct thc_pairs *p, int first);
int thc_simd_lut16(u64 *lanes, const void *payload, const struct thc_pairs *p, int first);
int thc_simd_group(u64 *lanes, const void *payload, const struct thc_pairs *p, u32 bits, u32 width,
		   int first);
int thc_simd_linear8(u64 *lanes, const void *payload, int first);
int thc_simd_add8(u64 *lanes, const void *payload, int first);
int thc_simd_add16(u64 *lanes, const void *payload, int first);
int thc_simd_add32(u64 *lanes, const void *payload, int first);
int thc_simd_nh(u64 *nh, const u32 *key, const void *data, int words);

/* Of the instruction set in use. */
const char *thc_simd_name(void);

/* Chooses the instruction set; before anything else of this file. */
void thc_simd_init(void);

/* Offers XDP programs what include/thc/aggregator/kfunc.h declares, if the kernel can. */
void thc_kfunc_init(void);
#endif

#endif /* THC_KMOD_SIMD_H */
