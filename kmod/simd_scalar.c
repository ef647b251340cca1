// SPDX-License-Identifier: GPL-2.0
/*
 * The lane loops of include/thc/aggregator/lane.h and NH as they stand, for CPUs without a
 * vector unit that we know.
 */
#include "simd.h"

#define scalar_lut8	thc_lanes_lut8
#define scalar_lut16	thc_lanes_lut16
#define add_row		thc_lanes_group
#define scalar_linear8	thc_lanes_linear8
#define scalar_add8	thc_lanes_add8
#define scalar_add16	thc_lanes_add16
#define scalar_add32	thc_lanes_add32

static void scalar_nh(u64 *nh, const u32 *key, const void *data, int words)
{
	*nh = thc_nh(key, data, words);
}

THC_SIMD_OPS(scalar, "scalar");
