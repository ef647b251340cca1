// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* A job as a client knows it: may it be served, and how much of it may be in flight? */
#include <errno.h>

#include "client.h"
#include "scheme.h"

int thc_job_check(const struct thc_spec *s, const struct thc_client_options *o)
{
	if (!thc_spec_is_sound(s, o->rank, !!o->key))
		return -EPROTO;
	return thc_scheme_of(s->scheme)->check(s) ? -EPROTO : 0;
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
