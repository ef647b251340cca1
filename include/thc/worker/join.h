/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How a worker joins: JOIN, again and again, until WELCOME says that all ranks are in. What a JOIN
 * would change, it changes if it repeats what CHALLENGE has asked, and CHALLENGE is answered at
 * once: it costs a round trip. Sockets and clocks are the caller's, as in sender.h.
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
 * Soon at first, since packets are lost and ranks that start together are to be in soon. Seldom
 * later: a job may wait long for one rank that starts late, and what makes the job ready is
 * told to all at once.
 */
THC_INLINE u32 thc_join_interval(u32 sent)
{
	u32 more = sent < THC_JOIN_FIRST ? 0 : sent - THC_JOIN_FIRST + 1;

	return THC_JOIN_FIRST_MS << (more < THC_JOIN_DOUBLED ? more : THC_JOIN_DOUBLED);
}

/* A group that could not be joined is not tried again sooner: it costs locks that all of the
 * worker's host needs.
 */
#define THC_GROUP_RETRY_MS	1000
/* A worker with the job's secret key believes a refusal that is not sealed by it only if nothing
 * else comes for so long: an aggregator with another key, or without the job, cannot seal it, and
 * anybody can send one.
 */
#define THC_DOUBT_MS		2000
/* Challenges that are answered between two JOINs of the timer: a rank that is let in meets one, and
 * each other rank that restarts meanwhile another one.
 */
#define THC_CHALLENGES_MAX	4
/* LEAVE is not answered: one of THC_LEAVES arrives almost surely. */
#define THC_LEAVES		3

/**
 * struct thc_joining - a worker's way into the job of one aggregator
 * @spec: what WELCOME said last
 * @epoch: of it
 * @parts: of the next one, or of the last one
 * @challenge: of our last JOIN, zero: it had none
 * @at: time of the next JOIN of the timer
 * @group_at: the job's group may be joined from then on; 0: at once
 * @doubt_at: time of the first refusal that was not sealed, 0: there was none
 * @doubt: enum thc_refusal of the last one
 * @sent: JOINs of the timer
 * @answered: challenges since the last one of these
 * @challenged: @challenge is the aggregator's last word: we are not in its epoch
 * @unanswered: and that is to be said at once
 * @welcomed: @spec is filled in
 * @unsound: with what this worker cannot serve
 * @heard: a WELCOME came over the group
 * @ready: all ranks are in. Of a job with several aggregators each has to say so: until all do, it
 *	may change its mind, and when they do, the caller hands nothing on
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
	THC_JOIN_ASK,		/* nothing is known of the job */
	THC_JOIN_WAIT,		/* not all ranks are in */
	THC_JOIN_READY,		/* they are */
	THC_JOIN_REFUSED,	/* the job refuses this rank: thc_welcome.refusal */
	THC_JOIN_UNSOUND,	/* a job that this worker cannot serve */
};

/* @random: bytes that nobody can guess. */
THC_INLINE void thc_joining_begin(struct thc_joining *j, struct thc_sender *s,
				  const u8 random[THC_NONCE_BYTES], u64 now)
{
	u8 *begin = (u8 *)j;
	u32 i;

	/* what is large need not be cleared */
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

/* The next JOIN, to be sealed and sent now. Its epoch is the worker's last one, which the next
 * is to be newer than. Whoever is in says HEARD, with the epoch's salt where a challenge would be.
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
	/* which this JOIN did not say: it may be asked again */
	if (heard)
		thc_nonce_copy(j->challenge, none);
	j->unanswered = 0;
	if (j->at > now)
		return;
	j->answered = 0;
	j->at = now + thc_join_interval(++j->sent) * THC_NS_PER_MS;
}

/**
 * thc_sender_set_key() - the keys of joining
 * @key: the job's secret key, NULL: it has none
 *
 * The sender's job is known. Takes some microseconds.
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

/* Is it time for a JOIN? Then it is made, and the caller sends it. *@due: lowered to the time of
 * the next one.
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

/* Is the WELCOME sealed by the job's key? @end: ours, or the group's */
THC_INLINE int thc_joining_sealed(const struct thc_sender *s, const struct thc_hdr *h,
				  const struct thc_welcome *w, u32 bytes, const struct thc_end *end)
{
	return h->tag == thc_member_tag(s->member_seal, &s->welcome, h, end, w, (int)(bytes / 8));
}

/* Does @w refuse a worker with our nonce, with a seal that anybody can make? */
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
		/* that somebody has heard it, and sends it on, does not show that we do */
		if (!from.group)
			return THC_DROP_ADDRESS;
		/* whoever joins again hears the group before it is told which one it is */
		if (!j->welcomed)
			return THC_DROP_UNEXPECTED;
		end = j->spec.group;
		end.aggregator = s->end.aggregator;
	}
	return thc_joining_sealed(s, h, w, bytes, &end) ? THC_DROP_NONE : THC_DROP_TAG;
}

/**
 * thc_joining_challenge() - what a CHALLENGE changes: the next JOIN says it, at once
 * @h: its header, of this version; @c follows it, whole
 * @port: from where it was sent, host order
 *
 * THC_DROP_UNEXPECTED: it is none of the joining under way, our last JOIN has said it, or there are
 * too many, since recorded ones come again, too. Who is asked is not in the aggregator's epoch.
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

/* Do answers come as before, @reply to @group? */
THC_INLINE int thc_joining_same_group(const struct thc_spec *s, u8 reply, struct thc_end group)
{
	return s->reply == reply && s->group.port == group.port &&
	       thc_addr_equal(&s->group.addr, &group.addr);
}

/* A WELCOME to the group: it reaches us, unless it is a recording of another epoch's. */
THC_INLINE enum thc_drop_reason thc_joining_hear(struct thc_joining *j, const struct thc_welcome *w,
						 u32 bytes)
{
	const u8 *salt = thc_parts_salt(w, bytes);

	if (!j->welcomed || !salt || !thc_nonce_equal(j->spec.salt, salt))
		return THC_DROP_UNEXPECTED;
	j->heard = 1;
	return THC_DROP_NONE;
}

/* Is a refusal that may be anybody's to be believed now? */
THC_INLINE int thc_joining_believes(struct thc_joining *j, u8 refusal, u64 now)
{
	if (!j->doubt_at)
		j->doubt_at = now;
	j->doubt = refusal;
	return !j->welcomed && now - j->doubt_at >= THC_DOUBT_MS * THC_NS_PER_MS;
}

/* A whole WELCOME is there. */
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
	/* it is there: what the network said before is no reason to give it up later */
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

/* Does the aggregator count this worker in, for all that it has said? Whoever gives up tells it. */
THC_INLINE int thc_joining_is_in(const struct thc_joining *j)
{
	return j->welcomed && !(j->spec.flags & THC_WELCOME_F_REFUSED);
}

/* Is it time to join the job's group? Of its IP version the caller knows. */
THC_INLINE int thc_joining_wants_group(const struct thc_joining *j, u64 now)
{
	return j->welcomed && j->spec.reply == THC_REPLY_MULTICAST && now >= j->group_at;
}

/* The group is being joined now: if that fails, or does not help, it is tried again. */
THC_INLINE void thc_joining_tries_group(struct thc_joining *j, u64 now)
{
	j->group_at = now + THC_GROUP_RETRY_MS * THC_NS_PER_MS;
}

/* The time to join has run out: why? */
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
 * thc_sender_set_epoch() - the keys of the epoch that @spec is of
 * @key: the job's secret key, NULL: it has none
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
 * thc_joining_end() - all ranks are in: the sender is made ready
 * @flight: zeroed room for the job's slots, data_slots and control_slots
 * @window: most chunks of data in flight
 *
 * thc_sender_set_epoch() has been called.
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
