// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/*
 * Sequence numbers to slots: chunk q of a stream lives in slot q mod slots,
 * generation q div slots, and may be sent once chunk q - slots has its
 * answer. That rule is what keeps results from being overwritten while
 * somebody still needs them (include/thc/slot.h says why).
 */
#include <errno.h>
#include <stdlib.h>

#include "client.h"

int thc_stream_init(struct thc_stream *s, uint32_t slot_base, uint32_t slots)
{
	*s = (struct thc_stream){ .slot_base = slot_base, .slots = slots };
	s->flight = calloc(slots, sizeof(*s->flight));
	if (!s->flight)
		s->slots = 0;
	return s->flight ? 0 : -ENOMEM;
}

void thc_stream_exit(struct thc_stream *s)
{
	free(s->flight);
	*s = (struct thc_stream){ 0 };
}

struct thc_flight *thc_stream_find(struct thc_stream *s, const struct thc_hdr *h)
{
	uint32_t slot = thc_be16(h->slot) - s->slot_base;

	return slot < s->slots ? &s->flight[slot] : NULL;
}

bool thc_flight_matches(const struct thc_stream *s, const struct thc_flight *f,
			const struct thc_hdr *h)
{
	return thc_be32(h->chunk) == (uint32_t)f->sequence &&
	       thc_be32(h->generation) == (uint32_t)(f->sequence / s->slots);
}

bool thc_stream_may_send(const struct thc_stream *s, uint32_t window)
{
	return s->in_flight < window && !s->flight[s->next % s->slots].request;
}

void thc_stream_fill(const struct thc_stream *s, struct thc_hdr *h, uint64_t sequence)
{
	h->chunk = thc_be32((uint32_t)sequence);
	h->slot = thc_be16((uint16_t)(s->slot_base + sequence % s->slots));
	h->generation = thc_be32((uint32_t)(sequence / s->slots));
}
