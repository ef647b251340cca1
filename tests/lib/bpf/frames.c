// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include <string.h>
#include <thc/wire/seal.h>

#include "../jobseals.h"
#include "../meet.h"
#include "frames.h"

u8 rig_seal = THC_SEAL_NH;

const struct thc_seals *rig_seals(u16 job, u32 epoch)
{
	static _Thread_local struct thc_seals seals;
	static _Thread_local u32 of_epoch;
	static _Thread_local u16 of_job;

	if (seals.seal != rig_seal || of_job != job || of_epoch != epoch || !of_epoch) {
		job_seals(&seals, rig_seal, job, epoch);
		of_epoch = epoch;
		of_job = job;
	}
	return &seals;
}

void rig_header(struct thc_hdr *h, const struct rig_request *r)
{
	memset(h, 0, sizeof(*h));
	h->version = THC_VERSION;
	h->op = r->op;
	h->width = r->width;
	h->job = thc_be16(r->job);
	h->rank = thc_be16(r->rank);
	h->epoch = thc_be32(r->epoch);
	h->round = thc_be32(r->round);
	h->chunk = thc_be32(r->chunk);
	h->slot = thc_be16(r->slot);
	h->generation = thc_be32(r->generation);
}

size_t rig_packet(u8 *out, struct thc_hdr *h, const void *payload, size_t len)
{
	const struct thc_seals *s = rig_seals(thc_be16(h->job), thc_be32(h->epoch));

	if (len)
		memcpy(out + sizeof(*h), payload, len);
	thc_seal(h, rig_seal, thc_seals_up(s, thc_be32(h->epoch)), out + sizeof(*h), len / 8);
	memcpy(out, h, sizeof(*h));
	return sizeof(*h) + len;
}

size_t rig_membership(u8 *out, struct thc_hdr *h, const struct thc_end *end, const void *payload,
		      size_t len)
{
	const struct thc_seals *s = rig_seals(thc_be16(h->job), 1);

	if (len)
		memcpy(out + sizeof(*h), payload, len);
	thc_member_seal(h, thc_seal_of_members(rig_seal), &s->join, end, out + sizeof(*h), len / 8);
	memcpy(out, h, sizeof(*h));
	return sizeof(*h) + len;
}

bool rig_sealed(const struct thc_hdr *h, const void *payload, size_t len)
{
	const struct thc_seals *s = rig_seals(thc_be16(h->job), thc_be32(h->epoch));
	const struct thc_seal_key *down = thc_seals_down(s, thc_be32(h->epoch));
	struct thc_hdr copy;

	/* in memory of any alignment */
	memcpy(&copy, h, sizeof(copy));
	return copy.key_id == down->id && thc_seal_ok(&copy, rig_seal, down, payload, len / 8);
}

bool rig_ends(const struct thc_hdr *h, const struct thc_end *end, __be64 tag)
{
	const struct thc_seals *s = rig_seals(thc_be16(h->job), 1);

	return h->op == THC_OP_STALE && h->flags == THC_F_EPOCH && h->key_id == s->lost.id &&
	       h->tag == thc_member_tag(thc_seal_of_members(rig_seal), &s->lost, h, end, &tag, 1);
}

struct thc_end rig_end(const struct rig_frame *f)
{
	return (struct thc_end){ .addr = f->src, .port = thc_be16(f->sport) };
}

static u8 *rig_put16(u8 *p, u16 v)
{
	*p++ = v >> 8;
	*p++ = v;
	return p;
}

size_t rig_frame(u8 *out, const struct rig_frame *f, const void *data, size_t len)
{
	size_t udp = 8 + len, head = 20 + f->options;
	u8 *p = out, *ip;
	u32 sum = 0;
	size_t i;

	memcpy(p, f->dst_mac, 6);
	memcpy(p + 6, f->src_mac, 6);
	p += 12;
	if (f->vlan || f->vlan_proto) {
		p = rig_put16(p, f->vlan_proto ? f->vlan_proto : 0x8100);
		p = rig_put16(p, f->vlan);
	}
	p = rig_put16(p, f->v6 ? 0x86dd : 0x0800);
	ip = p;
	if (f->v6) {
		p = rig_put16(p, 0x6000 | f->tos << 4);
		p = rig_put16(p, 0x1234); /* flow label */
		p = rig_put16(p, f->ip_len ? f->ip_len : f->ext_len + udp);
		*p++ = f->next || f->ext ? f->next : 17;
		*p++ = f->ttl ? f->ttl : 3;
		memcpy(p, &f->src, 16);
		memcpy(p + 16, &f->dst, 16);
		p += 32;
		if (f->ext_len)
			memcpy(p, f->ext, f->ext_len);
		p += f->ext_len;
	} else {
		*p++ = 0x40 | head / 4;
		*p++ = f->tos;
		p = rig_put16(p, f->ip_len ? f->ip_len : head + udp);
		p = rig_put16(p, 0x4321);
		p = rig_put16(p, f->frag);
		*p++ = f->ttl ? f->ttl : 3;
		*p++ = f->next ? f->next : 17;
		p = rig_put16(p, 0);
		memcpy(p, &f->src.word[3], 4);
		memcpy(p + 4, &f->dst.word[3], 4);
		p += 8;
		memset(p, 1, f->options); /* no operation */
		p += f->options;
		for (i = 0; i < head; i += 2)
			sum += ip[i] << 8 | ip[i + 1];
		sum = (sum & 0xffff) + (sum >> 16);
		rig_put16(ip + 10, ~(sum + (sum >> 16)));
	}
	p = rig_put16(p, f->sport);
	p = rig_put16(p, f->dport);
	p = rig_put16(p, f->udp_len ? f->udp_len : udp);
	p = rig_put16(p, 0);
	if (len)
		memcpy(p, data, len);
	return p + len - out;
}

/*
 * The reference: lane @i of one contribution as a plain integer, and how two
 * of them combine, coordinate by coordinate, straight from the uapi header's
 * words. Shares nothing with include/thc/aggregator/lane.h. Claims of ranks below 32.
 */
static u32 rig_lane(u8 op, u8 width, const u16 *table, const u8 *payload, int rank, int i)
{
	u32 v = 0;
	int k;

	if ((op == THC_OP_CLAIM && i / 8 != rank) || op == THC_OP_CLAIM_HIGH)
		return 0;

	if (op == THC_OP_LUT_ADD) {
		for (k = i * width; k < (i + 1) * width; k++)
			v = v * 2 + (payload[k / 8] >> (7 - k % 8)) % 2;
		return table[v];
	}
	for (k = width / 8 - 1; k >= 0; k--)
		v = v * 256 + payload[i * (width / 8) + k];
	return v;
}

void rig_reference(u8 *out, u8 op, u8 width, u8 answer_width, const u16 *table,
		   const u8 *const payload[], int n)
{
	int lanes = 8192 / answer_width, i, r, k;

	memset(out, 0, 1024);
	for (i = 0; i < lanes; i++) {
		u32 v = rig_lane(op, width, table, payload[0], 0, i);

		for (r = 1; r < n; r++)
			v = meet(op, v, rig_lane(op, width, table, payload[r], r, i));
		for (k = i * answer_width; k < (i + 1) * answer_width; k++, v >>= 1)
			out[k / 8] |= (v & 1) << k % 8;
	}
}
