/* SPDX-License-Identifier: GPL-2.0 */
/* fuzz_client: instead of udp.c and way.c. What the client sends is looked at here. */
#ifndef THC_FUZZ_CLIENT_SOCKETS_H
#define THC_FUZZ_CLIENT_SOCKETS_H

#include <stdio.h>

#include "client_model.h"
#include "transport_udp.h"

int thc_sockets_open(struct thc_sockets *l, const struct thc_client_options *o)
{
	(void)o;
	*l = (struct thc_sockets){
		.unicast = UNICAST, .group = -1, .gso = true, .answers_max = 1000
	};
	l->way.aggregator.ss_family = AF_INET;
	return 0;
}

int thc_way_find(struct thc_way *way, const struct thc_client_options *o)
{
	(void)o;
	way->aggregator.ss_family = AF_INET;
	return 0;
}

/* There is one aggregator: who says that there are more has to say where. */
int thc_sockets_open_beside(struct thc_sockets *l, const struct thc_sockets *first,
			    const struct thc_end *to)
{
	(void)first;
	require(to->port && thc_be16(to->aggregator));
	l->unicast = l->group = -1;
	return -EHOSTUNREACH;
}

void thc_sockets_close(struct thc_sockets *l)
{
	l->unicast = l->group = -1;
}

int thc_sockets_join_group(struct thc_sockets *l, const struct thc_end *group)
{
	/* the group's port and address are another program's, if they are not sound */
	require(thc_be16(group->port) >= THC_PORT_UNPRIVILEGED);
	l->group = w.deaf || !thc_addr_is_v4(&group->addr) ? -1 : GROUP;
	return l->group < 0 ? -EAFNOSUPPORT : 0;
}

void thc_sockets_leave_group(struct thc_sockets *l)
{
	l->group = -1;
}

void thc_way_end(const struct thc_way *way, struct thc_end *end)
{
	(void)way;
	*end = our_end;
}

unsigned int thc_sockets_wire_bytes(const struct thc_sockets *l, unsigned int bytes)
{
	(void)l;
	return bytes + 42;
}

const char *thc_way_name(const struct thc_way *way, char *text, size_t size)
{
	(void)way;
	snprintf(text, size, "10.77.0.100:18500");
	return text;
}

/* What a claim says of the results of the round before the last one. */
static void check_claim(const struct thc_hdr *h, const uint8_t *claims)
{
	uint32_t round = thc_be32(h->round), said[2], i;

	memcpy(said, claims + CLAIM * w.client->options.rank + 20, sizeof(said));
	if (round < 2) {
		require(!said[0] && !said[1]);
		return;
	}
	for (i = 0; i < w.asks; i++)
		require(asked[i].answered ||
			thc_be32(((const struct thc_hdr *)asked[i].at)->round) != round - 2);
	require(thc_le32(said[1]) == w.held[round - 2].missed);
	require(thc_le32(said[0]) == (said[1] ? 0 : w.held[round - 2].digest));
}

/* Remembers a chunk; once more it has to be the same. */
static void note_request(const void *packet, size_t bytes)
{
	const struct thc_hdr *h = packet;
	struct asked *a = asked_for(h);

	if (a) {
		require(a->bytes == bytes && !memcmp(a->at, packet, bytes));
		reached[SENT_AGAIN].times++;
		return;
	}
	require(w.asks < ASKED_MAX && bytes <= sizeof(a->at));
	a = &asked[w.asks++];
	a->bytes = (uint16_t)bytes;
	a->claims = h->op == THC_OP_CLAIM;
	a->norms = h->op == THC_OP_MAX || a->claims;
	a->answered = a->gone = false;
	memcpy(a->at, packet, bytes);
	if (a->claims)
		check_claim(h, a->at + sizeof(*h));
}

/* A JOIN says what it was asked, or nothing, and with HEARD the salt; five in 20 ms at most. */
static void note_join(const struct thc_join *j)
{
	static const struct thc_join zero;
	bool heard = j->flags == thc_be32(THC_JOIN_F_HEARD);

	require(!j->flags || heard);
	require(j->offers == thc_be32(w.keyed ? 4 : 3) && j->version_max == 2 &&
		j->restarted == 0xffff && !j->workers && !j->reserved);
	require(!memcmp(j->reserved2, zero.reserved2, sizeof(zero.reserved2)));
	memcpy(w.nonce, j->nonce, sizeof(w.nonce));
	w.joins++;
	require(w.joins <= 5 * (1 + (w.now - w.joined_at) / 20000000));
	if (heard) {
		require(!memcmp(j->challenge, w.salt, sizeof(w.salt)));
	} else if (j->challenge[0] == CHALLENGE_MARK) {
		require(w.challenges >> j->challenge[1] % 32 & 1);
		reached[CHALLENGED].times++;
	}
}

static void note_sent(const struct thc_outgoing *out)
{
	const uint8_t *payload = (const uint8_t *)out->data + sizeof(struct thc_hdr);
	const struct thc_seal_key *up = &session[w.keyed].up;
	size_t bytes = out->bytes - sizeof(struct thc_hdr);
	struct thc_join j;
	struct thc_hdr h;

	memcpy(&h, out->data, sizeof(h));
	require(is_form(&h, out->bytes) && !h.flags && !h.bitmap);
	if (h.op == THC_OP_JOIN || h.op == THC_OP_LEAVE) {
		require(h.key_id == join_key[w.keyed].id);
		require(h.tag == member_tag(&join_key[w.keyed], &h, payload, bytes));
	}
	if (h.op == THC_OP_JOIN) {
		require(bytes == sizeof(j));
		memcpy(&j, payload, sizeof(j));
		note_join(&j);
	} else if (h.op == THC_OP_LEAVE) {
		require(bytes == sizeof(w.nonce) && !memcmp(payload, w.nonce, bytes));
	} else {
		require(h.key_id == up->id &&
			thc_seal_ok(&h, w.seal, up, payload, (int)(bytes / 8)));
		require(is_its_port(out->port, thc_be16(h.slot)));
		note_request(out->data, out->bytes);
	}
}

static int complain(void)
{
	int error = -w.complaint;

	w.complaint = 0;
	return error;
}

int thc_sockets_send(struct thc_sockets *l, const struct thc_outgoing *out, unsigned int count,
		     uint64_t *calls)
{
	unsigned int i;

	require(l->unicast == UNICAST);
	++*calls;
	for (i = 0; i < count; i++)
		note_sent(&out[i]);
	return w.complaint ? complain() : (int)count;
}

/* A copy that ends where the packet does. */
static void hand_over(const struct coming *p, thc_sockets_each *each, void *ctx)
{
	uint8_t *copy = malloc(p->bytes);

	require(copy);
	memcpy(copy, p->at, p->bytes);
	packets++;
	if (w.joining && p->at[1] == THC_OP_CHALLENGE)
		believe_challenge(p);
	else if (w.joining)
		believe_welcome(p);
	else if (!w.broken && !believe(p))
		reached[DISBELIEVED].times++;
	each(ctx, (void *)copy, p->bytes, (struct thc_origin){ p->port, p->ce, p->group });
	free(copy);
	if (w.joining)
		return;
	require(!w.broken || w.client->broken);
	w.broken = w.client->broken;
}

int thc_sockets_receive(struct thc_sockets *l, int fd, struct thc_buffer rx, thc_sockets_each *each,
			void *ctx, uint64_t *calls)
{
	int n = 0;

	require(rx.bytes);
	require(fd == UNICAST || (fd == GROUP && l->group == GROUP));
	++*calls;
	if (fd == UNICAST && w.complaint)
		return complain();
	/* in order, whichever way they come */
	while (w.read < w.queued && (l->group < 0 || queue[w.read].group == (fd == GROUP))) {
		hand_over(&queue[w.read++], each, ctx);
		n++;
	}
	if (w.read == w.queued)
		w.read = w.queued = 0;
	return n;
}

#endif /* THC_FUZZ_CLIENT_SOCKETS_H */
