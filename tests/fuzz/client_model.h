/* SPDX-License-Identifier: GPL-2.0 */
/* fuzz_client: what a worker has to believe. */
#ifndef THC_FUZZ_CLIENT_MODEL_H
#define THC_FUZZ_CLIENT_MODEL_H

#include <thc/worker/result.h>

#include "client_world.h"
#include "served.h"

static bool is_form(const struct thc_hdr *h, size_t bytes)
{
	return !(bytes % 8) && h->version == THC_VERSION && h->job == thc_be16(JOB);
}

static __be64 member_tag(const struct thc_member_key *k, const struct thc_hdr *h,
			 const void *payload, size_t bytes)
{
	return thc_member_tag(w.keyed ? THC_SEAL_NH : THC_SEAL_SUM, k, h, &our_end, payload,
			      (int)(bytes / 8));
}

/* Making keys takes longer than an input: those of one salt are kept. */
static void set_salt(const uint8_t salt[THC_SALT_BYTES])
{
	struct keys *k = &session[w.keyed];

	if (k->made && !memcmp(k->salt, salt, sizeof(k->salt)))
		return;
	memcpy(k->salt, salt, sizeof(k->salt));
	thc_seal_key_set(&k->up, w.keyed ? key : NULL, THC_KEY_UP, JOB, salt);
	thc_seal_key_set(&k->down, w.keyed ? key : NULL, THC_KEY_DOWN, JOB, salt);
	k->made = true;
}

/* Does an aggregator say it to this worker of its joining, @payload of that length? A nonce is what
 * both of its packets begin with, or have at @nonce_at.
 */
static bool is_of_joining(const struct coming *p, uint8_t op, size_t payload, size_t nonce_at)
{
	const uint8_t *at = p->at + sizeof(struct thc_hdr);
	struct thc_hdr h;

	memcpy(&h, p->at, sizeof(h));
	return p->bytes == sizeof(h) + payload && is_form(&h, p->bytes) && h.op == op &&
	       p->port == THC_PORT_DEFAULT && h.rank == thc_be16(w.rank) &&
	       !memcmp(at + nonce_at, w.nonce, sizeof(w.nonce)) &&
	       h.key_id == welcome_key[w.keyed].id &&
	       h.tag == member_tag(&welcome_key[w.keyed], &h, at, payload);
}

#define CHALLENGE_MARK	0xc4

/* The challenges are numbered: what a JOIN may say is what has been asked. */
static void believe_challenge(const struct coming *p)
{
	const uint8_t *c = p->at + sizeof(struct thc_hdr) + THC_NONCE_BYTES;

	if (!is_of_joining(p, THC_OP_CHALLENGE, sizeof(struct thc_challenge), 0)) {
		reached[DISBELIEVED].times++;
		return;
	}
	if (c[0] == CHALLENGE_MARK)
		w.challenges |= 1U << c[1] % 32;
}

static void take_rate(const uint8_t *d)
{
	memset(&w.rate, 0, sizeof(w.rate));
	if (!d)
		return;
	w.rate.bits = (uint32_t)be16_at(d) << 16 | be16_at(d + 2);
	w.rate.error = (uint32_t)be16_at(d + 4) << 16 | be16_at(d + 6);
	w.rate.tried = d[11] & 1;
}

/* While joining: does it end the join well? */
static void believe_welcome(const struct coming *p)
{
	const uint8_t *at = p->at + sizeof(struct thc_hdr);
	size_t bytes = p->bytes - sizeof(struct thc_hdr);
	unsigned int flags = be16_at(at + 52);
	struct records r;

	if (p->bytes < sizeof(struct thc_hdr) + sizeof(struct thc_welcome) ||
	    !is_whole_welcome(at, bytes) ||
	    !is_of_joining(p, THC_OP_WELCOME, bytes, offsetof(struct thc_welcome, nonce))) {
		reached[DISBELIEVED].times++;
		return;
	}
	w.ready = false;
	if (flags & THC_WELCOME_F_REFUSED || !can_be_served(at, bytes, w.rank, w.keyed))
		return;
	take_records(&r, at, bytes);
	memcpy(w.salt, r.seal + 4, sizeof(w.salt));
	w.seal = r.seal[0];
	set_salt(w.salt);
	take_rate(r.rate);
	w.one_port = flags & THC_WELCOME_F_ONE_PORT;
	w.ready = flags & THC_WELCOME_F_READY;
}

/* The chunk in flight that @h is about. */
static struct asked *asked_for(const struct thc_hdr *h)
{
	uint32_t i;

	for (i = 0; i < w.asks; i++) {
		const struct thc_hdr *was = (void *)asked[i].at;

		if (!asked[i].answered && was->slot == h->slot && was->chunk == h->chunk &&
		    was->generation == h->generation)
			return &asked[i];
	}
	return NULL;
}

static bool counts_fit(const struct thc_hdr *h)
{
	uint64_t bitmap = thc_be64(h->bitmap), all = ~0ULL >> (64 - w.client->spec.ranks);

	return bitmap && !(bitmap & ~all) && thc_be16(h->count) == __builtin_popcountll(bitmap);
}

/* Bits of a sum of what the chunk @h has: its indices say which row they are of. */
static uint8_t sum_width_of(const struct thc_hdr *h)
{
	return thc_spec_row(&w.client->spec, h->width).sum_width;
}

static bool is_answer(const struct thc_hdr *h, const struct asked *a, size_t bytes)
{
	const struct thc_hdr *was = (void *)a->at;
	uint8_t width = a->norms ? 32 : sum_width_of(was);
	bool op = h->op == was->op || (!a->norms && h->op == THC_OP_ADD);

	return bytes == sizeof(*h) + THC_LANE_BYTES && h->flags & THC_F_ANSWER && op &&
	       h->round == was->round && h->width == width;
}

/* An answer behind the agreement of its round. */
static void hold(const struct asked *a, const struct thc_hdr *h, const uint8_t *lanes)
{
	const struct thc_seal_key *down = &session[w.keyed].down;
	uint32_t round = thc_be32(((const struct thc_hdr *)a->at)->round);
	struct thc_digest d;

	require(round < ROUNDS_MAX);
	if (!lanes) {
		w.held[round].missed++;
		return;
	}
	d = thc_seal_digest(w.seal, down, lanes, THC_LANE_WORDS);
	w.held[round].digest += thc_result_digest((u8)w.seal, down, h, d, lanes);
}

static void land(struct asked *a, const struct thc_hdr *h, const uint8_t *lanes)
{
	if (!a->claims)
		hold(a, h, lanes);
	a->answered = true;
	a->gone = !lanes;
	a->without_us = !(thc_be64(h->bitmap) >> w.client->options.rank & 1);
	a->count = lanes ? thc_be16(h->count) : 0;
	if (lanes)
		memcpy(a->lanes, lanes, sizeof(a->lanes));
	if (a->norms)
		return;
	reached[SUM_GONE].times += !lanes;
	reached[PARTIAL_SUM].times += lanes && a->count < w.client->spec.ranks;
	reached[WITHOUT_US].times += a->without_us;
}

/* Does the aggregator send from @port what is about slot @slot? */
static bool is_its_port(uint16_t port, unsigned int slot)
{
	const struct thc_spec *c = &w.client->spec;

	if (port == THC_PORT_DEFAULT)
		return true;
	return !w.one_port && slot < (unsigned int)c->data_slots + c->control_slots &&
	       port == THC_PORT_DEFAULT + slot / 64;
}

/* An epoch is over: does it answer what we asked for? */
static bool ends_epoch(const struct coming *p, const struct thc_hdr *h)
{
	const struct asked *a = asked_for(h);
	const struct thc_hdr *was = a ? (const void *)a->at : NULL;

	return a && p->bytes == sizeof(*h) && h->epoch != thc_be32(w.client->epoch) &&
	       h->key_id == lost_key[w.keyed].id &&
	       h->tag == member_tag(&lost_key[w.keyed], h, &was->tag, sizeof(was->tag));
}

/* True if the client has to take something from it. */
static bool believe(const struct coming *p)
{
	const struct thc_seal_key *down = &session[w.keyed].down;
	const struct thc_spec *c = &w.client->spec;
	struct asked *a;
	struct thc_hdr h;

	memcpy(&h, p->at, sizeof(h));
	if (!is_form(&h, p->bytes) || h.op == THC_OP_WELCOME ||
	    !is_its_port(p->port, thc_be16(h.slot)))
		return false;
	if (h.op == THC_OP_STALE && h.flags & THC_F_EPOCH) {
		w.broken |= ends_epoch(p, &h);
		return w.broken;
	}
	if (h.key_id != down->id ||
	    !thc_seal_ok(&h, w.seal, down, p->at + sizeof(h), (int)((p->bytes - sizeof(h)) / 8)))
		return false;
	a = h.epoch == thc_be32(w.client->epoch) ? asked_for(&h) : NULL;
	if (!a)
		return false;
	if (h.op == THC_OP_STALE && (a->norms || !(h.flags & THC_F_KNOWN))) {
		w.broken = true;
		return true;
	}
	if (!counts_fit(&h))
		return false;
	if (h.op == THC_OP_STALE)
		land(a, &h, NULL);
	else if (h.op == THC_OP_WAIT)
		reached[WAITED].times++;
	else if (is_answer(&h, a, p->bytes))
		land(a, &h, p->at + sizeof(h));
	else
		return false;
	return true;
}

#endif /* THC_FUZZ_CLIENT_MODEL_H */
