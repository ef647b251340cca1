/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How a worker joins: it sends JOIN, again and again, until WELCOME says that all ranks are in. A
 * JOIN changes the job only if it repeats the number of a CHALLENGE. The worker answers a CHALLENGE
 * at once, so the exchange costs one round trip. Sockets and clocks are the caller's, as in
 * sender.h.
 */
#ifndef THC_JOIN_H
#define THC_JOIN_H

#include <linux/errno.h>

#include <thc/key.h>
#include <thc/wire/ranks.h>
#include <thc/worker/answer.h>
#include <thc/worker/parts.h>
#include <thc/worker/sender.h>

/* ms between a worker's first JOINs, how many these are, and how often the time doubles then. */
#define THC_JOIN_FIRST_MS	20
#define THC_JOIN_FIRST		10
#define THC_JOIN_DOUBLED	4

/**
 * thc_join_interval() - ms to the next JOIN
 * @sent: JOINs of this joining, 1 .. 2^32 - 1
 *
 * The interval is short at first, since packets are lost and ranks that start together should join
 * soon. It is long later: a job may wait long for one rank, and when that rank joins, the
 * aggregator tells all others at once.
 */
THC_INLINE u32 thc_join_interval(u32 sent)
{
	u32 more = sent < THC_JOIN_FIRST ? 0 : sent - THC_JOIN_FIRST + 1;

	return THC_JOIN_FIRST_MS << (more < THC_JOIN_DOUBLED ? more : THC_JOIN_DOUBLED);
}

/* Least interval between attempts to join a group, in ms: each takes locks that the whole host
 * shares.
 */
#define THC_GROUP_RETRY_MS	1000
/* ms until a worker with the job's secret key believes an unsealed refusal, if nothing else comes.
 * An aggregator with another key, or without the job, cannot seal its refusal, and anybody can
 * forge an unsealed one.
 */
#define THC_DOUBT_MS		2000
/* Challenges that are answered between two JOINs of the timer: a rank that is let in meets one, and
 * each other rank that restarts meanwhile another one.
 */
#define THC_CHALLENGES_MAX	4
/* LEAVEs that a worker sends: there is no answer, and one of them arrives almost surely. */
#define THC_LEAVES		3

/**
 * struct thc_joining - a worker's way into the job of one aggregator
 * @spec: the job, by the last WELCOME
 * @epoch: of the last WELCOME
 * @parts: of the next WELCOME, or of the last one
 * @challenge: the one that JOINs repeat, zero: none
 * @at: time of the timer's next JOIN
 * @group_at: earliest time to join the job's group; 0: at once
 * @doubt_at: time of the first unsealed refusal, 0: there was none
 * @doubt: enum thc_refusal of the last unsealed refusal
 * @sent: JOINs that the timer has sent
 * @answered: challenges answered since the timer's last JOIN
 * @challenged: a CHALLENGE came after the last WELCOME: the worker is not in the aggregator's epoch
 * @unanswered: @challenge has still to be repeated, at once
 * @welcomed: @spec is filled in
 * @unsound: the last WELCOME holds something that this worker cannot serve
 * @heard: a WELCOME came over the group
 * @ready: all ranks are in, by the last WELCOME. A job with several aggregators is ready when all
 *	of them say so; until then @ready may be cleared, afterwards the caller passes no packet on
 */
struct thc_joining {
	struct thc_spec		spec;
	u32			epoch;
	u8			challenge[THC_CHALLENGE_BYTES];
	u64			at;
	u64			group_at;
	u64			doubt_at;
	u32			sent;
	u8			answered;
	u8			challenged;
	u8			unanswered;
	u8			welcomed;
	u8			unsound;
	u8			heard;
	u8			ready;
	u8			doubt;
	struct thc_parts	parts;
};

/* The next step of a join. */
enum thc_join_step {
	THC_JOIN_ASK,		/* no WELCOME has come */
	THC_JOIN_WAIT,		/* a rank has still to join */
	THC_JOIN_READY,		/* all ranks are in */
	THC_JOIN_REFUSED,	/* the job refuses this rank: thc_welcome.refusal */
	THC_JOIN_UNSOUND,	/* a job that this worker cannot serve */
};

/* @random: bytes that nobody can guess. */
THC_INLINE void thc_joining_begin(struct thc_joining *j, struct thc_sender *s,
				  const u8 random[THC_NONCE_BYTES], u64 now)
{
	u8 *begin = (u8 *)j;
	u32 i;

	/* @parts is large, and its records need not be cleared */
	for (i = 0; i < offsetof(struct thc_joining, parts); i++)
		begin[i] = 0;
	thc_parts_begin(&j->parts);
	j->at = now;
	thc_nonce_copy(s->nonce, random);
	s->nonce[THC_NONCE_BYTES - 1] |= 1;
}

/* When the next JOIN is to be sent, 0: at once. */
THC_INLINE u64 thc_joining_at(const struct thc_joining *j)
{
	return j->unanswered ? 0 : j->at;
}

/* Makes the next JOIN, which the caller seals and sends now. Its epoch is the worker's last one,
 * which the next epoch has to be newer than. A worker that is in the epoch says HEARD, and puts the
 * epoch's salt in the place of a challenge.
 */
THC_INLINE void thc_joining_request(struct thc_joining *j, const struct thc_sender *s,
				    struct thc_hdr *h, struct thc_join *payload, u64 now)
{
	const u8 none[THC_CHALLENGE_BYTES] = { 0 };
	int heard = j->heard && !j->challenged;
	u32 offers = s->member_seal == THC_SEAL_NH ?
			     THC_OFFER_SEAL(THC_SEAL_NH) :
			     THC_OFFER_SEAL(THC_SEAL_NONE) | THC_OFFER_SEAL(THC_SEAL_SUM);

	thc_sender_header(s, h, THC_OP_JOIN);
	*payload = (struct thc_join){
		.flags = thc_be32(heard ? THC_JOIN_F_HEARD : 0),
		.offers = thc_be32(offers),
		.version_max = THC_VERSION,
		.restarted = thc_be16(THC_WORKER_NONE),
	};
	thc_nonce_copy(payload->nonce, s->nonce);
	thc_nonce_copy(payload->challenge, heard ? j->spec.salt : j->challenge);
	/* this JOIN repeats no challenge: the worker may have to answer the last one again */
	if (heard)
		thc_nonce_copy(j->challenge, none);
	j->unanswered = 0;
	if (j->at > now)
		return;
	j->answered = 0;
	j->at = now + thc_join_interval(++j->sent) * THC_NS_PER_MS;
}

/**
 * thc_sender_set_key() - sets the keys of membership packets
 * @key: the job's secret key, NULL: the job has none
 *
 * The sender's job number is set. Takes some microseconds.
 */
static inline void thc_sender_set_key(struct thc_sender *s, const u8 *key)
{
	s->member_seal = key ? THC_SEAL_NH : THC_SEAL_SUM;
	if (!key) {
		s->join = s->welcome = s->lost = (struct thc_member_key){ .id = 0 };
		return;
	}
	thc_member_key_derive(&s->join, key, THC_KEY_JOIN, s->job);
	thc_member_key_derive(&s->welcome, key, THC_KEY_WELCOME, s->job);
	thc_member_key_derive(&s->lost, key, THC_KEY_LOST, s->job);
}

/* Makes a JOIN, which the caller sends, if it is time for one; returns whether it is. *@due:
 * lowered to the time of the next one.
 */
THC_INLINE int thc_joining_asks(struct thc_joining *j, const struct thc_sender *s,
				struct thc_hdr *h, struct thc_join *payload, u64 now, u64 *due)
{
	u64 at = thc_joining_at(j);

	if (at > now) {
		*due = at < *due ? at : *due;
		return 0;
	}
	thc_joining_request(j, s, h, payload, now);
	*due = j->at < *due ? j->at : *due;
	return 1;
}

/* Is the WELCOME sealed by the job's key? @end: this worker's, or the group's */
THC_INLINE int thc_joining_sealed(const struct thc_sender *s, const struct thc_hdr *h,
				  const struct thc_welcome *w, u32 bytes, const struct thc_end *end)
{
	return h->tag == thc_member_tag(s->member_seal, &s->welcome, h, end, w, (int)(bytes / 8));
}

/* Does @w refuse this worker, by its nonce, with a seal that anybody can make? */
THC_INLINE int thc_joining_doubts(const struct thc_sender *s, const struct thc_hdr *h,
				  const struct thc_welcome *w, u32 bytes)
{
	const struct thc_member_key none = { .id = 0 };

	return thc_seal_names(h, 0) && w->flags & thc_be16(THC_WELCOME_F_REFUSED) &&
	       thc_nonce_equal(w->nonce, s->nonce) &&
	       h->tag == thc_member_tag(THC_SEAL_SUM, &none, h, NULL, w, (int)(bytes / 8));
}

/* Does @port's packet with this header name this worker's job? thcd sends from the base port. */
THC_INLINE enum thc_drop_reason thc_joining_name(const struct thc_sender *s,
						 const struct thc_hdr *h, u16 port)
{
	if (port != s->port)
		return THC_DROP_ADDRESS;
	return h->job == thc_be16(s->job) ? THC_DROP_NONE : THC_DROP_JOB;
}

/**
 * thc_joining_admit() - is the WELCOME of this worker's aggregator and job?
 * @h: its header, of this version
 * @w: its payload of @bytes, aligned like a u64
 */
THC_INLINE enum thc_drop_reason thc_joining_admit(const struct thc_joining *j,
						  const struct thc_sender *s,
						  const struct thc_hdr *h,
						  const struct thc_welcome *w, u32 bytes,
						  struct thc_origin from)
{
	enum thc_drop_reason why = thc_joining_name(s, h, from.port);
	struct thc_end end = s->end;

	if (!why)
		why = thc_parts_form(w, bytes);
	if (why)
		return why;
	if (!thc_seal_names(h, s->welcome.id))
		return thc_joining_doubts(s, h, w, bytes) ? THC_DROP_NONE : THC_DROP_KEY;
	if (thc_nonce_is_none(w->nonce)) {
		/* a copy to this worker alone does not prove that the group reaches this worker */
		if (!from.group)
			return THC_DROP_ADDRESS;
		/* a worker that rejoins may hear the group before WELCOME names it */
		if (!j->welcomed)
			return THC_DROP_UNEXPECTED;
		end = j->spec.group;
		end.aggregator = s->end.aggregator;
	}
	return thc_joining_sealed(s, h, w, bytes, &end) ? THC_DROP_NONE : THC_DROP_TAG;
}

/**
 * thc_joining_challenge() - takes in a CHALLENGE, which the next JOIN repeats at once
 * @h: its header, of this version; @c follows it, whole
 * @port: from where it was sent, host order
 *
 * A challenged worker is not in the aggregator's epoch. Returns THC_DROP_UNEXPECTED if the
 * CHALLENGE answers another joining, if the last JOIN has repeated it, or if there are too many,
 * since anybody can replay recorded ones.
 */
THC_INLINE enum thc_drop_reason thc_joining_challenge(struct thc_joining *j,
						      const struct thc_sender *s,
						      const struct thc_hdr *h,
						      const struct thc_challenge *c, u16 port)
{
	enum thc_drop_reason why = thc_joining_name(s, h, port);

	if (why)
		return why;
	if (!thc_seal_names(h, s->welcome.id))
		return THC_DROP_KEY;
	if (h->tag != thc_member_tag(s->member_seal, &s->welcome, h, &s->end, c, sizeof(*c) / 8))
		return THC_DROP_TAG;
	if (h->rank != thc_be16(s->rank) || !thc_nonce_equal(c->nonce, s->nonce) ||
	    thc_nonce_equal(c->challenge, j->challenge) || j->answered >= THC_CHALLENGES_MAX)
		return THC_DROP_UNEXPECTED;
	thc_nonce_copy(j->challenge, c->challenge);
	j->answered++;
	j->challenged = 1;
	j->unanswered = 1;
	j->ready = 0;
	return THC_DROP_NONE;
}

/* Has @s the same way of answers, @reply to @group? */
THC_INLINE int thc_joining_same_group(const struct thc_spec *s, u8 reply, struct thc_end group)
{
	return s->reply == reply && s->group.port == group.port &&
	       thc_addr_equal(&s->group.addr, &group.addr);
}

/* Takes in a WELCOME to the group: the group reaches this worker, unless the WELCOME is a recording
 * of another epoch's.
 */
THC_INLINE enum thc_drop_reason thc_joining_hear(struct thc_joining *j, const struct thc_welcome *w,
						 u32 bytes)
{
	const u8 *salt = thc_parts_salt(w, bytes);

	if (!j->welcomed || !salt || !thc_nonce_equal(j->spec.salt, salt))
		return THC_DROP_UNEXPECTED;
	j->heard = 1;
	return THC_DROP_NONE;
}

/* Should the worker believe an unsealed refusal now? */
THC_INLINE int thc_joining_believes(struct thc_joining *j, u8 refusal, u64 now)
{
	if (!j->doubt_at)
		j->doubt_at = now;
	j->doubt = refusal;
	return !j->welcomed && now - j->doubt_at >= THC_DOUBT_MS * THC_NS_PER_MS;
}

/* Takes in a complete WELCOME. */
static inline void thc_joining_read(struct thc_joining *j, struct thc_sender *s)
{
	const struct thc_welcome *w = &j->parts.info.welcome;
	const struct thc_end group = j->spec.group;
	const u8 reply = j->spec.reply;

	j->epoch = j->parts.info.epoch;
	j->unsound = !thc_spec_read(&j->spec, w, j->parts.record, j->parts.info.bytes);
	if (j->welcomed && !thc_joining_same_group(&j->spec, reply, group)) {
		j->group_at = 0;
		j->heard = 0;
	}
	j->welcomed = 1;
	j->challenged = 0;
	j->ready = !!(j->spec.flags & THC_WELCOME_F_READY);
	/* the aggregator is there: earlier errors of the network are no reason to give it up */
	s->unreachable = 0;
	s->unreachable_at = 0;
}

/* Takes in a WELCOME that was admitted; THC_DROP_UNEXPECTED: it changed nothing. @bytes: of @w */
static inline enum thc_drop_reason thc_joining_apply(struct thc_joining *j, struct thc_sender *s,
						     const struct thc_hdr *h,
						     const struct thc_welcome *w, u32 bytes,
						     u64 now)
{
	if (thc_nonce_is_none(w->nonce))
		return thc_joining_hear(j, w, bytes);
	if (!thc_nonce_equal(w->nonce, s->nonce) || h->rank != thc_be16(s->rank))
		return THC_DROP_UNEXPECTED;
	if (!thc_seal_names(h, s->welcome.id) && !thc_joining_believes(j, w->refusal, now))
		return THC_DROP_UNEXPECTED;
	if (thc_parts_add(&j->parts, thc_be32(h->epoch), w, bytes))
		thc_joining_read(j, s);
	return THC_DROP_NONE;
}

THC_INLINE enum thc_join_step thc_joining_step(const struct thc_joining *j,
					       const struct thc_sender *s)
{
	if (!j->welcomed)
		return THC_JOIN_ASK;
	if (j->spec.flags & THC_WELCOME_F_REFUSED)
		return THC_JOIN_REFUSED;
	if (j->unsound || !thc_spec_is_sound(&j->spec, s->rank, s->member_seal == THC_SEAL_NH))
		return THC_JOIN_UNSOUND;
	return j->ready ? THC_JOIN_READY : THC_JOIN_WAIT;
}

/* Does the aggregator count this worker in, by its last WELCOME? Such a worker takes leave. */
THC_INLINE int thc_joining_is_in(const struct thc_joining *j)
{
	return j->welcomed && !(j->spec.flags & THC_WELCOME_F_REFUSED);
}

/* Is it time to join the job's group? The caller has to check the group's IP version. */
THC_INLINE int thc_joining_wants_group(const struct thc_joining *j, u64 now)
{
	return j->welcomed && j->spec.reply == THC_REPLY_MULTICAST && now >= j->group_at;
}

/* Notes an attempt to join the group now; it is repeated later if it fails or does not help. */
THC_INLINE void thc_joining_tries_group(struct thc_joining *j, u64 now)
{
	j->group_at = now + THC_GROUP_RETRY_MS * THC_NS_PER_MS;
}

/* Tells why the worker has not joined in time. */
THC_INLINE void thc_joining_failure(const struct thc_joining *j, const struct thc_sender *s,
				    struct thc_failure *f)
{
	*f = (struct thc_failure){ .error = EHOSTUNREACH, .reason = THC_FAILED_SILENT };
	if (j->welcomed) {
		f->error = ETIMEDOUT;
		f->reason = THC_FAILED_JOIN;
		f->ranks = thc_ranks_mask(j->spec.ranks) & ~j->spec.joined;
	} else if (j->doubt_at) {
		f->error = EACCES;
		f->reason = THC_FAILED_REFUSED;
		f->refusal = j->doubt;
	} else if (s->unreachable) {
		f->error = s->unreachable;
		f->reason = THC_FAILED_UNREACHABLE;
	}
}

/**
 * thc_sender_set_epoch() - sets the keys of data and answers of the epoch in @spec
 * @key: the job's secret key, NULL: the job has none
 *
 * Takes some tens of microseconds.
 */
static inline void thc_sender_set_epoch(struct thc_sender *s, const struct thc_spec *spec,
					const u8 *key)
{
	s->seal = spec->seal;
	thc_seal_key_set(&s->up, key, THC_KEY_UP, s->job, spec->salt);
	thc_seal_key_set(&s->down, key, THC_KEY_DOWN, s->job, spec->salt);
}

/**
 * thc_joining_end() - makes the sender ready for data, once all ranks are in
 * @flight: zeroed, one per slot of the job, data_slots and control_slots
 * @window: most chunks of data in flight
 *
 * The caller has called thc_sender_set_epoch().
 */
THC_INLINE void thc_joining_end(const struct thc_joining *j, struct thc_sender *s,
				struct thc_flight *flight, u32 window)
{
	u32 data = j->spec.data_slots;

	thc_stream_init(&s->data, flight, 0, data);
	thc_stream_init(&s->control, flight + data, data, j->spec.control_slots);
	thc_sender_init(s, window);
	s->epoch = j->epoch;
	s->all = thc_ranks_mask(j->spec.ranks);
	s->widths = j->spec.tables.widths;
	s->one_port = !!(j->spec.flags & THC_WELCOME_F_ONE_PORT);
}

#endif /* THC_JOIN_H */
