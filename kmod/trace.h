/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracepoints: thc:thc_drop, thc_answer, thc_retransmit, thc_message,
 * thc_break. Names of reasons are those of netlink and thcctl.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM thc

#if !defined(THC_KMOD_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define THC_KMOD_TRACE_H

#include <linux/tracepoint.h>
#include <net/sock.h>
#include <thc/names.h>
#include <thc/worker/answer.h>

/* clang-format off */
#ifndef THC_TRACE_NAMES
#define THC_TRACE_NAMES
#define THC_TRACE_DROP(id, name, meaning)	{ THC_DROP_##id, name },
#define THC_TRACE_DROPS								\
	THC_DROP_LIST(THC_TRACE_DROP) THC_WORKER_DROP_LIST(THC_TRACE_DROP)	\
	{ THC_WORKER_DROP_REASONS, "?" }
#endif

TRACE_EVENT(thc_drop,
	TP_PROTO(const struct sock *sk, unsigned int reason),
	TP_ARGS(sk, reason),
	TP_STRUCT__entry(
		__field(const void *, sk)
		__field(unsigned int, reason)
	),
	TP_fast_assign(
		__entry->sk = sk;
		__entry->reason = reason;
	),
	TP_printk("sk=%p reason=%s", __entry->sk,
		  __print_symbolic(__entry->reason, THC_TRACE_DROPS))
);

TRACE_EVENT(thc_answer,
	TP_PROTO(const struct sock *sk, const struct thc_hdr *h, unsigned int got),
	TP_ARGS(sk, h, got),
	TP_STRUCT__entry(
		__field(const void *, sk)
		__field(u64, bitmap)
		__field(u32, round)
		__field(u32, chunk)
		__field(u16, count)
		__field(u8, op)
		__field(u8, got)
	),
	TP_fast_assign(
		__entry->sk = sk;
		__entry->bitmap = be64_to_cpu(h->bitmap);
		__entry->round = be32_to_cpu(h->round);
		__entry->chunk = be32_to_cpu(h->chunk);
		__entry->count = be16_to_cpu(h->count);
		__entry->op = h->op;
		__entry->got = got;
	),
	TP_printk("sk=%p op=%u round=%u chunk=%u count=%u ranks=%#llx %s", __entry->sk,
		  __entry->op, __entry->round, __entry->chunk, __entry->count, __entry->bitmap,
		  __print_symbolic(__entry->got, { THC_GOT_WAIT, "wait" },
				   { THC_GOT_ANSWER, "answer" }, { THC_GOT_MISSED, "missed" }))
);

TRACE_EVENT(thc_retransmit,
	TP_PROTO(const struct sock *sk, const struct thc_hdr *h, unsigned int tries),
	TP_ARGS(sk, h, tries),
	TP_STRUCT__entry(
		__field(const void *, sk)
		__field(u32, chunk)
		__field(u16, slot)
		__field(u8, op)
		__field(u8, tries)
	),
	TP_fast_assign(
		__entry->sk = sk;
		__entry->chunk = be32_to_cpu(h->chunk);
		__entry->slot = be16_to_cpu(h->slot);
		__entry->op = h->op;
		__entry->tries = tries;
	),
	TP_printk("sk=%p op=%u chunk=%u slot=%u tries=%u", __entry->sk, __entry->op,
		  __entry->chunk, __entry->slot, __entry->tries)
);

TRACE_EVENT(thc_message,
	TP_PROTO(const struct sock *sk, u32 round, u8 op, u32 chunks, bool done),
	TP_ARGS(sk, round, op, chunks, done),
	TP_STRUCT__entry(
		__field(const void *, sk)
		__field(u32, round)
		__field(u32, chunks)
		__field(u8, op)
		__field(bool, done)
	),
	TP_fast_assign(
		__entry->sk = sk;
		__entry->round = round;
		__entry->chunks = chunks;
		__entry->op = op;
		__entry->done = done;
	),
	TP_printk("sk=%p op=%u round=%u chunks=%u %s", __entry->sk, __entry->op, __entry->round,
		  __entry->chunks, __entry->done ? "complete" : "begun")
);

TRACE_EVENT(thc_break,
	TP_PROTO(const struct sock *sk, int error, unsigned int reason),
	TP_ARGS(sk, error, reason),
	TP_STRUCT__entry(
		__field(const void *, sk)
		__field(int, error)
		__field(unsigned int, reason)
	),
	TP_fast_assign(
		__entry->sk = sk;
		__entry->error = error;
		__entry->reason = reason;
	),
	TP_printk("sk=%p error=%d reason=%u", __entry->sk, __entry->error, __entry->reason)
);
/* clang-format on */

#endif /* THC_KMOD_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
