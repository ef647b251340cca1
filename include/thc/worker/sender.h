/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The sender: one worker's state at one aggregator, and the packets that the worker sends. Pure
 * functions over that state; the caller guards it, and provides sockets, memory and clocks. Packets
 * from the aggregator are in receive.h, retransmission in overdue.h, and giving up in stall.h.
 */
#ifndef THC_SENDER_H
#define THC_SENDER_H

#include <thc/wire/format.h>
#include <thc/wire/nonce.h>
#include <thc/wire/rows.h>
#include <thc/wire/seal.h>
#include <thc/worker/stream.h>
#include <thc/worker/window.h>

/* Defaults, in ms: the wait without progress, and the wait for all ranks to join. */
#define THC_TIMEOUT_MS		60000U
#define THC_JOIN_TIMEOUT_MS	60000U
/* Packets of a UDP super-packet, below the kernel's limit of 64, and its bytes, below 64 KiB. */
#define THC_TRAIN_PACKETS	60
#define THC_TRAIN_BYTES		60000U
/* Bytes of a packet on the wire in front of its UDP payload. */
#define THC_WIRE_IP4		42U
#define THC_WIRE_IP6		62U

/* Packets that timers retransmit at a time, until a retransmission proves to have been needed. */
#define THC_PROBES		2

/**
 * struct thc_sender - one worker of one aggregator
 * @data: the data stream: chunks that are added
 * @control: the control stream: what ranks agree on, by MAX and OR; WELCOME gives it control_slots
 * @window: congestion window of both streams together
 * @order: packets sent so far
 * @progress_at: time of the last answer, or of the first packet after a pause
 * @unreachable_at: time of the network's first error since that answer or packet, 0: none
 * @unreachable: errno of the network's last error
 * @timers_at: timers retransmit nothing before this time
 * @probes: retransmissions by timer allowed at @timers_at
 * @stalls: times that timers have fired since the last answer
 * @look_at: when to look for overdue packets, unless something happens before
 * @up: key of this worker's data
 * @down: key of answers
 * @join: key of this worker's JOIN and LEAVE
 * @welcome: key of WELCOME and CHALLENGE
 * @lost: key of a STALE that ends an epoch
 * @nonce: of the current joining, or of the one that has succeeded
 * @end: this worker's end of the path, as membership packets are sealed
 * @all: mask of the job's ranks
 * @epoch: the job's incarnation
 * @job: the job's number
 * @port: the aggregator's base port, host order
 * @rank: this worker's
 * @widths: the job's rows, of LUT_ADD
 * @seal: of data and answers
 * @member_seal: of membership packets; THC_SEAL_NH: the worker has the job's secret key
 * @one_port: all slots are reached on the base port
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

/* Starts over in a new epoch. The round-trip estimate is kept: the path is the same. */
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

/* Writes a LEAVE; the caller seals it. */
THC_INLINE void thc_sender_leave(const struct thc_sender *s, struct thc_hdr *h,
				 struct thc_leave *payload)
{
	thc_sender_header(s, h, THC_OP_LEAVE);
	thc_nonce_copy(payload->nonce, s->nonce);
}

/* Writes the header of chunk @sequence of @st; the caller adds the payload and seals both. */
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
	/* A packet's timeout grows with its retransmissions, bounded by THC_TRIES_MAX alone. Timers
	 * send few packets at a time: the oldest ones that are due, norms first. With a constant
	 * timeout two norms that wait for a late rank would be due each time, and a lost packet
	 * that the late rank needs would never get its turn.
	 */
	f->due = now + thc_window_rto(&s->window) * (1 + f->tries);
	f->order = s->order++;
	f->waiting = 0;
	f->cut = 0;
}

/* Is any packet in flight without an answer? */
THC_INLINE int thc_sender_busy(const struct thc_sender *s)
{
	return s->data.in_flight || s->control.in_flight;
}

/* Notes that the network has reported @error, an errno: packets do not arrive. */
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

	/* an error from an idle time is no reason for a missing answer */
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
