/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Why a worker must refuse a packet from its aggregator's address. Written from
 * Documentation/protocol.md and enum thc_drop_reason; shares no code with thc.ko, not even for
 * tags; the test derives the keys. For a job of one aggregator with the seal nh, data chunks in
 * flight and no norms. Only worker and aggregator have seen the requests in flight, so a forged
 * STALE that ends the epoch never has the right tag.
 */
#ifndef THC_SELFTESTS_ORACLE_H
#define THC_SELFTESTS_ORACLE_H

#include <endian.h>
#include <linux/thc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "tags.h"

/**
 * struct oracle - what the worker knows
 * @down: key of answers
 * @nh: the part of that key for NH
 * @lost: name of the key that ends the epoch
 * @welcome: key of WELCOME
 * @worker: the worker's end, as the tag of a WELCOME holds it
 * @epoch: the job's incarnation
 * @job: its number
 * @data_slots: W
 * @control_slots: slots behind the data slots
 * @first: oldest data chunk in flight
 * @end: chunk behind the newest in flight
 * @round: of their requests
 * @op: of their requests
 * @width: of the sum's lanes
 * @ranks: in the job, below 64
 * @joining: the worker waits for WELCOME, and knows only the job and the keys of joining
 */
struct oracle {
	struct tag_key		down;
	uint32_t		nh[THC_LANE_BYTES / 4];
	uint32_t		lost;
	struct tag_key		welcome;
	struct tag_end		worker;
	uint32_t		epoch;
	uint16_t		job;
	uint16_t		data_slots;
	uint16_t		control_slots;
	uint32_t		first;
	uint32_t		end;
	uint32_t		round;
	uint8_t			op;
	uint8_t			width;
	uint8_t			ranks;
	bool			joining;
};

/* Returns THC_DROP_NONE if the worker accepts the packet. */
enum thc_drop_reason oracle_reason(const struct oracle *o, const uint8_t *packet, size_t bytes);

#endif /* THC_SELFTESTS_ORACLE_H */
