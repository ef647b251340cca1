// SPDX-License-Identifier: (LGPL-2.1 OR BSD-2-Clause OR GPL-2.0)
/* Scales of blocks to lanes of MAX, and back. */
#include <thc/types.h>
#include <thc/wire/format.h>

#include "pipeline.h"
#include "request.h"
#include "scales.h"

static uint32_t blocks_a_chunk(const struct thc_scales *s)
{
	return THC_LANE_BYTES / sizeof(uint32_t) / (s->exact ? 2 : 1);
}

void thc_scales_init(struct thc_scales *s, size_t count, bool exact)
{
	s->exact = exact;
	s->blocks = (uint32_t)((count + THC_SCALE_BLOCK - 1) / THC_SCALE_BLOCK);
	s->chunks = (s->blocks + blocks_a_chunk(s) - 1) / blocks_a_chunk(s);
}

void thc_scales_lay_out(struct thc_scales *s, struct thc_layout *l)
{
	s->of = thc_lay(l, s->blocks * sizeof(*s->of));
	s->packets = thc_lay(l, s->chunks * THC_ANSWER_BYTES);
	s->came = thc_lay(l, s->chunks);
}

struct thc_phase thc_scales_phase(const struct thc_scales *s, struct thc_request *r)
{
	return (struct thc_phase){
		.request = r, .packets = s->packets, .stride = THC_ANSWER_BYTES,
		.payload = THC_LANE_BYTES, .sized = s->chunks, .op = THC_OP_MAX, .width = 32,
		.control = true, .closed = true,
	};
}

void thc_scales_send(const struct thc_scales *s, struct thc_phase *p)
{
	uint32_t index, k;

	for (index = 0; index < s->chunks; index++) {
		__le32 *lanes = (void *)(thc_phase_packet(p, index) + 1);

		for (k = 0; k < blocks_a_chunk(s); k++) {
			uint32_t block = index * blocks_a_chunk(s) + k;

			if (block >= s->blocks)
				break;
			*lanes++ = thc_le32(thc_scale_top_lane(s->of[block]));
			if (s->exact)
				*lanes++ = thc_le32(thc_scale_low_lane(s->of[block]));
		}
		thc_pipeline_ready(p, index);
	}
}

void thc_scales_answer(struct thc_scales *s, uint32_t index, const uint8_t *lanes)
{
	const __le32 *lane = (const void *)lanes;
	uint32_t block = index * blocks_a_chunk(s), k;

	for (k = 0; k < blocks_a_chunk(s) && block < s->blocks; k++, block++) {
		uint32_t top = thc_le32(*lane++), low = s->exact ? thc_le32(*lane++) : 0;

		s->of[block] = thc_scale_of_lanes(top, low);
	}
	s->came[index] = 1;
	while (s->prefix < s->chunks && s->came[s->prefix])
		s->prefix++;
	block = s->prefix * blocks_a_chunk(s);
	s->known = block < s->blocks ? block : s->blocks;
}
