/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Why a worker must refuse a packet that comes from its aggregator: written from
 * Documentation/protocol.md and enum thc_drop_reason, shares no code with thc.ko, the
 * packet sum included. For a job of one aggregator, whose packets carry sums, that has
 * data chunks in flight and no norms.
 */
#ifndef THC_SELFTESTS_ORACLE_H
#define THC_SELFTESTS_ORACLE_H

#include <endian.h>
#include <linux/thc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/**
 * struct oracle - what the worker knows
 * @cookie: of the job
 * @epoch: its incarnation
 * @job: its number
 * @data_slots: W
 * @norm_slots: behind these
 * @first: data chunk, the oldest in flight
 * @end: behind the newest in flight
 * @round: of their requests
 * @op: of their requests
 * @width: of the sum's lanes
 * @ranks: in the job, below 64
 * @joining: it knows only cookie and job, and waits for WELCOME
 */
struct oracle {
	uint64_t	cookie;
	uint32_t	epoch;
	uint16_t	job;
	uint16_t	data_slots;
	uint16_t	norm_slots;
	uint32_t	first;
	uint32_t	end;
	uint32_t	round;
	uint8_t		op;
	uint8_t		width;
	uint8_t		ranks;
	bool		joining;
};

/* THC_DROP_NONE: it is not refused, something happens. */
enum thc_drop_reason oracle_reason(const struct oracle *o, const uint8_t *packet, size_t bytes);

#endif /* THC_SELFTESTS_ORACLE_H */
