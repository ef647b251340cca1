// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Limits of a job at a client: can the client serve it, and how much may be in flight? */
#include <errno.h>

#include "client.h"
#include "scheme.h"
#include "scheme_thc.h"
#include "table.h"

int thc_job_check(const struct thc_spec *s, const struct thc_client_options *o)
{
	if (!thc_spec_is_sound(s, o->rank, !!o->key))
		return -EPROTO;
	return thc_scheme_of(s->scheme)->check(s) ? -EPROTO : 0;
}

/* Largest part of a gradient's squared length that a rank may lose: from 1 on its error memory
 * would grow with each round. The margin is for the agreed scale, which is that of the largest
 * rank: squared it is up to a tenth above this rank's.
 */
#define LOSS_MOST	0.85
/* Least bits of uthc. A range spans all ranks' values, some 8 standard deviations of 1024 values:
 * with fewer bits a step is so long that rounding loses more than a rank sends.
 */
#define UTHC_BITS_LEAST	3

int thc_feedback_check(const struct thc_client *c, const struct thc_scheme *s)
{
	const struct thc_spec *w = &c->spec;
	struct thc_table t;
	double loss;

	if (!(c->options.flags & THC_CLIENT_ERROR_FEEDBACK) || !s->loses)
		return 0;
	if (s->id == THC_SCHEME_UTHC) {
		if (w->bits >= UTHC_BITS_LEAST)
			return 0;
		return thc_fail(
			-EOPNOTSUPP,
			"by %u bits of uthc a rank loses more than it sends, and error memories would grow without end: give the job at least %d bits, or no error feedback here",
			w->bits, UTHC_BITS_LEAST);
	}
	if (s->id != THC_SCHEME_THC || thc_table_read(w, &t))
		return 0;
	thc_table_price(&t);
	loss = thc_table_nmse(&t, 1);
	if (loss <= LOSS_MOST)
		return 0;
	return thc_fail(
		-EOPNOTSUPP,
		"by the job's table a rank loses %.2f of a gradient's squared length, and error memories would grow without end: leave clamp and table to thcd or give the job more bits, or no error feedback here",
		loss);
}

void thc_window_choose(struct thc_client *c, uint32_t answers)
{
	c->window = c->spec.data_slots;
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
