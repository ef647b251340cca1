// SPDX-License-Identifier: GPL-2.0
/*
 * Compiles include/thc with the kernel's compiler and flags, but for what is an aggregator's
 * alone (react.h) and what thc.ko compiles anyway, and
 * checks the sizes that the wire and the BPF maps rely on. The object file is
 * part of no module: kmod/check.sh and tests/vm/build-module only have it made.
 */
#include <linux/build_bug.h>
#include <linux/stddef.h>
#include <linux/types.h>

#include <thc/aggregator/admit.h>
#include <thc/aggregator/answer.h>
#include <thc/aggregator/bucket.h>
#include <thc/aggregator/event.h>
#include <thc/aggregator/job.h>
#include <thc/aggregator/lane.h>
#include <thc/aggregator/nibble.h>
#include <thc/aggregator/reaction.h>
#include <thc/aggregator/slot.h>
#include <thc/blake2s.h>
#include <thc/key.h>
#include <thc/siphash.h>
#include <thc/types.h>
#include <thc/wire/address.h>
#include <thc/wire/checksum.h>
#include <thc/wire/format.h>
#include <thc/wire/nh.h>
#include <thc/wire/ranks.h>
#include <thc/wire/route.h>
#include <thc/wire/seal.h>
#include <thc/wire/sum.h>
#include <thc/worker/answer.h>
#include <thc/worker/join.h>
#include <thc/worker/overdue.h>
#include <thc/worker/result.h>
#include <thc/worker/shards.h>
#include <thc/worker/stall.h>
#include <thc/worker/window.h>

static_assert(offsetof(struct thc_hdr, tag) == 8);
static_assert(offsetof(struct thc_hdr, rank) == 18);
static_assert(offsetof(struct thc_hdr, epoch) == 20);
static_assert(offsetof(struct thc_hdr, generation) == 36);
static_assert(offsetof(struct thc_hdr, bitmap) == 40);
static_assert(offsetof(struct thc_welcome, shards) == 62);
static_assert(offsetof(struct thc_record_seal, salt) == 8);
static_assert(sizeof(struct thc_end) == 24);
static_assert(sizeof(struct thc_slot) == 192);
static_assert(THC_LANE_WORDS * 8 == THC_LANE_BYTES);

/* What an aggregator and a worker have. */
struct thc_headers_world {
	struct thc_slot		slot;
	struct thc_job		job;
	struct thc_seals	seals;
	struct thc_pairs	pairs;
	struct thc_sender	sender;
	u64			lanes[THC_LANE_WORDS];
};

/* One use of each core, so that the compiler looks into them. */
int thc_headers_check(struct thc_headers_world *w, const struct thc_arrival *a,
		      const struct thc_packet *p);

int thc_headers_check(struct thc_headers_world *w, const struct thc_arrival *a,
		      const struct thc_packet *p)
{
	const struct thc_seals *seals = &w->seals;
	struct thc_sender *sender = &w->sender;
	const struct thc_job *job = &w->job;
	struct thc_slot *s = &w->slot;
	struct thc_outcome out = thc_slot_arrive(s, a, job->all);
	struct thc_hdr *h = p->hdr;
	struct thc_stream *stream;
	struct thc_flight *flight;
	enum thc_got got =
		thc_sender_find(sender, h, sizeof(*h), p->path.src_port, &stream, &flight);

	if (!thc_sender_seal_ok(sender, got, flight, h, (struct thc_digest){ 0, 0 }, 0))
		return -1;
	thc_sender_apply(sender, got, stream, flight, h, 0, 0);
	if (thc_admit_form(h) || thc_admit_rank(job, h, &p->path) ||
	    thc_admit_data(job, h, &p->path, THC_LANE_BYTES))
		return -1;
	thc_lanes_add(thc_admit_kind(job, h), w->lanes, h + 1, &w->pairs, a->rank, out.first);
	thc_answer_wait(h, job, seals, &s->generation[out.odd]);
	thc_answer_stale(h, seals, s);
	thc_answer_epoch(h, job, seals, &p->path);
	return thc_slot_close(s, job->epoch, a->generation, job->quorum);
}
