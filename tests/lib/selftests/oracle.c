// SPDX-License-Identifier: GPL-2.0
#include <thc/wire/format.h>

#include "oracle.h"

static bool oracle_is_answer(const struct oracle *o, const struct thc_hdr *h, const uint8_t *packet,
			     size_t bytes)
{
	uint64_t nh = tag_nh(o->nh, packet + sizeof(*h), bytes - sizeof(*h));

	return be64toh(h->tag) == tag_of_data(&o->down, packet, nh);
}

/* Does an aggregator send this op, WELCOME aside, to workers? */
static bool oracle_answers_with(uint8_t op)
{
	return (op >= 1 && op <= 7 && op != 5) || op == THC_OP_WAIT || op == THC_OP_STALE;
}

/* A part of WELCOME has eight words of its own and whole records, which also consist of words. */
static enum thc_drop_reason oracle_form(const uint8_t *payload, size_t bytes)
{
	const uint8_t *part = payload + offsetof(struct thc_welcome, part);
	const uint8_t *parts = payload + offsetof(struct thc_welcome, parts);

	if (bytes % 8)
		return THC_DROP_LENGTH;
	if (payload[offsetof(struct thc_welcome, reserved)] || *parts < 1 || *parts > 16 ||
	    *part >= *parts)
		return THC_DROP_RESERVED;
	return THC_DROP_NONE;
}

/* A WELCOME or CHALLENGE that answers no JOIN of this worker. */
static enum thc_drop_reason oracle_welcome(const struct oracle *o, const struct thc_hdr *h,
					   const uint8_t *packet, size_t bytes)
{
	static const uint8_t none[THC_NONCE_BYTES];
	bool is_welcome = h->op == THC_OP_WELCOME;
	enum thc_drop_reason why = THC_DROP_NONE;

	packet += sizeof(*h);
	bytes -= sizeof(*h);
	if (is_welcome ? bytes < 64 || bytes > 1024 : bytes != 32)
		return THC_DROP_LENGTH;
	if (be16toh(h->job) != o->job)
		return THC_DROP_JOB;
	if (is_welcome)
		why = oracle_form(packet, bytes);
	if (why)
		return why;
	/* an unsealed refusal counts only with the nonce of a JOIN, which this one lacks */
	if (be32toh(h->key_id) != o->welcome.id)
		return THC_DROP_KEY;
	/* the nonce is checked before the tag: a WELCOME without one is for a group, but came to a
	 * worker
	 */
	if (is_welcome && !memcmp(packet, none, sizeof(none)))
		return THC_DROP_ADDRESS;
	return be64toh(h->tag) == tag_of_membership(&o->welcome, h, &o->worker, packet, bytes) ?
		       THC_DROP_UNEXPECTED :
		       THC_DROP_TAG;
}

/* Data chunk q lives in slot q mod W and is generation q div W there. */
static bool oracle_in_flight(const struct oracle *o, const struct thc_hdr *h)
{
	uint32_t q = be32toh(h->chunk);

	return q - o->first < o->end - o->first && be16toh(h->slot) == q % o->data_slots &&
	       be32toh(h->generation) == q / o->data_slots;
}

/* Are the ranks in the sum named, all of them of the job, and rightly counted? */
static bool oracle_says_who(const struct oracle *o, const struct thc_hdr *h)
{
	uint64_t bitmap = be64toh(h->bitmap);
	unsigned int rank, count = 0;

	for (rank = 0; rank < o->ranks; rank++)
		count += bitmap >> rank & 1;
	return count && !(bitmap >> o->ranks) && be16toh(h->count) == count;
}

/* A sum of indices may answer lanes, and vice versa. */
static bool oracle_is_of_kind(uint8_t op, uint8_t asked)
{
	return op == asked || (asked <= THC_OP_ADD && (op == THC_OP_LUT_ADD || op == THC_OP_ADD));
}

/* Of a sealed packet about a chunk in flight. */
static enum thc_drop_reason oracle_answer(const struct oracle *o, const struct thc_hdr *h,
					  size_t bytes)
{
	/* the aggregator no longer has the chunk */
	if (h->op == THC_OP_STALE && !(h->flags & THC_F_KNOWN))
		return THC_DROP_NONE;
	if (!oracle_says_who(o, h))
		return THC_DROP_MISMATCH;
	if (h->op == THC_OP_WAIT || h->op == THC_OP_STALE)
		return THC_DROP_NONE;
	return oracle_is_of_kind(h->op, o->op) && h->width == o->width &&
			       be32toh(h->round) == o->round && h->flags & THC_F_ANSWER &&
			       bytes == sizeof(*h) + THC_LANE_BYTES ?
		       THC_DROP_NONE :
		       THC_DROP_MISMATCH;
}

/* Judges a packet of the job about any other chunk. */
static enum thc_drop_reason oracle_stray(const struct oracle *o, const struct thc_hdr *h,
					 size_t bytes)
{
	size_t lanes = h->flags & THC_F_ANSWER ? THC_LANE_BYTES : 0;

	if (!oracle_answers_with(h->op))
		return THC_DROP_OP;
	if (bytes != sizeof(*h) + lanes)
		return THC_DROP_LENGTH;
	return be16toh(h->slot) >= o->data_slots + o->control_slots ? THC_DROP_SLOT :
								      THC_DROP_UNEXPECTED;
}

/* Judges a STALE that ends the epoch: it must name another epoch, and a request in flight. */
static enum thc_drop_reason oracle_end(const struct oracle *o, const struct thc_hdr *h,
				       size_t bytes)
{
	if (be32toh(h->epoch) == o->epoch || !oracle_in_flight(o, h))
		return oracle_stray(o, h, bytes);
	return bytes > sizeof(*h) + THC_LANE_BYTES ? THC_DROP_LENGTH : THC_DROP_TAG;
}

enum thc_drop_reason oracle_reason(const struct oracle *o, const uint8_t *packet, size_t bytes)
{
	struct thc_hdr h;
	bool ends;

	if (bytes < sizeof(h))
		return THC_DROP_TRUNCATED;
	memcpy(&h, packet, sizeof(h));
	if (o->joining && (h.version != THC_VERSION || !thc_op_is_joining(h.op)))
		return THC_DROP_UNEXPECTED;
	if (h.version != THC_VERSION)
		return THC_DROP_VERSION;
	if (thc_op_is_joining(h.op))
		return oracle_welcome(o, &h, packet, bytes);
	if (be16toh(h.job) != o->job)
		return THC_DROP_JOB;
	ends = h.op == THC_OP_STALE && h.flags & THC_F_EPOCH;
	if (be32toh(h.key_id) != (ends ? o->lost : o->down.id))
		return THC_DROP_KEY;
	/* a tag covers whole words only */
	if (bytes % 8)
		return oracle_answers_with(h.op) ? THC_DROP_LENGTH : THC_DROP_OP;
	if (ends)
		return oracle_end(o, &h, bytes);
	if (bytes > sizeof(h) + THC_LANE_BYTES)
		return THC_DROP_LENGTH;
	if (!oracle_is_answer(o, &h, packet, bytes))
		return THC_DROP_TAG;
	return be32toh(h.epoch) == o->epoch && oracle_in_flight(o, &h) ?
		       oracle_answer(o, &h, bytes) :
		       oracle_stray(o, &h, bytes);
}
