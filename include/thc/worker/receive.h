/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Reception of a worker's packets: which checks a packet passes, in which order, and what it
 * changes. libthc (over UDP) and thc.ko compile this text. Each is a host: it implements the
 * functions declared here.
 */
#ifndef THC_RECEIVE_H
#define THC_RECEIVE_H

#include <linux/errno.h>

#include <thc/worker/answer.h>
#include <thc/worker/result.h>

/* The host, with whatever its functions need. */
struct thc_host;

/* The @bytes behind @h; with THC_GOT_ANSWER, the lanes of @f's chunk. NULL: there are fewer. */
THC_INLINE const void *thc_host_payload(struct thc_host *host, enum thc_got got,
					const struct thc_flight *f, const struct thc_hdr *h,
					u32 bytes);

/* thc_seal_digest() of @words words at @payload, by the seal of answers. */
THC_INLINE struct thc_digest thc_host_digest(struct thc_host *host, const struct thc_sender *s,
					     const void *payload, int words);

/* Tells the host that a flight has got WAIT, its answer, or a STALE in place of its answer. */
THC_INLINE void thc_host_took(struct thc_host *host, enum thc_got got, const struct thc_hdr *h);

/* Tells the host, after thc_host_took(), that a chunk of @st has its answer or will get none; @was:
 * the packet that was in flight.
 */
THC_INLINE void thc_host_landed(struct thc_host *host, const struct thc_stream *st,
				struct thc_ready was, const struct thc_landing *l);

/* Tells the host that the worker cannot go on. */
THC_INLINE void thc_host_failed(struct thc_host *host, const struct thc_failure *f);

/**
 * thc_worker_receive() - a packet from the aggregator to a worker that has joined
 * @h: its header, of @bytes with the payload
 *
 * Returns THC_DROP_NONE, or why it is of no use.
 */
THC_INLINE enum thc_drop_reason thc_worker_receive(struct thc_host *host, struct thc_sender *s,
						   const struct thc_hdr *h, u32 bytes,
						   struct thc_origin from, u64 now)
{
	struct thc_failure failure = { .error = ESTALE, .reason = THC_FAILED_BEHIND };
	struct thc_ready was = { 0 };
	struct thc_landing landing;
	struct thc_stream *st;
	struct thc_flight *f;
	enum thc_got got = thc_sender_find(s, h, bytes, from.port, &st, &f);
	const void *payload;
	struct thc_digest d;
	u32 digest = 0;
	int words;

	/* the tag of a STALE that ends an epoch covers a request: without one in flight it cannot
	 * be checked
	 */
	if (got == THC_GOT_FOREIGN || (got != THC_GOT_EPOCH && !thc_seal_names(h, s->down.id)))
		return thc_sender_refusal(s, h, bytes, from.port);
	if (bytes > sizeof(*h) + THC_LANE_BYTES)
		return THC_DROP_LENGTH;
	payload = thc_host_payload(host, got, f, h, bytes - sizeof(*h));
	if (!payload)
		return THC_DROP_TAG;
	words = (int)((bytes - sizeof(*h)) / 8);
	/* one digest serves the tag and the digest of the round */
	d = thc_host_digest(host, s, payload, words);
	if (!thc_sender_seal_ok(s, got, f, h, d, words))
		return THC_DROP_TAG;
	if (got == THC_GOT_ANSWER)
		digest = thc_result_digest(s->seal, &s->down, h, d, payload);
	s->unreachable_at = 0;
	/* taking the answer frees the flight */
	if (f)
		was = (struct thc_ready){ f->owner, f->packet, f->index, f->bytes };
	thc_sender_apply(s, got, st, f, h, from.ce, now);
	switch (got) {
	case THC_GOT_ANSWER:
	case THC_GOT_MISSED:
		landing = thc_sender_landing(s, got, h, payload, digest);
		thc_host_took(host, got, h);
		thc_host_landed(host, st, was, &landing);
		break;
	case THC_GOT_WAIT:
		thc_host_took(host, got, h);
		break;
	case THC_GOT_EPOCH:
		failure.reason = THC_FAILED_EPOCH;
		failure.worker = thc_be16(h->rank);
		failure.epoch = thc_be32(h->epoch);
		thc_host_failed(host, &failure);
		break;
	case THC_GOT_BEHIND:
		thc_host_failed(host, &failure);
		break;
	default:
		return was.owner ? THC_DROP_MISMATCH : thc_sender_refusal(s, h, bytes, from.port);
	}
	return THC_DROP_NONE;
}

#endif /* THC_RECEIVE_H */
