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

/* The job's table, as the daemon solved it; -EINVAL if it is none. Levels rise to g: what is
 * behind it is not used.
 */
static int take_table(const struct thc_spec *s, struct thc_table *t)
{
	unsigned int i, used = 1;

	while (used < sizeof(s->level) / sizeof(s->level[0]) && s->level[used - 1] < s->granularity)
		used++;
	*t = (struct thc_table){ .granularity = s->granularity, .t = clamp_of(s->clamp) };
	while (1U << t->bits < used)
		t->bits++;
	t->levels = 1U << t->bits;
	if (t->bits < 1 || t->levels != used)
		return -EINVAL;
	for (i = used; i < sizeof(s->level) / sizeof(s->level[0]); i++)
		if (s->level[i])
			return -EINVAL;
	for (i = 0; i < used; i++)
		t->value[i] = s->level[i];
	return 0;
}

int thc_params_take(struct thc_params *p, const struct thc_spec *s, uint32_t epoch,
		    const struct thc_client_options *o)
{
	*p = (struct thc_params){
		.seed = s->seed,
		.epoch = epoch,
		.constants = s->constants,
		.ranks = s->ranks,
		.data_slots = s->data_slots,
		.control_slots = s->control_slots,
		.deadline_ms = s->deadline_ms,
		.features = s->features,
		.reply = s->reply,
		.sum_width = s->sum_width,
		.block_log2 = s->block_log2 % 32,	/* a shift, even if it is refused */
	};
	if (!thc_block_valid(s->block_log2) || !thc_spec_is_sound(s, o->rank, !!o->key))
		return -EPROTO;
	p->chunk = THC_COORDINATES(s->sum_width);
	return take_table(s, &p->table) || thc_table_check(&p->table, p->ranks, p->sum_width) ?
		       -EPROTO :
		       0;
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
