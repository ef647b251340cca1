/* SPDX-License-Identifier: GPL-2.0 */
/* fuzz_client: an aggregator, which is honest or is not. */
#ifndef THC_FUZZ_CLIENT_AGGREGATOR_H
#define THC_FUZZ_CLIENT_AGGREGATOR_H

#include "client_model.h"
#include "scheme_thc.h"
#include "transport_udp.h"

static struct coming *room_for_one(void)
{
	static struct coming nowhere;
	struct coming *p = w.queued < QUEUE_MAX ? &queue[w.queued++] : &nowhere;

	memset(p, 0, offsetof(struct coming, at) + sizeof(struct thc_hdr));
	p->port = THC_PORT_DEFAULT;
	return p;
}

/* As the aggregator does; the packet names the key. */
static void seal(struct coming *p)
{
	const struct thc_seal_key *down = &session[w.keyed].down;
	struct thc_hdr *h = (void *)p->at;
	size_t bytes = p->bytes - sizeof(*h);
	struct thc_digest d;

	if (p->bytes < sizeof(*h))
		return;
	if (h->op == THC_OP_WELCOME || h->op == THC_OP_CHALLENGE) {
		h->tag = member_tag(&welcome_key[w.keyed], h, h + 1, bytes);
	} else if (h->op == THC_OP_STALE && h->flags & THC_F_EPOCH) {
		h->tag = member_tag(&lost_key[w.keyed], h, &p->request, sizeof(p->request));
	} else {
		d = thc_seal_digest(w.seal, down, h + 1, (int)(bytes / 8));
		h->tag = thc_be64(thc_seal_tag(w.seal, down, h, d, bytes / 8));
	}
}

/* Changes some bytes, before the packet was sealed or after, its port or its length. */
static void spoil(struct coming *p, uint8_t how)
{
	int i;

	for (i = how & 3; i; i--) {
		size_t at = next(&w.in) << 8 | next(&w.in);

		at %= how & 4 ? sizeof(struct thc_hdr) : p->bytes;
		p->at[at] ^= next(&w.in);
	}
	if (how & 8)
		reached[DAMAGED].times++;
	else
		seal(p);
	if (how & 16)
		p->port += next(&w.in);
	if ((how & 0x60) == 0x60 && p->bytes > sizeof(struct thc_hdr))
		p->bytes -= next(&w.in) % (p->bytes - sizeof(struct thc_hdr) + 1);
	p->ce = how & 0x80;
}

/* After a change of a constant, be it one that a worker does not take. */
static void hash_welcome(uint8_t *welcome, size_t bytes)
{
	uint32_t hash = THC_FNV_BEGIN;
	size_t at, end;
	__be32 said;

	for (at = sizeof(struct thc_welcome); at < bytes; at = end) {
		end = at + (4 + be16_at(welcome + at + 2) + 7) / 8 * 8;
		if (end > bytes)
			break;
		if (welcome[at + 1] & THC_RECORD_F_CONSTANT)
			hash = hash_on(hash, welcome + at, end - at);
	}
	hash = hash_on(hash, welcome + offsetof(struct thc_welcome, seed), 8);
	said = thc_be32(hash_on(hash, welcome + offsetof(struct thc_welcome, features), 4));
	memcpy(welcome + offsetof(struct thc_welcome, constants), &said, sizeof(said));
}

static struct coming *put_welcome(uint8_t flags)
{
	struct coming *p = room_for_one();
	struct thc_hdr *h = (void *)p->at;
	struct whole_welcome c = w.welcome;

	p->bytes = (uint16_t)(sizeof(*h) + sizeof(c) + w.more.bytes);
	h->version = THC_VERSION;
	h->op = THC_OP_WELCOME;
	h->key_id = welcome_key[w.keyed].id;
	h->job = thc_be16(JOB);
	h->rank = thc_be16(w.rank);
	h->epoch = thc_be32(w.epoch);
	memcpy(c.w.nonce, w.nonce, sizeof(c.w.nonce));
	c.w.flags |= thc_be16(flags);
	memcpy(p->at + sizeof(*h), &c, sizeof(c));
	memcpy(p->at + sizeof(*h) + sizeof(c), w.more.record, w.more.bytes);
	if (w.more.bytes)
		hash_welcome(p->at + sizeof(*h), p->bytes - sizeof(*h));
	seal(p);
	return p;
}

static struct coming *put_refusal(uint8_t why)
{
	struct coming *p = put_welcome(0);
	struct thc_welcome c = {
		.flags = thc_be16(THC_WELCOME_F_REFUSED), .refusal = why, .parts = 1,
		.version_max = THC_VERSION,
	};

	memcpy(c.nonce, w.nonce, sizeof(c.nonce));
	memcpy(p->at + sizeof(struct thc_hdr), &c, sizeof(c));
	p->bytes = sizeof(struct thc_hdr) + sizeof(c);
	seal(p);
	return p;
}

/* The @n-th challenge. */
static struct coming *put_challenge(uint8_t n)
{
	struct thc_challenge c = { .challenge = { CHALLENGE_MARK, n % 32 } };
	struct coming *p = room_for_one();
	struct thc_hdr *h = (void *)p->at;

	p->bytes = sizeof(*h) + sizeof(c);
	h->version = THC_VERSION;
	h->op = THC_OP_CHALLENGE;
	h->key_id = welcome_key[w.keyed].id;
	h->job = thc_be16(JOB);
	h->rank = thc_be16(w.rank);
	memcpy(c.nonce, w.nonce, sizeof(c.nonce));
	memcpy(p->at + sizeof(*h), &c, sizeof(c));
	seal(p);
	return p;
}

/* What anybody can send who has heard our JOIN. */
static void put_doubtful(uint8_t why)
{
	const struct thc_member_key none = { .id = 0 };
	struct coming *p = put_refusal(why);
	struct thc_hdr *h = (void *)p->at;

	h->key_id = 0;
	h->tag = thc_member_tag(THC_SEAL_SUM, &none, h, &our_end, h + 1,
				sizeof(struct thc_welcome) / 8);
}

/* What the client's scheme keeps. */
static const struct thc_compressor *compressor(void)
{
	return w.client->context[w.client->spec.scheme];
}

/* The row that the indices of a chunk are of. */
static struct thc_table_row row_of(const struct asked *a)
{
	return thc_spec_row(&w.client->spec, ((const struct thc_hdr *)a->at)->width);
}

/* Index that rank @rank, not the client's, has at coordinate @i of a chunk. */
static unsigned int level_of(unsigned int rank, uint32_t chunk, unsigned int i, unsigned int levels)
{
	return (i * 5 + rank * 3 + chunk) % levels;
}

/* And the client: @bits bits, those of coordinate 0 come first. */
static unsigned int own_level(const struct asked *a, unsigned int i, unsigned int bits)
{
	const uint8_t *at = a->at + sizeof(struct thc_hdr) + i * bits / 8;

	return (at[0] << 8 | at[1]) >> (16 - i * bits % 8 - bits) & ((1U << bits) - 1);
}

static void put_lane(uint8_t *lanes, unsigned int i, unsigned int width, unsigned int sum)
{
	unsigned int k;

	for (k = 0; k < width; k += 8)
		lanes[i * width / 8 + k / 8] |= (uint8_t)(sum << i * width % 8 >> k);
}

/* The sum of the ranks in @in over a chunk of gradients. */
static void sum_levels(const struct asked *a, uint64_t in, uint8_t *lanes)
{
	const struct thc_spec *c = &w.client->spec;
	const struct thc_table_row row = row_of(a);
	uint32_t chunk = thc_be32(((const struct thc_hdr *)a->at)->chunk);
	unsigned int i, r;

	memset(lanes, 0, THC_LANE_BYTES);
	for (i = 0; i < THC_COORDINATES(row.sum_width); i++) {
		unsigned int sum = 0;

		for (r = 0; r < c->ranks; r++) {
			if (!(in >> r & 1))
				continue;
			sum += row.level[r == w.client->options.rank ?
						 own_level(a, i, row.bits) :
						 level_of(r, chunk, i, 1U << row.bits)];
		}
		put_lane(lanes, i, row.sum_width, sum);
	}
}

/* Everybody's claim is the client's; norms of others are smaller. */
static void max_lanes(const struct asked *a, uint64_t in, uint8_t *lanes)
{
	const struct thc_client *c = w.client;
	unsigned int r, self = c->options.rank;

	memcpy(lanes, a->at + sizeof(struct thc_hdr), THC_LANE_BYTES);
	for (r = 0; a->claims && r < c->spec.ranks; r++)
		if (in >> r & 1)
			memcpy(lanes + CLAIM * r, a->at + sizeof(struct thc_hdr) + CLAIM * self,
			       CLAIM);
		else
			memset(lanes + CLAIM * r, 0, CLAIM);
}

/* The answer to @a with the ranks in @in. */
static struct coming *put_answer(const struct asked *a, uint64_t in)
{
	const struct thc_spec *c = &w.client->spec;
	struct coming *p = room_for_one();
	struct thc_hdr *h = (void *)p->at;
	uint64_t all = ~0ULL >> (64 - c->ranks);

	in = in & all ? in & all : all;
	memcpy(h, a->at, sizeof(*h));
	h->flags = THC_F_ANSWER | (in != all ? THC_F_CLOSED : 0);
	h->width = a->norms ? 32 : sum_width_of(h);
	/* as if a node's sums had been there first */
	if (!a->norms && thc_be32(h->chunk) & 1)
		h->op = THC_OP_ADD;
	h->bitmap = thc_be64(in);
	h->count = thc_be16((uint16_t)__builtin_popcountll(in));
	h->key_id = session[w.keyed].down.id;
	p->bytes = sizeof(*h) + THC_LANE_BYTES;
	p->group = c->reply == THC_REPLY_MULTICAST &&
		   thc_udp_of(w.client->transport)->peer->sockets.group >= 0;
	if (a->norms)
		max_lanes(a, in, p->at + sizeof(*h));
	else
		sum_levels(a, in, p->at + sizeof(*h));
	seal(p);
	return p;
}

/* WAIT and STALE: @flags, and who is in. */
static struct coming *put_header(const struct asked *a, uint8_t op, uint8_t flags, uint64_t in)
{
	struct coming *p = room_for_one();
	struct thc_hdr *h = (void *)p->at;

	in &= ~0ULL >> (64 - w.client->spec.ranks);
	memcpy(h, a->at, sizeof(*h));
	h->op = op;
	h->width = 0;
	h->flags = flags;
	h->bitmap = thc_be64(in);
	h->count = thc_be16((uint16_t)__builtin_popcountll(in));
	p->request = h->tag;
	h->key_id = flags & THC_F_EPOCH ? lost_key[w.keyed].id : session[w.keyed].down.id;
	if (flags & THC_F_EPOCH)
		h->epoch = thc_be32(++w.epoch);
	p->bytes = sizeof(*h);
	seal(p);
	return p;
}

static struct coming *put_raw(void)
{
	struct coming *p = room_for_one();
	size_t i;

	p->bytes = (uint16_t)(sizeof(struct thc_hdr) + next(&w.in) * 4 % (THC_LANE_BYTES + 1));
	for (i = 0; i < p->bytes; i++)
		p->at[i] = next(&w.in);
	return p;
}

#endif /* THC_FUZZ_CLIENT_AGGREGATOR_H */
