// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * One all-reduce, from the caller's buffer to the mean in it. Computation comes in slices, so that
 * the engine can look at the sockets in between. The caller's values that results replace are kept,
 * and restored if the request fails. Values replaced after success are not kept.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "dtype.h"
#include "request.h"
#include "rows.h"
#include "scheme.h"
#include "transport.h"

struct thc_request *thc_request_create(struct thc_client *c, void *buf, size_t count,
				       enum thc_dtype dtype, const struct thc_scheme *scheme,
				       uint64_t key)
{
	struct thc_request *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	sem_init(&r->ended, 0, 0);
	r->client = c;
	r->buf = buf;
	r->count = count;
	r->dtype = dtype;
	r->key = key;
	r->scheme = scheme;
	return r;
}

void thc_request_destroy(struct thc_request *r)
{
	sem_destroy(&r->ended);
	thc_row_call_destroy(r->rows);
	free(r);
}

int thc_request_prepare(struct thc_request *r)
{
	size_t bytes = r->count * thc_dtype_size(r->dtype);
	struct thc_client *c = r->client;
	size_t least = r->count * c->counted_value;
	struct thc_buffer *rx = &c->transport->rx;
	size_t needed = c->transport->ops->rx_bytes(bytes);
	size_t growth = needed > rx->bytes ? needed - rx->bytes : 0;

	thc_agree_prepare(r);
	r->counted = thc_budget_begin(c, bytes < least ? least : bytes);
	if (!r->scheme->prepare(r, growth) && !thc_buffer_grow(c, rx, needed))
		return 0;
	snprintf(r->sentence, sizeof(r->sentence), "out of memory for an all-reduce of %zu values",
		 r->count);
	return -ENOMEM;
}

void thc_request_release(struct thc_request *r)
{
	struct thc_client *c = r->client;
	unsigned int k;

	if (r->status < 0)
		r->scheme->undo(r);
	thc_buffers_give(c, &r->taken);
	for (k = 0; k < THC_TAKEN_LATE; k++)
		thc_buffers_give(c, &r->late[k]);
	free(r->progress);
	r->progress = NULL;
	thc_budget_end(c, r->counted);
	r->counted = 0;
}

/* NaN in every value of the caller's buffer. */
static void fill_nonfinite(struct thc_request *r)
{
	static const uint16_t nan16[] = { [THC_FP16] = 0x7e00, [THC_BF16] = 0x7fc0 };
	static const uint32_t nan32 = 0x7fc00000;
	size_t size = thc_dtype_size(r->dtype), i;
	const void *nan = r->dtype == THC_FP32 ? (const void *)&nan32 : &nan16[r->dtype];

	for (i = 0; i < r->count; i++)
		memcpy((uint8_t *)r->buf + i * size, nan, size);
}

void thc_request_finish(struct thc_request *r)
{
	if (r->status == THC_NONFINITE) {
		if (!r->rows)
			fill_nonfinite(r);
		return;
	}
	if (r->scheme->ended)
		r->scheme->ended(r);
	if (!r->error)
		return;
	pthread_mutex_lock(&r->client->lock);	/* thc_error_export() may be reading it */
	thc_residual_swap(r->error, true);
	pthread_mutex_unlock(&r->client->lock);
}
