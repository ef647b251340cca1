/* SPDX-License-Identifier: GPL-2.0 */
/* What two coordinates come to, as the protocol says it: shares no code with what is tested. */
#ifndef THC_TESTS_MEET_H
#define THC_TESTS_MEET_H

#include <stdint.h>

#include <linux/thc_wire.h>

/* Of @op's lanes, not yet cut to the width of the answer. */
static inline uint32_t meet(uint8_t op, uint32_t a, uint32_t b)
{
	switch (op) {
	case THC_OP_OR:
		return a | b;
	case THC_OP_MAX:
	case THC_OP_CLAIM:
	case THC_OP_CLAIM_HIGH:
		return a > b ? a : b;
	default:
		return a + b;
	}
}

#endif /* THC_TESTS_MEET_H */
