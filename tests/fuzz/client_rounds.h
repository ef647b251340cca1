/* SPDX-License-Identifier: GPL-2.0 */
/* fuzz_client: all-reduces that were begun, and what has come back of them. */
#ifndef THC_FUZZ_CLIENT_ROUNDS_H
#define THC_FUZZ_CLIENT_ROUNDS_H

#include <errno.h>
#include <string.h>

#include "client_world.h"

static struct under_way {
	struct thc_request *request;
	unsigned int round;
	size_t count;
	enum thc_dtype dtype;
	struct thc_call call;
	uint8_t *buf;
	uint8_t *was;
	float before[VALUES_MAX];	/* its error memory */
} under_way[UNDER_WAY_MAX];

static unsigned int rounds;	/* begun in this session */

static float some_float(uint32_t *x)
{
	*x = *x * 1664525 + 1013904223;
	return (float)(int32_t)*x * 0x1p-28f;
}

/* The chunks of a round that were asked for, in order; how many. */
static unsigned int chunks_of(unsigned int round, bool norms, const struct asked **out)
{
	unsigned int n = 0;
	uint32_t i;

	for (i = 0; i < w.asks; i++)
		if (asked[i].norms == norms &&
		    thc_be32(((const struct thc_hdr *)asked[i].at)->round) == round)
			out[n++] = &asked[i];
	return n;
}

/* What the claims of the agreement @a come to: 0, -EBADMSG or -EDOM. */
static int agreed(const struct asked *a)
{
	const uint8_t *own = a->at + sizeof(struct thc_hdr) + CLAIM * w.client->options.rank;
	static const uint8_t fine[4];
	bool differ = false, bad = false, held = !memcmp(own + 24, fine, 4);
	uint8_t digest[4];
	unsigned int r;

	memcpy(digest, own + 20, 4);

	for (r = 0; r < w.client->spec.ranks; r++) {
		const uint8_t *claim = a->lanes + CLAIM * r;

		if (!claim[4])
			continue;
		bad |= claim[28] != 0;
		/* the upper bits of the last lane, too: a sketch, or none */
		differ |= memcmp(claim, own, 20) || (claim[31] ^ own[31]) >> 4;
		/* of those who have missed nothing */
		if (memcmp(claim + 24, fine, 4))
			continue;
		differ |= held && memcmp(claim + 20, digest, 4);
		memcpy(digest, claim + 20, 4);
		held = true;
	}
	bad |= own[28] != 0;
	return differ ? -EBADMSG : bad ? -EDOM : 0;
}

/* A lane of MAX: a norm, or one end of a range so that MAX orders both signs. */
static float scale_from(const uint8_t *lane)
{
	uint32_t bits = (uint32_t)lane[3] << 24 | lane[2] << 16 | lane[1] << 8 | lane[0];
	float scale;

	if (w.client->spec.scheme == THC_SCHEME_UTHC)
		bits = bits & 1U << 31 ? bits ^ 1U << 31 : ~bits;
	memcpy(&scale, &bits, sizeof(scale));
	return scale;
}

#endif /* THC_FUZZ_CLIENT_ROUNDS_H */
