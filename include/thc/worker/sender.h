/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A worker's side of the protocol: one worker of one aggregator, and the packets
 * it sends. Pure functions over its state, which the caller guards; sockets, memory
 * and clocks are the caller's. What comes back is receive.h's, what is sent again
 * overdue.h's, and when there is no point in waiting stall.h's.
 */
#ifndef THC_SENDER_H
#define THC_SENDER_H

#include <thc/wire/format.h>
#include <thc/wire/nonce.h>
#include <thc/wire/rows.h>
#include <thc/wire/seal.h>
#include <thc/worker/stream.h>
#include <thc/worker/window.h>

/* Without an option: how long nothing may move, and how long all ranks may take to join. */
#define THC_TIMEOUT_MS		60000U
#define THC_JOIN_TIMEOUT_MS	60000U
/* Packets of a UDP super-packet, below the kernel's limit of 64, and its bytes, below 64 KiB. */
#define THC_TRAIN_PACKETS	60
#define THC_TRAIN_BYTES		60000U
/* Bytes of a packet on the wire in front of its UDP payload. */
#define THC_WIRE_IP4		42U
#define THC_WIRE_IP6		62U

/* Retransmissions by timer at a time, as long as none of them was needed. */
#define THC_PROBES		2

/**
 * struct thc_sender - one worker of one aggregator
 * @data: the data stream: chunks that are added
 * @control: the control stream: what ranks agree on, by MAX and OR; WELCOME gives it control_slots
 * @window: congestion window of both streams together
 * @order: packets sent so far
 * @progress_at: time of the last answer, or of the first packet after a pause
 * @unreachable_at: time of the network's first complaint since, 0: none
 * @unreachable: errno of the network's last complaint
 * @timers_at: no retransmission by timer before
 * @probes: retransmissions by timer allowed at @timers_at
 * @stalls: times they fired since the last answer
 * @look_at: time to look for what is overdue, unless something happens before
 * @up: seals our data
 * @down: seals answers
 * @join: seals our JOIN and LEAVE
 * @welcome: seals WELCOME
 * @lost: seals STALE that ends an epoch
 * @nonce: of the joining under way, or of that which has brought us in
 * @end: ours
 * @all: mask of the job's ranks
 * @epoch: its incarnation
 * @job: its number
 * @port: the aggregator's base port, host order
 * @rank: of this worker
 * @widths: the job's rows, of LUT_ADD
 * @seal: of data and answers
 * @member_seal: of all else; THC_SEAL_NH: we have the job's secret key
 * @one_port: the base port is that of all slots
 */
struct thc_sender {
	struct thc_stream	data;
	struct thc_stream	control;
	struct thc_window	window;
	u64			order;
	u64			progress_at;
	u64			unreachable_at;
	u64			timers_at;
	u64			look_at;
	u32			probes;
	u32			stalls;
	int			unreachable;
	struct thc_seal_key	up;
	struct thc_seal_key	down;
	struct thc_member_key	join;
	struct thc_member_key	welcome;
	struct thc_member_key	lost;
	u8			nonce[THC_NONCE_BYTES];
	struct thc_end		end;
	u64			all;
	u32			epoch;
	u16			job;
	u16			port;
	u8			rank;
	struct thc_widths	widths;
	u8			seal;
	u8			member_seal;
	u8			one_port;
};

/* Starts over in a new epoch. What was learnt about the path is kept. */
THC_INLINE void thc_sender_init(struct thc_sender *s, u32 window)
{
	thc_window_init(&s->window, window);
	s->order = 1;
	s->timers_at = 0;
	s->look_at = 0;
	s->probes = THC_PROBES;
	s->stalls = 0;
}

/* Seals a JOIN or LEAVE, @words words of payload. */
THC_INLINE void thc_sender_seal_membership(const struct thc_sender *s, struct thc_hdr *h,
					   const void *payload, int words)
{
	thc_member_seal(h, s->member_seal, &s->join, &s->end, payload, words);
}

/* Fills in the fields that every packet of this worker has; the rest is zero. */
THC_INLINE void thc_sender_header(const struct thc_sender *s, struct thc_hdr *h, u8 op)
{
	*h = (struct thc_hdr){
		.version = THC_VERSION,
		.op = op,
		.job = thc_be16(s->job),
		.rank = thc_be16(s->rank),
		.epoch = thc_be32(s->epoch),
	};
}

/* A LEAVE, to be sealed. */
THC_INLINE void thc_sender_leave(const struct thc_sender *s, struct thc_hdr *h,
				 struct thc_leave *payload)
{
	thc_sender_header(s, h, THC_OP_LEAVE);
	thc_nonce_copy(payload->nonce, s->nonce);
}

/* The header of chunk @sequence of @st, to be sealed once the payload is in. */
THC_INLINE void thc_sender_request(const struct thc_sender *s, const struct thc_stream *st,
				   struct thc_hdr *h, u8 op, u8 width, u32 round, u64 sequence)
{
	thc_sender_header(s, h, op);
	h->width = width;
	h->round = thc_be32(round);
	thc_stream_fill(st, h, sequence);
}

/* The aggregator's UDP port that slot @slot is reached on. */
THC_INLINE u16 thc_sender_port(const struct thc_sender *s, u32 slot)
{
	return s->one_port ? s->port : thc_slot_port(s->port, slot);
}

THC_INLINE void thc_flight_sent(struct thc_sender *s, struct thc_flight *f, u64 now)
{
	f->sent_at = now;
	/* What was sent again comes after what was not, and the later the oftener it was. There
	 * is no bound but THC_TRIES_MAX: timers send few packets at a time, the oldest of both
	 * streams that are due, norms first. Were the pause as short as that of timers, two norms
	 * that wait for a rank would be sent each time, and never a lost packet that the rank is
	 * waiting for.
	 */
	f->due = now + thc_window_rto(&s->window) * (1 + f->tries);
	f->order = s->order++;
	f->waiting = 0;
	f->cut = 0;
}

/* Packets are in flight that had no answer yet. */
THC_INLINE int thc_sender_busy(const struct thc_sender *s)
{
	return s->data.in_flight || s->control.in_flight;
}

/* The network says, by @error, an errno, that packets do not arrive. */
THC_INLINE void thc_sender_unreachable(struct thc_sender *s, int error, u64 now)
{
	if (!s->unreachable_at)
		s->unreachable_at = now;
	s->unreachable = error;
}

/**
 * thc_flight_launch() - chunk @st->next goes out
 *
 * The caller has asked thc_stream_may_send(), and sends the packet.
 */
THC_INLINE struct thc_flight *thc_flight_launch(struct thc_sender *s, struct thc_stream *st,
						struct thc_ready ready, u64 now)
{
	struct thc_flight *f = thc_stream_flight(st, st->next);

	/* what the network said while nothing was asked is about no answer that is missing */
	if (!thc_sender_busy(s)) {
		s->unreachable_at = 0;
		s->progress_at = now;
	}
	f->owner = ready.owner;
	f->packet = ready.packet;
	f->sequence = st->next;
	f->first_at = now;
	f->first_order = s->order;
	f->present = 0;
	f->differs = 0;
	f->index = ready.index;
	f->bytes = ready.bytes;
	f->tries = 0;
	f->left = 0;
	f->ce = 0;
	thc_flight_sent(s, f, now);
	st->in_flight++;
	st->next++;
	return f;
}

#endif /* THC_SENDER_H */
