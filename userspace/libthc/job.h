/* SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0) */
/* The job's constants, from WELCOME, and what is made from them. */
#ifndef LIBTHC_JOB_H
#define LIBTHC_JOB_H

#include <stdint.h>

#include <linux/thc.h>

#include "codec.h"

/* The job's constants, from WELCOME, host order. */
struct thc_params {
	uint64_t	seed;
	uint32_t	epoch;
	uint32_t	table_hash;
	uint32_t	deadline_ms;
	uint16_t	ranks;
	uint16_t	data_slots;
	uint16_t	norm_slots;
	uint16_t	chunk;
	uint8_t		flags;
	uint8_t		reply;
	uint8_t		sum_width;
	uint8_t		block_log2;
	struct thc_table table;
};

struct thc_client;

/* -EPROTO: constants that this library cannot serve. */
int thc_params_take(struct thc_params *p, const struct thc_welcome *w, uint32_t epoch,
		    unsigned int rank);
/* client.window and why it is no larger; the sockets have room for so many @answers. */
void thc_window_choose(struct thc_client *c, uint32_t answers);

#endif /* LIBTHC_JOB_H */
