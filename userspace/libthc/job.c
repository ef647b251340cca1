// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * A job as a client knows it: its constants out of WELCOME, and what is made
 * from them.
 */
#include <errno.h>
#include <string.h>

#include <thc/wire/spec.h>

#include "client.h"

static double clamp_of(uint64_t bits)
{
	double t;

	memcpy(&t, &bits, sizeof(t));
	return t;
}

/* The welcome's table, as the daemon solved it; -EINVAL if it is none. */
static int take_table(const struct thc_welcome *w, struct thc_table *t)
{
	unsigned int i;

	*t = (struct thc_table){
		.bits = w->bits,
		.granularity = thc_be16(w->granularity),
		.t = clamp_of(thc_be64(w->clamp)),
	};
	if (t->bits < 1 || t->bits > THC_TABLE_BITS_MAX)
		return -EINVAL;
	t->levels = 1U << t->bits;
	for (i = 0; i < t->levels; i++)
		t->value[i] = thc_be16(w->table[i]);
	return 0;
}

int thc_params_take(struct thc_params *p, const struct thc_welcome *w, uint32_t epoch,
		    const struct thc_client_options *o)
{
	*p = (struct thc_params){
		.seed = thc_be64(w->seed),
		.epoch = epoch,
		.table_hash = thc_be32(w->table_hash),
		.ranks = thc_be16(w->ranks),
		.data_slots = thc_be16(w->data_slots),
		.norm_slots = thc_be16(w->norm_slots),
		.chunk = thc_be16(w->chunk),
		.deadline_ms = thc_be32(w->deadline_ms),
		.flags = w->flags,
		.reply = w->reply,
		.sum_width = w->sum_width,
		.block_log2 = w->block_log2 % 32,	/* a shift, even if it is refused */
	};
	if (!thc_block_valid(w->block_log2))
		return -EPROTO;
	if (!thc_welcome_is_sound(w, o->rank, !!o->key) || thc_be16(w->shards) > 1 ||
	    take_table(w, &p->table) || thc_table_check(&p->table, p->ranks, p->sum_width))
		return -EPROTO;
	return 0;
}

void thc_window_choose(struct thc_client *c, uint32_t answers)
{
	c->window = c->params.data_slots;
	c->window_limit = "the job's slots";
	if (answers < c->window) {
		c->window = answers ? answers : 1;
		c->window_limit = "the receive buffer (net.core.rmem_max)";
	}
	if (c->options.window && c->options.window < c->window) {
		c->window = c->options.window;
		c->window_limit = "the option window";
	}
}
