// SPDX-License-Identifier: GPL-2.0
#include "oracle.h"

/* "The packet sum", word by word. */
static uint32_t oracle_sum(const uint8_t *packet, size_t bytes)
{
	uint64_t a = 0, b = 0, x, w;
	size_t i;

	for (i = 0; i < bytes; i += 8) {
		memcpy(&w, packet + i, 8);
		w = le64toh(w);
		if (!i)
			w &= 0xffffffff;	/* the sum itself */
		a += w ^ (w >> 32);
		b += a;
	}
	x = a * 0x9e3779b97f4a7c15;
	x ^= x >> 32;
	x = x * 0xd6e8feb86659fd93 + b;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93;
	return (uint32_t)(x >> 32);
}

static bool oracle_is_sound(const struct thc_hdr *h, const uint8_t *packet, size_t bytes)
{
	return be32toh(h->sum) == oracle_sum(packet, bytes);
}

/* Does an aggregator send this op, WELCOME aside, to workers? */
static bool oracle_answers_with(uint8_t op)
{
	return (op >= THC_OP_LUT_ADD && op <= THC_OP_MAX) || op == THC_OP_WAIT ||
	       op == THC_OP_STALE;
}

/* A WELCOME that is none to a JOIN of ours. */
static enum thc_drop_reason oracle_welcome(const struct oracle *o, const struct thc_hdr *h,
					   const uint8_t *packet, size_t bytes)
{
	uint64_t nonce;

	if (bytes != sizeof(*h) + sizeof(struct thc_welcome))
		return THC_DROP_LENGTH;
	if (!oracle_is_sound(h, packet, bytes))
		return THC_DROP_SUM;
	if (be16toh(h->job) != o->job)
		return THC_DROP_JOB;
	memcpy(&nonce, packet + sizeof(*h) + offsetof(struct thc_welcome, nonce), 8);
	/* one with a nonce answers a JOIN, which no other job has sent */
	if (!nonce && be64toh(h->cookie) != o->cookie)
		return THC_DROP_COOKIE;
	if (h->reserved)
		return THC_DROP_RESERVED;
	/* one without says that the group is heard */
	return o->joining && !nonce ? THC_DROP_NONE : THC_DROP_UNEXPECTED;
}

/* Data chunk q lives in slot q mod W and is generation q div W there. */
static bool oracle_in_flight(const struct oracle *o, const struct thc_hdr *h)
{
	uint32_t q = be32toh(h->chunk);

	return be32toh(h->epoch) == o->epoch && q - o->first < o->end - o->first &&
	       be16toh(h->slot) == q % o->data_slots && be32toh(h->generation) == q / o->data_slots;
}

/* Does it say who is in the sum, each one of the job, and how many they are? */
static bool oracle_says_who(const struct oracle *o, const struct thc_hdr *h)
{
	uint64_t bitmap = be64toh(h->bitmap);
	unsigned int rank, count = 0;

	for (rank = 0; rank < o->ranks; rank++)
		count += bitmap >> rank & 1;
	return count && !(bitmap >> o->ranks) && be16toh(h->count) == count;
}

/* Of a sound packet about a chunk in flight. */
static enum thc_drop_reason oracle_answer(const struct oracle *o, const struct thc_hdr *h,
					  size_t bytes)
{
	/* nobody knows of the chunk any more */
	if (h->op == THC_OP_STALE && !(h->flags & THC_F_KNOWN))
		return THC_DROP_NONE;
	if (!oracle_says_who(o, h))
		return THC_DROP_MISMATCH;
	if (h->op == THC_OP_WAIT || h->op == THC_OP_STALE)
		return THC_DROP_NONE;
	return h->op == o->op && h->width == o->width && be32toh(h->round) == o->round &&
			       h->flags & THC_F_ANSWER && bytes == sizeof(*h) + THC_LANE_BYTES ?
		       THC_DROP_NONE :
		       THC_DROP_MISMATCH;
}

/* Of a sound packet about anything else. */
static enum thc_drop_reason oracle_stray(const struct oracle *o, const struct thc_hdr *h,
					 size_t bytes)
{
	size_t lanes = h->flags & THC_F_ANSWER ? THC_LANE_BYTES : 0;

	if (!oracle_answers_with(h->op))
		return THC_DROP_OP;
	if (bytes != sizeof(*h) + lanes)
		return THC_DROP_LENGTH;
	return be16toh(h->slot) >= o->data_slots + o->norm_slots ? THC_DROP_SLOT :
								   THC_DROP_UNEXPECTED;
}

enum thc_drop_reason oracle_reason(const struct oracle *o, const uint8_t *packet, size_t bytes)
{
	struct thc_hdr h;

	if (bytes < sizeof(h))
		return THC_DROP_TRUNCATED;
	memcpy(&h, packet, sizeof(h));
	if (o->joining && (h.version != THC_VERSION || h.op != THC_OP_WELCOME))
		return THC_DROP_UNEXPECTED;
	if (h.version != THC_VERSION)
		return THC_DROP_VERSION;
	if (h.op == THC_OP_WELCOME)
		return oracle_welcome(o, &h, packet, bytes);
	if (be16toh(h.job) != o->job)
		return THC_DROP_JOB;
	if (be64toh(h.cookie) != o->cookie)
		return THC_DROP_COOKIE;
	if (h.reserved)
		return THC_DROP_RESERVED;
	/* no sum runs over these */
	if (bytes % 8)
		return oracle_answers_with(h.op) ? THC_DROP_LENGTH : THC_DROP_OP;
	if (bytes > sizeof(h) + THC_LANE_BYTES)
		return THC_DROP_LENGTH;
	if (!oracle_is_sound(&h, packet, bytes))
		return THC_DROP_SUM;
	if (h.op == THC_OP_STALE && h.flags & THC_F_EPOCH)
		return (int32_t)(be32toh(h.epoch) - o->epoch) > 0 ? THC_DROP_NONE :
								    oracle_stray(o, &h, bytes);
	return oracle_in_flight(o, &h) ? oracle_answer(o, &h, bytes) : oracle_stray(o, &h, bytes);
}
